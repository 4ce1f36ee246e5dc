//! Owns that `changes()` tells a trigger nothing of the transactions before its own.

use rusqlite::Result;

use super::Connection;
use crate::statements::Own;
use crate::traits::Traits;
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
        let may_ask = traits.has(Traits::ASKS_CHANGES | Traits::SCHEMA);
        if (may_ask || self.may_ask_changes()) && self.counts.are_foreign() {
            return self.engine(Own::ChangeNoRows);
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
}
