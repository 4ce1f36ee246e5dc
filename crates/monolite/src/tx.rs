//! Owns what closures see of their transactions: the query methods of `rusqlite::Connection` in a
//! read ([`ReadTx`]), those that change the database besides in a write ([`Tx`]), and none that
//! would reconfigure the connection.
//!
//! # Invariants
//! - After SQLite has silently rolled the transaction back (`ON CONFLICT ROLLBACK`, a full disk),
//!   every further statement is refused: it would run, and commit, outside of any transaction.
//! - `may_have_written` is true after any statement that could write, so that the writer knows
//!   whether a failed closure must be undone.
//! - A statement is prepared against the schema and the statistics that the transaction has: what
//!   one before it has left behind in memory is made good first ([`ReadTx::settle`]).

mod read;
mod run;
mod savepoint;

use std::cell::Cell;
use std::ops::Deref;
use std::time::Duration;

use monolite_sqlite::{Connection, GivenRowids, Online, UserSavepoint, rusqlite};
use rusqlite::blob::Blob;

use crate::activity::Trace;
use crate::error::{Error, ErrorKind, Result};
use crate::parameters::Bind;
pub use read::ReadTx;
pub use run::{Column, Description, Ran};

/// A write transaction, as its closure sees it: the queries of [`ReadTx`], and the methods that
/// change the database.
///
/// The methods are those of [`rusqlite::Connection`] under the same names and with the same
/// meaning.
///
/// `docs/guides/types.md` is about closures, parameters and rows, `docs/guides/json.md` about
/// documents.
///
/// ```
/// use monolite::Tx;
///
/// /// A part of a transaction: it takes part in whichever closure calls it.
/// fn add(tx: &Tx<'_>, name: &str) -> monolite::Result<i64> {
///     tx.execute("INSERT INTO user(name) VALUES (?1)", [name])?;
///     Ok(tx.last_insert_rowid())
/// }
///
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # let sql = "CREATE TABLE user(id INTEGER PRIMARY KEY, name TEXT)";
/// # db.write(move |tx| tx.execute(sql, ())).wait()?;
/// let both = db.write(|tx| Ok((add(tx, "ann")?, add(tx, "bob")?))).wait()?;
/// assert_eq!(both, (1, 2));
/// # db.close()
/// # }
/// ```
pub struct Tx<'c> {
    read: ReadTx<'c>,
    attempt: u32,
    /// Whether nothing has run before it in this transaction of SQLite.
    is_first: bool,
    /// How many savepoints are open.
    savepoints: Cell<usize>,
}

impl<'c> Deref for Tx<'c> {
    type Target = ReadTx<'c>;

    fn deref(&self) -> &ReadTx<'c> {
        &self.read
    }
}

