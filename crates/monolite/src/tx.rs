//! Owns what a closure sees of its transaction: the query methods of `rusqlite::Connection`, and
//! none that would reconfigure the connection.
//!
//! # Invariants
//! - After SQLite has silently rolled the transaction back (`ON CONFLICT ROLLBACK`, a full disk),
//!   every further statement is refused: it would run, and commit, outside of any transaction.
//! - `may_have_written` is true after any statement that could write, so that the writer knows
//!   whether a failed closure must be undone.
//! - A statement is prepared against the schema and the statistics that the transaction has: what
//!   one before it has left behind in memory is made good first ([`Tx::settle`]).

mod savepoint;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use monolite_sqlite::{
    AppliedMigration, AutoVacuum, Connection, GivenRowids, Numbering, PageSet, Signals, Traits,
    UserSavepoint, rusqlite,
};
use rusqlite::blob::Blob;
use rusqlite::{CachedStatement, Row, Statement};

use crate::error::{Error, ErrorKind, Result};
use crate::parameters::Bind;

/// Longest piece of a statement that is remembered for the list of slow transactions.
const REMEMBERED_SQL: usize = 512;

const NO_ROWS: rusqlite::Error = rusqlite::Error::QueryReturnedNoRows;

/// A transaction, as its closure sees it.
///
/// The methods are those of [`rusqlite::Connection`] under the same names and with the same
/// meaning. Those that run a statement at once return [`Error`]; statements from
/// [`Tx::prepare`] are `rusqlite`'s own and return its error, which `?` converts into [`Error`]; an
/// error type of your own needs `From<rusqlite::Error>` for that.
///
/// In a read transaction every statement that would write fails with
/// [`ErrorKind::Invalid`].
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
    connection: &'c Connection,
    attempt: u32,
    /// Whether nothing has run before it in this transaction of SQLite.
    is_first: bool,
    may_have_written: Cell<bool>,
    /// What those statements are like that were handed out and may run at any time.
    handed_out: Cell<Traits>,
    /// How many savepoints are open.
    savepoints: Cell<usize>,
    /// Whether what it did must not be committed, because one could not be undone.
    is_doomed: Cell<bool>,
    last_sql: &'c RefCell<String>,
    /// The numbers that rows of the latest statement were given.
    given: Cell<Option<GivenRowids>>,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(
        connection: &'c Connection,
        attempt: u32,
        last_sql: &'c RefCell<String>,
    ) -> Tx<'c> {
        last_sql.borrow_mut().clear();
        Tx {
            connection,
            attempt,
            is_first: false,
            may_have_written: Cell::new(false),
            handed_out: Cell::default(),
            savepoints: Cell::new(0),
            is_doomed: Cell::new(false),
            last_sql,
            given: Cell::default(),
        }
    }

    /// As it is when nothing has run before it in this transaction of SQLite.
    pub(crate) fn first(self) -> Tx<'c> {
        Tx { is_first: true, ..self }
    }

    /// Whether nothing has run before it in this transaction of SQLite, as far as is known.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
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

    /// How many rows `run` has changed, which runs one statement.
    pub(crate) fn count_changes(
        &self,
        traits: Traits,
        run: impl FnOnce() -> Result<usize>,
    ) -> Result<usize> {
        if traits.counts_rows() {
            return run();
        }
        let total = self.total_changes();
        let changed = run()?;
        // One that changes no rows leaves the number of the statement before.
        let has_none = traits.counts_no_rows() || self.total_changes() == total;
        Ok(if has_none { 0 } else { changed })
    }

    /// Runs several statements separated by semicolons, without parameters.
    ///
    /// # Errors
    /// As [`Tx::execute`]; the statements before the one that failed have been run.
    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        self.enter(sql)?;
        self.may_have_written.set(true);
        self.connection.clear_changes_for(sql)?;
        let ran = self.connection.execute_batch(sql);
        if ran.is_err() {
            self.connection.note_failure();
        }
        ran.map_err(|failed| self.explain(&failed.sql, failed.error))
    }

    /// Runs a query and maps its first row. The prepared statement is kept for the next time.
    ///
    /// # Errors
    /// As [`Tx::execute`]; `NoRows` when there is no row, see [`Tx::query_optional`].
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<T>
    where
        P: Bind,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| f(params.query(statement)?.next()?.ok_or(NO_ROWS)?))
    }

    /// As [`Tx::query_row`], and `None` when there is no row.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub fn query_optional<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<Option<T>>
    where
        P: Bind,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| params.query(statement)?.next()?.map(f).transpose())
    }

    /// Runs a query, or a statement with `RETURNING`, and maps all its rows. To stop earlier, or to
    /// have one row at a time in memory: [`Tx::prepare_cached`], whose statement has `query`.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// # db.write(|tx| tx.execute_batch("CREATE TABLE user(id INTEGER PRIMARY KEY, name);
    /// #     INSERT INTO user(name) VALUES ('ann'), ('bob')")).wait()?;
    /// let sql = "SELECT name FROM user WHERE id < ?1 ORDER BY id";
    /// let names: Vec<String> = db.read(|tx| tx.query_map(sql, [9], |row| row.get(0))).wait()?;
    /// assert_eq!(names, ["ann", "bob"]);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Tx::execute`], and those of `f`.
    pub fn query_map<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<Vec<T>>
    where
        P: Bind,
        F: FnMut(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| params.query(statement)?.mapped(f).collect())
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// `Invalid` for wrong SQL or a statement that belongs to the engine.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'c>> {
        self.enter(sql)?;
        let statement = self.connection.prepare(sql).map_err(|e| self.explain(sql, e))?;
        self.note_handed_out(&statement, sql)?;
        Ok(statement)
    }

    /// Prepares a statement, or takes it from those that were prepared before.
    ///
    /// # Errors
    /// As [`Tx::prepare`].
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'c>> {
        self.enter(sql)?;
        let prepare = || self.connection.prepare_cached(sql).map_err(|e| self.explain(sql, e));
        let mut statement = prepare()?;
        if statement.is_explain() != 0 {
            // It may be from before a change of the schema, which SQLite does not notice in it.
            statement.discard();
            statement = prepare()?;
        }
        self.note_handed_out(&statement, sql)?;
        Ok(statement)
    }

    /// Rowid of the last row that this transaction has inserted; 0 before it has inserted any.
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.raw().last_insert_rowid()
    }

    /// Rows changed by the last statement of this transaction that changed any, as SQL's
    /// `changes()`; 0 before there was one.
    pub fn changes(&self) -> u64 {
        self.connection.changes()
    }

    /// Rows that this transaction has changed, triggers and foreign keys included, as SQL's
    /// `total_changes()`.
    pub fn total_changes(&self) -> u64 {
        self.connection.total_changes()
    }

    /// Opens a blob of the main database for incremental reading or writing. Writing is refused for
    /// a table whose name begins with `sqlite_` or `monolite_`, or with a virtual table's name and
    /// a `_`, as it may belong to that.
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
            if let Some(reason) = self.connection.refuse_blob_of(table)? {
                return Err(Error::new(ErrorKind::Invalid, reason));
            }
            self.may_have_written.set(true);
        }
        let opened = self.connection.raw().blob_open("main", table, column, rowid, read_only);
        opened.map_err(|error| self.explained(error))
    }

    fn run_statement<T>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.with_statement(sql, |statement| {
            run(statement).map_err(|error| self.explain(sql, error))
        })
    }

    pub(crate) fn with_statement<T, E: From<Error>>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_statement_and_traits(sql, |statement, _| run(statement))
    }

    /// As [`Tx::with_statement`]; says also what the statement is like.
    pub(crate) fn with_statement_and_traits<T, E: From<Error>>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_numbered_statement(sql, Numbering::Plain, run)
    }

    /// The numbers that rows of the latest statement were given ahead, for a check that has plain
    /// SQLite give them, too.
    #[doc(hidden)]
    pub fn given_rowids(&self) -> Option<GivenRowids> {
        self.given.get()
    }

    /// As [`Tx::with_statement_and_traits`], for a statement whose rows are numbered so.
    pub(crate) fn with_numbered_statement<T, E: From<Error>>(
        &self,
        sql: &str,
        numbering: Numbering,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> Result<T, E>,
    ) -> Result<T, E> {
        self.enter(sql)?;
        let noted = |statement: &mut Statement<'_>, traits: Traits| {
            self.note_writes(statement);
            if !statement.readonly() {
                self.connection.clear_changes(traits).map_err(Error::from)?;
            }
            run(statement, traits)
        };
        let ran = self.connection.with_numbered_statement(sql, numbering, noted);
        let ran = ran.map(|(ran, given)| {
            self.given.set(given);
            ran
        });
        if !matches!(ran, Ok(Ok(_))) {
            self.connection.note_failure();
        }
        ran.map_err(|error| self.explain(sql, error))?
    }

    /// Does `what` with the savepoint of an interactive transaction that is inside of `depth`
    /// others.
    pub(crate) fn user_savepoint(&self, what: UserSavepoint, depth: usize) -> Result<()> {
        self.enter("a savepoint")?;
        self.may_have_written.set(true);
        Ok(self.connection.user_savepoint(what, depth)?)
    }

    /// Runs `body`, and closes the savepoints of its user that it has left open.
    pub(crate) fn closing_user_savepoints(&self, body: impl FnOnce() -> Result<()>) -> Result<()> {
        self.connection.closing_user_savepoints(body)
    }

    /// Returns the outcome stored with an idempotency key
    /// ([`Transaction::commit_once`](crate::Transaction::commit_once)), if there is one that has
    /// not expired. Call it before a request is repeated, whose statements would meet the first
    /// one's changes; in a [`Database::read_durable`](crate::Database::read_durable), an outcome
    /// means that the commit is on disk.
    ///
    /// # Errors
    /// `Timeout`, `Storage`, `Corrupt`.
    pub fn outcome_of(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.enter("finding an idempotency key")?;
        Ok(self.connection.find_key(key)?)
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
        self.enter("storing an idempotency key")?;
        self.may_have_written.set(true);
        Ok(self.connection.store_key(key, outcome, lifetime, swept)?)
    }

    /// The migrations that were applied, by their numbers.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn migrations(&self) -> Result<Vec<AppliedMigration>> {
        self.enter("finding migrations")?;
        Ok(self.connection.migrations()?)
    }

    /// Notes that a migration is applied by the transaction.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn note_migration(&self, number: i64, name: &str, checksum: &str) -> Result<()> {
        self.enter("noting a migration")?;
        self.may_have_written.set(true);
        Ok(self.connection.note_migration(number, name, checksum)?)
    }

    /// Runs the statements of the migration `name`, see [`Connection::run_migration`].
    ///
    /// # Errors
    /// As [`Tx::execute_batch`], with the name of the migration and the place in it before.
    pub(crate) fn run_migration(&self, name: &str, sql: &str) -> Result<()> {
        self.enter(sql)?;
        self.may_have_written.set(true);
        self.connection.clear_changes_for(sql)?;
        self.connection.run_migration(sql).map_err(|failed| {
            self.connection.note_failure();
            let place = format!("migration {name}:{}:{}", failed.line, failed.column);
            self.explain(&failed.sql, failed.error).context(place)
        })
    }

    /// Foreign keys that lead to no table, see [`Connection::dangling_foreign_keys`].
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn dangling_foreign_keys(&self) -> Result<Vec<(String, String)>> {
        self.enter("finding foreign keys")?;
        Ok(self.connection.dangling_foreign_keys()?)
    }

    /// Foreign keys that are violated, see [`Connection::foreign_key_violations`].
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn foreign_key_violations(
        &self,
        most: u32,
    ) -> Result<Vec<(String, Option<i64>, String)>> {
        self.enter("PRAGMA foreign_key_check")?;
        Ok(self.connection.foreign_key_violations(most)?)
    }

    /// How the file gives back free pages, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn free_pages(&self) -> Result<(AutoVacuum, u64)> {
        self.enter("PRAGMA freelist_count")?;
        Ok(self.connection.free_pages()?)
    }

    /// Gives back up to `most` free pages, see [`Connection::give_back_pages`].
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn give_back_pages(&self, most: u32) -> Result<()> {
        self.enter("PRAGMA incremental_vacuum")?;
        self.may_have_written.set(true);
        Ok(self.connection.give_back_pages(most)?)
    }

    /// Settles what its statements, failed ones included, have left of changes of the schema or the
    /// statistics, before the next statement is prepared.
    ///
    /// # Errors
    /// Those of SQLite. It is tried again before the next statement.
    #[inline]
    pub(crate) fn settle(&self) -> Result<()> {
        let is_settled = self.handed_out.get().is_empty() && self.connection.unsettled().is_empty();
        if is_settled { Ok(()) } else { self.settle_now() }
    }

    fn settle_now(&self) -> Result<()> {
        let handed_out = self.handed_out.get();
        if !handed_out.is_empty() {
            self.connection.unsettle(handed_out);
            self.connection.note_failure();
        }
        if self.connection.unsettled().is_empty() {
            return Ok(());
        }
        self.may_have_written.set(true);
        if !handed_out.is_empty() {
            self.connection.forget_cached_statements();
        }
        Ok(self.connection.settle_schema()?)
    }

    /// As [`Tx::settle`], when the closure has returned.
    pub(crate) fn settle_at_end(&self) -> Result<()> {
        if self.connection.signals().take_panicked() {
            return Err(collation_panicked());
        }
        self.check_undone()?;
        self.settle()?;
        Ok(self.connection.settle_schema_at_end()?)
    }

    /// Whether the transaction is still open, which a statement may have ended.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_in_transaction()
    }

    /// What is told to the connection from outside.
    pub(crate) fn signals(&self) -> &Signals {
        self.connection.signals()
    }

    /// Whether the open batch may have changed one of `pages`, or the schema.
    pub(crate) fn batch_changed(&self, pages: &PageSet) -> bool {
        self.connection.batch_changed(pages)
    }

    fn enter(&self, sql: &str) -> Result<()> {
        if !self.is_open() {
            let message = "the transaction was rolled back by an earlier statement of it, so \
                           nothing more can run in it; return an error from the closure";
            return Err(Error::new(ErrorKind::Aborted, message));
        }
        self.check_undone()?;
        self.settle()?;
        self.given.set(None);
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

    fn note_handed_out(&self, statement: &Statement<'_>, sql: &str) -> Result<()> {
        self.note_writes(statement);
        self.handed_out.set(self.handed_out.get() | self.connection.unsettled());
        if statement.readonly() { Ok(()) } else { Ok(self.connection.clear_changes_for(sql)?) }
    }

    /// The error of the statement `sql`, with the reason where the engine has refused something.
    pub(crate) fn explain(&self, sql: &str, error: rusqlite::Error) -> Error {
        self.explained(error).in_statement(sql)
    }

    fn explained(&self, error: rusqlite::Error) -> Error {
        if self.connection.signals().has_panicked() {
            return collation_panicked();
        }
        Error::from(error).denied(self.connection.signals().take_denial())
    }
}

/// What is said when a collation of the application has panicked.
pub(crate) fn collation_panicked() -> Error {
    let message = "a collation of the application (Options::connection_setup) panicked while texts \
                   were compared, so their order is not known; nothing of the transaction is kept";
    Error::new(ErrorKind::Invalid, message)
}

fn truncated(sql: &str) -> &str {
    let mut end = sql.len().min(REMEMBERED_SQL);
    while !sql.is_char_boundary(end) {
        end -= 1;
    }
    &sql[..end]
}
