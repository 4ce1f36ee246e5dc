//! Owns the engine's threads, from the opening of the files to the clean shutdown.
//!
//! # Threads and locks
//! - `monolite-write` runs [`Writer::step`] over what the queue holds.
//! - `monolite-sync` syncs the WAL and answers ([`crate::sync`]).
//! - `monolite-checkpoint` copies the WAL into the database ([`crate::checkpoint`]).
//! - `monolite-read-N` serve awaited reads ([`crate::read`]).
//!
//! None of them owns the [`Engine`], so dropping its last handle ends them.
//!
//! # Invariants
//! - Every write that got into the queue is answered, whatever ends the writer thread.
//! - After poisoning, no checkpoint runs: what the WAL holds is all there is to recover from.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use monolite_sqlite::CheckpointMode;
use monolite_sqlite::vfs::WalControl;

use crate::checkpoint::{Checkpointer, Checkpoints};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Files, Opened};
use crate::options::Options;
use crate::progress::Progress;
use crate::queue::{Queue, Taken};
use crate::read::ReadSide;
use crate::readers::{Reader, Readers};
use crate::stats::{Recorder, Stats};
use crate::sync::{Committed, Handover, Syncer};
use crate::transaction::{Opener as SessionOpener, Sessions, Transactions};
use crate::work::serve;
use crate::write::mark_writer_thread;
use crate::writer::{Entry, Room, WriteQueue, Writer};

/// How long the writer must be idle before the WAL is copied whatever its size.
const IDLE: Duration = Duration::from_millis(500);

/// One open database.
pub(crate) struct Engine {
    queue: Arc<WriteQueue>,
    reads: Arc<ReadSide>,
    transactions: Arc<Transactions>,
    handover: Arc<Handover>,
    checkpoints: Arc<Checkpoints>,
    progress: Arc<Progress>,
    recorder: Arc<Recorder>,
    wal: Arc<WalControl>,
    wal_frames_discarded: u64,
    own_threads: Vec<ThreadId>,
    life: Arc<Life>,
}

/// Whether the database is open, for everyone who closes it.
struct Life {
    stage: Mutex<Stage>,
    closed: Condvar,
}

enum Stage {
    Open(Running),
    Closing,
    Closed,
}

/// What is there from opening to closing.
struct Running {
    writer: JoinHandle<Option<Writer>>,
    syncer: JoinHandle<()>,
    checkpointer: JoinHandle<()>,
    readers: Vec<JoinHandle<()>>,
    // Last: the VFS and the registration must outlive every connection.
    files: Files,
}

impl Engine {
    /// Starts the threads over opened files.
    pub(crate) fn start(opened: Opened, options: &Options) -> Result<Engine> {
        let progress = Arc::new(Progress::default());
        let recorder = Arc::new(Recorder::default());
        let clock = Arc::clone(&options.clock);
        let queue = Arc::new(WriteQueue::new(options.queue_capacity, Arc::clone(&progress)));
        let handover = Arc::new(Handover::new(options.queue_capacity));
        let reads = read_side(
            (opened.readers, opened.sessions),
            (opened.is_exclusive, &opened.wal),
            options,
            &progress,
            &recorder,
        );
        let checkpoints = Arc::new(Checkpoints::new(
            Arc::clone(&opened.wal),
            Arc::clone(&reads),
            options,
            Arc::clone(&recorder),
        ));
        let transactions = transactions(options, &reads, &queue, &recorder);
        let (connection, deadline) = (opened.writer, opened.writer_deadline);
        let (figures, control) = (Arc::clone(&recorder), Arc::clone(&opened.wal));
        let told = Arc::clone(&progress);
        let writer = Writer::new(connection, deadline, options, figures, told, control);
        let syncer = Arc::new(Syncer {
            handover: Arc::clone(&handover),
            wal: opened.wal_file,
            durability: opened.durability,
            progress: Arc::clone(&progress),
            queue: Arc::clone(&queue),
            recorder: Arc::clone(&recorder),
            clock,
        });
        let write_loop = WriteLoop {
            queue: Arc::clone(&queue),
            syncer: Arc::clone(&syncer),
            checkpoints: Arc::clone(&checkpoints),
            progress: Arc::clone(&progress),
            max_batch: options.max_batch,
        };
        let checkpointer = Checkpointer {
            connection: opened.checkpointer,
            checkpoints: Arc::clone(&checkpoints),
            queue: Arc::clone(&queue),
            progress: Arc::clone(&progress),
        };
        let running = Running {
            writer: spawn("monolite-write", move || write_loop.run(writer))?,
            syncer: spawn("monolite-sync", move || syncer.run())?,
            checkpointer: spawn("monolite-checkpoint", move || checkpointer.run())?,
            readers: spawn_readers(options.readers, &reads)?,
            files: opened.files,
        };
        let wal = opened.wal;
        let own_threads = running.threads();
        let life = Arc::new(Life::new(running));
        Ok(Engine {
            queue,
            reads,
            transactions,
            handover,
            checkpoints,
            progress,
            recorder,
            wal,
            wal_frames_discarded: opened.wal_frames_discarded,
            own_threads,
            life,
        })
    }

