//! Owns the handle that users hold: writes, reads, figures and the end.

mod opening;
mod transact;

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite;
use rusqlite::Row;

use crate::archive::ArchiveToken;
use crate::backup::Backup;
use crate::call::completion::Completion;
use crate::call::member::{Body, Member, Once, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open as files;
use crate::jobs::{Job, Jobs};
use crate::maintenance::{self, Checked, Checkpointed, Vacuumed};
use crate::options::{Durability, Options};
use crate::parameters::IntoParameters;
use crate::read::handle::{Answer, Read};
use crate::read::stream::{Query, RowStream};
use crate::stats::Stats;
use crate::transaction::Transactions;
use crate::tx::{ReadTx, Tx};
use crate::untrusted::{UntrustedLimits, UntrustedQuery};

/// An open database. Cloning it is cheap and gives another handle on the same one.
///
/// `E` is the type of the errors that closures return: [`Error`], until [`Database::with_error`]
/// gives a handle for another one. Without that, a closure that returns `MyError` does not compile:
/// ``expected `Error`, found `MyError` `` or `type annotations needed`. With it no closure needs an
/// annotation.
///
/// Dropping the last handle closes the database, see [`Database::close`].
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// let db = monolite::Database::open(":memory:")?;
/// db.write(|tx| tx.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)")).wait()?;
/// let sum: i64 = db.read(|tx| tx.query_row("SELECT sum(x) FROM t", (), |row| row.get(0))).wait()?;
/// assert_eq!(sum, 1);
/// # db.close()
/// # }
/// ```
///
/// In `docs/guides`: `web.md`, `testing.md`, `deploying.md`, `background-work.md`, `json.md`,
/// `moving.md`, `other-libraries.md`, `when-not.md`.
pub struct Database<E = Error> {
    handle: Arc<Handle>,
    error: PhantomData<fn() -> E>,
}

impl<E> Clone for Database<E> {
    fn clone(&self) -> Database<E> {
        Database::of(Arc::clone(&self.handle))
    }
}

/// An engine as one principal uses it.
struct Handle {
    engine: Arc<Engine>,
    writes: Arc<WriteQueue>,
    transactions: Arc<Transactions>,
    /// Of each call, where it is less than the options say.
    time_limit: Option<Duration>,
}

/// A commit that fails may have waited for the archive as long as it was to.
const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

impl Database {
    /// Opens the database at `path` with the default [`Options`], and creates it where there is
    /// none. `":memory:"` opens one for tests. Any other path is taken literally, see
    /// [`Options::open`].
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    pub(crate) fn open_with(options: Options, path: &Path, patience: Duration) -> Result<Database> {
        let opened = files::open(&options, path, patience)?;
        let engine = Engine::start(opened, &options)?;
        let (writes, transactions) = (engine.queue().clone(), engine.transactions().clone());
        let engine = Arc::new(engine);
        let handle = Handle { engine, writes, transactions, time_limit: None };
        Ok(Database::of(Arc::new(handle)))
    }

    /// [`Options::check_file`] with the default [`Options`].
    ///
    /// # Errors
    /// Those of [`Options::check_file`].
    pub fn check_file(path: impl AsRef<Path>) -> Job<Checked> {
        Options::new().check_file(path)
    }
}

impl<E> Database<E> {
    fn of(handle: Arc<Handle>) -> Database<E> {
        Database { handle, error: PhantomData }
    }

    /// The same handle for closures that return errors of the type `F`, which is the caller's own
    /// and is made from an [`Error`] with `From`. What a closure returns is what its caller gets.
    ///
    /// ```
    /// use monolite::{Database, Error};
    ///
    /// #[derive(Debug)]
    /// enum ShopError {
    ///     SoldOut,
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for ShopError {
    ///     fn from(error: Error) -> ShopError {
    ///         ShopError::Database(error)
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), ShopError> {
    /// let db = Database::open(":memory:")?.with_error::<ShopError>();
    /// db.write(|tx| {
    ///     tx.execute_batch("CREATE TABLE item(id INTEGER PRIMARY KEY, stock INTEGER)")?;
    ///     Ok(())
    /// })
    /// .wait()?;
    /// let bought = db.write(|tx| {
    ///     let sql = "UPDATE item SET stock = stock - 1 WHERE id = ?1 AND stock > 0";
    ///     if tx.execute(sql, [7])? == 0 {
    ///         return Err(ShopError::SoldOut);
    ///     }
    ///     Ok(())
    /// });
    /// assert!(matches!(bought.wait(), Err(ShopError::SoldOut)));
    /// # Ok(db.close()?)
    /// # }
    /// ```
    #[must_use]
    pub fn with_error<F: From<Error>>(&self) -> Database<F> {
        Database::of(Arc::clone(&self.handle))
    }

    /// Another handle on the same database, each call of which may take no longer than `limit`: a
    /// write in the writer, a read, a statement of an interactive transaction, a transaction of
    /// [`Database::vacuum`]; and, counted by itself, the wait for the archive. Where it is less it
    /// replaces the options `write_time_limit`, `read_time_limit` and `Archive::time_limit`. SQL
    /// ends within a fraction of a millisecond of it, other code when it returns. The time in the
    /// queue does not count, nor does the commit of an interactive transaction in the writer.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// let quick = db.with_time_limit(Duration::from_millis(20));
    /// let endless = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n)
    ///                SELECT sum(i) FROM n";
    /// let sum = quick.read(|tx| tx.query_row(endless, (), |row| row.get::<_, i64>(0))).wait();
    /// assert_eq!(sum.unwrap_err().kind(), monolite::ErrorKind::Timeout);
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn with_time_limit(&self, limit: Duration) -> Database<E> {
        let Handle { engine, writes, transactions, .. } = &*self.handle;
        let wait = |_| engine.archive_wait(Durability::Archived, Some(limit));
        let waits = writes.terms().archive_wait.and_then(wait);
        let writes = Arc::new(writes.awaiting_archive(waits));
        let transactions = transactions.within(limit);
        let transactions = Transactions { writes: Arc::clone(&writes), ..transactions };
        let (engine, transactions) = (Arc::clone(engine), Arc::new(transactions));
        Database::of(Arc::new(Handle { engine, writes, transactions, time_limit: Some(limit) }))
    }

    /// Another handle on the same database, for what it does on behalf of `principal`: whoever the
    /// application has to be fair to, such as a customer, by a number of its choice. Made for each
    /// request, or kept; handles with the same number are one principal.
    ///
    /// While several principals wait for the writer, each gets the same share of its time, however
    /// many transactions it has there and however long they take; what one does not use is for the
    /// others. So a transaction that waits behind those of another principal waits for the one that
    /// runs, which [`Options::write_time_limit`] ends, and not for all that are in front of it. Of
    /// the places in the queue a principal may have as many as it leaves to the others: beyond,
    /// [`Database::write`] waits and [`Database::try_write`] is `Overloaded`. Writes of handles
    /// without a principal, such as this one has unless it was made here, have one share together,
    /// and may fill the queue.
    ///
    /// Shares concern writes, and the commits of interactive transactions.
    /// Reads have threads of their own. Principals whose transactions are short cost no throughput;
    /// one that is not known yet gets one transaction in a batch before its share is known, so a
    /// number for each request would make all of them unknown.
    ///
    /// The shares are those of start-time fair queueing (Goyal, Vin and Cheng, 1996).
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Database::open(":memory:")?;
    /// db.write(|tx| tx.execute("CREATE TABLE notes(customer, text)", ())).wait()?;
    /// let customer: u32 = 4711;
    /// let theirs = db.with_principal(customer.into());
    /// theirs
    ///     .write(move |tx| tx.execute("INSERT INTO notes VALUES (?, 'hello')", [customer]))
    ///     .wait()?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn with_principal(&self, principal: u64) -> Database<E> {
        let Handle { engine, writes, transactions, time_limit } = &*self.handle;
        let writes = Arc::new(writes.of(principal));
        let transactions =
            Transactions { writes: Arc::clone(&writes), ..Transactions::clone(transactions) };
        let (engine, transactions) = (Arc::clone(engine), Arc::new(transactions));
        let time_limit = *time_limit;
        Database::of(Arc::new(Handle { engine, writes, transactions, time_limit }))
    }

    /// Another handle on the same database, whose writes and commits are acknowledged when they are
    /// that durable: [`Archived`](Durability::Archived) for what must survive the machine, in a
    /// database whose other writes need not wait for an upload; or the other way round.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// use monolite::{Durability, ErrorKind};
    /// let db = monolite::Database::open(":memory:")?;
    /// let archived = db.with_durability(Durability::Archived);
    /// let refused = archived.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait().unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Invalid); // the database has no archive
    /// # db.close()
    /// # }
    /// ```
    ///
    /// Its writes and interactive transactions are refused with `Invalid` when the database was not
    /// opened for that: `Archived` needs an [archive](Options::archive); `Synced` needs the option
    /// [`Synced`](Durability::Synced) or `Archived`; `Buffered` needs `Buffered`.
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Database<E> {
        let Handle { engine, writes, transactions, time_limit } = &*self.handle;
        let waits = engine.archive_wait(durability, *time_limit);
        let refusal = engine.check_durability(durability).err();
        let writes = Arc::new(writes.awaiting_archive(waits).refusing(refusal));
        let transactions =
            Transactions { writes: Arc::clone(&writes), ..Transactions::clone(transactions) };
        let (engine, transactions) = (Arc::clone(engine), Arc::new(transactions));
        let time_limit = *time_limit;
        Database::of(Arc::new(Handle { engine, writes, transactions, time_limit }))
    }

    /// Runs `body` as a transaction that may write: alone, as far as it and everyone else can
    /// tell. `Ok` commits it, an error or a panic rolls it back, and either way its neighbours in
    /// the batch are not touched.
    ///
    /// `body` is handed to the writer thread at once, whether the handle is waited for or not. When
    /// the queue is full, `body` waits for its turn; dropping the handle does not stop it (see
    /// [`Write`]). It may be run more than once before its one result is delivered (see
    /// [`Tx::attempt`]), so it should change nothing but the database. It should not block: the
    /// writer does nothing else meanwhile.
    ///
    /// # Durability
    /// The result is delivered when the transaction is on disk, unless the database was opened with
    /// [`Durability::Buffered`](crate::Durability::Buffered).
    ///
    /// # Errors
    /// See [`Write::wait`].
    pub fn write<T, F>(&self, body: F) -> Write<T, E>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static, // errors of your own: `with_error`
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.submit(Repeatable(body))
    }

    /// As [`Database::write`], for a closure that can run only once. It pays for that: a savepoint,
    /// and a commit that it shares only with the transactions before it.
    ///
    /// # Errors
    /// See [`Write::wait`]; and `Overloaded` when it and the transactions of its commit changed
    /// more than was left of the WAL. Nothing of it is done, and the WAL has restarted:
    /// a new closure that does the same probably fits. (One given to `write` is run again instead.)
    pub fn write_once<T, F>(&self, body: F) -> Write<T, E>
    where
        F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static, // errors of your own: `with_error`
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.submit(Once(Some(body)))
    }

    /// As [`Database::write`], and refuses at once when the queue is full.
    ///
    /// # Errors
    /// `Overloaded` when the queue is full, `Closed`, `Poisoned`; those of the transaction come
    /// from the handle.
    pub fn try_write<T, F>(&self, body: F) -> Result<Write<T, E>>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static, // errors of your own: `with_error`
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let writes = &self.handle.writes;
        writes.check_room()?;
        let caller = Completion::new();
        writes.try_push(self.member(Repeatable(body), &caller))?;
        Ok(Write::in_queue(caller, writes))
    }

    fn submit<B, T>(&self, body: B) -> Write<T, E>
    where
        B: Body<T, E> + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let caller = Completion::new();
        Write::submit(self.member(body, &caller), caller, &self.handle.writes)
    }

    fn member<B, T>(&self, body: B, caller: &Arc<Completion<T, E>>) -> Box<dyn Member>
    where
        B: Body<T, E> + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let Handle { writes, time_limit, .. } = &*self.handle;
        let member = Submission::new(body, writes.terms(), Arc::clone(caller));
        Box::new(match time_limit {
            Some(limit) => member.within(*limit),
            None => member,
        })
    }

    /// Runs `body` as a read transaction on one snapshot, which contains every write acknowledged
    /// before the read began.
    ///
    /// [`Read::wait`] runs it on the calling thread; awaiting it runs it on a reader thread, since
    /// a query is work for a core, not waiting. It may see a commit that is not on disk yet, see
    /// [`Database::read_durable`].
    ///
    /// # Errors
    /// See [`Read::wait`].
    pub fn read<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let limit = self.handle.time_limit;
        Read::new(self.handle.engine.reads(), limit, Answer::AtOnce, body)
    }

    /// As [`Database::read`], and returns only when everything it may have seen is on disk: for
    /// an answer that must not be taken back by a power loss.
    ///
    /// # Errors
    /// See [`Read::wait`].
    pub fn read_durable<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let limit = self.handle.time_limit;
        Read::new(self.handle.engine.reads(), limit, Answer::OnceDurable, body)
    }

    /// As [`Database::read_durable`], and returns only when everything it may have seen is in the
    /// [archive](Options::archive), too: for an answer that must not be taken back by the loss of
    /// the machine. Takes as long as an upload, which begins at once; nothing is uploaded when all
    /// was.
    ///
    /// # Errors
    /// See [`Read::wait`]; `Invalid` when the database has no archive.
    pub fn read_archived<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let limit = self.handle.time_limit;
        Read::new(self.handle.engine.reads(), limit, Answer::OnceArchived(limit), body)
    }

    /// A moment of the archived history that has every write acknowledged before this call, of
    /// whatever kind: taken right behind a write it is that write's token, to be given to whoever
    /// is to see it elsewhere. What it names is archived when
    /// [`Stats::archive`](crate::archive::ArchiveStats) has the same `epoch` and no smaller `txid`.
    /// While more than 128 MiB wait for the archive it may name some that come later, too.
    ///
    /// Where the process ends before that, what it names comes behind the fence of the next
    /// `epoch`. The leader record says where (`monolite_archive::Record::locate`), and
    /// `monolite restore --txid` takes a token and finds it.
    ///
    /// # Errors
    /// `Invalid` when the database has no [archive](Options::archive); `Overloaded` while the
    /// archive has not answered yet since the database was opened, and while a copy of the whole
    /// database is due or under way.
    pub fn archive_token(&self) -> Result<ArchiveToken> {
        self.handle.engine.archive_token()
    }

    /// The rows of a query one by one, as `map` makes them, for a consumer that takes its time: a
    /// [`Stream`](futures_core::Stream), or with [`RowStream::wait`] an iterator.
    ///
    /// The query runs as a read on one snapshot, some rows ahead of the consumer (256, or about
    /// 1 MiB), and rests while that much is not taken. Streams have threads and connections of
    /// their own, as many as the option `readers` says, so stalled ones hold up no other reads.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Database::open(":memory:")?;
    /// let sql = "SELECT value FROM generate_series(1, ?1)";
    /// let mut sum = 0;
    /// for number in db.read_stream(sql, (1_000,), |row| row.get::<_, i64>(0)).wait() {
    ///     sum += number?;
    /// }
    /// assert_eq!(sum, 500_500);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// The last item of the stream: those of [`Read::wait`]; `Timeout`, too, when no row was taken
    /// for the option `stream_stall_limit`, and when all of it together takes longer than
    /// `read_time_limit`; `Invalid` inside of a write closure of the same database.
    ///
    /// # Panics
    /// With the panic of `map`, where the stream is polled.
    pub fn read_stream<T, F>(
        &self,
        sql: impl Into<String>,
        parameters: impl IntoParameters,
        map: F,
    ) -> RowStream<T>
    where
        F: FnMut(&Row<'_>) -> rusqlite::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let Handle { engine, time_limit, .. } = &*self.handle;
        let query = Query {
            sql: sql.into(),
            parameters: parameters.into_parameters(),
            time_limit: *time_limit,
            stall_limit: engine.stream_stall_limit(),
        };
        RowStream::new(engine.streams(), query, map)
    }

    /// Runs `sql`, a query from a source that is not trusted, on a thread and a connection that
    /// only such queries use (option [`untrusted_threads`](Options::untrusted_threads)).
    ///
    /// It sees every write acknowledged before the call. It cannot write, attach, change a setting,
    /// use a virtual table or a function of the application that is not
    /// [for untrusted SQL](crate::Function::for_untrusted), and takes no more than `limits` allow.
    /// A query that SQLite plans for long keeps its thread meanwhile, and no other call of this
    /// database waits for it. `docs/guides/untrusted-sql.md` has the list of what is refused, and
    /// says what to do about authors who mean harm.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # if monolite::rusqlite::version_number() < 3_054_000 { return Ok(()) }
    /// use monolite::{Database, ErrorKind, UntrustedLimits, Value};
    ///
    /// let db = Database::open(":memory:")?;
    /// let limits = UntrustedLimits::new();
    /// let answer = db.query_untrusted("SELECT 6 * ?1 AS x", (7,), &limits).wait()?;
    /// assert_eq!((&*answer.columns[0], &answer.rows[0][0]), ("x", &Value::Integer(42)));
    ///
    /// let attach = db.query_untrusted("ATTACH '/etc/passwd' AS secret", (), &limits);
    /// assert_eq!(attach.wait().unwrap_err().kind(), ErrorKind::Invalid);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`UntrustedQuery::wait`].
    pub fn query_untrusted(
        &self,
        sql: impl Into<String>,
        parameters: impl IntoParameters,
        limits: &UntrustedLimits,
    ) -> UntrustedQuery {
        let room = self.handle.engine.untrusted();
        let parameters = parameters.into_parameters();
        UntrustedQuery::start(room, sql.into(), parameters, limits.clone())
    }

    /// Makes a backup at `target`: an ordinary SQLite file with the content that the database has
    /// at one moment after this call, while reads and writes go on. The work begins at once, on a
    /// thread of its own; the handle is for waiting (or awaiting), how far it is, and ending it.
    ///
    /// The file is written beside `target`, under that name with `.monolite-part` behind, and gets
    /// its name when it is whole and on disk. It needs no WAL: it can be opened, copied and read
    /// from a medium that cannot be written. It has the permissions of the database, and its page
    /// checksums, which are verified on the way where the option `page_checksums` is set.
    ///
    /// Writes and checkpoints go on, and the WAL is kept from restarting only for the moment in
    /// which what it holds is copied. (With [`Sharing::Shared`](crate::Sharing) it is kept all the
    /// time, and the copy begins again when the WAL nears its limit.) The guide is
    /// `docs/guides/backup.md`.
    ///
    /// # Durability
    /// `Ok` means that the backup and its name are on disk, and all that it contains is on disk in
    /// the database.
    ///
    /// # Cancellation
    /// Dropping the handle, or [`Job::cancel`](crate::Job::cancel), ends the backup and removes
    /// what was written of it. So does closing the database. When the process is killed, a file
    /// with the ending `.monolite-part` may be left, which the next backup to `target` removes.
    ///
    /// # Errors
    /// From the handle, and nothing is left at `target`: `Invalid` when there is something by that
    /// name, or a file beside it that SQLite would take for its journal or WAL, for a name that
    /// belongs to another database (`other.db-wal`), and for one of more than 241 bytes;
    /// `Overloaded` when another backup to it is under way; `Storage` when the directory is
    /// missing, the disk is full or fails; `Corrupt` for a page with a wrong checksum; `Timeout`
    /// when a shared database's WAL was too short for it; `Aborted` when it was cancelled,
    /// `Closed`, `Poisoned`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("backup.db");
    /// let db = monolite::Database::open(":memory:")?;
    /// let backup = db.backup(&path);
    /// println!("{:?}", backup.progress());
    /// let made = backup.wait()?;
    /// assert_eq!(std::fs::metadata(&path)?.len(), made.bytes);
    /// # Ok(db.close()?)
    /// # }
    /// ```
    pub fn backup(&self, target: impl AsRef<Path>) -> Job<Backup> {
        let engine = &self.handle.engine;
        let source = engine.backups().clone();
        // The working directory may be another one later.
        let target = std::path::absolute(target.as_ref());
        let target = target.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the backup's path cannot be used: {error}"))
        });
        engine.jobs().start(move |job| source.back_up(&target?, job))
    }

    /// A read that returns only when what it may have seen is as durable as what this handle
    /// writes; it waits for the archive for `wait`, or as long as any.
    fn read_as_written<T, F>(&self, wait: Option<Duration>, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>,
        E: From<Error>,
    {
        let Handle { engine, writes, time_limit, .. } = &*self.handle;
        let is_archived = writes.terms().archive_wait.is_some();
        let answer = if is_archived { Answer::OnceArchived(wait) } else { Answer::OnceDurable };
        Read::new(engine.reads(), *time_limit, answer, body)
    }

    /// Copies what the WAL holds into the database file now, and makes the next commit overwrite
    /// the WAL from its start, as the engine does by itself when the WAL has grown or nobody
    /// writes. Writes wait meanwhile; a read that needs what the file has now keeps some of it in
    /// the WAL.
    ///
    /// # Errors
    /// From the handle: `Overloaded` when another checkpoint is under way for five seconds;
    /// `Storage` when the disk is full or fails, `Poisoned`, `Closed`.
    pub fn checkpoint(&self) -> Job<Checkpointed> {
        let maintenance = self.handle.engine.maintenance().clone();
        self.jobs().start(move |job| maintenance.checkpoint(job))
    }

    /// Checks the database in the background: the pages, rows and indexes of every table, and all
    /// foreign keys, as `PRAGMA integrity_check` and `foreign_key_check` do. Each table is checked
    /// on a snapshot of its own, so the WAL is kept for as long as the largest one takes; its
    /// handle's progress counts tables. Pages that belong to no table are looked at by `PRAGMA
    /// integrity_check` on a backup.
    ///
    /// # Errors
    /// From the handle: `Timeout` when its snapshot was revoked again and again near the WAL's
    /// limit; `Aborted` when it was cancelled; `Storage`, `Closed`. What was found is no error: see
    /// [`Checked::problems`], [`Checked::violations`] and [`Checked::unchecked`].
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Database::open(":memory:")?;
    /// let checked = db.check().wait()?;
    /// assert!(checked.is_sound(), "{checked:?}");
    /// # db.close()
    /// # }
    /// ```
    pub fn check(&self) -> Job<Checked> {
        let maintenance = self.handle.engine.maintenance().clone();
        self.jobs().start(move |job| maintenance.check(job))
    }

    /// Gathers statistics for SQLite's planner where they are missing or old (`PRAGMA optimize`,
    /// for all tables, reading some 2,000 rows of each index): worth while after the data has
    /// changed much, at most some times a day. [`Options::optimize_every`] does it by itself.
    ///
    /// # Errors
    /// See [`Write::wait`].
    pub fn optimize(&self) -> Write<()> {
        maintenance::optimize(&self.handle.writes)
    }

    /// Gives back the free pages of a database. The file gets shorter with the next checkpoints,
    /// and the WAL keeps its limit. The handle's progress counts pages.
    ///
    /// Where the file allows it (`auto_vacuum = INCREMENTAL`) that is done in small steps, each a
    /// transaction of its own, and other writes go on in between. Otherwise all is rewritten in one
    /// transaction, as by SQLite's `VACUUM`: other writes wait for it and reads do not, all that
    /// is not free has to fit in the WAL, and takes as much in temporary files meanwhile. Near the
    /// WAL's limit it ends the reads and streams whose snapshots are in its way (`Timeout`). As
    /// there, a table without an `INTEGER PRIMARY KEY` and without an index may get other rowids.
    ///
    /// # Cancellation
    /// Between two transactions. A file that is being rewritten is rewritten to its end, and
    /// progress is told when that is reached; [`Database::with_time_limit`] bounds it, an hour
    /// otherwise.
    ///
    /// # Errors
    /// From the handle: `Invalid` when the content does not fit in the WAL, with what to do;
    /// `Timeout` when one of its transactions would have taken too long; `Aborted` when it was
    /// cancelled (what was given back stays so); those of a write.
    pub fn vacuum(&self) -> Job<Vacuumed> {
        let writes = Arc::clone(&self.handle.writes);
        let limit = self.handle.time_limit;
        self.jobs().start(move |job| maintenance::vacuum(&writes, limit, job))
    }

    pub(crate) fn writes(&self) -> &Arc<WriteQueue> {
        &self.handle.writes
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        self.handle.engine.jobs()
    }

    /// What the engine counted and measured since the database was opened.
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Closes the database: every write that was accepted is run and answered, later ones are
    /// refused with `Closed`, running reads are waited for, for as long as the option
    /// `read_time_limit` lets them run, and streams, for `stream_stall_limit` where nobody takes
    /// their rows, and the WAL is moved into the database file, which is then an ordinary SQLite
    /// file without companions. Blocks the calling thread until that is done, and so does the drop
    /// of the last handle: an async task gives it to a thread that may block, with tokio
    /// `spawn_blocking(move || db.close())`, with smol `unblock(move || db.close())`.
    ///
    /// Other handles of this database see it closed. Closing again, or at the same time, waits for
    /// the same end and gives the result of that one close. After `Timeout` the close goes on:
    /// closing again waits for it, and gives what came of it.
    ///
    /// # Errors
    /// `Poisoned` when a sync failed earlier, or the files were found deleted, cut or replaced;
    /// `Storage` when the last checkpoint failed, `Overloaded` when an archive has not got what the
    /// WAL holds and may keep no more. What was acknowledged is in the WAL then, from which the
    /// next open recovers it, unless the message says that the WAL itself was deleted or
    /// cut; then the message says what was saved.
    /// `Invalid` inside of a closure of this database, or in a waker that the engine calls, for
    /// whose end it would wait: nothing is closed. (Dropping the last handle there is fine.)
    /// `Invalid`, too, when a closure left a statement, rows or a blob that was never dropped
    /// (`mem::forget`), or SQLite itself lost one (FTS5 tables that are each other's content): all
    /// is closed and in the file, which stays locked until the process ends.
    /// `Timeout` when a closure of this database has overrun its time limit and does not return, or
    /// SQLite does not give back an [untrusted query](Database::query_untrusted): the close is
    /// completed when it does. For such a query alone nothing else waits: all is in the file, which
    /// stays locked until then, or until the process ends.
    pub fn close(&self) -> Result<()> {
        self.handle.engine.close()
    }
}

impl<E> std::fmt::Debug for Database<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}
