//! Owns the count of forks by which a process knows that it is not the one that has opened its
//! databases.
//!
//! A forked process has the memory of its parent, and neither its threads nor its locks: SQLite
//! must not be used there on connections of the parent (<https://sqlite.org/howtocorrupt.html>, 2.6). A
//! child that is made without `fork(2)` of the C library (`clone` by hand) is not noticed.

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

static FORKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        // SAFETY: the handler stays where it is, as this code is not unloaded, and does nothing
        // that may not be done in the child of a process with threads. When there is no memory for
        // the entry, forks are not noticed.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}

/// How often the process was forked on its way from the one that called
/// [`initialize`](crate::initialize) first.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}
