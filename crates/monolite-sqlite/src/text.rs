//! Owns the weighing of a statement's text before it is prepared: by how many names SQLite will
//! look for, which takes long where tables are wide and many.
//!
//! # Why
//! SQLite compares a name that is not qualified with each column of each table of the `SELECT`s
//! around it, 64 tables of 500 columns at most in each, one after another. It looks at no clock
//! meanwhile, does not stop at an error before the end of a list, and allocates nothing. A
//! `NATURAL` join does that with each column of the table on its right. Measured with SQLite 3.54.1
//! (x86-64, 2.1 GHz): 21 µs for a name in one such `SELECT`, 9,000 names within eleven of them 2 s,
//! 30 times 63 `NATURAL` joins 20 s.
//!
//! # Algorithm
//! Each word that may be a name counts as often as there are `SELECT`s around it, and one that may
//! be that of a view or of a common table expression as all the names in there, too: SQLite looks
//! for those again wherever it puts the one in the place of its name. A common table expression may
//! be used before it is defined, so the text is walked over until they weigh what they weighed
//! before. What a trigger has in its own text is weighed there. Each statement of several is
//! weighed alone, and the heaviest counts.

mod alike;
mod copies;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use crate::verb::{has_word, without_blanks};
pub(crate) use alike::{MAX_ALIKE, alike};
pub(crate) use copies::copies;
pub(crate) use scan::{Scan, Token};

/// The most names in a statement of untrusted SQL: 0.25 s at worst.
pub(crate) const MAX_NAMES: usize = 12_000;

/// As how many names a `NATURAL` join counts: one for each column, and five times as much, because
/// views that have such joins are put in the place of their names without much being allocated.
pub(crate) const NAMES_OF_NATURAL: usize = 2_500;

/// As how many names a `*` of `RETURNING` counts, which SQLite goes through to the end whatever was
/// refused meanwhile: one for each column.
const NAMES_OF_STAR: usize = 500;

/// How often a text is walked over at most: common table expressions that are not settled then use
/// each other in a circle, or one before its definition that does the same, and so on.
const WALKS: usize = 8;

/// The longest text that is walked over so often; a longer one [`LONG_WALKS`] times.
const LONG: usize = 64 << 10;

/// See [`LONG`].
const LONG_WALKS: usize = 3;

/// How deep common table expressions may be defined in each other. SQLite does not take so many.
const MAX_BODIES: usize = 100;

/// No shorter text can have so many names that it matters: at most 9 `NATURAL` joins.
const SHORT: usize = 128;

/// Frequent words that can be no names. SQLite takes others of its words for names where nothing
/// else fits (`by`, `desc`, `end`, `left`, `like`, `with`), so those count.
const KEYWORDS: &[&str] = &[
    "and", "as", "between", "case", "delete", "distinct", "else", "exists", "from", "group",
    "having", "in", "insert", "into", "is", "join", "limit", "not", "null", "on", "or", "order",
    "select", "set", "then", "union", "update", "using", "values", "when", "where",
];

/// How many names, weighed as those of a statement, there are in what a text may name: the views of
/// a schema, or common table expressions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Views {
    /// By the name in lower case.
    by_name: HashMap<Box<str>, usize>,
    /// The most in one whose name has a quote in it, which may be anything in quotes.
    odd: Option<usize>,
}

