//! Which connection a transaction gets, and from whom it is taken, on one thread.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::call::member::ForeignKeys;
use crate::clock::hand::HandClock;
use crate::files::open::{Opened, open};
use crate::options::{InteractiveOptions, Options};

const SECOND: Duration = Duration::from_secs(1);

/// How long a statement may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Connections that there may be.
const MAX_CONNECTIONS: usize = 2;

/// A pool on an empty database.
struct Bench {
    pool: Pool,
    clock: Arc<HandClock>,
    progress: Arc<Progress>,
    /// Overlays that were opened.
    opened: Arc<AtomicUsize>,
    _wal: Arc<WalControl>,
    _database: Opened,
}

impl Bench {
    fn new() -> Bench {
        let options = Options::new().readers(1);
        let mut database = open(&options, Path::new(":memory:"), Duration::ZERO).unwrap();
        let (reader, count) = (Arc::clone(&database.open_reader), Arc::<AtomicUsize>::default());
        let given = PoolOpener { reader, overlay: Box::new(|| Ok(None)) };
        let PoolOpener { reader, overlay } = std::mem::replace(&mut database.pool, given);
        let opened = Arc::clone(&count);
        let overlay = move || {
            opened.fetch_add(1, Ordering::Relaxed);
            overlay()
        };
        let opener = PoolOpener { reader, overlay: Box::new(overlay) };
        let (clock, progress) = (Arc::<HandClock>::default(), Arc::<Progress>::default());
        let options = options
            .clock(Arc::clone(&clock) as _)
            .interactive(
                InteractiveOptions::default().connections(MAX_CONNECTIONS).snapshot_age(SECOND),
            )
            .read_time_limit(LIMIT);
        let wal = Arc::clone(&database.wal);
        let pool = Pool::new(
            opener,
            &options,
            Arc::clone(&progress),
            Arc::clone(&wal),
            Arc::default(),
            SlowLog::default(),
        );
        Bench { pool, clock, progress, opened: count, _wal: wal, _database: database }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn take(&self, parked: Option<Parked>) -> Result<HeldConnection<'_>> {
        let start = if parked.is_some() { Start::Later } else { Start::First };
        self.pool.take(Terms::default(), parked, start, Duration::ZERO)
    }

    /// Runs the first statement of a transaction of this cost, and rests.
    fn rest_with(&self, cost: &Cost) -> Parked {
        let Left::Parked(place) = self.take(None).unwrap().leave(1, Memory::Nothing, cost) else {
            panic!("not parked");
        };
        self.clock.advance(Duration::from_millis(1));
        place
    }

    fn rest(&self) -> Parked {
        self.rest_with(&Cost::default())
    }

    /// Whether a transaction goes on where it was.
    fn is_warm(&self, place: Parked) -> bool {
        self.take(Some(place)).unwrap().is_warm
    }
}

fn long() -> Cost {
    Cost { work: VERY_LONG, ..Cost::default() }
}

#[test]
fn a_transaction_goes_on_with_the_connection_that_nobody_has_needed() {
    let bench = Bench::new();
    let place = bench.rest();
    assert!(bench.is_warm(place));
    assert!(!bench.is_warm(place), "it was there once");
    assert_eq!(bench.opened(), 1);
}

#[test]
fn a_connection_has_foreign_keys_on_again_behind_a_transaction_without_them() {
    let bench = Bench::new();
    let without = || {
        let terms = Terms { foreign_keys: ForeignKeys::Off, ..Terms::default() };
        let held = bench.pool.take(terms, None, Start::First, Duration::ZERO).unwrap();
        assert_eq!(asked(&held), 0);
        held
    };
    let park = |held: HeldConnection<'_>| {
        let Left::Parked(place) = held.leave(1, Memory::Nothing, &Cost::default()) else {
            panic!("not parked");
        };
        place
    };
    let ways: [&dyn Fn(HeldConnection<'_>); 5] = [
        &|_| (),
        &|held| drop(held.leave(MAX_CONNECTIONS + 1, Memory::Nothing, &Cost::default())),
        &|held| bench.pool.give_up(park(held)),
        // It is taken away.
        &|held| {
            park(held);
        },
        &|held| {
            park(held);
            bench.clock.advance(2 * SECOND);
            bench.pool.release_idle(SECOND);
        },
    ];
    for way in ways {
        way(without());
        let all: Vec<_> = (0..MAX_CONNECTIONS).map(|_| bench.take(None).unwrap()).collect();
        assert!(all.iter().all(|held| asked(held) == 1));
    }
    // Its own transaction goes on without them.
    let place = park(without());
    let held = bench.take(Some(place)).unwrap();
    assert!(held.is_warm);
    assert_eq!(asked(&held), 0);
}

