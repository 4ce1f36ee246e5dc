//! Schedules of transactions that pin snapshots, of commits between them, and of who takes pins
//! away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;

use super::{Pin, Pins};
use crate::clock::SystemClock;
use crate::error::ErrorKind;
use crate::files::open::Opened;
use crate::models::{self, SCHEDULES_WITH_SQL, check, database, maybe};
use crate::progress::Progress;

/// What the threads of a schedule have.
struct Bench {
    pins: Pins,
    opened: Arc<AtomicU64>,
    /// The greatest number that somebody may have seen.
    seen: AtomicU64,
    /// The greatest that a pin had.
    pinned: AtomicU64,
}

impl Bench {
    fn new(database: &Mutex<Opened>, progress: &Arc<Progress>) -> Arc<Bench> {
        let database = database.lock().unwrap();
        models::reset(&database.writer);
        let opened = Arc::new(AtomicU64::new(0));
        let (open, count) = (Arc::clone(&database.open_reader), Arc::clone(&opened));
        let open = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
            open()
        });
        let clock = Arc::<SystemClock>::default();
        let pins = Pins::new(open, clock, Arc::clone(progress));
        let (seen, pinned) = Default::default();
        Arc::new(Bench { pins, opened, seen, pinned })
    }

    /// What is in a pin's snapshot, which has to be there.
    fn number(&self, pin: &Pin) -> u64 {
        let reader = pin.reader.lock().unwrap();
        let connection = &reader.as_ref().unwrap().connection;
        assert!(connection.is_in_transaction(), "a pin was released that somebody uses");
        models::number(connection)
    }

    /// Pins a snapshot: no less than a pin before it had, and at first no less than what somebody
    /// may have seen.
    fn pin(&self, is_first: bool) -> (Arc<Pin>, u64) {
        let before = if is_first { &self.seen } else { &self.pinned }.load(Ordering::Relaxed);
        let pin = self.pins.pin(is_first, Duration::MAX).unwrap();
        let number = self.number(&pin);
        assert!(before <= number, "{number} is pinned behind {before}");
        self.pinned.fetch_max(number, Ordering::Relaxed);
        (pin, number)
    }

    /// A transaction: two statements and a rest between them.
    fn transact(&self) {
        let (first, number) = self.pin(true);
        assert_eq!(self.number(&first), number);
        drop(first);
        drop(self.pin(false));
    }
}

#[test]
fn a_pin_stays_while_it_is_used_and_ends_when_it_is_not() {
    let database = database();
    check(SCHEDULES_WITH_SQL, move || {
        let progress = Arc::<Progress>::default();
        let bench = Bench::new(&database, &progress);
        let users = [(); 2].map(|()| {
            let bench = Arc::clone(&bench);
            thread::spawn(move || bench.transact())
        });
        let releaser = Arc::clone(&bench);
        let releaser = thread::spawn(move || releaser.pins.release());
        for _ in 0..2 {
            models::commit(&database.lock().unwrap().writer, &progress, &bench.seen);
        }
        users.into_iter().for_each(|it| it.join().unwrap());
        releaser.join().unwrap();
        bench.pins.release();
        let mut connections = bench.pins.vacant.connections();
        let idle = std::mem::take(&mut connections.idle);
        drop(connections);
        assert_eq!(idle.len() as u64, bench.opened.load(Ordering::Relaxed));
        assert!(idle.iter().all(|reader| !reader.connection.is_in_transaction()));
    });
}

#[test]
fn a_first_statement_sees_all_that_anybody_has_seen_before_it() {
    let database = database();
    check(SCHEDULES_WITH_SQL, move || {
        let progress = Arc::<Progress>::default();
        let bench = Bench::new(&database, &progress);
        let users = [(); 2].map(|()| {
            let bench = Arc::clone(&bench);
            thread::spawn(move || drop(bench.pin(true)))
        });
        models::commit(&database.lock().unwrap().writer, &progress, &bench.seen);
        drop(bench.pin(true));
        users.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn no_connection_is_left_behind_a_close() {
    let database = database();
    check(SCHEDULES_WITH_SQL, move || {
        let progress = Arc::<Progress>::default();
        let bench = Bench::new(&database, &progress);
        let users = [true, maybe()].map(|is_first| {
            let bench = Arc::clone(&bench);
            thread::spawn(move || match bench.pins.pin(is_first, Duration::MAX) {
                Ok(pin) => drop(pin),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
            })
        });
        bench.pins.close();
        users.into_iter().for_each(|it| it.join().unwrap());
        bench.pins.release();
        assert!(bench.pins.vacant.connections().idle.is_empty());
    });
}
