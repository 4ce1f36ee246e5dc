//! Owns foreign keys: which are violated, that no deferral of their checks outlives its own
//! transaction, and the switch by which a transaction runs without them.

use rusqlite::config::DbConfig;
use rusqlite::{Result, ffi};

use super::Connection;
use crate::codes::failure;

const SWITCH: DbConfig = DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY;

/// Violations that are looked at to find the tables of a foreign key.
const VIOLATIONS_SEEN: u32 = 100;

/// Pairs of tables that are named.
const PAIRS_NAMED: usize = 3;

/// A row whose parent is missing: its table, its number, and the table that lacks the parent.
pub type Violation = (String, Option<i64>, String);

/// The foreign keys of a connection, from [`Connection::foreign_keys`].
#[derive(Clone, Copy)]
pub struct ForeignKeys<'c>(pub(super) &'c Connection);

impl ForeignKeys<'_> {
    /// Whether the open transaction violates a deferred foreign key, which would make its commit
    /// fail.
    pub fn have_deferred_violation(self) -> bool {
        self.0.status(ffi::SQLITE_DBSTATUS_DEFERRED_FKS) != 0
    }

    /// Ends what `PRAGMA defer_foreign_keys` has begun in the open transaction, or in the one
    /// before, and has every statement be prepared again. SQLite ends it with its transaction, and
    /// forgets the second: a kept `INSERT` of one row that was prepared meanwhile would leave its
    /// row behind when it fails (SQLite 3.53, `fkLookupParent`). What is still violated is
    /// forgotten, so [`ForeignKeys::have_deferred_violation`] is to be asked before.
    ///
    /// # Errors
    /// Those of SQLite: no memory. The transaction is rolled back then, and it is tried again
    /// before the next one.
    #[inline]
    pub fn end_deferral(self) -> Result<()> {
        if self.0.authorizer.deferring.take() { self.end_deferral_now() } else { Ok(()) }
    }

    fn end_deferral_now(self) -> Result<()> {
        let sql = "PRAGMA defer_foreign_keys = OFF";
        let ended = self.0.as_engine(|| self.0.raw().execute_batch(sql));
        self.forget_statements();
        ended.inspect_err(|_| {
            self.0.authorizer.deferring.set(true);
            // A failure leaves the transaction open, and the next BEGIN reports it.
            let _ = self.0.rollback();
        })
    }

    /// Hands the violations of `table`, or of all tables, up to `most` of them, to `found`; also
    /// those that were found before it fails.
    ///
    /// # Errors
    /// Those of SQLite; `SQLITE_INTERRUPT` when the connection's time is over.
    pub fn each_violation(
        self,
        table: Option<&str>,
        most: u32,
        mut found: impl FnMut(Violation),
    ) -> Result<()> {
        self.0.as_engine(|| {
            let sql = "SELECT \"table\", rowid, parent FROM pragma_foreign_key_check(?1) LIMIT ?2";
            let mut check = self.0.raw().prepare(sql)?;
            let mut rows = check.query((table, most))?;
            while let Some(row) = rows.next()? {
                found((row.get(0)?, row.get(1)?, row.get(2)?));
            }
            Ok(())
        })
    }

    /// Says which tables have rows that violate foreign keys, a few of them, and those that did
    /// before the open transaction, too. Looks until
    /// [`Settings::overdue`](super::Settings::overdue) ends that.
    pub fn violated(self) -> Vec<String> {
        let mut pairs = Vec::new();
        // What was found until it was ended, or failed, is found.
        let _ = self.each_violation(None, VIOLATIONS_SEEN, |(child, _, parent)| {
            let pair = format!("{child} refers to rows that are not in {parent}");
            if pairs.len() < PAIRS_NAMED && !pairs.contains(&pair) {
                pairs.push(pair);
            }
        });
        self.0.interruption.take_late();
        pairs
    }

    /// Those that reference a table which does not exist: their table, and that one.
    /// [`ForeignKeys::each_violation`] omits them while their table is empty.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn dangling(self) -> Result<Vec<(String, String)>> {
        const FIND: &str = "SELECT DISTINCT child.name, key.\"table\" \
             FROM main.sqlite_schema AS child, \
             pragma_foreign_key_list(child.name, 'main') AS key \
             WHERE child.type = 'table' AND lower(key.\"table\") NOT IN \
             (SELECT lower(name) FROM main.sqlite_schema WHERE type = 'table')";
        self.0.as_engine(|| {
            let mut find = self.0.raw().prepare(FIND)?;
            find.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// Has them neither be enforced nor act from now on, until [`ForeignKeys::resume`].
    ///
    /// # Errors
    /// Those of SQLite; `SQLITE_MISUSE` inside of a transaction. They are on then.
    pub fn suspend(self) -> Result<()> {
        if self.0.is_in_transaction() {
            let text = "foreign keys are not switched off inside of a transaction";
            return Err(failure(ffi::SQLITE_MISUSE, text));
        }
        self.suspend_now()
    }

    fn suspend_now(self) -> Result<()> {
        self.0.raw().set_db_config(SWITCH, false)?;
        self.forget_statements();
        Ok(())
    }

    /// Has them be enforced, and act, while `body` runs. In a transaction without them they are off
    /// again behind it; such a transaction is to be undone.
    ///
    /// # Errors
    /// Those of SQLite, and of `body`.
    pub fn during<T, E: From<rusqlite::Error>>(
        self,
        body: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.0.raw().db_config(SWITCH)? {
            return body();
        }
        self.0.raw().set_db_config(SWITCH, true)?;
        self.forget_statements();
        let result = body();
        self.suspend_now()?;
        result
    }

    /// Has them be enforced, and act.
    ///
    /// # Panics
    /// When they are not, which does not happen on an open connection: whatever is written after
    /// that could be wrong.
    pub fn resume(self) {
        let is_on = self.0.raw().set_db_config(SWITCH, true);
        assert!(is_on == Ok(true), "foreign keys are on again: {is_on:?}");
        self.forget_statements();
    }

    /// SQLite has every statement be prepared again behind a switch (`sqlite3_db_config` and the
    /// pragma expire them): in the middle of a run, where there may be too little stack.
    fn forget_statements(self) {
        self.0.prepared.forget_users();
    }
}
