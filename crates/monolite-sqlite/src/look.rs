//! Owns the look at the clock from inside of a single instruction of SQLite's virtual machine.
//!
//! SQLite asks its progress handler at the jumps of a program, and a statement can have a hundred
//! thousand instructions between two of them. So whatever of ours such instructions call, our
//! functions and the allocator, counts the work that it does, and looks at the clock in between.
//!
//! Some of what takes long calls nothing of ours, so a statement ends before it: a sort, whose rows
//! are weighed while they wait for it ([`weights::time_to_sort`]); passes over a value (arithmetic
//! with a text of a million digits, comparisons, JSON), of which the program of a statement has so
//! many ([`crate::program`], [`Signals::passes`], [`weights::time_of_passes`]); and
//! walks over deep expressions while it is prepared ([`weights::time_of_walks`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::signals::Signals;
use crate::weights;

/// Steps between two looks: some tenths of a millisecond, of which a look (25 ns) is nothing.
const INTERVAL: usize = 1 << 16;

/// Steps that a statement has made for each piece of memory that it asks for: to find it, and to
/// make up its mind.
const PIECE: usize = 100;

/// As many while it is prepared that the clock is looked at for every eighth piece. There is no
/// other look, and between two pieces SQLite can look for names in many wide tables.
const PREPARED_PIECE: usize = INTERVAL / 8;

/// How long a statement goes on without asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// At most so long, and as a rule for much less.
    AtMost(Duration),
    /// So long, as it was measured.
    Measured(Duration),
}

impl Rest {
    /// It asks again soon.
    pub const NONE: Rest = Rest::AtMost(Duration::ZERO);
}

/// Says whether a statement has to end that goes on for so long if it need not.
pub type Overdue = Arc<dyn Fn(Rest) -> bool + Send + Sync>;

/// Looks whether the statement that runs on a connection has to end.
pub(crate) struct Look {
    overdue: Overdue,
    signals: Arc<Signals>,
    /// Since the last look. Only the connection's user counts.
    steps: AtomicUsize,
}

impl Look {
    pub(crate) fn new(overdue: &Overdue, signals: &Arc<Signals>) -> Look {
        let (overdue, signals) = (Arc::clone(overdue), Arc::clone(signals));
        Look { overdue, signals, steps: AtomicUsize::new(0) }
    }

    /// Whether the statement may go on, now. One that may not is told to have been interrupted.
    pub(crate) fn goes_on(&self) -> bool {
        let passes = weights::time_of_passes(self.signals.passes());
        let walks = weights::time_of_walks(self.signals.levels());
        let sort = match (self.signals.may_sort(), self.signals.is_utf16()) {
            (false, _) => Duration::ZERO,
            (true, false) => weights::time_to_sort(),
            (true, true) => weights::time_to_sort_utf16(),
        };
        self.goes_on_for(Rest::AtMost(sort.max(passes).max(walks)))
    }

    /// Whether the statement may go on for so long. One that may not is told to have been
    /// interrupted.
    pub(crate) fn goes_on_for(&self, rest: Rest) -> bool {
        let is_late = (self.overdue)(rest);
        if is_late {
            self.signals.mark_interrupted();
        }
        !is_late && !self.signals.is_revoked()
    }

    /// Whether the statement may go on that asks for `bytes` of memory. To fill them takes about a
    /// nanosecond for eight of them.
    pub(crate) fn goes_on_behind_piece(&self, bytes: usize) -> bool {
        let piece = if self.signals.is_preparing() { PREPARED_PIECE } else { PIECE };
        self.goes_on_behind(piece + bytes / 8)
    }

    /// Counts `steps` of about a nanosecond each.
    pub(crate) fn count(&self, steps: usize) {
        let counted = self.steps.load(Ordering::Relaxed);
        self.steps.store(counted.saturating_add(steps), Ordering::Relaxed);
    }

    /// Counts `steps` of about a nanosecond each, and looks when there have been enough of them.
    pub(crate) fn goes_on_behind(&self, steps: usize) -> bool {
        let counted = self.steps.load(Ordering::Relaxed).saturating_add(steps);
        let is_due = counted >= INTERVAL;
        self.steps.store(if is_due { 0 } else { counted }, Ordering::Relaxed);
        !is_due || self.goes_on()
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("steps", &self.steps).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Look {
    /// One that never sees a reason to end a statement.
    pub(crate) fn never() -> Arc<Look> {
        Look::with(|| false)
    }

    /// One whose statements have to end when `is_late` says so.
    pub(crate) fn with(is_late: impl Fn() -> bool + Send + Sync + 'static) -> Arc<Look> {
        let overdue: Overdue = Arc::new(move |_| is_late());
        Arc::new(Look::new(&overdue, &Arc::new(Signals::default())))
    }
}
