//! Exhaustive sweeps: an error at every I/O call of a scenario, once and for good, in every way in
//! which that call can fail.
//!
//! # Algorithm
//! 1. A scenario (`scenario`) is played (`stage`) with an error at call 1, at call 2, and so on,
//!    until a play ends without reaching the call. A call that writes is played again with a full
//!    disk and with a short write; every play is repeated with a fault that stays.
//! 2. After each play the real files are opened, and what a power cut leaves of three moments:
//!    right before the call, at the end of the program, after closing. What was acknowledged before
//!    is there, what was refused is not, and nothing is there in part.
//! 3. A play that does not end is a finding, and ends the sweep of its scenario.
//!
//! # Not here
//! That an SQLite with the WAL-reset bug is refused: `monolite-sqlite` tests that at its gate.

mod scenario;
mod stage;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::{Database, Options};
use monolite_testkit::blocking::locked;
use monolite_testkit::random;
use monolite_testkit::scratch::in_memory;
use monolite_testkit::storage::{Disk, Fault, Image, Left, Operation, Plan, RealSyncs, Times};

use super::lanes::side_by_side;
use super::survivors::{compare, create, examine, perform};
use super::wrong::Wrong;
use crate::{Amount, Check, Finding, Outcome, Setting};
use scenario::{ALL, Scenario, Start};
use stage::{Played, play};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "sweeps",
    about: "Fail every single I/O of N scenarios, once and for good",
    unit: "scenarios",
    amount: Amount::Number,
    modest: 12,
    total: |amount| amount,
    run,
    roles: &[],
};

/// Scenarios that are swept at the same time.
const WORKERS: u64 = 2;

/// A play takes milliseconds; one that takes this long does not end.
const PATIENCE: Duration = Duration::from_secs(60);

/// More calls than any scenario has: an engine that goes on for ever is a finding.
const MAX_CALLS: u64 = 20_000;

/// Wrong plays after which a scenario is not swept further.
const MAX_WRONG: usize = 3;

/// One in so many real files is opened by Monolite before it is examined.
const OPENED_BY_US: u64 = 4;

/// What came of the sweep of one scenario.
#[derive(Default)]
struct Swept {
    plays: u64,
    calls: u64,
    acknowledged: u64,
    wrong: Vec<Seen>,
    /// A play did not end and still uses the files.
    hangs: bool,
    /// It was stopped before its end.
    stopped: bool,
}

/// Something wrong and how it came about.
struct Seen {
    /// None when nothing had been made to fail.
    plan: Option<Plan>,
    wrong: Wrong,
    image: Option<Image>,
    calls: Vec<String>,
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let directory = in_memory(setting.scratch())?;
    let outcome = Mutex::new(CHECK.outcome());
    let plays = AtomicU64::new(0);
    let is_stopped = || setting.watch.is_stopped();
    side_by_side(WORKERS, amount, |number| {
        if is_stopped() {
            return Ok(());
        }
        let seed = setting.case_seed(number);
        let scenario = choose(amount, number, seed);
        let swept = with_engine_errors(sweep(&scenario, seed, directory.path(), &is_stopped))?;
        plays.fetch_add(swept.plays, Ordering::SeqCst);
        note(setting, &mut locked(&outcome), &scenario, seed, swept)?;
        setting.watch.done(1);
        Ok(())
    })?;
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.notes.push(format!("{} plays with a fault", plays.load(Ordering::SeqCst)));
    control(setting, &mut outcome, directory.path())?;
    Ok(outcome)
}

/// An engine that fails before anything was made to fail is a finding, and no failure of the sweep.
fn with_engine_errors(swept: Result<Swept>) -> Result<Swept> {
    match swept {
        Err(error) if error.is::<monolite::Error>() => {
            let wrong = Wrong::Other(format!("{error:#}"));
            let seen = Seen { plan: None, wrong, image: None, calls: Vec::new() };
            Ok(Swept { wrong: vec![seen], ..Swept::default() })
        }
        swept => swept,
    }
}

fn told(plan: Option<Plan>) -> String {
    plan.map_or_else(|| "without a fault".into(), |plan| plan.to_string())
}

