//! Owns the weighing of a statement's text before it is prepared: by how many names SQLite will
//! look for, which takes long where tables are wide and many.
//!
//! # Why
//! SQLite compares a name that is not qualified with each column of each table of the `SELECT`s
//! around it, 64 tables of 500 columns at most in each, one after another. It looks at no clock
//! meanwhile, does not stop at an error before the end of a list, and allocates nothing. A
//! `NATURAL` join does that with each column of the table on its right. Measured with SQLite 3.54.1
//! (x86-64, 2.1 GHz): 21 µs for a name in one such `SELECT`, 9,000 names within eleven of them 2 s,
//! 30 times 63 `NATURAL` joins 20 s.
//!
//! # Algorithm
//! The tokens are walked over once. Each word that may be a name counts as often as there are
//! `SELECT`s around it. What a view, a trigger or a common table expression has in its own text is
//! weighed there. Each statement of several is weighed alone, and the heaviest counts.

use std::collections::HashSet;

use crate::verb::{has_word, without_blanks};

/// The most names in a statement of untrusted SQL: 0.25 s at worst.
pub(crate) const MAX_NAMES: usize = 12_000;

/// As how many names a `NATURAL` join counts: one for each column, and five times as much, because
/// views that have such joins are put in the place of their names without much being allocated.
pub(crate) const NAMES_OF_NATURAL: usize = 2_500;

/// No shorter text can have so many names that it matters: at most 9 `NATURAL` joins.
const SHORT: usize = 128;

/// Frequent words that can be no names. SQLite takes others of its words for names where nothing
/// else fits (`by`, `desc`, `end`, `left`, `like`, `with`), so those count.
const KEYWORDS: &[&str] = &[
    "and", "as", "between", "case", "delete", "distinct", "else", "exists", "from", "group",
    "having", "in", "insert", "into", "is", "join", "limit", "not", "null", "on", "or", "order",
    "select", "set", "then", "union", "update", "using", "values", "when", "where",
];

/// A piece of a text that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'s> {
    /// A keyword or a name that is not quoted.
    Word(&'s str),
    /// A name in quotes.
    Quoted,
    /// A text, which is a name in the list of `USING`.
    Text,
    Open,
    Close,
    Dot,
    Comma,
    Semicolon,
    /// The beginning of a parameter that has a name or a number.
    Parameter,
    /// White space, or a comment.
    Blank,
    Other,
}

/// How many names the statement of `sql` has that has most, each counted once for each `SELECT`
/// around it.
pub(crate) fn names(sql: &str) -> usize {
    if sql.len() <= SHORT {
        return 0;
    }
    // How many `SELECT`s there were before each parenthesis that is open.
    let (mut outer, mut selects, mut names, mut most) = (Vec::new(), 0_usize, 0_usize, 0);
    let (mut before, mut is_using) = (Token::Other, false);
    for token in Scan::of(sql) {
        let is_qualified = before == Token::Dot;
        let more = match token {
            Token::Word(word) if word.eq_ignore_ascii_case("select") => {
                // Of a compound each has its own.
                selects = outer.last().copied().unwrap_or(0) + 1;
                0
            }
            Token::Word(word) if word.eq_ignore_ascii_case("natural") => NAMES_OF_NATURAL,
            Token::Word(word) if is_qualified || is_keyword(word) => 0,
            Token::Word(_) => 1,
            Token::Quoted => usize::from(!is_qualified),
            Token::Text => usize::from(is_using),
            Token::Open => {
                is_using = matches!(before, Token::Word(it) if it.eq_ignore_ascii_case("using"));
                outer.push(selects);
                0
            }
            Token::Close => {
                is_using = false;
                selects = outer.pop().unwrap_or(0);
                0
            }
            Token::Semicolon if outer.is_empty() => {
                (most, names, selects) = (names.max(most), 0, 0);
                0
            }
            Token::Dot | Token::Comma | Token::Semicolon => 0,
            Token::Parameter | Token::Blank | Token::Other => 0,
        };
        if token != Token::Blank {
            before = token;
        }
        names = names.saturating_add(more.saturating_mul(selects.max(1)));
    }
    names.max(most)
}

