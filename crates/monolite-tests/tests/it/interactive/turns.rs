//! Transactions that collide take turns, and nobody else waits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, Transaction};
use monolite_testkit::clock::HandClock;

use super::{ADD, BALANCE, SET, accounts, balance, read_and_add_one};

/// Reads an account, decides for a while, and writes it.
async fn decide(db: &Database, account: i64, time: Duration) -> Result<(), Error> {
    db.transact(|tx| async move {
        let seen: i64 = tx.query_row(BALANCE, [account], |row| row.get(0)).await?;
        tokio::time::sleep(time).await;
        tx.execute(SET, (account, seen + 1)).await?;
        Ok(())
    })
    .await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[test]
fn many_clients_of_one_row_finish_with_few_conflicts() {
    let (_directory, db) = accounts(Options::new());
    let runtime = runtime();
    runtime.block_on(async {
        let clients: Vec<_> = (0..64)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        decide(&db, 1, Duration::from_millis(2)).await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    assert_eq!(balance(&db, 1), 100 + 320);
    let stats = db.stats();
    // All of the first ones meet, and after that hardly anybody: without turns it is thousands.
    assert!(stats.transaction_conflicts < 240, "{stats:?}");
}

#[test]
fn no_update_is_lost_where_turns_are_taken() {
    // Blind changes, readers and hand-made transactions come between, and take no turns.
    let (_directory, db) = accounts(Options::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    read_and_add_one(&db).unwrap();
                    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
                    while let Err(error) = by_hand(&db) {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    }
                }
            });
        }
    });
    assert_eq!(balance(&db, 1), 100 + 3 * 80);
}

/// One attempt of a client that retries by itself.
fn by_hand(db: &Database) -> Result<(), Error> {
    let tx = db.transaction()?;
    let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
    tx.execute(SET, (1, seen + 1)).wait()?;
    tx.commit().wait().map(|_| ())
}

/// A database in which it is known that transactions collide at some accounts; its clock stands
/// still, so nothing of that is forgotten, and no turn taken away.
fn hot(accounts_of: &[i64]) -> (tempfile::TempDir, Database, Arc<HandClock>) {
    let clock = HandClock::new();
    let (directory, db) = accounts(Options::new().clock(clock.clone()));
    for account in accounts_of {
        let tx = db.transaction().unwrap();
        let _: i64 = tx.query_row(BALANCE, [*account], |row| row.get(0)).wait().unwrap();
        tx.execute(SET, (*account, 7)).wait().unwrap();
        let account = *account;
        db.write(move |tx| tx.execute(ADD, (account, 1))).wait().unwrap();
        assert_eq!(tx.commit().wait().unwrap_err().kind(), ErrorKind::Conflict);
    }
    (directory, db, clock)
}

/// What a transaction reads of an account, once it may.
fn read(tx: &Transaction, account: i64) -> i64 {
    tx.query_row(BALANCE, [account], |row| row.get(0)).wait().unwrap()
}

fn committed(tx: Transaction, account: i64, balance: i64) {
    tx.execute(SET, (account, balance)).wait().unwrap();
    tx.commit().wait().unwrap();
}

#[test]
fn who_has_waited_sees_what_was_committed_before_it() {
    let (_directory, db, _clock) = hot(&[1]);
    let first = db.transaction().unwrap();
    assert_eq!(read(&first, 1), 101);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            let tx = db.transaction().unwrap();
            // Its snapshot is older than what it waits for.
            read(&tx, 5);
            let seen = read(&tx, 1);
            committed(tx, 1, seen + 1);
            seen
        });
        committed(first, 1, 500);
        assert_eq!(second.join().unwrap(), 500);
    });
    assert_eq!((balance(&db, 1), db.stats().transaction_conflicts), (501, 1));
}

#[test]
fn those_that_do_not_collide_never_wait() {
    let (_directory, db, _clock) = hot(&[1]);
    let holder = db.transaction().unwrap();
    read(&holder, 1);
    // Another row, another statement, plain writes and reads.
    let other = db.transaction().unwrap();
    read(&other, 2);
    other.execute(ADD, (2, 1)).wait().unwrap();
    other.commit().wait().unwrap();
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    assert_eq!((balance(&db, 1), balance(&db, 2)), (102, 101));
    assert_eq!(db.stats().turns_waited, 0);
}

/// Whether a transaction gets its turn at an account, which is awaited, while `end` happens.
fn waits_until(db: &Database, end: impl FnOnce()) -> bool {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let tx = db.transaction().unwrap();
            read(&tx, 1);
            tx.rollback();
        });
        end();
        waiting.join().unwrap();
    });
    db.stats().turns_taken_away == 0
}

/// It went on without the statement, of which its caller could not know that it had not been run.
#[test]
fn a_wait_that_is_given_up_ends_its_transaction_and_holds_up_nobody() {
    let (_directory, db, _clock) = hot(&[1]);
    let holder = db.transaction().unwrap();
    read(&holder, 1);
    let given_up = db.transaction().unwrap();
    {
        let mut waiting = Box::pin(given_up.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)));
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(given_up.commit().wait().unwrap_err().kind(), ErrorKind::Aborted);
    assert!(waits_until(&db, || committed(holder, 1, 200)));
    assert_eq!(balance(&db, 1), 200);
}