impl Views {
    /// Those of the views with these names, in lower case, and definitions.
    pub(crate) fn of(definitions: &HashMap<Box<str>, String>) -> Views {
        let mut views = Views::default();
        let mut uses: HashMap<&str, HashSet<&str>> = HashMap::new();
        let mut used_by: HashMap<&str, Vec<&str>> = HashMap::new();
        for (name, sql) in definitions {
            let others: HashSet<&str> = Scan::of(sql)
                .filter_map(Token::name)
                .filter_map(|other| definitions.get_key_value(&*other.to_ascii_lowercase()))
                .map(|(other, _)| &**other)
                .filter(|other| *other != &**name)
                .collect();
            others.iter().for_each(|other| used_by.entry(other).or_default().push(name));
            uses.insert(name, others);
        }
        // Each behind those that it uses. What uses itself, through others, cannot be used.
        let is_free = |name: &&str| uses[name].is_empty();
        let mut ready: Vec<&str> = uses.keys().copied().filter(is_free).collect();
        while let Some(name) = ready.pop() {
            let weight = names(&definitions[name], &views);
            views.insert(name, weight);
            for other in used_by.remove(name).unwrap_or_default() {
                let left = uses.get_mut(other).map_or(0, |left| {
                    left.remove(name);
                    left.len()
                });
                if left == 0 {
                    ready.push(other);
                }
            }
        }
        views
    }

