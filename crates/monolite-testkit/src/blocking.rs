//! Owns how the calling thread waits: for a future, and for a mutex that another thread may have
//! poisoned.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_within(future, Duration::MAX).expect("584 years are not over")
}

/// Drives a future on this thread; `None` when it has not ended within `patience`.
pub fn block_on_within<F: Future>(future: F, patience: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending if start.elapsed() > patience => return None,
            Poll::Pending => thread::park_timeout(patience),
        }
    }
}

/// Locks, also what a thread has left by a panic: what it was about is told elsewhere.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
