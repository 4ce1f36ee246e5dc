//! `monolite lint --portable`: what of a schema and of statements PostgreSQL would treat otherwise.
//!
//! It looks at tokens, not at a syntax tree: a rule speaks where its words stand. What depends on
//! the type of a column is told where a `CREATE TABLE` of the same run says the type.

mod binding;
mod found;
mod known;
mod rules;
mod understood;

use crate::arguments;
use crate::export::clauses::{self, split};
use crate::export::value;
use crate::{backup, json};
use anyhow::{Context as _, Result};
pub(crate) use found::Found;
use found::{Finding, NOT_UNDERSTOOD};
use known::{Column, Columns, Known, declared, definitions, is_constraint, lower, type_words};
use monolite::statements;
use monolite_sqlite::{Token, TokenKind};
use rules::Rule;
use std::path::Path;

/// Names here, and words of PostgreSQL's grammar.
const RESERVED: &str = "analyse any array asymmetric authorization both concurrently \
    current_catalog current_role current_schema current_user fetch freeze grant ilike lateral \
    leading localtime localtimestamp only placing session_user similar some symmetric tablesample \
    trailing user variadic verbose";

/// Looks at all files.
pub(crate) fn run(arguments: &arguments::Lint) -> Result<()> {
    let mut texts = Vec::new();
    for file in &arguments.files {
        texts.extend(read(file)?);
    }
    let all: Vec<&str> = texts.iter().flat_map(|(_, sql)| statements(sql)).collect();
    let mut known = Known::default();
    all.iter().for_each(|statement| known.learn(statement));
    let mut faults = understood::faults(&all)?;
    let mut findings: Vec<Finding> = Vec::new();
    for (file, sql) in &texts {
        let mut is_told = false;
        for statement in statements(sql) {
            let start = statement.as_ptr() as usize - sql.as_ptr() as usize;
            let tokens = clauses::tokens(statement);
            let columns = known.columns(&tokens);
            let mut lint = Lint { tokens, known: &known, columns, found: Vec::new() };
            lint.look();
            let fault = faults.remove(&statement.as_ptr());
            if let Some(fault) = &fault {
                let at = lint.tokens.iter().position(|token| token.at >= fault.at);
                lint.add(at.unwrap_or(0), NOT_UNDERSTOOD);
            }
            lint.found.sort_by_key(|(at, _)| *at);
            for (token, (rule, difference, remedy)) in lint.found {
                if rule == "parameter" && std::mem::replace(&mut is_told, true) {
                    continue;
                }
                let token = lint.tokens[token];
                let said = fault.as_ref().filter(|_| rule == NOT_UNDERSTOOD);
                let before = &sql[..start + token.at];
                let line_start = before.rfind('\n').map_or(0, |at| at + 1);
                findings.push(Finding {
                    file: file.clone(),
                    line: before.matches('\n').count() + 1,
                    column: before[line_start..].chars().count() + 1,
                    rule,
                    text: token.text.chars().take(40).collect(),
                    difference: said.map_or(difference.into(), |it| it.text.clone().into()),
                    remedy,
                });
            }
        }
    }
    found::show(&findings, arguments.json)?;
    found::result(&findings)
}

/// The texts of a file of SQL, or of the schema of a database.
fn read(file: &Path) -> Result<Vec<(String, String)>> {
    let name = json::name(file);
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {name}"))?;
    if !bytes.starts_with(b"SQLite format 3\0") {
        return Ok(vec![(name.into_owned(), String::from_utf8_lossy(&bytes).into_owned())]);
    }
    drop(bytes);
    let db = backup::open(file, "is this the right path?")?;
    // The shadow tables of FTS5 come with its own.
    let sql = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name NOT IN \
               (SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow') \
               AND tbl_name NOT LIKE 'monolite\\_%' ESCAPE '\\' \
               AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid";
    let read = db.read(|tx| tx.query_map(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))).wait();
    db.close()?;
    let of = |(part, sql): (String, String)| (format!("{name} {part}"), sql);
    Ok(read?.into_iter().map(of).collect())
}

fn has(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|it| it.eq_ignore_ascii_case(word))
}

/// One statement.
struct Lint<'s> {
    tokens: Vec<Token<'s>>,
    known: &'s Known,
    columns: Columns,
    found: Vec<(usize, Rule)>,
}

