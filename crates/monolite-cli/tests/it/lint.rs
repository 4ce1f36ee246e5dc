//! `monolite lint --portable`: each finding is a difference of the two engines, and none of fifty
//! planted ones is missed.

use std::fs;

use monolite::rusqlite::types::ValueRef;
use monolite::rusqlite::{self, Connection};
use serde_json::Value;

use crate::export::{Ground, export};
use crate::{complaint, monolite};

const SCHEMA: &str = "\
CREATE TABLE item(id bigint PRIMARY KEY, name text, price double precision, stock bigint,
                  flag bigint, data text, \"Kind\" text);
CREATE TABLE sale(item bigint, count bigint NOT NULL, UNIQUE (item));
CREATE TABLE Town(tid INTEGER PRIMARY KEY, label text NOT NULL, Land text);
";

const ROWS: &str = "
    INSERT INTO item VALUES (1, 'Tea', 2.5, 7, 1, '{\"a\": 1}', 'hot'),
                            (2, 'milk', 1.5, 0, 0, '{}', NULL),
                            (3, 'TEA', 0.5, NULL, 1, '{}', 'hot');
    INSERT INTO sale VALUES (1, 5), (2, 3);
    INSERT INTO Town VALUES (1, 'Ulm', 'de'), (2, 'Bern', 'ch');";

