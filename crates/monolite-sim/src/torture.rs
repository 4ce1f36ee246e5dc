//! The checks behind `monolite torture`: each hurts the engine in one way, many times, and counts
//! what came of it.
//!
//! # Algorithm
//! 1. A [`Check`] is run on its own scratch directory with a number of cases. Each case draws from
//!    its own seed ([`Setting::case_seed`]), so that it can be repeated alone.
//! 2. What a check finds goes into its [`Outcome`]: counts, findings with kept evidence and the
//!    command that repeats them, and its negative controls: known-bad arrangements that it must
//!    notice, each time it runs.
//! 3. The [`Verdict`] over all outcomes is "kept" only when nothing was lost, partial or wrong and
//!    every control was noticed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::child::{Program, Roles};
use crate::random;

mod outcome;

mod allocations;
mod closures;
mod cuts;
mod differential;
mod environment;
mod flips;
mod history;
mod hostile;
mod images;
mod kills;
mod overload;
mod soak;
mod survivors;
mod sweeps;

mod writing;
mod wrong;

#[cfg(test)]
mod tests;

pub use outcome::{Control, Finding, Outcome, Verdict};

/// The roles that children of a torturing program play, for [`crate::child::play`].
pub const ROLES: Roles<'static> = &[
    environment::ROLES[0],
    environment::ROLES[1],
    environment::ROLES[2],
    environment::ROLES[3],
    environment::ROLES[4],
    flips::ROLES[0],
    overload::ROLES[0],
    overload::ROLES[1],
    (soak::ROLE, soak::play),
    (writing::ROLE, writing::play),
    (allocations::ROLE, allocations::play),
    hostile::ROLES[0],
    hostile::ROLES[1],
    (closures::ROLE, closures::play),
    (differential::ROLE, differential::serve),
];

/// One way to hurt the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Statements of every form, compared with plain SQLite.
    Differential,
    /// `SIGKILL` at random moments under batch load.
    Kills,
    /// Real power cuts of real file systems; needs root.
    Cuts,
    /// Crash images from a journal of unsynced writes.
    Images,
    /// An I/O error at every I/O of a scenario, once and for good.
    Sweeps,
    /// Random transactions of all kinds with faults on, replayed in a serial model.
    History,
    /// Flipped bits in the database and the WAL.
    Flips,
    /// SQL from somebody who means harm.
    Hostile,
    /// Closures that block, nest, panic, close, sleep and are given up.
    Closures,
    /// More load than the machine can take, in limited memory.
    Overload,
    /// What else a machine does: full disks, lost files, failing syncs, jumping clocks.
    Environment,
    /// Everything at once for a long time.
    Soak,
}

impl Check {
    /// All of them, in the order in which they are run: short and telling ones first.
    pub const ALL: [Check; 12] = [
        Check::Images,
        Check::Environment,
        Check::Sweeps,
        Check::History,
        Check::Closures,
        Check::Hostile,
        Check::Differential,
        Check::Flips,
        Check::Kills,
        Check::Cuts,
        Check::Overload,
        Check::Soak,
    ];

    /// Its name, which is also that of its option on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Check::Differential => "differential",
            Check::Kills => "kills",
            Check::Cuts => "cuts",
            Check::Images => "images",
            Check::Sweeps => "sweeps",
            Check::History => "history",
            Check::Flips => "flips",
            Check::Hostile => "hostile",
            Check::Closures => "closures",
            Check::Overload => "overload",
            Check::Environment => "environment",
            Check::Soak => "soak",
        }
    }

    /// What its amount counts.
    pub fn unit(self) -> &'static str {
        match self {
            Check::Differential => "statements",
            Check::Kills => "SIGKILLs",
            Check::Cuts => "power cuts",
            Check::Images => "crash images",
            Check::Sweeps => "scenarios",
            Check::History => "transactions",
            Check::Flips => "bit flips",
            Check::Hostile => "cases",
            Check::Closures => "rounds",
            Check::Environment => "cases",
            Check::Overload | Check::Soak => "seconds",
        }
    }

    /// How many units it does when it is given this amount.
    fn total(self, amount: u64) -> u64 {
        match self {
            Check::Hostile => hostile::total(amount),
            Check::Environment => environment::total(),
            _ => amount,
        }
    }

    fn run(self, setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
        match self {
            Check::Differential => differential::run(setting, amount),
            Check::Kills => kills::run(setting, amount),
            Check::Cuts => cuts::run(setting, amount),
            Check::Images => images::run(setting, amount),
            Check::Sweeps => sweeps::run(setting, amount),
            Check::History => history::run(setting, amount),
            Check::Flips => flips::run(setting, amount),
            Check::Hostile => hostile::run(setting, amount),
            Check::Closures => closures::run(setting, amount),
            Check::Overload => overload::run(setting, amount),
            Check::Environment => environment::run(setting),
            Check::Soak => soak::run(setting, amount),
        }
    }
}

