//! Recorded schedules: everything that clients submit, where batches begin and end, and what goes
//! wrong, as data that can be written down, run again exactly, and made smaller while it still
//! fails.
//!
//! # Format
//! JSON lines: first a header with the schedule's seed and the most transactions of a batch, then
//! one [`Step`] a line.
//!
//! # Not here
//! Free-running threads, whose schedule is the operating system's: [`crate::load`].

mod engine;
mod interactive;
mod naive;
mod plan;
mod run;
mod shrink;
pub mod sql;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::checkers::serial::{Contents, Op, Record};

pub use engine::{Engine, Validation};
pub use interactive::{Interactive, Pace};
pub use naive::{Blindness, Naive};
pub use plan::{Ending, Gave, Half, Plan, Stopped, TIME_LIMIT, Told};
pub use run::{Ran, Subject, count_lost, execute};
pub use shrink::shrink;
pub use sql::SCHEMA;

/// What one client after another asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// What it was made from.
    pub seed: u64,
    /// The engine's option of that name.
    pub max_batch: usize,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// The writer is held up while these are submitted, so that they are taken at once.
    Batch {
        /// In the order in which they are submitted.
        members: Vec<Member>,
        /// What goes wrong meanwhile. The power is cut afterwards.
        fault: Option<IoFault>,
    },
    /// The interactive transaction of that name, which a later batch commits, begins here and runs
    /// the first half of its steps.
    Begin {
        /// The client's name of it.
        id: i64,
    },
    /// A read, after everything before it was answered.
    Read {
        /// What it asks.
        ops: Vec<Op>,
        /// Whether it waits for the disk.
        durable: bool,
    },
    /// The database is closed and opened again.
    Reopen,
    /// The power is cut and comes back. What had not been synced is there or not.
    PowerCut {
        /// Decides what is there.
        seed: u64,
    },
}

/// A transaction as it is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// How it is submitted.
    pub call: Call,
    /// Its handle is dropped at once.
    pub is_dropped: bool,
    /// What it does.
    pub plan: Plan,
}

/// How a transaction is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// By `write`.
    Write,
    /// By `write_once`.
    WriteOnce,
    /// By `try_write`.
    TryWrite,
    /// By `transaction`: its statements have run before the batch, and its commit is a member.
    Interactive,
}

/// Something that goes wrong below the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoFault {
    /// It happens to the call of its kind with this number, counted from the batch's begin, from 1.
    pub number: u64,
    /// To which calls.
    pub kind: IoFaultKind,
    /// Whether it happens to all later ones of its kind, too.
    pub goes_on: bool,
    /// Decides what the power cut afterwards leaves.
    pub seed: u64,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IoFaultKind {
    /// A read reports an I/O error.
    Read,
    /// A write reports an I/O error, and wrote nothing.
    Write,
    /// A write reports an I/O error, and wrote a part.
    ShortWrite,
    /// A write reports a full disk.
    Full,
    /// A sync reports an I/O error.
    Sync,
}

/// What random schedules are made of.
#[derive(Clone, Copy, Debug)]
pub struct Mix<'m> {
    /// Transactions and reads in all, about.
    pub length: usize,
    /// One in this many transactions fails.
    pub failing: u32,
    /// The ways in which they fail.
    pub endings: &'m [Ending],
    /// Whether files fail, handles are dropped, and the database is reopened.
    pub is_stormy: bool,
    /// One in this many transactions is interactive; 0 is none.
    pub interactive: u32,
}

#[derive(Serialize, Deserialize)]
struct Header {
    seed: u64,
    max_batch: usize,
}

impl Schedule {
    /// A random schedule; the same seed gives the same one.
    pub fn random(seed: u64, mix: &Mix<'_>) -> Schedule {
        let mut rng = Rng::with_seed(seed);
        let max_batch = [2, 7, 40, 10_000][rng.usize(..4)];
        let mut schedule = Schedule { seed, max_batch, steps: Vec::new() };
        let (mut left, mut id) = (mix.length, 0);
        while left > 0 {
            let step = match rng.u8(..40) {
                0 if mix.is_stormy => Step::Reopen,
                1 if mix.is_stormy => Step::PowerCut { seed: rng.u64(..) },
                2..20 => {
                    let ops = (0..rng.usize(1..5)).map(|_| Op::random_read(&mut rng)).collect();
                    left -= 1;
                    Step::Read { ops, durable: rng.bool() }
                }
                _ => {
                    let size = rng.usize(1..=left.min(32));
                    left -= size;
                    let members = (0..size).map(|_| Member::random(&mut id, mix, &mut rng));
                    let members: Vec<Member> = members.collect();
                    schedule.begin_early(&members, &mut rng);
                    let has_fault = mix.is_stormy && rng.u8(..12) == 0;
                    Step::Batch { members, fault: has_fault.then(|| IoFault::random(&mut rng)) }
                }
            };
            schedule.steps.push(step);
        }
        schedule
    }