impl Lint<'_> {
    fn add(&mut self, at: usize, name: &str) {
        self.found.push((at, rules::of_words(name)));
    }

    /// The word at `at` in lower case; nothing of what is quoted.
    fn word(&self, at: usize) -> String {
        let word = self.tokens.get(at).filter(|token| token.kind == TokenKind::Word);
        word.map_or_else(String::new, |token| token.text.to_ascii_lowercase())
    }

    fn before(&self, at: usize, distance: usize) -> String {
        at.checked_sub(distance).map_or_else(String::new, |at| self.word(at))
    }

    fn is_sign(&self, at: usize, sign: u8) -> bool {
        self.tokens.get(at).is_some_and(|token| token.kind == TokenKind::Sign(sign))
    }

    fn look(&mut self) {
        let tokens = self.tokens.clone();
        let is_create = has("create alter", &self.word(0));
        let mut types = Vec::new();
        self.statement();
        if let Some((name, definitions, behind)) = definitions(&tokens) {
            self.table(name, &definitions, behind);
            let columns = definitions.iter().filter(|definition| !is_constraint(definition));
            types = columns.flat_map(|column| type_words(column)).map(|token| token.at).collect();
        }
        for (at, token) in tokens.iter().enumerate() {
            if !is_create && self.is_spelled_otherwise(at) {
                self.add(at, "names");
            }
            if has("where and or not having on when", &self.before(at, 1)) && self.is_condition(at)
            {
                self.add(at, "condition");
            }
            match token.kind {
                TokenKind::Word if types.contains(&token.at) => {}
                TokenKind::Word => self.keyword(at, is_create),
                TokenKind::Quoted if !token.text.starts_with('"') => self.add(at, "quotes"),
                TokenKind::Quoted if self.is_string(at) => self.add(at, "string"),
                TokenKind::Text if self.is_alias(at) => self.add(at, "text"),
                TokenKind::Parameter => self.add(at, "parameter"),
                TokenKind::Number
                    if token.text.get(..2).is_some_and(|it| it.eq_ignore_ascii_case("0x")) =>
                {
                    self.add(at, "hexadecimal");
                }
                TokenKind::Sign(sign) => self.sign(at, sign),
                _ => {}
            }
        }
        for at in 0..tokens.len() {
            match (self.word(at).as_str(), self.word(at + 1).as_str()) {
                ("group", "by") => self.group(at),
                ("select", "distinct") => self.distinct(at + 1),
                _ => {}
            }
        }
        self.aliases();
        self.mixtures();
        self.texts();
    }

    /// Integers beside reals, in a statement that divides.
    fn mixtures(&mut self) {
        let is_division = |it: &Token<'_>| matches!(it.kind, TokenKind::Sign(b'/' | b'%'));
        let of = |token: &Token<'_>| {
            let column = self.columns.get(&lower(Some(token)));
            column.map_or((false, false), |it| (it.are_integers, it.are_reals))
        };
        if self.tokens.iter().any(is_division) {
            let found = clauses::mixtures(&self.tokens, of);
            found.into_iter().for_each(|at| self.add(at, "mixture"));
        }
    }

    /// Reals and comparisons that become texts.
    fn texts(&mut self) {
        let is_real = |token: &Token<'_>| {
            self.columns.get(&lower(Some(token))).is_some_and(|column| column.are_reals)
        };
        let casts = value::casts(&self.tokens).filter(|(_, to)| has("text varchar char", to));
        let values = value::joined(&self.tokens).chain(casts.map(|(value, _)| value));
        let differs = |value: &&[Token<'_>]| {
            let given = value::given(value, &is_real);
            // A literal is numeric there, with the same text.
            given.is_boolean || given.is_real_column
        };
        let starts = values.filter(differs).filter_map(|value| Some(value.first()?.at));
        let place = |start| self.tokens.partition_point(|token| token.at < start);
        let places: Vec<usize> = starts.map(place).collect();
        places.into_iter().for_each(|at| self.add(at, "as-text"));
    }

    /// Whether the text at `at` is an alias.
    fn is_alias(&self, at: usize) -> bool {
        let before = at.checked_sub(1).map(|at| self.tokens[at]);
        before.is_some_and(|it| matches!(it.kind, TokenKind::Number | TokenKind::Text))
            || self.before(at, 1) == "as"
    }

    /// The places before `at` in the same parentheses, and that of the one that opens them.
    fn back(&self, at: usize) -> Vec<usize> {
        let (mut depth, mut places) = (0_i32, Vec::new());
        for back in (0..at).rev() {
            match self.tokens[back].kind {
                TokenKind::Sign(b')') => depth += 1,
                TokenKind::Sign(b'(') => depth -= 1,
                _ => {}
            }
            if depth <= 0 {
                places.push(back);
            }
            if depth < 0 {
                break;
            }
        }
        places
    }

    /// The tokens from `at` on, up to one of the words `ends`, or the end of the parentheses.
    fn rest(&self, at: usize, ends: &str) -> &[Token<'_>] {
        let mut depth = 0_i32;
        let is_inside = |token: &&Token<'_>| {
            match token.kind {
                TokenKind::Sign(b'(') => depth += 1,
                TokenKind::Sign(b')') => depth -= 1,
                TokenKind::Sign(b';') => return false,
                _ => {}
            }
            depth > 0 || depth == 0 && !has(ends, token.text)
        };
        let rest = &self.tokens[at.min(self.tokens.len())..];
        &rest[..rest.iter().take_while(is_inside).count()]
    }

    /// Whether what is at `at` is behind a value, and so an operator.
    fn is_operator(&self, at: usize) -> bool {
        let begins = "select where and or on when then else having by in case";
        at.checked_sub(1).is_some_and(|before| match self.tokens[before].kind {
            TokenKind::Sign(sign) => sign == b')',
            TokenKind::Word => !has(begins, self.tokens[before].text),
            _ => true,
        })
    }

    /// Whether all that LIKE at `at` compares with is a text without letters.
    fn has_no_case(&self, at: usize) -> bool {
        let is_other = |sign: char| sign.is_ascii_alphabetic() || sign == '\\';
        let pattern = self.tokens.get(at + 1).filter(|token| token.kind == TokenKind::Text);
        pattern.is_some_and(|token| !token.text.contains(is_other)) && !self.is_sign(at + 2, b'|')
    }

    /// Whether the name at `at` is another one there: without quotes it has small letters.
    fn is_spelled_otherwise(&self, at: usize) -> bool {
        let token = self.tokens[at];
        let there = match token.kind {
            TokenKind::Word if self.word(at + 1) != "by" => token.text.to_ascii_lowercase(),
            TokenKind::Quoted => token.name().unwrap_or_default(),
            _ => return false,
        };
        let made = self.known.spellings.get(&there.to_lowercase());
        made.is_some_and(|made| !made.contains(&there))
    }

    /// What the first words say.
    fn statement(&mut self) {
        match (self.word(0).as_str(), self.word(1).as_str()) {
            ("pragma", _) => self.add(0, "pragma"),
            ("attach" | "detach", _) => self.add(0, "attach"),
            ("replace", _) => self.add(0, "replace"),
            ("reindex", second) if !has("table index schema database", second) => {
                self.add(0, "maintenance");
            }
            ("vacuum", "into") | ("explain", "query") => self.add(1, "maintenance"),
            ("begin", "immediate" | "exclusive" | "deferred") => self.add(1, "begin"),
            ("create", "virtual") => self.add(1, "virtual-table"),
            ("create", "trigger") | ("create", "temp" | "temporary") if self.has_trigger() => {
                self.add(0, "trigger");
            }
            ("create", "view") if self.word(2) == "if" => self.add(2, "if-not-exists"),
            _ => {}
        }
        let has_word = |word: &str| self.tokens.iter().any(|token| token.is_word(word));
        if has_word("intersect") && (has_word("union") || has_word("except")) {
            let at = self.tokens.iter().position(|token| token.is_word("intersect"));
            self.add(at.unwrap_or(0), "intersect");
        }
    }

    fn has_trigger(&self) -> bool {
        self.tokens.iter().take(3).any(|token| token.is_word("trigger"))
    }

    fn table(&mut self, name: &Token<'_>, definitions: &[&[Token<'_>]], behind: &[Token<'_>]) {
        let place = |token: &Token<'_>| self.tokens.iter().position(|it| it.at == token.at);
        let mut found = Vec::new();
        let has_capitals = |token: &Token<'_>| {
            token.kind == TokenKind::Word && token.text.chars().any(char::is_uppercase)
        };
        found.extend(has_capitals(name).then(|| (place(name), "names")));
        let is_strict = behind.iter().any(|token| token.is_word("strict"));
        found.extend((!is_strict && self.word(0) == "create").then_some((Some(0), "affinity")));
        for token in behind {
            found.extend(token.is_word("strict").then(|| (place(token), "strict")));
            found.extend(token.is_word("without").then(|| (place(token), "without-rowid")));
        }
        for definition in definitions.iter().filter(|definition| !is_constraint(definition)) {
            let at = place(&definition[0]);
            let declared = declared(definition);
            // These are the same.
            if !has("BIGINT TEXT NUMERIC", &declared) && declared != "DOUBLE PRECISION" {
                found.push((at, "type"));
            }
            if has_capitals(&definition[0]) {
                found.push((at, "names"));
            }
            let is_generated = definition
                .windows(2)
                .any(|pair| pair[0].is_word("as") && pair[1].kind == TokenKind::Sign(b'('));
            if is_generated && !definition.iter().any(|token| token.is_word("stored")) {
                found.push((at, "virtual-column"));
            }
        }
        for (at, rule) in found {
            self.add(at.unwrap_or(0), rule);
        }
    }

    fn keyword(&mut self, at: usize, is_create: bool) {
        let (word, next, before) = (self.word(at), self.word(at + 1), self.before(at, 1));
        let is_call = self.is_sign(at + 1, b'(');
        let is_first_part = self.is_sign(at + 1, b'.');
        let is_null = next == "null" || (next == "not" && self.word(at + 2) == "null");
        let is_distinct = next == "distinct" || (next == "not" && self.word(at + 2) == "distinct");
        if let Some(rule) = self.name_rule(at, &word) {
            return self.add(at, rule);
        }
        if has("limit order", &word) && self.is_recursive(at) {
            self.add(at, "recursive");
        }
        match word.as_str() {
            "or" if has("insert update", &before) => self.add(at, "or"),
            "conflict" if before == "on" && has("replace ignore fail rollback abort", &next) => {
                self.add(at, "conflict");
            }
            "conflict" if next == "do" && self.word(at + 2) == "update" => self.add(at, "target"),
            "null" if self.is_id(at) => self.add(at, "null-id"),
            "in" if is_call && self.is_sign(at + 2, b')') => self.add(at, "empty-list"),
            // `DO UPDATE SET n = n + 1`
            _ if self.is_sign(at - at.min(1), b'=')
                && self.before(at, 2) == word
                && !is_first_part =>
            {
                let is_update = |it: &[Token<'_>]| it[0].is_word("do") && it[1].is_word("update");
                if self.tokens[..at].windows(2).any(is_update) {
                    self.add(at, "ambiguous");
                }
            }
            "collate" if has("nocase rtrim binary", &next) => self.add(at + 1, "collation"),
            "like" if self.is_operator(at) && !self.has_no_case(at) => self.add(at, "like"),
            "glob" | "match" | "regexp" if self.is_operator(at) => self.add(at, "glob"),
            "is" if !is_null && !is_distinct => self.add(at, "is"),
            "true" | "false"
                if before != "is"
                    && before != "not"
                    && before != "where"
                    && before != "on"
                    && !self.is_default_of_boolean(at) =>
            {
                self.add(at, "boolean");
            }
            "order" if next == "by" && self.may_sort_nulls(at) => self.add(at, "nulls"),
            "exists" if before == "select" || self.is_sign(at.wrapping_sub(1), b',') => {
                self.add(at, "truth");
            }
            "join" if self.has_no_condition(at) => self.add(at, "join"),
            "limit" => self.limit(at),
            "select" | "values" if self.is_subquery(at) => self.add(at, "subquery"),
            "autoincrement" => self.add(at, "autoincrement"),
            "indexed" if next == "by" || before == "not" => self.add(at, "indexed"),
            _ if word.strip_prefix("current_").is_some_and(|it| has("timestamp date time", it)) => {
                self.add(at, "now");
            }
            "not" if next == "null" && before != "is" && !is_create => self.add(at, "not-null"),
            "x" if self.tokens.get(at + 1).is_some_and(|it| {
                it.kind == TokenKind::Text && it.at == self.tokens[at].at + 1
            }) =>
            {
                self.add(at, "blob");
            }
            "as" if self.is_cast(at) && self.is_cast_otherwise(at) => self.add(at + 1, "cast"),
            _ if is_call && !is_first_part && before != "table" && before != "into" => {
                self.call(at, &word);
            }
            _ => {}
        }
    }

    /// The rule for a word that is a name.
    fn name_rule(&self, at: usize, word: &str) -> Option<&'static str> {
        let (before, is_call) = (self.before(at, 1), self.is_sign(at + 1, b'('));
        let is_name = !is_call || has("table exists into references", &before);
        let is_part = self.is_sign(at.wrapping_sub(1), b'.');
        Some(match word {
            "main" | "temp" if self.is_sign(at + 1, b'.') => "catalog",
            _ if word.starts_with("sqlite_") && !is_call => "catalog",
            _ if word.starts_with("pragma_") => "pragma",
            "rowid" | "_rowid_" | "oid"
                if before != "without" && !self.columns.contains_key(word) =>
            {
                "rowid"
            }
            _ if has(RESERVED, word) && before != "as" && is_name && !is_part => "reserved",
            _ => return None,
        })
    }

    fn call(&mut self, at: usize, name: &str) {
        let end = clauses::closing(&self.tokens, at + 1).min(self.tokens.len());
        let arguments = split(&self.tokens[at + 2..end]);
        let place = arguments.get(1).and_then(|place| place.first());
        let is_from_end = place.is_some_and(|it| it.kind != TokenKind::Number || it.text == "0");
        let is_real = |column: &Column| column.are_reals;
        if has("sum avg", name) && arguments.iter().all(|it| self.is_column(it, is_real)) {
            return;
        }
        if name == "count" && end == at + 2 {
            self.add(at, "count");
        } else if has("min max", name) && arguments.len() > 1 {
            self.add(at, "min");
        } else if has("substr substring", name) && is_from_end {
            self.add(at, "substr");
        }
        self.found.extend(rules::of_function(name).map(|rule| (at, rule)));
    }

    /// Whether the NULL at `at` is for an `INTEGER PRIMARY KEY` that comes first.
    fn is_id(&self, at: usize) -> bool {
        let position = |word: &str| self.tokens.iter().position(|token| token.is_word(word));
        let (Some(into), Some(values)) = (position("into"), position("values")) else {
            return false;
        };
        let first = match self.is_sign(into + 2, b'(') {
            true => lower(self.tokens.get(into + 3)),
            false => {
                let table = lower(self.tokens.get(into + 1));
                self.known.first.get(&table).cloned().unwrap_or_default()
            }
        };
        let is_id = self.columns.get(&first).is_some_and(|column| column.is_id);
        is_id && at > values && self.is_sign(at - 1, b'(')
    }

    /// Aliases of a SELECT in its WHERE and HAVING.
    fn aliases(&mut self) {
        let (mut part, mut aliases, mut found) = (String::new(), Vec::new(), Vec::new());
        let mut depth = 0_i32;
        for (at, token) in self.tokens.iter().enumerate() {
            let (word, name) = (self.word(at), lower(Some(token)));
            let is_part = self.is_sign(at + 1, b'.') || self.before(at, 1) == "as";
            match token.kind {
                TokenKind::Sign(b'(') => depth += 1,
                // Behind a subquery they are columns.
                TokenKind::Sign(b')') if depth == 0 => aliases.clear(),
                TokenKind::Sign(b')') => depth -= 1,
                _ => {}
            }
            if has("select from where group having order limit window union", &word) {
                if word == "select" {
                    (depth, aliases) = (0, Vec::new());
                }
                part = word;
            } else if part == "select"
                && (self.before(at, 1) == "as" || depth == 0 && self.is_bare_alias(at))
            {
                aliases.push(name);
            } else if has("where having", &part)
                && token.kind != TokenKind::Text
                && !is_part
                && aliases.contains(&name)
                && !self.columns.contains_key(&name)
            {
                found.push(at);
            }
        }
        found.into_iter().for_each(|at| self.add(at, "alias"));
    }

    /// Whether the name at `at` is an alias without AS.
    fn is_bare_alias(&self, at: usize) -> bool {
        let no_value = "select distinct all and or not is in like between collate over";
        let is_value = at.checked_sub(1).is_some_and(|at| match self.tokens[at].kind {
            TokenKind::Sign(sign) => sign == b')',
            TokenKind::Word => !has(no_value, self.tokens[at].text),
            _ => true,
        });
        let is_last = self.is_sign(at + 1, b',') || self.word(at + 1) == "from";
        let is_name = matches!(self.tokens[at].kind, TokenKind::Word | TokenKind::Quoted);
        is_name && is_value && is_last && self.word(at) != "end"
    }

    /// Whether the column at `at` is all of a condition.
    fn is_condition(&self, at: usize) -> bool {
        let mut last = at;
        if self.is_sign(at + 1, b'.') {
            last = at + 2;
        }
        let is_name = self.columns.contains_key(&self.word(last))
            || self.tokens[at].kind == TokenKind::Number && self.before(at, 1) != "when";
        let ends = "and or group order limit then having union except intersect returning";
        let is_end = self.tokens.get(last + 1).is_none_or(|next| {
            has(ends, &self.word(last + 1)) || matches!(next.kind, TokenKind::Sign(b')' | b';'))
        });
        let between =
            self.tokens[..at].iter().rev().skip(1).take(8).any(|it| it.is_word("between"));
        is_name && is_end && !(self.before(at, 1) == "and" && between)
    }

    fn is_cast(&self, at: usize) -> bool {
        let open = self.back(at).pop();
        open.is_some_and(|open| self.is_sign(open, b'(') && self.before(open, 1) == "cast")
    }

    /// Whether CAST … AS at `at` gives other values.
    fn is_cast_otherwise(&self, at: usize) -> bool {
        let mut value = self.back(at);
        value.pop();
        value.reverse();
        let value: Vec<Token<'_>> = value.into_iter().map(|at| self.tokens[at]).collect();
        match self.word(at + 1).as_str() {
            "double" => self.word(at + 2) != "precision",
            "bigint" => !self.is_column(&value, |column| column.are_integers),
            "varchar" => self.is_sign(at + 2, b'('),
            to => has("integer int smallint real numeric decimal blob char character", to),
        }
    }

    /// Whether a term is a column, all of which are so.
    fn is_column(&self, term: &[Token<'_>], is_so: impl Fn(&Column) -> bool) -> bool {
        let is_name = term.len() == 1 || term.len() == 3 && term[1].kind == TokenKind::Sign(b'.');
        is_name && self.columns.get(&lower(term.last())).is_some_and(is_so)
    }

    fn is_default_of_boolean(&self, at: usize) -> bool {
        let is_comma = |at: &usize| self.is_sign(*at, b',');
        self.before(at, 1) == "default"
            && self
                .back(at)
                .into_iter()
                .take_while(|at| !is_comma(at))
                .any(|at| has("bool boolean", &self.word(at)))
    }

    /// Whether a term of ORDER BY at `at` may be NULL, and does not say where that is sorted.
    fn may_sort_nulls(&self, at: usize) -> bool {
        let others = "right full union except intersect";
        let has_others = self.tokens.iter().any(|token| has(others, token.text));
        let is_solid = |term: &[Token<'_>]| {
            let end = term.iter().take_while(|it| !has("collate asc desc", it.text)).count();
            let is_count = term.first().is_some_and(|it| it.is_word("count"))
                && clauses::closing(term, 1) + 1 == end;
            is_count || !has_others && self.is_never_null(&term[..end])
        };
        split(self.rest(at + 2, "limit rows range groups"))
            .into_iter()
            .any(|term| !term.iter().any(|it| it.is_word("nulls")) && !is_solid(term))
    }

    /// Whether a term is a column that is never NULL, and of no table behind LEFT JOIN.
    fn is_never_null(&self, term: &[Token<'_>]) -> bool {
        let (name, mut column) = (lower(term.last()), term);
        let is_alias =
            |at: &usize| self.word(*at) == "as" && lower(self.tokens.get(at + 1)) == name;
        if term.len() == 1
            && let Some(alias) = (1..self.tokens.len()).find(is_alias)
        {
            let start = if self.is_sign(alias.wrapping_sub(2), b'.') { 3 } else { 1 };
            column = &self.tokens[alias.saturating_sub(start)..alias];
            let before = self.tokens[..alias.saturating_sub(start)].last();
            if !before.is_some_and(|it| {
                it.kind == TokenKind::Sign(b',') || has("select distinct", it.text)
            }) {
                return false;
            }
        }
        let is_left = |at: &usize| {
            let join = at + 1 + usize::from(self.word(at + 1) == "outer");
            let table = self.rest(join + 1, "on using join left");
            self.word(*at) == "left" && lower(table.last()) == lower(column.first())
        };
        let mut lefts = (0..self.tokens.len()).filter(|at| self.word(*at) == "left").peekable();
        let is_of_left =
            lefts.peek().is_some() && (column.len() == 1 || lefts.any(|at| is_left(&at)));
        !is_of_left && self.is_column(column, |column| column.are_never_null)
    }

    /// Whether JOIN at `at` has neither ON nor USING.
    fn has_no_condition(&self, at: usize) -> bool {
        let ends = "join left right full inner cross natural where group order limit union except \
                    intersect returning set";
        let is_without = |word: &str| has("cross natural", word);
        !(1..=3).any(|distance| is_without(&self.before(at, distance)))
            && !self.rest(at + 1, ends).iter().any(|it| it.is_word("on") || it.is_word("using"))
    }

    /// Terms of an ORDER BY that are not in SELECT DISTINCT at `at`.
    fn distinct(&mut self, at: usize) {
        let last = |term: &[Token<'_>]| {
            let end = term.iter().take_while(|it| !has("collate asc desc nulls", it.text)).count();
            lower(term[..end].last())
        };
        let items = split(self.rest(at + 1, "from"));
        let star = TokenKind::Sign(b'*');
        let has_all = items.iter().any(|item| item.last().is_some_and(|it| it.kind == star));
        let items: Vec<String> = items.into_iter().map(last).collect();
        let count = self.rest(at, "union except intersect").len();
        let is_order = |by: &usize| {
            self.word(*by) == "by" && self.before(*by, 1) == "order" && self.back(*by).contains(&at)
        };
        let Some(order) = (at..at + count).find(is_order).filter(|_| !has_all) else { return };
        let names: Vec<String> =
            split(self.rest(order + 1, "limit")).into_iter().map(last).collect();
        if names.iter().any(|name| !name.is_empty() && !items.contains(name)) {
            self.add(order - 1, "distinct");
        }
    }

    /// Whether SELECT at `at` is behind FROM or JOIN, in parentheses without an alias.
    fn is_subquery(&self, at: usize) -> bool {
        let behind = at + self.rest(at, "").len() + 1;
        let ends = "on using join left right full inner cross natural where group order limit \
                    union except intersect window having returning";
        let is_end = self.tokens.get(behind).is_none_or(|it| {
            matches!(it.kind, TokenKind::Sign(_)) || has(ends, &self.word(behind))
        });
        let is_behind = has("from join", &self.before(at, 2)) && self.before(at, 3) != "distinct";
        self.is_sign(at.wrapping_sub(1), b'(') && is_behind && is_end
    }

    /// Whether LIMIT or ORDER at `at` is of a recursive query.
    fn is_recursive(&self, at: usize) -> bool {
        let before = self.back(at);
        before.last().is_some_and(|open| self.before(*open, 1) == "as")
            && before.iter().any(|at| self.word(*at) == "union")
            && self.tokens.iter().any(|it| it.is_word("recursive"))
    }

    fn limit(&mut self, at: usize) {
        let is_end = |token: &Token<'_>| matches!(token.kind, TokenKind::Sign(b')' | b';'));
        let rest = self.tokens[at..].iter().take_while(|token| !is_end(token));
        let has_comma = rest.clone().any(|token| token.kind == TokenKind::Sign(b','));
        if has_comma || self.is_sign(at + 1, b'-') {
            self.add(at, "limit");
        }
    }

    /// Whether what is in double quotes at `at` stands where a value does, and is no column.
    fn is_string(&self, at: usize) -> bool {
        let name = self.tokens[at].name().unwrap_or_default().to_lowercase();
        let before = at.checked_sub(1).map(|at| self.tokens[at]);
        let is_value = before.is_some_and(|token| match token.kind {
            TokenKind::Sign(sign) => matches!(sign, b'=' | b'<' | b'>' | b'|' | b'('),
            TokenKind::Word => has("like in then else values default and or", token.text),
            _ => false,
        });
        let is_in_values = self.tokens[..at].iter().any(|token| token.is_word("values"));
        let is_listed = before.is_some_and(|token| token.kind == TokenKind::Sign(b','));
        let is_part = self.is_sign(at + 1, b'.');
        let is_of_list =
            self.word(0) == "create" && before.is_some_and(|it| it.kind == TokenKind::Sign(b'('));
        let columns = &self.columns;
        let is_known = columns.contains_key(&name) || columns.is_empty() && !is_in_values;
        !is_known && !is_part && !is_of_list && (is_value || is_listed && is_in_values)
    }

    fn sign(&mut self, at: usize, sign: u8) {
        let touches = |other: u8| {
            self.is_sign(at + 1, other) && self.tokens[at + 1].at == self.tokens[at].at + 1
        };
        let is_number = |at: usize, least: f64, most: f64| {
            let number = self.tokens.get(at).map(|it| it.text.replace('_', "").parse::<f64>());
            matches!(number, Some(Ok(number)) if number >= least && number <= most)
        };
        match sign {
            b'=' if touches(b'=') => self.add(at, "equals"),
            b'-' if touches(b'>') => self.add(at, "json"),
            b'/' | b'%' if self.word(at + 1) != "nullif" && !is_number(at + 1, 1e-99, f64::MAX) => {
                self.add(at, "division");
            }
            b'|' if touches(b'|') && self.is_beside_arithmetic(at) => self.add(at, "precedence"),
            b'|' if touches(b'|') && self.has_no_text(at) => self.add(at, "concatenation"),
            b'<' | b'>'
                if touches(sign)
                    && !self.is_sign(at.wrapping_sub(1), b'-')
                    && !is_number(at + 2, 0.0, 31.0) =>
            {
                self.add(at, "shift");
            }
            _ => {}
        }
    }

    /// Whether both sides of `||` are known to be no texts.
    fn has_no_text(&self, at: usize) -> bool {
        let is_none = |at: Option<usize>| {
            at.and_then(|at| self.tokens.get(at)).is_some_and(|token| match token.kind {
                TokenKind::Number => true,
                TokenKind::Word => {
                    let column = self.columns.get(&token.text.to_lowercase());
                    column.is_some_and(|column| !column.is_text)
                }
                _ => false,
            })
        };
        is_none(at.checked_sub(1)) && is_none(Some(at + 2))
    }

    /// Columns of the SELECT of GROUP BY at `group` that are not in it.
    fn group(&mut self, group: usize) {
        let terms = self.rest(group + 2, "having order limit union except intersect window");
        // By the places of columns.
        if terms.first().is_some_and(|it| it.kind == TokenKind::Number) {
            return;
        }
        let before = self.back(group);
        let place = |word| before.iter().copied().find(|at| self.word(*at) == word);
        let (Some(select), Some(from)) = (place("select"), place("from")) else { return };
        let name = |term: &[Token<'_>]| {
            let is_sign = |it: &&Token<'_>| matches!(it.kind, TokenKind::Sign(b'(' | b')'));
            let bare: Vec<_> = term.iter().filter(|it| !is_sign(it)).collect();
            let is_dot = |it: &Token<'_>| it.kind == TokenKind::Sign(b'.');
            let is_name = bare.len() == 1 || bare.len() == 3 && is_dot(bare[1]);
            is_name.then(|| lower(bare.last().copied()))
        };
        let grouped: Vec<String> = split(terms).into_iter().filter_map(name).collect();
        // With its key, all columns of a table are.
        let is_comma = |token: &Token<'_>| token.kind == TokenKind::Sign(b',');
        let is_joined =
            self.tokens[from..group].iter().any(|it| it.is_word("join") || is_comma(it));
        let mut keys = split(terms);
        keys.retain(|term| {
            let column = self.columns.get(&lower(term.last()));
            column.is_some_and(|column| column.are_keys) && (term.len() == 3 || !is_joined)
        });
        let mut found = Vec::new();
        for item in split(&self.tokens[(select + 1).min(from)..from]) {
            let end = item.iter().position(|token| token.is_word("as")).unwrap_or(item.len());
            let is_column = end == 1 || end == 3 && item[1].kind == TokenKind::Sign(b'.');
            let (name, alias) = (lower(item[..end].last()), lower(item.last()));
            if is_column
                && !name.is_empty()
                && !grouped.contains(&name)
                && !grouped.contains(&alias)
                && !keys.iter().any(|key| {
                    end == key.len() && (end == 1 || lower(key.first()) == lower(item.first()))
                })
            {
                found.extend(self.tokens.iter().position(|token| token.at == item[0].at));
            }
        }
        found.into_iter().for_each(|at| self.add(at, "bare-column"));
    }
}
