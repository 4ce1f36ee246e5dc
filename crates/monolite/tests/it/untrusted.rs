//! SQL from somebody who is not trusted stays within the profile, and ordinary SQL does not notice
//! it.

use std::time::{Duration, Instant};

use monolite::{Database, Error, ErrorKind, Options, Untrusted, Value, rusqlite};

use crate::patience::as_one_batch;

/// How long a transaction may take in these tests.
const LIMIT: Duration = Duration::from_millis(300);

/// By how much it may be late on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

fn open(profile: Untrusted) -> Option<Database> {
    open_with(Options::new().write_time_limit(LIMIT).read_time_limit(LIMIT), profile)
}

fn open_with(options: Options, profile: Untrusted) -> Option<Database> {
    let opened = options.untrusted(profile).open(":memory:");
    if rusqlite::version_number() < 3_054_000 {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("3.54.0"), "{error}");
        return None;
    }
    let db = opened.unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, x)")).wait().unwrap();
    Some(db)
}

fn run(db: &Database, sql: &'static str) -> Result<(), Error> {
    db.write(move |tx| tx.execute_batch(sql)).wait()
}

fn value(db: &Database, sql: &str) -> Result<Value, Error> {
    db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait()
}

#[test]
fn ordinary_sql_does_not_notice_the_profile() {
    let Some(db) = open(Untrusted::new()) else { return };
    let script = "
        CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, n INT DEFAULT 0,
                       upper TEXT AS (upper(trim(name, ' '))) STORED, CHECK (length(name) < 100));
        CREATE INDEX by_name ON a(replace(name, 'a', 'b'));
        CREATE TABLE b(a INTEGER REFERENCES a(id) ON DELETE CASCADE, note ANY) STRICT;
        CREATE VIEW v AS SELECT a.name, count(*) AS c FROM a JOIN b ON b.a = a.id GROUP BY 1;
        CREATE TRIGGER tr AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.id, 'made'); END;
        INSERT INTO a(name) VALUES ('one'), ('two'), (' three ');
        ALTER TABLE a RENAME TO c;
        ALTER TABLE c ADD COLUMN extra;
        ALTER TABLE c DROP COLUMN extra;
        UPDATE c SET n = n + 1 WHERE name LIKE '%e%' RETURNING id;
        INSERT INTO c(name) VALUES ('four') ON CONFLICT DO NOTHING;
        REINDEX;
        DELETE FROM c WHERE id = 2;
        CREATE TABLE gone(x INTEGER PRIMARY KEY AUTOINCREMENT);
        INSERT INTO gone DEFAULT VALUES;
        DROP TABLE gone;
        PRAGMA user_version = 3;";
    run(&db, script).unwrap();
    let query = "WITH RECURSIVE k(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < 10)
                 SELECT json_group_array(c) || (SELECT sum(value) FROM json_each('[1,2]'))
                        || (SELECT count(*) FROM k) || (SELECT max(rank) FROM
                           (SELECT rank() OVER (ORDER BY id) AS rank FROM c))
                        || (SELECT user_version FROM pragma_user_version) FROM v";
    assert_eq!(value(&db, query).unwrap(), Value::Text("[1,1,1]31033".into()));
}

#[test]
fn what_the_profile_refuses_says_so() {
    let Some(db) = open(Untrusted::new()) else { return };
    let refused = [
        ("ANALYZE", "without the profile"),
        ("PRAGMA integrity_check", "refused to untrusted SQL"),
        ("PRAGMA optimize", "refused to untrusted SQL"),
        ("PRAGMA cell_size_check = OFF", "PRAGMA"),
        ("SELECT * FROM pragma_quick_check()", "refused to untrusted SQL"),
        ("SELECT * FROM dbstat", "no such table"),
        ("SELECT json_patch('{}', '{}')", "json_set"),
        ("SELECT fts3_tokenizer('simple')", "addresses"),
        ("SELECT sqlite_log(1, 'x')", "log"),
        ("SELECT unhex('00', ' ')", "one argument"),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING fts3(x)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING rtree(a, b, c)", "no such module"),
        ("CREATE VIRTUAL TABLE f USING dbstat", "no such module"),
        ("SELECT \"nothing\"", "no such column"),
        ("CREATE TABLE q(x CHECK (x <> \"nothing\"))", "no such column"),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          INSERT INTO sqlite_sequence VALUES ('t', 9)",
            "relies on",
        ),
        (
            "CREATE TABLE s(x INTEGER PRIMARY KEY AUTOINCREMENT);
          INSERT INTO s DEFAULT VALUES; UPDATE sqlite_sequence SET seq = 9",
            "relies on",
        ),
        ("SELECT zeroblob(2000000)", "too big"),
        ("SELECT 'a' LIKE printf('%.*c', 101, 'a')", "LIKE or GLOB pattern too complex"),
    ];
    for (sql, names) in refused {
        let error = run(&db, sql).expect_err(sql);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
        assert!(error.to_string().contains(names), "{sql}: {error}");
    }
}

