//! Owns what the engine counts and measures about itself.
//!
//! A line of the table makes a field of [`Stats`], its figures for Prometheus, and its line in
//! `docs/stats.md`.
//!
//! # Threads and locks
//! Counters and histograms are atomics; histograms change once per batch, sync or checkpoint, never
//! per transaction or read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::activity::events::Events;
use crate::activity::slow::{SlowTransaction, SlowTransactions};
use crate::archive::ArchiveStats;

pub use self::histogram::Histogram;
pub use self::names::{NameStats, name_stats};

use self::figure::{Figure, Row, Shown, Value};
use self::histogram::{Numbers, Times};

mod figure;
mod histogram;
pub(crate) mod names;

/// Makes of each line `name: shown type = recorded type` a field of [`Stats`], the field of
/// [`Recorder`] behind it, the step from one to the other, and its figures.
macro_rules! statistics {
    ($($heading:literal {
        $($(#[doc = $doc:literal])+ $name:ident: $shown:ty = $recorded:ty,)+
    })+) => {
        /// A snapshot of the engine's counters and measurements, from [`Database::stats`].
        ///
        /// Counters run from the opening of the database. What to alert on is in
        /// `docs/guides/monitoring.md`.
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
            $($($(#[doc = $doc])+ pub $name: $shown,)+)+
        }

        impl Stats {
            /// The figures of each part of the table, under its heading.
            fn figures(&self) -> Vec<(&'static str, Vec<Figure>)> {
                vec![$(($heading, [$(self.$name.figures(Row {
                    field: stringify!($name),
                    help: concat!($($doc),+).trim_ascii_start(),
                    is_counter: <$recorded as Recorded<$shown>>::IS_COUNTER,
                })),+].into_iter().flatten().collect())),+]
            }
        }

        /// Where the engine's threads record; the fields are those of [`Stats`].
        #[derive(Default)]
        pub(crate) struct Recorder {
            $($(pub(crate) $name: $recorded,)+)+
        }

        impl Recorder {
            /// What tells a subscriber of this database.
            pub(crate) fn events(&self) -> &Events {
                &self.slow_transactions.events
            }

            /// Everything that is recorded here; the caller adds what lives [`Elsewhere`].
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($($name: self.$name.show(),)+)+ }
            }
        }
    };
}

statistics! {
    "Transactions" {
        /// Write transactions answered, failed ones too.
        transactions: u64 = Count,
        /// Write transactions that failed: their own error, a constraint, a panic, a time limit.
        failed_transactions: u64 = Count,
        /// Write transactions interrupted by `write_time_limit`; they have failed, too.
        timed_out_transactions: u64 = Count,
        /// Writes refused while another closure did not return. Above zero: a closure blocks,
        /// sleeps, or waits for a write of the same database.
        refused_behind_stuck: u64 = Count,
        /// Closures run again because their batch was undone. Many: transactions fail after they
        /// wrote; check before writing.
        reruns: u64 = Count,
        /// Savepoints opened to guard members of a batch.
        savepoints: u64 = Count,
        /// `COMMIT`s of SQLite, one a batch, even if all of it was rolled back, but for one of a
        /// stuck closure. Each is synced, as its answers may show earlier commits.
        commits: u64 = Count,
        /// The latest 32 writes, reads and statements of interactive transactions that took longer
        /// than `slow_transaction`: when, who, the wait, the run and the sync, and the statement
        /// that took the most, without its parameters. If `time` is much more than
        /// `statement_time`, the closure's own code is slow, or rows of a prepared query were
        /// stepped behind another statement.
        slow_transactions: Vec<SlowTransaction> = SlowTransactions,
        /// Writes, reads and statements that took longer than `slow_transaction`, waits apart.
        slow_calls: u64 = CountedElsewhere,
    }
    "Interactive transactions" {
        /// Interactive transactions open now. Near `InteractiveOptions::max_open`: some are never
        /// ended.
        open_transactions: u64 = Elsewhere,
        /// Commits of transactions that the writer replayed and compared whole.
        transactions_replayed: u64 = Count,
        /// Commits of transactions whose leading reads the writer skipped, as no page that they
        /// read has changed.
        transactions_unchanged: u64 = Count,
        /// Commits of transactions that changed nothing; they are free.
        transactions_read_only: u64 = Count,
        /// Times that a transaction waited for its turn among colliding ones. Many: one row is hot;
        /// decide in SQL.
        turns_waited: u64 = Count,
        /// How long a transaction waited for its turn.
        turn_wait_seconds: Histogram = Times,
        /// Turns that lasted too long and were passed on: a holder sleeps.
        turns_taken_away: u64 = Count,
        /// Attempts of transactions that ended in a conflict. Many: read less before writing, or
        /// decide in SQL (`UPDATE … SET x = x + 1` never conflicts).
        transaction_conflicts: u64 = Count,
        /// Conflicts that were found at a statement, before the commit.
        conflicts_told_early: u64 = Count,
        /// Attempts that `transact` began after a conflict.
        transaction_retries: u64 = Count,
        /// Statements before which a transaction was replayed on a new snapshot. Many: raise
        /// `InteractiveOptions::connections` or `InteractiveOptions::snapshot_age`.
        transactions_resumed: u64 = Count,
        /// Ids given out ahead; those of failed transactions are gaps.
        ids_given_out: u64 = CountedElsewhere,
        /// Statements that ran in the writer and were rolled back, without overlays
        /// (`Sharing::Shared`). Also counted in `transactions` and `failed_transactions`.
        statements_tried_in_writer: u64 = Count,
    }
    "Reads" {
        /// Read transactions.
        reads: u64 = CountedElsewhere,
        /// Reads that reused a snapshot, as nothing was committed.
        reads_on_kept_snapshot: u64 = CountedElsewhere,
        /// Reads ended so that the WAL could restart. Above zero: reads are too long for
        /// `wal_limit_bytes`.
        revoked_readers: u64 = Count,
        /// Whether the engine sees which pages are read. `false` with `Sharing::Shared`, or if
        /// another library initialised SQLite first: then interactive transactions are replayed
        /// whole, and each commit empties the readers' page caches. Open the first database through
        /// Monolite.
        is_tracking_pages: bool = Elsewhere,
        /// Bytes of the pages in the caches of all databases of the process now: each database
        /// shows the same figure. `limit_page_caches` bounds it.
        page_cache_bytes: u64 = Elsewhere,
    }
    "Load" {
        /// Writes waiting for the writer now. Near `queue_capacity`: it cannot keep up.
        queue_depth: u64 = Elsewhere,
        /// How long the call that has the writer has had it now, 0 if none does.
        writer_busy_seconds: f64 = Elsewhere,
        /// Committed writes waiting for the disk now, or with `Durability::Archived` for the
        /// archive.
        unsynced_transactions: u64 = Elsewhere,
        /// The archive, if there is one.
        archive: Option<ArchiveStats> = Elsewhere,
        /// Transactions in a batch; grows with the load.
        batch_size: Histogram = Numbers,
        /// Time from the first member of a batch to the end of its commit.
        batch_seconds: Histogram = Times,
        /// Time of `COMMIT` alone.
        commit_seconds: Histogram = Times,
        /// Calls of `fdatasync` for the WAL.
        syncs: u64 = Count,
        /// How long one call of `fdatasync` took: most of the latency at low load.
        sync_seconds: Histogram = Times,
    }
    "The WAL and temporary files" {
        /// Bytes in use in the WAL now.
        wal_bytes: u64 = Elsewhere,
        /// The most bytes in use in the WAL; never above `wal_limit_bytes`.
        wal_bytes_max: u64 = Elsewhere,
        /// Bytes of sorts, index builds and intermediate tables that are in files now.
        temp_bytes: u64 = Elsewhere,
        /// The most bytes in temporary files at once; never above `temp_limit_bytes`.
        temp_bytes_max: u64 = Elsewhere,
        /// Committed frames (pages) of the WAL not yet in the database file when it was opened.
        /// Above zero after a crash, or if another program left a WAL.
        wal_frames_recovered: u64 = Elsewhere,
        /// Frames of the WAL that recovery left out at the opening. After a power cut or `kill -9`:
        /// unacknowledged commits. Otherwise check the disk: acknowledged commits may be among
        /// them.
        wal_frames_discarded: u64 = Elsewhere,
        /// Times writes waited for room in the WAL. Above zero: the disk is too slow, or reads are
        /// too long.
        wal_stalls: u64 = Count,
        /// Checkpoint passes in the background.
        checkpoint_passes: u64 = Count,
        /// How long a checkpoint pass took.
        checkpoint_seconds: Histogram = Times,
        /// How often a completed checkpoint let the WAL restart.
        checkpoints_completed: u64 = Count,
        /// How long the end of a checkpoint, or a try at it, paused the writer.
        writer_pause_seconds: Histogram = Times,
    }
}

/// Statistics of databases as Prometheus reads them, each with a name of its own, which its samples
/// have as the label `database`; and those of calls with names in this process, see [`name_stats`].
///
/// Serve it as `text/plain; version=0.0.4`. The names of all figures are in `docs/stats.md`, alarms
/// in `docs/guides/monitoring.md`.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// db.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// let text = monolite::prometheus(&[("shop", db.stats())]);
/// assert!(text.contains("monolite_transactions_total{database=\"shop\"} 1\n"));
/// # db.close()
/// # }
/// ```
pub fn prometheus(databases: &[(&str, Stats)]) -> String {
    let figures = |stats: &Stats| stats.figures().into_iter().flat_map(|(_, it)| it).collect();
    let databases = databases.iter().map(|(name, stats)| (*name, figures(stats)));
    let named = name_stats();
    let named = named.iter().map(|stats| (stats.name, stats.figures()));
    figure::text("database", &databases.collect::<Vec<_>>())
        + &figure::text("name", &named.collect::<Vec<_>>())
}

/// A statistic as the engine's threads record it.
trait Recorded<T> {
    /// Whether it only rises.
    const IS_COUNTER: bool = false;

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

/// A counter that the engine asks another part for.
#[derive(Default)]
pub(crate) struct CountedElsewhere;

impl Recorded<u64> for CountedElsewhere {
    const IS_COUNTER: bool = true;

    fn show(&self) -> u64 {
        0
    }
}

/// Texts are not for monitoring.
impl Shown for Vec<SlowTransaction> {
    fn figures(&self, row: Row) -> Vec<Figure> {
        row.figure(Value::Text)
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
    const IS_COUNTER: bool = true;

    fn show(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Recorded<Vec<SlowTransaction>> for SlowTransactions {
    fn show(&self) -> Vec<SlowTransaction> {
        self.all()
    }
}

#[cfg(test)]
mod tests;
