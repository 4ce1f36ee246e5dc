//! One play of a scenario on a simulated disk, with one fault, and the ledger of what it was told.
//!
//! # Algorithm
//! Each transaction is entered by what its answer promises: `Ok` must be there from then on, an
//! answer that leaves it open may be there or not, and any other error says that nothing was
//! changed, so it must never be there. The hook takes a crash right before the call that fails.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use monolite::vfs::FileKind;
use monolite::{Database, Durability, Error, ErrorKind, Options, Write};
use monolite_testkit::blocking::locked;
use monolite_testkit::storage::{Call, Crash, Disk, Fault, Left, Operation, Plan};

use super::scenario::{Failing, Scenario, Start, Step};
use crate::checks::survivors::{create, perform, perform_large};

/// A checkpoint that does not come within this time is prevented by the fault.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(15);

/// What was promised.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Acknowledged: there from now on, though the process be killed.
    pub(super) acknowledged: BTreeSet<i64>,
    /// There after a power cut, too.
    pub(super) durable: BTreeSet<i64>,
    /// Said to have changed nothing.
    pub(super) refused: BTreeSet<i64>,
    /// What no answer may be.
    pub(super) complaints: Vec<String>,
}

/// When a crash is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    BeforeTheCall,
    AtTheEnd,
    AfterClosing,
}

/// A crash and what was promised before it.
pub(super) struct Moment {
    pub(super) when: When,
    pub(super) crash: Crash,
    pub(super) durable: BTreeSet<i64>,
}

impl Moment {
    /// What is left in the images that are made of it. Each costs about as much as the play.
    pub(super) fn lefts(&self, rng: &mut Rng) -> Vec<Left> {
        match self.when {
            When::BeforeTheCall => vec![Left::random(rng)],
            When::AtTheEnd => vec![Left::Nothing, Left::random(rng)],
            When::AfterClosing => vec![Left::Nothing],
        }
    }
}

/// What a play left.
pub(super) struct Played {
    pub(super) ledger: Ledger,
    pub(super) moments: Vec<Moment>,
    /// What the call asked for at which the fault was planned; none if there was no such call.
    pub(super) hit: Option<Operation>,
}

struct Shared {
    disk: Disk,
    plan: Option<Plan>,
    ledger: Mutex<Ledger>,
    moments: Mutex<Vec<Moment>>,
    hit: Mutex<Option<Operation>>,
    /// A sync failed that the engine was told about, and it was not opened again since.
    sync_failed: AtomicBool,
    /// What the next checkpoint does before its first page.
    in_checkpoint: Mutex<Option<Database>>,
}

/// A scenario on its way.
pub(super) struct Stage {
    scenario: Scenario,
    path: PathBuf,
    shared: Arc<Shared>,
    db: Option<Database>,
    held: Option<(Sender<()>, JoinHandle<()>)>,
    next: i64,
    /// A statement failed, and those after it may need what it would have made.
    sql_failed: bool,
}

/// The number of the write that a checkpoint commits at its entry.
const INJECTED: i64 = 9_001;

/// Plays `scenario` on the files at `path`, which `disk` holds, with the fault of `plan`.
pub(super) fn play(scenario: Scenario, path: PathBuf, disk: Disk, plan: Option<Plan>) -> Played {
    let shared = Arc::new(Shared {
        disk: disk.clone(),
        plan,
        ledger: Mutex::default(),
        moments: Mutex::default(),
        hit: Mutex::default(),
        sync_failed: AtomicBool::new(false),
        in_checkpoint: Mutex::default(),
    });
    let hook = Arc::clone(&shared);
    disk.set_hook(move |call| hook.before(call));
    let mut stage = Stage {
        scenario,
        path,
        shared: Arc::clone(&shared),
        db: None,
        held: None,
        next: 1,
        sql_failed: false,
    };
    stage.step(Step::Open);
    scenario.steps.iter().for_each(|step| stage.step(*step));
    stage.shared.take(When::AtTheEnd);
    stage.step(Step::ReleaseRead);
    stage.close();
    shared.take(When::AfterClosing);
    disk.clear_hook();
    let ledger = locked(&shared.ledger).clone();
    let (moments, hit) = (std::mem::take(&mut *locked(&shared.moments)), *locked(&shared.hit));
    Played { ledger, moments, hit }
}

impl Shared {
    fn before(&self, call: &Call) -> Option<Fault> {
        if self.plan.is_some_and(|plan| plan.at == call.number) {
            *locked(&self.hit) = Some(call.operation);
            self.take(When::BeforeTheCall);
        }
        self.commit_in_checkpoint(call);
        // The control's fault is about syncs alone.
        let is_for = |fault: &Fault| *fault != Fault::Unreported || call.operation.is_sync();
        let planned = |plan: &Plan| plan.fault != Fault::Unreported || call.operation.is_sync();
        let fault = self.plan.filter(planned).and_then(|plan| plan.decide(call)).filter(is_for);
        let counts = matches!(call.kind, FileKind::Wal | FileKind::Database)
            && matches!(call.operation, Operation::Sync | Operation::SyncWal);
        if counts && fault == Some(Fault::Error) {
            self.sync_failed.store(true, Ordering::SeqCst);
        }
        fault
    }

