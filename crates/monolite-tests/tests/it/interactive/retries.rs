//! `transact` always finishes, and a commit with a key happens once.

use std::cell::Cell;

use monolite::{Committed, Database, Error, ErrorKind, InteractiveOptions, Options};

use super::{ADD, BALANCE, SET, accounts, balance};

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
    assert_eq!((first.outcome(), first.is_repeated()), (b"one".as_slice(), false));
    let second = once(50, "another");
    assert_eq!((second.outcome(), second.is_repeated()), (b"one".as_slice(), true));
    assert_eq!(balance(&db, 1), 101);
    assert_eq!((known("request 7"), known("request 8")), (Some(b"one".to_vec()), None));
    let refused = db.transaction().unwrap().commit_once("", "").wait();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn transact_ends_with_the_conflict_of_its_last_attempt_and_holds_up_no_write() {
    let (_directory, db) =
        accounts(Options::new().interactive(InteractiveOptions::default().attempts(3)));
    let attempts = Cell::new(0);
    let result: Result<(), Error> = db
        .transact(async |tx| {
            attempts.set(tx.attempt());
            let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
            // Each of these would wait for the end of a transaction that had the writer.
            db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
            tx.execute(SET, (1, seen + 1_000)).wait()?;
            Ok(())
        })
        .wait();
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!((attempts.get(), balance(&db, 1)), (3, 103));
}

/// What a closure with a key does: it adds, and says how much there is then.
fn add_once(db: &Database, key: &str, amount: i64) -> Result<Committed<i64>, Error> {
    db.transact_once(key, async |tx| {
        let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
        tx.execute(SET, (1, seen + amount)).wait()?;
        Ok::<_, Error>((seen + amount, format!("{}", seen + amount)))
    })
    .wait()
}

#[test]
fn what_is_transacted_with_a_key_happens_once_and_keeps_its_first_outcome() {
    let (_directory, db) = accounts(Options::new());
    let first = add_once(&db, "request 7", 5).unwrap();
    assert_eq!(first, Committed::Now { value: 105, outcome: b"105".to_vec() });
    let again = add_once(&db, "request 7", 50).unwrap();
    assert_eq!(again, Committed::Before { outcome: b"105".to_vec() });
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
fn a_key_is_stored_by_a_later_attempt_too_and_looked_for_at_its_commit() {
    let (_directory, db) =
        accounts(Options::new().interactive(InteractiveOptions::default().attempts(2)));
    for is_repeated in [false, true] {
        let done = db
            .transact_once("key", async |tx| {
                let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
                if !is_repeated && tx.attempt() == 1 {
                    db.write(|tx| tx.execute(ADD, (1, 1))).wait()?;
                }
                tx.execute(SET, (1, seen + 10)).wait()?;
                Ok::<_, Error>(((), "done"))
            })
            .wait();
        let done = done.unwrap();
        assert_eq!((done.is_repeated(), done.outcome()), (is_repeated, b"done".as_slice()));
    }
    assert_eq!(balance(&db, 1), 111);
    // Another one was first, while this closure ran.
    let done = db
        .transact_once("another", async |tx| {
            assert_eq!(tx.attempt(), 1);
            let seen: i64 = tx.query_row(BALANCE, [1], |row| row.get(0)).wait()?;
            tx.execute(SET, (1, seen + 10)).wait()?;
            add_once(&db, "another", 5)?;
            Ok::<_, Error>(((), "late"))
        })
        .wait();
    assert_eq!(done.unwrap(), Committed::Before { outcome: b"116".to_vec() });
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
    assert_eq!(done.unwrap(), Committed::Now { value: 7, outcome: b"seven".to_vec() });
    assert_eq!(balance(&db, 1), 102);
}

#[test]
fn a_transact_that_is_waited_for_runs_on_its_thread_and_not_before() {
    let (_directory, db) = accounts(Options::new());
    let here = || std::thread::current().id();
    let add = || {
        db.transact_once("key", async |tx| {
            let ran = tx.query_row(BALANCE, [1], move |_| Ok(here())).await?;
            tx.execute(ADD, (1, 1)).await?;
            Ok::<_, Error>((ran, "added"))
        })
    };
    drop(add());
    assert_eq!(balance(&db, 1), 100);
    let done = Committed::Now { value: here(), outcome: b"added".to_vec() };
    assert_eq!(add().wait().unwrap(), done);
    assert_eq!(balance(&db, 1), 101);
    // A task that awaits it has other things to do.
    let elsewhere = db.transact(async |tx| tx.query_row(BALANCE, [1], move |_| Ok(here())).await);
    assert_ne!(smol::block_on(elsewhere).unwrap(), here());
}
