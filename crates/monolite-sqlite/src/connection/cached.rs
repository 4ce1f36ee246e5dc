//! Owns the statements that `rusqlite` keeps for the users of a connection ([`Tx::prepare_cached`]
//! in the engine), and what must be known of them besides where SQL is not trusted: how many passes
//! over a value each has in its text ([`crate::look`]), which the authorizer counts when a
//! statement is prepared, and does not see when it is found again.
//!
//! # Algorithm
//! 1. What was counted, and what its program has if that is a large one, is remembered by a hash of
//!    the text, as `rusqlite` finds a statement by its text.
//! 2. A statement that SQLite has prepared again since (the schema had changed) may have become
//!    another one. It is not used, but prepared again. So is any behind a change of the schema in
//!    the same closure, and those are forgotten at its end. So is a pragma, which SQLite prepares
//!    again whenever it runs once more.
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
use rusqlite::{CachedStatement, Result, Statement, StatementStatus};

use super::Connection;
use crate::program::is_empty;
use crate::verb::Verb;

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
    /// Those of its program are `asked` where they are not known.
    fn of(&self, sql: &str, counted: u32, asked: impl FnOnce() -> u32) -> u32 {
        let hash = self.hasher.hash_one(sql);
        let known = self.by_text.borrow().get(&hash).copied();
        match known {
            Some(known) if counted == 0 => known,
            None if self.is_full() => u32::MAX,
            _ => {
                let passes = asked().max(known.unwrap_or(0));
                self.by_text.borrow_mut().insert(hash, passes);
                passes
            }
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
    /// As that of `rusqlite`: prepares the statement of `sql`.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        let statement = self.preparing(sql, || self.raw().prepare(sql))?;
        if self.memory.is_some() {
            let passes = self.prepared.passes_of(&statement, sql, &self.signals, &self.counts);
            self.signals.note_passes(passes);
        }
        Ok(statement)
    }

    /// As that of `rusqlite`: prepares the statement of `sql`, or takes it from those that were
    /// prepared before.
    ///
    /// # Errors
    /// Those of preparing it.
    pub fn prepare_cached(&self, sql: &str) -> Result<CachedStatement<'_>> {
        // As `rusqlite` finds it.
        let sql = sql.trim();
        // The authorizer does not see one that is found.
        if !self.signals.virtual_tables().are_none() {
            self.signals.note_virtual_table();
        }
        let mut statement = self.preparing(sql, || self.raw().prepare_cached(sql))?;
        if self.memory.is_none() || is_empty(&statement) {
            return Ok(statement);
        }
        let is_another = statement.get_status(StatementStatus::RePrepare) != 0;
        let is_pragma = Verb::of(sql) == Verb::Pragma;
        if is_another || is_pragma || self.signals.has_new_schema() {
            statement.discard();
            statement = self.preparing(sql, || self.raw().prepare_cached(sql))?;
        }
        let counted = self.signals.passes_of_statement();
        let asked = || self.prepared.passes_of(&statement, sql, &self.signals, &self.counts);
        self.signals.note_passes(self.cached.of(sql, counted, asked));
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
    fn a_text_that_was_light_is_looked_through_again_behind_a_change_of_the_schema() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let is_light = || {
            let (prepared, signals) = (&connection.prepared, &connection.signals);
            prepared.light_of("SELECT x FROM v", signals).unwrap().is_some()
        };
        let change = |columns: usize| {
            let columns: Vec<_> = (0..columns).map(|at| format!("abs(1) AS c{at}")).collect();
            let view =
                format!("DROP VIEW v; CREATE VIEW v AS SELECT 1 AS x, {}", columns.join(", "));
            connection.execute_batch(&view).unwrap();
        };
        within(&connection, || {
            assert!(is_light() && is_light());
            change(480);
            assert!(!is_light(), "the change is not committed");
        });
        assert!(!is_light());
        within(&connection, || change(1));
        assert!(is_light());
    }

    #[test]
    fn a_pragma_that_is_run_again_is_allowed_again() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        for sql in ["PRAGMA table_list", "-- all\nPragma main.table_list"] {
            for _ in 0..3 {
                within(&connection, || ask(&connection, sql));
                within(&connection, || {
                    connection.signals.start_statement();
                    let ran = connection.with_statement(sql, |it| it.raw_query().next().map(drop));
                    ran.unwrap().unwrap();
                });
            }
        }
    }

    #[test]
    fn what_a_pragma_was_refused_is_not_told_of_the_next_statement() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let columns = vec!["x + x + x + x + x + x"; 400].join(", ");
        let view = format!("CREATE TABLE t(x); CREATE VIEW wide AS SELECT {columns} FROM t");
        within(&connection, || connection.execute_batch(&view).unwrap());
        let list = || {
            connection.signals.start_statement();
            let sql = "PRAGMA table_list";
            connection.with_statement(sql, |it| it.raw_query().next().map(drop)).unwrap().unwrap();
        };
        within(&connection, || {
            list();
            assert!(connection.signals.take_denial().is_some(), "a view was not refused");
            list();
            drop(connection.prepare("SELECT 1").unwrap());
            assert_eq!(connection.signals.take_denial(), None);
        });
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
    fn comparisons_and_calculations_count_in_large_programs() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        let cases = (0..2_000).map(|at| format!("WHEN {at} THEN 1 ")).collect::<String>();
        let view = format!("CREATE VIEW cases AS SELECT CASE x {cases} END AS y FROM v");
        within(&connection, || connection.execute_batch(&view).unwrap());
        let sql = "SELECT y FROM cases";
        let cached = within(&connection, || ask(&connection, sql));
        assert!(cached >= 2_000, "{cached}");
        assert_eq!(within(&connection, || ask(&connection, sql)), cached);
        let handed_out = within(&connection, || {
            connection.signals.start_statement();
            drop(connection.prepare(sql).unwrap());
        });
        assert_eq!(handed_out, cached);
        let kept = || {
            connection.signals.start_statement();
            connection.with_statement(sql, |it| it.raw_query().next().map(drop))
        };
        for _ in 0..2 {
            assert_eq!(within(&connection, || kept().unwrap().unwrap()), cached);
        }
        // Behind a change nobody may ask, and the size of the program has to do.
        let setup = "CREATE TABLE t(x); INSERT INTO t VALUES (1)";
        let behind = within(&connection, || {
            connection.execute_batch(setup).unwrap();
            let sql = format!("UPDATE t SET x = CASE x {cases} END");
            connection.execute_batch(&sql).unwrap();
        });
        assert!(behind >= 2_000, "{behind}");
    }

    #[test]
    fn a_text_without_a_statement_is_prepared_as_one() {
        let directory = tempfile::tempdir().unwrap();
        let connection = open(directory.path());
        for sql in ["", ";", "-- nothing"] {
            within(&connection, || {
                assert_eq!(connection.prepare_cached(sql).unwrap().column_count(), 0)
            });
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
