//! Owns the cutting of a text into tokens, as SQLite cuts it, and of a script into statements.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// White space, or a comment.
    Blank,
    /// A keyword or a name that is not quoted.
    Word,
    /// A number, with what belongs to it.
    Number,
    /// A name in double quotes, brackets or backticks.
    Quoted,
    /// A string, which is a name where only a name can be.
    Text,
    /// A parameter, with its sigil.
    Parameter,
    /// Something in quotes that does not end.
    Unended,
    /// Any other sign: a parenthesis, an operator.
    Sign(u8),
}

/// A piece of a text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'s> {
    /// What it is.
    pub kind: TokenKind,
    /// The piece itself.
    pub text: &'s str,
    /// Where it begins in the text, in bytes.
    pub at: usize,
}

impl Token<'_> {
    /// Whether it is `word`, in whatever case, without quotes.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }

    /// The name that it is, where only a name can be.
    pub fn name(&self) -> Option<String> {
        let inner = || &self.text[1..self.text.len() - 1];
        match (self.kind, self.text.get(..1)) {
            (TokenKind::Word, _) => Some(self.text.to_owned()),
            (TokenKind::Quoted, Some("[")) => Some(inner().to_owned()),
            (TokenKind::Quoted | TokenKind::Text, Some(quote)) => {
                Some(inner().replace(&quote.repeat(2), quote))
            }
            _ => None,
        }
    }
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub struct Scan<'s> {
    text: &'s str,
    at: usize,
}

impl<'s> Scan<'s> {
    /// Those of `text`.
    pub fn of(text: &'s str) -> Scan<'s> {
        Scan { text, at: 0 }
    }
}

/// How many bytes at the beginning of `text` are signs of which it `is_part`.
fn run(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.find(|sign| !is_part(sign)).unwrap_or(text.len())
}

fn is_of_word(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '_' | '$') || !sign.is_ascii()
}

fn is_space(sign: char) -> bool {
    sign.is_ascii_whitespace() || sign == '\u{b}'
}

/// The length of what is closed by `end`, which is behind two bytes; all where it is not closed.
fn up_to(text: &str, end: &str) -> usize {
    text[2..].find(end).map_or(text.len(), |at| 2 + at + end.len())
}

/// What stands in quotes, in which a doubled quote is one of the text.
fn quoted(text: &str, kind: TokenKind) -> (TokenKind, usize) {
    let (bytes, mut at) = (text.as_bytes(), 1);
    loop {
        let Some(end) = bytes[at..].iter().position(|byte| *byte == bytes[0]) else {
            return (TokenKind::Unended, text.len());
        };
        at += end + 1;
        if bytes.get(at) != Some(&bytes[0]) {
            return (kind, at);
        }
        at += 1;
    }
}

/// The length of a parameter with a name, as SQLite takes it: what is in parentheses directly
/// behind it is a part of it, up to a blank, whatever it is.
fn parameter(text: &str) -> usize {
    let mut end = 1 + run(&text[1..], is_of_word);
    let mut is_named = end > 1;
    while text[end..].starts_with("::") {
        let more = run(&text[end + 2..], is_of_word);
        (end, is_named) = (end + 2 + more, is_named || more > 0);
    }
    if is_named && text[end..].starts_with('(') {
        end += run(&text[end..], |sign| sign != ')' && sign != '\0' && !is_space(sign));
        end += usize::from(text[end..].starts_with(')'));
    }
    end
}

/// The length of what an exponent has behind `number`, if that ends in one: a sign and digits.
fn exponent(number: &str, behind: &str) -> usize {
    let is_hex = number.starts_with("0x") || number.starts_with("0X");
    let digits = match behind.strip_prefix(['+', '-']) {
        Some(digits) if !is_hex && number.ends_with(['e', 'E']) => digits,
        _ => return 0,
    };
    match digits.starts_with(|sign: char| sign.is_ascii_digit()) {
        true => 1 + run(digits, |sign| sign.is_ascii_digit() || sign == '_'),
        false => 0,
    }
}

impl<'s> Iterator for Scan<'s> {
    type Item = Token<'s>;

