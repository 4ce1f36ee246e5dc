//! Owns the engine's threads, from the opening of the files to the clean shutdown.
//!
//! # Threads and locks
//! - `monolite-write` runs [`Writer::step`] over what the queue holds.
//! - `monolite-sync` syncs the WAL and answers ([`crate::write::sync`]).
//! - `monolite-checkpoint` copies the WAL into the database ([`crate::checkpoint`]).
//! - `monolite-read-N` serve awaited reads, `monolite-tx-N` awaited statements of interactive
//!   transactions ([`crate::read::threads`]).
//! - `monolite-untrusted-N` run untrusted queries, `monolite-untrusted-time` ends those that are
//!   late ([`crate::untrusted`]).
//! - `monolite-watch` looks whether closures come back ([`crate::watchdog`]).
//! - `monolite-archived` answers those who wait for the archive, where there is one
//!   ([`crate::write::archived`]).
//! - `monolite-close` waits for all of them to end.
//!
//! All but the last two are started by the first work for them, and end when they have had none for
//! a while ([`crate::threads`]). None owns the [`Engine`], so dropping its last handle ends them.
//!
//! # Invariants
//! - Every write that got into the queue is answered, whatever ends the writer thread.
//! - After poisoning, no checkpoint runs: what the WAL holds is all there is to recover from. But
//!   one does at the close, when the reason was that the WAL has lost its name: no later open would
//!   find its content. Its syncs until then have succeeded, so what is read of it is what was
//!   written.

mod parts;
mod primary;
mod write_loop;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use monolite_sqlite::vfs::{Spill, WalControl};
use monolite_sqlite::{CheckpointMode, Rowids, page_cache_bytes, trim_memory};

use crate::activity::{Activity, Caller};
use crate::archive::Archiving;
use crate::backup;
use crate::call::between::BetweenBatches;
use crate::call::discards::drop_elsewhere;
use crate::call::in_flight::InFlight;
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::write_queue::WriteQueue;
use crate::checkpoint::{Checkpointer, Checkpoints};
use crate::clock::Stopwatch;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open::{Files, Opened, RecoveredWal};
use crate::files::wal::WalFile;
use crate::jobs::{Job, Jobs};
use crate::lookout::Lookout;
use crate::maintenance::{Maintenance, optimize_every};
use crate::options::{Durability, Options};
use crate::progress::Progress;
use crate::read::handle::ReadSide;
use crate::read::readers::OpenReader;
use crate::read::threads::ReadThreads;
use crate::stats::{Recorder, Stats};
use crate::threads::{Awake, Duty, spawn};
use crate::transaction::Transactions;
use crate::untrusted::UntrustedRoom;
use crate::watchdog::{Watchdog, Watching};
use crate::write::answers::Answers;
use crate::write::sync::{Syncer, Syncing};
use crate::write::writer::Writer;
use parts::{Base, observers};
use primary::{ArchiveSide, LagLimit, answers};
use write_loop::{WriteLoop, Writing};

/// How often a close looks whether it waits for a closure that does not come back.
const LOOK: Duration = Duration::from_millis(20);

/// How long a close waits for one: it may have been told to end just now.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// How long the last checkpoint waits for untrusted queries, which were interrupted just now.
const UNTRUSTED_PATIENCE: Duration = Duration::from_millis(500);

/// One open database.
pub(crate) struct Engine {
    database: DatabaseId,
    parts: Parts,
    answers: Arc<Answers>,
    recorder: Arc<Recorder>,
    wal: Arc<WalControl>,
    recovered: RecoveredWal,
    spill: Arc<Spill>,
    rowids: Option<Arc<Rowids>>,
    is_tracking_pages: bool,
    stream_stall_limit: Duration,
    backups: backup::Source,
    maintenance: Maintenance,
    archiving: Option<Arc<dyn Archiving>>,
    durability: Durability,
    archive_time_limit: Duration,
    /// Runs until the end.
    _optimizer: Option<Job<()>>,
    life: Arc<Life>,
}

/// What the threads share, and has to be told when they are to end.
#[derive(Clone)]
struct Parts {
    queue: Arc<WriteQueue>,
    reads: Arc<ReadSide>,
    streams: Arc<ReadSide>,
    transactions: Arc<Transactions>,
    checkpoints: Arc<Checkpoints>,
    progress: Arc<Progress>,
    lookout: Arc<Lookout>,
    watchdog: Arc<Watchdog>,
    awake: Arc<Awake>,
    jobs: Arc<Jobs>,
    untrusted: Arc<UntrustedRoom>,
}

