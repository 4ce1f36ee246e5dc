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
//! Some of what is planned the authorizer is not asked for, and is looked for in the text: copies
//! of result columns ([`text::copies`]), the columns of `USING` and the tables that have no others,
//! of which as many count as are named. A `NATURAL` join does not say how many columns it has.
//!
//! Whatever changes a table has SQLite look for the key behind each foreign key of it and to it,
//! while nobody is asked; what that can take is weighed with the schema.
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

/// The longest with a `SELECT` in another one, or with a view. Of the columns of a `SELECT` nobody
/// is asked, those of a view are asked of once, and both may be put in many places. Measured 2 s
/// for 4,000 bytes of `x = ? OR x = ?` in one that is used ten times, and 0.75 s for 1,500 in one
/// that is used thirty times.
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

/// What SQLite may have to do to find the keys that foreign keys refer to, in characters of names
/// that are compared ([`Weights::keys`]), times the indexes of the table that is changed: `REPLACE`
/// looks for them with each. Measured 0.2 ns for each where a table is dropped, and for long names
/// 1 ns can be, so 0.1 s.
const LIGHT_KEYS: u64 = 100_000_000;

/// As how many uses of columns a name in a list of `USING` counts, one of each table.
const USES_IN_USING: usize = 2;

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
    /// KB would be, beside all indexes there are; and whether the authorizer tells which tables
    /// they join.
    are_small: bool,
    /// Whether a text does not tell that a table with indexes is named in it.
    has_odd_tables: bool,
    /// Of each table with foreign keys, and each that they refer to: how many characters SQLite may
    /// compare to find the keys. For each foreign key it looks through the indexes of the parent,
    /// and through all of its columns for each column of one.
    keys: HashMap<String, u64>,
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
        weights.has_odd_tables = weights.indexes.keys().any(|table| text::is_odd(table));
        weights.weigh_keys(connection)?;
        let definitions: usize = views.values().chain(&triggers).map(String::len).sum();
        let terms: u64 = weights.indexes.values().map(|indexes| indexes.terms).sum();
        let product = (definitions as u64).saturating_mul(USES_IN_JOIN);
        let tells = |sql: &String| text::joining_columns(sql) == Some(0);
        weights.are_small = product.saturating_mul(terms.max(SMALL_TERMS)) <= SMALL
            && views.values().chain(&triggers).all(tells);
        weights.views = Views::of(&views);
        if weights.are_small {
            weights.names_of_triggers =
                triggers.iter().map(|sql| text::all_names(sql, &weights.views)).sum();
        }
        Ok(weights)
    }

    fn weigh_keys(&mut self, connection: &rusqlite::Connection) -> Result<()> {
        const KEYS: &str = "SELECT lower(child.name), lower(key.\"table\"), \
                 count(*) * total(1 + coalesce(octet_length(key.\"to\"), 0)) \
             FROM main.sqlite_schema child, pragma_foreign_key_list(child.name, 'main') key \
             WHERE child.type = 'table' AND instr(lower(child.sql), 'references') \
             GROUP BY child.name, key.id";
        let mut keys = connection.prepare(KEYS)?;
        let mut rows = keys.query([])?;
        while let Some(row) = rows.next()? {
            let name = |at| -> Result<_> {
                Ok(String::from_utf8_lossy(row.get_ref(at)?.as_bytes()?).into_owned())
            };
            let tables = [name(0)?, name(1)?];
            let indexes = self.indexes.get(&tables[1]).map_or(1, |indexes| indexes.number);
            let compared = (row.get::<_, f64>(2)? as u64).saturating_mul(indexes);
            for table in tables {
                let known = self.keys.entry(table).or_default();
                *known = known.saturating_add(compared);
            }
        }
        Ok(())
    }

    /// How many names there are in each view.
    pub(crate) fn views(&self) -> &Views {
        &self.views
    }
}

/// A statement that is light as far as it is known, while it is prepared.
#[derive(Clone, Debug)]
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
    /// Whether it drops a table, whose triggers do not run then.
    drops_table: bool,
    /// Of all changes together, see [`Weights::keys`].
    keys: u64,
    is_refuted: bool,
}

