//! Owns the place where one caller waits for one result, blocking or as a future.
//!
//! # Invariants
//! - No code of the application that runs on a thread of the engine brings that thread down: a
//!   waker that panics goes no further, and a result that is not taken is dropped elsewhere
//!   ([`drop_elsewhere`]).
//!
//! # Threads and locks
//! One mutex per result, held for a few instructions by the thread that delivers and the one that
//! waits. Nothing is called while it is held.

#[cfg(all(test, shuttle))]
mod models;

use std::any::Any;
use std::panic;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::activity::events::{outcome, panicked};
use crate::call::blocked::wait_until;
use crate::call::discards::{drop_elsewhere, quietly};
use crate::error::Error;
use crate::primitives::sync::{Mutex, MutexGuard, PoisonError};

/// How a closure's run ended, as its caller will see it.
pub(crate) enum Outcome<T, E> {
    /// The closure's own result.
    Returned(Result<T, E>),
    /// The closure panicked; the panic goes on in its caller.
    Panicked(Box<dyn Any + Send>),
    /// The engine's verdict stands in place of the closure's result.
    Refused(Error),
}

impl<T, E: From<Error>> Outcome<T, E> {
    /// The caller's view of it.
    ///
    /// # Panics
    /// When the closure panicked, with the closure's own panic.
    pub(crate) fn unwrap_for_caller(self) -> Result<T, E> {
        match self {
            Outcome::Returned(result) => result,
            Outcome::Refused(error) => Err(E::from(error)),
            Outcome::Panicked(payload) => panic::resume_unwind(payload),
        }
    }
}

impl<T: Send + 'static, E: Send + 'static> Outcome<T, E> {
    /// It in one word, for a subscriber.
    pub(crate) fn word(&self) -> String {
        match self {
            Outcome::Returned(Ok(_)) => outcome(true, None),
            Outcome::Returned(Err(error)) => outcome(false, (error as &dyn Any).downcast_ref()),
            Outcome::Panicked(_) => panicked(),
            Outcome::Refused(error) => outcome(false, Some(error)),
        }
    }

    fn drop_elsewhere(self) {
        match self {
            Outcome::Returned(Ok(value)) => drop_elsewhere(value),
            Outcome::Returned(Err(error)) => drop_elsewhere(error),
            Outcome::Panicked(payload) => drop_elsewhere(payload),
            Outcome::Refused(_) => {}
        }
    }
}

enum Delivery<T, E> {
    Pending(Option<Waker>),
    Delivered(Outcome<T, E>),
    Taken,
}

/// One result on its way from the engine to its caller.
pub(crate) struct Completion<T, E> {
    state: Mutex<Delivery<T, E>>,
    /// [`Outcome::drop_elsewhere`], whose bounds a drop cannot ask for.
    discard: fn(Outcome<T, E>),
}

impl<T: Send + 'static, E: Send + 'static> Completion<T, E> {
    pub(crate) fn new() -> Arc<Completion<T, E>> {
        let state = Mutex::new(Delivery::Pending(None));
        Arc::new(Completion { state, discard: Outcome::drop_elsewhere })
    }
}

impl<T, E> Completion<T, E> {
    fn state(&self) -> MutexGuard<'_, Delivery<T, E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the result over and wakes the waiting caller. The first delivery counts.
    pub(crate) fn deliver(&self, outcome: Outcome<T, E>) {
        let mut state = self.state();
        let Delivery::Pending(waker) = &mut *state else {
            drop(state);
            return self.discard(outcome);
        };
        let waker = waker.take();
        *state = Delivery::Delivered(outcome);
        drop(state);
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    /// Drops a result that will not be taken.
    pub(crate) fn discard(&self, outcome: Outcome<T, E>) {
        (self.discard)(outcome);
    }

    /// Whether the result is there.
    pub(crate) fn is_delivered(&self) -> bool {
        matches!(*self.state(), Delivery::Delivered(_))
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        self.poll_with(context.waker())
    }

    fn poll_with(&self, waker: &Waker) -> Poll<Outcome<T, E>> {
        let mut state = self.state();
        if let Delivery::Pending(registered) = &mut *state {
            if !registered.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *registered = Some(waker.clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, Delivery::Taken) {
            Delivery::Delivered(outcome) => Poll::Ready(outcome),
            Delivery::Pending(_) | Delivery::Taken => {
                panic!("a result was polled again after it had been returned")
            }
        }
    }

    /// Blocks the calling thread until the result is there.
    pub(crate) fn wait(&self) -> Outcome<T, E> {
        wait_until(|waker| self.poll_with(waker))
    }
}

impl<T, E> Drop for Completion<T, E> {
    /// The result was not taken; the engine may hold the last reference.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Delivery::Delivered(outcome) = std::mem::replace(state, Delivery::Taken) {
            (self.discard)(outcome);
        }
    }
}