impl Parts {
    /// Refuses all new work.
    fn shut(&self) {
        self.queue.close();
        self.threads().iter().for_each(|threads| threads.close());
        self.untrusted.shut();
        self.jobs.shut();
        self.transactions.contention.close();
    }

    fn write_loop(
        &self,
        syncer: &Arc<Syncer>,
        between: &Arc<BetweenBatches>,
        in_flight: Arc<InFlight>,
        options: &Options,
        archive: Option<&ArchiveSide>,
    ) -> WriteLoop {
        WriteLoop {
            database: self.queue.database(),
            queue: Arc::clone(&self.queue),
            syncer: Arc::clone(syncer),
            checkpoints: Arc::clone(&self.checkpoints),
            progress: Arc::clone(&self.progress),
            between: Arc::clone(between),
            in_flight,
            observers: Arc::clone(&syncer.observers),
            max_batch: options.max_batch,
            lag_limit: LagLimit::of(archive, options),
            archived: archive.map(|archive| Arc::clone(&archive.archived)),
        }
    }

    fn checkpointer(&self, open: OpenReader) -> Checkpointer {
        Checkpointer {
            database: self.queue.database(),
            open,
            checkpoints: Arc::clone(&self.checkpoints),
            queue: Arc::clone(&self.queue),
            progress: Arc::clone(&self.progress),
        }
    }

    fn maintenance(&self, backups: &backup::Source) -> Maintenance {
        Maintenance {
            open_reader: Arc::clone(&backups.open_reader),
            between: Arc::clone(&backups.between),
            checkpoints: Arc::clone(&self.checkpoints),
            pins: Arc::clone(&backups.pins),
        }
    }

    /// All threads that run awaited work.
    fn threads(&self) -> [&Arc<ReadThreads>; 3] {
        [&self.reads.threads, &self.transactions.threads, &self.streams.threads]
    }

    /// Whether a closure or an untrusted query has overrun its time and not come back.
    fn is_stuck(&self) -> bool {
        self.watchdog.is_stuck() || self.untrusted.is_stuck()
    }

    /// Waits for reads and statements to end, closes their connections, and refuses more.
    fn close_readers(&self) {
        self.reads.readers.close();
        self.streams.readers.close();
        self.transactions.pool.close();
    }
}

/// What threads do while there is something to do.
struct Duties {
    write: Arc<Duty<Writing>>,
    sync: Arc<Duty<Syncing>>,
    checkpoint: Arc<Duty<Checkpointer>>,
    watch: Arc<Duty<Watching>>,
}

impl Duties {
    /// Has each be started by those who bring work.
    fn new(
        parts: &Parts,
        writing: Writing,
        syncer: Arc<Syncer>,
        open_checkpointer: OpenReader,
    ) -> Duties {
        let database = parts.queue.database();
        let duties = Duties {
            write: Duty::new(writing),
            sync: Duty::new(Syncing { database, syncer: Arc::clone(&syncer) }),
            checkpoint: Duty::new(parts.checkpointer(open_checkpointer)),
            watch: Duty::new(Watching(Arc::clone(&parts.watchdog))),
        };
        Writing::serves(&parts.queue, &duties.write, Arc::clone(&parts.awake));
        syncer.handover.starter.set(&duties.sync);
        parts.checkpoints.starter.set(&duties.checkpoint);
        parts.awake.starter.set(&duties.watch);
        duties
    }
}

/// Whether the database is open, for everyone who closes it.
struct Life {
    stage: Mutex<Stage>,
    closed: Condvar,
}

enum Stage {
    Open(Running),
    Closing,
    /// The result goes to the caller of the close.
    Closed(Result<()>),
}

/// What is there from opening to closing.
struct Running {
    duties: Duties,
    /// The thread that answers those who wait for the archive, where there is one.
    archived: Option<JoinHandle<()>>,
    wal_file: Arc<WalFile>,
    archive: Option<ArchiveSide>,
    // Last: the VFS and the registration must outlive every connection.
    files: Files,
}