    pub(crate) fn queue(&self) -> &Arc<WriteQueue> {
        &self.queue
    }

    pub(crate) fn reads(&self) -> &Arc<ReadSide> {
        &self.reads
    }

    pub(crate) fn transactions(&self) -> &Arc<Transactions> {
        &self.transactions
    }

    pub(crate) fn stats(&self) -> Stats {
        let (reads, kept) = self.reads.readers.counts();
        Stats {
            reads,
            reads_on_kept_snapshot: kept,
            open_transactions: self.transactions.open.load(Ordering::Relaxed) as u64,
            queue_depth: self.queue.len() as u64,
            unsynced_transactions: self.handover.unanswered(),
            wal_bytes: self.checkpoints.wal_bytes(),
            wal_bytes_max: self.wal.wal_bytes_max(),
            wal_frames_discarded: self.wal_frames_discarded,
            ..self.recorder.snapshot()
        }
    }

    /// Ends everything: answers what was accepted, waits for running reads, checkpoints, closes.
    ///
    /// A thread that the end would have to wait for (one that runs a closure of this database)
    /// does not wait for the end.
    pub(crate) fn close(&self) -> Result<()> {
        self.queue.close();
        self.reads.queue.close();
        let may_wait =
            !self.own_threads.contains(&thread::current().id()) && !self.reads.readers.is_inside();
        let mut stage = self.life.stage();
        match std::mem::replace(&mut *stage, Stage::Closing) {
            Stage::Open(running) => {
                drop(stage);
                let ending = Ending {
                    running,
                    reads: Arc::clone(&self.reads),
                    checkpoints: Arc::clone(&self.checkpoints),
                    progress: Arc::clone(&self.progress),
                    life: Arc::clone(&self.life),
                };
                if may_wait { ending.run() } else { spawn_ending(ending) }
            }
            Stage::Closing => {
                while may_wait && matches!(*stage, Stage::Closing) {
                    stage = self.life.closed.wait(stage).unwrap_or_else(PoisonError::into_inner);
                }
                Ok(())
            }
            Stage::Closed => {
                *stage = Stage::Closed;
                Ok(())
            }
        }
    }
}

impl Life {
    fn new(running: Running) -> Life {
        Life { stage: Mutex::new(Stage::Open(running)), closed: Condvar::new() }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of an engine, on whatever thread it happens.
struct Ending {
    running: Running,
    reads: Arc<ReadSide>,
    checkpoints: Arc<Checkpoints>,
    progress: Arc<Progress>,
    life: Arc<Life>,
}

impl Ending {
    fn run(self) -> Result<()> {
        let result = self.running.end(&self.reads, &self.checkpoints, &self.progress);
        *self.life.stage() = Stage::Closed;
        self.life.closed.notify_all();
        result
    }
}

fn spawn_ending(ending: Ending) -> Result<()> {
    spawn("monolite-close", move || {
        // Nobody is there to be told. What a failed checkpoint leaves, the next open recovers.
        let _ = ending.run();
    })?;
    Ok(())
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A failed last checkpoint loses nothing: the WAL stays and is recovered at the next open.
        let _ = self.close();
    }
}

impl Running {
    /// The threads on which closures of users run, or end.
    fn threads(&self) -> Vec<ThreadId> {
        let readers = self.readers.iter().map(|reader| reader.thread().id());
        readers.chain([self.writer.thread().id(), self.syncer.thread().id()]).collect()
    }

