//! Owns idempotency keys: a commit whose answer was lost can be repeated, and changes nothing the
//! second time.
//!
//! Where they are kept, and the time by which they expire, is `monolite_sqlite`'s. Each commit with
//! a key removes up to [`SWEPT`] that have expired, more than it adds, so there are never more than
//! were committed within a lifetime.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::tx::Tx;

/// Expired keys removed by a commit with a key.
const SWEPT: i64 = 4;

/// Longest key in bytes.
const MAX_BYTES: usize = 1_024;

/// What a commit achieved: of [`Transaction::commit`](crate::Transaction::commit) and
/// [`commit_once`](crate::Transaction::commit_once), and with the value of the closure of
/// [`Database::transact_once`](crate::Database::transact_once).
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::Committed;
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute("CREATE TABLE payment(id INTEGER PRIMARY KEY)", ())).wait()?;
/// let sql = "INSERT INTO payment DEFAULT VALUES RETURNING id";
/// let pay = || {
///     db.transact_once("request-4711", async |tx| {
///         let id: i64 = tx.query_row(sql, (), |row| row.get(0)).await?;
///         Ok((id, format!("payment {id}")))
///     })
///     .wait()
/// };
/// let Committed::Now { value, .. } = pay()? else { unreachable!("it is the first") };
/// assert_eq!(value, 1);
/// assert_eq!(pay()?, Committed::Before { outcome: b"payment 1".to_vec() });
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed<T = ()> {
    /// The transaction was committed, and its key with it.
    Now {
        /// What the closure returned.
        value: T,
        /// What is stored with the key from now on; empty without a key.
        outcome: Vec<u8>,
    },
    /// A transaction with the key was committed before, and this one changed nothing.
    Before {
        /// What that one stored.
        outcome: Vec<u8>,
    },
}

impl<T> Committed<T> {
    /// What is stored with the key.
    pub fn outcome(&self) -> &[u8] {
        match self {
            Committed::Now { outcome, .. } | Committed::Before { outcome } => outcome,
        }
    }

    /// Whether an earlier transaction had the key, so that this one changed nothing.
    pub fn is_repeated(&self) -> bool {
        matches!(self, Committed::Before { .. })
    }
}

impl Committed {
    /// Of a transaction whose closure returned `value`.
    pub(crate) fn with<T>(self, value: T) -> Committed<T> {
        match self {
            Committed::Now { outcome, .. } => Committed::Now { value, outcome },
            Committed::Before { outcome } => Committed::Before { outcome },
        }
    }

    pub(super) fn now(outcome: Vec<u8>) -> Committed {
        Committed::Now { value: (), outcome }
    }
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
        if (1..=MAX_BYTES).contains(&self.text.len()) {
            return Ok(());
        }
        let message = format!(
            "an idempotency key of {} bytes; it must have from 1 to {MAX_BYTES}",
            self.text.len()
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// What a transaction is answered whose changes are done: stores the key, if there is one.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn commit(key: Option<&Key>, tx: &Tx<'_>) -> Result<Committed> {
        let Some(key) = key else { return Ok(Committed::now(Vec::new())) };
        tx.store_key(&key.text, &key.outcome, key.lifetime, SWEPT)?;
        Ok(Committed::now(key.outcome.clone()))
    }
}
