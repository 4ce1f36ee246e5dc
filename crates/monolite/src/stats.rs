//! Owns what the engine counts and measures about itself.
//!
//! # Threads and locks
//! Counters are atomics; histograms are behind one mutex each group, taken once per batch, sync or
//! checkpoint, never per transaction or read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::archive::ArchiveStats;

/// Slow transactions remembered; enough to see a pattern, too few to matter in memory.
const SLOW_KEPT: usize = 32;

/// Largest value a histogram tells apart: an hour in nanoseconds.
const LARGEST: u64 = 3_600_000_000_000;

/// Makes of each line `name: shown type = recorded type` a field of [`Stats`], the field of
/// [`Recorder`] behind it, and the step from one to the other.
macro_rules! statistics {
    ($($(#[$doc:meta])* $name:ident: $shown:ty = $recorded:ty,)*) => {
        /// A snapshot of the engine's counters and measurements, from [`Database::stats`].
        ///
        /// Counters run from the opening of the database. What to alert on is in
        /// `docs/guides/deploying.md`.
        ///
        /// ```
        /// # fn main() -> monolite::Result<()> {
        /// # let db = monolite::Database::open(":memory:")?;
        /// let before = db.stats();
        /// db.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
        /// let now = db.stats();
        /// assert_eq!(now.transactions - before.transactions, 1);
        /// assert_eq!(now.queue_depth, 0);
        /// # db.close()
        /// # }
        /// ```
        ///
        /// [`Database::stats`]: crate::Database::stats
        #[derive(Clone, Debug, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: $shown,)*
        }

        /// Where the engine's threads record; the fields are those of [`Stats`].
        #[derive(Default)]
        pub(crate) struct Recorder {
            $(pub(crate) $name: $recorded,)*
        }

        impl Recorder {
            /// Everything that is recorded here; the caller adds what lives [`Elsewhere`].
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.show(),)* }
            }
        }
    };
}

statistics! {
    /// Write transactions answered, failed ones included.
    transactions: u64 = Count,
    /// Write transactions that failed: their own error, a constraint, a panic, a time limit.
    failed_transactions: u64 = Count,
    /// Write transactions interrupted by their time limit.
    timed_out_transactions: u64 = Count,
    /// Runs of closures beyond the first, because a neighbour was undone.
    reruns: u64 = Count,
    /// Write transactions refused because another one's closure did not return in time.
    refused_behind_stuck: u64 = Count,
    /// Commits of SQLite, each of one batch.
    commits: u64 = Count,
    /// Savepoints opened to guard members.
    savepoints: u64 = Count,
    /// Syncs of the WAL (`fdatasync`).
    syncs: u64 = Count,
    /// Read transactions.
    reads: u64 = Elsewhere,
    /// Reads that used the snapshot of the read before, because nothing was committed in between.
    reads_on_kept_snapshot: u64 = Elsewhere,
    /// Readers whose snapshot was ended because it kept the WAL from restarting.
    revoked_readers: u64 = Count,
    /// Write transactions waiting in the queue now.
    queue_depth: u64 = Elsewhere,
    /// Write transactions committed and waiting for their sync now, or for the archive with
    /// [`Durability::Archived`](crate::Durability::Archived).
    unsynced_transactions: u64 = Elsewhere,
    /// How far the archive is, if there is one.
    archive: Option<ArchiveStats> = Elsewhere,
    /// Bytes in use in the WAL now.
    wal_bytes: u64 = Elsewhere,
    /// Most bytes that were in use in the WAL.
    wal_bytes_max: u64 = Elsewhere,
    /// Bytes in temporary files now.
    temp_bytes: u64 = Elsewhere,
    /// Most bytes that were in temporary files at once.
    temp_bytes_max: u64 = Elsewhere,
    /// Frames of the WAL that were committed and not yet in the database file when it was opened,
    /// as after a crash.
    wal_frames_recovered: u64 = Elsewhere,
    /// Frames of the WAL that recovery left out when the database was opened: of a commit that a
    /// crash interrupted, or after damage.
    wal_frames_discarded: u64 = Elsewhere,
    /// Whether the engine sees which pages are read: not when another library has initialised
    /// SQLite in this process before. Then interactive transactions are always replayed whole, and
    /// readers empty their page caches at each commit.
    is_tracking_pages: bool = Elsewhere,
    /// Checkpoint passes in the background.
    checkpoint_passes: u64 = Count,
    /// Completed checkpoints; each lets the WAL restart.
    checkpoints_completed: u64 = Count,
    /// Times writes had to wait because the WAL was at its limit.
    wal_stalls: u64 = Count,
    /// Interactive transactions open now.
    open_transactions: u64 = Elsewhere,
    /// Interactive transactions that the writer replayed and compared whole at commit.
    transactions_replayed: u64 = Count,
    /// Interactive transactions whose leading queries the writer left out, because no page that
    /// they had read changed since.
    transactions_unchanged: u64 = Count,
    /// Interactive transactions that changed nothing, so that their commit cost nothing.
    transactions_read_only: u64 = Count,
    /// Times that an interactive transaction waited for its turn among colliding ones.
    turns_waited: u64 = Count,
    /// How long it waited each time, in nanoseconds.
    turn_wait_time_ns: Summary = Measured,
    /// Turns that were taken away, because they had lasted too long.
    turns_taken_away: u64 = Count,
    /// Attempts of interactive transactions that ended in a conflict.
    transaction_conflicts: u64 = Count,
    /// Those among them that a statement reported, before the commit.
    conflicts_told_early: u64 = Count,
    /// Attempts that `transact` began after a conflict.
    transaction_retries: u64 = Count,
    /// Statements before which an interactive transaction was replayed on a new snapshot.
    transactions_resumed: u64 = Count,
    /// Numbers given out ahead to rows without an id of their own.
    ids_given_out: u64 = Elsewhere,
    /// Statements of interactive transactions that ran in the writer and were rolled back, for lack
    /// of an overlay.
    statements_tried_in_writer: u64 = Count,
    /// Transactions per batch.
    batch_size: Summary = Measured,
    /// Time from the first member of a batch to the end of its commit, in nanoseconds.
    batch_time_ns: Summary = Measured,
    /// Time of `COMMIT` alone, in nanoseconds.
    commit_time_ns: Summary = Measured,
    /// Time of one sync of the WAL, in nanoseconds.
    sync_time_ns: Summary = Measured,
    /// Time of a checkpoint pass in the background, in nanoseconds.
    checkpoint_time_ns: Summary = Measured,
    /// Time that the end of a checkpoint stopped the writer, in nanoseconds.
    writer_pause_ns: Summary = Measured,
    /// The latest transactions that took longer than [`Options::slow_transaction`].
    ///
    /// [`Options::slow_transaction`]: crate::Options::slow_transaction
    slow_transactions: Vec<SlowTransaction> = SlowTransactions,
}