/// A rule, and a statement that answers otherwise in PostgreSQL.
const PLANTED: &[(&str, &str)] = &[
    ("equals", "SELECT id FROM item WHERE id == 1"),
    ("quotes", "SELECT `id` FROM item"),
    ("quotes", "SELECT [name] FROM item"),
    ("string", "SELECT id FROM item WHERE name = \"Tea\""),
    ("string", "INSERT INTO item(id, name) VALUES (9, \"x\")"),
    ("or", "INSERT OR REPLACE INTO sale VALUES (1, 9)"),
    ("or", "INSERT OR IGNORE INTO sale VALUES (1, 9)"),
    ("or", "UPDATE OR IGNORE sale SET item = 1"),
    ("replace", "REPLACE INTO sale VALUES (1, 9)"),
    ("conflict", "CREATE TABLE a1(a bigint UNIQUE ON CONFLICT REPLACE)"),
    ("target", "INSERT INTO sale VALUES (1, 9) ON CONFLICT DO UPDATE SET count = 9"),
    ("rowid", "SELECT rowid FROM sale"),
    ("rowid", "DELETE FROM sale WHERE _rowid_ = 1"),
    ("collation", "SELECT id FROM item WHERE name = 'tea' COLLATE NOCASE"),
    ("like", "SELECT id FROM item WHERE name LIKE 'tea' ORDER BY id NULLS FIRST"),
    ("like", "SELECT 'a\\b' LIKE 'a\\b' COLLATE \"C\""),
    ("glob", "SELECT id FROM item WHERE name GLOB 'T*'"),
    ("is", "SELECT id FROM item WHERE stock IS 7"),
    ("is", "SELECT id FROM item WHERE name IS NOT 'Tea'"),
    ("is", "SELECT id FROM item WHERE flag IS TRUE"),
    ("nulls", "SELECT id FROM item ORDER BY stock"),
    ("nulls", "SELECT id FROM item ORDER BY stock DESC"),
    ("division", "SELECT price / stock FROM item WHERE id = 2"),
    ("division", "SELECT 7 % stock FROM item WHERE id = 2"),
    ("concatenation", "SELECT stock || price FROM item WHERE id = 1"),
    ("concatenation", "SELECT 1 || 2"),
    ("precedence", "SELECT stock + 1 || 'x' FROM item WHERE id = 1"),
    ("precedence", "SELECT name || stock * (2) || 'x' FROM item WHERE id = 1"),
    ("as-text", "SELECT (item.price * 2) || name FROM item WHERE id = 2"),
    ("as-text", "SELECT CAST(price * 2 AS TEXT) FROM item WHERE id = 2"),
    ("as-text", "SELECT (id > 1) || name FROM item WHERE id = 2"),
    ("limit", "SELECT id FROM item ORDER BY id NULLS FIRST LIMIT 1, 1"),
    ("limit", "SELECT id FROM item ORDER BY id NULLS FIRST LIMIT -1"),
    ("boolean", "SELECT id FROM item WHERE flag = TRUE"),
    ("boolean", "UPDATE item SET flag = false"),
    ("condition", "SELECT id FROM item WHERE flag"),
    ("condition", "SELECT id FROM item i WHERE id > 1 AND NOT i.flag"),
    ("autoincrement", "CREATE TABLE a2(id INTEGER PRIMARY KEY AUTOINCREMENT)"),
    ("strict", "CREATE TABLE a3(id INTEGER PRIMARY KEY) STRICT"),
    ("without-rowid", "CREATE TABLE a4(id bigint PRIMARY KEY) WITHOUT ROWID"),
    ("type", "CREATE TABLE a5(a DATETIME)"),
    ("type", "CREATE TABLE a6(a BLOB)"),
    ("type", "CREATE TABLE a7(a)"),
    ("type", "ALTER TABLE item ADD COLUMN made DATETIME NOT NULL DEFAULT ''"),
    ("pragma", "PRAGMA user_version"),
    ("attach", "ATTACH ':memory:' AS other"),
    ("maintenance", "EXPLAIN QUERY PLAN SELECT 1"),
    ("begin", "BEGIN IMMEDIATE"),
    ("virtual-table", "CREATE VIRTUAL TABLE a8 USING fts5(a)"),
    ("trigger", "CREATE TRIGGER a9 AFTER INSERT ON item BEGIN DELETE FROM sale; END"),
    ("if-not-exists", "CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS a"),
    ("indexed", "SELECT id FROM item NOT INDEXED WHERE id = 1"),
    ("hexadecimal", "SELECT 0xff"),
    ("blob", "SELECT length(x'00ff')"),
    ("cast", "SELECT CAST(2.7 AS INTEGER)"),
    ("cast", "SELECT CAST(name AS INTEGER) FROM item WHERE id = 1"),
    ("not-null", "SELECT id FROM item WHERE stock NOT NULL AND id = 1"),
    ("json", "SELECT data -> 'a' FROM item WHERE id = 1"),
    ("now", "SELECT length(CURRENT_TIMESTAMP)"),
    ("bare-column", "SELECT id, name FROM item GROUP BY flag"),
    ("bare-column", "SELECT i.name, count(*) FROM item i GROUP BY i.\"Kind\""),
    ("intersect", "SELECT 1 UNION SELECT 2 INTERSECT SELECT 2"),
    ("parameter", "SELECT id FROM item WHERE id = ?"),
    ("virtual-column", "CREATE TABLE b1(a bigint, b bigint AS (a + 1))"),
    ("function", "SELECT date(name) FROM item"),
    ("function", "SELECT strftime('%Y', '2020-01-01')"),
    ("function", "SELECT ifnull(stock, 0) FROM item"),
    ("function", "SELECT iif(id = 1, 2, 3) FROM item"),
    ("function", "SELECT instr(name, 'e') FROM item"),
    ("function", "SELECT printf('%d', id) FROM item"),
    ("function", "SELECT group_concat(name) FROM item"),
    ("function", "SELECT total(stock) FROM item"),
    ("function", "SELECT typeof(stock) FROM item"),
    ("function", "SELECT hex(name) FROM item"),
    ("function", "SELECT char(65)"),
    ("function", "SELECT round(price) FROM item WHERE id = 1"),
    ("function", "SELECT json_extract(data, '$.a') FROM item"),
    ("function", "SELECT last_insert_rowid()"),
    ("function", "SELECT avg(stock) FROM item"),
    ("min", "SELECT max(stock, 1) FROM item WHERE id = 3"),
    ("substr", "SELECT substr(name, -2) FROM item WHERE id = 1"),
    ("names", "CREATE TABLE b2(Name text, CHECK (\"Name\" <> ''))"),
    ("names", "CREATE TABLE B4(a bigint); INSERT INTO \"B4\" VALUES (1)"),
    ("names", "SELECT tid FROM Town"),
    ("names", "SELECT Land FROM \"Town\""),
    ("names", "SELECT \"ID\" FROM item"),
    ("catalog", "SELECT name FROM sqlite_master"),
    ("catalog", "SELECT id FROM main.item"),
    ("alias", "SELECT flag, count(*) AS n FROM item GROUP BY flag HAVING n > 1"),
    ("alias", "SELECT id, price AS p FROM item WHERE p > 1"),
    ("empty-list", "SELECT id FROM item WHERE id IN ()"),
    ("null-id", "INSERT INTO \"Town\" VALUES (NULL, 'x', NULL)"),
    ("null-id", "INSERT INTO \"Town\"(tid, label) VALUES (3, 'y'), (NULL, 'x')"),
    (
        "ambiguous",
        "INSERT INTO sale VALUES (1, 9) ON CONFLICT (item) DO UPDATE SET count = count + 1",
    ),
    ("cast", "SELECT CAST(name AS BLOB) FROM item"),
    ("cast", "SELECT CAST(id AS DOUBLE) FROM item"),
    ("condition", "SELECT id FROM item WHERE 1 AND id = 1"),
    ("affinity", "CREATE TABLE b3(a bigint); INSERT INTO b3 VALUES ('x')"),
    ("glob", "SELECT id FROM item WHERE lower(name) GLOB 't*'"),
    ("like", "SELECT id FROM item WHERE name LIKE ('te' || 'a') ORDER BY 1 NULLS FIRST"),
    ("reserved", "CREATE TABLE user(a bigint)"),
    ("reserved", "SELECT user FROM (SELECT name AS user FROM item WHERE id = 1) AS t"),
    ("count", "SELECT count() FROM item"),
    ("truth", "SELECT EXISTS (SELECT 1 FROM sale)"),
    ("join", "SELECT i.id FROM item i JOIN sale"),
    ("join", "SELECT i.id FROM item i LEFT JOIN sale CROSS JOIN \"Town\" WHERE i.id = 1"),
    ("distinct", "SELECT DISTINCT name FROM item ORDER BY id NULLS FIRST"),
    ("cast", "SELECT CAST(price AS bigint) FROM item WHERE id = 2"),
    ("cast", "SELECT CAST(name AS varchar(2)) FROM item WHERE id = 1"),
    ("cast", "SELECT CAST(name AS char) FROM item WHERE id = 1"),
    ("nulls", "SELECT id FROM item ORDER BY flag NULLS FIRST, stock"),
    (
        "nulls",
        "SELECT id FROM (SELECT id FROM item ORDER BY stock LIMIT 1) AS t ORDER BY id NULLS FIRST",
    ),
    (
        "nulls",
        "SELECT s.count FROM \"Town\" t LEFT JOIN sale s ON s.item = t.tid + 1 ORDER BY s.count",
    ),
    (
        "bare-column",
        "SELECT flag, (SELECT name FROM item j GROUP BY j.flag LIMIT 1) FROM item GROUP BY flag",
    ),
    ("bare-column", "SELECT name FROM item WHERE id = 1 GROUP BY lower(name)"),
    ("alias", "SELECT count(*) n FROM item GROUP BY flag HAVING n > 1"),
    ("alias", "SELECT lower(name) \"l\", id FROM item WHERE l = 'tea'"),
    ("subquery", "SELECT id FROM (SELECT id FROM item) WHERE id = 1"),
    ("subquery", "SELECT i.id FROM item i JOIN (SELECT item FROM sale) ON item = i.id"),
    ("pragma", "SELECT name FROM pragma_table_info('item')"),
    ("function", "SELECT median(price) FROM item"),
    ("function", "SELECT mod(id, 0) FROM item"),
    ("text", "SELECT 'a' 'c'"),
    ("text", "SELECT id AS 'c' FROM item"),
    ("division", "SELECT id / 0 FROM item"),
    ("shift", "SELECT 1 << 65"),
    ("shift", "SELECT id >> -id FROM item WHERE id = 1"),
    (
        "recursive",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3) SELECT i FROM n",
    ),
    ("mixture", "SELECT coalesce(stock, price) / 2 FROM item WHERE id = 1"),
    ("mixture", "SELECT nullif(item.stock, item.price) / 2 FROM item WHERE id = 1"),
    ("mixture", "SELECT CASE WHEN id = 1 THEN stock ELSE price END / 2 FROM item WHERE id = 1"),
];

