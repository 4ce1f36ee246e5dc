//! Owns the rebuild of a table in one transaction: the table gets another definition, keeps its
//! rows, and all that hangs on it stays.
//!
//! # Algorithm
//! 1. What hangs on the table is noted, and what of it does not work ([`attached`]).
//! 2. The new table is created under the engine's own name ([`SHADOW`]), filled, and gets the
//!    indexes of the old one, under such names, too. Nothing is taken from the old one until then.
//! 3. **The swap**: the old table is dropped. The entries of the new one in `sqlite_schema` get the
//!    names and the texts that they shall have, and those of the triggers come back as they were.
//!    `ALTER TABLE … RENAME` would write other texts, and look into all views.
//! 4. SQLite compiles all views, triggers and foreign keys. What does not work, and did before, is
//!    named.
//!
//! Rows that the new table does not take are found one by one, when all at once have failed.
//!
//! # Invariants
//! - Nothing is kept of a rebuild that fails: its transaction is undone.
//! - Each row of the old table is one of the new, with its rowid if both have some.
//! - No foreign key acts, and no trigger fires: foreign keys are off, and the new table gets its
//!   triggers in the end.
//!
//! # Not here
//! Whether rows violate foreign keys: who has switched them off looks at all of them.

mod attached;
mod fill;
mod online;
mod text;

use rusqlite::config::DbConfig;
use rusqlite::{OptionalExtension as _, Result, ffi};

use super::Connection;
use crate::codes::failure;
use crate::names::quoted;
use crate::traits::Traits;
pub(super) use attached::Quotes;
use attached::{Attached, Compiled, Defined, Shape, fault, reason};
use fill::Fill;
pub use online::{Online, OnlinePlan, RebuildPhase, Rebuilding, Room, Step};
pub(super) use text::{Creation, is_query};

/// The new table until it has the name of the old one. Its indexes are numbered behind that.
const SHADOW: &str = "monolite_rebuild";

/// What to do about things that cannot be carried.
const REMEDY: &str = "drop each of these in a statement before the CREATE TABLE, and create what \
                      shall be there instead in one behind it";

/// What is wrong with a rebuild.
#[derive(Debug, Default)]
struct Faults {
    /// What cannot be carried, or was not declared so that it can be done.
    refusals: Vec<String>,
    /// Rows that cannot be.
    rows: Option<String>,
}

/// A rebuild under way.
struct Rebuild<'c> {
    connection: &'c Connection,
    /// The table, spelled as in the schema.
    table: String,
    creation: &'c Creation<'c>,
    attached: Attached,
    /// How many of its indexes there were before; those behind are declared with the table.
    carried: usize,
    old: Shape,
    /// What did not work before, and what the rest read.
    before: Compiled,
    /// Which of its indexes the new table has.
    created: Vec<usize>,
    /// Which of its indexes the new table cannot have.
    failed: Vec<usize>,
    faults: Faults,
}

impl Connection {
    /// Gives a table the definition of `creation`, and the rows that `select` gives, or those that
    /// it has.
    ///
    /// # Errors
    /// `SQLITE_AUTH` with all that cannot be carried, `SQLITE_CONSTRAINT` with the rows that cannot
    /// be; those of SQLite. The transaction is to be undone then.
    pub(super) fn rebuild(&self, creation: &Creation<'_>, select: Option<&str>) -> Result<()> {
        let has_keys = self.raw().db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY);
        assert_eq!(has_keys, Ok(false), "a table is rebuilt with foreign keys off");
        self.rebuilding(|| Rebuild::begin(self, creation).and_then(|it| it.run(select)))
    }

    /// Runs `run`, which changes the schema as the engine.
    fn rebuilding<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        self.flush_virtual_tables()?;
        let rebuild = || {
            // The place in a statement of the engine's is none in the user's text.
            run().map_err(|error| match error {
                rusqlite::Error::SqlInputError { error, msg, .. } => {
                    failure(error.extended_code, msg)
                }
                error => error,
            })
        };
        // Also where it fails: what is undone then is in memory.
        self.authorizer.virtual_tables.forget();
        self.unsettle(Traits::SCHEMA | Traits::STATISTICS);
        self.counts.during_own_work(|| self.as_engine(|| self.on_stack(rebuild)))
    }
}

