//! Owns which statements of untrusted SQL are *light*: planned so quickly, whatever they are, that
//! they need no dry run ([`crate::dry_run`]).
//!
//! # Algorithm
//! What is known before SQLite plans is the text and what the authorizer is asked while names are
//! resolved: which columns of which tables, and whether within a view, a trigger or a common table
//! expression. That is compared, at each question, with what the schema has for those tables:
//! indexes, and what these are made of. What else there is in the schema does not matter, or
//! whoever makes it large would make the statements of all others wait.
//!
//! Nobody tells of a view that is put in the place of its name and names no column itself. Its
//! conditions are compared with the expressions in indexes and with nothing else, so where there
//! are such indexes no name of a view may be in the text at all.
//!
//! # Source of the bounds
//! Each is a product for which a statement was found that takes long, and its measured time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::Result;
use rusqlite::hooks::AuthAction;

use crate::text::{self, Planning};

/// The longest text that is light.
const LIGHT_BYTES: usize = 4_000;

/// The most uses of columns in a light statement.
const LIGHT_COLUMNS: u64 = 200;

/// The most parameters with a name or a number in rows that are said: SQLite looks for each among
/// all of them (measured with SQLite 3.54.1 on x86-64: 4.4 s for 1 MB of `?32766`).
const LIGHT_PARAMETERS: usize = 200;

/// The third power of the uses of columns, times the indexes of the tables that are touched: each
/// `OR` is planned with each index for each condition that fits, past all conditions. Measured
/// 3.2 s for 1,600 uses and one index, so 0.1 s.
const LIGHT_CUBE: u64 = 120_000_000;

/// Indexes of the tables, as often as each may stand in the statement. Measured 2.4 s for 60 times
/// a table with 120 indexes, sorted by 60 columns, so 0.2 s.
const LIGHT_INDEXES: u64 = 600;

/// Uses of columns, times the expressions and conditions in those indexes: 190 ns for each, so
/// 50 ms.
const LIGHT_COMPARED: u64 = 250_000;

/// The same for bytes of the text, whose parts may have no columns. Measured 0.7 ns for each.
const LIGHT_TERMS: u64 = 50_000_000;

/// Bytes of all views and triggers, as often as they can stand in a statement, times the
/// expressions and conditions of all indexes, in a schema where they need not be looked at: 0.1 s,
/// at 0.4 µs for each (measured for 38 KB of sums and 390 indexes on such sums).
const SMALL: u64 = 250_000;

/// As many of these expressions there are at least: 20 KB are too much without one.
const SMALL_TERMS: u64 = 12;

/// How often a view can stand in one join.
const VIEWS_IN_JOIN: u64 = 64;

/// What must be known of a schema to tell which statements are light on it.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The indexes of each table that has some.
    indexes: HashMap<String, Indexes>,
    /// The names of views.
    views: HashSet<String>,
    /// Bytes of the texts of views and triggers.
    definitions: u64,
}

/// The indexes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Indexes {
    number: u64,
    /// Their expressions, and conditions of partial ones.
    terms: u64,
}

impl Indexes {
    fn add(&mut self, other: Indexes, often: u64) {
        self.number = self.number.saturating_add(other.number.saturating_mul(often));
        self.terms = self.terms.saturating_add(other.terms.saturating_mul(often));
    }
}

impl Weights {
    /// Those of the schema of `connection`.
    pub(crate) fn of(connection: &rusqlite::Connection) -> Result<Weights> {
        const OBJECTS: &str = "SELECT type, lower(tbl_name), coalesce(sql, '') \
             FROM main.sqlite_schema WHERE type IN ('view', 'trigger', 'index')";
        let mut objects = connection.prepare(OBJECTS)?;
        let (mut rows, mut weights) = (objects.query([])?, Weights::default());
        while let Some(row) = rows.next()? {
            let table = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
            let sql = row.get_ref(2)?.as_bytes()?;
            match row.get_ref(0)?.as_bytes()? {
                b"index" => {
                    let terms = text::terms_of_index(&String::from_utf8_lossy(sql)) as u64;
                    // One that a constraint makes has no text.
                    let terms = if sql.is_empty() { 0 } else { terms };
                    weights.indexes.entry(table).or_default().add(Indexes { number: 1, terms }, 1);
                }
                kind => {
                    weights.definitions = weights.definitions.saturating_add(sql.len() as u64);
                    if kind == b"view" {
                        weights.views.insert(table);
                    }
                }
            }
        }
        Ok(weights)
    }

    /// Whether views and triggers, whichever a statement uses, make no more of it than a text of 20
    /// KB would be, beside all indexes there are.
    fn are_small(&self) -> bool {
        let often = if self.views.is_empty() { 1 } else { VIEWS_IN_JOIN };
        let terms: u64 = self.indexes.values().map(|indexes| indexes.terms).sum();
        self.definitions.saturating_mul(often).saturating_mul(terms.max(SMALL_TERMS)) <= SMALL
    }
}

/// A statement that is light as far as it is known, while it is prepared.
#[derive(Debug)]
pub(crate) struct Light {
    weights: Arc<Weights>,
    /// Its text; none of rows that are said, which are in no join.
    text: Option<Box<str>>,
    /// Whether the text may name a view that matters.
    may_name_views: bool,
    /// Whether views and triggers do not matter.
    is_schema_small: bool,
    columns: u64,
    /// Tables with indexes, and these.
    touched: HashSet<String>,
    indexes: Indexes,
    /// The same, as often as each may stand in a join.
    joined: Indexes,
    uses_views: bool,
    is_refuted: bool,
}

