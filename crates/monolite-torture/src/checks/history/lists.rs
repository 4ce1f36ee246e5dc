//! Free-running clients that append unique values to lists and read whole lists, for the checker of
//! dependency cycles.
//!
//! # Algorithm
//! A list is either rows of one table or one text, so that point and range reads, and blind and
//! dependent writes, all take part. Clients use a window of lists that moves on as values are
//! appended, so lists stay short. In the end every list is read once more.
//!
//! Some transactions are interactive: what they append and what they read is one transaction over
//! a while, in the midst of those of others.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use fastrand::Rng;
use monolite::{Database, Error, ErrorKind, Options, Tx, Write};
use monolite_testkit::blocking::{block_on, locked};
use monolite_testkit::checkers::cycles::{Fate, Kind, Step, Transaction, check};
use monolite_testkit::clock::HandClock;
use monolite_testkit::schedule::sql::Sql;
use monolite_testkit::schedule::{Ending, Interactive, Pace, SCHEMA, Stopped, TIME_LIMIT};

use super::Case;

/// Lists in use at a time.
const WINDOW: u64 = 12;
/// Transactions after which the window moves on by one list.
const PACE: u64 = 16;
/// Lists that are read in one transaction in the end.
const LAST_READ: u64 = 50;
const CLIENTS: u64 = 8;
/// Most writes that a client has under way at once.
const BURST: usize = 16;

pub(super) const LISTS: &str = "
    CREATE TABLE IF NOT EXISTS element(
        key INTEGER NOT NULL, at INTEGER NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (key, at)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS list(key INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
    INSERT OR IGNORE INTO done VALUES (1, 0);
";

/// Steps before they are run: what is read is not known yet.
type Intent = Vec<Step>;

struct Shared {
    db: Database,
    clock: Arc<HandClock>,
    ticks: AtomicU64,
    started: AtomicU64,
    failing: u32,
    interactive: AtomicU64,
    history: Mutex<Vec<Transaction>>,
    complaints: Mutex<Vec<String>>,
}

struct Flying {
    begin: u64,
    ending: Ending,
    intent: Intent,
    handle: Write<Vec<Step>, Stopped>,
}

/// Runs about `length` transactions on a new database at `path`; also returns their history.
pub(super) fn run(path: &Path, length: u64, rng: &mut Rng) -> Result<(Case, Vec<Transaction>)> {
    run_with(Options::new(), path, length, rng)
}

/// As [`run`], with the options that are not the load's own.
pub(super) fn run_with(
    options: Options,
    path: &Path,
    length: u64,
    rng: &mut Rng,
) -> Result<(Case, Vec<Transaction>)> {
    let clock = HandClock::new();
    let options = options
        .wal_limit_bytes(8 << 20)
        .max_batch([20, 10_000][rng.usize(..2)])
        .queue_capacity([8, 16_384][rng.usize(..2)])
        .transaction_connections([1, 3, 64][rng.usize(..3)])
        .write_time_limit(TIME_LIMIT)
        .clock(Arc::clone(&clock) as _);
    let db = options.open(path)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()?;
    db.write(|tx| tx.execute_batch(LISTS)).wait()?;
    let shared = Shared {
        db,
        clock,
        ticks: AtomicU64::new(1),
        started: AtomicU64::new(0),
        failing: [4, 10, 50][rng.usize(..3)],
        interactive: AtomicU64::new(0),
        history: Mutex::default(),
        complaints: Mutex::default(),
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (shared, rng) = (&shared, rng.fork());
            scope.spawn(move || shared.client(number, length / CLIENTS + 1, rng));
        }
    });
    let unchanged = shared.db.stats().transactions_unchanged;
    shared.db.close()?;
    let shared = Shared { db: Database::open(path)?, ..shared };
    shared.read_all()?;
    shared.db.close()?;
    let history = shared.history.into_inner().unwrap_or_else(PoisonError::into_inner);
    let complaints = shared.complaints.into_inner().unwrap_or_else(PoisonError::into_inner);
    let interactive = shared.interactive.into_inner();
    Ok((Case { interactive, unchanged, ..judge(&history, complaints) }, history))
}

fn judge(history: &[Transaction], complaints: Vec<String>) -> Case {
    let anomalies = check(history);
    let lost = anomalies.iter().filter(|it| it.kind == Kind::LostAppend).count();
    let is_ours = |it: &&Transaction| it.fate == Fate::Committed;
    let found = anomalies.iter().map(ToString::to_string);
    let all: Vec<String> = complaints.into_iter().chain(found).collect();
    Case {
        checked: history.len() as u64,
        acknowledged: history.iter().filter(is_ours).count() as u64,
        lost: lost as u64,
        wrong: (!all.is_empty()).then(|| all.join("\n")),
        ..Case::default()
    }
}

