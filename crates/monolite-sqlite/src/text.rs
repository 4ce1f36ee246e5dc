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

use std::collections::{HashMap, HashSet};

use crate::verb::{has_word, without_blanks};

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

/// A piece of a text that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// A keyword or a name that is not quoted.
    Word(&'s str),
    /// A name in quotes, and what is between them.
    Quoted(&'s str),
    /// A text, and what is between its quotes, which is a name in the list of `USING` and where a
    /// table is named.
    Text(&'s str),
    Star,
    Open,
    Close,
    Dot,
    Comma,
    Semicolon,
    /// The beginning of a parameter that has a name or a number.
    Parameter,
    /// White space, or a comment.
    Blank,
    Other,
}

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
        if name.contains(QUOTES) {
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

impl<'s> Token<'s> {
    /// What it may be the name of.
    fn name(self) -> Option<&'s str> {
        match self {
            Token::Word(name) | Token::Quoted(name) | Token::Text(name) => Some(name),
            _ => None,
        }
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
            Token::Dot | Token::Star | Token::Semicolon | Token::Parameter | Token::Other => {
                is_plain = false;
            }
            _ => {}
        }
        before = token;
    }
    if is_plain { 0 } else { terms }
}

/// How often `sql` may name the table `name`, which is in lower case. One with a quote in it may be
/// anything in quotes.
pub(crate) fn mentions(sql: &str, name: &str) -> u32 {
    let is_odd = name.contains(QUOTES);
    let may = |token: &Token<'_>| match token {
        Token::Word(word) => word.eq_ignore_ascii_case(name),
        Token::Quoted(word) | Token::Text(word) => is_odd || word.eq_ignore_ascii_case(name),
        _ => false,
    };
    u32::try_from(Scan::of(sql).filter(may).count()).unwrap_or(u32::MAX)
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
    /// It may find rows.
    Queries,
}

/// What the first statement of `sql` is for the planner.
pub(crate) fn planning(sql: &str) -> Planning {
    let mut words = Scan::of(without_blanks(sql)).filter(|token| *token != Token::Blank);
    let mut next_is = |known: &[&str]| match words.next() {
        Some(Token::Word(word)) => known.iter().position(|it| word.eq_ignore_ascii_case(it)),
        _ => None,
    };
    let first = next_is(&["insert", "replace", "create", "pragma", "alter", "drop", "reindex"]);
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

/// What is left of a text.
pub(crate) struct Scan<'s> {
    rest: &'s str,
}

impl<'s> Scan<'s> {
    pub(crate) fn of(text: &'s str) -> Scan<'s> {
        Scan { rest: text }
    }

    /// Takes `bytes` off the text; all of it where there are not so many.
    fn take(&mut self, bytes: usize) -> &'s str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Takes the name of a parameter as SQLite does: what is in parentheses directly behind it is a
    /// part of it, up to a blank, whatever it is.
    fn take_name_of_parameter(&mut self) {
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
        let mut is_named = false;
        loop {
            let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
            is_named |= end > 0;
            self.take(end);
            if self.rest.starts_with("::") {
                self.take(2);
            } else {
                break;
            }
        }
        if is_named && self.rest.starts_with('(') {
            let ends = |c: char| c == ')' || c.is_ascii_whitespace() || matches!(c, '\u{b}' | '\0');
            let end = self.rest.find(ends).unwrap_or(self.rest.len());
            self.take(end + usize::from(self.rest[end..].starts_with(')')));
        }
    }

    /// Takes everything up to the end of what `end` closes, which is behind `from` bytes.
    /// Gives what is between.
    fn take_up_to(&mut self, from: usize, end: &str) -> &'s str {
        let found = self.rest.get(from..).and_then(|rest| rest.find(end));
        let taken = self.take(found.map_or(self.rest.len(), |at| from + at + end.len()));
        let between = taken.get(from..).unwrap_or("");
        if found.is_some() { &between[..between.len() - end.len()] } else { between }
    }
}

impl<'s> Iterator for Scan<'s> {
    type Item = Token<'s>;

