//! Everything at once for a long time: mixed load, failing members, big values, changes of the
//! schema, long reads, checkpoints, closing, and a `SIGKILL` every few seconds.
//!
//! # Algorithm
//! Two files, side by side:
//! 1. The **killed** one: child after child works on it for some seconds and is killed at work.
//!    After each, the file is judged by the [`Ledger`] of what was acknowledged. Kills while a
//!    database is opened or closed are those of the check of kills.
//! 2. The **steady** one: one child works on it all the time, and closes and opens it again now and
//!    then. Its memory and its open files must not grow.
//!
//! Before that, a child that acknowledges too early must be noticed.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::child::{Child, Ended, Heard};

use super::lanes;
use super::wrong::{Wrong, keep};
use crate::{Amount, Check, Outcome, Setting};

mod client;
mod ledger;
mod process;
#[cfg(test)]
mod tests;

use ledger::Ledger;
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
    roles: &[(ROLE, client::play)],
};

/// The role of the children.
const ROLE: &str = "soak";

// What the environment tells a child.
const FILE: &str = "FILE";
const SEED: &str = "SEED";
const SAYS: &str = "SAYS";
const SHARING: &str = "SHARING";
const LIVES: &str = "LIVES";

/// Small, so that the WAL restarts many times a minute.
const WAL_LIMIT_BYTES: u64 = 32 << 20;

/// More than the caches, the queue and the work of a child can need.
const MEMORY_LIMIT_KB: u64 = 400 << 10;

/// More files than a child can need: seven connections, each with database, WAL and index.
const FILES_LIMIT: u64 = 80;

/// A child that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rounds within which a child that acknowledges too early has to be noticed.
const CONTROL_ROUNDS: u64 = 30;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    control(setting, &outcome)?;
    let mut outcome = outcome.into_inner().map_err(|_| anyhow!("a lane panicked"))?;
    let start = Instant::now();
    let end = start + Duration::from_secs(amount);
    let told = AtomicU64::new(0);
    let progress = || {
        let seconds = start.elapsed().as_secs().min(amount);
        let before = told.fetch_max(seconds, Ordering::Relaxed);
        if seconds > before {
            setting.watch.done(seconds - before);
        }
    };
    let (killed, steady) = thread::scope(|scope| {
        let steady = scope.spawn(|| Lane::new(setting, "steady", 1)?.stay(end));
        let killed =
            Lane::new(setting, "killed", 0).and_then(|lane| lane.be_killed(end, &progress));
        let steady = steady.join().unwrap_or_else(|_| Err(anyhow!("the steady lane panicked")));
        (killed, steady)
    });
    outcome.attempted = start.elapsed().as_secs().min(amount).max(1);
    for lane in [killed?, steady?] {
        lane.settle(amount, &mut outcome);
    }
    Ok(outcome)
}

/// A child that acknowledges before the write's answer.
fn control(setting: &Setting<'_>, outcome: &Mutex<Outcome>) -> Result<()> {
    let mut lane = Lane::new(setting, "early", 2)?;
    lane.says = "early";
    let name = "acknowledges before the write is done";
    lanes::control(setting, name, CONTROL_ROUNDS, outcome, |_| {
        let life = Duration::from_millis(lane.rng.u64(100..400));
        lane.round(Instant::now() + life)?;
        let noticed = lane.ledger.judge(&lane.file, false).err();
        Ok(noticed.map(|wrong| format!("{wrong:?}")))
    })
}

/// One file, the children that work on it, and what is known of it.
struct Lane<'s> {
    setting: &'s Setting<'s>,
    name: &'static str,
    seed: u64,
    file: PathBuf,
    rng: fastrand::Rng,
    says: &'static str,
    ledger: Ledger,
    usage: Usage,
    counts: Counts,
    wrong: Vec<(Wrong, Option<PathBuf>)>,
}

/// What happened on a lane.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    kills: u64,
    opened: u64,
    opening_ms: u64,
    closed: u64,
    schema_changes: u64,
    long_reads: u64,
    verdicts: u64,
    failed: u64,
    revoked: u64,
    checkpoints: u64,
}

