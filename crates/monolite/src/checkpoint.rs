//! Owns the size of the WAL: when it is copied into the database, by whom, and what happens when it
//! nears its limit.
//!
//! # Algorithm
//! The WAL is append-only until it *restarts*: everything in it is in the database file, no commit
//! came in between, and no reader uses it. Then the next commit overwrites it from the start.
//!
//! 1. At [`START_BYTES`] or a quarter of the limit, or when the writer is idle, the
//!    **checkpointer** thread ends the snapshots of idle readers and copies pages on a connection
//!    of its own, while the writer goes on.
//! 2. It syncs the database file, and copies what was committed meanwhile in another pass, until
//!    that is little: so the writer's own copying and sync find little to do.
//! 3. Then it asks the **writer** to finish between two batches
//!    ([`Checkpoints::finish`]): copy the tail, sync, wait a moment for the reads that are under
//!    way, and let the next commit restart the WAL. Reads that begin meanwhile need nothing of it.
//!    One checkpoint is under way at a time; what was in the way of it has to last while the WAL
//!    grows by an eighth more.
//! 4. A reader with an old snapshot stops both copying and restart. From half of the limit on it
//!    is given [`GRACE`], from three quarters on only [`SHORT`]; then its snapshot is revoked.
//! 5. The writer starts no batch without room for one ([`Checkpoints::reserve`]): it waits,
//!    finishing checkpoints and revoking the readers that prevent it, and refuses with `Overloaded`
//!    when room does not come, at once when it is the archive that has no room for what the WAL
//!    holds. The WAL's limit itself is kept by the VFS, which refuses a commit
//!    that would cross it; the writer then has the WAL restart in the same way
//!    ([`Room::restart_wal`]).
//!
//! 6. A writer that has been idle for longer cuts a large WAL file to nothing
//!    ([`Checkpoints::shrink`]). Never to some bytes: a crash would find the older commits that are
//!    left, and recovery would put their pages over newer ones. Never while there is work: what is
//!    overwritten is written faster than what makes a file longer.
//!
//! # Threads and locks
//! `signal` is taken for a few instructions by the writer (once per batch, only to ask) and the
//! checkpointer. No lock is held during I/O.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::vfs::{WalControl, WalPosition, sync_database};
use monolite_sqlite::{Checkpoint, CheckpointMode, Connection};

use crate::archive::Archiving;
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::write_queue::WriteQueue;
use crate::clock::{self, Clock};
use crate::error::{Error, ErrorKind, Result};
use crate::files::wal::SET_ASIDE_BYTES;
use crate::options::Options;
use crate::progress::Progress;
use crate::read::holders::{Pinned, SnapshotHolders};
use crate::read::readers::{OpenReader, Reader};
use crate::stats::Recorder;
use crate::threads::{Starter, Work, linger};
use crate::write::writer::{Room, not_captured};

/// Size of the WAL at which it is copied, whatever the limit: recovery of it takes about a second,
/// and a page that is written again and again is copied once for some hundred thousand
/// transactions.
const START_BYTES: u64 = 128 << 20;

/// How long the writer must be idle before the WAL is copied whatever its size.
const IDLE: Duration = Duration::from_millis(500);

/// How long the writer must be idle before a WAL file that everything was copied from is cut: a
/// file that is there is written to faster than one that has to be made longer.
const LONG_IDLE: Duration = Duration::from_secs(2);

/// A WAL file of up to this size is not cut: so much of the disk it has anyway.
const KEPT_BYTES: u64 = SET_ASIDE_BYTES;

// A WAL that is cut is smaller than one that is copied, and cut later.
const _: () = assert!(KEPT_BYTES < START_BYTES && IDLE.as_millis() < LONG_IDLE.as_millis());

/// How long a read may pin the WAL once that is half full. Long enough for any request, short
/// enough that the other half of the limit is not written meanwhile.
const GRACE: Duration = Duration::from_secs(1);

/// A read that has not gone on for longer than this is not in anybody's way: it ends by itself.
const SHORT: Duration = Duration::from_millis(20);

const _: () = assert!(SHORT.as_micros() < GRACE.as_micros());

/// The writer is asked to finish when the WAL grew by no more than this during a pass and its sync:
/// some milliseconds of copying.
const TAIL_BYTES: u64 = 4 << 20;

/// The same in frames of pages of 4 KiB.
const TAIL_FRAMES: u32 = 1_000;

/// Passes in the background before the writer is asked to finish whatever is left.
const MAX_PASSES: u32 = 6;

