//! Owns what both engines can do: the traits that an application is generic over.
//!
//! # Not here
//! What one engine alone has: `Database::write` and streams of Monolite, savepoints, schema changes
//! in another language. The application opens the engine itself, and knows which it is then.

use std::future::Future;

use monolite::{Committed, Error, IntoParameters, Result};

use crate::row::Row;

/// A database with serializable interactive transactions: `monolite::Database`, or
/// [`Database`](crate::Database) on PostgreSQL. Cloning gives another handle on the same one.
///
/// Closures are written `async |tx| { … }`. They may run again, and should change nothing but the
/// database.
pub trait Engine: Clone + Send + Sync + 'static {
    /// What closures fail with (`with_error`).
    type Error: From<Error> + Send + 'static;

    /// What a closure gets.
    type Transaction: EngineTransaction;

    /// Begins a transaction that the caller commits, and runs again after a `Conflict`. Nothing
    /// happens before its first statement.
    ///
    /// # Errors
    /// `Overloaded` when too many are open.
    fn transaction(&self) -> Result<Self::Transaction>;

    /// Runs `body` as a transaction and commits it. After a conflict `body` runs again, up to the
    /// number of attempts of the engine's options. An error of `body` rolls back.
    ///
    /// # Durability
    /// `Ok` means on disk: of this machine, or as the server's `synchronous_commit` says.
    ///
    /// # Errors
    /// The closure's own; `Conflict` after all attempts; `CommitUnknown` when the connection was
    /// lost after COMMIT was sent; those of [`EngineTransaction::execute`].
    ///
    /// # Cancellation
    /// Dropping the future rolls back, unless COMMIT was sent.
    fn transact<T, F, Fut>(&self, body: F) -> impl Future<Output = Result<T, Self::Error>> + Send
    where
        F: FnMut(Self::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, Self::Error>> + Send,
        T: Send;

    /// As [`Engine::transact`], at most once for `key` (1 to 1,024 bytes): if a transaction with
    /// `key` was committed before, `body` does not count, and the outcome is that of the first.
    /// `body` returns, beside its value, the outcome to store. A lost answer to COMMIT is resolved
    /// by the key. So it can be called again after any error.
    ///
    /// # Errors
    /// As [`Engine::transact`]; `CommitUnknown` only if no attempt could resolve it; `Invalid` for
    /// a key that is empty or too long.
    fn transact_once<T, O, F, Fut>(
        &self,
        key: impl Into<String>,
        body: F,
    ) -> impl Future<Output = Result<Committed<T>, Self::Error>> + Send
    where
        F: FnMut(Self::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<(T, O), Self::Error>> + Send,
        O: Into<Vec<u8>> + Send,
        T: Send;

    /// Runs `body`, which only reads, on one snapshot. What it saw is as durable as a commit.
    ///
    /// # Errors
    /// As [`Engine::transact`]; `Invalid` for a statement that writes.
    fn read<T, F, Fut>(&self, body: F) -> impl Future<Output = Result<T, Self::Error>> + Send
    where
        F: FnMut(Self::Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, Self::Error>> + Send,
        T: Send;
}

/// A transaction of an [`Engine`]. Dropping it rolls it back.
///
/// Parameters are `?`, `?1` and `:name`, in the forms of [`IntoParameters`]: tuples, arrays,
/// vectors, `Parameters`. (`params!` and `named_params!` hold references that cannot be sent to
/// another thread, which the futures of closures must be.)
///
/// After a failed statement return the error: Monolite would go on after `Constraint`, and
/// PostgreSQL does not.
pub trait EngineTransaction: Send + Sync + Sized {
    /// How often the closure has been started for this one result: 1 the first time.
    fn attempt(&self) -> u32;

    /// Runs one statement that returns no rows; gives how many rows it changed.
    ///
    /// # Errors
    /// `Constraint`; `Invalid` for wrong SQL or parameters; `Conflict`, `Timeout` and `Overloaded`
    /// end the transaction.
    fn execute(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Runs several statements separated by semicolons, without parameters.
    ///
    /// # Errors
    /// As [`EngineTransaction::execute`].
    fn execute_batch(&self, sql: &str) -> impl Future<Output = Result<()>> + Send;

    /// Runs a query, or a statement with `RETURNING`, and gives its rows.
    ///
    /// # Errors
    /// As [`EngineTransaction::execute`]; `Invalid` for a column that is no integer, float, text,
    /// blob or boolean: `CAST` it to one.
    fn query(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// As [`EngineTransaction::query`], and maps all rows.
    ///
    /// # Errors
    /// As [`EngineTransaction::query`]; those of `map`.
    fn query_map<T: Send>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        map: impl FnMut(&Row) -> Result<T> + Send,
    ) -> impl Future<Output = Result<Vec<T>>> + Send {
        let rows = self.query(sql, parameters);
        async move { rows.await?.iter().map(map).collect() }
    }

    /// As [`EngineTransaction::query`], and maps the first row. All rows are read: say `LIMIT 1`
    /// where there may be several.
    ///
    /// # Errors
    /// As [`EngineTransaction::query_map`]; `NoRows` when there is none.
    fn query_row<T: Send>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        map: impl FnOnce(&Row) -> Result<T> + Send,
    ) -> impl Future<Output = Result<T>> + Send {
        let row = self.query_optional(sql, parameters, map);
        let no_rows = || monolite::rusqlite::Error::QueryReturnedNoRows.into();
        async move { row.await?.ok_or_else(no_rows) }
    }

    /// As [`EngineTransaction::query_row`], and `None` when there is no row.
    ///
    /// # Errors
    /// As [`EngineTransaction::query_map`].
    fn query_optional<T: Send>(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
        map: impl FnOnce(&Row) -> Result<T> + Send,
    ) -> impl Future<Output = Result<Option<T>>> + Send {
        let rows = self.query(sql, parameters);
        async move { rows.await?.first().map(map).transpose() }
    }

    /// Commits a transaction from [`Engine::transaction`].
    ///
    /// # Errors
    /// `Conflict`; `CommitUnknown`; the error that ended the transaction; `Invalid` in a closure,
    /// whose transaction is committed when it returns.
    fn commit(self) -> impl Future<Output = Result<Committed>> + Send;

    /// As [`EngineTransaction::commit`], at most once for `key`: if there was a commit with it,
    /// this one changes nothing, and gives the outcome of the first.
    ///
    /// # Errors
    /// As [`EngineTransaction::commit`]; `Invalid` for a key that is empty or too long.
    fn commit_once(
        self,
        key: impl Into<String>,
        outcome: impl Into<Vec<u8>>,
    ) -> impl Future<Output = Result<Committed>> + Send;

    /// Rolls back, as dropping does. In a closure, return an error instead.
    fn rollback(self);
}