    fn insert(&mut self, name: &str, names: usize) {
        let name = name.to_ascii_lowercase();
        if is_odd(&name) {
            self.odd = self.odd.max(Some(names));
        }
        let known = self.by_name.entry(name.into()).or_insert(names);
        *known = names.max(*known);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names in what `token` may name, if there is such a thing.
    fn get(&self, token: Token<'_>) -> Option<usize> {
        let name = token.name().filter(|_| !self.is_empty())?;
        let odd = self.odd.filter(|_| !matches!(token, Token::Word(_)));
        self.by_name.get(&*name.to_ascii_lowercase()).copied().max(odd)
    }

    /// Whether `sql` may name one of them.
    pub(crate) fn may_be_in(&self, sql: &str) -> bool {
        !self.is_empty() && Scan::of(sql).any(|token| self.get(token).is_some())
    }

    #[cfg(test)]
    pub(crate) fn named(names: &[(&str, usize)]) -> Views {
        let mut views = Views::default();
        names.iter().for_each(|(name, weight)| views.insert(name, *weight));
        views
    }
}

/// How many names the statement of `sql` has that has most, each counted once for each `SELECT`
/// around it, with those of `views` that it may name.
pub(crate) fn names(sql: &str, views: &Views) -> usize {
    if sql.len() <= SHORT && views.is_empty() {
        return 0;
    }
    let mut common = Views::default();
    for _ in 0..if sql.len() > LONG { LONG_WALKS } else { WALKS } {
        let walked = Walk::over(sql, views, &common);
        if walked.defined == common {
            return walked.most;
        }
        common = walked.defined;
    }
    usize::MAX
}

/// As [`names`], of a text of whatever length whose statements all count.
pub(crate) fn all_names(sql: &str, views: &Views) -> usize {
    let statements = sql.bytes().filter(|byte| *byte == b';').count() + 1;
    let walked = Walk::over(sql, views, &Views::default());
    walked.most.saturating_mul(statements)
}

/// What a parenthesis that is open is for.
#[derive(Clone, Copy)]
enum Inside<'s> {
    /// It may list the columns of what has this name.
    List(&'s str),
    /// What a common table expression of this name is, behind so many names.
    Body(&'s str, usize),
    Other,
}

/// What the last tokens may be the beginning of.
#[derive(Clone, Copy)]
enum Beginning<'s> {
    Nothing,
    /// A definition: its name was said, and maybe its columns; and whether that was where common
    /// table expressions are defined.
    Named(&'s str, bool),
    /// What it is follows.
    As(&'s str),
}

/// A walk over the tokens of a text.
struct Walk<'s> {
    /// The parentheses that are open, and how many `SELECT`s there were before each.
    open: Vec<(Inside<'s>, usize)>,
    /// The common table expressions that are being defined.
    bodies: Vec<&'s str>,
    selects: usize,
    names: usize,
    most: usize,
    beginning: Beginning<'s>,
    /// Whether a common table expression may begin here, or may behind a comma.
    may_define: bool,
    has_defined: bool,
    /// Whether there was a `RETURNING`.
    returns: bool,
    /// The names in each common table expression, as this walk has found them.
    defined: Views,
}

impl<'s> Walk<'s> {
    fn over(sql: &'s str, views: &Views, common: &Views) -> Walk<'s> {
        let mut walk = Walk {
            open: Vec::new(),
            bodies: Vec::new(),
            selects: 0,
            names: 0,
            most: 0,
            beginning: Beginning::Nothing,
            may_define: false,
            has_defined: false,
            returns: false,
            defined: Views::default(),
        };
        let (mut before, mut is_using) = (Token::Other, false);
        for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
            let is_qualified = before == Token::Dot;
            let more = match token {
                Token::Word(word) if word.eq_ignore_ascii_case("natural") => NAMES_OF_NATURAL,
                Token::Word(word) if is_qualified || is_keyword(word) => 0,
                Token::Word(_) => 1,
                Token::Quoted(_) => usize::from(!is_qualified),
                Token::Text(_) => usize::from(is_using),
                Token::Star if walk.returns && lists(before) => NAMES_OF_STAR,
                _ => 0,
            };
            is_using = match token {
                Token::Open => {
                    matches!(before, Token::Word(it) if it.eq_ignore_ascii_case("using"))
                }
                Token::Close => false,
                _ => is_using,
            };
            // The name of a common table expression that is defined here is no use of it.
            let is_definition = walk.may_define;
            walk.take(token);
            let inner = if is_definition { 0 } else { walk.inner(token, views, common) };
            let more = inner.saturating_add(more).saturating_mul(walk.selects.max(1));
            walk.names = walk.names.saturating_add(more);
            if walk.bodies.len() > MAX_BODIES {
                walk.most = usize::MAX;
                return walk;
            }
            before = token;
        }
        walk.most = walk.most.max(walk.names);
        walk
    }

    /// The names in what `token` may be the name of. In its own definition a common table
    /// expression is its own rows.
    fn inner(&self, token: Token<'_>, views: &Views, common: &Views) -> usize {
        let common = self.defined.get(token).max(common.get(token)).filter(|_| {
            let name = token.name().unwrap_or_default();
            !self.bodies.iter().any(|body| body.eq_ignore_ascii_case(name))
        });
        common.max(views.get(token)).unwrap_or(0)
    }

    /// Takes note of where the walk is behind `token`.
    fn take(&mut self, token: Token<'s>) {
        let beginning = std::mem::replace(&mut self.beginning, Beginning::Nothing);
        let may_define = std::mem::take(&mut self.may_define);
        let has_defined = std::mem::take(&mut self.has_defined);
        match token {
            Token::Word(word) if word.eq_ignore_ascii_case("select") => {
                // Of a compound each has its own.
                self.selects = self.open.last().map_or(0, |(_, selects)| *selects) + 1;
            }
            Token::Word(word) if word.eq_ignore_ascii_case("as") => {
                if let Beginning::Named(name, true) = beginning {
                    self.beginning = Beginning::As(name);
                }
            }
            Token::Word(word)
                if matches!(beginning, Beginning::As(_))
                    && is_one_of(&["not", "materialized"], word) =>
            {
                self.beginning = beginning;
            }
            Token::Word(word) if is_one_of(&["with", "recursive"], word) => self.may_define = true,
            Token::Word(word) if is_keyword(word) => {}
            Token::Word(name) | Token::Quoted(name) | Token::Text(name) => {
                self.returns |= name.eq_ignore_ascii_case("returning");
                self.beginning = Beginning::Named(name, may_define);
            }
            Token::Open => {
                let inside = match beginning {
                    Beginning::Named(name, true) => Inside::List(name),
                    Beginning::As(name) => Inside::Body(name, self.names),
                    _ => Inside::Other,
                };
                if let Inside::Body(name, _) = inside {
                    self.bodies.push(name);
                }
                self.open.push((inside, self.selects));
            }
            Token::Close => self.close(),
            Token::Comma => self.may_define = has_defined,
            Token::Semicolon if self.open.is_empty() => {
                self.most = self.most.max(self.names);
                (self.names, self.selects, self.returns) = (0, 0, false);
            }
            _ => {}
        }
    }

    /// A parenthesis ends. What is in a common table expression is looked for where that is used.
    fn close(&mut self) {
        let (inside, selects) = self.open.pop().unwrap_or((Inside::Other, 0));
        self.selects = selects;
        match inside {
            Inside::List(name) => self.beginning = Beginning::Named(name, true),
            Inside::Body(name, before) => {
                self.bodies.pop();
                self.defined.insert(name, self.names - before);
                (self.names, self.has_defined) = (before, true);
            }
            Inside::Other => {}
        }
    }
}

/// How often `ALTER TABLE` can look at a name while it looks for one of those in the definition
/// `sql`: the product of all its names and those that it looks for, of which a qualified one counts
/// as two. Of a table that are those of its expressions, and not of its columns and keys; of a view
/// or a trigger also those of the `views` that it uses.
pub(crate) fn pairs_of_definition(sql: &str, is_table: bool, views: &Views) -> f64 {
    let (mut all, mut looked_for, mut depth, mut key) = (0.0, 0.0, 0_usize, None);
    let mut before = Token::Other;
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        match token {
            Token::Open => {
                let is_key = matches!(before, Token::Word(word)
                    if ["key", "unique"].iter().any(|it| word.eq_ignore_ascii_case(it)));
                if is_key && key.is_none() {
                    key = Some(depth);
                }
                depth += 1;
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                key = key.filter(|outer| *outer < depth);
            }
            Token::Word(word) if is_keyword(word) => {}
            Token::Word(_) | Token::Quoted(_) => {
                all += 1.0;
                let is_in_expression = depth > 1 && key.is_none();
                looked_for += if !is_table || is_in_expression { 1.0 } else { 0.0 };
                looked_for += views.get(token).map_or(0.0, |names| names as f64);
            }
            _ => {}
        }
        before = token;
    }
    all * looked_for
}

/// Whether `sql` has a `SELECT` within another one, or may have.
pub(crate) fn nests(sql: &str) -> bool {
    let words = &["select", "with", "values"];
    let is_select = |token: &Token<'_>| token.name().is_some_and(|it| is_one_of(words, it));
    Scan::of(sql).filter(is_select).take(2).count() > 1
}

/// How many tables the `SELECT`s of `sql` have together, at most.
pub(crate) fn tables(sql: &str) -> usize {
    // For each parenthesis that is open, whether tables are listed around it.
    let (mut outer, mut is_listing, mut tables) = (Vec::new(), false, 0);
    for token in Scan::of(sql) {
        match token {
            Token::Word(word) if is_one_of(&["from", "join"], word) => {
                (is_listing, tables) = (true, tables + 1);
            }
            Token::Word(word) if is_one_of(END_OF_TABLES, word) => is_listing = false,
            Token::Comma if is_listing => tables += 1,
            Token::Open => outer.push(is_listing),
            Token::Close => is_listing = outer.pop().unwrap_or(false),
            _ => {}
        }
    }
    tables
}

/// What ends a list of tables.
const END_OF_TABLES: &[&str] = &[
    "select",
    "where",
    "group",
    "having",
    "window",
    "order",
    "limit",
    "union",
    "except",
    "intersect",
    "values",
    "end",
    "returning",
];

/// How many columns the table of definition `sql` has, at most.
pub(crate) fn columns(sql: &str) -> usize {
    Scan::of(sql).filter(|token| *token == Token::Comma).count() + 1
}

/// How many terms the index of definition `sql` has with which the planner compares those of a
/// statement: its expressions, and the conditions of a partial one. None if it is of columns alone.
pub(crate) fn terms_of_index(sql: &str) -> usize {
    let (mut depth, mut terms, mut is_plain) = (0_usize, 1, true);
    // How many names and keywords there are of a column, which has one.
    let (mut words, mut before) = (0, Token::Other);
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        let is_collation =
            matches!(before, Token::Word(word) if word.eq_ignore_ascii_case("collate"));
        match token {
            Token::Open => {
                depth += 1;
                is_plain &= depth == 1;
                words = 0;
            }
            Token::Close => depth = depth.saturating_sub(1),
            Token::Comma => (terms, words) = (terms + 1, 0),
            Token::Word(word) if is_one_of(&["and", "or"], word) => {
                (terms, is_plain) = (terms + 1, false);
            }
            Token::Word(word) if word.eq_ignore_ascii_case("where") => is_plain = false,
            Token::Word(word) if is_one_of(&["collate", "asc", "desc"], word) => {}
            Token::Word(_) | Token::Quoted(_) | Token::Text(_) if !is_collation && depth > 0 => {
                words += 1;
                is_plain &= words == 1;
            }
            Token::Dot
            | Token::Star
            | Token::Semicolon
            | Token::Parameter
            | Token::Value
            | Token::Other => is_plain = false,
            _ => {}
        }
        before = token;
    }
    if is_plain { 0 } else { terms }
}

/// How often `sql` may name the table `name`, which is in lower case. One with a quote in it may be
/// anything in quotes.
pub(crate) fn mentions(sql: &str, name: &str) -> u32 {
    let is_odd = is_odd(name);
    let may = |token: &Token<'_>| match token {
        Token::Word(word) => word.eq_ignore_ascii_case(name),
        Token::Quoted(word) | Token::Text(word) => is_odd || word.eq_ignore_ascii_case(name),
        _ => false,
    };
    u32::try_from(Scan::of(sql).filter(may).count()).unwrap_or(u32::MAX)
}

