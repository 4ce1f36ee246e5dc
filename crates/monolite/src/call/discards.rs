//! Owns the threads that drop results which no caller took.
//!
//! A drop is code of the application: it may panic, sleep, or wait for a thread that waits for the
//! engine. So it has a thread of its own. There are up to [`MAX_THREADS`] in the process, started
//! when they are needed and gone when they are not; a value behind that many drops which do not
//! return stays in memory, which harms nothing else.
//!
//! No caller waits for a drop, and waking a thread costs the writer more than a transaction. So a
//! woken thread first lets values gather for [`GATHERING`].
//!
//! # Not here
//! The closures themselves are dropped where they ran or were answered: there is one for each
//! transaction.

use std::any::TypeId;
use std::collections::VecDeque;
use std::mem::needs_drop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::error::Error;

/// Drops under way at the same time.
const MAX_THREADS: usize = 4;

/// How long a thread without work stays.
const REST: Duration = Duration::from_secs(5);

/// How long the first value of several waits for the others.
const GATHERING: Duration = Duration::from_millis(2);

/// Whether a thread will look at what has been put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    Called,
    Gathers,
}

struct Discards {
    values: VecDeque<Box<dyn Send>>,
    call: Call,
    threads: usize,
    idle: usize,
}

static STATE: Mutex<Discards> =
    Mutex::new(Discards { values: VecDeque::new(), call: Call::None, threads: 0, idle: 0 });

static PUT: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, Discards> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops a value, here if nothing of the application's runs then, and otherwise on another thread.
pub(crate) fn drop_elsewhere<T: Send + 'static>(value: T) {
    if !needs_drop::<T>() || TypeId::of::<T>() == TypeId::of::<Error>() {
        return;
    }
    let value: Box<dyn Send> = Box::new(value);
    let mut state = state();
    state.values.push_back(value);
    if state.call == Call::None {
        state.call = Call::Called;
        drop(call(state));
    }
}

/// Has another thread come, unless all are busy.
fn call(mut state: MutexGuard<'static, Discards>) -> MutexGuard<'static, Discards> {
    if state.idle > 0 || state.threads == MAX_THREADS {
        PUT.notify_one();
        return state;
    }
    state.threads += 1;
    drop(state);
    let started = thread::Builder::new().name("monolite-drop".into()).spawn(serve);
    let mut state = self::state();
    if started.is_err() {
        // Another one, or the next call, drops the value.
        state.threads -= 1;
        state.call = Call::None;
    }
    state
}

/// Drops values until there have been none for a while.
fn serve() {
    let mut state = state();
    loop {
        if state.call == Call::Called {
            state.call = Call::Gathers;
            drop(state);
            clock::rest(GATHERING);
            state = self::state();
            state.call = Call::None;
        }
        while let Some(value) = state.values.pop_front() {
            if !state.values.is_empty() {
                // This one may not return.
                state = call(state);
            }
            drop(state);
            drop_quietly(value);
            state = self::state();
        }
        state.idle += 1;
        let waited = PUT.wait_timeout(state, REST).unwrap_or_else(PoisonError::into_inner);
        state = waited.0;
        state.idle -= 1;
        if waited.1.timed_out() && state.values.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

/// Drops a value of the application's, whose panic is not the engine's to die of.
pub(crate) fn drop_quietly<T>(value: T) {
    quietly(|| drop(value));
}

/// Runs code of the application's that has no caller to panic in.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        // Its drop could panic as well.
        std::mem::forget(payload);
    }
}
