//! Owns the memory budget of a transaction: how much SQLite may allocate for it, counted where
//! SQLite asks for memory.
//!
//! # Algorithm
//! A connection is used by one thread at a time, and so is the memory it asks for. [`install`] puts
//! a wrapper around SQLite's allocator before SQLite starts; the wrapper looks at a counter of the
//! calling thread. Without a budget on this thread that is one comparison. With one, allocations
//! are taken off it and releases put back, and an allocation that does not fit fails, which SQLite
//! reports as `SQLITE_NOMEM` after it has undone what the statement did.
//!
//! So does one in a while of a statement that has to end: most of what takes long between two of
//! SQLite's looks at the clock allocates meanwhile (functions that make large values, the planner).
//! Those between two of ours succeed, which is what SQLite needs to undo the statement.
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
use std::sync::{Arc, OnceLock};

use rusqlite::ffi;

use crate::look::Look;
use crate::pcache;
use crate::weights::{self, Weights};

/// What is left when there is no budget.
const UNLIMITED: i64 = i64::MAX;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
    /// That of the running budget, which keeps it; null without one.
    static LOOK: Cell<*const Look> = const { Cell::new(ptr::null()) };
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

/// Whether the statement that asks for `bytes` may go on, for a piece that then has `size`.
fn goes_on_behind(bytes: i64, size: i64) -> bool {
    let is_largest = weights::note_value(size);
    let look = LOOK.get();
    // SAFETY: the budget of this thread that has set it owns a share of it, and takes it back
    // before it lets that go.
    let look = unsafe { look.as_ref() };
    look.is_none_or(|look| {
        // There may be no piece behind it before all passes over it.
        look.goes_on_behind_piece(usize::try_from(bytes).unwrap_or(0))
            && (!is_largest || look.goes_on())
    })
}

/// Takes a piece off the budget.
fn take(bytes: i64) {
    LEFT.set(LEFT.get().saturating_sub(bytes).min(UNLIMITED - 1));
    weights::add(bytes);
}

/// Puts a piece back.
fn put_back(bytes: i64) {
    LEFT.set(LEFT.get().saturating_add(bytes).min(UNLIMITED - 1));
    weights::remove(bytes);
}

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    let (lower, left) = (lower(), LEFT.get());
    if left != UNLIMITED
        && !(fits(left, bytes.into()) && goes_on_behind(bytes.into(), bytes.into()))
    {
        return ptr::null_mut();
    }
    // SAFETY: SQLite's arguments are handed on unchanged, and the size is asked of a pointer that
    // the allocator has just returned.
    unsafe {
        let memory = (lower.allocate)(bytes);
        if left != UNLIMITED && !memory.is_null() {
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
        if !(fits(left, more) && goes_on_behind(more, bytes.into())) {
            return ptr::null_mut();
        }
        let moved = (lower.reallocate)(memory, bytes);
        if !moved.is_null() {
            put_back(before);
            take((lower.size)(moved).into());
        }
        moved
    }
}

