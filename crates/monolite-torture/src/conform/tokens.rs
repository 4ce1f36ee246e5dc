//! Owns the words of a statement as SQLite's tokenizer would cut them: enough to split a script and
//! to tell what kind of statement one is, without parsing it.
//!
//! # Not here
//! Whether a statement is valid: SQLite says so.

/// What a piece of SQL is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Space or a comment.
    Space,
    /// A keyword or a name without quotes, a number, a parameter.
    Word,
    /// A name in double quotes, brackets or backticks.
    Quoted,
    /// A string.
    Text,
    Semicolon,
    /// Any other sign.
    Sign,
}

/// A piece of SQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) text: &'s str,
    /// Bytes before it.
    pub(crate) at: usize,
}

impl<'s> Token<'s> {
    /// A name without its quotes.
    pub(crate) fn name(&self) -> String {
        let inner = || self.text.get(1..self.text.len() - 1).unwrap_or_default();
        match (self.kind, self.text.chars().next()) {
            (Kind::Quoted, Some('[')) => inner().to_owned(),
            (Kind::Quoted | Kind::Text, Some(quote)) => {
                inner().replace(&format!("{quote}{quote}"), &quote.to_string())
            }
            _ => self.text.to_owned(),
        }
    }

    /// Whether it is this word, in any case.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
}

/// Cuts `sql` into tokens; together they are all of it.
pub(crate) fn tokens(sql: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = sql.get(at..).filter(|rest| !rest.is_empty())?;
        let (kind, length) = first(rest);
        let token = Token { kind, text: &rest[..length], at };
        at += length;
        Some(token)
    })
}

fn first(rest: &str) -> (Kind, usize) {
    let sign = rest.chars().next().unwrap_or_default();
    match sign {
        ';' => (Kind::Semicolon, 1),
        '\'' => (Kind::Text, quoted(rest, '\'')),
        '"' | '`' => (Kind::Quoted, quoted(rest, sign)),
        '[' => (Kind::Quoted, rest.find(']').map_or(rest.len(), |end| end + 1)),
        _ if rest.starts_with("--") => (Kind::Space, rest.find('\n').unwrap_or(rest.len())),
        _ if rest.starts_with("/*") => {
            (Kind::Space, rest[2..].find("*/").map_or(rest.len(), |end| end + 4))
        }
        _ if sign.is_ascii_whitespace() => {
            let end = rest.find(|sign: char| !sign.is_ascii_whitespace());
            (Kind::Space, end.unwrap_or(rest.len()))
        }
        _ if is_of_word(sign) => {
            (Kind::Word, rest.find(|sign| !is_of_word(sign)).unwrap_or(rest.len()))
        }
        _ => (Kind::Sign, sign.len_utf8()),
    }
}

fn is_of_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || sign == '_' || sign == '$' || !sign.is_ascii()
}

/// The length of what stands in quotes, in which a doubled quote is one of the text.
fn quoted(rest: &str, quote: char) -> usize {
    let mut from = 1;
    while let Some(end) = rest[from..].find(quote) {
        from += end + 1;
        if !rest[from..].starts_with(quote) {
            return from;
        }
        from += 1;
    }
    rest.len()
}
