//! Transactions in one batch do not touch each other: random ones, many of which fail in every way
//! there is, give the results that they would have given one after another.
//!
//! # Algorithm
//! 1. Every transaction counts up one row and returns the number. Those that fail give theirs back,
//!    so the numbers are the commit order and have no gaps.
//! 2. The history (what each transaction and each read saw, and its number) is replayed in that
//!    order in a plain model. Every value that anybody saw must be the model's.
//! 3. At the end the reopened database must hold what the model holds.

mod history;
mod plan;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use monolite::{Database, Error, ErrorKind, Options, Write};

use crate::dice::Dice;
use crate::hand_clock::HandClock;
use history::{Record, State, check, look_around};
use plan::{Ending, Gave, LIMIT, Plan, Stopped, run};

struct Load {
    seed: u64,
    threads: usize,
    transactions: usize,
    /// One in this many fails.
    failing: u32,
    queue: usize,
    max_batch: usize,
}

struct Shared {
    db: Database,
    clock: Arc<HandClock>,
    history: Mutex<Vec<Record>>,
    /// The highest number that was acknowledged to anybody.
    acknowledged: AtomicI64,
}

/// A transaction under way.
struct Flying {
    plan: Plan,
    floor: i64,
    handle: Write<Gave, Stopped>,
}

/// Runs the load and returns its history and what the reopened database holds.
fn play(load: &Load) -> (Vec<Record>, State) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut dice = Dice::seeded(load.seed);
    let shared = Shared {
        clock: HandClock::new(),
        db: open(&path, HandClock::new(), load),
        history: Mutex::default(),
        acknowledged: AtomicI64::new(0),
    };
    shared.db.close().unwrap();
    let shared = Shared { db: open(&path, Arc::clone(&shared.clock), load), ..shared };
    thread::scope(|scope| {
        for number in 0..load.threads {
            let (shared, rng) = (&shared, dice.fork());
            scope.spawn(move || client(shared, load, number, rng));
        }
    });
    let failed = shared.history.lock().unwrap().iter().filter(|it| it.is_failure()).count();
    assert_eq!(shared.db.stats().failed_transactions, failed as u64);
    shared.db.close().unwrap();
    let db = Database::open(&path).unwrap();
    let end = db.read(State::load).wait().unwrap();
    (shared.history.into_inner().unwrap(), end)
}

fn open(path: &Path, clock: Arc<HandClock>, load: &Load) -> Database {
    let options = Options::new().write_time_limit(LIMIT).clock(clock).queue_capacity(load.queue);
    let db = options.max_batch(load.max_batch).open(path).unwrap();
    db.write(|tx| tx.execute_batch(plan::SCHEMA)).wait().unwrap();
    db
}

/// One thread: bursts of writes, and reads in between.
fn client(shared: &Shared, load: &Load, number: usize, mut rng: fastrand::Rng) {
    let mut left = load.transactions;
    while left > 0 {
        let burst = rng.usize(1..=left.min(24));
        let first = i64::try_from(number * 1_000_000 + left).unwrap();
        let flying: Vec<Flying> =
            (0..burst as i64).map(|i| submit(shared, load, first - i, &mut rng)).collect();
        left -= burst;
        if rng.bool() {
            read(shared, &mut rng);
        }
        flying.into_iter().for_each(|it| land(shared, it));
        read(shared, &mut rng);
    }
}

fn submit(shared: &Shared, load: &Load, id: i64, rng: &mut fastrand::Rng) -> Flying {
    let plan = Plan::random(id, load.failing, rng);
    let floor = shared.acknowledged.load(Ordering::SeqCst);
    let (mine, clock) = (plan.clone(), Arc::clone(&shared.clock));
    let handle = match rng.u8(..8) {
        0 => shared.db.write_once(move |tx| run(tx, &mine, &clock)),
        1 => {
            let (again, same_clock) = (plan.clone(), Arc::clone(&shared.clock));
            let tried = shared.db.try_write(move |tx| run(tx, &mine, &clock));
            tried.unwrap_or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::Overloaded);
                shared.db.write(move |tx| run(tx, &again, &same_clock))
            })
        }
        _ => shared.db.write(move |tx| run(tx, &mine, &clock)),
    };
    Flying { plan, floor, handle }
}

/// Waits for a transaction and remembers what became of it.
fn land(shared: &Shared, Flying { plan, floor, handle }: Flying) {
    let outcome = catch_unwind(AssertUnwindSafe(|| handle.wait()));
    let told = plan.ending.judge(&outcome).unwrap_or_else(|said| panic!("{plan:?}: {said}"));
    let record = match told {
        None => Record::Failed { plan },
        Some(gave) => {
            shared.acknowledged.fetch_max(gave.number, Ordering::SeqCst);
            Record::Wrote { number: gave.number, floor, plan, saw: gave.saw.clone() }
        }
    };
    shared.history.lock().unwrap().push(record);
}

fn read(shared: &Shared, rng: &mut fastrand::Rng) {
    let keys: Vec<i64> = (0..4).map(|_| rng.i64(0..plan::KEYS)).collect();
    let floor = shared.acknowledged.load(Ordering::SeqCst);
    let asked = keys.clone();
    let (number, saw) = shared.db.read(|tx| look_around(tx, &asked)).wait().unwrap();
    shared.acknowledged.fetch_max(if rng.bool() { floor } else { 0 }, Ordering::SeqCst);
    shared.history.lock().unwrap().push(Record::Read { number, floor, keys, saw });
}

