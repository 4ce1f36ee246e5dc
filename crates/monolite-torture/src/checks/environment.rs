//! What else happens to a database: full disks, syncs that fail in the kernel, files that are
//! deleted or replaced under load, lost locks, other processes, clocks that jump, and every way in
//! which a transaction can fail, at each of its steps.
//!
//! # Algorithm
//! Each [`CASES`] entry runs once in a directory of its own. It says what it saw, what was broken,
//! what could not be tried here, and which control it noticed; the directory of a case that found
//! something is kept as evidence.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::allocations;
use super::writing::{Look, judge};
use super::wrong::Wrong;
use crate::{Amount, Check, Finding, Outcome, Setting};

mod accidents;
mod failed_sync;
mod full_disk;
mod load;
mod neighbours;
mod time;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "environment",
    about: "Try every accident of docs/accidents.md; fill disks, fail syncs and \
            allocations, turn the clock",
    unit: "cases",
    amount: Amount::None,
    modest: 1,
    total: |_| total(),
    run: |setting, _| run(setting),
    roles: &[
        accidents::ROLE,
        ("environment writer", failed_sync::write_until_refused),
        ("environment plain SQLite", neighbours::use_plain_sqlite),
        (allocations::ROLE, allocations::play),
    ],
};

/// Files of a case that found something are kept up to this size.
const KEPT_BYTES: u64 = 64 << 20;

type Run = fn(&mut Case<'_>) -> Result<()>;

const CASES: [(&str, Run); 7] = [
    ("a disk that is full", full_disk::fills_up),
    ("a batch in which one member fills the disk", full_disk::one_member_too_large),
    ("a sync that fails in the kernel", failed_sync::failed_sync),
    ("locks lost by a second descriptor", neighbours::second_descriptor),
    ("a directory that is read-only", full_disk::read_only),
    ("an SQLite that is too old", neighbours::old_sqlite),
    ("a clock that stands still, and one that jumps", time::own_clock),
];

/// One case at work.
pub(super) struct Case<'a> {
    setting: &'a Setting<'a>,
    directory: PathBuf,
    tried: u64,
    acknowledged: u64,
    lost: u64,
    partial: u64,
    broken: Vec<String>,
    skipped: Vec<String>,
    notes: Vec<String>,
    controls: Vec<(&'static str, bool, String)>,
}

impl Case<'_> {
    /// An empty directory of its own.
    fn directory(&self) -> &Path {
        &self.directory
    }

    /// Something that a promise rules out.
    fn broken(&mut self, what: impl Into<String>) {
        self.broken.push(what.into());
    }

    /// Something that must hold.
    fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken(otherwise());
        }
    }

    fn skip(&mut self, reason: impl Into<String>) {
        self.skipped.push(reason.into());
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Compares what is in the file, which nobody has open, with what was acknowledged.
    fn verify(&mut self, path: &Path, acknowledged: &BTreeSet<i64>) {
        self.acknowledged += acknowledged.len() as u64;
        let Err(wrong) = judge(path, acknowledged, Look::Thorough, true) else { return };
        match wrong {
            Wrong::Lost(count, _) => self.lost += count,
            Wrong::Partial(_) => self.partial += 1,
            Wrong::Other(_) => {}
        }
        self.broken(wrong.to_string());
    }
}

/// How many cases there are.
fn total() -> u64 {
    CASES.len() as u64 + accidents::total()
}

/// Runs all cases.
fn run(setting: &Setting<'_>) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    accidents::run(setting, &mut outcome)?;
    for (name, case) in &CASES {
        if setting.watch.is_stopped() {
            outcome.skipped.push(format!("{name} and what follows: stopped"));
            break;
        }
        let note = run_one(setting, name, case, &mut outcome)?;
        outcome.notes.push(note);
        setting.watch.done(1);
    }
    if !setting.watch.is_stopped() {
        allocations::run(setting, &mut outcome)?;
    }
    Ok(outcome)
}

/// Runs one case; returns what there is to say of it.
fn run_one(
    setting: &Setting<'_>,
    name: &str,
    run: &dyn Fn(&mut Case<'_>) -> Result<()>,
    outcome: &mut Outcome,
) -> Result<String> {
    let directory = setting.scratch().join(file_name(name));
    fs::create_dir_all(&directory)?;
    let mut case = Case {
        setting,
        directory,
        tried: 0,
        acknowledged: 0,
        lost: 0,
        partial: 0,
        broken: Vec::new(),
        skipped: Vec::new(),
        notes: Vec::new(),
        controls: Vec::new(),
    };
    if let Err(error) = run(&mut case) {
        case.broken(format!("the case itself failed: {error:#}"));
    }
    outcome.attempted += case.tried.max(1);
    outcome.acknowledged += case.acknowledged;
    outcome.lost += case.lost;
    outcome.partial += case.partial;
    let counted = u64::from(case.lost + case.partial > 0);
    outcome.anomalies += (case.broken.len() as u64).saturating_sub(counted);
    outcome.skipped.extend(case.skipped.iter().map(|reason| format!("{name}: {reason}")));
    let notes = match (case.notes.is_empty(), case.skipped.is_empty()) {
        (true, true) => "as promised".into(),
        (true, false) => "not tried here, see below".into(),
        (false, _) => case.notes.join("; "),
    };
    for (control, detected, how) in &case.controls {
        outcome.control(control, *detected, how.as_str());
    }
    if !case.broken.is_empty() {
        let evidence = keep(setting, &case, name)?;
        let what = format!("{name}: {}", case.broken.join("; "));
        let reproduce = setting.reproduce(1, setting.case_seed(0));
        outcome.found(Finding { what, evidence: Some(evidence), reproduce });
    }
    fs::remove_dir_all(&case.directory)
        .with_context(|| format!("cannot remove {}", case.directory.display()))?;
    Ok(format!("{name}: {notes}"))
}

/// What a file can be called for this name.
fn file_name(name: &str) -> String {
    name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).take(100).collect()
}

/// Keeps the files of a case and what it said.
fn keep(setting: &Setting<'_>, case: &Case<'_>, name: &str) -> Result<PathBuf> {
    let evidence = setting.evidence(setting.case_seed(0))?.join(file_name(name));
    fs::create_dir_all(&evidence)?;
    fs::write(evidence.join("broken.txt"), case.broken.join("\n"))?;
    for entry in fs::read_dir(&case.directory)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_file() && meta.len() <= KEPT_BYTES {
            fs::copy(entry.path(), evidence.join(entry.file_name()))?;
        }
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests;
