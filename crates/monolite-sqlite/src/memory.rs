//! Owns the memory budget of an untrusted query: how much SQLite may allocate for it, counted
//! where SQLite asks for memory.
//!
//! # Algorithm
//! A connection is used by one thread at a time, and so is the memory it asks for. [`install`] puts
//! a wrapper around SQLite's allocator before SQLite starts; the wrapper looks at a counter of the
//! calling thread. Without a budget on this thread that is one comparison. With one, allocations
//! are taken off it and releases put back, and an allocation that does not fit fails, which SQLite
//! reports as `SQLITE_NOMEM` after it has undone what the statement did.
//!
//! SQLite's own limit (`sqlite3_hard_heap_limit64`) is one for the whole process, and needs
//! statistics that take a process-wide mutex for every allocation.
//!
//! # Invariants
//! - The wrapper is installed before SQLite has allocated anything, so every pointer it is given
//!   came from the allocator underneath.
//! - A budget ends on the thread on which it began.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;

/// What is left when there is no budget.
const UNLIMITED: i64 = i64::MAX;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
    static SHORT: Cell<bool> = const { Cell::new(false) };
}

/// The functions of SQLite's own allocator that are wrapped.
pub(crate) struct Lower {
    pub(crate) allocate: unsafe extern "C" fn(c_int) -> *mut c_void,
    release: unsafe extern "C" fn(*mut c_void),
    pub(crate) reallocate: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    size: unsafe extern "C" fn(*mut c_void) -> c_int,
}

static LOWER: OnceLock<Lower> = OnceLock::new();

/// Puts the counting wrapper around SQLite's allocator; whether it is there. It cannot be put there
/// once another library has initialised SQLite.
pub(crate) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| try_install().is_some())
}

fn try_install() -> Option<()> {
    wrap(&LOWER, |methods| {
        methods.xMalloc = Some(allocate);
        methods.xFree = Some(release);
        methods.xRealloc = Some(reallocate);
    })
}

/// Puts wrappers around SQLite's allocator as it is now, which is then found in `lower`; `None`
/// when SQLite is initialised already. The wrappers that `put` sets keep the contract of the
/// functions they wrap.
pub(crate) fn wrap(
    lower: &OnceLock<Lower>,
    put: impl FnOnce(&mut ffi::sqlite3_mem_methods),
) -> Option<()> {
    let mut methods = MaybeUninit::<ffi::sqlite3_mem_methods>::zeroed();
    // SAFETY: GETMALLOC writes a whole structure of function pointers through this pointer, or
    // nothing when SQLite is initialised; all zero is a valid value of it (no functions).
    let mut methods = unsafe {
        ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, methods.as_mut_ptr());
        methods.assume_init()
    };
    let found = Lower {
        allocate: methods.xMalloc?,
        release: methods.xFree?,
        reallocate: methods.xRealloc?,
        size: methods.xSize?,
    };
    lower.set(found).ok()?;
    put(&mut methods);
    // SAFETY: SQLite copies the structure; its functions keep the contract of those they wrap, and
    // they live as long as the process. When SQLite is initialised already, nothing is changed.
    let code = unsafe { ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw const methods) };
    (code == ffi::SQLITE_OK).then_some(())
}

fn lower() -> &'static Lower {
    // Set before SQLite learned of the functions that call this.
    LOWER.get().expect("the wrapper is installed after the allocator underneath is known")
}

/// Whether `bytes` more fit into this thread's budget; remembers it when they do not.
fn fits(left: i64, bytes: i64) -> bool {
    if bytes > left {
        EXCEEDED.set(true);
    }
    bytes <= left
}

/// Takes a piece off the budget.
fn take(bytes: i64) {
    LEFT.set(LEFT.get().saturating_sub(bytes).min(UNLIMITED - 1));
}

/// Puts a piece back.
fn put_back(bytes: i64) {
    LEFT.set(LEFT.get().saturating_add(bytes).min(UNLIMITED - 1));
}

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    let (lower, left) = (lower(), LEFT.get());
    if left != UNLIMITED && !fits(left, bytes.into()) {
        return ptr::null_mut();
    }
    // SAFETY: SQLite's arguments are handed on unchanged, and the size is asked of a pointer that
    // the allocator has just returned.
    unsafe {
        let memory = (lower.allocate)(bytes);
        if memory.is_null() {
            SHORT.set(true);
        } else if left != UNLIMITED {
            take((lower.size)(memory).into());
        }
        memory
    }
}

unsafe extern "C" fn release(memory: *mut c_void) {
    let lower = lower();
    // SAFETY: SQLite's argument is handed on unchanged; it came from the allocator underneath.
    unsafe {
        if LEFT.get() != UNLIMITED && !memory.is_null() {
            put_back((lower.size)(memory).into());
        }
        (lower.release)(memory);
    }
}

unsafe extern "C" fn reallocate(memory: *mut c_void, bytes: c_int) -> *mut c_void {
    let (lower, left) = (lower(), LEFT.get());
    if left == UNLIMITED {
        // SAFETY: SQLite's arguments are handed on unchanged.
        return unsafe { (lower.reallocate)(memory, bytes) };
    }
    // SAFETY: as above; the size is asked of pointers that came from the allocator underneath.
    unsafe {
        let before = i64::from((lower.size)(memory));
        let more = i64::from(bytes) - before;
        if !fits(left, more) {
            return ptr::null_mut();
        }
        let moved = (lower.reallocate)(memory, bytes);
        if moved.is_null() {
            SHORT.set(true);
        } else {
            put_back(before);
            take((lower.size)(moved).into());
        }
        moved
    }
}

/// A limit on what SQLite may allocate on this thread from now on, until it is dropped.
#[derive(Debug)]
pub struct Budget {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Budget {
    /// Allows this thread's SQLite `bytes` more than it has now. There is one at a time.
    pub fn start(bytes: u64) -> Budget {
        let given = i64::try_from(bytes).unwrap_or(UNLIMITED).min(UNLIMITED - 1);
        let before = LEFT.replace(given);
        assert_eq!(before, UNLIMITED, "a thread has one budget at a time");
        EXCEEDED.set(false);
        SHORT.set(false);
        Budget { _thread: PhantomData }
    }

    /// Whether an allocation failed because it did not fit.
    pub fn is_exceeded(&self) -> bool {
        EXCEEDED.get()
    }

    /// Whether an allocation failed because the process has no more memory.
    pub fn is_system_short(&self) -> bool {
        SHORT.get()
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let left = LEFT.replace(UNLIMITED);
        assert_ne!(left, UNLIMITED, "a budget ends on the thread on which it began");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(connection: &rusqlite::Connection, bytes: u32) -> rusqlite::Result<i64> {
        connection.query_row("SELECT length(randomblob(?1) || 'x')", [bytes], |row| row.get(0))
    }

    #[test]
    fn an_allocation_beyond_the_budget_fails_and_the_connection_goes_on() {
        crate::initialize().unwrap();
        assert!(install());
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let budget = Budget::start(1 << 20);
        assert!(fill(&connection, 100_000).is_ok());
        assert!(!budget.is_exceeded());
        let error = fill(&connection, 4 << 20).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OutOfMemory));
        assert!(budget.is_exceeded());
        drop(budget);
        assert!(fill(&connection, 4 << 20).is_ok());
    }

    #[test]
    fn released_memory_may_be_used_again() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let _budget = Budget::start(1 << 20);
        for _ in 0..100 {
            assert!(fill(&connection, 200_000).is_ok());
        }
    }
}
