//! The differential check: one client does what SQLite's grammar and the public API allow, on the
//! engine and on plain SQLite, and is told the same by both.
//!
//! # Algorithm
//! 1. A case is a history of some hundred statements on a new database, drawn from its own seed:
//!    statements of every form that SQLite's documentation offers ([`grammar`]), valid ones for the
//!    live schema mostly, run in every way that the API offers ([`source`]), by one thread
//!    ([`driver`]). Options that take snapshots and connections away from transactions are drawn
//!    with it.
//! 2. The order of the commits is known, so plain SQLite ([`oracle`]) runs what was committed once
//!    more, and must answer the same: rows, names, numbers of changes, errors, conflicts. What was
//!    not committed must have seen a state that there was ([`driver::verdict`]).
//! 3. What a random number or the time decides is compared with what the database has: plain SQLite
//!    is given the value. What is documented to differ is one table ([`excuses`]).
//! 4. A history that fails is kept: its seed, and a record of what it did. Those of one cause are
//!    reported once ([`difference`]).
//! 5. The controls ([`controls`]) run first, each time.
//!
//! # Not here
//! Faults of the disk, crashes, and several threads at once: the other checks. This one knows
//! nothing of how the engine works, so that it does not share its authors' blind spots.

mod answer;
mod asking;
mod controls;
mod difference;
mod driver;
mod dump;
mod excuses;
mod grammar;
mod oracle;
mod record;
mod schema;
mod source;
mod stage;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use monolite::rusqlite::{self, Connection};

use crate::{Amount, Check, Finding, Outcome, Setting};
use difference::Difference;
use driver::Counts;
use grammar::Topic;
use oracle::Flaw;
use stage::{Job, Stage};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "differential",
    about: "Compare N statements of every form, run in every way, with plain SQLite",
    unit: "statements",
    amount: Amount::Number,
    modest: 2_000_000,
    total: |amount| amount,
    run,
    roles: &[(stage::ROLE, stage::serve)],
};

/// Different findings after which the check ends.
const ENOUGH: usize = 20;

/// The most statements of a case.
const LENGTH: u64 = 600;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let mut stage = Stage::new(setting.program)?;
    controls::run(setting, &mut stage, &mut outcome)?;
    let (mut sum, mut seen, mut histories) = (Counts::default(), Signatures::new(), 0);
    for number in 0.. {
        let left = amount.saturating_sub(outcome.attempted);
        if left == 0 || setting.watch.is_stopped() || seen.len() >= ENOUGH {
            break;
        }
        let seed = setting.case_seed(number);
        let most = left.min(LENGTH);
        let ran = stage.run(Job { seed, most, is_calm: false, flaw: Flaw::None })?;
        histories += 1;
        sum.add(&ran.counts);
        // One that fails at once is a case, too.
        let statements = ran.counts.statements.max(1);
        outcome.attempted += statements;
        outcome.acknowledged += ran.counts.committed;
        setting.watch.done(statements.min(left));
        if let Some(difference) = ran.difference {
            outcome.anomalies += 1;
            take_up(setting, &stage, seed, &difference, &mut seen, &mut outcome)?;
        }
    }
    note(&mut outcome, histories, &sum, &seen);
    Ok(outcome)
}

/// Statements of every form that mean something for a schema, for other checks.
pub(super) struct Statements(schema::Schema);

impl Statements {
    /// Those for what `plain` holds.
    pub(super) fn of(plain: &Connection) -> rusqlite::Result<Statements> {
        Ok(Statements(schema::Schema::load(plain)?))
    }

    /// One statement, or a few with a semicolon and a new line in between.
    pub(super) fn draw(&self, rng: &mut Rng) -> String {
        let count = rng.usize(1..3);
        let topics: Vec<_> =
            (0..count).map(|_| Topic::ALL[rng.usize(..Topic::ALL.len())]).collect();
        grammar::batch(rng, &self.0, &topics).sql
    }
}

/// How often each was seen.
type Signatures = BTreeMap<String, u64>;

/// Counts a history that failed, and reports the first of its signature.
fn take_up(
    setting: &Setting<'_>,
    stage: &Stage<'_>,
    seed: u64,
    difference: &Difference,
    seen: &mut Signatures,
    outcome: &mut Outcome,
) -> Result<()> {
    let count = seen.entry(difference.signature()).or_default();
    *count += 1;
    if *count > 1 {
        return Ok(());
    }
    let (directory, text) = (setting.evidence(seed)?, difference.text());
    fs::copy(stage.record(), directory.join("history.txt")).context("no record of the history")?;
    fs::write(directory.join("what.txt"), &text)?;
    outcome.found(Finding {
        what: format!("seed {seed}: {text}"),
        evidence: Some(directory),
        reproduce: setting.reproduce(LENGTH, seed),
    });
    Ok(())
}

fn note(outcome: &mut Outcome, histories: u64, sum: &Counts, seen: &Signatures) {
    let Counts { interactive, conflicts, moved, .. } = sum;
    outcome.notes.push(format!(
        "{histories} histories; {interactive} committed transactions were interactive; \
         {conflicts} conflicts, {moved} moves to a new snapshot"
    ));
    for (signature, count) in seen {
        outcome.notes.push(format!("{count} times {signature}"));
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.statements += other.statements;
        self.committed += other.committed;
        self.interactive += other.interactive;
        self.conflicts += other.conflicts;
        self.moved += other.moved;
    }
}
