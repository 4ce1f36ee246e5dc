//! Owns how statements are written: a grammar of what SQLite's documentation offers, drawn from at
//! random over the live schema.
//!
//! # Algorithm
//! 1. A [`Draft`] is one statement being written. Each production of the grammar appends to its
//!    text, draws which of its forms it takes, and notes the form's name, so that a test can count
//!    that each is reached and accepted.
//! 2. What is written is a [`Template`]: parameters have a domain and no value yet. Values are
//!    drawn when it becomes a [`Step`], so that one text is used again with others.
//! 3. Names are drawn from few, and tables are small, so that statements meet each other.
//!
//! # Not here
//! Which client runs a statement, and when: [`super::source`].

mod changes;
mod definitions;
mod expressions;
mod failures;
mod queries;
mod random;
mod reports;
mod tables;
mod values;
mod virtual_tables;

#[cfg(test)]
mod tests;

use fastrand::Rng;

use super::record::{How, Judged, Parameters, RandomValue, Step};
use super::schema::{Column, Kind, Schema, Table};
pub(super) use values::Domain;

/// The deepest that expressions nest.
const DEPTH: u32 = 3;

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
    /// The productions that wrote it.
    #[cfg(test)]
    pub(super) forms: Vec<&'static str>,
}

/// Something with columns that an expression may name.
#[derive(Clone, Debug)]
struct Source {
    alias: String,
    columns: Vec<Column>,
}

/// A statement that is being written.
struct Draft<'d> {
    rng: &'d mut Rng,
    schema: &'d Schema,
    sql: String,
    domains: Vec<Domain>,
    style: Style,
    /// What the expressions being written may name.
    scope: Vec<Source>,
    depth: u32,
    how: How,
    judged: Judged,
    random: Option<Box<RandomValue>>,
    surplus: isize,
    forms: Vec<&'static str>,
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
    match topic {
        Topic::Query => draft.query_statement(),
        Topic::Choice => draft.choice(),
        Topic::Change => draft.change(),
        Topic::Definition => draft.definition(),
        Topic::Analyze => draft.analyze(),
        Topic::VirtualTable => draft.virtual_table(),
        Topic::Report => draft.report(),
        Topic::Failure => draft.failure(),
        Topic::Random => draft.random(),
    }
    draft.finish()
}

/// Writes a change of how the values of a table are distributed.
pub(super) fn turn(rng: &mut Rng, schema: &Schema) -> Template {
    let mut draft = Draft::new(rng, schema, Style::Numbered);
    match draft.stored() {
        Some(table) => draft.turn(table),
        None => draft.create_table(),
    }
    draft.finish()
}

/// Several statements as one text without parameters.
pub(super) fn batch(rng: &mut Rng, schema: &Schema, topics: &[Topic]) -> Template {
    let mut whole = String::new();
    for topic in topics {
        let mut draft = Draft::new(rng, schema, Style::Literal);
        match topic {
            Topic::Definition => draft.definition(),
            Topic::Analyze => draft.analyze(),
            Topic::Failure => draft.failure(),
            Topic::Query => draft.query_statement(),
            _ => draft.change(),
        }
        if draft.judged == Judged::Whole && draft.domains.is_empty() && draft.surplus == 0 {
            whole.push_str(if whole.is_empty() { "" } else { ";\n" });
            whole.push_str(&draft.sql);
        }
    }
    let draft = Draft::new(rng, schema, Style::Literal);
    Template { sql: whole, how: How::Batch, ..draft.finish() }
}

/// The table that every history begins with; `wide` ones are made for choices of a plan.
pub(super) fn first_tables(rng: &mut Rng, is_wide: bool) -> Vec<Template> {
    tables::first_tables(rng, is_wide)
}

impl Template {
    /// The statement with values.
    pub(super) fn step(&self, rng: &mut Rng, marks: &mut u64) -> Step {
        let count = self.domains.len().saturating_add_signed(self.surplus);
        let mut values: Vec<_> = self.domains.iter().map(|it| it.draw(rng, marks)).collect();
        values.resize(count, super::record::Datum::Integer(1));
        let parameters = match self.style {
            Style::Named(sigil) => {
                let name = |at| format!("{sigil}p{at}");
                Parameters::Named(
                    values.into_iter().enumerate().map(|(at, it)| (name(at + 1), it)).collect(),
                )
            }
            _ => Parameters::Positional(values),
        };
        Step {
            sql: self.sql.clone(),
            parameters,
            how: self.how,
            is_handled: true,
            judged: self.judged,
            random: self.random.clone(),
            given: None,
        }
    }
}