impl<'c> Tx<'c> {
    pub(crate) fn new(connection: &'c Connection, attempt: u32, trace: &'c Trace) -> Tx<'c> {
        let read = ReadTx::new(connection, trace);
        Tx { read, attempt, is_first: false, savepoints: Cell::new(0) }
    }

    /// As it is when nothing has run before it in this transaction of SQLite.
    pub(crate) fn first(self) -> Tx<'c> {
        Tx { is_first: true, ..self }
    }

    /// Whether nothing has run before it in this transaction of SQLite, as far as is known.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// How often this closure has been started for this one result: 1 the first time.
    ///
    /// A closure given to [`Database::write`](crate::Database::write) is run again when its batch
    /// had to be undone, because a neighbour failed or it failed itself after it had written.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Runs one statement that returns no rows; returns how many rows it changed. The prepared
    /// statement is kept for the next time.
    ///
    /// # Errors
    /// `Constraint`, `Invalid` (wrong SQL or parameters, a statement that belongs to the engine),
    /// `Timeout`, `Storage`, `Corrupt`.
    pub fn execute<P: Bind>(&self, sql: &str, params: P) -> Result<usize> {
        self.with_statement_and_traits(sql, |statement, traits| {
            let run = || params.execute(statement).map_err(|error| self.explain(sql, error));
            self.count_changes(traits, run)
        })
    }

    /// Whether a statement has changed rows, the schema or the statistics since there were `total`
    /// changes.
    pub(crate) fn has_changed_since(&self, total: u64) -> bool {
        self.total_changes() != total || !self.connection.unsettled().is_empty()
    }

    /// Runs several statements separated by semicolons, without parameters.
    ///
    /// # Errors
    /// As [`Tx::execute`]; the statements before the one that failed have been run.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        let _running = self.enter(sql)?;
        self.may_have_written.set(true);
        self.connection.clear_changes_for(sql)?;
        let ran = self.connection.execute_batch(sql);
        if ran.is_err() {
            self.connection.note_failure();
        }
        ran.map_err(|failed| self.explain(&failed.sql, failed.error))
    }

    /// Rowid of the last row that this transaction has inserted; 0 before it has inserted any.
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.raw().last_insert_rowid()
    }

    /// Rows changed by the last statement of this transaction that changed any, as SQL's
    /// `changes()`; 0 before there was one.
    pub fn changes(&self) -> u64 {
        self.connection.counts().changes()
    }

    /// Rows that this transaction has changed, triggers and foreign keys included, as SQL's
    /// `total_changes()`.
    pub fn total_changes(&self) -> u64 {
        self.connection.counts().total_changes()
    }

    /// The numbers that rows of the latest statement were given ahead, for a check that has plain
    /// SQLite give them, too.
    #[doc(hidden)]
    pub fn given_rowids(&self) -> Option<GivenRowids> {
        self.given.get()
    }

    /// Does `what` with the savepoint of an interactive transaction that is inside of `depth`
    /// others.
    pub(crate) fn user_savepoint(&self, what: UserSavepoint, depth: usize) -> Result<()> {
        let _running = self.enter("a savepoint")?;
        self.may_have_written.set(true);
        Ok(self.connection.user_savepoint(what, depth)?)
    }

    /// Runs `body`, and closes the savepoints of its user that it has left open.
    pub(crate) fn closing_user_savepoints(&self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        self.connection.closing_user_savepoints(body)
    }

    /// Stores an idempotency key for `lifetime`, and removes up to `swept` others that have
    /// expired.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn store_key(
        &self,
        key: &str,
        outcome: &[u8],
        lifetime: Duration,
        swept: i64,
    ) -> Result<()> {
        let _running = self.enter("storing an idempotency key")?;
        self.may_have_written.set(true);
        Ok(self.connection.keys().store(key, outcome, lifetime, swept)?)
    }

    /// Notes that a migration is applied by the transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn note_migration(&self, number: i64, name: &str, checksum: &str) -> Result<()> {
        let _running = self.enter("noting a migration")?;
        self.may_have_written.set(true);
        Ok(self.connection.migrations().note(number, name, checksum)?)
    }

    /// Runs the statements of the migration `name`, which rebuilds the tables `rebuilt`, see
    /// [`monolite_sqlite::Migrations::run`].
    ///
    /// # Errors
    /// As [`Tx::execute_batch`], with the name of the migration and the place in it before.
    pub(crate) fn run_migration(&self, name: &str, sql: &str, rebuilt: &[String]) -> Result<()> {
        let _running = self.enter(sql)?;
        self.may_have_written.set(true);
        self.connection.clear_changes_for(sql)?;
        self.connection.migrations().run(sql, rebuilt).map_err(|failed| {
            self.connection.note_failure();
            let place = format!("migration {name}:{}:{}", failed.line, failed.column);
            self.explain(&failed.sql, failed.error).context(place)
        })
    }

    /// Does a step of the online rebuild of a table.
    ///
    /// # Errors
    /// Those of `step`.
    pub(crate) fn rebuild_online<T>(
        &self,
        step: impl FnOnce(Online<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let _running = self.enter("rebuilding a table online")?;
        self.may_have_written.set(true);
        Ok(step(self.connection.online()).inspect_err(|_| self.connection.note_failure())?)
    }

    /// As [`monolite_sqlite::ForeignKeys::during`].
    ///
    /// # Errors
    /// Those of SQLite, and of `body`.
    pub(crate) fn with_foreign_keys<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        self.connection.foreign_keys().during(body)
    }

    /// Gives back up to `most` free pages, see
    /// [`monolite_sqlite::Maintenance::give_back_pages`].
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn give_back_pages(&self, most: u32) -> Result<()> {
        let _running = self.enter("PRAGMA incremental_vacuum")?;
        self.may_have_written.set(true);
        Ok(self.connection.maintenance().give_back_pages(most)?)
    }

    /// Opens a blob of the main database for incremental reading and writing. One of a table whose
    /// name begins with `sqlite_` or `monolite_`, or with that of a virtual table and a `_`, which
    /// may be one that the virtual table keeps, is refused.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub fn blob_open_mut(&self, table: &str, column: &str, rowid: i64) -> Result<Blob<'c>> {
        self.enter("incremental blob")?.hand_out();
        if let Some(reason) = self.connection.refuse_blob_of(table)? {
            return Err(Error::new(ErrorKind::Invalid, reason));
        }
        self.may_have_written.set(true);
        self.open_blob(table, column, rowid, false)
    }
}

/// What is said when a collation of the application has panicked.
pub(crate) fn collation_panicked() -> Error {
    let message = "a collation of the application (Options::connection_setup) panicked while texts \
                   were compared, so their order is not known; nothing of the transaction is kept";
    Error::new(ErrorKind::Invalid, message)
}