/// How often `ALTER TABLE` can look at a name while it looks for one of those in the definition
/// `sql`: the product of all its names and those that it looks for, of which a qualified one counts
/// as two. Of a table that are those of its expressions, and not of its columns and keys.
pub(crate) fn pairs_of_definition(sql: &str, is_table: bool) -> f64 {
    let (mut all, mut looked_for, mut depth, mut key) = (0.0, 0.0, 0_usize, None);
    let mut before = Token::Other;
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        match token {
            Token::Open => {
                let is_key = matches!(before, Token::Word(word)
                    if ["key", "unique"].iter().any(|it| word.eq_ignore_ascii_case(it)));
                if is_key && key.is_none() {
                    key = Some(depth);
                }
                depth += 1;
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                key = key.filter(|outer| *outer < depth);
            }
            Token::Word(word) if is_keyword(word) => {}
            Token::Word(_) | Token::Quoted => {
                all += 1.0;
                let is_in_expression = depth > 1 && key.is_none();
                looked_for += if !is_table || is_in_expression { 1.0 } else { 0.0 };
            }
            _ => {}
        }
        before = token;
    }
    all * looked_for
}

/// How many terms the index of definition `sql` has with which the planner compares those of a
/// statement: its expressions, and the conditions of a partial one. None if it is of columns alone.
pub(crate) fn terms_of_index(sql: &str) -> usize {
    let (mut depth, mut terms, mut is_plain) = (0_usize, 1, true);
    // How many names and keywords there are of a column, which has one.
    let (mut words, mut before) = (0, Token::Other);
    for token in Scan::of(sql).filter(|token| *token != Token::Blank) {
        let is_collation =
            matches!(before, Token::Word(word) if word.eq_ignore_ascii_case("collate"));
        match token {
            Token::Open => {
                depth += 1;
                is_plain &= depth == 1;
                words = 0;
            }
            Token::Close => depth = depth.saturating_sub(1),
            Token::Comma => (terms, words) = (terms + 1, 0),
            Token::Word(word) if is_one_of(&["and", "or"], word) => {
                (terms, is_plain) = (terms + 1, false);
            }
            Token::Word(word) if word.eq_ignore_ascii_case("where") => is_plain = false,
            Token::Word(word) if is_one_of(&["collate", "asc", "desc"], word) => {}
            Token::Word(_) | Token::Quoted | Token::Text if !is_collation && depth > 0 => {
                words += 1;
                is_plain &= words == 1;
            }
            Token::Dot | Token::Semicolon | Token::Parameter | Token::Other => is_plain = false,
            _ => {}
        }
        before = token;
    }
    if is_plain { 0 } else { terms }
}

/// How often `sql` may name the table `name`, which is in lower case: what is in quotes may.
pub(crate) fn mentions(sql: &str, name: &str) -> u32 {
    let may = |token: &Token<'_>| match token {
        Token::Word(word) => word.eq_ignore_ascii_case(name),
        Token::Quoted | Token::Text => true,
        _ => false,
    };
    u32::try_from(Scan::of(sql).filter(may).count()).unwrap_or(u32::MAX)
}

/// How many parameters of `sql` have a name or a number, by which SQLite looks for each among all
/// of them.
pub(crate) fn named_parameters(sql: &str) -> usize {
    Scan::of(sql).filter(|token| *token == Token::Parameter).count()
}

/// What a statement is for the planner, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planning {
    /// It defines something, and plans nothing.
    Defines,
    /// It describes something: `PRAGMA table_list` has SQLite look at all views.
    Describes,
    /// It inserts rows that are said, and plans what triggers do then.
    Inserts,
    /// It may find rows.
    Queries,
}

