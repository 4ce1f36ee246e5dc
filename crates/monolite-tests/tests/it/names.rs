//! What the engine keeps in the file is out of the reach of every user's SQL, however it is named.

mod walk;

use crate::patience::one;
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
    assert_eq!(one(&db, named), 2);
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
