//! The accidents that an operator, a process or a machine has with a database: `docs/accidents.md`
//! is the table of them, and each of its rows is tried.
//!
//! # Algorithm
//! 1. A row of the page names one or several accidents with one fate, divided by `; `. Each is a
//!    [`Row`] here, which says what happens, when, and what becomes of the data. Its [`Trial`]
//!    ([`rows`]) has the accident on a [`Scene`]: a database with transactions that were
//!    acknowledged, some in the file and some in the WAL. Then it does what is to be done.
//! 2. What was seen decides the [`Fate`]: whether an opening was refused or an error told, and
//!    whether everything that was acknowledged is there once the database is opened again.
//! 3. A row is broken when that is another fate than it says, or when the word that belongs to it
//!    was not told. So a row that promises too little is noticed as one that promises too much.
//!
//! # Invariants
//! - What cannot be tried on this machine is skipped visibly, and what is not tried here says so on
//!   the page.

mod acts;
mod machine;
mod openings;
mod process;
mod rows;
mod scene;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{Case, run_one};
use crate::{Outcome, Setting};
use rows::ROWS;
use scene::{FileTrial, Scene};

pub(super) use scene::actor::ROLE;

/// The page.
const PAGE: &str = include_str!("../../../../../docs/accidents.md");

/// What becomes of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nothing is noticed, and nothing is lost.
    Survived,
    /// An opening is refused; what is there stays as it is.
    Refused,
    /// An error is told, and nothing is lost once it is done what the row says.
    Detected,
    /// Something acknowledged is gone, and that is told.
    Lost,
    /// Something acknowledged is gone, and nothing tells of it.
    Unseen,
}

impl Fate {
    const ALL: [(Fate, &'static str); 5] = [
        (Fate::Survived, "survived"),
        (Fate::Refused, "refused"),
        (Fate::Detected, "detected"),
        (Fate::Lost, "lost, told"),
        (Fate::Unseen, "lost, unseen"),
    ];
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Fate::ALL[*self as usize].1)
    }
}

/// In which moment of a database's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// It is closed; then it is opened.
    Closed,
    /// A process that had it open was killed; then it is opened.
    Crashed,
    /// It is being opened.
    Opening,
    /// It is open, and nothing is written until the close.
    Idle,
    /// It is open, and then there are writes.
    Open,
    /// Four threads write.
    Load,
    /// While it is closed, when the WAL is copied into the file.
    Close,
}

impl When {
    const ALL: [(When, &'static str); 7] = [
        (When::Closed, "closed"),
        (When::Crashed, "crashed"),
        (When::Opening, "opening"),
        (When::Idle, "idle"),
        (When::Open, "open"),
        (When::Load, "under load"),
        (When::Close, "closing"),
    ];
}

/// One accident, as the page has it, and how it is tried.
struct Row {
    section: &'static str,
    accident: &'static str,
    when: Vec<(When, &'static str)>,
    fate: Fate,
    /// A part of what is told; empty when nothing is.
    says: &'static str,
    /// Nothing where the row names what tries it, or why nothing can.
    trial: Option<Trial>,
}

/// How a row is tried.
#[derive(Clone, Copy)]
enum Trial {
    /// Something happens to a file.
    File(FileTrial),
    /// What else happens; it leaves in the scene what was seen.
    Scene(fn(&mut Scene<'_>, When) -> Result<()>),
}

/// How often a trial is made again that took so long that the engine had begun something else.
const TRIES: u32 = 20;

/// The moments that the page calls so.
const IN_USE: (&str, &str) = ("in use", "idle, open, under load");

/// The rows of the page, each with its trial.
fn rows() -> Result<Vec<Row>> {
    let (mut rows, mut trials) = (Vec::new(), ROWS.iter());
    for section in PAGE.split("\n## ").skip(1) {
        let name = section.lines().next().context("a part has a name")?;
        let lines = section.lines();
        for line in lines.filter(|it| it.starts_with("| ") && !it.starts_with("| accident")) {
            rows_of(name, line, &mut trials, &mut rows)?;
        }
    }
    ensure!(trials.next().is_none(), "more accidents are tried than the page has");
    Ok(rows)
}

/// The rows of one line of the page, which may have no last cell.
fn rows_of(
    section: &'static str,
    line: &'static str,
    trials: &mut std::slice::Iter<'_, rows::Row>,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let (&[accidents, end, what] | &[accidents, end, what, _]) = &cells[..] else {
        anyhow::bail!("not three or four columns: {line}");
    };
    let (times, fate) = end.split_once(": ").context(end)?;
    let fate = Fate::ALL.iter().find(|(_, name)| *name == fate).context(fate)?.0;
    let times = times.replace(IN_USE.0, IN_USE.1);
    let moment = |name| When::ALL.into_iter().find(|(_, known)| *known == name).context(line);
    let when: Vec<_> = times.split(", ").map(moment).collect::<Result<_>>()?;
    for accident in accidents.split("; ") {
        let (mut says, mut trial) = ("", None);
        if !what.contains("tried") {
            let (begin, told, tried) = trials.next().context(accident)?;
            ensure!(accident.starts_with(begin), "{begin} is tried where the page has {accident}");
            (says, trial) = (*told, Some(*tried));
        }
        rows.push(Row { section, accident, when: when.clone(), fate, says, trial });
    }
    Ok(())
}

/// How many rows there are.
pub(super) fn total() -> u64 {
    rows().map_or(0, |rows| rows.len() as u64)
}

/// Tries every row.
pub(super) fn run(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let (mut tried, mut skipped, start) = ([0; Fate::ALL.len()], 0, Instant::now());
    for row in rows()? {
        if setting.watch.is_stopped() {
            outcome.skipped.push(format!("{} and the accidents behind it: stopped", row.accident));
            break;
        }
        if row.trial.is_some() {
            let before = outcome.skipped.len();
            for (when, name) in &row.when {
                let name = format!("{}: {}, {name}", row.section, row.accident);
                run_one(setting, &name, &|case| attempt(&row, *when, case), outcome)?;
            }
            let is_skipped = outcome.skipped.len() > before;
            skipped += u32::from(is_skipped);
            tried[row.fate as usize] += u32::from(!is_skipped);
        }
        setting.watch.done(1);
    }
    let counts: Vec<_> =
        Fate::ALL.iter().map(|(fate, name)| format!("{} {name}", tried[*fate as usize])).collect();
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
            Some(Trial::File(trial)) => trial.run(&mut scene, when)?,
            Some(Trial::Scene(run)) => run(&mut scene, when)?,
            None => return Ok(()),
        }
        if scene.took_too_long() {
            continue;
        }
        if let Some(reason) = scene.skipped.take() {
            case.skip(reason);
        } else {
            scene.settle();
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
    case.expect(is_said, || format!("{:?} was not told: {}", row.says, scene.account()));
    match fate {
        Fate::Lost | Fate::Unseen if fate != row.fate => case.lost += scene.lost().max(1),
        Fate::Lost | Fate::Unseen => {}
        _ => case.acknowledged += scene.acknowledged.len() as u64,
    }
}
