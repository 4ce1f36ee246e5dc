//! `transact` always finishes, and a commit with a key happens once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, Options, TransactedOnce};
use monolite_testkit::clock::HandClock;

use super::{ADD, BALANCE, SET, accounts, balance};

#[test]
fn many_threads_add_to_one_account_without_losing_any() {
    let (_directory, db) = accounts(Options::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let added: Result<(), Error> = db.transact_blocking(|tx| {
                        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
                        tx.execute(SET, (1, seen + 1)).wait()?;
                        Ok(())
                    });
                    added.unwrap();
                }
            });
        }
    });
    assert_eq!(balance(&db, 1), 260);
}

/// A closure has the writer to itself after so many conflicts, however slow the machine is.
fn exclusive_after(attempts: u32) -> Options {
    Options::new().transaction_attempts(attempts).exclusive_time_limit(crate::patience::PATIENCE)
}

#[test]
fn the_last_attempt_has_the_writer_to_itself() {
    let (_directory, db) = accounts(exclusive_after(2));
    let mut attempts = 0;
    let result: Result<i64, Error> = db.transact_blocking(|tx| {
        attempts = tx.attempt();
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        // Somebody is always faster, but for the last time, when it has to wait.
        let faster = db.write(|tx| tx.execute(ADD, (1, 1)));
        if attempts < 3 {
            faster.wait()?;
        }
        tx.execute(SET, (1, seen + 1_000)).wait()?;
        Ok(seen)
    });
    assert_eq!((result.unwrap(), attempts), (102, 3));
    let settled = || balance(&db, 1) == 1_103;
    crate::patience::eventually("the write that waited is done", settled);
    assert_eq!(db.stats().transactions_exclusive, 1);
}

#[test]
fn a_turn_is_over_in_time_and_the_others_go_on() {
    let turn = Duration::from_millis(500);
    let (_directory, db) = accounts(exclusive_after(1).exclusive_time_limit(turn));
    let result: Result<(), Error> = db.transact_blocking(|tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        if tx.attempt() == 1 {
            db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
        } else {
            // It is silent for as long as somebody else needs the writer, who gets it in the end.
            let other = || db.write(|tx| tx.execute(ADD, (2, 1))).wait();
            std::thread::scope(|scope| scope.spawn(other).join().unwrap())?;
        }
        tx.execute(SET, (1, seen + 1)).wait()?;
        Ok(())
    });
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("exclusive_time_limit"), "{error}");
    assert_eq!((balance(&db, 1), balance(&db, 2)), (101, 101));
}