/// What a long run tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A check begins that will do `total` units of work.
    Begins {
        /// The check.
        check: Check,
        /// How much it will do.
        total: u64,
    },
    /// So many more units of the running check are done.
    Done(u64),
    /// Something the user should read in passing.
    Note(&'a str),
}

/// How a run says how far it is, and how it is told to stop.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Is told of every event.
    pub tell: &'a (dyn Fn(Event<'_>) + Sync),
    /// Set when the user wants the run to end; what was found until then is reported.
    pub stop: &'a AtomicBool,
}

impl Watch<'_> {
    /// So many more units of the running check are done.
    pub fn done(&self, units: u64) {
        (self.tell)(Event::Done(units));
    }

    /// Something the user should read in passing.
    pub fn note(&self, text: &str) {
        (self.tell)(Event::Note(text));
    }

    /// Whether the run should end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directory on the disk under test; scratch files are made in it and removed.
    pub dir: PathBuf,
    /// Where evidence of failures is kept.
    pub evidence: PathBuf,
    /// The run's seed.
    pub seed: u64,
    /// The checks to run, each with its amount in its [`Check::unit`].
    pub checks: Vec<(Check, u64)>,
    /// How children are started.
    pub program: Program,
}

/// What a check is given.
pub struct Setting<'a> {
    check: Check,
    seed: u64,
    scratch: PathBuf,
    evidence: &'a Path,
    /// How children are started.
    pub program: &'a Program,
    /// How it says how far it is.
    pub watch: Watch<'a>,
}

impl Setting<'_> {
    /// An empty directory of this check's own on the disk under test.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The seed of a case; the first case's is the run's own.
    pub fn case_seed(&self, number: u64) -> u64 {
        random::case_seed(self.seed, number)
    }

    /// A new directory in which the evidence of a failure in the case with this seed is kept.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn evidence(&self, case_seed: u64) -> Result<PathBuf> {
        let directory = self.evidence.join(format!("{}-{case_seed}", self.check.name()));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }

    /// The one command that repeats `amount` cases from the case with this seed.
    pub fn reproduce(&self, amount: u64, case_seed: u64) -> String {
        let name = self.check.name();
        match self.check {
            Check::Environment => format!("monolite torture --{name} --seed {case_seed}"),
            _ => format!("monolite torture --{name} {amount} --seed {case_seed}"),
        }
    }
}

/// Runs what a finding has kept once more: a history of the differential check, or a schedule.
///
/// # Errors
/// When there is neither at `path`, or a database cannot be created.
pub fn replay(path: &Path) -> Result<Outcome> {
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    match differential::replay(path)? {
        Some(outcome) => Ok(outcome),
        None => history::replay(path),
    }
}

/// The page of what can happen to a database and what comes of it, which the environment check
/// tries.
pub fn accidents_page() -> String {
    environment::accidents_page()
}

/// The version of SQLite that is under test.
pub fn sqlite_version() -> &'static str {
    monolite::rusqlite::version()
}

/// Runs the checks of `plan` one after another, and returns what came of each.
///
/// A check that could not do its work (not: one that found something) is reported as failed by its
/// error, and the others are run all the same.
///
/// # Errors
/// When the directory to test is not there or cannot be written to, or SQLite is too old.
pub fn run(plan: &Plan, watch: Watch<'_>) -> Result<Vec<Outcome>> {
    // Controls open SQLite without the engine. If one were first, the engine would lack its page
    // cache, and validate every interactive transaction by running all of it again.
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    if !plan.dir.is_dir() {
        bail!("{} is no directory; create it on the disk to test", plan.dir.display());
    }
    let mut outcomes = Vec::new();
    for (check, amount) in &plan.checks {
        if watch.is_stopped() {
            break;
        }
        (watch.tell)(Event::Begins { check: *check, total: check.total(*amount) });
        let scratch = tempfile::Builder::new()
            .prefix(&format!("torture-{}-", check.name()))
            .tempdir_in(&plan.dir)
            .with_context(|| format!("cannot create a directory in {}", plan.dir.display()))?;
        let setting = Setting {
            check: *check,
            seed: plan.seed,
            scratch: scratch.path().to_owned(),
            evidence: &plan.evidence,
            program: &plan.program,
            watch,
        };
        let start = Instant::now();
        let mut outcome = check.run(&setting, *amount).unwrap_or_else(|error| {
            let mut outcome = Outcome::new(*check);
            outcome.found(Finding {
                what: format!("the check itself failed: {error:#}"),
                evidence: None,
                reproduce: setting.reproduce(*amount, plan.seed),
            });
            outcome
        });
        outcome.seconds = start.elapsed().as_secs_f64();
        if let Some(why) = outcome.why_broken() {
            watch.note(&format!("{}: broken: {why}", check.name()));
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
