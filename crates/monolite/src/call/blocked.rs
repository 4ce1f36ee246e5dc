//! Owns how the thread of a caller waits until what it polls is ready.
//!
//! # Algorithm
//! What a lonely caller waits for, a read or a buffered write, is there sooner than a thread falls
//! asleep and is woken. So a thread whose last wait was short looks for up to [`SPIN`] whether it
//! was woken, before it sleeps. A look that saw nothing is not repeated until another short wait.
//!
//! A spinning thread takes a core from working threads, so at most [`MAX_SPINNING`] threads of the
//! process do so at a time, and none where there is a single core.
//!
//! # Invariants
//! - A wake-up is never lost: the waker sets the flag first and unparks the thread then, and a
//!   thread that has seen either polls again. A wait within a wait, on the same thread, gives back
//!   the unparking that may have been the outer one's.

#[cfg(all(test, shuttle))]
mod models;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::primitives::sync::atomic::{AtomicBool, Ordering};
use crate::primitives::thread::{self, Thread};
use crate::primitives::{hint, thread_local};

/// How long a caller spins at most: as the consumer of a queue does ([`super::queue`]).
const SPIN: Duration = Duration::from_micros(80);

/// The one that is alone: of two, each would take the core on which the other's work is done.
const MAX_SPINNING: usize = 1;

/// How many threads of the process spin.
static SPINNING: AtomicUsize = AtomicUsize::new(0);

/// A thread that waits, and what it knows of its last wait.
struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
    last_wait_was_short: AtomicBool,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Sleeper {
    fn of_this_thread() -> Sleeper {
        Sleeper {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            last_wait_was_short: AtomicBool::new(false),
        }
    }

    fn wait<T>(&self, mut poll: impl FnMut() -> Poll<T>) -> T {
        self.woken.store(false, Ordering::Relaxed);
        if let Poll::Ready(result) = poll() {
            return result;
        }
        let start = Stopwatch::start();
        if !self.last_wait_was_short.swap(false, Ordering::Relaxed) || !self.spin() {
            thread::park();
        }
        loop {
            if let Poll::Ready(result) = poll() {
                let was_short = start.elapsed() < SPIN;
                self.last_wait_was_short.store(was_short, Ordering::Relaxed);
                return result;
            }
            thread::park();
        }
    }

    /// Whether this thread was woken while it spun.
    fn spin(&self) -> bool {
        let Some(_spinning) = Spinning::start() else { return false };
        let start = Stopwatch::start();
        loop {
            if self.woken.load(Ordering::Acquire) {
                return true;
            }
            if start.elapsed() > SPIN {
                return false;
            }
            hint::spin_loop();
        }
    }
}

/// One of those that spin.
struct Spinning;

impl Spinning {
    fn start() -> Option<Spinning> {
        let spinning = SPINNING.fetch_add(1, Ordering::Relaxed);
        let it = Spinning;
        (spinning < MAX_SPINNING && has_cores()).then_some(it)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        let spinning = SPINNING.fetch_sub(1, Ordering::Relaxed);
        assert!(spinning > 0, "a thread that spins is counted");
    }
}

/// Whether another thread can work while one spins.
fn has_cores() -> bool {
    static CORES: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));
    *CORES > 1
}

/// What a thread keeps from one wait to the next.
enum Kept {
    Nothing,
    Sleeper(Arc<Sleeper>, Waker),
    /// It waits.
    InUse,
}

thread_local! {
    static KEPT: Cell<Kept> = const { Cell::new(Kept::Nothing) };
}

/// A wait of this thread.
struct Wait {
    sleeper: Arc<Sleeper>,
    waker: Waker,
    /// Whether another is under way further out.
    is_within: bool,
}

impl Wait {
    fn start() -> Wait {
        // A thread that is ending has no thread-locals any more.
        let kept = KEPT.try_with(|it| it.replace(Kept::InUse)).unwrap_or(Kept::InUse);
        let is_within = matches!(kept, Kept::InUse);
        if let Kept::Sleeper(sleeper, waker) = kept {
            return Wait { sleeper, waker, is_within };
        }
        let sleeper = Arc::new(Sleeper::of_this_thread());
        let waker = Waker::from(Arc::clone(&sleeper));
        Wait { sleeper, waker, is_within }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if self.is_within {
            // The wait further out may have lost its wake-up to this one: it looks again.
            return self.sleeper.thread.unpark();
        }
        let kept = Kept::Sleeper(Arc::clone(&self.sleeper), self.waker.clone());
        let _ = KEPT.try_with(|it| it.set(kept));
    }
}

/// Blocks the calling thread until `poll`, which is given its waker, is ready. What it polls may
/// wait in the same way.
pub(crate) fn wait_until<T>(mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let wait = Wait::start();
    wait.sleeper.wait(|| poll(&wait.waker))
}

thread_local! {
    /// Whether the thread has nothing else to do than what it polls.
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// As [`block_on`], and what the future awaits of the engine runs on the calling thread where it
/// can ([`runs_here`]): there is no other task that this would hold up.
pub(crate) fn block_on_here<T>(future: impl Future<Output = T>) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_OURS.with(|it| it.set(self.0));
        }
    }
    let _before = Before(IS_OURS.with(|it| it.replace(true)));
    block_on(future)
}

/// Whether work that is awaited on this thread is to run on it, and not on a reader thread.
pub(crate) fn runs_here() -> bool {
    IS_OURS.with(Cell::get)
}

/// Blocks the calling thread until the future is done.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    wait_until(|waker| future.as_mut().poll(&mut Context::from_waker(waker)))
}