/// Statements that answer alike.
const CLEAN: &[&str] = &[
    "SELECT id, name FROM item WHERE id = 1 AND name IS NOT NULL",
    "SELECT count(*) AS n, max(price), min(\"Kind\") FROM item WHERE stock IS NULL OR flag <> 0",
    "SELECT flag, count(*) FROM item GROUP BY flag HAVING count(*) > 1",
    "SELECT name || '-' || id FROM item WHERE id BETWEEN 1 AND flag",
    "SELECT name || 1.5 FROM item WHERE id = 1",
    "SELECT -stock || name, (stock + 1) || name || (item.stock * 2) FROM item WHERE id = 1",
    "SELECT name || CASE WHEN price > 1.5 THEN 'a' ELSE '' END || id FROM item WHERE price > 1.5",
    "SELECT CASE WHEN flag = 1 THEN 'a' ELSE 'b' END FROM item WHERE id IN (1, 7) LIMIT 1 OFFSET 0",
    "SELECT coalesce(stock, 0) / 2, substr(name, 2, 3), length(name) FROM item WHERE id = 1",
    "SELECT s.count FROM sale s JOIN item i ON i.id = s.item WHERE name = 'Tea' -- rowid == \"x\"",
    "SELECT id FROM item ORDER BY stock NULLS FIRST, id",
    "INSERT INTO sale(item, count) VALUES (1, 9) ON CONFLICT (item)
     DO UPDATE SET count = excluded.count
     RETURNING count",
    "INSERT INTO sale VALUES (7, 1) ON CONFLICT DO NOTHING RETURNING item",
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
    "UPDATE item SET name = upper(name) WHERE id = 2 RETURNING name",
    "SELECT id FROM item WHERE name IS DISTINCT FROM 'Tea' AND EXISTS (SELECT 1 FROM sale)",
    "ALTER TABLE item ADD COLUMN note text NOT NULL DEFAULT ''",
    "SELECT CAST(id AS bigint) FROM item WHERE \"Kind\" = 'hot' AND id = 1",
    "SELECT tid, label, \"Land\" FROM \"Town\" GROUP BY tid",
    "SELECT t.label, count(s.item) FROM \"Town\" AS t JOIN sale s ON s.item = t.tid GROUP BY t.tid",
    "SELECT label FROM \"Town\" GROUP BY 1",
    "SELECT name FROM item WHERE id = 1 GROUP BY (name), (item.flag)",
    "SELECT label FROM \"Town\" t ORDER BY t.label DESC, tid LIMIT 1",
    "SELECT x FROM (SELECT id + 1 AS x FROM item) AS t WHERE x > 1 AND x BETWEEN 1 + 1 AND 3",
    "INSERT INTO \"Town\"(label, \"Land\") VALUES ('x', NULL) RETURNING label",
    "INSERT INTO sale VALUES (1, 9) ON CONFLICT (item)
     DO UPDATE SET count = sale.count + 1 RETURNING count",
    "SELECT current_price FROM (SELECT price AS current_price FROM item WHERE id = 1) AS t",
    "SELECT id FROM item WHERE id IN (SELECT item FROM sale WHERE count > 3) GROUP BY id",
    "SELECT id FROM item WHERE name LIKE '%-%' OR price / nullif(stock, 0) < 1",
    "SELECT sum(price), avg(price) FROM item WHERE id < 3",
    "SELECT flag, count(*) FROM item GROUP BY flag ORDER BY count(*) DESC, min(id) NULLS FIRST",
    "SELECT DISTINCT name, price AS p FROM item ORDER BY name NULLS FIRST, p NULLS FIRST",
    "SELECT i.id FROM item i CROSS JOIN sale JOIN \"Town\" t ON t.tid = i.id WHERE t.tid = 1",
    "SELECT t.label AS label FROM \"Town\" t LEFT JOIN sale s ON s.item = t.tid
     ORDER BY label, t.tid",
    "SELECT count FROM sale ORDER BY count",
    "SELECT id FROM item WHERE id IS DISTINCT FROM (SELECT 1) AND id << 3 = 8 AND price / 0.5 > 1",
    "SELECT coalesce(price, 0.0) / 2, CASE WHEN price > 1 THEN stock ELSE 7 END / 2 FROM item",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9)
     SELECT i FROM (SELECT i FROM n ORDER BY i NULLS FIRST LIMIT 2) t",
    "SELECT i.stock AS any, CAST(i.stock AS bigint) FROM item i WHERE id = 1",
];

