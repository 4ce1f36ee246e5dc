//! Owns which tables may not be dropped: those that others reference. SQLite deletes the rows of
//! such a table first, and what `ON DELETE` says is done to those of the others, without a word.
//!
//! - A migration may drop none that another table references.
//! - Other SQL may drop none where SQLite would delete or change rows of another table. A program
//!   that rebuilds a table counts on foreign keys being off, which the engine cannot know.
//! - Where `PRAGMA foreign_keys = OFF` was refused in a transaction, it may not replace rows that
//!   others reference (`REPLACE`), either: SQLite deletes them first, too.
//!
//! Where foreign keys are off, SQLite does none of that, and nothing is refused.
//!
//! # Algorithm
//! SQLite compiles what a foreign key does into the statement that has it done, and asks the
//! authorizer for it as for the statement itself, outside of any trigger. So an `INSERT` or
//! `UPDATE` acts on other rows if it asks for a deletion, or for another table than its own.

use std::sync::Mutex;

use hashbrown::HashSet;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext};
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
    /// What the statement does that was prepared last.
    does: Mutex<Does>,
    /// The tables that statements of the open transaction may have dropped.
    dropped: Mutex<HashSet<String>>,
}

/// What a statement does, as far as it was asked about.
#[derive(Debug, Default)]
pub(crate) enum Does {
    #[default]
    Nothing,
    /// Deletes rows, or changes the schema.
    Else,
    Drops(String),
    /// Adds or changes rows of a table.
    Writes(String),
    /// Writes rows of the first table, and a foreign key acts on those of the second.
    ActsOn(String, String),
}

impl Does {
    /// What it does if it also does `action`, outside of triggers.
    fn and(self, action: &AuthAction<'_>) -> Does {
        use AuthAction::{Delete, DropTable, Insert, Update};
        match (self, *action) {
            (_, DropTable { table_name }) => Does::Drops(table_name.into()),
            (Does::Nothing, Insert { table_name } | Update { table_name, .. })
                if !table_name.starts_with("sqlite_") =>
            {
                Does::Writes(table_name.into())
            }
            (Does::Nothing, Insert { .. } | Update { .. } | Delete { .. }) => Does::Else,
            (Does::Writes(into), Delete { table_name }) => Does::ActsOn(into, table_name.into()),
            (Does::Writes(into), Update { table_name, .. }) if table_name != into => {
                Does::ActsOn(into, table_name.into())
            }
            (does, _) => does,
        }
    }
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

    /// Whether foreign keys are on for a transaction that has asked for them to be off.
    pub(crate) fn wants_no_keys(&self) -> bool {
        self.wants_no_keys.is_up()
    }

    /// A statement is prepared that does this.
    pub(crate) fn note(&self, AuthContext { action, accessor, .. }: &AuthContext<'_>) {
        if let AuthAction::DropTable { table_name } = action {
            locked(&self.dropped).insert((*table_name).to_owned());
        }
        if let Some(is_on) = rules::sets_foreign_keys(action) {
            self.wants_no_keys.set(!is_on);
        } else if accessor.is_none()
            && (self.wants_no_keys() || matches!(action, AuthAction::DropTable { .. }))
        {
            let mut does = locked(&self.does);
            *does = std::mem::take(&mut *does).and(action);
        }
    }

    /// Takes what the statement does that was prepared last.
    pub(crate) fn take(&self) -> Does {
        std::mem::take(&mut *locked(&self.does))
    }

    /// Takes the tables that statements may have dropped since this was last asked: those behind
    /// which a savepoint went back are among them.
    pub(crate) fn take_dropped(&self) -> HashSet<String> {
        std::mem::take(&mut *locked(&self.dropped))
    }

    /// Says why a statement may not do what it `does`, if it may not.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(crate) fn refusal(&self, connection: &Connection, does: &Does) -> Result<Option<String>> {
        let is_harmless = match does {
            Does::Drops(_) => false,
            Does::ActsOn(..) => !self.wants_no_keys(),
            _ => true,
        };
        if is_harmless || !connection.db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY)? {
            return Ok(None);
        }
        let before = match self.wants_no_keys() {
            true => "PRAGMA foreign_keys = OFF had no effect in this transaction, ",
            false => "",
        };
        let (child, remedy) = if self.is_migrating() {
            (
                table_that_references as fn(&Connection, &str) -> Result<Option<String>>,
                "to rebuild the table, begin the file with `-- monolite: rebuild=TABLE` and \
                 declare it anew, or with `-- monolite: foreign_keys=off`",
            )
        } else {
            (
                table_whose_rows_change as _,
                "to rebuild the table, switch foreign keys off before the transaction begins \
                 (Database::without_foreign_keys), or use a migration (monolite::Migrations) whose \
                 file begins with `-- monolite: foreign_keys=off`; through a server, say PRAGMA \
                 foreign_keys = OFF before BEGIN",
            )
        };
        Ok(match does {
            Does::Drops(table) => child(connection, table)?.map(|child| {
                format!(
                    "DROP TABLE {table} is refused: {before}{child} references it, and SQLite \
                     would delete the rows of {table} first, and act on those of {child} (ON \
                     DELETE); {remedy}; to be rid of it, drop the tables that reference it first"
                )
            }),
            // A virtual table prepares statements of its own meanwhile, on tables of its own.
            Does::ActsOn(table, child) => references(connection, child, table)?.then(|| {
                format!(
                    "REPLACE of rows of {table} is refused: {before}{child} references it, and \
                     SQLite would act on its rows (ON DELETE, ON UPDATE); {remedy}"
                )
            }),
            _ => None,
        })
    }
}

/// Whether a key of `child` references `table`.
fn references(connection: &Connection, child: &str, table: &str) -> Result<bool> {
    const FIND: &str = "SELECT 1 FROM pragma_foreign_key_list(?1, 'main') \
         WHERE \"table\" = ?2 COLLATE NOCASE";
    connection.prepare(FIND)?.exists([child, table])
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

/// Another table of which SQLite would delete or change rows when it drops `table`.
fn table_whose_rows_change(connection: &Connection, table: &str) -> Result<Option<String>> {
    // A row that has a NULL in its key references nothing.
    const FIND: &str = "SELECT child.name, printf('SELECT 1 FROM main.\"%w\" WHERE %s LIMIT 1', \
         child.name, group_concat(printf('\"%w\" IS NOT NULL', key.\"from\"), ' AND ')) \
         FROM main.sqlite_schema AS child, pragma_foreign_key_list(child.name, 'main') AS key \
         WHERE child.type = 'table' AND key.\"table\" = ?1 COLLATE NOCASE \
         AND child.name <> ?1 COLLATE NOCASE AND key.on_delete NOT IN ('NO ACTION', 'RESTRICT') \
         GROUP BY child.name, key.id";
    let mut find = connection.prepare(FIND)?;
    let mut found = find.query([table])?;
    while let Some(child) = found.next()? {
        let looks = child.get_ref(1)?.as_str()?;
        if connection.prepare(looks)?.exists(())? {
            return child.get(0).map(Some);
        }
    }
    Ok(None)
}
