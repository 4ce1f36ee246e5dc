//! Owns the keys of commits: a table in the same database, written in the transaction that a key is
//! of. Its statements are here, and whatever runs outside of that transaction.
//!
//! # Format
//! `monolite_idempotency(key TEXT PRIMARY KEY, outcome BYTEA, expires TIMESTAMPTZ)`. [`prepare`]
//! makes it unless it is there, so a role without CREATE needs it to be made before. A role needs
//! SELECT, INSERT, UPDATE and DELETE.
//!
//! # Algorithm
//! 1. A key is looked for *outside* of the transaction, which would otherwise read it: under
//!    SERIALIZABLE a read that finds nothing locks a page of the index, and each insertion into
//!    that page by another transaction is a conflict.
//! 2. It is inserted as the last statement. If another transaction has the key, the insertion waits
//!    for that one, then fails: so one commits.
//! 3. A key that is found is locked, which is a commit of its own: it waits until a synchronous
//!    standby has everything up to the key. A leader that was restarted shows commits that its
//!    standby does not have yet, and a failover would lose them.
//! 4. After an unknown outcome the insertion is the question, too ([`Database`](crate::Database)):
//!    it waits for a COMMIT that is still under way.
//! 5. Each [`SWEEP_EACH`]th commit with a key deletes some that have expired, by the server's
//!    clock. An expired key that was not deleted yet still counts.

use deadpool_postgres::Client;
use monolite::{Error, ErrorKind, Result};
use tokio_postgres::error::SqlState;

use crate::error::Failure;

/// Longest key in bytes, as Monolite's.
const MAX_BYTES: usize = 1_024;

/// How many commits with a key there are for each deletion, which takes up to [`SWEPT`].
pub(crate) const SWEEP_EACH: u64 = 256;

/// More than were added since the deletion before.
const SWEPT: i64 = 1_024;

/// Stores a key. A lifetime is in seconds.
pub(crate) const INSERT: &str = "INSERT INTO monolite_idempotency(key, outcome, expires)
     VALUES (?1, ?2, now() + CAST(?3 AS double precision) * interval '1 second')";

/// # Errors
/// `Invalid` for a key that is empty or too long.
pub(crate) fn check(key: &str) -> Result<()> {
    if (1..=MAX_BYTES).contains(&key.len()) {
        return Ok(());
    }
    let length = key.len();
    let message =
        format!("an idempotency key of {length} bytes; it must have from 1 to {MAX_BYTES}");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Makes the table unless it is there.
pub(crate) async fn prepare(client: &Client) -> Result<(), Failure> {
    let Err(error) = client.batch_execute("SELECT key FROM monolite_idempotency LIMIT 0").await
    else {
        return Ok(());
    };
    if error.code() != Some(&SqlState::UNDEFINED_TABLE) {
        return Err(Failure::of_statement(&error));
    }
    for sql in [
        "CREATE TABLE IF NOT EXISTS monolite_idempotency(
             key TEXT PRIMARY KEY, outcome BYTEA NOT NULL, expires TIMESTAMPTZ NOT NULL)",
        "CREATE INDEX IF NOT EXISTS monolite_idempotency_expires ON monolite_idempotency(expires)",
    ] {
        match client.batch_execute(sql).await {
            // Another process makes it at this moment.
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
            Err(error) => return Err(Failure::of_statement(&error).in_statement(sql)),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The outcome that was stored with `key`, if it is committed, here and on a synchronous standby.
pub(crate) async fn find(client: &Client, key: &str) -> Result<Option<Vec<u8>>, Failure> {
    let sql = "SELECT outcome FROM monolite_idempotency WHERE key = $1 FOR UPDATE";
    let failed = |error| Failure::of_statement(&error).in_statement(sql);
    let statement = client.prepare_cached(sql).await.map_err(failed)?;
    let row = client.query_opt(&statement, &[&key]).await.map_err(failed)?;
    Ok(row.map(|row| row.get(0)))
}

/// Deletes some that have expired. If it fails, the next one does it.
pub(crate) async fn sweep(client: &Client) {
    let sql = format!(
        "DELETE FROM monolite_idempotency WHERE key IN (SELECT key FROM monolite_idempotency
         WHERE expires < now() ORDER BY expires LIMIT {SWEPT})"
    );
    let _ = client.batch_execute(&sql).await;
}
