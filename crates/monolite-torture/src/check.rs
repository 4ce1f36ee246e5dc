//! What a check is given, and how it says how far it is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use monolite_testkit::child::Program;
use monolite_testkit::random;

use crate::Check;

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

/// What a check is given.
pub struct Setting<'a> {
    pub(crate) check: Check,
    pub(crate) seed: u64,
    pub(crate) scratch: PathBuf,
    pub(crate) evidence: &'a Path,
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
