//! Owns what the thread `monolite-write` does between two batches, and how it ends.
//!
//! # Algorithm
//! 1. Take what the queue holds; wait for it, for a bounded time while the WAL is to be copied or
//!    cut. A member that is to wait for the archive gets a [place](crate::call::places), or is
//!    refused.
//! 2. Do what others have asked for while no transaction is open: the end of a checkpoint, a WAL
//!    that restarts or gets shorter, the moment of a backup.
//! 3. Run it as batches ([`Writer::step`]), and hand each to the sync thread.
//! 4. End when there was nothing to do for a while. What comes then starts the thread again.
//!
//! # Invariants
//! - Whatever ends the thread, a panic included, everything in the queue is refused, and nothing
//!   gets into it any more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crate::call::between::BetweenBatches;
use crate::call::entry::Entry;
use crate::call::in_flight::{HeldBatch, InFlight};
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::member::Member;
use crate::call::queue::Taken;
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::Checkpoints;
use crate::engine::primary::LagLimit;
use crate::error::Error;
use crate::progress::{Observers, Progress};
use crate::threads::{Awake, Duty, Work, linger};
use crate::write::answers::CommittedBatch;
use crate::write::archived::Archived;
use crate::write::sync::Syncer;
use crate::write::writer::Writer;

/// The writer thread's part outside of [`Writer`]: where batches come from and go to.
pub(super) struct WriteLoop {
    pub(super) database: DatabaseId,
    pub(super) queue: Arc<WriteQueue>,
    pub(super) syncer: Arc<Syncer>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) progress: Arc<Progress>,
    pub(super) between: Arc<BetweenBatches>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) observers: Arc<Observers>,
    pub(super) max_batch: usize,
    pub(super) lag_limit: Option<LagLimit>,
    /// Where members wait for the archive, if there is one.
    pub(super) archived: Option<Arc<Archived>>,
}

/// What `monolite-write` does.
pub(super) struct Writing {
    pub(super) write_loop: WriteLoop,
    pub(super) writer: Writer,
}

impl Work for Writing {
    const THREAD: &'static str = "monolite-write";

    fn run(mut self) -> Writing {
        self.write_loop.run(&mut self.writer);
        self
    }
}

impl Writing {
    /// Has the queue start `duty`, and what watches it. All that comes is refused where no threads
    /// can be had.
    pub(super) fn serves(queue: &Arc<WriteQueue>, duty: &Arc<Duty<Writing>>, awake: Arc<Awake>) {
        let (duty, refused) = (Arc::downgrade(duty), Arc::downgrade(queue));
        queue.has_consumers_started(1, move || {
            let Some((duty, queue)) = duty.upgrade().zip(refused.upgrade()) else { return };
            let Err(error) = awake.ensure().and_then(|()| duty.start()) else { return };
            queue.lacks_consumer();
            for mut member in queue.drain() {
                member.overrule(error.repeated());
                member.answer();
            }
        });
    }
}

impl WriteLoop {
    fn run(&self, writer: &mut Writer) {
        let _inside = Inside::enter(self.database, Place::Write);
        writer.connection().maintenance().reserve_memory();
        let mut members = VecDeque::new();
        let in_flight = Arc::clone(&self.in_flight);
        let mut batch = in_flight.hold();
        loop {
            let patience = self.checkpoints.patience(|| self.syncer.wal.file_bytes());
            let idle = patience.unwrap_or_else(linger);
            let taken =
                self.queue.take_after(writer.spent(), self.max_batch, &mut members, Some(idle));
            batch.inbox.extend(members.drain(..).filter_map(|member| self.admit(member)));
            if self.checkpoints.is_finish_wanted() {
                self.finish_checkpoint(writer);
            } else if taken == Taken::TimedOut && self.checkpoints.wal_bytes() > 0 {
                self.checkpoints.request();
            } else if taken == Taken::TimedOut && patience.is_some() {
                self.shrink_wal(writer);
            }
            self.serve(writer);
            while !batch.inbox.is_empty() {
                self.one_batch(writer, &mut batch);
            }
            let is_idle = taken == Taken::TimedOut && patience.is_none();
            if taken == Taken::Closed {
                return;
            }
            if is_idle && self.queue.leave() {
                return writer.release_memory();
            }
        }
    }