/// Statements with one rule alone.
const NARROW: &[(&str, &str)] = &[
    ("type", "ALTER TABLE item ADD COLUMN code char(3)"),
    ("type", "ALTER TABLE item ADD COLUMN done boolean NOT NULL DEFAULT FALSE"),
    ("collation", "SELECT label FROM \"Town\" ORDER BY label COLLATE NOCASE"),
];

/// The findings of a text, with the schema beside it.
fn findings(directory: &std::path::Path, sql: &str) -> Vec<Value> {
    let (schema, file) = (directory.join("schema.sql"), directory.join("query.sql"));
    fs::write(&schema, SCHEMA).expect("it works");
    fs::write(&file, format!("\n  {sql};\n")).expect("it works");
    let (schema, file) = (schema.to_str().expect("plain"), file.to_str().expect("plain"));
    let output = monolite(&["lint", "--portable", "--json", schema, file]);
    let found: Vec<Value> = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(output.status.code(), Some(i32::from(!found.is_empty())), "{}", complaint(&output));
    let is_here =
        |found: &Value| found["file"].as_str().is_some_and(|it| it.ends_with("query.sql"));
    found.into_iter().filter(is_here).collect()
}

/// What SQLite answers, or that it complains; in a transaction that is rolled back.
fn of_sqlite(connection: &Connection, sql: &str) -> Result<Vec<String>, String> {
    let run = |sql: &str| -> rusqlite::Result<Vec<String>> {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(())?;
        let mut answer = Vec::new();
        while let Some(row) = rows.next()? {
            for at in 0..columns {
                answer.push(match row.get_ref(at)? {
                    ValueRef::Null => "NULL".into(),
                    ValueRef::Integer(value) => value.to_string(),
                    ValueRef::Real(value) => value.to_string(),
                    ValueRef::Text(value) => String::from_utf8_lossy(value).into_owned(),
                    ValueRef::Blob(value) => format!("{value:?}"),
                });
            }
        }
        Ok(answer)
    };
    let mut answer = Ok(Vec::new());
    for statement in monolite::statements(sql) {
        answer = answer.and_then(|_| run(statement));
    }
    answer.map_err(|error| error.to_string())
}

