//! Owns what the tokens of an expression, without blanks, say of its values: where one begins and
//! ends, which become texts, and what they are by their own words. Columns are known elsewhere.

use super::clauses::{branches, closing, is_open};
use monolite_sqlite::{Token, TokenKind};

/// What a value is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given {
    /// Of a comparison, or of NOT, AND, OR.
    pub(crate) is_boolean: bool,
    /// By a literal or a CAST.
    pub(super) is_real_or_blob: bool,
    pub(crate) is_real_column: bool,
}

/// Words that are no functions before a parenthesis, and no names without quotes.
pub(super) const KEYWORDS: &str = "all and as between by case distinct else escape except exists \
    filter from group having in intersect is isnull join like limit materialized not notnull null \
    on or over partition select set then to union using values when where with";

pub(super) fn is_in(words: &str, word: &str) -> bool {
    words.split(' ').any(|it| it == word)
}

/// Words before a parenthesis, where what is in it does not say what the value is.
const TYPED: &str = "count dense_rank exists filter in instr length lower ltrim ntile over rank \
    replace row_number rtrim substr substring trim upper";

/// Words that make a boolean.
const BOOLEAN: &str = "and between exists in is isnull like not notnull or";

fn lower(token: &Token<'_>) -> String {
    token.text.to_ascii_lowercase()
}

fn is_sign(token: Option<&Token<'_>>, sign: u8) -> bool {
    token.is_some_and(|token| token.kind == TokenKind::Sign(sign))
}

/// Whether `tokens` begin with a blob.
fn is_blob(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [x, text, ..] if x.is_word("x") && text.kind == TokenKind::Text)
}

/// How many more open than close with a token.
fn depth(token: &Token<'_>) -> i32 {
    match token.kind {
        TokenKind::Sign(b'(') => 1,
        TokenKind::Sign(b')') => -1,
        TokenKind::Word if token.is_word("case") => 1,
        TokenKind::Word if token.is_word("end") => -1,
        _ => 0,
    }
}

/// The places from `at` on that are in nothing that opens behind it.
fn level<'t>(tokens: &'t [Token<'_>]) -> impl Iterator<Item = usize> + 't {
    let mut open = 0;
    (0..tokens.len()).filter(move |at| {
        let is_level = open == 0;
        open += depth(&tokens[*at]);
        is_level && open >= 0
    })
}

/// Where what opens at `at` ends, or `at` itself.
fn close(tokens: &[Token<'_>], at: usize) -> usize {
    let mut open = 0;
    let is_end = |token: &Token<'_>| {
        open += depth(token);
        open <= 0
    };
    tokens[at..].iter().position(is_end).map_or(tokens.len(), |more| at + more)
}

/// Where the value before `end` begins.
pub(super) fn start(tokens: &[Token<'_>], end: usize) -> usize {
    let mut open = 0;
    let is_start = |token: &Token<'_>| {
        open += depth(token);
        open >= 0
    };
    let Some(at) = tokens[..end].iter().rposition(is_start) else { return 0 };
    let before = at.checked_sub(1);
    match before.map(|at| (at, &tokens[at])) {
        Some((before, word)) if is_open(tokens.get(at)) && word.kind == TokenKind::Word => {
            match lower(word).as_str() {
                "over" | "filter" => start(tokens, before),
                "in" | "exists" => before,
                word if is_in(KEYWORDS, word) => at,
                _ => before,
            }
        }
        Some((before, dot)) if dot.kind == TokenKind::Sign(b'.') => start(tokens, before),
        Some((before, _)) if is_blob(&tokens[before..]) => before,
        _ => at,
    }
}

/// Where the value from `at` on ends.
pub(super) fn end(tokens: &[Token<'_>], at: usize) -> usize {
    let Some(token) = tokens.get(at) else { return tokens.len() };
    let next = tokens.get(at + 1);
    let is_word = token.kind == TokenKind::Word;
    match token.kind {
        TokenKind::Sign(b'+' | b'-' | b'~') => end(tokens, at + 1),
        _ if is_sign(next, b'.') => end(tokens, at + 2),
        _ if is_blob(&tokens[at..]) => at + 2,
        _ if is_word && is_open(next) => (close(tokens, at + 1) + 1).min(tokens.len()),
        _ => (close(tokens, at) + 1).min(tokens.len()),
    }
}

/// The values that are CAST, and the word of the type.
pub(crate) fn casts<'t, 's>(
    tokens: &'t [Token<'s>],
) -> impl Iterator<Item = (&'t [Token<'s>], String)> {
    let of = |at: usize| {
        let inner = tokens.get(at + 2..closing(tokens, at + 1))?;
        let last = inner.iter().rposition(|token| token.is_word("as"))?;
        Some((&inner[..last], lower(inner.get(last + 1)?)))
    };
    let is_cast = |at: &usize| tokens[*at].is_word("cast") && is_open(tokens.get(at + 1));
    (0..tokens.len()).filter(is_cast).filter_map(of)
}

