//! Owns what the closure of a read sees, and the closure of a write, too: the queries.

use std::cell::Cell;

use monolite_sqlite::{
    AppliedMigration, AutoVacuum, Connection, GivenRowids, Interruption, Numbering, PageSet,
    Rebuilding, Traits, Violation, rusqlite,
};
use rusqlite::blob::Blob;
use rusqlite::{CachedStatement, Row, Statement};

use super::collation_panicked;
use crate::activity::{RunningStatement, Slowest, Statements, Trace};
use crate::error::{Error, ErrorKind, Result};
use crate::parameters::Bind;

const NO_ROWS: rusqlite::Error = rusqlite::Error::QueryReturnedNoRows;

/// A read transaction, as its closure sees it: one snapshot, and the queries.
///
/// The closure of a write sees a [`Tx`](crate::Tx), which has these methods, too: a function that
/// only queries takes a `&ReadTx`, and can be called from both.
///
/// ```
/// use monolite::{ReadTx, Result};
///
/// fn count(tx: &ReadTx<'_>) -> Result<i64> {
///     tx.query_row("SELECT count(*) FROM user", (), |row| row.get(0))
/// }
///
/// # fn main() -> Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute("CREATE TABLE user(name TEXT)", ())).wait()?;
/// db.write(|tx| {
///     tx.execute("INSERT INTO user VALUES ('ann')", ())?;
///     count(tx)
/// })
/// .wait()?;
/// assert_eq!(db.read(count).wait()?, 1);
/// # db.close()
/// # }
/// ```
///
/// A read has no methods that change the database:
///
/// ```compile_fail,E0599
/// # let db = monolite::Database::open(":memory:").unwrap();
/// db.read(|tx| tx.execute("DELETE FROM user", ())).wait();
/// ```
///
/// In a read a query that would write (`INSERT … RETURNING`) fails with [`ErrorKind::Invalid`].
///
/// Methods that run a statement at once return [`Error`]; statements from [`ReadTx::prepare`] are
/// `rusqlite`'s own and return its error, which `?` converts into [`Error`]; an error type of your
/// own needs `From<rusqlite::Error>` for that.
pub struct ReadTx<'c> {
    pub(super) connection: &'c Connection,
    pub(super) may_have_written: Cell<bool>,
    /// What those statements are like that were handed out and may run at any time.
    handed_out: Cell<Traits>,
    /// Whether what it did must not be committed, because a savepoint could not be undone.
    pub(super) is_doomed: Cell<bool>,
    statements: Statements<'c>,
    /// The numbers that rows of the latest statement were given.
    pub(super) given: Cell<Option<GivenRowids>>,
}

