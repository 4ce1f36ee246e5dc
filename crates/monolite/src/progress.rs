//! Owns how far the engine has come: which batch is being committed, which is visible, which is on
//! disk, and whether it stopped for good.
//!
//! # Positions
//! There are three, and a type for each. A [`BatchNumber`] counts what the writer has begun to
//! commit, also what came to nothing: acknowledgements and waits are in these. A [`CommitSequence`]
//! counts what SQLite has committed, as the VFS sees it: what a page's last change was is in these.
//! A batch is one commit, none when it came to nothing, or several when its members had to be
//! committed one by one; the two are never compared. A [`WalPosition`] is where in the WAL the
//! latest commit ends; of two batches the later one is at a later place, or at the same if it came
//! to nothing.
//!
//! # Invariants
//! - Batches are numbered 1, 2, 3 … in commit order; `durable <= committed <= committing`.
//! - A batch is in `exposed` before any of its changes can be seen, which is before `committed`
//!   tells: a reader with a snapshot labelled `committed` asks whether another reader may be ahead.
//! - A caller is answered only after `durable` reached its batch. Hence a reader that sees
//!   `committed` sees every acknowledged write.
//! - What `exposed` tells after a snapshot was taken is the latest batch that it may contain.
//!
//! # Threads and locks
//! The lock is held for a few instructions; who waits for a batch is told without it.
//!
//! [`CommitSequence`]: monolite_sqlite::vfs::CommitSequence

#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};

use monolite_sqlite::vfs::WalPosition;

use crate::activity::events::Events;
use crate::error::{Error, ErrorKind, Result};
use crate::primitives::sync::atomic::{AtomicU64, Ordering};
use crate::primitives::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of a batch; 0, the default, is before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchNumber(u64);

impl BatchNumber {
    /// After all of them.
    pub(crate) const MAX: BatchNumber = BatchNumber(u64::MAX);
}

/// A [`BatchNumber`] that several threads use.
#[derive(Debug, Default)]
pub(crate) struct AtomicBatchNumber(AtomicU64);

impl AtomicBatchNumber {
    pub(crate) fn new(number: BatchNumber) -> AtomicBatchNumber {
        AtomicBatchNumber(AtomicU64::new(number.0))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> BatchNumber {
        BatchNumber(self.0.load(ordering))
    }

    pub(crate) fn store(&self, number: BatchNumber, ordering: Ordering) {
        self.0.store(number.0, ordering);
    }
}

#[derive(Default)]
pub(crate) struct Progress {
    committing: AtomicBatchNumber,
    exposed: AtomicBatchNumber,
    committed: AtomicBatchNumber,
    durable: Mutex<Durable>,
    advanced: Condvar,
    stopped: OnceLock<Stopped>,
    pub(crate) events: Events,
}

/// Is told how far the batches are, by the threads that bring them there: it must be quick.
pub(crate) trait Observer: Send + Sync {
    /// What was committed so far is visible to new snapshots.
    fn visible(&self) {}

