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
//! What a view has in it is looked up, at every place where it is named, before the first question
//! that would tell of it. So where views and triggers are not all small, a text that may name a
//! view is not light, and no change of a table with a trigger, of which the authorizer is asked
//! before the trigger is looked at. Where they are, the names in them count with those of the text.
//!
//! # Source of the bounds
//! Each is a product for which a statement was found that takes long, and its measured time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::Result;
use rusqlite::hooks::AuthAction;

use crate::text::{self, Planning, Views};
use crate::verb::has_word;

/// The longest text that is light.
const LIGHT_BYTES: usize = 4_000;

/// The longest with a `SELECT` in another one. Of the columns of that one nobody is asked, and it
/// may be put in many places. Measured 2 s for 4,000 bytes of `x = ? OR x = ?` in one that is used
/// ten times, and 0.75 s for 1,500 in one that is used thirty times.
const NESTED_BYTES: usize = 700;

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

/// The most names in a light statement, weighed as those of any statement of untrusted SQL, of
/// which 12,000 take 0.25 s at worst.
const LIGHT_NAMES: usize = 4_000;

/// Bytes of all views and triggers, as often as they can stand in a statement, times the
/// expressions and conditions of all indexes, in a schema where they are small: 0.1 s, at 0.4 µs
/// for each (measured for 38 KB of sums and 390 indexes on such sums).
const SMALL: u64 = 250_000;

/// As many of these expressions there are at least: 20 KB are too much without one.
const SMALL_TERMS: u64 = 12;

/// How often a view or a common table expression can stand in one join.
const USES_IN_JOIN: u64 = 64;

/// What must be known of a schema to tell which statements are light on it.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The indexes of each table that has some.
    indexes: HashMap<String, Indexes>,
    /// The views, and how many names there are in each.
    views: Views,
    /// The tables and views that have triggers.
    triggered: HashSet<String>,
    /// How many names there are in all triggers together, with those of the views that they use.
    names_of_triggers: usize,
    /// Whether views and triggers, whichever a statement uses, make no more of it than a text of 20
    /// KB would be, beside all indexes there are.
    are_small: bool,
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
        let (mut views, mut triggers) = (HashMap::new(), Vec::new());
        while let Some(row) = rows.next()? {
            let table = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into_owned();
            let sql = String::from_utf8_lossy(row.get_ref(2)?.as_bytes()?);
            match row.get_ref(0)?.as_bytes()? {
                b"index" => {
                    // One that a constraint makes has no text.
                    let terms = if sql.is_empty() { 0 } else { text::terms_of_index(&sql) as u64 };
                    weights.indexes.entry(table).or_default().add(Indexes { number: 1, terms }, 1);
                }
                b"view" => {
                    views.insert(table.into_boxed_str(), sql.into_owned());
                }
                _ => {
                    weights.triggered.insert(table);
                    triggers.push(sql.into_owned());
                }
            }
        }
        let definitions: usize = views.values().chain(&triggers).map(String::len).sum();
        let terms: u64 = weights.indexes.values().map(|indexes| indexes.terms).sum();
        let product = (definitions as u64).saturating_mul(USES_IN_JOIN);
        weights.are_small = product.saturating_mul(terms.max(SMALL_TERMS)) <= SMALL;
        weights.views = Views::of(&views);
        if weights.are_small {
            weights.names_of_triggers =
                triggers.iter().map(|sql| text::all_names(sql, &weights.views)).sum();
        }
        Ok(weights)
    }

    /// How many names there are in each view.
    pub(crate) fn views(&self) -> &Views {
        &self.views
    }
}

/// A statement that is light as far as it is known, while it is prepared.
#[derive(Debug)]
pub(crate) struct Light {
    weights: Arc<Weights>,
    /// Its text; none of rows that are said, which are in no join.
    text: Option<Box<str>>,
    columns: u64,
    /// Tables with indexes, and these.
    touched: HashSet<String>,
    indexes: Indexes,
    /// The same, as often as each may stand in a join.
    joined: Indexes,
    /// Whether there is a view, a trigger or a common table expression.
    uses_others: bool,
    is_refuted: bool,
}

impl Light {
    /// One with the text `sql`, unless that is known not to be light.
    pub(crate) fn of(sql: &str, weights: &Arc<Weights>) -> Option<Light> {
        let is_short = sql.len() <= if text::nests(sql) { NESTED_BYTES } else { LIGHT_BYTES };
        let may_be = match text::planning(sql) {
            Planning::Describes => weights.are_small,
            Planning::Inserts => is_short || Light::says_rows_alone(sql),
            Planning::Defines | Planning::Queries => is_short,
        };
        let names = || text::names(sql, &weights.views).saturating_add(weights.names_of_triggers);
        let is_light = may_be
            && (weights.are_small || !weights.views.may_be_in(sql))
            && (!is_short || names() <= LIGHT_NAMES);
        is_light.then(|| Light {
            weights: Arc::clone(weights),
            text: is_short.then(|| sql.into()),
            columns: 0,
            touched: HashSet::new(),
            indexes: Indexes::default(),
            joined: Indexes::default(),
            uses_others: false,
            is_refuted: false,
        })
    }

    /// Whether an `INSERT` has nothing but rows that are said, of which there may be many.
    fn says_rows_alone(sql: &str) -> bool {
        let has_more = ["returning", "conflict"].iter().any(|word| has_word(sql, word));
        !has_more && text::named_parameters(sql) <= LIGHT_PARAMETERS && text::is_one(sql)
    }

    /// Whether the authorizer has told that it is not light.
    pub(crate) fn is_refuted(&self) -> bool {
        self.is_refuted
    }

