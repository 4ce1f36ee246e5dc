//! Interactive transactions: what they see, what conflicts and what does not, and every way in
//! which they can end.

mod anomalies;
mod crowded;
mod endings;
mod errors;
mod ids;
mod keys;
mod limits;
mod pages;
mod retries;
mod statements;
mod turns;

use monolite::{Database, Options};
use monolite_testkit::clock::HandClock;

/// The clock stands still: no transaction moves to a newer snapshot because its application has
/// taken its time, however slow the machine is.
fn still() -> Options {
    Options::new().clock(HandClock::new())
}

/// A database with accounts 1 to 10 of 100 each, which goes with its directory.
fn accounts(options: Options) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = options.open(directory.path().join("db")).unwrap();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE account(
                 id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)
             );
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10)
             INSERT INTO account SELECT i, 100 FROM n;
             CREATE TABLE entry(id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL);",
        )
    })
    .wait()
    .unwrap();
    (directory, db)
}

fn balance(db: &Database, id: i64) -> i64 {
    let sql = "SELECT balance FROM account WHERE id = ?1";
    db.read(move |tx| tx.query_row(sql, [id], |row| row.get(0))).wait().unwrap()
}

/// Decides on a balance that it has read: of two at a time, one conflicts.
fn read_and_add_one(db: &Database) -> monolite::Result<()> {
    db.transact(async |tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        tx.execute(SET, (1, seen + 1)).wait().map(drop)
    })
    .wait()
}

const BALANCE: &str = "SELECT balance FROM account WHERE id = ?1";
const SET: &str = "UPDATE account SET balance = ?2 WHERE id = ?1";
const ADD: &str = "UPDATE account SET balance = balance + ?2 WHERE id = ?1";
