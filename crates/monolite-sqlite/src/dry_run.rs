//! Owns which statements of untrusted SQL are prepared elsewhere first, in a *dry run*.
//!
//! # Why
//! SQLite asks nobody while it plans. How long that takes grows with products, up to the third
//! power, of what the statement and the schema have of conditions, tables, indexes and their
//! expressions: 22 KB of `(a = 1 OR a = 2)` on an indexed column take 2.3 s. Each formula that
//! bounded one of these products has had a neighbour that it did not bound, and refused what was
//! quick. So the one thread that everybody waits for prepares nothing large that was not seen to be
//! prepared in time.
//!
//! # Algorithm
//! 1. What plans nothing (`INSERT … VALUES`, `CREATE` without a query) and what is *light* is
//!    prepared at once. Light is a short text that names few columns, on a schema whose views,
//!    triggers and index expressions can make little of it ([`Weight`]).
//! 2. Any other statement is first prepared by [`DryRuns`], on another thread and connection with
//!    the same profile and the same schema, which its cookie tells. That is waited for until the
//!    statement's deadline.
//! 3. If it has come back by then, and as long again is left, the statement is prepared here.
//!    Otherwise it ends as one that takes too long, and never was on this thread.
//!
//! A change of the schema that is not committed is not there for others, so a large statement
//! behind one is refused. The statements of migrations come from the program, and need no dry run.
//!
//! # What a dry run depends on
//! The time to plan depends on the text, the schema and the statistics (which are read with the
//! schema, and which untrusted SQL cannot change), the limits of the profile, and the functions,
//! collations and modules of the connection, which all connections have in common; not on rows.
//! Values of parameters may let SQLite plan once more with them, which is as long again. Virtual
//! tables are asked for their plans, and do what they like: a module that is named is trusted so
//! far.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Result, ffi};

use crate::look::{Look, Rest};
use crate::text::{self, Planning};
use crate::untrusted::MAX_COLUMNS;

/// The longest text that is light.
const LIGHT_BYTES: usize = 1_000;

/// The most uses of columns in a light statement.
const LIGHT_COLUMNS: u32 = 60;

/// Those times the expressions and conditions of indexes, with each of which each is compared, for
/// each of 64 tables at most, in up to 190 ns (measured with SQLite 3.54.1 on x86-64): 50 ms.
const LIGHT_COMPARED: u32 = 4_000;

/// Bytes of a statement with all that is put in the place of names, times the expressions and
/// conditions of indexes, which are compared term by term where they begin alike: 0.4 µs for each
/// (measured for 38 KB of sums and 390 indexes on such sums), so 0.1 s.
const LIGHT_TERMS: u64 = 250_000;

/// As many of these there are at least: a statement of 20 KB is not light.
const LEAST_TERMS: u64 = 12;

/// How often a view can stand in one join.
const VIEWS_IN_JOIN: u64 = 64;

/// How a dry run has ended.
#[derive(Debug)]
pub enum DryRun {
    /// The statement was prepared, and that took so long.
    Prepared(Duration),
    /// It cannot be prepared, for this reason, and this one of the profile.
    Refused(rusqlite::Error, Option<String>),
    /// The schema is not the one that was asked for.
    OtherSchema,
    /// It was given up.
    GivenUp,
}

/// Prepares statements on another connection of the same database, which has the same profile.
pub trait DryRuns: Send + Sync {
    /// Prepares the first statement of `sql` on the schema with this `cookie`, and drops it.
    /// `numbers` says that the text is one of [`crate::rowids`]. Given up as soon as `goes_on`,
    /// which is asked every few milliseconds, says so.
    fn run(&self, sql: &str, cookie: u32, numbers: bool, goes_on: &dyn Fn() -> bool) -> DryRun;
}

/// What a schema can make of a short statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of the texts of views and triggers.
    definitions: u64,
    has_views: bool,
    /// Expressions in indexes, and conditions of partial ones.
    index_terms: u32,
}

impl Weight {
    /// That of the schema of `connection`.
    pub(crate) fn of(connection: &rusqlite::Connection) -> Result<Weight> {
        const DEFINITIONS: &str = "SELECT coalesce(sum(octet_length(sql)), 0), \
             coalesce(max(type = 'view'), 0) FROM main.sqlite_schema \
             WHERE type IN ('view', 'trigger')";
        let (definitions, has_views) = connection.query_row(DEFINITIONS, [], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        })?;
        let index_terms = crate::definitions::index_terms(connection)?;
        Ok(Weight { definitions, has_views, index_terms })
    }

    /// How many uses of columns a statement may have that is light, if its text may be so long.
    fn light_columns(self, text_bytes: usize) -> Option<u32> {
        let often = if self.has_views { VIEWS_IN_JOIN } else { 1 };
        let bytes = (text_bytes as u64).saturating_add(self.definitions.saturating_mul(often));
        let terms = u64::from(self.index_terms).max(LEAST_TERMS);
        let is_light = text_bytes <= LIGHT_BYTES && bytes.saturating_mul(terms) <= LIGHT_TERMS;
        is_light.then(|| LIGHT_COLUMNS.min(LIGHT_COMPARED / self.index_terms.max(1)))
    }

    /// As many of them as `sql` may have.
    pub(crate) fn light_columns_of(self, sql: &str) -> Option<u32> {
        match text::planning(sql) {
            Planning::Defines => Some(MAX_COLUMNS),
            Planning::Inserts => self.light_columns(0),
            Planning::Queries => self.light_columns(sql.len()),
        }
    }
}

