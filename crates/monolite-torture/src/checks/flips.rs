//! Bit rot: bits flip in the database file and in the WAL, and the engine must say so or answer as
//! if nothing had happened.
//!
//! # Algorithm
//! 1. A [`sample`] is made once: a closed database, and one with a WAL as a `kill -9` leaves it,
//!    both with page checksums, and the right answers.
//! 2. Each case draws a [`damage`] from its seed and uses a damaged copy through the engine
//!    ([`trial`]). The copies are in memory: what is damaged are bytes, not a disk.
//! 3. Cases run in child processes, a range of numbers each, so that one that crashed or stuck
//!    would be counted and the next one run.
//!
//! # Controls
//! The same without page checksums, and with the engine's report of frames that it left out
//! ignored: both must give wrong answers without an error.
//!
//! # Not here
//! A page of zeros and a page in the place of another one, which the checksums do not find.

use std::fs;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use monolite_testkit::blocking::locked;
use monolite_testkit::child::{say, variable};
use monolite_testkit::random::case_seed;
use monolite_testkit::scratch::in_memory;
use tempfile::TempDir;

use self::damage::Damage;
use self::sample::{Image, Pages, Sample, copy_image};
use self::trial::{Judge, Verdict, When};
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
    roles: &[(ROLE, run_cases)],
};

/// The role of its children.
const ROLE: &str = "flips";

/// Cases that one child runs: starting it costs as much as some of them.
const CHUNK: u64 = 250;

/// Cases within which a control must show.
const CONTROL_CASES: u64 = 200;

/// The same for a control, which ends after the first wrong answer.
const CONTROL_CHUNK: u64 = 10;

/// The longest a case may take: two openings, some dozen queries and a write, each of which ends at
/// a limit of ten seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Flips `amount` single bits, and does other damage in some cases more.
fn run(setting: &Setting<'_>, amount: u64) -> Result<Outcome> {
    let mut outcome = CHECK.outcome();
    let files = Files::make(setting.scratch(), Pages::Checked)?;
    let series = Series { setting, files: &files, pages: Pages::Checked, judge: Judge::Fair };
    let tally = series.run(cases_with(setting, amount));
    tally.errors.into_iter().next().map_or(Ok(()), Err)?;
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
    let tally = Series { setting, files: &files, pages, judge }.run(CONTROL_CASES);
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
    fn make(scratch: &Path, pages: Pages) -> Result<Files> {
        let directory = in_memory(scratch)?;
        let sample = Sample::make(directory.path(), pages)?;
        fs::write(Files::description(directory.path()), serde_json::to_vec(&sample)?)?;
        Ok(Files { directory, sample })
    }

    fn description(directory: &Path) -> PathBuf {
        directory.join("sample.json")
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
    /// Why cases could not be run.
    errors: Vec<anyhow::Error>,
}

impl Tally {
    fn cases(&self) -> u64 {
        self.single + self.others
    }

    fn count(&mut self, seed: u64, said: &str) {
        match damage::is_single(seed) {
            true => self.single += 1,
            false => self.others += 1,
        }
        let when = [When::Open, When::Read, When::Write, When::Close, When::Recovery];
        let detected = when.into_iter().find(|when| said == format!("detected {when:?}"));
        match detected {
            Some(when) => self.detected[when as usize] += 1,
            None if said == "harmless" => self.harmless += 1,
            None => self.wrong.push((seed, said.to_owned())),
        }
    }
}

/// Cases that are run alike.
struct Series<'a> {
    setting: &'a Setting<'a>,
    files: &'a Files,
    pages: Pages,
    judge: Judge,
}

