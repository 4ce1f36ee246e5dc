//! Bit rot: bits flip in the database file and in the WAL, and the engine must say so or answer as
//! if nothing had happened.
//!
//! # Algorithm
//! 1. A [`sample`] is made once: a closed database, and one with a WAL as a `kill -9` leaves it,
//!    both with page checksums, and the right answers.
//! 2. Each case draws a [`damage`] from its seed and uses a damaged copy through the engine
//!    ([`trial`]). The copies are in memory: what is damaged are bytes, not a disk.
//! 3. Cases run side by side, each on a thread of its own, so that one that panics or gets stuck is
//!    counted and the next one run. A crash ends the process.
//!
//! # Controls
//! The same without page checksums, and with the engine's report of frames that it left out
//! ignored: both must give wrong answers without an error.
//!
//! # Not here
//! A page of zeros and a page in the place of another one, which the checksums do not find.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use monolite_testkit::blocking::locked;
use monolite_testkit::scratch::in_memory;
use tempfile::TempDir;

use self::damage::Damage;
use self::sample::{Image, Pages, Sample, copy_image};
use self::trial::{Judge, Verdict, When};
use super::lanes::side_by_side;
use crate::{Amount, Check, Finding, Outcome, Setting};

mod damage;
mod sample;
#[cfg(test)]
mod tests;
mod trial;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "flips",
    about: "Flip N single bits in database and WAL files",
    unit: "bit flips",
    amount: Amount::Number,
    modest: 500,
    total: |amount| amount,
    run,
    roles: &[],
};

/// Cases that run at once.
const LANES: u64 = 4;

/// Cases within which a control must show.
const CONTROL_CASES: u64 = 200;

/// The longest a case may take: two openings, some dozen queries and a write, each of which ends at
/// a limit of ten seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Flips `amount` single bits, and does other damage in some cases more.
fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let files = Files::make(setting.scratch(), Pages::Checked)?;
    let series = Series { setting, files: &files, pages: Pages::Checked, judge: Judge::Fair };
    let tally = series.run(cases_with(setting, amount))?;
    outcome.attempted = tally.single;
    outcome.anomalies = tally.wrong.len() as u64;
    outcome.notes.push(format!(
        "{} harmless, {} detected: {} at open, {} by a read, {} by a write, {} at close, {} by the \
         count of discarded WAL frames",
        tally.harmless,
        tally.detected.iter().sum::<u64>(),
        tally.detected[When::Open as usize],
        tally.detected[When::Read as usize],
        tally.detected[When::Write as usize],
        tally.detected[When::Close as usize],
        tally.detected[When::Recovery as usize],
    ));
    outcome.notes.push(format!(
        "{} cases more with several bits, eight bytes or a sector damaged",
        tally.others
    ));
    for (seed, what) in tally.wrong {
        outcome.found(finding(setting, &files, seed, &what)?);
    }
    control(setting, &mut outcome, "no page checksums", Pages::Unchecked, Judge::Fair)?;
    let name = "the count of discarded WAL frames ignored";
    control(setting, &mut outcome, name, Pages::Checked, Judge::Deaf)?;
    Ok(outcome)
}

/// How many cases it takes to flip `amount` single bits.
fn cases_with(setting: &Setting<'_>, amount: u64) -> u64 {
    let (mut cases, mut single) = (0, 0);
    while single < amount {
        single += u64::from(damage::is_single(setting.case_seed(cases)));
        cases += 1;
    }
    cases
}

/// Runs cases in which the engine or the judge is broken, until one is answered wrongly.
fn control(
    setting: &Setting<'_>,
    outcome: &mut Outcome,
    name: &str,
    pages: Pages,
    judge: Judge,
) -> Result<()> {
    if setting.watch.is_stopped() {
        return Ok(());
    }
    let files = Files::make(setting.scratch(), pages)?;
    let tally = Series { setting, files: &files, pages, judge }.run(CONTROL_CASES)?;
    let wrong = tally.wrong.len();
    let how = format!("{wrong} of {} cases answered wrongly without an error", tally.cases());
    outcome.control(name, wrong > 0, how);
    Ok(())
}

