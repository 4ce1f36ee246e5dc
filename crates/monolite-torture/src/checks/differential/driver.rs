//! Owns the client: it does what a history says, one thing after another, on the engine, and has
//! the oracle judge each answer.
//!
//! # Algorithm
//! 1. A closure is submitted and waited for; members of a batch are submitted while the writer is
//!    held up by a closure that waits for a channel. Then each is judged, in the order of the
//!    commits, which is that of the submissions.
//! 2. The statements of an interactive transaction are answered at once and remembered. They are
//!    judged when it ends: a committed one at the place of its commit; one that was refused or
//!    rolled back at the present state, or else in each state that it may have seen
//!    ([`Oracle::explain`], at the end of the history).
//! 3. A conflict is judged, too: the same answers on the present state, or no commit since the
//!    first statement, make it a needless one.

pub(super) mod verdict;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use anyhow::Result;
use monolite::rusqlite::Connection;
use monolite::rusqlite::types::Value;
use monolite::{Database, Error, ErrorKind, ReadTx, Transaction, Tx};
use monolite_sqlite::{GivenRowids, inserted_into};
use monolite_testkit::blocking::locked;
use serde::{Deserialize, Serialize};

use super::answer::Said;
use super::asking::{ask_closure, ask_interactive, ask_read};
use super::difference::{Difference, Stop};
use super::dump::{difference, dump, dump_plain};
use super::oracle::{Claim, Flaw, Oracle};
use super::record::{Call, Ending, Op, Setup, Step, Write};

/// The most interactive transactions that are open at once.
pub(super) const SLOTS: usize = 6;

/// What a closure returns that gives up: its own error, not the engine's.
const GAVE_UP: &str = "the closure gives up";

/// What a planned panic says.
const PANICKED: &str = "a planned panic";

/// What a history came to, for the notes of the check.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) statements: u64,
    pub(super) committed: u64,
    pub(super) interactive: u64,
    pub(super) conflicts: u64,
    pub(super) moved: u64,
}

/// What an interactive transaction has asked, and was told.
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    pub(super) told: Vec<Said>,
    /// How many commits there were before its first statement.
    pub(super) first: usize,
}

/// How a transaction that was submitted has ended.
pub(super) enum Ended {
    Committed { is_repeated: bool, outcome: Vec<u8> },
    GaveUp,
    Panicked,
    Refused(Error),
}

/// What a closure was told, and the numbers that its rows were given.
type Told = (Said, Option<GivenRowids>);

/// Waits for a transaction that was submitted.
type Pending = Box<dyn FnOnce() -> (Answered, Ended)>;

/// A transaction that has been answered.
pub(super) enum Answered {
    Write { write: Write, told: Vec<Said> },
    Commit { left: Steps, key: Option<String> },
}

pub(super) struct Driver {
    pub(super) setup: Setup,
    path: PathBuf,
    db: Option<Database>,
    pub(super) oracle: Oracle,
    pub(super) flaw: Flaw,
    slots: [Option<(Transaction, Steps)>; SLOTS],
    pub(super) keys: BTreeMap<String, Vec<u8>>,
    /// The numbers that the open database has given out ahead, for each table.
    given: BTreeMap<String, Vec<GivenRowids>>,
    /// Whether a table may have been dropped since there was no open transaction.
    drops_a_table: bool,
    pub(super) claims: Vec<Claim>,
    /// The read before, under [`Flaw::LateReads`].
    late_read: Option<(Vec<Step>, Vec<Said>)>,
    /// The number of the operation under way.
    pub(super) op: usize,
    pub(super) counts: Counts,
}

