//! Owns what a closure sees of its transaction: the query methods of `rusqlite::Connection`, and
//! none that would reconfigure the connection.
//!
//! # Invariants
//! - After SQLite has silently rolled the transaction back (`ON CONFLICT ROLLBACK`, a full disk),
//!   every further statement is refused: it would run, and commit, outside of any transaction.
//! - `may_have_written` is true after any statement that could write, so that the writer knows
//!   whether a failed closure must be undone.

use std::cell::{Cell, RefCell};

use monolite_sqlite::{Connection, PageSet, rusqlite};
use rusqlite::blob::Blob;
use rusqlite::{CachedStatement, Params, Row, Statement};

use crate::error::{Error, ErrorKind, Result};

/// Longest piece of a statement that is remembered for the list of slow transactions.
const REMEMBERED_SQL: usize = 512;

/// A transaction, as its closure sees it.
///
/// The methods are those of [`rusqlite::Connection`] under the same names and with the same
/// meaning. Those that run a statement at once return [`Error`]; statements from
/// [`Tx::prepare`] are `rusqlite`'s own and return its error, which `?` converts.
///
/// In a read transaction every statement that would write fails with
/// [`ErrorKind::Invalid`].
pub struct Tx<'c> {
    connection: &'c Connection,
    attempt: u32,
    may_have_written: Cell<bool>,
    last_sql: &'c RefCell<String>,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(
        connection: &'c Connection,
        attempt: u32,
        last_sql: &'c RefCell<String>,
    ) -> Tx<'c> {
        Tx { connection, attempt, may_have_written: Cell::new(false), last_sql }
    }

    pub(crate) fn may_have_written(&self) -> bool {
        self.may_have_written.get()
    }

    /// How often this closure has been started for this one result: 1 the first time.
    ///
    /// A closure given to [`Database::write`](crate::Database::write) is run again when a
    /// neighbour in its batch had to be undone.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Runs one statement that returns no rows; returns how many rows it changed. The prepared
    /// statement is kept for the next time.
    ///
    /// # Errors
    /// `Constraint`, `Invalid` (wrong SQL or parameters, a statement that belongs to the engine),
    /// `Timeout`, `Storage`, `Corrupt`.
    pub fn execute<P: Params>(&self, sql: &str, params: P) -> Result<usize> {
        self.with_statement(sql, |statement| Ok(statement.execute(params)?))
    }

    /// Runs several statements separated by semicolons, without parameters.
    ///
    /// # Errors
    /// As [`Tx::execute`]; the statements before the one that failed have been run.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        self.enter(sql)?;
        self.may_have_written.set(true);
        self.connection.raw().execute_batch(sql).map_err(|error| self.explain(error))
    }

    /// Runs a query and maps its first row. The prepared statement is kept for the next time.
    ///
    /// # Errors
    /// As [`Tx::execute`]; an error with [`Error::is_no_rows`] when there is no row.
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.with_statement(sql, |statement| Ok(statement.query_row(params, f)?))
    }

    /// Runs a query that must return exactly one row, and maps it.
    ///
    /// # Errors
    /// As [`Tx::query_row`], and when there is more than one row.
    pub fn query_one<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<T>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.with_statement(sql, |statement| Ok(statement.query_one(params, f)?))
    }

    /// As [`Tx::query_row`], with a mapping that may fail with an error of its own.
    ///
    /// # Errors
    /// As [`Tx::query_row`], and those of `f`.
    pub fn query_row_and_then<T, E, P, F>(&self, sql: &str, params: P, f: F) -> Result<T, E>
    where
        P: Params,
        F: FnOnce(&Row<'_>) -> Result<T, E>,
        E: From<Error>,
    {
        self.with_statement(sql, |statement| {
            let mut rows = statement.query(params).map_err(Error::from)?;
            match rows.next().map_err(Error::from)? {
                Some(row) => f(row),
                None => Err(E::from(rusqlite::Error::QueryReturnedNoRows.into())),
            }
        })
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// `Invalid` for wrong SQL or a statement that belongs to the engine.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'c>> {
        self.enter(sql)?;
        let statement = self.connection.raw().prepare(sql).map_err(|e| self.explain(e))?;
        self.note_writes(&statement);
        Ok(statement)
    }

    /// Prepares a statement, or takes it from those that were prepared before.
    ///
    /// # Errors
    /// As [`Tx::prepare`].
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'c>> {
        self.enter(sql)?;
        let statement = self.connection.raw().prepare_cached(sql).map_err(|e| self.explain(e))?;
        self.note_writes(&statement);
        Ok(statement)
    }

    /// Rowid of the last row inserted on this connection.
    ///
    /// Another transaction may have inserted it: ask only after an insert of one's own.
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.raw().last_insert_rowid()
    }

    /// Rows changed by the last statement that changed any.
    pub fn changes(&self) -> u64 {
        self.connection.raw().changes()
    }

    /// Rows changed on this connection since it was opened.
    pub fn total_changes(&self) -> u64 {
        self.connection.raw().total_changes()
    }

    /// Opens a blob of the main database for incremental reading or writing.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub fn blob_open(
        &self,
        table: &str,
        column: &str,
        rowid: i64,
        read_only: bool,
    ) -> Result<Blob<'c>> {
        self.enter("incremental blob")?;
        if !read_only {
            self.may_have_written.set(true);
        }
        let open = || self.connection.raw().blob_open("main", table, column, rowid, read_only);
        open().or_else(|_| {
            // Opening a blob looks into the schema as the connection last saw it; a query brings
            // it up to date.
            self.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
            open().map_err(|error| self.explain(error))
        })
    }

    pub(crate) fn with_statement<T, E: From<Error>>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.enter(sql)?;
        let noted = |statement: &mut Statement<'_>| {
            self.note_writes(statement);
            run(statement)
        };
        self.connection.with_statement(sql, noted).map_err(|error| self.explain(error))?
    }

    /// Runs `verb` (`SAVEPOINT`, `ROLLBACK TO`, `RELEASE`) for a savepoint of an interactive
    /// transaction.
    pub(crate) fn user_savepoint(&self, verb: &str, name: &str) -> Result<()> {
        self.enter(verb)?;
        self.may_have_written.set(true);
        Ok(self.connection.user_savepoint(verb, name)?)
    }

    /// Runs `body`, and closes the savepoints of its user that it has left open.
    pub(crate) fn closing_user_savepoints(&self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        self.connection.closing_user_savepoints(body)
    }

    /// Whether the transaction is still open, which a statement may have ended.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_in_transaction()
    }

    /// Whether the open batch may have changed one of `pages`, or the schema.
    pub(crate) fn batch_changed(&self, pages: &PageSet) -> bool {
        self.connection.batch_changed(pages)
    }

    /// Forgets the rowid of the last insert, which was another transaction's.
    pub(crate) fn forget_last_insert(&self) {
        self.connection.forget_last_insert();
    }

    fn enter(&self, sql: &str) -> Result<()> {
        if !self.is_open() {
            let message = "the transaction was rolled back by an earlier statement of it, so \
                           nothing more can run in it; return an error from the closure";
            return Err(Error::new(ErrorKind::Aborted, message));
        }
        let mut last = self.last_sql.borrow_mut();
        last.clear();
        last.push_str(truncated(sql));
        Ok(())
    }

    fn note_writes(&self, statement: &Statement<'_>) {
        if !statement.readonly() {
            self.may_have_written.set(true);
        }
    }

    fn explain(&self, error: rusqlite::Error) -> Error {
        Error::from(error).denied(self.connection.signals().take_denial())
    }
}

fn truncated(sql: &str) -> &str {
    let mut end = sql.len().min(REMEMBERED_SQL);
    while !sql.is_char_boundary(end) {
        end -= 1;
    }
    &sql[..end]
}