    fn next(&mut self) -> Option<Token<'s>> {
        let first = self.rest.chars().next()?;
        let token = match first {
            _ if first.is_ascii_whitespace() || first == '\u{b}' => {
                self.take(1);
                Token::Blank
            }
            // Only where a token could begin: within a name it is a part of it.
            '\u{feff}' => {
                self.take(first.len_utf8());
                Token::Blank
            }
            '-' if self.rest.starts_with("--") => {
                self.take_up_to(2, "\n");
                Token::Blank
            }
            '/' if self.rest.starts_with("/*") => {
                self.take_up_to(2, "*/");
                Token::Blank
            }
            // A quote that is doubled ends one and begins the next, which counts more.
            '"' | '`' => Token::Quoted(self.take_up_to(1, first.encode_utf8(&mut [0; 4]))),
            '[' => Token::Quoted(self.take_up_to(1, "]")),
            '\'' => Token::Text(self.take_up_to(1, "'")),
            _ if first.is_ascii_alphabetic() || first == '_' || !first.is_ascii() => {
                let is_part =
                    |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                Token::Word(self.take(end))
            }
            // A number, with what belongs to it.
            '0'..='9' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                self.take(end);
                Token::Other
            }
            _ => {
                self.take(first.len_utf8());
                match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    '.' => Token::Dot,
                    ',' => Token::Comma,
                    '*' => Token::Star,
                    ';' => Token::Semicolon,
                    ':' | '@' | '$' | '#' => {
                        self.take_name_of_parameter();
                        Token::Parameter
                    }
                    '?' if self.rest.starts_with(|c: char| c.is_ascii_digit()) => Token::Parameter,
                    _ => Token::Other,
                }
            }
        };
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough to be looked at.
    fn of(sql: &str) -> usize {
        names(&format!("{sql} --{}", "-".repeat(SHORT)), &Views::default())
    }

    #[test]
    fn names_count_for_each_select_around_them() {
        for (sql, expected) in [
            ("", 0),
            ("SELECT a, b FROM t WHERE c = 1 AND d IN (1, 2, 3)", 5),
            ("SELECT t.a FROM t", 2),
            ("SELECT (SELECT a FROM t) FROM u", 2 + 2 + 1),
            ("SELECT a FROM t UNION SELECT b FROM u", 4),
            ("SELECT (SELECT a UNION SELECT b), c", 2 + 2 + 1),
            ("INSERT INTO t(a) VALUES (b)", 3),
            ("SELECT 0x1F, 1e5, 12.5e3, .5", 0),
            ("SELECT /* a b c */ d -- e\n, f", 2),
            ("SELECT \"a b\", [c d], `e`, 'f'", 3),
            ("SELECT 'it''s', a", 1),
            ("SELECT 1 FROM a JOIN b USING /**/ ('c', d, \"e\")", 2 + 3),
            ("SELECT t . a, t/**/./**/b FROM t", 3),
            ("SELECT /* never ends", 0),
            ("SELECT 'never ends", 0),
            ("SELECT ä, [never ends", 2),
            ("SELECT 1 FROM a natural join b", 2 + NAMES_OF_NATURAL),
            ("SELECT 1 FROM a \u{feff}NATURAL JOIN b", 2 + NAMES_OF_NATURAL),
            ("INSERT INTO t VALUES (1) RETURNING *, t.*, a * 2, (b) * 2", 5 + 2 * NAMES_OF_STAR),
            ("SELECT 1 FROM a NATURAL/**/JOIN b", 2 + NAMES_OF_NATURAL),
            ("SELECT 'natural' FROM a", 1),
            (")))) SELECT a", 1),
            ("SELECT end, left, like, desc, by, with FROM t", 7),
            ("SELECT a, b; SELECT c; SELECT (SELECT d)", 2),
            ("SELECT a; SELECT b, c, (SELECT d;", 4),
        ] {
            assert_eq!(of(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_a_view_or_a_common_table_expression_has_counts_wherever_it_is_named() {
        let views = Views::named(&[("v", 10), ("w", 100), ("o\"d", 1_000)]);
        for (sql, expected) in [
            ("SELECT 1 FROM v", 11),
            ("SELECT 1 FROM V, main.\"v\"", 11 + 1_000 + 1),
            ("SELECT (SELECT 1 FROM w)", 2 * 101),
            ("SELECT 't' FROM t", 1_000 + 1),
            ("WITH c AS (SELECT a, b) SELECT 1 FROM c, c", 2 + 2 + 2 * 2),
            ("WITH c(x) AS NOT MATERIALIZED (SELECT a) SELECT 1 FROM c", 3 + 1 + 1),
            ("WITH RECURSIVE c AS (SELECT 1 UNION SELECT a FROM c) SELECT 1 FROM c", 3 + 1 + 2),
            ("WITH a AS (SELECT 1 FROM b), b AS (SELECT x, y) SELECT 1 FROM a", 3 + 1 + 1 + 2),
            ("WITH a AS (SELECT x) SELECT y FROM t WINDOW z AS (ORDER BY p, q, r)", 10),
        ] {
            let found = names(sql, &views);
            assert!(found >= expected && found <= expected + 8, "{sql}: {found}, {expected}");
        }
        let chained: String =
            (1..60).map(|at| format!(", c{at} AS (SELECT a, b FROM c{})", at - 1)).collect();
        let chained = format!("WITH c0 AS (SELECT a){chained} SELECT 1 FROM c59");
        assert!(names(&chained, &views) < 60 * 5, "{}", names(&chained, &views));
        let circle = "WITH a AS (SELECT x FROM b), b AS (SELECT x FROM a) SELECT 1 FROM a";
        assert!(names(circle, &views) > MAX_NAMES);
        let chain: String =
            (1..30).map(|at| format!(", c{at} AS (SELECT 1 FROM c{0}, c{0})", at - 1)).collect();
        let doubled = format!("WITH c0 AS (SELECT a){chain} SELECT 1 FROM c29");
        assert!(names(&doubled, &views) > MAX_NAMES);
    }

    #[test]
    fn views_are_weighed_with_those_that_they_use() {
        let views = |definitions: &[(&str, &str)]| {
            let texts = definitions.iter().map(|(name, sql)| ((*name).into(), (*sql).to_owned()));
            Views::of(&texts.collect())
        };
        let long = format!("CREATE VIEW a AS SELECT {}", vec!["x"; 100].join(","));
        let some = views(&[
            ("c", "CREATE VIEW c AS SELECT 1 FROM b, b"),
            ("a", &long),
            ("b", "CREATE VIEW b AS SELECT 1 FROM A, [a]"),
            ("x1", "CREATE VIEW x1 AS SELECT 1 FROM x2"),
            ("x2", "CREATE VIEW x2 AS SELECT 1 FROM x1"),
        ]);
        let of = |name| names(&format!("SELECT 1 FROM {name}"), &some);
        assert!((100..110).contains(&of("a")), "{}", of("a"));
        assert!((200..220).contains(&of("b")) && (400..440).contains(&of("c")), "{}", of("c"));
        assert!(of("x1") < 10, "which cannot be used");
    }

    #[test]
    fn the_tables_around_a_name_are_counted() {
        for (sql, expected) in [
            ("CREATE VIEW v AS SELECT a, b FROM t, u JOIN w WHERE a IN (1, 2)", 3),
            ("SELECT (SELECT 1 FROM t, u), b FROM t ORDER BY 1, 2", 3),
            ("SELECT 1 FROM t UNION SELECT a, b FROM u", 2),
        ] {
            assert_eq!(tables(sql), expected, "{sql}");
        }
        assert_eq!(columns("CREATE TABLE t(a, b, c)"), 3);
    }

    #[test]
    fn names_that_alter_looks_for_are_counted_in_all_of_a_definition() {
        for (sql, is_table, expected) in [
            ("CREATE VIEW v AS SELECT t.a, b FROM t", false, 7.0 * 7.0),
            ("CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT a; SELECT t.b; END", false, 64.0),
            ("CREATE TABLE t(a, b, PRIMARY KEY (a, b), UNIQUE(b))", true, 0.0),
            ("CREATE TABLE t(a, b AS (a + 1))", true, 5.0),
        ] {
            let all = pairs_of_definition(sql, is_table, &Views::default());
            // Words that are not known as keywords count.
            assert!(all >= expected && all <= 4.0 * expected, "{sql}: {all}");
        }
    }

    #[test]
    fn an_index_has_terms_where_it_is_not_of_columns_alone() {
        for (sql, expected) in [
            ("CREATE UNIQUE INDEX i ON t(a, \"b\" COLLATE nocase DESC, 'c')", 0),
            ("CREATE INDEX i ON t(a + 1, b)", 2),
            ("CREATE INDEX i ON t((a), (b))", 2),
            ("CREATE INDEX i ON t(a IS b, c)", 2),
            ("CREATE INDEX i ON t(a NOTNULL)", 1),
            ("CREATE INDEX i ON t(a collate \"x\" asc, [b] desc)", 0),
            ("CREATE INDEX i ON t(a) WHERE b", 1),
            ("CREATE INDEX i ON t(a) WHERE b = 1 OR b = 2 and c IN (1, 2)", 4),
        ] {
            assert_eq!(terms_of_index(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_planned_is_known_by_words() {
        use Planning::{Defines, Describes, Inserts, Queries};
        for (sql, expected) in [
            ("INSERT INTO t VALUES (1), (2)", Inserts),
            ("/* */ ; insert INTO t VALUES ((SELECT 1))", Queries),
            ("INSERT INTO t SELECT 1", Queries),
            ("REPLACE INTO t VALUES ('select')", Queries),
            ("REPLACE INTO t VALUES (1)", Inserts),
            ("CREATE TABLE t(a)", Defines),
            ("CREATE TABLE t AS SELECT 1", Queries),
            ("CREATE TEMP TABLE t AS SELECT 1", Queries),
            ("CREATE VIEW v AS SELECT 1", Defines),
            ("CREATE INDEX i ON t(a) WHERE a", Defines),
            ("DROP TABLE t", Defines),
            ("PRAGMA table_list", Describes),
            ("CREATE \u{feff}TABLE t AS SELECT 1", Queries),
            ("CREATE TABLE t AS VALUES (1 IN v)", Queries),
            ("SELECT 1", Queries),
            ("WITH a AS (VALUES (1)) INSERT INTO t VALUES (2)", Queries),
            ("EXPLAIN CREATE TABLE t(a)", Queries),
            ("UPDATE t SET a = 1", Queries),
            ("", Queries),
        ] {
            assert_eq!(planning(sql), expected, "{sql}");
        }
    }

    #[test]
    fn parameters_and_tables_are_counted() {
        for (sql, expected) in [("?, ?, ?", 0), ("?1, ?22, :a, @b, $c", 5), ("':a', \":b\"", 0)] {
            assert_eq!(named_parameters(sql), expected, "{sql}");
        }
        assert_eq!(mentions("SELECT T.a FROM t, main.t AS x, \"t\", u", "t"), 4);
    }

    #[test]
    fn a_parameter_hides_nothing_that_is_behind_it() {
        let statement = "CREATE INDEX IF NOT EXISTS i ON t($a(/*));";
        let script = format!("{statement} SELECT 1 FROM v");
        assert_eq!(statements(&script).next(), Some(statement));
        assert!(is_one(statement) && is_one("SELECT 1; ; -- x") && !is_one(&script));
        for parameter in ["$a(/*)", "@a(')", ":a::b(\")", "#a([)", "$a(/*"] {
            let sql = format!("SELECT {parameter} , a, b FROM t");
            assert_eq!(of(&sql), 3, "{sql}");
        }
    }

    #[test]
    fn many_parentheses_and_bodies_are_weighed_in_no_time() {
        let start = std::time::Instant::now();
        let open =
            format!("WITH c AS(SELECT 1)SELECT {}{}", "(".repeat(150_000), "c,".repeat(150_000));
        assert!(names(&open, &Views::default()) > MAX_NAMES);
        let bodies = "WITH c AS(SELECT c,".repeat(30_000);
        assert!(names(&bodies, &Views::default()) > MAX_NAMES);
        assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn a_script_is_cut_where_sqlite_ends_its_statements() {
        let trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT CASE WHEN 1 THEN 2 END; \
                       SELECT ';'; /* ; END; */ END;";
        for parts in [
            &["SELECT 1;", " SELECT ';' -- ;\n;", ";", " SELECT 2"][..],
            &[trigger, "SELECT 1;"],
            &[
                "EXPLAIN QUERY PLAN CREATE TEMP TRIGGER r DELETE ON t BEGIN SELECT 1; END;",
                "VALUES (1)",
            ],
            &["CREATE TABLE trigger(a);", "CREATE TABLE [a;b](\"c;\");", "\n"],
            &[";", ";", "SELECT 1"],
        ] {
            let script = parts.concat();
            let cut: Vec<_> = statements(&script).collect();
            assert_eq!(cut.concat(), script);
            let expected: Vec<_> =
                parts.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
            let found: Vec<_> =
                cut.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(statements("SELECT 1;\0 SELECT 2").collect::<Vec<_>>(), ["SELECT 1;"]);
        assert_eq!(statements("\u{feff}SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
    }

    #[test]
    fn a_short_text_is_not_looked_at() {
        assert_eq!(names("SELECT a FROM t NATURAL JOIN u", &Views::default()), 0);
    }
}