fn holds_for(load: &Load) {
    let _tells_the_seed = Dice::seeded(load.seed);
    let (history, end) = play(load);
    check(&history, &end).unwrap();
    let failed = history.iter().filter(|record| record.is_failure()).count();
    let wrote = history.iter().filter(|record| record.is_write()).count();
    assert_eq!(failed + wrote, load.threads * load.transactions);
    assert!(failed > 0 && wrote > 0, "the load had {failed} failures and {wrote} successes");
}

fn seed() -> u64 {
    Dice::new().seed()
}

#[test]
fn results_are_those_of_a_serial_order_when_many_fail() {
    let load = Load {
        seed: seed(),
        threads: 6,
        transactions: 150,
        failing: 4,
        queue: 4_096,
        max_batch: 500,
    };
    holds_for(&load);
}

#[test]
fn results_are_those_of_a_serial_order_when_few_fail() {
    let load = Load {
        seed: seed(),
        threads: 4,
        transactions: 400,
        failing: 50,
        queue: 16_384,
        max_batch: 10_000,
    };
    holds_for(&load);
}

#[test]
fn results_are_those_of_a_serial_order_when_the_queue_is_tiny() {
    let load =
        Load { seed: seed(), threads: 6, transactions: 100, failing: 9, queue: 3, max_batch: 2 };
    holds_for(&load);
}

fn small_history() -> (Vec<Record>, State) {
    let load =
        Load { seed: seed(), threads: 3, transactions: 60, failing: 5, queue: 256, max_batch: 64 };
    let (history, end) = play(&load);
    check(&history, &end).unwrap();
    (history, end)
}

#[test]
fn a_dropped_acknowledged_transaction_is_noticed() {
    let (history, _) = small_history();
    let writes = history.iter().filter(|record| record.is_write()).count() as i64;
    for lost in [1, writes / 2, writes] {
        // What a database that lost it would hold: the effects of all the others.
        let kept: Vec<Record> =
            history.iter().filter(|it| it.number() != Some(lost)).cloned().collect();
        let mut holds = State::default();
        let mut in_order: Vec<&Record> = kept.iter().filter(|it| it.is_write()).collect();
        in_order.sort_by_key(|it| it.number());
        in_order.iter().for_each(|it| it.replay_into(&mut holds));
        assert!(check(&history, &holds).is_err(), "transaction {lost} is lost from the file");
        assert!(check(&kept, &holds).is_err() || lost == writes, "a gap before {lost}");
    }
}

#[test]
fn a_kept_effect_of_a_failed_transaction_is_noticed() {
    let (history, end) = small_history();
    let mut tried = 0;
    for record in history.iter().filter(|it| it.is_failure()) {
        let mut holds = end.clone();
        record.replay_into(&mut holds);
        if holds != end {
            tried += 1;
            assert!(check(&history, &holds).is_err(), "{record:?} left something behind");
        }
    }
    assert!(tried > 0, "no failed transaction would have left anything");
}

#[test]
fn a_value_that_nobody_could_have_seen_is_noticed() {
    let (history, end) = small_history();
    for at in 0..history.len() {
        let mut forged = history.clone();
        if forged[at].forge() {
            assert!(check(&forged, &end).is_err(), "{:?}", forged[at]);
        }
    }
}

#[test]
fn a_read_that_misses_an_acknowledged_write_is_noticed() {
    let (mut history, end) = small_history();
    for record in &mut history {
        if let Record::Read { number, floor, .. } = record {
            *floor = *number + 1;
            break;
        }
    }
    assert!(check(&history, &end).unwrap_err().contains("acknowledged before"));
}

#[test]
fn every_way_to_fail_leaves_the_neighbours_alone() {
    for ending in Ending::FAILING {
        let load =
            Load { seed: 1, threads: 0, transactions: 0, failing: 1, queue: 64, max_batch: 64 };
        let directory = tempfile::tempdir().unwrap();
        let clock = HandClock::new();
        let db = open(&directory.path().join("db"), Arc::clone(&clock), &load);
        let start = |id, ending| {
            let (plan, clock) = (Plan::appending(id, ending), Arc::clone(&clock));
            db.write(move |tx| run(tx, &plan, &clock))
        };
        let (before, failing, after) = crate::patience::as_one_batch(&db, || {
            (start(1, Ending::Commits), start(2, ending), start(3, Ending::Commits))
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| failing.wait()));
        assert!(ending.judge(&outcome).unwrap_or_else(|e| panic!("{ending:?}: {e}")).is_none());
        assert_eq!(before.wait().map(|gave| gave.number).ok(), Some(1), "{ending:?}");
        assert_eq!(after.wait().map(|gave| gave.number).ok(), Some(2), "{ending:?}");
        let left: Vec<i64> = db.read(State::load).wait().unwrap().log;
        assert_eq!(left, [1, 3], "{ending:?}");
    }
}

/// The engine's errors reach a closure's own error type.
impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Engine(error)
    }
}