    /// Has half of the interactive members begin some steps earlier.
    fn begin_early(&mut self, members: &[Member], rng: &mut Rng) {
        for member in members.iter().filter(|it| it.call == Call::Interactive) {
            if rng.bool() {
                let at = self.steps.len().saturating_sub(rng.usize(..5));
                self.steps.insert(at, Step::Begin { id: member.plan.id });
            }
        }
    }

    /// What the transaction of that name does.
    fn plan(&self, id: i64) -> Option<&Plan> {
        let batches = self.steps.iter().filter_map(|step| match step {
            Step::Batch { members, .. } => Some(members),
            _ => None,
        });
        batches.flatten().map(|member| &member.plan).find(|plan| plan.id == id)
    }

    /// Writes it to a new file.
    pub fn save(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| format!("cannot create {path:?}"))?;
        let mut out = BufWriter::new(file);
        serde_json::to_writer(&mut out, &Header { seed: self.seed, max_batch: self.max_batch })?;
        for step in &self.steps {
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut out, step)?;
        }
        out.write_all(b"\n")?;
        out.flush().with_context(|| format!("cannot write {path:?}"))
    }

    /// Reads one that was saved.
    pub fn load(path: &Path) -> Result<Schedule> {
        let file = File::open(path).with_context(|| format!("cannot open {path:?}"))?;
        let mut lines = BufReader::new(file).lines();
        let header = lines.next().context("the file is empty")??;
        let no_schedule = || format!("{path:?} is no schedule");
        let Header { seed, max_batch } = serde_json::from_str(&header).with_context(no_schedule)?;
        let steps = lines.map(|line| serde_json::from_str(&line?).with_context(no_schedule));
        Ok(Schedule { seed, max_batch, steps: steps.collect::<Result<_>>()? })
    }
}

impl Member {
    fn random(id: &mut i64, mix: &Mix<'_>, rng: &mut Rng) -> Member {
        *id += 1;
        if mix.interactive > 0 && rng.u32(..mix.interactive) == 0 {
            let plan = Plan::random_interactive(*id, mix.failing, rng);
            let is_dropped = mix.is_stormy && rng.u8(..20) == 0;
            return Member { call: Call::Interactive, is_dropped, plan };
        }
        let mut plan = Plan::random(*id, mix.failing, rng);
        if !plan.ending.commits() {
            plan.ending = mix.endings[rng.usize(..mix.endings.len())];
        } else if !mix.is_stormy {
            plan.ending = Ending::Commits;
        }
        let call = match rng.u8(..10) {
            0 => Call::WriteOnce,
            1 => Call::TryWrite,
            _ => Call::Write,
        };
        Member { call, is_dropped: mix.is_stormy && rng.u8(..20) == 0, plan }
    }
}

impl IoFault {
    fn random(rng: &mut Rng) -> IoFault {
        use IoFaultKind::{Full, Read, ShortWrite, Sync, Write};
        let kind = [Read, Write, Write, ShortWrite, Full, Sync, Sync][rng.usize(..7)];
        let latest = if matches!(kind, Sync | Read) { 3 } else { 12 };
        IoFault { number: rng.u64(1..=latest), kind, goes_on: rng.bool(), seed: rng.u64(..) }
    }
}

/// Looks up what became of writes whose callers were not told, and the numbers of those that did
/// not ask for theirs.
pub(crate) fn find_numbers(history: &mut [Record], end: &Contents) {
    let numbers: HashMap<i64, i64> = end.done().zip(1..).collect();
    for record in history {
        match record {
            Record::Untold { id, number, .. } => *number = numbers.get(id).copied(),
            Record::Wrote { id, number, .. } if *number == Gave::LATER => {
                *number = numbers.get(id).copied().unwrap_or(Gave::LATER);
            }
            _ => {}
        }
    }
}
