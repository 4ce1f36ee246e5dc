//! Owns which statements may use a virtual table, and whether the open transaction has had one.
//!
//! # Algorithm
//! 1. A transaction begins with the names of the virtual tables of its schema ([`Known`]).
//! 2. The authorizer names each table that a statement reads or changes, in its views and triggers,
//!    too. One that is among these names makes it a statement that uses a virtual table.
//! 3. The authorizer does not name a table of which nothing but the columns of `USING` or a
//!    `NATURAL` join is read. Its name then stands beside that word: in the statement, which is
//!    looked through ([`VirtualTables::may_join`]), or in a view or a trigger. A schema with such
//!    a definition has every statement count.
//! 4. Behind a change of the schema every statement counts, until the next transaction begins.
//!
//! Both may only err towards "uses one".
//!
//! # Not here
//! Tables that exist by the name of their module alone (`json_each`, those of an application): they
//! have no transactions. `rules` and `added` know those whose rows are no function of pages.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Result;
use rusqlite::hooks::AuthAction;

use crate::locked::locked;
use crate::verb::{has_word, may_join_by_names};

/// Of a virtual table there is no root page.
const NAMES: &str = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0";

/// What can read a table without naming it in the statement.
const DEFINITIONS: &str = "SELECT sql FROM main.sqlite_schema WHERE type IN ('view', 'trigger')";

/// What is known of the virtual tables of a schema.
#[derive(Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing: the schema was changed, or could not be asked.
    #[default]
    Nothing,
    /// There are some, and the authorizer may not name them.
    Hidden,
    /// Their names.
    Names(Vec<String>),
}

/// The virtual tables that a connection's statements can use.
#[derive(Debug, Default)]
pub(crate) struct VirtualTables {
    known: Mutex<Known>,
    is_used: AtomicBool,
}

impl VirtualTables {
    /// A transaction begins.
    #[inline]
    pub(crate) fn begin(&self) {
        self.is_used.store(false, Ordering::Relaxed);
    }

    /// A statement that may use one is prepared, or runs.
    #[inline]
    pub(crate) fn mark_used(&self) {
        self.is_used.store(true, Ordering::Relaxed);
    }

    /// Whether a statement of the open transaction may have used one.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The schema changes.
    pub(crate) fn forget(&self) {
        *locked(&self.known) = Known::Nothing;
    }

    /// Whether [`VirtualTables::learn`] is to be called for a schema that was known before.
    pub(crate) fn is_forgotten(&self) -> bool {
        *locked(&self.known) == Known::Nothing
    }

    /// Whether there is none in the schema.
    pub(crate) fn are_none(&self) -> bool {
        matches!(&*locked(&self.known), Known::Names(names) if names.is_empty())
    }

    /// Takes note of those in the schema of the open transaction; whether something else is known
    /// than before.
    pub(crate) fn learn(&self, connection: &rusqlite::Connection) -> bool {
        let learnt = look_for(connection).unwrap_or_default();
        let mut known = locked(&self.known);
        let before = std::mem::replace(&mut *known, learnt);
        before != *known
    }

    /// Whether a statement with this `action` may use one.
    pub(crate) fn may_be_in(&self, action: &AuthAction<'_>) -> bool {
        let (AuthAction::Read { table_name, .. }
        | AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }) = action
        else {
            return false;
        };
        match &*locked(&self.known) {
            Known::Names(names) => names.iter().any(|name| name.eq_ignore_ascii_case(table_name)),
            Known::Nothing | Known::Hidden => true,
        }
    }

    /// Whether `sql` may join one by columns of which the authorizer is not asked.
    pub(crate) fn may_join(&self, sql: &str) -> bool {
        match &*locked(&self.known) {
            Known::Names(names) => may_join(sql, names),
            Known::Nothing | Known::Hidden => true,
        }
    }
}

fn look_for(connection: &rusqlite::Connection) -> Result<Known> {
    let texts = |sql| -> Result<Vec<String>> {
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    let names = texts(NAMES)?;
    let is_hidden =
        !names.is_empty() && texts(DEFINITIONS)?.iter().any(|sql| may_join(sql, &names));
    Ok(if is_hidden { Known::Hidden } else { Known::Names(names) })
}

/// Whether `text` has both the name of a table and a word by which it may join it.
fn may_join(text: &str, names: &[String]) -> bool {
    // Quotes within a name are doubled where it is quoted.
    let is_in =
        |name: &String| name.is_empty() || name.contains(['"', '\'', '`']) || has_word(text, name);
    !names.is_empty() && may_join_by_names(text) && names.iter().any(is_in)
}

#[cfg(test)]
mod tests;
