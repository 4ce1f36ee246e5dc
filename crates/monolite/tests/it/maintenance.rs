//! Checkpoints by hand, checks, statistics, free pages, and a WAL that gets smaller.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use monolite::{Database, ErrorKind, Options, Sharing, rusqlite};
use monolite_testkit::storage::wal_beside;

use crate::patience::{ends, eventually};

fn one(db: &Database, sql: &'static str) -> i64 {
    db.read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait().unwrap()
}

/// Some MB of rows.
fn fill(db: &Database) {
    let fill = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB); \
                WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 4000) \
                INSERT INTO t(v) SELECT zeroblob(2000) FROM c";
    db.write(move |tx| tx.execute_batch(fill)).wait().unwrap();
}

fn wal_file_bytes(path: &Path) -> u64 {
    fs::metadata(wal_beside(path)).unwrap().len()
}

#[test]
fn a_checkpoint_moves_everything_into_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    fill(&db);
    let done = db.checkpoint().wait().unwrap();
    assert_eq!((done.pages_left, done.restarts), (0, true));
    assert!(fs::metadata(&path).unwrap().len() > 8_000_000);
    // A read that needs the older state keeps what is newer in the WAL.
    let (held, hold) = channel::<()>();
    let (begun, begins) = channel();
    let reading = db.clone();
    let reader = thread::spawn(move || {
        reading
            .read(|tx| {
                let seen =
                    tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))?;
                begun.send(()).unwrap();
                hold.recv().unwrap();
                Ok::<_, monolite::Error>(seen)
            })
            .wait()
    });
    begins.recv().unwrap();
    fill(&db);
    let done = db.checkpoint().wait().unwrap();
    assert!(!done.restarts);
    held.send(()).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 4_000);
    assert!(db.checkpoint().wait().unwrap().restarts);
    db.close().unwrap();
}

#[test]
fn a_wal_that_nobody_writes_gets_small_and_nothing_is_lost() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = Options::new().sharing(sharing).open(&path).unwrap();
        fill(&db);
        assert!(wal_file_bytes(&path) > 8_000_000);
        // What rests in the middle of something keeps it from nothing.
        let resting = db.transaction().unwrap();
        resting.execute("INSERT INTO t(id, v) VALUES (-1, 'rests')", ()).wait().unwrap();
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 4_000);
        eventually("the WAL gets small", || wal_file_bytes(&path) <= 4 << 20);
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 4_000);
        resting.commit().wait().unwrap();
        fill(&db);
        assert_eq!(one(&db, "SELECT count(*) FROM t"), 8_001);
        eventually("the WAL gets small again", || wal_file_bytes(&path) <= 4 << 20);
        db.write(|tx| tx.execute("INSERT INTO t(id, v) VALUES (-2, 'last')", ())).wait().unwrap();
        // What a crash would leave: the file and its WAL as they are now.
        let copy = directory.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        fs::copy(wal_beside(&path), wal_beside(&copy)).unwrap();
        let crashed = rusqlite::Connection::open(&copy).unwrap();
        let count = |sql: &str| crashed.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM t"), 8_002);
        let said: String =
            crashed.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
        assert_eq!(said, "ok");
        db.close().unwrap();
    }
}

#[test]
fn a_check_finds_nothing_in_a_database_that_is_well() {
    let db = Database::open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute_batch("CREATE VIRTUAL TABLE f USING fts5(v)")).wait().unwrap();
    db.write(|tx| tx.execute("INSERT INTO f VALUES ('some words')", ())).wait().unwrap();
    let check = db.check();
    let monitor = check.monitor();
    let checked = check.wait().unwrap();
    assert_eq!(checked.problems, [] as [&str; 0]);
    assert!(checked.tables > 2);
    assert_eq!(monitor.progress().done, checked.tables);
}

#[test]
fn a_check_finds_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain
        .execute_batch(
            "CREATE TABLE parent(id INTEGER PRIMARY KEY);
             CREATE TABLE child(id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
             PRAGMA foreign_keys = OFF; INSERT INTO child VALUES (7, 70);
             CREATE TABLE n(v); INSERT INTO n VALUES (NULL);
             PRAGMA writable_schema = ON;
             UPDATE sqlite_schema SET sql = 'CREATE TABLE n(v NOT NULL)' WHERE name = 'n';",
        )
        .unwrap();
    drop(plain);
    let db = Database::open(&path).unwrap();
    let problems = db.check().wait().unwrap().problems;
    assert!(problems.contains(&"row 7 of child has no parent in parent".into()), "{problems:?}");
    assert!(problems.iter().any(|said| said.contains("NULL value in n.v")), "{problems:?}");
}

#[test]
fn a_check_that_is_cancelled_or_closed_ends_soon() {
    let db = Database::open(":memory:").unwrap();
    for _ in 0..10 {
        fill(&db);
    }
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(hex(v), v)")).wait().unwrap();
    let check = db.check();
    check.cancel();
    let error = ends("the check", move || check.wait().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Aborted, "{error:?}");
    let check = db.check();
    eventually("it has begun", || check.progress().total > 0);
    let closing = db.clone();
    ends("the close", move || closing.close().unwrap());
    let ended = check.wait();
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::Closed));
}

#[test]
fn statistics_are_gathered_by_hand_and_by_the_clock() {
    let db = Database::open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(v)")).wait().unwrap();
    db.optimize().wait().unwrap();
    assert_eq!(one(&db, "SELECT count(*) FROM sqlite_stat1 WHERE tbl = 't'"), 1);
    db.close().unwrap();

    let db = Options::new().optimize_every(Duration::from_secs(1)).open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute_batch("CREATE INDEX i ON t(v)")).wait().unwrap();
    let count = "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_stat1'";
    eventually("statistics are gathered", || one(&db, count) == 1);
    db.close().unwrap();
    let error = Options::new().optimize_every(Duration::ZERO).open(":memory:").unwrap_err();
    assert!(error.to_string().contains("option optimize_every is"), "{error}");
}

#[test]
fn free_pages_are_given_back_in_steps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; CREATE TABLE x(v)").unwrap();
    drop(plain);
    let db = Options::new().wal_limit_bytes(16 << 20).open(&path).unwrap();
    (0..5).for_each(|_| fill(&db));
    db.checkpoint().wait().unwrap();
    let before = fs::metadata(&path).unwrap().len();
    db.write(|tx| tx.execute("DELETE FROM t WHERE id > 1000", ())).wait().unwrap();
    let commits = db.stats().commits;
    let vacuum = db.vacuum();
    // Others write in between.
    let beside = db.write(|tx| tx.execute("INSERT INTO x VALUES (1)", ()));
    let vacuumed = vacuum.wait().unwrap();
    beside.wait().unwrap();
    assert!(vacuumed.pages > 5_000, "{vacuumed:?}");
    assert!(db.stats().commits - commits > 10, "in steps");
    db.checkpoint().wait().unwrap();
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before / 3, "{before} to {after}");
    assert_eq!(db.vacuum().wait().unwrap().pages, 0);
    assert_eq!(one(&db, "SELECT count(*) FROM t"), 1_000);
    assert!(db.check().wait().unwrap().problems.is_empty());
    assert!(db.stats().wal_bytes_max <= 16 << 20);
    db.close().unwrap();
}

#[test]
fn a_file_that_keeps_its_pages_says_so() {
    let db = Database::open(":memory:").unwrap();
    fill(&db);
    db.write(|tx| tx.execute("DELETE FROM t", ())).wait().unwrap();
    let error = db.vacuum().wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("auto_vacuum is NONE"), "{error}");
    assert!(error.to_string().contains("Database::backup"), "{error}");
}
