//! Changes of a transaction whose connection serves others meanwhile: each runs behind a replay of
//! what came before.

use monolite::{Database, ErrorKind, InteractiveOptions, Options, Transaction};
use monolite_testkit::clock::HandClock;

use super::{ADD, accounts, balance};
use crate::patience::one;

/// As many idle transactions as there are connections: those of others serve somebody else between
/// any two of their statements. By the clock no statement takes any time, on a busy machine either:
/// one that did would make its transaction a long one, which keeps its connection.
fn crowded(connections: usize) -> (tempfile::TempDir, Database, Vec<Transaction>) {
    let options = Options::new().clock(HandClock::new());
    let (directory, db) =
        accounts(options.interactive(InteractiveOptions::default().connections(connections)));
    let idle = (0..connections).map(|_| db.transaction().unwrap()).collect();
    (directory, db, idle)
}

/// Statements that needed a replay.
fn replays(db: &Database) -> u64 {
    db.stats().transactions_resumed
}

fn change(tx: &Transaction, sql: &str) -> usize {
    tx.execute(sql, ()).wait().unwrap()
}

const ENTRY: &str = "INSERT INTO entry(text) VALUES ('x')";

#[test]
fn a_change_of_the_same_pages_sees_those_before_it() {
    let (_directory, db, _idle) = crowded(1);
    let tx = db.transaction().unwrap();
    change(&tx, "UPDATE account SET balance = 7 WHERE id = 3");
    assert_eq!(change(&tx, "UPDATE account SET balance = 8 WHERE balance = 7"), 1);
    assert_eq!(change(&tx, "DELETE FROM account WHERE balance = 8"), 1);
    assert_eq!(replays(&db), 2);
    tx.commit().wait().unwrap();
    let count = "SELECT count(*) FROM account";
    assert_eq!(one(&db, count), 9);
}

#[test]
fn what_a_replayed_change_answered_is_compared_at_commit() {
    let (_directory, db, _idle) = crowded(1);
    let tx = db.transaction().unwrap();
    change(&tx, ENTRY);
    assert_eq!(change(&tx, "UPDATE account SET balance = 7 WHERE balance = 100"), 10);
    assert_eq!(replays(&db), 1);
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(balance(&db, 2), 100);
}
