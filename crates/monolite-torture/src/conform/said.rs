//! Owns what a statement said, in a form in which two answers can be compared and shown.

use std::fmt;

use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{self, Row, Statement};
use monolite::{Error, ErrorKind};
use monolite_sqlite::GivenRowids;

/// Longest row, and most rows, that are shown of an answer.
const SHOWN_CELLS: usize = 12;
const SHOWN_ROWS: usize = 6;
/// Longest value that is shown, in characters.
const SHOWN_CHARS: usize = 200;

/// A value with its type, bit for bit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    Null,
    Integer(i64),
    /// The bits of the number.
    Real(u64),
    /// Need not be UTF-8.
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl From<ValueRef<'_>> for Cell {
    fn from(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Integer(number) => Cell::Integer(number),
            ValueRef::Real(number) => Cell::Real(number.to_bits()),
            ValueRef::Text(text) => Cell::Text(text.to_vec()),
            ValueRef::Blob(blob) => Cell::Blob(blob.to_vec()),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: String| text.chars().take(SHOWN_CHARS).collect::<String>();
        match self {
            Cell::Null => f.write_str("NULL"),
            Cell::Integer(number) => write!(f, "{number}"),
            Cell::Real(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Cell::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => write!(f, "'{}'", short(text.to_owned())),
                Err(_) => write!(f, "text {}", short(format!("{text:02x?}"))),
            },
            Cell::Blob(blob) => {
                let hex: String = blob.iter().map(|byte| format!("{byte:02x}")).collect();
                write!(f, "x'{}'", short(hex))
            }
        }
    }
}

/// An error, as far as an application can act upon it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    /// SQLite's extended code.
    pub(crate) code: Option<i32>,
    /// Names the constraint, the table, the column.
    pub(crate) text: String,
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Fault {
        let text = error.message().to_owned();
        Fault { kind: error.kind(), code: error.extended_code(), text }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("no code".to_owned(), |code| format!("code {code}"));
        write!(f, "error {:?}, {code}: {}", self.kind, self.text)
    }
}

/// What a statement said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// `None` where the way in which it was asked does not tell.
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// How many rows it changed, where that was asked.
    pub(crate) changes: Option<u64>,
    pub(crate) fault: Option<Fault>,
    /// The numbers that its rows were given ahead; no part of the answer.
    pub(crate) given: Option<GivenRowids>,
}

/// In what two answers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    Error,
    Columns,
    Rows,
    Changes,
}

impl Said {
    /// Says nothing but that it failed.
    pub(crate) fn failed(error: &Error) -> Said {
        Said { fault: Some(error.into()), ..Said::default() }
    }

    /// Adds what `result` tells beyond the rows.
    pub(crate) fn ended<T>(mut self, result: Result<T, Error>) -> Said {
        self.fault = result.err().as_ref().map(Fault::from);
        self
    }

    /// The first thing in which the answers differ.
    pub(crate) fn differs(&self, other: &Said) -> Option<Aspect> {
        let both = |a: &Option<Vec<String>>, b: &Option<Vec<String>>| a.is_some() && b.is_some();
        if self.fault != other.fault {
            Some(Aspect::Error)
        } else if both(&self.columns, &other.columns) && self.columns != other.columns {
            Some(Aspect::Columns)
        } else if self.rows != other.rows {
            Some(Aspect::Rows)
        } else if self.changes != other.changes {
            Some(Aspect::Changes)
        } else {
            None
        }
    }

    /// Adds a row, and the names of the columns with the first.
    pub(crate) fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let statement: &Statement<'_> = row.as_ref();
        if self.columns.is_none() {
            self.columns = Some(names(statement));
        }
        let columns = statement.column_count();
        let cells = (0..columns).map(|at| row.get_ref(at).map(Cell::from));
        self.rows.push(cells.collect::<rusqlite::Result<_>>()?);
        Ok(())
    }
}

/// The names of a statement's columns.
pub(crate) fn names(statement: &Statement<'_>) -> Vec<String> {
    let name = |at| statement.column_name(at).unwrap_or_default().to_owned();
    (0..statement.column_count()).map(name).collect()
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.rows.is_empty() {
            let row = |row: &Vec<Cell>| {
                let cells: Vec<_> = row.iter().take(SHOWN_CELLS).map(Cell::to_string).collect();
                format!("({})", cells.join(", "))
            };
            let shown: Vec<_> = self.rows.iter().take(SHOWN_ROWS).map(row).collect();
            let columns = self.columns.as_ref().map_or(String::new(), |names| names.join("|"));
            parts.push(format!("{} rows [{columns}] {}", self.rows.len(), shown.join(" ")));
        }
        if let Some(changes) = self.changes {
            parts.push(format!("{changes} changed"));
        }
        if let Some(fault) = &self.fault {
            parts.push(fault.to_string());
        }
        if parts.is_empty() {
            let columns = self.columns.as_ref().filter(|names| !names.is_empty());
            let columns =
                columns.map_or(String::new(), |names| format!(", columns {}", names.join("|")));
            return write!(f, "done{columns}");
        }
        f.write_str(&parts.join("; "))
    }
}
