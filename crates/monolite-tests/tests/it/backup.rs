//! Backups: the content of one moment, whole and on disk under its name, or nothing by that name.

pub(crate) mod endings;
mod load;
mod moments;
pub(crate) mod shared;

use std::fs;
use std::path::{Path, PathBuf};

use monolite::{Database, Error, rusqlite};
use tempfile::TempDir;

/// Accounts, and what they hold in all.
pub(crate) const ACCOUNTS: i64 = 20_000;
pub(crate) const TOTAL: i64 = ACCOUNTS * 100;

/// A directory with a place for a database and one for its backup.
pub(crate) fn places() -> (TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path.join("bank.db"), path.join("backup.db"))
}

/// Makes accounts, and a journal in which each transfer has the next number.
pub(crate) fn create(db: &Database) {
    let make = |tx: &monolite::Tx<'_>| {
        tx.execute_batch(&format!(
            "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, fill TEXT);
             CREATE TABLE transfer(number INTEGER PRIMARY KEY, amount INTEGER);
             CREATE TABLE last(number INTEGER);
             INSERT INTO last VALUES (0);
             INSERT INTO account WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c
                 LIMIT {ACCOUNTS}) SELECT i, 100, hex(zeroblob(100)) FROM c;"
        ))
    };
    db.write(make).wait().unwrap();
}

/// A transfer that changes pages all over the file.
pub(crate) fn transfer(tx: &monolite::Tx<'_>, seed: i64) -> Result<i64, Error> {
    let (from, to) = (seed * 7_919 % ACCOUNTS + 1, seed * 104_729 % ACCOUNTS + 1);
    tx.execute("UPDATE account SET balance = balance - 1 WHERE id = ?", [from])?;
    tx.execute("UPDATE account SET balance = balance + 1 WHERE id = ?", [to])?;
    tx.execute("UPDATE last SET number = number + 1", ())?;
    let number = tx.query_row("SELECT number FROM last", (), |row| row.get(0))?;
    tx.execute("INSERT INTO transfer VALUES (?, 1)", [number])?;
    Ok(number)
}

/// Looks whether the file is whole, and is of one moment; returns the number of its last transfer.
pub(crate) fn check(path: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let backup = rusqlite::Connection::open_with_flags(path, flags).unwrap();
    let one = |sql: &str| backup.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
    let said = "SELECT group_concat(integrity_check, '; ') FROM pragma_integrity_check";
    let said: String = backup.query_row(said, (), |row| row.get(0)).unwrap();
    assert_eq!(said, "ok");
    assert_eq!(one("SELECT sum(balance) FROM account"), TOTAL);
    let last = one("SELECT number FROM last");
    assert_eq!(one("SELECT count(*) FROM transfer"), last);
    assert_eq!(one("SELECT coalesce(max(number), 0) FROM transfer"), last);
    let mode: String = backup.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "it needs no WAL");
    last
}

/// The names in a directory but those of the database and its companions.
pub(crate) fn others(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|it| it.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| !name.starts_with("bank.db")).collect()
}
