//! Owns the configuration of a database: each option's unit, default, range and trade-off.

mod interactive;

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite;
use monolite_sqlite::vfs::{Direct, Storage};
use monolite_sqlite::{ConnectionSetup, Setup};

use crate::activity::Activity;
use crate::archive::Archive;
use crate::call::member::ArchiveWait;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result, within};
use crate::markers::Last;
pub use interactive::InteractiveOptions;

/// What an acknowledgement means.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::{Durability, Options};
/// # let directory = tempfile::tempdir().expect("there is room");
/// # let path = directory.path().join("cache.db");
/// let cache = Options::new().durability(Durability::Buffered).open(&path)?;
/// # cache.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The write is on disk (`fdatasync` of the WAL returned): it survives `kill -9` and power
    /// loss.
    Synced,
    /// The write is committed: it survives `kill -9`; a power loss may lose the last moments.
    Buffered,
    /// The write is on disk, and in the [archive](Options::archive), too: it survives the machine.
    /// Costs the time of one upload, which all share that wait meanwhile, and
    /// [`time_limit`](crate::archive::Archive::time_limit) at most. A transaction that changed
    /// nothing waits for the disk alone: a repeated request that finds its key in a table answers
    /// by [`Database::read_as_written`](crate::Database::read_as_written), or
    /// [`Database::transact_once`](crate::Database::transact_once).
    Archived,
    /// The write is on disk, and on the disks of all followers that are listed as replicas, so many
    /// at least (1 to 255): it survives the machine. Or it is in the archive, if that is sooner.
    /// Needs an [archive](Options::archive) that streams to followers. Costs a round trip and the
    /// sync of a follower, and the same time at most. Where another program opens the file of a
    /// follower that was killed before that runs again, it begins anew, and keeps what it had as an
    /// orphan file.
    Replicated(u8),
}

impl Durability {
    /// For what a write waits, and how long.
    pub(crate) fn archive_wait(self, limit: Duration) -> Option<ArchiveWait> {
        match self {
            Durability::Synced | Durability::Buffered => None,
            Durability::Archived => Some(ArchiveWait { replicas: None, limit }),
            Durability::Replicated(count) => Some(ArchiveWait { replicas: Some(count), limit }),
        }
    }
}

/// Who else may use the file while it is open here.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::{Options, Sharing};
/// # let directory = tempfile::tempdir().expect("there is room");
/// # let path = directory.path().join("shared.db");
/// let db = Options::new().sharing(Sharing::Shared).open(&path)?;
/// // Another SQLite may look, and write, meanwhile.
/// let other = monolite::rusqlite::Connection::open(&path).expect("it may");
/// other.execute_batch("CREATE TABLE t(x)").expect("it may");
/// # drop(other);
/// db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// This process alone. Locks are kept in memory, so a point read costs what the B-tree costs.
    /// Other processes are told that the database is locked.
    Exclusive,
    /// Other processes, such as the `sqlite3` shell (3.51.3 or newer), may use the file, too. Each
    /// read outside of a longer transaction pays several system calls for its locks, and another
    /// process that writes or checkpoints can delay this one. A long read stops the writes of all
    /// processes once the WAL is at its limit, until it ends: bound it by `read_time_limit`.
    Shared,
}

/// Whether answers are compared; off only to show that tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validation {
    On,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "tests alone turn it off"))]
    Off,
}

/// Whether transactions that collide take turns; off only to show what that is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    On,
    Off,
}

/// How a database is opened. Every option has a default that suits a server; what else a server
/// needs is in `docs/guides/deploying.md`.
///
/// ```
/// use std::time::Duration;
/// # fn main() -> monolite::Result<()> {
/// let db = monolite::Options::new()
///     .readers(4)
///     .wal_limit_bytes(256 << 20)
///     .write_time_limit(Duration::from_millis(500))
///     .open(":memory:")?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) durability: Durability,
    pub(crate) sharing: Sharing,
    pub(crate) must_exist: bool,
    pub(crate) readers: usize,
    pub(crate) reader_cache_bytes: u64,
    pub(crate) writer_cache_bytes: u64,
    pub(crate) value_limit_bytes: u64,
    pub(crate) max_batch: usize,
    pub(crate) max_batch_time: Duration,
    pub(crate) queue_capacity: usize,
    pub(crate) write_time_limit: Duration,
    pub(crate) read_time_limit: Duration,
    pub(crate) stream_stall_limit: Duration,
    pub(crate) slow_transaction: Duration,
    pub(crate) wal_limit_bytes: u64,
    pub(crate) temp_limit_bytes: u64,
    pub(crate) interactive: InteractiveOptions,
    pub(crate) optimize_every: Option<Duration>,
    pub(crate) validation: Validation,
    pub(crate) turns: Turns,
    pub(crate) page_checksums: bool,
    pub(crate) untrusted_threads: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) storage: Option<Decorate>,
    pub(crate) on_slow: Option<OnSlow>,
    pub(crate) setup: Option<Additions>,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    /// Of a database that repeats another one's commits.
    pub(crate) replica: Option<Arc<Last>>,
}

