//! Owns what is drawn at random of hostile SQL (`sql.txt`): queries of every form, with functions,
//! clauses and lists at the sizes that are allowed, just beyond them, and far below.
//!
//! # Algorithm
//! A list or a chain draws how many parts it has ([`Draft::size`]); what the statement may still
//! have of parts is shared by all of them, so that a text ends. Leaves are values at the limit of
//! length as often as small ones.
//!
//! # Not here
//! Statements that mean something for the live schema: the differential check's grammar, a part of
//! whose statements is run here as well.

use std::sync::LazyLock;

use fastrand::Rng;

use crate::checks::grammar::{Grammar, Pen, Writer};

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| Grammar::new(include_str!("sql.txt")));

/// What the statements find.
const TABLES: &str = "
    CREATE TABLE big(x);
    INSERT INTO big WITH RECURSIVE n(i) AS
        (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i FROM n;
    CREATE TABLE texts(id INTEGER PRIMARY KEY, t);
    INSERT INTO texts VALUES
        (1, printf('%.*c', 900000, 'a')), (2, printf('%.*c', 900000, '1')),
        (3, '[' || replace(printf('%.*c', 400000, '1'), '1', '1,') || '1]'),
        (4, printf('%.*c', 900, '[') || printf('%.*c', 900, ']')), (5, zeroblob(900000)),
        (6, replace(printf('%.*c', 400000, 'a'), 'a', 'é')), (7, 'short'), (8, 7), (9, NULL);
    CREATE TABLE wide(WIDE);
    CREATE INDEX wide_i ON wide(c0, c1, c2);
    INSERT INTO wide(c0, c1, c2) SELECT x, x % 7, 'a' || x FROM big LIMIT 50;
    CREATE TABLE keyed(c0, c1 COLLATE nocase, c2 INTEGER, c3 TEXT, c4 NOT NULL, c5);
    CREATE INDEX keyed_0 ON keyed(c0, c1, c2, c3, c4, c5);
    CREATE INDEX keyed_1 ON keyed(c5, c3, c1);
    CREATE INDEX keyed_2 ON keyed(c4, c4, c4, c0);
    CREATE UNIQUE INDEX keyed_3 ON keyed(c2, c0, c1, c5);
    CREATE UNIQUE INDEX keyed_4 ON keyed(c3, c1);
    CREATE INDEX keyed_5 ON keyed(c1)";

/// Columns of the table `wide`.
const WIDE: usize = 200;

/// Columns of the table `keyed`.
const KEYED: usize = 6;

/// Parts that a statement may have at most.
const PARTS: usize = 4_000;

/// Bytes after which no part is added.
const MAX_BYTES: usize = 900_000;

/// The deepest that queries and expressions nest.
const DEPTH: u32 = 12;

struct Draft<'r> {
    pen: Pen<'r>,
    parts: usize,
    /// Columns that an expression may name here.
    scope: Vec<String>,
    /// What the query being written reads, and how much was in scope around it.
    from: Vec<(String, usize)>,
    /// How many columns a query must have, if that is said.
    columns: Option<usize>,
    has_common: bool,
}

/// Makes what the statements find.
pub(super) fn tables() -> String {
    let columns: Vec<_> = (0..WIDE).map(|column| format!("c{column}")).collect();
    TABLES.replace("WIDE", &columns.join(","))
}

/// A statement.
pub(super) fn statement(rng: &mut Rng) -> String {
    let parts = [30, 300, PARTS][rng.usize(..3)];
    let pen = Pen::new(rng, DEPTH);
    let (scope, from) = (Vec::new(), Vec::new());
    let mut draft = Draft { pen, parts, scope, from, columns: None, has_common: false };
    GRAMMAR.write(&mut draft, "statement");
    draft.pen.sql
}

/// All statements that must be refused.
pub(super) fn forbidden() -> Vec<String> {
    let named = |name: &str| {
        let names = GRAMMAR.texts(&format!("refused_{name}"));
        let forms = GRAMMAR.texts(&format!("forbidden_{name}"));
        let all = |form: &str| -> Vec<String> {
            names.iter().map(|name| form.replace("@", name)).collect()
        };
        forms.into_iter().flat_map(all).collect::<Vec<_>>()
    };
    let mut all: Vec<String> =
        GRAMMAR.texts("forbidden").iter().map(|sql| sql.trim_start_matches('~').into()).collect();
    ["savepoint", "pragma", "function"].iter().for_each(|name| all.extend(named(name)));
    all
}

/// All of `terms` in a tree of `operator` that is not deep.
fn balanced(terms: &[String], operator: &str) -> String {
    match terms {
        [] => "1".into(),
        [one] => one.clone(),
        many => {
            let (left, right) = many.split_at(many.len() / 2);
            format!("({} {operator} {})", balanced(left, operator), balanced(right, operator))
        }
    }
}