    #[inline]
    fn next(&mut self) -> Option<Token<'s>> {
        let (rest, at) = (&self.text[self.at..], self.at);
        let first = rest.chars().next()?;
        let (kind, length) = match first {
            _ if is_space(first) => (TokenKind::Blank, 1),
            // Only where a token could begin: within a name it is a part of it.
            '\u{feff}' => (TokenKind::Blank, first.len_utf8()),
            '-' if rest.starts_with("--") => (TokenKind::Blank, up_to(rest, "\n")),
            '/' if rest.starts_with("/*") => (TokenKind::Blank, up_to(rest, "*/")),
            '\'' => quoted(rest, TokenKind::Text),
            '"' | '`' => quoted(rest, TokenKind::Quoted),
            '[' => match rest.find(']') {
                Some(end) => (TokenKind::Quoted, end + 1),
                None => (TokenKind::Unended, rest.len()),
            },
            // A word may follow directly.
            '?' => (TokenKind::Parameter, 1 + run(&rest[1..], |sign| sign.is_ascii_digit())),
            ':' | '@' | '$' | '#' => (TokenKind::Parameter, parameter(rest)),
            '0'..='9' => {
                let is_part = |sign: char| sign.is_ascii_alphanumeric() || "_.".contains(sign);
                let number = run(rest, is_part);
                (TokenKind::Number, number + exponent(&rest[..number], &rest[number..]))
            }
            _ if is_of_word(first) => (TokenKind::Word, run(rest, is_of_word)),
            _ => (TokenKind::Sign(first as u8), 1),
        };
        self.at += length;
        Some(Token { kind, text: &rest[..length], at })
    }
}

/// The first token that is no blank and no empty statement.
#[inline]
pub fn first(sql: &str) -> Option<Token<'_>> {
    Scan::of(sql).find(|token| !matches!(token.kind, TokenKind::Blank | TokenKind::Sign(b';')))
}

/// Cuts a script into its statements, which can then be run one after the other.
///
/// A statement ends where `sqlite3_complete` says: at a semicolon, and in a trigger at one behind
/// `; END`. Pieces with nothing but blanks and comments are left out, and so is what follows a NUL.
pub fn statements(sql: &str) -> Statements<'_> {
    let end = sql.find('\0').unwrap_or(sql.len());
    Statements { rest: sql[..end].trim_start_matches('\u{feff}') }
}

/// The statements of a script in order, from [`statements`]. Each is a part of the script, with the
/// blanks before it and its semicolon.
#[derive(Clone, Debug)]
pub struct Statements<'s> {
    rest: &'s str,
}

impl<'s> Statements<'s> {
    /// What follows the statements that were taken.
    pub fn rest(&self) -> &'s str {
        self.rest
    }
}

impl<'s> Iterator for Statements<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        loop {
            let statement = cut_next(&mut self.rest);
            if statement.is_empty() {
                return None;
            }
            if first(statement).is_some() {
                return Some(statement);
            }
        }
    }
}

/// Takes the first statement off `rest`, which may be one without words.
fn cut_next<'s>(rest: &mut &'s str) -> &'s str {
    let (mut scan, mut start, mut ends_at_end) = (Scan::of(rest), Start::Nothing, 0);
    for token in scan.by_ref().filter(|token| token.kind != TokenKind::Blank) {
        start = start.followed_by(&token);
        ends_at_end = match token.kind {
            TokenKind::Sign(b';') if start != Start::Trigger || ends_at_end == 2 => break,
            TokenKind::Sign(b';') => 1,
            _ if ends_at_end == 1 && token.is_word("end") => 2,
            _ => 0,
        };
    }
    let (statement, behind) = rest.split_at(scan.at);
    *rest = behind;
    statement
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
    fn followed_by(self, token: &Token<'_>) -> Start {
        let is = |known: &[&str]| known.iter().any(|word| token.is_word(word));
        match self {
            // An empty statement has ended.
            Start::Nothing if token.kind == TokenKind::Sign(b';') => Start::Nothing,
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
        &[";", ";", "SELECT 1", ";", "-- SELECT 2"],
    ] {
        let script = parts.concat();
        let trimmed = |part: &str| part.trim_matches([' ', ';', '\n']).to_owned();
        let expected: Vec<_> = parts.iter().map(|part| trimmed(part)).collect();
        let has_words = |part: &&String| !part.is_empty() && !part.starts_with("--");
        let found: Vec<_> = statements(&script).map(trimmed).collect();
        assert!(found.iter().eq(expected.iter().filter(has_words)), "{found:?}");
        let mut all = statements(&script);
        while let Some(statement) = all.next() {
            let before = script.len() - all.rest().len();
            assert!(script[..before].ends_with(statement), "{statement}");
        }
        assert_eq!(all.rest(), "");
    }
    assert_eq!(statements("SELECT 1;\0 SELECT 2").collect::<Vec<_>>(), ["SELECT 1;"]);
    assert_eq!(statements("\u{feff}SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
}