impl<'c> ReadTx<'c> {
    pub(crate) fn new(connection: &'c Connection, trace: &'c Trace) -> ReadTx<'c> {
        ReadTx {
            connection,
            may_have_written: Cell::new(false),
            handed_out: Cell::default(),
            is_doomed: Cell::new(false),
            statements: Statements::new(trace),
            given: Cell::default(),
        }
    }

    pub(crate) fn may_have_written(&self) -> bool {
        self.may_have_written.get()
    }

    /// Runs a query and maps its first row. The prepared statement is kept for the next time.
    ///
    /// # Errors
    /// `NoRows` when there is no row, see [`ReadTx::query_optional`]; `Invalid` (wrong SQL or
    /// parameters, a statement that belongs to the engine, a write in a read), `Constraint`,
    /// `Timeout`, `Storage`, `Corrupt`.
    pub fn query_row<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<T>
    where
        P: Bind,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| f(params.query(statement)?.next()?.ok_or(NO_ROWS)?))
    }

    /// As [`ReadTx::query_row`], and `None` when there is no row.
    ///
    /// # Errors
    /// As [`ReadTx::query_row`].
    pub fn query_optional<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<Option<T>>
    where
        P: Bind,
        F: FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| params.query(statement)?.next()?.map(f).transpose())
    }

    /// Runs a query, or a statement with `RETURNING`, and maps all its rows. To stop earlier, or to
    /// have one row at a time in memory: [`ReadTx::prepare_cached`], whose statement has `query`.
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
    /// As [`ReadTx::query_row`], and those of `f`.
    pub fn query_map<T, P, F>(&self, sql: &str, params: P, f: F) -> Result<Vec<T>>
    where
        P: Bind,
        F: FnMut(&Row<'_>) -> rusqlite::Result<T>,
    {
        self.run_statement(sql, |statement| params.query(statement)?.mapped(f).collect())
    }

    /// Prepares a statement.
    ///
    /// SQLite prepares it again in its first step behind a change of the schema, and for a
    /// parameter by which it plans (`LIKE ?1`). That takes stack of the calling thread, 1 KiB for
    /// each level of its deepest expression, with views and common table expressions in the place
    /// of their names. For hundreds of levels use [`ReadTx::query_map`] and its like, which have
    /// such a stack.
    ///
    /// # Errors
    /// `Invalid` for wrong SQL or a statement that belongs to the engine.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'c>> {
        let prepared = self.enter(sql)?;
        let statement = self.connection.prepare(sql).map_err(|e| self.explain(sql, e))?;
        self.note_handed_out(&statement, sql)?;
        prepared.hand_out();
        Ok(statement)
    }

    /// Prepares a statement, or takes it from those that were prepared before.
    ///
    /// # Errors
    /// As [`ReadTx::prepare`].
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'c>> {
        let prepared = self.enter(sql)?;
        let prepare = || self.connection.prepare_cached(sql).map_err(|e| self.explain(sql, e));
        let mut statement = prepare()?;
        if statement.is_explain() != 0 {
            // It may be from before a change of the schema, which SQLite does not notice in it.
            statement.discard();
            statement = prepare()?;
        }
        self.note_handed_out(&statement, sql)?;
        prepared.hand_out();
        Ok(statement)
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

    /// As [`ReadTx::with_statement`]; says also what the statement is like.
    pub(crate) fn with_statement_and_traits<T, E: From<Error>>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> Result<T, E>,
    ) -> Result<T, E> {
        self.with_numbered_statement(sql, Numbering::Plain, run)
    }

    /// As [`ReadTx::with_statement_and_traits`], for a statement whose rows are numbered so.
    pub(crate) fn with_numbered_statement<T, E: From<Error>>(
        &self,
        sql: &str,
        numbering: Numbering,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> Result<T, E>,
    ) -> Result<T, E> {
        let _running = self.enter(sql)?;
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

    /// How many rows `run` has changed, which runs one statement.
    pub(crate) fn count_changes<N: Default>(
        &self,
        traits: Traits,
        run: impl FnOnce() -> Result<N>,
    ) -> Result<N> {
        if traits.has(Traits::CHANGES_ROWS) {
            return run();
        }
        let total = || self.connection.counts().total_changes();
        let before = total();
        let changed = run()?;
        // One that changes no rows leaves the number of the statement before.
        let has_none = traits.has(Traits::DEFINES | Traits::MAY_CHANGE) || total() == before;
        Ok(if has_none { N::default() } else { changed })
    }

    /// The outcome that was stored with an idempotency key
    /// ([`Transaction::commit_once`](crate::Transaction::commit_once)), if one was and it is
    /// remembered. To be asked before a request is done again, whose statements would find what the
    /// first one did; in a [`Database::read_durable`](crate::Database::read_durable), the commit is
    /// on disk when there is an outcome.
    ///
    /// # Errors
    /// `Timeout`, `Storage`, `Corrupt`.
    pub fn outcome_of(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let _running = self.enter("finding an idempotency key")?;
        Ok(self.connection.keys().find(key)?)
    }

    /// The migrations that were applied, by their numbers.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn migrations(&self) -> Result<Vec<AppliedMigration>> {
        let _running = self.enter("finding migrations")?;
        Ok(self.connection.migrations().applied()?)
    }

    /// As [`monolite_sqlite::Online::read`].
    ///
    /// # Errors
    /// Those of it.
    pub(crate) fn read_online(&self, sql: &str, table: &str) -> Result<()> {
        let _running = self.enter("reading an online rebuild")?;
        Ok(self.connection.online().read(sql, table)?)
    }

    /// As [`monolite_sqlite::Migrations::read`].
    ///
    /// # Errors
    /// Those of it.
    pub(crate) fn read_rebuilds(&self, sql: &str, rebuilt: &[String]) -> Result<()> {
        let _running = self.enter("reading a migration")?;
        Ok(self.connection.migrations().read(sql, rebuilt)?)
    }

    /// How far the online rebuild of a table is, if one is under way.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn rebuilding(&self) -> Result<Option<Rebuilding>> {
        let _running = self.enter("finding an online rebuild")?;
        Ok(self.connection.online().state()?)
    }

    /// Whether the transaction, as it is now, violates a foreign key that is checked at its end:
    /// to commit it now would fail. Of a read: `false`.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// let schema = "CREATE TABLE p(id INTEGER PRIMARY KEY);
    ///     CREATE TABLE c(p REFERENCES p DEFERRABLE INITIALLY DEFERRED)";
    /// db.write(move |tx| {
    ///     tx.execute_batch(schema)?;
    ///     tx.execute("INSERT INTO c VALUES (1)", ())?;
    ///     assert!(tx.has_deferred_violation());
    ///     tx.execute("INSERT INTO p VALUES (1)", ())?;
    ///     assert!(!tx.has_deferred_violation());
    ///     Ok(())
    /// })
    /// .wait()?;
    /// # db.close()
    /// # }
    /// ```
    pub fn has_deferred_violation(&self) -> bool {
        self.connection.foreign_keys().have_deferred_violation()
    }

    /// Foreign keys that lead to no table, see [`monolite_sqlite::ForeignKeys::dangling`].
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn dangling_foreign_keys(&self) -> Result<Vec<(String, String)>> {
        let _running = self.enter("finding foreign keys")?;
        Ok(self.connection.foreign_keys().dangling()?)
    }

    /// Foreign keys that are violated: the first ones, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn foreign_key_violations(&self, first: usize) -> Result<(Vec<Violation>, usize)> {
        let _running = self.enter("PRAGMA foreign_key_check")?;
        let (mut found, mut count) = (Vec::new(), 0);
        self.connection.foreign_keys().each_violation(None, u32::MAX, |violation| {
            count += 1;
            if found.len() < first {
                found.push(violation);
            }
        })?;
        Ok((found, count))
    }

    /// How the file gives back free pages, and how many there are.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn free_pages(&self) -> Result<(AutoVacuum, u64)> {
        let _running = self.enter("PRAGMA freelist_count")?;
        Ok(self.connection.maintenance().free_pages()?)
    }

    /// Makes good what its statements have left behind of changes of the schema or the statistics,
    /// also those that failed, for the next statement that is prepared.
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

    /// As [`ReadTx::settle`], when the closure has returned.
    pub(crate) fn settle_at_end(&self) -> Result<()> {
        if self.connection.panics().take() {
            return Err(collation_panicked());
        }
        self.check_undone()?;
        self.settle()?;
        Ok(self.connection.settle_schema_at_end()?)
    }

    /// Has SQL's `last_insert_rowid()` and `changes()` tell of a statement of a transaction before,
    /// until one of this transaction inserts or changes something. For a server whose clients take
    /// several transactions for one session.
    #[doc(hidden)]
    pub fn resume_counts(&self, rowid: i64, changes: u64) {
        self.connection.counts().resume(rowid, changes.cast_signed());
    }

    /// Whether a statement has rolled back the whole transaction (`OR ROLLBACK`,
    /// `RAISE(ROLLBACK, …)`): no other runs in it then, and nothing of it is committed.
    pub fn is_rolled_back(&self) -> bool {
        !self.is_open()
    }

    /// Whether the transaction is still open, which a statement may have ended.
    pub(crate) fn is_open(&self) -> bool {
        self.connection.is_in_transaction()
    }

    /// What may end its statements.
    pub(crate) fn interruption(&self) -> &Interruption {
        self.connection.interruption()
    }

    /// Whether the open batch may have changed one of `pages`, or the schema.
    pub(crate) fn batch_changed(&self, pages: &PageSet) -> bool {
        self.connection.pages().batch_changed(pages)
    }

    /// Makes ready for the statement `sql`, which runs for as long as the result lives.
    pub(super) fn enter(&self, sql: &str) -> Result<RunningStatement<'_>> {
        if !self.is_open() {
            let message = "the transaction was rolled back by an earlier statement of it, so \
                           nothing more can run in it; return an error from the closure";
            return Err(Error::new(ErrorKind::Aborted, message));
        }
        self.check_undone()?;
        self.settle()?;
        self.given.set(None);
        Ok(self.statements.enter(sql))
    }

    /// The slowest statement so far.
    pub(crate) fn slowest(&self) -> Slowest {
        self.statements.slowest()
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

    pub(super) fn explained(&self, error: rusqlite::Error) -> Error {
        if self.connection.panics().is_up() {
            return collation_panicked();
        }
        Error::from(error).denied(self.connection.authorizer().take_denial())
    }

    /// Opens a blob of the main database for incremental reading.
    ///
    /// # Errors
    /// As [`ReadTx::query_row`].
    pub fn blob_open(&self, table: &str, column: &str, rowid: i64) -> Result<Blob<'c>> {
        self.enter("incremental blob")?.hand_out();
        self.open_blob(table, column, rowid, true)
    }

    pub(super) fn open_blob(
        &self,
        table: &str,
        column: &str,
        rowid: i64,
        read_only: bool,
    ) -> Result<Blob<'c>> {
        let opened = self.connection.raw().blob_open("main", table, column, rowid, read_only);
        opened.map_err(|error| self.explained(error))
    }

    /// # Errors
    /// `Aborted` when a savepoint could not be undone.
    fn check_undone(&self) -> Result<()> {
        if !self.is_doomed.get() {
            return Ok(());
        }
        let message = "what was done in a savepoint could not be undone, so nothing more can run \
                       in the transaction; return an error from the closure, and try again";
        Err(Error::new(ErrorKind::Aborted, message))
    }
}
