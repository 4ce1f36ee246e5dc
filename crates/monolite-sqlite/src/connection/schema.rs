//! Owns what a connection remembers of the schema and the statistics: that it is what the open
//! transaction has, for every statement that is prepared.

use std::cell::Cell;
use std::ffi::CStr;

use rusqlite::config::DbConfig;
use rusqlite::{
    ErrorCode, MAIN_DB, OptionalExtension as _, Result, Row, Statement, TransactionState, ffi,
};

use super::Connection;
use crate::codes::failure;
use crate::names;
use crate::statements::Own;
use crate::traits::Traits;

/// The tables by which SQLite plans.
const STATISTICS: [&CStr; 2] = [c"sqlite_stat1", c"sqlite_stat4"];

/// What the engine must know of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SchemaFacts {
    pub(super) has_virtual_tables: bool,
    /// Whether a definition has the name of `changes()` in its text.
    pub(super) names_changes: bool,
}

/// What a connection remembers of schemas.
#[derive(Default)]
pub(super) struct SchemaMemory {
    /// A schema cookie, and what is known of that schema.
    facts: Cell<Option<(u32, SchemaFacts)>>,
    /// The schema cookie of when a transaction was last begun, for which statements are kept.
    kept_cookie: Cell<Option<u32>>,
    /// What is known of the schema of the open transaction.
    pub(super) open_facts: Cell<Option<SchemaFacts>>,
    /// Whether the open transaction may have changed the schema.
    pub(super) has_changed: Cell<bool>,
}

impl SchemaFacts {
    const ALL: SchemaFacts = SchemaFacts { has_virtual_tables: true, names_changes: true };
}