impl<'d> Draft<'d> {
    fn new(rng: &'d mut Rng, schema: &'d Schema, style: Style) -> Draft<'d> {
        Draft {
            rng,
            schema,
            sql: String::with_capacity(128),
            domains: Vec::new(),
            style,
            scope: Vec::new(),
            depth: 0,
            how: How::Execute,
            judged: Judged::Whole,
            random: None,
            surplus: 0,
            forms: Vec::new(),
        }
    }

    fn finish(self) -> Template {
        Template {
            sql: self.sql,
            domains: self.domains,
            style: self.style,
            how: self.how,
            judged: self.judged,
            random: self.random,
            surplus: self.surplus,
            #[cfg(test)]
            forms: self.forms,
        }
    }

    fn put(&mut self, text: &str) {
        self.sql.push_str(text);
    }

    /// Appends `text`, which is a form of the grammar by that name.
    fn put_form(&mut self, text: &'static str) {
        self.form(text);
        self.sql.push_str(text);
    }

    fn form(&mut self, name: &'static str) {
        if cfg!(test) {
            self.forms.push(name);
        }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.usize(..list.len())]
    }

    /// Appends one of the texts, which are forms.
    fn put_one(&mut self, list: &[&'static str]) {
        let text = self.pick(list);
        self.put_form(text);
    }

    /// Calls `write` so many times, with commas in between.
    fn listed(&mut self, count: usize, mut write: impl FnMut(&mut Self)) {
        for number in 0..count {
            self.put(if number == 0 { "" } else { ", " });
            write(self);
        }
    }

    /// A parameter, or a value where there can be none.
    fn value(&mut self, domain: Domain) {
        if self.style == Style::Literal || self.rng.u8(..4) == 0 {
            let value = domain.draw(self.rng, &mut 0);
            values::literal(&mut self.sql, &value);
            return;
        }
        if matches!(self.style, Style::Numbered | Style::Named(_)) && self.rng.u8(..8) == 0 {
            // The same parameter twice.
            if let Some(at) = self.domains.iter().position(|it| *it == domain) {
                return self.parameter(at + 1);
            }
        }
        self.domains.push(domain);
        let number = self.domains.len();
        if self.style == Style::Bare {
            self.sql.push('?');
        } else {
            self.parameter(number);
        }
    }

    fn parameter(&mut self, number: usize) {
        use std::fmt::Write as _;
        let written = match self.style {
            Style::Named(sigil) => write!(self.sql, "{sigil}p{number}"),
            _ => write!(self.sql, "?{number}"),
        };
        written.expect("a string takes everything");
    }

    /// Writes with values in place of parameters, as the schema wants it.
    fn literally(&mut self, write: impl FnOnce(&mut Self)) {
        let style = std::mem::replace(&mut self.style, Style::Literal);
        write(self);
        self.style = style;
    }

    /// Writes with nothing else in scope than `scope`.
    fn scoped(&mut self, scope: Vec<Source>, write: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.scope, scope);
        write(self);
        self.scope = outer;
    }

    /// A table with rows of its own, if there is one.
    fn stored(&mut self) -> Option<&'d Table> {
        let tables: Vec<_> = self.schema.tables.iter().filter(|table| table.is_stored()).collect();
        if tables.is_empty() { None } else { Some(self.pick(&tables)) }
    }

    /// A table or view that can be queried.
    fn readable(&mut self) -> Option<&'d Table> {
        let is_readable = |table: &&Table| {
            matches!(table.kind, Kind::Rows | Kind::Keyed | Kind::View) && !table.columns.is_empty()
        };
        let tables: Vec<_> = self.schema.tables.iter().filter(is_readable).collect();
        if tables.is_empty() { None } else { Some(self.pick(&tables)) }
    }

    /// Some name like those that objects of this kind have, whether it exists or not.
    fn name(&mut self, kind: char, most: u32) -> String {
        format!("{kind}{}", self.rng.u32(1..=most))
    }

    fn query_returns_rows(&mut self) {
        self.how = match self.rng.u8(..10) {
            0 => How::Row,
            1 => How::One,
            2 => How::Part(self.rng.usize(1..4)),
            3..6 => How::Cached,
            _ => How::All,
        };
    }

    /// As [`Draft::query_returns_rows`], of a change: an interactive transaction is over when its
    /// rows could not be taken.
    fn change_returns_rows(&mut self) {
        self.query_returns_rows();
        self.how = match self.how {
            How::One => How::Row,
            How::Part(_) => How::All,
            how => how,
        };
    }
}

/// The source of a table under its own name.
fn source_of(table: &Table) -> Source {
    Source { alias: table.name.clone(), columns: table.columns.clone() }
}
