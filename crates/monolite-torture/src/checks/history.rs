//! The history check: random transactions of all kinds, with everything going wrong that can, must
//! give the results of a serial order.
//!
//! # Algorithm
//! The amount is spent on cases, each drawn from its own seed, of two kinds:
//! - **Schedules** ([`monolite_testkit::schedule`]): one submitting thread, composed batches, I/O
//!   errors, power cuts and reopenings on a simulated disk. One that fails is made smaller and
//!   kept, and can be replayed exactly.
//! - **Loads** ([`monolite_testkit::load`]): free-running clients on the disk under test. Judged by
//!   the serial model.
//!
//! In schedules and loads some steps call functions of the application
//! ([`monolite_testkit::functions`]), and one that cannot be repeated has to be refused.
//!
//! Each case has a database of its own, and its history is forgotten when it was judged, so memory
//! does not grow with the amount.
//!
//! The controls (module `controls`) run first, each time.

mod controls;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::{Durability, InteractiveOptions, Options, Sharing};
use monolite_testkit::checkers::serial::{self, Record};
use monolite_testkit::functions::Promise;
use monolite_testkit::load::{Load, Played, play};
use monolite_testkit::schedule::{Ending, Engine, Mix, Ran, Schedule, count_lost, execute, shrink};
use monolite_testkit::storage::remove;
use serde::Serialize;

use crate::{Amount, Check, Finding, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "history",
    about: "Check N transactions against a serial model, with faults on",
    unit: "transactions",
    amount: Amount::Number,
    modest: 200_000,
    total: |amount| amount,
    run,
    roles: &[],
};

/// Transactions of a case that runs a schedule: enough to fill a few dozen batches.
const SCHEDULE_LENGTH: u64 = 400;
/// Transactions of a case with free-running clients: about a second, some 20 MB of history.
const FREE_LENGTH: u64 = 20_000;
/// The same where each batch holds two transactions and waits for its own sync.
const NARROW_LENGTH: u64 = 1_500;
/// The same where clients pause between their statements.
const INTERACTIVE_LENGTH: u64 = 10_000;
/// How often a failing schedule is run again to make it smaller.
const SHRINK_TRIES: usize = 400;
/// Failing schedules that are made smaller; of a broken engine nearly all fail, of the same cause.
const SHRUNK: usize = 2;
/// Findings after which the check ends.
const ENOUGH: usize = 20;

/// What one case came to.
#[derive(Debug, Default)]
struct Case {
    checked: u64,
    acknowledged: u64,
    /// Interactive transactions that were committed.
    interactive: u64,
    /// Those of a load whose reads were not run again, since no page of them had changed.
    unchanged: u64,
    lost: u64,
    wrong: Option<String>,
    kept: Option<Kept>,
}

/// Evidence of a case that went wrong.
#[derive(Debug)]
struct Kept {
    directory: PathBuf,
    reproduce: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Schedule,
    Load,
    NarrowLoad,
    /// A load that is mostly interactive transactions.
    Interactive,
}

impl Shape {
    #[cfg(test)]
    const ALL: [Shape; 4] = [Shape::Schedule, Shape::Load, Shape::NarrowLoad, Shape::Interactive];

    /// Cases of a schedule are short and therefore many: about a tenth of the amount.
    fn draw(rng: &mut Rng) -> Shape {
        match rng.u32(..300) {
            0..22 => Shape::Load,
            22..28 => Shape::NarrowLoad,
            28..50 => Shape::Interactive,
            _ => Shape::Schedule,
        }
    }

