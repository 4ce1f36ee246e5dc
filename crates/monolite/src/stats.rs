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
    /// Write transactions answered, failed ones included.
    pub transactions: u64,
    /// Write transactions that failed: their own error, a constraint, a panic, a time limit.
    pub failed_transactions: u64,
    /// Write transactions interrupted by their time limit.
    pub timed_out_transactions: u64,
    /// Runs of closures beyond the first, because a neighbour was undone.
    pub reruns: u64,
    /// Write transactions refused because the closure of another one did not return in time.
    pub refused_behind_stuck: u64,
    /// Commits of SQLite, each of one batch.
    pub commits: u64,
    /// Savepoints opened to guard members.
    pub savepoints: u64,
    /// Syncs of the WAL (`fdatasync`).
    pub syncs: u64,
    /// Read transactions.
    pub reads: u64,
    /// Reads that used the snapshot of the read before, because nothing was committed in between.
    pub reads_on_kept_snapshot: u64,
    /// Readers whose snapshot was ended because it kept the WAL from restarting.
    pub revoked_readers: u64,
    /// Write transactions waiting in the queue now.
    pub queue_depth: u64,
    /// Write transactions committed and waiting for their sync now, or for the archive with
    /// [`Durability::Archived`](crate::Durability::Archived).
    pub unsynced_transactions: u64,
    /// How far the archive is, if there is one.
    pub archive: Option<ArchiveStats>,
    /// Bytes in use in the WAL now.
    pub wal_bytes: u64,
    /// Most bytes that were in use in the WAL.
    pub wal_bytes_max: u64,
    /// Bytes in temporary files now.
    pub temp_bytes: u64,
    /// Most bytes that were in temporary files at once.
    pub temp_bytes_max: u64,
    /// Frames of the WAL that were committed and not yet in the database file when it was opened,
    /// as after a crash.
    pub wal_frames_recovered: u64,
    /// Frames of the WAL that recovery left out when the database was opened: of a commit that a
    /// crash interrupted, or after damage.
    pub wal_frames_discarded: u64,
    /// Whether the engine sees which pages are read: not when another library has initialised
    /// SQLite in this process before. Then interactive transactions are always replayed whole, and
    /// readers empty their page caches at each commit.
    pub is_tracking_pages: bool,
    /// Checkpoint passes in the background.
    pub checkpoint_passes: u64,
    /// Checkpoints that were completed, after which the WAL restarts.
    pub checkpoints_completed: u64,
    /// Times writes had to wait because the WAL was at its limit.
    pub wal_stalls: u64,
    /// Interactive transactions open now.
    pub open_transactions: u64,
    /// Interactive transactions of which the writer replayed and compared everything at commit.
    pub transactions_replayed: u64,
    /// Interactive transactions of which the writer left out the queries at the beginning, because
    /// no page that they had read was changed since.
    pub transactions_unchanged: u64,
    /// Interactive transactions that changed nothing, so that their commit cost nothing.
    pub transactions_read_only: u64,
    /// Times that an interactive transaction waited for its turn among those with which it would
    /// have collided.
    pub turns_waited: u64,
    /// How long it waited each time, in nanoseconds.
    pub turn_wait_time_ns: Summary,
    /// Turns that were taken away, because they had lasted too long.
    pub turns_taken_away: u64,
    /// Attempts of interactive transactions that ended in a conflict.
    pub transaction_conflicts: u64,
    /// Those among them that were told by a statement, before the commit.
    pub conflicts_told_early: u64,
    /// Attempts that `transact` began after a conflict.
    pub transaction_retries: u64,
    /// Statements before which an interactive transaction moved to a new snapshot, and what it had
    /// done was replayed there.
    pub transactions_resumed: u64,
    /// Numbers that were given out ahead to rows whose id was left to SQLite.
    pub ids_given_out: u64,
    /// Statements of interactive transactions that ran in the writer and were rolled back, for want
    /// of an overlay.
    pub statements_tried_in_writer: u64,
    /// Transactions per batch.
    pub batch_size: Summary,
    /// Time from the first member of a batch to the end of its commit, in nanoseconds.
    pub batch_time_ns: Summary,
    /// Time of `COMMIT` alone, in nanoseconds.
    pub commit_time_ns: Summary,
    /// Time of one sync of the WAL, in nanoseconds.
    pub sync_time_ns: Summary,
    /// Time of a checkpoint pass in the background, in nanoseconds.
    pub checkpoint_time_ns: Summary,
    /// Time that the end of a checkpoint stopped the writer, in nanoseconds.
    pub writer_pause_ns: Summary,
    /// The latest transactions that took longer than [`Options::slow_transaction`].
    ///
    /// [`Options::slow_transaction`]: crate::Options::slow_transaction
    pub slow_transactions: Vec<SlowTransaction>,
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

