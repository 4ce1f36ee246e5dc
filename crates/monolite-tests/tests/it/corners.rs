//! Corners in which the engine once gave a wrong answer, lost something, or stood still: each was
//! found by somebody who knew nothing of how it works.

mod answers;
mod limits;
mod neighbours;
mod schema;

use std::path::PathBuf;

use monolite::{Database, Options, Row, Transaction, rusqlite};

/// A database with two tables of one row each.
fn database(options: Options) -> (tempfile::TempDir, PathBuf, Database) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = options.open(&path).unwrap();
    write(
        &db,
        "CREATE TABLE a(id INTEGER PRIMARY KEY, v); INSERT INTO a VALUES (1, 10);
         CREATE TABLE b(id INTEGER PRIMARY KEY, v); INSERT INTO b VALUES (1, 20);",
    );
    (directory, path, db)
}

fn write(db: &Database, sql: &'static str) {
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
}

fn number(row: &Row<'_>) -> rusqlite::Result<i64> {
    row.get(0)
}

/// What a statement of a transaction answers.
fn ask(tx: &Transaction, sql: &str) -> i64 {
    tx.query_row(sql, (), number).wait().unwrap()
}

/// What the writer answers.
fn ask_writer(db: &Database, sql: &'static str) -> i64 {
    db.write(move |tx| tx.query_row(sql, (), number)).wait().unwrap()
}