    fn end(
        mut self,
        reads: &ReadSide,
        checkpoints: &Checkpoints,
        progress: &Progress,
    ) -> Result<()> {
        let writer = self.writer.join().ok().flatten();
        let others_ended = self.syncer.join().is_ok()
            & self.readers.into_iter().map(JoinHandle::join).all(|end| end.is_ok());
        reads.close();
        checkpoints.stop();
        let checkpointer_ended = self.checkpointer.join().is_ok();
        let result = match writer {
            Some(writer) if others_ended && checkpointer_ended => {
                self.files.let_go();
                last_checkpoint(writer, progress)
            }
            _ => Err(Error::new(ErrorKind::Internal, "a thread of the engine panicked")),
        };
        drop(self.files);
        result
    }
}

/// Moves the WAL into the database and closes the last connection, which removes the WAL.
fn last_checkpoint(writer: Writer, progress: &Progress) -> Result<()> {
    progress.check_poison()?;
    let connection = writer.connection();
    connection.checkpoint(CheckpointMode::Truncate)?;
    connection.remove_wal_on_close()?;
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(body).map_err(|error| {
        let message = format!("the thread {name} cannot be started: {error}");
        Error::new(ErrorKind::Storage, message)
    })
}

fn read_side(
    (readers, sessions): (Vec<Reader>, SessionOpener),
    (keep_snapshots, wal): (bool, &Arc<WalControl>),
    options: &Options,
    progress: &Arc<Progress>,
    recorder: &Arc<Recorder>,
) -> Arc<ReadSide> {
    let readers = Readers::new(
        readers,
        keep_snapshots,
        options.read_time_limit,
        Arc::clone(&options.clock),
        Arc::clone(progress),
    );
    let sessions = Sessions::new(
        sessions,
        (
            options.transaction_connections,
            options.transaction_snapshot_age,
            options.read_time_limit,
        ),
        Arc::clone(&options.clock),
        Arc::clone(progress),
        Arc::clone(wal),
    );
    let queue = Queue::new(options.queue_capacity);
    Arc::new(ReadSide {
        readers,
        sessions,
        progress: Arc::clone(progress),
        queue,
        clock: Arc::clone(&options.clock),
        recorder: Arc::clone(recorder),
    })
}

fn transactions(
    options: &Options,
    reads: &Arc<ReadSide>,
    writes: &Arc<WriteQueue>,
    recorder: &Arc<Recorder>,
) -> Arc<Transactions> {
    Arc::new(Transactions {
        reads: Arc::clone(reads),
        writes: Arc::clone(writes),
        limits: options.transaction_limits(),
        clock: Arc::clone(&options.clock),
        recorder: Arc::clone(recorder),
        open: AtomicUsize::new(0),
    })
}

fn spawn_readers(count: usize, reads: &Arc<ReadSide>) -> Result<Vec<JoinHandle<()>>> {
    let spawn_one = |number| {
        let reads = Arc::clone(reads);
        spawn(&format!("monolite-read-{number}"), move || serve(&reads.queue))
    };
    (0..count).map(spawn_one).collect()
}

/// The writer thread's part outside of [`Writer`]: where batches come from and go to.
struct WriteLoop {
    queue: Arc<WriteQueue>,
    syncer: Arc<Syncer>,
    checkpoints: Arc<Checkpoints>,
    progress: Arc<Progress>,
    max_batch: usize,
}

impl WriteLoop {
    fn run(self, mut writer: Writer) -> Option<Writer> {
        mark_writer_thread();
        let mut members = VecDeque::new();
        let mut inbox = VecDeque::new();
        loop {
            let patience = (self.checkpoints.wal_bytes() > 0).then_some(IDLE);
            let taken = self.queue.take(self.max_batch, &mut members, patience);
            inbox.extend(members.drain(..).map(Entry::new));
            if self.checkpoints.is_finish_wanted() {
                self.finish_checkpoint(&writer);
            } else if taken == Taken::TimedOut {
                self.checkpoints.request();
            }
            while !inbox.is_empty() {
                self.one_batch(&mut writer, &mut inbox);
            }
            if taken == Taken::Closed {
                return Some(writer);
            }
        }
    }

    fn one_batch(&self, writer: &mut Writer, inbox: &mut VecDeque<Entry>) {
        let checkpoints = self.checkpoints.as_ref();
        let room =
            self.progress.check_poison().and_then(|()| checkpoints.reserve(writer.connection()));
        if let Err(error) = room {
            self.poison_if_failed_sync(&error);
            return refuse(inbox, &error);
        }
        let number = self.progress.start_commit();
        let members = writer.step(inbox, checkpoints);
        self.progress.finish_commit(number);
        if let Some(reason) = writer.failed_sync() {
            self.poison(reason.to_owned());
        }
        self.hand_over(Committed { number, members });
        self.checkpoints.note_growth();
        if self.checkpoints.is_finish_wanted() {
            self.finish_checkpoint(writer);
        }
    }

    fn hand_over(&self, batch: Committed) {
        let is_alone = batch.members.len() == 1 && self.queue.is_empty();
        let left = if is_alone { self.syncer.sync_now(batch) } else { Err(batch) };
        if let Err(batch) = left {
            self.syncer.handover.push(batch);
        }
    }

    fn finish_checkpoint(&self, writer: &Writer) {
        if self.progress.is_poisoned() {
            return;
        }
        // Any other failure (a full disk) leaves the WAL as it is; it is tried again as it grows.
        if let Err(error) = self.checkpoints.finish(writer.connection()) {
            self.poison_if_failed_sync(&error);
        }
    }

    fn poison_if_failed_sync(&self, error: &Error) {
        if error.is_failed_sync() {
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
        let mut rest = VecDeque::new();
        while self.queue.take(usize::MAX, &mut rest, None) != Taken::Closed {
            rest.drain(..).for_each(|member| self.queue.refuse(member));
        }
        self.syncer.handover.close();
    }
}

fn refuse(inbox: &mut VecDeque<Entry>, error: &Error) {
    for mut entry in inbox.drain(..) {
        entry.overrule(error.repeated());
        entry.answer();
    }
}
