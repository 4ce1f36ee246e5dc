//! Changes of a transaction whose connection serves others meanwhile: each runs behind a replay of
//! what came before.

use monolite::{Database, ErrorKind, InteractiveOptions, Options, Transaction};
use monolite_testkit::clock::HandClock;

use super::{ADD, accounts, balance};

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
    let left = db.read(|tx| tx.query_row(count, (), |row| row.get::<_, i64>(0)));
    assert_eq!(left.wait().unwrap(), 9);
}

#[test]
fn an_error_is_one_only_behind_the_changes_before() {
    let (_directory, db, _idle) = crowded(1);
    let tx = db.transaction().unwrap();
    change(&tx, "DELETE FROM account WHERE id = 3");
    // Without the deletion it would end the transaction.
    assert_eq!(change(&tx, "INSERT OR ROLLBACK INTO account VALUES (3, 1)"), 1);
    let twice = tx.execute("INSERT INTO account VALUES (3, 1)", ()).wait().unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Constraint);
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 3), 1);
}

#[test]
fn functions_tell_of_the_changes_before() {
    let (_directory, db, _idle) = crowded(1);
    let tx = db.transaction().unwrap();
    change(&tx, "UPDATE account SET balance = 7 WHERE id < 4");
    change(&tx, "INSERT INTO entry(id, text) VALUES (40 + changes(), 'x')");
    assert_eq!(tx.last_insert_rowid().wait().unwrap(), 43);
    tx.commit().wait().unwrap();
    let tx = db.transaction().unwrap();
    change(&tx, "UPDATE account SET balance = 9 WHERE id < 4");
    change(&tx, ENTRY);
    assert_eq!(tx.last_insert_rowid().wait().unwrap(), 44);
    tx.commit().wait().unwrap();
}

#[test]
fn a_schema_of_ones_own_is_there_for_the_next_change() {
    let (_directory, db, _idle) = crowded(1);
    let tx = db.transaction().unwrap();
    assert_eq!(change(&tx, "CREATE TABLE own(x)"), 0);
    assert_eq!(change(&tx, "INSERT INTO own VALUES (1), (2)"), 2);
    assert_eq!(change(&tx, ENTRY), 1);
    tx.commit().wait().unwrap();
}

#[test]
fn words_of_a_full_text_index_are_there_for_the_next_change() {
    let (_directory, db, _idle) = crowded(1);
    db.write(|tx| tx.execute_batch("CREATE VIRTUAL TABLE word USING fts5(x)")).wait().unwrap();
    let tx = db.transaction().unwrap();
    change(&tx, "INSERT INTO word VALUES ('an apple')");
    assert_eq!(change(&tx, "UPDATE word SET x = 'a pear' WHERE word MATCH 'apple'"), 1);
    tx.commit().wait().unwrap();
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

#[test]
fn a_resting_transaction_does_not_keep_the_wal_from_restarting() {
    let options = Options::new()
        .interactive(InteractiveOptions::default().connections(1))
        .wal_limit_bytes(8 << 20);
    let (_directory, db) = accounts(options);
    let _idle = db.transaction().unwrap();
    let tx = db.transaction().unwrap();
    change(&tx, ENTRY);
    db.write(|tx| tx.execute_batch("CREATE TABLE filler(x)")).wait().unwrap();
    let fill = "INSERT INTO filler VALUES (zeroblob(1000000))";
    for _ in 0..60 {
        db.write(move |tx| tx.execute_batch(fill)).wait().unwrap();
    }
    let stats = db.stats();
    assert!(stats.checkpoints_completed > 3 && stats.revoked_readers == 0);
    assert_eq!(change(&tx, "UPDATE account SET balance = 7 WHERE id = 3"), 1);
    assert_eq!(replays(&db), 1);
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 3), 7);
}
