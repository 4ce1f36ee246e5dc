//! What the engine keeps in the file is out of the reach of every user's SQL, however it is named.

mod walk;

use monolite::{Database, Error, ErrorKind, UntrustedLimits, rusqlite};

/// Statements that would read, change, copy, replace or listen to the idempotency keys, with what
/// they need in front of them.
const ATTEMPTS: &[(&str, &str)] = &[
    ("", "SELECT key FROM monolite_idempotency"),
    ("", "SELECT 1 FROM MONOLITE_Idempotency"),
    ("", "SELECT count(*) FROM \"monolite_idempotency\""),
    ("", "SELECT count(*) FROM [monolite_idempotency] AS k"),
    ("", "SELECT count(*) FROM `monolite_idempotency`"),
    ("", "SELECT count(*) FROM main.monolite_idempotency INDEXED BY monolite_idempotency_expires"),
    ("", "WITH k AS (SELECT * FROM monolite_idempotency) SELECT count(*) FROM k"),
    ("", "SELECT (SELECT max(outcome) FROM monolite_idempotency)"),
    ("", "SELECT EXISTS (SELECT * FROM t JOIN monolite_idempotency ON key = x)"),
    ("", "EXPLAIN SELECT * FROM monolite_idempotency"),
    ("", "SELECT 1 FROM (SELECT 'paid' AS key) JOIN monolite_idempotency USING (key)"),
    ("", "SELECT 1 FROM (SELECT 'paid' AS key) NATURAL JOIN monolite_idempotency"),
    ("", "SELECT key FROM (SELECT 1 AS key) FULL JOIN \"Monolite_Idempotency\" USING (key)"),
    ("", "INSERT INTO monolite_idempotency VALUES ('forged', x'00', 9223372036854775807)"),
    ("", "INSERT OR REPLACE INTO monolite_idempotency VALUES ('paid', x'00', 1)"),
    ("", "REPLACE INTO main.\"Monolite_Idempotency\" VALUES ('paid', x'00', 1)"),
    ("", "UPDATE monolite_idempotency SET expires = 0"),
    ("", "UPDATE t SET x = key FROM monolite_idempotency"),
    ("", "DELETE FROM monolite_idempotency"),
    ("", "DELETE FROM t WHERE x IN (SELECT key FROM monolite_idempotency)"),
    ("", "INSERT INTO t SELECT key FROM monolite_idempotency RETURNING x"),
    ("", "CREATE TABLE copy AS SELECT * FROM monolite_idempotency"),
    ("", "DROP TABLE monolite_idempotency"),
    ("", "DROP INDEX monolite_idempotency_expires"),
    ("", "ALTER TABLE monolite_idempotency RENAME TO mine"),
    ("", "ALTER TABLE monolite_idempotency RENAME COLUMN outcome TO o"),
    ("", "ALTER TABLE monolite_idempotency ADD COLUMN more"),
    ("", "ALTER TABLE monolite_idempotency DROP COLUMN outcome"),
    ("", "CREATE INDEX mine ON monolite_idempotency(outcome)"),
    ("", "CREATE UNIQUE INDEX mine ON monolite_idempotency(outcome)"),
    ("", "CREATE TRIGGER z AFTER INSERT ON monolite_idempotency BEGIN SELECT 1; END"),
    ("", "CREATE TRIGGER z BEFORE DELETE ON monolite_idempotency BEGIN SELECT 1; END"),
    ("", "CREATE TABLE monolite_idempotency(key, outcome, expires)"),
    ("", "CREATE TABLE IF NOT EXISTS \"MONOLITE_idempotency\"(key, outcome, expires)"),
    ("", "CREATE VIEW monolite_idempotency AS SELECT 'k' AS key, 1 AS outcome, 2 AS expires"),
    ("", "CREATE TABLE monolite_other(x)"),
    ("", "CREATE INDEX monolite_idempotency_expires ON t(x)"),
    ("", "CREATE TRIGGER monolite_z AFTER INSERT ON t BEGIN SELECT 1; END"),
    ("CREATE TABLE mine(key, outcome, expires)", "ALTER TABLE mine RENAME TO monolite_idempotency"),
    ("CREATE TABLE mine(key)", "ALTER TABLE mine RENAME TO \"Monolite_Idempotency\""),
    ("CREATE TABLE mine(key)", "ALTER TABLE mine RENAME TO [MONOLITE_other]"),
    ("CREATE VIRTUAL TABLE f USING fts5(x)", "ALTER TABLE f RENAME TO monolite"),
    (
        "CREATE TABLE mine(key TEXT PRIMARY KEY, outcome BLOB NOT NULL, expires INTEGER NOT NULL) \
         STRICT, WITHOUT ROWID",
        "ALTER TABLE mine RENAME TO monolite_idempotency",
    ),
    ("", "CREATE TABLE child(k REFERENCES monolite_idempotency(key) ON DELETE CASCADE)"),
    ("", "ALTER TABLE t ADD COLUMN k REFERENCES [monolite_idempotency] ON DELETE RESTRICT"),
    ("CREATE VIEW v AS SELECT * FROM monolite_idempotency", "SELECT count(*) FROM v"),
    (
        "CREATE TRIGGER z AFTER INSERT ON t BEGIN DELETE FROM monolite_idempotency; END",
        "INSERT INTO t VALUES (1)",
    ),
    (
        "CREATE TRIGGER z AFTER INSERT ON t
             WHEN (SELECT count(*) FROM monolite_idempotency) BEGIN SELECT 1; END",
        "INSERT INTO t VALUES (1)",
    ),
    ("CREATE VIRTUAL TABLE f USING fts5(key, content = 'monolite_idempotency')", "SELECT * FROM f"),
    ("CREATE VIRTUAL TABLE f USING fts4(content=\"monolite_idempotency\")", "SELECT * FROM f"),
    ("", "CREATE VIRTUAL TABLE monolite USING fts5(x)"),
];

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

