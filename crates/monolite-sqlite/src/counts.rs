//! Owns what SQL can ask about the statements before it, `changes()`, `total_changes()` and
//! `last_insert_rowid()`, so that it tells of the transaction and not of the connection.
//!
//! A connection serves one transaction after another, and the writer many in one batch. Without
//! this a transaction would be told how many rows a neighbour has changed; an interactive one would
//! be told something else in the writer than on its own connection, and conflict for ever.
//!
//! # Algorithm
//! Rows are counted from [`Counts::start`] on. As long as none was changed, `changes()` is 0,
//! whatever SQLite's own figure is: that of a statement before. (A statement that changes no rows
//! sets it to 0 or leaves it, by its kind, so nothing is lost.) SQLite's own figure of the rowid
//! inserted last can be set, and is.
//!
//! Rows that a virtual table writes on the engine's demand are left out of the figures. SQLite's
//! own figure of the latest statement tells of such a row then, and stands for what it was before
//! until another statement has changed it ([`Counts::during_own_work`]).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::{Result, ffi};

/// The figures of one connection.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// `sqlite3_total_changes64` at the start.
    total_before: AtomicI64,
    /// Whether there is something in `hidden`, which is not locked for nothing.
    is_hidden: AtomicBool,
    /// SQLite's two figures behind the engine's own work, and the number of changes before it.
    hidden: Mutex<Option<Hidden>>,
}

/// As long as SQLite has the first two figures, `changes` is the right one.
#[derive(Clone, Copy, Debug)]
struct Hidden {
    total: i64,
    latest: i64,
    changes: i64,
}

impl Counts {
    /// Puts functions of ours in place of SQLite's.
    pub(crate) fn install(connection: &rusqlite::Connection) -> Result<Arc<Counts>> {
        let counts = Arc::new(Counts::default());
        replace(connection, c"changes", &counts, changes)?;
        replace(connection, c"total_changes", &counts, total_changes)?;
        Ok(counts)
    }

    #[inline]
    pub(crate) fn start(&self, connection: &rusqlite::Connection) {
        // SAFETY: the handle is open for as long as the borrow, and used by this thread alone.
        let total = unsafe {
            let db = connection.handle();
            // Takes a mutex, unlike the question.
            if ffi::sqlite3_last_insert_rowid(db) != 0 {
                ffi::sqlite3_set_last_insert_rowid(db, 0);
            }
            ffi::sqlite3_total_changes64(db)
        };
        self.total_before.store(total, Ordering::Relaxed);
        self.is_hidden.store(false, Ordering::Relaxed);
    }