    fn length(self) -> u64 {
        match self {
            Shape::Schedule => SCHEDULE_LENGTH,
            Shape::Load => FREE_LENGTH,
            Shape::NarrowLoad => NARROW_LENGTH,
            Shape::Interactive => INTERACTIVE_LENGTH,
        }
    }
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    controls::run(setting, &mut outcome)?;
    let (mut counts, mut interactive, mut unchanged) = ([0; 4], 0, 0);
    for number in 0.. {
        let left = amount.saturating_sub(outcome.attempted);
        if left == 0 || setting.watch.is_stopped() || outcome.findings.len() >= ENOUGH {
            break;
        }
        let seed = setting.case_seed(number);
        let mut rng = Rng::with_seed(seed);
        let shape = Shape::draw(&mut rng);
        let tries = if outcome.findings.len() < SHRUNK { SHRINK_TRIES } else { 0 };
        let case = shape.run(setting, shape.length().min(left), seed, tries, &mut rng)?;
        counts[shape as usize] += case.checked;
        interactive += case.interactive;
        unchanged += case.unchanged;
        setting.watch.done(case.checked.min(left));
        enter(&mut outcome, case);
    }
    let [schedules, loads, narrow, paused] = counts;
    outcome.notes.push(format!(
        "{schedules} transactions in replayable schedules with I/O errors and power cuts, \
         {} with free-running clients; {interactive} committed ones were interactive, and \
         {unchanged} replayed their writes alone",
        loads + narrow + paused
    ));
    Ok(outcome)
}

fn enter(outcome: &mut Outcome, case: Case) {
    outcome.attempted += case.checked;
    outcome.acknowledged += case.acknowledged;
    outcome.lost += case.lost;
    if let (Some(what), Some(kept)) = (case.wrong, case.kept) {
        outcome.anomalies += u64::from(case.lost == 0);
        let (evidence, reproduce) = (Some(kept.directory), kept.reproduce);
        outcome.found(Finding { what, evidence, reproduce });
    }
}

/// Runs a schedule again that a finding has kept, on a new database beside the system's temporary
/// files.
///
/// # Errors
/// When there is no schedule at `path`, or a database cannot be created.
pub(crate) fn replay(path: &Path) -> Result<Outcome> {
    let schedule = Schedule::load(path)?;
    let scratch = tempfile::tempdir().context("cannot create a directory")?;
    let ran = execute(&schedule, &mut Engine::new(scratch.path(), &schedule)?);
    let mut outcome = CHECK.outcome();
    let directory = path.parent().unwrap_or(path).to_owned();
    let reproduce = format!("monolite torture --replay {}", path.display());
    let case = Case::of(ran, Kept { directory, reproduce });
    enter(&mut outcome, case);
    Ok(outcome)
}

impl Case {
    fn of(ran: Ran, kept: Kept) -> Case {
        let Ran { checked, acknowledged, interactive, lost, wrong } = ran;
        let kept = Some(kept);
        Case { checked, acknowledged, interactive, lost, wrong, kept, ..Case::default() }
    }
}

impl Shape {
    fn run(
        self,
        setting: &Setting<'_>,
        length: u64,
        seed: u64,
        shrink_tries: usize,
        rng: &mut Rng,
    ) -> Result<Case> {
        match self {
            Shape::Schedule => {
                let seed = rng.u64(..);
                run_schedule(setting, length, seed, [0, 3, 10][rng.usize(..3)], shrink_tries)
            }
            Shape::Load | Shape::NarrowLoad | Shape::Interactive => {
                let load = random_load(self, length, rng);
                let path = setting.scratch().join("load.db");
                let played = play(&load, &path)?;
                remove(&path)?;
                let case = judge_load(&played);
                keep(setting, case, seed, &played.history)
            }
        }
    }
}

