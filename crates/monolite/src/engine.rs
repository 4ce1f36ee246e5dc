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
//! None of them owns the [`Engine`], so dropping its last handle ends them.
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
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use monolite_sqlite::vfs::{Spill, WalControl};
use monolite_sqlite::{CheckpointMode, Connection, Rowids};

use crate::archive::Archiving;
use crate::backup;
use crate::call::between::BetweenBatches;
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
use crate::read::threads::ReadThreads;
use crate::stats::{Recorder, Stats};
use crate::threads::spawn;
use crate::transaction::Transactions;
use crate::untrusted::UntrustedRoom;
use crate::watchdog::Watchdog;
use crate::write::answers::Answers;
use crate::write::sync::Syncer;
use crate::write::writer::Writer;
use parts::{Base, observers};
use primary::{ArchiveSide, LagLimit, answers};
use write_loop::WriteLoop;

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
    /// The threads beside the readers on which code of the application may run.
    own_threads: Vec<ThreadId>,
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

    fn checkpointer(&self, connection: Connection) -> Checkpointer {
        Checkpointer {
            connection,
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

/// What the threads do.
struct Bodies {
    write: Body<Option<Writer>>,
    others: Vec<(&'static str, Body<()>)>,
}

type Body<T> = Box<dyn FnOnce() -> T + Send>;

impl Bodies {
    fn new(
        database: DatabaseId,
        write: impl FnOnce() -> Option<Writer> + Send + 'static,
        syncer: Arc<Syncer>,
        checkpointer: Checkpointer,
        watchdog: Arc<Watchdog>,
        archive: Option<&ArchiveSide>,
    ) -> Bodies {
        let mut others: Vec<(&'static str, Body<()>)> = vec![
            ("monolite-sync", Box::new(answering(database, move || syncer.run()))),
            ("monolite-checkpoint", Box::new(move || checkpointer.run())),
            ("monolite-watch", Box::new(answering(database, move || watchdog.run()))),
        ];
        if let Some(archived) = archive.map(|archive| Arc::clone(&archive.archived)) {
            others
                .push(("monolite-archived", Box::new(answering(database, move || archived.run()))));
        }
        Bodies { write: Box::new(write), others }
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
    writer: JoinHandle<Option<Writer>>,
    /// Those of the syncer, the checkpointer, the watchdog and, with an archive, of who answers
    /// behind it; fewer if one could not be started.
    others: Vec<JoinHandle<()>>,
    wal_file: Arc<WalFile>,
    archive: Option<ArchiveSide>,
    // Last: the VFS and the registration must outlive every connection.
    files: Files,
}

impl Engine {
    /// Starts the threads over opened files.
    pub(crate) fn start(opened: Opened, options: &Options) -> Result<Engine> {
        let base = Base::new(options);
        let queue = base.write_queue();
        let archive = ArchiveSide::of(&opened, options, &base.progress);
        let archived = archive.as_ref();
        let answers = answers(archived, options.queue_capacity, &base.progress);
        let backups = base.backups(&opened, &queue);
        let (count, is_alone) = (opened.readers.len(), opened.is_exclusive);
        let (reads, streams) =
            base.read_sides(opened.readers, &opened.open_reader, is_alone, archived);
        let pool = base.pool(opened.pool, &opened.wal);
        let untrusted = base.untrusted(opened.open_untrusted);
        let holders = base.holders(&reads, &pool, &streams, &backups, &untrusted);
        let checkpoints = base.checkpoints(&opened.wal, archived, &holders);
        let transactions = base.transactions(pool, count, &queue);
        let writer = base.writer(opened.writer, opened.writer_deadline, &opened.wal);
        let told = observers(&transactions, archived);
        let syncer = base.syncer(&opened.wal_file, opened.durability, &answers, &queue, told);
        let in_flight = Arc::new(InFlight::new(Arc::clone(&options.clock)));
        let threads = [&reads.threads, &transactions.threads, &streams.threads];
        let lookout = base.lookout(&queue, &in_flight, &holders, threads);
        let watchdog = base.watchdog(&queue, &in_flight, holders, threads, &lookout);
        let Base { database, progress, recorder, .. } = base;
        let parts = Parts {
            queue,
            reads,
            streams,
            transactions,
            checkpoints,
            progress,
            lookout,
            watchdog,
            jobs: Arc::new(Jobs::new(database)),
            untrusted,
        };
        let between = &backups.between;
        let write_loop = parts.write_loop(&syncer, between, in_flight, options, archived);
        let checkpointer = parts.checkpointer(opened.checkpointer);
        let watchdog = Arc::clone(&parts.watchdog);
        let write = move || write_loop.run(writer);
        let bodies = Bodies::new(database, write, syncer, checkpointer, watchdog, archived);
        let wal_file = Arc::clone(&opened.wal_file);
        let running = Running::start(bodies, &parts, wal_file, archive.clone(), opened.files)?;
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
            own_threads: running.threads(),
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
        // Without a thread to be had it is done on this one.
        if spawn("monolite-close", move || run(&theirs)).is_err() {
            run(&ending);
        }
    }

    /// Whether this is a thread for whose end the end would wait.
    fn has_to_go_on(&self) -> bool {
        let this = thread::current().id();
        self.database.is_around()
            || self.own_threads.contains(&this)
            || self.parts.threads().iter().any(|threads| threads.is_own(this))
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
                return Err(closing_is_stuck());
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
    /// Starts the threads; ends those that were started when one cannot be.
    fn start(
        bodies: Bodies,
        parts: &Parts,
        wal_file: Arc<WalFile>,
        archive: Option<ArchiveSide>,
        mut files: Files,
    ) -> Result<Running> {
        let threads = parts.threads();
        let others = Vec::with_capacity(bodies.others.len());
        // Those of streams are started when there is one.
        let started = threads[..2].iter().try_for_each(|threads| threads.start());
        let writer = started.and_then(|()| spawn("monolite-write", bodies.write));
        let mut rest = bodies.others.into_iter();
        let mut running = match writer {
            Ok(writer) => Running { writer, others, wal_file, archive, files },
            Err(error) => {
                parts.shut();
                for threads in threads {
                    threads.join();
                }
                drop(rest);
                files.let_go();
                parts.close_readers();
                return Err(error);
            }
        };
        while let Some((name, body)) = rest.next() {
            match spawn(name, body) {
                Ok(thread) => running.others.push(thread),
                Err(error) => {
                    // With the connections that they have.
                    drop(rest);
                    parts.shut();
                    // Nothing was written that could be lost.
                    let _ = running.end(parts);
                    return Err(error);
                }
            }
        }
        Ok(running)
    }

    /// The threads on which closures of users run, or end, and the checkpointer.
    fn threads(&self) -> Vec<ThreadId> {
        let others = self.others.iter().map(JoinHandle::thread);
        others.chain([self.writer.thread()]).map(thread::Thread::id).collect()
    }

    fn end(mut self, parts: &Parts) -> Result<()> {
        let Parts { checkpoints, progress, watchdog, .. } = parts;
        let writer = self.writer.join().ok().flatten();
        let mut others = self.others.into_iter();
        let syncer_ended = others.next().is_none_or(|syncer| syncer.join().is_ok());
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
        let others_ended = others.fold(true, |ended, other| ended & other.join().is_ok());
        // With a connection left the WAL file stays, empty.
        parts.untrusted.wait_for_end(UNTRUSTED_PATIENCE);
        let result = match writer {
            Some(writer) if syncer_ended && readers_ended && others_ended => {
                self.files.let_go();
                let archive = self.archive.as_ref();
                let last = last_checkpoint(&writer, progress, &self.wal_file, archive);
                if let Some(archive) = archive.filter(|_| last.is_ok()) {
                    archive.archiving.settled();
                }
                last
            }
            _ => Err(Error::new(ErrorKind::Internal, "a thread of the engine panicked")),
        };
        // Everything else has ended. The files are in use until SQLite gives the last query back.
        parts.untrusted.join();
        let closed = self.files.close();
        result.and(closed)
    }
}

fn closed_inside() -> Error {
    let message = "close was called by a closure of the same database, or by a waker on one of \
                   its threads, and would wait for its end: nothing was closed; close elsewhere, \
                   or drop the last handle";
    Error::new(ErrorKind::Invalid, message)
}

fn closing_is_stuck() -> Error {
    let message = "the database is being closed: a closure or an untrusted query has overrun its \
                   time and not returned; the close completes when it does";
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
    Some(parts.jobs.start(move |job| optimize_every(interval, &writes, job)))
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
mod tests {
    use std::fs;

    use crate::threads::shortage;
    use crate::{ErrorKind, Options};

    #[test]
    fn an_open_that_gets_no_thread_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let path = path.canonicalize().unwrap_or(path);
        let open = || Options::new().readers(2).open(&path);
        let mut failed = 0;
        let db = loop {
            shortage::after(failed);
            let opened = open();
            shortage::after(usize::MAX);
            match opened {
                Ok(db) => break db,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
                    assert!(error.to_string().contains("thread"), "{error}");
                }
            }
            let descriptors = fs::read_dir("/proc/self/fd").unwrap();
            let links = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
            assert_eq!(links.filter(|link| link.starts_with(directory.path())).count(), 0);
            failed += 1;
        };
        // Two for reads, two for statements, the writer, and three beside it.
        assert_eq!(failed, 8);
        db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
        db.close().unwrap();
    }
}
