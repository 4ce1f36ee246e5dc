//! Owns the threads that run awaited work.
//!
//! # Algorithm
//! There may be a thread for each reader connection, as many others for the statements of
//! interactive transactions, and as many for streams. Work that finds none asleep starts one, and
//! one without work ends after a while ([`crate::threads`]). One whose work has overrun the time of
//! a read, or is not wanted any more, may be in the middle of a closure that sleeps, and cannot be
//! ended. It is *lost*, and another one is started in its place; when its work ends, it ends, too.
//! So work that hangs takes no thread from the others, until as many are lost as there may be.
//!
//! Work that has waited for a thread longer than a read may take is refused: behind much that hangs
//! it would wait for all of it, one limit after another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use crate::call::queue::Taken;
use crate::call::work::{JobQueue, LONG_AGO};
use crate::clock::{Clock, nanos};
use crate::error::{Error, ErrorKind, Result};
use crate::threads::{linger, spawn};

/// Lost threads that are replaced, for each reader: beyond that, something is wrong that more
/// threads do not mend.
const REPLACED: usize = 4;

/// What others may see of a thread.
#[derive(Default)]
struct Worker {
    /// When its work began, in nanoseconds of the clock; 0 while it has none.
    busy_since: Arc<AtomicU64>,
    /// One of the following.
    state: AtomicU8,
}

/// It takes work from the queue, which counts it.
const SERVES: u8 = 0;

/// Another one takes its place; it ends with its work.
const LOST: u8 = 1;

/// It was lost, or found no work, and ends.
const GONE: u8 = 2;

impl Worker {
    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[derive(Default)]
struct Workers {
    all: Vec<(Arc<Worker>, JoinHandle<()>)>,
    /// Those of `all` that are waited for, which are not there any more.
    ending: Vec<ThreadId>,
    number: usize,
    /// All ended, and none may follow.
    is_joined: bool,
}

/// What a set of threads runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Reads,
    /// Of interactive transactions: they are short as a rule, and do not wait behind long reads.
    Statements,
    Streams,
}

impl WorkKind {
    fn thread_name(self, number: usize) -> String {
        match self {
            WorkKind::Reads => format!("monolite-read-{number}"),
            WorkKind::Statements => format!("monolite-tx-{number}"),
            WorkKind::Streams => format!("monolite-stream-{number}"),
        }
    }
}

pub(crate) struct ReadThreads {
    work: WorkKind,
    pub(crate) queue: JobQueue,
    workers: Mutex<Workers>,
    count: usize,
    /// How long work may wait for a thread.
    patience: Duration,
    clock: Arc<dyn Clock>,
}

