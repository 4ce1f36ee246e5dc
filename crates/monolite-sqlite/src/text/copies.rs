//! Owns how much of a text SQLite has twice: it puts a copy of a result column wherever its name
//! (`SELECT a = 1 OR a = 2 x … WHERE x AND x`) or its number (`GROUP BY 1`) is said, and asks
//! nobody about the copies.
//!
//! # Algorithm
//! A name behind an operand or behind `AS` may be that of a result column, which has the tokens
//! since the last comma or `SELECT` around it. From there on each name that is an operand, and not
//! qualified, may stand for all of them, and each number in a list behind `BY` for the longest
//! column there is.

use std::collections::HashMap;

use super::{KEYWORDS, Scan, Token, is_one_of};

/// Words behind which there is an operand, besides the [`KEYWORDS`]; they may be names, too.
const BEFORE_OPERANDS: &[&str] =
    &["all", "by", "escape", "glob", "like", "match", "offset", "regexp", "returning"];

/// What ends the list of result columns. No name can be one of these that is not quoted.
const END_OF_COLUMNS: &[&str] =
    &["except", "from", "group", "having", "intersect", "limit", "order", "union", "where"];

/// How many tokens the copies have that SQLite makes of result columns of `sql`, at most.
pub(crate) fn copies(sql: &str) -> usize {
    let mut walk = Walk::default();
    let (mut before, mut mentioned) = (Token::Comma, None);
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        if let Some(name) = mentioned.take().filter(|_| token != Token::Dot) {
            walk.copy_of(name);
        }
        walk.take(token, before);
        mentioned = match token {
            Token::Word(name) | Token::Quoted(name) if may_be_operand(token, before) => Some(name),
            _ => None,
        };
        before = token;
    }
    if let Some(name) = mentioned {
        walk.copy_of(name);
    }
    walk.copied
}

/// What is known within a parenthesis, or outside of all.
#[derive(Clone, Copy, Default)]
struct Level {
    /// How many tokens there were before the result column that is read.
    start: Option<usize>,
    /// Whether a list behind `BY` is read.
    is_by: bool,
}

#[derive(Default)]
struct Walk {
    level: Level,
    outer: Vec<Level>,
    tokens: usize,
    /// The tokens of result columns, by their names in lower case.
    named: HashMap<String, usize>,
    longest: usize,
    copied: usize,
}

impl Walk {
    fn take(&mut self, token: Token<'_>, before: Token<'_>) {
        match token {
            Token::Open => {
                self.outer.push(self.level);
                self.level.start = None;
            }
            Token::Close => {
                self.end_of_column();
                self.level = self.outer.pop().unwrap_or_default();
            }
            Token::Comma if self.level.start.is_some() => {
                self.end_of_column();
                self.level.start = Some(self.tokens + 1);
            }
            Token::Value if self.level.is_by => {
                self.copied = self.copied.saturating_add(self.longest);
            }
            Token::Word(word) if word.eq_ignore_ascii_case("select") => {
                self.level = Level { start: Some(self.tokens + 1), is_by: false };
            }
            Token::Word(word) if word.eq_ignore_ascii_case("by") => self.level.is_by = true,
            // `IS DISTINCT FROM` ends nothing.
            Token::Word(word) if is_one_of(END_OF_COLUMNS, word) && !is(before, "distinct") => {
                self.end_of_column();
                self.level = Level::default();
            }
            _ => {}
        }
        if let Some(name) = token.name().filter(|_| may_be_alias(token, before)) {
            self.define(name);
        }
        self.tokens += 1;
    }

    fn length(&self) -> usize {
        self.level.start.map_or(0, |start| self.tokens - start)
    }

    fn end_of_column(&mut self) {
        self.longest = self.longest.max(self.length());
        self.level.start = None;
    }

    fn define(&mut self, name: &str) {
        let length = self.length();
        let known = self.named.entry(name.to_ascii_lowercase()).or_default();
        *known = length.max(*known);
    }

    /// `name` may be that of a result column.
    fn copy_of(&mut self, name: &str) {
        let length = self.named.get(&name.to_ascii_lowercase()).copied().unwrap_or(0);
        self.copied = self.copied.saturating_add(length);
    }
}

fn is(token: Token<'_>, known: &str) -> bool {
    matches!(token, Token::Word(word) if word.eq_ignore_ascii_case(known))
}

fn is_keyword(token: Token<'_>) -> bool {
    matches!(token, Token::Word(word) if is_one_of(KEYWORDS, word)) && !is(token, "null")
}

/// Whether `token` can be an operand where it stands, behind the token `before`.
fn may_be_operand(token: Token<'_>, before: Token<'_>) -> bool {
    let follows = match before {
        Token::Word(_) if is(before, "as") => false,
        Token::Word(word) => is_keyword(before) || is_one_of(BEFORE_OPERANDS, word),
        Token::Star | Token::Open | Token::Comma | Token::Semicolon | Token::Other => true,
        _ => false,
    };
    follows && !is_keyword(token)
}

/// Whether `token` can be the name of what is before it.
fn may_be_alias(token: Token<'_>, before: Token<'_>) -> bool {
    let follows = match before {
        Token::Word(_) => is(before, "as") || !is_keyword(before),
        Token::Quoted(_) | Token::Text(_) | Token::Close | Token::Value | Token::Parameter => true,
        _ => false,
    };
    follows && !is_keyword(token)
}
