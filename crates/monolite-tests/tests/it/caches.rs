//! The page caches of all databases of a process have one budget.
//!
//! It is the process's, so each test runs in a process of its own.

use std::path::Path;
use std::thread;

use anyhow::Result;
use monolite::{Database, InteractiveOptions, Options, limit_page_caches};
use monolite_testkit::checkers::serial;
use monolite_testkit::functions::Promise;
use monolite_testkit::load::{Load, play};
use monolite_testkit::random::SeededRng;

use crate::child::spawn;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 4 * MIB;
const DATABASES: u64 = 8;
const READERS: usize = 2;

/// What each connection has whatever the budget is: 64 pages, and some that are in use.
const FLOOR: u64 = 80 * (4_096 + 300);

/// The connections of a database here: the writer, the readers, the checkpointer.
const CONNECTIONS: u64 = READERS as u64 + 2;

fn filled(options: Options, path: &Path, mib: u64) -> Database {
    let db = options.readers(READERS).open(path).unwrap();
    let rows = mib * MIB / 820;
    let fill = "INSERT INTO t(v) SELECT hex(randomblob(400)) FROM generate_series(1, ?1)";
    let filling = db.write(move |tx| {
        tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")?;
        tx.execute(fill, [rows as i64])
    });
    filling.wait().unwrap();
    db
}

fn scan(db: &Database) -> i64 {
    let sum = "SELECT count(length(v)) FROM t";
    db.read(move |tx| tx.query_row(sum, (), |row| row.get(0))).wait().unwrap()
}

fn write(db: &Database) {
    let change = "UPDATE t SET v = hex(randomblob(400)) WHERE id % 100 = 0";
    db.write(move |tx| tx.execute(change, ())).wait().unwrap();
}

/// The most that the caches have while databases of 4 MiB are read and written by several threads.
fn most_while_used(budget: u64) -> u64 {
    limit_page_caches(budget);
    let directory = tempfile::tempdir().unwrap();
    let names = (0..DATABASES).map(|number| directory.path().join(number.to_string()));
    let databases: Vec<_> = names.map(|path| filled(Options::new(), &path, 4)).collect();
    let used = |db: &Database| {
        let client = || {
            let rounds = (0..4).map(|_| {
                let rows = scan(db);
                write(db);
                assert_eq!(rows, scan(db));
                db.stats().page_cache_bytes
            });
            rounds.max().unwrap_or(0)
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..=READERS).map(|_| scope.spawn(client)).collect();
            clients.into_iter().map(|it| it.join().unwrap()).max().unwrap_or(0)
        })
    };
    let most = thread::scope(|scope| {
        let used: Vec<_> = databases.iter().map(|db| scope.spawn(|| used(db))).collect();
        used.into_iter().map(|it| it.join().unwrap()).max().unwrap_or(0)
    });
    databases.into_iter().for_each(|db| db.close().unwrap());
    let other = Database::open(":memory:").unwrap();
    let left = other.stats().page_cache_bytes;
    assert!(left < MIB, "closed databases count {left} bytes");
    most
}

pub(crate) fn use_many() -> Result<()> {
    let (bound, unbounded) = (BUDGET + DATABASES * CONNECTIONS * FLOOR, most_while_used(u64::MAX));
    assert!(unbounded > 2 * bound, "without a budget they took {unbounded}, which shows nothing");
    let bounded = most_while_used(BUDGET);
    assert!(bounded <= bound, "{bounded} bytes, {bound} are allowed");
    Ok(())
}

#[test]
fn the_caches_of_all_databases_stay_within_their_budget() {
    spawn("uses many databases", &[]).succeeds().unwrap();
}

pub(crate) fn play_without_caches() -> Result<()> {
    limit_page_caches(0);
    let seed = SeededRng::new().seed();
    let directory = tempfile::tempdir()?;
    let played = play(
        &Load {
            seed,
            clients: 6,
            writes: 200,
            failing: 10,
            dropped: 20,
            interactive: 90,
            long_readers: 1,
            options: Options::new()
                .wal_limit_bytes(8 << 20)
                .interactive(InteractiveOptions::default().connections(3).attempts(2)),
            promise: Promise::Kept,
        },
        &directory.path().join("db"),
    )?;
    assert_eq!(played.complaints, [""; 0], "seed {seed}");
    assert_eq!(serial::check(&played.history, &played.end), Ok(()), "seed {seed}");
    assert!(played.interactive > 50, "seed {seed}: {}", played.interactive);
    Ok(())
}

#[test]
fn results_are_those_of_a_serial_order_without_a_budget_for_caches() {
    spawn("plays without caches", &[]).succeeds().unwrap();
}
