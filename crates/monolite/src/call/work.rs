//! Owns work that runs on the caller's thread when it is waited for, and on a reader thread when it
//! is awaited; and how it ends when its caller goes away.
//!
//! # Algorithm
//! Awaited work is a [`Job`] in a queue. Its caller has a [`Cancel`] in common with it. While the
//! job reads, the connection's [`Watch`] is entered there ([`attach`]). A caller that drops its
//! handle cancels: a job that has not begun is not run, and one that is reading has its snapshot
//! ended, so that its next step fails.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::activity::Caller;
use crate::activity::events::{Call, outcome};
use crate::call::completion::{Completion, Outcome};
use crate::call::discards::drop_quietly;
use crate::call::queue::lanes::{Queued, Ticket};
use crate::call::queue::{Entered, Queue};
use crate::call::watch::Watch;
use crate::clock::Stopwatch;
use crate::error::{Error, Result};

/// Work for a reader thread. Dropped before it was run, it tells its caller that the database is
/// closed.
pub(crate) trait Job: Send {
    /// Runs it on the thread that has been busy since the moment that is kept in `busy_since`.
    fn run(self: Box<Self>, busy_since: &Arc<AtomicU64>);

    /// When it was handed over.
    fn queued(&self) -> Stopwatch;

    /// Tells its caller `error` instead of running it.
    fn refuse(self: Box<Self>, error: Error);
}

impl Queued for Box<dyn Job> {}

/// The moment at which the work began that is not wanted any more.
pub(crate) const LONG_AGO: u64 = 1;

/// The queue of the reader threads.
pub(crate) type JobQueue = Queue<Box<dyn Job>>;

/// Whether the result of a job is still wanted, and what it is using.
pub(crate) struct Cancel {
    under_way: Mutex<Use>,
    /// When the job was handed over.
    queued: Stopwatch,
}

#[derive(Default)]
struct Use {
    is_cancelled: bool,
    watches: Vec<Arc<Watch>>,
    /// That of the thread which runs the job.
    busy_since: Option<Arc<AtomicU64>>,
}

impl Cancel {
    fn lock(&self) -> MutexGuard<'_, Use> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The result is not wanted any more.
    fn cancel(&self) {
        let mut under_way = self.lock();
        under_way.is_cancelled = true;
        // Under the lock: neither use nor job can end meanwhile, so no other one is hit.
        under_way.watches.iter().for_each(|watch| watch.stop());
        if let Some(busy_since) = &under_way.busy_since {
            busy_since.store(LONG_AGO, Ordering::Release);
        }
    }

    /// Notes which thread runs the job; whether its result is wanted.
    fn begin(&self, busy_since: &Arc<AtomicU64>) -> bool {
        let mut under_way = self.lock();
        under_way.busy_since = Some(Arc::clone(busy_since));
        !under_way.is_cancelled
    }

    fn end(&self) {
        self.lock().busy_since = None;
    }
}

thread_local! {
    /// The job that this thread runs.
    static RUNNING: RefCell<Option<Arc<Cancel>>> = const { RefCell::new(None) };
}

/// Enters the use of a connection, which has just begun, with the job that runs on this thread, if
/// any, for as long as the result lives.
pub(crate) fn attach(watch: &Arc<Watch>) -> Option<Attached> {
    // A thread that is ending runs no job.
    let cancel = RUNNING.try_with(|running| running.borrow().clone()).ok()??;
    let mut under_way = cancel.lock();
    under_way.watches.push(Arc::clone(watch));
    if under_way.is_cancelled {
        watch.stop();
    }
    drop(under_way);
    Some(Attached { cancel })
}

/// The use of a connection by a job.
pub(crate) struct Attached {
    cancel: Arc<Cancel>,
}

impl Attached {
    /// When the job was handed over.
    pub(crate) fn queued(&self) -> Stopwatch {
        self.cancel.queued
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Uses nest, so the last one is this.
        self.cancel.lock().watches.pop();
    }
}

/// A closure of type `F` on its way to a result.
pub(crate) struct Work<F, T, E> {
    stage: Stage<F, T, E>,
}

enum Stage<F, T, E> {
    New(F),
    Sent { caller: Arc<Completion<T, E>>, cancel: Arc<Cancel>, waits: Option<Ticket> },
    Finished,
}

