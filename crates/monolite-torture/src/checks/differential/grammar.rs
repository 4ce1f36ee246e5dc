//! Owns how statements are written: a grammar of what SQLite's documentation offers (`sql.txt`),
//! drawn from at random over the live schema.
//!
//! # Algorithm
//! 1. A [`Draft`] is one statement being written: the text's words about tables, columns and values
//!    are made of the live schema ([`words`]).
//! 2. What is written is a [`Template`]: parameters have a domain and no value yet. Values are
//!    drawn when it becomes a [`Step`], so that one text is used again with others.
//! 3. Names are drawn from few, and tables are small, so that statements meet each other.
//!
//! # Not here
//! Which client runs a statement, and when: [`super::source`].

mod random;
mod values;
mod words;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use fastrand::Rng;
use monolite::rusqlite::types::Value;

use super::answer::write_value;
use super::record::{How, Judged, Parameters, RandomValue, Step};
use super::schema::{Column, Kind, Schema, Table};
use crate::checks::grammar::{Grammar, Pen};
pub(super) use values::Domain;

static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| Grammar::new(include_str!("grammar/sql.txt")));

/// The table of a statement for which there is none; and what `WITH w1` names.
static NO_TABLE: LazyLock<Table> = LazyLock::new(|| made_up("t1", &["id", "a", "b"]));
static W1: LazyLock<Table> = LazyLock::new(|| made_up("w1", &["p", "q"]));

/// The deepest that expressions nest.
const DEPTH: u32 = 3;

/// Above so many rows a table is more often emptied than filled.
const MANY_ROWS: u64 = 50;

/// A kind of statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Query,
    /// A query or a change whose plan decides the answer.
    Choice,
    Change,
    Definition,
    Analyze,
    /// Full-text search and R-trees.
    VirtualTable,
    /// Pragmas, plans, figures.
    Report,
    /// What must fail.
    Failure,
    /// Rowids and values that are left to a random number, and times.
    Random,
}

impl Topic {
    pub(super) const ALL: [Topic; 9] = [
        Topic::Query,
        Topic::Choice,
        Topic::Change,
        Topic::Definition,
        Topic::Analyze,
        Topic::VirtualTable,
        Topic::Report,
        Topic::Failure,
        Topic::Random,
    ];
}

/// How parameters are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// As values: where SQLite allows none, and in batches.
    Literal,
    /// `?`
    Bare,
    /// `?3`
    Numbered,
    /// `:p3`, `@p3` or `$p3`
    Named(char),
}

/// A statement whose parameters have no values yet.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) sql: String,
    domains: Vec<Domain>,
    style: Style,
    pub(super) how: How,
    judged: Judged,
    random: Option<Box<RandomValue>>,
    /// Changes how many of the parameters are bound.
    surplus: isize,
    /// The forms of the grammar in it.
    #[cfg(test)]
    pub(super) forms: Vec<&'static str>,
}

/// Something with columns that an expression may name.
#[derive(Clone, Copy)]
struct Source<'d> {
    alias: &'d str,
    columns: &'d [Column],
}

/// A statement that is being written.
struct Draft<'d> {
    pen: Pen<'d>,
    schema: &'d Schema,
    domains: Vec<Domain>,
    style: Style,
    how: How,
    judged: Judged,
    random: Option<Box<RandomValue>>,
    surplus: isize,
    /// What the statement, or the part of it being written, is about.
    table: &'d Table,
    /// What the expressions being written may name.
    scope: Vec<Source<'d>>,
    /// The same of what is around the part being written.
    outer: Vec<(&'d Table, Vec<Source<'d>>)>,
    /// The rows that a trigger knows.
    rows: Vec<Source<'d>>,
    /// The source of a join being written.
    side: usize,
    /// Whose values are listed.
    columns: Vec<&'d Column>,
    /// The column that was named last, its type, and whether it is a key.
    last: (String, String, bool),
    /// A column that is named again.
    kept: String,
    /// The new object.
    name: String,
    /// Names that were given to new columns.
    given: usize,
    pair: [String; 2],
}

/// Writes a statement.
pub(super) fn statement(rng: &mut Rng, schema: &Schema, topic: Topic) -> Template {
    let style = match rng.u8(..8) {
        0 => Style::Bare,
        1 => Style::Named([':', '@', '$'][rng.usize(..3)]),
        2 => Style::Literal,
        _ => Style::Numbered,
    };
    let mut draft = Draft::new(rng, schema, style);
    draft.topic(topic);
    draft.finish()
}

