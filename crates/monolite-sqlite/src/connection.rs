//! Owns a connection opened for one role, and the engine's own statements on it (transactions,
//! savepoints, checkpoints).
//!
//! # Invariants
//! - Only [`Connection::commit`] can commit: the commit hook turns every other commit (an
//!   autocommitted statement after a silent rollback) into a rollback.
//! - Only the engine's own methods may say `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT`; the
//!   authorizer refuses them to everyone else, see [`Authorizer`].
//! - The writer writes changed pages to the WAL before the commit only when they do not fit in its
//!   page cache. No frame before those of its transaction changes.
//! - An overlay never commits, and begins transactions on a snapshot only.
//! - A transaction begins with the schema and the statistics of its snapshot in memory. SQLite by
//!   itself compares them when a statement is run and not when it is prepared, so one that is new
//!   would be prepared against those that the connection happened to have.
//!
//! # Threads and locks
//! A connection is used by one thread at a time. Readers are opened in SQLite's serialized mode,
//! because a [`Revoker`] may end their snapshot from another thread; the others are not, and pay
//! for no mutex.
//!
//! # Not here
//! How it is opened: `opening`. What only overlays do: `overlay`.

mod batches;
mod figures;
mod foreign_keys;
mod full_text;
mod keys;
mod maintenance;
mod migrations;
mod opening;
mod overlay;
mod rebuild;
mod repeat;
mod rowids;
mod savepoints;
mod schema;
mod setup;
mod tracking;

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use batches::FailedStatement;
pub use foreign_keys::{ForeignKeys, Violation};
pub use keys::{KeyTime, Keys};
pub use maintenance::{AutoVacuum, Maintenance, trim_memory};
pub use migrations::{AppliedMigration, Migrations};
use opening::Hooks;
use overlay::OverlayState;
pub use overlay::{Unfit, test_overlay};
pub use rebuild::{Online, OnlinePlan, RebuildPhase, Rebuilding, Room, Step};
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, ErrorCode, MAIN_DB, Result, Statement, TransactionState, ffi};
pub use savepoints::{Savepoint, UserSavepoint};
use schema::SchemaMemory;
pub use setup::{MAX_VALUE_BYTES, Overdue, Settings};
pub use tracking::Pages;

use crate::authorizer::Authorizer;
use crate::codes::{check, refuse};
use crate::counts::Counts;
use crate::flag::Flag;
use crate::format;
use crate::interruption::Interruption;
use crate::pcache::{MainCache, is_over_budget};
use crate::revoke::Revoker;
use crate::rowids::Giver;
use crate::statements::{Own, Prepared, Text};
use crate::traits::Traits;
use crate::untrusted;
use crate::vfs::{CommitSequence, WalControl};

/// What a connection is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one connection that writes. Creates the file.
    Writer,
    /// A connection that only reads; its snapshot can be revoked.
    Reader,
    /// The connection that copies the WAL into the database in the background.
    Checkpointer,
    /// A reader for queries from an untrusted source, see [`Connection::begin_query`].
    Untrusted,
    /// A connection that writes in its own memory, on a snapshot that a reader pins. Needs the VFS
    /// of [`crate::vfs::Vfs::register_overlays`], see [`Connection::begin_on`].
    Overlay,
    /// Reads a file that is not open elsewhere and does not change. It takes no lock, ignores WAL
    /// and journal, and creates no file.
    Inspector,
}

impl Role {
    /// Whether its transactions never change the database.
    fn only_reads(self) -> bool {
        matches!(self, Role::Reader | Role::Untrusted | Role::Overlay | Role::Inspector)
    }

    /// Whether its transactions insert rows, be it in its own memory.
    fn inserts(self) -> bool {
        matches!(self, Role::Writer | Role::Overlay)
    }

    /// Whether other threads may call SQLite with its connection.
    fn is_serialized(self) -> bool {
        matches!(self, Role::Reader | Role::Untrusted)
    }
}

/// Instructions between two calls of [`Settings::overdue`].
///
/// At about 10 ns an instruction this is every 10 µs, and the call (one clock read) costs 0.3 %.
const PROGRESS_INTERVAL: c_int = 1_000;

