//! `SIGKILL` at any moment: what was acknowledged is there, nothing is there in part.
//!
//! # Algorithm
//! 1. A case is one file and up to [`CYCLES_A_FILE`] cycles on it, so that recovery works on
//!    recovered files, too. Cases run side by side.
//! 2. In a cycle a child writes (see [`super::writing`]); it is killed after a random number of
//!    lines, or while it opens the file, or while it closes it.
//! 3. The file is judged through stock SQLite, now and then after the engine has opened and closed
//!    it; every other time the next child finds the WAL as the kill left it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::child::Child;

use super::lanes::{self, book, side_by_side};
use super::writing::{self, Arrangement, IsOver, Ledger, Look, NUMBERS, Orders};
use super::wrong::{keep, verdict};
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
pub(super) const CYCLES_A_FILE: u64 = 20;

/// Lines of a child within which it is killed.
const LINES: usize = 120;

/// Files that are worked on at once. A child waits for the disk most of its short life.
const AT_ONCE: u64 = 6;

/// Files within which a child that acknowledges too early has to be noticed.
const CONTROL_FILES: u64 = 10;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    control(setting, &outcome)?;
    let moments = Moments::default();
    let is_over = || setting.watch.is_stopped();
    side_by_side(AT_ONCE, amount.div_ceil(CYCLES_A_FILE), |number| {
        let cycles = CYCLES_A_FILE.min(amount - number * CYCLES_A_FILE);
        let mut case = Case::new(setting, number, Arrangement::Sound, LINES, &moments)?;
        case.run(cycles, &is_over, &|| setting.watch.done(1), &outcome)
    })?;
    let mut outcome = outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))?;
    outcome.notes.push(moments.told());
    Ok(outcome)
}

/// A child that acknowledges before the write's answer.
pub(super) fn control(setting: &Setting<'_>, outcome: &Mutex<Outcome>) -> Result<()> {
    let moments = Moments::default();
    let name = "acknowledges before the write is done";
    lanes::control(setting, name, CONTROL_FILES, outcome, |number| {
        // Numbers that no case of the run has.
        let number = u64::MAX - number;
        let mut case = Case::new(setting, number, Arrangement::SaysEarly, LINES, &moments)?;
        for cycle in 0..CYCLES_A_FILE {
            if let Err(wrong) = verdict(case.cycle(cycle, Look::Quick, &|| false))? {
                return Ok(Some(format!("kill {}: {wrong:?}", cycle + 1)));
            }
        }
        Ok(None)
    })
}

/// When children were killed.
#[derive(Default)]
pub(super) struct Moments {
    opening: AtomicU64,
    working: AtomicU64,
    closing: AtomicU64,
    engine_opened: AtomicU64,
}

impl Moments {
    pub(super) fn told(&self) -> String {
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
pub(super) struct Case<'s> {
    setting: &'s Setting<'s>,
    moments: &'s Moments,
    arrangement: Arrangement,
    lines: usize,
    seed: u64,
    rng: fastrand::Rng,
    directory: tempfile::TempDir,
    file: PathBuf,
    ledger: Ledger,
}

impl<'s> Case<'s> {
    /// Its children are killed within so many lines.
    pub(super) fn new(
        setting: &'s Setting<'s>,
        number: u64,
        arrangement: Arrangement,
        lines: usize,
        moments: &'s Moments,
    ) -> Result<Case<'s>> {
        let seed = setting.case_seed(number);
        let directory = tempfile::tempdir_in(setting.scratch())
            .with_context(|| format!("no directory in {}", setting.scratch().display()))?;
        let file = directory.path().join("db");
        let rng = fastrand::Rng::with_seed(seed);
        let ledger = Ledger { may_refuse: true, ..Ledger::default() };
        Ok(Case { setting, moments, arrangement, lines, seed, rng, directory, file, ledger })
    }

    /// Kills child after child.
    pub(super) fn run(
        &mut self,
        cycles: u64,
        is_over: IsOver<'_>,
        done: &dyn Fn(),
        outcome: &Mutex<Outcome>,
    ) -> Result<()> {
        for cycle in 0..cycles {
            if is_over() {
                break;
            }
            let look = if cycle + 1 == cycles { Look::Thorough } else { Look::Quick };
            let before = self.ledger.acknowledged.len();
            let verdict = verdict(self.cycle(cycle, look, is_over))?;
            done();
            let mut outcome = book(outcome)?;
            outcome.attempted += 1;
            outcome.acknowledged += (self.ledger.acknowledged.len() - before) as u64;
            if let Err(wrong) = verdict {
                let evidence = self.setting.evidence(self.seed)?;
                let history = format!("cycle {cycle}: {wrong:?}\n{:?}\n", self.ledger);
                keep(self.directory.path(), &evidence, "kills", &history)?;
                let reproduce = self.setting.reproduce(cycles, self.seed);
                wrong.book(&mut outcome, Some(evidence), reproduce);
                break;
            }
        }
        Ok(())
    }

    /// One child, and what is wrong after it.
    fn cycle(&mut self, cycle: u64, look: Look, is_over: IsOver<'_>) -> Result<()> {
        let cycle = i64::try_from(cycle).context("a file has few cycles")?;
        let orders = Orders {
            file: &self.file,
            first: 1 + NUMBERS * cycle,
            filling: self.rng.choice([0, 100, 1_000, 8_000]).unwrap_or(0),
            arrangement: self.arrangement,
        };
        let mut child = orders.spawn(self.setting.program)?;
        self.torment(&mut child, is_over)?;
        if self.rng.u8(..8) == 0 {
            self.moments.engine_opened.fetch_add(1, Ordering::Relaxed);
            writing::open_and_close(&self.file)?;
        }
        let leaves_wal = self.rng.bool();
        self.ledger.judge(&self.file, look, leaves_wal)?;
        Ok(())
    }

    /// Kills the child at a random moment, and hears all that it said.
    fn torment(&mut self, child: &mut Child, is_over: IsOver<'_>) -> Result<()> {
        let choice = self.rng.u8(..16);
        let moment = match choice {
            0 => &self.moments.opening,
            1 => &self.moments.closing,
            _ => &self.moments.working,
        };
        moment.fetch_add(1, Ordering::Relaxed);
        if choice == 0 {
            thread::sleep(Duration::from_micros(self.rng.u64(..10_000)));
        } else {
            let lines = std::iter::from_fn(|| child.next_line()).take_while(|_| !is_over());
            for line in lines.take(self.rng.usize(..self.lines)) {
                self.ledger.hear(&line)?;
            }
        }
        if choice == 1 {
            child.go_on();
            thread::sleep(Duration::from_micros(self.rng.u64(..5_000)));
        }
        child.kill()?;
        Ok(self.ledger.hear_rest(child)?)
    }
}
