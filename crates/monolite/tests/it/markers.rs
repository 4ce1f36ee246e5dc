//! Transactions that can be recognized whole: each writes its number to one table and three parts
//! to another, so that a missing, a partial and a doubled transaction all show.

use std::collections::BTreeSet;
use std::path::Path;

use monolite::rusqlite::Connection;
use monolite::{Database, Error, Tx};

pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS whole(id INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS part(
        id INTEGER NOT NULL, number INTEGER NOT NULL, filling BLOB, PRIMARY KEY (id, number)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS total(
        one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL
    ) STRICT;
    INSERT OR IGNORE INTO total VALUES (1, 0);
";

/// Creates the tables.
pub(crate) fn create(db: &Database) {
    db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
}

/// What one transaction does.
pub(crate) fn put(tx: &Tx<'_>, id: i64) -> Result<(), Error> {
    put_filled(tx, id, &[])
}

/// As [`put`], with bytes that take room.
pub(crate) fn put_filled(tx: &Tx<'_>, id: i64, filling: &[u8]) -> Result<(), Error> {
    tx.execute("INSERT INTO part VALUES (?1, 1, ?2)", (id, filling))?;
    tx.execute("UPDATE total SET n = n + 1", ())?;
    tx.execute("INSERT INTO whole VALUES (?1)", [id])?;
    tx.execute("INSERT INTO part VALUES (?1, 2, ?2), (?1, 3, ?2)", (id, filling))?;
    Ok(())
}

/// The transactions in the database, after a check that each is whole and that SQLite finds
/// nothing wrong with the file.
pub(crate) fn whole_ones(connection: &Connection) -> Result<BTreeSet<i64>, String> {
    let integrity: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .map_err(|error| format!("integrity_check: {error}"))?;
    if integrity != "ok" {
        return Err(format!("integrity_check: {integrity}"));
    }
    let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let partial = count(
        "SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM part GROUP BY id) AS parts
         FULL JOIN whole ON whole.id = parts.id WHERE n IS NOT 3 OR whole.id IS NULL",
    );
    let (total, wholes) = (count("SELECT n FROM total"), count("SELECT COUNT(*) FROM whole"));
    if partial > 0 || total != wholes {
        return Err(format!("{partial} partial transactions; counted {total}, found {wholes}"));
    }
    let mut query = connection.prepare("SELECT id FROM whole").unwrap();
    Ok(query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap())
}

/// As [`whole_ones`], of a file that nobody has open, through stock SQLite.
pub(crate) fn in_file(path: &Path) -> BTreeSet<i64> {
    whole_ones(&Connection::open(path).unwrap()).unwrap()
}

/// Says which of the acknowledged transactions are missing.
pub(crate) fn check_all_there(
    acknowledged: &BTreeSet<i64>,
    found: &BTreeSet<i64>,
) -> Result<(), String> {
    let lost: Vec<_> = acknowledged.difference(found).take(10).collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(format!("acknowledged and lost: {lost:?}"))
}

#[test]
fn a_partial_transaction_is_noticed() {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    assert!(whole_ones(&connection).unwrap().is_empty());
    connection.execute_batch("INSERT INTO whole VALUES (7); UPDATE total SET n = 1").unwrap();
    assert!(whole_ones(&connection).unwrap_err().contains("1 partial"));
    connection
        .execute_batch("INSERT INTO part VALUES (7, 1, x''), (7, 2, x''), (7, 3, x'')")
        .unwrap();
    assert_eq!(whole_ones(&connection).unwrap(), BTreeSet::from([7]));
    connection.execute_batch("INSERT INTO part VALUES (8, 1, x'')").unwrap();
    assert!(whole_ones(&connection).unwrap_err().contains("1 partial"));
}

#[test]
fn a_lost_transaction_is_noticed() {
    let lost = check_all_there(&BTreeSet::from([1, 2]), &BTreeSet::from([2, 3]));
    assert!(lost.unwrap_err().contains("[1]"));
}
