//! Rows that change while a rebuild has copied them get what has changed, and only that.

use monolite::rusqlite::types::Value;

use super::*;

const ROWS: &str = "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 20000)";

/// A rebuild that is paused, whose first row was copied.
fn begun(path: &Path, schema: &str, rows: &str, all: &Migrations) -> Database {
    let db = Database::open(path).unwrap();
    write(&db, &format!("{schema}; INSERT INTO t {ROWS} SELECT {rows} FROM x")).unwrap();
    pause(&db, all);
    db
}

#[test]
fn values_that_are_equal_and_stored_otherwise_are_copied_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, w, u TEXT COLLATE NOCASE)";
    let all = online(&schema.replace(")", ", more TEXT NOT NULL DEFAULT 'x')"));
    let db = begun(&path, schema, "i, 0.0, 'a'", &all);
    let changes = [Value::Real(-0.0), Value::Integer(0), Value::Blob(b"0".into()), Value::Null];
    let made = changes.clone();
    let change = db.write(move |tx| {
        tx.execute("UPDATE t SET u = 'A' WHERE id = 9", ())?;
        std::iter::zip(1.., made.clone()).try_for_each(|(id, value): (i64, _)| {
            tx.execute("UPDATE t SET w = ?2 WHERE id = ?1", (id, value)).map(drop)
        })
    });
    change.wait().unwrap();
    all.up(&db).wait().unwrap();
    db.close().unwrap();
    let plain = plain(&path);
    for (id, value) in std::iter::zip(1_i64.., changes) {
        let sql = "SELECT w FROM t WHERE id = ?1";
        let copied: Value = plain.query_row(sql, [id], |row| row.get(0)).unwrap();
        assert_eq!(format!("{copied:?}"), format!("{value:?}"));
    }
    let sql = "SELECT u FROM t WHERE id = 9";
    assert_eq!(plain.query_row(sql, (), |row| row.get::<_, String>(0)).unwrap(), "A");
}

#[test]
fn the_rest_of_the_row_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let all = online(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, key BLOB DEFAULT (randomblob(9)));
         SELECT id, n + 1 AS n FROM t;",
    );
    let db = begun(&path, "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER)", "i, i", &all);
    db.close().unwrap();
    let of = |table: &str| {
        let sql = format!("SELECT n, key FROM {table} WHERE id = 1");
        let of = |row: &monolite::rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        plain(&path).query_row(&sql, (), of).unwrap()
    };
    let (n, key): (i64, Vec<u8>) = of("monolite_rebuild");
    assert_eq!(n, 2);
    let db = Database::open(&path).unwrap();
    write(&db, "UPDATE t SET n = 7 WHERE id = 1").unwrap();
    all.up(&db).wait().unwrap();
    db.close().unwrap();
    assert_eq!(of("t"), (8, key));
}

#[test]
fn a_change_that_converts_a_column_of_a_foreign_key_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let table = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, p INTEGER REFERENCES p(id))";
    let schema =
        format!("CREATE TABLE p(id INTEGER PRIMARY KEY); INSERT INTO p VALUES (1); {table}");
    let all = online(&format!("{table}; SELECT id, n, p + (n = 7) AS p FROM t;"));
    let db = begun(&path, &schema, "i, 0, 1", &all);
    write(&db, "UPDATE t SET n = 7 WHERE id = 1").unwrap();
    let refused = all.up(&db).wait().unwrap_err().to_string();
    assert!(refused.contains("the row 1 of t: the new table gets another p"), "{refused}");
    db.close().unwrap();
}

#[test]
fn rows_of_many_columns_are_copied_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let columns: String = (0..1_900).map(|n| format!(", c{n} INTEGER")).collect();
    let schema = format!("CREATE TABLE t(id INTEGER PRIMARY KEY{columns})");
    write(&db, &format!("{schema}; INSERT INTO t(id, c1899) VALUES (1, 5), (2, 6)")).unwrap();
    online(&schema.replace("c1899 INTEGER", "c1899 TEXT NOT NULL")).up(&db).wait().unwrap();
    let sum = db.read(|tx| {
        tx.query_row("SELECT group_concat(c1899) FROM t", (), |row| row.get::<_, String>(0))
    });
    assert_eq!(sum.wait().unwrap(), "5,6");
    db.close().unwrap();
}