impl Light {
    /// One with the text `sql`, unless that is known not to be light.
    pub(crate) fn of(sql: &str, weights: &Arc<Weights>) -> Option<Light> {
        let (is_short, is_schema_small) = (sql.len() <= LIGHT_BYTES, weights.are_small());
        let may_be = match text::planning(sql) {
            Planning::Describes => is_schema_small,
            Planning::Inserts => is_short || text::named_parameters(sql) <= LIGHT_PARAMETERS,
            Planning::Defines | Planning::Queries => is_short,
        };
        may_be.then(|| Light {
            weights: Arc::clone(weights),
            text: is_short.then(|| sql.into()),
            may_name_views: !is_schema_small && text::may_name_one_of(sql, &weights.views),
            is_schema_small,
            columns: 0,
            touched: HashSet::new(),
            indexes: Indexes::default(),
            joined: Indexes::default(),
            uses_views: false,
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
        let is_view = table.is_some_and(|table| self.touch(table));
        self.uses_views |= is_view || accessor.is_some();
        self.is_refuted |= !self.is_light();
        !self.is_refuted
    }

    /// Takes note of a table; whether it is a view.
    fn touch(&mut self, table: &str) -> bool {
        if self.weights.views.is_empty() && self.weights.indexes.is_empty() {
            return false;
        }
        let name = table.to_ascii_lowercase();
        if let Some(indexes) = self.weights.indexes.get(&name)
            && !self.touched.contains(&name)
        {
            let mentions = self.text.as_ref().map_or(1, |text| text::mentions(text, &name));
            self.indexes.add(*indexes, 1);
            self.joined.add(*indexes, u64::from(mentions.max(1)));
            self.touched.insert(name);
            return false;
        }
        self.weights.views.contains(&name)
    }

    fn is_light(&self) -> bool {
        let often = if self.uses_views { VIEWS_IN_JOIN } else { 1 };
        let mut joined = Indexes::default();
        joined.add(self.joined, often);
        let bytes = self.text.as_ref().map_or(1, |text| text.len()) as u64;
        let cube = self.columns.saturating_pow(3).saturating_mul(self.indexes.number);
        (!self.uses_views || self.is_schema_small)
            && (!self.may_name_views || self.indexes.terms == 0)
            && self.columns <= LIGHT_COLUMNS
            && cube <= LIGHT_CUBE
            && joined.number <= LIGHT_INDEXES
            && self.columns.saturating_mul(joined.terms) <= LIGHT_COMPARED
            && bytes.saturating_mul(joined.terms) <= LIGHT_TERMS
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
        assert!(is_light("SELECT a FROM t", &plain, &[("t", 200)]));
        assert!(!is_light("SELECT a FROM t", &plain, &[("t", 201)]));
        let long = format!("SELECT {} FROM t", vec!["1"; 4_000].join(","));
        assert!(!is_light(&long, &plain, &[]));
        let rows = |row: &str| format!("INSERT INTO t VALUES {}", vec![row; 1_000].join(","));
        assert!(is_light(&rows("(1, ?)"), &plain, &[]));
        assert!(!is_light(&rows("(1, ?1)"), &plain, &[]));
        assert!(is_light("PRAGMA table_list", &plain, &[]));
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
        let indexes = (0..9).map(one).collect::<String>();
        assert!(is_light(&format!("{}; {indexes}", trigger(5_000))));
        assert!(!is_light(&format!("{}; {indexes}", trigger(25_000))));
    }

    #[test]
    fn what_is_touched_counts_and_nothing_else() {
        let made = |table: &str, count: usize, column: fn(usize) -> String| {
            let one = |at: usize| format!("CREATE INDEX {table}{at} ON {table}({});", column(at));
            format!("CREATE TABLE {table}(a UNIQUE); {}", (0..count).map(one).collect::<String>())
        };
        let schema = made("few", 100, |at| format!("a + {at}"))
            + &made("Many", 599, |at| format!("a IS {at}"))
            + &made("plain", 99, |_| "a".into())
            + "CREATE TABLE t(a);";
        let weights = weights_of(&format!("{schema} CREATE VIEW v AS SELECT a FROM t"));
        assert!(!weights.are_small());
        assert!(is_light("SELECT a FROM t", &weights, &[("t", 200)]));
        // 200 for each of 50 indexes, as often as they stand there.
        assert!(is_light("SELECT a FROM plain", &weights, &[("PLAIN", 106)]));
        assert!(!is_light("SELECT a FROM plain", &weights, &[("plain", 107)]));
        let join = |times: usize| format!("SELECT 1 FROM {}", vec!["plain"; times].join(", "));
        assert!(is_light(&join(6), &weights, &[("plain", 1)]));
        assert!(!is_light(&join(7), &weights, &[("plain", 1)]));
        assert!(is_light("SELECT a FROM many", &weights, &[("many", 40)]));
        let long = format!("SELECT {} FROM many", vec!["1"; 1_900].join(","));
        assert!(is_light(&long, &weights, &[("many", 1)]));
        let long = format!("SELECT {} FROM few, few, few, few, few", vec!["1"; 1_900].join(","));
        assert!(is_light(&long, &weights, &[("few", 1)]));
        assert!(!is_light("SELECT a FROM v", &weights, &[("V", 1)]));
        assert!(!is_light("PRAGMA table_list", &weights, &[]));
        // A view of conditions without columns may be in it, which nobody tells.
        for sql in ["SELECT 1 FROM few, v", "SELECT 1 FROM few, \"V\"", "SELECT '' FROM few"] {
            assert!(!is_light(sql, &weights, &[("few", 1)]), "{sql}");
            assert!(is_light(sql, &weights, &[("t", 1)]), "{sql}");
        }
    }
}
