//! Owns what the text of a schema says and no pragma tells: CHECKs, collations, expressions, what
//! is deferred. The text is one that SQLite has accepted.

use monolite_sqlite::{Scan, Token, TokenKind};
use std::collections::HashMap;

/// Such clauses of a table.
#[derive(Default)]
pub(super) struct Clauses {
    /// Conditions of rows, with their names.
    pub(super) checks: Vec<(Option<String>, String)>,
    /// Collations other than the default, by the column's name in lower case.
    pub(super) collations: HashMap<String, String>,
    /// The expressions of generated columns, likewise.
    pub(super) generated: HashMap<String, String>,
    /// Foreign keys, in the order of the text.
    pub(super) references: Vec<Reference>,
    /// `ON CONFLICT` clauses.
    pub(super) resolutions: Vec<String>,
    pub(super) is_autoincrement: bool,
}

/// When a foreign key is enforced.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Reference {
    #[default]
    Immediate,
    Deferrable,
    Deferred,
}

/// The tokens of a text, without blanks.
pub(crate) fn tokens(sql: &str) -> Vec<Token<'_>> {
    Scan::of(sql).filter(|token| token.kind != TokenKind::Blank).collect()
}

/// The number of the token that closes the parenthesis at `open`.
pub(crate) fn closing(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            TokenKind::Sign(b'(') => depth += 1,
            TokenKind::Sign(b')') if depth == 1 => return at,
            TokenKind::Sign(b')') => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The parts between commas that are in no parentheses.
pub(crate) fn split<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let mut depth = 0_i32;
    let is_comma = |token: &Token<'_>| {
        match token.kind {
            TokenKind::Sign(b'(') => depth += 1,
            TokenKind::Sign(b')') => depth -= 1,
            _ => {}
        }
        depth == 0 && token.kind == TokenKind::Sign(b',')
    };
    tokens.split(is_comma).collect()
}

/// The places of what gives one of several values, of which some may be integers and some reals.
/// `of` says of a name whether it may be the one, and the other.
pub(crate) fn mixtures<'s>(
    tokens: &[Token<'s>],
    of: impl Fn(&Token<'s>) -> (bool, bool),
) -> Vec<usize> {
    let is_dot = |token: &Token<'_>| token.kind == TokenKind::Sign(b'.');
    let numbers = |part: &[Token<'s>]| {
        let of_token = |(at, token): (usize, &Token<'s>)| match token.kind {
            TokenKind::Number => {
                let is_hex = token.text.to_ascii_lowercase().starts_with("0x");
                let is_real = !is_hex && token.text.contains(['.', 'e', 'E']);
                (!is_real, is_real)
            }
            TokenKind::Word | TokenKind::Quoted if !part.get(at + 1).is_some_and(is_dot) => {
                match token.text.to_ascii_lowercase().as_str() {
                    "count" | "length" => (true, false),
                    "avg" | "total" | "real" | "double" | "float" => (false, true),
                    _ => of(token),
                }
            }
            _ => (false, false),
        };
        let all: Vec<_> = part.iter().enumerate().map(of_token).collect();
        // Arithmetic with a real is real.
        let is_real = all.contains(&(false, true)) && !part.iter().any(|it| it.is_word("when"));
        (all.iter().any(|it| it.0) && !is_real, all.iter().any(|it| it.1))
    };
    let is_mixture = |at: &usize| {
        let parts = match tokens[*at].text.to_ascii_lowercase().as_str() {
            "case" => branches(&tokens[at + 1..]),
            "coalesce" | "ifnull" | "nullif" if is_open(tokens.get(at + 1)) => {
                split(&tokens[at + 2..closing(tokens, at + 1)])
            }
            // Between the value and its default is how far away the row is.
            "lag" | "lead" if is_open(tokens.get(at + 1)) => {
                let arguments = split(&tokens[at + 2..closing(tokens, at + 1)]);
                arguments.into_iter().step_by(2).collect()
            }
            _ => return false,
        };
        let all: Vec<_> = parts.into_iter().map(numbers).filter(|it| it.0 || it.1).collect();
        all.len() > 1 && all.iter().any(|it| it.0) && all.iter().any(|it| it.1)
    };
    (0..tokens.len()).filter(is_mixture).collect()
}

/// The values of the CASE before these tokens.
pub(super) fn branches<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let (mut depth, mut start, mut branches) = (0_usize, None, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let word = token.text.to_ascii_lowercase();
        match word.as_str() {
            "case" => depth += 1,
            "end" if depth > 0 => depth -= 1,
            "when" | "then" | "else" | "end" if depth == 0 => {
                branches.extend(start.take().map(|start| &tokens[start..at]));
                match word.as_str() {
                    "end" => break,
                    "when" => {}
                    _ => start = Some(at + 1),
                }
            }
            _ => {}
        }
    }
    branches
}