/// The same for untrusted SQL, whose instructions can each be a pass over a large value.
const UNTRUSTED_INTERVAL: c_int = 100;

/// Which checkpoint to run, see <https://sqlite.org/c3ref/wal_checkpoint_v2.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointMode {
    /// Copies nothing, and tells how far that is.
    Look,
    /// Copies what no reader still needs, without waiting.
    Passive,
    /// Copies everything and makes sure that the next commit restarts the WAL.
    Restart,
    /// As `Restart`, and cuts the WAL file to zero bytes.
    Truncate,
}

/// What a checkpoint achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Frames in the WAL; `u32::MAX` when another checkpoint was under way and nothing was done.
    pub wal_frames: u32,
    /// Frames of those that are in the database file now.
    pub copied_frames: u32,
    /// A reader or another process kept it from what the mode asks for.
    pub blocked: bool,
}

impl Checkpoint {
    /// Whether nothing is left to copy.
    pub fn is_complete(&self) -> bool {
        self.copied_frames == self.wal_frames
    }

    /// Whether another checkpoint was under way, so that nothing was done or looked at.
    pub fn is_kept_out(&self) -> bool {
        self.wal_frames == u32::MAX
    }
}

/// A connection opened for one [`Role`].
pub struct Connection {
    // `drop` clears the pointer in it before the connection closes.
    revoker: Revoker,
    prepared: Prepared,
    authorizer: Arc<Authorizer>,
    interruption: Arc<Interruption>,
    may_commit: Arc<Flag>,
    panics: Arc<Flag>,
    counts: Arc<Counts>,
    giver: Option<Arc<Giver>>,
    overdue: Overdue,
    progress_interval: c_int,
    busy_timeout: Duration,
    pub(crate) overlay: Option<OverlayState>,
    /// Whether its file's pages are all read through the page cache, once that was asked.
    pub(crate) is_trackable: Cell<Option<bool>>,
    memory: SchemaMemory,
    /// Whether a transaction was begun and neither committed nor rolled back here.
    has_begun: Cell<bool>,
    /// Whether there was no WAL before it was opened.
    is_wal_new: bool,
    control: Option<Arc<WalControl>>,
    /// By which its keys expire.
    key_time: Arc<KeyTime>,
    /// The number of a commit that the open transaction sees, with all before it.
    sequence: Cell<CommitSequence>,
    /// What `Pages::spills` was when the last transaction that writes was begun.
    spills_before: Cell<c_int>,
}

impl Connection {
    /// Opens `path` (absolute, so that it is never taken for a URI) for `role`.
    ///
    /// A writer switches the database to WAL mode.
    ///
    /// # Errors
    /// Those of SQLite: not a database, cannot open, locked by another process; `SQLITE_ERROR` when
    /// the file is of a format that this SQLite does not know, or only reads.
    pub fn open(path: &Path, role: Role, settings: &Settings) -> Result<Connection> {
        let mut inner = opening::open(path, role, settings)?;
        let hooks = opening::set_up(&mut inner, role, settings)?;
        Connection::new(inner, hooks, role, settings)
    }