/// What the first statement of `sql` is for the planner.
pub(crate) fn planning(sql: &str) -> Planning {
    let mut words = Scan::of(without_blanks(sql)).filter(|token| *token != Token::Blank);
    let mut next_is = |known: &[&str]| match words.next() {
        Some(Token::Word(word)) => known.iter().position(|it| word.eq_ignore_ascii_case(it)),
        _ => None,
    };
    let first = next_is(&["insert", "replace", "create", "pragma", "alter", "drop", "reindex"]);
    let is_table = match next_is(&["table", "temp", "temporary"]) {
        Some(0) => true,
        Some(_) => next_is(&["table"]).is_some(),
        None => false,
    };
    let may_query = || has_word(sql, "select") || has_word(sql, "values");
    match first {
        Some(0 | 1) if !has_word(sql, "select") => Planning::Inserts,
        Some(2) if !is_table || !may_query() => Planning::Defines,
        Some(3) => Planning::Describes,
        Some(4..) => Planning::Defines,
        _ => Planning::Queries,
    }
}

/// Whether `sql` may name one of `names`, which are in lower case: what is in quotes may.
pub(crate) fn may_name_one_of(sql: &str, names: &HashSet<String>) -> bool {
    !names.is_empty()
        && Scan::of(sql).any(|token| match token {
            Token::Word(word) => names.contains(&word.to_ascii_lowercase()),
            Token::Quoted | Token::Text => true,
            _ => false,
        })
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
        let is = |known: &[&str]| matches!(token, Token::Word(word) if is_one_of(known, word));
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

fn is_keyword(word: &str) -> bool {
    is_one_of(KEYWORDS, word)
}

fn is_one_of(known: &[&str], word: &str) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
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
            '"' | '`' => {
                self.take_up_to(1, first.encode_utf8(&mut [0; 4]));
                Token::Quoted
            }
            '[' => {
                self.take_up_to(1, "]");
                Token::Quoted
            }
            '\'' => {
                self.take_up_to(1, "'");
                Token::Text
            }
            _ if first.is_ascii_alphabetic() || first == '_' || !first.is_ascii() => {
                let is_part =
                    |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                Token::Word(self.take(end))
            }
            // A number, with what belongs to it.
            '0'..='9' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                self.take(end);
                Token::Other
            }
            _ => {
                self.take(first.len_utf8());
                match first {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    '.' => Token::Dot,
                    ',' => Token::Comma,
                    ';' => Token::Semicolon,
                    ':' | '@' | '$' | '#' => Token::Parameter,
                    '?' if self.rest.starts_with(|c: char| c.is_ascii_digit()) => Token::Parameter,
                    _ => Token::Other,
                }
            }
        };
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough to be looked at.
    fn of(sql: &str) -> usize {
        names(&format!("{sql} --{}", "-".repeat(SHORT)))
    }

    #[test]
    fn names_count_for_each_select_around_them() {
        for (sql, expected) in [
            ("", 0),
            ("SELECT a, b FROM t WHERE c = 1 AND d IN (1, 2, 3)", 5),
            ("SELECT t.a FROM t", 2),
            ("SELECT (SELECT a FROM t) FROM u", 2 + 2 + 1),
            ("SELECT a FROM t UNION SELECT b FROM u", 4),
            ("SELECT (SELECT a UNION SELECT b), c", 2 + 2 + 1),
            ("INSERT INTO t(a) VALUES (b)", 3),
            ("SELECT 0x1F, 1e5, 12.5e3, .5", 0),
            ("SELECT /* a b c */ d -- e\n, f", 2),
            ("SELECT \"a b\", [c d], `e`, 'f'", 3),
            ("SELECT 'it''s', a", 1),
            ("SELECT 1 FROM a JOIN b USING /**/ ('c', d, \"e\")", 2 + 3),
            ("SELECT t . a, t/**/./**/b FROM t", 3),
            ("SELECT /* never ends", 0),
            ("SELECT 'never ends", 0),
            ("SELECT ä, [never ends", 2),
            ("SELECT 1 FROM a natural join b", 2 + NAMES_OF_NATURAL),
            ("SELECT 1 FROM a \u{feff}NATURAL JOIN b", 2 + NAMES_OF_NATURAL),
            ("SELECT 1 FROM a NATURAL/**/JOIN b", 2 + NAMES_OF_NATURAL),
            ("SELECT 'natural' FROM a", 1),
            (")))) SELECT a", 1),
            ("SELECT end, left, like, desc, by, with FROM t", 7),
            ("SELECT a, b; SELECT c; SELECT (SELECT d)", 2),
            ("SELECT a; SELECT b, c, (SELECT d;", 4),
        ] {
            assert_eq!(of(sql), expected, "{sql}");
        }
    }

    #[test]
    fn names_that_alter_looks_for_are_counted_in_all_of_a_definition() {
        for (sql, is_table, expected) in [
            ("CREATE VIEW v AS SELECT t.a, b FROM t", false, 7.0 * 7.0),
            ("CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT a; SELECT t.b; END", false, 64.0),
            ("CREATE TABLE t(a, b, PRIMARY KEY (a, b), UNIQUE(b))", true, 0.0),
            ("CREATE TABLE t(a, b AS (a + 1))", true, 5.0),
        ] {
            let all = pairs_of_definition(sql, is_table);
            // Words that are not known as keywords count.
            assert!(all >= expected && all <= 4.0 * expected, "{sql}: {all}");
        }
    }

    #[test]
    fn an_index_has_terms_where_it_is_not_of_columns_alone() {
        for (sql, expected) in [
            ("CREATE UNIQUE INDEX i ON t(a, \"b\" COLLATE nocase DESC, 'c')", 0),
            ("CREATE INDEX i ON t(a + 1, b)", 2),
            ("CREATE INDEX i ON t((a), (b))", 2),
            ("CREATE INDEX i ON t(a IS b, c)", 2),
            ("CREATE INDEX i ON t(a NOTNULL)", 1),
            ("CREATE INDEX i ON t(a collate \"x\" asc, [b] desc)", 0),
            ("CREATE INDEX i ON t(a) WHERE b", 1),
            ("CREATE INDEX i ON t(a) WHERE b = 1 OR b = 2 and c IN (1, 2)", 4),
        ] {
            assert_eq!(terms_of_index(sql), expected, "{sql}");
        }
    }

    #[test]
    fn what_is_planned_is_known_by_words() {
        use Planning::{Defines, Describes, Inserts, Queries};
        for (sql, expected) in [
            ("INSERT INTO t VALUES (1), (2)", Inserts),
            ("/* */ ; insert INTO t VALUES ((SELECT 1))", Queries),
            ("INSERT INTO t SELECT 1", Queries),
            ("REPLACE INTO t VALUES ('select')", Queries),
            ("REPLACE INTO t VALUES (1)", Inserts),
            ("CREATE TABLE t(a)", Defines),
            ("CREATE TABLE t AS SELECT 1", Queries),
            ("CREATE TEMP TABLE t AS SELECT 1", Queries),
            ("CREATE VIEW v AS SELECT 1", Defines),
            ("CREATE INDEX i ON t(a) WHERE a", Defines),
            ("DROP TABLE t", Defines),
            ("PRAGMA table_list", Describes),
            ("CREATE \u{feff}TABLE t AS SELECT 1", Queries),
            ("CREATE TABLE t AS VALUES (1 IN v)", Queries),
            ("SELECT 1", Queries),
            ("WITH a AS (VALUES (1)) INSERT INTO t VALUES (2)", Queries),
            ("EXPLAIN CREATE TABLE t(a)", Queries),
            ("UPDATE t SET a = 1", Queries),
            ("", Queries),
        ] {
            assert_eq!(planning(sql), expected, "{sql}");
        }
    }

    #[test]
    fn parameters_and_tables_are_counted() {
        for (sql, expected) in [("?, ?, ?", 0), ("?1, ?22, :a, @b, $c", 5), ("':a', \":b\"", 0)] {
            assert_eq!(named_parameters(sql), expected, "{sql}");
        }
        assert_eq!(mentions("SELECT T.a FROM t, main.t AS x, \"t\", u", "t"), 4);
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
            let found: Vec<_> =
                cut.iter().map(|part| part.trim_matches([' ', ';', '\n'])).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(statements("SELECT 1;\0 SELECT 2").collect::<Vec<_>>(), ["SELECT 1;"]);
        assert_eq!(statements("\u{feff}SELECT 1").collect::<Vec<_>>(), ["SELECT 1"]);
    }

    #[test]
    fn a_short_text_is_not_looked_at() {
        assert_eq!(names("SELECT a FROM t NATURAL JOIN u"), 0);
    }
}