impl Light {
    /// One with the text `sql`, unless that is known not to be light.
    pub(crate) fn of(sql: &str, weights: &Arc<Weights>) -> Option<Light> {
        let may_have_view = weights.views.may_be_in(sql);
        let repeats = may_have_view || text::nests(sql);
        let is_short = sql.len() <= if repeats { NESTED_BYTES } else { LIGHT_BYTES };
        let may_be = match text::planning(sql) {
            Planning::Describes => weights.are_small && is_short && text::is_one(sql),
            Planning::Inserts => is_short || Light::says_rows_alone(sql),
            Planning::Defines | Planning::Queries => is_short,
        };
        let names = || text::names(sql, &weights.views).saturating_add(weights.names_of_triggers);
        let is_light = may_be
            && (weights.are_small || !may_have_view)
            && (!is_short || names() <= LIGHT_NAMES);
        let mut light = is_light.then(|| Light::empty(weights, is_short.then(|| sql.into())))?;
        (!is_short || light.note_text(sql)).then_some(light)
    }

    /// Whether its text is one of at most some kilobytes.
    pub(crate) fn is_short(&self) -> bool {
        self.text.is_some()
    }

    fn empty(weights: &Arc<Weights>, text: Option<Box<str>>) -> Light {
        Light {
            weights: Arc::clone(weights),
            text,
            columns: 0,
            touched: HashSet::new(),
            indexes: Indexes::default(),
            joined: Indexes::default(),
            uses_others: false,
            drops_table: false,
            keys: 0,
            is_refuted: false,
        }
    }

