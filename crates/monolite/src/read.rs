//! Owns the handle of a read: run on the caller's thread by [`Read::wait`], or handed to a reader
//! thread when it is awaited.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::completion::{Completion, Outcome};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::queue::{Queue, Rejected, Taken, Ticket};
use crate::readers::Readers;
use crate::tx::Tx;
use crate::write::on_writer_thread;

/// When the result of a read may be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// As soon as it is there.
    AtOnce,
    /// When everything it may have seen is on disk.
    OnceDurable,
}

/// What a read needs of the engine.
pub(crate) struct ReadSide {
    pub(crate) readers: Readers,
    pub(crate) progress: Arc<Progress>,
    pub(crate) queue: Queue<ReadJob>,
}

/// A read that has not run yet: call [`Read::wait`], or await it.
///
/// # Cancellation
/// Dropping an awaited read stops nobody: it runs to completion on its reader thread, and its
/// result is dropped. One that never found room in the queue of the reader threads does not run.
#[must_use = "a read does nothing until it is waited for or awaited"]
pub struct Read<'d, F, T, E = Error> {
    side: &'d Arc<ReadSide>,
    answer: Answer,
    stage: Stage<F, T, E>,
    ticket: Option<Ticket>,
}

enum Stage<F, T, E> {
    New(F),
    Unsent(ReadJob, Arc<Completion<T, E>>),
    Sent(Arc<Completion<T, E>>),
    Finished,
}

/// A read for a reader thread.
pub(crate) type ReadJob = Box<dyn FnOnce() + Send>;

// No field is ever pinned: a poll moves the closure out.
impl<F, T, E> Unpin for Read<'_, F, T, E> {}

impl<'d, F, T, E> Read<'d, F, T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    pub(crate) fn new(side: &'d Arc<ReadSide>, answer: Answer, body: F) -> Read<'d, F, T, E> {
        Read { side, answer, stage: Stage::New(body), ticket: None }
    }

    /// Runs the read on the calling thread and returns its result.
    ///
    /// Blocks while every reader connection is in use.
    ///
    /// # Errors
    /// The closure's own error; or, converted from [`Error`], the engine's: `Timeout`, `Closed`,
    /// `Poisoned` (a durable read only), `Invalid` when reads of one thread are nested deeper than
    /// there are readers.
    ///
    /// # Panics
    /// With the closure's panic; and when the read was polled before.
    pub fn wait(mut self) -> Result<T, E> {
        match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::New(body) => perform(self.side, self.answer, body),
            _ => panic!("a read that was polled is awaited to its end, not waited for"),
        }
    }
}

fn perform<T, E, F>(side: &ReadSide, answer: Answer, body: F) -> Result<T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E>,
    E: From<Error>,
{
    if answer == Answer::OnceDurable && on_writer_thread() {
        let message = "a durable read was waited for inside of a write closure, whose own batch it \
                       would wait for; use the closure's transaction, or read()";
        return Err(Error::new(ErrorKind::Invalid, message).into());
    }
    let result = side.readers.run(body);
    if answer == Answer::OnceDurable {
        side.progress.wait_durable(side.progress.committing())?;
    }
    result
}

impl<F, T, E> Future for Read<'_, F, T, E>
where
    F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let side = self.side;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Finished) {
            Stage::New(body) => {
                let caller = Completion::new();
                let job = job(Arc::clone(side), self.answer, body, Arc::clone(&caller));
                send(&side.queue, job, caller, context.waker(), &mut self.ticket)
            }
            Stage::Unsent(job, caller) => {
                send(&side.queue, job, caller, context.waker(), &mut self.ticket)
            }
            stage => stage,
        };
        let outcome = match &self.stage {
            Stage::Sent(caller) => caller.poll(context),
            Stage::Unsent(..) => return Poll::Pending,
            _ => panic!("a read was polled again after its result had been returned"),
        };
        if outcome.is_ready() {
            self.stage = Stage::Finished;
        }
        outcome.map(Outcome::unwrap_for_caller)
    }
}

impl<F, T, E> Drop for Read<'_, F, T, E> {
    fn drop(&mut self) {
        if let (Stage::Unsent(..), Some(ticket)) = (&self.stage, self.ticket) {
            self.side.queue.leave(ticket);
        }
    }
}

fn send<F, T, E>(
    queue: &Queue<ReadJob>,
    job: ReadJob,
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

fn job<F, T, E>(
    side: Arc<ReadSide>,
    answer: Answer,
    body: F,
    caller: Arc<Completion<T, E>>,
) -> ReadJob
where
    F: FnOnce(&Tx<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    Box::new(move || {
        let run = AssertUnwindSafe(|| perform(&side, answer, body));
        caller.deliver(match catch_unwind(run) {
            Ok(result) => Outcome::Returned(result),
            Err(payload) => Outcome::Panicked(payload),
        });
    })
}

/// Serves awaited reads until the queue is closed and empty.
pub(crate) fn serve(queue: &Queue<ReadJob>) {
    let mut jobs = VecDeque::new();
    while queue.take(1, &mut jobs, None) != Taken::Closed {
        jobs.drain(..).for_each(|job| job());
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again to read")
}
