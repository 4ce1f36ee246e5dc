//! Owns the figures of calls by their names, which all databases of the process share: the same
//! work in many databases is one name.
//!
//! # Threads and locks
//! A name takes the first free place, for good. Its figures are atomics, which change once per run
//! of a closure or statement; work without a name changes none.

use std::sync::OnceLock;
use std::time::Duration;

use super::figure::{Figure, Row, Shown as _};
use super::histogram::Times;
use super::{Count, Histogram, Recorded as _};
use crate::activity::Caller;
use crate::call::entry::Entry;

/// Names that are counted; a program has as many as it has literals in `named`.
const NAMES: usize = 128;

static PLACES: [OnceLock<Named>; NAMES] = [const { OnceLock::new() }; NAMES];

/// What calls with one name did.
pub(crate) struct Named {
    name: &'static str,
    waits: Times,
    writer: Times,
    readers: Times,
    rows: Count,
    pub(crate) conflicts: Count,
    pub(crate) retries: Count,
}

impl Named {
    fn new(name: &'static str) -> Named {
        Named {
            name,
            waits: Times::default(),
            writer: Times::default(),
            readers: Times::default(),
            rows: Count::default(),
            conflicts: Count::default(),
            retries: Count::default(),
        }
    }

    /// Records a run of a member in the writer.
    pub(crate) fn record_run(&self, entry: &Entry, time: Duration, changed_rows: u64) {
        self.writer.record_time(time);
        if entry.attempts == 1 {
            self.waits.record_time(entry.member.submitted().elapsed().saturating_sub(time));
        } else {
            self.retries.add(1);
        }
        if !entry.failed {
            self.rows.add(changed_rows);
        }
    }

    /// Records a read, or a statement of a transaction.
    pub(crate) fn record_read(&self, wait: Duration, time: Duration) {
        self.waits.record_time(wait);
        self.readers.record_time(time);
    }
}

/// The figures of the name of `caller`; none without a name, or when [`NAMES`] others came first.
#[inline]
pub(crate) fn of(caller: Caller) -> Option<&'static Named> {
    caller.name.and_then(place)
}

fn place(name: &'static str) -> Option<&'static Named> {
    let mut places = PLACES.iter().map(|place| place.get_or_init(|| Named::new(name)));
    places.find(|named| named.name == name)
}

/// What the calls with one name did since the process began, from [`name_stats`].
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct NameStats {
    /// The name, from [`Database::named`](crate::Database::named).
    pub name: &'static str,
    /// How long they waited in a queue or for a connection before they ran, in seconds.
    pub wait_seconds: Histogram,
    /// How long closures of writes and commits of transactions ran in the writer, in seconds. A
    /// closure that ran again counts again.
    pub writer_seconds: Histogram,
    /// How long reads and statements of interactive transactions ran on readers, in seconds.
    pub reader_seconds: Histogram,
    /// Rows that were inserted, updated and deleted in the writer; a closure that ran again counts
    /// again.
    pub changed_rows: u64,
    /// Attempts of interactive transactions that ended in a conflict.
    pub conflicts: u64,
    /// Closures that ran again: those of batches that were undone, and of `transact` after a
    /// conflict.
    pub retries: u64,
}

impl NameStats {
    fn of(named: &Named) -> NameStats {
        NameStats {
            name: named.name,
            wait_seconds: named.waits.show(),
            writer_seconds: named.writer.show(),
            reader_seconds: named.readers.show(),
            changed_rows: named.rows.show(),
            conflicts: named.conflicts.show(),
            retries: named.retries.show(),
        }
    }

    pub(super) fn figures(&self) -> Vec<Figure> {
        let row = |field, help| Row { field, help, is_counter: true };
        let waits =
            row("named_wait_seconds", "Time before calls ran, in a queue or for a connection.");
        let writer = row("named_writer_seconds", "Time of closures and commits in the writer.");
        let readers = row("named_reader_seconds", "Time of reads and statements on readers.");
        let rows = row("named_changed_rows", "Rows inserted, updated and deleted in the writer.");
        let conflicts =
            row("named_conflicts", "Attempts of transactions that ended in a conflict.");
        let retries = row("named_retries", "Closures that ran again.");
        let figures = [
            self.wait_seconds.figures(waits),
            self.writer_seconds.figures(writer),
            self.reader_seconds.figures(readers),
            self.changed_rows.figures(rows),
            self.conflicts.figures(conflicts),
            self.retries.figures(retries),
        ];
        figures.into_iter().flatten().collect()
    }
}

/// What calls did by their names ([`Database::named`](crate::Database::named)), in all databases of
/// this process since it began: the first 128 names that ran something.
///
/// [`prometheus`](super::prometheus) has the same figures, with the label `name`.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let schema = db.named("make the schema");
/// schema.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// let all = monolite::name_stats();
/// let of_schema = all.iter().find(|it| it.name == "make the schema").unwrap();
/// assert_eq!(of_schema.writer_seconds.count(), 1);
/// # db.close()
/// # }
/// ```
pub fn name_stats() -> Vec<NameStats> {
    PLACES.iter().map_while(OnceLock::get).map(NameStats::of).collect()
}
