//! The accidents that an operator, a process or a machine has with a database: one table, from
//! which the page `docs/accidents.md` is made, and each row of which is tried.
//!
//! # Algorithm
//! 1. A [`Row`] says what happens, when, what becomes of the data, and what to do. Its [`Trial`]
//!    has the accident on a [`Scene`]: a database with transactions that were acknowledged, some in
//!    the file and some in the WAL. Then it does what the row says is to be done.
//! 2. What was seen decides the [`Fate`]: whether somebody was refused or told of an error, and
//!    whether everything that was acknowledged is there once the database is opened again.
//! 3. A row is broken when that is another fate than it says, or when nobody was told the word that
//!    it says. So a row that promises too little is noticed as one that promises too much.
//!
//! # Invariants
//! - What cannot be tried on this machine is skipped visibly, and what no check can try says so on
//!   the page.

mod acts;
mod companions;
mod database;
mod directory;
mod machine;
mod openings;
mod page;
mod process;
mod scene;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use anyhow::Result;

use super::{Case, run_one};
use crate::{Check, Outcome, Setting};
use scene::{FileTrial, Scene};

pub(crate) use page::accidents_page;
pub(super) use scene::actor::ROLE;

/// What becomes of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nobody notices, and nothing is lost.
    Survived,
    /// An opening is refused; what is there stays as it is.
    Refused,
    /// Somebody is told, and nothing is lost once it is done what the row says.
    Detected,
    /// Something acknowledged is gone, and somebody is told.
    Lost,
    /// Something acknowledged is gone, and nobody is told.
    Unseen,
}

impl Fate {
    const ALL: [Fate; 5] =
        [Fate::Survived, Fate::Refused, Fate::Detected, Fate::Lost, Fate::Unseen];

    fn name(self) -> &'static str {
        match self {
            Fate::Survived => "survived",
            Fate::Refused => "refused",
            Fate::Detected => "detected",
            Fate::Lost => "lost, and told",
            Fate::Unseen => "lost, unseen",
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// In which moment of a database's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Nobody has it open; then somebody opens it.
    Closed,
    /// A process that had it open was killed; then somebody opens it.
    Crashed,
    /// It is being opened.
    Opening,
    /// It is open, and nobody writes until the close.
    Idle,
    /// It is open, and then there are writes.
    Open,
    /// Four threads write.
    Load,
    /// While it is closed, when the WAL is copied into the file.
    Close,
}

impl When {
    fn name(self) -> &'static str {
        match self {
            When::Closed => "closed",
            When::Crashed => "after a crash",
            When::Opening => "opening",
            When::Idle => "idle",
            When::Open => "open",
            When::Load => "under load",
            When::Close => "during the close",
        }
    }
}

/// One accident.
struct Row {
    accident: &'static str,
    when: &'static [When],
    fate: Fate,
    /// A part of what somebody is told; empty when nobody is.
    says: &'static str,
    /// What happens.
    what: &'static str,
    /// What to do.
    instead: &'static str,
    trial: Trial,
}

/// How a row is tried.
enum Trial {
    /// Something happens to a file.
    File(FileTrial),
    /// What else happens; it leaves in the scene what was seen.
    Scene(fn(&mut Scene<'_>, When) -> Result<()>),
    /// By the case of the environment check with this name.
    Case(&'static str),
    /// By another check.
    Check(&'static Check),
    /// Nothing here can try it, for this reason.
    Untried(&'static str),
}

/// A part of the page.
struct Topic {
    title: &'static str,
    rows: &'static [&'static [Row]],
}

const TOPICS: [Topic; 7] = [
    Topic { title: "The database file", rows: &[database::ROWS] },
    Topic { title: "Files beside it: `-wal` and `-shm`", rows: &[companions::ROWS] },
    Topic { title: "Directories, copies and backups", rows: &[directory::ROWS] },
    Topic { title: "Opened a second time", rows: &[openings::ROWS] },
    Topic { title: "The process", rows: &[process::ROWS] },
    Topic { title: "What the process is allowed", rows: &[process::LIMITS] },
    Topic { title: "The disk and the machine", rows: &[machine::ROWS] },
];

fn rows() -> impl Iterator<Item = &'static Row> {
    TOPICS.iter().flat_map(|topic| topic.rows.iter().copied().flatten())
}

/// How often a trial is made again that took so long that the engine had begun something else.
const TRIES: u32 = 20;

/// How many rows there are.
pub(super) fn total() -> u64 {
    rows().count() as u64
}

/// Tries every row.
pub(super) fn run(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let (mut tried, mut skipped, start) = ([0; Fate::ALL.len()], 0, Instant::now());
    for row in rows() {
        if setting.watch.is_stopped() {
            outcome.skipped.push(format!("{} and the accidents behind it: stopped", row.accident));
            break;
        }
        if matches!(row.trial, Trial::File(_) | Trial::Scene(_)) {
            let before = outcome.skipped.len();
            for when in row.when {
                let name = format!("{}, {}", row.accident, when.name());
                run_one(setting, &name, &|case| attempt(row, *when, case), outcome)?;
            }
            let is_skipped = outcome.skipped.len() > before;
            skipped += u32::from(is_skipped);
            tried[row.fate as usize] += u32::from(!is_skipped);
        }
        setting.watch.done(1);
    }
    let counts: Vec<_> =
        Fate::ALL.iter().map(|fate| format!("{} {fate}", tried[*fate as usize])).collect();
    let (counts, took) = (counts.join(", "), start.elapsed().as_secs_f64());
    let note = format!("accidents: {counts}; {skipped} could not be tried; {took:.1} s");
    outcome.notes.push(note);
    Ok(())
}

/// Has the accident, and compares what was seen with what the row says.
fn attempt(row: &Row, when: When, case: &mut Case<'_>) -> Result<()> {
    for number in 0..TRIES {
        let mut scene = Scene::new(case.setting, case.directory(), number)?;
        match &row.trial {
            Trial::File(trial) => trial.run(&mut scene, when)?,
            Trial::Scene(run) => run(&mut scene, when)?,
            Trial::Case(_) | Trial::Check(_) | Trial::Untried(_) => return Ok(()),
        }
        if scene.took_too_long() {
            continue;
        }
        if let Some(reason) = scene.skipped.take() {
            case.skip(reason);
        } else {
            judge(row, &scene, case);
        }
        return Ok(());
    }
    case.skip("the machine was too busy for it");
    Ok(())
}

fn judge(row: &Row, scene: &Scene<'_>, case: &mut Case<'_>) {
    case.tried += 1;
    let fate = scene.fate();
    let told = || scene.refusals.iter().chain(&scene.errors);
    case.expect(fate == row.fate, || {
        format!("it was {fate} and not {}: {}", row.fate, scene.account())
    });
    let is_said = row.says.is_empty() || told().any(|text| text.contains(row.says));
    case.expect(is_said, || format!("nobody was told {:?}: {}", row.says, scene.account()));
    match fate {
        Fate::Lost | Fate::Unseen if fate != row.fate => case.lost += scene.lost().max(1),
        Fate::Lost | Fate::Unseen => {}
        _ => case.acknowledged += scene.acknowledged.len() as u64,
    }
}
