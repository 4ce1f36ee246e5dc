//! What the authorizer and the text say of a statement is compared with the program that SQLite
//! makes of it.

use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::hooks::{AuthContext, Authorization};

use super::*;

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, x, y);
    CREATE TABLE u(x, y);
    CREATE TABLE child(id INTEGER PRIMARY KEY, of REFERENCES t ON DELETE CASCADE);
    CREATE VIRTUAL TABLE ft USING fts5(x, y);
    CREATE VIRTUAL TABLE old USING fts4(x, y);
    CREATE VIRTUAL TABLE box USING rtree(id, low, high);
    CREATE VIRTUAL TABLE vocab USING fts5vocab(ft, row);
    CREATE VIEW plain AS SELECT x FROM t;
    CREATE VIEW found AS SELECT rowid AS id, x FROM ft WHERE ft MATCH 'a';
    CREATE VIEW counted AS SELECT count(*) AS n FROM ft;
    CREATE VIEW above AS SELECT 1 AS one FROM found;
    CREATE TRIGGER words AFTER INSERT ON u BEGIN
        INSERT INTO ft(rowid, x) VALUES (new.rowid, new.x);
    END;
    CREATE TRIGGER fewer AFTER DELETE ON child BEGIN DELETE FROM ft WHERE rowid = old.id; END;
    CREATE TRIGGER instead INSTEAD OF INSERT ON plain BEGIN
        UPDATE old SET x = new.x WHERE docid = 1;
    END;";

/// Statements, with and without virtual tables.
const STATEMENTS: &[&str] = &[
    "SELECT x FROM t",
    "SELECT x FROM plain",
    "SELECT t.x FROM t NATURAL JOIN u",
    "INSERT INTO t(x) VALUES (1)",
    "UPDATE t SET x = 2 WHERE id IN (SELECT rowid FROM u)",
    "SELECT block FROM ft_data",
    "SELECT nodeno FROM box_node",
    "SELECT 'ft using'",
    "SELECT x FROM ft",
    "SELECT x FROM FT WHERE ft MATCH 'a' ORDER BY rank",
    "SELECT * FROM ft('a')",
    "SELECT 1 FROM ft",
    "SELECT t.x FROM t LEFT JOIN ft ON t.id = ft.rowid WHERE ft.x IS NULL",
    "SELECT count(*) FROM t, ft",
    "SELECT t.x FROM t NATURAL JOIN ft",
    "SELECT t.y FROM t JOIN ft USING (x)",
    "SELECT u.rowid FROM u FULL JOIN ft USING (x)",
    "SELECT t.y FROM t NATURAL RIGHT JOIN \"ft\"",
    "SELECT t.id FROM t JOIN (u JOIN ft USING (y)) USING (x)",
    "SELECT x FROM t WHERE id IN (SELECT rowid FROM ft('a'))",
    "SELECT x FROM t WHERE EXISTS (SELECT 1 FROM ft)",
    "SELECT x FROM t WHERE NOT EXISTS (SELECT * FROM box WHERE low < t.id)",
    "SELECT x FROM t WHERE (x, y) IN ft",
    "SELECT x FROM t ORDER BY (SELECT count(*) FROM vocab)",
    "SELECT (SELECT 1 FROM old) FROM t",
    "SELECT term FROM vocab",
    "SELECT low FROM box WHERE high > 3",
    "WITH c AS (SELECT * FROM ft) SELECT 1 FROM c",
    "WITH c AS MATERIALIZED (SELECT 1 FROM ft) SELECT count(*) FROM c",
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c, box LIMIT 5) SELECT n FROM c",
    "SELECT x FROM t EXCEPT SELECT x FROM found",
    "SELECT count(*) FROM (SELECT 1 FROM t UNION ALL SELECT 2 FROM ft)",
    "SELECT x FROM found",
    "SELECT count(*) FROM found",
    "SELECT 1 FROM above",
    "SELECT t.x FROM t NATURAL JOIN found",
    "SELECT n FROM counted",
    "SELECT max(n) OVER () FROM counted",
    "INSERT INTO ft(x) VALUES ('a')",
    "REPLACE INTO ft(rowid, x) VALUES (1, 'a')",
    "INSERT INTO ft SELECT x, y FROM t",
    "INSERT INTO t(x) SELECT x FROM ft",
    "INSERT INTO t(x) VALUES (1) RETURNING (SELECT count(*) FROM ft)",
    "INSERT INTO t(id) VALUES (1) ON CONFLICT DO UPDATE SET x = (SELECT 1 FROM ft)",
    "UPDATE ft SET x = 'b' WHERE rowid = 1",
    "UPDATE ft SET rowid = 2 WHERE ft MATCH 'a'",
    "UPDATE t SET x = ft.x FROM ft WHERE ft.rowid = t.id",
    "UPDATE t SET x = 1 WHERE (SELECT 1 FROM ft)",
    "DELETE FROM ft",
    "DELETE FROM box WHERE id = 1",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM old)",
    "INSERT INTO u(x) VALUES ('fired')",
    "DELETE FROM t WHERE id = 1",
    "REPLACE INTO t(id) VALUES (1)",
    "INSERT INTO plain(x) VALUES (1)",
];

