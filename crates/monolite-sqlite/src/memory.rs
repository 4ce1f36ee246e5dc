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
use std::time::Duration;

use rusqlite::ffi;

use crate::look::Look;

/// What is left when there is no budget.
const UNLIMITED: i64 = i64::MAX;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(UNLIMITED) };
    /// Bytes of pieces smaller than [`SMALL`] that were allocated and not released.
    static IN_SMALL: Cell<i64> = const { Cell::new(0) };
    /// Those of when a statement was last begun to be prepared.
    static SMALL_BEFORE: Cell<i64> = const { Cell::new(0) };
    /// Bytes of larger pieces that are no pages, and how many there are.
    static IN_LARGER: Cell<i64> = const { Cell::new(0) };
    static LARGER: Cell<i64> = const { Cell::new(0) };
    /// Whether what is allocated is a page of a cache.
    static OF_PAGES: Cell<bool> = const { Cell::new(false) };
    /// Bytes of the largest piece since a statement began to run, if it is [`LARGE`].
    static LARGEST: Cell<i64> = const { Cell::new(0) };
    static EXCEEDED: Cell<bool> = const { Cell::new(false) };
    /// That of the running budget, which keeps it; null without one.
    static LOOK: Cell<*const Look> = const { Cell::new(ptr::null()) };
}

/// In smaller rows the terms are what makes a sort slow, in larger ones the bytes.
const SMALL: i64 = 2_048;

/// Nanoseconds that a sort takes for each byte of small pieces: measured 33 for 60,000 rows of 490
/// terms that are all equal, with SQLite 3.54.1 (x86-64, 2.1 GHz), and less for rows of few terms.
const SORT_NANOS: u64 = 40;

/// Picoseconds that a sort takes for each byte of larger pieces and each time that it compares
/// them, which is the logarithm of their number: measured 430 for rows of 3,000 bytes and of
/// 100,000 that are equal but for the last ones, compared by `NOCASE`, the slowest collation.
const COMPARE_PICOS: u64 = 600;

/// Picoseconds that preparing a statement can take for each byte that it has allocated and each
/// level of its expressions, without allocating meanwhile. SQLite asks at each level whether all
/// below it is constant. Measured 21 for 97 common table expressions of 96 additions of calls with
/// 12 constants each, and 7 for one without the calls.
const WALK_PICOS: u64 = 25;

/// Smaller pieces are no values over which a pass takes long.
const LARGE: i64 = 64 << 10;

/// Picoseconds that a pass over a value takes for each byte: measured 2,300 for the last element of
/// a JSON array, and 1,700 for the number that a text of digits is.
const PASS_PICOS: u64 = 2_500;

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

/// Steps that a statement has made for each piece that it asks for: to find it, and to make up its
/// mind. A deep expression is prepared in many small ones.
const PIECE_STEPS: usize = 100;

/// Whether the statement that asks for `bytes` may go on. To fill them takes about a nanosecond for
/// eight of them.
fn goes_on_behind(bytes: i64) -> bool {
    if bytes >= LARGE {
        LARGEST.set(LARGEST.get().max(bytes));
    }
    let look = LOOK.get();
    // SAFETY: the budget of this thread that has set it owns a share of it, and takes it back
    // before it lets that go.
    let look = unsafe { look.as_ref() };
    look.is_none_or(|look| {
        look.goes_on_behind(PIECE_STEPS + usize::try_from(bytes / 8).unwrap_or(0))
    })
}

/// Takes a piece off the budget.
fn take(bytes: i64) {
    LEFT.set(LEFT.get().saturating_sub(bytes).min(UNLIMITED - 1));
    if bytes < SMALL {
        IN_SMALL.set(IN_SMALL.get().saturating_add(bytes));
    } else if !OF_PAGES.get() {
        IN_LARGER.set(IN_LARGER.get().saturating_add(bytes));
        LARGER.set(LARGER.get().saturating_add(1));
    }
}

/// Puts a piece back.
fn put_back(bytes: i64) {
    LEFT.set(LEFT.get().saturating_add(bytes).min(UNLIMITED - 1));
    if bytes < SMALL {
        IN_SMALL.set(IN_SMALL.get().saturating_sub(bytes));
    } else if !OF_PAGES.get() {
        IN_LARGER.set(IN_LARGER.get().saturating_sub(bytes));
        LARGER.set(LARGER.get().saturating_sub(1));
    }
}

/// Runs `use_cache`, which allocates and releases pages of a cache and nothing else.
pub(crate) fn of_pages<R>(use_cache: impl FnOnce() -> R) -> R {
    let before = OF_PAGES.replace(true);
    let result = use_cache();
    OF_PAGES.set(before);
    result
}

fn number(of: &'static std::thread::LocalKey<Cell<i64>>) -> u64 {
    u64::try_from(of.get()).unwrap_or(0)
}

/// How long it takes at most to sort what was allocated within the running budget.
pub(crate) fn time_to_sort() -> Duration {
    let compared = u64::from(number(&LARGER).checked_ilog2().map_or(0, |log| log + 1));
    let larger = number(&IN_LARGER).saturating_mul(COMPARE_PICOS).saturating_mul(compared) / 1_000;
    let small = number(&IN_SMALL).saturating_mul(SORT_NANOS);
    Duration::from_nanos(small.saturating_add(larger))
}

/// A statement is prepared from now on.
pub(crate) fn start_preparing() {
    SMALL_BEFORE.set(IN_SMALL.get());
}

/// How long it takes at most to prepare the rest of a statement whose expressions have so many
/// levels, when nothing of it is allocated.
pub(crate) fn time_of_walks(levels: u64) -> Duration {
    let own = IN_SMALL.get().saturating_sub(SMALL_BEFORE.get());
    let walked = u64::try_from(own).unwrap_or(0).saturating_mul(WALK_PICOS);
    Duration::from_nanos(walked.saturating_mul(levels) / 1_000)
}

unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    let (lower, left) = (lower(), LEFT.get());
    if left != UNLIMITED && !(fits(left, bytes.into()) && goes_on_behind(bytes.into())) {
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
        if !(fits(left, more) && goes_on_behind(more)) {
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

/// What was allocated until now is no value of the statement that runs.
#[inline]
pub(crate) fn forget_values() {
    LARGEST.set(0);
}

/// How long it takes at most to pass once over the largest value that the running statement has
/// made; nothing if none is large.
pub(crate) fn time_of_pass() -> Duration {
    let picos = u64::try_from(LARGEST.get()).unwrap_or(0).saturating_mul(PASS_PICOS);
    Duration::from_nanos(picos / 1_000)
}

/// A limit on what SQLite may allocate on this thread from now on, until it is dropped.
#[derive(Debug)]
pub struct Budget {
    given: i64,
    left_before: i64,
    exceeded_before: bool,
    /// [`IN_SMALL`], [`IN_LARGER`] and [`LARGER`].
    rows_before: [i64; 3],
    largest_before: i64,
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
        let rows_before = [&IN_SMALL, &IN_LARGER, &LARGER].map(|counter| counter.replace(0));
        SMALL_BEFORE.set(0);
        let largest_before = LARGEST.replace(0);
        let look_before = LOOK.replace(look.as_ref().map_or(ptr::null(), Arc::as_ptr));
        Budget {
            given,
            left_before,
            exceeded_before,
            rows_before,
            largest_before,
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
        let [in_small, in_larger, larger] = self.rows_before;
        IN_SMALL.set(in_small);
        IN_LARGER.set(in_larger);
        LARGER.set(larger);
        LARGEST.set(self.largest_before);
        LOOK.set(self.look_before);
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
