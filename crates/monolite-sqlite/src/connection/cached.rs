//! Owns the statements that `rusqlite` keeps for the users of a connection ([`Tx::prepare_cached`]
//! in the engine), and what must be known of them besides where SQL is not trusted: how many passes
//! over a value each has in its text ([`crate::look`]), which the authorizer counts when a
//! statement is prepared, and does not see when it is found again.
//!
//! # Algorithm
//! 1. What was counted is remembered by a hash of the text, as `rusqlite` finds a statement by its
//!    text.
//! 2. A statement that SQLite has prepared again since (the schema had changed) may have become
//!    another one. It is not used, but prepared again.
//! 3. When there are many entries, statements and entries are forgotten together, before a closure
//!    begins: none is handed out then that would return to the others later. Within one closure
//!    further statements are not remembered, and count as having as many passes as can be.
//!
//! # Invariants
//! - While there is room for another entry, each statement that is kept has one.
//!
//! [`Tx::prepare_cached`]: https://docs.rs/monolite/latest/monolite/struct.Tx.html

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};

use hashbrown::HashMap;
use rusqlite::{CachedStatement, Result, StatementStatus};

use super::Connection;

/// Statements that are remembered; four times as many as are kept.
const REMEMBERED: usize = 4 * super::opening::STATEMENT_CACHE;

/// Passes over a value of the statements that are kept.
#[derive(Default)]
pub(super) struct CachedPasses {
    by_text: RefCell<HashMap<u64, u32>>,
    hasher: RandomState,
}

impl CachedPasses {
    /// Those of the statement of `sql`, which has just been prepared with `counted`, or was found.
    fn of(&self, sql: &str, counted: u32) -> u32 {
        let mut by_text = self.by_text.borrow_mut();
        let (hash, has_room) = (self.hasher.hash_one(sql), by_text.len() < REMEMBERED);
        match by_text.get_mut(&hash) {
            Some(known) => {
                *known = counted.max(*known);
                *known
            }
            None if has_room => {
                by_text.insert(hash, counted);
                counted
            }
            None => u32::MAX,
        }
    }

    fn is_full(&self) -> bool {
        self.by_text.borrow().len() >= REMEMBERED
    }

    /// To be called when the statements are forgotten, and none is handed out.
    pub(super) fn forget(&self) {
        self.by_text.borrow_mut().clear();
    }
}

impl Connection {
    /// As that of `rusqlite`: prepares the statement of `sql`, or takes it from those that were
    /// prepared before.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        // As `rusqlite` finds it.
        let sql = sql.trim();
        let mut statement = self.preparing(sql, || self.raw().prepare_cached(sql))?;
        if self.memory.is_none() {
            return Ok(statement);
        }
        if statement.get_status(StatementStatus::RePrepare) != 0 {
            statement.discard();
            statement = self.preparing(sql, || self.raw().prepare_cached(sql))?;
        }
        let counted = self.signals.passes_of_statement();
        self.signals.note_passes(self.cached.of(sql, counted));
        Ok(statement)
    }

    /// Forgets the statements that `rusqlite` keeps when there were many. To be called where none
    /// of them is handed out.
    pub(super) fn trim_cached(&self) {
        if self.cached.is_full() {
            self.forget_cached_statements();
            self.cached.forget();
        }
    }

    /// Forgets the statements that `rusqlite` keeps, whose runs the authorizer does not see.
    pub fn forget_cached_statements(&self) {
        self.raw().flush_prepared_statement_cache();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::connection::{Role, Settings};
    use crate::untrusted::Untrusted;

    const WIDE: &str = "SELECT abs(x) + abs(x) + abs(x) + abs(x) FROM v";

    fn open(directory: &Path) -> Connection {
        crate::initialize().unwrap();
        let profile = Untrusted { value_bytes: 1 << 20, memory_bytes: 64 << 20, modules: vec![] };
        let settings = Settings {
            vfs: "unix".into(),
            cache_kib: 1_024,
            busy_timeout: Duration::ZERO,
            sync: false,
            reserved_bytes: 0,
            overdue: Arc::new(|_| false),
            untrusted: Some(profile),
            rowids: None,
            setup: None,
            dry_runs: None,
            control: None,
        };
        let path = directory.join("test.db");
        let connection = Connection::open(&path, Role::Writer, &settings).unwrap();
        within(&connection, || connection.execute_batch("CREATE VIEW v AS SELECT 1 AS x").unwrap());
        connection
    }

    /// Runs `body` as a closure is run, and tells how many passes it may have had.
    fn within(connection: &Connection, body: impl FnOnce()) -> u32 {
        connection.begin_immediate().unwrap();
        let budget = connection.start_budget();
        body();
        connection.signals.start_run();
        let passes = connection.signals.passes();
        connection.settle_schema_at_end().unwrap();
        connection.end_budget(budget);
        connection.commit().unwrap();
        passes
    }

    fn ask(connection: &Connection, sql: &str) {
        connection.signals.start_statement();
        let mut statement = connection.prepare_cached(sql).unwrap();
        connection.signals.start_run();
        statement.query(()).unwrap().next().unwrap();
    }

    #[test]
    fn a_statement_that_is_found_again_has_its_passes() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let wide = within(&connection, || ask(&connection, WIDE));
        assert!(wide >= 4);
        assert_eq!(within(&connection, || ask(&connection, WIDE)), wide);
        assert_eq!(within(&connection, || ask(&connection, &format!("  {WIDE} "))), wide);
        let other = within(&connection, || ask(&connection, "SELECT abs(x) FROM v"));
        assert!(other < wide);
        // Found, not prepared: that would have counted.
        connection.signals.start_statement();
        drop(connection.prepare_cached(WIDE).unwrap());
        assert_eq!(connection.signals.passes_of_statement(), 0);
    }

    #[test]
    fn a_statement_that_has_become_another_one_has_the_passes_of_that() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let narrow = within(&connection, || ask(&connection, "SELECT x FROM v"));
        let sum = ["abs(1)"; 50].join("+");
        let view = format!("DROP VIEW v; CREATE VIEW v AS SELECT {sum} AS x");
        within(&connection, || connection.execute_batch(&view).unwrap());
        for _ in 0..3 {
            let found = within(&connection, || ask(&connection, "SELECT x FROM v"));
            assert!(found >= 50 && narrow < 50, "{narrow}, {found}");
        }
        // The same of statements that are found by `Connection::with_statement`.
        let kept = || {
            connection.signals.start_statement();
            connection.with_statement("SELECT x FROM v", |it| it.raw_query().next().map(drop))
        };
        within(&connection, || kept().unwrap().unwrap());
        let sum = ["abs(1)"; 90].join("+");
        let view = format!("DROP VIEW v; CREATE VIEW v AS SELECT {sum} AS x");
        within(&connection, || connection.execute_batch(&view).unwrap());
        for _ in 0..3 {
            let found = within(&connection, || kept().unwrap().unwrap());
            assert!(found >= 90, "{found}");
        }
    }

    #[test]
    fn many_statements_are_forgotten_with_what_is_known_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let all = within(&connection, || {
            for number in 0..REMEMBERED {
                ask(&connection, &format!("SELECT {number}"));
            }
            assert!(connection.cached.is_full());
            ask(&connection, WIDE);
        });
        assert_eq!(all, u32::MAX);
        let wide = within(&connection, || ask(&connection, WIDE));
        assert!((4..100).contains(&wide), "{wide}");
        assert!(!connection.cached.is_full());
    }
}