/// How many names stand in the lists of `USING`, of whose columns nobody is asked; `None` if there
/// is a `NATURAL` join, which has no list.
pub(crate) fn joining_columns(sql: &str) -> Option<usize> {
    let (mut names, mut is_listing, mut before) = (0, false, Token::Other);
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        let is = |token, known| matches!(token, Token::Word(word) if is_one_of(known, word));
        if is(token, &["natural"]) {
            return None;
        }
        is_listing = match token {
            Token::Open => is(before, &["using"]),
            Token::Close => false,
            _ => is_listing,
        };
        names += usize::from(is_listing && token.name().is_some());
        before = token;
    }
    Some(names)
}

/// How often `sql` may name each of the tables that `is_known` tells, by their names in lower case.
pub(crate) fn named_tables(sql: &str, is_known: impl Fn(&str) -> bool) -> HashMap<String, u32> {
    let mut named = HashMap::new();
    for name in Scan::of(sql).filter_map(Token::name) {
        let name = name.to_ascii_lowercase();
        if is_known(&name) {
            *named.entry(name).or_default() += 1;
        }
    }
    named
}

/// Whether a table of this name cannot be found in a text: what is in quotes may be any.
pub(crate) fn is_odd(name: &str) -> bool {
    name.contains(QUOTES)
}