#[test]
fn a_holder_that_sleeps_holds_up_its_own_kind_for_a_bounded_time() {
    let (_directory, db, clock) = hot(&[1]);
    let asleep = db.transaction().unwrap();
    read(&asleep, 1);
    std::thread::scope(|scope| {
        let next = scope.spawn(|| {
            let tx = db.transaction().unwrap();
            let seen = read(&tx, 1);
            committed(tx, 1, seen + 1);
        });
        clock.advance(Duration::from_millis(100));
        next.join().unwrap();
    });
    // Whoever lost its turn is judged by what it saw, as everybody.
    let told = asleep.execute(SET, (1, 0)).wait().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Conflict);
    assert_eq!(balance(&db, 1), 102);
}

#[test]
fn two_rows_in_opposite_orders_are_no_deadlock() {
    let (_directory, db, _clock) = hot(&[1, 2]);
    // They begin together, each time: a busy machine would run one after the other.
    let together = std::sync::Barrier::new(2);
    // Should they wait for one another, this ends never.
    let all = std::thread::scope(|scope| {
        let run = |first: i64, second: i64| {
            let (db, together) = (&db, &together);
            scope.spawn(move || {
                let moves = (0..50).map(|_| {
                    together.wait();
                    let moved: Result<(), Error> = db
                        .transact(async |tx| {
                            let from: i64 =
                                tx.query_row(BALANCE, [first], |row| row.get(0)).wait()?;
                            let to: i64 =
                                tx.query_row(BALANCE, [second], |row| row.get(0)).wait()?;
                            tx.execute(SET, (first, from - 1)).wait()?;
                            tx.execute(SET, (second, to + 1)).wait()?;
                            Ok(())
                        })
                        .wait();
                    moved
                });
                moves.collect::<Vec<_>>()
            })
        };
        [run(1, 2), run(2, 1)].map(|thread| thread.join().unwrap())
    });
    all.into_iter().flatten().for_each(|moved| moved.unwrap());
    assert_eq!((balance(&db, 1), balance(&db, 2)), (101, 101));
    assert!(db.stats().turns_waited > 0);
}

#[test]
fn a_conflict_is_told_by_the_next_statement() {
    let (_directory, db, clock) = hot(&[]);
    let tx = db.transaction().unwrap();
    read(&tx, 2);
    read(&tx, 1);
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    // The application is at work meanwhile.
    clock.advance(Duration::from_millis(50));
    let error = tx.execute(ADD, (3, 1)).wait().unwrap_err();
    assert_eq!((error.kind(), error.conflicting_statement()), (ErrorKind::Conflict, Some(2)));
    assert!(error.to_string().contains("account"), "{error}");
    assert_eq!(db.stats().conflicts_told_early, 1);
}

#[test]
fn a_conflict_is_not_told_to_a_transaction_that_may_only_read() {
    let (_directory, db, clock) = hot(&[]);
    let tx = db.read_only().transaction().unwrap();
    assert_eq!(read(&tx, 1), 100);
    db.write(|tx| tx.execute(ADD, (1, 1))).wait().unwrap();
    clock.advance(Duration::from_millis(50));
    assert_eq!(read(&tx, 1), 100, "its snapshot is as good as before");
    tx.commit().wait().unwrap();
    assert_eq!(db.stats().conflicts_told_early, 0);
}

#[test]
fn a_change_that_concerns_no_answer_ends_nothing() {
    let (_directory, db, clock) = hot(&[]);
    let tx = db.transaction().unwrap();
    read(&tx, 1);
    tx.execute(ADD, (1, 1)).wait().unwrap();
    // On the same page.
    db.write(|tx| tx.execute(ADD, (2, 1))).wait().unwrap();
    clock.advance(Duration::from_millis(50));
    tx.execute(ADD, (3, 1)).wait().unwrap();
    assert_eq!(db.stats().transactions_resumed, 1);
    tx.commit().wait().unwrap();
    assert_eq!((balance(&db, 1), balance(&db, 2), balance(&db, 3)), (101, 101, 101));
}

#[test]
fn closures_that_are_too_slow_for_the_writer_take_turns_and_nobody_else_waits() {
    let clock = HandClock::new();
    let (_directory, db) = accounts(
        Options::new().clock(clock.clone()).interactive(InteractiveOptions::default().attempts(4)),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let added: Result<(), Error> = db
                    .transact(async |tx| {
                        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
                        clock.advance(Duration::from_millis(1_500));
                        // Waits for no last attempt, or it would wait for itself.
                        db.write(|tx| tx.execute(ADD, (2, 1))).wait()?;
                        tx.execute(SET, (1, seen + 1)).wait()?;
                        Ok(())
                    })
                    .wait();
                added.unwrap();
            });
        }
    });
    assert_eq!(balance(&db, 1), 104);
}

#[test]
fn a_transaction_within_another_ones_closure_does_not_wait_for_its_turn() {
    let (_directory, db) = accounts(Options::new());
    let runtime = runtime();
    let start = std::time::Instant::now();
    runtime.block_on(async {
        let clients: Vec<_> = (0..24)
            .map(|_| {
                let db = db.clone();
                tokio::spawn(async move {
                    for _ in 0..4 {
                        let run = |tx: Transaction| {
                            let db = db.clone();
                            async move {
                                let seen: i64 =
                                    tx.query_row(BALANCE, [1], |row| row.get(0)).await?;
                                // As an audit would that is written with a transaction of its own.
                                let audit = |tx: Transaction| async move {
                                    tx.query_row(BALANCE, [1], |row| row.get::<_, i64>(0)).await
                                };
                                db.transact(audit).await?;
                                tx.execute(SET, (1, seen + 1)).await?;
                                Ok::<_, Error>(())
                            }
                        };
                        db.transact(run).await.unwrap();
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    assert_eq!(balance(&db, 1), 100 + 96);
    // With turns the outer ones hold those for which their own inner ones wait: minutes.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