    /// Takes note of what the authorizer is not asked of a short text; whether that may be light.
    fn note_text(&mut self, sql: &str) -> bool {
        let Some(joining) = text::joining_columns(sql) else { return false };
        let weights = Arc::clone(&self.weights);
        self.columns = (text::copies(sql) + USES_IN_USING * joining) as u64;
        if joining > 0 {
            let named = text::named_tables(sql, |name| weights.indexes.contains_key(name));
            for (name, mentions) in named {
                let indexes = weights.indexes[&name];
                self.add_table(name, indexes, mentions);
            }
        }
        self.is_light() && !(joining > 0 && weights.has_odd_tables)
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
                let (name, weights) = (table_name.to_ascii_lowercase(), &*self.weights);
                let runs_triggers = !self.drops_table && weights.triggered.contains(&name);
                self.is_refuted |= !weights.are_small && runs_triggers;
                let keys = weights.keys.get(&name).copied().unwrap_or(0);
                let indexes = weights.indexes.get(&name).map_or(1, |indexes| indexes.number);
                self.keys = self.keys.saturating_add(keys.saturating_mul(indexes));
            }
            AuthAction::DropTable { .. } => self.drops_table = true,
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
            self.add_table(name, *indexes, mentions);
        }
    }

    fn add_table(&mut self, name: String, indexes: Indexes, mentions: u32) {
        self.indexes.add(indexes, 1);
        self.joined.add(indexes, u64::from(mentions.max(1)));
        self.touched.insert(name);
    }

    fn is_light(&self) -> bool {
        let often = if self.uses_others { USES_IN_JOIN } else { 1 };
        let mut joined = Indexes::default();
        joined.add(self.joined, often);
        let bytes = self.text.as_ref().map_or(1, |text| text.len()) as u64;
        let cube = self.columns.saturating_pow(3).saturating_mul(self.indexes.number);
        self.columns <= LIGHT_COLUMNS
            && self.keys <= LIGHT_KEYS
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
    fn columns_of_which_nobody_is_asked_count() {
        let weights = weights_of(
            "CREATE TABLE t(a, b); CREATE INDEX i ON t(a); CREATE INDEX j ON t(b);
             CREATE TABLE \"o\"\"d\"(a);",
        );
        let of = |sql: &str| Light::of(sql, &weights).is_some();
        let sum = vec!["a"; 20].join("+");
        let query =
            |uses: usize| format!("SELECT {sum} x FROM t GROUP BY {}", vec!["x"; uses].join(","));
        assert!(of(&query(5)) && !of(&query(6)));
        let numbered =
            |uses: usize| format!("SELECT {sum} FROM t GROUP BY {}", vec!["1"; uses].join(","));
        assert!(of(&numbered(5)) && !of(&numbered(6)));
        let joined =
            |uses: usize| format!("SELECT 1 FROM t{}", " JOIN t USING (a, b)".repeat(uses));
        assert!(of(&joined(50)) && !of(&joined(51)));
        assert!(!of("SELECT 1 FROM t NATURAL JOIN t"));
        // Not asked of, either: that there is an index with a name which no text tells.
        assert!(of("SELECT 1 FROM t JOIN u USING (a)"));
        let odd = weights_of("CREATE TABLE \"o\"\"d\"(a); CREATE INDEX i ON \"o\"\"d\"(a)");
        assert!(Light::of("SELECT 1 FROM t JOIN u USING (a)", &odd).is_none());
        assert!(Light::of("SELECT 1 FROM t JOIN u ON t.a = u.a", &odd).is_some());
        // In a view and a trigger they are not counted.
        let view = "CREATE VIEW v AS SELECT 1 FROM t";
        assert!(weights_of(&format!("{view} JOIN u ON t.a = u.a")).are_small);
        assert!(!weights_of(&format!("{view} JOIN u USING (a)")).are_small);
        assert!(!weights_of(&format!("{view} NATURAL JOIN u")).are_small);
    }

    #[test]
    fn indexes_of_tables_that_are_joined_by_name_count() {
        let indexes = |at: usize| format!("CREATE INDEX i{at} ON t(a);");
        let weights = weights_of(&format!(
            "CREATE TABLE t(a); {}",
            (0..100).map(indexes).collect::<String>()
        ));
        let of = |uses: usize| {
            let joined = format!("SELECT 1 FROM t{}", " JOIN T USING (a)".repeat(uses));
            Light::of(&joined, &weights).is_some()
        };
        assert!(of(5) && !of(6));
    }

    #[test]
    fn a_view_makes_a_text_short_and_a_pragma_is_alone() {
        let weights = weights_of("CREATE TABLE t(a); CREATE VIEW v AS SELECT a FROM t");
        let of = |sql: &str| Light::of(sql, &weights).is_some();
        let long =
            |table: &str| format!("SELECT 1 FROM {table} WHERE {} 1", "a = 1 OR ".repeat(100));
        assert!(of(&long("t")) && !of(&long("v")) && of("SELECT a FROM v"));
        let large = format!("PRAGMA user_version = {}", "1".repeat(LIGHT_BYTES));
        assert!(of("PRAGMA user_version;") && !of(&large));
        assert!(!of("PRAGMA user_version; SELECT 1"));
    }

    #[test]
    fn changes_of_tables_whose_foreign_keys_are_found_slowly_are_not_light() {
        let columns = (0..40).map(|at| format!("c{at}")).collect::<Vec<_>>().join(", ");
        let index = |at: usize| format!("CREATE UNIQUE INDEX u{at} ON parent({columns});");
        let child = |at: usize| {
            format!(
                "CREATE TABLE k{at}({columns}, \
                 FOREIGN KEY ({columns}) REFERENCES Parent({columns}));"
            )
        };
        let schema = |children: usize| {
            let indexes: String = (0..30).map(index).collect();
            let children: String = (0..children).map(child).collect();
            weights_of(&format!("CREATE TABLE parent({columns}); {indexes} {children}"))
        };
        let is_light = |weights: &Arc<Weights>, table_name: &str| {
            let mut light = Light::of("DELETE FROM x", weights).unwrap();
            light.note(&AuthAction::Delete { table_name }, None)
        };
        let (few, many) = (schema(10), schema(100));
        assert!(is_light(&few, "PARENT") && is_light(&few, "k1"));
        assert!(!is_light(&many, "PARENT") && is_light(&many, "K1") && is_light(&many, "x"));
        // Each change of a statement counts, as where a foreign key makes more of it.
        let mut light = Light::of("DELETE FROM x", &few).unwrap();
        let delete = AuthAction::Delete { table_name: "parent" };
        assert!((0..100).any(|_| !light.note(&delete, None)));
    }

    #[test]
    fn triggers_do_not_matter_where_their_table_is_dropped() {
        let weights = weights_of(&format!(
            "CREATE TABLE t(a); CREATE TRIGGER r AFTER DELETE ON t BEGIN SELECT 1 /*{}*/; END",
            "-".repeat(400)
        ));
        let mut light = Light::of("DROP TABLE t", &weights).unwrap();
        assert!(light.note(&AuthAction::DropTable { table_name: "t" }, None));
        assert!(light.note(&AuthAction::Delete { table_name: "t" }, None));
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
