//! Owns the comparison of an index of FTS5 with the table that has its texts, where that is not its
//! own (`content = …`). SQLite's check leaves it out, and FTS5 does it by a statement that writes,
//! which cannot be on a snapshot or on a file that is read as it is.
//!
//! # Algorithm
//! 1. A second index is made in the temporary database, by the same arguments. What it calls its
//!    content is a view of some rows of the first one's.
//! 2. It is filled with [`ROWS`] rows after another. Each word of each is hashed, with its place,
//!    and the hashes are added up.
//! 3. The words of the first index are added up in the same way. The sums are the same if and only
//!    if the words are, but for one case in 2^64.
//!
//! All is undone in the end, and the main database is only read.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension as _, Result};

use super::maintenance::Maintenance;
use crate::names::quoted;
use crate::scan::{Scan, Token, TokenKind};

/// Rows whose words are in memory together.
const ROWS: u32 = 256;

/// An index whose texts are in another table or view.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct External {
    /// What its module was given, in the words of its definition.
    arguments: String,
    /// What has the texts.
    pub(super) content: String,
    /// The column there that is the number of the row.
    pub(super) key: Option<String>,
}

/// How many words there are, and the sum of their hashes.
type Words = (u64, u64);

impl Maintenance<'_> {
    /// Adds to `problems` that the index of `table` does not fit the texts in another one.
    ///
    /// # Errors
    /// As [`Maintenance::check_table`].
    pub fn check_full_text(self, table: &str, problems: &mut Vec<String>) -> Result<()> {
        self.0.as_engine(|| {
            let sql = "SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0 \
                       AND name = ?1";
            let definition = self.0.raw().query_row(sql, [table], |row| row.get::<_, String>(0));
            let Some(external) = definition.optional()?.and_then(|it| External::of(&it, &["fts5"]))
            else {
                return Ok(());
            };
            let (indexed, expected) = self.beside(|| self.count_words(table, &external))?;
            if indexed != expected {
                problems.push(format!(
                    "malformed inverted index for FTS5 table main.{table}: its words are not those \
                     of {}",
                    external.content
                ));
            }
            Ok(())
        })
    }

    /// Runs `body`, which may write to the temporary database, and undoes that.
    fn beside<T>(self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let run = |sql: &str| self.0.raw().execute_batch(sql);
        let is_open = self.0.is_in_transaction();
        let is_reader: bool =
            self.0.raw().pragma_query_value(None, "query_only", |it| it.get(0))?;
        run(if is_open { "SAVEPOINT monolite_beside" } else { "BEGIN" })?;
        run("PRAGMA query_only = OFF")?;
        let result = body();
        let undo = if is_open {
            "ROLLBACK TO monolite_beside; RELEASE monolite_beside"
        } else {
            "ROLLBACK"
        };
        let undone = run(undo);
        if is_reader {
            run("PRAGMA query_only = ON")?;
        }
        result.and_then(|result| undone.map(|()| result))
    }

    /// The words of the index of `table`, and those that it should have.
    fn count_words(self, table: &str, external: &External) -> Result<(Words, Words)> {
        let (table, content) = (quoted(table), quoted(&external.content));
        let (key, columns) = match &external.key {
            Some(key) => (quoted(key), "*"),
            None => ("rowid".into(), "rowid AS rowid, *"),
        };
        self.0.raw().execute_batch(&format!(
            "CREATE TABLE temp.monolite_part AS SELECT 0 AS first, 0 AS last;
             CREATE VIEW temp.{content} AS SELECT {columns} FROM main.{content} WHERE {key} BETWEEN
                 (SELECT first FROM temp.monolite_part) AND (SELECT last FROM temp.monolite_part);
             CREATE VIRTUAL TABLE temp.monolite_index USING fts5({});
             CREATE VIRTUAL TABLE temp.monolite_expected
                 USING fts5vocab(temp, monolite_index, instance);
             CREATE VIRTUAL TABLE temp.monolite_indexed USING fts5vocab(main, {table}, instance);",
            external.arguments
        ))?;
        let last = format!(
            "SELECT max(monolite_key) FROM (SELECT {key} AS monolite_key FROM main.{content} \
             WHERE {key} >= ?1 ORDER BY {key} LIMIT {ROWS})"
        );
        let (mut find, mut expected) = (self.0.raw().prepare(&last)?, (0, 0));
        let mut next = Some(i64::MIN);
        while let Some(first) = next {
            let last: Option<i64> = find.query_row([first], |row| row.get(0))?;
            let Some(last) = last else { break };
            let part = "UPDATE temp.monolite_part SET first = ?1, last = ?2";
            self.0.raw().execute(part, [first, last])?;
            let fill = "INSERT INTO temp.monolite_index(monolite_index) VALUES ('rebuild')";
            self.0.raw().execute(fill, ())?;
            expected = add(expected, self.words_of("monolite_expected")?);
            next = last.checked_add(1);
        }
        Ok((self.words_of("monolite_indexed")?, expected))
    }

    fn words_of(self, vocabulary: &str) -> Result<Words> {
        let sql = format!("SELECT term, doc, col, \"offset\" FROM temp.{vocabulary}");
        let mut words = self.0.raw().prepare(&sql)?;
        let mut rows = words.query(())?;
        let mut all = (0, 0);
        while let Some(row) = rows.next()? {
            let mut hasher = DefaultHasher::new();
            for at in 0..4 {
                match row.get_ref(at)? {
                    ValueRef::Integer(number) => number.hash(&mut hasher),
                    ValueRef::Text(text) | ValueRef::Blob(text) => text.hash(&mut hasher),
                    ValueRef::Null | ValueRef::Real(_) => hasher.write_u8(0),
                }
            }
            all = add(all, (1, hasher.finish()));
        }
        Ok(all)
    }
}

