//! Owns failing allocations: for programs that torture the engine, never for others.
//!
//! # Algorithm
//! [`install`] puts one more wrapper around SQLite's allocator before SQLite starts. While it is
//! armed, it counts what is allocated by all threads, and lets the N-th allocation fail, alone or
//! with all that follow.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::memory::{Lower, wrap};

static LOWER: OnceLock<Lower> = OnceLock::new();
static COUNTED: AtomicU64 = AtomicU64::new(0);
static FAILS_AT: AtomicU64 = AtomicU64::new(u64::MAX);
static FAILS_ONCE: AtomicBool = AtomicBool::new(true);

/// Which allocations fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// The N-th, counted from 1.
    Once(u64),
    /// The N-th and all that follow.
    From(u64),
}

/// Puts the wrapper in place; it lets everything pass until it is armed.
///
/// # Errors
/// When SQLite has been initialised in this process already, or is too old.
pub fn install() -> Result<(), String> {
    crate::initialize()?;
    wrap(&LOWER, |methods| {
        methods.xMalloc = Some(allocate);
        methods.xRealloc = Some(reallocate);
    })
    .ok_or_else(|| "allocations cannot fail on purpose: SQLite is in use already".into())
}

/// Counts allocations from now on, and lets some of them fail.
pub fn arm(failing: Failing) {
    let (at, once) = match failing {
        Failing::Once(at) => (at, true),
        Failing::From(at) => (at, false),
    };
    FAILS_ONCE.store(once, Ordering::SeqCst);
    COUNTED.store(0, Ordering::SeqCst);
    FAILS_AT.store(at, Ordering::SeqCst);
}

/// Lets everything pass again; returns how many allocations there were since [`arm`].
pub fn disarm() -> u64 {
    FAILS_AT.store(u64::MAX, Ordering::SeqCst);
    COUNTED.load(Ordering::SeqCst)
}

fn passes() -> bool {
    let at = FAILS_AT.load(Ordering::SeqCst);
    if at == u64::MAX {
        return true;
    }
    let number = COUNTED.fetch_add(1, Ordering::SeqCst) + 1;
    number < at || (number > at && FAILS_ONCE.load(Ordering::SeqCst))
}

fn lower() -> &'static Lower {
    // Set before SQLite learned of the functions that call this.
    LOWER.get().expect("the wrapper is installed after the allocator underneath is known")
}

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    if !passes() {
        return std::ptr::null_mut();
    }
    // SAFETY: SQLite's argument is handed on unchanged.
    unsafe { (lower().allocate)(bytes) }
}

unsafe extern "C" fn reallocate(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    if !passes() {
        return std::ptr::null_mut();
    }
    // SAFETY: SQLite's arguments are handed on unchanged.
    unsafe { (lower().reallocate)(memory, bytes) }
}
