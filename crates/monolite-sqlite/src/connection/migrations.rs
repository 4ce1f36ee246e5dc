//! Owns the table of migrations in the file, which the engine alone reads and changes
//! ([`crate::names`]), how the SQL of one is run, and the switch by which one is applied without
//! foreign keys.
//!
//! # Format
//! One row for each migration, written in the transaction that applied it: `number INTEGER PRIMARY
//! KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied INTEGER NOT NULL` (Unix seconds). The
//! table is created by the first migration.
//!
//! # Not here
//! Which tables a migration may not drop: `drops`.

use rusqlite::config::DbConfig;
use rusqlite::{Result, Row, ffi};

use super::Connection;
use super::batches::FailedStatement;
use super::keys::is_missing;
use crate::codes::failure;
use crate::names;
use crate::traits::Traits;

/// A migration that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Its number.
    pub number: i64,
    /// The name of its file.
    pub name: String,
    /// What tells whether its text is still the same.
    pub checksum: String,
    /// When it was made, in seconds since 1970 (UTC).
    pub applied: i64,
}

impl Connection {
    /// Runs the statements of a migration. A statement with a parameter is refused, and so is,
    /// while foreign keys are on, a `DROP TABLE` of a table that another one references.
    ///
    /// # Errors
    /// Those of SQLite, with the statement; `SQLITE_AUTH` for what is refused. The statements
    /// before it have been run.
    pub fn run_migration(&self, sql: &str) -> Result<(), FailedStatement> {
        let check = |statement: &rusqlite::Statement<'_>| self.check_in_migration(statement);
        self.execute_each(sql, || self.authorizer.drops.migrating(), check)
    }

    /// # Errors
    /// `SQLITE_AUTH` when `statement`, which was prepared last, must not run in a migration.
    fn check_in_migration(&self, statement: &rusqlite::Statement<'_>) -> Result<()> {
        if statement.parameter_count() > 0 {
            let name = statement.parameter_name(1).unwrap_or("?");
            let text = format!(
                "the parameter {name} is refused: nothing gives it a value in a migration; write \
                 the value itself, or quote it if it is text"
            );
            return Err(failure(ffi::SQLITE_AUTH, text));
        }
        Ok(())
    }

    /// The foreign keys that reference a table which does not exist: their table, and that one.
    /// [`Connection::foreign_key_violations`] omits them while their table is empty.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn dangling_foreign_keys(&self) -> Result<Vec<(String, String)>> {
        const FIND: &str = "SELECT DISTINCT child.name, key.\"table\" \
             FROM main.sqlite_schema AS child, \
             pragma_foreign_key_list(child.name, 'main') AS key \
             WHERE child.type = 'table' AND lower(key.\"table\") NOT IN \
             (SELECT lower(name) FROM main.sqlite_schema WHERE type = 'table')";
        self.as_engine(|| {
            let mut find = self.raw().prepare(FIND)?;
            find.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
    }

    /// The migrations that were applied, by their numbers.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn migrations(&self) -> Result<Vec<AppliedMigration>> {
        let of = |row: &Row<'_>| {
            let (number, name) = (row.get(0)?, row.get(1)?);
            Ok(AppliedMigration { number, name, checksum: row.get(2)?, applied: row.get(3)? })
        };
        let find = || {
            let sql = "SELECT number, name, checksum, applied FROM main.monolite_migrations \
                       ORDER BY number";
            let mut statement = self.raw().prepare(sql)?;
            statement.query_map((), of)?.collect()
        };
        match self.as_engine(find) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            found => found,
        }
    }

    /// Notes in the open write transaction that a migration is applied by it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn note_migration(&self, number: i64, name: &str, checksum: &str) -> Result<()> {
        let insert = || {
            let sql = "INSERT INTO main.monolite_migrations VALUES (?1, ?2, ?3, unixepoch('now'))";
            self.raw().execute(sql, (number, name, checksum)).map(drop)
        };
        self.as_engine(|| match insert() {
            Err(error) if is_missing(&error) => {
                let [.., definition] = names::DEFINITIONS;
                self.unsettle(Traits::SCHEMA);
                self.raw().execute_batch(definition)?;
                insert()
            }
            inserted => inserted,
        })
    }

    /// Has foreign keys neither be enforced nor act from now on, until
    /// [`Connection::resume_foreign_keys`].
    ///
    /// # Errors
    /// Those of SQLite; `SQLITE_MISUSE` inside of a transaction. They are on then.
    pub fn suspend_foreign_keys(&self) -> Result<()> {
        if self.is_in_transaction() {
            let text = "foreign keys are not switched off inside of a transaction";
            return Err(failure(ffi::SQLITE_MISUSE, text));
        }
        self.raw().set_db_config(FOREIGN_KEYS, false).map(drop)
    }

    /// Has foreign keys be enforced, and act.
    ///
    /// # Panics
    /// When they are not, which does not happen on an open connection: whatever is written after
    /// that could be wrong.
    pub fn resume_foreign_keys(&self) {
        let is_on = self.raw().set_db_config(FOREIGN_KEYS, true);
        assert!(is_on == Ok(true), "foreign keys are on again: {is_on:?}");
    }

    /// The foreign keys that are violated in the whole database, up to `most` of them: the table,
    /// its row, and the table that lacks the parent.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn foreign_key_violations(&self, most: u32) -> Result<Vec<(String, Option<i64>, String)>> {
        self.as_engine(|| {
            let sql = "SELECT \"table\", rowid, parent FROM pragma_foreign_key_check LIMIT ?1";
            let mut check = self.raw().prepare(sql)?;
            let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            check.query_map([most], row)?.collect()
        })
    }
}

const FOREIGN_KEYS: DbConfig = DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY;
