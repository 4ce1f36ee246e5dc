//! Futures that are dropped at any moment: a transaction then happened whole or not at all.

use std::collections::BTreeSet;
use std::ops::Not as _;
use std::task::Poll;
use std::thread;

use monolite::{Database, Error, Options, Write};

use crate::patience::{Driven, poll_once};
use monolite_testkit::markers;
use monolite_testkit::random::SeededRng;

/// What a caller knows of its transactions.
#[derive(Default)]
struct Known {
    acknowledged: BTreeSet<i64>,
    failed: BTreeSet<i64>,
    submitted: BTreeSet<i64>,
}

fn start(db: &Database, id: i64, rng: &mut fastrand::Rng) -> Write<(), Error> {
    let fails = id % 7 == 0;
    let body = move |tx: &monolite::Tx<'_>| {
        markers::put(tx, id)?;
        if fails { Err(Error::aborted("on purpose")) } else { Ok(()) }
    };
    if rng.bool() { db.write(body) } else { db.write_once(body) }
}

/// Submits, polls a random number of times, and drops; some are waited for.
fn caller(db: &Database, ids: std::ops::Range<i64>, mut rng: fastrand::Rng) -> Known {
    let mut known = Known::default();
    let mut held = Vec::new();
    for id in ids {
        known.submitted.insert(id);
        let mut write = start(db, id, &mut rng);
        let mut answer = None;
        for _ in 0..rng.u8(..4) {
            if let Poll::Ready(result) = poll_once(&mut write) {
                answer = Some(result);
                break;
            }
            thread::yield_now();
        }
        if answer.is_none() {
            match rng.u8(..4) {
                0 => answer = Some(write.wait()),
                1 => held.push(write),
                _ => drop(write),
            }
        }
        match answer {
            Some(Ok(())) => _ = known.acknowledged.insert(id),
            Some(Err(_)) => _ = known.failed.insert(id),
            None => {}
        }
        if rng.u8(..8) == 0 {
            held.clear();
        }
    }
    known
}

fn dropped_futures_leave_whole_transactions(queue: usize) {
    let mut rng = SeededRng::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().queue_capacity(queue).open(&path).unwrap();
    markers::create(&db).unwrap();
    let all: Vec<Known> = thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|number| {
                let (db, rng) = (&db, rng.fork());
                scope.spawn(move || caller(db, number * 1_000..number * 1_000 + 200, rng))
            })
            .collect();
        callers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    db.close().unwrap();
    let found = markers::in_file(&path).unwrap();
    for known in all {
        markers::check_all_there(&known.acknowledged, &found).unwrap();
        let run = known.submitted.into_iter().filter(|id| id % 7 != 0).collect();
        markers::check_all_there(&run, &found).expect("a dropped write runs");
        assert!(known.failed.is_disjoint(&found), "a failed transaction is there");
        assert!(known.failed.iter().all(|id| id % 7 == 0), "{:?}", known.failed);
        assert!(known.acknowledged.is_empty().not());
    }
    assert!(found.iter().all(|id| id % 7 != 0), "a transaction that failed unheard is there");
}

#[test]
fn dropped_futures_leave_whole_transactions_in_a_long_queue() {
    dropped_futures_leave_whole_transactions(16_384);
}

#[test]
fn a_dropped_read_disturbs_nobody() {
    let db = Options::new().readers(2).queue_capacity(1).open(":memory:").unwrap();
    markers::create(&db).unwrap();
    let mut rng = SeededRng::new();
    for id in 1..200 {
        let mut read =
            db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0)));
        for _ in 0..rng.u8(..3) {
            if poll_once(&mut read).is_ready() {
                break;
            }
        }
        db.write(move |tx| markers::put(tx, id)).wait().unwrap();
    }
    let total = db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0)));
    assert_eq!(total.wait().unwrap(), 199);
}

#[test]
fn a_woken_future_gets_its_answer() {
    let db = Database::open(":memory:").unwrap();
    markers::create(&db).unwrap();
    for id in 1..100 {
        let mut write = Driven::start(db.write(move |tx| markers::put(tx, id)));
        crate::patience::eventually("the write is woken", || write.is_done());
        write.output().unwrap();
    }
}

#[test]
fn dropped_futures_leave_whole_transactions_in_a_full_queue() {
    dropped_futures_leave_whole_transactions(1);
}
