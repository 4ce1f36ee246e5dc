//! Owns what the comments of a migration say about how it is applied, and that each has an end.
//!
//! # Format
//! A directive is a comment of one line, with nothing but blanks and other comments before it:
//! `-- monolite: foreign_keys=off`, or `-- monolite: rebuild=` with the name of a table, which has
//! foreign keys off, too; or that with `online` behind it, alone in its file. A name that is not
//! one word is in quotes, as in SQL.
//!
//! # Invariants
//! - A comment that looks like a directive is one, or an error. One that was not obeyed would let
//!   `DROP TABLE` delete the rows of other tables.
//! - No comment goes on to the end of the text without a `*/`: SQLite takes all that follows for a
//!   part of it, and says nothing.

use monolite_sqlite::{Scan, TokenKind};

use crate::call::member::ForeignKeys;
use crate::error::Result;

use super::wrong;

/// What begins a directive.
const DIRECTIVE: &str = "-- monolite:";

/// How a migration is applied.
#[derive(Debug, Default)]
pub(super) struct Directives {
    pub(super) foreign_keys: ForeignKeys,
    /// The tables that it rebuilds.
    pub(super) rebuilds: Vec<String>,
    /// The table that it rebuilds online.
    pub(super) online: Option<String>,
}

/// What the directives of the migration `name` say, whose text is `sql`.
///
/// # Errors
/// `Invalid` for a comment that looks like a directive and is none, and for one without an end.
pub(super) fn read(name: &str, sql: &str) -> Result<Directives> {
    let (mut directives, mut count) = (Directives::default(), 0);
    let comments = comments(sql);
    let line_of = |comment: &Comment<'_>| sql[..comment.at].matches('\n').count() + 1;
    if let Some(open) = comments.iter().find(|comment| comment.is_open) {
        return Err(wrong(&format!(
            "the migration {name}:{} has a comment that begins with /* and does not end; all that \
             follows would be left out: end it with */",
            line_of(open)
        )));
    }
    for comment in comments.into_iter().filter(Comment::looks_like_directive) {
        let said = comment.text.strip_prefix(DIRECTIVE).filter(|_| comment.is_in_head);
        let said = said.map(|said| said.trim().split_once('='));
        let said = said.flatten();
        let rebuilt = said.filter(|it| it.0 == "rebuild").and_then(|it| rebuilt(it.1));
        match (said, rebuilt) {
            (Some(("foreign_keys", "off")), _) => {}
            (_, Some((table, true))) => directives.online = Some(table),
            (_, Some((table, false))) => directives.rebuilds.push(table),
            _ => {
                let line = line_of(&comment);
                return Err(wrong(&format!(
                    "the migration {name}:{line} has the comment {:?}, which looks like a \
                     directive and is not known as one; there are \"{DIRECTIVE} \
                     foreign_keys=off\" and \"{DIRECTIVE} rebuild=TABLE\" or \"rebuild=TABLE \
                     online\", before the first statement (a name of several words is in quotes): \
                     write it so and there, or reword the comment",
                    comment.text
                )));
            }
        }
        count += 1;
    }
    let is_alone = directives.online.is_some() && count == 1;
    if !is_alone && count > 0 {
        directives.foreign_keys = ForeignKeys::Off;
    }
    if directives.online.is_some() && !is_alone {
        return Err(wrong(&format!(
            "the migration {name} rebuilds a table online, which no other directive can be beside; \
             make several migrations"
        )));
    }
    Ok(directives)
}

/// The table that is named behind `rebuild=`, and whether it is rebuilt online.
fn rebuilt(said: &str) -> Option<(String, bool)> {
    let tokens: Vec<_> = Scan::of(said).filter(|it| it.kind != TokenKind::Blank).collect();
    match &tokens[..] {
        [table] => Some((table.name()?, false)),
        [table, online] if online.is_word("online") => Some((table.name()?, true)),
        _ => None,
    }
}

struct Comment<'s> {
    at: usize,
    text: &'s str,
    /// Whether nothing but blanks and comments is before it.
    is_in_head: bool,
    /// Whether the text ends before it does.
    is_open: bool,
}

impl Comment<'_> {
    /// Whether its first word is `monolite`, in whatever case, or it says what a directive does, at
    /// its begin or behind one word: `-- monolit: rebuild=t`.
    fn looks_like_directive(&self) -> bool {
        let text = self.text.trim_start_matches(['-', '/', '*', ' ', '\t', '\n']);
        let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
        let (word, rest) = text.split_at(text.find(|c| !is_of_word(c)).unwrap_or(text.len()));
        let said = rest.strip_prefix(':').map_or(text, str::trim_start).to_ascii_lowercase();
        word.eq_ignore_ascii_case("monolite")
            || said.starts_with("rebuild=")
            || said.starts_with("foreign_keys=")
    }
}

/// The comments of `sql`. What is in quotes is none.
fn comments(sql: &str) -> Vec<Comment<'_>> {
    let (mut found, mut at, mut is_in_head) = (Vec::new(), 0, true);
    while let Some(first) = sql[at..].chars().next() {
        let rest = &sql[at..];
        // The length up to `end`, which is looked for behind so many bytes.
        let until = |skipped: usize, end: &str| {
            rest[skipped..].find(end).map_or(rest.len(), |found| skipped + found + end.len())
        };
        let is_comment = rest.starts_with("--") || rest.starts_with("/*");
        let length = match first {
            '-' if is_comment => until(2, "\n"),
            '/' if is_comment => until(2, "*/"),
            '\'' => until(1, "'"),
            '"' => until(1, "\""),
            '`' => until(1, "`"),
            '[' => until(1, "]"),
            _ => first.len_utf8(),
        };
        if is_comment {
            let text = &rest[..length];
            let is_open = first == '/' && (length < 4 || !text.ends_with("*/"));
            found.push(Comment { at, text: text.trim_end(), is_in_head, is_open });
        } else if !first.is_whitespace() && first != '\u{feff}' {
            is_in_head = false;
        }
        at += length;
    }
    found
}
