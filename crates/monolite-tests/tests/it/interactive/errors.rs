//! After which errors of a statement its transaction goes on: a statement that was told an error is
//! never left out in silence, and never done in silence.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use monolite::rusqlite::{self, types::ToSqlOutput};
use monolite::{Error, ErrorKind, InteractiveOptions, Options, Row, Sharing, ToSql, Transaction};

use super::{ADD, BALANCE, SET, accounts, balance, still};
use crate::patience::{Gate, eventually, poll_once};

/// Real time that a statement waits for others at most. The clock stands still, so that none is
/// late itself.
const PATIENCE: Duration = Duration::from_millis(20);

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                       SELECT count(*) FROM n, account";

/// A mapping closure that waits at the gate.
fn stop_at(gate: &Arc<Gate>) -> impl FnOnce(&Row<'_>) -> rusqlite::Result<i64> + Send + 'static {
    let gate = Arc::clone(gate);
    move |row| {
        gate.pass();
        row.get(0)
    }
}

/// The transaction is over for `kind`: so says its next statement, and so does its commit.
fn is_over(tx: Transaction, kind: ErrorKind) {
    let error = tx.execute(ADD, (1, 1)).wait().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().starts_with("the transaction is over: "), "{error}");
    assert_eq!(tx.commit().wait().unwrap_err().kind(), kind);
}

/// The statement was left out, and the transaction was committed without it.
#[test]
fn a_statement_for_which_no_thread_is_free_ends_it() {
    let patience = Duration::from_millis(500);
    let (_directory, db) = accounts(still().readers(1).read_time_limit(patience));
    let gate = Arc::new(Gate::default());
    let (long, tx) = (db.transaction().unwrap(), db.transaction().unwrap());
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let mut runs = long.query_row(BALANCE, [2], stop_at(&gate));
    assert!(poll_once(&mut runs).is_pending());
    eventually("the only thread has it", || gate.arrivals() > 0);
    let mut queued = tx.execute(ADD, (1, 10));
    let since = Instant::now();
    assert!(poll_once(&mut queued).is_pending());
    eventually("it has waited for too long", || since.elapsed() > patience);
    gate.open();
    let error = smol::block_on(queued).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().starts_with("no thread for awaited statements"), "{error}");
    is_over(tx, ErrorKind::Timeout);
    assert_eq!(smol::block_on(runs).unwrap(), 100);
    long.commit().wait().unwrap();
    assert_eq!(balance(&db, 1), 100);
}

/// As above: it waited for another statement of the same transaction.
#[test]
fn a_statement_that_another_one_of_its_transaction_keeps_waiting_ends_it() {
    let (_directory, db) = accounts(still().read_time_limit(PATIENCE));
    let gate = Arc::new(Gate::default());
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    thread::scope(|scope| {
        let runs = scope.spawn(|| tx.query_row(BALANCE, [2], stop_at(&gate)).wait());
        eventually("the other one runs", || gate.arrivals() > 0);
        let error = tx.execute(ADD, (1, 10)).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().starts_with("another statement of the same"), "{error}");
        gate.open();
        assert_eq!(runs.join().unwrap().unwrap(), 100);
    });
    is_over(tx, ErrorKind::Timeout);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_statement_for_which_no_connection_is_free_ends_it() {
    let (_directory, db) = accounts(
        still().interactive(InteractiveOptions::default().connections(1)).read_time_limit(PATIENCE),
    );
    let gate = Arc::new(Gate::default());
    let (long, tx) = (db.transaction().unwrap(), db.transaction().unwrap());
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let in_closure = thread::scope(|scope| {
        let runs = scope.spawn(|| long.query_row(BALANCE, [2], stop_at(&gate)).wait());
        eventually("the only connection is in use", || gate.arrivals() > 0);
        let error = tx.execute(ADD, (1, 10)).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("InteractiveOptions::connections"), "{error}");
        // A closure that takes no notice of it is told at its end.
        let in_closure = db
            .transact(async |tx| {
                drop(tx.execute(ADD, (1, 100)).wait());
                Ok::<_, Error>(())
            })
            .wait();
        gate.open();
        assert_eq!(runs.join().unwrap().unwrap(), 100);
        in_closure
    });
    assert_eq!(in_closure.unwrap_err().kind(), ErrorKind::Timeout);
    is_over(tx, ErrorKind::Timeout);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_statement_that_takes_too_long_ends_it() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let limit = Duration::from_millis(200);
        let options = Options::new().sharing(sharing);
        let (_directory, db) = accounts(options.read_time_limit(limit).write_time_limit(limit));
        let tx = db.transaction().unwrap();
        tx.execute(ADD, (1, 1)).wait().unwrap();
        // With `Shared` it runs in the writer.
        let error = tx.query_row(ENDLESS, (), |row| row.get::<_, i64>(0)).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        is_over(tx, ErrorKind::Timeout);
        assert_eq!(balance(&db, 1), 100);
    }
}