/// The WAL grows by this part of the size at which it is copied before what a read prevented is
/// tried again: each time the writer waits for reads.
const RETRY_PARTS: u64 = 8;

/// How long the checkpointer rests before it tries again what a reader stopped.
const RETRY: Duration = Duration::from_millis(20);

/// How long the writer waits for running reads to leave the WAL before it goes on appending.
const READER_GAP: Duration = Duration::from_millis(10);

/// How often it looks. It sleeps meanwhile: the reads need a core to end on.
const READER_POLL: Duration = Duration::from_micros(50);

#[derive(Default)]
struct Signal {
    wanted: bool,
    /// A checkpoint that was wanted is being copied, or waits for the writer to finish it.
    under_way: bool,
    /// Whether a thread was started, and has not left.
    is_attended: bool,
    stop: bool,
}

/// What the writer, the checkpointer and the options have in common.
pub(crate) struct Checkpoints {
    signal: Mutex<Signal>,
    changed: Condvar,
    pub(crate) starter: Starter,
    finish_wanted: AtomicBool,
    /// Size of the WAL when it was copied whole, so that the next commit restarts it.
    restartable_at: AtomicU64,
    /// Size of the WAL when a read last kept it from that; 0 since it was copied whole.
    blocked_at: AtomicU64,
    wal: Arc<WalControl>,
    limit: u64,
    /// How long the writer waits for room.
    patience: Duration,
    /// How old the snapshot of an interactive transaction may get between two statements.
    snapshot_age: Duration,
    holders: Arc<SnapshotHolders>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    /// Who reads the WAL before it begins anew, if there is an archive.
    archiving: Option<Arc<dyn Archiving>>,
}

impl Checkpoints {
    pub(crate) fn new(
        wal: Arc<WalControl>,
        holders: Arc<SnapshotHolders>,
        archiving: Option<Arc<dyn Archiving>>,
        options: &Options,
        recorder: Arc<Recorder>,
    ) -> Checkpoints {
        Checkpoints {
            signal: Mutex::default(),
            changed: Condvar::new(),
            starter: Starter::default(),
            finish_wanted: AtomicBool::new(false),
            restartable_at: AtomicU64::new(u64::MAX),
            blocked_at: AtomicU64::new(0),
            wal,
            limit: options.wal_limit_bytes,
            patience: options.write_time_limit,
            snapshot_age: options.interactive.snapshot_age,
            holders,
            clock: Arc::clone(&options.clock),
            recorder,
            archiving,
        }
    }

    fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the WAL that the next commit will not overwrite.
    pub(crate) fn wal_bytes(&self) -> u64 {
        let bytes = self.wal.wal_bytes();
        if bytes == self.restartable_at.load(Ordering::Relaxed) { 0 } else { bytes }
    }

    /// Where the latest commit is. To be asked on the writer's thread.
    pub(crate) fn position(&self) -> WalPosition {
        self.wal.committed()
    }

    /// Wakes the checkpointer when the WAL has grown enough. Called after each batch.
    pub(crate) fn note_growth(&self) {
        if self.wal.wal_bytes() != self.restartable_at.load(Ordering::Relaxed) {
            self.restartable_at.store(u64::MAX, Ordering::Relaxed);
        }
        let start = START_BYTES.min(self.limit / 4);
        let blocked_at = self.blocked_at.load(Ordering::Relaxed);
        let again = if blocked_at == 0 { start } else { blocked_at + start / RETRY_PARTS };
        if self.wal_bytes() >= start.max(again) {
            self.request();
        }
    }

    /// Wakes the checkpointer whatever the size, if it has nothing to do. A request that finds it
    /// at work is dropped and repeated after the next batch, as the checkpoint under way may
    /// restart the WAL.
    pub(crate) fn request(&self) {
        let mut signal = self.signal();
        if signal.wanted || signal.under_way {
            return;
        }
        signal.wanted = true;
        self.changed.notify_one();
        let is_alone = self.starter.is_set() && !std::mem::replace(&mut signal.is_attended, true);
        drop(signal);
        if is_alone && self.starter.start().is_err() {
            let mut signal = self.signal();
            (signal.wanted, signal.is_attended) = (false, false);
        }
    }

    /// How long the writer waits for something to do before something is done about the WAL, whose
    /// file has so many bytes.
    pub(crate) fn patience(&self, file_bytes: impl FnOnce() -> u64) -> Option<Duration> {
        if self.wal_bytes() > 0 {
            return Some(IDLE);
        }
        (file_bytes() > KEPT_BYTES).then_some(LONG_IDLE)
    }

    pub(crate) fn stop(&self) {
        self.signal().stop = true;
        self.changed.notify_one();
    }

