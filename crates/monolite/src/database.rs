//! Owns the handle that users hold: writes, reads, figures and the end.

mod opening;
mod transact;

use std::marker::PhantomData;
use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite;
use rusqlite::Row;

use crate::activity::{Activity, CallKind, Caller, TransactionActivity, events};
use crate::archive::ArchiveToken;
use crate::backup::Backup;
use crate::call::completion::Completion;
use crate::call::member::{ArchiveWait, Body, Member, Once, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::{READ_ONLY, WriteQueue};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open as files;
use crate::jobs::{Job, Jobs};
use crate::maintenance::{self, Checked, Checkpointed, Maintenance, Vacuumed};
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

    /// The same handle for closures that return errors of the caller's type `F`, which is made from
    /// an [`Error`] with `From`. A call returns its closure's own error.
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

    /// Another handle on the same database that limits each call to `limit`: a write in the writer,
    /// a read, a statement of an interactive transaction, a transaction of [`Database::vacuum`],
    /// and, counted separately, the wait for the archive. It replaces `write_time_limit`,
    /// `read_time_limit` and `Archive::time_limit` where it is shorter. SQL ends within a fraction
    /// of a millisecond of it, other code when it returns. Time in the queue does not count, nor
    /// does the commit of an interactive transaction in the writer.
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
        let most = engine.archive_limit(Some(limit));
        let waits = writes.terms().archive_wait.map(|wait| ArchiveWait { limit: most, ..wait });
        let writes = Arc::new(writes.awaiting_archive(waits));
        let transactions = transactions.within(limit);
        let transactions = Transactions { writes: Arc::clone(&writes), ..transactions };
        let (engine, transactions) = (Arc::clone(engine), Arc::new(transactions));
        Database::of(Arc::new(Handle { engine, writes, transactions, time_limit: Some(limit) }))
    }

    /// Another handle on the same database, whose work counts for `principal`: a party that the
    /// application treats fairly, such as a customer, by a number of its choice. Make one for each
    /// request, or keep it; handles with the same number are one principal.
    ///
    /// While several principals wait for the writer, each gets the same share of its time, whatever
    /// the number and length of their transactions; unused time goes to the others. So a
    /// transaction waits for the running one of another principal, which
    /// [`Options::write_time_limit`] bounds, and not for all that are in front of it. A principal
    /// may fill as many places in the queue as it leaves to the others: beyond, [`Database::write`]
    /// waits and [`Database::try_write`] returns `Overloaded`. Writes without a principal have one
    /// share together, and may fill the queue.
    ///
    /// Shares concern writes, and the commits of interactive transactions. Reads have their own
    /// threads. Principals with short transactions cost no throughput. A new principal gets one
    /// transaction in a batch until its share is known, so do not use a number for each request.
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
        self.with_writes(self.handle.writes.of(principal))
    }

    /// Another handle on the same database, which changes nothing: its writes fail with `Invalid`,
    /// and so does a statement of its interactive transactions that would change something, which
    /// can then go on. Its backups, its checkpoints and its [`close`](Database::close) work.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Database::open(":memory:")?;
    /// let create = "CREATE TABLE t(x)";
    /// let looks = db.read_only();
    /// assert!(looks.write(move |tx| tx.execute(create, ())).wait().is_err());
    /// let tx = looks.transaction()?;
    /// assert!(tx.execute(create, ()).wait().is_err());
    /// let tables = "SELECT count(*) FROM sqlite_schema";
    /// assert_eq!(tx.query_row(tables, (), |row| row.get::<_, i64>(0)).wait()?, 0);
    /// tx.commit().wait()?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn read_only(&self) -> Database<E> {
        self.with_writes(self.handle.writes.read_only(READ_ONLY))
    }

    /// Another handle on the same database, whose writes and interactive transactions run with
    /// foreign keys off, as behind `PRAGMA foreign_keys = OFF`: none acts (`ON DELETE CASCADE`),
    /// and none is checked, also not at the end; `PRAGMA foreign_key_check` lists what is violated.
    /// So a table that others reference can be rebuilt. All other handles keep their foreign keys.
    ///
    /// Each write and each commit has a commit of SQLite to itself, and the writer prepares its
    /// statements again behind it. [`Migrations`](crate::Migrations) check all keys at the end.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// let tables = "CREATE TABLE user(id INTEGER PRIMARY KEY, name);
    ///     CREATE TABLE post(user REFERENCES user ON DELETE CASCADE);
    ///     INSERT INTO user VALUES (1, 'ann'); INSERT INTO post VALUES (1);";
    /// db.write(move |tx| tx.execute_batch(tables)).wait()?;
    /// let rebuild = "CREATE TABLE new(id INTEGER PRIMARY KEY, name NOT NULL);
    ///     INSERT INTO new SELECT * FROM user; DROP TABLE user; ALTER TABLE new RENAME TO user;";
    /// db.without_foreign_keys().write(move |tx| tx.execute_batch(rebuild)).wait()?;
    /// let posts = "SELECT count(*) FROM post";
    /// assert_eq!(db.read(|tx| tx.query_row(posts, (), |row| row.get::<_, i64>(0))).wait()?, 1);
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn without_foreign_keys(&self) -> Database<E> {
        self.with_writes(self.handle.writes.without_foreign_keys())
    }

    /// Another handle on the same database, whose writes and commits are acknowledged at
    /// `durability`: [`Archived`](Durability::Archived) for writes that must survive the machine,
    /// in a database whose other writes need not wait for an upload; or the other way round.
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
    /// Its writes and interactive transactions are `Invalid` if the database's own option is too
    /// weak: `Archived` needs an [archive](Options::archive); `Synced` needs the option
    /// [`Synced`](Durability::Synced) or `Archived`; `Buffered` needs `Buffered`.
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Database<E> {
        let Handle { engine, writes, time_limit, .. } = &*self.handle;
        let waits = engine.archive_wait(durability, *time_limit);
        let refusal = engine.check_durability(durability).err();
        self.with_writes(writes.awaiting_archive(waits).refusing(refusal))
    }

    /// Another handle on the same database, whose calls have this name. [`Database::running`],
    /// [`Stats::slow_transactions`], [`Options::on_slow`] and errors show it, and the line of the
    /// program that made the call. Without a name they show that line alone.
    ///
    /// The name is a literal, because it goes with each call and must cost it nothing.
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// let checkout = db.named("checkout");
    /// checkout.write(|tx| tx.execute("CREATE TABLE orders(id)", ())).wait()?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn named(&self, name: &'static str) -> Database<E> {
        self.with_writes(self.handle.writes.named(name))
    }

    /// Another handle on the same database, whose writes and commits go through `writes`.
    fn with_writes(&self, writes: WriteQueue) -> Database<E> {
        let Handle { engine, transactions, time_limit, .. } = &*self.handle;
        let (engine, writes, time_limit) = (Arc::clone(engine), Arc::new(writes), *time_limit);
        let transactions =
            Transactions { writes: Arc::clone(&writes), ..Transactions::clone(transactions) };
        let transactions = Arc::new(transactions);
        Database::of(Arc::new(Handle { engine, writes, transactions, time_limit }))
    }

    /// Runs `body` as a transaction that may write, isolated from all others. `Ok` commits it, an
    /// error or a panic rolls it back; its neighbours in the batch are unaffected.
    ///
    /// `body` goes to the writer thread at once, whether the handle is waited for or not. When the
    /// queue is full, `body` waits for its turn; dropping the handle does not stop it (see
    /// [`Write`]). It may run more than once before its one result is delivered (see
    /// [`Tx::attempt`]), so it should change nothing but the database. It should not block: the
    /// writer does nothing else meanwhile.
    ///
    /// # Durability
    /// The result is delivered when the transaction is on disk, unless the database was opened with
    /// [`Durability::Buffered`](crate::Durability::Buffered).
    ///
    /// # Errors
    /// See [`Write::wait`].
    #[track_caller]
    pub fn write<T, F>(&self, body: F) -> Write<T, E>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static, // errors of your own: `with_error`
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.submit(Repeatable(body))
    }

    /// As [`Database::write`], for a closure that can run only once. It costs a savepoint, and a
    /// commit that it shares only with the transactions before it.
    ///
    /// # Errors
    /// See [`Write::wait`]; and `Overloaded` when it and the transactions of its commit changed
    /// more than the WAL had left. Nothing of it is done, and the WAL has restarted: a new closure
    /// that does the same probably fits. (One given to `write` is run again instead.)
    #[track_caller]
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
    #[track_caller]
    pub fn try_write<T, F>(&self, body: F) -> Result<Write<T, E>>
    where
        F: FnMut(&Tx<'_>) -> Result<T, E> + Send + 'static, // errors of your own: `with_error`
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let writes = &self.handle.writes;
        let made_by = self.caller(CallKind::Write);
        let refused = |error| events::refused(made_by, error);
        writes.check_room().map_err(refused)?;
        let caller = Completion::new();
        writes.try_push(self.member(Repeatable(body), &caller)).map_err(refused)?;
        Ok(Write::in_queue(caller, writes))
    }

    /// This handle as one that the application uses for `kind` of work, at the line that called.
    #[track_caller]
    fn caller(&self, kind: CallKind) -> Caller {
        self.handle.writes.terms().caller.at(kind, Location::caller())
    }

    #[track_caller]
    fn submit<B, T>(&self, body: B) -> Write<T, E>
    where
        B: Body<T, E> + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let caller = Completion::new();
        Write::submit(self.member(body, &caller), caller, &self.handle.writes)
    }

    #[track_caller]
    fn member<B, T>(&self, body: B, caller: &Arc<Completion<T, E>>) -> Box<dyn Member>
    where
        B: Body<T, E> + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let Handle { writes, time_limit, .. } = &*self.handle;
        let terms = writes.terms().of(self.caller(CallKind::Write));
        let member = Submission::new(body, terms, Arc::clone(caller));
        Box::new(match time_limit {
            Some(limit) => member.within(*limit),
            None => member,
        })
    }

    /// Runs `body` as a read transaction on one snapshot, which contains every write acknowledged
    /// before the read began.
    ///
    /// [`Read::wait`] runs it on the calling thread; awaiting it runs it on a reader thread, since
    /// a query occupies a core. It may see a commit that is not on disk yet, see
    /// [`Database::read_durable`].
    ///
    /// # Errors
    /// See [`Read::wait`].
    #[track_caller]
    pub fn read<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let (caller, limit) = (self.caller(CallKind::Read), self.handle.time_limit);
        Read::new(self.handle.engine.reads(), caller, limit, Answer::AtOnce, body)
    }

    /// As [`Database::read`], but returns only when everything it may have seen is on disk: for an
    /// answer that a power loss must not revoke. With [`Durability::Buffered`](crate::Durability)
    /// and in memory nothing is synced, and it is a [`Database::read`].
    ///
    /// # Errors
    /// See [`Read::wait`].
    #[track_caller]
    pub fn read_durable<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let (caller, limit) = (self.caller(CallKind::Read), self.handle.time_limit);
        Read::new(self.handle.engine.reads(), caller, limit, Answer::OnceDurable, body)
    }

    /// As [`Database::read_durable`], but returns only when everything it may have seen is in the
    /// [archive](Options::archive), too: for an answer that the loss of the machine must not
    /// revoke. Takes as long as an upload, which begins at once; uploads nothing if all of it is
    /// there.
    ///
    /// # Errors
    /// See [`Read::wait`]; `Invalid` when the database has no archive.
    #[track_caller]
    pub fn read_archived<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let (caller, limit) = (self.caller(CallKind::Read), self.handle.time_limit);
        Read::new(
            self.handle.engine.reads(),
            caller,
            limit,
            Answer::OnceArchived { replicas: None, limit },
            body,
        )
    }

    /// Returns a moment of the archived history that has every write acknowledged before this call.
    /// Call it right after a write to get that write's token; pass it to readers that must see the
    /// write. The moment is archived when [`Stats::archive`](crate::archive::ArchiveStats) has the
    /// same `epoch` and no smaller `txid`. While more than 128 MiB wait for the archive it may
    /// include later writes, too.
    ///
    /// If the process ends before that, the moment lies behind the fence of the next `epoch`. The
    /// leader record says where (`monolite_archive::Record::locate`), and `monolite restore --txid`
    /// takes a token and finds it.
    ///
    /// # Errors
    /// `Invalid` when the database has no [archive](Options::archive); `Overloaded` until the
    /// archive has first answered, and while a copy of the whole database is due or under way.
    pub fn archive_token(&self) -> Result<ArchiveToken> {
        self.handle.engine.archive_token()
    }

    /// Why this primary may lack what another one's `token` names, if it is known to.
    #[doc(hidden)]
    pub fn may_lack(&self, token: ArchiveToken) -> Option<String> {
        self.handle.engine.may_lack(token)
    }

    /// Returns the rows of a query one by one, as `map` makes them: a
    /// [`Stream`](futures_core::Stream), or with [`RowStream::wait`] an iterator.
    ///
    /// The query runs as a read on one snapshot, up to 256 rows or about 1 MiB ahead of the
    /// consumer. Streams have their own threads and connections, as many as the option `readers`
    /// says, so stalled ones hold up no other reads.
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
    /// The last item of the stream: those of [`Read::wait`]; `Timeout` also when no row was taken
    /// for `stream_stall_limit`, or the whole stream took longer than `read_time_limit`; `Invalid`
    /// inside a write closure of the same database.
    ///
    /// # Panics
    /// With the panic of `map`, where the stream is polled.
    #[track_caller]
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
            caller: self.caller(CallKind::Stream),
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
    /// use a virtual table or a function of the application that is not [for untrusted
    /// SQL](crate::Function::for_untrusted), and takes no more than `limits` allow. A query that
    /// SQLite plans for long occupies only its own thread. `docs/guides/untrusted-sql.md` lists
    /// what is refused, and what to do about malicious authors.
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
    #[track_caller]
    pub fn query_untrusted(
        &self,
        sql: impl Into<String>,
        parameters: impl IntoParameters,
        limits: &UntrustedLimits,
    ) -> UntrustedQuery {
        let room = self.handle.engine.untrusted();
        let parameters = parameters.into_parameters();
        let caller = self.caller(CallKind::Untrusted);
        UntrustedQuery::start(room, caller, sql.into(), parameters, limits.clone())
    }

    /// Makes a backup at `target`: an ordinary SQLite file with the content of one moment after
    /// this call, while reads and writes go on. The work begins at once, on its own thread; the
    /// handle waits for it (or is awaited), reports progress and cancels.
    ///
    /// The file is written beside `target` with the ending `.monolite-part`, and renamed when it is
    /// whole and on disk. It needs no WAL: it can be opened, copied and read from a read-only
    /// medium. It has the permissions of the database and its page checksums, which are verified on
    /// the way with the option `page_checksums`.
    ///
    /// Writes and checkpoints go on; the WAL cannot restart only while its content is copied. (With
    /// [`Sharing::Shared`](crate::Sharing) it cannot all the time, and the copy begins again when
    /// the WAL nears its limit.) The guide is `docs/guides/backup.md`.
    ///
    /// # Durability
    /// `Ok` means that the backup and its name are on disk, and so is all of its content in the
    /// database.
    ///
    /// # Cancellation
    /// Dropping the handle, or [`Job::cancel`](crate::Job::cancel), ends the backup and removes
    /// what was written of it. So does closing the database. When the process is killed, a file
    /// with the ending `.monolite-part` may be left, which the next backup to `target` removes.
    ///
    /// # Errors
    /// From the handle; nothing is left at `target`. `Invalid` when that name exists, when a file
    /// beside it would be its journal or WAL to SQLite, for a name that belongs to another database
    /// (`other.db-wal`), and for one of more than 241 bytes; `Overloaded` when another backup to it
    /// is under way; `Storage` when the directory is missing, the disk is full or fails; `Corrupt`
    /// for a page with a wrong checksum; `Timeout` when a shared database's WAL was too short for
    /// it; `Aborted` when it was cancelled, `Closed`, `Poisoned`.
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
    #[track_caller]
    pub fn backup(&self, target: impl AsRef<Path>) -> Job<Backup> {
        let caller = self.caller(CallKind::Copy);
        let engine = &self.handle.engine;
        let source = engine.backups().clone();
        // The working directory may be another one later.
        let target = std::path::absolute(target.as_ref());
        let target = target.map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("the backup's path cannot be used: {error}"))
        });
        engine.jobs().start(caller, move |job| source.back_up(&target?, job))
    }

    /// Copies the WAL into the database file now, and makes the next commit overwrite the WAL from
    /// its start. The engine does this by itself when the WAL has grown or no writes come. Writes
    /// wait meanwhile; a read on an older snapshot keeps some of the content in the WAL.
    ///
    /// # Errors
    /// From the handle: `Overloaded` when another checkpoint is under way for five seconds;
    /// `Storage` when the disk is full or fails, `Poisoned`, `Closed`.
    pub fn checkpoint(&self) -> Job<Checkpointed> {
        let maintenance = self.maintenance();
        self.jobs().start(Caller::default(), move |job| maintenance.checkpoint(job))
    }

    /// Checks the database in the background: the pages, rows and indexes of every table, and all
    /// foreign keys, as `PRAGMA integrity_check` and `foreign_key_check` do. Each table is checked
    /// on its own snapshot, so the largest one decides how long the WAL is kept; progress counts
    /// tables. Pages that belong to no table, or to two, are not found: run `PRAGMA
    /// integrity_check` on a backup for those.
    ///
    /// # Errors
    /// From the handle: `Timeout` when its snapshot was revoked again and again near the WAL's
    /// limit; `Aborted` when it was cancelled; `Storage`, `Closed`. A found defect is no error: see
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
    #[track_caller]
    pub fn check(&self) -> Job<Checked> {
        let caller = self.caller(CallKind::Copy);
        let maintenance = self.maintenance();
        self.jobs().start(caller, move |job| maintenance.check(job))
    }

    /// Gathers statistics for SQLite's planner where they are missing or old (`PRAGMA optimize`,
    /// for all tables, reading some 2,000 rows of each index). Worth while after the data has
    /// changed much, at most a few times a day. [`Options::optimize_every`] does it automatically.
    ///
    /// # Errors
    /// See [`Write::wait`].
    pub fn optimize(&self) -> Write<()> {
        maintenance::optimize(&self.handle.writes)
    }

    /// Returns the free pages of a database to the file system. The file gets shorter with the next
    /// checkpoints, and the WAL keeps its limit. Progress counts pages.
    ///
    /// With `auto_vacuum = INCREMENTAL` it works in small transactions, with other writes in
    /// between. Otherwise it rewrites the whole file in one transaction, like SQLite's `VACUUM`:
    /// other writes wait, reads do not. Then all used pages must fit in the WAL, and in temporary
    /// files meanwhile; near the WAL's limit, reads and streams with older snapshots end with
    /// `Timeout`. A table without an `INTEGER PRIMARY KEY` and without an index may get other
    /// rowids.
    ///
    /// # Cancellation
    /// Between two transactions. The rewrite of a whole file runs to its end, and its progress
    /// appears then; [`Database::with_time_limit`] bounds it, otherwise an hour.
    ///
    /// # Errors
    /// From the handle: `Invalid` when the content does not fit in the WAL, with a remedy;
    /// `Timeout` when one of its transactions would have taken too long; `Aborted` when it was
    /// cancelled (returned pages stay so); those of a write.
    pub fn vacuum(&self) -> Job<Vacuumed> {
        let writes = Arc::clone(&self.handle.writes);
        let limit = self.handle.time_limit;
        self.jobs().start(Caller::default(), move |job| maintenance::vacuum(&writes, limit, job))
    }

    pub(crate) fn writes(&self) -> &Arc<WriteQueue> {
        &self.handle.writes
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.handle.engine
    }

    pub(crate) fn maintenance(&self) -> Maintenance {
        self.handle.engine.maintenance().clone()
    }
    pub(crate) fn jobs(&self) -> &Jobs {
        self.handle.engine.jobs()
    }

    /// Returns what runs now: the call that has the writer, and each read, stream, statement of an
    /// interactive transaction, untrusted query, backup and check. The longest is the first.
    ///
    /// No call waits for this one. Without an entry that has the writer, the writer is idle, or
    /// commits, syncs, copies the WAL, or rewrites the file for [`vacuum`](Database::vacuum).
    pub fn running(&self) -> Vec<Activity> {
        let mut running = self.handle.engine.lookout().running();
        running.sort_by_key(|call| std::cmp::Reverse(call.time));
        running
    }

    /// Returns the interactive transactions that are open. The oldest is the first.
    pub fn open_transactions(&self) -> Vec<TransactionActivity> {
        let mut open = self.handle.transactions.all.look(|it| it.activity());
        open.sort_by_key(|transaction| std::cmp::Reverse(transaction.time));
        open
    }

    /// Returns the counters and measurements since the database was opened.
    pub fn stats(&self) -> Stats {
        self.handle.engine.stats()
    }

    /// Closes the database. Accepted writes are run and answered; later ones are refused with
    /// `Closed`. The close waits for running reads up to `read_time_limit`, and for streams whose
    /// rows are not taken up to `stream_stall_limit`. Then it moves the WAL into the database file,
    /// which is an ordinary SQLite file without companions afterwards. Blocks the calling thread
    /// until that is done, and so does the drop of the last handle: an async task gives it to a
    /// thread that may block, with tokio `spawn_blocking(move || db.close())`, with smol
    /// `unblock(move || db.close())`.
    ///
    /// Other handles of this database see it closed. Closing again, or at the same time, waits for
    /// the same end and returns that one result. After `Timeout` the close goes on, and closing
    /// again waits for it.
    ///
    /// # Errors
    /// - `Poisoned`: a sync failed earlier, or the files were deleted, cut or replaced. `Storage`:
    ///   the last checkpoint failed. `Overloaded`: an archive lacks content of the WAL and may keep
    ///   no more. The WAL then has all acknowledged writes, and the next open recovers them; if the
    ///   WAL itself was deleted or cut, the message says so, and what was saved.
    /// - `Invalid` in a closure of this database, or in a waker that the engine calls: the close
    ///   would wait for it, so nothing is closed. (Dropping the last handle there is fine.)
    /// - `Invalid`, too, after a closure leaked a statement, rows or a blob (`mem::forget`), or
    ///   SQLite itself lost one (FTS5 tables that are each other's content): all is closed and in
    ///   the file, which stays locked until the process ends.
    /// - `Timeout`: a closure of this database has overrun its time limit, or SQLite does not
    ///   return from an [untrusted query](Database::query_untrusted). The close completes when it
    ///   does. If only such a query is left, all is in the file, which stays locked until the query
    ///   or the process ends.
    pub fn close(&self) -> Result<()> {
        self.handle.engine.close()
    }
}

impl<E> std::fmt::Debug for Database<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}
