//! Owns work that runs on the caller's thread when it is waited for, and on a reader thread when it
//! is awaited.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::completion::{Completion, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::queue::{Queue, Rejected, Taken, Ticket};

/// Work for a reader thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// A closure of type `F` on its way to a result.
pub(crate) struct Work<F, T, E> {
    stage: Stage<F, T, E>,
    ticket: Option<Ticket>,
}

enum Stage<F, T, E> {
    New(F),
    Unsent(Job, Arc<Completion<T, E>>),
    Sent(Arc<Completion<T, E>>),
    Finished,
}

impl<F, T, E> Work<F, T, E> {
    pub(crate) fn new(body: F) -> Work<F, T, E> {
        Work { stage: Stage::New(body), ticket: None }
    }

    /// The closure, to be run on this thread.
    ///
    /// # Panics
    /// When it was polled before: `what` says of what.
    pub(crate) fn take(&mut self, what: &str) -> F {
        match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::New(body) => body,
            _ => panic!("a {what} that was polled is awaited to its end, not waited for"),
        }
    }

    /// Hands the closure to `queue`, as what `bind` makes of it, and asks for the result.
    ///
    /// # Panics
    /// When the result had been returned before.
    pub(crate) fn poll<B>(
        &mut self,
        queue: &Queue<Job>,
        context: &mut Context<'_>,
        bind: impl FnOnce(F) -> B,
    ) -> Poll<Outcome<T, E>>
    where
        B: FnOnce() -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::New(body) => {
                let caller = Completion::new();
                let job = job(bind(body), Arc::clone(&caller));
                send(queue, job, caller, context.waker(), &mut self.ticket)
            }
            Stage::Unsent(job, caller) => {
                send(queue, job, caller, context.waker(), &mut self.ticket)
            }
            stage => stage,
        };
        let outcome = match &self.stage {
            Stage::Sent(caller) => caller.poll(context),
            Stage::Unsent(..) => return Poll::Pending,
            _ => panic!("work was polled again after its result had been returned"),
        };
        if outcome.is_ready() {
            self.stage = Stage::Finished;
        }
        outcome
    }

    /// Whether a reader thread has it, and nobody its result.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self.stage, Stage::Sent(_))
    }

    /// Gives up a place among those who wait for room in `queue`.
    pub(crate) fn leave(&self, queue: &Queue<Job>) {
        if let (Stage::Unsent(..), Some(ticket)) = (&self.stage, self.ticket) {
            queue.leave(ticket);
        }
    }
}

fn send<F, T, E>(
    queue: &Queue<Job>,
    job: Job,
    caller: Arc<Completion<T, E>>,
    waker: &Waker,
    ticket: &mut Option<Ticket>,
) -> Stage<F, T, E> {
    match queue.push_or_wait(job, waker, ticket) {
        Ok(()) => Stage::Sent(caller),
        Err(Rejected::Full(job)) => Stage::Unsent(job, caller),
        Err(Rejected::Closed(_)) => {
            caller.deliver(Outcome::Refused(closed()));
            Stage::Sent(caller)
        }
    }
}

fn job<B, T, E>(body: B, caller: Arc<Completion<T, E>>) -> Job
where
    B: FnOnce() -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    Box::new(move || {
        caller.deliver(match catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => Outcome::Returned(result),
            Err(payload) => Outcome::Panicked(payload),
        });
    })
}

/// Serves work until the queue is closed and empty.
pub(crate) fn serve(queue: &Queue<Job>) {
    let mut jobs = VecDeque::new();
    while queue.take(1, &mut jobs, None) != Taken::Closed {
        jobs.drain(..).for_each(|job| job());
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again to read")
}