/// A write transaction that took long.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// for slow in &db.stats().slow_transactions {
///     eprintln!("{:?}: {}", slow.time, slow.last_sql);
/// }
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowTransaction {
    /// Time its closure took in the writer.
    pub time: Duration,
    /// The last statement it ran, cut to 512 bytes; empty when it ran none.
    pub last_sql: String,
}

/// Percentiles of a measurement, to 6 %; zero where nothing was measured.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let commit = db.stats().commit_time_ns;
/// println!("{} commits, p99 {} µs", commit.count, commit.p99 / 1_000);
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Summary {
    /// Number of measurements.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// Largest.
    pub max: u64,
}

impl From<&Histogram<u64>> for Summary {
    fn from(h: &Histogram<u64>) -> Summary {
        if h.is_empty() {
            return Summary::default();
        }
        Summary {
            count: h.len(),
            mean: h.mean(),
            p50: h.value_at_quantile(0.5),
            p90: h.value_at_quantile(0.9),
            p99: h.value_at_quantile(0.99),
            p99_9: h.value_at_quantile(0.999),
            max: h.max(),
        }
    }
}

/// A statistic as the engine's threads record it.
trait Recorded<T> {
    fn show(&self) -> T;
}

/// One that the engine asks another part for when it is to be shown.
#[derive(Default)]
pub(crate) struct Elsewhere;

impl<T: Default> Recorded<T> for Elsewhere {
    fn show(&self) -> T {
        T::default()
    }
}

/// A histogram that several threads may record into.
pub(crate) struct Measured(Mutex<Histogram<u64>>);

impl Default for Measured {
    fn default() -> Measured {
        let histogram = Histogram::new_with_bounds(1, LARGEST, 1).expect("the bounds are valid");
        Measured(Mutex::new(histogram))
    }
}

impl Measured {
    fn lock(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, value: u64) {
        self.lock().saturating_record(value);
    }

    pub(crate) fn record_time(&self, time: Duration) {
        self.record(crate::clock::nanos(time));
    }
}

impl Recorded<Summary> for Measured {
    fn show(&self) -> Summary {
        Summary::from(&*self.lock())
    }
}

/// A counter on its way up.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn get(&self) -> u64 {
        self.show()
    }
}

impl Recorded<u64> for Count {
    fn show(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The latest slow transactions.
#[derive(Default)]
pub(crate) struct SlowTransactions(Mutex<VecDeque<SlowTransaction>>);

impl SlowTransactions {
    fn lock(&self) -> MutexGuard<'_, VecDeque<SlowTransaction>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, time: Duration, last_sql: &str) {
        let mut slow = self.lock();
        if slow.len() == SLOW_KEPT {
            slow.pop_front();
        }
        slow.push_back(SlowTransaction { time, last_sql: last_sql.to_owned() });
    }
}

impl Recorded<Vec<SlowTransaction>> for SlowTransactions {
    fn show(&self) -> Vec<SlowTransaction> {
        self.lock().iter().cloned().collect()
    }
}