/// A virtual table has no root page, and neither has a view.
const SCHEMA_FACTS: &str = "SELECT \
    EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND rootpage = 0), \
    EXISTS(SELECT 1 FROM main.sqlite_schema WHERE sql LIKE '%changes%')";

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
    /// SQLite tells no other connection of new statistics, does not take them back in memory when
    /// the transaction that made them is undone, and does not give those that are there to a table
    /// that is new. So they get a new schema version: everybody
    /// reads schema and statistics again. Where nothing has been written, a statement that was
    /// refused, explained or only prepared can have changed the memory of this connection alone
    /// (`CREATE INDEX` raises the estimated rows of its table), which forgets it.
    ///
    /// While a statement that writes is half-way (rows of a `RETURNING` that are still to be read,
    /// a blob that is open for writing) nothing is done: SQLite opens no savepoint then, which
    /// virtual tables need. What is to be made good stays so.
    ///
    /// # Errors
    /// Those of SQLite, and `SQLITE_AUTH` when something in the schema names what is the engine's.
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
    #[inline]
    pub fn settle_schema_at_end(&self) -> Result<()> {
        if self.unsettled().is_empty() {
            return Ok(());
        }
        self.reset_statements();
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        let traits = self.authorizer.notes.take(Traits::UNSETTLED);
        if !traits.is_empty() {
            self.memory.has_changed.set(true);
            self.memory.open_facts.set(None);
            self.prepared.forget_users();
        }
        if traits.is_empty() || !self.is_in_transaction() {
            return Ok(());
        }
        let settle = || {
            if self.may_write() {
                self.flush_virtual_tables()?;
                if traits.has(Traits::SCHEMA) {
                    self.check_names()?;
                }
                if traits.has(Traits::STATISTICS) || self.may_lack_statistics(traits)? {
                    self.as_engine(|| raise_schema_version(self.raw()))?;
                }
            } else {
                self.forget_schema()?;
            }
            self.verify_schema()
        };
        settle().inspect_err(|_| self.authorizer.notes.add(traits))
    }

    /// Whether a statement with `traits` may have left a table or an index in memory without the
    /// statistics that are in the file. SQLite loads them when it reads the whole schema, and not
    /// for what `CREATE` adds to it, though there may be some already: `ALTER TABLE … RENAME`
    /// leaves those of the old name, and anybody may write some for a name that is not taken.
    fn may_lack_statistics(&self, traits: Traits) -> Result<bool> {
        if !traits.has(Traits::SCHEMA) {
            return Ok(false);
        }
        for table in STATISTICS {
            if self.raw().table_exists(Some(MAIN_DB), table)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks whether nothing but the engine's own definitions names a table of the engine.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when something does; those of SQLite.
    pub fn check_names(&self) -> Result<()> {
        self.check_names_but(|_, _| false)
    }

    /// The same of a file in which another program may have changed what an online rebuild has
    /// made: [`Online::state`](crate::Online::state) tells of that.
    ///
    /// # Errors
    /// As [`Connection::check_names`].
    pub fn check_names_of_file(&self) -> Result<()> {
        self.check_names_but(names::is_of_rebuild)
    }

    /// Looks whether all texts of the schema are UTF-8: `rusqlite` panics at a name or a type that
    /// is not.
    ///
    /// # Errors
    /// `SQLITE_AUTH` when one is not; those of SQLite.
    pub fn check_texts(&self) -> Result<()> {
        let sql = "SELECT name, sql FROM main.sqlite_schema WHERE sql IS NOT NULL";
        self.as_engine(|| {
            let mut all = self.raw().prepare(sql)?;
            let mut rows = all.query(())?;
            while let Some(row) = rows.next()? {
                let bytes = |at| row.get_ref(at).map(|it| it.as_bytes().unwrap_or_default());
                let (name, sql) = (bytes(0)?, bytes(1)?);
                if str::from_utf8(name).and(str::from_utf8(sql)).is_err() {
                    let name = String::from_utf8_lossy(name);
                    let text = format!("the schema has a definition that is not UTF-8, of {name}");
                    return Err(failure(ffi::SQLITE_AUTH, text));
                }
            }
            Ok(())
        })
    }

    fn check_names_but(&self, is_left: fn(&str, &str) -> bool) -> Result<()> {
        let all = |find: &mut Statement<'_>| {
            let of = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
            find.query_map(names::DEFINITIONS, of)?.collect::<Result<Vec<_>>>()
        };
        for (found, sql) in self.as_engine(|| self.prepared.with_own(Own::FindNames, all))? {
            if !is_left(&found, &sql) && !self.online().has_made(&sql)? {
                return Err(names::refused(&found));
            }
        }
        Ok(())
    }

    /// Returns why a blob of `table` must not be written: it is kept by others, or rebuilt online.
    /// For blobs SQLite asks neither the authorizer nor its own defensive mode, and fires no
    /// trigger.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn refuse_blob_of(&self, table: &str) -> Result<Option<String>> {
        if self.online().is_rebuilding(table)? {
            let reason = format!(
                "{table} cannot be written to by a blob while it is rebuilt online, as that fires \
                 no trigger; use UPDATE, or wait"
            );
            return Ok(Some(reason));
        }
        self.refuse_kept(table)
    }

    /// Returns why `table` must not be changed by other means than SQL: it belongs to the engine,
    /// SQLite or a virtual table.
    pub(super) fn refuse_kept(&self, table: &str) -> Result<Option<String>> {
        if names::is_ours(table) || names::begins(table, "sqlite_") {
            let kept = format!("{table} cannot be written to: the engine or SQLite keeps it");
            return Ok(Some(kept));
        }
        let owner = |find: &mut Statement<'_>| {
            find.query_row([table], |row| row.get::<_, String>(0)).optional()
        };
        let owner = self.as_engine(|| self.prepared.with_own(Own::FindOwner, owner))?;
        Ok(owner.map(|owner| {
            format!("{table} cannot be written to: it may belong to the virtual table {owner}")
        }))
    }

    /// To be called when a statement has failed, or was explained.
    pub fn note_failure(&self) {
        self.authorizer.notes.add_failure();
    }

    /// Has virtual tables write what they hold back until the commit, as each savepoint does. With
    /// the schema, SQLite forgets them in mid-transaction and connects them again, and full-text
    /// search that has terms held back twice overwrites one by the other.
    ///
    /// What they write is no statement of the transaction, and none of its figures tells of it.
    ///
    /// # Errors
    /// Those of SQLite, and of the virtual tables.
    #[inline]
    pub fn flush_virtual_tables(&self) -> Result<()> {
        if !self.may_have_used_virtual_tables() {
            return Ok(());
        }
        self.counts.during_own_work(|| {
            self.end_statements_if_busy(|| self.engine(Own::OpenFlush))?;
            self.engine(Own::CloseFlush)
        })
    }

    /// Has SQLite know of the schema, and virtual tables of their settings, what holds behind a
    /// `ROLLBACK TO`. What is earlier in the transaction they have written at the savepoint.
    pub(super) fn forget_what_was_undone(&self) -> Result<()> {
        if self.may_leave_memory() {
            self.forget_schema()?;
        }
        self.verify_schema()
    }

    /// Has the connection read schema and statistics again before it prepares its next statement,
    /// and connect virtual tables again, which take back nothing that they have in memory when a
    /// transaction is rolled back (FTS5: its configuration). Not while they hold anything back: it
    /// would be lost.
    pub(super) fn forget_schema(&self) -> Result<()> {
        // Its cookie may come again with another schema.
        self.memory.facts.set(None);
        self.memory.open_facts.set(None);
        self.prepared.forget_users();
        // Done when it is prepared, so a kept statement would do it once.
        let forget = || self.raw().execute_batch("PRAGMA writable_schema = RESET");
        self.as_engine(forget)
    }

    /// Has each statement prepared anew that was prepared for another schema than that of the open
    /// transaction. SQLite would prepare it again in the middle of a run, where there may be too
    /// little stack.
    ///
    /// Changes by this connection itself: [`Connection::settle_schema`], and what undoes them.
    pub(super) fn forget_outdated_statements(&self) {
        let cookie = self.pages().open_cookie();
        let is_another = self.memory.kept_cookie.replace(cookie) != cookie;
        if cookie.is_some() && is_another {
            self.prepared.forget_users();
        }
        let is_unsure = cookie.is_none() || is_another;
        if is_unsure || self.authorizer.virtual_tables.is_forgotten() {
            self.learn_virtual_tables();
        }
    }

    fn learn_virtual_tables(&self) {
        let learn = || self.authorizer.virtual_tables.learn(self.raw());
        if self.as_engine(learn) {
            // What is known of them was told by other names.
            self.prepared.forget_users();
        }
    }

    /// What is known of the schema of the open transaction. When it cannot be asked, all may be.
    ///
    /// It is looked for once in a transaction, and again:
    /// - behind each statement that may have changed the schema: such a one is known by its traits,
    ///   and is settled before the next statement and at the end of its closure;
    /// - behind whatever undoes changes of the schema ([`Connection::may_leave_memory`]).
    ///
    /// Where the transaction has not changed the schema, the answer is that of the same schema
    /// cookie before. What is asked for is what SQLite has in memory, and that is the schema of the
    /// cookie that it has read last: it compares nothing else.
    #[inline]
    fn facts(&self) -> SchemaFacts {
        if let Some(facts) = self.memory.open_facts.get() {
            return facts;
        }
        let facts = self.look_for_facts().unwrap_or(SchemaFacts::ALL);
        self.memory.open_facts.set(Some(facts));
        facts
    }

    /// Whether the open transaction may have used a virtual table: those that it has not used hold
    /// nothing of it back, and have nothing of it in memory.
    #[inline]
    pub(super) fn may_have_used_virtual_tables(&self) -> bool {
        self.authorizer.virtual_tables.is_used() && self.facts().has_virtual_tables
    }

    /// Whether something in the schema of the open transaction may call `changes()`: a trigger, or
    /// a view or default that a trigger uses.
    #[inline]
    pub(super) fn may_ask_changes(&self) -> bool {
        self.facts().names_changes
    }

    fn look_for_facts(&self) -> Result<SchemaFacts> {
        let cookie =
            (!self.may_have_changed_schema()).then(|| self.pages().open_cookie()).flatten();
        match cookie {
            Some(cookie) => self.facts_of_schema(cookie),
            None => self.ask_for_facts(),
        }
    }

    fn ask_for_facts(&self) -> Result<SchemaFacts> {
        let facts = |row: &Row<'_>| {
            Ok(SchemaFacts { has_virtual_tables: row.get(0)?, names_changes: row.get(1)? })
        };
        self.as_engine(|| self.raw().query_row(SCHEMA_FACTS, [], facts))
    }

    /// What is known of the schema with this cookie, which is that of the open transaction.
    pub(super) fn facts_of_schema(&self, cookie: u32) -> Result<SchemaFacts> {
        let known = self.memory.facts.get().filter(|(of, _)| *of == cookie);
        if let Some((_, facts)) = known {
            return Ok(facts);
        }
        let facts = self.ask_for_facts()?;
        self.memory.facts.set(Some((cookie, facts)));
        Ok(facts)
    }

    pub(super) fn may_have_changed_schema(&self) -> bool {
        self.memory.has_changed.get() || !self.unsettled().is_empty()
    }

    /// Whether undoing what was done may leave something in memory.
    pub(super) fn may_leave_memory(&self) -> bool {
        self.may_have_changed_schema() || self.may_have_used_virtual_tables()
    }

    pub(super) fn may_write(&self) -> bool {
        self.raw().transaction_state(Some(MAIN_DB)) == Ok(TransactionState::Write)
    }

    /// What [`Connection::settle_schema`] has to make good now.
    #[inline]
    pub fn unsettled(&self) -> Traits {
        self.authorizer.notes.seen(Traits::UNSETTLED)
    }

    /// Runs `prepare`, after which nothing is to be made good that was not before.
    pub fn unnoted<R>(&self, prepare: impl FnOnce() -> R) -> R {
        let before = self.authorizer.notes.take_all();
        let result = prepare();
        self.authorizer.notes.take_all();
        self.authorizer.notes.add(before);
        result
    }

    /// Has the next [`Connection::settle_schema`] make good `traits`, too: those of a statement
    /// that may have run without the engine.
    pub fn unsettle(&self, traits: Traits) {
        self.authorizer.notes.add(traits);
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
