//! Owns the table of migrations in the file, which the engine alone reads and changes
//! ([`crate::names`]), and how the SQL of one is run.
//!
//! # Format
//! One row for each migration, written in the transaction that applied it: `number INTEGER PRIMARY
//! KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied INTEGER NOT NULL` (Unix seconds). The
//! table is created by the first migration.
//!
//! # Not here
//! Which tables a migration may not drop: `drops`. Foreign keys: `foreign_keys`.

use rusqlite::{Result, Row};

use super::Connection;
use super::batches::FailedStatement;
use super::keys::is_missing;
use super::rebuild::{self, Creation, Quotes};
use crate::codes::refuse;
use crate::names;
use crate::scan;
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

/// The migrations in the file, from [`Connection::migrations`].
#[derive(Clone, Copy)]
pub struct Migrations<'c>(pub(super) &'c Connection);

impl Migrations<'_> {
    /// Runs the statements of one. A statement with a parameter is refused, and so is,
    /// while foreign keys are on, a `DROP TABLE` of a table that another one references. A `CREATE
    /// TABLE` of one of `rebuilt` rebuilds that table, with the query that follows it, if one does.
    ///
    /// # Errors
    /// Those of SQLite, with the statement; `SQLITE_AUTH` for what is refused. The statements
    /// before it have been run.
    pub fn run(self, sql: &str, rebuilt: &[String]) -> Result<(), FailedStatement> {
        let is_of = |creation: &Creation<'_>| {
            rebuilt.iter().any(|name| name.eq_ignore_ascii_case(&creation.table))
        };
        let mut pieces = scan::statements(sql).peekable();
        while let Some(piece) = pieces.next() {
            let Some(creation) = Creation::read(piece).filter(is_of) else {
                let migrating = || self.0.authorizer.drops.migrating();
                let ran = self.0.execute_piece(piece, migrating, refuse_parameters);
                ran.map_err(|error| FailedStatement::new(sql, piece, error))?;
                continue;
            };
            let select = pieces.next_if(|next| rebuild::is_query(next));
            if let Some(select) = select {
                let prepared = self.prepare_query(select);
                prepared.map_err(|error| FailedStatement::new(sql, select, error))?;
            }
            let rebuilt = self.0.rebuild(&creation, select);
            rebuilt.map_err(|error| FailedStatement::new(sql, piece, error))?;
        }
        self.read(sql, rebuilt).map_err(|error| FailedStatement::new(sql, sql, error))
    }

    /// Sees whether the migration `sql` has a `CREATE TABLE` of each of `rebuilt`.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when it has not.
    pub fn read(self, sql: &str, rebuilt: &[String]) -> Result<()> {
        let created: Vec<_> = scan::statements(sql).filter_map(Creation::read).collect();
        let is_missing =
            |name: &&String| !created.iter().any(|it| it.table.eq_ignore_ascii_case(name));
        refuse(rebuilt.iter().find(is_missing).map(|name| {
            format!("a rebuild of {name} is declared, and there is no CREATE TABLE {name}; add it")
        }))
    }

    /// Sees whether a user may say the query, in which no name in double quotes is a text.
    pub(super) fn prepare_query(self, select: &str) -> Result<()> {
        let _quotes = Quotes::are_names(self.0.raw())?;
        let _migrating = self.0.authorizer.drops.migrating();
        refuse_parameters(&self.0.prepare(select)?)
    }

    /// The migrations that were applied, by their numbers.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn applied(self) -> Result<Vec<AppliedMigration>> {
        let of = |row: &Row<'_>| {
            let (number, name) = (row.get(0)?, row.get(1)?);
            Ok(AppliedMigration { number, name, checksum: row.get(2)?, applied: row.get(3)? })
        };
        let find = || {
            let sql = "SELECT number, name, checksum, applied FROM main.monolite_migrations \
                       ORDER BY number";
            let mut statement = self.0.raw().prepare(sql)?;
            statement.query_map((), of)?.collect()
        };
        match self.0.as_engine(find) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            found => found,
        }
    }

    /// Notes in the open write transaction that a migration is applied by it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn note(self, number: i64, name: &str, checksum: &str) -> Result<()> {
        let insert = || {
            let sql = "INSERT INTO main.monolite_migrations VALUES (?1, ?2, ?3, unixepoch('now'))";
            self.0.raw().execute(sql, (number, name, checksum)).map(drop)
        };
        self.0.as_engine(|| match insert() {
            Err(error) if is_missing(&error) => {
                let [_, _, definition, ..] = names::DEFINITIONS;
                self.0.unsettle(Traits::SCHEMA);
                self.0.raw().execute_batch(definition)?;
                insert()
            }
            inserted => inserted,
        })
    }
}

/// # Errors
/// `SQLITE_AUTH` when `statement` has a parameter.
fn refuse_parameters(statement: &rusqlite::Statement<'_>) -> Result<()> {
    let of_parameter = |name: &str| {
        format!(
            "the parameter {name} is refused: nothing gives it a value in a migration; write the \
             value itself, or quote it if it is text"
        )
    };
    let has_one = statement.parameter_count() > 0;
    refuse(has_one.then(|| of_parameter(statement.parameter_name(1).unwrap_or("?"))))
}
