//! Owns the answers to committed members: in commit order, with what became of their batch, and how
//! many are still to be given.
//!
//! Whoever makes batches durable ([`sync`](super::sync)) says when that is so; nothing is answered
//! from anywhere else once it is committed.
//!
//! # Invariants
//! - Batches are answered in the order of their numbers and of their places in the WAL.
//! - No more members are unanswered than the queue may hold: the writer waits before it has more
//!   committed, so a slow disk bounds memory, too.
//! - Once the database is poisoned nobody is answered `Ok` whose batch is not durable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use monolite_sqlite::vfs::WalPosition;

use crate::call::entry::Entry;
use crate::progress::{BatchNumber, Progress};

/// A batch that is committed and not yet answered.
pub(crate) struct CommittedBatch {
    pub(crate) number: BatchNumber,
    /// Where the latest commit was when it was done: its own, unless it has come to nothing.
    pub(crate) position: WalPosition,
    pub(crate) members: Vec<Entry>,
}

/// The answers that are owed.
pub(crate) struct Answers {
    unanswered: AtomicU64,
    capacity: u64,
    /// Up to where batches have been answered. Held for a comparison, and to wait.
    answered: Mutex<(BatchNumber, WalPosition)>,
    fewer: Condvar,
    progress: Arc<Progress>,
}

impl Answers {
    /// For as many unanswered members as `capacity`, and those of one batch more.
    pub(crate) fn new(capacity: usize, progress: Arc<Progress>) -> Answers {
        Answers {
            unanswered: AtomicU64::new(0),
            capacity: capacity as u64,
            answered: Mutex::default(),
            fewer: Condvar::new(),
            progress,
        }
    }

    /// Members committed and not answered.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Counts the `members` of a batch, on the writer's thread; waits first while too many are
    /// unanswered.
    pub(crate) fn owe(&self, members: usize) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        while self.unanswered() >= self.capacity {
            answered = self.fewer.wait(answered).unwrap_or_else(PoisonError::into_inner);
        }
        self.unanswered.fetch_add(members as u64, Ordering::Relaxed);
    }

    /// Tells the members of `batch` their outcome: their own, if it `is_durable`.
    pub(crate) fn give(&self, batch: CommittedBatch, is_durable: bool) {
        let members = batch.members.len() as u64;
        for mut entry in batch.members {
            if !is_durable && let Err(error) = self.progress.check_poison() {
                entry.overrule(error);
            }
            entry.answer();
        }
        self.unanswered.fetch_sub(members, Ordering::Relaxed);
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        // A batch without members may come late: the writer does not wait for it.
        if members > 0 {
            let here = (batch.number, batch.position);
            let is_later = answered.0 < here.0 && answered.1 <= here.1;
            debug_assert!(is_later, "{here:?} is answered behind {answered:?}");
            *answered = here;
        }
        drop(answered);
        self.fewer.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests;