fn run_schedule(
    setting: &Setting<'_>,
    length: u64,
    seed: u64,
    interactive: u32,
    tries: usize,
) -> Result<Case> {
    let mix = Mix {
        length: usize::try_from(length)?,
        failing: if seed.is_multiple_of(3) { 20 } else { 5 },
        endings: &Ending::FAILING,
        is_stormy: true,
        interactive,
    };
    let schedule = Schedule::random(seed, &mix);
    let run = |schedule: &Schedule| -> Result<Ran> {
        Ok(execute(schedule, &mut Engine::new(setting.scratch(), schedule)?))
    };
    let ran = run(&schedule)?;
    let Some(what) = &ran.wrong else {
        return Ok(Case {
            checked: ran.checked,
            acknowledged: ran.acknowledged,
            interactive: ran.interactive,
            ..Case::default()
        });
    };
    if tries > 0 {
        setting.watch.note("a schedule went wrong; making it smaller");
    }
    let small = shrink(&schedule, tries, |candidate| {
        !setting.watch.is_stopped() && run(candidate).is_ok_and(|ran| ran.wrong.is_some())
    });
    let directory = setting.evidence(seed)?;
    schedule.save(&directory.join("whole.jsonl"))?;
    let path = directory.join("schedule.jsonl");
    small.save(&path)?;
    std::fs::write(directory.join("what.txt"), what)?;
    let reproduce = format!("monolite torture --replay {}", path.display());
    Ok(Case::of(ran, Kept { directory, reproduce }))
}

fn random_load(shape: Shape, length: u64, rng: &mut Rng) -> Load {
    let (queue, max_batch, clients) = match shape {
        Shape::NarrowLoad => (3, 2, 6),
        Shape::Interactive => (4_096, 10_000, 16),
        _ => [(16_384, 10_000, 8), (4_096, 500, 12), (64, 40, 16)][rng.usize(..3)],
    };
    let durability = if rng.u8(..6) == 0 { Durability::Buffered } else { Durability::Synced };
    let sharing = if rng.u8(..6) == 0 { Sharing::Shared } else { Sharing::Exclusive };
    // The smallest WAL there may be, so that it restarts while clients are at work.
    let options = Options::new()
        .queue_capacity(queue)
        .max_batch(max_batch)
        .durability(durability)
        .sharing(sharing)
        .wal_limit_bytes(8 << 20)
        .interactive(
            InteractiveOptions::default()
                .connections([1, 3, 64][rng.usize(..3)])
                .attempts([1, 3, 10][rng.usize(..3)]),
        );
    // A client reads once or twice for a dozen writes.
    let writes = usize::try_from(length).unwrap_or(usize::MAX) * 8 / 9 / clients;
    Load {
        seed: rng.u64(..),
        clients,
        writes: writes.max(1),
        failing: [4, 10, 50][rng.usize(..3)],
        dropped: [0, 10, 50][rng.usize(..3)],
        interactive: if shape == Shape::Interactive { 99 } else { [0, 20, 70][rng.usize(..3)] },
        long_readers: rng.usize(..3),
        options,
        promise: Promise::Kept,
    }
}

/// Judges a load by the serial model.
fn judge_load(played: &Played) -> Case {
    let judged = serial::check(&played.history, &played.end);
    let complaint = played.complaints.first().cloned();
    let wrong = complaint.or(judged.err());
    let wrote = played.history.iter().filter(|it| matches!(it, Record::Wrote { .. })).count();
    Case {
        checked: played.history.len() as u64,
        acknowledged: wrote as u64,
        interactive: played.interactive + played.interactive_reads,
        unchanged: played.stats.transactions_unchanged,
        lost: count_lost(&played.history, &played.end),
        wrong,
        kept: None,
    }
}

/// Keeps the history of a case that went wrong.
fn keep<R: Serialize + Debug>(
    setting: &Setting<'_>,
    mut case: Case,
    seed: u64,
    history: &[R],
) -> Result<Case> {
    let Some(what) = &case.wrong else { return Ok(case) };
    let directory = setting.evidence(seed)?;
    std::fs::write(directory.join("what.txt"), what)?;
    let mut out = BufWriter::new(File::create(directory.join("history.jsonl"))?);
    for record in history {
        serde_json::to_writer(&mut out, record)?;
        out.write_all(b"\n")?;
    }
    out.flush()?;
    case.kept = Some(Kept { directory, reproduce: setting.reproduce(FREE_LENGTH, seed) });
    Ok(case)
}
