//! What a closure may not do, what happens to it when it does, and that nobody else notices.

mod closures;
mod deferral;
mod handles;
mod rebuilds;
mod refusals;
mod rollbacks;
mod without_keys;

use monolite::{Database, Error, Write};

/// A database with one table.
fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    create(&db);
    db
}

fn create(db: &Database) {
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x BLOB) STRICT;
             CREATE TABLE parent(id INTEGER PRIMARY KEY) STRICT;
             CREATE TABLE child(
                 parent INTEGER NOT NULL REFERENCES parent(id) DEFERRABLE INITIALLY DEFERRED
             ) STRICT;",
        )
    })
    .wait()
    .unwrap();
}

fn insert(db: &Database, id: i64) -> Write<usize, Error> {
    db.write(move |tx| tx.execute("INSERT INTO t(id) VALUES (?1)", [id]))
}

fn ids(db: &Database) -> Vec<i64> {
    db.read(|tx| {
        let mut query = tx.prepare("SELECT id FROM t ORDER BY id")?;
        let ids = query.query_map((), |row| row.get(0))?;
        Ok::<_, Error>(ids.collect::<Result<_, _>>()?)
    })
    .wait()
    .unwrap()
}