    fn lock_hidden(&self) -> MutexGuard<'_, Option<Hidden>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hidden(&self) -> Option<Hidden> {
        if self.is_hidden.load(Ordering::Relaxed) { *self.lock_hidden() } else { None }
    }

    /// Runs `work`, which is none of the transaction's, so that no figure tells of it.
    pub(crate) fn during_own_work<T>(
        &self,
        connection: &rusqlite::Connection,
        work: impl FnOnce() -> T,
    ) -> T {
        // SAFETY: the handle is open for as long as the borrow, and used by this thread alone.
        let figures = || unsafe {
            let db = connection.handle();
            (ffi::sqlite3_total_changes64(db), ffi::sqlite3_changes64(db))
        };
        // SAFETY: as above.
        let (rowid, changes) = unsafe {
            let db = connection.handle();
            (ffi::sqlite3_last_insert_rowid(db), self.changes_of(db))
        };
        let (total_before, _) = figures();
        let result = work();
        let (total, latest) = figures();
        // SAFETY: as above.
        unsafe { ffi::sqlite3_set_last_insert_rowid(connection.handle(), rowid) };
        if total != total_before {
            self.total_before.fetch_add(total - total_before, Ordering::Relaxed);
            *self.lock_hidden() = Some(Hidden { total, latest, changes });
            self.is_hidden.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Whether a trigger of the transaction's first change would be told the figure of a statement
    /// before: SQLite's own figure is what it was until a trigger has changed rows itself, and then
    /// the two cannot be told apart.
    pub(crate) fn has_foreign_changes(&self, connection: &rusqlite::Connection) -> bool {
        // SAFETY: the handle is open for as long as the borrow.
        unsafe {
            let db = connection.handle();
            self.total_of(db) == 0 && ffi::sqlite3_changes64(db) != 0
        }
    }

    pub(crate) fn changes(&self, connection: &rusqlite::Connection) -> u64 {
        // SAFETY: the handle is open for as long as the borrow.
        unsafe { self.changes_of(connection.handle()) }.cast_unsigned()
    }

    #[inline]
    pub(crate) fn total_changes(&self, connection: &rusqlite::Connection) -> u64 {
        // SAFETY: the handle is open for as long as the borrow.
        unsafe { self.total_of(connection.handle()) }.cast_unsigned()
    }

    /// # Safety
    /// `db` must be the open connection of these counts.
    #[inline]
    unsafe fn total_of(&self, db: *mut ffi::sqlite3) -> i64 {
        // SAFETY: the caller vouches for `db`.
        unsafe { ffi::sqlite3_total_changes64(db) - self.total_before.load(Ordering::Relaxed) }
    }

    /// # Safety
    /// As for `total_of`.
    unsafe fn changes_of(&self, db: *mut ffi::sqlite3) -> i64 {
        // SAFETY: the caller vouches for `db`.
        let (total, latest, since) = unsafe {
            let total = ffi::sqlite3_total_changes64(db);
            (total, ffi::sqlite3_changes64(db), self.total_of(db))
        };
        match self.hidden() {
            _ if since == 0 => 0,
            Some(hidden) if (hidden.total, hidden.latest) == (total, latest) => hidden.changes,
            _ => latest,
        }
    }
}

type Callback =
    unsafe extern "C" fn(*mut ffi::sqlite3_context, c_int, *mut *mut ffi::sqlite3_value);

fn replace(
    connection: &rusqlite::Connection,
    name: &CStr,
    counts: &Arc<Counts>,
    callback: Callback,
) -> Result<()> {
    let own = Arc::into_raw(Arc::clone(counts)).cast_mut().cast::<c_void>();
    // SAFETY: the handle is open and the name is a C string. SQLite calls `release` with `own`
    // once, when the function goes or could not be made.
    let code = unsafe {
        ffi::sqlite3_create_function_v2(
            connection.handle(),
            name.as_ptr(),
            0,
            ffi::SQLITE_UTF8 | ffi::SQLITE_INNOCUOUS,
            own,
            Some(callback),
            None,
            None,
            Some(release),
        )
    };
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
}

unsafe extern "C" fn release(counts: *mut c_void) {
    // SAFETY: `replace` made it from an `Arc` and gave it away.
    drop(unsafe { Arc::from_raw(counts.cast::<Counts>()) });
}

unsafe extern "C" fn changes(
    context: *mut ffi::sqlite3_context,
    _count: c_int,
    _arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: SQLite called with a context that waits for a result, of a function that `replace`
    // made with its counts.
    unsafe {
        let counts = &*ffi::sqlite3_user_data(context).cast::<Counts>();
        let number = counts.changes_of(ffi::sqlite3_context_db_handle(context));
        ffi::sqlite3_result_int64(context, number);
    }
}

unsafe extern "C" fn total_changes(
    context: *mut ffi::sqlite3_context,
    _count: c_int,
    _arguments: *mut *mut ffi::sqlite3_value,
) {
    // SAFETY: as for `changes`.
    unsafe {
        let counts = &*ffi::sqlite3_user_data(context).cast::<Counts>();
        let number = counts.total_of(ffi::sqlite3_context_db_handle(context));
        ffi::sqlite3_result_int64(context, number);
    }
}