/// The text from the first to the last of these tokens.
fn text(sql: &str, tokens: &[Token<'_>]) -> String {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return String::new() };
    sql[first.at..last.at + last.text.len()].to_owned()
}

pub(super) fn is_open(token: Option<&Token<'_>>) -> bool {
    token.is_some_and(|token| token.kind == TokenKind::Sign(b'('))
}

/// Those of a `CREATE TABLE`.
pub(super) fn of_table(sql: &str) -> Clauses {
    let (tokens, mut clauses) = (tokens(sql), Clauses::default());
    let Some(open) = tokens.iter().position(|token| is_open(Some(token))) else { return clauses };
    for definition in split(&tokens[open + 1..closing(&tokens, open)]) {
        clauses.take(sql, definition);
    }
    clauses
}

impl Clauses {
    /// Takes those of a column, or of a constraint of the table.
    fn take(&mut self, sql: &str, definition: &[Token<'_>]) {
        let starts = ["constraint", "primary", "unique", "check", "foreign"];
        let Some(first) = definition.first() else { return };
        let is_constraint = starts.iter().any(|word| first.is_word(word));
        let column = first.name().unwrap_or_default().to_lowercase();
        let (mut at, mut name) = (usize::from(!is_constraint), None);
        while let Some(token) = definition.get(at) {
            let next = definition.get(at + 1);
            let word = token.text.to_ascii_lowercase();
            let is_word = token.kind == TokenKind::Word;
            match word.as_str() {
                "(" => at = closing(definition, at),
                "constraint" if is_word => {
                    (name, at) = (next.and_then(Token::name), at + 1);
                }
                "check" | "as" if is_word && is_open(next) => {
                    let end = closing(definition, at + 1);
                    let inner = text(sql, &definition[at + 2..end.min(definition.len())]);
                    match word.as_str() {
                        "check" => self.checks.push((name.take(), inner)),
                        _ => drop(self.generated.insert(column.clone(), inner)),
                    }
                    at = end;
                }
                "collate" if is_word => {
                    let collation = next.and_then(Token::name).unwrap_or_default();
                    self.collations.insert(column.clone(), collation.to_ascii_uppercase());
                    at += 1;
                }
                "references" if is_word => self.references.push(Reference::Immediate),
                "deferrable" if is_word && !definition[at - 1].is_word("not") => {
                    let is_deferred =
                        definition.get(at + 2).is_some_and(|it| it.is_word("deferred"));
                    if let Some(last) = self.references.last_mut() {
                        *last = match is_deferred {
                            true => Reference::Deferred,
                            false => Reference::Deferrable,
                        };
                    }
                }
                "conflict" if is_word && definition[at - 1].is_word("on") => {
                    let way = next.map_or("", |token| token.text).to_ascii_uppercase();
                    // ABORT is the default, and what PostgreSQL does.
                    self.resolutions.extend((way != "ABORT").then(|| format!("ON CONFLICT {way}")));
                }
                "autoincrement" if is_word => self.is_autoincrement = true,
                _ => {}
            }
            at += 1;
        }
    }
}

/// The parts of a `CREATE INDEX`, without their collation and direction, and its condition.
pub(super) fn of_index(sql: &str) -> (Vec<String>, Option<String>) {
    let tokens = tokens(sql);
    let Some(open) = tokens.iter().position(|token| is_open(Some(token))) else {
        return Default::default();
    };
    let close = closing(&tokens, open);
    let part = |part: &[Token<'_>]| {
        let mut end = part.len();
        if end > 1 && (part[end - 1].is_word("asc") || part[end - 1].is_word("desc")) {
            end -= 1;
        }
        if end > 2 && part[end - 2].is_word("collate") {
            end -= 2;
        }
        text(sql, &part[..end])
    };
    let condition = tokens.get(close + 2..).filter(|tokens| !tokens.is_empty());
    let parts = split(&tokens[open + 1..close]).into_iter().map(part).collect();
    (parts, condition.map(|tokens| text(sql, tokens)))
}

/// The query of a `CREATE VIEW`, whose columns are known otherwise.
pub(super) fn of_view(sql: &str) -> String {
    let tokens = tokens(sql);
    let is_start = |token: &Token<'_>| token.is_word("as");
    let mut at = 0;
    while at < tokens.len() && !is_start(&tokens[at]) {
        at = if is_open(tokens.get(at)) { closing(&tokens, at) + 1 } else { at + 1 };
    }
    text(sql, tokens.get(at + 1..).unwrap_or_default())
}

/// The module of a `CREATE VIRTUAL TABLE`.
pub(super) fn module(sql: &str) -> String {
    let mut words = tokens(sql).into_iter().skip_while(|token| !token.is_word("using"));
    words.nth(1).map_or_else(String::new, |token| token.text.to_ascii_lowercase())
}
