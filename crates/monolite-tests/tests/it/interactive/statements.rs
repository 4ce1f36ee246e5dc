//! What the statements of an interactive transaction see and answer.

use monolite::{ErrorKind, Options};

use super::{ADD, BALANCE, accounts, balance, still};
use crate::patience::as_one_batch;

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_else_does_before_its_commit() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    assert_eq!(tx.execute(ADD, (1, -30)).wait().unwrap(), 1);
    assert_eq!(tx.execute(ADD, (2, 30)).wait().unwrap(), 1);
    let read = |id: i64| tx.query_row(BALANCE, [id], |row| row.get::<_, i64>(0)).wait().unwrap();
    assert_eq!((read(1), read(2)), (70, 130));
    assert_eq!((balance(&db, 1), balance(&db, 2)), (100, 100));
    tx.commit().wait().unwrap();
    assert_eq!((balance(&db, 1), balance(&db, 2)), (70, 130));
}

#[test]
fn a_dropped_or_rolled_back_transaction_leaves_no_trace() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, -30)).wait().unwrap();
    drop(tx);
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, -30)).wait().unwrap();
    tx.rollback();
    assert_eq!(balance(&db, 1), 100);
    assert_eq!(db.stats().open_transactions, 0);
}

#[test]
fn savepoints_undo_a_part() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    tx.savepoint("a \"quoted\" name").wait().unwrap();
    tx.execute(ADD, (1, 10)).wait().unwrap();
    tx.savepoint("inner").wait().unwrap();
    tx.execute(ADD, (1, 100)).wait().unwrap();
    tx.rollback_to("inner").wait().unwrap();
    let read = || tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
    assert_eq!(read(), 111);
    tx.rollback_to("a \"quoted\" name").wait().unwrap();
    assert_eq!(read(), 101);
    tx.release("a \"quoted\" name").wait().unwrap();
    let error = tx.release("inner").wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    // One is left open at the end.
    tx.savepoint("left").wait().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!((balance(&db, 1), balance(&db, 2)), (101, 101));
    // It is nobody else's afterwards.
    let tx = db.transaction().unwrap();
    assert!(tx.rollback_to("left").wait().is_err());
    tx.commit().wait().unwrap();
}

#[test]
fn a_statement_that_rolls_everything_back_ends_the_transaction() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let sql = "UPDATE OR ROLLBACK account SET balance = -1 WHERE id = 2";
    assert_eq!(tx.execute(sql, ()).wait().unwrap_err().kind(), ErrorKind::Constraint);
    assert!(tx.execute(ADD, (1, 1)).wait().is_err());
    assert!(tx.commit().wait().is_err());
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn statements_can_be_awaited_and_the_transaction_moved_between_threads() {
    let (_directory, db) = accounts(still());
    smol::block_on(async {
        let tx = db.transaction().unwrap();
        tx.execute(ADD, (1, 1)).await.unwrap();
        let tx = std::thread::spawn(move || {
            tx.execute(ADD, (2, 1)).wait().unwrap();
            tx
        });
        let tx = tx.join().unwrap();
        tx.execute(ADD, (3, 1)).await.unwrap();
        tx.commit().await.unwrap();
    });
    assert_eq!((balance(&db, 1), balance(&db, 2), balance(&db, 3)), (101, 101, 101));
}

/// A savepoint that a transaction had left open was there for the next one in its batch, which then
/// met a conflict with nothing, and undid the first one's writes before it was noticed.
#[test]
fn a_savepoint_that_was_left_open_ends_with_its_transaction() {
    let (_directory, db) = accounts(still());
    let (first, second) = (db.transaction().unwrap(), db.transaction().unwrap());
    first.savepoint("s").wait().unwrap();
    first.execute(ADD, (1, 5)).wait().unwrap();
    let refused = second.rollback_to("s").wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    second.execute(ADD, (2, 5)).wait().unwrap();
    let commits = as_one_batch(&db, || [first.commit(), second.commit()]);
    for commit in commits {
        commit.wait().unwrap();
    }
    assert_eq!((balance(&db, 1), balance(&db, 2)), (105, 105));
    assert_eq!(db.stats().transaction_conflicts, 0);
}

/// What was read again stopped at the last row that had been seen, and never met the error.
#[test]
fn a_query_that_fails_after_some_rows_conflicts_with_nothing() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    let sql = "SELECT CASE id WHEN 3 THEN abs(-9223372036854775808) ELSE id END
               FROM account ORDER BY id";
    let mut seen = 0;
    let failed = tx.query_map(sql, (), move |_| {
        seen += 1;
        assert!(seen < 3);
        Ok(())
    });
    assert_eq!(failed.wait().unwrap_err().kind(), ErrorKind::Invalid);
    tx.execute(ADD, (1, 5)).wait().unwrap();
    // So that the query is run again.
    db.write(|tx| tx.execute(ADD, (9, 1))).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 1), 105);
}

#[test]
fn time_and_random_values_are_at_commit_what_the_application_saw() {
    let (_directory, db) = accounts(Options::new());
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE stamped(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP, \
             lot INTEGER DEFAULT (random()))",
        )
    })
    .wait()
    .unwrap();
    let tx = db.transaction().unwrap();
    let text = |row: &monolite::Row<'_>| row.get::<_, String>(0);
    let now = "SELECT datetime('now', 'subsec') || random() || hex(randomblob(8))";
    let seen = tx.query_row(now, (), text).wait().unwrap();
    let insert = "INSERT INTO stamped DEFAULT VALUES RETURNING at || lot";
    let returned = tx.query_row(insert, (), text).wait().unwrap();
    let keep = "INSERT INTO entry(text) VALUES (datetime('now', 'subsec')) RETURNING text";
    let kept = tx.query_row(keep, (), text).wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    tx.commit().wait().unwrap();
    let read = |sql: &'static str| db.read(move |tx| tx.query_row(sql, (), text)).wait().unwrap();
    assert_eq!(read("SELECT at || lot FROM stamped"), returned);
    assert_eq!(read("SELECT text FROM entry"), kept);
    assert_ne!(read(now), seen);
    assert_eq!(db.stats().transaction_conflicts, 0);
}
