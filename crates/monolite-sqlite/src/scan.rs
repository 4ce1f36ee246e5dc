//! Owns the cutting of a text into tokens, as SQLite cuts it, and of a script into statements.

/// A piece of a text that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// A keyword or a name that is not quoted.
    Word(&'s str),
    Open,
    Close,
    Comma,
    Semicolon,
    /// White space, or a comment.
    Blank,
    /// A quoted name, a text, a number, a parameter, an operator.
    Other,
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
    fn take_up_to(&mut self, from: usize, end: &str) {
        let found = self.rest.get(from..).and_then(|rest| rest.find(end));
        self.take(found.map_or(self.rest.len(), |at| from + at + end.len()));
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
            '"' | '`' | '\'' => {
                self.take_up_to(1, first.encode_utf8(&mut [0; 4]));
                Token::Other
            }
            '[' => {
                self.take_up_to(1, "]");
                Token::Other
            }
            _ if first.is_ascii_alphabetic() || first == '_' || !first.is_ascii() => {
                let is_part =
                    |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                Token::Word(self.take(end))
            }
            // A number, with what belongs to it.
            '0'..='9' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                self.take(end);
                Token::Other
            }
            _ => {
                self.take(first.len_utf8());
                match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    ',' => Token::Comma,
                    ';' => Token::Semicolon,
                    ':' | '@' | '$' | '#' => {
                        self.take_name_of_parameter();
                        Token::Other
                    }
                    // A word may follow directly.
                    '?' => {
                        let ends = |c: char| !c.is_ascii_digit();
                        let end = self.rest.find(ends).unwrap_or(self.rest.len());
                        self.take(end);
                        Token::Other
                    }
                    _ => Token::Other,
                }
            }
        };
        Some(token)
    }
}

/// Cuts a script into its statements, as `sqlite3_complete` tells where one ends: at a semicolon,
/// and within a trigger at one behind `; END`. What is behind a NUL is no part of it.
pub(crate) fn statements(sql: &str) -> Statements<'_> {
    let end = sql.find('\0').unwrap_or(sql.len());
    Statements { rest: sql[..end].trim_start_matches('\u{feff}') }
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
        let is = |known: &[&str]| match token {
            Token::Word(word) => known.iter().any(|it| it.eq_ignore_ascii_case(word)),
            _ => false,
        };
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
        let found: Vec<_> = cut.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(statements("SELECT 1;\0 SELECT 2").collect::<Vec<_>>(), ["SELECT 1;"]);
    assert_eq!(statements("\u{feff}SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
}