/// Percentiles of a measurement, to three significant digits; zero where nothing was measured.
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

/// A histogram that several threads may record into.
pub(crate) struct Measured(Mutex<Histogram<u64>>);

impl Default for Measured {
    fn default() -> Measured {
        let histogram = Histogram::new_with_bounds(1, LARGEST, 3).expect("the bounds are valid");
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

    pub(crate) fn summary(&self) -> Summary {
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

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where the engine's threads record; the fields are those of [`Stats`].
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) transactions: Count,
    pub(crate) failed_transactions: Count,
    pub(crate) timed_out_transactions: Count,
    pub(crate) refused_behind_stuck: Count,
    pub(crate) reruns: Count,
    pub(crate) commits: Count,
    pub(crate) savepoints: Count,
    pub(crate) syncs: Count,
    pub(crate) revoked_readers: Count,
    pub(crate) checkpoint_passes: Count,
    pub(crate) checkpoints_completed: Count,
    pub(crate) wal_stalls: Count,
    pub(crate) transactions_replayed: Count,
    pub(crate) transactions_unchanged: Count,
    pub(crate) transactions_read_only: Count,
    pub(crate) turns_waited: Count,
    pub(crate) turn_wait_time: Measured,
    pub(crate) turns_taken_away: Count,
    pub(crate) transaction_conflicts: Count,
    pub(crate) conflicts_told_early: Count,
    pub(crate) transaction_retries: Count,
    pub(crate) transactions_resumed: Count,
    pub(crate) statements_tried_in_writer: Count,
    pub(crate) batch_size: Measured,
    pub(crate) batch_time: Measured,
    pub(crate) commit_time: Measured,
    pub(crate) sync_time: Measured,
    pub(crate) checkpoint_time: Measured,
    pub(crate) writer_pause: Measured,
    slow: Mutex<VecDeque<SlowTransaction>>,
}

impl Recorder {
    pub(crate) fn slow_transaction(&self, time: Duration, last_sql: &str) {
        let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if slow.len() == SLOW_KEPT {
            slow.pop_front();
        }
        slow.push_back(SlowTransaction { time, last_sql: last_sql.to_owned() });
    }

    /// Everything that is recorded here; the caller adds what lives elsewhere.
    pub(crate) fn snapshot(&self) -> Stats {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            transactions: self.transactions.get(),
            failed_transactions: self.failed_transactions.get(),
            timed_out_transactions: self.timed_out_transactions.get(),
            refused_behind_stuck: self.refused_behind_stuck.get(),
            reruns: self.reruns.get(),
            commits: self.commits.get(),
            savepoints: self.savepoints.get(),
            syncs: self.syncs.get(),
            revoked_readers: self.revoked_readers.get(),
            checkpoint_passes: self.checkpoint_passes.get(),
            checkpoints_completed: self.checkpoints_completed.get(),
            wal_stalls: self.wal_stalls.get(),
            transactions_replayed: self.transactions_replayed.get(),
            transactions_unchanged: self.transactions_unchanged.get(),
            transactions_read_only: self.transactions_read_only.get(),
            turns_waited: self.turns_waited.get(),
            turn_wait_time_ns: self.turn_wait_time.summary(),
            turns_taken_away: self.turns_taken_away.get(),
            transaction_conflicts: self.transaction_conflicts.get(),
            conflicts_told_early: self.conflicts_told_early.get(),
            transaction_retries: self.transaction_retries.get(),
            transactions_resumed: self.transactions_resumed.get(),
            statements_tried_in_writer: self.statements_tried_in_writer.get(),
            batch_size: self.batch_size.summary(),
            batch_time_ns: self.batch_time.summary(),
            commit_time_ns: self.commit_time.summary(),
            sync_time_ns: self.sync_time.summary(),
            checkpoint_time_ns: self.checkpoint_time.summary(),
            writer_pause_ns: self.writer_pause.summary(),
            slow_transactions: slow.iter().cloned().collect(),
            ..Stats::default()
        }
    }
}
