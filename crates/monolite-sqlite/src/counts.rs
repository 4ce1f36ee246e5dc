//! Owns what SQL can ask about the statements before it, `changes()`, `total_changes()` and
//! `last_insert_rowid()`, so that it tells of the transaction and not of the connection.
//!
//! A connection serves one transaction after another, and the writer many in one batch. Without
//! this a transaction would be told how many rows a neighbour has changed; an interactive one would
//! be told something else in the writer than on its own connection, and conflict for ever.
//!
//! # Algorithm
//! Rows are counted from [`Counts::start`] on. As long as none was changed, `changes()` is 0 (or
//! what was [resumed](Counts::resume)), whatever SQLite's own figure is: that of a statement
//! before. (A statement that changes no rows sets it to 0 or leaves it, by its kind, so nothing is
//! lost.) SQLite's own figure of the rowid inserted last can be set, and is.
//!
//! Rows that a virtual table writes on the engine's demand are left out of the figures. SQLite's
//! own figure of the latest statement tells of such a row then, and stands for what it was before
//! until another statement has changed it ([`Counts::during_own_work`]).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use rusqlite::{Result, ffi};

use crate::functions;
use crate::locked::locked;

/// The figures of one connection.
#[derive(Debug)]
pub struct Counts {
    /// The connection, which is open: it and functions of its own alone have these figures.
    db: AtomicPtr<ffi::sqlite3>,
    /// `sqlite3_total_changes64` at the start.
    total_before: AtomicI64,
    /// What `changes()` is as long as nothing was changed.
    resumed: AtomicI64,
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
        let counts = Arc::new(Counts {
            // SAFETY: the handle is used until the connection is closed, and not behind that.
            db: AtomicPtr::new(unsafe { connection.handle() }),
            total_before: AtomicI64::new(0),
            resumed: AtomicI64::new(0),
            is_hidden: AtomicBool::new(false),
            hidden: Mutex::default(),
        });
        let (latest, total) = (Arc::clone(&counts), Arc::clone(&counts));
        let flags = ffi::SQLITE_INNOCUOUS;
        functions::add(connection, c"changes", 0, flags, move |call| {
            call.return_integer(latest.latest());
        })?;
        functions::add(connection, c"total_changes", 0, flags, move |call| {
            call.return_integer(total.total());
        })?;
        Ok(counts)
    }

    fn db(&self) -> *mut ffi::sqlite3 {
        self.db.load(Relaxed)
    }

    /// SQLite's own figure of all statements.
    #[inline]
    fn total_of_sqlite(&self) -> i64 {
        // SAFETY: the handle is open, and used by this thread alone.
        unsafe { ffi::sqlite3_total_changes64(self.db()) }
    }

    /// SQLite's own figure of the latest statement.
    fn latest_of_sqlite(&self) -> i64 {
        // SAFETY: as above.
        unsafe { ffi::sqlite3_changes64(self.db()) }
    }

    #[inline]
    pub(crate) fn start(&self) {
        // SAFETY: as above.
        unsafe {
            // Takes a mutex, unlike the question.
            if ffi::sqlite3_last_insert_rowid(self.db()) != 0 {
                ffi::sqlite3_set_last_insert_rowid(self.db(), 0);
            }
        }
        self.total_before.store(self.total_of_sqlite(), Relaxed);
        self.resumed.store(0, Relaxed);
        self.is_hidden.store(false, Relaxed);
    }

    /// Has `last_insert_rowid()` and `changes()` tell of a statement that was run elsewhere, until
    /// one of this transaction inserts or changes something.
    pub fn resume(&self, rowid: i64, changes: i64) {
        // SAFETY: as above.
        unsafe { ffi::sqlite3_set_last_insert_rowid(self.db(), rowid) };
        self.resumed.store(changes, Relaxed);
    }

    /// Runs `work`, which is none of the transaction's, so that no figure tells of it.
    pub(crate) fn during_own_work<T>(&self, work: impl FnOnce() -> T) -> T {
        // SAFETY: as above.
        let rowid = unsafe { ffi::sqlite3_last_insert_rowid(self.db()) };
        let (changes, total_before) = (self.latest(), self.total_of_sqlite());
        let result = work();
        let (total, latest) = (self.total_of_sqlite(), self.latest_of_sqlite());
        // SAFETY: as above.
        unsafe { ffi::sqlite3_set_last_insert_rowid(self.db(), rowid) };
        if total != total_before {
            self.total_before.fetch_add(total - total_before, Relaxed);
            *locked(&self.hidden) = Some(Hidden { total, latest, changes });
            self.is_hidden.store(true, Relaxed);
        }
        result
    }

    /// Whether a trigger of the transaction's first change would be told the figure of a statement
    /// before: SQLite's own figure is what it was until a trigger has changed rows itself, and then
    /// the two cannot be told apart.
    pub(crate) fn are_foreign(&self) -> bool {
        self.total() == 0 && self.latest_of_sqlite() != 0
    }

    /// Rows changed by the last statement that changed any since
    /// [`Connection::start_counts`](crate::Connection::start_counts).
    pub fn changes(&self) -> u64 {
        self.latest().cast_unsigned()
    }

    /// Rows changed since [`Connection::start_counts`](crate::Connection::start_counts).
    #[inline]
    pub fn total_changes(&self) -> u64 {
        self.total().cast_unsigned()
    }

    #[inline]
    fn total(&self) -> i64 {
        self.total_of_sqlite() - self.total_before.load(Relaxed)
    }

    fn latest(&self) -> i64 {
        if self.total() == 0 {
            return self.resumed.load(Relaxed);
        }
        let (total, latest) = (self.total_of_sqlite(), self.latest_of_sqlite());
        let hidden = if self.is_hidden.load(Relaxed) { *locked(&self.hidden) } else { None };
        match hidden {
            Some(hidden) if (hidden.total, hidden.latest) == (total, latest) => hidden.changes,
            _ => latest,
        }
    }
}
