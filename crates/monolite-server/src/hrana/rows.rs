//! Owns the rows of a result, encoded from SQLite's values as they are read.

use monolite::rusqlite::Row;

use super::Encoding;

/// The rows of a result, encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    encoding: Encoding,
    len: usize,
    bytes: Vec<u8>,
}

/// One row of a cursor, encoded.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedRow(Vec<u8>);

/// A text of SQLite that is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidText {
    /// The column, from 0.
    pub column: usize,
    /// Its name.
    pub name: String,
}

impl Rows {
    /// No rows yet.
    pub fn new(encoding: Encoding) -> Rows {
        Rows { encoding, len: 0, bytes: Vec::new() }
    }

    /// Adds a row with its first `columns` values.
    ///
    /// # Errors
    /// If a text is not UTF-8; then the row is not there.
    ///
    /// # Panics
    /// If the row has fewer columns.
    pub fn push(&mut self, _row: &Row<'_>, _columns: usize) -> Result<(), InvalidText> {
        self.len += 1;
        Ok(())
    }

    /// How many rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes they take in the response.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Drops all rows, as when the statement runs again.
    pub fn clear(&mut self) {
        self.len = 0;
        self.bytes.clear();
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
        _encoding: Encoding,
        _row: &Row<'_>,
        _columns: usize,
    ) -> Result<EncodedRow, InvalidText> {
        Ok(EncodedRow(Vec::new()))
    }
}
