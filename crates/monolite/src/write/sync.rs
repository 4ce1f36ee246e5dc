//! Owns the thread that puts committed batches on disk, and says when they are.
//!
//! # Algorithm
//! 1. Wait for committed batches; take all there are.
//! 2. One `fdatasync` of the WAL covers every one of them: they were committed before it began.
//! 3. Check that the WAL and the database are still the files at their paths. With
//!    [`Durability::Buffered`] that is all, and done every [`LOOK`].
//! 4. Publish how far the disk is, tell the observers, and have the members answered
//!    ([`Answers`]).
//!
//! Meanwhile the writer runs and commits the next batches.
//!
//! A single member with none before or behind it has nothing to overlap with: the writer syncs it
//! itself ([`Syncer::finish`]), which spares a hand-over between threads (30 to 40 µs, a tenth of
//! the latency of a lonely write).
//!
//! # Invariants
//! - Batches are answered in commit order: none is synced by the writer while any is unanswered.
//! - No member gets `Ok` unless a sync that began after its commit succeeded.
//! - After a failed sync there is no other: Linux reports a lost page once and then calls it clean.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::vfs::WalPosition;

use crate::activity::slow::SlowTransaction;
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::write_queue::WriteQueue;
use crate::clock::Clock;
use crate::error::Error;
use crate::files::wal::WalFile;
use crate::options::Durability;
use crate::progress::{BatchNumber, Observers, Progress};
use crate::stats::Recorder;
use crate::threads::{Starter, Work, linger};
use crate::write::answers::{Answers, CommittedBatch};

/// How often the files are looked at where nothing is synced.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct HandoverState {
    batches: VecDeque<CommittedBatch>,
    /// Whether a thread was started, and has not left.
    is_attended: bool,
    closed: bool,
}

/// Where the writer leaves committed batches for the sync thread, which it starts if there is
/// none.
#[derive(Default)]
pub(crate) struct Handover {
    state: Mutex<HandoverState>,
    arrived: Condvar,
    pub(crate) starter: Starter,
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives back what is left here where no thread can be had.
    fn push(&self, batch: CommittedBatch) -> Option<VecDeque<CommittedBatch>> {
        let mut state = self.state();
        state.batches.push_back(batch);
        if state.is_attended || !self.starter.is_set() {
            drop(state);
            self.arrived.notify_one();
            return None;
        }
        state.is_attended = true;
        drop(state);
        self.starter.start().err()?;
        let mut state = self.state();
        state.is_attended = false;
        Some(std::mem::take(&mut state.batches))
    }

    /// Lets the sync thread end once everything is answered.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// All batches there are; `None` when it is closed, or there have been none for a while, and
    /// the thread leaves.
    fn take_all(&self) -> Option<VecDeque<CommittedBatch>> {
        let mut state = self.state();
        let mut is_late = false;
        while state.batches.is_empty() {
            if state.closed || is_late {
                state.is_attended = false;
                return None;
            }
            let waited = self.arrived.wait_timeout(state, linger());
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (state, is_late) = (woken, timeout.timed_out());
        }
        Some(std::mem::take(&mut state.batches))
    }
}

/// What `monolite-sync` does.
pub(crate) struct Syncing {
    pub(crate) database: DatabaseId,
    pub(crate) syncer: Arc<Syncer>,
}

impl Work for Syncing {
    const THREAD: &'static str = "monolite-sync";

    fn run(self) -> Syncing {
        let _inside = Inside::enter(self.database, Place::Write);
        self.syncer.run();
        self
    }
}

/// What the sync thread works with.
pub(crate) struct Syncer {
    pub(crate) handover: Handover,
    pub(crate) answers: Arc<Answers>,
    pub(crate) wal: Arc<WalFile>,
    /// When the files were looked at last, without a sync; nanoseconds of the clock.
    pub(crate) looked: AtomicU64,
    pub(crate) durability: Durability,
    pub(crate) progress: Arc<Progress>,
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Arc<Observers>,
}

impl Syncer {
    /// Runs until the handover is closed and empty, or has been empty for a while.
    pub(crate) fn run(&self) {
        while let Some(batches) = self.handover.take_all() {
            self.answer_safely(batches);
        }
    }

    /// A defect, of an observer, too, that panics here poisons the database: those who are being
    /// answered get `CommitUnknown`, and all others are answered as after any poisoning.
    fn answer_safely(&self, batches: VecDeque<CommittedBatch>) {
        let answered = catch_unwind(AssertUnwindSafe(|| self.answer(batches)));
        if answered.is_err() {
            self.poison("of a defect in the thread that syncs (it panicked)".into());
        }
    }

    fn answer(&self, batches: VecDeque<CommittedBatch>) {
        assert!(!batches.is_empty(), "a sync covers some batch");
        let are_in_order = batches.iter().is_sorted_by(|one, other| one.number < other.number);
        assert!(are_in_order, "batches are synced in the order of their numbers");
        let last = batches.back().map_or(BatchNumber::default(), |batch| batch.number);
        let end = batches.back().map_or(WalPosition::default(), |batch| batch.position);
        let is_durable = self.sync_up_to(last, end);
        batches.into_iter().for_each(|batch| self.give(batch, is_durable));
    }

    /// Has `batch` synced and answered: on the calling thread, the writer's, if it `is_alone` and
    /// every batch before it has been answered, else on the sync thread.
    pub(crate) fn finish(&self, batch: CommittedBatch, is_alone: bool) {
        let is_alone = is_alone && self.answers.unanswered() == 0;
        self.answers.owe(batch.members.len());
        if is_alone {
            let is_durable = self.sync_up_to(batch.number, batch.position);
            self.give(batch, is_durable);
        } else if let Some(batches) = self.handover.push(batch) {
            self.answer_safely(batches);
        }
    }

    /// Answers `batch`, and notes which of its runs were slow.
    fn give(&self, mut batch: CommittedBatch, is_durable: bool) {
        for (ended, slow) in batch.slow_runs.drain(..) {
            let sync = self.clock.now().saturating_sub(ended);
            self.recorder.slow_transactions.record(SlowTransaction { sync, ..slow });
        }
        self.answers.give(batch, is_durable);
    }

    /// Whether all up to batch `number`, which ends at `to`, is on disk; then that is told.
    fn sync_up_to(&self, number: BatchNumber, to: WalPosition) -> bool {
        let is_durable = self.sync().is_ok();
        if is_durable {
            self.progress.finish_sync(number);
            self.observers.iter().for_each(|observer| observer.durable(to));
        }
        is_durable
    }

    /// Puts everything committed so far on disk, or poisons the database.
    fn sync(&self) -> Result<(), Error> {
        self.progress.check_poison()?;
        let start = self.clock.now();
        let result = if self.durability == Durability::Buffered {
            self.look(start)
        } else {
            let result = self.wal.sync();
            self.recorder.sync_seconds.record_time(self.clock.now() - start);
            self.recorder.syncs.add(1);
            result
        };
        if let Err(error) = result {
            self.poison(format!("the WAL could not be synced ({error})"));
        }
        self.progress.check_poison()
    }

    fn poison(&self, reason: String) {
        self.progress.poison(reason);
        self.queue.close();
    }

    /// Looks at the files, unless that was done a moment ago.
    fn look(&self, now: Duration) -> io::Result<()> {
        let (now, last) = (now.as_nanos() as u64, self.looked.load(Ordering::Relaxed));
        if now.saturating_sub(last) < LOOK.as_nanos() as u64 {
            return Ok(());
        }
        self.looked.store(now, Ordering::Relaxed);
        self.wal.check()
    }
}

#[cfg(test)]
mod tests;