impl Engine {
    /// Starts the threads over opened files.
    pub(crate) fn start(opened: Opened, options: &Options) -> Result<Engine> {
        let base = Base::new(options, &opened.path);
        let queue = base.write_queue();
        let archive = ArchiveSide::of(&opened, options, &base.progress);
        if let Some(last) = options.replica.clone() {
            opened.wal.set_gate(move |next| last.lets(next));
        }
        let archived = archive.as_ref();
        let answers = answers(archived, options.queue_capacity, &base.progress);
        let backups = base.backups(&opened, &queue);
        let (reads, streams) = base.read_sides(&opened.open_reader, opened.is_exclusive, archived);
        if !opened.is_exclusive {
            reads.readers.open_first()?;
        }
        let pool = base.pool(opened.pool, &opened.wal);
        let untrusted = base.untrusted(opened.open_untrusted);
        let holders = base.holders(&reads, &pool, &streams, &backups, &untrusted);
        let checkpoints = base.checkpoints(&opened.wal, archived, &holders);
        let transactions = base.transactions(pool, &queue, opened.rowids.as_deref());
        let writer = base.writer(opened.writer, opened.writer_deadline, &opened.wal);
        // It is idle until the first write.
        writer.release_memory();
        let told = observers(&transactions, archived);
        let syncer = base.syncer(&opened.wal_file, opened.durability, &answers, &queue, told);
        let in_flight = Arc::new(InFlight::new(Arc::clone(&options.clock)));
        let threads = [&reads.threads, &transactions.threads, &streams.threads];
        let lookout = base.lookout(&queue, &in_flight, &holders, threads);
        let watchdog = base.watchdog(&queue, &in_flight, holders, &lookout);
        let Base { database, progress, recorder, awake, .. } = base;
        let parts = Parts {
            queue,
            reads,
            streams,
            transactions,
            checkpoints,
            progress,
            lookout,
            watchdog,
            awake,
            jobs: Arc::new(Jobs::new(database)),
            untrusted,
        };
        let between = &backups.between;
        let write_loop = parts.write_loop(&syncer, between, in_flight, options, archived);
        let writing = Writing { write_loop, writer };
        let duties = Duties::new(&parts, writing, syncer, opened.open_checkpointer);
        let wal_file = Arc::clone(&opened.wal_file);
        let running = Running::start(duties, &parts, wal_file, archive.clone(), opened.files)?;
        let engine = Engine {
            database,
            answers,
            recorder,
            wal: opened.wal,
            recovered: opened.recovered,
            spill: opened.spill,
            rowids: opened.rowids,
            is_tracking_pages: opened.is_tracking_pages,
            stream_stall_limit: options.stream_stall_limit,
            maintenance: parts.maintenance(&backups),
            backups,
            archiving: opened.archiving,
            durability: opened.durability,
            archive_time_limit: options.archive_time_limit(),
            _optimizer: optimizer(&parts, options),
            life: Arc::new(Life::new(running)),
            parts,
        };
        archive.map(|archive| archive.start(&engine, opened.wal_file)).transpose()?;
        Ok(engine)
    }

    pub(crate) fn queue(&self) -> &Arc<WriteQueue> {
        &self.parts.queue
    }

    pub(crate) fn reads(&self) -> &Arc<ReadSide> {
        &self.parts.reads
    }

    pub(crate) fn stream_stall_limit(&self) -> Duration {
        self.stream_stall_limit
    }

    pub(crate) fn streams(&self) -> &Arc<ReadSide> {
        &self.parts.streams
    }

    pub(crate) fn untrusted(&self) -> &Arc<UntrustedRoom> {
        &self.parts.untrusted
    }

    pub(crate) fn transactions(&self) -> &Arc<Transactions> {
        &self.parts.transactions
    }

    pub(crate) fn lookout(&self) -> &Lookout {
        &self.parts.lookout
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.parts.jobs
    }

    pub(crate) fn maintenance(&self) -> &Maintenance {
        &self.maintenance
    }

    pub(crate) fn backups(&self) -> &backup::Source {
        &self.backups
    }

    pub(crate) fn stats(&self) -> Stats {
        let (reads, kept) = self.parts.reads.readers.counts();
        let (streams, kept_by_streams) = self.parts.streams.readers.counts();
        let (reads, kept) = (reads + streams, kept + kept_by_streams);
        Stats {
            reads,
            reads_on_kept_snapshot: kept,
            open_transactions: self.parts.transactions.open.load(Ordering::Relaxed) as u64,
            queue_depth: self.parts.queue.len() as u64,
            writer_busy_seconds: self.parts.lookout.writer_busy().as_secs_f64(),
            unsynced_transactions: self.answers.unsynced(),
            archive: self.archiving.as_ref().map(|archiving| archiving.stats()),
            wal_bytes: self.parts.checkpoints.wal_bytes(),
            wal_bytes_max: self.wal.wal_bytes_max(),
            temp_bytes: self.spill.bytes(),
            temp_bytes_max: self.spill.bytes_max(),
            wal_frames_recovered: self.recovered.frames,
            wal_frames_discarded: self.recovered.discarded,
            slow_calls: self.recorder.slow_transactions.total(),
            ids_given_out: self.rowids.as_ref().map_or(0, |rowids| rowids.given()),
            is_tracking_pages: self.is_tracking_pages,
            page_cache_bytes: page_cache_bytes(),
            ..self.recorder.snapshot()
        }
    }

