//! Owns the end of a reader's snapshot from another thread: the engine's answer to a reader that
//! pins the WAL for longer than it may.
//!
//! # Algorithm
//! 1. Mark the connection revoked, and interrupt it so that a long step ends. Try to enter the
//!    connection's own mutex (readers are opened in serialized mode). When its user is inside of
//!    SQLite this fails, and nothing more is done: a call that SQLite does not give back (the
//!    planner looks at no interrupt) must stall no writer, no checkpoint and no close. Who needs
//!    the snapshot gone tries again.
//! 2. No statement is running: `ROLLBACK` ends the snapshot at once. A statement is running: its
//!    user may hold pointers into it, so it is only interrupted; its next step fails and the
//!    snapshot ends with the user's closure.
//! 3. From now on every statement of that user is interrupted at its first instruction, so that
//!    nothing can be read from a newer snapshot and be mistaken for the old one.
//!
//! An overlay is only marked and interrupted. It cannot move to another snapshot, and what it pins
//! is let go by its user, who has to end soon: the running statement at the next look at the clock
//! or at the interrupt (`count(*)` of a table is a single instruction that looks only at that), any
//! other before it begins. So it needs no mutex, and its statements pay for none.
//!
//! # Threads and locks
//! The pointer is guarded by a mutex that `Connection::drop` takes before it closes the connection.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use rusqlite::ffi;

use crate::authorizer::Authorizer;
use crate::interruption::Interruption;
use crate::locked::locked;

/// What a revocation achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The snapshot is gone.
    Ended,
    /// Its user may be inside of SQLite, or in the middle of a statement; the snapshot ends with
    /// what that user does next, or when it is revoked once more.
    Interrupted,
    /// The connection is closed.
    Closed,
}

/// A database handle that may be used from any thread, under SQLite's own mutex.
struct Handle(NonNull<ffi::sqlite3>);

// SAFETY: the connection is in serialized mode, where SQLite allows calls from any thread; that it
// is still open is guaranteed by the mutex around the `Option<Handle>`.
unsafe impl Send for Handle {}

/// Ends the snapshot of one connection from another thread; see the module's header.
#[derive(Clone)]
pub struct Revoker {
    handle: Arc<Mutex<Option<Handle>>>,
    /// Whether the connection has a mutex that other threads can enter.
    is_serialized: bool,
    interruption: Arc<Interruption>,
    authorizer: Arc<Authorizer>,
}

impl Revoker {
    pub(crate) fn new(
        connection: &rusqlite::Connection,
        is_serialized: bool,
        interruption: Arc<Interruption>,
        authorizer: Arc<Authorizer>,
    ) -> Revoker {
        // SAFETY: the pointer is used only until `disconnect`, which runs before the close.
        let handle = NonNull::new(unsafe { connection.handle() }).map(Handle);
        let handle = Arc::new(Mutex::new(handle));
        Revoker { handle, is_serialized, interruption, authorizer }
    }

    pub(crate) fn disconnect(&self) {
        locked(&self.handle).take();
    }

    /// Ends the snapshot, or has it end with what its user does next. Never waits for a call into
    /// SQLite: the one that the connection's user is in is interrupted.
    ///
    /// The caller sees to it that this user does not change meanwhile.
    pub fn revoke(&self) -> Revocation {
        let guard = locked(&self.handle);
        let Some(handle) = guard.as_ref() else { return Revocation::Closed };
        let db = handle.0.as_ptr();
        // Before the interrupt, so that its victim finds the reason.
        self.interruption.mark_revoked();
        // SAFETY: interrupting is allowed from any thread while the connection is open, which the
        // guard ensures. It makes a long-running step end, so that the mutex becomes free.
        unsafe { ffi::sqlite3_interrupt(db) };
        if !self.is_serialized {
            return Revocation::Interrupted;
        }
        // SAFETY: the connection is open (guard), and so its mutex is there.
        let (mutex, entered) = unsafe {
            let mutex = ffi::sqlite3_db_mutex(db);
            (mutex, ffi::sqlite3_mutex_try(mutex) == ffi::SQLITE_OK)
        };
        if !entered {
            return Revocation::Interrupted;
        }
        // SAFETY: `db` is open (guard) and in serialized mode, and its mutex was entered on this
        // thread; everything until the leave runs as the connection's only user.
        unsafe {
            let outcome = self.end_snapshot(db);
            ffi::sqlite3_progress_handler(db, 1, Some(interrupt_always), ptr::null_mut());
            ffi::sqlite3_mutex_leave(mutex);
            outcome
        }
    }

    /// # Safety
    /// The caller has entered the mutex of the open connection `db`.
    unsafe fn end_snapshot(&self, db: *mut ffi::sqlite3) -> Revocation {
        // SAFETY: the caller holds the connection's mutex, so the list of statements is stable.
        unsafe {
            let mut statement = ffi::sqlite3_next_stmt(db, ptr::null_mut());
            while !statement.is_null() {
                if ffi::sqlite3_stmt_busy(statement) != 0 {
                    ffi::sqlite3_interrupt(db);
                    return Revocation::Interrupted;
                }
                statement = ffi::sqlite3_next_stmt(db, statement);
            }
            let rollback = c"ROLLBACK".as_ptr();
            self.authorizer.as_engine(|| {
                ffi::sqlite3_exec(db, rollback, None, ptr::null_mut(), ptr::null_mut())
            });
        }
        Revocation::Ended
    }
}

unsafe extern "C" fn interrupt_always(_: *mut c_void) -> c_int {
    1
}

#[cfg(test)]
mod tests;