impl ReadThreads {
    pub(crate) fn new(
        work: WorkKind,
        count: usize,
        capacity: usize,
        patience: Duration,
        clock: Arc<dyn Clock>,
    ) -> Arc<ReadThreads> {
        let (queue, workers) = (JobQueue::new(capacity), Mutex::default());
        let threads = ReadThreads { work, queue, workers, count, patience, clock };
        let threads = Arc::new(threads);
        let started = Arc::downgrade(&threads);
        threads.queue.has_consumers_started(count, move || {
            started.upgrade().iter().for_each(ReadThreads::add_one);
        });
        threads
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for work that found none. If the system has none to give, and there is no
    /// other, the work is refused.
    fn add_one(self: &Arc<Self>) {
        let mut workers = self.workers();
        let Err(error) = self.start_one(&mut workers) else { return };
        drop(workers);
        self.lack_one(&error);
    }

    /// The queue counts a thread that is not there, because of `error`.
    fn lack_one(&self, error: &Error) {
        if !self.queue.lacks_consumer() {
            self.queue.drain().into_iter().for_each(|job| job.refuse(error.repeated()));
        }
    }

    fn start_one(self: &Arc<Self>, workers: &mut Workers) -> Result<()> {
        if workers.is_joined {
            return Err(Error::closed());
        }
        // Those that have ended for lack of work.
        workers.all.retain(|(_, handle)| !handle.is_finished());
        let (worker, pool) = (Arc::<Worker>::default(), Arc::clone(self));
        let name = self.work.thread_name(workers.number);
        let own = Arc::clone(&worker);
        let handle = spawn(&name, move || pool.serve(&own))?;
        workers.number += 1;
        workers.all.push((worker, handle));
        Ok(())
    }

    fn serve(&self, worker: &Worker) {
        let mut jobs = VecDeque::new();
        loop {
            match self.queue.take(1, &mut jobs, Some(linger())) {
                Taken::Closed => return,
                Taken::TimedOut if self.leaves(worker) => return,
                _ => {}
            }
            for job in jobs.drain(..) {
                if job.queued().elapsed() > self.patience {
                    job.refuse(not_served(self.work, self.patience));
                    continue;
                }
                worker
                    .busy_since
                    .store(nanos(self.clock.now()).max(LONG_AGO + 1), Ordering::Release);
                job.run(&worker.busy_since);
                worker.busy_since.store(0, Ordering::Release);
            }
            if worker.change(LOST, GONE) {
                return;
            }
        }
    }

    /// Whether a thread that has found no work ends. One that was lost is not counted any more;
    /// what is about to leave cannot be lost.
    fn leaves(&self, worker: &Worker) -> bool {
        if worker.change(LOST, GONE) {
            return true;
        }
        if !worker.change(SERVES, GONE) {
            return false;
        }
        let leaves = self.queue.leave();
        if !leaves {
            worker.state.store(SERVES, Ordering::Release);
        }
        leaves
    }

    /// Replaces the threads whose work has been going on since before `began_by`, or is not wanted
    /// any more.
    pub(crate) fn replace_lost(self: &Arc<Self>, began_by: Duration) {
        let mut workers = self.workers();
        let is_new = |worker: &&Arc<Worker>| {
            let since = worker.busy_since.load(Ordering::Acquire);
            let is_late = since == LONG_AGO || since <= nanos(began_by);
            since != 0 && is_late && worker.state.load(Ordering::Acquire) == SERVES
        };
        let lost: Vec<_> =
            workers.all.iter().map(|(worker, _)| worker).filter(is_new).cloned().collect();
        for worker in lost {
            let is_lost = |(worker, handle): &&(Arc<Worker>, JoinHandle<()>)| {
                worker.state.load(Ordering::Acquire) != SERVES && !handle.is_finished()
            };
            let replaced = workers.all.iter().filter(is_lost).count();
            // Before another one is there: it may end its work meanwhile, and both would serve.
            if replaced >= REPLACED * self.count {
                return;
            }
            if !worker.change(SERVES, LOST) {
                continue;
            }
            let Err(error) = self.start_one(&mut workers) else { continue };
            // Without a thread to spare it stays as it was, and is looked at again.
            if !worker.change(LOST, SERVES) {
                drop(workers);
                self.lack_one(&error);
            }
            return;
        }
    }

    /// The identities of the threads.
    pub(crate) fn is_own(&self, id: ThreadId) -> bool {
        let workers = self.workers();
        let mut running = workers.all.iter().map(|(_, handle)| handle.thread().id());
        running.any(|own| own == id) || workers.ending.contains(&id)
    }

    /// Lets the threads end, and refuses what waits for room.
    pub(crate) fn close(&self) {
        drop(self.queue.close());
    }

    /// Waits for their end, after [`ReadThreads::close`]; whether none of them panicked.
    pub(crate) fn join(&self) -> bool {
        let mut workers = self.workers();
        workers.is_joined = true;
        let all = std::mem::take(&mut workers.all);
        // One of them may ask whether it is, and would wait for this.
        workers.ending.extend(all.iter().map(|(_, handle)| handle.thread().id()));
        drop(workers);
        let have_ended = all.into_iter().map(|(_, handle)| handle.join()).all(|end| end.is_ok());
        // Of one whose thread came too late.
        drop(self.queue.drain());
        have_ended
    }
}

fn not_served(work: WorkKind, patience: Duration) -> Error {
    let of = match work {
        WorkKind::Reads => "awaited reads",
        WorkKind::Statements => "awaited statements of transactions",
        WorkKind::Streams => "streams",
    };
    let message = format!(
        "no thread for {of} was free for {patience:.1?} (option read_time_limit): too many calls \
         are awaited, or they take too long; raise the option readers"
    );
    Error::new(ErrorKind::Timeout, message)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::call::work::Job;
    use crate::clock::{self, Stopwatch, SystemClock};
    use crate::threads::shortage;

    struct Task<F>(F, Stopwatch, mpsc::Sender<ErrorKind>);

    impl<F: FnOnce() + Send> Job for Task<F> {
        fn run(self: Box<Self>, _busy_since: &Arc<AtomicU64>) {
            (self.0)();
        }

        fn queued(&self) -> Stopwatch {
            self.1
        }

        fn refuse(self: Box<Self>, error: Error) {
            self.2.send(error.kind()).unwrap();
        }
    }

    fn threads(patience: Duration) -> Arc<ReadThreads> {
        some(1, patience)
    }

    fn some(count: usize, patience: Duration) -> Arc<ReadThreads> {
        let clock = Arc::<SystemClock>::default();
        ReadThreads::new(WorkKind::Reads, count, 8, patience, clock)
    }

    #[test]
    fn what_is_late_at_a_close_is_no_defect() {
        let threads = some(3, Duration::from_secs(60));
        let (lets_go, may_go) = mpsc::channel::<()>();
        let task = move || {
            let _ = may_go.recv();
        };
        let task = Task(task, Stopwatch::start(), mpsc::channel().0);
        assert!(threads.queue.enter(Box::new(task)).is_ok());
        while !threads.queue.is_empty() {
            thread::yield_now();
        }
        threads.close();
        threads.replace_lost(Duration::MAX);
        drop(lets_go);
        assert!(threads.join());
    }

    #[test]
    fn a_thread_that_is_waited_for_knows_that_it_is_one_of_them() {
        let threads = threads(Duration::from_secs(60));
        let (says, told) = mpsc::channel();
        let pool = Arc::clone(&threads);
        let task = move || {
            while pool.workers().ending.is_empty() {
                thread::yield_now();
            }
            says.send(pool.is_own(thread::current().id())).unwrap();
        };
        let task = Task(task, Stopwatch::start(), mpsc::channel().0);
        assert!(threads.queue.enter(Box::new(task)).is_ok());
        threads.close();
        assert!(threads.join());
        assert!(told.recv().unwrap());
    }

    /// Waits until no thread is left, and sees that none has panicked.
    fn all_leave(threads: &ReadThreads) {
        while threads.queue.is_attended() {
            thread::yield_now();
        }
        threads.close();
        assert!(threads.join());
    }

    #[test]
    fn a_thread_that_ends_its_work_while_it_is_lost_is_counted_once() {
        for _ in 0..20 {
            let threads = threads(Duration::from_secs(60));
            for _ in 0..50 {
                let task = || (0..50).for_each(|_| thread::yield_now());
                let task = Task(task, Stopwatch::start(), mpsc::channel().0);
                assert!(threads.queue.enter(Box::new(task)).is_ok());
                while !threads.queue.is_empty() {
                    thread::yield_now();
                }
                threads.replace_lost(Duration::MAX);
            }
            all_leave(&threads);
        }
    }

    #[test]
    fn a_thread_in_whose_place_none_can_be_had_goes_on() {
        let threads = threads(Duration::from_secs(60));
        for _ in 0..2 {
            let (lets_go, may_go) = mpsc::channel::<()>();
            let task = move || _ = may_go.recv();
            let task = Task(task, Stopwatch::start(), mpsc::channel().0);
            assert!(threads.queue.enter(Box::new(task)).is_ok());
            while !threads.queue.is_empty() {
                thread::yield_now();
            }
            shortage::after(0);
            threads.replace_lost(Duration::MAX);
            shortage::after(usize::MAX);
            drop(lets_go);
        }
        all_leave(&threads);
    }

    #[test]
    fn work_that_has_waited_too_long_is_refused() {
        let threads = threads(Duration::from_millis(50));
        let (says, told) = mpsc::channel();
        let hangs = Task(|| clock::rest(Duration::from_millis(100)), Stopwatch::start(), says);
        let late = Task(|| panic!("it is run"), Stopwatch::start(), hangs.2.clone());
        assert!(threads.queue.enter(Box::new(hangs)).is_ok());
        assert!(threads.queue.enter(Box::new(late)).is_ok());
        assert_eq!(told.recv().unwrap(), ErrorKind::Timeout);
        threads.close();
        assert!(threads.join());
    }
}