/// Writes a change of how the values of a table are distributed.
pub(super) fn turn(rng: &mut Rng, schema: &Schema) -> Template {
    let mut draft = Draft::new(rng, schema, Style::Numbered);
    draft.take(|table| table.kind == Kind::Rows);
    draft.rule("turn");
    draft.finish()
}

/// Several statements as one text without parameters.
pub(super) fn batch(rng: &mut Rng, schema: &Schema, topics: &[Topic]) -> Template {
    let mut whole = String::new();
    for topic in topics {
        let mut draft = Draft::new(rng, schema, Style::Literal);
        match topic {
            Topic::Definition | Topic::Analyze | Topic::Failure | Topic::Query => {
                draft.topic(*topic)
            }
            _ => draft.topic(Topic::Change),
        }
        let one = draft.finish();
        if one.judged == Judged::Whole && one.domains.is_empty() && one.surplus == 0 {
            whole.push_str(if whole.is_empty() { "" } else { ";\n" });
            whole.push_str(&one.sql);
        }
    }
    Template { sql: whole, how: How::Batch, ..Draft::new(rng, schema, Style::Literal).finish() }
}

/// What every history begins with: ordinary tables, those that are left to a random number, and
/// some rows. Wide tables are made for choices of a plan.
pub(super) fn first_tables(rng: &mut Rng, is_wide: bool) -> Vec<Template> {
    let tail = if rng.u8(..6) == 0 { " STRICT" } else { "" };
    let mut sqls: Vec<String> = if is_wide {
        let rows = rng.u32(20..32);
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <";
        let columns = "id INTEGER PRIMARY KEY, a INT, b INT, c INT, d INT, e TEXT";
        vec![
            format!("CREATE TABLE t1({columns}){tail}"),
            "CREATE INDEX i1 ON t1(a, c)".into(),
            "CREATE INDEX i2 ON t1(b, d)".into(),
            format!("INSERT INTO t1(a, b, c, d) {numbers} {rows}) SELECT 1, i % 20, i, -i FROM n"),
            "ANALYZE".into(),
        ]
    } else {
        vec![
            format!("CREATE TABLE t1(id INTEGER PRIMARY KEY, a INT, b TEXT, c INT){tail}"),
            "INSERT INTO t1 VALUES (1, 1, 'a', 0), (2, 2, 'b', 0), (3, 3, NULL, 5)".into(),
        ]
    };
    let second = ["CREATE TABLE t2(a, b, c)", "CREATE TABLE t2(a INT, b INT, c TEXT)"];
    sqls.push(second[rng.usize(..2)].into());
    sqls.push("INSERT INTO t2 VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')".into());
    if rng.u8(..3) == 0 {
        sqls.push("CREATE TABLE c1(id INTEGER PRIMARY KEY, mark TEXT UNIQUE, v)".into());
        sqls.push("CREATE TABLE c2(mark TEXT UNIQUE, v)".into());
        sqls.push("CREATE TABLE c3(mark TEXT UNIQUE, v, d DEFAULT CURRENT_TIMESTAMP)".into());
    }
    let schema = Schema::default();
    let mut plain = |sql| Template { sql, ..Draft::new(rng, &schema, Style::Literal).finish() };
    sqls.into_iter().map(&mut plain).collect()
}

impl Template {
    /// The statement with values.
    pub(super) fn step(&self, rng: &mut Rng, marks: &mut u64) -> Step {
        let count = self.domains.len().saturating_add_signed(self.surplus);
        let mut values: Vec<_> = self.domains.iter().map(|it| it.draw(rng, marks)).collect();
        values.resize(count, Value::Integer(1));
        let parameters = match self.style {
            Style::Named(sigil) => {
                let name = |at| format!("{sigil}p{at}");
                let named = values.into_iter().enumerate().map(|(at, it)| (name(at + 1), it));
                Parameters::Named(named.collect())
            }
            _ => Parameters::Positional(values),
        };
        let (judged, random) = (self.judged, self.random.clone());
        Step { parameters, judged, random, ..Step::plain(self.sql.clone(), self.how) }
    }
}

