//! The archive: the disk is lost, the store fails, another process takes over; what was
//! acknowledged as archived is restored, from the store alone.
//!
//! # Algorithm
//! An amount of N is N kills with the disk thrown away ([`kills`]), N/5 power cuts ([`cuts`]),
//! N/10 stores that are dead or in bad weather ([`stores`]), N/20 each of primaries that are
//! replaced ([`takeovers`]), of followers that replace them ([`successions`]) and of databases
//! whose wall clock jumps a hundred times ([`clocks`]), and N/2 pairs of openings at once
//! ([`openings`]). Each part has its own controls. Cases of a part run side by side.
//!
//! # Not here
//! The protocol by which one process at a time makes history is simulated in the tests of
//! `monolite-archive`, in thousands of schedules.

mod case;
mod child;
mod clocks;
mod cuts;
mod gateless;
mod kills;
mod openings;
mod stores;
mod successions;
mod takeovers;
mod weather;

use std::sync::Mutex;

use anyhow::{Result, anyhow};

use super::lanes::{self, book, side_by_side};
use super::wrong::verdict;
use crate::{Amount, Check, Outcome, Setting};
use case::Case;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "archive",
    about: "Lose the disk of a process with an archive N times, and a fifth as often by power \
            cuts; take over, starve and delay its store; have its clock jump",
    unit: "lost disks, stores and primaries",
    amount: Amount::Number,
    modest: 60,
    total: |amount| PARTS.iter().map(|part| (part.share)(amount)).sum(),
    run,
    roles: &[
        (child::ROLE, child::play),
        (clocks::ROLE, clocks::play),
        (successions::ROLE, successions::play),
    ],
};

/// Cases of one part that run side by side. A child waits for the disk most of its short life.
const AT_ONCE: u64 = 4;

/// Pairs of openings for each of what is rare: they take no process.
const PAIRS: u64 = 10;

fn rare(amount: u64) -> u64 {
    amount.div_ceil(20)
}

/// A part of the check, and how much of it is done for an amount.
struct Part {
    run: fn(&Setting<'_>, u64, &Mutex<Outcome>) -> Result<()>,
    share: fn(u64) -> u64,
}

/// In the order in which they are run.
const PARTS: [Part; 7] = [
    Part { run: openings::run, share: |amount| PAIRS * rare(amount) },
    Part { run: kills::run, share: |amount| amount },
    Part { run: clocks::run, share: rare },
    Part { run: takeovers::run, share: rare },
    Part { run: successions::run, share: rare },
    Part { run: stores::run, share: |amount| 2 * rare(amount) },
    Part { run: cuts::run, share: |amount| amount.div_ceil(5) },
];

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    for part in &PARTS {
        (part.run)(setting, (part.share)(amount), &outcome)?;
    }
    outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))
}

/// What a case of a part does.
type Play<'a> = &'a (dyn Fn(&mut Case<'_>) -> Result<()> + Sync);

/// Plays `count` cases, some side by side.
fn play_all(
    setting: &Setting<'_>,
    part: &str,
    count: u64,
    outcome: &Mutex<Outcome>,
    play: Play<'_>,
) -> Result<()> {
    side_by_side(AT_ONCE, count, |number| {
        if setting.watch.is_stopped() {
            return Ok(());
        }
        let mut case = Case::new(setting, number, None)?;
        let verdict = verdict(play(&mut case))?;
        count_one(setting, outcome, case.ledger.acknowledged.len())?;
        verdict.or_else(|wrong| case.book(wrong, (part, 1), outcome))
    })
}

/// One more was tried, with so many acknowledged.
fn count_one(setting: &Setting<'_>, outcome: &Mutex<Outcome>, acknowledged: usize) -> Result<()> {
    setting.watch.done(1);
    let mut outcome = book(outcome)?;
    outcome.attempted += 1;
    outcome.acknowledged += acknowledged as u64;
    Ok(())
}

/// Plays a broken arrangement until something is wrong with it, `tries` times at most.
fn control(
    setting: &Setting<'_>,
    name: &str,
    tries: u64,
    outcome: &Mutex<Outcome>,
    play: Play<'_>,
) -> Result<()> {
    lanes::control(setting, name, tries, outcome, |number| {
        // Numbers that no case of the run has.
        let mut case = Case::new(setting, u64::MAX - number, None)?;
        Ok(verdict(play(&mut case))?.err().map(|wrong| wrong.to_string()))
    })
}
