//! Owns where one statement of a script ends and the next begins, as the `sqlite3` shell sees it.
//!
//! # Algorithm
//! The state machine of `sqlite3_complete` (`complete.c`): a semicolon ends a statement unless it
//! stands in a string, in a comment, or in the body of a `CREATE TRIGGER`, which ends with
//! `; END ;`.

use super::tokens::{Kind, Token, tokens};

/// A statement and the line on which its first word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'s> {
    pub(crate) line: usize,
    /// With its semicolon, and the comments before it.
    pub(crate) sql: &'s str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Normal,
    Explain,
    Create,
    Trigger,
    /// After a semicolon in the body of a trigger.
    Semicolon,
    /// After `; END` there.
    End,
}

/// The words that the state machine knows, but for `CREATE`.
const WORDS: [&str; 5] = ["EXPLAIN", "TEMP", "TEMPORARY", "TRIGGER", "END"];

impl State {
    fn next(self, token: &Token<'_>) -> State {
        let is_semicolon = token.kind == Kind::Semicolon;
        match self {
            State::End | State::Semicolon | State::Trigger if is_semicolon => {
                if self == State::End { State::Start } else { State::Semicolon }
            }
            _ if is_semicolon => State::Start,
            State::Start if token.is("EXPLAIN") => State::Explain,
            State::Start | State::Explain if token.is("CREATE") => State::Create,
            State::Explain if WORDS.iter().any(|word| token.is(word)) => State::Normal,
            // `EXPLAIN QUERY PLAN CREATE TRIGGER …`
            State::Explain => State::Explain,
            State::Create if token.is("TEMP") || token.is("TEMPORARY") => State::Create,
            State::Create if token.is("TRIGGER") => State::Trigger,
            State::Semicolon if token.is("END") => State::End,
            State::Semicolon | State::End | State::Trigger => State::Trigger,
            State::Start | State::Normal | State::Create => State::Normal,
        }
    }
}

/// Splits a script; what comes after the last semicolon is a statement, too, if it is more than
/// space.
pub(crate) fn split(script: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut state, mut from, mut first) = (State::Start, 0, None);
    for token in tokens(script).filter(|token| token.kind != Kind::Space) {
        state = state.next(&token);
        if state != State::Start {
            first.get_or_insert(token.at);
            continue;
        }
        let end = token.at + token.text.len();
        if let Some(first) = first.take() {
            pieces.push(piece(script, from, first, end));
        }
        from = end;
    }
    if let Some(first) = first {
        pieces.push(piece(script, from, first, script.len()));
    }
    pieces
}

fn piece(script: &str, from: usize, first: usize, end: usize) -> Piece<'_> {
    let line = script[..first].matches('\n').count() + 1;
    Piece { line, sql: script[from..end].trim() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<&str> {
        split(script).into_iter().map(|piece| piece.sql).collect()
    }

    #[test]
    fn a_semicolon_ends_a_statement_where_it_is_one() {
        let script = "SELECT ';' , \";\", [;], `;` -- ; no\n /* ; */ ; SELECT 'it''s;';";
        assert_eq!(texts(script).len(), 2);
        assert_eq!(texts(script)[1], "SELECT 'it''s;';");
        assert_eq!(texts(";; ;\n-- nothing\n;"), Vec::<&str>::new());
    }

    #[test]
    fn the_body_of_a_trigger_is_one_statement() {
        let trigger = "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN
            UPDATE a SET x = CASE WHEN 1 THEN 2 END; SELECT 1;
            END;";
        assert_eq!(texts(&format!("{trigger} SELECT 1;")), [trigger, "SELECT 1;"]);
        let explained = format!("EXPLAIN QUERY PLAN {trigger}");
        assert_eq!(texts(&explained), [explained.as_str()]);
        assert_eq!(texts("CREATE TABLE trigger_(a); END;").len(), 2);
    }

    #[test]
    fn what_is_left_at_the_end_is_a_statement() {
        assert_eq!(texts("SELECT 1;\nSELECT"), ["SELECT 1;", "SELECT"]);
        assert_eq!(texts("SELECT 1; -- the end"), ["SELECT 1;"]);
        assert_eq!(texts("SELECT 'open; SELECT 2;"), ["SELECT 'open; SELECT 2;"]);
    }

    #[test]
    fn a_line_is_that_of_the_first_word() {
        let lines: Vec<_> =
            split("-- a\nSELECT 1;\n\n-- b\n SELECT\n2;").iter().map(|piece| piece.line).collect();
        assert_eq!(lines, [2, 5]);
    }
}