impl<'d> Draft<'d> {
    fn new(rng: &'d mut Rng, schema: &'d Schema, style: Style) -> Draft<'d> {
        Draft {
            pen: Pen::new(rng, DEPTH),
            schema,
            domains: Vec::new(),
            style,
            how: How::Execute,
            judged: Judged::Whole,
            random: None,
            surplus: 0,
            table: &NO_TABLE,
            scope: Vec::new(),
            outer: Vec::new(),
            rows: Vec::new(),
            side: 0,
            columns: Vec::new(),
            last: Default::default(),
            kept: String::new(),
            name: String::new(),
            given: 0,
            pair: Default::default(),
        }
    }

    fn finish(self) -> Template {
        Template {
            sql: self.pen.sql.trim_end().to_owned(),
            domains: self.domains,
            style: self.style,
            how: self.how,
            judged: self.judged,
            random: self.random,
            surplus: self.surplus,
            #[cfg(test)]
            forms: self.pen.forms,
        }
    }

    fn rule(&mut self, name: &str) {
        GRAMMAR.write(self, name);
    }

    fn topic(&mut self, topic: Topic) {
        match topic {
            Topic::Query => self.rule("queries"),
            Topic::Choice => self.choice(),
            Topic::Change => self.change(),
            Topic::Definition => self.rule("definitions"),
            Topic::Analyze => self.rule("analyze"),
            Topic::VirtualTable => self.virtual_table(),
            Topic::Report => self.rule("reports"),
            Topic::Failure => self.rule("failure"),
            Topic::Random => self.random(),
        }
    }

    /// A change of rows: of a table, or now and then of a view, which takes a trigger or fails.
    fn change(&mut self) {
        if !(self.pen.one_in(10) && self.take(|table| table.kind == Kind::View)) {
            self.take(Table::is_stored);
        }
        let is_full = self.table.rows > MANY_ROWS && self.pen.one_in(2);
        self.rule(if is_full { "thin_out" } else { "change" });
    }

    fn virtual_table(&mut self) {
        let is_virtual = |table: &Table| matches!(table.kind, Kind::Text | Kind::Boxes);
        let rule = match self.take(is_virtual) {
            true if self.pen.one_in(40) => "drop_virtual",
            true if !self.pen.one_in(20) => match self.table.kind {
                Kind::Text => "search",
                _ => "boxes",
            },
            _ => "create_virtual",
        };
        self.rule(rule);
    }

    /// The statement is about one of these tables from here on, if there is one.
    fn take(&mut self, is_it: impl Fn(&Table) -> bool) -> bool {
        let tables: Vec<&'d Table> = self.schema.tables.iter().filter(|it| is_it(it)).collect();
        self.table = if tables.is_empty() { &NO_TABLE } else { self.pen.pick(&tables) };
        self.scope = vec![source_of(self.table)];
        !tables.is_empty()
    }

    /// A parameter, or a value where there can be none.
    fn value(&mut self, domain: Domain) {
        if self.style == Style::Literal || self.pen.one_in(4) {
            let value = domain.draw(self.pen.rng, &mut 0);
            return write_value(&mut self.pen.sql, (&value).into());
        }
        if matches!(self.style, Style::Numbered | Style::Named(_)) && self.pen.one_in(8) {
            // The same parameter twice.
            if let Some(at) = self.domains.iter().position(|it| *it == domain) {
                return self.parameter(at + 1);
            }
        }
        self.domains.push(domain);
        self.parameter(self.domains.len());
    }

    fn parameter(&mut self, number: usize) {
        let written = match self.style {
            Style::Bare => "?".into(),
            Style::Named(sigil) => format!("{sigil}p{number}"),
            _ => format!("?{number}"),
        };
        self.pen.put(&written);
    }

    /// Writes with nothing else in scope than `scope`.
    fn scoped(&mut self, scope: Vec<Source<'d>>, write: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.scope, scope);
        write(self);
        self.scope = outer;
    }
}

/// The source of a table under its own name.
fn source_of(table: &Table) -> Source<'_> {
    Source { alias: &table.name, columns: &table.columns }
}

fn made_up(name: &str, columns: &[&str]) -> Table {
    let column = |name: &&str| Column {
        name: (*name).into(),
        type_name: String::new(),
        is_key: false,
        is_generated: false,
    };
    let columns = columns.iter().map(column).collect();
    Table { name: name.into(), kind: Kind::Rows, columns, rows: 0 }
}
