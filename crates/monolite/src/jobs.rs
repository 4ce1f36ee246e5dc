//! Owns work that goes on in the background, on a thread of its own each: how far it is, how it is
//! cancelled, and that none outlives its database.
//!
//! # Invariants
//! - Every job delivers one result, whatever ends it.
//! - When [`Jobs::close`] returns no job runs, and none can begin.
//!
//! # Threads and locks
//! `monolite-job` threads. The lock is held for the start of a thread, and not while one is waited
//! for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::activity::Caller;
use crate::call::completion::{Completion, Outcome};
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::threads::spawn;

/// Work in the background: a [`Future`] of its result, which can also be waited for.
///
/// # Cancellation
/// Dropping the handle cancels the job, as [`Job::cancel`] does; finished work is undone or left,
/// as its method says.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let check: monolite::Job<monolite::Checked> = db.check(); // it has begun
/// println!("{:?}", check.progress());
/// assert!(check.wait()?.is_sound()); // `.await` works, too
/// # db.close()
/// # }
/// ```
#[must_use = "a job is cancelled when its handle is dropped"]
pub struct Job<T> {
    result: Arc<Completion<T, Error>>,
    monitor: JobMonitor,
    database: DatabaseId,
}

/// How far a job is, and the way to cancel it; a clone is for the same job.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let check = db.check();
/// let monitor = check.monitor();
/// std::thread::spawn(move || println!("{:?}", monitor.progress())); // or monitor.cancel()
/// check.wait()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct JobMonitor {
    shared: Arc<Shared>,
}

/// How far a job is.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # let check = db.check();
/// let progress = check.progress();
/// if progress.total > 0 {
///     println!("{} %", 100 * progress.done / progress.total);
/// }
/// # check.wait()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobProgress {
    /// What is done, in pages unless the job's method says otherwise.
    pub done: u64,
    /// What there is to do; 0 as long as that is not known.
    pub total: u64,
}

#[derive(Default)]
struct Shared {
    done: AtomicU64,
    total: AtomicU64,
    is_cancelled: AtomicBool,
    is_closed: AtomicBool,
    /// Ends what the job is in the middle of.
    interrupt: Mutex<Option<Interrupt>>,
    resting: Mutex<()>,
    is_over: Condvar,
}

type Interrupt = Box<dyn Fn() + Send>;

impl Shared {
    fn end(&self, why: &AtomicBool) {
        why.store(true, Ordering::Release);
        let interrupt = self.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        interrupt.iter().for_each(|interrupt| interrupt());
        drop(interrupt);
        drop(self.resting.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_over.notify_all();
    }
}

impl JobMonitor {
    /// How far the job is.
    pub fn progress(&self) -> JobProgress {
        let total = self.shared.total.load(Ordering::Acquire);
        JobProgress { done: self.shared.done.load(Ordering::Acquire).min(total), total }
    }

    /// Ends the job soon, with `Aborted`, unless it is over by then. Does not wait.
    pub fn cancel(&self) {
        self.shared.end(&self.shared.is_cancelled);
    }
}

impl fmt::Debug for JobMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobMonitor").field(&self.progress()).finish()
    }
}

impl<T> Job<T> {
    /// How far it is.
    pub fn progress(&self) -> JobProgress {
        self.monitor.progress()
    }

    /// Ends the job soon, with `Aborted`, unless it is over by then. Does not wait; the result
    /// tells.
    pub fn cancel(&self) {
        self.monitor.cancel();
    }

    /// Returns a handle that reports progress and cancels, while another thread waits for the
    /// result.
    pub fn monitor(&self) -> JobMonitor {
        self.monitor.clone()
    }

    /// Blocks the calling thread until the job is over, and returns its result.
    ///
    /// # Errors
    /// Those of the job; `Aborted` when it was cancelled; `Closed` when the database was closed
    /// meanwhile; `Invalid` in a write closure of the same database, for which the job may have to
    /// wait: it is cancelled then.
    pub fn wait(self) -> Result<T> {
        self.check_place()?;
        self.result.wait().unwrap_for_caller()
    }

    fn check_place(&self) -> Result<()> {
        self.database.check_process()?;
        if !self.database.has_writer() {
            return Ok(());
        }
        let message = "a write closure waited for a backup, check or other job of the same \
                       database, which may have to wait for the closure; wait for it elsewhere";
        Err(Error::new(ErrorKind::Invalid, message))
    }
}

