//! An index is kept where the entries of the new table's would be the same, and built otherwise.

use super::*;

const OLD: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER, c, g AS (b + 1))";

/// The columns in another order, with one that is new.
const NEW: &str = "CREATE TABLE t(more NOT NULL DEFAULT 1, c, b INTEGER CHECK (b > 0), a TEXT, \
                   g AS (b + 1), id INTEGER PRIMARY KEY)";

const STRICT: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER, c ANY)";

/// What the old table's index is of, what the rebuild declares, and whether the index is kept.
fn cases() -> Vec<(&'static str, String, bool)> {
    let of = |select: &str| format!("{NEW}; SELECT {select} FROM t");
    let with = |was: &str, is: &str| NEW.replace(was, is);
    vec![
        ("(a DESC, b)", NEW.into(), true),
        ("(\"A\" COLLATE NOCASE, [c])", NEW.into(), true),
        ("(b)", of("id, a, b, NULL AS c"), true),
        ("(a COLLATE BINARY)", with("a TEXT", "a TEXT COLLATE NOCASE"), true),
        ("(a)", with("a TEXT", "a TEXT COLLATE NOCASE"), false),
        ("(c)", with("c, b", "c INTEGER, b"), false),
        ("(c)", format!("{STRICT} STRICT"), false),
        ("(b)", of("id, a, b + 1 AS b, c"), false),
        ("(b)", of("id, a, (b) AS b, c"), false),
        ("(c)", of("id, a, b, NULL AS c"), false),
        ("(b) WHERE b > 9", NEW.into(), false),
        ("(b + 1)", NEW.into(), false),
        ("(g)", NEW.into(), false),
        ("(b, id)", NEW.into(), true),
    ]
}

#[test]
fn an_index_is_kept_where_its_columns_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    for (at, (index, rebuild, is_kept)) in cases().into_iter().enumerate() {
        let path = directory.path().join(format!("{at}.db"));
        let db = Database::open(&path).unwrap();
        let rows = "WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x LIMIT 3000) \
                    INSERT INTO t SELECT i, 'a' || i % 700, i % 900 + 1, i % 50 FROM x";
        // One before it and one behind it are built: they must not be taken for it.
        write(
            &db,
            &format!(
                "{OLD}; CREATE INDEX before ON t(b + 2); CREATE INDEX i ON t{index}; \
                 CREATE INDEX behind ON t(a) WHERE b > 5; {rows}"
            ),
        )
        .unwrap();
        let all = online(&rebuild);
        pause(&db, &all);
        db.close().unwrap();
        plain(&path).execute_batch("VACUUM").unwrap();
        let db = Database::open(&path).unwrap();
        let root = || {
            let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'i'";
            db.read(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait().unwrap()
        };
        let before = root();
        write(&db, "UPDATE t SET a = 'A' || id, b = b + 7 WHERE id % 3 = 0").unwrap();
        write(&db, "DELETE FROM t WHERE id % 7 = 0; INSERT INTO t(a, b) VALUES ('z', 1)").unwrap();
        all.up(&db).wait().unwrap();
        assert_eq!(root() == before, is_kept, "{index}: {rebuild}");
        db.close().unwrap();
        let plain = plain(&path);
        assert!(is_sound(&plain) && ours(&plain) == 0, "{index}: {rebuild}");
    }
}

#[test]
fn a_value_that_a_copy_stores_otherwise_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // Older versions of SQLite have left a text with a zero byte as it was.
    let old = "CREATE TABLE t(id INTEGER PRIMARY KEY, b); INSERT INTO t(b) VALUES ('6'), (7);
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = replace(sql, 'b)', 'b INTEGER)');
        PRAGMA writable_schema = RESET; CREATE INDEX i ON t(b)";
    plain(&path).execute_batch(old).unwrap();
    let new = "CREATE TABLE t(id INTEGER PRIMARY KEY, b INTEGER, more)";
    let (all, db) = (online(new), Database::open(&path).unwrap());
    let error = all.up(&db).wait().unwrap_err().to_string();
    assert!(
        error.contains("the row 1 of t: the new table stores a value of it otherwise"),
        "{error}"
    );
    assert!(error.contains("leave the word online out"), "{error}");
    Migrations::abort(&db).wait().unwrap();
    of("-- monolite: rebuild=t\n", new).up(&db).wait().unwrap();
    db.close().unwrap();
    assert!(is_sound(&plain(&path)));
}

#[test]
fn an_index_that_the_new_table_cannot_have_is_refused_with_all_else() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    write(&db, &format!("{OLD}; CREATE INDEX i ON t(c); CREATE VIEW v AS SELECT c FROM t"))
        .unwrap();
    let all = online("CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b INTEGER)");
    let error = all.up(&db).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let told = error.to_string();
    assert!(told.contains("the index i") && told.contains("the view v"), "{told}");
    db.close().unwrap();
}

#[test]
fn old_rows_that_cannot_be_deleted_go_with_their_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // A value of a wrong type in a generated column, as older versions of SQLite have let in.
    let old =
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, g BLOB AS (a)); CREATE INDEX i ON \
               t(g); INSERT INTO t(a) VALUES (5), (6); PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET sql = sql || ' STRICT' WHERE name = 't';";
    plain(&path).execute_batch(old).unwrap();
    let all = online("CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, g ANY AS (a)) STRICT");
    let db = Database::open(&path).unwrap();
    assert_eq!(all.up(&db).wait().unwrap(), ["0001_rebuild.sql"]);
    db.close().unwrap();
    assert!(is_sound(&plain(&path)) && ours(&plain(&path)) == 0);
}
