//! What a check finds wrong with a file after the fact, booked into its outcome, and the files kept
//! for whoever looks into it.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{Finding, Outcome};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Acknowledged transactions are gone: how many, and which.
    Lost(u64, String),
    /// A transaction is there in part.
    Partial(String),
    /// Any other broken promise.
    Other(String),
}

impl Wrong {
    /// The same, in other words.
    pub(super) fn with(self, text: String) -> Wrong {
        match self {
            Wrong::Lost(count, _) => Wrong::Lost(count, text),
            Wrong::Partial(_) => Wrong::Partial(text),
            Wrong::Other(_) => Wrong::Other(text),
        }
    }

    /// Counts it.
    pub(super) fn count(&self, outcome: &mut Outcome) {
        match self {
            Wrong::Lost(count, _) => outcome.lost += count,
            Wrong::Partial(_) => outcome.partial += 1,
            Wrong::Other(_) => outcome.anomalies += 1,
        }
    }

    /// Counts it and remembers it.
    pub(super) fn book(self, outcome: &mut Outcome, evidence: Option<PathBuf>, reproduce: String) {
        self.count(outcome);
        outcome.found(Finding { what: self.to_string(), evidence, reproduce });
    }
}

/// Tells what is wrong with the engine from what keeps a check from its work.
///
/// # Errors
/// The latter.
pub(super) fn verdict<T>(tried: Result<T>) -> Result<Result<T, Wrong>> {
    match tried {
        Ok(done) => Ok(Ok(done)),
        Err(error) => error.downcast().map(Err),
    }
}

impl std::error::Error for Wrong {}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Lost(_, text) | Wrong::Partial(text) | Wrong::Other(text) => f.write_str(text),
        }
    }
}

/// Keeps the files of a directory in that of evidence, named after the part of the check they come
/// from, with what is known of their history.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn keep(from: &Path, evidence: &Path, part: &str, history: &str) -> Result<()> {
    keep_files(from, evidence, &format!("{part}-"))?;
    let kept = evidence.join(format!("{part}-history.txt"));
    std::fs::write(kept, history).context("cannot keep the evidence")
}

/// Copies the files of a directory, with this before each name.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn keep_files(from: &Path, evidence: &Path, prefix: &str) -> Result<()> {
    for entry in std::fs::read_dir(from).context("cannot read the scratch directory")? {
        let entry = entry.context("cannot read the scratch directory")?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let kept = evidence.join(format!("{prefix}{}", entry.file_name().display()));
            std::fs::copy(entry.path(), kept).context("cannot keep the evidence")?;
        }
    }
    Ok(())
}
