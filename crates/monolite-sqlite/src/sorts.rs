//! Owns the question whether a statement can sort in memory, where no clock is looked at
//! ([`crate::look`]). What a statement without a sort allocates in small pieces is no row that
//! waits for one: an `UPDATE` inside of a savepoint keeps a copy of each page that it changes.
//!
//! # Algorithm
//! `EXPLAIN` lists the instructions of the program, those of its triggers and foreign keys, too.
//! Rows are sorted by a sorter or a set of rowids, and virtual tables and changes of the schema run
//! statements of their own. All other instructions look at the clock.
//!
//! To explain a change has SQLite say that no row was changed, as if it had run: `changes()` is 0
//! then. So a change is explained only where the transaction would be told that anyway, as it has
//! changed nothing yet, or its last change has changed no rows. Otherwise it may sort, for all that
//! is known. Nothing else that SQL can see hangs on it: an explained statement takes no lock, draws
//! no number and runs no instruction.
//!
//! # Invariants
//! - While SQLite prepares a statement it sorts no rows: the programs that it runs then read the
//!   schema, and what virtual tables have stored of themselves, in the order of a key. So memory is
//!   no row then either, also while other statements are in the middle of theirs.
//! - The answer is that of one program, prepared under the same authorizer. Whoever keeps it has to
//!   know when SQLite makes another program of the same statement: the authorizer is asked for each
//!   ([`crate::signals::Signals`]).

use rusqlite::{Connection, Result};

/// Instructions of a program that sorts, or may run another one that does.
const SORTING: &[&str] = &["SorterOpen", "RowSetAdd", "RowSetTest", "SqlExec", "ParseSchema"];

/// Whether the program of `sql`, one statement, can sort. Yes if SQLite does not tell.
pub(crate) fn may_sort(connection: &Connection, sql: &str) -> bool {
    lists_sort(connection, sql).unwrap_or(true)
}

fn lists_sort(connection: &Connection, sql: &str) -> Result<bool> {
    let mut program = connection.prepare(&format!("EXPLAIN {sql}"))?;
    let mut instructions = program.raw_query();
    while let Some(instruction) = instructions.next()? {
        if is_sorting(instruction.get_ref(1)?.as_str()?) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_sorting(instruction: &str) -> bool {
    let is_virtual = instruction.starts_with('V') && instruction != "Variable";
    is_virtual || SORTING.contains(&instruction)
}

#[test]
fn what_can_sort_is_told_from_what_cannot() {
    let connection = Connection::open_in_memory().unwrap();
    let setup = "CREATE TABLE t(id INTEGER PRIMARY KEY, x, y UNIQUE);
                 CREATE TABLE u(x);
                 CREATE TABLE w(a, b, c);
                 CREATE INDEX wa ON w(a);
                 CREATE INDEX wb ON w(b);
                 CREATE TRIGGER sorts AFTER INSERT ON u BEGIN
                     INSERT INTO t(x) SELECT x FROM t ORDER BY x;
                 END;
                 CREATE VIEW v AS SELECT x FROM t ORDER BY x;
                 CREATE VIRTUAL TABLE f USING fts5(x);";
    connection.execute_batch(setup).unwrap();
    for (sql, expected) in [
        ("SELECT ?1", false),
        ("SELECT x FROM t WHERE id = 1", false),
        ("SELECT x FROM t ORDER BY id", false),
        ("SELECT x FROM t ORDER BY y", false),
        ("UPDATE t SET y = y + 1", false),
        ("UPDATE t SET x = 1 WHERE y = ?1 RETURNING id", false),
        ("DELETE FROM t WHERE x = 1", false),
        ("INSERT INTO t(x) VALUES (1) ON CONFLICT DO NOTHING", false),
        ("INSERT INTO t(x) SELECT x FROM u", false),
        ("INSERT INTO u VALUES (1)", true),
        ("SELECT x FROM t ORDER BY x", true),
        ("SELECT x FROM v", true),
        ("SELECT x, count(*) FROM t GROUP BY x", true),
        ("SELECT row_number() OVER (ORDER BY x) FROM t", true),
        ("SELECT (SELECT count(*) FROM u GROUP BY x) FROM t", true),
        ("SELECT (SELECT x FROM u ORDER BY x) FROM t", false),
        ("SELECT * FROM w WHERE a = 1 OR b = 2", true),
        ("CREATE INDEX i ON t(x)", true),
        ("ALTER TABLE t RENAME x TO z", true),
        ("SELECT * FROM f WHERE f MATCH 'a'", true),
        ("SELECT value FROM json_each('[1]')", true),
        ("no SQL", true),
    ] {
        assert_eq!(may_sort(&connection, sql), expected, "{sql}");
    }
}
