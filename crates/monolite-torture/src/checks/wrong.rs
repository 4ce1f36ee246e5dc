//! What a check finds wrong with a file after the fact, booked into its outcome, and the files kept
//! for whoever looks into it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{Finding, Outcome};

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Something acknowledged is gone.
    Lost(String),
    /// A transaction is there in part.
    Partial(String),
    /// Any other broken promise.
    Other(String),
}

impl Wrong {
    /// Counts it and remembers it.
    pub(super) fn book(self, outcome: &mut Outcome, evidence: Option<PathBuf>, reproduce: String) {
        let (count, what) = match self {
            Wrong::Lost(what) => (&mut outcome.lost, what),
            Wrong::Partial(what) => (&mut outcome.partial, what),
            Wrong::Other(what) => (&mut outcome.anomalies, what),
        };
        *count += 1;
        outcome.found(Finding { what, evidence, reproduce });
    }
}

/// Copies the files of a directory into the directory of evidence, named after the part of the
/// check they come from, with what is known of their history.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn keep(from: &Path, evidence: &Path, part: &str, history: &str) -> Result<()> {
    for entry in std::fs::read_dir(from).context("cannot read the scratch directory")? {
        let entry = entry.context("cannot read the scratch directory")?;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let kept = evidence.join(format!("{part}-{}", entry.file_name().display()));
            std::fs::copy(entry.path(), kept).context("cannot keep the evidence")?;
        }
    }
    let kept = evidence.join(format!("{part}-history.txt"));
    std::fs::write(kept, history).context("cannot keep the evidence")
}