impl<'c> Rebuild<'c> {
    fn begin(connection: &'c Connection, creation: &'c Creation<'c>) -> Result<Rebuild<'c>> {
        let raw = connection.raw();
        let refuse = |why: &str| {
            let text = format!("{} is not rebuilt: {why}", creation.table);
            Err(failure(ffi::SQLITE_AUTH, text))
        };
        let sql = "SELECT name, type = 'table', coalesce(rootpage, 0) <> 0 FROM main.sqlite_schema \
                   WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
        let of = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let found = raw.query_row(sql, [&creation.table], of).optional()?;
        let table: String = match found {
            Some((table, true, true)) => table,
            Some((_, true, false)) => {
                return refuse("it is a virtual table; create another one, and fill that");
            }
            Some((_, false, _)) => return refuse("it is a view; drop it, and create it again"),
            None => return refuse("there is no such table; leave the directive out to create it"),
        };
        if let Some(why) = connection.refuse_kept(&table)? {
            return refuse(&why);
        }
        if creation.is_of_query {
            return refuse("CREATE TABLE … AS declares no columns; declare them");
        }
        let attached = Attached::of(raw, &table)?;
        Ok(Rebuild {
            connection,
            creation,
            old: Shape::of(raw, &table)?,
            before: Compiled::of(connection, &table, &attached.full_text)?,
            carried: attached.indexes.len(),
            attached,
            created: Vec::new(),
            failed: Vec::new(),
            table,
            faults: Faults::default(),
        })
    }

    fn run(mut self, select: Option<&str>) -> Result<()> {
        self.execute(&self.creation.renamed(SHADOW))?;
        let new = Shape::of(self.connection.raw(), SHADOW)?;
        let fill = Fill::new(&self, &new, select)?;
        let fits = self.fill(&fill)?;
        if !self.create_indexes(&new)? || !fits {
            // One by one, into all unique indexes.
            self.execute(&format!("DELETE FROM main.{SHADOW}"))?;
            self.create_indexes(&new)?;
            let (_, found) = fill.copy_what_fits(self.connection.raw(), "")?;
            self.faults.rows = found.told(fill::REMEDY).map(|text| self.with_names(text));
        }
        self.swap(&new)?;
        let is_whole = self.faults.rows.is_none();
        self.look_at_what_hangs_on_it(&new)?;
        let is_stale = is_whole && self.faults.refusals.is_empty() && fill.may_differ;
        for (name, _) in self.attached.full_text.iter().filter(|_| is_stale) {
            self.connection.authorizer.note_virtual_table();
            self.execute(&format!("INSERT INTO main.{0}({0}) VALUES ('rebuild')", quoted(name)))?;
        }
        self.faults.of(&self.table)
    }

    /// Fills the new table; tells whether it takes all rows, and has none otherwise.
    fn fill(&mut self, fill: &Fill) -> Result<bool> {
        let raw = self.connection.raw();
        let (rows, lost) = match fill.copy(raw, "") {
            Err(error) if fill::is_of_row(&error) => return Ok(false),
            filled => filled.map_err(|error| self.told(&error))?,
        };
        let count = format!("SELECT count(*) FROM main.{}", quoted(&self.table));
        let before: i64 = raw.query_row(&count, (), |row| row.get(0))?;
        if i64::try_from(rows) != Ok(before) {
            self.refuse(format!(
                "a SELECT that gives {rows} rows, where {} has {before} (give each row once, and \
                 delete rows in a statement before the CREATE TABLE)",
                self.table
            ));
        }
        self.faults.rows = lost.told(fill::REMEDY).map(|text| self.with_names(text));
        Ok(true)
    }

    /// Creates the indexes of the old table on the new one that are not there; tells whether all
    /// rows fit in the unique ones.
    fn create_indexes(&mut self, new: &Shape) -> Result<bool> {
        let raw = self.connection.raw();
        let (gone, added) = (self.old.without(new), new.without(&self.old));
        let (mut refusals, mut fits) = (Vec::new(), true);
        for (at, index) in self.attached.indexes.iter().enumerate() {
            if self.created.contains(&at) {
                continue;
            }
            let name = format!("{SHADOW}_{at}");
            let sql = text::index_on(&index.sql, &self.table, SHADOW, &name);
            let why = match raw.execute_batch(&sql) {
                Err(error) if fill::is_of_row(&error) => {
                    fits = false;
                    continue;
                }
                Err(error) => {
                    self.failed.push(at);
                    fault(error)?
                }
                Ok(()) => {
                    self.created.push(at);
                    if text::may_mean_else(&index.sql, &gone) {
                        "it names a column that is gone".into()
                    } else if at < self.carried && text::may_mean_else(&index.sql, &added) {
                        "a name in it would mean a new column".into()
                    } else {
                        continue;
                    }
                }
            };
            refusals.push(format!("the index {} ({why})", index.name));
        }
        refusals.into_iter().for_each(|it| self.refuse(it));
        Ok(fits)
    }

    /// Puts the new table in the place of the old one, with its indexes and its triggers.
    fn swap(&self, new: &Shape) -> Result<()> {
        let raw = self.connection.raw();
        let last: Option<i64> = match new.is_autoincrement {
            true => {
                let sql = "SELECT max(seq) FROM main.sqlite_sequence WHERE name = ?1";
                raw.query_row(sql, [SHADOW], |row| row.get(0))?
            }
            false => None,
        };
        let of_statistics = ["sqlite_stat1", "sqlite_stat4"];
        let statistics: Vec<_> = of_statistics
            .into_iter()
            .filter(|it| raw.table_exists(Some("main"), *it) == Ok(true))
            .collect();
        let rename_statistics = |from: &str, to: &str| {
            statistics.iter().try_for_each(|it| {
                let sql = format!("UPDATE main.{it} SET tbl = ?2 WHERE tbl = ?1");
                raw.execute(&sql, [from, to]).map(drop)
            })
        };
        // They go with their table.
        rename_statistics(&self.table, SHADOW)?;
        raw.execute_batch(&format!("DROP TABLE main.{}", quoted(&self.table)))?;
        rename_statistics(SHADOW, &self.creation.table)?;
        if new.is_autoincrement {
            let sql = "DELETE FROM main.sqlite_sequence WHERE name = ?1";
            raw.execute(sql, [SHADOW])?;
            if let Some(last) = last.max(self.attached.last_rowid) {
                let sql = "INSERT INTO main.sqlite_sequence(name, seq) VALUES (?1, ?2)";
                raw.execute(sql, (&self.creation.table, last))?;
            }
        }
        self.with_writable_schema(|| self.write_schema())
    }

    fn with_writable_schema(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let raw = self.connection.raw();
        // Refused to everybody in defensive mode.
        raw.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        let written = raw.execute_batch("PRAGMA writable_schema = ON").and_then(|()| write());
        let reset = raw.execute_batch("PRAGMA writable_schema = RESET");
        raw.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        written.and(reset)
    }

    fn write_schema(&self) -> Result<()> {
        // In sqlite_sequence SQLite compares names letter by letter.
        let (raw, table) = (self.connection.raw(), &self.creation.table);
        let sql =
            "UPDATE main.sqlite_schema SET name = ?2, tbl_name = ?2, sql = ?3 WHERE name = ?1";
        raw.execute(sql, (SHADOW, table, self.creation.definition()))?;
        // Those of UNIQUE and PRIMARY KEY.
        let sql = "UPDATE main.sqlite_schema SET name = 'sqlite_autoindex_' || ?2 || \
                   substr(name, length('sqlite_autoindex_' || ?1) + 1), tbl_name = ?2 \
                   WHERE tbl_name = ?1 AND sql IS NULL";
        raw.execute(sql, [SHADOW, table])?;
        for at in &self.created {
            let index = &self.attached.indexes[*at];
            let sql = "UPDATE main.sqlite_schema SET name = ?2, tbl_name = ?3, sql = ?4 WHERE \
                       name = ?1";
            let names = (format!("{SHADOW}_{at}"), &index.name, table, &index.sql);
            raw.execute(sql, names)?;
        }
        for trigger in &self.attached.triggers {
            let sql = "INSERT INTO main.sqlite_schema VALUES ('trigger', ?1, ?2, 0, ?3)";
            raw.execute(sql, [&trigger.name, table, &trigger.sql])?;
        }
        Ok(())
    }

    /// Refuses what works no more.
    fn look_at_what_hangs_on_it(&mut self, new: &Shape) -> Result<()> {
        let raw = self.connection.raw();
        let now = Compiled::of(self.connection, &self.table, &self.attached.full_text)?;
        let mut refusals = now.read_anew(&self.before, &self.table);
        let broken = now.broken.iter().filter(|(what, _)| !self.before.broken.contains_key(*what));
        refusals.extend(broken.map(|(what, why)| format!("{what} ({why})")));
        if self.old.primary_key() != new.primary_key() {
            let children = attached::children_of_primary_key(raw, &self.table)?.into_iter();
            refusals.extend(children.map(|child| {
                format!(
                    "a foreign key of {child} (it names no column, and the primary key changes)"
                )
            }));
        }
        for column in self.old.without(new) {
            let is_it = |name: String| name.eq_ignore_ascii_case(&column);
            let names_it = |it: &&Defined| text::updated_columns(&it.sql).into_iter().any(is_it);
            let triggers = self.attached.triggers.iter().filter(names_it);
            refusals.extend(
                triggers.map(|it| {
                    format!("the trigger {} (UPDATE OF {column}, which is gone)", it.name)
                }),
            );
        }
        let places = |shape: &Shape| -> Vec<String> {
            let columns = shape.columns.iter().filter(|it| !it.is_generated);
            columns.map(|it| it.name.to_ascii_lowercase()).collect()
        };
        let views =
            self.before.views.iter().filter(|(name, was)| now.views.get(*name) != Some(was));
        let mut moved: Vec<&String> = views.map(|(name, _)| name).collect();
        refusals.extend(self.names_that_mean_else(new, &moved));
        moved.extend((places(new) != places(&self.old)).then_some(&self.table));
        if !moved.is_empty() {
            let triggers = attached::triggers(raw)?.into_iter();
            let is_moved =
                |it: &Defined| moved.iter().any(|to| text::inserts_by_place(&it.sql, to));
            let by_place = triggers.filter(is_moved);
            refusals.extend(by_place.map(|it| {
                format!("the trigger {} (INSERT by the places of columns, which change)", it.name)
            }));
        }
        self.faults.refusals.extend(refusals);
        Ok(())
    }

    /// What of the table, or of `views` whose columns change, has names whose meaning SQLite does
    /// not tell: those by which tables are joined, and of the rowid.
    fn names_that_mean_else(&self, new: &Shape, views: &[&String]) -> Vec<String> {
        let columns = [self.old.without(new), new.without(&self.old)].concat();
        let is_rowid_another = self.old.rowid != new.rowid;
        let mut found = Vec::new();
        for (what, (reads, sql)) in &self.before.reads {
            let names = |word: &str| text::names_one(sql, word);
            let is_used =
                |it: &str| reads.iter().any(|(of, _)| of.eq_ignore_ascii_case(it)) || names(it);
            if !is_used(&self.table) && !views.iter().any(|it| is_used(it)) {
                continue;
            }
            if !columns.is_empty() && names("NATURAL") {
                found.push(format!("{what} (NATURAL JOIN by the names of columns, which change)"));
            }
            if let Some(column) = columns.iter().find(|it| names("USING") && names(it)) {
                found.push(format!("{what} (USING may join by another {column} than before)"));
            }
            if let Some(name) = text::ROWID.iter().find(|it| is_rowid_another && names(it)) {
                found.push(format!("{what} ({name} in it may be another one than before)"));
            }
        }
        found
    }

    fn refuse(&mut self, what: String) {
        if !self.faults.refusals.contains(&what) {
            self.faults.refusals.push(what);
        }
    }

    fn execute(&self, sql: &str) -> Result<()> {
        self.connection.raw().execute_batch(sql).map_err(|error| self.told(&error))
    }

    /// `error` with the names that the user knows, and without a place: in another text it is
    /// elsewhere.
    fn told(&self, error: &rusqlite::Error) -> rusqlite::Error {
        let code = error.sqlite_error().map_or(ffi::SQLITE_ERROR, |it| it.extended_code);
        failure(code, self.with_names(reason(error)))
    }

    fn with_names(&self, mut text: String) -> String {
        for (at, index) in self.attached.indexes.iter().enumerate().rev() {
            text = text.replace(&format!("{SHADOW}_{at}"), &index.name);
        }
        text.replace(SHADOW, &self.table)
    }
}

impl Faults {
    /// # Errors
    /// If there are some.
    fn of(self, table: &str) -> Result<()> {
        let rows = self.rows.map(|rows| format!("of {table}, {rows}"));
        if self.refusals.is_empty() {
            let Some(rows) = rows else { return Ok(()) };
            return Err(failure(ffi::SQLITE_CONSTRAINT, rows));
        }
        let refusals = self.refusals.join("; ");
        let rows = rows.map_or_else(String::new, |rows| format!("; and {rows}"));
        let text = format!("{table} cannot be rebuilt with {refusals}: {REMEDY}{rows}");
        Err(failure(ffi::SQLITE_AUTH, text))
    }
}
