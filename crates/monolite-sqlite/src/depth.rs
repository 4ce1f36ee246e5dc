//! Owns how deep the expressions of a statement of trusted SQL can become, so that one which would
//! need more stack than there is ([`crate::stack`]) is refused instead of ending the process.
//!
//! # Algorithm
//! SQLite lets an expression have 1,000 levels where it parses it. The column of a `SELECT` that is
//! put in the place of its name adds its own, and for each of them SQLite asks the authorizer. So:
//! 1. [`FREE_SELECTS`] are let through uncounted: each may have 1,000 levels.
//! 2. A statement that has more is weighed, with what the schema puts in the place of names (views,
//!    triggers, tables with generated columns): no expression is deeper than the sum of what is
//!    written, whatever names what, and none than the deepest for each `SELECT`. A text is weighed
//!    in one pass over its tokens: each is a level of what is between two commas, at most.
//! 3. It is prepared again, and may have as many `SELECT`s as fit.
//!
//! # Not here
//! Generated columns of one table that are made of each other, 2,000 of which can be written
//! 1,000 deep each: nothing asks for them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rusqlite::Result;
use rusqlite::hooks::AuthAction;

use crate::scan::{Scan, TokenKind};

/// Levels for which there is stack: SQLite takes 1 KiB for each at most, and 64 MiB are there.
const MAX_LEVELS: usize = 60_000;

/// Levels of an expression as it is written (`SQLITE_MAX_EXPR_DEPTH`).
const WRITTEN_LEVELS: usize = 1_000;

/// `SELECT`s of a statement that need not be weighed.
pub(crate) const FREE_SELECTS: u32 = (MAX_LEVELS / WRITTEN_LEVELS) as u32;

/// What can be put in the place of a name. A table without generated columns has few levels.
const DEFINITIONS: &str = "SELECT sql FROM main.sqlite_schema WHERE sql IS NOT NULL AND \
     (type IN ('view', 'trigger') OR type = 'table' AND sql LIKE '%AS%(%')";

/// Levels of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Levels {
    /// Those of all its `SELECT`s together.
    all: usize,
    /// Those of the deepest one.
    most: usize,
}

impl Levels {
    fn add(&mut self, other: Levels) {
        self.all = self.all.saturating_add(other.all);
        self.most = self.most.max(other.most);
    }

    fn add_select(&mut self, levels: usize) {
        self.add(Levels { all: levels.min(WRITTEN_LEVELS), most: levels.min(WRITTEN_LEVELS) });
    }
}

/// What is inside of one pair of parentheses.
#[derive(Default)]
struct Nest {
    /// Levels since the last comma.
    own: usize,
    /// The most between two commas.
    most: usize,
    has_select: bool,
}

impl Nest {
    /// A comma ends one expression.
    fn end(&mut self) {
        self.most = self.most.max(std::mem::take(&mut self.own));
    }

    /// The levels of what is left of it.
    fn take(&mut self) -> usize {
        self.end();
        std::mem::take(&mut self.most)
    }
}

/// The levels that `sql` has, a statement or several.
fn levels(sql: &str) -> Levels {
    let mut levels = Levels::default();
    let mut outer: Vec<Nest> = Vec::new();
    let mut nest = Nest::default();
    for token in Scan::of(sql) {
        match token.kind {
            TokenKind::Blank => {}
            TokenKind::Sign(b',') => nest.end(),
            TokenKind::Sign(b'(') => outer.push(std::mem::take(&mut nest)),
            TokenKind::Sign(b')') => {
                let inner = std::mem::replace(&mut nest, outer.pop().unwrap_or_default());
                close(inner, &mut nest, &mut levels);
            }
            _ if token.is_word("select") => {
                // Of a compound each has its own.
                let before = nest.take();
                levels.add_select(before);
                nest.has_select = true;
            }
            _ => nest.own += 1,
        }
    }
    while let Some(next) = outer.pop() {
        let inner = std::mem::replace(&mut nest, next);
        close(inner, &mut nest, &mut levels);
    }
    levels.add_select(nest.take());
    levels
}

