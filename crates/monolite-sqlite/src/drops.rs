//! Owns which tables may not be dropped: those that others reference, in a transaction that counts
//! on foreign keys being off while they are on. SQLite deletes the rows of such a table first, and
//! what `ON DELETE` says is done to those of the others, without a word.
//!
//! - A migration is refused to drop one, unless it has foreign keys off.
//! - So is a transaction in which `PRAGMA foreign_keys = OFF` was refused: its program is about to
//!   rebuild a table, and may have ignored the error.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Result};

use crate::signals::Signals;

/// Says why the statement may not drop `table`, if it may not.
///
/// # Errors
/// Those of SQLite.
pub(crate) fn refusal(
    connection: &Connection,
    table: &str,
    signals: &Signals,
) -> Result<Option<String>> {
    let is_migrating = signals.is_migrating();
    let counts_on_it = is_migrating || signals.wants_no_keys();
    if !counts_on_it || !connection.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)? {
        return Ok(None);
    }
    let Some(child) = table_that_references(connection, table)? else { return Ok(None) };
    let (before, remedy) = if is_migrating {
        ("", "to rebuild the table, begin the file with `-- monolite: foreign_keys=off`")
    } else {
        (
            "PRAGMA foreign_keys = OFF was refused before, ",
            "to rebuild the table, use a migration (monolite::Migrations) whose file begins with \
             `-- monolite: foreign_keys=off`",
        )
    };
    Ok(Some(format!(
        "DROP TABLE {table} is refused: {before}{child} references it, and SQLite would delete the \
         rows of {table} first, and act on those of {child} (ON DELETE); {remedy}; to be rid of \
         it, drop the tables that reference it first"
    )))
}

/// Another table that references `table`.
fn table_that_references(connection: &Connection, table: &str) -> Result<Option<String>> {
    const FIND: &str = "SELECT child.name FROM main.sqlite_schema AS child, \
         pragma_foreign_key_list(child.name, 'main') AS key \
         WHERE child.type = 'table' AND key.\"table\" = ?1 COLLATE NOCASE \
         AND child.name <> ?1 COLLATE NOCASE LIMIT 1";
    let mut find = connection.prepare(FIND)?;
    find.query_map([table], |row| row.get(0))?.next().transpose()
}