#[test]
fn each_planted_difference_is_found_and_is_one() {
    let directory = tempfile::tempdir().expect("it works");
    let ground = Ground::of("lint: both engines");
    let engines = ground.as_ref().map(|ground| {
        let source = ground.source("lint.db", &format!("{SCHEMA}{ROWS}"));
        let made = export(&source, &ground.database("lint"), &[]);
        assert_eq!(made.status.code(), Some(0), "{}", complaint(&made));
        (ground, Connection::open(source).expect("it works"))
    });
    let mut wrong = Vec::new();
    for (rule, sql) in PLANTED {
        let found = findings(directory.path(), sql);
        if !found.iter().any(|found| found["rule"] == *rule && found["line"] == 2) {
            wrong.push(format!("not found: {rule}: {sql}: {found:?}"));
        }
        let Some((ground, sqlite)) = &engines else { continue };
        let here = of_sqlite(sqlite, &format!("SAVEPOINT s; {sql}"));
        let _ = sqlite.execute_batch("ROLLBACK TO s; RELEASE s; DETACH other");
        let there = ground.all("lint", &format!("BEGIN; {sql}"));
        if *rule != "parameter"
            && there.is_ok()
            && here == there
            && !["type", "begin"].contains(rule)
        {
            wrong.push(format!("no difference: {rule}: {sql}: {here:?}"));
        }
    }
    for sql in CLEAN {
        let found = findings(directory.path(), sql);
        if !found.is_empty() {
            wrong.push(format!("found: {sql}: {found:?}"));
        }
        let Some((ground, sqlite)) = &engines else { continue };
        let here = of_sqlite(sqlite, &format!("SAVEPOINT s; {sql}"));
        sqlite.execute_batch("ROLLBACK TO s; RELEASE s").expect("it works");
        let there = ground.all("lint", &format!("BEGIN; {sql}"));
        if here != there {
            wrong.push(format!("a difference: {sql}: {here:?} {there:?}"));
        }
    }
    for (rule, sql) in NARROW {
        let found = findings(directory.path(), sql);
        if found.len() != 1 || found[0]["rule"] != *rule {
            wrong.push(format!("not {rule} alone: {sql}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(PLANTED.len() >= 50);
}

#[test]
fn places_are_told_by_line_and_column_also_in_a_database() {
    let directory = tempfile::tempdir().expect("it works");
    let found = findings(directory.path(), "SELECT 'é', `id`\nFROM item WHERE id == 1");
    let places: Vec<_> =
        found.iter().map(|it| (it["line"].as_i64(), it["column"].as_i64())).collect();
    assert_eq!(places, [(Some(2), Some(15)), (Some(3), Some(20))]);
    monolite_sqlite::initialize().expect("it works");
    let file = directory.path().join("shop.db");
    let plain = Connection::open(&file).expect("it works");
    // That of the engine is not the user's.
    plain
        .execute_batch(&format!(
            "CREATE TABLE t(a INTEGER) STRICT; {}; CREATE VIRTUAL TABLE ft USING fts5(a);
             CREATE TABLE u(a INTEGER PRIMARY KEY AUTOINCREMENT) STRICT",
            crate::export::OF_ENGINE
        ))
        .expect("it works");
    drop(plain);
    let output = monolite(&["lint", "--portable", file.to_str().expect("plain")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(said.contains("shop.db t:1:16: type: a: "), "{said}");
    assert!(said.contains("shop.db ft:1:8: virtual-table: "), "{said}");
    assert!(complaint(&output).contains("PostgreSQL treats 6 places otherwise"));
}

#[test]
fn what_sqlite_does_not_understand_is_told_where_it_can_be_known() {
    let directory = tempfile::tempdir().expect("it works");
    let alone = directory.path().join("alone.sql");
    for (sql, with_schema, without) in [
        ("SELEC 1", true, true),
        ("SELECT a FROM nosuch WHERE (", true, true),
        ("SELECT a FROM nosuch WHERE a = 1", true, false),
        ("UPDATE item SET nosuch = 1 WHERE id = 1", true, false),
        // The application has it, or may have.
        ("SELECT mine(id) FROM item", false, false),
        ("SELECT tbl FROM sqlite_stat1", false, false),
        ("ATTACH 'a.db' AS a; SELECT id FROM a.t WHERE id = 1", false, false),
        ("CREATE VIRTUAL TABLE v USING mine(x); SELECT x FROM v WHERE x = 1", false, false),
        // A statement before or behind it makes it.
        ("CREATE TEMP TABLE k(a TEXT) STRICT; SELECT a FROM k WHERE a = 'x'", false, false),
        ("SELECT more FROM item WHERE id = 1; ALTER TABLE item ADD more TEXT", false, false),
        // It was there before.
        ("SELECT label FROM \"Town\" WHERE tid = 1; DROP TABLE \"Town\"", false, false),
        ("SELECT value FROM generate_series(1, 3)", false, false),
    ] {
        let is_told = |found: &Value| found["rule"] == "not understood";
        let found = findings(directory.path(), sql);
        assert_eq!(found.iter().any(is_told), with_schema, "{sql}: {found:?}");
        fs::write(&alone, sql).expect("it works");
        let output = monolite(&["lint", "--portable", "--json", alone.to_str().expect("plain")]);
        let found: Vec<Value> = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!(found.iter().any(is_told), without, "{sql}: {found:?}");
    }
    fs::write(&alone, "SELEC 1").expect("it works");
    let output = monolite(&["lint", "--portable", alone.to_str().expect("plain")]);
    assert!(complaint(&output).contains("1 statement not understood"), "{}", complaint(&output));
    let found = &findings(directory.path(), "SELECT id FROM item WHERE nosuch = 1")[0];
    assert_eq!((&found["column"], &found["text"]), (&29.into(), &"nosuch".into()), "{found:?}");
    assert_eq!(found["difference"], "no such column: nosuch");
}