impl Series<'_> {
    fn run(&self, cases: u64) -> Tally {
        let tally = Mutex::new(Tally::default());
        let next = AtomicU64::new(0);
        let workers = thread::available_parallelism().map_or(1, usize::from).min(4);
        let most = if self.is_control() { CONTROL_CHUNK } else { CHUNK };
        let chunk = most.min(cases.div_ceil(workers as u64)).max(1);
        thread::scope(|scope| {
            for worker in 0..workers {
                let (tally, next) = (&tally, &next);
                scope.spawn(move || {
                    while !self.setting.watch.is_stopped() {
                        let from = next.fetch_add(chunk, Ordering::Relaxed);
                        let is_shown = self.is_control() && !locked(tally).wrong.is_empty();
                        if from >= cases || is_shown {
                            return;
                        }
                        let range = from..cases.min(from + chunk);
                        if let Err(error) = self.run_range(range, worker, tally) {
                            return locked(tally).errors.push(error);
                        }
                    }
                });
            }
        });
        tally.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_control(&self) -> bool {
        self.pages == Pages::Unchecked || self.judge == Judge::Deaf
    }

    /// Has children run the cases of a range; a new one after each that ended early.
    fn run_range(&self, range: Range<u64>, worker: usize, tally: &Mutex<Tally>) -> Result<()> {
        let Range { start: mut next, end } = range;
        let Setting { program, watch, seed, .. } = self.setting;
        let directory = self.files.directory.path();
        while next < end && !watch.is_stopped() {
            let (from, to) = (next.to_string(), end.to_string());
            let variables = [
                ("SAMPLE", directory.to_str().context("the directory's name is UTF-8")?),
                ("WORKER", &worker.to_string()),
                ("SEED", &seed.to_string()),
                ("FROM", &from),
                ("TO", &to),
                ("PAGES", if self.pages == Pages::Checked { "checked" } else { "unchecked" }),
                ("JUDGE", if self.judge == Judge::Fair { "fair" } else { "deaf" }),
            ];
            let mut child = program.spawn(ROLE, &variables)?;
            let mut last = String::new();
            while next < end && !watch.is_stopped() {
                let Some(line) = child.next_line() else { break };
                if let Some(said) = line.strip_prefix("case ") {
                    self.note(next, said, tally);
                    next += 1;
                } else {
                    last = line;
                }
            }
            if let Some(reason) = last.strip_prefix("failed ") {
                return Err(anyhow!("a child of this check failed: {reason}"));
            }
            if next < end && !watch.is_stopped() {
                let said = match last.as_str() {
                    "stuck" => "it took more than a minute".into(),
                    _ => format!("the process died: {}", child.end()?),
                };
                self.note(next, &said, tally);
                next += 1;
            }
        }
        Ok(())
    }

    fn note(&self, number: u64, said: &str, tally: &Mutex<Tally>) {
        // Controls do more than was asked for.
        if !self.is_control() {
            self.setting.watch.done(1);
        }
        locked(tally).count(self.setting.case_seed(number), said);
    }
}

/// In a child: runs a range of cases and says what came of each.
fn run_cases() -> Result<()> {
    let directory: PathBuf = variable("SAMPLE")?;
    let sample: Sample = serde_json::from_slice(&fs::read(Files::description(&directory))?)?;
    let path = directory.join(format!("case-{}.db", variable::<u64>("WORKER")?));
    let seed: u64 = variable("SEED")?;
    let pages = match variable::<String>("PAGES")?.as_str() {
        "checked" => Pages::Checked,
        _ => Pages::Unchecked,
    };
    let judge = match variable::<String>("JUDGE")?.as_str() {
        "fair" => Judge::Fair,
        _ => Judge::Deaf,
    };
    let (finished, awaited) = mpsc::channel();
    thread::spawn(move || {
        loop {
            match awaited.recv_timeout(MAX_WAIT) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    say("stuck");
                    std::process::exit(1);
                }
            }
        }
    });
    for number in variable("FROM")?..variable("TO")? {
        let seed = case_seed(seed, number);
        if judge == Judge::Deaf && !trial::is_about(&sample, seed, Image::Live)? {
            say("case harmless");
        } else {
            let case = || trial::run(&sample, seed, &path, pages, judge);
            say(&format!("case {}", describe(catch_unwind(AssertUnwindSafe(case)))?));
        }
        finished.send(())?;
    }
    Ok(())
}

fn describe(case: thread::Result<Result<Verdict>>) -> Result<String> {
    Ok(match case {
        Err(_) => "it panicked".into(),
        Ok(verdict) => match verdict? {
            Verdict::Harmless => "harmless".into(),
            Verdict::Detected(when) => format!("detected {when:?}"),
            Verdict::Wrong(what) => what.replace('\n', " "),
        },
    })
}
