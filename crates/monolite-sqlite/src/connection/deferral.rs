//! Owns foreign key checks that are deferred to the end of a transaction: whether one is violated,
//! and that no deferral outlives its own transaction.

use std::ffi::c_int;

use rusqlite::{Result, ffi};

use super::Connection;

impl Connection {
    /// Whether the open transaction violates a deferred foreign key, which would make its commit
    /// fail.
    pub fn has_deferred_violation(&self) -> bool {
        let (mut current, mut highest): (c_int, c_int) = (0, 0);
        // SAFETY: the handle is open for as long as `self`, and both out-pointers are valid.
        let code = unsafe {
            ffi::sqlite3_db_status(
                self.raw().handle(),
                ffi::SQLITE_DBSTATUS_DEFERRED_FKS,
                &raw mut current,
                &raw mut highest,
                0,
            )
        };
        code == ffi::SQLITE_OK && current != 0
    }

    /// Ends what `PRAGMA defer_foreign_keys` has begun in the open transaction, or in the one
    /// before, and has every statement be prepared again. SQLite ends it with its transaction, and
    /// forgets the second: a kept `INSERT` of one row that was prepared meanwhile would leave its
    /// row behind when it fails (SQLite 3.53, `fkLookupParent`). What is still violated is
    /// forgotten, so [`Connection::has_deferred_violation`] is to be asked before.
    ///
    /// # Errors
    /// Those of SQLite: no memory. The transaction is rolled back then, and it is tried again
    /// before the next one.
    #[inline]
    pub fn end_deferral(&self) -> Result<()> {
        if self.authorizer.deferring.take() { self.end_deferral_now() } else { Ok(()) }
    }

    fn end_deferral_now(&self) -> Result<()> {
        let sql = "PRAGMA defer_foreign_keys = OFF";
        let ended = self.as_engine(|| self.raw().execute_batch(sql));
        ended.inspect_err(|_| {
            self.authorizer.deferring.set(true);
            // A failure leaves the transaction open, and the next BEGIN reports it.
            let _ = self.rollback();
        })
    }
}