    /// What must be there is noted before the crash is taken.
    fn take(&self, when: When) {
        let durable = locked(&self.ledger).durable.clone();
        let crash = self.disk.capture();
        locked(&self.moments).push(Moment { when, crash, durable });
    }

    /// The bug of SQLite before 3.51.3: a commit that restarts the WAL while a checkpoint begins.
    fn commit_in_checkpoint(&self, call: &Call) {
        let writes_page = call.operation == Operation::Write && call.kind == FileKind::Database;
        // The writer cannot wait for itself; its own checkpoints admit no commit anyway.
        if !writes_page || thread::current().name() != Some("monolite-checkpoint") {
            return;
        }
        let Some(db) = locked(&self.in_checkpoint).take() else { return };
        let write = db.write(|tx| perform(tx, INJECTED, &[]));
        // This is not the last handle: the stage has one.
        drop(db);
        let had_failed = self.sync_failed.load(Ordering::SeqCst);
        self.enter(INJECTED, write.wait(), had_failed, &[]);
    }

    /// Enters an answer. `had_failed`: a sync had failed before the write was submitted.
    fn enter(&self, id: i64, answer: Result<(), Error>, had_failed: bool, fits: &[ErrorKind]) {
        let mut ledger = locked(&self.ledger);
        match answer {
            Ok(()) => {
                if had_failed {
                    let text = format!("transaction {id} was acknowledged after a failed sync");
                    ledger.complaints.push(text);
                }
                ledger.acknowledged.insert(id);
                ledger.durable.insert(id);
            }
            Err(error) => {
                let kind = error.kind();
                if !matches!(kind, ErrorKind::CommitUnknown | ErrorKind::Poisoned) {
                    ledger.refused.insert(id);
                }
                if !fits.contains(&kind) {
                    ledger.complain(&error);
                }
            }
        }
    }
}

impl Ledger {
    /// Remembers an error of a kind that a fault of the disk does not explain.
    fn complain(&mut self, error: &Error) {
        let is_explained = matches!(
            error.kind(),
            ErrorKind::Storage | ErrorKind::CommitUnknown | ErrorKind::Poisoned | ErrorKind::Closed
        ) && !error.to_string().contains("defect");
        if !is_explained {
            self.complaints.push(format!("no fault of the disk explains this answer: {error:?}"));
        }
    }
}

impl Stage {
    fn step(&mut self, step: Step) {
        match step {
            Step::Put => self.put(|db, id| db.write(move |tx| perform(tx, id, &[]))),
            Step::PutFilled(bytes) => {
                self.put(|db, id| db.write(move |tx| perform(tx, id, &vec![3; bytes])));
            }
            Step::PutLarge(bytes) => {
                self.put(|db, id| db.write(move |tx| perform_large(tx, id, bytes)));
            }
            Step::Once => self.put(|db, id| db.write_once(move |tx| perform(tx, id, &[]))),
            Step::Batch(members, failing) => self.batch(members, failing),
            Step::Forget(members) => {
                for _ in 0..members {
                    let id = self.id();
                    if let Some(db) = &self.db {
                        drop(db.write(move |tx| perform(tx, id, &[])));
                    }
                }
            }
            Step::Sql(sql) => self.sql(sql),
            Step::Read => self.ask(|db| db.read(count).wait()),
            Step::ReadDurable => self.ask(|db| db.read_durable(count).wait()),
            Step::HoldRead => self.hold_read(),
            Step::ReleaseRead => {
                if let Some((release, reader)) = self.held.take() {
                    drop(release);
                    let _ = reader.join();
                }
            }
            Step::AwaitCheckpoint => self.await_checkpoint(),
            Step::CommitInCheckpoint => *locked(&self.shared.in_checkpoint) = self.db.clone(),
            Step::Close => self.close(),
            Step::Open => self.open(),
        }
    }

    fn id(&mut self) -> i64 {
        self.next += 1;
        self.next - 1
    }

    fn open(&mut self) {
        let options = Options::new()
            .readers(1)
            .sharing(self.scenario.sharing)
            .durability(self.scenario.durability)
            .wal_limit_bytes(8 << 20);
        self.shared.sync_failed.store(false, Ordering::SeqCst);
        match self.shared.disk.under(options).open(&self.path) {
            Ok(db) => self.db = Some(db),
            Err(error) => return locked(&self.shared.ledger).complain(&error),
        }
        self.ask(|db| db.write(create).wait());
        // Without its tables the program has nothing to do.
        let has_tables = |db: &Database| db.read(count).wait().is_ok();
        if self.scenario.start == Start::Fresh && !self.db.as_ref().is_some_and(has_tables) {
            self.close();
        }
    }

    fn close(&mut self) {
        *locked(&self.shared.in_checkpoint) = None;
        let Some(db) = self.db.take() else { return };
        let closed = db.close();
        let mut ledger = locked(&self.shared.ledger);
        match closed {
            // The WAL is in the database file, and that is on disk.
            Ok(()) => ledger.durable = ledger.acknowledged.clone(),
            Err(error) => ledger.complain(&error),
        }
    }