impl Driver {
    /// Opens a new database at `path`, or in memory.
    pub(super) fn open(setup: Setup, flaw: Flaw, path: &Path) -> Result<Driver> {
        let mut driver = Driver {
            setup,
            path: path.to_owned(),
            db: None,
            oracle: Oracle::open(flaw, setup.renews_oracle, &path.with_extension("oracle"))?,
            flaw,
            slots: Default::default(),
            keys: BTreeMap::new(),
            given: BTreeMap::new(),
            drops_a_table: false,
            claims: Vec::new(),
            late_read: None,
            op: 0,
            counts: Counts::default(),
        };
        driver.db = Some(driver.open_engine()?);
        Ok(driver)
    }

    fn open_engine(&self) -> Result<Database, Error> {
        let options = self.setup.options();
        let options =
            if self.flaw == Flaw::NoValidation { options.without_validation() } else { options };
        if self.setup.is_in_memory { options.open(":memory:") } else { options.open(&self.path) }
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("the database is open between two operations")
    }

    /// Which slots hold a transaction.
    pub(super) fn open_slots(&self) -> [bool; SLOTS] {
        std::array::from_fn(|slot| self.slots[slot].is_some())
    }

    /// Does one operation.
    pub(super) fn carry_out(&mut self, op: &Op) -> Result<(), Stop> {
        self.counts.statements += op.statements();
        match op {
            Op::Write(_) | Op::Commit { .. } => {
                if let Some(pending) = self.submit(op)? {
                    self.settle(pending)?;
                }
            }
            Op::Batch(members) => self.batch(members)?,
            Op::Read { is_durable, steps } => self.read(*is_durable, steps)?,
            Op::Step { slot, step } => self.step(*slot, step)?,
            Op::Rollback { slot } => self.roll_back(*slot)?,
            Op::Transact { .. } => self.transact(op)?,
            Op::Rest { ms } => std::thread::sleep(Duration::from_millis(*ms)),
            Op::Reopen => self.reopen()?,
            Op::Compare => self.compare()?,
        }
        self.drops_a_table |= op.drops_a_table();
        if self.drops_a_table && self.open_slots() == [false; SLOTS] {
            // Ids of a table that was dropped begin anew.
            self.given.clear();
            self.drops_a_table = false;
        }
        self.op += 1;
        Ok(())
    }

    /// Hands a write over, or the commit of a transaction if its slot holds one.
    fn submit(&mut self, op: &Op) -> Result<Option<Pending>, Stop> {
        match op {
            Op::Write(write) => self.submit_write(write).map(Some),
            Op::Commit { slot, key } => Ok(self.submit_commit(*slot, key.as_deref())),
            _ => panic!("neither a write nor a commit: {op:?}"),
        }
    }

