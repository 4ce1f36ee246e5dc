//! Owns what a connection remembers of the schema and the statistics: that it is what the open
//! transaction has, for every statement that is prepared.

use rusqlite::config::DbConfig;
use rusqlite::{ErrorCode, MAIN_DB, Result, TransactionState};

use super::Connection;
use crate::signals::Traits;
use crate::statements::Own;

impl Connection {
    /// Has SQLite compare the schema in its memory with that of the open transaction, and read it
    /// again if they differ. The version in the file tells; a statement that fails half-way puts
    /// that back, and leaves what it had changed in memory; after a change of the schema that
    /// failed, so does `ROLLBACK TO`, as SQLite has forgotten by then that there was another one
    /// before.
    pub(super) fn verify_schema(&self) -> Result<()> {
        self.engine(Own::Verify)
    }

    /// Makes good what statements have left behind that changed the schema or the statistics, also
    /// those that failed. To be called before the next statement is prepared.
    ///
    /// SQLite tells no other connection of new statistics, and does not take them back in memory
    /// when the transaction that made them is undone. So they get a new schema version: everybody
    /// reads schema and statistics again.
    ///
    /// While a statement that writes is half-way (rows of a `RETURNING` that are still to be read,
    /// a blob that is open for writing) nothing is done: SQLite opens no savepoint then, which
    /// virtual tables need. What is to be made good stays so.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn settle_schema(&self) -> Result<()> {
        match self.settle() {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
            settled => settled,
        }
    }

    /// As [`Connection::settle_schema`], where no statement of a user can go on: those that were
    /// forgotten half-way are ended, and nothing is put off.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn settle_schema_at_end(&self) -> Result<()> {
        if self.unsettled().is_empty() {
            return Ok(());
        }
        self.reset_statements();
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        let traits = self.signals.take(Traits::UNSETTLED);
        if traits.is_empty() || !self.is_in_transaction() {
            return Ok(());
        }
        let settle = || {
            if self.may_write() {
                self.flush_virtual_tables()?;
                if traits.has(Traits::STATISTICS) {
                    self.signals.as_engine(|| raise_schema_version(self.raw()))?;
                }
            }
            self.verify_schema()
        };
        settle().inspect_err(|_| self.signals.add(traits))
    }

    /// To be called when a statement has failed, or was explained.
    pub fn note_failure(&self) {
        self.signals.note_failure();
    }

    /// Has virtual tables write what they hold back until the commit, as each savepoint does. With
    /// the schema, SQLite forgets them in mid-transaction and connects them anew, and full-text
    /// search that has terms held back twice overwrites one by the other.
    fn flush_virtual_tables(&self) -> Result<()> {
        self.engine(Own::OpenFlush)?;
        self.engine(Own::CloseFlush)
    }

    fn may_write(&self) -> bool {
        self.raw().transaction_state(Some(MAIN_DB)) == Ok(TransactionState::Write)
    }

    /// What [`Connection::settle_schema`] has to make good now.
    pub fn unsettled(&self) -> Traits {
        let traits = self.signals.take(Traits::UNSETTLED);
        self.signals.add(traits);
        traits
    }

    /// Has the next [`Connection::settle_schema`] make good `traits`, too: those of a statement
    /// that may have run without the engine.
    pub fn unsettle(&self, traits: Traits) {
        self.signals.add(traits);
    }
}

/// Gives the schema of the open write transaction another version, with which every connection,
/// this one too, reads it again.
fn raise_schema_version(connection: &rusqlite::Connection) -> Result<()> {
    let version: u32 = connection.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    // Refused to everybody in defensive mode.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    let next = version.wrapping_add(1).cast_signed();
    let raised = connection.pragma_update(None, "schema_version", next);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    raised
}
