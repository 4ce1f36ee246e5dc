//! Owns the look at the words of a statement, for what SQLite does not tell of it otherwise.

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
        let text = without_blanks(sql);
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let is = |word: &&str| text[..end].eq_ignore_ascii_case(word);
        match () {
            () if is(&"PRAGMA") => Verb::Pragma,
            () if ["CREATE", "DROP", "ALTER", "ANALYZE", "REINDEX"].iter().any(is) => Verb::Define,
            () if ["INSERT", "UPDATE", "DELETE", "REPLACE"].iter().any(is) => Verb::Change,
            () => Verb::Other,
        }
    }
}

/// Whether the first word of `sql` says that it inserts rows.
pub(crate) fn is_insert(sql: &str) -> bool {
    let text = without_blanks(sql).as_bytes();
    let begins =
        |word: &[u8]| text.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word));
    begins(b"INSERT") || begins(b"REPLACE")
}

/// Whether `word`, which is ASCII, is somewhere in `text`, in whatever case.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.as_bytes().windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether `text` may join tables by the columns that have the same names (`USING`, `NATURAL`), of
/// which SQLite does not ask the authorizer.
pub(crate) fn may_join_by_names(text: &str) -> bool {
    ["using", "natural"].iter().any(|word| has_word(text, word))
}

/// What follows the white space, comments and empty statements at the start.
pub(crate) fn without_blanks(sql: &str) -> &str {
    let mut text = sql;
    loop {
        let is_blank = |c: char| c.is_ascii_whitespace() || matches!(c, ';' | '\u{b}' | '\u{feff}');
        text = text.trim_start_matches(is_blank);
        if let Some(comment) = text.strip_prefix("--") {
            text = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = text.strip_prefix("/*") {
            text = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else {
            return text;
        }
    }
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