    fn submit_write(&self, write: &Write) -> Result<Pending, Stop> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (own, answers) = (write.clone(), Arc::clone(&told));
        let body = move |tx: &Tx<'_>| run_closure(tx, &own, &answers);
        let handle = match write.call {
            Call::Write => self.db().write(body),
            Call::Once => self.db().write_once(body),
            Call::Try => match self.db().try_write(body) {
                Ok(handle) => handle,
                Err(error) => return Err(Difference::engine("try_write", &error).into()),
            },
        };
        let mut write = write.clone();
        Ok(Box::new(move || {
            let ended = match catch_unwind(AssertUnwindSafe(|| handle.wait())) {
                Ok(Ok(())) => Ended::Committed { is_repeated: false, outcome: Vec::new() },
                Ok(Err(error)) if is_gave_up(&error) => Ended::GaveUp,
                Ok(Err(error)) => Ended::Refused(error),
                Err(payload) if payload.downcast_ref() == Some(&PANICKED) => Ended::Panicked,
                Err(payload) => resume_unwind(payload),
            };
            let told = std::mem::take(&mut *locked(&told));
            let (told, given): (Vec<Said>, Vec<_>) = told.into_iter().unzip();
            for (step, given) in write.steps.iter_mut().zip(given) {
                step.given = given;
            }
            (Answered::Write { write, told }, ended)
        }))
    }

    fn batch(&mut self, members: &[Op]) -> Result<(), Stop> {
        let (release, gate) = mpsc::channel::<()>();
        let hold = self.db().write(move |_| {
            // An error says that the gate was opened.
            let _ = gate.recv();
            Ok::<_, Error>(())
        });
        let mut pending = Vec::new();
        for member in members {
            pending.extend(self.submit(member)?);
        }
        drop(release);
        hold.wait().map_err(|error| Difference::engine("a write that holds a batch", &error))?;
        let mut waited: Vec<_> = pending.into_iter().map(|wait| wait()).collect();
        if self.flaw == Flaw::SwappedCommits && waited.len() > 1 {
            waited.swap(0, 1);
        }
        waited.into_iter().try_for_each(|(left, ended)| verdict::settle(self, left, ended))
    }

    fn submit_commit(&mut self, slot: usize, key: Option<&str>) -> Option<Pending> {
        let (tx, left) = self.slots[slot].take()?;
        let handle = match key {
            None => tx.commit(),
            Some(key) => tx.commit_once(key, outcome_of(key, &left.steps)),
        };
        let key = key.map(str::to_owned);
        Some(Box::new(move || {
            let ended = match handle.wait() {
                Ok(done) => {
                    let outcome = done.outcome().to_vec();
                    Ended::Committed { is_repeated: done.is_repeated(), outcome }
                }
                Err(error) => Ended::Refused(error),
            };
            (Answered::Commit { left, key }, ended)
        }))
    }

    fn settle(&mut self, pending: Pending) -> Result<(), Stop> {
        let (left, ended) = pending();
        verdict::settle(self, left, ended)
    }

    fn read(&mut self, is_durable: bool, steps: &[Step]) -> Result<(), Stop> {
        let mut told = Vec::new();
        let body = |tx: &ReadTx<'_>| {
            for step in steps {
                told.push(Said::of(&step.sql, &ask_read(tx, step)));
            }
            Ok::<_, Error>(())
        };
        let read = match is_durable {
            true => self.db().read_durable(body).wait(),
            false => self.db().read(body).wait(),
        };
        if let Err(error) = read {
            if error.kind() == ErrorKind::Timeout {
                // It may be too much for the judge, too, and then the history has none.
                let _ = verdict::judge_read(self, steps, &told);
            }
            return Err(Difference::engine("read", &error).into());
        }
        if self.flaw == Flaw::LateReads {
            let late = self.late_read.replace((steps.to_vec(), told));
            let Some((steps, told)) = late else { return Ok(()) };
            return verdict::judge_read(self, &steps, &told);
        }
        verdict::judge_read(self, steps, &told)
    }

    fn step(&mut self, slot: usize, step: &Step) -> Result<(), Stop> {
        let version = self.oracle.version();
        if self.slots[slot].is_none() {
            let tx = self.db().transaction();
            let tx = tx.map_err(|error| Difference::engine("transaction", &error))?;
            self.slots[slot] = Some((tx, Steps::since(version)));
        }
        let Some((tx, left)) = &mut self.slots[slot] else { return Ok(()) };
        let said = Said::of(&step.sql, &ask_interactive(tx, step));
        let is_conflict = said.failed == Some(ErrorKind::Conflict);
        let is_over = said.is_fatal();
        let step = numbered(step, tx, is_over);
        left.told.push(said);
        left.steps.push(step.clone());
        self.note_given(&step)?;
        if is_over && let Some((tx, left)) = self.slots[slot].take() {
            drop(tx);
            return if is_conflict {
                verdict::judge_conflict(self, left, "a statement")
            } else {
                verdict::judge_end(self, left)
            };
        }
        Ok(())
    }

    /// Notes the numbers that the rows of a step were given. None may be given twice while the
    /// database is open and the table is there, whatever becomes of the transaction.
    fn note_given(&mut self, step: &Step) -> Result<(), Stop> {
        let Some((given, table)) = step.given.zip(inserted_into(&step.sql)) else { return Ok(()) };
        let all = self.given.entry(table).or_default();
        let is_in = |it: &&GivenRowids| it.first() <= given.last() && given.first() <= it.last();
        if let Some(before) = all.iter().find(is_in) {
            let ours = format!("{given:?} behind {before:?}: {}", step.sql);
            return Err(Difference::new("an id", ours, "one of its own").into());
        }
        all.push(given);
        Ok(())
    }

    fn roll_back(&mut self, slot: usize) -> Result<(), Stop> {
        let Some((tx, left)) = self.slots[slot].take() else { return Ok(()) };
        tx.rollback();
        verdict::judge_end(self, left)
    }

    fn transact(&mut self, op: &Op) -> Result<(), Stop> {
        let Op::Transact { steps, ending, meanwhile } = op else { return Ok(()) };
        let db = self.db().clone();
        let attempts = self.setup.attempts;
        let mut stopped = None;
        let mut left: Option<Steps> = None;
        let mut body = |tx: &Transaction| -> Result<(), Error> {
            if let Some(before) = left.take() {
                self.counts.conflicts += 1;
                stopped = verdict::judge_conflict(self, before, "an attempt").err();
            }
            if stopped.is_some() {
                return Err(Error::aborted(GAVE_UP));
            }
            let mut attempt = Steps::since(self.oracle.version());
            let mut failure = None;
            for (at, step) in steps.iter().enumerate() {
                let answer = ask_interactive(tx, step);
                let said = Said::of(&step.sql, &answer);
                let is_over = said.is_fatal();
                attempt.steps.push(numbered(step, tx, is_over));
                let noted = attempt.steps.last().map_or(Ok(()), |step| self.note_given(step));
                stopped = stopped.take().or(noted.err());
                attempt.told.push(said);
                if is_over {
                    failure = answer.err();
                    break;
                }
                let other = meanwhile.as_ref().filter(|it| it.behind == at);
                if let Some(other) = other.filter(|it| tx.attempt() <= it.attempts.min(attempts)) {
                    let pending = self.submit_write(&other.write);
                    stopped = pending.and_then(|it| self.settle(it)).err();
                }
            }
            left = Some(attempt);
            match (failure, ending) {
                (Some(error), _) => Err(error),
                (None, Ending::Commits) if stopped.is_none() => Ok(()),
                _ => Err(Error::aborted(GAVE_UP)),
            }
        };
        let result = db.transact(|tx| std::future::ready(body(&tx))).wait();
        if let Some(stop) = stopped {
            return Err(stop);
        }
        let Some(left) = left else {
            let message = "no attempt, although there may be many";
            return Err(Difference::new("transact", message, "an attempt").into());
        };
        match result {
            Ok(()) => {
                let ended = Ended::Committed { is_repeated: false, outcome: Vec::new() };
                verdict::settle_commit(self, left, None, ended)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                verdict::judge_conflict(self, left, "the last attempt")
            }
            Err(error) if is_gave_up(&error) => verdict::judge_end(self, left),
            Err(error) => verdict::settle_commit(self, left, None, Ended::Refused(error)),
        }
    }

    fn reopen(&mut self) -> Result<(), Stop> {
        (0..SLOTS).try_for_each(|slot| self.roll_back(slot))?;
        if self.setup.is_in_memory {
            return Ok(());
        }
        self.close()?;
        self.given.clear();
        let db = self.open_engine().map_err(|error| Difference::engine("open", &error))?;
        self.db = Some(db);
        Ok(())
    }

    /// Closes the database, and compares what is in the file.
    fn close(&mut self) -> Result<(), Stop> {
        if let Some(db) = self.db.take() {
            self.counts.moved += db.stats().transactions_resumed;
            db.close().map_err(|error| Difference::engine("close", &error))?;
        }
        if self.setup.is_in_memory {
            return Ok(());
        }
        let file = Connection::open(&self.path).map_err(anyhow::Error::from)?;
        let ours = dump_plain(&file).map_err(anyhow::Error::from)?;
        self.agree("the file", &ours)
    }

    fn compare(&mut self) -> Result<(), Stop> {
        let ours = self.db().read(|tx| dump(|sql| tx.prepare(sql))).wait();
        let ours = ours.map_err(|error| Difference::engine("a dump", &error))?;
        self.agree("the content", &ours)
    }

    fn agree(&self, what: &'static str, ours: &[(String, String)]) -> Result<(), Stop> {
        let theirs = self.oracle.dump().map_err(anyhow::Error::from)?;
        match difference(ours, &theirs) {
            None => Ok(()),
            Some((part, ours, theirs)) => {
                let mut difference = Difference::new(what, ours, theirs);
                difference.subject = part;
                Err(difference.into())
            }
        }
    }

    /// The random number that the engine had for each of the steps, where it had to do with it.
    pub(super) fn drawn(&self, steps: &[Step]) -> Result<Vec<Option<Value>>, Stop> {
        let mut drawn =
            vec![None; if steps.iter().any(|it| it.random.is_some()) { steps.len() } else { 0 }];
        for (value, step) in drawn.iter_mut().zip(steps) {
            let Some(random) = &step.random else { continue };
            let look = |tx: &ReadTx<'_>| verdict::look(tx, random, &step.parameters);
            *value =
                self.db().read(look).wait().map_err(|error| Difference::engine("read", &error))?;
        }
        Ok(drawn)
    }

    /// Ends everything: what is still open is rolled back, contents are compared, and what could
    /// not be judged at once is.
    pub(super) fn finish(mut self) -> Result<Counts, Stop> {
        let left = (0..SLOTS).try_for_each(|slot| self.roll_back(slot));
        if self.oracle.has_given_up() {
            return Ok(self.counts);
        }
        left?;
        self.compare()?;
        self.close()?;
        let claims = std::mem::take(&mut self.claims);
        let unexplained = self.oracle.explain(claims, &self.path.with_extension("past"))?;
        if let Some(claim) = unexplained {
            self.op = claim.op;
            return Err(verdict::unexplained(&claim).into());
        }
        Ok(self.counts)
    }
}