/// Adds an application's functions to a connection.
#[derive(Clone)]
pub(crate) struct Additions(pub(crate) Setup);

impl std::fmt::Debug for Additions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Additions(..)")
    }
}

/// What is told of a call that holds up others for longer than `limit`.
#[derive(Clone)]
pub(crate) struct OnSlow {
    pub(crate) limit: Duration,
    pub(crate) report: Arc<dyn Fn(&Activity) + Send + Sync>,
}

impl std::fmt::Debug for OnSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnSlow").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// Puts a storage of one's own around the engine's.
#[derive(Clone)]
pub(crate) struct Decorate(pub(crate) Arc<dyn Fn(Direct) -> Arc<dyn Storage> + Send + Sync>);

impl std::fmt::Debug for Decorate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decorate(..)")
    }
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Options {
            durability: Durability::Synced,
            sharing: Sharing::Exclusive,
            must_exist: false,
            readers: cores.clamp(4, 64),
            reader_cache_bytes: 16 << 20,
            value_limit_bytes: 1_000_000_000,
            writer_cache_bytes: 256 << 20,
            max_batch: 10_000,
            max_batch_time: Duration::from_millis(50),
            queue_capacity: 16_384,
            write_time_limit: Duration::from_secs(5),
            read_time_limit: Duration::from_secs(60),
            stream_stall_limit: Duration::from_secs(30),
            slow_transaction: Duration::from_millis(100),
            wal_limit_bytes: 1 << 30,
            temp_limit_bytes: 16 << 30,
            interactive: InteractiveOptions::default(),
            optimize_every: None,
            validation: Validation::On,
            turns: Turns::On,
            page_checksums: false,
            untrusted_threads: 2,
            clock: Arc::new(SystemClock::default()),
            storage: None,
            on_slow: None,
            setup: None,
            archive: None,
            replica: None,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// What an acknowledgement means. Default: [`Durability::Synced`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Who else may use the file. Default: [`Sharing::Exclusive`].
    #[must_use]
    pub fn sharing(mut self, sharing: Sharing) -> Options {
        self.sharing = sharing;
        self
    }

    /// Opens only a database that is there: a missing or empty file is `Storage`. By default it is
    /// created, so a lost file or a wrong name is an empty database, without an error. `":memory:"`
    /// is always new.
    #[must_use]
    pub fn must_exist(mut self) -> Options {
        self.must_exist = true;
        self
    }

    /// Most reader connections, threads for awaited reads, and threads for awaited statements of
    /// interactive transactions: 1 to 1,024. Default: the number of cores, at least 4 and at most
    /// 64. Each is opened or started when it is needed, and ends when it has not been used for some
    /// seconds. More readers run more long queries at once and cost a page cache each. Streams have
    /// as many connections and threads of their own.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Options {
        self.readers = readers;
        self
    }

    /// Page cache of each reader in bytes: 64 KiB to 64 GiB. Default: 16 MiB. A larger cache saves
    /// reads of pages that no commit changed since. With [`Sharing::Shared`] each commit empties
    /// it.
    #[must_use]
    pub fn reader_cache_bytes(mut self, bytes: u64) -> Options {
        self.reader_cache_bytes = bytes;
        self
    }

    /// Bytes that a value or a row may have: 1 MiB to 1,000,000,000, SQLite's own limit and the
    /// default. A statement that makes, writes or reads a larger one fails with [`Invalid`]
    /// (`SQLITE_TOOBIG`). It bounds the memory that one statement of others can take.
    ///
    /// [`Invalid`]: crate::ErrorKind::Invalid
    #[must_use]
    pub fn value_limit_bytes(mut self, bytes: u64) -> Options {
        self.value_limit_bytes = bytes;
        self
    }

    /// Page cache of the writer in bytes: 64 KiB to 64 GiB. Default: 256 MiB. It should hold the
    /// pages that are written again and again. A batch that changes more writes pages to the WAL
    /// before its commit, some of them more than once.
    #[must_use]
    pub fn writer_cache_bytes(mut self, bytes: u64) -> Options {
        self.writer_cache_bytes = bytes;
        self
    }

    /// Most transactions committed together: 1 to 1,000,000. Default: 10,000. Larger batches write
    /// a hot page once for more transactions; the first of a batch waits for the last.
    #[must_use]
    pub fn max_batch(mut self, transactions: usize) -> Options {
        self.max_batch = transactions;
        self
    }

    /// Longest time a batch collects transactions before it commits: 1 µs to 60 s. Default: 50 ms.
    #[must_use]
    pub fn max_batch_time(mut self, time: Duration) -> Options {
        self.max_batch_time = time;
        self
    }

    /// Most transactions that wait for the writer, for their sync, and for the
    /// [archive](Options::archive), each: 1 to 10,000,000. Default: 16,384. When the queue is full,
    /// [`Database::try_write`](crate::Database::try_write) refuses and
    /// [`Database::write`](crate::Database::write) waits. Beyond that number, writes with
    /// [`Durability::Archived`] end with `Overloaded` before they run, so that a slow store holds
    /// up no others. A longer queue absorbs longer bursts and makes waiting longer.
    #[must_use]
    pub fn queue_capacity(mut self, transactions: usize) -> Options {
        self.queue_capacity = transactions;
        self
    }

    /// Longest time one write transaction may take in the writer: 1 ms to 1 h. Default: 5 s. After
    /// that time its statement is interrupted and it is rolled back alone. All other writes wait
    /// for it, so this is the worst wait that one transaction can cause. If its closure does not
    /// return (it sleeps, or waits in a circle), the others are refused with `Overloaded` after a
    /// quarter of this time more, at least 250 ms.
    #[must_use]
    pub fn write_time_limit(mut self, time: Duration) -> Options {
        self.write_time_limit = time;
        self
    }

    /// Longest time a read, or a statement of an interactive transaction, may take: 1 ms to 24 h.
    /// Default: 60 s. A long read keeps the WAL from restarting; when the WAL nears its limit the
    /// read is ended earlier. The time of its closure counts, checked every eighth of the limit (5
    /// to 500 ms). A closure that runs longer holds up no other work.
    #[must_use]
    pub fn read_time_limit(mut self, time: Duration) -> Options {
        self.read_time_limit = time;
        self
    }

    /// Longest time that a stream ([`Database::read_stream`](crate::Database::read_stream)) waits
    /// for a consumer that takes no rows: 1 ms to 1 h. Default: 30 s. Then it ends with `Timeout`
    /// and frees its connection. A full socket buffer takes no rows until a third of it is free:
    /// 1.3 of Linux's 4 MiB, for which a client at 100 kB/s needs 14 s. As many stalled consumers
    /// as there are readers hold up all other streams for this time.
    #[must_use]
    pub fn stream_stall_limit(mut self, time: Duration) -> Options {
        self.stream_stall_limit = time;
        self
    }

    /// A write, a read or a statement of an interactive transaction that takes longer is remembered
    /// with its slowest statement in [`Stats::slow_transactions`](crate::Stats::slow_transactions):
    /// 1 µs to 1 h. Default: 100 ms.
    #[must_use]
    pub fn slow_transaction(mut self, time: Duration) -> Options {
        self.slow_transaction = time;
        self
    }

    /// Calls `report` while a call has the writer, or keeps the WAL from restarting, for longer
    /// than `limit`: 1 ms to 1 h. Default: none. It is called once for each run of such a call, an
    /// eighth of `limit` late at most (5 ms if that is more). A panic in it is caught. It runs on
    /// the thread that looks after the time limits, so it must not block: log the [`Activity`], or
    /// send it elsewhere. [`Database::close`](crate::Database::close) waits for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> monolite::Result<()> {
    /// let db = monolite::Options::new()
    ///     .on_slow(Duration::from_secs(1), |call| eprintln!("{:?} so far: {call}", call.time))
    ///     .open(":memory:")?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn on_slow<F>(mut self, limit: Duration, report: F) -> Options
    where
        F: Fn(&Activity) + Send + Sync + 'static,
    {
        self.on_slow = Some(OnSlow { limit, report: Arc::new(report) });
        self
    }

    /// Largest size of the WAL file in bytes: 8 MiB to 1 TiB. Default: 1 GiB. A larger WAL writes
    /// a hot page to the database less often and allows longer reads under load; it takes disk
    /// space, and time to recover after a crash. It is a limit: long reads are ended and then
    /// writes wait before it is exceeded.
    #[must_use]
    pub fn wal_limit_bytes(mut self, bytes: u64) -> Options {
        self.wal_limit_bytes = bytes;
        self
    }

    /// Most bytes of all temporary files together: 1 MiB to 16 TiB. Default: 16 GiB. They hold
    /// sorts, index builds and intermediate tables that do not fit in memory, and the copy of a
    /// `vacuum`; they are unnamed files in the database's directory. A sort takes once or twice the
    /// size of its input. A statement that finds no room left is `Invalid`.
    #[must_use]
    pub fn temp_limit_bytes(mut self, bytes: u64) -> Options {
        self.temp_limit_bytes = bytes;
        self
    }

    /// Options of [interactive transactions](crate::Database::transaction), which replace those of
    /// an earlier call. Default: [`InteractiveOptions::default`].
    #[must_use]
    pub fn interactive(mut self, options: InteractiveOptions) -> Options {
        self.interactive = options;
        self
    }

    /// Commits interactive transactions without comparing answers: shows that a test of isolation
    /// notices.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_validation(mut self) -> Options {
        self.validation = Validation::Off;
        self
    }

    /// Lets colliding transactions collide again and again: for measuring what turns are worth.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_turns(mut self) -> Options {
        self.turns = Turns::Off;
        self
    }

    /// How many [untrusted queries](crate::Database::query_untrusted) run at a time, each on its
    /// own thread and connection, started by the first query: 1 to 256. Default: 2. More are
    /// refused with `Overloaded`.
    #[must_use]
    pub fn untrusted_threads(mut self, count: usize) -> Options {
        self.untrusted_threads = count;
        self
    }

    /// Whether every page of the database has a checksum, verified at each read: a flipped bit on
    /// the disk is then an error of kind `Corrupt` that names the page, never an answer. Default:
    /// `false`. It costs half a microsecond for each page read into a cache or copied into the
    /// database file, a whole one for a page from the WAL, and eight bytes of the page.
    ///
    /// A new database gets checksums; [`Options::add_page_checksums`] adds them to an old one. The
    /// format is that of SQLite's checksum VFS. Other programs can read such a file. Pages that a
    /// program writes without keeping the checksums are reported as damaged.
    #[must_use]
    pub fn page_checksums(mut self, are_verified: bool) -> Options {
        self.page_checksums = are_verified;
        self
    }

    /// Adds functions, collations and virtual table modules of the application: `add` runs on every
    /// connection when it is opened, on the writer, the readers and those of interactive
    /// transactions. Default: none. A second call adds to the first.
    ///
    /// What a function may do, and what it may not, is in the guide `docs/guides/functions.md`.
    ///
    /// ```
    /// use monolite::{Function, Options};
    ///
    /// # fn main() -> monolite::Result<()> {
    /// let db = Options::new()
    ///     .connection_setup(|connection| {
    ///         connection.scalar("double", 1, Function::DETERMINISTIC, |call| {
    ///             Ok(2 * call.get::<i64>(0)?)
    ///         })?;
    ///         connection.collation("by_length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)))
    ///     })
    ///     .open(":memory:")?;
    /// let sql = "SELECT double(21)";
    /// let number: i64 = db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()?;
    /// assert_eq!(number, 42);
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Errors
    /// An error of `add` is an error of `open` (`Invalid`), or of the call for which a further
    /// connection was opened.
    #[must_use]
    pub fn connection_setup<F>(mut self, add: F) -> Options
    where
        F: Fn(&ConnectionSetup<'_>) -> rusqlite::Result<()> + Send + Sync + 'static,
    {
        let before = self.setup.take();
        self.setup = Some(Additions(Arc::new(move |connection| {
            before.iter().try_for_each(|before| (before.0)(connection))?;
            add(connection)
        })));
        self
    }

    /// Copies every commit to an archive, from which any moment can be restored elsewhere:
    /// `docs/guides/archive-setup.md`. Default: none. The crate `monolite-archive` provides one,
    /// for object stores and directories.
    ///
    /// Needs [`Sharing::Exclusive`] and [`Durability::Synced`] or [`Durability::Archived`].
    /// [`Stats::archive`](crate::Stats::archive) reports its progress.
    #[must_use]
    pub fn archive(mut self, archive: impl Archive + 'static) -> Options {
        self.archive = Some(Arc::new(archive));
        self
    }

    /// Replaces the clock, for tests (`docs/guides/testing.md`) and simulation.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Options {
        self.clock = clock;
        self
    }

    /// Wraps the engine's storage, through which every file call and every sync passes: for fault
    /// injection and simulation, see [`vfs`](crate::vfs).
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn storage<F>(mut self, decorate: F) -> Options
    where
        F: Fn(Direct) -> Arc<dyn Storage> + Send + Sync + 'static,
    {
        self.storage = Some(Decorate(Arc::new(decorate)));
        self
    }

    /// Runs [`Database::optimize`](crate::Database::optimize) repeatedly, with this time in
    /// between. Default: never.
    #[must_use]
    pub fn optimize_every(mut self, interval: Duration) -> Options {
        self.optimize_every = Some(interval);
        self
    }

    /// How long an answer waits for the archive at most, where there is one.
    pub(crate) fn archive_time_limit(&self) -> Duration {
        self.archive.as_ref().map_or(Duration::ZERO, |archive| archive.time_limit())
    }

    /// # Errors
    /// `Invalid` for an option out of its range.
    pub(crate) fn check(&self) -> Result<()> {
        const MS: Duration = Duration::from_millis(1);
        const US: Duration = Duration::from_micros(1);
        const HOUR: Duration = Duration::from_secs(3_600);
        within("readers", self.readers, 1, 1_024)?;
        within("reader_cache_bytes", self.reader_cache_bytes, 64 << 10, 64 << 30)?;
        within("writer_cache_bytes", self.writer_cache_bytes, 64 << 10, 64 << 30)?;
        within("value_limit_bytes", self.value_limit_bytes, 1 << 20, 1_000_000_000)?;
        within("max_batch", self.max_batch, 1, 1_000_000)?;
        within("max_batch_time", self.max_batch_time, US, Duration::from_secs(60))?;
        within("queue_capacity", self.queue_capacity, 1, 10_000_000)?;
        within("write_time_limit", self.write_time_limit, MS, HOUR)?;
        within("stream_stall_limit", self.stream_stall_limit, MS, HOUR)?;
        within("read_time_limit", self.read_time_limit, MS, 24 * HOUR)?;
        within("slow_transaction", self.slow_transaction, US, HOUR)?;
        if let Some(on_slow) = &self.on_slow {
            within("on_slow", on_slow.limit, MS, HOUR)?;
        }
        within("wal_limit_bytes", self.wal_limit_bytes, 8 << 20, 1 << 40)?;
        within("temp_limit_bytes", self.temp_limit_bytes, 1 << 20, 16 << 40)?;
        if let Some(interval) = self.optimize_every {
            within("optimize_every", interval, 1_000 * MS, 87_600 * HOUR)?;
        }
        within("untrusted_threads", self.untrusted_threads, 1, 256)?;
        self.interactive.check()?;
        if let Some(archive) = &self.archive {
            within("Archive::time_limit", archive.time_limit(), MS, 24 * HOUR)?;
        }
        self.check_archive()
    }

    fn check_archive(&self) -> Result<()> {
        let refused = |message| Err(Error::new(ErrorKind::Invalid, message));
        match (&self.archive, self.durability) {
            (None, Durability::Archived | Durability::Replicated(_)) => refused(
                "the durability Archived, or Replicated, needs an archive; name one with \
                 Options::archive",
            ),
            (Some(archive), Durability::Replicated(count)) if count == 0 || !archive.streams() => {
                refused(
                    "the durability Replicated(k) needs a k of 1 or more, and an archive that \
                     streams: Archive::stream_to",
                )
            }
            (Some(_), Durability::Buffered) => refused(
                "an archive gets what is on the disk; use the durability Synced or Archived",
            ),
            (Some(_), _) if self.sharing == Sharing::Shared => refused(
                "an archive needs Sharing::Exclusive: what another process writes may never be \
                 seen",
            ),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_steady_client_at_100_kb_a_second_keeps_its_stream_by_default() {
    // How large the buffer of a socket gets by default, of which a third is given back at once.
    const TCP_WMEM: u64 = 4 << 20;
    let pause = Duration::from_secs(TCP_WMEM / 3 / 100_000);
    assert!(Options::new().stream_stall_limit > 2 * pause);
}
