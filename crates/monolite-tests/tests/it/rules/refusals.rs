//! Statements that belong to the engine.

use monolite::{Database, Error, ErrorKind, Tx};

use super::{database, ids, insert};
use crate::patience::{as_one_batch, one};

/// A statement, and what its refusal must name.
const REFUSED: &[(&str, &str)] = &[
    ("SELECT load_extension('anything')", "linked into the program"),
    ("SELECT fts3_tokenizer('simple')", "an address in the process"),
    ("SELECT FTS3_Tokenizer('simple', x'0000000000000000')", "an address in the process"),
    ("BEGIN", "return Ok to commit"),
    ("BEGIN IMMEDIATE", "return Ok to commit"),
    ("COMMIT", "return Ok to commit"),
    ("END TRANSACTION", "return Ok to commit"),
    ("ROLLBACK", "an error to roll it back"),
    ("SAVEPOINT mine", "return an error from the closure"),
    ("RELEASE monolite_group", "return an error from the closure"),
    ("ROLLBACK TO monolite_group", "return an error from the closure"),
    ("ATTACH 'other.db' AS other", "Database of its own"),
    ("ATTACH ':memory:' AS other", "Database of its own"),
    ("DETACH main", "Database of its own"),
    ("ATTACH 'other' || '.db' AS other", "Database of its own"),
    ("ATTACH printf(':memory:') AS other", "Database of its own"),
    ("DETACH 'ma' || 'in'", "Database of its own"),
    ("CREATE TEMP TABLE mine(x)", "common table expression"),
    ("CREATE TABLE temp.mine(x)", "common table expression"),
    ("CREATE TABLE Temp.mine AS SELECT 1", "common table expression"),
    ("CREATE VIEW temp.mine AS SELECT 1", "common table expression"),
    ("CREATE TRIGGER temp.mine AFTER INSERT ON t BEGIN SELECT 1; END", "common table expression"),
    ("CREATE TEMPORARY VIEW mine AS SELECT 1", "common table expression"),
    ("CREATE TEMP TRIGGER mine AFTER INSERT ON t BEGIN SELECT 1; END", "common table expression"),
    ("PRAGMA synchronous = OFF", "durability"),
    ("PRAGMA journal_mode = DELETE", "needs the WAL"),
    ("PRAGMA locking_mode = EXCLUSIVE", "sharing"),
    ("PRAGMA wal_checkpoint(TRUNCATE)", "checkpoints by itself"),
    ("PRAGMA wal_autocheckpoint = 1", "wal_limit_bytes"),
    ("PRAGMA writable_schema = ON", "CREATE, ALTER and DROP"),
    ("PRAGMA foreign_keys = OFF", "DEFERRABLE"),
    ("PRAGMA defer_foreign_keys = OFF", "ends with it"),
    ("PRAGMA query_only = ON", "Database::read"),
    ("PRAGMA cache_size = 1", "writer_cache_bytes"),
    ("PRAGMA cache_spill = ON", "no option"),
    ("PRAGMA mmap_size = 1000000", "reader_cache_bytes"),
    ("PRAGMA temp_store = FILE", "temp_limit_bytes"),
    ("PRAGMA busy_timeout = 0", "time limit"),
    ("PRAGMA schema_version = 9", "SQLite counts it"),
    ("PRAGMA hard_heap_limit = 1", "no option"),
];

fn assert_refused(error: &Error, sql: &str, names: &str) {
    assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}: {error}");
    assert!(error.to_string().contains(names), "{sql}: {error}");
}

#[test]
fn every_statement_of_the_engine_is_refused_alone_and_names_the_alternative() {
    for (sql, names) in REFUSED {
        let db = database();
        let (before, refused, after) = as_one_batch(&db, || {
            let before = insert(&db, 1);
            let refused = db.write(move |tx| {
                tx.execute("INSERT INTO t(id) VALUES (2)", ())?;
                tx.execute_batch(sql)
            });
            (before, refused, insert(&db, 3))
        });
        assert_refused(&refused.wait().unwrap_err(), sql, names);
        before.wait().unwrap();
        after.wait().unwrap();
        assert_eq!(ids(&db), [1, 3], "{sql}");
    }
}

#[test]
fn a_refusal_comes_from_every_way_to_run_a_statement() {
    type Way = fn(&Tx<'_>, &str) -> Result<(), Error>;
    let ways: [Way; 6] = [
        |tx, sql| tx.execute(sql, ()).map(|_| ()),
        |tx, sql| tx.execute_batch(sql),
        |tx, sql| tx.query_row(sql, (), |_| Ok(())),
        |tx, sql| tx.query_row(sql, (), |_| Ok(())),
        |tx, sql| tx.prepare(sql).map(|_| ()),
        |tx, sql| tx.prepare_cached(sql).map(|_| ()),
    ];
    let db = database();
    for way in ways {
        for (sql, names) in REFUSED {
            assert_refused(&db.write(move |tx| way(tx, sql)).wait().unwrap_err(), sql, names);
        }
    }
}

#[test]
fn contents_of_the_file_that_look_like_settings_can_be_changed() {
    let db = database();
    db.write(|tx| tx.execute_batch("PRAGMA user_version = 7")).wait().unwrap();
    let failing = db.write(|tx| {
        tx.execute_batch("PRAGMA user_version = 8")?;
        Err::<(), _>(Error::aborted("on purpose"))
    });
    assert_eq!(failing.wait().unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(one(&db, "PRAGMA user_version"), 7);
}

fn write_in_a_read(db: &Database, sql: &'static str) -> Error {
    db.read(move |tx| Ok(tx.prepare(sql)?.execute(()).map(drop)?)).wait().unwrap_err()
}

#[test]
fn a_read_cannot_write() {
    let db = database();
    for sql in [
        "INSERT INTO t(id) VALUES (1)",
        "DELETE FROM t",
        "CREATE TABLE mine(x)",
        "DROP TABLE t",
        "PRAGMA user_version = 3",
        "PRAGMA query_only = OFF",
        "COMMIT",
    ] {
        assert_eq!(write_in_a_read(&db, sql).kind(), ErrorKind::Invalid, "{sql}");
    }
    insert(&db, 9).wait().unwrap();
    assert_eq!(ids(&db), [9]);
}