    /// The member as the writer has it. One that is to wait for the archive, where it would get no
    /// place, is refused.
    fn admit(&self, member: Box<dyn Member>) -> Option<Entry> {
        let mut entry = Entry::new(member);
        if let Some(archived) = &self.archived
            && entry.member.terms().archive_wait.is_some()
        {
            match archived.places.take() {
                Ok(place) => entry.place = Some(place),
                Err(error) => {
                    entry.refuse(&error);
                    return None;
                }
            }
        }
        Some(entry)
    }

    fn one_batch(&self, writer: &mut Writer, batch: &mut HeldBatch<'_>) {
        let checkpoints = self.checkpoints.as_ref();
        let lag = || self.lag_limit.as_ref().map_or(Ok(()), LagLimit::check);
        let reserve = || checkpoints.reserve(writer.connection());
        let room = self.progress.check_poison().and_then(|()| lag()).and_then(|()| reserve());
        if let Err(error) = room {
            self.poison_if_lost(&error);
            return batch.inbox.drain(..).for_each(|entry| entry.refuse(&error));
        }
        let number = self.progress.start_commit();
        let members = writer.step(batch, checkpoints);
        self.progress.finish_commit(number);
        assert_eq!(self.progress.committed(), number, "one thread commits");
        self.observers.iter().for_each(|observer| observer.visible());
        if let Some(reason) = writer.lost_write() {
            let files = self
                .syncer
                .wal
                .what_happened()
                .map_or_else(String::new, |error| format!(": {error}"));
            self.poison(format!("{reason}{files}"));
        }
        let is_last = batch.inbox.is_empty() && self.queue.is_empty();
        let is_alone = members.len() == 1 && is_last;
        let position = checkpoints.position();
        let slow_runs = writer.take_slow_runs();
        let batch = CommittedBatch { number, position, members, slow_runs };
        self.syncer.finish(batch, is_alone);
        self.checkpoints.note_growth();
        if self.checkpoints.is_finish_wanted() {
            self.finish_checkpoint(writer);
        }
        self.serve(writer);
    }

    fn shrink_wal(&self, writer: &Writer) {
        if self.progress.is_poisoned() {
            return;
        }
        match self.checkpoints.shrink(writer.connection()) {
            Ok(()) => self.syncer.wal.set_aside(),
            Err(error) => self.poison_if_lost(&error),
        }
    }

    /// Does what others have asked for between two batches.
    fn serve(&self, writer: &Writer) {
        let lost = |error| self.poison(format!("a checkpoint could not be synced ({error})"));
        self.between.serve(writer.connection(), lost);
    }

    fn finish_checkpoint(&self, writer: &Writer) {
        if self.progress.is_poisoned() {
            return;
        }
        // Any other failure (a full disk) leaves the WAL as it is; it is tried again as it grows.
        if let Err(error) = self.checkpoints.finish(writer.connection()) {
            self.poison_if_lost(&error);
        }
    }

    fn poison_if_lost(&self, error: &Error) {
        if error.is_lost_write() {
            self.poison(format!("a checkpoint could not be synced ({error})"));
        }
    }

    fn poison(&self, reason: String) {
        self.progress.poison(reason);
        self.queue.close();
    }
}

impl Drop for WriteLoop {
    /// Runs at the regular end, and when a defect unwinds the writer thread.
    fn drop(&mut self) {
        if thread::panicking() {
            self.poison("of a defect in the writer (its thread panicked)".into());
        }
        self.queue.close();
        self.between.close();
        let mut rest = VecDeque::new();
        while self.queue.take(usize::MAX, &mut rest, None) != Taken::Closed {
            rest.drain(..).for_each(|member| self.queue.refuse(member));
        }
        self.syncer.handover.close();
    }
}
