//! The transactions of the checks that look at crash images, and what must be true of the database
//! that is found afterwards.
//!
//! A transaction leaves a whole marker ([`markers`]), and now and then writes a large value that is
//! recognized whole. Those that are to fail have numbers below
//! zero, so that one that was not undone shows.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use monolite::rusqlite::config::DbConfig;
use monolite::rusqlite::{Connection, OpenFlags};
use monolite::{Error, Tx};
use monolite_testkit::markers;

pub(super) use monolite_testkit::markers::put_filled as perform;

use super::wrong::Wrong;

const SCHEMA: &str =
    "CREATE TABLE IF NOT EXISTS large(slot INTEGER PRIMARY KEY, filling BLOB NOT NULL) STRICT";

/// Creates the tables.
pub(super) fn create(tx: &Tx<'_>) -> Result<(), Error> {
    tx.execute_batch(markers::SCHEMA)?;
    tx.execute_batch(SCHEMA)
}

/// As [`perform`], and replaces a large value.
pub(super) fn perform_large(tx: &Tx<'_>, id: i64, bytes: usize) -> Result<(), Error> {
    perform(tx, id, &[])?;
    let filling = vec![id.rem_euclid(251) as u8; bytes];
    tx.execute("INSERT OR REPLACE INTO large VALUES (?1, ?2)", (id.rem_euclid(2), filling))?;
    Ok(())
}

/// Opens the files at `path` with plain SQLite and says which transactions are there.
pub(super) fn examine(path: &Path) -> Result<BTreeSet<i64>, Wrong> {
    let other = |error: anyhow::Error| Wrong::Other(format!("{error:#}"));
    let connection = open_plainly(path).map_err(other)?;
    markers::check_integrity(&connection).map_err(other)?;
    let found = markers::found_whole(&connection).map_err(|error| {
        let text = format!("{error:#}");
        if text.contains("partial") { Wrong::Partial(text) } else { Wrong::Other(text) }
    })?;
    check_large(&connection).map_err(|error| Wrong::Partial(format!("{error:#}")))?;
    Ok(found)
}

fn open_plainly(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).context("plain SQLite")?;
    // No wal-index file, no syncs and no checkpoint at the end: the files are thrown away. Each
    // page is read once, and those that are not in the WAL without a copy.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;
                              PRAGMA cache_size = -65536; PRAGMA mmap_size = 268435456",
    )?;
    Ok(connection)
}

fn check_large(connection: &Connection) -> Result<()> {
    let there = "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'large'";
    if connection.query_row(there, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(());
    }
    let mut query = connection.prepare("SELECT filling FROM large")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let filling = row.get_ref(0)?.as_blob()?;
        let (all_but_first, all_but_last) = (filling.get(1..), filling.split_last());
        anyhow::ensure!(
            all_but_first == all_but_last.map(|(_, rest)| rest),
            "a large value is there in part"
        );
    }
    Ok(())
}

/// Compares what was found with what must be there.
pub(super) fn compare<'a>(
    found: &BTreeSet<i64>,
    acknowledged: impl IntoIterator<Item = &'a i64>,
) -> Result<(), Wrong> {
    let lost: Vec<i64> =
        acknowledged.into_iter().filter(|id| !found.contains(id)).copied().collect();
    if !lost.is_empty() {
        let some = &lost[..lost.len().min(10)];
        let text = format!("{} acknowledged transactions are lost, as {some:?}", lost.len());
        return Err(Wrong::Lost(lost.len() as u64, text));
    }
    match found.first() {
        Some(id) if *id < 0 => Err(Wrong::Partial(format!("transaction {id} failed and is there"))),
        _ => Ok(()),
    }
}

#[test]
fn a_lost_a_failed_and_a_partial_transaction_are_noticed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("db");
    let db = monolite::Database::open(&path)?;
    db.write(create).wait()?;
    db.write(|tx| perform(tx, 1, &[])).wait()?;
    db.write(|tx| perform_large(tx, 2, 50_000)).wait()?;
    db.close()?;
    let found = examine(&path).unwrap();
    assert_eq!(compare(&found, &[1, 2]), Ok(()));
    assert!(matches!(compare(&found, &[1, 3]), Err(Wrong::Lost(1, _))));
    assert!(matches!(compare(&BTreeSet::from([-1]), &[]), Err(Wrong::Partial(_))));
    let harm = |sql| Connection::open(&path)?.execute_batch(sql);
    harm("UPDATE large SET filling = x'0102'")?;
    assert!(matches!(examine(&path), Err(Wrong::Partial(text)) if text.contains("large")));
    harm("DELETE FROM large; DELETE FROM part WHERE number = 2 AND id = 1")?;
    assert!(matches!(examine(&path), Err(Wrong::Partial(_))));
    Ok(())
}