/// What a connection has to ask for dry runs, and until when it waits for them.
pub(crate) struct Rehearsing {
    pub(crate) runs: Arc<dyn DryRuns>,
    pub(crate) look: Arc<Look>,
}

impl Rehearsing {
    /// Waits until the first statement of `sql` was prepared elsewhere.
    ///
    /// # Errors
    /// Those of preparing it, with the reason of the profile; `SQLITE_INTERRUPT` when it has to
    /// end; `SQLITE_AUTH` where nobody else has this schema.
    pub(crate) fn wait_for(
        &self,
        sql: &str,
        cookie: u32,
        numbers: bool,
    ) -> Result<(), (rusqlite::Error, Option<String>)> {
        let failed = |code, text| rusqlite::Error::SqliteFailure(ffi::Error::new(code), text);
        match self.runs.run(sql, cookie, numbers, &|| self.look.goes_on()) {
            // It takes as long again.
            DryRun::Prepared(time) if self.look.goes_on_for(Rest::Measured(time)) => Ok(()),
            DryRun::Refused(error, reason) => Err((error, reason)),
            DryRun::Prepared(_) | DryRun::GivenUp => {
                Err((failed(ffi::SQLITE_INTERRUPT, None), None))
            }
            DryRun::OtherSchema => {
                let text = "a statement of this size is prepared elsewhere first where SQL is not \
                            trusted, and the schema was changed in this transaction, or just now \
                            by another one: commit the change first, or run the transaction again";
                Err((failed(ffi::SQLITE_AUTH, Some(text.into())), None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight_of(schema: &str) -> Weight {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        Weight::of(&connection).unwrap()
    }

    #[test]
    fn a_short_statement_is_light_where_little_can_be_made_of_it() {
        let plain = weight_of("CREATE TABLE t(a, b); CREATE INDEX i ON t(a)");
        assert_eq!(plain, Weight::default());
        assert_eq!(plain.light_columns(LIGHT_BYTES), Some(LIGHT_COLUMNS));
        assert_eq!(plain.light_columns(LIGHT_BYTES + 1), None);
        let long = format!("SELECT {} FROM t", vec!["1"; 1_000].join(","));
        assert_eq!(plain.light_columns_of(&long), None);
        let rows = format!("INSERT INTO t VALUES {}", vec!["(1, 2)"; 1_000].join(","));
        assert_eq!(plain.light_columns_of(&rows), Some(LIGHT_COLUMNS));
        let view = format!("CREATE VIEW v AS {long}");
        assert_eq!(plain.light_columns_of(&view), Some(MAX_COLUMNS));
    }

    #[test]
    fn views_and_triggers_and_terms_of_indexes_weigh() {
        let view = |bytes: usize| format!("CREATE VIEW v AS SELECT 1 -- {}", "-".repeat(bytes));
        assert_eq!(weight_of(&view(100)).light_columns(100), Some(LIGHT_COLUMNS));
        assert_eq!(weight_of(&view(400)).light_columns(100), None);
        let trigger = |bytes: usize| {
            let text = "-".repeat(bytes);
            format!("CREATE TABLE t(a); CREATE TRIGGER r DELETE ON t BEGIN SELECT 1; --{text}\nEND")
        };
        assert_eq!(weight_of(&trigger(10_000)).light_columns(0), Some(LIGHT_COLUMNS));
        assert_eq!(weight_of(&trigger(30_000)).light_columns(0), None);
        let indexes = |number: usize| {
            let one = |at: usize| format!("CREATE INDEX i{at} ON t(a + {at});");
            format!("CREATE TABLE t(a); {}", (0..number).map(one).collect::<String>())
        };
        assert_eq!(weight_of(&indexes(100)).light_columns(100), Some(40));
        assert_eq!(weight_of(&indexes(100)).light_columns(2_501), None);
        assert_eq!(weight_of(&indexes(1_000)).light_columns(251), None);
        assert_eq!(weight_of(&indexes(1_000)).light_columns(250), Some(4));
    }
}
