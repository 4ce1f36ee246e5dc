//! Owns outcomes of idempotency keys as values: JSON, so that a field can be added to a struct
//! whose outcomes are stored already.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// The bytes of a value, as the outcome that
/// [`Database::transact_once`](crate::Database::transact_once) and
/// [`Transaction::commit_once`](crate::Transaction::commit_once) store with a key;
/// [`from_outcome`] makes the value of them again. They are JSON.
///
/// ```
/// use monolite::{Error, from_outcome, to_outcome};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Receipt {
///     id: i64,
///     cents: i64,
/// }
///
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # let create = "CREATE TABLE payment(id INTEGER PRIMARY KEY, cents)";
/// # db.write(move |tx| tx.execute(create, ())).wait()?;
/// let pay = || {
///     let done = db.transact_once("request-4711", async |tx| {
///         let sql = "INSERT INTO payment(cents) VALUES (30) RETURNING id";
///         let id = tx.query_row(sql, (), |row| row.get(0)).await?;
///         Ok(((), to_outcome(&Receipt { id, cents: 30 })?))
///     });
///     let done = done.wait()?;
///     from_outcome(done.outcome())
/// };
/// let first: Receipt = pay()?;
/// assert_eq!(first, Receipt { id: 1, cents: 30 });
/// assert_eq!(first, pay()?);
/// # db.close()
/// # }
/// ```
///
/// # Errors
/// `Invalid` for a value that JSON cannot say, such as a map whose keys are structs.
pub fn to_outcome<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("the outcome of a key cannot be JSON: {error}"))
    })
}

/// The value of which [`to_outcome`] made `outcome`.
///
/// # Errors
/// `Invalid` when it is of another type, as that of a request which another version has answered.
pub fn from_outcome<T: DeserializeOwned>(outcome: &[u8]) -> Result<T> {
    serde_json::from_slice(outcome).map_err(|error| {
        let what = std::any::type_name::<T>();
        let message = format!(
            "the outcome of a key, {} bytes, is no {what}: {error}; give a new field \
             #[serde(default)], and another kind of request another key",
            outcome.len()
        );
        Error::new(ErrorKind::Invalid, message)
    })
}
