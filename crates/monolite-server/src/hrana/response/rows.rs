//! Owns the rows of a result, encoded from SQLite's values as they are read.
//!
//! # Format
//! JSON: arrays with commas between them. Protobuf: the field `rows` of a result, once for each
//! row.

use std::fmt;

use monolite::rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::ProtocolError;
use super::writer::Writer;
use crate::hrana::Encoding;

/// The rows of a result, encoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    encoding: Encoding,
    /// Where each row ends in `bytes`.
    ends: Vec<usize>,
    #[serde(with = "in_base64")]
    bytes: Vec<u8>,
}

mod in_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        STANDARD_NO_PAD.encode(bytes).serialize(to)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD_NO_PAD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
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
        let mut writer = Writer { out: &mut self.bytes, encoding: self.encoding };
        writer.json(if self.ends.is_empty() { "" } else { "," });
        let written = writer.wrapped(2, |writer| write(writer, row, columns));
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
                Encoding::Protobuf => content(row),
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
        write(&mut Writer { out: &mut bytes, encoding }, row, columns)?;
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

/// The content of a message of Protobuf in a field whose tag is one byte.
fn content(field: &[u8]) -> &[u8] {
    let length = field[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
    &field[1 + length..]
}

fn write(writer: &mut Writer<'_>, row: &Row<'_>, columns: usize) -> Result<(), InvalidText> {
    writer.json("[");
    for column in 0..columns {
        writer.json(if column == 0 { "" } else { "," });
        let value = row.get_ref_unwrap(column);
        writer.wrapped(1, |writer| writer.value(value)).map_err(|()| {
            let name = row.as_ref().column_name(column).unwrap_or_default().to_owned();
            InvalidText { column, name }
        })?;
    }
    writer.json("]");
    Ok(())
}
