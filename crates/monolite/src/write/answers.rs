//! Owns the answers to committed members: in commit order, with what became of their batch, and how
//! many are still to be given.
//!
//! The code that makes batches durable ([`sync`](super::sync)) reports it here; once committed, a
//! member is answered from here only.
//!
//! # Invariants
//! - Batches are answered in the order of their numbers and of their places in the WAL.
//! - No more members wait for the disk than the queue may hold: the writer waits before it has more
//!   committed, so a slow disk bounds memory, too. Once the database is being closed it waits no
//!   longer: none are added to those in the queue.
//! - The writer never waits for the archive: a member that does has a [place] of its own.
//! - Once the database is poisoned, no member of a batch that is not durable gets `Ok`.
//!
//! [place]: crate::call::places

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use monolite_sqlite::vfs::WalPosition;

use crate::activity::slow::SlowTransaction;
use crate::call::entry::Entry;
use crate::progress::{BatchNumber, Progress};
use crate::write::archived::Archived;

/// A batch that is committed and not yet answered.
pub(crate) struct CommittedBatch {
    pub(crate) number: BatchNumber,
    /// Where the latest commit was when it was done: its own, unless it has come to nothing.
    pub(crate) position: WalPosition,
    pub(crate) members: Vec<Entry>,
    /// Those of its runs that were slow, and when they ended.
    pub(crate) slow_runs: Vec<(Duration, SlowTransaction)>,
}

/// The answers that are owed.
pub(crate) struct Answers {
    unanswered: AtomicU64,
    capacity: u64,
    /// Up to where batches have been answered. Held for a comparison, and to wait.
    answered: Mutex<(BatchNumber, WalPosition)>,
    fewer: Condvar,
    is_closing: AtomicBool,
    progress: Arc<Progress>,
    /// Where members wait for the archive, if there is one.
    archived: Option<Arc<Archived>>,
}

impl Answers {
    /// For as many unanswered members as `capacity`, and those of one batch more.
    pub(crate) fn new(
        capacity: usize,
        progress: Arc<Progress>,
        archived: Option<Arc<Archived>>,
    ) -> Answers {
        Answers {
            unanswered: AtomicU64::new(0),
            capacity: capacity as u64,
            answered: Mutex::default(),
            fewer: Condvar::new(),
            is_closing: AtomicBool::new(false),
            progress,
            archived,
        }
    }

    /// Members committed that wait for the disk.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::Relaxed)
    }

    /// Those, and the members that wait for the archive.
    pub(crate) fn unsynced(&self) -> u64 {
        self.unanswered() + self.archived.as_ref().map_or(0, |it| it.members() as u64)
    }

    /// Counts the `members` of a batch, on the writer's thread; waits first while too many are
    /// unanswered.
    pub(crate) fn owe(&self, members: usize) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        while self.unanswered() >= self.capacity && !self.is_closing.load(Ordering::Relaxed) {
            answered = self.fewer.wait(answered).unwrap_or_else(PoisonError::into_inner);
        }
        self.unanswered.fetch_add(members as u64, Ordering::Relaxed);
    }

    /// The database is being closed: the writer waits for no answers any more.
    pub(crate) fn close(&self) {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_closing.store(true, Ordering::Relaxed);
        drop(answered);
        self.fewer.notify_one();
    }

    /// Tells the members of `batch` their outcome: their own, if it `is_durable`. Those who wait
    /// for the archive, too, are told later, but for what has failed anyway.
    pub(crate) fn give(&self, batch: CommittedBatch, is_durable: bool) {
        self.note(&batch);
        let (mut waiting, members) = (Vec::new(), batch.members.len());
        for mut entry in batch.members {
            if is_durable
                && !entry.failed
                && let Some(limit) = entry.member.terms().archive_wait
            {
                waiting.push((limit, entry));
                continue;
            }
            if !is_durable && let Err(error) = self.progress.check_poison() {
                entry.overrule(error);
            }
            entry.answer();
        }
        if let Some(archived) = self.archived.as_ref().filter(|_| !waiting.is_empty()) {
            archived.wait(batch.position, waiting);
        }
        let owed = self.unanswered.fetch_sub(members as u64, Ordering::Relaxed);
        assert!(owed >= members as u64, "{members} members are answered of {owed} that are owed");
        drop(self.answered.lock().unwrap_or_else(PoisonError::into_inner));
        self.fewer.notify_one();
    }

    /// Notes that `batch` is the next one to be answered: before the last of its members is, since
    /// from then on the writer may answer another batch itself.
    fn note(&self, batch: &CommittedBatch) {
        // A batch without members may come late: the writer does not wait for it.
        if batch.members.is_empty() {
            return;
        }
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let here = (batch.number, batch.position);
        let is_later = answered.0 < here.0 && answered.1 <= here.1;
        assert!(is_later, "{here:?} is answered behind {answered:?}");
        *answered = here;
    }
}

#[cfg(test)]
pub(super) mod tests;
