//! Owns the log of slow calls: the latest few, and what of each was slow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::events::Events;
use super::{Caller, Slowest};

/// Slow calls remembered; enough to see a pattern, too few to matter in memory.
const SLOW_KEPT: usize = 32;

/// A write, a read, or a statement of an interactive transaction that took long.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// for slow in &db.stats().slow_transactions {
///     eprintln!("{} took {:?}, {:?} of it for {}", slow.caller, slow.time, slow.statement_time,
///         slow.statement);
/// }
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SlowTransaction {
    /// The time of day when its closure or statement ended.
    pub at: SystemTime,
    /// Who made it.
    pub caller: Caller,
    /// Time before it ran: in the queue of the writer or of a thread, or for a connection.
    pub wait: Duration,
    /// Time that its closure or statement took.
    pub time: Duration,
    /// Time from then on until it was on disk: of the rest of its batch, the `COMMIT` and the sync.
    /// Zero for reads and statements.
    pub sync: Duration,
    /// The statement that took the most of [`time`](SlowTransaction::time), cut to 512 bytes,
    /// without its parameters; empty when it ran none.
    pub statement: String,
    /// How long that statement took, to a few milliseconds, with the program's own code that got
    /// its rows. If `time` is much more, the rest of the closure was slow.
    pub statement_time: Duration,
}

impl SlowTransaction {
    /// One of `caller` that ended now.
    #[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "it is only shown"))]
    pub(crate) fn ended(
        caller: Caller,
        wait: Duration,
        time: Duration,
        slowest: Slowest,
    ) -> SlowTransaction {
        SlowTransaction {
            at: SystemTime::now(),
            caller,
            wait,
            time,
            sync: Duration::ZERO,
            statement: slowest.text,
            statement_time: slowest.time,
        }
    }
}

/// The latest slow calls, and how many there were; a clone is the same log.
#[derive(Clone, Default)]
pub(crate) struct SlowTransactions {
    kept: Arc<Mutex<(VecDeque<SlowTransaction>, u64)>>,
    pub(crate) events: Events,
}

impl SlowTransactions {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<SlowTransaction>, u64)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, slow: SlowTransaction) {
        let times = [slow.wait, slow.time, slow.sync];
        self.events.slow(slow.caller, times, &slow.statement, slow.statement_time);
        let (latest, total) = &mut *self.lock();
        if latest.len() == SLOW_KEPT {
            latest.pop_front();
        }
        latest.push_back(slow);
        *total += 1;
    }

    pub(crate) fn all(&self) -> Vec<SlowTransaction> {
        self.lock().0.iter().cloned().collect()
    }

    pub(crate) fn total(&self) -> u64 {
        self.lock().1
    }
}

/// The log, and from which time on a call is slow.
#[derive(Clone, Default)]
pub(crate) struct SlowLog {
    pub(crate) above: Duration,
    pub(crate) log: SlowTransactions,
}

impl SlowLog {
    /// Notes a call of `caller` that took `time`, if that was long.
    pub(crate) fn note(
        &self,
        caller: Caller,
        time: Duration,
        wait: impl FnOnce() -> Duration,
        slowest: impl FnOnce() -> Slowest,
    ) {
        if time > self.above {
            self.log.record(SlowTransaction::ended(caller, wait(), time, slowest()));
        }
    }
}