    /// Everything up to this position is as durable as the options ask for.
    fn durable(&self, _to: WalPosition) {}
}

/// All observers of one database, in the order in which they are told.
pub(crate) type Observers = [Arc<dyn Observer>];

/// Why nothing is acknowledged any more.
#[derive(Debug)]
struct Stopped {
    kind: ErrorKind,
    reason: String,
}

/// How far the disk is, and who wants to be told.
#[derive(Default)]
struct Durable {
    number: BatchNumber,
    waiting: Vec<(BatchNumber, Tell)>,
}

type Tell = Box<dyn FnOnce(Result<()>) + Send>;

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Progress {
    /// Numbers the batch that is about to commit.
    pub(crate) fn start_commit(&self) -> BatchNumber {
        let number = BatchNumber(self.committing.0.fetch_add(1, Ordering::AcqRel) + 1);
        assert!(self.committed() < number, "a batch has a number of its own");
        number
    }

    /// A part of the batch that is being committed is about to be visible to new snapshots.
    pub(crate) fn expose(&self) {
        let committing = self.committing.load(Ordering::Relaxed);
        assert!(self.exposed() <= committing, "batches are exposed in the order of their numbers");
        self.exposed.store(committing, Ordering::Release);
    }

    /// An open snapshot may contain parts of these batches, and of no later one.
    pub(crate) fn exposed(&self) -> BatchNumber {
        self.exposed.load(Ordering::Acquire)
    }

    /// Batch `number` is visible to new snapshots, or was rolled back.
    pub(crate) fn finish_commit(&self, number: BatchNumber) {
        let (committed, begun) = (self.committed(), self.committing.load(Ordering::Relaxed));
        assert!(committed < number, "batches are committed in the order of their numbers");
        assert!(number <= begun, "a batch has its number before it is committed");
        self.committed.store(number, Ordering::Release);
    }

    /// A snapshot taken after this call contains at least these batches.
    pub(crate) fn committed(&self) -> BatchNumber {
        self.committed.load(Ordering::Acquire)
    }

    fn durable(&self) -> MutexGuard<'_, Durable> {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to batch `number` is as durable as the options ask for. That of an earlier
    /// batch may be told later: the writer syncs a lonely member itself, while an earlier batch
    /// without commit or caller is still on its way to the sync thread.
    pub(crate) fn finish_sync(&self, number: BatchNumber) {
        assert!(number <= self.committed(), "a batch is durable that was committed");
        let mut durable = self.durable();
        durable.number = durable.number.max(number);
        let (told, waiting) = durable.waiting.drain(..).partition(|(of, _)| *of <= number);
        durable.waiting = waiting;
        drop(durable);
        self.advanced.notify_all();
        tell(told, || Ok(()));
    }

    /// Blocks until batch `number` is durable.
    ///
    /// # Errors
    /// `Poisoned` when that will not happen.
    pub(crate) fn wait_durable(&self, number: BatchNumber) -> Result<()> {
        let mut durable = self.durable();
        while durable.number < number {
            self.check_poison()?;
            durable = self.advanced.wait(durable).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Calls `told` when batch `number` is durable, now or later on another thread, or with
    /// `Poisoned` when that will not happen.
    pub(crate) fn when_durable(
        &self,
        number: BatchNumber,
        told: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let mut durable = self.durable();
        let verdict = if durable.number >= number { Ok(()) } else { self.check_poison() };
        if durable.number < number && verdict.is_ok() {
            durable.waiting.push((number, Box::new(told)));
            return;
        }
        drop(durable);
        told(verdict);
    }

    /// Stops all acknowledgements for good, with `Poisoned`; the first reason stays.
    pub(crate) fn poison(&self, reason: String) {
        self.stop(ErrorKind::Poisoned, reason);
    }

    /// Stops all acknowledgements for good; the first reason stays.
    pub(crate) fn stop(&self, kind: ErrorKind, reason: String) {
        let mut durable = self.durable();
        let is_first = self.stopped.set(Stopped { kind, reason }).is_ok();
        let waiting = std::mem::take(&mut durable.waiting);
        drop(durable);
        if let Some(Stopped { kind, reason }) = self.stopped.get().filter(|_| is_first) {
            let why = format_args!("{kind:?}: {reason}");
            self.events.error("nothing more is acknowledged", why);
        }
        self.advanced.notify_all();
        tell(waiting, || self.check_poison());
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// # Errors
    /// `Poisoned` or `Fenced`, with the reason, once acknowledgements have stopped.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.stopped.get().map_or(Ok(()), |stopped| Err(stopped.error()))
    }
}

fn tell(waiting: Vec<(BatchNumber, Tell)>, verdict: impl Fn() -> Result<()>) {
    waiting.into_iter().for_each(|(_, tell)| tell(verdict()));
}

impl Stopped {
    fn error(&self) -> Error {
        let next = match self.kind {
            ErrorKind::Fenced => "write to the new primary",
            _ => "after that, open the database again",
        };
        let message = format!(
            "nothing more is acknowledged since {}; reads go on until the database is closed \
             (of a deleted file over open connections alone); {next}",
            self.reason
        );
        Error::new(self.kind, message)
    }
}
