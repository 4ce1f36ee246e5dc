//! Owns the text of a statement: SQLite's parameters in it become PostgreSQL's `$n`.
//!
//! # Algorithm
//! The text is cut as PostgreSQL cuts it. Copied as they are: strings (`'…'`, and `E'…'` with its
//! backslashes), quoted identifiers, dollar quotes, comments (`/* */` nest), words, numbers, casts
//! `::`, and slices `[1:2]`. The rest is looked at:
//!
//! - `?` is the parameter behind the largest number so far, `?N` number N, `:name` the number of
//!   the first `:name`, as in SQLite.
//! - Each number that occurs becomes a `$n`, from 1 without gaps, as PostgreSQL wants a type for
//!   each.
//! - `$1` is refused: two ways to number would be mixed.
//!
//! PostgreSQL's operators with a question mark (`jsonb ? key`) are thus out of reach: their
//! functions are not (`jsonb_exists`). A slice with a name behind its colon (`a[1:n]`) needs a
//! blank there.
//!
//! # Invariants
//! No statement begins or ends a transaction, or changes the session, which others use afterwards:
//! [`REFUSED`] is looked for at the beginning of each statement.

use monolite::{Error, ErrorKind, Parameters, Result, Value};

/// First words of statements that belong to the transaction's methods or to the connection.
const REFUSED: [&str; 14] = [
    "abort",
    "begin",
    "commit",
    "deallocate",
    "discard",
    "end",
    "prepare",
    "release",
    "reset",
    "rollback",
    "savepoint",
    "set",
    "start",
    "listen",
];

/// A statement as PostgreSQL gets it.
#[derive(Debug, PartialEq)]
pub(crate) struct Statement {
    pub(crate) text: String,
    /// The values of `$1`, `$2`, …
    pub(crate) values: Vec<Value>,
}

/// A parameter of SQLite, as it stands in the text.
struct Placeholder<'s> {
    /// With its sigil; `?` alone has no name.
    name: &'s str,
    /// Its number in SQLite.
    number: usize,
}

