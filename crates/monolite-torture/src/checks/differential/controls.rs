//! Known-bad arrangements that the check must notice, each time it runs.

use anyhow::Result;

use super::oracle::Flaw;
use super::stage::{Job, Stage};
use crate::{Outcome, Setting};

/// Histories that a control may need until its flaw shows.
const TRIES: u64 = 150;

/// Statements of a history of a control.
const LENGTH: u64 = 300;

const CONTROLS: [(Flaw, &str); 8] = [
    (Flaw::NoValidation, "validation switched off"),
    (Flaw::SkippedChange, "the oracle skips a committed change"),
    (Flaw::StaleStatistics, "the oracle keeps old statistics"),
    (Flaw::SwappedCommits, "two commits of a batch change places"),
    (Flaw::LateReads, "reads are compared with a later state"),
    (Flaw::InventedConflict, "a commit is taken for a conflict"),
    (Flaw::OtherRowid, "the oracle draws rowids of its own"),
    (Flaw::OwnIds, "the oracle chooses ids that were given out ahead"),
];

/// Runs each control.
pub(super) fn run(
    setting: &Setting<'_>,
    stage: &mut Stage<'_>,
    outcome: &mut Outcome,
) -> Result<()> {
    for (flaw, name) in CONTROLS {
        let seed = |number| setting.case_seed(u64::MAX - number);
        let noticed = notices(stage, flaw, seed, &|| setting.watch.is_stopped())?;
        if setting.watch.is_stopped() {
            break;
        }
        let is_noticed = noticed.is_ok();
        outcome.control(name, is_noticed, noticed.unwrap_or_else(|how| how));
    }
    Ok(())
}

/// Runs a control until it is noticed: a history that passes without the flaw must fail with it.
/// One that fails without it says nothing. Tells what was seen, or else how hard it tried.
fn notices(
    stage: &mut Stage<'_>,
    flaw: Flaw,
    seed: impl Fn(u64) -> u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Result<String, String>> {
    for number in 1..=TRIES {
        if is_stopped() {
            break;
        }
        // Rowids are drawn in no calm history.
        let is_calm = flaw != Flaw::OtherRowid;
        let job = Job { seed: seed(number), most: LENGTH, is_calm, flaw };
        let flawed = stage.run(job)?;
        let Some(difference) = flawed.difference else { continue };
        if stage.run(Job { flaw: Flaw::None, ..job })?.difference.is_none() {
            return Ok(Ok(format!("history {number}: {:.100}", difference.signature())));
        }
    }
    Ok(Err(format!("{TRIES} histories")))
}