impl Shared {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, begin: u64, fate: Fate, steps: Vec<Step>) {
        let transaction = Transaction { begin, end: self.tick(), fate, steps };
        locked(&self.history).push(transaction);
    }

    fn complain(&self, complaint: String) {
        locked(&self.complaints).push(complaint);
    }

    fn client(&self, number: u64, mut left: u64, mut rng: Rng) {
        let mut value = number << 40;
        while left > 0 {
            let burst = rng.usize(1..=BURST);
            let mut flying = Vec::new();
            for _ in 0..burst {
                left = left.saturating_sub(1);
                match rng.u8(..8) {
                    0..2 => self.read(&mut rng),
                    2..4 => self.interact(&mut value, &mut rng),
                    _ => flying.extend(self.submit(&mut value, &mut rng)),
                }
            }
            flying.into_iter().for_each(|it| self.land(it));
        }
    }

    fn key(&self, rng: &mut Rng) -> u64 {
        self.started.load(Ordering::Relaxed) / PACE + rng.u64(..WINDOW)
    }

    fn intend(&self, value: &mut u64, rng: &mut Rng) -> Intent {
        self.started.fetch_add(1, Ordering::Relaxed);
        let steps = (0..rng.u8(1..5)).map(|_| {
            let key = self.key(rng);
            *value += 1;
            let append = Step::Append { key, value: *value };
            if rng.bool() { append } else { Step::Read { key, list: Vec::new() } }
        });
        steps.collect()
    }

    /// An interactive transaction, from its begin to its end.
    fn interact(&self, value: &mut u64, rng: &mut Rng) {
        let (intent, pace, begin) = (self.intend(value, rng), Pace::random(rng), self.tick());
        if rng.u8(..20) == 0 {
            return self.leave(begin, intent, pace, rng);
        }
        let gives_up = rng.u32(..self.failing) == 0;
        let outcome = self.db.with_error().transact_blocking(|tx| {
            let saw = perform(&Interactive::new(tx, pace.clone()), &intent)?;
            if gives_up { Err(Stopped::OnPurpose) } else { Ok(saw) }
        });
        match outcome {
            Ok(saw) => {
                self.interactive.fetch_add(1, Ordering::Relaxed);
                self.note(begin, Fate::Committed, saw);
            }
            Err(Stopped::OnPurpose) => self.note(begin, Fate::Failed, intent),
            Err(Stopped::Engine(error)) => {
                // Its snapshot stood in the way of the WAL, or its turn was over.
                if error.kind() != ErrorKind::Timeout {
                    self.complain(format!("interactive: {error}"));
                }
                self.note(begin, Fate::Failed, intent);
            }
        }
    }

    /// Commits an interactive transaction and does not listen, or leaves it open and goes.
    fn leave(&self, begin: u64, intent: Intent, pace: Pace, rng: &mut Rng) {
        let begun = self.db.transaction().map_err(Stopped::from);
        let ran = begun.and_then(|tx| {
            perform(&Interactive::new(&tx, pace), &intent)?;
            Ok(tx)
        });
        match ran {
            Ok(tx) if rng.bool() => {
                drop(tx.commit());
                self.note(begin, Fate::Unknown, intent);
            }
            _ => self.note(begin, Fate::Failed, intent),
        }
    }

    fn submit(&self, value: &mut u64, rng: &mut Rng) -> Option<Flying> {
        let intent = self.intend(value, rng);
        let ending = Ending::random(self.failing, rng);
        let begin = self.tick();
        let (mine, clock) = (intent.clone(), Arc::clone(&self.clock));
        let body = move |tx: &Tx<'_>| {
            let saw = perform(tx, &mine)?;
            ending.act(tx, &clock)?;
            Ok::<_, Stopped>(saw)
        };
        let db = self.db.with_error();
        let handle = match rng.u8(..10) {
            0 => db.write_once(body),
            1 => match db.try_write(body) {
                Ok(handle) => handle,
                // The queue is full, and nothing was done.
                Err(_) => return None,
            },
            _ => db.write(body),
        };
        if rng.u8(..20) == 0 {
            drop(handle);
            let fate = if ending.commits() { Fate::Unknown } else { Fate::Failed };
            self.note(begin, fate, intent);
            return None;
        }
        Some(Flying { begin, ending, intent, handle })
    }

    fn land(&self, Flying { begin, ending, intent, handle }: Flying) {
        match catch_unwind(AssertUnwindSafe(|| handle.wait())) {
            Ok(Ok(saw)) => {
                if !ending.commits() {
                    self.complain(format!("{ending:?} was acknowledged"));
                }
                self.note(begin, Fate::Committed, saw);
            }
            outcome => {
                if ending.commits() {
                    self.complain(format!("{ending:?}: {:?}", outcome.map_err(|_| "a panic")));
                }
                self.note(begin, Fate::Failed, intent);
            }
        }
    }

    fn read(&self, rng: &mut Rng) {
        self.started.fetch_add(1, Ordering::Relaxed);
        let keys: Vec<u64> = (0..rng.u8(1..4)).map(|_| self.key(rng)).collect();
        let intent: Intent =
            keys.into_iter().map(|key| Step::Read { key, list: Vec::new() }).collect();
        let begin = self.tick();
        let body = move |tx: &Tx<'_>| perform(tx, &intent);
        let db = self.db.with_error();
        let outcome = match rng.u8(..6) {
            0 => db.read_durable(body).wait(),
            1 => block_on(db.read(body)),
            _ => db.read(body).wait(),
        };
        match outcome {
            Ok(saw) => self.note(begin, Fate::Committed, saw),
            Err(Stopped::Engine(error)) if error.kind() == ErrorKind::Timeout => {}
            Err(error) => self.complain(format!("a read: {error:?}")),
        }
    }

    /// Reads every list, after everything else has ended.
    fn read_all(&self) -> Result<()> {
        let lists = self.started.load(Ordering::SeqCst) / PACE + WINDOW;
        let mut first = 0;
        while first <= lists {
            let keys = first..first + LAST_READ;
            let intent: Intent = keys.map(|key| Step::Read { key, list: Vec::new() }).collect();
            let begin = self.tick();
            let read = self.db.with_error().read(|tx| perform(tx, &intent)).wait();
            let saw = read.map_err(|error| anyhow::anyhow!("the last read: {error:?}"))?;
            self.note(begin, Fate::Committed, saw);
            first += LAST_READ;
        }
        Ok(())
    }
}

