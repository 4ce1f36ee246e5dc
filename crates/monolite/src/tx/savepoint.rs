//! Owns savepoints in a closure's transaction: a part of it that can fail without the rest.
//!
//! # Algorithm
//! Savepoints are named by their depth, as those of interactive transactions are: no name of a user
//! can be one of the engine's. One is opened before its closure and closed behind it, whatever that
//! does, so they nest as the closures do.
//!
//! # Invariants
//! - What a closure did that failed or panicked is undone, or the whole transaction is: when the
//!   undoing itself fails, no more statement runs in it, and it is not committed.

use monolite_sqlite::UserSavepoint;

use super::Tx;
use crate::error::{Error, ErrorKind, Result};

impl Tx<'_> {
    /// Runs `body` so that its changes are undone when it fails, and no others: the transaction
    /// goes on with whatever is made of the error. Savepoints nest.
    ///
    /// After a panic in `body`, too, its changes are undone; the panic goes on.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// db.write(|tx| tx.execute_batch("CREATE TABLE log(line); CREATE TABLE name(name UNIQUE)"))
    ///     .wait()?;
    /// let added = db.write(|tx| {
    ///     let mut added = 0;
    ///     for name in ["ann", "bob", "ann"] {
    ///         let one = tx.savepoint(|tx| {
    ///             tx.execute("INSERT INTO log VALUES (?1)", [name])?;
    ///             tx.execute("INSERT INTO name VALUES (?1)", [name])
    ///         });
    ///         match one {
    ///             Ok(_) => added += 1,
    ///             Err(error) if error.is_unique_violation() => {}
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     Ok(added)
    /// });
    /// assert_eq!(added.wait()?, 2);
    /// let sql = "SELECT count(*) FROM log";
    /// let lines: i64 = db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()?;
    /// assert_eq!(lines, 2);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `body`; `Aborted` when its transaction was rolled back, and when the savepoint
    /// could not be undone; `Invalid` when rows of a statement that writes (`RETURNING`) are
    /// half-way, at its beginning or its end.
    pub fn savepoint<T>(&self, body: impl FnOnce(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.savepoint_and_then(body)
    }

    /// As [`Tx::savepoint`], for a closure that may fail with an error of its own.
    ///
    /// # Errors
    /// As [`Tx::savepoint`].
    pub fn savepoint_and_then<T, E: From<Error>>(
        &self,
        body: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let depth = self.savepoints.get();
        self.user_savepoint(UserSavepoint::Open, depth).map_err(half_way)?;
        self.savepoints.set(depth + 1);
        let mut around = Around { tx: self, depth, is_closed: false };
        let value = body(self)?;
        around.close().map_err(half_way)?;
        Ok(value)
    }
}

/// What SQLite means by "busy" here.
fn half_way(error: Error) -> Error {
    if error.kind() != ErrorKind::Overloaded {
        return error;
    }
    let message = "a statement that writes is half-way (rows of an INSERT, UPDATE or DELETE with \
                   RETURNING), so no savepoint can be opened or closed; read its rows to their \
                   end, or drop them, first";
    Error::new(ErrorKind::Invalid, message)
}

/// A savepoint that is open, and undone when this is dropped before it was closed.
struct Around<'t, 'c> {
    tx: &'t Tx<'c>,
    depth: usize,
    is_closed: bool,
}

impl Around<'_, '_> {
    fn close(&mut self) -> Result<()> {
        self.tx.user_savepoint(UserSavepoint::Close, self.depth)?;
        self.is_closed = true;
        Ok(())
    }

    fn undo(&mut self) -> Result<()> {
        self.tx.user_savepoint(UserSavepoint::Undo, self.depth)?;
        self.close()
    }
}

impl Drop for Around<'_, '_> {
    fn drop(&mut self) {
        // Where a statement has rolled back the transaction, the savepoint went with it.
        if !self.is_closed && self.tx.is_open() && self.undo().is_err() && self.tx.is_open() {
            self.tx.is_doomed.set(true);
        }
        self.tx.savepoints.set(self.depth);
    }
}