#[test]
fn an_exclusive_transaction_that_fails_is_rolled_back() {
    let (_directory, db) = accounts(exclusive_after(1));
    let result: Result<(), Error> = db.transact_blocking(|tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        if tx.attempt() == 1 {
            db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
        }
        tx.execute(SET, (1, seen + 1)).wait()?;
        if tx.attempt() == 1 { Ok(()) } else { Err(Error::aborted("no")) }
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(balance(&db, 1), 101);
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    assert_eq!(balance(&db, 1), 102);
}

#[test]
fn transact_can_be_spawned_on_a_runtime() {
    let (_directory, db) = accounts(Options::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (db, runs) = (db.clone(), Arc::clone(&runs));
                tokio::spawn(async move {
                    db.transact(|tx| {
                        let runs = Arc::clone(&runs);
                        async move {
                            let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).await?;
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            tx.execute(SET, (1, seen + 1)).await?;
                            runs.fetch_add(1, Ordering::Relaxed);
                            Ok::<_, Error>(())
                        }
                    })
                    .await
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
    assert_eq!(balance(&db, 1), 150);
    assert!(runs.load(Ordering::Relaxed) >= 50);
}

#[test]
fn a_closure_cannot_commit_what_transact_commits() {
    let (_directory, db) = accounts(Options::new());
    let result: Result<(), Error> = smol::block_on(db.transact(|tx| async move {
        tx.execute(ADD, (1, 1)).await?;
        tx.commit().await?;
        Ok(())
    }));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(balance(&db, 1), 100);
}

#[test]
fn a_commit_with_a_key_happens_once_and_keeps_its_first_outcome() {
    let (_directory, db) = accounts(Options::new());
    let once = |amount: i64, outcome: &'static str| {
        let tx = db.transaction().unwrap();
        tx.execute(ADD, (1, amount)).wait().unwrap();
        tx.commit_once("request 7", outcome).wait().unwrap()
    };
    let known = |key: &'static str| db.read_durable(|tx| tx.outcome_of(key)).wait().unwrap();
    assert_eq!(known("request 7"), None);
    let first = once(1, "one");
    assert_eq!((first.outcome.as_slice(), first.is_repeated), (b"one".as_slice(), false));
    let second = once(50, "another");
    assert_eq!((second.outcome.as_slice(), second.is_repeated), (b"one".as_slice(), true));
    assert_eq!(balance(&db, 1), 101);
    assert_eq!((known("request 7"), known("request 8")), (Some(b"one".to_vec()), None));
    let refused = db.transaction().unwrap().commit_once("", "").wait();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_conflict_stores_no_key() {
    let (_directory, db) = accounts(Options::new());
    let tx = db.transaction().unwrap();
    let _: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    assert_eq!(tx.commit_once("key", "").wait().unwrap_err().kind(), ErrorKind::Conflict);
    let tx = db.transaction().unwrap();
    tx.execute(ADD, (2, 1)).wait().unwrap();
    assert!(!tx.commit_once("key", "").wait().unwrap().is_repeated);
    assert_eq!(balance(&db, 2), 101);
}

#[test]
fn a_closure_that_was_too_slow_does_not_get_the_writer() {
    let (limit, clock) = (Duration::from_millis(20), HandClock::new());
    let options = Options::new().transaction_attempts(3).exclusive_time_limit(limit);
    let (_directory, db) = accounts(options.clock(clock.clone()));
    let mut attempts = 0;
    let result: Result<(), Error> = db.transact_blocking(|tx| {
        attempts = tx.attempt();
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
        clock.advance(limit);
        tx.execute(SET, (1, seen + 1_000)).wait()?;
        Ok(())
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((attempts, balance(&db, 1)), (3, 103));
    assert_eq!(db.stats().transactions_exclusive, 0);
}

#[test]
fn nobody_has_the_writer_to_itself_where_the_option_says_so() {
    let options = Options::new().transaction_attempts(2).exclusive_time_limit(Duration::ZERO);
    let (_directory, db) = accounts(options);
    let result: Result<(), Error> = db.transact_blocking(|tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
        tx.execute(SET, (1, seen + 1_000)).wait()?;
        Ok(())
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((balance(&db, 1), db.stats().transactions_exclusive), (102, 0));
}

/// What a closure with a key does: it adds, and says how much there is then.
fn add_once(db: &Database, key: &str, amount: i64) -> Result<TransactedOnce<i64>, Error> {
    db.transact_once_blocking(key, |tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        tx.execute(SET, (1, seen + amount)).wait()?;
        Ok::<_, Error>((seen + amount, format!("{}", seen + amount)))
    })
}

#[test]
fn what_is_transacted_with_a_key_happens_once_and_keeps_its_first_outcome() {
    let (_directory, db) = accounts(Options::new());
    let first = add_once(&db, "request 7", 5).unwrap();
    assert_eq!(first, TransactedOnce::Now { value: 105, outcome: b"105".to_vec() });
    let again = add_once(&db, "request 7", 50).unwrap();
    assert_eq!(again, TransactedOnce::Before { outcome: b"105".to_vec() });
    assert!(again.is_repeated() && !first.is_repeated());
    assert_eq!(add_once(&db, "request 8", 1).unwrap().outcome(), b"106");
    assert_eq!(add_once(&db, "", 1).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(balance(&db, 1), 106);
}

#[test]
fn requests_that_are_sent_twice_at_the_same_time_happen_once_each() {
    let (_directory, db) = accounts(Options::new());
    std::thread::scope(|scope| {
        for client in 0..8 {
            let db = &db;
            scope.spawn(move || {
                for number in 0..10 {
                    // Two clients have each request.
                    let key = format!("request {} of {}", number, client / 2);
                    add_once(db, &key, 1).unwrap();
                }
            });
        }
    });
    assert_eq!(balance(&db, 1), 100 + 40);
}

#[test]
fn a_key_is_stored_by_a_last_attempt_too_and_looked_for_in_it() {
    let (_directory, db) = accounts(exclusive_after(1));
    for is_repeated in [false, true] {
        let mut attempts = 0;
        let done = db.transact_once_blocking("key", |tx| {
            attempts = tx.attempt();
            let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
            if attempts == 1 {
                db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
            }
            tx.execute(SET, (1, seen + 10)).wait()?;
            Ok::<_, Error>(((), "done"))
        });
        let done = done.unwrap();
        assert_eq!((done.is_repeated(), done.outcome()), (is_repeated, b"done".as_slice()));
        assert_eq!(attempts, if is_repeated { 0 } else { 2 });
    }
    assert_eq!((balance(&db, 1), db.stats().transactions_exclusive), (111, 1));
    // Somebody else was first, while this one was on its way to its last attempt.
    let done = db.transact_once_blocking("another", |tx| {
        assert_eq!(tx.attempt(), 1);
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        tx.execute(SET, (1, seen + 10)).wait()?;
        add_once(&db, "another", 5)?;
        Ok::<_, Error>(((), "late"))
    });
    assert_eq!(done.unwrap(), TransactedOnce::Before { outcome: b"116".to_vec() });
    assert_eq!(balance(&db, 1), 116);
}

#[test]
fn a_closure_that_fails_stores_no_key() {
    let (_directory, db) = accounts(Options::new());
    let failed = smol::block_on(db.transact_once("key", |tx| async move {
        tx.execute(ADD, (1, 1)).await?;
        Err::<((), Vec<u8>), _>(Error::aborted("no"))
    }));
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Aborted);
    let done = smol::block_on(db.transact_once("key", |tx| async move {
        tx.execute(ADD, (1, 2)).await?;
        Ok::<_, Error>((7, "seven"))
    }));
    assert_eq!(done.unwrap(), TransactedOnce::Now { value: 7, outcome: b"seven".to_vec() });
    assert_eq!(balance(&db, 1), 102);
}