    /// Whether the writer should call [`Checkpoints::finish`] before its next batch.
    pub(crate) fn is_finish_wanted(&self) -> bool {
        self.finish_wanted.load(Ordering::Acquire)
    }

    /// Copies what is left and makes the next commit restart the WAL, if readers allow. On the
    /// writer's thread, between batches.
    ///
    /// # Errors
    /// Those of SQLite; the WAL then goes on growing, and a failed sync poisons the database.
    pub(crate) fn finish(&self, writer: &Connection) -> Result<Checkpoint> {
        self.finish_wanted.store(false, Ordering::Release);
        let start = self.clock.now();
        let done = self.restart(writer);
        self.signal().under_way = false;
        let done = done?;
        let bytes = self.wal.wal_bytes();
        if done.is_complete() && !done.blocked {
            self.restartable_at.store(bytes, Ordering::Relaxed);
            self.blocked_at.store(0, Ordering::Relaxed);
            self.recorder.checkpoints_completed.add(1);
        } else {
            self.blocked_at.store(bytes, Ordering::Relaxed);
        }
        self.recorder.writer_pause_seconds.record_time(self.clock.now() - start);
        Ok(done)
    }

    /// Cuts the WAL file to nothing, if everything in it was copied and no reader uses it; else it
    /// stays as it is. On the writer's thread, between batches.
    ///
    /// # Durability
    /// SQLite syncs the database first. A crash leaves a WAL that says nothing else than it.
    ///
    /// # Errors
    /// Those of SQLite; a failed sync poisons the database.
    pub(crate) fn shrink(&self, writer: &Connection) -> Result<()> {
        self.holders.release_idle(Duration::ZERO);
        writer.checkpoint(CheckpointMode::Truncate)?;
        if self.wal.wal_bytes() == 0 {
            self.archiving.iter().for_each(|archiving| archiving.settled());
        }
        Ok(())
    }

    fn restart(&self, writer: &Connection) -> Result<Checkpoint> {
        let mut done = writer.checkpoint(CheckpointMode::Restart)?;
        // The tail is copied; the time that this took is not taken from the reads'.
        let copied = self.clock.now();
        while done.blocked
            && !self.is_archive_in_the_way(done)
            && self.clock.now() - copied < READER_GAP
        {
            let pinned = self.holders.release_idle(Duration::ZERO);
            if pinned.is_some_and(|pinned| pinned.oldest > SHORT) {
                break;
            }
            clock::rest(READER_POLL);
            done = writer.checkpoint(CheckpointMode::Restart)?;
        }
        Ok(done)
    }

    /// Whether it is the archive, which lacks room for what the WAL holds, that keeps the WAL from
    /// restarting. It is asked when everything is copied.
    fn is_archive_in_the_way(&self, done: Checkpoint) -> bool {
        done.blocked && done.is_complete() && self.wal.is_gate_shut()
    }

    /// Ends unused snapshots, and that of an interactive transaction before its age when the WAL is
    /// half full.
    fn release_idle(&self) -> Option<Pinned> {
        let is_early = self.wal_bytes() >= self.limit / 2;
        self.holders.release_idle(if is_early { Duration::ZERO } else { self.snapshot_age })
    }

    /// Waits until the WAL has room for an ordinary batch.
    ///
    /// # Errors
    /// As [`Room::restart_wal`].
    pub(crate) fn reserve(&self, writer: &Connection) -> Result<()> {
        if self.has_room() { Ok(()) } else { self.restart_wal(writer) }
    }

    /// Whether an eighth of the limit is free.
    fn has_room(&self) -> bool {
        self.wal_bytes() + self.limit / 8 <= self.limit
    }

    fn no_room(&self) -> Error {
        let keepers = self.holders.running().into_iter().filter(|call| call.keeps_wal);
        let keeper = keepers.max_by_key(|call| call.time);
        let message = format!(
            "the WAL holds {} of at most {} bytes and a reader keeps it from restarting{}; end \
             long reads, or raise the option wal_limit_bytes",
            self.wal_bytes(),
            self.limit,
            keeper.map_or_else(String::new, |it| format!(", {}", it.held()))
        );
        Error::new(ErrorKind::Overloaded, message)
    }
}

