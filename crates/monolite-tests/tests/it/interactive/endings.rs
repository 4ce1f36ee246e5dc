//! Every end that an interactive transaction can come to: a clear error, nothing held, nothing
//! lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use monolite::{Error, ErrorKind, InteractiveOptions, Options, Transaction};
use monolite_testkit::clock::HandClock;

use super::{ADD, BALANCE, accounts, balance};
use crate::patience::{Gate, eventually, poll_once};

fn ended(tx: &Transaction, kind: ErrorKind) {
    let told = || tx.execute(ADD, (1, 1)).wait().unwrap_err();
    let error = told();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(told().to_string().matches("the transaction is over: ").count(), 1);
}

#[test]
fn a_deadline_that_passes_ends_it() {
    let clock = HandClock::new();
    let limit = Duration::from_secs(60);
    let options = Options::new()
        .clock(Arc::clone(&clock) as _)
        .interactive(InteractiveOptions::default().time_limit(limit));
    let (_directory, db) = accounts(options);
    let (tx, idle) = (db.transaction().unwrap(), db.transaction().unwrap());
    tx.execute(ADD, (1, 1)).wait().unwrap();
    idle.execute(ADD, (1, 1)).wait().unwrap();
    clock.advance(limit + Duration::from_secs(1));
    ended(&tx, ErrorKind::Timeout);
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(idle.commit().wait().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_statement_dropped_half_way_ends_it() {
    let (_directory, db) = accounts(Options::new());
    let tx = db.transaction().unwrap();
    drop(tx.execute(ADD, (1, 1)));
    tx.execute(ADD, (1, 10)).wait().unwrap();
    let gate = Arc::new(Gate::default());
    let stop = Arc::clone(&gate);
    let mut pending = tx.query_row(BALANCE, [1], move |row| {
        stop.pass();
        row.get::<_, i64>(0)
    });
    assert!(poll_once(&mut pending).is_pending());
    drop(pending);
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Aborted);
    gate.open();
    eventually("it is closed", || db.stats().open_transactions == 0);
}

/// A transaction went on behind a statement that had not been run, when that one was given up while
/// it waited for room in the queue.
#[test]
fn a_statement_dropped_before_a_full_queue_ends_it() {
    let (_directory, db) = accounts(Options::new().readers(1).queue_capacity(1));
    let (running, queued) = (db.transaction().unwrap(), db.transaction().unwrap());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 10)).wait().unwrap();
    let gate = Arc::new(Gate::default());
    let stop = Arc::clone(&gate);
    let mut runs = running.query_row(BALANCE, [1], move |row| {
        stop.pass();
        row.get::<_, i64>(0)
    });
    assert!(poll_once(&mut runs).is_pending());
    eventually("the only thread has it", || gate.arrivals() > 0);
    let mut waits = queued.query_row(BALANCE, [1], |row| row.get::<_, i64>(0));
    assert!(poll_once(&mut waits).is_pending());
    let mut given_up = tx.execute(ADD, (1, 20));
    assert!(poll_once(&mut given_up).is_pending());
    drop(given_up);
    ended(&tx, ErrorKind::Aborted);
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Aborted);
    gate.open();
    // The others are what they were.
    assert_eq!(smol::block_on(runs).unwrap(), 100);
    assert_eq!(smol::block_on(waits).unwrap(), 100);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_panic_in_a_closure_that_maps_rows_ends_it() {
    let (_directory, db) = accounts(Options::new());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        tx.query_row(BALANCE, [1], |_| -> Result<(), _> { panic!("a mapping") }).wait()
    }));
    assert!(panicked.is_err());
    ended(&tx, ErrorKind::Aborted);
    drop(tx);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn closing_the_database_ends_what_is_open() {
    let (directory, db) = accounts(Options::new());
    let (one, two) = (db.transaction().unwrap(), db.transaction().unwrap());
    one.execute(ADD, (1, 1)).wait().unwrap();
    two.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
    db.close().unwrap();
    ended(&one, ErrorKind::Closed);
    assert_eq!(one.commit().wait().unwrap_err().kind(), ErrorKind::Closed);
    drop(two);
    drop(db);
    let db = Options::new().open(directory.path().join("db")).unwrap();
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn an_open_transaction_does_not_keep_the_wal_from_restarting() {
    let limit = 8 << 20;
    let (_directory, db) = accounts(Options::new().wal_limit_bytes(limit));
    db.write(|tx| tx.execute_batch("CREATE TABLE bulk(x)")).wait().unwrap();
    let tx = db.transaction().unwrap();
    tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).wait().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    for _ in 0..40 {
        let insert = "INSERT INTO bulk VALUES (randomblob(500000))";
        db.write(move |tx| tx.execute(insert, ())).wait().unwrap();
        assert!(db.stats().wal_bytes_max <= limit);
    }
    assert!(db.stats().checkpoints_completed > 0);
    // It was moved to a newer snapshot, where everything it saw still holds.
    tx.execute(ADD, (2, 1)).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 2), 102);
}

#[test]
fn a_long_statement_near_the_limit_of_the_wal_is_ended() {
    let limit = 8 << 20;
    let (_directory, db) = accounts(Options::new().wal_limit_bytes(limit));
    db.write(|tx| tx.execute_batch("CREATE TABLE bulk(x)")).wait().unwrap();
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    let statement = std::thread::spawn(move || {
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                       SELECT count(*) FROM n, account";
        let result = tx.query_row(endless, (), |row| row.get::<_, i64>(0)).wait();
        (result, tx.commit().wait())
    });
    let insert = "INSERT INTO bulk VALUES (randomblob(500000))";
    while !statement.is_finished() {
        db.write(move |tx| tx.execute(insert, ())).wait().unwrap();
        assert!(db.stats().wal_bytes_max <= limit);
    }
    let (result, commit) = statement.join().unwrap();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(commit.unwrap_err().kind(), ErrorKind::Timeout);
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 2), 101);
}

#[test]
fn a_closure_that_rolls_back_and_returns_ok_has_committed_nothing() {
    for attempts in [1, 10] {
        let (_directory, db) =
            accounts(Options::new().interactive(InteractiveOptions::default().attempts(attempts)));
        let declined = smol::block_on(db.transact(|tx| async move {
            tx.execute(ADD, (1, 30)).await?;
            tx.rollback();
            Ok::<_, Error>("declined")
        }));
        let error = declined.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("nothing was committed"), "{error}");
        assert_eq!(balance(&db, 1), 100);
        // Dropping the handle says nothing: each closure does at its end.
        smol::block_on(db.transact(|tx| async move {
            tx.execute(ADD, (1, 30)).await?;
            drop(tx);
            Ok::<_, Error>(())
        }))
        .unwrap();
        assert_eq!(balance(&db, 1), 130);
        assert_eq!(db.stats().open_transactions, 0);
    }
}