/// The ways in which a user's SQL gets to the engine.
fn ways(db: &Database, before: &'static str, sql: &'static str) -> Vec<Result<(), Error>> {
    let tx = db.transaction().unwrap();
    let prepared = if before.is_empty() { Ok(()) } else { tx.execute_batch(before).wait() };
    let asked = prepared
        .and_then(|()| tx.query_map(sql, (), |_| Ok(())).wait())
        .and_then(|_| tx.commit().wait());
    let batch = format!("{before};{sql}");
    let (first, second) = (batch.clone(), batch);
    vec![
        asked.map(drop),
        db.write(move |tx| tx.execute_batch(&first)).wait(),
        db.write(move |tx| {
            tx.execute_batch(before)?;
            let mut statement = tx.prepare_cached(sql)?;
            let mut rows = statement.query(())?;
            while rows.next()?.is_some() {}
            Ok::<_, Error>(())
        })
        .wait(),
        // One that takes no error for an answer.
        db.write(move |tx| {
            let _ = tx.execute_batch(before);
            let _ = tx.execute(sql, ());
            let _ = tx.execute_batch(&second);
            tx.query_row("SELECT count(*) FROM monolite_idempotency", (), |_| Ok(()))
        })
        .wait(),
        db.read(move |tx| Ok(tx.prepare(sql)?.execute(()).map(drop)?)).wait(),
        db.query_untrusted(sql, (), &UntrustedLimits::new()).wait().map(drop),
    ]
}

#[test]
fn idempotency_keys_are_out_of_reach_in_every_spelling() {
    for exists in [true, false] {
        let (_directory, db) = open();
        if exists {
            assert!(!pay(&db, "paid").unwrap().0);
        }
        for (before, sql) in ATTEMPTS {
            for (way, ended) in ways(&db, before, sql).into_iter().enumerate() {
                let error = ended.expect_err(sql);
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{sql}, {way}: {error}");
                // In a read, and before there are any, there are other reasons, too.
                let is_told = ["belong", "already", "T.rowid", "not authorized"]
                    .iter()
                    .any(|word| text.contains(word));
                let is_told = is_told || !exists || way >= 3;
                assert!(is_told, "{sql}, {way}: {text}");
            }
        }
        let expected = (exists, b"receipt".to_vec());
        assert_eq!(pay(&db, "paid").unwrap(), expected);
        assert_eq!(pay(&db, "forged").unwrap(), (false, b"receipt".to_vec()));
        let payments =
            db.read(|tx| tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0)));
        assert_eq!(payments.wait().unwrap(), 2);
    }
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
