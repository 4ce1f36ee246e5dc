//! Closures that misbehave: they block, nest, panic, close, sleep and are given up, and so do the
//! values that they leave behind; everybody else goes on, or is told why not, within the limits.
//!
//! # Algorithm
//! 1. A round is a child process of its own ([`round`]): three threads misbehave at random
//!    ([`act`]), neighbours do honest work beside them, and a stuck closure is let go only after
//!    every limit has passed.
//! 2. The child says what was broken: a neighbour that waited longer than the limits allow or was
//!    told something that is not its business, a database that was not itself afterwards, an
//!    acknowledged write that is gone, a refused one that is there.
//! 3. A child that does not end is killed, and that is a finding, too.
//! 4. After a finding no more rounds begin.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::blocking::locked;
use monolite_testkit::child::Heard;
use serde::{Deserialize, Serialize};

use super::lanes::{book, side_by_side};
use crate::{Amount, Check, Finding, Outcome, Setting};

mod act;
mod round;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "closures",
    about: "Run N rounds of closures that block, nest, panic, close and sleep, beside honest work",
    unit: "rounds",
    amount: Amount::Number,
    modest: 60,
    total: |amount| amount,
    run,
    roles: &[(ROLE, round::play)],
};

/// The children's role.
const ROLE: &str = "closures";

// What the environment tells a child.
const DIRECTORY: &str = "DIRECTORY";
const SEED: &str = "SEED";
const ARRANGEMENT: &str = "ARRANGEMENT";

/// Rounds at once: most of their time is sleep.
const AT_ONCE: u64 = 4;

/// A child that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a child is set up, and what it has to notice if that is bad.
const SOUND: &str = "sound";
const CONTROLS: [(&str, &str, &str); 2] = [
    ("limitless", "limits of an hour", "waited"),
    ("forgetful", "an acknowledged write that is deleted", "acknowledged and lost"),
];

/// What the child says before what the round came to.
const SAID: &str = "said ";

/// What a round came to.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Said {
    broken: Vec<String>,
    acts: u64,
    acknowledged: u64,
    longest_ms: u64,
}

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    for (number, (arrangement, name, sign)) in CONTROLS.into_iter().enumerate() {
        if setting.watch.is_stopped() {
            break;
        }
        // Numbers that no round of the run has.
        let said = play_one(setting, arrangement, u64::MAX - number as u64)?;
        let noticed = said.broken.iter().find(|what| what.contains(sign));
        let how = noticed.cloned().unwrap_or_else(|| format!("it said {:?}", said.broken));
        outcome.control(name, noticed.is_some(), how);
    }
    let (outcome, totals) = (Mutex::new(outcome), Mutex::new(Said::default()));
    side_by_side(AT_ONCE, amount, |number| {
        // Rounds that hang take their time.
        let has_found = !book(&outcome)?.findings.is_empty();
        if has_found || setting.watch.is_stopped() {
            return Ok(());
        }
        let said = play_one(setting, SOUND, number)?;
        enter(setting, number, &said, &mut *book(&outcome)?)?;
        let mut totals = locked(&totals);
        totals.acts += said.acts;
        totals.longest_ms = totals.longest_ms.max(said.longest_ms);
        setting.watch.done(1);
        Ok(())
    })?;
    let mut outcome = outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))?;
    let totals = locked(&totals);
    outcome.notes.push(format!(
        "{} closures misbehaved; the longest that a neighbour waited for one answer was {} ms",
        totals.acts, totals.longest_ms
    ));
    Ok(outcome)
}

/// Has a child play one round and hears what it says.
fn play_one(setting: &Setting<'_>, arrangement: &str, number: u64) -> Result<Said> {
    let directory = setting.scratch().join(format!("round-{number}"));
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let said = hear(setting, arrangement, number, &directory);
    std::fs::remove_dir_all(&directory)
        .with_context(|| format!("cannot remove {}", directory.display()))?;
    said
}

fn hear(setting: &Setting<'_>, arrangement: &str, number: u64, directory: &Path) -> Result<Said> {
    let path = directory.to_str().context("the directory's name is not text")?;
    let seed = setting.case_seed(number).to_string();
    let variables = [(DIRECTORY, path), (SEED, &seed), (ARRANGEMENT, arrangement)];
    let mut child = setting.program.spawn(ROLE, &variables)?;
    let mut said = Said::default();
    let mut is_over = false;
    loop {
        match child.listen(PATIENCE) {
            Heard::Line(line) => {
                // A test binary says other things beside it.
                if let Some(all) = line.strip_prefix(SAID) {
                    (said, is_over) = (serde_json::from_str(all)?, true);
                } else if let Some(why) = line.strip_prefix("failed ") {
                    said.broken.push(format!("the round itself failed: {why}"));
                }
            }
            Heard::Silence => {
                said.broken.push(format!("the round does not end within {PATIENCE:?}"));
                child.kill()?;
                return Ok(said);
            }
            Heard::End => break,
        }
    }
    let ended = child.end()?;
    if !is_over || !ended.status.success() {
        said.broken.push(format!("the process ended with {ended}"));
    }
    Ok(said)
}

fn enter(setting: &Setting<'_>, number: u64, said: &Said, outcome: &mut Outcome) -> Result<()> {
    outcome.attempted += 1;
    outcome.acknowledged += said.acknowledged;
    let Some(first) = said.broken.first() else { return Ok(()) };
    let is_loss = |what: &&String| what.contains(round::LOST);
    let lost = said.broken.iter().filter(is_loss).count() as u64;
    outcome.lost += lost;
    outcome.anomalies += said.broken.len() as u64 - lost;
    let seed = setting.case_seed(number);
    let evidence = setting.evidence(seed)?;
    std::fs::write(evidence.join("broken.txt"), said.broken.join("\n"))
        .context("cannot keep the evidence")?;
    let reproduce = setting.reproduce(1, seed);
    outcome.found(Finding { what: first.clone(), evidence: Some(evidence), reproduce });
    Ok(())
}
