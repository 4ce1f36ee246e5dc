//! Owns the handle of a write: a future that also has a blocking [`Write::wait`].

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::completion::{Completion, with_thread_waker};
use crate::error::{Error, ErrorKind};
use crate::member::Member;
use crate::queue::{Rejected, Ticket};
use crate::writer::WriteQueue;

/// A write on its way: a [`Future`] of its result, which can also be waited for.
///
/// The transaction was handed to the writer when this handle was made; if the queue was full, it
/// is handed over by the first `wait` or poll that finds room.
///
/// # Cancellation
/// Dropping the handle of a transaction that is in the queue stops nobody: it runs to completion,
/// whole, and its result is dropped. One that never found room does not run.
#[must_use = "a write that is neither waited for nor awaited has an unknown result"]
pub struct Write<T, E = Error> {
    caller: Arc<Completion<T, E>>,
    unsent: Option<Unsent>,
}

struct Unsent {
    member: Box<dyn Member>,
    queue: Arc<WriteQueue>,
    ticket: Option<Ticket>,
}

impl<T, E: From<Error>> Write<T, E> {
    pub(crate) fn submit(
        member: Box<dyn Member>,
        caller: Arc<Completion<T, E>>,
        queue: &Arc<WriteQueue>,
    ) -> Write<T, E> {
        let unsent = match queue.push(member) {
            Ok(()) => None,
            Err(Rejected::Closed(member)) => {
                queue.refuse(member);
                None
            }
            Err(Rejected::Full(member)) => {
                Some(Unsent { member, queue: Arc::clone(queue), ticket: None })
            }
        };
        Write { caller, unsent }
    }

    /// The handle of a write that is in the queue.
    pub(crate) fn sent(caller: Arc<Completion<T, E>>) -> Write<T, E> {
        Write { caller, unsent: None }
    }

    /// Tries to get into the queue; `false` while it is full, with `waker` registered.
    pub(crate) fn send(&mut self, waker: &Waker) -> bool {
        let Some(Unsent { member, queue, mut ticket }) = self.unsent.take() else { return true };
        match queue.push_or_wait(member, waker, &mut ticket) {
            Ok(()) => true,
            Err(Rejected::Closed(member)) => {
                queue.refuse(member);
                true
            }
            Err(Rejected::Full(member)) => {
                self.unsent = Some(Unsent { member, queue, ticket });
                false
            }
        }
    }

    /// Blocks the calling thread until the write is acknowledged, and returns its result.
    ///
    /// # Errors
    /// The closure's own error; or, converted from [`Error`], the engine's: `Timeout`,
    /// `Overloaded` (the WAL got no room), `Constraint`, `Storage`, `Poisoned`, `Closed`, and
    /// `Invalid` when it changes more than fits in the WAL, or when called from inside a
    /// write closure, which would wait for itself.
    ///
    /// # Panics
    /// With the closure's panic, when it panicked.
    ///
    /// # Durability
    /// With [`Durability::Synced`](crate::Durability::Synced), `Ok` means that this transaction
    /// and every one acknowledged before it are on disk.
    pub fn wait(mut self) -> Result<T, E> {
        if on_writer_thread() {
            let message = "a write was waited for inside of a write closure, which would wait for \
                           itself; use the closure's own transaction";
            return Err(Error::new(ErrorKind::Invalid, message).into());
        }
        with_thread_waker(|waker| {
            while !self.send(waker) {
                thread::park();
            }
        });
        self.caller.wait().unwrap_for_caller()
    }
}

impl<T, E: From<Error>> Future for Write<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.send(context.waker()) {
            return Poll::Pending;
        }
        self.caller.poll(context).map(crate::completion::Outcome::unwrap_for_caller)
    }
}

impl<T, E> fmt::Debug for Write<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("is_queued", &self.unsent.is_none()).finish_non_exhaustive()
    }
}

impl<T, E> Drop for Write<T, E> {
    fn drop(&mut self) {
        if let Some(Unsent { queue, ticket: Some(ticket), .. }) = self.unsent.take() {
            queue.leave(ticket);
        }
    }
}

thread_local! {
    static ON_WRITER_THREAD: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn mark_writer_thread() {
    ON_WRITER_THREAD.set(true);
}

pub(crate) fn on_writer_thread() -> bool {
    ON_WRITER_THREAD.get()
}
