//! Owns that `changes()` tells a trigger nothing of the transactions before its own.

use rusqlite::Result;

use super::Connection;
use crate::signals::Traits;
use crate::verb::has_word;

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
        let may_ask = traits.asks_changes() || traits.has(Traits::SCHEMA);
        if (may_ask || self.may_ask_changes()) && self.counts.has_foreign_changes(self.raw()) {
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
    fn run_one_without_rows(&self) -> Result<()> {
        let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage > 0 \
                   ORDER BY name <> 'sqlite_sequence'";
        self.signals.as_engine(|| {
            let mut tables = self.raw().prepare(sql)?;
            let mut names = tables.query([])?;
            while let Some(row) = names.next()? {
                let name = row.get::<_, String>(0)?.replace('"', "\"\"");
                // Not every table can be written to: those behind full-text search cannot.
                let delete = self.raw().prepare(&format!("DELETE FROM main.\"{name}\" WHERE 0"));
                if let Ok(mut delete) = delete {
                    return delete.raw_execute().map(|_| ());
                }
            }
            Ok(())
        })
    }
}
