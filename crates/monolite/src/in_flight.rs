//! Owns the transactions that the writer has taken from its queue and not handed on, while it runs
//! a closure: within reach of others, should the closure not return.
//!
//! # Algorithm
//! The writer leaves them here before it runs a closure and collects them afterwards. When a
//! closure has been running for too long, somebody else takes them, and answers them: those that
//! have not run, and those whose batch is now not committed. The writer learns that its batch was
//! taken when it comes to collect it, and rolls it back.
//!
//! # Invariants
//! - Whoever has the transactions answers them. A batch that was taken is never committed.
//!
//! # Threads and locks
//! The lock is held for a move of two lists, twice for each member of a batch. While a batch is
//! taken, the write queue's lock is taken under it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::writer::Entry;

/// What the writer has in its hands beside the member that runs.
#[derive(Default)]
pub(crate) struct Batch {
    /// Members that are to run, in their order.
    pub(crate) inbox: VecDeque<Entry>,
    /// Members of the open transaction, in their order.
    pub(crate) done: Vec<Entry>,
}

/// Whether the writer found its batch as it had left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Whole,
    /// It was taken; nothing of it may be committed.
    Taken,
}

#[derive(Default)]
enum Desk {
    /// The writer has everything.
    #[default]
    Empty,
    Left {
        batch: Batch,
        closure: Closure,
    },
    /// The batch was taken from this closure.
    Taken(Closure),
}

/// A closure that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closure {
    pub(crate) since: Duration,
    /// How long it may take.
    pub(crate) limit: Duration,
}

#[derive(Default)]
pub(crate) struct InFlight(Mutex<Desk>);

impl InFlight {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves `batch` while `closure` runs.
    pub(crate) fn leave(&self, batch: &mut Batch, closure: Closure) {
        *self.desk() = Desk::Left { batch: std::mem::take(batch), closure };
    }

    /// Brings back what was left.
    pub(crate) fn collect(&self, batch: &mut Batch) -> Collected {
        match std::mem::take(&mut *self.desk()) {
            Desk::Left { batch: left, .. } => {
                *batch = left;
                Collected::Whole
            }
            Desk::Empty | Desk::Taken(_) => Collected::Taken,
        }
    }

    /// Takes the batch if the closure that runs has been running `now` for longer than `patience`
    /// says of its limit.
    pub(crate) fn take_overdue(
        &self,
        now: Duration,
        patience: impl Fn(Duration) -> Duration,
    ) -> Option<Batch> {
        let mut desk = self.desk();
        let closure = match &*desk {
            Desk::Left { closure, .. }
                if closure.since < now.saturating_sub(patience(closure.limit)) =>
            {
                *closure
            }
            _ => return None,
        };
        match std::mem::replace(&mut *desk, Desk::Taken(closure)) {
            Desk::Left { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// The closure whose batch was taken, and what `act` says while it has not been collected.
    pub(crate) fn while_stuck<T>(&self, act: impl FnOnce() -> T) -> Option<(Closure, T)> {
        let desk = self.desk();
        match &*desk {
            Desk::Taken(closure) => Some((*closure, act())),
            _ => None,
        }
    }

    /// The closure whose batch was taken.
    pub(crate) fn stuck(&self) -> Option<Closure> {
        match &*self.desk() {
            Desk::Taken(closure) => Some(*closure),
            _ => None,
        }
    }
}