/// What a name may have in it only where it is doubled, which is not read here.
const QUOTES: [char; 3] = ['"', '`', '\''];

/// How many parameters of `sql` have a name or a number, by which SQLite looks for each among all
/// of them.
pub(crate) fn named_parameters(sql: &str) -> usize {
    Scan::of(sql).filter(|token| *token == Token::Parameter).count()
}

/// What a statement is for the planner, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planning {
    /// It defines something, and plans nothing.
    Defines,
    /// It describes something: `PRAGMA table_list` has SQLite look at all views.
    Describes,
    /// It inserts rows that are said, and plans what triggers do then.
    Inserts,
    /// It may find rows; so does `DROP TABLE`, for SQLite looks where foreign keys refer to it.
    Queries,
}

/// What the first statement of `sql` is for the planner.
pub(crate) fn planning(sql: &str) -> Planning {
    let mut words = Scan::of(without_blanks(sql)).filter(|token| *token != Token::Blank);
    let mut next_is = |known: &[&str]| match words.next() {
        Some(Token::Word(word)) => known.iter().position(|it| word.eq_ignore_ascii_case(it)),
        _ => None,
    };
    let first = next_is(&["insert", "replace", "create", "pragma", "drop", "alter", "reindex"]);
    let is_table = match next_is(&["table", "temp", "temporary"]) {
        Some(0) => true,
        Some(_) => next_is(&["table"]).is_some(),
        None => false,
    };
    let may_query = || has_word(sql, "select") || has_word(sql, "values");
    match first {
        Some(0 | 1) if !has_word(sql, "select") => Planning::Inserts,
        Some(2) if !is_table || !may_query() => Planning::Defines,
        Some(3) => Planning::Describes,
        Some(4) if is_table => Planning::Queries,
        Some(4..) => Planning::Defines,
        _ => Planning::Queries,
    }
}