    /// Ends everything: answers what was accepted, waits for running reads, checkpoints, closes.
    ///
    /// # Errors
    /// See [`Database::close`](crate::Database::close).
    pub(crate) fn close(&self) -> Result<()> {
        self.database.check_process()?;
        if self.has_to_go_on() {
            return Err(closed_inside());
        }
        self.begin_end();
        self.wait_for_end()
    }

    /// Has everything end on a thread of its own, unless that was done before.
    fn begin_end(&self) {
        let mut stage = self.life.stage();
        let running = match std::mem::replace(&mut *stage, Stage::Closing) {
            Stage::Open(running) => running,
            closing => return *stage = closing,
        };
        drop(stage);
        self.parts.shut();
        self.answers.close();
        let (parts, life) = (self.parts.clone(), Arc::clone(&self.life));
        let ending = Ending { running, parts, life };
        let ending = Arc::new(Mutex::new(Some(ending)));
        let theirs = Arc::clone(&ending);
        let run = |ending: &Mutex<Option<Ending>>| {
            let ending = ending.lock().unwrap_or_else(PoisonError::into_inner).take();
            ending.into_iter().for_each(Ending::run);
        };
        if spawn("monolite-close", move || run(&theirs)).is_ok() {
            return;
        }
        // Without a thread to be had it is done on this one, unless it would wait for itself.
        if self.has_to_go_on() {
            return drop_elsewhere(Guard(Some(move || run(&ending))));
        }
        run(&ending);
    }

    /// Whether this is a thread for whose end the end would wait.
    fn has_to_go_on(&self) -> bool {
        let this = thread::current().id();
        self.database.is_around() || self.parts.threads().iter().any(|threads| threads.is_own(this))
    }

    fn wait_for_end(&self) -> Result<()> {
        let mut stage = self.life.stage();
        let mut stuck = Stopwatch::start();
        loop {
            if let Stage::Closed(result) = &*stage {
                return result.as_ref().map_err(Error::repeated).copied();
            }
            if !self.parts.is_stuck() {
                stuck = Stopwatch::start();
            } else if stuck.elapsed() > LAST_PATIENCE {
                return Err(closing_is_stuck(&self.parts.lookout.running()));
            }
            let waited = self.life.closed.wait_timeout(stage, LOOK);
            stage = waited.unwrap_or_else(PoisonError::into_inner).0;
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

/// Runs what it has when it is dropped.
struct Guard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Guard<F> {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|run| run());
    }
}

/// The end of an engine, on whatever thread it happens.
struct Ending {
    running: Running,
    parts: Parts,
    life: Arc<Life>,
}

impl Ending {
    fn run(self) {
        let Ending { running, parts, life } = self;
        let result = running.end(&parts);
        *life.stage() = Stage::Closed(result);
        life.closed.notify_all();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.database.check_process().is_err() {
            // The files, locks and threads are the parent's, and so is what they end with.
            return std::mem::forget(Arc::clone(&self.life));
        }
        self.begin_end();
        if !self.has_to_go_on() {
            // A failed last checkpoint loses nothing: the WAL stays and is recovered at the next
            // open. A closure that does not come back has the rest done when it does.
            let _ = self.wait_for_end();
        }
    }
}

impl Running {
    /// Starts the thread that an archive needs all the time.
    fn start(
        duties: Duties,
        parts: &Parts,
        wal_file: Arc<WalFile>,
        archive: Option<ArchiveSide>,
        files: Files,
    ) -> Result<Running> {
        let database = parts.queue.database();
        let archived = archive.as_ref().map(|archive| Arc::clone(&archive.archived));
        let mut running = Running { duties, archived: None, wal_file, archive, files };
        let Some(archived) = archived else { return Ok(running) };
        match spawn("monolite-archived", answering(database, move || archived.run())) {
            Ok(thread) => running.archived = Some(thread),
            Err(error) => {
                parts.shut();
                // Nothing was written that could be lost.
                let _ = running.end(parts);
                return Err(error);
            }
        }
        Ok(running)
    }