/// The values beside `||`.
pub(crate) fn joined<'t, 's>(tokens: &'t [Token<'s>]) -> impl Iterator<Item = &'t [Token<'s>]> {
    let is_bar = |at: usize| is_sign(tokens.get(at), b'|');
    (0..tokens.len()).filter(move |at| is_bar(*at) && is_bar(at + 1)).flat_map(|at| {
        [&tokens[start(tokens, at)..at], &tokens[at + 2..end(tokens, at + 2).max(at + 2)]]
    })
}

/// What a value is; `is_real` says it of columns.
pub(crate) fn given(tokens: &[Token<'_>], is_real: &dyn Fn(&Token<'_>) -> bool) -> Given {
    let (mut all, mut at) = (Given::default(), 0);
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1);
        let (parts, behind) = match (token.kind, lower(token).as_str()) {
            (TokenKind::Sign(sign @ (b'<' | b'>')), _) if is_sign(next, sign) => (vec![], at + 2),
            (TokenKind::Sign(b'('), _) if next.is_some_and(|it| it.is_word("select")) => {
                let end = close(tokens, at);
                let query = &tokens[at + 2..end];
                let from = level(query).find(|at| query[*at].is_word("from"));
                (vec![&query[..from.unwrap_or(query.len())]], end + 1)
            }
            (TokenKind::Word, "case") => (branches(&tokens[at + 1..]), close(tokens, at) + 1),
            (TokenKind::Word, word) if is_in(TYPED, word) && is_open(next) => {
                all.is_boolean |= is_in(BOOLEAN, word);
                (vec![], close(tokens, at + 1) + 1)
            }
            (TokenKind::Sign(b'<' | b'>' | b'=' | b'!'), _) => {
                all.is_boolean = true;
                (vec![], at + 1)
            }
            (TokenKind::Word | TokenKind::Quoted, word) => {
                let is_type = at > 0 && tokens[at - 1].is_word("as");
                all.is_boolean |= is_in(BOOLEAN, word);
                all.is_real_or_blob |=
                    is_type && is_in("real double float", word) || is_blob(&tokens[at..]);
                all.is_real_column |= !is_sign(next, b'.') && is_real(token);
                (vec![], at + 1)
            }
            (TokenKind::Number, text) => {
                let is_hex = text.starts_with("0x");
                all.is_real_or_blob |= !is_hex && text.replace('_', "").parse::<i64>().is_err();
                (vec![], at + 1)
            }
            _ => (vec![], at + 1),
        };
        for part in parts.into_iter().map(|part| given(part, is_real)) {
            all.is_boolean |= part.is_boolean;
            all.is_real_or_blob |= part.is_real_or_blob;
            all.is_real_column |= part.is_real_column;
        }
        at = behind;
    }
    all
}

/// Whether a query that stands for one value may give several rows. One with a `WHERE … =` is
/// taken for the search by a key.
pub(super) fn has_several_rows(tokens: &[Token<'_>]) -> bool {
    let is_it = |at: usize| {
        let is_query = is_open(tokens.get(at))
            && tokens.get(at + 1).is_some_and(|it| it.is_word("select"))
            && !is_table(tokens, at);
        let query = &tokens[at + 1..close(tokens, at).max(at + 1)];
        let place = |word: &str| level(query).find(|at| query[*at].is_word(word));
        let Some(from) = place("from").filter(|_| is_query && place("limit").is_none()) else {
            return false;
        };
        let is_aggregate = |pair: &[Token<'_>]| {
            is_in("avg count max min sum", &lower(&pair[0])) && is_open(pair.get(1))
        };
        if query[..from].windows(2).any(is_aggregate) && place("group").is_none() {
            return false;
        }
        let equals = |from: usize| query[from..].iter().any(|it| it.kind == TokenKind::Sign(b'='));
        place("order").is_some() || !place("where").is_some_and(equals)
    };
    (0..tokens.len()).any(is_it)
}

/// Whether the parentheses at `at` are a list, a table, or what may be no row.
fn is_table(tokens: &[Token<'_>], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    match tokens[before].kind {
        TokenKind::Sign(b'(') => is_table(tokens, before),
        TokenKind::Sign(b',') => {
            let mut open = 0;
            let words = tokens[..before].iter().rev().filter(|token| {
                open -= depth(token);
                open == 0
            });
            let mut words = words.map(lower).filter(|word| is_in("from select by values", word));
            words.next().is_some_and(|word| word == "from")
        }
        _ => is_in("as exists from in join materialized", &lower(&tokens[before])),
    }
}
