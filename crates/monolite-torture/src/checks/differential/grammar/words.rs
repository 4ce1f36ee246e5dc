//! Owns the words of the grammar that are no rules: tables, columns and values of the live schema,
//! and how a statement is run and judged.

use super::super::excuses::REFUSED;
use super::super::record::{How, Judged};
use super::super::schema::{Column, Index, Kind, Table};
use super::values::Domain;
use super::{Draft, Source, Style, W1, source_of};
use crate::checks::grammar::{Pen, Writer};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const ALIASES: [&str; 6] = ["q0", "q1", "q2", "q3", "q4", "q5"];
const SIDES: [&str; 3] = ["s0", "s1", "s2"];

/// The most there are at a time, so that statements meet in the same ones.
const MAX_TABLES: usize = 5;
const MAX_INDEXES: usize = 8;
const MAX_TRIGGERS: usize = 3;
/// Of a table with more rows, few are asked for.
const FEW_ROWS: u64 = 8;

fn is_readable(table: &Table) -> bool {
    matches!(table.kind, Kind::Rows | Kind::Keyed | Kind::View) && !table.columns.is_empty()
}

fn is_counting_key(column: &Column) -> bool {
    column.is_key && column.type_name.contains("INT")
}

impl<'d> Writer<'d> for Draft<'d> {
    fn pen(&mut self) -> &mut Pen<'d> {
        &mut self.pen
    }

    fn word(&mut self, words: &'static str) {
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        match word {
            "v" => self.value(Domain::named(rest)),
            "own" if !rest.is_empty() => {
                self.domains.push(Domain::named(rest));
                self.parameter(self.domains.len());
            }
            "space" => self.pen.put(" "),
            "literal" => self.style = Style::Literal,
            "name" => self.draw_name(rest),
            "it" => self.pen.put(&self.name),
            "each" => self.each(rest),
            "rows" => self.know_rows(rest),
            "existing" => self.existing(rest),
            "bounded" => self.bounded(rest),
            "for_all" => {
                let all: Vec<_> = self.table.settable().iter().map(|_| rest).collect();
                self.pen.put(&all.join(", "));
            }
            "refused" => {
                let sql = self.pen.pick(REFUSED);
                self.pen.put(sql);
                self.judged = Judged::Refused;
            }
            "surplus" => {
                self.style = if self.style == Style::Bare { Style::Bare } else { Style::Numbered };
                self.surplus = if self.pen.one_in(2) { 1 } else { -1 };
            }
            "change" => self.change(),
            _ => {
                let is_known = self.word_of_manner(word, rest)
                    || self.word_of_table(word)
                    || self.word_of_column(word, rest);
                if !is_known {
                    // Which no form is accepted with, as the tests see.
                    self.pen.put(&format!("{{{words}}}"));
                }
            }
        }
    }
}