impl<'r> Writer<'r> for Draft<'r> {
    fn pen(&mut self) -> &mut Pen<'r> {
        &mut self.pen
    }

    fn word(&mut self, words: &'static str) {
        let mut rest = words.split(' ');
        let mut next = || rest.next().unwrap_or_default();
        match next() {
            "space" => self.pen.put(" "),
            "list" => {
                let count = self.size(next().parse().unwrap_or(1));
                self.repeated(count, None, next());
            }
            "chain" => {
                let count = self.size(next().parse().unwrap_or(1));
                let between = next();
                self.repeated(count + 1, Some(between), next());
            }
            "columns" => {
                let count = self.columns.unwrap_or_else(|| self.size(490));
                self.repeated(count, None, "expression");
            }
            "aggregates" => {
                let count = self.columns.unwrap_or_else(|| self.size(490));
                self.repeated(count, None, "aggregate");
            }
            "star" if self.columns.is_none() => self.pen.put("*"),
            "star" => self.word("columns"),
            "only" => {
                let more = self.columns.unwrap_or(1) - 1;
                self.pen.put(&", 1".repeat(more));
            }
            "query_of_one" => {
                let outer = self.columns.replace(1);
                GRAMMAR.write(self, "query");
                self.columns = outer;
            }
            "selects" => {
                let (count, outer) = (self.size(100), self.columns);
                self.columns = outer.or(Some(2));
                self.repeated(count, Some("set"), "select");
                self.columns = outer;
            }
            "column" => match self.pen.rng.choice(&self.scope) {
                Some(column) => self.pen.put(column),
                None => GRAMMAR.write(self, "leaf"),
            },
            "sources" => self.sources(),
            "from" => {
                let from = self.from.last().map_or("big", |(text, _)| text);
                self.pen.put(from);
            }
            "forget" => {
                let (_, before) = self.from.pop().unwrap_or_default();
                self.scope.truncate(before);
            }
            "conditions" => {
                let conditions = self.conditions();
                self.pen.put(&conditions);
            }
            "copies_of_one" => {
                let count = self.pen.pick(&[1, 20, 400]);
                let copies: Vec<_> = (0..count).map(|at| format!("1 + 1 + {at} + 1")).collect();
                self.pen.put(&copies.join(", "));
            }
            "chain_of_tables" => self.chain_of_tables(),
            "join" => self.join(),
            "copies" => self.copies(),
            _ => self.join_by_name(),
        }
    }
}

