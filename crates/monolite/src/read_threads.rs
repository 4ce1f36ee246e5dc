//! Owns the threads that run awaited work.
//!
//! # Algorithm
//! There is a thread for each reader connection. One whose work has overrun the time of a read, or
//! is not wanted any more, may be in the middle of a closure that sleeps, and cannot be ended. It
//! is *lost*, and another one is started in its place; when its work ends, it ends, too. So work
//! that hangs takes no thread from the others, until as many are lost as there may be.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use crate::clock::{Clock, nanos};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::Taken;
use crate::work::{JobQueue, LONG_AGO};

/// Lost threads that are replaced, for each reader: beyond that, something is wrong that more
/// threads do not mend.
const REPLACED: usize = 4;

/// What others may see of a thread.
#[derive(Default)]
struct Worker {
    /// When its work began, in nanoseconds of the clock; 0 while it has none.
    busy_since: Arc<AtomicU64>,
    is_lost: AtomicBool,
}

#[derive(Default)]
struct Workers {
    all: Vec<(Arc<Worker>, JoinHandle<()>)>,
    number: usize,
}

pub(crate) struct ReadThreads {
    pub(crate) queue: JobQueue,
    workers: Mutex<Workers>,
    count: usize,
    clock: Arc<dyn Clock>,
}

impl ReadThreads {
    pub(crate) fn new(count: usize, capacity: usize, clock: Arc<dyn Clock>) -> ReadThreads {
        let (queue, workers) = (JobQueue::new(capacity), Mutex::default());
        ReadThreads { queue, workers, count, clock }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// `Storage` when the system has no thread to give.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let mut workers = self.workers();
        (0..self.count).try_for_each(|_| self.start_one(&mut workers))
    }

    fn start_one(self: &Arc<Self>, workers: &mut Workers) -> Result<()> {
        let (worker, pool) = (Arc::<Worker>::default(), Arc::clone(self));
        let name = format!("monolite-read-{}", workers.number);
        let own = Arc::clone(&worker);
        let thread = thread::Builder::new().name(name.clone()).spawn(move || pool.serve(&own));
        let handle = thread.map_err(|error| {
            let message = format!("the thread {name} cannot be started: {error}");
            Error::new(ErrorKind::Storage, message)
        })?;
        workers.number += 1;
        workers.all.push((worker, handle));
        Ok(())
    }

    fn serve(&self, worker: &Worker) {
        let mut jobs = VecDeque::new();
        while self.queue.take(1, &mut jobs, None) != Taken::Closed {
            for job in jobs.drain(..) {
                worker
                    .busy_since
                    .store(nanos(self.clock.now()).max(LONG_AGO + 1), Ordering::Release);
                job.run(&worker.busy_since);
                worker.busy_since.store(0, Ordering::Release);
            }
            if worker.is_lost.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Replaces the threads whose work has been going on since before `began_by`, or is not wanted
    /// any more.
    pub(crate) fn replace_lost(self: &Arc<Self>, began_by: Duration) {
        let mut workers = self.workers();
        workers.all.retain(|(_, handle)| !handle.is_finished());
        let is_new = |worker: &&Arc<Worker>| {
            let since = worker.busy_since.load(Ordering::Acquire);
            let is_late = since == LONG_AGO || since <= nanos(began_by);
            since != 0 && is_late && !worker.is_lost.load(Ordering::Acquire)
        };
        let lost: Vec<_> =
            workers.all.iter().map(|(worker, _)| worker).filter(is_new).cloned().collect();
        for worker in lost {
            let replaced = workers.all.len() - self.count;
            // Without a thread to spare it stays as it is, and is looked at again.
            if replaced >= REPLACED * self.count || self.start_one(&mut workers).is_err() {
                return;
            }
            worker.is_lost.store(true, Ordering::Release);
        }
    }

    /// The identities of the threads.
    pub(crate) fn is_own(&self, id: ThreadId) -> bool {
        self.workers().all.iter().any(|(_, handle)| handle.thread().id() == id)
    }

    /// Lets the threads end, and refuses what waits for room.
    pub(crate) fn close(&self) {
        drop(self.queue.close());
    }

    /// Waits for their end, after [`ReadThreads::close`]; whether none of them panicked.
    pub(crate) fn join(&self) -> bool {
        let all = std::mem::take(&mut self.workers().all);
        all.into_iter().map(|(_, handle)| handle.join()).all(|end| end.is_ok())
    }
}
