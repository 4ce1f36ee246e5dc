//! Transactions in one batch do not touch each other: random ones, many of which fail in every way
//! there is, give the results that they would have given one after another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use monolite::{Error, Options};
use monolite_testkit::checkers::serial::{self, Op, Record};
use monolite_testkit::clock::HandClock;
use monolite_testkit::functions::Promise;
use monolite_testkit::load::{Load, play};
use monolite_testkit::random::SeededRng;
use monolite_testkit::schedule::{Ending, Plan, SCHEMA, TIME_LIMIT, Told, sql};

use crate::patience::{Gate, as_one_batch, one};

fn holds_for(mut load: Load) {
    let rng = SeededRng::new();
    load.seed = rng.seed();
    let directory = tempfile::tempdir().unwrap();
    let played = play(&load, &directory.path().join("db")).unwrap();
    assert_eq!(played.complaints, [""; 0]);
    serial::check(&played.history, &played.end).unwrap();
    let failed = played.history.iter().filter(|it| matches!(it, Record::Failed { .. })).count();
    let wrote = played.history.iter().filter(|it| it.is_write()).count();
    assert_eq!(played.stats.failed_transactions, failed as u64);
    assert_eq!(failed + wrote, load.clients * load.writes);
    assert!(failed > 0 && wrote > 0, "the load had {failed} failures and {wrote} successes");
}

fn load(clients: usize, writes: usize, failing: u32, options: Options) -> Load {
    let (dropped, interactive, long_readers) = (0, 0, 0);
    let promise = Promise::Kept;
    Load { seed: 0, clients, writes, failing, dropped, interactive, long_readers, options, promise }
}

#[test]
fn results_are_those_of_a_serial_order_when_many_fail() {
    holds_for(load(6, 150, 4, Options::new().queue_capacity(4_096).max_batch(500)));
}

#[test]
fn results_are_those_of_a_serial_order_when_the_queue_is_tiny() {
    holds_for(load(6, 100, 9, Options::new().queue_capacity(3).max_batch(2)));
}

#[test]
fn every_way_to_fail_leaves_the_neighbours_alone() {
    for ending in Ending::FAILING.into_iter().chain([Ending::IgnoresRefusedCommit]) {
        let directory = tempfile::tempdir().unwrap();
        let clock = HandClock::new();
        let options = Options::new().write_time_limit(TIME_LIMIT).clock(Arc::clone(&clock) as _);
        let db = options.open(directory.path().join("db")).unwrap();
        db.write(|tx| tx.execute_batch(SCHEMA)).wait().unwrap();
        let start = |id, ending| {
            let plan = Plan { id, ops: vec![Op::Append { returning: false }], ending };
            let clock = Arc::clone(&clock);
            db.with_error().write(move |tx| plan.run(tx, &clock))
        };
        let (before, odd, after) = as_one_batch(&db, || {
            (start(1, Ending::Commits), start(2, ending), start(3, Ending::Commits))
        });
        let told = Told::by(catch_unwind(AssertUnwindSafe(|| odd.wait())));
        ending.judge(&told).unwrap();
        let after_it = if ending.commits() { 3 } else { 2 };
        assert_eq!(before.wait().map(|gave| gave.number).ok(), Some(1), "{ending:?}");
        assert_eq!(after.wait().map(|gave| gave.number).ok(), Some(after_it), "{ending:?}");
        let left: Vec<i64> = db.read(|tx| sql::contents(tx)).wait().unwrap().done().collect();
        let kept = if ending.commits() { vec![1, 2, 3] } else { vec![1, 3] };
        assert_eq!(left, kept, "{ending:?}");
    }
}

#[test]
fn a_read_sees_no_less_than_one_that_ended_before_it_began() {
    let db = Options::new().readers(2).open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY)")).wait().unwrap();
    let count = || {
        let sql = "SELECT COUNT(*) FROM t";
        one(&db, sql)
    };
    // The first of this batch is committed when the second runs again, and the batch is not over.
    let gates: [_; 4] = std::array::from_fn(|_| Arc::new(Gate::default()));
    let [first_runs, first_may_go_on, second_runs_again, second_may_go_on] = gates.clone();
    let (first, second) = as_one_batch(&db, || {
        let first = db.write(move |tx| {
            if tx.attempt() == 1 {
                first_runs.open();
                first_may_go_on.pass();
            }
            tx.execute("INSERT INTO t VALUES (1)", ())
        });
        let second = db.write(move |tx| {
            if tx.attempt() > 1 {
                second_runs_again.open();
                second_may_go_on.pass();
            }
            tx.execute("INSERT OR ROLLBACK INTO t VALUES (NULL), (1)", ())
        });
        (first, second)
    });
    gates[0].pass();
    assert_eq!(count(), 0, "this connection keeps its snapshot");
    gates[1].open();
    gates[2].pass();
    // This thread's read occupies that connection, so the other's takes a new snapshot.
    let elsewhere = || thread::scope(|scope| scope.spawn(count).join().unwrap());
    let inner = db.read(|_| Ok::<_, Error>(elsewhere())).wait().unwrap();
    let later = count();
    gates[3].open();
    first.wait().unwrap();
    second.wait().unwrap_err();
    assert_eq!((inner, later), (1, 1));
}