impl Steps {
    fn since(first: usize) -> Steps {
        Steps { steps: Vec::new(), told: Vec::new(), first }
    }
}

/// A step that an interactive transaction has asked, with the numbers that its rows were given.
fn numbered(step: &Step, tx: &Transaction, is_over: bool) -> Step {
    let given = if is_over { None } else { tx.given_rowids() };
    Step { given, ..step.clone() }
}

fn is_gave_up(error: &Error) -> bool {
    error.kind() == ErrorKind::Aborted && error.to_string() == GAVE_UP
}

fn run_closure(tx: &Tx<'_>, write: &Write, answers: &Mutex<Vec<Told>>) -> Result<(), Error> {
    let mut told = Vec::with_capacity(write.steps.len());
    let mut gives_up = write.ending == Ending::Fails;
    for step in &write.steps {
        let said = Said::of(&step.sql, &ask_closure(tx, step));
        let has_failed = said.failed.is_some();
        told.push((said, tx.given_rowids()));
        if has_failed && !step.is_handled {
            gives_up = true;
            break;
        }
    }
    *locked(answers) = told;
    if gives_up {
        return Err(Error::aborted(GAVE_UP));
    }
    if write.ending == Ending::Panics {
        // Not by `panic!`, which would be told on the terminal.
        resume_unwind(Box::new(PANICKED));
    }
    Ok(())
}

/// What is stored with a key: different for each transaction.
pub(super) fn outcome_of(key: &str, steps: &[Step]) -> Vec<u8> {
    format!("{key}: {} steps, {}", steps.len(), steps.first().map_or("", |step| &step.sql)).into()
}
