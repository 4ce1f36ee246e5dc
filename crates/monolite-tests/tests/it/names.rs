//! What the engine keeps in the file is out of the reach of every user's SQL, however it is named.

mod walk;

use monolite::{Database, Error, ErrorKind, rusqlite};

fn open() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    (directory, db)
}

/// A payment, which is made once.
fn pay(db: &Database, key: &str) -> Result<(bool, Vec<u8>), Error> {
    let tx = db.transaction()?;
    tx.execute("INSERT INTO t VALUES ('payment')", ()).wait()?;
    let committed = tx.commit_once(key, "receipt").wait()?;
    Ok((committed.is_repeated(), committed.outcome().to_vec()))
}

#[test]
fn what_concerns_all_tables_goes_on_beside_those_of_the_engine() {
    let (_directory, db) = open();
    pay(&db, "paid").unwrap();
    let all = "REINDEX; ANALYZE; PRAGMA optimize; CREATE TABLE other(x REFERENCES t(x));
               ALTER TABLE other RENAME TO another; ALTER TABLE another RENAME COLUMN x TO y;
               DROP TABLE another; PRAGMA integrity_check; PRAGMA foreign_key_check;
               CREATE TABLE words(text DEFAULT 'monolite_ is a prefix')";
    db.write(|tx| tx.execute_batch(all)).wait().unwrap();
    let named = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'monolite%'";
    let named = db.read(move |tx| tx.query_row(named, (), |row| row.get::<_, i64>(0)));
    assert_eq!(named.wait().unwrap(), 2);
    assert!(pay(&db, "paid").unwrap().0);
}

#[test]
fn a_file_in_which_others_have_a_name_of_the_engine_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    Database::open(&path).unwrap().close().unwrap();
    let plain = |sql: &str| {
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    };
    let taken = [
        ("CREATE TABLE monolite_users(x)", "DROP TABLE monolite_users"),
        ("CREATE TABLE monolite_idempotency(x)", "DROP TABLE monolite_idempotency"),
        ("CREATE VIEW v AS SELECT * FROM monolite_idempotency", "DROP VIEW v"),
    ];
    for (take, give_back) in taken {
        plain(take);
        let error = Database::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{take}: {error}");
        assert!(error.to_string().contains("rename it with plain SQLite"), "{take}: {error}");
        plain(give_back);
        Database::open(&path).unwrap().close().unwrap();
    }
}

#[test]
fn the_keys_of_an_earlier_version_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // The first in the process to use SQLite, or untrusted SQL cannot be limited.
    Database::open(&path).unwrap().close().unwrap();
    let plain = rusqlite::Connection::open(&path).unwrap();
    plain
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS monolite_idempotency(key TEXT PRIMARY KEY, \
             outcome BLOB NOT NULL, expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
             CREATE INDEX IF NOT EXISTS monolite_idempotency_expires ON \
             monolite_idempotency(expires);
             INSERT INTO monolite_idempotency VALUES ('paid', x'6f6c64', 9999999999);
             CREATE TABLE t(x)",
        )
        .unwrap();
    plain.close().unwrap();
    let db = Database::open(&path).unwrap();
    assert_eq!(pay(&db, "paid").unwrap(), (true, b"old".to_vec()));
    db.write(|tx| tx.execute_batch("CREATE TABLE more(x)")).wait().unwrap();
    assert!(!pay(&db, "other").unwrap().0);
}