/// The scenarios in their order; a run of one plays the scenario that its seed names, so that a
/// finding can be repeated alone.
fn choose(amount: u64, number: u64, seed: u64) -> Scenario {
    let place = if amount == 1 { seed } else { number };
    ALL[(place % ALL.len() as u64) as usize]
}

/// The seed with which a run of one plays `scenario`.
fn seed_of(scenario: &Scenario) -> u64 {
    ALL.iter().position(|other| other.name == scenario.name).unwrap_or(0) as u64
}

fn note(
    setting: &Setting<'_>,
    outcome: &mut Outcome,
    scenario: &Scenario,
    seed: u64,
    swept: Swept,
) -> Result<()> {
    outcome.attempted += u64::from(!swept.stopped);
    outcome.acknowledged += swept.acknowledged;
    for (number, Seen { plan, wrong, image, calls }) in swept.wrong.into_iter().enumerate() {
        wrong.count(outcome);
        let what = format!("{}: {}: {wrong}", scenario.name, told(plan));
        let evidence = setting.evidence(seed)?;
        if let Some(image) = image {
            image.write_to(&evidence.join(format!("image-{number}.db")))?;
        }
        let text = format!("{what}\n\ncalls:\n{}\n", calls.join("\n"));
        std::fs::write(evidence.join(format!("sweep-{number}.txt")), text)?;
        let reproduce = setting.reproduce(1, seed_of(scenario));
        outcome.found(Finding { what, evidence: Some(evidence), reproduce });
    }
    Ok(())
}

/// An engine that does not look at the result of its syncs must be seen to lose.
fn control(setting: &Setting<'_>, outcome: &mut Outcome, directory: &Path) -> Result<()> {
    let faults = |_: Operation| -> &'static [Fault] { &[] };
    let swept = sweep_with(&ALL[0], 0, directory, Fault::Unreported, faults, &|| {
        setting.watch.is_stopped()
    })?;
    let lost = swept.wrong.iter().find(|seen| matches!(seen.wrong, Wrong::Lost(..)));
    if lost.is_none() && swept.stopped {
        return Ok(());
    }
    let how = match lost {
        Some(seen) => format!("{}: {}", told(seen.plan), seen.wrong),
        None => format!("nothing in {} plays", swept.plays),
    };
    outcome.control("an engine that ignores a failed sync", lost.is_some(), how);
    Ok(())
}

fn sweep(
    scenario: &Scenario,
    seed: u64,
    directory: &Path,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Swept> {
    let others = |operation| &Fault::of(operation)[1..];
    sweep_with(scenario, seed, directory, Fault::Error, others, is_stopped)
}

/// Sweeps with `first` at each call, and with each of `others` where the call fits.
fn sweep_with(
    scenario: &Scenario,
    seed: u64,
    directory: &Path,
    first: Fault,
    others: impl Fn(Operation) -> &'static [Fault],
    is_stopped: &dyn Fn() -> bool,
) -> Result<Swept> {
    let scratch = tempfile::tempdir_in(directory).context("no scratch directory")?;
    let path = scratch.path().join("db");
    let before = prepare(scenario.start, &path, seed)?;
    let mut swept = Swept::default();
    for at in 1..=MAX_CALLS {
        let plan = |fault, times| Plan { at, fault, times };
        let case = Case { scenario, before: &before, path: &path, seed };
        let Some(operation) = case.play(plan(first, Times::Once), &mut swept)? else { break };
        swept.calls = at;
        case.play(plan(first, Times::FromThenOn), &mut swept)?;
        for fault in others(operation) {
            case.play(plan(*fault, Times::Once), &mut swept)?;
            case.play(plan(*fault, Times::FromThenOn), &mut swept)?;
        }
        swept.stopped = is_stopped();
        if swept.wrong.len() >= MAX_WRONG || swept.stopped {
            break;
        }
    }
    Ok(swept)
}

/// What is there before each play.
fn prepare(start: Start, path: &Path, seed: u64) -> Result<Image> {
    if start == Start::Fresh {
        return Ok(Image::default());
    }
    let pragma = match start {
        Start::LargePages => "PRAGMA page_size = 65536",
        Start::AutoVacuum => "PRAGMA auto_vacuum = FULL",
        _ => "",
    };
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    let plain = monolite::rusqlite::Connection::open(path)?;
    plain.execute_batch(&format!("{pragma}; CREATE TABLE first(a); DROP TABLE first"))?;
    drop(plain);
    let disk = Disk::holding(path, RealSyncs::Skipped)?;
    let db = disk.under(Options::new().readers(1)).open(path)?;
    db.write(create).wait()?;
    for id in 8_001..8_004 {
        db.write(move |tx| perform(tx, id, &[1; 500])).wait()?;
    }
    let crash = disk.capture();
    db.close()?;
    let mut rng = Rng::with_seed(seed);
    Ok(match start {
        Start::Killed => crash.image(Left::Everything, &mut rng),
        Start::Cut => crash.image(Left::Prefix, &mut rng),
        _ => Image::read_from(path)?,
    })
}

/// One scenario over one set of files.
struct Case<'a> {
    scenario: &'a Scenario,
    before: &'a Image,
    path: &'a PathBuf,
    seed: u64,
}