impl<T> Future for Job<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.check_place()?;
        self.result.poll(context).map(Outcome::unwrap_for_caller)
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// A job as it sees itself.
pub(crate) struct JobContext {
    shared: Arc<Shared>,
    /// Who began it.
    pub(crate) caller: Caller,
}

impl JobContext {
    /// # Errors
    /// `Aborted` when the job was cancelled, `Closed` when the database is being closed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.shared.is_closed.load(Ordering::Acquire) {
            let message = "the database was closed before this was done";
            return Err(Error::new(ErrorKind::Closed, message));
        }
        if self.shared.is_cancelled.load(Ordering::Acquire) {
            return Err(Error::aborted("it was cancelled"));
        }
        Ok(())
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.check().is_ok()
    }

    /// Has `interrupt` be called when the job is to end, on any thread; at once when it is already.
    /// It takes no lock that is held for long.
    pub(crate) fn when_it_ends(&self, interrupt: impl Fn() + Send + 'static) {
        let mut place = self.shared.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.goes_on() {
            interrupt();
        }
        *place = Some(Box::new(interrupt));
    }

    /// Rests for so long, or until the job is to end.
    pub(crate) fn rest(&self, time: Duration) {
        let patience = Patience::of(time);
        let mut resting = self.shared.resting.lock().unwrap_or_else(PoisonError::into_inner);
        while self.goes_on() && !patience.left().is_zero() {
            let waited = self.shared.is_over.wait_timeout(resting, patience.left());
            resting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Tells how far the job is.
    pub(crate) fn tell(&self, done: u64, total: u64) {
        self.shared.done.store(done, Ordering::Release);
        self.shared.total.store(total, Ordering::Release);
    }
}

/// The jobs of one database.
pub(crate) struct Jobs {
    database: DatabaseId,
    state: Mutex<JobsState>,
}

#[derive(Default)]
struct JobsState {
    is_closed: bool,
    running: Vec<(JoinHandle<()>, Arc<Shared>)>,
}

impl Jobs {
    pub(crate) fn new(database: DatabaseId) -> Jobs {
        Jobs { database, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, JobsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a job of `caller`. One that cannot begin has its error for a result.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        caller: Caller,
        body: impl FnOnce(&JobContext) -> Result<T> + Send + 'static,
    ) -> Job<T> {
        let (result, shared) = (Completion::new(), Arc::new(Shared::default()));
        let monitor = JobMonitor { shared: Arc::clone(&shared) };
        let database = self.database;
        let job = Job { result: Arc::clone(&result), monitor, database };
        let told = Arc::clone(&result);
        let context = JobContext { shared, caller };
        if let Err(error) = self.spawn(context, told, body) {
            result.deliver(Outcome::Refused(error));
        }
        job
    }

    fn spawn<T: Send + 'static>(
        &self,
        context: JobContext,
        result: Arc<Completion<T, Error>>,
        body: impl FnOnce(&JobContext) -> Result<T> + Send + 'static,
    ) -> Result<()> {
        self.database.check_process()?;
        let mut state = self.state();
        if state.is_closed {
            return Err(Error::closed());
        }
        let (shared, database) = (Arc::clone(&context.shared), self.database);
        let thread = spawn("monolite-job", move || {
            let run = Run { database, result };
            let returned = body(&context);
            run.answer(Outcome::Returned(returned));
        })?;
        state.running.retain(|(thread, _)| !thread.is_finished());
        state.running.push((thread, shared));
        Ok(())
    }

    /// Has all jobs end, and lets none begin. Does not wait.
    pub(crate) fn shut(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.running.iter().for_each(|(_, it)| it.end(&it.is_closed));
    }

    /// Waits until none runs.
    pub(crate) fn join(&self) {
        let running = std::mem::take(&mut self.state().running);
        running.into_iter().for_each(|(thread, _)| _ = thread.join());
    }
}

/// What delivers a job's result.
struct Run<T> {
    database: DatabaseId,
    result: Arc<Completion<T, Error>>,
}

impl<T> Run<T> {
    /// Wakers of the application run in here, and must not wait for what waits for this thread.
    fn answer(&self, outcome: Outcome<T, Error>) {
        let _inside = Inside::enter(self.database, Place::Write);
        self.result.deliver(outcome);
    }
}

impl<T> Drop for Run<T> {
    /// Nothing is delivered twice; this is for a job that a defect has ended.
    fn drop(&mut self) {
        let message = "a job panicked; nothing is known of what it has done";
        self.answer(Outcome::Refused(Error::new(ErrorKind::Internal, message)));
    }
}
