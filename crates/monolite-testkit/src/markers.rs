//! Transactions that can be recognized whole: each writes its number to one table and three parts
//! to another, so that a missing, a partial and a doubled transaction all show.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use monolite::rusqlite::Connection;
use monolite::{Database, Error};

use crate::schedule::sql::Sql;

/// The tables.
pub const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS whole(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS part(
        id INTEGER NOT NULL, number INTEGER NOT NULL, filling BLOB, PRIMARY KEY (id, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS total(
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO total VALUES (1, 0);
";

/// Counts the transactions that are there in part.
pub const PARTIAL: &str = "
    SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM part GROUP BY id) AS parts
    FULL JOIN whole ON whole.id = parts.id WHERE n IS NOT 3 OR whole.id IS NULL";

/// Creates the tables.
pub fn create(db: &Database) -> Result<(), Error> {
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()
}

/// What one transaction does.
pub fn put(tx: &impl Sql, id: i64) -> Result<(), Error> {
    put_filled(tx, id, &[])
}

/// As [`put`], with bytes that take room.
pub fn put_filled(tx: &impl Sql, id: i64, filling: &[u8]) -> Result<(), Error> {
    tx.change("INSERT INTO part VALUES (?1, 1, ?2)", &[&id, &filling])?;
    tx.change("UPDATE total SET n = n + 1", &[])?;
    tx.change("INSERT INTO whole VALUES (?1)", &[&id])?;
    tx.change("INSERT INTO part VALUES (?1, 2, ?2), (?1, 3, ?2)", &[&id, &filling])?;
    Ok(())
}

/// The transactions in the database, after a check that each is whole and that SQLite finds
/// nothing wrong with the file. None when the tables are not there.
pub fn whole_ones(connection: &Connection) -> Result<BTreeSet<i64>> {
    check_integrity(connection)?;
    found_whole(connection)
}

/// Asks SQLite whether anything is wrong with the file.
pub fn check_integrity(connection: &Connection) -> Result<()> {
    let said: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .context("integrity_check")?;
    if said == "ok" { Ok(()) } else { bail!("integrity_check: {said}") }
}

/// As [`whole_ones`], without the check of the whole file.
pub fn found_whole(connection: &Connection) -> Result<BTreeSet<i64>> {
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).context(sql);
    if count("SELECT COUNT(*) FROM sqlite_schema WHERE name IN ('whole', 'part', 'total')")? == 0 {
        return Ok(BTreeSet::new());
    }
    let partial = count(PARTIAL)?;
    let (total, wholes) = (count("SELECT n FROM total")?, count("SELECT COUNT(*) FROM whole")?);
    if partial > 0 || total != wholes {
        bail!("{partial} partial transactions; counted {total}, found {wholes}");
    }
    let mut query = connection.prepare("SELECT id FROM whole")?;
    let ids = query.query_map([], |row| row.get(0))?;
    ids.collect::<Result<_, _>>().context("the numbers cannot be read")
}

/// As [`whole_ones`], of a file that nobody has open, through stock SQLite.
pub fn in_file(path: &Path) -> Result<BTreeSet<i64>> {
    whole_ones(&Connection::open(path)?)
}

/// Says which of the acknowledged transactions are missing.
pub fn check_all_there(acknowledged: &BTreeSet<i64>, found: &BTreeSet<i64>) -> Result<()> {
    let lost: Vec<_> = acknowledged.difference(found).take(10).collect();
    if lost.is_empty() { Ok(()) } else { bail!("acknowledged and lost: {lost:?}") }
}

#[test]
fn a_partial_transaction_is_noticed() -> Result<()> {
    // Tests in this process look at what only Monolite sets up.
    monolite_sqlite::initialize().unwrap();
    let connection = Connection::open_in_memory()?;
    let notices = || whole_ones(&connection).unwrap_err().to_string().contains("1 partial");
    assert!(whole_ones(&connection)?.is_empty());
    connection.execute_batch(SCHEMA)?;
    assert!(whole_ones(&connection)?.is_empty());
    connection.execute_batch("INSERT INTO whole VALUES (7); UPDATE total SET n = 1")?;
    assert!(notices());
    connection.execute_batch("INSERT INTO part VALUES (7, 1, x''), (7, 2, x''), (7, 3, x'')")?;
    assert_eq!(whole_ones(&connection)?, BTreeSet::from([7]));
    connection.execute_batch("INSERT INTO part VALUES (8, 1, x'')")?;
    assert!(notices());
    Ok(())
}

#[test]
fn a_lost_transaction_is_noticed() {
    let lost = check_all_there(&BTreeSet::from([1, 2]), &BTreeSet::from([2, 3]));
    assert!(lost.unwrap_err().to_string().contains("[1]"));
}
