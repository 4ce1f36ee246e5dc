//! `SIGKILL` of a process that has many databases open: each is sound, and has what was
//! acknowledged.
//!
//! # Algorithm
//! 1. A child opens each of [`DATABASES`] files when it is used, writes to one after the other from
//!    [`CLIENTS`] threads, closes some, and says which number is acknowledged in which file.
//! 2. It is killed after a random number of lines.
//! 3. Each file is judged through stock SQLite, and the next child goes on with all of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context as _, Result};
use monolite::{Database, Options};
use monolite_testkit::blocking::locked;
use monolite_testkit::child::{say, variable};
use monolite_testkit::markers;

use super::lanes;
use super::writing::{Ledger, Look};
use super::wrong::{Wrong, keep, verdict};
use crate::{Amount, Check, Outcome, Setting};

/// The check, as the table has it.
pub(super) static CHECK: Check = Check {
    name: "tenants",
    about: "Kill a process with 100 databases with SIGKILL N times under load",
    unit: "SIGKILLs",
    amount: Amount::Number,
    modest: 40,
    total: |amount| amount,
    run,
    roles: &[(ROLE, play)],
};

const ROLE: &str = "writes to many databases";

/// Enough for the engine to take the process for a crowded one, whose threads end early.
const DATABASES: usize = 100;

const CLIENTS: usize = 16;

/// Lines of a child within which it is killed.
const LINES: usize = 2_000;

/// Numbers that a child may use.
const NUMBERS: i64 = 1_000_000;

/// One in this many writes is followed by a close of its database.
const CLOSES: usize = 20;

/// Children within which one that acknowledges too early has to be noticed.
const CONTROL_CHILDREN: u64 = 40;

fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let outcome = Mutex::new(CHECK.outcome());
    let mut early = Tenants::new(setting, u64::MAX, true)?;
    let name = "acknowledges before the write is done";
    lanes::control(setting, name, CONTROL_CHILDREN, &outcome, |_| {
        Ok(verdict(early.cycle())?.err().map(|wrong| format!("{wrong:?}")))
    })?;
    let mut outcome = outcome.into_inner()?;
    let mut tenants = Tenants::new(setting, 0, false)?;
    for _ in 0..amount {
        if setting.watch.is_stopped() {
            break;
        }
        let verdict = verdict(tenants.cycle())?;
        setting.watch.done(1);
        outcome.attempted += 1;
        if let Err(wrong) = verdict {
            let evidence = setting.evidence(tenants.seed)?;
            let history = format!("child {}: {wrong:?}\n", tenants.children);
            keep(tenants.directory.path(), &evidence, "tenants", &history)?;
            wrong.book(&mut outcome, Some(evidence), setting.reproduce(amount, tenants.seed));
            break;
        }
    }
    outcome.acknowledged = tenants.ledgers.iter().map(|it| it.acknowledged.len() as u64).sum();
    let used = tenants.ledgers.iter().filter(|it| !it.acknowledged.is_empty()).count();
    outcome.notes.push(format!("{used} databases were written to"));
    Ok(outcome)
}

/// The files, and what was heard of each.
struct Tenants<'s> {
    setting: &'s Setting<'s>,
    says_early: bool,
    seed: u64,
    rng: fastrand::Rng,
    directory: tempfile::TempDir,
    ledgers: Vec<Ledger>,
    children: i64,
}

impl<'s> Tenants<'s> {
    fn new(setting: &'s Setting<'s>, number: u64, says_early: bool) -> Result<Tenants<'s>> {
        let seed = setting.case_seed(number);
        let directory = tempfile::tempdir_in(setting.scratch())
            .with_context(|| format!("no directory in {}", setting.scratch().display()))?;
        let rng = fastrand::Rng::with_seed(seed);
        let ledgers = vec![Ledger::default(); DATABASES];
        Ok(Tenants { setting, says_early, seed, rng, directory, ledgers, children: 0 })
    }

    /// One child, and what is wrong after it.
    fn cycle(&mut self) -> Result<()> {
        let directory = self.directory.path().to_str().context("the directory is not text")?;
        let first = (1 + self.children * NUMBERS).to_string();
        let early = self.says_early.to_string();
        let variables = [("DIRECTORY", directory), ("FIRST", &first), ("EARLY", &early)];
        let mut child = self.setting.program.spawn(ROLE, &variables)?;
        self.children += 1;
        for _ in 0..self.rng.usize(..LINES) {
            let Some(line) = child.next_line() else { break };
            self.hear(&line)?;
        }
        child.kill()?;
        while let Some(line) = child.next_line() {
            self.hear(&line)?;
        }
        for (number, ledger) in self.ledgers.iter().enumerate() {
            let file = file(self.directory.path(), number);
            if file.exists() || !ledger.acknowledged.is_empty() {
                ledger.judge(&file, Look::Quick, self.rng.bool())?;
            }
        }
        Ok(())
    }

    /// A line is the number of a database, and what is to be heard of it.
    fn hear(&mut self, line: &str) -> Result<(), Wrong> {
        let other = || Wrong::Other(format!("a child said: {line}"));
        let (number, said) = line.split_once(' ').ok_or_else(other)?;
        let number = number.parse::<usize>().map_err(|_| other())?;
        self.ledgers.get_mut(number).ok_or_else(other)?.hear(said)
    }
}

fn file(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("tenant-{number}"))
}

/// Plays the role, until it is killed.
fn play() -> Result<()> {
    let (directory, first): (PathBuf, i64) = (variable("DIRECTORY")?, variable("FIRST")?);
    let says_early: bool = variable("EARLY")?;
    let next = Arc::new(AtomicI64::new(first));
    let tenants: Vec<Mutex<Option<Database>>> = (0..DATABASES).map(|_| Mutex::default()).collect();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (tenants, directory, next) = (&tenants, &directory, &next);
            scope.spawn(move || {
                loop {
                    let number = fastrand::usize(..DATABASES);
                    let mut tenant = locked(&tenants[number]);
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = visit(&mut tenant, directory, number, id, says_early) {
                        return say(&format!("{number} failed {id}: {error}"));
                    }
                }
            });
        }
    });
    Ok(())
}

/// Opens the database if it is not, writes to it, and now and then closes it.
fn visit(
    tenant: &mut Option<Database>,
    directory: &Path,
    number: usize,
    id: i64,
    says_early: bool,
) -> Result<(), monolite::Error> {
    let db = match tenant {
        Some(db) => db,
        None => {
            let db = Options::new().open(file(directory, number))?;
            markers::create(&db)?;
            tenant.insert(db)
        }
    };
    let acknowledged = || say(&format!("{number} acknowledged {id}"));
    let write = db.write(move |tx| markers::put_filled(tx, id, &[7; 1_000]));
    if says_early {
        acknowledged();
    }
    write.wait()?;
    if !says_early {
        acknowledged();
    }
    match fastrand::usize(..CLOSES) {
        0 => tenant.take().map_or(Ok(()), |db| db.close()),
        _ => Ok(()),
    }
}
