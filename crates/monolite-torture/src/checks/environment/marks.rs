//! A look at a file with the transactions of [`monolite_testkit::markers`], which counts what is
//! wrong instead of failing.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::{Database, Error};
use monolite_testkit::markers::PARTIAL;

pub(super) use monolite_testkit::markers::{create, put_filled as put};

/// What a file holds.
pub(super) struct Found {
    pub(super) whole: BTreeSet<i64>,
    pub(super) partial: u64,
    pub(super) integrity: String,
}

/// The number of transactions, as a read sees it.
pub(super) fn count(db: &Database) -> Result<i64, Error> {
    db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get(0))).wait()
}

/// Looks at a file that nobody has open, through stock SQLite.
pub(super) fn look(path: &Path) -> Result<Found> {
    look_through(&Connection::open(path)?)
}

/// Looks at an open database.
fn look_through(connection: &Connection) -> Result<Found> {
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let odd = number(PARTIAL)?;
    let uncounted = number("SELECT (SELECT n FROM total) - (SELECT COUNT(*) FROM whole)")?;
    let mut query = connection.prepare("SELECT id FROM whole")?;
    let whole = query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Found { whole, partial: odd.unsigned_abs() + uncounted.unsigned_abs(), integrity })
}

#[test]
fn a_partial_transaction_is_noticed() {
    // Tests in this process look at what only Monolite sets up.
    monolite_sqlite::initialize().unwrap();
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(monolite_testkit::markers::SCHEMA).unwrap();
    assert_eq!(look_through(&connection).unwrap().partial, 0);
    connection.execute_batch("INSERT INTO whole VALUES (7); UPDATE total SET n = 1").unwrap();
    assert_eq!(look_through(&connection).unwrap().partial, 1);
    connection
        .execute_batch("INSERT INTO part VALUES (7, 1, x''), (7, 2, x''), (7, 3, x'')")
        .unwrap();
    assert_eq!(look_through(&connection).unwrap().partial, 0);
    connection.execute_batch("UPDATE total SET n = 2").unwrap();
    assert_eq!(look_through(&connection).unwrap().partial, 1);
}