    fn put(&mut self, send: impl FnOnce(&Database, i64) -> Write<(), Error>) {
        let id = self.id();
        let Some(db) = &self.db else { return };
        let had_failed = self.shared.sync_failed.load(Ordering::SeqCst);
        self.enter(id, send(db, id).wait(), had_failed, &[]);
    }

    fn enter(&self, id: i64, answer: Result<(), Error>, had_failed: bool, fits: &[ErrorKind]) {
        self.shared.enter(id, answer, had_failed, fits);
        if self.scenario.durability == Durability::Buffered {
            locked(&self.shared.ledger).durable.remove(&id);
        }
    }

    fn ask<T>(&self, ask: impl FnOnce(&Database) -> Result<T, Error>) {
        if let Some(Err(error)) = self.db.as_ref().map(ask) {
            locked(&self.shared.ledger).complain(&error);
        }
    }

    fn sql(&mut self, sql: &'static str) {
        let Some(db) = self.db.as_ref().filter(|_| !self.sql_failed) else { return };
        if let Err(error) = db.write(move |tx| tx.execute_batch(sql)).wait() {
            self.sql_failed = true;
            locked(&self.shared.ledger).complain(&error);
        }
    }

    /// Sends the members while the writer is busy with another one, so that they share a batch.
    fn batch(&mut self, members: u32, failing: Failing) {
        let ids: Vec<i64> = (0..members).map(|_| self.id()).collect();
        let Some(db) = &self.db else { return };
        let had_failed = self.shared.sync_failed.load(Ordering::SeqCst);
        let (open, gate) = channel::<()>();
        let gate = Mutex::new(gate);
        let holding: Write<(), Error> = db.write(move |_| {
            let _ = locked(&gate).recv();
            Ok(())
        });
        let sent: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(place, id)| {
                let is_bad = match failing {
                    Failing::Nobody => false,
                    Failing::EveryOther => place % 2 == 1,
                    _ => place as u32 == members / 2,
                };
                let how = if is_bad { failing } else { Failing::Nobody };
                (*id, how, send(db, *id, how))
            })
            .collect();
        drop(open);
        let _ = holding.wait();
        for (id, how, write) in sent {
            let answer = catch_unwind(AssertUnwindSafe(|| write.wait()));
            let answer = answer.unwrap_or_else(|_| Err(Error::aborted("it panicked")));
            self.enter(id, answer, had_failed, fitting(how));
        }
    }

    fn hold_read(&mut self) {
        let Some(db) = self.db.clone() else { return };
        let (release, released) = channel::<()>();
        let (started, has_started) = channel();
        let reader = thread::spawn(move || {
            let held = db.read(|tx| {
                count(tx)?;
                let _ = started.send(());
                let _ = released.recv();
                Ok::<_, Error>(())
            });
            // It may be revoked or fail; what matters is what the writer makes of it.
            let _ = held.wait();
        });
        let _ = has_started.recv();
        self.held = Some((release, reader));
    }

    fn await_checkpoint(&self) {
        let Some(db) = &self.db else { return };
        let (start, before) = (Instant::now(), db.stats().checkpoints_completed);
        while db.stats().checkpoints_completed == before && start.elapsed() < CHECKPOINT_PATIENCE {
            thread::sleep(Duration::from_micros(300));
        }
    }
}

fn send(db: &Database, id: i64, how: Failing) -> Write<(), Error> {
    match how {
        Failing::OneRunsOnce => db.write_once(move |tx| perform(tx, id, &[])),
        Failing::Nobody => db.write(move |tx| perform(tx, id, &[])),
        _ => db.write(move |tx| {
            perform(tx, id, &[])?;
            match how {
                Failing::EveryOther => tx.execute("INSERT INTO whole VALUES (?1)", [id]).map(drop),
                Failing::OneRollsBack => {
                    tx.execute("INSERT OR ROLLBACK INTO whole VALUES (?1)", [id]).map(drop)
                }
                // Without the hook that prints: it is no news.
                Failing::OnePanics => resume_unwind(Box::new("on purpose")),
                Failing::OneDefers => tx.execute_batch(
                    "CREATE TABLE child(
                         id INTEGER REFERENCES whole(id) DEFERRABLE INITIALLY DEFERRED
                     );
                     INSERT INTO child VALUES (-77)",
                ),
                _ => Err(Error::aborted("on purpose")),
            }
        }),
    }
}

/// How a member that fails in this way may be answered where the disk is well.
fn fitting(how: Failing) -> &'static [ErrorKind] {
    match how {
        Failing::Nobody | Failing::OneRunsOnce => &[],
        Failing::OneAborts | Failing::OnePanics => &[ErrorKind::Aborted],
        Failing::EveryOther | Failing::OneRollsBack | Failing::OneDefers => {
            &[ErrorKind::Constraint]
        }
    }
}

fn count(tx: &monolite::ReadTx<'_>) -> Result<i64, Error> {
    tx.query_row("SELECT n FROM total", (), |row| row.get(0))
}