/// A limit on what SQLite may allocate on this thread from now on, until it is dropped.
#[derive(Debug)]
pub struct Budget {
    given: i64,
    left_before: i64,
    exceeded_before: bool,
    weights_before: Weights,
    look_before: *const Look,
    _look: Option<Arc<Look>>,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Budget {
    /// Allows this thread's SQLite `bytes` more than it has now, while `look` lets it go on.
    pub(crate) fn start(bytes: u64, look: Option<Arc<Look>>) -> Budget {
        let given = i64::try_from(bytes).unwrap_or(UNLIMITED - 1);
        let (left_before, exceeded_before) = (LEFT.replace(given), EXCEEDED.replace(false));
        let weights_before = Weights::default().put();
        pcache::tell_pages_apart();
        let look_before = LOOK.replace(look.as_ref().map_or(ptr::null(), Arc::as_ptr));
        Budget {
            given,
            left_before,
            exceeded_before,
            weights_before,
            look_before,
            _look: look,
            _thread: PhantomData,
        }
    }

    /// Bytes allocated since the start and not released; negative when more was released.
    pub(crate) fn in_use(&self) -> i64 {
        self.given - LEFT.get()
    }

    /// Whether an allocation of this thread failed because it did not fit the running budget.
    pub(crate) fn was_exceeded() -> bool {
        EXCEEDED.get()
    }

    /// Whether an allocation failed because it did not fit.
    pub(crate) fn is_exceeded(&self) -> bool {
        EXCEEDED.get()
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        LEFT.set(self.left_before);
        EXCEEDED.set(self.exceeded_before);
        self.weights_before.put();
        LOOK.set(self.look_before);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::weights::{start_preparing, time_of_walks, time_to_sort};

    fn fill(connection: &rusqlite::Connection, bytes: u32) -> rusqlite::Result<i64> {
        connection.query_row("SELECT length(randomblob(?1) || 'x')", [bytes], |row| row.get(0))
    }

    #[test]
    fn the_clock_is_looked_at_before_there_is_a_larger_piece() {
        crate::initialize().unwrap();
        assert!(install());
        let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let seen = Arc::clone(&looks);
        let look = Look::with(move || {
            seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            false
        });
        let _budget = Budget::start(1 << 30, Some(look));
        weights::forget_values();
        for (bytes, expected) in [(1_000, 0), (10_000, 1), (9_000, 1), (20_000, 2)] {
            // SAFETY: a piece is asked for and released.
            unsafe { ffi::sqlite3_free(ffi::sqlite3_malloc(bytes)) };
            let looked = looks.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(looked, expected, "behind {bytes} bytes");
        }
        // One that grows is as large as all of it.
        // SAFETY: as above.
        unsafe { ffi::sqlite3_free(ffi::sqlite3_realloc(ffi::sqlite3_malloc(15_000), 30_000)) };
        assert_eq!(looks.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    #[test]
    fn an_allocation_beyond_the_budget_fails_and_the_connection_goes_on() {
        crate::initialize().unwrap();
        assert!(install());
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let budget = Budget::start(1 << 20, None);
        assert!(fill(&connection, 100_000).is_ok());
        assert!(!budget.is_exceeded());
        let error = fill(&connection, 4 << 20).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OutOfMemory));
        assert!(budget.is_exceeded());
        drop(budget);
        assert!(fill(&connection, 4 << 20).is_ok());
    }

    #[test]
    fn an_allocation_of_a_statement_that_has_to_end_fails_and_others_follow() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let late = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&late);
        let look = Look::with(move || seen.load(std::sync::atomic::Ordering::Relaxed));
        let budget = Budget::start(1 << 30, Some(look));
        assert!(fill(&connection, 4 << 20).is_ok());
        late.store(true, std::sync::atomic::Ordering::Relaxed);
        let error = fill(&connection, 4 << 20).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OutOfMemory));
        assert!(!budget.is_exceeded());
        assert!(fill(&connection, 1_000).is_ok());
        drop(budget);
        assert!(fill(&connection, 4 << 20).is_ok());
    }

    #[test]
    fn rows_that_wait_for_a_sort_are_weighed_and_large_values_are_not() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("PRAGMA temp_store = MEMORY").unwrap();
        let budget = Budget::start(1 << 30, None);
        assert!(fill(&connection, 4 << 20).is_ok());
        assert!(time_to_sort() < Duration::from_millis(1), "{:?}", time_to_sort());
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                   SELECT i FROM n ORDER BY -i, i % 7";
        let sorted = connection.query_row(sql, (), |_| Ok(time_to_sort()));
        // 10,000 rows of at least 24 bytes.
        assert!(sorted.unwrap() > Duration::from_millis(9));
        assert!(time_to_sort() < Duration::from_millis(1), "{:?}", time_to_sort());
        drop(budget);
    }

    #[test]
    fn long_rows_that_wait_for_a_sort_are_weighed_and_pages_are_not() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("PRAGMA temp_store = MEMORY; CREATE TABLE t(x)").unwrap();
        let budget = Budget::start(1 << 30, None);
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                    INSERT INTO t SELECT printf('%.*c', 10000, 'a') FROM n";
        connection.execute_batch(fill).unwrap();
        // Ten MB of pages.
        assert!(time_to_sort() < Duration::from_millis(2), "{:?}", time_to_sort());
        let sql = "SELECT x FROM t ORDER BY x COLLATE nocase";
        let sorted = connection.query_row(sql, (), |_| Ok(time_to_sort())).unwrap();
        // Ten MB of rows, which are compared ten times.
        assert!(sorted > Duration::from_millis(59), "{sorted:?}");
        assert!(time_to_sort() < Duration::from_millis(2), "{:?}", time_to_sort());
        drop(budget);
    }

    #[test]
    fn what_is_allocated_before_a_statement_is_prepared_is_not_walked() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let budget = Budget::start(1 << 30, None);
        let terms = vec!["max(1, 2)"; 5_000].join(",");
        start_preparing();
        let kept = connection.prepare(&format!("SELECT 1 WHERE 5 IN ({terms})")).unwrap();
        // Its program.
        let first = time_of_walks(100);
        start_preparing();
        assert!(time_of_walks(100) <= first);
        assert_eq!(time_of_walks(100), Duration::ZERO);
        drop(kept);
        drop(budget);
    }

    #[test]
    fn what_is_released_may_be_used_again() {
        crate::initialize().unwrap();
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        let budget = Budget::start(1 << 20, None);
        for _ in 0..100 {
            assert!(fill(&connection, 200_000).is_ok());
        }
        assert!(budget.in_use() < 1 << 19, "{}", budget.in_use());
    }
}