fn add(one: Words, other: Words) -> Words {
    (one.0 + other.0, one.1.wrapping_add(other.1))
}

impl External {
    /// What `definition` says of a table of one of `modules` whose texts are elsewhere.
    pub(super) fn of(definition: &str, modules: &[&str]) -> Option<External> {
        let tokens: Vec<_> =
            Scan::of(definition).filter(|token| token.kind != TokenKind::Blank).collect();
        let is = |sign: u8| move |token: &Token<'_>| token.kind == TokenKind::Sign(sign);
        let begin = tokens.iter().position(is(b'('))?;
        let end = tokens.iter().rposition(is(b')'))?;
        let module = tokens[..begin].last()?.name()?;
        if !modules.iter().any(|it| module.eq_ignore_ascii_case(it)) {
            return None;
        }
        let (mut content, mut key) = (None, None);
        for argument in tokens.get(begin + 1..end)?.split(is(b',')) {
            let [name, equals, value, ..] = argument else { continue };
            if name.kind != TokenKind::Word || equals.kind != TokenKind::Sign(b'=') {
                continue;
            }
            let name = name.text.to_ascii_lowercase();
            let value = Some(value.name().unwrap_or_else(|| value.text.into()));
            // The beginning of an option's name stands for it.
            if "content".starts_with(&name) {
                content = value;
            } else if "content_rowid".starts_with(&name) {
                key = value;
            }
        }
        let content = content.filter(|content| !content.is_empty())?;
        let arguments = definition[tokens[begin].end()..tokens[end].at].into();
        Some(External { arguments, content, key })
    }
}

#[test]
fn what_has_the_texts_is_read_from_the_definition() {
    let of = |arguments: &str| {
        let definition = format!("CREATE VIRTUAL TABLE \"a(b\" USING FTS5({arguments})");
        External::of(&definition, &["fts5"]).map(|it| (it.content, it.key))
    };
    let is = |content: &str, key: Option<&str>| Some((content.into(), key.map(Into::into)));
    assert_eq!(of("a, b"), None);
    assert_eq!(of("a, content=''"), None);
    assert_eq!(of("content, tokenize = 'porter'"), None);
    assert_eq!(of("a, content = t, content_rowid = id"), is("t", Some("id")));
    assert_eq!(
        of("a,CONTENT=\"x \"\"y, z\" ,content_rowid=[my id]"),
        is("x \"y, z", Some("my id"))
    );
    assert_eq!(of("a, tokenize = \"unicode61 separators ',='\", cont = 't'"), is("t", None));
    let other = "CREATE VIRTUAL TABLE f USING fts4(content=\"t\", a)";
    assert_eq!(External::of(other, &["fts5"]), None);
    assert!(External::of(other, &["fts4"]).is_some());
}