/// Whether a program works with virtual tables (`VOpen`, `VUpdate` …).
fn uses(connection: &Connection, sql: &str) -> bool {
    let mut explain = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let codes = explain.query_map([], |row| row.get::<_, String>(1)).unwrap();
    let is_of_virtual = |code: String| {
        code.starts_with('V') && code[1..].starts_with(|it: char| it.is_ascii_uppercase())
    };
    codes.map(Result::unwrap).any(is_of_virtual)
}

/// A connection whose authorizer notes what is used.
fn watched(schema: &str) -> (Connection, Arc<VirtualTables>) {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    connection.execute_batch(schema).unwrap();
    let tables = Arc::new(VirtualTables::default());
    assert!(tables.learn(&connection));
    let told = Arc::clone(&tables);
    let authorizer = move |context: AuthContext<'_>| {
        if told.may_be_in(&context.action) {
            told.mark_used();
        }
        Authorization::Allow
    };
    connection.authorizer(Some(authorizer)).unwrap();
    (connection, tables)
}

#[test]
fn each_statement_that_uses_a_virtual_table_is_known() {
    let (connection, tables) = watched(SCHEMA);
    let mut used = 0;
    for sql in STATEMENTS {
        tables.begin();
        if tables.may_join(sql) {
            tables.mark_used();
        }
        drop(connection.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}")));
        let known = tables.is_used();
        let uses = uses(&connection, sql);
        used += usize::from(uses);
        assert_eq!(known, uses, "{sql}");
    }
    assert!(used > 40 && STATEMENTS.len() - used > 5, "{used} of {}", STATEMENTS.len());
}

#[test]
fn a_view_or_trigger_that_joins_one_by_its_columns_has_every_statement_count() {
    let one = "CREATE TABLE t(x, y); CREATE VIRTUAL TABLE ft USING fts5(x);
               CREATE VIEW harmless AS SELECT t.y FROM t NATURAL JOIN t AS other;";
    for definition in [
        "CREATE VIEW v AS SELECT t.y FROM t JOIN FT USING (x)",
        "CREATE VIEW v AS SELECT t.y FROM t NATURAL JOIN [ft]",
        "CREATE TRIGGER g AFTER DELETE ON t BEGIN
             INSERT INTO t(y) SELECT y FROM t NATURAL JOIN ft;
         END",
    ] {
        let (connection, tables) = watched(one);
        let count = || {
            tables.begin();
            drop(connection.prepare("SELECT x FROM t").unwrap());
            tables.is_used()
        };
        assert!(!count(), "{definition}");
        connection.execute_batch(definition).unwrap();
        assert!(tables.learn(&connection));
        assert!(count(), "{definition}");
    }
}

#[test]
fn names_that_are_quoted_or_empty_are_found_in_a_text() {
    let schema = "CREATE VIRTUAL TABLE \"a\"\"b\" USING fts5(x);
                  CREATE VIRTUAL TABLE \"\" USING fts5(x); CREATE TABLE t(x, y)";
    let (connection, tables) = watched(schema);
    for sql in ["SELECT y FROM t NATURAL JOIN \"a\"\"b\"", "SELECT y FROM t JOIN \"\" USING (x)"] {
        assert!(uses(&connection, sql) && tables.may_join(sql), "{sql}");
    }
    assert!(!tables.may_join("SELECT x FROM t"));
}
