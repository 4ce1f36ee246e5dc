//! Transactions that can be recognized whole: each writes its number to one table and three parts
//! to another, and counts itself, so that a missing, a partial and a doubled one all show.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::{Database, Error, Tx};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS whole(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS part(
        id INTEGER NOT NULL, number INTEGER NOT NULL, filling BLOB, PRIMARY KEY (id, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS total(
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO total VALUES (1, 0);
";

/// The statements of one transaction; `?1` is its number, `?2` bytes that take room.
pub(super) const STEPS: [&str; 4] = [
    "INSERT INTO part VALUES (?1, 1, ?2)",
    "UPDATE total SET n = n + 1 WHERE ?1 > 0 AND ?2 IS NOT NULL",
    "INSERT INTO whole SELECT ?1 WHERE ?2 IS NOT NULL",
    "INSERT INTO part VALUES (?1, 2, ?2), (?1, 3, ?2)",
];

/// What a file holds.
pub(super) struct Found {
    pub(super) whole: BTreeSet<i64>,
    pub(super) partial: u64,
    pub(super) integrity: String,
}

/// Creates the tables.
pub(super) fn create(db: &Database) -> Result<(), Error> {
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()
}

/// Creates the tables through stock SQLite.
pub(super) fn create_plain(connection: &Connection) -> Result<()> {
    Ok(connection.execute_batch(SCHEMA)?)
}

/// What one transaction does.
pub(super) fn put(tx: &Tx<'_>, id: i64, filling: &[u8]) -> Result<(), Error> {
    STEPS.iter().try_for_each(|step| tx.execute(step, (id, filling)).map(|_| ()))
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
pub(super) fn look_through(connection: &Connection) -> Result<Found> {
    let integrity = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let odd = number(
        "SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM part GROUP BY id) AS parts
         FULL JOIN whole ON whole.id = parts.id WHERE n IS NOT 3 OR whole.id IS NULL",
    )?;
    let uncounted = number("SELECT (SELECT n FROM total) - (SELECT COUNT(*) FROM whole)")?;
    let mut query = connection.prepare("SELECT id FROM whole")?;
    let whole = query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(Found { whole, partial: odd.unsigned_abs() + uncounted.unsigned_abs(), integrity })
}

#[test]
fn a_partial_transaction_is_noticed() {
    let connection = Connection::open_in_memory().unwrap();
    create_plain(&connection).unwrap();
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
