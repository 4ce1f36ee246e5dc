//! Owns the rows of a result, encoded from SQLite's values as they are read.
//!
//! # Format
//! JSON: arrays with commas between them. Protobuf: the field `rows` of a result, once for each row.

use std::fmt;

use monolite::rusqlite::Row;

use super::encode::{json, protobuf};
use super::{Encoding, ProtocolError};

/// The rows of a result, encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    encoding: Encoding,
    /// Where each row ends in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

/// One row of a cursor, encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRow {
    encoding: Encoding,
    bytes: Vec<u8>,
}

/// A text of SQLite that is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidText {
    /// The column, from 0.
    pub column: usize,
    /// Its name.
    pub name: String,
}

impl fmt::Display for InvalidText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        write!(f, "the text in column {name:?} is not UTF-8; select CAST({name} AS BLOB) instead")
    }
}

impl std::error::Error for InvalidText {}

impl From<InvalidText> for ProtocolError {
    fn from(invalid: InvalidText) -> ProtocolError {
        ProtocolError::new("TEXT_NOT_UTF8", invalid.to_string())
    }
}

impl Rows {
    /// No rows yet.
    pub fn new(encoding: Encoding) -> Rows {
        Rows { encoding, ends: Vec::new(), bytes: Vec::new() }
    }

    /// Adds a row with its first `columns` values.
    ///
    /// # Errors
    /// If a text is not UTF-8; then the row is not there.
    ///
    /// # Panics
    /// If the row has fewer columns.
    pub fn push(&mut self, row: &Row<'_>, columns: usize) -> Result<(), InvalidText> {
        let before = self.bytes.len();
        let written = match self.encoding {
            Encoding::Json => {
                let comma = if self.is_empty() { "" } else { "," };
                json::put(&mut self.bytes, comma);
                write(&mut self.bytes, self.encoding, row, columns)
            }
            Encoding::Protobuf => {
                // As long as those before.
                let hint = before / self.len().max(1);
                let write = |out: &mut Vec<u8>| write(out, self.encoding, row, columns);
                protobuf::message(&mut self.bytes, 2, hint, write)
            }
        };
        match written {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(_) => self.bytes.truncate(before),
        }
        written
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes they take in the response.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all rows, as when the statement runs again.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    /// The rows one by one, for a cursor.
    pub fn into_rows(self) -> impl Iterator<Item = EncodedRow> {
        let Rows { encoding, ends, bytes } = self;
        let mut start = 0;
        ends.into_iter().map(move |end| {
            let row = &bytes[start..end];
            start = end;
            let row = match encoding {
                Encoding::Json => row.strip_prefix(b",").unwrap_or(row),
                Encoding::Protobuf => protobuf::content(row),
            };
            EncodedRow { encoding, bytes: row.to_vec() }
        })
    }

    /// The rows as the response in `encoding` has them.
    pub(super) fn encoded(&self, encoding: Encoding) -> &[u8] {
        assert_eq!(self.encoding, encoding, "the rows are encoded as their response is");
        &self.bytes
    }
}

impl EncodedRow {
    /// Encodes the first `columns` values of a row.
    ///
    /// # Errors
    /// If a text is not UTF-8.
    ///
    /// # Panics
    /// If the row has fewer columns.
    pub fn new(
        encoding: Encoding,
        row: &Row<'_>,
        columns: usize,
    ) -> Result<EncodedRow, InvalidText> {
        let mut bytes = Vec::new();
        write(&mut bytes, encoding, row, columns)?;
        Ok(EncodedRow { encoding, bytes })
    }

    /// How many bytes it takes in the response.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The row as the entry in `encoding` has it.
    pub(super) fn encoded(&self, encoding: Encoding) -> &[u8] {
        assert_eq!(self.encoding, encoding, "a row is encoded as its cursor is");
        &self.bytes
    }
}

fn write(
    out: &mut Vec<u8>,
    encoding: Encoding,
    row: &Row<'_>,
    columns: usize,
) -> Result<(), InvalidText> {
    if encoding == Encoding::Json {
        json::put(out, "[");
    }
    for column in 0..columns {
        let value = row.get_ref_unwrap(column);
        let written = match encoding {
            Encoding::Json => {
                json::put(out, if column == 0 { "" } else { "," });
                json::value(out, value)
            }
            Encoding::Protobuf => {
                let hint = value.as_bytes_or_null().ok().flatten().map_or(0, <[u8]>::len);
                protobuf::message(out, 1, hint, |out| protobuf::value(out, value))
            }
        };
        written.map_err(|()| {
            let name = row.as_ref().column_name(column).map_or("", |name| name).to_owned();
            InvalidText { column, name }
        })?;
    }
    if encoding == Encoding::Json {
        json::put(out, "]");
    }
    Ok(())
}
