//! Owns what is made of histories that fail: those of the same cause are put together, and one of
//! each is made smaller, kept and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use anyhow::Result;

use super::cases::Ran;
use super::difference::{Class, Difference};
use super::oracle::Flaw;
use super::record::History;
use super::shrink::{Budget, shrink};
use super::stage::Stage;
use super::text::text;
use crate::{Finding, Outcome, Setting};

/// What may be spent on making one history smaller.
const BUDGET: Budget = Budget { tries: 1_500, time: Duration::from_secs(6) };

/// Histories of one signature that are made smaller: they may have different causes.
const EXAMPLES: u64 = 2;

/// How often a history with rests is tried before it is taken for one that does not fail.
const RESTING_TRIES: usize = 3;

/// Failures by their signatures.
#[derive(Default)]
pub(super) struct Groups {
    /// How often each signature was seen.
    seen: BTreeMap<String, u64>,
    /// Those that are reported: what is left of a history once its values are taken away.
    shapes: BTreeSet<String>,
}

impl Groups {
    /// How many different ones were found.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// How often each was seen, for the notes.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.seen.iter()
    }

    /// Takes up a history that failed; makes it smaller and reports it if it is new.
    ///
    /// # Errors
    /// When evidence cannot be kept.
    pub(super) fn take_up(
        &mut self,
        setting: &Setting<'_>,
        stage: &mut Stage<'_>,
        ran: Ran,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let Ran { history: Some(history), difference: Some(difference), .. } = ran else {
            return Ok(());
        };
        let signature = difference.signature();
        let count = self.seen.entry(signature.clone()).or_default();
        *count += 1;
        if *count > EXAMPLES {
            return Ok(());
        }
        setting.watch.note(&format!("differential: broken: {}", difference.text()));
        let (small, difference) = make_smaller(setting, stage, &history, difference);
        let readable = text(&small);
        if !self.shapes.insert(shape(&small, &difference)) {
            return Ok(());
        }
        let directory = setting.evidence(history.seed)?;
        history.save(&directory.join("whole.jsonl"))?;
        let path = directory.join("history.jsonl");
        small.save(&path)?;
        let what = format!("{}\nsignature: {signature}\n\n{readable}", difference.text());
        fs::write(directory.join("what.txt"), &what)?;
        outcome.found(Finding {
            what: format!("seed {}: {}\n{readable}", history.seed, difference.text()),
            evidence: Some(directory),
            reproduce: format!("monolite torture --replay {}", path.display()),
        });
        Ok(())
    }
}

fn make_smaller(
    setting: &Setting<'_>,
    stage: &mut Stage<'_>,
    history: &History,
    difference: Difference,
) -> (History, Difference) {
    // Each try of a hang takes as long as it takes to know that it is one.
    if difference.class == Class::Hang || setting.watch.is_stopped() {
        return (history.clone(), difference);
    }
    let signature = difference.signature();
    let mut last = difference;
    let small = shrink(history, BUDGET, &mut |candidate| {
        let tries = if rests(candidate) { RESTING_TRIES } else { 1 };
        (0..tries).any(|_| {
            let ran = stage.repeat(candidate, Flaw::None);
            let found = ran.ok().and_then(|ran| ran.difference);
            let same = found.filter(|it| it.signature() == signature);
            same.map(|it| last = it).is_some()
        })
    });
    (small, last)
}

fn rests(history: &History) -> bool {
    history.setup.snapshot_age_ms < 100
}

/// A history without its values, and the kind of its failure.
fn shape(history: &History, difference: &Difference) -> String {
    let words = |line: &str| -> String {
        let mut words = line.split_ascii_whitespace();
        let who = words.next().unwrap_or_default();
        let verb: Vec<_> = words.take(2).filter(|word| word.len() > 3).collect();
        format!("{who} {}", super::answer::normal(&verb.join(" ")))
    };
    let lines: Vec<_> = text(history).lines().map(words).collect();
    format!("{:?}\n{}", difference.class, lines.join("\n"))
}
