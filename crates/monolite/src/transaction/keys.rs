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

/// What a commit with an idempotency key achieved.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute("CREATE TABLE payment(cents)", ())).wait()?;
/// let pay = || {
///     let tx = db.transaction()?;
///     tx.execute("INSERT INTO payment VALUES (30)", ()).wait()?;
///     tx.commit_once("request-4711", "paid").wait()
/// };
/// assert!(!pay()?.is_repeated);
/// let again = pay()?;
/// assert!(again.is_repeated && again.outcome == b"paid");
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// What was stored with the key by the commit that came first.
    pub outcome: Vec<u8>,
    /// Whether an earlier commit had the key, so that this one changed nothing.
    pub is_repeated: bool,
}

/// What [`Database::transact_once`](crate::Database::transact_once) achieved.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::TransactedOnce;
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute("CREATE TABLE payment(id INTEGER PRIMARY KEY)", ())).wait()?;
/// let sql = "INSERT INTO payment DEFAULT VALUES RETURNING id";
/// let pay = || {
///     db.transact_once_blocking("request-4711", |tx| {
///         let id: i64 = tx.query_one(sql, (), |row| row.get(0)).wait()?;
///         Ok((id, format!("payment {id}")))
///     })
/// };
/// let TransactedOnce::Now { value, .. } = pay()? else { unreachable!("it is the first") };
/// assert_eq!(value, 1);
/// assert_eq!(pay()?, TransactedOnce::Before { outcome: b"payment 1".to_vec() });
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactedOnce<T> {
    /// The closure's transaction was committed, and its key with it.
    Now {
        /// What the closure returned.
        value: T,
        /// What is stored with the key from now on.
        outcome: Vec<u8>,
    },
    /// A transaction with the key was committed before, and nothing was done.
    Before {
        /// What that one stored.
        outcome: Vec<u8>,
    },
}

impl<T> TransactedOnce<T> {
    /// What is stored with the key.
    pub fn outcome(&self) -> &[u8] {
        match self {
            TransactedOnce::Now { outcome, .. } | TransactedOnce::Before { outcome } => outcome,
        }
    }

    /// Whether an earlier transaction had the key, so that nothing was done.
    pub fn is_repeated(&self) -> bool {
        matches!(self, TransactedOnce::Before { .. })
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
        let Some(key) = key else { return Ok(Committed::default()) };
        tx.store_key(&key.text, &key.outcome, key.lifetime, SWEPT)?;
        Ok(Committed { outcome: key.outcome.clone(), is_repeated: false })
    }
}
