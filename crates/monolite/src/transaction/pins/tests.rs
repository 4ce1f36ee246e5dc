//! Tests of which snapshot a transaction gets, and for how long it stays, on one thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Pin, Pins};
use crate::clock::hand::HandClock;
use crate::error::{Error, ErrorKind};
use crate::files::open::{Opened, open};
use crate::options::Options;
use crate::progress::Progress;

const SECOND: Duration = Duration::from_secs(1);

/// Pins of an empty database.
struct Bench {
    pins: Pins,
    clock: Arc<HandClock>,
    progress: Arc<Progress>,
    /// Connections that were opened.
    opened: Arc<AtomicUsize>,
    /// Connections that can still be opened.
    left: Arc<AtomicUsize>,
    _database: Opened,
}

impl Bench {
    fn new() -> Bench {
        let database = open(&Options::new().readers(1), Path::new(":memory:"), Duration::ZERO);
        let database = database.unwrap();
        let (opened, left) = (Arc::<AtomicUsize>::default(), Arc::new(AtomicUsize::new(100)));
        let (open, count, limit) =
            (Arc::clone(&database.open_reader), Arc::clone(&opened), Arc::clone(&left));
        let open = Arc::new(move || {
            if count.load(Ordering::Relaxed) >= limit.load(Ordering::Relaxed) {
                return Err(Error::aborted("no more"));
            }
            count.fetch_add(1, Ordering::Relaxed);
            open()
        });
        let (clock, progress) = (Arc::<HandClock>::default(), Arc::<Progress>::default());
        let pins = Pins::new(open, Arc::clone(&clock) as _, Arc::clone(&progress));
        Bench { pins, clock, progress, opened, left, _database: database }
    }

    fn pin(&self, is_first: bool) -> Arc<Pin> {
        self.pins.pin(is_first, SECOND).unwrap()
    }

    fn commit(&self) {
        let number = self.progress.start_commit();
        self.progress.expose();
        self.progress.finish_commit(number);
    }

    /// Connections, and those of them that have no snapshot.
    fn connections(&self) -> (usize, usize) {
        let idle = &self.pins.vacant.connections().idle;
        assert!(idle.iter().all(|reader| !reader.connection.is_in_transaction()));
        (self.opened.load(Ordering::Relaxed), idle.len())
    }
}

#[test]
fn a_snapshot_is_taken_once_for_each_commit() {
    let bench = Bench::new();
    let first = bench.pin(true);
    assert!(Arc::ptr_eq(&first, &bench.pin(true)));
    bench.commit();
    let second = bench.pin(true);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(second.committed > first.committed && second.seen == second.committed);
    assert!(Arc::ptr_eq(&second, &bench.pin(true)));
    assert_eq!(bench.connections(), (2, 0));
}

#[test]
fn a_first_statement_waits_for_no_commit_that_somebody_may_have_seen() {
    let bench = Bench::new();
    let before = bench.pin(true);
    let number = bench.progress.start_commit();
    assert!(Arc::ptr_eq(&before, &bench.pin(true)), "nobody can see it yet");
    bench.progress.expose();
    let meanwhile = bench.pin(true);
    assert!(!Arc::ptr_eq(&before, &meanwhile));
    assert_eq!((meanwhile.committed, meanwhile.seen), (before.committed, number));
}

#[test]
fn a_later_statement_goes_on_with_the_latest_pin_while_that_is_young() {
    let bench = Bench::new();
    let old = bench.pin(true);
    bench.commit();
    bench.clock.advance(SECOND);
    assert!(Arc::ptr_eq(&old, &bench.pin(false)));
    bench.clock.advance(Duration::from_nanos(1));
    let new = bench.pin(false);
    assert!(!Arc::ptr_eq(&old, &new));
    assert!(Arc::ptr_eq(&new, &bench.pin(true)));
    bench.clock.advance(SECOND * 9);
    assert!(Arc::ptr_eq(&new, &bench.pin(false)), "nothing was committed since");
}

#[test]
fn a_connection_is_used_again_when_nobody_uses_its_snapshot() {
    let bench = Bench::new();
    let old = bench.pin(true);
    let other = Arc::clone(&old);
    bench.commit();
    let latest = bench.pin(true);
    drop(old);
    assert_eq!(bench.connections(), (2, 0), "somebody uses it yet");
    drop(other);
    assert_eq!(bench.connections(), (2, 1));
    bench.commit();
    drop(bench.pin(true));
    assert_eq!(bench.connections(), (2, 0));
    drop(latest);
    assert_eq!(bench.connections(), (2, 1));
    bench.pins.release();
    assert_eq!(bench.connections(), (2, 2));
}

#[test]
fn a_pin_that_cannot_be_taken_costs_nobody_the_latest() {
    let bench = Bench::new();
    let latest = bench.pin(true);
    bench.left.store(1, Ordering::Relaxed);
    bench.commit();
    assert!(bench.pins.pin(true, SECOND).is_err());
    assert!(Arc::ptr_eq(&latest, &bench.pin(false)));
    bench.left.store(2, Ordering::Relaxed);
    assert!(!Arc::ptr_eq(&latest, &bench.pin(true)));
}

#[test]
fn no_snapshot_is_taken_behind_a_close_and_no_connection_stays() {
    let bench = Bench::new();
    let used = bench.pin(true);
    bench.commit();
    drop(bench.pin(true));
    bench.pins.close();
    let refused = bench.pins.pin(false, SECOND).map(drop);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    assert!(used.reader.lock().unwrap().as_ref().unwrap().connection.is_in_transaction());
    drop(used);
    assert_eq!(bench.connections(), (2, 0));
}
