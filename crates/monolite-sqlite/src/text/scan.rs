//! Owns the cutting of a text into tokens, as SQLite cuts it.

/// A piece of a text that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// A keyword or a name that is not quoted.
    Word(&'s str),
    /// A name in quotes, and what is between them.
    Quoted(&'s str),
    /// A text, and what is between its quotes, which is a name in the list of `USING` and where a
    /// table is named.
    Text(&'s str),
    Star,
    Open,
    Close,
    Dot,
    Comma,
    Semicolon,
    /// A parameter that has a name or a number.
    Parameter,
    /// A number, or a parameter that has neither.
    Value,
    /// White space, or a comment.
    Blank,
    Other,
}

impl<'s> Token<'s> {
    /// What it may be the name of.
    pub(super) fn name(self) -> Option<&'s str> {
        match self {
            Token::Word(name) | Token::Quoted(name) | Token::Text(name) => Some(name),
            _ => None,
        }
    }
}

/// What is left of a text.
pub(crate) struct Scan<'s> {
    pub(super) rest: &'s str,
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
    /// Gives what is between.
    fn take_up_to(&mut self, from: usize, end: &str) -> &'s str {
        let found = self.rest.get(from..).and_then(|rest| rest.find(end));
        let taken = self.take(found.map_or(self.rest.len(), |at| from + at + end.len()));
        let between = taken.get(from..).unwrap_or("");
        if found.is_some() { &between[..between.len() - end.len()] } else { between }
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
            '"' | '`' => Token::Quoted(self.take_up_to(1, first.encode_utf8(&mut [0; 4]))),
            '[' => Token::Quoted(self.take_up_to(1, "]")),
            '\'' => Token::Text(self.take_up_to(1, "'")),
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
                Token::Value
            }
            _ => {
                self.take(first.len_utf8());
                match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    '.' => Token::Dot,
                    ',' => Token::Comma,
                    '*' => Token::Star,
                    ';' => Token::Semicolon,
                    ':' | '@' | '$' | '#' => {
                        self.take_name_of_parameter();
                        Token::Parameter
                    }
                    // A word may follow directly.
                    '?' => {
                        let ends = |c: char| !c.is_ascii_digit();
                        let end = self.rest.find(ends).unwrap_or(self.rest.len());
                        self.take(end);
                        if end > 0 { Token::Parameter } else { Token::Value }
                    }
                    _ => Token::Other,
                }
            }
        };
        Some(token)
    }
}
