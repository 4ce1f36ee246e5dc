//! Owns where lines come from, and when they are a whole statement.

use std::io::BufRead;

use anyhow::Result;

/// What comes next.
pub(crate) enum Next {
    /// A line; of a script with its end.
    Line(String),
    /// The user takes back the lines since the last statement.
    TakenBack,
    End,
}

/// Where lines come from.
pub(crate) trait Input {
    /// The next line, for which a user is asked with `prompt`.
    fn next(&mut self, prompt: &str) -> Result<Next>;

    /// Takes note of a whole statement, for the history.
    fn remember(&mut self, _statement: &str) {}

    /// Whether a user is asked, who sees an error and goes on.
    fn is_interactive(&self) -> bool {
        false
    }
}

/// The lines of a text.
pub(crate) struct Script<R>(R);

impl<R: BufRead> Script<R> {
    pub(crate) fn new(text: R) -> Script<R> {
        Script(text)
    }
}

impl<R: BufRead> Input for Script<R> {
    fn next(&mut self, _: &str) -> Result<Next> {
        let mut line = String::new();
        // Not cut of its end, which may be within a string.
        Ok(if self.0.read_line(&mut line)? == 0 { Next::End } else { Next::Line(line) })
    }
}

/// Whether `text` ends behind a statement, by the rule of `sqlite3_complete`: then a word more
/// begins another one.
pub(crate) fn is_whole(text: &str) -> bool {
    let more = format!("{text}\nx");
    monolite::statements(&more).count() > monolite::statements(text).count()
}

#[test]
fn a_statement_is_whole_where_sqlite_ends_it() {
    for text in ["SELECT 1;", "SELECT 1; -- behind", "", "-- comment", "SELECT ';';", ";"] {
        assert!(is_whole(text), "{text}");
    }
    let trigger = "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1;";
    for text in ["SELECT 1", "SELECT 1 -- ;", "SELECT ';", "SELECT 1; /* ;", trigger] {
        assert!(!is_whole(text), "{text}");
    }
    assert!(is_whole(&format!("{trigger} END;")));
}