impl Draft<'_> {
    /// A number of parts: few mostly, sometimes what is allowed, and sometimes one more.
    fn size(&mut self, most: usize) -> usize {
        let drawn = match self.pen.rng.u8(..12) {
            0..7 => self.pen.rng.usize(1..4),
            7..9 => self.pen.rng.usize(1..=most.min(12)),
            9 => most / 4,
            10 => most,
            _ => most + usize::from(self.pen.one_in(4)),
        };
        let size = drawn.clamp(1, self.parts.max(1));
        self.parts = self.parts.saturating_sub(size);
        size
    }

    /// So many of a rule, with a comma or another rule in between; fewer where the text is long.
    fn repeated(&mut self, count: usize, between: Option<&str>, rule: &str) {
        let bottom = self.pen.bottom;
        for number in 0..count {
            if self.parts == 0 || self.pen.sql.len() > MAX_BYTES {
                self.pen.bottom = 0;
            }
            match between {
                _ if number == 0 => {}
                None => self.pen.put(", "),
                Some(between) => {
                    self.pen.put(" ");
                    GRAMMAR.write(self, between);
                    self.pen.put(" ");
                }
            }
            GRAMMAR.write(self, rule);
        }
        self.pen.bottom = bottom;
    }

    /// Many ways to read each of many tables: by which index, for which condition.
    fn join(&mut self) {
        let tables = self.size(64);
        let how = self.pen.pick(&[&[", "][..], &[", ", " JOIN ", " LEFT JOIN ", " CROSS JOIN "]]);
        let select = self.pen.pick(&["count(*)", "DISTINCT k0.c0", "1"]);
        self.pen.put(&format!("SELECT {select} FROM keyed k0"));
        for table in 1..tables {
            let with = self.pen.pick(how);
            self.pen.put(&format!("{with}keyed k{table}"));
        }
        // A star, a chain, or anything.
        let shape = self.pen.rng.u8(..3);
        let mut terms = Vec::new();
        for _ in 0..self.size(90) {
            let first = self.pen.rng.usize(..tables);
            let second = match shape {
                0 => 0,
                1 => (first + 1) % tables,
                _ => self.pen.rng.usize(..tables),
            };
            let mut column = |table| format!("k{table}.c{}", self.pen.rng.usize(..KEYED));
            let (one, other, third) = (column(first), column(second), column(first));
            terms.push(match self.pen.rng.u8(..8) {
                0 => format!("({one} = {other} OR {third} = ?)"),
                1 => format!("{one} IN (1, 2, 3)"),
                2 => format!("{one} BETWEEN ? AND {other}"),
                3 => format!("{one} > {other}"),
                _ => format!("{one} = {other}"),
            });
        }
        self.pen.put(&format!(" WHERE {}", balanced(&terms, "AND")));
        if self.pen.one_in(2) {
            let order = self.pen.pick(&["ORDER", "GROUP"]);
            self.pen.put(&format!(" {order} BY k0.c1, k0.c5"));
        }
    }

    /// A result column that is named or numbered again, in few bytes.
    fn copies(&mut self) {
        let (terms, uses) =
            (self.pen.pick(&[1, 5, 20, 60, 120]), self.pen.pick(&[3, 60, 200, 460, 540]));
        let column = self.pen.rng.usize(..KEYED);
        let one = |at: usize| format!("c{column}={}", at % 10);
        let all: Vec<_> = (0..terms).map(one).collect();
        let by = self.pen.pick(&["OR", "AND", "+"]);
        self.pen.put(&format!("SELECT {} x FROM keyed ", balanced(&all, by)));
        let clause = self.pen.pick(&["WHERE", "GROUP BY", "ORDER BY", "GROUP BY x HAVING"]);
        let text = match clause {
            "GROUP BY" | "ORDER BY" => {
                let term = self.pen.pick(&["x", "1", "x+1"]);
                vec![term; uses].join(",")
            }
            _ => balanced(&vec!["x".into(); uses], self.pen.pick(&["AND", "OR"])),
        };
        self.pen.put(&format!("{clause} {text}"));
    }

    /// A join whose columns the authorizer is not asked for.
    fn join_by_name(&mut self) {
        let tables = self.size(64);
        let columns: Vec<_> =
            (0..self.pen.rng.usize(1..=KEYED)).map(|at| format!("c{at}")).collect();
        let using = format!(" USING ({})", columns.join(", "));
        self.pen.put("SELECT 1 FROM keyed k0");
        for table in 1..tables {
            let (before, behind) =
                self.pen.pick(&[("", true), ("LEFT ", true), ("NATURAL ", false)]);
            let behind = if behind { using.as_str() } else { "" };
            self.pen.put(&format!(" {before}JOIN keyed k{table}{behind}"));
        }
    }

    /// Values that are kept, and tables each of which reads the one before.
    fn chain_of_tables(&mut self) {
        self.pen.put("k0(t, x) AS MATERIALIZED (SELECT ");
        GRAMMAR.write(self, "expression");
        self.pen.put(", 1)");
        self.scope.push("a.t".into());
        for number in 1..=self.size(60) {
            let join = self.pen.pick(&["", ", big b", " CROSS JOIN k0 b"]);
            self.pen.put(&format!(", k{number}(t, x) AS (SELECT "));
            GRAMMAR.write(self, "expression");
            self.pen.put(&format!(", 1 FROM k{} a{join})", number - 1));
        }
        self.scope.pop();
        self.has_common = true;
    }

    /// Tables to select from, whose columns can be named from here on.
    fn sources(&mut self) {
        let before = self.scope.len();
        let count = if self.pen.one_in(8) { self.size(64) } else { self.pen.rng.usize(1..3) };
        let mut text = String::new();
        for number in 0..count {
            let common = self.has_common && self.pen.one_in(2);
            let sources = GRAMMAR.texts(if common { "common" } else { "source" });
            let (table, column) = self.pen.pick(&sources).rsplit_once(' ').unwrap_or_default();
            let alias = format!("a{}", self.scope.len());
            let join = self.pen.pick(&GRAMMAR.texts("joins"));
            text += &format!(" {} {table} {alias}", if number == 0 { "" } else { join });
            self.scope.push(format!("{alias}.{column}"));
        }
        self.from.push((text, before));
    }

    /// Many small conditions, each of which the planner compares with all there is.
    fn conditions(&mut self) -> String {
        let column = match self.pen.rng.choice(&self.scope) {
            Some(column) => column.clone(),
            None => "1".into(),
        };
        let count = self.pen.rng.choice([3, 30, 100, 500]).unwrap_or(3);
        let form = self.pen.rng.u8(..4);
        let one = |at: usize| match form {
            0 => format!("({column} = {at} OR {column} = -{at})"),
            1 => format!("{column} + {}{at} > 0", "1 + ".repeat(at % 60)),
            2 => format!("{}{at} IN ({column}, 1)", "1 + ".repeat(60)),
            _ => format!("{column} BETWEEN -{at} AND {at}"),
        };
        let all: Vec<_> = (0..count).map(one).collect();
        balanced(&all, if self.pen.one_in(4) { "OR" } else { "AND" })
    }
}