/// Rewrites `sql` for `parameters`.
///
/// # Errors
/// `Invalid` for a statement of [`REFUSED`], for `$1`, and for parameters that are not those of the
/// text.
pub(crate) fn rewrite(sql: &str, parameters: &Parameters) -> Result<Statement> {
    let (mut text, mut used) =
        (String::with_capacity(sql.len() + 8), Vec::<Placeholder<'_>>::new());
    let (mut order, mut largest) = (Vec::<usize>::new(), 0);
    for piece in pieces(sql)? {
        let Piece::Parameter(name) = piece else {
            text.push_str(piece.text());
            continue;
        };
        let known = used.iter().find(|it| name != "?" && it.name == name).map(|it| it.number);
        let number = match (known, name.strip_prefix('?')) {
            (Some(number), _) => number,
            (None, Some(digits)) if !digits.is_empty() => digits
                .parse()
                .ok()
                .filter(|number| (1..=32_766).contains(number))
                .ok_or_else(|| invalid(format!("the parameter {name}; use ?1 to ?32766")))?,
            _ => largest + 1,
        };
        largest = largest.max(number);
        used.push(Placeholder { name, number });
        let place = order.iter().position(|it| *it == number).unwrap_or_else(|| {
            order.push(number);
            order.len() - 1
        });
        text.push_str(&format!("${}", place + 1));
    }
    let values = match parameters {
        Parameters::Positional(values) if values.len() == largest => {
            order.iter().map(|number| values[number - 1].clone()).collect()
        }
        Parameters::Positional(values) => {
            let message = format!("{} parameters for {largest} in the statement", values.len());
            return Err(invalid(message));
        }
        Parameters::Named(values) => named(&order, &used, values, true)?,
        Parameters::Fields(values) => named(&order, &used, values, false)?,
    };
    Ok(Statement { text, values })
}

/// Checks a script, which has no parameters.
///
/// # Errors
/// As [`rewrite`].
pub(crate) fn check_batch(sql: &str) -> Result<()> {
    match pieces(sql)?.into_iter().find(|piece| matches!(piece, Piece::Parameter(_))) {
        Some(piece) => {
            let name = piece.text();
            Err(invalid(format!("the parameter {name} in a batch; use execute for each statement")))
        }
        None => Ok(()),
    }
}

/// The values by the names of the parameters; all must be used if they `must_fit`.
fn named(
    order: &[usize],
    used: &[Placeholder<'_>],
    values: &[(String, Value)],
    must_fit: bool,
) -> Result<Vec<Value>> {
    let is_it = |given: &str, name: &str| given == name || name != "?" && given == &name[1..];
    let by_number = |number: &usize| {
        let names = || used.iter().filter(|it| it.number == *number).map(|it| it.name);
        let of = |(given, _): &&(String, Value)| names().any(|name| is_it(given, name));
        let found = values.iter().find(of).map(|(_, value)| value.clone());
        found.ok_or_else(|| {
            invalid(format!("no value for the parameter {}", names().next().unwrap_or_default()))
        })
    };
    let is_unused = |(given, _): &&(String, Value)| !used.iter().any(|it| is_it(given, it.name));
    if let Some((name, _)) = values.iter().find(is_unused).filter(|_| must_fit) {
        return Err(invalid(format!("the statement has no parameter {name}")));
    }
    order.iter().map(by_number).collect()
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece<'s> {
    /// What is copied.
    Plain(&'s str),
    /// A parameter with its sigil.
    Parameter(&'s str),
}

impl<'s> Piece<'s> {
    fn text(self) -> &'s str {
        match self {
            Piece::Plain(text) | Piece::Parameter(text) => text,
        }
    }
}

/// Cuts a text, and refuses what is not for a statement of a transaction.
fn pieces(sql: &str) -> Result<Vec<Piece<'_>>> {
    let (mut pieces, mut at, mut is_first) = (Vec::new(), 0, true);
    while let Some(first) = sql[at..].chars().next() {
        let rest = &sql[at..];
        let length = length(rest, first);
        let text = &rest[..length];
        let is_blank = first.is_whitespace() || text.starts_with("--") || text.starts_with("/*");
        if is_first && REFUSED.iter().any(|word| text.eq_ignore_ascii_case(word)) {
            let message = format!(
                "{text} in a transaction; use the transaction's methods, and the \
                                   connection's options for settings"
            );
            return Err(invalid(message));
        }
        if first == '$' && text[1..].starts_with(|sign: char| sign.is_ascii_digit()) {
            return Err(invalid(format!("the parameter {text}; write ?{}", &text[1..])));
        }
        is_first = first == ';' || is_first && is_blank;
        let is_named = first == ':' && length > 1 && !text.starts_with("::");
        let is_parameter = first == '?' || is_named;
        pieces.push(if is_parameter { Piece::Parameter(text) } else { Piece::Plain(text) });
        at += length;
    }
    Ok(pieces)
}

/// The length of the token at the beginning of `text`, whose first sign is `first`.
fn length(text: &str, first: char) -> usize {
    match first {
        '\'' => quoted(text, '\'', false),
        '"' => quoted(text, '"', false),
        'e' | 'E' if text[1..].starts_with('\'') => 1 + quoted(&text[1..], '\'', true),
        '-' if text.starts_with("--") => text.find('\n').unwrap_or(text.len()),
        '/' if text.starts_with("/*") => comment(text),
        '$' => dollar(text),
        '?' => 1 + run(&text[1..], |sign| sign.is_ascii_digit()),
        ':' if text.starts_with("::") => 2,
        ':' if text[1..].starts_with(|sign: char| begins_word(sign)) => {
            1 + run(&text[1..], is_of_word)
        }
        '0'..='9' => run(text, |sign| is_of_word(sign) || sign == '.'),
        _ if begins_word(first) => run(text, is_of_word),
        _ => first.len_utf8(),
    }
}

fn begins_word(sign: char) -> bool {
    sign.is_ascii_alphabetic() || sign == '_' || !sign.is_ascii()
}

fn is_of_word(sign: char) -> bool {
    begins_word(sign) || sign.is_ascii_digit() || sign == '$'
}

fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|sign| !is_part(sign)).unwrap_or(text.len())
}

/// The length of what is in quotes, in which a doubled quote is one of the text, and with
/// `has_escapes` one behind a backslash, too. An unended one is left to PostgreSQL.
fn quoted(text: &str, quote: char, has_escapes: bool) -> usize {
    let mut signs = text.char_indices().skip(1).peekable();
    while let Some((at, sign)) = signs.next() {
        if has_escapes && sign == '\\' {
            signs.next();
        } else if sign == quote && signs.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}

fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['/', '*']) {
        at += found;
        let step = match text.get(at..at + 2) {
            Some("/*") => 1,
            Some("*/") => -1,
            _ => 0,
        };
        depth += step;
        at += if step == 0 { 1 } else { 2 };
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of `$tag$ … $tag$`, of `$1`, or of a lone sign.
fn dollar(text: &str) -> usize {
    let tag = run(&text[1..], |sign| begins_word(sign) || sign.is_ascii_digit());
    if text[1..].starts_with(|sign: char| sign.is_ascii_digit()) {
        return 1 + run(&text[1..], |sign| sign.is_ascii_digit());
    }
    if !text[1 + tag..].starts_with('$') {
        return 1;
    }
    let (open, body) = text.split_at(tag + 2);
    body.find(open).map_or(text.len(), |at| at + 2 * open.len())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests;
