//! A load of free-running clients that hurt the engine in every way a transaction can, and the
//! history of what they saw, for the checkers.
//!
//! # Algorithm
//! Each client sends bursts of writes (some fail, some are dropped unanswered, some are refused by
//! a full queue and sent again), and reads in between, on its own thread or awaited. Long readers
//! look at their snapshot twice, with many commits in between. Whether an unanswered write was
//! committed is asked of the database in the end.
//!
//! Beside these, clients run interactive transactions, one at a time each (module `interactive`).

mod interactive;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::{Database, Error, ErrorKind, Options, ReadTx, Stats, Write};

use crate::blocking::{block_on, locked};
use crate::checkers::serial::{Contents, Op, Record};
use crate::clock::HandClock;
use crate::functions::{Promise, with_functions};
use crate::schedule::{Gave, Plan, SCHEMA, Stopped, TIME_LIMIT, Told, find_numbers, sql};

/// Most writes that a client has under way at once.
const BURST: usize = 24;
/// How long a long reader waits for others to commit.
const LONG: Duration = Duration::from_millis(20);

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Load {
    /// Of all that is random.
    pub seed: u64,
    /// Threads that write and read.
    pub clients: usize,
    /// Writes of each client.
    pub writes: usize,
    /// One write in this many fails.
    pub failing: u32,
    /// One write in this many is dropped unanswered; 0 is none.
    pub dropped: u32,
    /// Of a hundred turns of a client, how many are an interactive transaction; the others are
    /// bursts.
    pub interactive: u32,
    /// Threads that hold a snapshot for long.
    pub long_readers: usize,
    /// How the database is opened; clock, time limit and functions are the load's own.
    pub options: Options,
    /// Whether functions of the application are what they say.
    pub promise: Promise,
}

/// What came of it.
#[derive(Debug)]
pub struct Played {
    /// What everybody saw.
    pub history: Vec<Record>,
    /// What the reopened database holds.
    pub end: Contents,
    /// Callers that were told what they must not be told.
    pub complaints: Vec<String>,
    /// Writes that were refused because the queue was full.
    pub refused: usize,
    /// Interactive transactions that were committed and had changed something.
    pub interactive: u64,
    /// Interactive transactions that only read.
    pub interactive_reads: u64,
    /// Interactive transactions that were ended by a time limit.
    pub late: u64,
    /// The engine's own figures at the end.
    pub stats: Stats,
}

struct Shared<'l> {
    load: &'l Load,
    db: Database,
    clock: Arc<HandClock>,
    history: Mutex<Vec<Record>>,
    complaints: Mutex<Vec<String>>,
    /// The highest number that anybody was told of.
    told: AtomicI64,
    refused: AtomicUsize,
    interactive: AtomicU64,
    interactive_reads: AtomicU64,
    late: AtomicU64,
    clients_left: AtomicUsize,
}

/// A write under way.
struct Flying {
    plan: Plan,
    floor: i64,
    handle: Write<Gave, Stopped>,
}

/// Runs `load` on a new database at `path`.
pub fn play(load: &Load, path: &Path) -> Result<Played> {
    let clock = HandClock::new();
    let options = load.options.clone().write_time_limit(TIME_LIMIT).clock(Arc::clone(&clock) as _);
    let db = with_functions(options, load.promise).open(path)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()?;
    let shared = Shared {
        load,
        db,
        clock,
        history: Mutex::default(),
        complaints: Mutex::default(),
        told: AtomicI64::new(0),
        refused: AtomicUsize::new(0),
        interactive: AtomicU64::new(0),
        interactive_reads: AtomicU64::new(0),
        late: AtomicU64::new(0),
        clients_left: AtomicUsize::new(load.clients),
    };
    let mut rng = Rng::with_seed(load.seed);
    thread::scope(|scope| {
        for number in 0..load.clients + load.long_readers {
            let (shared, rng) = (&shared, rng.fork());
            if number < load.clients {
                scope.spawn(move || shared.client(number, rng));
            } else {
                scope.spawn(move || shared.long_reader(rng));
            }
        }
    });
    let stats = shared.db.stats();
    shared.db.close().context("the database does not close")?;
    let db = Database::open(path).context("the database does not open again")?;
    let end = db.read(|tx| sql::contents(tx)).wait()?;
    db.close()?;
    let mut history = shared.history.into_inner().unwrap_or_else(PoisonError::into_inner);
    find_numbers(&mut history, &end);
    let complaints = shared.complaints.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Played {
        history,
        end,
        complaints,
        refused: shared.refused.into_inner(),
        interactive: shared.interactive.into_inner(),
        interactive_reads: shared.interactive_reads.into_inner(),
        late: shared.late.into_inner(),
        stats,
    })
}

