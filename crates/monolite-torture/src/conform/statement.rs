//! Owns what the runner has to know about a statement before it is run: whether it shows rows, and
//! whether it begins, ends or nests transactions.

use std::sync::Arc;

use super::tokens::{Kind, Token, tokens};

/// What a statement does to the transaction around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    RollbackTo(String),
    Release(String),
}

impl Control {
    pub(crate) fn is_savepoint(&self) -> bool {
        matches!(self, Control::Savepoint(_) | Control::RollbackTo(_) | Control::Release(_))
    }
}

/// One statement of a script.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) line: usize,
    pub(crate) sql: Arc<str>,
    /// Its words and names outside of strings, in upper case.
    words: Vec<String>,
    pub(crate) control: Option<Control>,
    /// Whether it is meant to show rows.
    pub(crate) has_rows: bool,
}

impl Statement {
    pub(crate) fn new(line: usize, sql: &str) -> Statement {
        let tokens: Vec<_> = tokens(sql).filter(|token| token.kind != Kind::Space).collect();
        let is_word = |token: &&Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted);
        let words: Vec<String> =
            tokens.iter().filter(is_word).map(|token| token.name().to_ascii_uppercase()).collect();
        Statement {
            line,
            sql: sql.into(),
            control: control(&tokens),
            has_rows: has_rows(&words, main_verb(&tokens)),
            words,
        }
    }

    /// Its first word, in upper case.
    pub(crate) fn verb(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// Whether this word, in upper case, is in it outside of strings.
    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// Its words and names outside of strings, in upper case.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether it asks what statements before it have done on the connection.
    pub(crate) fn asks_connection(&self) -> bool {
        ["CHANGES", "TOTAL_CHANGES", "LAST_INSERT_ROWID"].iter().any(|name| self.has_word(name))
    }

    /// Whether it shows SQLite's program of another statement.
    pub(crate) fn is_program(&self) -> bool {
        self.verb() == "EXPLAIN" && self.words.get(1).is_none_or(|word| word != "QUERY")
    }

    /// The name of the pragma that it is.
    pub(crate) fn pragma(&self) -> Option<&str> {
        let is_schema = |word: &str| ["MAIN", "TEMP"].contains(&word);
        let mut words = self.words.iter().map(String::as_str);
        if words.next() != Some("PRAGMA") {
            return None;
        }
        words.find(|word| !is_schema(word))
    }

    /// Whether it changes rows when it succeeds, and says how many.
    pub(crate) fn counts_changes(&self) -> bool {
        let is_change = |word: &str| ["INSERT", "UPDATE", "DELETE", "REPLACE"].contains(&word);
        !self.has_rows
            && (is_change(self.verb())
                || self.verb() == "WITH" && self.words.iter().any(|word| is_change(word)))
    }

    /// Whether it only asks, so that a read transaction can run it.
    pub(crate) fn only_asks(&self) -> bool {
        match self.verb() {
            "PRAGMA" => !self.sql.contains('=') && self.pragma() != Some("OPTIMIZE"),
            _ => self.has_rows && !self.has_word("RETURNING"),
        }
    }

    /// Whether it may be run in a transaction with others without another meaning.
    pub(crate) fn can_be_grouped(&self) -> bool {
        self.control.is_none()
            && !self.asks_connection()
            && !self.is_program()
            && !["VACUUM", "ATTACH", "DETACH", "PRAGMA"].contains(&self.verb())
    }
}

fn control(tokens: &[Token<'_>]) -> Option<Control> {
    let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
    // `ROLLBACK TRANSACTION TO SAVEPOINT name`: both words in the middle may be missing.
    let name = |at: usize| {
        let at = if is(at, "SAVEPOINT") { at + 1 } else { at };
        tokens.get(at).filter(|token| token.kind != Kind::Semicolon).map(Token::name)
    };
    let first = tokens.first()?;
    let after = if is(1, "TRANSACTION") { 2 } else { 1 };
    if first.is("BEGIN") {
        Some(Control::Begin)
    } else if first.is("COMMIT") || first.is("END") {
        Some(Control::Commit)
    } else if first.is("ROLLBACK") && is(after, "TO") {
        name(after + 1).map(Control::RollbackTo)
    } else if first.is("ROLLBACK") {
        Some(Control::Rollback)
    } else if first.is("SAVEPOINT") {
        tokens.get(1).map(Token::name).map(Control::Savepoint)
    } else if first.is("RELEASE") {
        name(1).map(Control::Release)
    } else {
        None
    }
}

/// The word that says what the statement does, behind a `WITH` and its tables.
fn main_verb<'s>(tokens: &[Token<'s>]) -> Option<&'s str> {
    const VERBS: [&str; 6] = ["SELECT", "VALUES", "INSERT", "UPDATE", "DELETE", "REPLACE"];
    let first = tokens.first()?;
    if !first.is("WITH") {
        return Some(first.text);
    }
    let mut depth = 0_i32;
    for token in tokens {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ if depth == 0 && VERBS.iter().any(|verb| token.is(verb)) => return Some(token.text),
            _ => {}
        }
    }
    None
}

fn has_rows(words: &[String], verb: Option<&str>) -> bool {
    let verb = verb.unwrap_or_default().to_ascii_uppercase();
    match verb.as_str() {
        "SELECT" | "VALUES" | "EXPLAIN" | "PRAGMA" => true,
        "INSERT" | "UPDATE" | "DELETE" | "REPLACE" => words.iter().any(|word| word == "RETURNING"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control_of(sql: &str) -> Option<Control> {
        Statement::new(1, sql).control
    }

    #[test]
    fn transactions_and_savepoints_are_told_from_other_statements() {
        assert_eq!(control_of("/* so */ begin exclusive transaction;"), Some(Control::Begin));
        assert_eq!(control_of("END TRANSACTION;"), Some(Control::Commit));
        assert_eq!(control_of("ROLLBACK;"), Some(Control::Rollback));
        assert_eq!(control_of("SAVEPOINT \"a \"\"b\";"), Some(Control::Savepoint("a \"b".into())));
        assert_eq!(control_of("RELEASE SAVEPOINT x"), Some(Control::Release("x".into())));
        let long = "ROLLBACK TRANSACTION TO SAVEPOINT [x y];";
        assert_eq!(control_of(long), Some(Control::RollbackTo("x y".into())));
        assert_eq!(control_of("ROLLBACK TO x;"), Some(Control::RollbackTo("x".into())));
        assert_eq!(control_of("EXPLAIN COMMIT;"), None);
    }

    #[test]
    fn rows_are_expected_of_queries_and_returning() {
        let has_rows = |sql| Statement::new(1, sql).has_rows;
        assert!(has_rows("SELECT 1") && has_rows("VALUES (1)") && has_rows("PRAGMA table_list"));
        assert!(has_rows("WITH a AS (SELECT 1) SELECT * FROM a"));
        assert!(has_rows("INSERT INTO t VALUES (1) RETURNING *"));
        assert!(!has_rows("INSERT INTO t VALUES ('returning')"));
        assert!(!has_rows("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a"));
        assert!(!has_rows("CREATE TABLE t(a)"));
    }

    #[test]
    fn a_pragma_that_sets_is_no_question() {
        let asks = |sql| Statement::new(1, sql).only_asks();
        assert!(asks("PRAGMA user_version") && asks("PRAGMA main.table_info(t)"));
        assert!(!asks("PRAGMA user_version = 1") && !asks("DELETE FROM t RETURNING a"));
        assert_eq!(Statement::new(1, "PRAGMA main.Cache_Size").pragma(), Some("CACHE_SIZE"));
    }
}