impl<F, T, E> Work<F, T, E> {
    pub(crate) fn new(body: F) -> Work<F, T, E> {
        Work { stage: Stage::New(body) }
    }

    /// The closure, to be run on this thread.
    ///
    /// # Panics
    /// When it was polled before: `what` says of what.
    pub(crate) fn take(&mut self, what: &str) -> F {
        self.take_new().unwrap_or_else(|| {
            panic!("a {what} that was polled is awaited to its end, not waited for")
        })
    }

    /// The closure, if it was neither taken nor polled.
    pub(crate) fn take_new(&mut self) -> Option<F> {
        match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::New(body) => Some(body),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// Hands the closure of `made_by` to `queue`, as what `bind` makes of it, and asks for the
    /// result.
    ///
    /// # Panics
    /// When the result had been returned before.
    pub(crate) fn poll<B>(
        &mut self,
        queue: &JobQueue,
        context: &mut Context<'_>,
        made_by: Caller,
        bind: impl FnOnce(F) -> B,
    ) -> Poll<Outcome<T, E>>
    where
        B: FnOnce() -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        if let Some(body) = self.take_new() {
            let cancel = Cancel { under_way: Mutex::default(), queued: Stopwatch::start() };
            let (caller, cancel) = (Completion::new(), Arc::new(cancel));
            let told = (Arc::clone(&caller), Arc::clone(&cancel));
            let (body, call) = (Some(bind(body)), Call::new(made_by));
            let job = Box::new(Awaited { body, caller: told.0, cancel: told.1, call });
            let waits = match queue.enter(job) {
                Ok(Entered::In) => None,
                Ok(Entered::Waits(ticket)) => Some(ticket),
                Err(job) => {
                    drop(job);
                    None
                }
            };
            self.stage = Stage::Sent { caller, cancel, waits };
        }
        let Stage::Sent { caller, .. } = &self.stage else {
            panic!("work was polled again after its result had been returned")
        };
        let outcome = caller.poll(context);
        if outcome.is_ready() {
            self.stage = Stage::Finished;
        }
        outcome
    }

    /// Gives the result up: a place before a full queue, or the work that is under way.
    pub(crate) fn leave(&mut self, queue: &JobQueue) {
        let Stage::Sent { cancel, waits, .. } = std::mem::replace(&mut self.stage, Stage::Finished)
        else {
            return;
        };
        if waits.and_then(|ticket| queue.withdraw(ticket)).is_none() {
            cancel.cancel();
        }
    }
}

/// A closure that a reader thread is to run.
struct Awaited<B, T, E: From<Error>> {
    /// Taken out when it runs.
    body: Option<B>,
    caller: Arc<Completion<T, E>>,
    cancel: Arc<Cancel>,
    call: Call,
}

impl<B, T, E> Job for Awaited<B, T, E>
where
    B: FnOnce() -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn run(mut self: Box<Self>, busy_since: &Arc<AtomicU64>) {
        let Some(body) = self.body.take() else { return };
        if !self.cancel.begin(busy_since) {
            return drop_quietly(body);
        }
        RUNNING.set(Some(Arc::clone(&self.cancel)));
        let ran = catch_unwind(AssertUnwindSafe(|| self.call.in_span(body)));
        RUNNING.set(None);
        self.cancel.end();
        self.caller.deliver(match ran {
            Ok(result) => Outcome::Returned(result),
            Err(payload) => Outcome::Panicked(payload),
        });
    }

    fn queued(&self) -> Stopwatch {
        self.cancel.queued
    }

    fn refuse(mut self: Box<Self>, error: Error) {
        self.end_with(error);
    }
}

impl<B, T, E: From<Error>> Awaited<B, T, E> {
    fn end_with(&mut self, error: Error) {
        if let Some(body) = self.body.take() {
            drop_quietly(body);
            self.call.end(|| outcome(false, Some(&error)));
            self.caller.deliver(Outcome::Refused(error));
        }
    }
}

impl<B, T, E: From<Error>> Drop for Awaited<B, T, E> {
    fn drop(&mut self) {
        self.end_with(Error::closed());
    }
}
