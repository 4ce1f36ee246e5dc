//! `SIGKILL` at any moment: what was acknowledged is there, nothing is there in part.
//!
//! # Algorithm
//! 1. A case is one file and up to [`CYCLES_A_FILE`] cycles on it, so that recovery works on
//!    recovered files, too. Cases run side by side.
//! 2. In a cycle a child writes (see [`super::writing`]); it is killed after a random number of
//!    lines, or while it opens the file, or while it closes it.
//! 3. The file is judged through stock SQLite, now and then after the engine has opened and closed
//!    it; every other time the next child finds the WAL as the kill left it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use monolite::Database;
use monolite_testkit::child::Child;

use super::lanes::{self, book, side_by_side};
use super::writing::{self, Arrangement, Look, NUMBERS, Orders};
use super::wrong::{Wrong, keep};
use crate::{Amount, Check, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "kills",
    about: "Kill the process with SIGKILL N times under load",
    unit: "SIGKILLs",
    amount: Amount::Number,
    modest: 500,
    total: |amount| amount,
    run,
    roles: &[(writing::ROLE, writing::play)],
};

/// Cycles on one file; many make its check slow.
const CYCLES_A_FILE: u64 = 20;

/// Files that are worked on at once. A child waits for the disk most of its short life.
const AT_ONCE: u64 = 6;

/// Files within which a child that acknowledges too early has to be noticed.
const CONTROL_FILES: u64 = 10;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    control(setting, &outcome)?;
    let moments = Moments::default();
    side_by_side(AT_ONCE, amount.div_ceil(CYCLES_A_FILE), |number| {
        if setting.watch.is_stopped() {
            return Ok(());
        }
        let mut case = Case::new(setting, number, Arrangement::Sound, &moments)?;
        case.run(CYCLES_A_FILE.min(amount - number * CYCLES_A_FILE), &outcome)
    })?;
    let mut outcome = outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))?;
    outcome.notes.push(moments.told());
    Ok(outcome)
}

/// A child that acknowledges before the write's answer.
fn control(setting: &Setting<'_>, outcome: &Mutex<Outcome>) -> Result<()> {
    let moments = Moments::default();
    let name = "acknowledges before the write is done";
    lanes::control(setting, name, CONTROL_FILES, outcome, |number| {
        // Numbers that no case of the run has.
        let number = u64::MAX - number;
        let mut case = Case::new(setting, number, Arrangement::SaysEarly, &moments)?;
        for cycle in 0..CYCLES_A_FILE {
            if let Err(wrong) = case.cycle(cycle, Look::Quick)? {
                return Ok(Some(format!("kill {}: {wrong:?}", cycle + 1)));
            }
        }
        Ok(None)
    })
}

/// When children were killed.
#[derive(Default)]
struct Moments {
    opening: AtomicU64,
    working: AtomicU64,
    closing: AtomicU64,
    engine_opened: AtomicU64,
}

impl Moments {
    fn told(&self) -> String {
        let [opening, working, closing, engine] =
            [&self.opening, &self.working, &self.closing, &self.engine_opened]
                .map(|count| count.load(Ordering::Relaxed));
        format!(
            "killed {opening} times while opening, {working} at work, {closing} while closing; \
             {engine} files opened and closed by the engine before they were judged"
        )
    }
}

/// One file.
struct Case<'s> {
    setting: &'s Setting<'s>,
    moments: &'s Moments,
    arrangement: Arrangement,
    seed: u64,
    rng: fastrand::Rng,
    directory: tempfile::TempDir,
    file: PathBuf,
    acknowledged: BTreeSet<i64>,
}

impl<'s> Case<'s> {
    fn new(
        setting: &'s Setting<'s>,
        number: u64,
        arrangement: Arrangement,
        moments: &'s Moments,
    ) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let directory = tempfile::tempdir_in(setting.scratch())
            .with_context(|| format!("no directory in {}", setting.scratch().display()))?;
        let file = directory.path().join("db");
        let (rng, acknowledged) = (fastrand::Rng::with_seed(seed), BTreeSet::new());
        Ok(Case { setting, moments, arrangement, seed, rng, directory, file, acknowledged })
    }

    fn run(&mut self, cycles: u64, outcome: &Mutex<Outcome>) -> Result<()> {
        for cycle in 0..cycles {
            if self.setting.watch.is_stopped() {
                break;
            }
            let look = if cycle + 1 == cycles { Look::Thorough } else { Look::Quick };
            let before = self.acknowledged.len();
            let verdict = self.cycle(cycle, look)?;
            self.setting.watch.done(1);
            let mut outcome = book(outcome)?;
            outcome.attempted += 1;
            outcome.acknowledged += (self.acknowledged.len() - before) as u64;
            if let Err(wrong) = verdict {
                let evidence = self.setting.evidence(self.seed)?;
                let history = format!("cycle {cycle}: {wrong:?}\n{:?}\n", self.acknowledged);
                keep(self.directory.path(), &evidence, "kills", &history)?;
                let reproduce = self.setting.reproduce(cycles, self.seed);
                wrong.book(&mut outcome, Some(evidence), reproduce);
                break;
            }
        }
        Ok(())
    }

    /// One child, and what is wrong after it.
    fn cycle(&mut self, cycle: u64, look: Look) -> Result<Result<(), Wrong>> {
        let cycle = i64::try_from(cycle).context("a file has few cycles")?;
        let orders = Orders {
            file: &self.file,
            first: 1 + NUMBERS * cycle,
            filling: self.rng.choice([0, 100, 1_000, 8_000]).unwrap_or(0),
            arrangement: self.arrangement,
        };
        let mut child = orders.spawn(self.setting.program)?;
        if let Err(wrong) = self.torment(&mut child)? {
            return Ok(Err(wrong));
        }
        if self.rng.u8(..8) == 0 {
            self.moments.engine_opened.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = Database::open(&self.file).and_then(|db| db.close()) {
                return Ok(Err(Wrong::Other(format!("the engine cannot open it: {error}"))));
            }
        }
        let leaves_wal = self.rng.bool();
        Ok(writing::judge(&self.file, &self.acknowledged, look, leaves_wal).map(drop))
    }

    /// Kills the child at a random moment, and hears all that it said.
    fn torment(&mut self, child: &mut Child) -> Result<Result<(), Wrong>> {
        let choice = self.rng.u8(..16);
        let mut failed = None;
        if choice == 0 {
            self.moments.opening.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(self.rng.u64(..10_000)));
        } else {
            let lines = self.rng.usize(..120);
            for line in std::iter::from_fn(|| child.next_line()).take(lines) {
                self.hear(&line, &mut failed);
            }
            if choice == 1 {
                child.go_on();
                self.moments.closing.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(self.rng.u64(..5_000)));
            } else {
                self.moments.working.fetch_add(1, Ordering::Relaxed);
            }
        }
        child.kill()?;
        while let Some(line) = child.next_line() {
            self.hear(&line, &mut failed);
        }
        Ok(failed.map_or(Ok(()), Err))
    }

    fn hear(&mut self, line: &str, failed: &mut Option<Wrong>) {
        if let Some(number) = writing::acknowledged(line) {
            self.acknowledged.insert(number);
        } else if writing::is_complaint(line) {
            *failed = Some(Wrong::Other(format!("a child said: {line}")));
        }
    }
}
