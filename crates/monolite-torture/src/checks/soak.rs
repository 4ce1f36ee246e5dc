//! Everything at once for a long time: mixed load, failing members, large values, changes of the
//! schema, long reads, checkpoints, closing, and a `SIGKILL` every few seconds.
//!
//! # Algorithm
//! Two children, side by side, of [`super::writing`]:
//! 1. The **killed** one lives for some seconds and is killed at work, as in [`super::kills`].
//! 2. The **steady** one works all the time. Now and then it closes its file, which is judged, and
//!    opens another one. Its memory and its open files must not grow.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::child::{Child, Heard};

use super::kills::{self, CYCLES_A_FILE, Moments};
use super::lanes::book;
use super::writing::{self, Arrangement, Ledger, Look, Orders, WAL_LIMIT_BYTES, beside};
use super::wrong::{Wrong, keep, verdict};
use crate::{Amount, Check, Outcome, Setting};

mod process;
#[cfg(test)]
mod tests;

use process::Usage;

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "soak",
    about: "Run mixed load with kills and schema changes for T, e.g. 90s, 30m or 2h",
    unit: "seconds",
    amount: Amount::Time,
    modest: 30,
    total: |amount| amount,
    run,
    roles: &[(writing::ROLE, writing::play)],
};

/// Lines of a child within which it is killed: some seconds.
const LINES: usize = 6_000;

/// More than the caches, the queue and the work of a child can need.
const MEMORY_LIMIT_KB: u64 = 400 << 10;

/// More files than a child can need: seven connections, each with database, WAL and index.
const FILES_LIMIT: u64 = 80;

/// A child that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often a child's use of the machine is looked at.
const GLANCE: Duration = Duration::from_millis(500);

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    kills::control(setting, &outcome)?;
    let (start, told, moments) = (Instant::now(), AtomicU64::new(0), Moments::default());
    let end = start + Duration::from_secs(amount);
    let is_over = || Instant::now() >= end || setting.watch.is_stopped();
    let done = || {
        let seconds = start.elapsed().as_secs().min(amount);
        setting.watch.done(seconds - told.swap(seconds, Ordering::Relaxed));
    };
    thread::scope(|scope| {
        let steady = scope.spawn(|| stay(setting, amount, end, &outcome));
        for number in 0.. {
            if is_over() {
                break;
            }
            let case = kills::Case::new(setting, number, Arrangement::Sound, LINES, &moments);
            case?.run(CYCLES_A_FILE, &is_over, &done, &outcome)?;
        }
        steady.join().map_err(|_| anyhow!("the steady lane panicked"))?
    })?;
    let mut outcome = outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))?;
    outcome.attempted = start.elapsed().as_secs().min(amount).max(1);
    outcome.notes.push(moments.told());
    Ok(outcome)
}

/// One child until the end.
fn stay(setting: &Setting<'_>, amount: u64, end: Instant, outcome: &Mutex<Outcome>) -> Result<()> {
    let mut steady = Steady::new(setting)?;
    let verdict = verdict(steady.live(end))?;
    let (wal, limit) = (steady.wal_bytes as f64 / 1e6, WAL_LIMIT_BYTES as f64 / 1e6);
    let mut outcome = book(outcome)?;
    outcome.acknowledged += steady.acknowledged;
    outcome.notes.push(format!(
        "steady: {} acknowledged, {} files closed; most memory {} MiB, WAL {wal:.1} MB of \
         {limit:.1}, files open {}",
        steady.acknowledged,
        steady.lives,
        steady.usage.memory_kb >> 10,
        steady.usage.files,
    ));
    let Err(wrong) = verdict else { return Ok(()) };
    let seed = setting.case_seed(0);
    let (evidence, history) =
        (setting.evidence(seed)?, format!("{wrong:?}\n{:?}\n", steady.ledger));
    keep(steady.file.parent().unwrap_or(Path::new(".")), &evidence, "steady", &history)?;
    wrong.book(&mut outcome, Some(evidence), setting.reproduce(amount, seed));
    Ok(())
}

/// The child that works all the time, and what is known of it.
struct Steady<'s> {
    setting: &'s Setting<'s>,
    file: PathBuf,
    /// Of the file that it works on.
    ledger: Ledger,
    /// Files that it has closed.
    lives: i64,
    acknowledged: u64,
    wal_bytes: u64,
    usage: Usage,
}

impl<'s> Steady<'s> {
    fn new(setting: &'s Setting<'s>) -> Result<Steady<'s>> {
        let directory = setting.scratch().join("steady");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Steady {
            setting,
            file: directory.join("db"),
            ledger: Ledger { may_refuse: true, ..Ledger::default() },
            lives: 0,
            acknowledged: 0,
            wal_bytes: 0,
            usage: Usage::default(),
        })
    }

    fn live(&mut self, end: Instant) -> Result<()> {
        let arrangement = Arrangement::ManyLives;
        let orders = Orders { file: &self.file, first: 1, filling: 100, arrangement };
        let mut child = orders.spawn(self.setting.program)?;
        self.work(&mut child, end)?;
        self.close(child)?;
        Ok(self.usage.judge()?)
    }

    /// Hears the child until then, or until it is to be stopped. It has no reason to end.
    fn work(&mut self, child: &mut Child, end: Instant) -> Result<()> {
        let start = Instant::now();
        let (length, mut heard, mut looked) = (end - start, start, start);
        while Instant::now() < end && !self.setting.watch.is_stopped() {
            match child.listen(GLANCE / 10) {
                Heard::Line(line) => {
                    self.note(&line)?;
                    heard = Instant::now();
                }
                Heard::Silence if heard.elapsed() < PATIENCE => {}
                Heard::Silence => {
                    return Err(Wrong::Other(format!("silent for {PATIENCE:?}")).into());
                }
                Heard::End => {
                    let text = format!("a child ended by itself: {}", child.end()?);
                    return Err(Wrong::Other(text).into());
                }
            }
            if looked.elapsed() > GLANCE {
                looked = Instant::now();
                self.usage.look(child.id(), start.elapsed(), length);
            }
        }
        Ok(())
    }

    /// Lets the child close its file, and judges it.
    fn close(&mut self, mut child: Child) -> Result<()> {
        child.go_on();
        while let Some(line) = child.next_line() {
            self.note(&line)?;
        }
        child.succeeds().map_err(|error| Wrong::Other(format!("closing: {error:#}")).into())
    }

    /// Takes in a line, and judges the file that was closed.
    fn note(&mut self, line: &str) -> Result<()> {
        self.ledger.hear(line)?;
        if let Some(bytes) = line.strip_prefix("wal ") {
            self.wal_bytes = self.wal_bytes.max(bytes.parse()?);
            if self.wal_bytes > WAL_LIMIT_BYTES {
                let text = format!("the WAL had {bytes} bytes, the limit is {WAL_LIMIT_BYTES}");
                return Err(Wrong::Other(text).into());
            }
        }
        if line == "closed" {
            let file = beside(&self.file, self.lives);
            self.ledger.judge(&file, Look::Thorough, false)?;
            fs::remove_file(&file).context("cannot remove a file that was judged")?;
            self.lives += 1;
            self.acknowledged += self.ledger.acknowledged.len() as u64;
            self.ledger = Ledger { may_refuse: true, ..Ledger::default() };
        }
        Ok(())
    }
}
