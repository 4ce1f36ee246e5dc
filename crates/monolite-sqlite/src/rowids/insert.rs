//! Owns the reading of an `INSERT` that names its values, and its second form, in which the key is
//! said.
//!
//! # Algorithm
//! SQLite is the parser: a text is only looked at here that it has prepared, or will before the
//! second form is used. So it is enough to cut the text into tokens, and to find in them, in this
//! order, what the grammar of a simple `INSERT` has: the verb, the table, the columns, and the
//! values, which are parted by commas outside of parentheses. What was found is not printed again:
//! the second form is the text itself with a few pieces put into it, so all that the application
//! can see of it (names of columns, numbers of parameters) is what it was.
//!
//! # Invariants
//! - Whatever is not known for certain is no [`Insert`]: another statement behind it, a token that
//!   SQLite may end elsewhere, a `SELECT`, a `WITH`, another schema than `main`.

use std::fmt::Write as _;
use std::ops::Range;

use super::FUNCTION;
use crate::names::quoted;
use crate::scan::{Scan, Token, TokenKind};
use crate::verb::has_word;

/// The tokens of `sql` without blanks; `None` where SQLite may cut it otherwise.
fn tokens(sql: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    for token in Scan::of(sql) {
        let text = token.text;
        let is_certain = match token.kind {
            TokenKind::Blank if text.starts_with("/*") => text.len() > 3 && text.ends_with("*/"),
            // To SQLite a byte order mark is one where it begins a token.
            TokenKind::Blank => text != "\u{feff}",
            // Those of Tcl can have parentheses.
            TokenKind::Parameter => {
                text.starts_with('?') || text.len() > 1 && !text[1..].contains(['(', ':'])
            }
            // An end of the text to SQLite.
            TokenKind::Sign(0) | TokenKind::Unended => false,
            _ => true,
        };
        if !is_certain {
            return None;
        }
        if token.kind != TokenKind::Blank {
            tokens.push(token);
        }
    }
    Some(tokens)
}

/// What stands in the place of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Null,
    Parameter,
    Other,
}

#[derive(Clone, Debug)]
struct Value {
    at: Range<usize>,
    said: Said,
}

impl Value {
    fn of(tokens: &[Token<'_>]) -> Option<Value> {
        let (first, last) = (tokens.first()?, tokens.last()?);
        let said = match first.kind {
            _ if tokens.len() > 1 => Said::Other,
            _ if first.is_word("NULL") => Said::Null,
            TokenKind::Parameter => Said::Parameter,
            _ => Said::Other,
        };
        Some(Value { at: first.at..last.end(), said })
    }
}

#[derive(Clone, Debug)]
enum Body {
    /// `DEFAULT VALUES`, and where that stands.
    Default(Range<usize>),
    Rows(Vec<Vec<Value>>),
}

/// A simple `INSERT`.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub(crate) table: String,
    /// Whether a row that is there may go, or be changed, for one that comes.
    pub(crate) may_change_others: bool,
    /// Where the columns can be named: behind the table and its other name.
    behind_table: usize,
    columns: Option<Vec<(String, usize)>>,
    body: Body,
}

/// Where the key of a table is to be said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'k> {
    /// Names of it; the first is used where one has to be said.
    pub(crate) names: &'k [&'k str],
    /// The columns that get a value where none is named.
    pub(crate) columns: &'k [String],
}

/// Reads the tokens of a statement in their order.
struct Reader<'s> {
    tokens: Vec<Token<'s>>,
    next: usize,
}

impl<'s> Reader<'s> {
    fn peek(&self) -> Option<&Token<'s>> {
        self.tokens.get(self.next)
    }

    fn is(&self, word: &str) -> bool {
        self.peek().is_some_and(|token| token.is_word(word))
    }

    /// Goes on if this word is next.
    fn take(&mut self, word: &str) -> bool {
        let is_there = self.is(word);
        self.next += usize::from(is_there);
        is_there
    }

    fn take_sign(&mut self, sign: u8) -> bool {
        let is_there = self.peek().is_some_and(|token| token.kind == TokenKind::Sign(sign));
        self.next += usize::from(is_there);
        is_there
    }

    /// A name, and where it stands.
    fn name(&mut self) -> Option<(String, Range<usize>)> {
        let token = *self.peek()?;
        let name = token.name()?;
        self.next += 1;
        Some((name, token.at..token.end()))
    }

    fn columns(&mut self) -> Option<Vec<(String, usize)>> {
        let mut columns = Vec::new();
        loop {
            let (name, at) = self.name()?;
            columns.push((name, at.start));
            if self.take_sign(b')') {
                return Some(columns);
            }
            if !self.take_sign(b',') {
                return None;
            }
        }
    }

    /// The values of one row, behind its parenthesis.
    fn row(&mut self) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        loop {
            let first = self.next;
            let mut depth = 0_usize;
            let is_last = loop {
                let token = self.peek()?;
                match token.kind {
                    TokenKind::Sign(b'(') => depth += 1,
                    TokenKind::Sign(b')') if depth == 0 => break true,
                    TokenKind::Sign(b')') => depth -= 1,
                    TokenKind::Sign(b',') if depth == 0 => break false,
                    TokenKind::Sign(b';') => return None,
                    _ => {}
                }
                self.next += 1;
            };
            values.push(Value::of(&self.tokens[first..self.next])?);
            self.next += 1;
            if is_last {
                return Some(values);
            }
        }
    }

    fn rows(&mut self) -> Option<Vec<Vec<Value>>> {
        let mut rows = Vec::new();
        loop {
            if !self.take_sign(b'(') {
                return None;
            }
            rows.push(self.row()?);
            if !self.take_sign(b',') {
                return Some(rows);
            }
        }
    }

    /// Whether nothing follows, or what ends an `INSERT`, and no other statement.
    fn is_end(&self) -> bool {
        let rest = &self.tokens[self.next..];
        let ends = |token: &Token<'_>| token.kind == TokenKind::Sign(b';');
        let statement = rest.iter().position(ends).unwrap_or(rest.len());
        let is_last = rest[statement..].iter().all(ends);
        is_last && (statement == 0 || self.is("ON") || self.is("RETURNING"))
    }
}