#[test]
fn an_awaited_statement_of_a_closed_database_ends_it() {
    let (_directory, db) = accounts(still());
    let tx = db.transaction().unwrap();
    db.close().unwrap();
    let awaited = smol::block_on(tx.execute(ADD, (1, 1))).unwrap_err();
    assert_eq!(awaited.kind(), ErrorKind::Closed);
    assert_eq!(awaited.to_string(), "the database is closed; open it again to use it");
    is_over(tx, ErrorKind::Closed);
}

struct NoValue;

impl ToSql for NoValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Err(rusqlite::Error::ToSqlConversionFailure("on purpose".into()))
    }
}

/// It was never run, and its caller knows: nothing else can have happened.
#[test]
fn a_statement_that_is_refused_before_it_runs_did_nothing_and_it_goes_on() {
    let (_directory, db) =
        accounts(still().interactive(InteractiveOptions::default().max_statements(3)));
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let invalid = |told: Result<usize, Error>, words: &str| {
        let error = told.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    };
    invalid(tx.execute(ADD, (1, NoValue)).wait(), "on purpose");
    invalid(smol::block_on(tx.execute(ADD, (1, NoValue))), "on purpose");
    invalid(tx.release("none").wait().map(|()| 0), "savepoint");
    tx.execute(ADD, (1, 2)).wait().unwrap();
    tx.execute(ADD, (1, 3)).wait().unwrap();
    invalid(tx.execute(ADD, (1, 10)).wait(), "InteractiveOptions::max_statements");
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 1), 106);
}

#[test]
fn a_statement_that_sqlite_refuses_is_compared_and_it_goes_on() {
    let (_directory, db) = accounts(still());
    for (sql, kind) in [
        ("UPDATE account SET balance = -5 WHERE id = 2", ErrorKind::Constraint),
        ("UPDATE nothing SET x = 1", ErrorKind::Invalid),
        ("DELETE FROM entry; DELETE FROM nothing", ErrorKind::Invalid),
        ("COMMIT", ErrorKind::Invalid),
    ] {
        let tx = db.transaction().unwrap();
        tx.execute(ADD, (1, 1)).wait().unwrap();
        assert_eq!(tx.execute_batch(sql).wait().unwrap_err().kind(), kind, "{sql}");
        tx.commit().wait().unwrap();
        let tx = db.transaction().unwrap();
        tx.execute(ADD, (1, 1)).wait().unwrap();
        let told = tx.query_map(sql, (), |_| Ok(())).wait();
        assert_eq!(told.unwrap_err().kind(), kind, "{sql}");
        tx.commit().wait().unwrap();
    }
    assert_eq!(balance(&db, 1), 108);
    // What it was refused for is gone by the commit.
    let tx = db.transaction().unwrap();
    tx.execute(SET, (2, -5)).wait().unwrap_err();
    db.write(|tx| tx.execute("DELETE FROM account WHERE id = 2", ())).wait().unwrap();
    assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
}

/// The change was committed although its caller had been told an error.
#[test]
fn a_change_whose_rows_could_not_be_taken_ends_it() {
    const CHANGE: &str = "UPDATE account SET balance = 7 WHERE id < 3 RETURNING balance";
    type Told = Result<i64, Error>;
    let mapping: fn(&Transaction) -> Told = |tx| {
        let text = tx.query_row(CHANGE, (), |row| row.get::<_, String>(0)).wait();
        text.map(|_| 0)
    };
    let any: fn(&Transaction) -> Told = |tx| tx.execute(CHANGE, ()).wait().map(|_| 0);
    let (_directory, db) = accounts(still());
    for (told, words) in [(mapping, "Invalid column type"), (any, "returns rows")] {
        let tx = db.transaction().unwrap();
        let error = told(&tx).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("rolled back"), "{error}");
        is_over(tx, ErrorKind::Invalid);
        assert_eq!(balance(&db, 1), 100);
    }
    // A query has changed nothing, and what was read of it is known.
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (1, 1)).wait().unwrap();
    let all = "SELECT balance FROM account";
    tx.query_row(all, (), |row| row.get::<_, String>(0)).wait().unwrap_err();
    // No row is an answer, also of a change.
    let none = "UPDATE account SET balance = 7 WHERE id = 99 RETURNING balance";
    let none = tx.query_row(none, (), |row| row.get::<_, i64>(0)).wait();
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NoRows);
    tx.commit().wait().unwrap();
    assert_eq!(balance(&db, 1), 101);
}