#[test]
fn what_never_ends_is_ended() {
    let Some(db) = open(Untrusted::new()) else { return };
    let endless = [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n), s(a, p) AS MATERIALIZED
             (SELECT printf('%.*c', 1000000, 'a'), '%' || printf('%.*c', 98, 'a') || 'b')
         SELECT count(*) FROM n, s WHERE a || i LIKE p",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
         SELECT sum(instr(printf('%.*c', 1000000, 'a') || i, printf('%.*c', 999, 'a') || 'b'))
         FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
         SELECT sum(length(hex(randomblob(500000)))) FROM n",
    ];
    for sql in endless {
        for way in [|db, sql| value(db, sql).map(|_| ()), run] {
            let start = Instant::now();
            let error = way(&db, sql).unwrap_err();
            let time = start.elapsed();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{sql}: {error}");
            assert!(time < LIMIT + SLACK, "{sql}: {time:?}");
        }
    }
}

#[test]
fn many_short_statements_are_ended() {
    let options = Options::new().write_time_limit(Duration::from_millis(1));
    let Some(db) = open_with(options, Untrusted::new()) else { return };
    let error = db.write(|tx| tx.execute_batch(&"SELECT 1;".repeat(100_000))).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(db.stats().timed_out_transactions, 1);
}

#[test]
fn a_transaction_beyond_its_memory_fails_alone() {
    let options = Options::new().writer_cache_bytes(1 << 20).reader_cache_bytes(1 << 20);
    let Some(db) = open_with(options, Untrusted::new().memory_limit_bytes(4 << 20)) else { return };
    let hungry = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
                  SELECT max(x) FROM (SELECT randomblob(900000) || i AS x FROM n ORDER BY 1)";
    let assert_starved = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
    };
    assert_starved(value(&db, hungry).unwrap_err());
    let put = |id: i64| db.write(move |tx| tx.execute("INSERT INTO t VALUES (?1, 0)", [id]));
    let (before, sorting, filling, after) = as_one_batch(&db, || {
        let before = put(1);
        let sorting = db.write(move |tx| {
            tx.execute("INSERT INTO t VALUES (2, 0)", ())?;
            tx.query_row(hungry, (), |_| Ok(()))
        });
        let filling = db.write(move |tx| {
            let rows = "INSERT INTO t(x) SELECT randomblob(900000) FROM json_each(?1)";
            tx.execute(rows, [format!("[{}1]", "1,".repeat(9))])
        });
        (before, sorting, filling, put(3))
    });
    assert_starved(sorting.wait().unwrap_err());
    assert_starved(filling.wait().unwrap_err());
    let _ = (before.wait().unwrap(), after.wait().unwrap());
    assert_eq!(value(&db, "SELECT group_concat(id) FROM t").unwrap(), Value::Text("1,3".into()));
}

#[test]
fn a_module_that_was_named_may_be_used() {
    let Some(db) = open(Untrusted::new().module("fts5")) else { return };
    run(&db, "CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('some words')").unwrap();
    let found = value(&db, "SELECT count(*) FROM f WHERE f MATCH 'words'");
    assert_eq!(found.unwrap(), Value::Integer(1));
    let shadow = run(&db, "DELETE FROM f_data").unwrap_err();
    assert_eq!(shadow.kind(), ErrorKind::Invalid, "{shadow}");
}

#[test]
fn values_out_of_range_are_refused_at_open() {
    for profile in [Untrusted::new().value_limit_bytes(1), Untrusted::new().memory_limit_bytes(1)] {
        let error = Options::new().untrusted(profile).open(":memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("must be from"), "{error}");
    }
}
