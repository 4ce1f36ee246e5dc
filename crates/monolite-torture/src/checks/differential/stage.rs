//! Owns the child in which histories are run: one that ends the process, or hangs, is a finding and
//! not the end of the check.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use monolite_testkit::child::{Child, Heard, Program};
use monolite_testkit::scratch::in_memory;
use tempfile::TempDir;

use super::cases::{Job, RAN, ROLE, Ran, What};
use super::difference::{Class, Difference};
use super::driver::Counts;
use super::oracle::Flaw;
use super::record::History;

/// How long a history may take. Most take a hundredth of a second, those with rests a second, and
/// the one whose triggers cost most, of 90,000, 22 s of a core.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child, and where its databases are: in memory, if the system has such a place.
#[derive(Debug)]
pub(super) struct Stage<'p> {
    program: &'p Program,
    directory: TempDir,
    child: Option<Child>,
    patience: Duration,
}

impl<'p> Stage<'p> {
    /// # Errors
    /// When no directory can be made.
    pub(super) fn new(program: &'p Program) -> Result<Stage<'p>> {
        Stage::with_patience(program, PATIENCE)
    }

    /// One that takes a history for a hang after this time.
    ///
    /// # Errors
    /// When no directory can be made.
    pub(super) fn with_patience(program: &'p Program, patience: Duration) -> Result<Stage<'p>> {
        Ok(Stage { program, directory: directory()?, child: None, patience })
    }

    /// Runs the history of this seed, of so many statements at most.
    ///
    /// # Errors
    /// When the check itself cannot go on.
    pub(super) fn draw(&mut self, seed: u64, most: u64, is_calm: bool, flaw: Flaw) -> Result<Ran> {
        let what = What::Draw { seed, most, is_calm };
        let mut ran = self.run(what.clone(), flaw, None)?;
        if ran.difference.is_some() && ran.history.is_none() {
            // It has ended the child. Once more, with each operation written down.
            let record = self.directory.path().join("record.jsonl");
            let again = self.run(what, flaw, Some(record.clone()))?;
            ran.history = match again.history {
                Some(history) => Some(history),
                None => History::load(&record).ok().flatten(),
            };
        }
        Ok(ran)
    }

    /// Runs a history that was recorded.
    ///
    /// # Errors
    /// When the check itself cannot go on.
    pub(super) fn repeat(&mut self, history: &History, flaw: Flaw) -> Result<Ran> {
        let path = self.directory.path().join("repeat.jsonl");
        history.save(&path)?;
        self.run(What::Repeat(path), flaw, None)
    }

    fn run(&mut self, what: What, flaw: Flaw, record: Option<PathBuf>) -> Result<Ran> {
        let directory = self.directory.path().to_owned();
        let job = serde_json::to_string(&Job { what, flaw, directory, record })?;
        let mut child = match self.child.take() {
            Some(child) => child,
            None => self.program.spawn(ROLE, &[])?,
        };
        child.tell(&job)?;
        loop {
            match child.listen(self.patience) {
                Heard::Line(line) => {
                    if let Some(ran) = line.strip_prefix(RAN) {
                        self.child = Some(child);
                        return serde_json::from_str(ran).context("the child's answer");
                    }
                    if let Some(why) = line.strip_prefix("failed ") {
                        anyhow::bail!("{why}");
                    }
                }
                Heard::Silence => {
                    child.kill()?;
                    let told = format!("nothing for {:?}", self.patience);
                    return Ok(lost(Class::Hang, told, "an answer"));
                }
                Heard::End => {
                    let ended = child.end()?;
                    return Ok(lost(Class::Crash, ended.to_string(), "a process that lives on"));
                }
            }
        }
    }
}

/// Where databases are made.
///
/// # Errors
/// When no directory can be made.
pub(super) fn directory() -> Result<TempDir> {
    in_memory(&std::env::temp_dir()).context("cannot create a directory")
}

fn lost(class: Class, told: String, expected: &str) -> Ran {
    let difference = Difference::new(class, "a process", told, expected);
    Ran { counts: Counts::default(), difference: Some(difference), history: None }
}

/// Runs a history in this process.
///
/// # Errors
/// When there is none at `path`, or the check itself cannot go on.
pub(super) fn run_here(path: &Path) -> Result<Ran> {
    let directory = directory()?;
    let job = Job {
        what: What::Repeat(path.to_owned()),
        flaw: Flaw::None,
        directory: directory.path().to_owned(),
        record: None,
    };
    super::cases::run(&job)
}