    /// Takes note of what the authorizer is asked, inside of a view, a trigger or a common table
    /// expression if there is an `accessor`; whether the statement is still light.
    pub(crate) fn note(&mut self, action: &AuthAction<'_>, accessor: Option<&str>) -> bool {
        match *action {
            AuthAction::Read { table_name, .. } => {
                self.columns += 1;
                self.touch(table_name);
            }
            AuthAction::Insert { table_name }
            | AuthAction::Update { table_name, .. }
            | AuthAction::Delete { table_name } => {
                self.touch(table_name);
                let Weights { triggered, are_small, .. } = &*self.weights;
                self.is_refuted |=
                    !are_small && triggered.contains(&table_name.to_ascii_lowercase());
            }
            _ => {}
        }
        self.uses_others |= accessor.is_some();
        self.is_refuted |= !self.is_light();
        !self.is_refuted
    }

    /// Takes note of the indexes of a table.
    fn touch(&mut self, table: &str) {
        if self.weights.indexes.is_empty() {
            return;
        }
        let name = table.to_ascii_lowercase();
        if let Some(indexes) = self.weights.indexes.get(&name)
            && !self.touched.contains(&name)
        {
            let mentions = self.text.as_ref().map_or(1, |text| text::mentions(text, &name));
            self.indexes.add(*indexes, 1);
            self.joined.add(*indexes, u64::from(mentions.max(1)));
            self.touched.insert(name);
        }
    }

    fn is_light(&self) -> bool {
        let often = if self.uses_others { USES_IN_JOIN } else { 1 };
        let mut joined = Indexes::default();
        joined.add(self.joined, often);
        let bytes = self.text.as_ref().map_or(1, |text| text.len()) as u64;
        let cube = self.columns.saturating_pow(3).saturating_mul(self.indexes.number);
        self.columns <= LIGHT_COLUMNS
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
    fn what_may_name_a_view_is_not_light() {
        let large = format!("/*{}*/", "-".repeat(400));
        let odd = "CREATE VIEW \"o\"\"d\" AS SELECT 2";
        let weights =
            weights_of(&format!("CREATE TABLE t(a); CREATE VIEW v AS SELECT 1 {large}; {odd}"));
        let of = |sql: &str| Light::of(sql, &weights).is_some();
        for sql in ["SELECT 1 FROM V", "SELECT 1 FROM main.v", "SELECT a FROM t, [v]", "WITH v"] {
            assert!(!of(sql), "{sql}");
        }
        // It could be the one with a quote in its name.
        assert!(of("SELECT a FROM t") && !of("SELECT 'x' FROM t"));
        let weights = weights_of(&format!("CREATE TABLE t(a); CREATE VIEW v AS SELECT 1 {large}"));
        let of = |sql: &str| Light::of(sql, &weights).is_some();
        assert!(of("SELECT \"t\".\"a\" FROM \"t\" WHERE a = 'x'"));
        assert!(!of("SELECT 1 FROM \"V\"") && !of("SELECT 1 FROM 'v'"));
        assert!(!of("PRAGMA table_list"));
        let list = vec!["true"; 20].join(",");
        let small = weights_of(&format!("CREATE VIEW v AS SELECT 1 IN ({list})"));
        let join = |uses: usize| format!("SELECT 1 FROM {}", vec!["v"; uses].join(","));
        assert!(Light::of(&join(60), &small).is_some());
        let nested = (0..9).fold(join(60), |query, _| format!("SELECT ({query})"));
        assert!(nested.len() < LIGHT_BYTES && Light::of(&nested, &small).is_none());
    }

    #[test]
    fn a_change_of_a_table_with_a_trigger_is_not_light() {
        let weights = weights_of(&format!(
            "CREATE TABLE t(a); CREATE TABLE u(a); CREATE VIEW v AS SELECT 1;
             CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1 /*{}*/; END",
            "-".repeat(400)
        ));
        let is_light = |table_name: &str| {
            let mut light = Light::of("INSERT INTO t VALUES (1)", &weights).unwrap();
            light.note(&AuthAction::Insert { table_name }, None)
        };
        assert!(is_light("u") && !is_light("T"));
    }

    #[test]
    fn many_names_are_not_light_and_rows_with_more_behind_them_are_not_at_any_length() {
        let weights = weights_of("CREATE TABLE t(a)");
        let of = |sql: &str| Light::of(sql, &weights).is_some();
        let nested = |names: usize| {
            let inner = vec!["a"; names].join(",");
            format!("{}SELECT {inner}{}", "SELECT (".repeat(9), ")".repeat(9))
        };
        assert!(of(&nested(300)) && !of(&nested(500)));
        let common = |uses: usize| {
            let list = vec!["true"; 60].join(",");
            format!("WITH c AS (SELECT 1 IN ({list})) SELECT 1 FROM {}", vec!["c"; uses].join(","))
        };
        assert!(of(&common(20)) && !of(&common(80)));
        let long = "x = 1 OR ".repeat(100);
        assert!(of(&format!("SELECT 1 FROM t WHERE {long} 1")));
        assert!(!of(&format!("SELECT 1 FROM (SELECT a x FROM t) WHERE {long} 1")));
        let rows = vec!["(1)"; 2_000].join(",");
        assert!(of(&format!("INSERT INTO t VALUES {rows}")));
        assert!(!of(&format!("INSERT INTO t VALUES {rows} RETURNING a")));
        assert!(!of(&format!("INSERT INTO t VALUES {rows} ON CONFLICT DO NOTHING")));
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
        let weights = weights_of(&schema);
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
    }
}