fn finding(setting: &Setting<'_>, files: &Files, seed: u64, what: &str) -> Result<Finding> {
    let evidence = setting.evidence(seed)?;
    let damage = Damage::draw(seed, |image| files.sample.path(image))?;
    copy_image(&files.sample.path(damage.image), &evidence.join("before.db"))?;
    let damaged = evidence.join("damaged.db");
    copy_image(&files.sample.path(damage.image), &damaged)?;
    damage.apply(&damaged)?;
    let what = format!("{damage}: {what}");
    fs::write(evidence.join("damage.txt"), format!("seed {seed}\n{what}\n"))?;
    Ok(Finding { what, evidence: Some(evidence), reproduce: setting.reproduce(1, seed) })
}

/// The sample's files and room for copies.
struct Files {
    directory: TempDir,
    sample: Sample,
}

impl Files {
    /// In memory where the system has such a directory, or else in `scratch`.
    fn make(scratch: &Path, pages: Pages) -> Result<Arc<Files>> {
        let directory = in_memory(scratch)?;
        let sample = Sample::make(directory.path(), pages)?;
        Ok(Arc::new(Files { directory, sample }))
    }

    fn run(&self, seed: u64, pages: Pages, judge: Judge) -> Result<Verdict> {
        if judge == Judge::Deaf && !trial::is_about(&self.sample, seed, Image::Live)? {
            return Ok(Verdict::Harmless);
        }
        let scratch = tempfile::tempdir_in(self.directory.path())?;
        trial::run(&self.sample, seed, &scratch.path().join("case.db"), pages, judge)
    }
}

/// What came of many cases.
#[derive(Default)]
struct Tally {
    harmless: u64,
    /// By [`When`].
    detected: [u64; 5],
    /// Seed and what was seen.
    wrong: Vec<(u64, String)>,
    /// Cases that flipped one bit, and those that did something else.
    single: u64,
    others: u64,
}

impl Tally {
    fn cases(&self) -> u64 {
        self.single + self.others
    }

    fn count(&mut self, seed: u64, verdict: Verdict) {
        match damage::is_single(seed) {
            true => self.single += 1,
            false => self.others += 1,
        }
        match verdict {
            Verdict::Harmless => self.harmless += 1,
            Verdict::Detected(when) => self.detected[when as usize] += 1,
            Verdict::Wrong(what) => self.wrong.push((seed, what)),
        }
    }
}

/// Cases that are run alike.
struct Series<'a> {
    setting: &'a Setting<'a>,
    files: &'a Arc<Files>,
    pages: Pages,
    judge: Judge,
}

impl Series<'_> {
    /// A control ends with the first wrong answer.
    fn run(&self, cases: u64) -> Result<Tally> {
        let tally = Mutex::new(Tally::default());
        let is_control = self.pages == Pages::Unchecked || self.judge == Judge::Deaf;
        side_by_side(LANES, cases, |number| {
            let is_shown = is_control && !locked(&tally).wrong.is_empty();
            if is_shown || self.setting.watch.is_stopped() {
                return Ok(());
            }
            let seed = self.setting.case_seed(number);
            let verdict = self.case(seed)?;
            locked(&tally).count(seed, verdict);
            // Controls do more than was asked for.
            self.setting.watch.done(u64::from(!is_control));
            Ok(())
        })?;
        Ok(tally.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn case(&self, seed: u64) -> Result<Verdict> {
        let (tell, told) = channel();
        let (files, pages, judge) = (Arc::clone(self.files), self.pages, self.judge);
        thread::spawn(move || {
            let case = || files.run(seed, pages, judge);
            // The caller of one that was stuck is gone.
            let _ = tell.send(catch_unwind(AssertUnwindSafe(case)));
        });
        let wrong = |what: &str| Ok(Verdict::Wrong(what.into()));
        match told.recv_timeout(MAX_WAIT) {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => wrong("it panicked"),
            Err(_) => wrong("it took more than a minute"),
        }
    }
}
