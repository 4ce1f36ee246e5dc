//! Owns idempotency keys: a commit whose answer was lost can be repeated, and changes nothing the
//! second time.
//!
//! # Format
//! The table [`TABLE`] holds one row for each key, written in the transaction that the key is of:
//! `key TEXT PRIMARY KEY, outcome BLOB NOT NULL, expires INTEGER NOT NULL` (Unix seconds). It is
//! made by the first commit with a key. Each such commit removes up to [`SWEPT`] expired rows, more
//! than it adds, so the table holds no more than was committed within a lifetime.

use std::time::Duration;

use monolite_sqlite::rusqlite;

use crate::error::{Error, ErrorKind, OptionalExtension, Result};
use crate::tx::Tx;

/// The name of the table.
pub(crate) const TABLE: &str = "monolite_idempotency";

/// Expired keys removed by a commit with a key.
const SWEPT: i64 = 4;

/// Longest key in bytes.
const LONGEST: usize = 1_024;

/// What a commit with an idempotency key achieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// What was stored with the key by the commit that came first.
    pub outcome: Vec<u8>,
    /// Whether an earlier commit had the key, so that this one changed nothing.
    pub is_repeated: bool,
}

/// A key, the outcome to store with it, and how long it is remembered.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) outcome: Vec<u8>,
    pub(crate) lifetime: Duration,
}

impl Key {
    /// # Errors
    /// `Invalid` for a key that is empty or too long.
    pub(crate) fn check(&self) -> Result<()> {
        if (1..=LONGEST).contains(&self.text.len()) {
            return Ok(());
        }
        let message = format!(
            "an idempotency key of {} bytes; it must have from 1 to {LONGEST}",
            self.text.len()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Stores the key in the open transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn store(&self, tx: &Tx<'_>) -> Result<()> {
        tx.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {TABLE}(key TEXT PRIMARY KEY, outcome BLOB NOT NULL, \
             expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS {TABLE}_expires ON {TABLE}(expires)"
        ))?;
        let sweep = format!(
            "DELETE FROM {TABLE} WHERE key IN (SELECT key FROM {TABLE} WHERE expires <= \
             unixepoch('now') ORDER BY expires LIMIT ?1)"
        );
        tx.execute(&sweep, [SWEPT])?;
        let insert = format!(
            "INSERT INTO {TABLE}(key, outcome, expires) VALUES (?1, ?2, unixepoch('now') + ?3) ON \
             CONFLICT(key) DO UPDATE SET outcome = excluded.outcome, expires = excluded.expires"
        );
        let seconds = i64::try_from(self.lifetime.as_secs()).unwrap_or(i64::MAX / 2);
        tx.execute(&insert, (&self.text, &self.outcome, seconds))?;
        Ok(())
    }
}

/// What was committed with the key `text`, if it is remembered.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn find(tx: &Tx<'_>, text: &str) -> Result<Option<Vec<u8>>> {
    let sql = format!("SELECT outcome FROM {TABLE} WHERE key = ?1 AND expires > unixepoch('now')");
    match tx.query_row(&sql, [text], |row| row.get(0)).optional() {
        Err(error) if is_missing(&error) => Ok(None),
        found => found,
    }
}

/// Whether the table is not there: nothing was ever committed with a key.
fn is_missing(error: &Error) -> bool {
    let code = error.sqlite().and_then(rusqlite::Error::sqlite_error_code);
    code == Some(rusqlite::ErrorCode::Unknown) && error.to_string().contains("no such table")
}
