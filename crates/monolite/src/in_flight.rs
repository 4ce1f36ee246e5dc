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
//! The lock is held for a move of two lists, twice for each member of a batch.

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
        since: Duration,
    },
    /// The batch was taken from a closure that has been running since then.
    Taken {
        since: Duration,
    },
}

#[derive(Default)]
pub(crate) struct InFlight(Mutex<Desk>);

impl InFlight {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves `batch` while a closure runs that begins `now`.
    pub(crate) fn leave(&self, batch: &mut Batch, now: Duration) {
        *self.desk() = Desk::Left { batch: std::mem::take(batch), since: now };
    }

    /// Brings back what was left.
    pub(crate) fn collect(&self, batch: &mut Batch) -> Collected {
        match std::mem::take(&mut *self.desk()) {
            Desk::Left { batch: left, .. } => {
                *batch = left;
                Collected::Whole
            }
            Desk::Empty | Desk::Taken { .. } => Collected::Taken,
        }
    }

    /// Takes the batch if the closure that runs has begun before `began_by`.
    pub(crate) fn take_from(&self, began_by: Duration) -> Option<Batch> {
        let mut desk = self.desk();
        let since = match &*desk {
            Desk::Left { since, .. } if *since < began_by => *since,
            _ => return None,
        };
        match std::mem::replace(&mut *desk, Desk::Taken { since }) {
            Desk::Left { batch, .. } => Some(batch),
            _ => None,
        }
    }

    /// Since when the closure has been running whose batch was taken.
    pub(crate) fn stuck_since(&self) -> Option<Duration> {
        match &*self.desk() {
            Desk::Taken { since } => Some(*since),
            _ => None,
        }
    }
}