/// Cuts a script into its statements, as `sqlite3_complete` tells where one ends: at a semicolon,
/// and within a trigger at one behind `; END`. What is behind a NUL is no part of it.
pub(crate) fn statements(sql: &str) -> Statements<'_> {
    let end = sql.find('\0').unwrap_or(sql.len());
    Statements { rest: sql[..end].trim_start_matches('\u{feff}') }
}

/// Whether `sql` is one statement, and not several, of which the others are prepared, too, to see
/// whether they are any.
pub(crate) fn is_one(sql: &str) -> bool {
    statements(sql).skip(1).all(|rest| without_blanks(rest).is_empty())
}

/// See [`statements`].
pub(crate) struct Statements<'s> {
    rest: &'s str,
}

impl<'s> Iterator for Statements<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        let (mut scan, mut start, mut ends_at_end) = (Scan::of(self.rest), Start::Nothing, 0);
        for token in scan.by_ref() {
            if token == Token::Blank {
                continue;
            }
            start = start.followed_by(token);
            ends_at_end = match token {
                Token::Semicolon if start != Start::Trigger || ends_at_end == 2 => break,
                Token::Semicolon => 1,
                Token::Word(word) if ends_at_end == 1 && word.eq_ignore_ascii_case("end") => 2,
                _ => 0,
            };
        }
        let (statement, rest) = self.rest.split_at(self.rest.len() - scan.rest.len());
        self.rest = rest;
        (!statement.is_empty()).then_some(statement)
    }
}

/// What the first words of a statement have said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Nothing,
    Explain,
    Create,
    Trigger,
    Other,
}

impl Start {
    fn followed_by(self, token: Token<'_>) -> Start {
        let is = |known: &[&str]| matches!(token, Token::Word(word) if is_one_of(known, word));
        match self {
            // An empty statement has ended.
            Start::Nothing if token == Token::Semicolon => Start::Nothing,
            Start::Nothing if is(&["explain"]) => Start::Explain,
            Start::Explain if is(&["query", "plan"]) => Start::Explain,
            Start::Nothing | Start::Explain if is(&["create"]) => Start::Create,
            Start::Create if is(&["temp", "temporary"]) => Start::Create,
            Start::Create if is(&["trigger"]) => Start::Trigger,
            Start::Trigger => Start::Trigger,
            _ => Start::Other,
        }
    }
}

/// Whether a `*` behind `token` stands for columns. Elsewhere it multiplies.
fn lists(token: Token<'_>) -> bool {
    let is_first = |word: &str| word.eq_ignore_ascii_case("returning");
    matches!(token, Token::Comma | Token::Dot) || matches!(token, Token::Word(it) if is_first(it))
}

fn is_keyword(word: &str) -> bool {
    is_one_of(KEYWORDS, word)
}

fn is_one_of(known: &[&str], word: &str) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
}
