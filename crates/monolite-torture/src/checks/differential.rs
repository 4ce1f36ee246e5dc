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
//! 4. A history that fails is made smaller ([`shrink`]) and kept; those of one cause are reported
//!    once ([`findings`]).
//! 5. The controls ([`controls`]) run first, each time.
//!
//! # Not here
//! Faults of the disk, crashes, and several threads at once: the other checks. This one knows
//! nothing of how the engine works, so that it does not share its authors' blind spots.

mod answer;
mod asking;
mod cases;
mod controls;
mod difference;
mod driver;
mod dump;
mod excuses;
mod findings;
mod grammar;
mod oracle;
mod record;
mod schema;
mod shrink;
mod source;
mod stage;
mod text;

#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Result;
use fastrand::Rng;
use monolite::rusqlite::{self, Connection};

use crate::{Amount, Check, Finding, Outcome, Setting};
use driver::Counts;
use findings::Groups;
use grammar::Topic;
use oracle::Flaw;
use record::History;
use stage::Stage;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "differential",
    about: "Compare N statements of every form, run in every way, with plain SQLite",
    unit: "statements",
    amount: Amount::Number,
    modest: 2_000_000,
    total: |amount| amount,
    run,
    roles: &[(cases::ROLE, cases::serve)],
};

/// Different findings after which the check ends.
const ENOUGH: usize = 20;

/// The most statements of a case.
const LENGTH: u64 = 600;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let mut stage = Stage::new(setting.program)?;
    controls::run(setting, &mut stage, &mut outcome)?;
    let (mut sum, mut groups, mut histories) = (Counts::default(), Groups::default(), 0);
    for number in 0.. {
        let left = amount.saturating_sub(outcome.attempted);
        if left == 0 || setting.watch.is_stopped() || groups.len() >= ENOUGH {
            break;
        }
        let seed = setting.case_seed(number);
        let ran = stage.draw(seed, left.min(LENGTH), false, Flaw::None)?;
        histories += 1;
        sum.add(&ran.counts);
        // One that fails at once is a case, too.
        let statements = ran.counts.statements.max(1);
        outcome.attempted += statements;
        outcome.acknowledged += ran.counts.committed;
        outcome.anomalies += u64::from(ran.difference.is_some());
        setting.watch.done(statements.min(left));
        groups.take_up(setting, &mut stage, ran, &mut outcome)?;
    }
    note(&mut outcome, histories, &sum, &groups);
    Ok(outcome)
}

/// Statements of every form that mean something for a schema, for other checks.
pub(super) struct Statements(schema::Schema);

impl Statements {
    /// Those for what `plain` holds.
    ///
    /// # Errors
    /// SQLite's.
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

fn note(outcome: &mut Outcome, histories: u64, sum: &Counts, groups: &Groups) {
    let Counts { interactive, conflicts, moved, .. } = sum;
    outcome.notes.push(format!(
        "{histories} histories; {interactive} committed transactions were interactive; \
         {conflicts} conflicts, {moved} moves to a new snapshot"
    ));
    for (signature, count) in groups.counts() {
        outcome.notes.push(format!("{count} times {signature}"));
    }
}

/// Runs a history again that a finding has kept; nothing when the file is something else.
///
/// # Errors
/// When there is no file at `path`, or a database cannot be created.
pub(crate) fn replay(path: &Path) -> Result<Option<Outcome>> {
    let Some(history) = History::load(path)? else { return Ok(None) };
    let ran = stage::run_here(path)?;
    let mut outcome = CHECK.outcome();
    outcome.attempted = ran.counts.statements.max(1);
    outcome.acknowledged = ran.counts.committed;
    if let Some(difference) = ran.difference {
        outcome.anomalies = 1;
        outcome.found(Finding {
            what: format!("{}\n{}", difference.text(), text::text(&history)),
            evidence: path.parent().map(Path::to_owned),
            reproduce: format!("monolite torture --replay {}", path.display()),
        });
    }
    Ok(Some(outcome))
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
