//! Owns which tables may not be dropped: those that others reference, in a transaction that counts
//! on foreign keys being off while they are on. SQLite deletes the rows of such a table first, and
//! what `ON DELETE` says is done to those of the others, without a word.
//!
//! - A migration is refused to drop one, unless it has foreign keys off.
//! - So is a transaction in which `PRAGMA foreign_keys = OFF` was refused: its program is about to
//!   rebuild a table, and may have ignored the error.
//!
//! Where foreign keys are off, SQLite does none of that, and nothing is refused.

use std::sync::Mutex;

use hashbrown::HashSet;
use rusqlite::config::DbConfig;
use rusqlite::hooks::AuthAction;
use rusqlite::{Connection, Result};

use crate::flag::{Flag, Switch};
use crate::locked::locked;
use crate::rules;

/// What the statements of a transaction have said of foreign keys and of tables to drop.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    /// Whether the statements are those of a migration.
    migrating: Flag,
    /// Whether the transaction has asked for foreign keys to be off, and was refused it.
    wants_no_keys: Flag,
    /// The table that the statement drops which was prepared last.
    table: Mutex<Option<String>>,
    /// Those that statements of the open transaction may have dropped.
    dropped: Mutex<HashSet<String>>,
}

impl Drops {
    /// A transaction begins, which has not asked for anything.
    #[inline]
    pub(crate) fn begin(&self) {
        self.wants_no_keys.set(false);
    }

    /// The statements that are prepared are those of a migration until the switch is dropped.
    pub(crate) fn migrating(&self) -> Switch<'_> {
        self.migrating.switch()
    }

    pub(crate) fn is_migrating(&self) -> bool {
        self.migrating.is_up()
    }

    /// A statement with this `action` is prepared.
    pub(crate) fn note(&self, action: &AuthAction<'_>) {
        if let AuthAction::DropTable { table_name } = action {
            *locked(&self.table) = Some((*table_name).to_owned());
            locked(&self.dropped).insert((*table_name).to_owned());
        } else if let Some(is_on) = rules::sets_foreign_keys(action) {
            self.wants_no_keys.set(!is_on);
        }
    }

    /// Takes the table that the statement drops which was prepared last.
    pub(crate) fn take(&self) -> Option<String> {
        locked(&self.table).take()
    }

    /// Takes the tables that statements may have dropped since this was last asked: those behind
    /// which a savepoint went back are among them.
    pub(crate) fn take_dropped(&self) -> HashSet<String> {
        std::mem::take(&mut *locked(&self.dropped))
    }

    /// Says why a statement may not drop `table`, if it may not.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn refusal(&self, connection: &Connection, table: &str) -> Result<Option<String>> {
        let counts_on_it = self.is_migrating() || self.wants_no_keys.is_up();
        if !counts_on_it || !connection.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)? {
            return Ok(None);
        }
        let Some(child) = table_that_references(connection, table)? else { return Ok(None) };
        let (before, remedy) = if self.is_migrating() {
            ("", "to rebuild the table, begin the file with `-- monolite: foreign_keys=off`")
        } else {
            (
                "PRAGMA foreign_keys = OFF was refused before, ",
                "to rebuild the table, use Database::without_foreign_keys, or a migration \
                 (monolite::Migrations) whose file begins with `-- monolite: foreign_keys=off`",
            )
        };
        Ok(Some(format!(
            "DROP TABLE {table} is refused: {before}{child} references it, and SQLite would delete \
             the rows of {table} first, and act on those of {child} (ON DELETE); {remedy}; to be \
             rid of it, drop the tables that reference it first"
        )))
    }
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