impl Case<'_> {
    /// Plays it with a fault and examines what is left; what the call was, if it was reached.
    fn play(&self, plan: Plan, swept: &mut Swept) -> Result<Option<Operation>> {
        if swept.hangs {
            return Ok(None);
        }
        self.before.write_to(self.path)?;
        let disk = Disk::with(self.before.clone(), RealSyncs::Skipped);
        disk.record();
        let (sender, receiver) = channel();
        let (scenario, path, its_disk) = (*self.scenario, self.path.clone(), disk.clone());
        let player = thread::spawn(move || {
            let played = play(scenario, path, its_disk, Some(plan));
            let _ = sender.send(played);
        });
        swept.plays += 1;
        let mut see = |wrong, image| {
            let calls = disk.recorded();
            swept.wrong.push(Seen { plan: Some(plan), wrong, image, calls });
        };
        let played = match receiver.recv_timeout(PATIENCE) {
            Ok(played) => played,
            Err(RecvTimeoutError::Timeout) => {
                see(Wrong::Other(format!("it did not end within {PATIENCE:?}")), None);
                swept.hangs = true;
                return Ok(None);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _ = player.join();
                see(Wrong::Other("it panicked".into()), None);
                return Ok(Some(Operation::Open));
            }
        };
        for complaint in &played.ledger.complaints {
            see(Wrong::Other(complaint.clone()), None);
        }
        let real = Image::read_from(self.path)?;
        if let Err(wrong) = self.examine_real_files(&played, plan) {
            see(wrong, Some(real));
        }
        let mut rng = Rng::with_seed(random::case_seed(self.seed, plan.at));
        for moment in &played.moments {
            for left in moment.lefts(&mut rng) {
                let image = moment.crash.image(left, &mut rng);
                image.write_to(self.path)?;
                let found =
                    examine(self.path).and_then(|found| check(&found, &moment.durable, &played));
                if let Err(wrong) = found {
                    let text = format!("power cut {:?}, {left:?} left: {wrong}", moment.when);
                    see(wrong.with(text), Some(image));
                }
            }
        }
        swept.acknowledged += played.ledger.acknowledged.len() as u64;
        Ok(played.hit)
    }

    fn examine_real_files(&self, played: &Played, plan: Plan) -> Result<(), Wrong> {
        if plan.at.is_multiple_of(OPENED_BY_US) {
            let options = Options::new().readers(1);
            let closed = options.open(self.path).and_then(|db: Database| db.close());
            closed.map_err(|error| Wrong::Other(format!("it cannot be opened again: {error}")))?;
        }
        let found = examine(self.path)?;
        check(&found, &played.ledger.acknowledged, played)
    }
}

/// What was acknowledged is there, what was there before, too, and what was refused is not.
fn check(
    found: &std::collections::BTreeSet<i64>,
    must: &std::collections::BTreeSet<i64>,
    played: &Played,
) -> Result<(), Wrong> {
    compare(found, must)?;
    match played.ledger.refused.iter().find(|id| found.contains(id)) {
        None => Ok(()),
        Some(id) => {
            let text = format!("transaction {id} was said to have changed nothing and is there");
            Err(Wrong::Partial(text))
        }
    }
}