impl<'s> Lane<'s> {
    fn new(setting: &'s Setting<'s>, name: &'static str, number: u64) -> Result<Lane<'s>> {
        let seed = setting.case_seed(number);
        let directory = setting.scratch().join(name);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Lane {
            setting,
            name,
            seed: setting.case_seed(0),
            file: directory.join("db"),
            rng: fastrand::Rng::with_seed(seed),
            says: "when done",
            ledger: Ledger::default(),
            usage: Usage::default(),
            counts: Counts::default(),
            wrong: Vec::new(),
        })
    }

    fn spawn(&mut self, lives: &str) -> Result<Child> {
        let seed = self.rng.u64(..).to_string();
        let sharing = if self.rng.u8(..4) == 0 { "shared" } else { "exclusive" };
        let file = self.file.to_str().context("the directory's name is not text")?;
        let variables =
            [(FILE, file), (SEED, &seed), (SAYS, self.says), (SHARING, sharing), (LIVES, lives)];
        self.setting.program.spawn(ROLE, &variables)
    }

    /// Kills child after child until the end.
    fn be_killed(mut self, end: Instant, progress: &dyn Fn()) -> Result<Lane<'s>> {
        let mut is_first = true;
        while self.wrong.is_empty() && (is_first || self.goes_on(end)) {
            is_first = false;
            // Most lives are short, some long.
            let most = if self.rng.u8(..10) == 0 { 30_000 } else { 6_000 };
            let life = Duration::from_millis(self.rng.u64(300..most));
            self.round((Instant::now() + life).min(end))?;
            // The next child recovers what the kill left, unless the judge has.
            let leaves_wal = self.rng.bool();
            self.judge(leaves_wal)?;
            progress();
        }
        Ok(self)
    }

    fn goes_on(&self, end: Instant) -> bool {
        Instant::now() < end && !self.setting.watch.is_stopped()
    }

    /// One child, killed then.
    fn round(&mut self, until: Instant) -> Result<()> {
        let mut child = self.spawn("one")?;
        self.work(&mut child, until)?;
        self.kill(&mut child)
    }

    /// Lets the child work until then. It has no reason to end.
    fn work(&mut self, child: &mut Child, until: Instant) -> Result<()> {
        match self.listen(child, until)? {
            Some(ended) => self.wrong(Wrong::Other(format!("a child ended by itself: {ended}"))),
            None => Ok(()),
        }
    }

    /// Hears what the child says until then, or until it is to be stopped, and looks at what it
    /// uses; or until the child ends, and says how it did.
    fn listen(&mut self, child: &mut Child, until: Instant) -> Result<Option<Ended>> {
        let (mut heard, mut looked) = (Instant::now(), Instant::now());
        while Instant::now() < until && !self.setting.watch.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            match child.listen(left.min(Duration::from_millis(50))) {
                Heard::Line(line) => {
                    heard = Instant::now();
                    self.note(&line);
                }
                Heard::Silence if heard.elapsed() > PATIENCE => {
                    self.wrong(Wrong::Other(format!("silent for {PATIENCE:?}")))?;
                    return Ok(None);
                }
                Heard::Silence => {}
                Heard::End => return child.end().map(Some),
            }
            if looked.elapsed() > Duration::from_millis(500) {
                looked = Instant::now();
                self.usage.look(child.id(), &self.file);
            }
        }
        Ok(None)
    }

    /// Takes in one line of a child.
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut numbers = words.clone().map_while(|word| word.parse::<i64>().ok());
        match word {
            "a" => {
                if let (Some(client), Some(number)) = (numbers.next(), numbers.next()) {
                    self.ledger.acknowledge(client, number);
                }
            }
            "d" => self.counts.schema_changes += 1,
            "r" => self.counts.long_reads += 1,
            "open" => {
                self.counts.opened += 1;
                let milliseconds = numbers.next().unwrap_or(0).unsigned_abs();
                self.counts.opening_ms = self.counts.opening_ms.max(milliseconds);
            }
            "closed" => self.counts.closed += 1,
            "s" => {
                let mut next = || numbers.next().unwrap_or(0).unsigned_abs();
                self.usage.wal_bytes = self.usage.wal_bytes.max(next());
                // These count from the opening, and the last are those that remain.
                self.counts.failed = self.counts.failed.max(next());
                self.counts.revoked = self.counts.revoked.max(next());
                self.counts.checkpoints = self.counts.checkpoints.max(next());
            }
            "wrong" | "wrong:" | "failed" => {
                self.wrong.push((Wrong::Other(format!("a child said: {line}")), None));
            }
            _ => {}
        }
    }

    fn kill(&mut self, child: &mut Child) -> Result<()> {
        child.kill()?;
        self.counts.kills += 1;
        while let Some(line) = child.next_line() {
            self.note(&line);
        }
        Ok(())
    }

    /// Lets the child close the database, or kills it when the user is in a hurry.
    fn close(&mut self, mut child: Child) -> Result<()> {
        child.go_on();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match child.listen(Duration::from_millis(50)) {
                Heard::Line(line) => self.note(&line),
                Heard::Silence if self.setting.watch.is_stopped() => return self.kill(&mut child),
                Heard::Silence => {}
                Heard::End => {
                    if let Err(error) = child.succeeds() {
                        self.wrong(Wrong::Other(format!("closing: {error:#}")))?;
                    }
                    return Ok(());
                }
            }
        }
        self.wrong(Wrong::Other(format!("not closed within {PATIENCE:?}")))
    }

    fn judge(&mut self, leaves_wal: bool) -> Result<()> {
        self.counts.verdicts += 1;
        match self.ledger.judge(&self.file, leaves_wal) {
            Ok(()) => Ok(()),
            Err(wrong) => self.wrong(wrong),
        }
    }

    /// One child until the end.
    fn stay(mut self, end: Instant) -> Result<Lane<'s>> {
        let mut child = self.spawn("many")?;
        let start = Instant::now();
        let length = end.saturating_duration_since(start);
        while self.wrong.is_empty() && self.goes_on(end) {
            let until = (Instant::now() + Duration::from_secs(5)).min(end);
            self.work(&mut child, until)?;
            self.usage.remember(start.elapsed(), length);
        }
        self.close(child)?;
        self.judge(false)?;
        if let Some(growth) = self.usage.growth() {
            self.wrong(Wrong::Other(growth))?;
        }
        Ok(self)
    }

    /// Keeps the files of what went wrong.
    fn wrong(&mut self, wrong: Wrong) -> Result<()> {
        let evidence = self.setting.evidence(self.seed)?;
        let history = format!("{wrong:?}\n{:?}\n", self.ledger);
        keep(self.file.parent().unwrap_or(Path::new(".")), &evidence, self.name, &history)?;
        self.wrong.push((wrong, Some(evidence)));
        Ok(())
    }

    /// Puts what came of it into the outcome.
    fn settle(mut self, amount: u64, outcome: &mut Outcome) {
        outcome.acknowledged += self.ledger.count();
        for excess in self.usage.excess() {
            self.wrong.push((Wrong::Other(excess), None));
        }
        for (wrong, evidence) in self.wrong {
            wrong.book(outcome, evidence, self.setting.reproduce(amount, self.seed));
        }
        let (counts, usage) = (self.counts, self.usage);
        outcome.notes.push(format!(
            "{}: {} acknowledged, {} kills, {} opened in at most {} ms, \
             {} closed, {} changes of the schema, {} long reads, {} judged; \
             most memory {} MiB, WAL {:.1} MiB of {}, files open {}; \
             in one life at most {} failed on purpose, {} checkpoints, {} reads revoked",
            self.name,
            self.ledger.count(),
            counts.kills,
            counts.opened,
            counts.opening_ms,
            counts.closed,
            counts.schema_changes,
            counts.long_reads,
            counts.verdicts,
            usage.memory_kb >> 10,
            usage.wal_bytes as f64 / f64::from(1 << 20),
            WAL_LIMIT_BYTES >> 20,
            usage.files,
            counts.failed,
            counts.checkpoints,
            counts.revoked,
        ));
    }
}