impl Insert {
    /// Reads `sql`; `None` when it is something else, or not certain.
    pub(crate) fn read(sql: &str) -> Option<Insert> {
        if has_word(sql, FUNCTION) {
            return None;
        }
        let mut reader = Reader { tokens: tokens(sql)?, next: 0 };
        let mut may_change_others = reader.take("REPLACE");
        if !may_change_others {
            if !reader.take("INSERT") {
                return None;
            }
            if reader.take("OR") {
                may_change_others = reader.is("REPLACE");
                let known = ["ROLLBACK", "ABORT", "FAIL", "IGNORE", "REPLACE"];
                if !known.iter().any(|word| reader.take(word)) {
                    return None;
                }
            }
        }
        if !reader.take("INTO") {
            return None;
        }
        let (mut table, mut at) = reader.name()?;
        if reader.take_sign(b'.') {
            if !table.eq_ignore_ascii_case("main") {
                return None;
            }
            (table, at) = reader.name()?;
        }
        if reader.take("AS") {
            (_, at) = reader.name()?;
        }
        let behind_table = at.end;
        let columns = if reader.take_sign(b'(') { Some(reader.columns()?) } else { None };
        let body = if reader.is("DEFAULT") {
            let start = reader.peek()?.at;
            reader.next += 1;
            let end = reader.peek()?.end();
            if columns.is_some() || !reader.take("VALUES") {
                return None;
            }
            Body::Default(start..end)
        } else if reader.take("VALUES") {
            Body::Rows(reader.rows()?)
        } else {
            return None;
        };
        may_change_others |= reader.is("ON");
        let insert = Insert { table, may_change_others, behind_table, columns, body };
        reader.is_end().then_some(insert)
    }

    /// How many rows it inserts, unless one is refused or ignored.
    pub(crate) fn rows(&self) -> usize {
        match &self.body {
            Body::Default(_) => 1,
            Body::Rows(rows) => rows.len(),
        }
    }

    /// The same statement `sql` with its `key` said by [`FUNCTION`], whose argument is what stands
    /// there. `None` where the application says the key itself, or may.
    pub(crate) fn with_key(&self, sql: &str, key: Key<'_>) -> Option<String> {
        let is_key = |name: &str| key.names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let mut pieces = Pieces::default();
        let named = match &self.columns {
            Some(named) => named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            None => key.columns.iter().map(String::as_str).collect(),
        };
        let mut places = (0..named.len()).filter(|place| is_key(named[*place]));
        let place = places.next();
        if places.next().is_some() {
            return None;
        }
        match (place, &self.body) {
            (_, Body::Default(at)) => {
                let name = quoted(key.names.first()?);
                pieces.replace(at.clone(), format!("({name}) VALUES ({FUNCTION}(NULL))"));
            }
            (Some(place), Body::Rows(rows)) => {
                // A key that the application says may be the number of another row.
                let is_left =
                    |said: Said| said == Said::Null || (said == Said::Parameter && rows.len() == 1);
                for row in rows {
                    let value = row.get(place).filter(|value| is_left(value.said))?;
                    pieces.put(value.at.start, format!("{FUNCTION}("));
                    pieces.put(value.at.end, ")".into());
                }
            }
            (None, Body::Rows(rows)) => {
                let name = quoted(key.names.first()?);
                match &self.columns {
                    Some(named) => pieces.put(named.first()?.1, format!("{name}, ")),
                    None => {
                        let mut list = format!("({name}");
                        for column in key.columns {
                            let _ = write!(list, ", {}", quoted(column));
                        }
                        pieces.put(self.behind_table, format!("{list}) "));
                    }
                }
                for row in rows {
                    pieces.put(row.first()?.at.start, format!("{FUNCTION}(NULL), "));
                }
            }
        }
        Some(pieces.into(sql))
    }
}

/// What is to be put into a text, in ascending order.
#[derive(Default)]
struct Pieces(Vec<(Range<usize>, String)>);

impl Pieces {
    fn put(&mut self, at: usize, piece: String) {
        self.replace(at..at, piece);
    }

    fn replace(&mut self, at: Range<usize>, piece: String) {
        self.0.push((at, piece));
    }

    fn into(self, sql: &str) -> String {
        let (mut text, mut from) = (String::with_capacity(sql.len() + 64), 0);
        for (at, piece) in self.0 {
            text.push_str(&sql[from..at.start]);
            text.push_str(&piece);
            from = at.end;
        }
        text.push_str(&sql[from..]);
        text
    }
}

/// Whether the definition of a trigger says that it runs behind what fires it, or that nothing
/// fires it but a `DELETE` or an `UPDATE`.
pub(crate) fn leaves_new_rows_alone(definition: &str) -> bool {
    let Some(tokens) = tokens(definition) else { return false };
    let mut reader = Reader { tokens, next: 0 };
    if !reader.take("CREATE") || !reader.take("TRIGGER") || reader.name().is_none() {
        return false;
    }
    if reader.take_sign(b'.') && reader.name().is_none() {
        return false;
    }
    if reader.take("AFTER") {
        return true;
    }
    reader.take("BEFORE");
    reader.is("DELETE") || reader.is("UPDATE")
}

#[cfg(test)]
mod tests;