/// Ends `inner`, which stands inside of `nest`.
fn close(mut inner: Nest, nest: &mut Nest, levels: &mut Levels) {
    let deepest = inner.take();
    nest.own += 1;
    if inner.has_select {
        levels.add_select(deepest);
    } else {
        nest.own += deepest;
    }
}

/// How many `SELECT`s a statement out of `sql` may have.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn most_selects(connection: &rusqlite::Connection, sql: &str) -> Result<u32> {
    let mut sum = levels(sql);
    let mut definitions = connection.prepare(DEFINITIONS)?;
    let mut rows = definitions.query([])?;
    while let Some(row) = rows.next()? {
        sum.add(levels(&String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?)));
    }
    Ok(allowed(sum))
}

fn allowed(levels: Levels) -> u32 {
    if levels.all <= MAX_LEVELS {
        return u32::MAX;
    }
    u32::try_from(MAX_LEVELS / levels.most.max(1)).unwrap_or(u32::MAX).max(FREE_SELECTS)
}

/// Counts the `SELECT`s of the statement that is being prepared.
#[derive(Debug, Default)]
pub(crate) struct Selects {
    counted: AtomicU32,
    /// How many there may be; 0 while they are not counted.
    most: AtomicU32,
}

impl Selects {
    /// Has `prepare` prepare a statement that may have `most` `SELECT`s, and says whether it was
    /// refused for having more. Of what SQLite prepares by itself, for a virtual table or again,
    /// none are counted.
    pub(crate) fn during<R>(&self, most: u32, prepare: impl FnOnce() -> R) -> (R, bool) {
        self.counted.store(0, Relaxed);
        self.most.store(most, Relaxed);
        let prepared = prepare();
        self.most.store(0, Relaxed);
        (prepared, self.counted.load(Relaxed) > most)
    }

    /// Counts this `action`, and says why a statement that has it is refused, if it is.
    pub(crate) fn refusal(&self, action: &AuthAction<'_>) -> Option<String> {
        let most = self.most.load(Relaxed);
        if most == 0 || !matches!(action, AuthAction::Select) {
            return None;
        }
        let counted = self.counted.load(Relaxed).saturating_add(1);
        self.counted.store(counted, Relaxed);
        (counted > most).then(|| {
            format!(
                "the statement has more than {most} SELECTs, those of its views and common table \
                 expressions included, and their expressions can become more than {MAX_LEVELS} \
                 levels deep, for which there is no stack; write it in parts, or keep a part of \
                 its result in a table"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sql: &str) -> (usize, usize) {
        let Levels { all, most } = levels(sql);
        (all, most)
    }

    #[test]
    fn levels_are_at_least_those_of_the_deepest_expression() {
        for (sql, all, most) in [
            ("", 0, 0),
            ("SELECT a + b, c", 3, 3),
            ("SELECT ~ ~ ~a, (((b)))", 4, 4),
            ("SELECT f(a, g(b + c)), d", 7, 7),
            ("SELECT 1, 2 UNION ALL SELECT 3, 4", 3 + 1, 3),
            ("SELECT (SELECT a + b) + c FROM t", 3 + 5, 5),
            ("INSERT INTO t VALUES (1, 2), (3, 4)", 6, 6),
            ("SELECT ((a", 3, 3),
            ("a)) + b", 5, 5),
        ] {
            assert_eq!(of(sql), (all, most), "{sql}");
        }
        assert_eq!(of(&format!("SELECT a{}", "+a".repeat(5_000))).1, WRITTEN_LEVELS);
    }

    #[test]
    fn many_shallow_selects_are_let_through_and_many_deep_ones_are_not() {
        let many = |expression: &str, times| {
            let one = format!("SELECT {expression}");
            allowed(levels(&vec![one; times].join(" UNION ALL ")))
        };
        assert_eq!(many("a + b + c", 5_000), u32::MAX);
        let deep = format!("a{}", "+a".repeat(499));
        assert_eq!(many(&deep, 59), u32::MAX);
        assert_eq!(many(&deep, 200), (MAX_LEVELS / 1_000) as u32);
        let shallower = format!("a{}", "+a".repeat(99));
        assert!(many(&shallower, 400) > 250);
    }
}