/// Runs the steps of a transaction, and tells what they read.
fn perform(tx: &impl Sql, intent: &[Step]) -> Result<Vec<Step>, Stopped> {
    let mut saw = Vec::with_capacity(intent.len());
    for step in intent {
        saw.push(match step {
            Step::Append { key, value } => {
                let (is_text, key) = (is_text(*key), key.cast_signed());
                if is_text {
                    let sql = "INSERT INTO list VALUES (?1, ?2) \
                               ON CONFLICT (key) DO UPDATE SET body = body || ' ' || excluded.body";
                    tx.change(sql, &[&key, &value.to_string()])?;
                } else {
                    let sql = "INSERT INTO element \
                               SELECT ?1, COALESCE(MAX(at), 0) + 1, ?2 FROM element WHERE key = ?1";
                    tx.change(sql, &[&key, &value.cast_signed()])?;
                }
                step.clone()
            }
            Step::Read { key, .. } => Step::Read { key: *key, list: read_list(tx, *key)? },
        });
    }
    Ok(saw)
}

fn is_text(key: u64) -> bool {
    !key.is_multiple_of(2)
}

fn read_list(tx: &impl Sql, key: u64) -> Result<Vec<u64>, Error> {
    if is_text(key) {
        let body = tx.text("SELECT body FROM list WHERE key = ?1", key.cast_signed())?;
        let words = body.as_deref().unwrap_or_default().split_ascii_whitespace();
        // What is no number was appended by nobody.
        return Ok(words.map(|word| word.parse().unwrap_or(u64::MAX)).collect());
    }
    let query = "SELECT value FROM element WHERE key = ?1 ORDER BY at";
    let values = tx.rows(query, &[key.cast_signed()])?;
    Ok(values.into_iter().map(i64::cast_unsigned).collect())
}

/// What the checker says of free-running clients on an engine that does not compare what its
/// interactive transactions saw.
pub(super) fn without_validation(
    path: &Path,
    length: u64,
    rng: &mut Rng,
) -> Result<BTreeSet<Kind>> {
    let (_, history) = run_with(Options::new().without_validation(), path, length, rng)?;
    Ok(check(&history).iter().map(|it| it.kind).collect())
}
