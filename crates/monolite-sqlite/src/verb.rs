//! Owns the look at the words of a statement, for what SQLite does not tell of it otherwise.

use crate::scan::{self, Scan};

/// What a statement is, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Pragma,
    /// It changes what there is rather than rows.
    Define,
    /// It changes rows.
    Change,
    /// A query, a change of rows behind a `WITH`, or not known.
    Other,
}

impl Verb {
    pub(crate) fn of(sql: &str) -> Verb {
        let Some(first) = scan::first(sql) else { return Verb::Other };
        let is_one_of = |words: &[&str]| words.iter().any(|word| first.is_word(word));
        match () {
            () if is_one_of(&["PRAGMA"]) => Verb::Pragma,
            () if is_one_of(&["CREATE", "DROP", "ALTER", "ANALYZE", "REINDEX"]) => Verb::Define,
            () if is_one_of(&["INSERT", "UPDATE", "DELETE", "REPLACE"]) => Verb::Change,
            () => Verb::Other,
        }
    }
}

/// Whether the first word of `sql` says that it inserts rows.
pub fn is_insert(sql: &str) -> bool {
    // It is asked of each statement, and most begin with their first word.
    let begins_with_it = sql.starts_with(|sign: char| sign.is_ascii_alphabetic());
    let start = if begins_with_it { 0 } else { scan::first(sql).map_or(sql.len(), |it| it.at) };
    let text = &sql.as_bytes()[start..];
    ["INSERT", "REPLACE"].iter().any(|word| {
        text.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()))
    })
}

/// Whether `word`, which is ASCII, is somewhere in `text`, in whatever case.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether `text` may join tables by the columns that have the same names (`USING`, `NATURAL`), of
/// which SQLite does not ask the authorizer.
pub(crate) fn may_join_by_names(text: &str) -> bool {
    let is_in =
        |word: &&str| has_word(text, word) && Scan::of(text).any(|token| token.is_word(word));
    ["using", "natural"].iter().any(is_in)
}

#[test]
fn the_first_word_is_found_behind_blanks() {
    for blank in ["", " ", "\t\r\n", "-- PRAGMA\n", "/* PRAGMA */", ";", "; --\n /* */ ;"] {
        for (rest, verb) in [
            ("pragma optimize", Verb::Pragma),
            ("PRAGMA(1)", Verb::Pragma),
            ("Create TABLE t(a)", Verb::Define),
            ("ANALYZE", Verb::Define),
            ("REINDEX;", Verb::Define),
            ("inserT INTO t VALUES (1)", Verb::Change),
            ("UPDATE t SET a = 1", Verb::Change),
            ("DELETE FROM t", Verb::Change),
            ("REPLACE INTO t VALUES (1)", Verb::Change),
            ("EXPLAIN DELETE FROM t", Verb::Other),
            ("WITH c AS (SELECT 1) DELETE FROM t", Verb::Other),
            ("SELECT 1 -- PRAGMA", Verb::Other),
            ("pragmas", Verb::Other),
            ("\"PRAGMA\"", Verb::Other),
            ("-- to the end", Verb::Other),
            ("/* to the end", Verb::Other),
            ("", Verb::Other),
        ] {
            assert_eq!(Verb::of(&format!("{blank}{rest}")), verb, "{blank}{rest}");
        }
    }
}

#[test]
fn only_the_keywords_join_by_names() {
    for (text, joins) in [
        ("SELECT * FROM a JOIN b USING(id)", true),
        ("SELECT * FROM a NATURAL JOIN b", true),
        ("SELECT 'it''s' FROM a JOIN b/**/uSiNg(id)", true),
        ("SELECT 'using', \"natural\", [using], `using`", false),
        ("SELECT using_it, naturally FROM a -- using", false),
        ("SELECT x'', \"'\" FROM a NATURAL JOIN b WHERE x = ''", true),
        ("SELECT $a(') FROM a JOIN b USING(id) WHERE x = '')", true),
    ] {
        assert_eq!(may_join_by_names(text), joins, "{text}");
    }
}
