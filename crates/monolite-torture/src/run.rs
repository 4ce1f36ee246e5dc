//! A run of checks: what it is asked for, and how it is done.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use monolite_testkit::child::{self, Program};

use crate::check::{Check, Event, Setting, Watch};
use crate::checks::{self, CHECKS};
use crate::outcome::{Finding, Outcome};

#[cfg(test)]
mod tests;

/// Plays the part of a child and does not return, when this program was started as one. Programs
/// that run checks begin with this.
pub fn play_role() {
    let roles: Vec<_> = CHECKS.iter().flat_map(|check| check.roles.iter().copied()).collect();
    child::play(&roles);
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
    pub checks: Vec<(&'static Check, u64)>,
    /// How children are started.
    pub program: Program,
}

/// Runs a schedule once more that a finding has kept.
///
/// # Errors
/// When there is none at `path`, or a database cannot be created.
pub fn replay(path: &Path) -> Result<Outcome> {
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    checks::history::replay(path)
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
    for &(check, amount) in &plan.checks {
        if watch.is_stopped() {
            break;
        }
        (watch.tell)(Event::Begins { check, total: (check.total)(amount) });
        let scratch = tempfile::Builder::new()
            .prefix(&format!("torture-{}-", check.name))
            .tempdir_in(&plan.dir)
            .with_context(|| format!("cannot create a directory in {}", plan.dir.display()))?;
        let setting = Setting {
            check,
            seed: plan.seed,
            scratch: scratch.path().to_owned(),
            evidence: &plan.evidence,
            program: &plan.program,
            watch,
        };
        let start = Instant::now();
        let mut outcome = (check.run)(&setting, amount).unwrap_or_else(|error| {
            let mut outcome = check.outcome();
            outcome.found(Finding {
                what: format!("the check itself failed: {error:#}"),
                evidence: None,
                reproduce: setting.reproduce(amount, plan.seed),
            });
            outcome
        });
        outcome.seconds = start.elapsed().as_secs_f64();
        if let Some(why) = outcome.why_broken() {
            watch.note(&format!("{}: broken: {why}", check.name));
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}
