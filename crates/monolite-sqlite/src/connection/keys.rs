//! Owns the table of idempotency keys in the file, which the engine alone reads and changes
//! ([`crate::names`]).
//!
//! # Format
//! One row for each key, written in the transaction that the key is of: `key TEXT PRIMARY KEY,
//! outcome BLOB NOT NULL, expires INTEGER NOT NULL` (Unix seconds). The table is made by the first
//! commit with a key.

use rusqlite::{ErrorCode, OptionalExtension as _, Result};

use super::Connection;
use crate::names;
use crate::signals::Traits;
use crate::statements::Own;

impl Connection {
    /// The outcome that was stored with `key`, unless it has expired.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn find_key(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let find =
            || self.prepared.with_own(Own::FindKey, |find| find.query_row([key], |row| row.get(0)));
        match self.signals.as_engine(find).optional() {
            Err(error) if is_missing(&error) => Ok(None),
            found => found,
        }
    }

    /// Stores `key` and its outcome for so many seconds, and removes up to `swept` others that have
    /// expired. A write transaction must be open.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn store_key(&self, key: &str, outcome: &[u8], seconds: i64, swept: i64) -> Result<()> {
        self.signals.as_engine(|| {
            let sweep = || self.prepared.with_own(Own::SweepKeys, |sweep| sweep.execute([swept]));
            match sweep() {
                Err(error) if is_missing(&error) => self.make_keys()?,
                swept => drop(swept?),
            }
            let store = (key, outcome, seconds);
            self.prepared.with_own(Own::StoreKey, |insert| insert.execute(store)).map(|_| ())
        })
    }

    fn make_keys(&self) -> Result<()> {
        self.unsettle(Traits::SCHEMA);
        let [table, index, _] = names::DEFINITIONS;
        self.raw().execute_batch(&format!("{table};{index}"))
    }
}

/// Whether the table is not there: nothing was ever written to it.
pub(super) fn is_missing(error: &rusqlite::Error) -> bool {
    let is_unknown = error.sqlite_error_code() == Some(ErrorCode::Unknown);
    is_unknown && error.to_string().contains("no such table")
}