    fn end(mut self, parts: &Parts) -> Result<()> {
        let Parts { checkpoints, progress, watchdog, .. } = parts;
        let Duties { write, sync, checkpoint, watch } = self.duties;
        // The queue is closed, and the handover behind it by the end of the loop.
        let writer = write.end().map(|Writing { writer, .. }| writer);
        let syncer_ended = sync.end().is_some();
        if let Some(archive) = &self.archive {
            archive.archiving.close();
            archive.archived.close();
        }
        let readers_ended =
            parts.threads().iter().fold(true, |ended, threads| ended & threads.join());
        parts.jobs.join();
        parts.close_readers();
        checkpoints.stop();
        watchdog.stop();
        let others_ended = checkpoint.end().is_some() & watch.end().is_some();
        let others_ended = others_ended & self.archived.is_none_or(|thread| thread.join().is_ok());
        // With a connection left the WAL file stays, empty.
        parts.untrusted.wait_for_end(UNTRUSTED_PATIENCE);
        let result = match writer {
            Some(writer) if syncer_ended && readers_ended && others_ended => {
                self.files.let_go();
                let archive = self.archive.as_ref();
                let last = last_checkpoint(&writer, progress, &self.wal_file, archive);
                writer.release_memory();
                if let Some(archive) = archive.filter(|_| last.is_ok()) {
                    archive.archiving.settled();
                }
                self.files.closes();
                last
            }
            _ => Err(Error::new(ErrorKind::Internal, "a thread of the engine panicked")),
        };
        // Everything else has ended. The files are in use until SQLite gives the last query back.
        parts.untrusted.join();
        let closed = self.files.close();
        trim_memory();
        result.and(closed)
    }
}

fn closed_inside() -> Error {
    let message = "close was called by a closure of the same database, or by a waker on one of \
                   its threads, and would wait for its end: nothing was closed; close elsewhere, \
                   or drop the last handle";
    Error::new(ErrorKind::Invalid, message)
}

fn closing_is_stuck(running: &[Activity]) -> Error {
    let longest = running.iter().max_by_key(|call| call.time);
    let longest = longest.map_or_else(String::new, |it| format!(" (running {})", it.held()));
    let message = format!(
        "the database is being closed: a closure or an untrusted query has overrun its time and \
         not returned{longest}; the close completes when it does"
    );
    Error::new(ErrorKind::Timeout, message)
}

/// Moves the WAL into the database and closes the last connection, which removes the WAL.
fn last_checkpoint(
    writer: &Writer,
    progress: &Progress,
    wal_file: &WalFile,
    archive: Option<&ArchiveSide>,
) -> Result<()> {
    let check = |seen: io::Result<()>| {
        if let Err(error) = seen {
            progress.poison(format!("the files are not what they were ({error})"));
        }
        progress.check_poison()
    };
    let connection = writer.connection();
    if !progress.is_poisoned() {
        let _ = check(wal_file.check_whole());
    }
    if progress.is_poisoned() && wal_file.is_only_unlinked() {
        // No other process will ever read its content.
        connection.checkpoint(CheckpointMode::Truncate)?;
        let saved = "what had been committed was copied into the database, and nothing \
                     acknowledged is lost";
        return progress.check_poison().map_err(|error| error.context(saved));
    }
    progress.check_poison()?;
    // While nothing is lost: the WAL stays until its database is known to be there.
    connection.checkpoint(CheckpointMode::Passive)?;
    check(wal_file.check())?;
    let emptied = connection.checkpoint(CheckpointMode::Truncate)?;
    check(wal_file.check())?;
    if let Some(archive) = archive.filter(|_| emptied.blocked) {
        return Err(archive.keeps_wal());
    }
    connection.remove_wal_on_close()?;
    Ok(())
}

fn optimizer(parts: &Parts, options: &Options) -> Option<Job<()>> {
    let (interval, writes) = (options.optimize_every?, Arc::clone(&parts.queue));
    Some(parts.jobs.start(Caller::default(), move |job| optimize_every(interval, &writes, job)))
}

/// What a thread does that drops values of the application's and wakes its tasks, while others wait
/// for it.
fn answering(database: DatabaseId, run: impl FnOnce() + Send) -> impl FnOnce() + Send {
    move || {
        let _inside = Inside::enter(database, Place::Write);
        run();
    }
}

#[cfg(test)]
mod tests;
