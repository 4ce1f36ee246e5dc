//! Owns the exclusive turn in the writer: a transaction that has conflicted too often runs alone,
//! with its application code awaited in the middle of a batch, for a bounded time.
//!
//! # Algorithm
//! The turn is a closure in the write queue that may run once only. When the writer reaches it, it
//! says so, and then carries out on the writer's own transaction what it is sent, until it is told
//! to commit, its owner has gone, or its time is over. The writer does nothing else meanwhile.
//!
//! # Threads and locks
//! Awaited statements of the turn are sent from a thread of its own, `monolite-turn`, and not
//! from a reader thread: those may all be waiting for the writer.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::keys::{Committed, Key};
use crate::call::completion::{Completion, Outcome};
use crate::call::discards::drop_quietly;
use crate::call::member::{Once, OwnLimit, Submission};
use crate::call::work::{self, JobQueue};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::tx::Tx;

/// What the owner of an exclusive turn tells the writer.
enum Order {
    Run(Box<dyn FnOnce(&Tx<'_>) + Send>),
    Commit(Option<Key>),
}

/// The writer, for one transaction.
pub(crate) struct ExclusiveTurn {
    orders: Sender<Order>,
    result: Mutex<Option<Write<Committed>>>,
}

/// The thread that sends the awaited statements of one turn; it ends with this.
pub(crate) struct TurnThread(Arc<JobQueue>);

impl TurnThread {
    fn start() -> Result<TurnThread> {
        let queue = Arc::new(JobQueue::new(MAX_AWAITED));
        let awaited = Arc::clone(&queue);
        let thread = thread::Builder::new().name("monolite-turn".into());
        thread.spawn(move || work::serve(&awaited)).map_err(|error| {
            let message = format!("the thread monolite-turn cannot be started: {error}");
            Error::new(ErrorKind::Storage, message)
        })?;
        Ok(TurnThread(queue))
    }

    /// Where awaited statements go.
    pub(crate) fn queue(&self) -> &JobQueue {
        &self.0
    }
}

impl Drop for TurnThread {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// Awaited statements of one turn at the same time; their order is the application's concern.
const MAX_AWAITED: usize = 1_024;

/// Tells whoever waits for the turn whether it is there, or will never be.
struct Grant(Option<Arc<Completion<bool, Error>>>);

impl Grant {
    fn tell(&mut self, is_granted: bool) {
        if let Some(waiting) = self.0.take() {
            waiting.deliver(Outcome::Returned(Ok(is_granted)));
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.tell(false);
    }
}

impl ExclusiveTurn {
    /// Waits for the writer and takes it for `limit` at most.
    ///
    /// # Errors
    /// `Closed`, `Poisoned`, `Overloaded` (see [`Write::wait`]); `Invalid` inside of a closure of
    /// the same database that has the writer.
    pub(crate) async fn take(
        writes: &Arc<WriteQueue>,
        limit: Duration,
    ) -> Result<(ExclusiveTurn, TurnThread)> {
        if writes.database().has_writer() {
            let message = "a transaction needs the writer to itself inside of a closure, of a \
                           write or of another transaction, that has it";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let (orders, received) = channel();
        let waiting = Completion::new();
        let mut grant = Grant(Some(Arc::clone(&waiting)));
        let body = move |tx: &Tx<'_>| {
            grant.tell(true);
            serve(tx, &received, limit)
        };
        let caller = Completion::new();
        let member = Box::new(
            Submission::new(Once(Some(body)), writes.terms(), Arc::clone(&caller))
                .within(OwnLimit::Turn(limit)),
        );
        let result = Write::submit(member, caller, writes);
        if !poll_fn(|context| waiting.poll(context)).await.unwrap_for_caller()? {
            let never =
                || Error::new(ErrorKind::Internal, "an exclusive turn ended before it began");
            return Err(result.await.err().unwrap_or_else(never));
        }
        Ok((ExclusiveTurn { orders, result: Mutex::new(Some(result)) }, TurnThread::start()?))
    }

    /// Runs `body` on the writer's transaction and waits for it.
    ///
    /// # Errors
    /// `Timeout` when the turn is over.
    ///
    /// # Panics
    /// With the panic of `body`; the turn goes on.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        body: impl FnOnce(&Tx<'_>) -> R + Send + 'static,
    ) -> Result<R> {
        let (reply, answer) = sync_channel(1);
        let run = move |tx: &Tx<'_>| {
            let ran = catch_unwind(AssertUnwindSafe(|| body(tx)));
            // Nobody listens when the application has gone, and then nobody minds.
            drop_quietly(reply.send(ran));
        };
        self.orders.send(Order::Run(Box::new(run))).map_err(|_| over())?;
        match answer.recv().map_err(|_| over())? {
            Ok(result) => Ok(result),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Commits, with a key that is not stored yet, and hands out the result, once.
    pub(crate) fn commit(&self, key: Option<Key>) -> Option<Write<Committed>> {
        // When the turn is over, the result says so.
        let _ = self.orders.send(Order::Commit(key));
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The writer's side.
fn serve(tx: &Tx<'_>, orders: &Receiver<Order>, limit: Duration) -> Result<Committed> {
    let patience = Patience::of(limit);
    loop {
        match orders.recv_timeout(patience.left()) {
            Ok(Order::Run(body)) => body(tx),
            Ok(Order::Commit(key)) => return Key::commit(key.as_ref(), tx),
            Err(RecvTimeoutError::Timeout) => return Err(over()),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::aborted("the transaction was rolled back"));
            }
        }
    }
}

/// An exclusive turn whose time is over.
pub(crate) fn over() -> Error {
    let message = "the transaction had the writer to itself after too many conflicts, and its \
                   time is over (option exclusive_time_limit); do less between its statements, or \
                   raise the option";
    Error::new(ErrorKind::Timeout, message)
}
