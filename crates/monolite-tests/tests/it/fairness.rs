//! One principal that keeps the writer busy leaves the others their share of it, and of the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use monolite::{Database, Transaction};

use crate::patience::eventually;

/// How long each write of the greedy principal has the writer.
const GREED: Duration = Duration::from_millis(5);

/// How many of them wait at a time.
const CLIENTS: usize = 16;

fn database() -> Database {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v); INSERT INTO t VALUES (0)")).wait().unwrap();
    db
}

/// Has `CLIENTS` threads write for `greedy` without a pause, while `body` runs with the number of
/// their writes so far. They sleep instead of writing: that costs the writer as much, and the
/// others no core.
fn beside_greed(greedy: &Database, body: impl FnOnce(&AtomicU64)) {
    let (over, runs) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let runs = Arc::clone(&runs);
                    let write = greedy.write(move |tx| {
                        runs.fetch_add(1, Ordering::Relaxed);
                        thread::sleep(GREED);
                        tx.execute("UPDATE t SET v = v + 1", ())
                    });
                    write.wait().unwrap();
                }
            });
        }
        eventually("greedy writes", || runs.load(Ordering::Relaxed) > CLIENTS as u64);
        body(&runs);
        over.store(true, Ordering::Relaxed);
    });
}

/// How many greedy writes ran during one of `other`, in the median of several.
fn waited_for(other: &Database, runs: &AtomicU64) -> u64 {
    let mut waited: Vec<u64> = (0..9)
        .map(|_| {
            let before = runs.load(Ordering::Relaxed);
            other.write(|tx| tx.execute("UPDATE t SET v = v + 1", ())).wait().unwrap();
            runs.load(Ordering::Relaxed) - before
        })
        .collect();
    waited.sort_unstable();
    waited[4]
}

#[test]
fn a_principal_that_keeps_the_writer_busy_does_not_starve_the_others() {
    let db = database();
    for other in [db.with_principal(2), db.clone()] {
        beside_greed(&db.with_principal(1), |runs| {
            let waited = waited_for(&other, runs);
            assert!(waited <= 2, "{waited} of a greedy principal came first");
        });
    }
    // Without principals each waits for all in front of it.
    beside_greed(&db, |runs| assert!(waited_for(&db, runs) > 4));
    db.close().unwrap();
}

#[test]
fn a_transaction_that_awaits_has_the_share_of_its_principal() {
    let db = database();
    db.write(|tx| tx.execute_batch("CREATE TABLE u(v)")).wait().unwrap();
    beside_greed(&db.with_principal(1), |runs| {
        let before = runs.load(Ordering::Relaxed);
        for _ in 0..9 {
            let insert = |tx: &Transaction| tx.execute("INSERT INTO u VALUES (1)", ()).wait();
            assert_eq!(db.with_principal(2).transact(async |tx| insert(&tx)).wait().unwrap(), 1);
        }
        let waited = runs.load(Ordering::Relaxed) - before;
        assert!(waited < 9 * 4, "{waited} of a greedy principal came first");
    });
    db.close().unwrap();
}
