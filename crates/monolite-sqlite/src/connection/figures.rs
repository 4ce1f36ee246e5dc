//! Owns that `changes()` tells a trigger nothing of the transactions before its own.

use std::sync::Arc;

use rusqlite::Result;
use rusqlite::config::DbConfig;

use super::Connection;
use crate::names::quoted;
use crate::traits::Traits;
use crate::verb::has_word;

/// Those of triggers and foreign keys.
const SWITCHES: [DbConfig; 2] =
    [DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY];

/// Of tables: nothing but itself is planned where rows of it are deleted.
const QUIET: &str = "AND lower(name) NOT IN (
        SELECT lower(tbl_name) FROM main.sqlite_schema WHERE type = 'trigger'
    ) AND NOT instr(lower(sql), 'references') AND lower(name) NOT IN (
        SELECT lower(key.\"table\")
        FROM main.sqlite_schema child, pragma_foreign_key_list(child.name, 'main') key
        WHERE child.type = 'table' AND instr(lower(child.sql), 'references')
    )";

impl Connection {
    /// Has `changes()` be 0 for triggers, too, if the transaction has changed nothing yet; to be
    /// called before a statement with `traits` that writes, if it may ask for it.
    ///
    /// How it was prepared does not tell: SQLite prepares it again when it runs, if the schema has
    /// changed meanwhile, and then a trigger may ask. So it may ask if anything in the schema does.
    /// It comes before each statement that changes the schema, too: one that is handed out already
    /// may run behind that without the engine.
    ///
    /// # Errors
    /// Those of SQLite.
    #[inline]
    pub fn clear_changes(&self, traits: Traits) -> Result<()> {
        let may_ask = traits.has(Traits::ASKS_CHANGES | Traits::SCHEMA);
        if (may_ask || self.may_ask_changes()) && self.counts.are_foreign() {
            return self.run_one_without_rows();
        }
        Ok(())
    }

    /// As [`Connection::clear_changes`], for statements of `sql` that are not prepared yet, or were
    /// prepared without the engine.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn clear_changes_for(&self, sql: &str) -> Result<()> {
        let asks = if has_word(sql, "changes") { Traits::ASKS_CHANGES } else { Traits::default() };
        self.clear_changes(asks | self.unsettled())
    }

    /// SQLite sets its figure with each statement that changes rows, even if there are none.
    ///
    /// Such a statement does nothing else, but that it notes the last rowid of each `AUTOINCREMENT`
    /// table into which a trigger of its table could insert, though none runs. Nothing can have a
    /// trigger on the table where they are noted, which is there when there is such a table.
    ///
    /// SQLite plans a table's triggers and foreign keys although nothing of them runs, and planning
    /// cannot be interrupted. So the statement uses a table without either. Where there is none,
    /// both are switched off meanwhile, and SQLite prepares each statement again behind that.
    fn run_one_without_rows(&self) -> Result<()> {
        self.as_engine(|| {
            if self.delete_nothing_from(&self.quiet_tables()?)? {
                return Ok(());
            }
            let before = SWITCHES.map(|switch| self.raw().db_config(switch));
            SWITCHES.iter().try_for_each(|switch| self.switch(*switch, false))?;
            let deleted = self.tables("").and_then(|tables| self.delete_nothing_from(&tables));
            for (switch, before) in SWITCHES.into_iter().zip(before) {
                self.switch(switch, before?)?;
            }
            deleted.map(drop)
        })
    }

    /// The tables without triggers and foreign keys; those of the last schema, if it is still that.
    fn quiet_tables(&self) -> Result<Arc<[String]>> {
        let cookie =
            (!self.may_have_changed_schema()).then(|| self.pages().open_cookie()).flatten();
        let known = self.memory.quiet_tables.take().filter(|(of, _)| cookie == Some(*of));
        let tables = match known {
            Some((_, tables)) => tables,
            None => self.tables(QUIET)?,
        };
        self.memory.quiet_tables.set(cookie.map(|cookie| (cookie, Arc::clone(&tables))));
        Ok(tables)
    }

    /// The tables that fulfil `condition`, first that where the last rowids are noted.
    fn tables(&self, condition: &str) -> Result<Arc<[String]>> {
        let sql = format!(
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage > 0 {condition} \
             ORDER BY name <> 'sqlite_sequence'"
        );
        self.raw().prepare(&sql)?.query_map([], |row| row.get(0))?.collect()
    }

    /// Whether one of `tables` could be deleted from. Those behind full-text search cannot.
    fn delete_nothing_from(&self, tables: &[String]) -> Result<bool> {
        for name in tables {
            let sql = format!("DELETE FROM main.{} WHERE 0", quoted(name));
            if let Ok(mut delete) = self.raw().prepare(&sql) {
                return delete.raw_execute().map(|_| true);
            }
        }
        Ok(false)
    }

    fn switch(&self, switch: DbConfig, is_on: bool) -> Result<()> {
        self.raw().set_db_config(switch, is_on).map(drop)
    }
}
