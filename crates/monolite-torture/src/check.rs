//! What a check is, what it is given, and how it says how far it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use monolite_testkit::child::{Program, Roles};
use monolite_testkit::random;

use crate::outcome::Outcome;

/// One way to hurt the engine. It is a file in `checks`, and a line of [`CHECKS`](crate::CHECKS).
#[derive(Debug)]
pub struct Check {
    /// Its name, which is also that of its option on the command line.
    pub name: &'static str,
    /// What it does, for the help of the command line. N is its amount.
    pub about: &'static str,
    /// What its amount counts.
    pub unit: &'static str,
    /// How its amount is said.
    pub amount: Amount,
    /// The amount of a run in which no check is named: all of them together take some 15 minutes on
    /// 2 cores.
    pub modest: u64,
    /// How many units it does when it is given this amount.
    pub(crate) total: fn(u64) -> u64,
    /// Does it, and runs the known-bad arrangements that it must notice.
    pub(crate) run: fn(&Setting<'_>, u64) -> Result<Outcome>,
    /// What its children do.
    pub(crate) roles: Roles<'static>,
}

/// How the amount of a check is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Not at all: it has one.
    None,
    /// As a number that is at least one.
    Number,
    /// As a number that may be zero, for there are cases beside these; or not at all, which is the
    /// modest one.
    NumberIfSaid,
    /// As a time.
    Time,
    /// As a time, or not at all, which is the modest one.
    TimeIfSaid,
}

impl Check {
    /// What has come of it when nothing has been tried yet.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome { check: self.name.into(), unit: self.unit.into(), ..Outcome::default() }
    }
}

/// What a long run tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// A check begins that will do `total` units of work.
    Begins {
        /// The check.
        check: &'static Check,
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

/// What a check is given.
pub struct Setting<'a> {
    pub(crate) check: &'static Check,
    pub(crate) seed: u64,
    pub(crate) scratch: PathBuf,
    pub(crate) evidence: &'a Path,
    /// How children are started.
    pub program: &'a Program,
    /// How it says how far it is.
    pub watch: Watch<'a>,
}

impl Setting<'_> {
    /// One for a test, whose directories are removed behind it.
    #[cfg(test)]
    pub(crate) fn with<R>(
        check: &'static Check,
        seed: u64,
        program: &Program,
        test: impl FnOnce(&Setting<'_>) -> R,
    ) -> R {
        let directory = tempfile::tempdir().unwrap();
        let scratch = directory.path().join("scratch");
        std::fs::create_dir_all(&scratch).unwrap();
        test(&Setting {
            check,
            seed,
            scratch,
            evidence: &directory.path().join("evidence"),
            program,
            watch: Watch { tell: &|_| {}, stop: &AtomicBool::new(false) },
        })
    }

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
        let directory = self.evidence.join(format!("{}-{case_seed}", self.check.name));
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(directory)
    }

    /// The one command that repeats `amount` cases from the case with this seed.
    pub fn reproduce(&self, amount: u64, case_seed: u64) -> String {
        let name = self.check.name;
        match self.check.amount {
            Amount::None => format!("monolite torture --{name} --seed {case_seed}"),
            _ => format!("monolite torture --{name} {amount} --seed {case_seed}"),
        }
    }
}
