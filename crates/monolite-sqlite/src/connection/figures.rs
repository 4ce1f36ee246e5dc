//! Owns that `changes()` tells a trigger nothing of the transactions before its own.

use rusqlite::Result;

use super::Connection;

impl Connection {
    /// Has `changes()` be 0 for triggers, too, if the transaction has changed nothing yet; to be
    /// called before a statement that writes and may ask for it.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn clear_changes(&self) -> Result<()> {
        if !self.counts.has_foreign_changes(self.raw()) {
            return Ok(());
        }
        // SQLite sets its figure with each statement that changes rows, even if there are none.
        let sql = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND rootpage > 0";
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

    /// As [`Connection::clear_changes`], where it is not known whether a statement of `sql` asks.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn clear_changes_for(&self, sql: &str) -> Result<()> {
        if !self.counts.has_foreign_changes(self.raw()) {
            return Ok(());
        }
        let asks = "SELECT ?1 LIKE '%changes%' OR EXISTS(SELECT 1 FROM main.sqlite_schema \
                    WHERE type = 'trigger' AND sql LIKE '%changes%')";
        let ask = || self.raw().query_row(asks, [sql], |row| row.get(0));
        if self.signals.as_engine(ask)? { self.clear_changes() } else { Ok(()) }
    }
}