/// Whether foreign keys are on.
fn asked(held: &HeldConnection<'_>) -> i64 {
    let ask = |tx: &Tx<'_>| tx.query_row("PRAGMA foreign_keys", (), |row| row.get(0));
    held.run(LIMIT, ask, |asked| asked.as_ref().err()).unwrap().unwrap()
}

#[test]
fn a_snapshot_that_is_too_old_is_not_gone_on_with() {
    let bench = Bench::new();
    let place = bench.rest();
    bench.clock.advance(SECOND);
    assert!(!bench.is_warm(place));
}

#[test]
fn who_left_last_loses_the_connection() {
    let bench = Bench::new();
    let (first, second) = (bench.rest(), bench.rest());
    drop(bench.take(None).unwrap());
    assert!(bench.is_warm(first) && !bench.is_warm(second));
    assert_eq!(bench.opened(), MAX_CONNECTIONS);
}

#[test]
fn who_left_first_loses_it_when_that_is_long_ago() {
    let bench = Bench::new();
    let first = bench.rest();
    bench.clock.advance(SECOND);
    let second = bench.rest();
    drop(bench.take(None).unwrap());
    assert!(!bench.is_warm(first) && bench.is_warm(second));
}

#[test]
fn a_long_transaction_loses_it_last_and_counts_apart() {
    let bench = Bench::new();
    let (_, early) = (bench.rest_with(&long()), bench.rest_with(&long()));
    let short = (bench.rest(), bench.rest());
    assert_eq!(bench.opened(), 2 * MAX_CONNECTIONS);
    let held = bench.take(None).unwrap();
    assert!(!bench.is_warm(short.1), "the short one that left last");
    assert!(bench.is_warm(early));
    drop(held);
}

#[test]
fn nothing_is_parked_while_there_are_more_transactions_than_connections() {
    let bench = Bench::new();
    let leave =
        |cost: Cost| bench.take(None).unwrap().leave(MAX_CONNECTIONS + 1, Memory::Nothing, &cost);
    assert!(matches!(leave(Cost::default()), Left::Gone(None)));
    assert!(matches!(leave(long()), Left::Parked(_)), "but a long one's");
}

#[test]
fn a_connection_whose_statement_overruns_does_not_count() {
    let bench = Bench::new();
    let running: Vec<_> = (0..MAX_CONNECTIONS).map(|_| bench.take(None).unwrap()).collect();
    let error = bench.take(None).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("none of the 2 connections"), "{error}");
    bench.clock.advance(LIMIT + Duration::from_millis(1));
    let more = bench.take(None).unwrap();
    assert_eq!(bench.opened(), MAX_CONNECTIONS + 1);
    // When the statement ends after all, there is one too many.
    bench.pool.state().watches.iter().for_each(|watch| assert!(watch.running_for(LIMIT).is_some()));
    drop((running, more));
    assert_eq!(bench.pool.state().watches.len(), MAX_CONNECTIONS);
}

#[test]
fn a_rest_ends_by_itself_for_the_checkpointer() {
    let bench = Bench::new();
    let place = bench.rest();
    assert_eq!(bench.pool.release_idle(SECOND), None);
    bench.clock.advance(SECOND);
    bench.progress.expose();
    bench.pool.release_idle(SECOND);
    assert!(!bench.is_warm(place));
}

#[test]
fn a_closed_pool_has_no_connections_and_gives_none() {
    let bench = Bench::new();
    let place = bench.rest();
    drop(bench.take(None).unwrap());
    bench.pool.close();
    assert!(bench.pool.state().watches.is_empty());
    for parked in [None, Some(place)] {
        assert_eq!(bench.take(parked).err().map(|error| error.kind()), Some(ErrorKind::Closed));
    }
}

#[test]
fn a_transaction_is_long_that_took_long_twice_or_very_long_once() {
    let cost = |work, replay| Cost { work, replay };
    assert!(!cost(LONG, Duration::ZERO).is_long());
    assert!(!cost(Duration::ZERO, VERY_LONG).is_long());
    assert!(cost(LONG, LONG).is_long());
    assert!(cost(VERY_LONG, Duration::ZERO).is_long());
}
