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
//! 1. What only defines something plans nothing. What is *light* is prepared at once: a short text
//!    (or rows that are said), which names few columns of tables, and, unless all views and triggers
//!    of the schema are small, no view and no common table expression, and fires no trigger. All that is known from the authorizer before SQLite plans
//!    ([`Light`]), and is about what the statement touches, whatever else there is in the schema.
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

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::hooks::AuthAction;
use rusqlite::{Result, ffi};

use crate::look::{Look, Rest};
use crate::text::{self, Planning};

/// The longest text that is light.
const LIGHT_BYTES: usize = 1_000;

/// The most uses of columns in a light statement.
const LIGHT_COLUMNS: u32 = 60;

/// Those times the expressions and conditions in the indexes of the tables that it touches, with
/// each of which each is compared, for each of 64 tables at most, in up to 190 ns (measured with
/// SQLite 3.54.1 on x86-64): 50 ms.
const LIGHT_COMPARED: u32 = 4_000;

/// The most of these expressions and conditions beside a text of [`LIGHT_BYTES`], whose parts
/// without columns are compared with each of them, too.
const LIGHT_TERMS: u32 = 250;

/// Bytes of all views and triggers, as often as they can stand in a statement, times the expressions
/// and conditions of all indexes, in a schema where they need not be looked at: 0.1 s, at 0.4 µs
/// for each (measured for 38 KB of sums and 390 indexes on such sums).
const SMALL: u64 = 250_000;

/// As many of these expressions there are at least: 20 KB are too much without one.
const SMALL_TERMS: u64 = 12;

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

/// What must be known of a schema to tell which statements are light on it.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// Expressions in the indexes of each table that has some, and conditions of partial ones.
    terms: HashMap<String, u32>,
    /// The names of views.
    views: HashSet<String>,
    /// Bytes of the texts of views and triggers.
    definitions: u64,
}

impl Weights {
    /// Those of the schema of `connection`.
    pub(crate) fn of(connection: &rusqlite::Connection) -> Result<Weights> {
        const OBJECTS: &str = "SELECT type, lower(tbl_name), sql FROM main.sqlite_schema \
             WHERE type IN ('view', 'trigger') OR type = 'index' AND sql IS NOT NULL";
        let mut objects = connection.prepare(OBJECTS)?;
        let (mut rows, mut weights) = (objects.query([])?, Weights::default());
        while let Some(row) = rows.next()? {
            let name = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
            let (kind, sql) = (row.get_ref(0)?.as_str()?, row.get_ref(2)?.as_bytes()?);
            if kind != "index" {
                weights.definitions = weights.definitions.saturating_add(sql.len() as u64);
            }
            if kind == "view" {
                weights.views.insert(name);
                continue;
            }
            let is_index = kind == "index";
            let own =
                if is_index { text::terms_of_index(&String::from_utf8_lossy(sql)) } else { 0 };
            if own > 0 {
                let own = u32::try_from(own).unwrap_or(u32::MAX);
                let all = weights.terms.entry(name).or_default();
                *all = all.saturating_add(own);
            }
        }
        Ok(weights)
    }

    /// Whether views and triggers, whichever a statement uses, make no more of it than a text of 20
    /// KB would be, beside all indexes there are.
    fn are_small(&self) -> bool {
        let often = if self.views.is_empty() { 1 } else { VIEWS_IN_JOIN };
        let terms: u64 = self.terms.values().map(|terms| u64::from(*terms)).sum();
        self.definitions.saturating_mul(often).saturating_mul(terms.max(SMALL_TERMS)) <= SMALL
    }
}

/// A statement that is light as far as it is known, while it is prepared.
#[derive(Debug)]
pub(crate) struct Light {
    weights: Arc<Weights>,
    /// Whether the text may name a view that matters.
    may_name_views: bool,
    /// Whether views and triggers do not matter.
    is_schema_small: bool,
    columns: u32,
    /// Tables with expressions in their indexes.
    touched: Vec<String>,
    terms: u32,
    is_refuted: bool,
}

impl Light {
    /// One with the text `sql`, unless that is too long.
    pub(crate) fn of(sql: &str, weights: &Arc<Weights>) -> Option<Light> {
        let is_short = text::planning(sql) == Planning::Inserts || sql.len() <= LIGHT_BYTES;
        let is_schema_small = weights.are_small();
        is_short.then(|| Light {
            weights: Arc::clone(weights),
            may_name_views: !is_schema_small && text::may_name_one_of(sql, &weights.views),
            is_schema_small,
            columns: 0,
            touched: Vec::new(),
            terms: 0,
            is_refuted: false,
        })
    }

    /// Whether the authorizer has told that it is not light.
    pub(crate) fn is_refuted(&self) -> bool {
        self.is_refuted
    }