impl Shared<'_> {
    fn note(&self, record: Record) {
        locked(&self.history).push(record);
    }

    fn complain(&self, complaint: String) {
        locked(&self.complaints).push(complaint);
    }

    fn floor(&self) -> i64 {
        self.told.load(Ordering::SeqCst)
    }

    fn tell(&self, number: i64) {
        self.told.fetch_max(number, Ordering::SeqCst);
    }

    fn client(&self, number: usize, mut rng: Rng) {
        let mut left = self.load.writes;
        let mut id = i64::try_from(number << 32).unwrap_or(0);
        while left > 0 {
            if self.load.interactive > 0 && rng.u32(..100) < self.load.interactive {
                (id, left) = (id + 1, left - 1);
                self.interact(id, &mut rng);
                continue;
            }
            let burst = rng.usize(1..=left.min(BURST));
            let mut flying = Vec::new();
            for _ in 0..burst {
                id += 1;
                flying.extend(self.submit(Plan::random(id, self.load.failing, &mut rng), &mut rng));
            }
            left -= burst;
            if rng.bool() {
                self.read(&mut rng);
            }
            flying.into_iter().for_each(|it| self.land(it));
            self.read(&mut rng);
        }
        self.clients_left.fetch_sub(1, Ordering::SeqCst);
    }

    /// Hands a write over; `None` when it is left to itself.
    fn submit(&self, plan: Plan, rng: &mut Rng) -> Option<Flying> {
        let floor = self.floor();
        let (mine, clock) = (plan.clone(), Arc::clone(&self.clock));
        let db = self.db.with_error();
        let mut handle = match rng.u8(..8) {
            0 => db.write_once(move |tx| mine.run(tx, &clock)),
            1 => {
                let again = (plan.clone(), Arc::clone(&self.clock));
                let tried = db.try_write(move |tx| mine.run(tx, &clock));
                tried.unwrap_or_else(|error| {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    if error.kind() != ErrorKind::Overloaded {
                        self.complain(format!("try_write: {error}"));
                    }
                    db.write(move |tx| again.0.run(tx, &again.1))
                })
            }
            _ => db.write(move |tx| mine.run(tx, &clock)),
        };
        if self.load.dropped == 0 || rng.u32(..self.load.dropped) > 0 {
            return Some(Flying { plan, floor, handle });
        }
        if rng.bool() {
            // The answer may be there already; it was not looked at, so nobody was told.
            let polled = catch_unwind(AssertUnwindSafe(|| {
                Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop())).is_ready()
            }));
            drop(polled);
        }
        drop(handle);
        self.note(if plan.ending.commits() {
            Record::Untold { id: plan.id, number: None, floor, ops: plan.ops }
        } else {
            Record::Failed { id: plan.id }
        });
        None
    }

    /// Waits for a write and notes what became of it.
    fn land(&self, Flying { plan, floor, handle }: Flying) {
        let told = Told::by(catch_unwind(AssertUnwindSafe(|| handle.wait())));
        if let Err(complaint) = plan.ending.judge(&told) {
            self.complain(complaint);
        }
        self.note(match told {
            Told::Committed(Gave { number, saw }) => {
                self.tell(number);
                Record::Wrote { id: plan.id, number, floor, ops: plan.ops, saw }
            }
            _ => Record::Failed { id: plan.id },
        });
    }

    fn read(&self, rng: &mut Rng) {
        let ops: Vec<Op> = (0..rng.usize(1..5)).map(|_| Op::random_read(rng)).collect();
        let floor = self.floor();
        let asked = ops.clone();
        let body = move |tx: &ReadTx<'_>| look(tx, &asked);
        let outcome = match rng.u8(..6) {
            0 => self.db.read_durable(body).wait(),
            1 => block_on(self.db.read(body)),
            2 => block_on(self.db.read_durable(body)),
            _ => self.db.read(body).wait(),
        };
        self.note_read(outcome, floor, ops);
    }

    fn note_read(&self, outcome: Result<(i64, Vec<i64>), Error>, floor: i64, ops: Vec<Op>) {
        match outcome {
            Ok((number, saw)) => {
                self.tell(number);
                self.note(Record::Read { number, floor, ops, saw });
            }
            // Its snapshot stood in the way of the WAL, or plain writes have changed what it reads
            // in each of its attempts.
            Err(error) if matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Conflict) => {}
            Err(error) => self.complain(format!("a read: {error}")),
        }
    }

    fn long_reader(&self, mut rng: Rng) {
        while self.clients_left.load(Ordering::SeqCst) > 0 {
            let once: Vec<Op> = (0..rng.usize(1..4)).map(|_| Op::random_read(&mut rng)).collect();
            let ops = once.repeat(2);
            let floor = self.floor();
            let outcome = self.db.read(|tx| {
                let (number, mut saw) = look(tx, &once)?;
                let start = Instant::now();
                while start.elapsed() < LONG && self.floor() < number + 500 {
                    thread::park_timeout(Duration::from_millis(1));
                }
                saw.extend(look(tx, &once)?.1);
                Ok((number, saw))
            });
            self.note_read(outcome.wait(), floor, ops);
        }
    }
}

fn look(tx: &ReadTx<'_>, ops: &[Op]) -> Result<(i64, Vec<i64>), Error> {
    let mut saw = Vec::new();
    for op in ops {
        assert!(sql::ask(tx, op, &mut saw)?, "a read runs steps that ask");
    }
    Ok((sql::last_number(tx)?, saw))
}
