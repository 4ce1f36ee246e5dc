//! Owns the starting of the engine's threads.

use std::thread::{self, JoinHandle};

use crate::error::{Error, ErrorKind, Result};

/// Starts a thread.
///
/// # Errors
/// `Storage` when the system has none to give.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    #[cfg(test)]
    let body = shortage::meet(body);
    #[cfg(not(test))]
    let body = Ok(body);
    let thread = body.and_then(|body| thread::Builder::new().name(name.into()).spawn(body));
    thread.map_err(|error| {
        let message = format!("the thread {name} cannot be started: {error}");
        Error::new(ErrorKind::Storage, message)
    })
}

#[cfg(test)]
pub(crate) mod shortage {
    use std::cell::Cell;
    use std::io;

    thread_local! {
        /// How many threads this one can still start.
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Has this thread start `count` more, and no other, until it is told otherwise.
    pub(crate) fn after(count: usize) {
        LEFT.set(count);
    }

    pub(super) fn meet<B>(body: B) -> io::Result<B> {
        let left = LEFT.get();
        if left == 0 {
            return Err(io::Error::from(io::ErrorKind::WouldBlock));
        }
        LEFT.set(left - 1);
        Ok(body)
    }
}
