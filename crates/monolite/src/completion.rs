//! Owns the place where one caller waits for one result, blocking or as a future.
//!
//! # Invariants
//! - No code of the application that runs on a thread of the engine brings that thread down: a
//!   waker that panics, or a value whose drop does ([`discard`]).
//!
//! # Threads and locks
//! One mutex per result, held for a few instructions by the thread that delivers and the one that
//! waits. Nothing is called while it is held.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::error::Error;

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

enum State<T, E> {
    Pending(Option<Waker>),
    Delivered(Outcome<T, E>),
    Taken,
}

/// One result on its way from the engine to its caller.
pub(crate) struct Completion<T, E>(Mutex<State<T, E>>);

impl<T, E> Completion<T, E> {
    pub(crate) fn new() -> Arc<Completion<T, E>> {
        Arc::new(Completion(Mutex::new(State::Pending(None))))
    }

    fn state(&self) -> MutexGuard<'_, State<T, E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the result over and wakes whoever waits. The first delivery counts.
    pub(crate) fn deliver(&self, outcome: Outcome<T, E>) {
        let mut state = self.state();
        let State::Pending(waker) = &mut *state else {
            drop(state);
            return discard(outcome);
        };
        let waker = waker.take();
        *state = State::Delivered(outcome);
        drop(state);
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    /// Whether the result is there.
    pub(crate) fn is_delivered(&self) -> bool {
        matches!(*self.state(), State::Delivered(_))
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        self.poll_with(context.waker())
    }

    fn poll_with(&self, waker: &Waker) -> Poll<Outcome<T, E>> {
        let mut state = self.state();
        if let State::Pending(registered) = &mut *state {
            if !registered.as_ref().is_some_and(|known| known.will_wake(waker)) {
                *registered = Some(waker.clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Delivered(outcome) => Poll::Ready(outcome),
            State::Pending(_) | State::Taken => {
                panic!("a result was polled again after it had been returned")
            }
        }
    }

    /// Blocks the calling thread until the result is there.
    pub(crate) fn wait(&self) -> Outcome<T, E> {
        with_thread_waker(|waker| {
            loop {
                match self.poll_with(waker) {
                    Poll::Ready(outcome) => return outcome,
                    Poll::Pending => thread::park(),
                }
            }
        })
    }
}

impl<T, E> Drop for Completion<T, E> {
    /// Nobody has taken the result; the engine may be the last who has it.
    fn drop(&mut self) {
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        discard(std::mem::replace(state, State::Taken));
    }
}

/// Drops a value of the application's, whose panic is not the engine's to die of.
pub(crate) fn discard<T>(value: T) {
    quietly(|| drop(value));
}

/// Runs code of the application's that has no caller to panic in.
fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its drop could panic as well.
        std::mem::forget(payload);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `wait` with a waker that unparks this thread, made once for each thread.
pub(crate) fn with_thread_waker<R>(wait: impl FnOnce(&Waker) -> R) -> R {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    WAKER.with(wait)
}