    /// As [`Connection::open`] for the writer. A failed open removes the WAL if it is new, and runs
    /// `tidy` to remove what else the open created. Both happen while the database is locked, so no
    /// other process uses these files.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn open_writer(
        path: &Path,
        settings: &Settings,
        tidy: impl FnOnce(),
    ) -> Result<Connection> {
        let is_wal_new = !opening::has_wal(path);
        let mut inner = opening::open(path, Role::Writer, settings)?;
        let fits = format::check_wal(&inner, path);
        match fits.and_then(|()| opening::set_up(&mut inner, Role::Writer, settings)) {
            Ok(hooks) => {
                let mut connection = Connection::new(inner, hooks, Role::Writer, settings)?;
                connection.is_wal_new = is_wal_new;
                Ok(connection)
            }
            Err(error) => {
                opening::give_up(&inner, is_wal_new, tidy);
                Err(error)
            }
        }
    }

    /// Closes a writer that was just opened and cannot be used, as [`Connection::open_writer`] does
    /// when it fails.
    pub fn give_up(self, tidy: impl FnOnce()) {
        opening::give_up(self.raw(), self.is_wal_new, tidy);
    }

    fn new(
        inner: rusqlite::Connection,
        hooks: Hooks,
        role: Role,
        settings: &Settings,
    ) -> Result<Connection> {
        let Hooks { authorizer, may_commit, panics, counts, giver, stack } = hooks;
        let interruption = Arc::<Interruption>::default();
        let (seen, told) = (Arc::clone(&authorizer), Arc::clone(&interruption));
        let revoker = Revoker::new(&inner, role.is_serialized(), told, seen);
        let may_write = matches!(role, Role::Writer | Role::Checkpointer | Role::Overlay);
        let prepared = Prepared::new(inner, Arc::clone(&authorizer), may_write, stack);
        let progress_interval = match role {
            Role::Untrusted => UNTRUSTED_INTERVAL,
            _ => PROGRESS_INTERVAL,
        };
        let overlay = (role == Role::Overlay).then(|| OverlayState::new(settings.cache_kib));
        let mut connection = Connection {
            revoker,
            prepared,
            authorizer,
            interruption,
            may_commit,
            panics,
            counts,
            giver,
            overdue: Arc::clone(&settings.overdue),
            progress_interval,
            busy_timeout: settings.busy_timeout,
            overlay,
            is_trackable: Cell::new(None),
            memory: SchemaMemory::default(),
            is_wal_new: false,
            has_begun: Cell::new(false),
            control: settings.control.clone().filter(|_| role.only_reads()),
            key_time: KeyTime::alone(|| Duration::ZERO),
            sequence: Cell::new(CommitSequence::UNKNOWN),
            spills_before: Cell::new(0),
        };
        connection.watch_progress()?;
        Ok(connection)
    }

    /// The connection underneath, for statements.
    pub fn raw(&self) -> &rusqlite::Connection {
        self.prepared.connection()
    }

    /// Hands the prepared statement of `sql` to `run`; it is kept for the next time.
    ///
    /// # Errors
    /// Those of preparing it; `SQLITE_INTERRUPT` when the connection's snapshot was revoked.
    pub fn with_statement<R>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>) -> R,
    ) -> Result<R> {
        self.with_statement_and_traits(sql, |statement, _| run(statement))
    }

    /// As [`Connection::with_statement`]; says also what the statement is like.
    ///
    /// # Errors
    /// As [`Connection::with_statement`].
    #[inline]
    pub fn with_statement_and_traits<R>(
        &self,
        sql: &str,
        run: impl FnOnce(&mut Statement<'_>, Traits) -> R,
    ) -> Result<R> {
        self.refuse_if_revoked()?;
        self.prepared.with(Text::Said(sql), run)
    }

    #[inline]
    fn refuse_if_revoked(&self) -> Result<()> {
        if self.interruption.is_revoked() { check(ffi::SQLITE_INTERRUPT) } else { Ok(()) }
    }

    /// As that of `rusqlite`: prepares the statement of `sql`.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        self.prepared.prepare(sql, || self.raw().prepare(sql))
    }

    /// As that of `rusqlite`: prepares the statement of `sql`, or takes it from those that were
    /// prepared before.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        // The authorizer does not see one that is found.
        if !self.authorizer.virtual_tables.are_none() {
            self.authorizer.note_virtual_table();
        }
        self.prepared.prepare(sql, || self.raw().prepare_cached(sql))
    }

    /// Forgets the statements that `rusqlite` keeps, whose runs the authorizer does not see.
    pub fn forget_cached_statements(&self) {
        self.raw().flush_prepared_statement_cache();
    }

    /// Runs `body` on the stack on which statements are prepared, which is larger than a thread's.
    pub fn on_stack<R>(&self, body: impl FnOnce() -> R) -> R {
        self.prepared.deeply(body)
    }

    /// What judges its statements.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// What has ended statements of it.
    #[inline]
    pub fn interruption(&self) -> &Interruption {
        &self.interruption
    }

    /// Raised when a collation of the application has panicked: what was compared by it is in no
    /// order, and must not be kept.
    #[inline]
    pub fn panics(&self) -> &Flag {
        &self.panics
    }

    /// How many rows the transaction has changed.
    #[inline]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What it says about pages.
    #[inline]
    pub fn pages(&self) -> Pages<'_> {
        Pages(self)
    }

    /// Its foreign keys.
    #[inline]
    pub fn foreign_keys(&self) -> ForeignKeys<'_> {
        ForeignKeys(self)
    }

    /// The idempotency keys in the file.
    pub fn keys(&self) -> Keys<'_> {
        Keys(self)
    }

    /// Has its idempotency keys expire by `time`; until then they do not.
    pub fn count_time_of_keys(&mut self, time: Arc<KeyTime>) {
        self.key_time = time;
    }

    /// The migrations in the file.
    pub fn migrations(&self) -> Migrations<'_> {
        Migrations(self)
    }

    /// The online rebuild of a table.
    pub fn online(&self) -> Online<'_> {
        Online(self)
    }

    /// The upkeep of the database.
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance(self)
    }

    /// A figure of SQLite's (`sqlite3_db_status`); 0 when it does not know it.
    fn status(&self, which: c_int) -> c_int {
        let (mut current, mut highest): (c_int, c_int) = (0, 0);
        // SAFETY: the handle is open for as long as `self`, and both out-pointers are valid.
        unsafe {
            let db = self.raw().handle();
            ffi::sqlite3_db_status(db, which, &raw mut current, &raw mut highest, 0);
        }
        current
    }

    pub(crate) fn as_engine<T>(&self, run: impl FnOnce() -> T) -> T {
        self.authorizer.as_engine(run)
    }

    /// A handle with which another thread can end this connection's snapshot.
    pub fn revoker(&self) -> Revoker {
        self.revoker.clone()
    }

    /// Makes the connection usable again after its snapshot was revoked and its caller has left.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn restore_after_revocation(&mut self) -> Result<()> {
        self.watch_progress()?;
        self.interruption.forget();
        if self.is_in_transaction() { self.rollback() } else { Ok(()) }
    }

    fn watch_progress(&mut self) -> Result<()> {
        let (overdue, told) = (Arc::clone(&self.overdue), Arc::clone(&self.interruption));
        let ends = move || {
            let is_late = overdue();
            if is_late {
                told.mark_late();
            }
            is_late || told.is_revoked()
        };
        self.prepared.connection_mut().progress_handler(self.progress_interval, Some(ends))
    }

    /// Whether a transaction is open (`sqlite3_get_autocommit` is 0).
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        !self.raw().is_autocommit()
    }

    /// `BEGIN IMMEDIATE`: takes the write lock and the snapshot.
    ///
    /// # Errors
    /// Those of SQLite, busy when another process writes; no transaction is open then.
    /// `SQLITE_MISUSE` on an overlay.
    pub fn begin_immediate(&self) -> Result<()> {
        self.refuse_to_overlay("BEGIN")?;
        self.spills_before.set(self.pages().spills());
        self.begin(Own::BeginImmediate)
    }

    /// `BEGIN`, and takes the snapshot.
    ///
    /// # Errors
    /// Those of SQLite; no transaction is open then. `SQLITE_MISUSE` on an overlay.
    pub fn begin_read(&self) -> Result<()> {
        self.refuse_to_overlay("BEGIN")?;
        if let Some(control) = &self.control {
            // Read before the snapshot is taken, so that this has all commits up to it.
            self.keep_pages(control.changes().sequence());
        }
        self.begin(Own::Begin)
    }

    /// As [`Connection::begin_read`], for one query from an untrusted source that may read `tables`
    /// (all of the application's when `None`) and values of up to `value_bytes`.
    ///
    /// To be called on a connection for [`Role::Untrusted`].
    ///
    /// # Errors
    /// As [`Connection::begin_read`].
    pub fn begin_query(&self, tables: Option<Vec<String>>, value_bytes: u64) -> Result<()> {
        let rules =
            self.authorizer.query_rules.as_ref().expect("the connection is for untrusted SQL");
        rules.set_tables(tables);
        untrusted::limit_values(self.raw(), value_bytes);
        self.begin_read()
    }

    /// Prepares the one statement of `sql`, a query from an untrusted source.
    ///
    /// # Errors
    /// Those of preparing it; `SQLITE_AUTH` when it is refused.
    pub fn prepare_query(&self, sql: &str) -> Result<Statement<'_>> {
        let rules =
            self.authorizer.query_rules.as_ref().expect("the connection is for untrusted SQL");
        let views = || {
            let mut views =
                self.raw().prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'view'")?;
            views.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        refuse(rules.refusal_of_text(sql, views)?)?;
        self.prepare(sql)
    }

    pub(crate) fn begin(&self, own: Own) -> Result<()> {
        self.foreign_keys().end_deferral()?;
        self.engine(own)?;
        self.note_taken(|giver| {
            giver.begin();
            self.authorizer.drops.take_dropped();
        });
        self.has_begun.set(true);
        self.memory.has_changed.set(false);
        self.authorizer.virtual_tables.begin();
        self.memory.open_facts.set(None);
        self.start_counts();
        let verified = self.verify_schema();
        self.forget_outdated_statements();
        verified.inspect_err(|_| {
            // Its failure leaves the transaction open, and the next BEGIN reports it.
            let _ = self.rollback();
        })
    }

    /// Keeps the pages in the cache that were not changed, if the connection may do so. The next
    /// snapshot has to contain all commits up to `sequence`.
    pub(crate) fn keep_pages(&self, sequence: CommitSequence) {
        // A snapshot that is open already may be older.
        if self.raw().transaction_state(Some(MAIN_DB)) != Ok(TransactionState::None) {
            return;
        }
        self.sequence.set(sequence);
        if let Some(control) = &self.control
            && let Some(mut cache) = MainCache::of(self.raw())
        {
            cache.keep_until_changed(control, sequence);
        }
    }

    /// The number of a commit that the open transaction sees, with all before it.
    pub(crate) fn sequence(&self) -> CommitSequence {
        self.sequence.get()
    }

    /// `COMMIT`, the only way to it.
    ///
    /// # Durability
    /// The writer commits at `synchronous=NORMAL`: the frames are in the WAL file, not synced.
    ///
    /// # Errors
    /// Those of SQLite; the transaction may still be open afterwards. `SQLITE_MISUSE` on an
    /// overlay.
    pub fn commit(&self) -> Result<()> {
        self.refuse_to_overlay("COMMIT")?;
        self.note_taken(|giver| self.settle_taken(giver));
        let end = || self.end_statements_if_busy(|| self.engine(Own::Commit));
        let result = self.may_commit.during(end);
        if result.is_ok() {
            self.note_taken(|giver| giver.committed(&self.authorizer.drops.take_dropped()));
            self.has_begun.set(false);
        }
        self.end_leftover_snapshot()?;
        if is_over_budget()
            && let Some(mut cache) = MainCache::of(self.raw())
        {
            cache.keep_to_budget();
        }
        result
    }

    /// `ROLLBACK`.
    ///
    /// # Errors
    /// Those of SQLite; none when no transaction is open.
    pub fn rollback(&self) -> Result<()> {
        let has_begun = self.has_begun.take();
        let leaves_memory = match self.is_in_transaction() {
            true => self.may_write() && self.may_leave_memory(),
            // A statement has rolled it back.
            false => has_begun,
        };
        if self.is_in_transaction() {
            self.end_statements_if_busy(|| self.engine(Own::Rollback))?;
        }
        self.end_leftover_snapshot()?;
        if leaves_memory { self.forget_schema() } else { Ok(()) }
    }

    /// A statement that a closure forgot half-way (`mem::forget`) keeps its snapshot beyond the
    /// transaction. So does an R-Tree, when a statement has rolled the transaction back
    /// (`OR ROLLBACK`): it closes what it reads with when SQLite has already looked whether anybody
    /// reads. A transaction of no statement ends that.
    fn end_leftover_snapshot(&self) -> Result<()> {
        if self.has_leftover_snapshot()? {
            self.reset_statements();
        }
        if self.has_leftover_snapshot()? {
            self.engine(Own::Begin)?;
            self.engine(Own::Rollback)?;
        }
        Ok(())
    }

    fn has_leftover_snapshot(&self) -> Result<bool> {
        let state = self.raw().transaction_state(Some(MAIN_DB))?;
        Ok(!self.is_in_transaction() && state != TransactionState::None)
    }

    /// Runs `end`, which a statement that was forgotten half-way can make busy.
    fn end_statements_if_busy(&self, end: impl Fn() -> Result<()>) -> Result<()> {
        match end() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.reset_statements();
                end()
            }
            result => result,
        }
    }

    /// Has SQL's `changes()`, `total_changes()` and `last_insert_rowid()` tell nothing of the
    /// statements before, as on a connection that has changed nothing; what these have asked for is
    /// forgotten, too. To be called when a transaction begins, each in a batch.
    #[inline]
    pub fn start_counts(&self) {
        self.authorizer.drops.begin();
        self.counts.start();
    }

    pub(crate) fn engine(&self, own: Own) -> Result<()> {
        self.as_engine(|| self.prepared.run_own(own))
    }

    /// Resets statements that were left running (a forgotten `Rows`), so that nothing of a finished
    /// closure keeps a transaction open.
    fn reset_statements(&self) {
        // SAFETY: the handle is open, used by this thread alone, and no `Rows` of a closure can be
        // alive any more: their lifetime ended with the closure. sqlite3_reset only rewinds.
        unsafe {
            let db = self.raw().handle();
            let mut statement = ffi::sqlite3_next_stmt(db, std::ptr::null_mut());
            while !statement.is_null() {
                if ffi::sqlite3_stmt_busy(statement) != 0 {
                    ffi::sqlite3_reset(statement);
                }
                statement = ffi::sqlite3_next_stmt(db, statement);
            }
        }
    }

    /// Runs a checkpoint of the main database without waiting for readers. The caller knows which
    /// readers will end and can revoke them; those of other processes may stay for long.
    ///
    /// # Durability
    /// SQLite syncs the WAL before it writes the database, and syncs the database when everything
    /// was copied.
    ///
    /// # Errors
    /// Those of SQLite; being blocked by a reader or another process is not an error.
    /// `SQLITE_MISUSE` on an overlay.
    pub fn checkpoint(&self, mode: CheckpointMode) -> Result<Checkpoint> {
        self.refuse_to_overlay("a checkpoint")?;
        let mode = match mode {
            CheckpointMode::Look => ffi::SQLITE_CHECKPOINT_NOOP,
            CheckpointMode::Passive => ffi::SQLITE_CHECKPOINT_PASSIVE,
            CheckpointMode::Restart => ffi::SQLITE_CHECKPOINT_RESTART,
            CheckpointMode::Truncate => ffi::SQLITE_CHECKPOINT_TRUNCATE,
        };
        let busy_timeout = self.busy_timeout;
        if !busy_timeout.is_zero() {
            self.raw().busy_timeout(Duration::ZERO)?;
        }
        let (mut wal, mut copied): (c_int, c_int) = (0, 0);
        // SAFETY: the handle is open, the name is a static C string, both out-pointers are valid.
        let code = unsafe {
            ffi::sqlite3_wal_checkpoint_v2(
                self.raw().handle(),
                c"main".as_ptr(),
                mode,
                &raw mut wal,
                &raw mut copied,
            )
        };
        if !busy_timeout.is_zero() {
            self.raw().busy_timeout(busy_timeout)?;
        }
        let blocked = code & 0xff == ffi::SQLITE_BUSY || code & 0xff == ffi::SQLITE_LOCKED;
        if !blocked {
            check(code)?;
        }
        // Negative when nothing was looked at, because another checkpoint is under way.
        let wal_frames = u32::try_from(wal).unwrap_or(u32::MAX);
        let copied_frames = u32::try_from(copied).unwrap_or(0);
        Ok(Checkpoint { wal_frames, copied_frames, blocked })
    }

    /// Lets the close of this connection, when it is the last one, remove the WAL file.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn remove_wal_on_close(&self) -> Result<()> {
        self.raw().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(|_| ())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.revoker.disconnect();
    }
}
