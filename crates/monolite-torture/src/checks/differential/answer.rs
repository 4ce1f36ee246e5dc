//! Owns what a statement said: rows with their column names, a number of changes, or an error, as
//! one text that can be compared and read.

use std::fmt::Write as _;

use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{self, Row};
use monolite::{Error, ErrorKind};

use super::excuses::{SOUND, is_false_alarm, is_of_view};

/// What a statement said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    /// The kind of its error, if it failed.
    pub(super) failed: Option<ErrorKind>,
}

impl Said {
    /// What was answered to `sql`.
    pub(super) fn of(sql: &str, answer: &Result<String, Error>) -> Said {
        match answer {
            Ok(text) if is_false_alarm(sql, text) => Said { text: SOUND.into(), failed: None },
            Ok(text) => Said { text: text.clone(), failed: None },
            Err(error) => {
                let said = Said::failure(error);
                let text = if is_of_view(sql, &said.text) { "a view".into() } else { said.text };
                Said { text, ..said }
            }
        }
    }

    pub(super) fn failure(error: &Error) -> Said {
        use rusqlite::Error::{SqlInputError, SqliteFailure};
        let kind = error.kind();
        let text = match error.sqlite() {
            _ if error.is_no_rows() => "no row".into(),
            // The same, but for where in the text it is, which a kept statement does not know.
            Some(SqliteFailure(code, Some(msg)) | SqlInputError { error: code, msg, .. }) => {
                format!("{kind:?} {}: {msg}", code.extended_code)
            }
            _ => format!("{kind:?}: {}", error.message()),
        };
        Said { text, failed: Some(kind) }
    }

    /// Whether an interactive transaction is over after it.
    pub(super) fn is_fatal(&self) -> bool {
        let answers = [ErrorKind::Constraint, ErrorKind::NoRows, ErrorKind::Invalid];
        self.failed.is_some_and(|kind| !answers.contains(&kind))
    }
}

/// Rows as text: the names of the columns, then each row.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) text: String,
    pub(super) count: usize,
}

impl Rows {
    pub(super) fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let statement = row.as_ref();
        let columns = statement.column_count();
        if self.count == 0 {
            for column in 0..columns {
                self.text.push_str(if column == 0 { "" } else { ", " });
                self.text.push_str(statement.column_name(column)?);
            }
            self.text.push(':');
        }
        self.count += 1;
        let is_plan = columns == 4 && statement.column_name(2)? == "notused";
        for column in 0..columns {
            self.text.push_str(if column == 0 { " (" } else { ", " });
            if is_plan && column == 2 {
                continue;
            }
            write_value(&mut self.text, row.get_ref(column)?);
        }
        self.text.push(')');
        Ok(())
    }

    pub(super) fn said(self) -> String {
        if self.count == 0 { "no rows".into() } else { self.text }
    }
}

/// Writes a value as SQL, so that its type shows.
pub(super) fn write_value(out: &mut String, value: ValueRef<'_>) {
    let written = match value {
        ValueRef::Null => out.write_str("NULL"),
        ValueRef::Integer(value) => write!(out, "{value}"),
        ValueRef::Real(value) => write!(out, "{value:?}"),
        ValueRef::Text(value) => {
            write!(out, "'{}'", String::from_utf8_lossy(value).replace('\'', "''"))
        }
        ValueRef::Blob(value) => {
            out.push_str("x'");
            value.iter().try_for_each(|byte| write!(out, "{byte:02x}")).and(out.write_str("'"))
        }
    };
    written.expect("a string takes everything");
}

/// An error's text without the names and numbers that differ from one history to the next.
pub(super) fn normal(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_inclusive(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_') {
        let bare = word.trim_end_matches(|sign: char| !sign.is_ascii_alphanumeric());
        let is_name = bare.len() <= 3 && bare.ends_with(|sign: char| sign.is_ascii_digit());
        let is_number = bare.starts_with(|sign: char| sign.is_ascii_digit());
        if is_name || is_number || bare.len() == 1 {
            out.push('#');
            out.push_str(&word[bare.len()..]);
        } else {
            out.push_str(word);
        }
    }
    out
}
