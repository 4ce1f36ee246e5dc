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
use crate::verb::has_word;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A keyword, a name without quotes, a number.
    Word,
    /// A name in double quotes, brackets or backticks.
    Quoted,
    /// A string, which is a name where only a name can be.
    Text,
    Parameter,
    Sign(u8),
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    at: Range<usize>,
}

/// The tokens of `sql` without blanks and comments; `None` where SQLite may cut it otherwise.
fn tokens(sql: &str) -> Option<Vec<Token>> {
    let bytes = sql.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, length) = match rest[0] {
            b'\t'..=b'\r' | b' ' => (None, 1),
            b'-' if rest.starts_with(b"--") => {
                (None, rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()))
            }
            b'/' if rest.starts_with(b"/*") => {
                (None, rest[2..].windows(2).position(|end| end == b"*/")? + 4)
            }
            b'\'' => (Some(Kind::Text), quoted(rest)?),
            b'"' | b'`' => (Some(Kind::Quoted), quoted(rest)?),
            b'[' => (Some(Kind::Quoted), rest.iter().position(|byte| *byte == b']')? + 1),
            b'?' => (Some(Kind::Parameter), 1 + run(&rest[1..], |byte| byte.is_ascii_digit())),
            b':' | b'@' | b'$' | b'#' => (Some(Kind::Parameter), named_parameter(rest)?),
            byte if is_of_word(byte) => (Some(Kind::Word), run(rest, is_of_word)),
            // An end of the text to SQLite.
            0 => return None,
            byte => (Some(Kind::Sign(byte)), 1),
        };
        if let Some(kind) = kind {
            tokens.push(Token { kind, at: at..at + length });
        }
        at += length;
    }
    // A byte order mark is a blank to SQLite, where it begins a token.
    let is_marked = tokens.iter().any(|token| sql[token.at.clone()].starts_with('\u{feff}'));
    (!is_marked).then_some(tokens)
}

fn run(bytes: &[u8], is_of_it: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is_of_it(*byte)).unwrap_or(bytes.len())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The length of what stands in quotes, in which a doubled quote is one of the text.
fn quoted(rest: &[u8]) -> Option<usize> {
    let quote = rest[0];
    let mut at = 1;
    loop {
        at += rest.get(at..)?.iter().position(|byte| *byte == quote)? + 1;
        if rest.get(at) != Some(&quote) {
            return Some(at);
        }
        at += 1;
    }
}

/// The length of a parameter with a name; `None` for those of Tcl, which can have parentheses.
fn named_parameter(rest: &[u8]) -> Option<usize> {
    let length = 1 + run(&rest[1..], is_of_word);
    let goes_on = matches!(rest.get(length), Some(b'(' | b':'));
    (length > 1 && !goes_on).then_some(length)
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
    sql: &'s str,
    tokens: Vec<Token>,
    next: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn text(&self, token: &Token) -> &str {
        &self.sql[token.at.clone()]
    }

    fn is(&self, word: &str) -> bool {
        let is = |it: &Token| it.kind == Kind::Word && self.text(it).eq_ignore_ascii_case(word);
        self.peek().is_some_and(is)
    }

    fn is_sign(&self, sign: u8) -> bool {
        self.peek().is_some_and(|token| token.kind == Kind::Sign(sign))
    }

    /// Goes on if this word is next.
    fn take(&mut self, word: &str) -> bool {
        let is_there = self.is(word);
        self.next += usize::from(is_there);
        is_there
    }

    fn take_sign(&mut self, sign: u8) -> bool {
        let is_there = self.is_sign(sign);
        self.next += usize::from(is_there);
        is_there
    }

    /// A name, and where it stands.
    fn name(&mut self) -> Option<(String, Range<usize>)> {
        let token = self.peek()?.clone();
        let text = self.text(&token);
        let inner = || text.get(1..text.len() - 1);
        let name = match (token.kind, text.as_bytes()[0]) {
            (Kind::Word, _) => text.to_owned(),
            (Kind::Quoted, b'[') => inner()?.to_owned(),
            (Kind::Quoted | Kind::Text, quote) => {
                let quote = char::from(quote).to_string();
                inner()?.replace(&quote.repeat(2), &quote)
            }
            _ => return None,
        };
        self.next += 1;
        Some((name, token.at))
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
                    Kind::Sign(b'(') => depth += 1,
                    Kind::Sign(b')') if depth == 0 => break true,
                    Kind::Sign(b')') => depth -= 1,
                    Kind::Sign(b',') if depth == 0 => break false,
                    Kind::Sign(b';') => return None,
                    _ => {}
                }
                self.next += 1;
            };
            values.push(self.value(&self.tokens[first..self.next])?);
            self.next += 1;
            if is_last {
                return Some(values);
            }
        }
    }

    fn value(&self, tokens: &[Token]) -> Option<Value> {
        let (first, last) = (tokens.first()?, tokens.last()?);
        let is_null = || self.text(first).eq_ignore_ascii_case("NULL");
        let said = match first.kind {
            Kind::Word if tokens.len() == 1 && is_null() => Said::Null,
            Kind::Parameter if tokens.len() == 1 => Said::Parameter,
            _ => Said::Other,
        };
        Some(Value { at: first.at.start..last.at.end, said })
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
        let ends = |token: &Token| token.kind == Kind::Sign(b';');
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
        let mut reader = Reader { sql, tokens: tokens(sql)?, next: 0 };
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
            let start = reader.peek()?.at.start;
            reader.next += 1;
            let end = reader.peek()?.at.end;
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
                let name = quote(key.names.first()?);
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
                let name = quote(key.names.first()?);
                match &self.columns {
                    Some(named) => pieces.put(named.first()?.1, format!("{name}, ")),
                    None => {
                        let mut list = format!("({name}");
                        for column in key.columns {
                            let _ = write!(list, ", {}", quote(column));
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

/// A name as SQL says it, whatever it is.
pub(crate) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether the definition of a trigger says that it runs behind what fires it, or that nothing
/// fires it but a `DELETE` or an `UPDATE`.
pub(crate) fn leaves_new_rows_alone(definition: &str) -> bool {
    let Some(tokens) = tokens(definition) else { return false };
    let mut reader = Reader { sql: definition, tokens, next: 0 };
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