    /// Takes note of what the authorizer is asked, inside of a view, a trigger or a common table
    /// expression if there is an `accessor`; whether the statement is still light.
    pub(crate) fn note(&mut self, action: &AuthAction<'_>, accessor: Option<&str>) -> bool {
        let table = match *action {
            AuthAction::Read { table_name, .. } => {
                self.columns += 1;
                Some(table_name)
            }
            AuthAction::Insert { table_name }
            | AuthAction::Update { table_name, .. }
            | AuthAction::Delete { table_name } => Some(table_name),
            _ => None,
        };
        let is_of_view = accessor.is_some() || table.is_some_and(|table| self.touch(table));
        let compared = self.columns.saturating_mul(self.terms);
        self.is_refuted |= is_of_view && !self.is_schema_small
            || self.columns > LIGHT_COLUMNS
            || compared > LIGHT_COMPARED
            || self.terms > LIGHT_TERMS
            || self.terms > 0 && self.may_name_views;
        !self.is_refuted
    }

    /// Takes note of a table; whether it is a view.
    fn touch(&mut self, table: &str) -> bool {
        if self.weights.views.is_empty() && self.weights.terms.is_empty() {
            return false;
        }
        let name = table.to_ascii_lowercase();
        if let Some(terms) = self.weights.terms.get(&name)
            && !self.touched.contains(&name)
        {
            self.terms = self.terms.saturating_add(*terms);
            self.touched.push(name);
            return false;
        }
        self.weights.views.contains(&name)
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

    fn weights_of(schema: &str) -> Arc<Weights> {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(schema).unwrap();
        Arc::new(Weights::of(&connection).unwrap())
    }

    /// Whether a statement is light that reads so many columns of each of these tables.
    fn is_light(sql: &str, weights: &Arc<Weights>, reads: &[(&str, u32)]) -> bool {
        let Some(mut light) = Light::of(sql, weights) else { return false };
        reads.iter().all(|(table_name, count)| {
            let read = AuthAction::Read { table_name, column_name: "a" };
            (0..*count).all(|_| light.note(&read, None))
        })
    }

    #[test]
    fn a_short_statement_of_few_columns_is_light() {
        let plain = weights_of("CREATE TABLE t(a, b); CREATE INDEX i ON t(a)");
        assert!(is_light("SELECT a FROM t", &plain, &[("t", LIGHT_COLUMNS)]));
        assert!(!is_light("SELECT a FROM t", &plain, &[("t", LIGHT_COLUMNS + 1)]));
        let long = format!("SELECT {} FROM t", vec!["1"; 1_000].join(","));
        assert!(!is_light(&long, &plain, &[]));
        let rows = format!("INSERT INTO t VALUES {}", vec!["(1, 2)"; 1_000].join(","));
        assert!(is_light(&rows, &plain, &[]));
    }

    #[test]
    fn triggers_and_views_matter_where_they_are_not_all_small() {
        let insert = AuthAction::Insert { table_name: "t" };
        let is_light = |schema: &str| {
            let mut light = Light::of("INSERT INTO t VALUES (1)", &weights_of(schema)).unwrap();
            assert!(light.note(&insert, None));
            light.note(&insert, Some("r")) && !light.is_refuted()
        };
        let trigger = |bytes: usize| {
            let text = "-".repeat(bytes);
            format!("CREATE TABLE t(a); CREATE TRIGGER r DELETE ON t BEGIN SELECT 1; --{text}\nEND")
        };
        assert!(is_light(&trigger(10_000)) && !is_light(&trigger(30_000)));
        let view = |bytes: usize| {
            format!("CREATE TABLE t(a); CREATE VIEW v AS SELECT 1 -- {}", "-".repeat(bytes))
        };
        assert!(is_light(&view(200)) && !is_light(&view(400)));
        let one = |at: usize| format!("CREATE INDEX i{at} ON t(a + {at});");
        let indexes = (0..20).map(one).collect::<String>();
        assert!(is_light(&format!("{}; {indexes}", trigger(10_000))));
        assert!(!is_light(&format!("{}; {indexes}", trigger(15_000))));
    }

    #[test]
    fn what_is_touched_counts_and_nothing_else() {
        let terms = |table: &str, count: usize| {
            let one = |at: usize| format!("CREATE INDEX {table}{at} ON {table}(a + {at});");
            format!("CREATE TABLE {table}(a); {}", (0..count).map(one).collect::<String>())
        };
        let schema = terms("few", 100) + &terms("Many", 251) + "CREATE TABLE t(a);";
        let weights = weights_of(&format!("{schema} CREATE VIEW v AS SELECT a FROM t"));
        assert!(!weights.are_small());
        assert!(is_light("SELECT a FROM t", &weights, &[("t", 60)]));
        assert!(is_light("SELECT a FROM few", &weights, &[("FEW", 40)]));
        assert!(!is_light("SELECT a FROM few", &weights, &[("few", 41)]));
        assert!(!is_light("SELECT 1 FROM many", &weights, &[("many", 1)]));
        assert!(!is_light("SELECT a FROM v", &weights, &[("V", 1)]));
        // A view of conditions without columns may be in it, which nobody tells.
        for sql in ["SELECT 1 FROM few, v", "SELECT 1 FROM few, \"V\"", "SELECT '' FROM few"] {
            assert!(!is_light(sql, &weights, &[("few", 1)]), "{sql}");
            assert!(is_light(sql, &weights, &[("t", 1)]), "{sql}");
        }
    }
}