impl<'d> Draft<'d> {
    /// How it is run, and what of its answer is compared.
    fn word_of_manner(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "as_rows" => self.query_returns_rows(),
            // An interactive transaction is over when the rows of a change could not be taken.
            "as_changed" => {
                self.query_returns_rows();
                self.how = match self.how {
                    How::Part(_) => How::All,
                    how => how,
                };
            }
            "told" => self.how = if self.pen.one_in(2) { How::All } else { How::Cached },
            "any_call" => self.how = self.pen.pick(&[How::Execute, How::All, How::Row]),
            "execute" => self.how = How::Execute,
            "take_row" => self.how = How::Row,
            "last_rowid" => self.how = How::LastInsertRowid,
            "judged" => {
                self.judged = match rest {
                    "figures" => Judged::Figures,
                    "connection" => Judged::Connection,
                    _ => Judged::Success,
                }
            }
            _ => return false,
        }
        true
    }

    fn word_of_table(&mut self, word: &str) -> bool {
        match word {
            "t" => self.pen.put(&self.table.name),
            "stored" => _ = self.take(Table::is_stored),
            "read" => _ = self.take(is_readable),
            "other" => {
                let not = self.table.name.as_str();
                self.take(|table| table.is_stored() && table.name != not);
            }
            "triggered" => {
                if !(self.pen.one_in(2) && self.take(|table| table.kind == Kind::View)) {
                    self.take(Table::is_stored);
                }
            }
            "timing" if self.table.kind == Kind::View => self.pen.put("INSTEAD OF"),
            "timing" => self.rule("before_or_after"),
            "inner" => {
                self.outer.push((self.table, std::mem::take(&mut self.scope)));
                self.take(is_readable);
                self.scope[0].alias = self.alias();
            }
            "nothing" => self.outer.push((self.table, std::mem::take(&mut self.scope))),
            "outer" => (self.table, self.scope) = self.outer.pop().expect("something is around it"),
            "alias" => self.pen.put(self.alias()),
            "own" => self.scope = vec![source_of(self.table)],
            "excluded" => self.scope.push(Source { alias: "excluded", ..source_of(self.table) }),
            "w1" => self.scope = vec![source_of(&W1)],
            "also" => {
                let outer = (self.table, self.scope[0]);
                self.take(is_readable);
                self.pen.put(&format!("{} AS u", self.table.name));
                self.scope = vec![outer.1, Source { alias: "u", ..source_of(self.table) }];
                self.table = outer.0;
            }
            "sources" => self.draw_sources(),
            "from" => self.from(),
            "side" => self.side(),
            "hint" => self.hint(self.table),
            "cap" if self.table.rows > FEW_ROWS || self.pen.one_in(2) => {
                self.pen.put(" ");
                self.rule("limit");
            }
            "cap" => {}
            "if_new" => {
                let is_there = self.schema.table(&self.name).is_some()
                    || self.schema.indexes.iter().any(|index| index.name == self.name);
                if is_there || self.pen.one_in(6) {
                    self.pen.put("IF NOT EXISTS ");
                }
            }
            "parent" => self.parent(),
            "target" => self.put_target(),
            "index_name" => {
                let name = self.schema.indexes.first().map_or("i1", |index| &index.name);
                self.pen.put(&format!("\"{name}\""));
            }
            "mark_key" => self.pen.put(if self.table.name == "c1" { "id" } else { "rowid" }),
            _ => return false,
        }
        true
    }

    fn word_of_column(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "col" => self.column(),
            "leaf" if self.scope.is_empty() => self.value(Domain::Any),
            "leaf" => self.rule("plus_small"),
            "fit" => self.fit(),
            "suits" => self.suits(),
            "bare" => self.bare(0),
            "other_bare" => self.bare(1),
            "outer_col" => {
                let scope = self.outer.last().map(|(_, scope)| scope.clone()).unwrap_or_default();
                self.scoped(scope, Self::column);
            }
            "keep" => {
                self.column();
                self.kept.clone_from(&self.last.0);
            }
            "kept" => self.pen.put(&self.kept),
            "same" => self.pen.put(&self.last.0),
            "source" => self.pen.put(self.scope.first().map_or("t1", |source| source.alias)),
            "right_col" => self.qualified(self.side),
            "left_col" => {
                let left = self.pen.rng.usize(..self.side);
                self.qualified(left);
            }
            "shared_col" => {
                let [left, right] = [0, self.side].map(|at| self.scope[at].columns);
                let is_shared = |it: &&Column| right.iter().any(|other| other.name == it.name);
                self.pen.put(left.iter().find(is_shared).map_or("a", |column| &column.name));
            }
            "key" => self.pen.put(key_of(self.table)),
            "pair" => self.pen.put(&self.pair[usize::from(rest == "second")]),
            "setcol" => self.name_one(&self.table.settable(), "nothing"),
            "no_key" => {
                let all = self.table.columns.iter().filter(|column| !column.is_key);
                self.name_one(&all.collect::<Vec<_>>(), "nothing");
            }
            "few_columns" => {
                let few = self.table.columns.iter().map(|it| it.name.as_str()).take(3);
                self.pen.put(&few.collect::<Vec<_>>().join(", "));
            }
            "all_columns" => self.put_names(&self.table.settable()),
            "next" => {
                let name = NAMES[self.given % NAMES.len()];
                self.given += 1;
                self.pen.put(name);
                self.last = (name.into(), String::new(), false);
            }
            "unused" => {
                let is_free = |name: &&&str| !self.table.columns.iter().any(|it| it.name == **name);
                let free: Vec<&str> = NAMES.iter().filter(is_free).copied().collect();
                let none = free.is_empty() || self.pen.one_in(12);
                let name = self.pen.pick(if none { &NAMES[..] } else { &free });
                self.pen.put(name);
                self.last = (name.into(), String::new(), false);
            }
            "corners" => self.corners(),
            _ => return self.word_of_columns(word, rest),
        }
        true
    }

    fn word_of_columns(&mut self, word: &str, rest: &str) -> bool {
        match word {
            "into" => self.into(),
            "filled" => {
                let all = self.table.settable().into_iter();
                self.columns = all.filter(|it| !is_counting_key(it)).collect();
                self.put_names(&self.columns.clone());
            }
            "turned" => {
                let all = self.table.settable().into_iter();
                self.columns = all.filter(|column| !column.is_key).take(3).collect();
            }
            "spread" => self.spread(rest),
            "row_col" => {
                let Source { alias, columns } = self.pen.pick(&self.rows);
                let name = columns.get(self.pen.rng.usize(..columns.len().max(1)));
                self.pen.put(&format!("{alias}.{}", name.map_or("rowid", |it| &it.name)));
            }
            _ => return false,
        }
        true
    }

    fn alias(&self) -> &'static str {
        ALIASES[self.outer.len() % ALIASES.len()]
    }

    /// A name like those that objects of this kind have, whether it exists or not.
    fn draw_name(&mut self, kind_and_most: &str) {
        let (kind, most) = kind_and_most.split_at(1);
        let most = most.parse().expect("a number stands behind the kind");
        self.name = format!("{kind}{}", self.pen.rng.u32(1..=most));
        self.given = 0;
    }

    /// The rule of a new object, or of a drop where there are enough of them.
    fn bounded(&mut self, rule: &'static str) {
        let (count, most) = match rule {
            "table" => (self.schema.tables.iter().filter(|it| it.is_stored()).count(), MAX_TABLES),
            "index" => (self.schema.indexes.len(), MAX_INDEXES),
            _ => (self.schema.triggers.len(), MAX_TRIGGERS),
        };
        self.rule(if count >= most { "drop" } else { rule });
    }

    /// The name of something that is there, mostly. Some tables are never dropped.
    fn existing(&mut self, kind: &str) {
        let tables = self.schema.tables.iter();
        let names: Vec<&str> = match kind {
            "i" => self.schema.indexes.iter().map(|index| index.name.as_str()).collect(),
            "g" => self.schema.triggers.iter().map(String::as_str).collect(),
            "v" => tables.filter(|it| it.kind == Kind::View).map(|it| it.name.as_str()).collect(),
            _ => tables.filter(|it| it.is_stored()).map(|it| it.name.as_str()).collect(),
        };
        let names: Vec<&str> =
            names.into_iter().filter(|name| !name.starts_with("sqlite_")).collect();
        let are_few = kind == "t" && names.len() < 3;
        if names.is_empty() || are_few || self.pen.one_in(10) {
            return self.pen.put(&format!("IF EXISTS {kind}8"));
        }
        let name = self.pen.pick(&names);
        self.pen.put(name);
    }

    fn query_returns_rows(&mut self) {
        self.how = match self.pen.rng.u8(..10) {
            0 | 1 => How::Row,
            2 => How::Part(self.pen.rng.usize(1..4)),
            3..6 => How::Cached,
            _ => How::All,
        };
    }

    /// Names a column in scope; where there is none, a value.
    fn column(&mut self) {
        let named: Vec<Source<'d>> =
            self.scope.iter().filter(|source| !source.columns.is_empty()).copied().collect();
        if named.is_empty() {
            self.last = Default::default();
            return self.value(Domain::Small);
        }
        let Source { alias, columns } = self.pen.pick(&named);
        if self.scope.len() > 1 || self.pen.one_in(6) {
            self.pen.put(alias);
            self.pen.put(".");
        }
        self.name_one(&columns.iter().collect::<Vec<_>>(), "rowid");
    }

    /// A column of a source, without the source's name.
    fn bare(&mut self, source: usize) {
        let columns = self.scope.get(source).map_or(&[][..], |source| source.columns);
        self.name_one(&columns.iter().collect::<Vec<_>>(), "rowid");
    }

    fn qualified(&mut self, source: usize) {
        self.pen.put(self.scope[source].alias);
        self.pen.put(".");
        self.bare(source);
    }

    fn name_one(&mut self, columns: &[&Column], otherwise: &str) {
        if columns.is_empty() {
            self.last = (otherwise.into(), String::new(), false);
        } else {
            let column = self.pen.pick(columns);
            self.last = (column.name.clone(), column.type_name.clone(), column.is_key);
        }
        self.pen.put(&self.last.0);
    }

    fn put_names(&mut self, columns: &[&Column]) {
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        self.pen.put(&names.join(", "));
    }

    /// A value like those of the column that was named last.
    fn fit(&mut self) {
        let domain = if self.last.2 { Domain::Key } else { Domain::of(&self.last.1, self.pen.rng) };
        self.value(domain);
    }

    /// A value that the column takes which was named last.
    fn suits(&mut self) {
        let is_counting = self.last.2 && self.last.1.contains("INT");
        if is_counting && self.pen.one_in(8) {
            return self.pen.put("NULL");
        }
        let domain = if is_counting { Domain::Key } else { Domain::of(&self.last.1, self.pen.rng) };
        self.value(domain);
    }

    /// The rule for each of the columns that are listed.
    fn each(&mut self, rule: &str) {
        for (at, column) in self.columns.clone().into_iter().enumerate() {
            self.pen.put(if at == 0 { "" } else { ", " });
            self.last = (column.name.clone(), column.type_name.clone(), column.is_key);
            self.rule(&format!("{rule}_value"));
        }
    }

    /// Lists all columns, or some, or none, for the values of an `INSERT`.
    fn into(&mut self) {
        self.columns = self.table.settable();
        match self.pen.rng.u8(..4) {
            0 => return,
            1 if self.columns.len() > 1 => {
                self.pen.rng.shuffle(&mut self.columns);
                let some = self.pen.rng.usize(1..self.columns.len());
                self.columns.truncate(some);
            }
            2 if self.columns.len() > 1 => self.columns.retain(|it| !is_counting_key(it)),
            _ => {}
        }
        self.pen.put("(");
        self.put_names(&self.columns.clone());
        self.pen.put(") ");
    }

    /// One value for all, few values, or a value for each.
    fn spread(&mut self, number: &str) {
        let text = match self.pen.rng.u8(..6) {
            0 => "1".to_owned(),
            1 => number.to_owned(),
            2 => format!("-{number}"),
            3 => format!("{number} % 2"),
            4 => format!("{number} / 9"),
            _ => format!("{number} % 7"),
        };
        let is_text = ["TEXT", "CHAR"].iter().any(|part| self.last.1.contains(part));
        self.pen.put(&if is_text { format!("'k' || ({text})") } else { text });
    }

    /// The rows that a trigger of the table knows, by its event.
    fn know_rows(&mut self, event: &str) {
        let row = |alias| Source { alias, columns: &self.table.columns };
        self.rows = match event {
            "new" => vec![row("NEW")],
            "old" => vec![row("OLD")],
            _ => vec![row("NEW"), row("OLD")],
        };
    }

    /// Up to three sources, which are in scope.
    fn draw_sources(&mut self) {
        let tables: Vec<&Table> = self.schema.tables.iter().filter(|it| is_readable(it)).collect();
        let count = self.pen.pick(&[1, 1, 1, 2, 2, 2, 2, 3]);
        let mut draw = |alias| match tables.is_empty() {
            true => source_of(&super::NO_TABLE),
            false => Source { alias, ..source_of(self.pen.pick(&tables)) },
        };
        self.scope = SIDES[..count].iter().map(|alias| draw(alias)).collect();
    }

    fn from(&mut self) {
        self.pen.put(" FROM ");
        self.side = 0;
        self.side();
        for side in 1..self.scope.len() {
            self.side = side;
            self.pen.put(" ");
            self.rule("joined");
        }
    }

    /// The source whose turn it is: a table, or now and then a query of it.
    fn side(&mut self) {
        let Source { alias, columns } = self.scope[self.side];
        let is_it = |table: &&Table| std::ptr::eq(table.columns.as_slice(), columns);
        let table = self.schema.tables.iter().find(is_it).unwrap_or(&super::NO_TABLE);
        if self.pen.one_in(6) {
            self.pen.put(&format!("(SELECT * FROM {} WHERE ", table.name));
            self.scoped(vec![source_of(table)], |draft| draft.rule("cmp"));
            self.pen.put(&format!(") AS {alias}"));
        } else {
            self.pen.put(&format!("{} AS {alias}", table.name));
            self.hint(table);
        }
    }

    /// `INDEXED BY`, `NOT INDEXED`, or mostly nothing.
    fn hint(&mut self, table: &Table) {
        if !table.is_stored() || !self.pen.one_in(12) {
            return;
        }
        let of_it = self.schema.indexes.iter().filter(|index| index.table == table.name);
        let indexes: Vec<&Index> = of_it.collect();
        if self.pen.one_in(3) {
            self.pen.put(" NOT INDEXED");
        } else if !indexes.is_empty() {
            let name = &self.pen.pick(&indexes).name;
            self.pen.put(&format!(" INDEXED BY \"{name}\""));
        }
    }

    /// The table and the key that a foreign key is about.
    fn parent(&mut self) {
        let with_key = |table: &&Table| {
            table.kind == Kind::Rows && table.columns.iter().any(|column| column.is_key)
        };
        let parents: Vec<&Table> = self.schema.tables.iter().filter(with_key).collect();
        let parent = if parents.is_empty() { &super::NO_TABLE } else { self.pen.pick(&parents) };
        self.pen.put(&format!("{}({})", parent.name, key_of(parent)));
    }

    /// The coordinates of a box. The upper one is less now and then, which is refused.
    fn corners(&mut self) {
        for (at, column) in self.table.columns.iter().skip(1).enumerate() {
            self.pen.put(", ");
            if column.name == "note" {
                self.value(Domain::Text);
                continue;
            }
            let upper = if at % 2 == 1 && !self.pen.one_in(8) { 20 } else { 0 };
            let number = self.pen.rng.i32(0..20) + upper;
            self.pen.put(&number.to_string());
        }
    }

    /// A query, or a change, that takes the first row which the plan comes to: of a table with two
    /// columns that begin indexes.
    pub(super) fn choice(&mut self) {
        let mut found = Vec::new();
        for table in self.schema.tables.iter().filter(|table| table.is_stored()) {
            let indexes = self.schema.indexes.iter();
            let of_it = indexes.filter(|index| index.table == table.name && !index.is_partial);
            let mut first: Vec<&String> = of_it.filter_map(|index| index.columns.first()).collect();
            first.dedup();
            if first.len() > 1 {
                found.push((table, first));
            }
        }
        if found.is_empty() {
            return self.rule("queries");
        }
        let (table, mut columns) = found.swap_remove(self.pen.rng.usize(..found.len()));
        self.pen.rng.shuffle(&mut columns);
        self.pair = [columns[0].clone(), columns[1].clone()];
        (self.table, self.scope) = (table, vec![source_of(table)]);
        self.rule("choice");
    }

    /// What an upsert is about: the columns of a unique index, the key, or whatever there is.
    fn put_target(&mut self) {
        let is_unique =
            |index: &&Index| index.table == self.table.name && index.is_unique && !index.is_partial;
        let unique: Vec<&Index> = self.schema.indexes.iter().filter(is_unique).collect();
        let unique: Vec<_> = unique.into_iter().filter(|it| !it.columns.is_empty()).collect();
        if !unique.is_empty() && self.pen.one_in(2) {
            let columns = self.pen.pick(&unique).columns.join(", ");
            self.pen.put(&format!("({columns}) "));
        } else if let Some(key) = self.table.columns.iter().find(|column| column.is_key) {
            self.pen.put(&format!("({}) ", key.name));
        }
    }
}

/// What a row of it is found by.
fn key_of(table: &Table) -> &str {
    table.columns.iter().find(|column| column.is_key).map_or("rowid", |column| &column.name)
}