impl Room for Checkpoints {
    fn restart_wal(&self, writer: &Connection) -> Result<()> {
        self.recorder.wal_stalls.add(1);
        let bytes = format_args!("it has {} bytes", self.wal_bytes());
        self.recorder.events().warn("writes wait for room in the WAL", bytes);
        let start = self.clock.now();
        let holders = &self.holders;
        let mut copied_at = None;
        loop {
            let done = self.finish(writer)?;
            if done.is_complete() && !done.blocked {
                return Ok(());
            }
            if self.is_archive_in_the_way(done) {
                return Err(not_captured());
            }
            let now = self.clock.now();
            if done.is_complete() {
                copied_at.get_or_insert(now);
            }
            match copied_at {
                Some(moment) => holders.revoke_taken_before(moment, SHORT),
                None => holders.revoke_outdated(SHORT),
            }
            if now - start > self.patience {
                return Err(self.no_room());
            }
            clock::rest(Duration::from_millis(1));
        }
    }
}

/// What `monolite-checkpoint` does, on a connection that it has open meanwhile.
pub(crate) struct Checkpointer {
    pub(crate) database: DatabaseId,
    pub(crate) open: OpenReader,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) queue: Arc<WriteQueue>,
    pub(crate) progress: Arc<Progress>,
}

impl Work for Checkpointer {
    const THREAD: &'static str = "monolite-checkpoint";

    fn run(self) -> Checkpointer {
        let _inside = Inside::enter(self.database, Place::Write);
        let mut reader = None;
        while self.wait_for_work() {
            let copied = if self.progress.is_poisoned() {
                Ok(false)
            } else {
                self.connection(&mut reader).and_then(|connection| self.copy(connection))
            };
            if let Err(error) = &copied
                && error.is_lost_write()
            {
                self.progress.poison(format!("a checkpoint could not be synced ({error})"));
                self.queue.close();
            }
            if matches!(copied, Ok(true)) {
                self.checkpoints.finish_wanted.store(true, Ordering::Release);
                self.queue.kick();
            } else {
                self.checkpoints.signal().under_way = false;
            }
        }
        self
    }
}

impl Checkpointer {
    fn connection<'r>(&self, reader: &'r mut Option<Reader>) -> Result<&'r Connection> {
        if reader.is_none() {
            *reader = Some((self.open)()?);
        }
        Ok(&reader.as_ref().expect("it was opened").connection)
    }

    /// Whether there is work; not when it is told to stop, or there has been none for a while.
    fn wait_for_work(&self) -> bool {
        let mut signal = self.checkpoints.signal();
        let mut is_late = false;
        while !signal.wanted && !signal.stop && !is_late {
            let waited = self.checkpoints.changed.wait_timeout(signal, linger());
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            (signal, is_late) = (woken, timeout.timed_out());
        }
        if signal.stop || !signal.wanted {
            signal.is_attended = false;
            return false;
        }
        (signal.wanted, signal.under_way) = (false, true);
        true
    }

    /// Copies in passes until the writer can finish; `false` when a reader's old snapshot is what
    /// is in the way.
    fn copy(&self, connection: &Connection) -> Result<bool> {
        for _ in 0..MAX_PASSES {
            let pinned = self.checkpoints.release_idle();
            let before = self.checkpoints.wal.wal_bytes();
            let done = self.pass(connection)?;
            if done.wal_frames - done.copied_frames > TAIL_FRAMES {
                if let Some(pinned) = pinned {
                    self.press(pinned.oldest);
                    return Ok(false);
                }
                continue;
            }
            sync_database(connection.raw())?;
            // What SQLite says of the WAL is from the beginning of the pass.
            let now = self.checkpoints.wal.wal_bytes();
            if now.saturating_sub(before) <= TAIL_BYTES || now >= self.checkpoints.limit / 2 {
                break;
            }
        }
        self.checkpoints.archiving.iter().for_each(|archiving| archiving.prepare());
        Ok(true)
    }

    fn pass(&self, connection: &Connection) -> Result<Checkpoint> {
        let clock = &self.checkpoints.clock;
        let start = clock.now();
        let done = connection.checkpoint(CheckpointMode::Passive)?;
        self.checkpoints.recorder.checkpoint_passes.add(1);
        self.checkpoints.recorder.checkpoint_seconds.record_time(clock.now() - start);
        Ok(done)
    }

    /// Presses readers whose snapshot, `oldest` at most, stands in the way.
    fn press(&self, oldest: Duration) {
        let (bytes, limit) = (self.checkpoints.wal_bytes(), self.checkpoints.limit);
        let holders = &self.checkpoints.holders;
        if bytes >= limit / 4 * 3 {
            holders.revoke_outdated(SHORT);
        } else if bytes >= limit / 2 && oldest >= GRACE {
            holders.revoke_outdated(GRACE);
        }
        clock::rest(RETRY);
    }
}
