//! Runs SQL scripts in lockstep on plain SQLite and on all of Monolite's ways to run SQL, and tells
//! where they differ: the check behind `monolite conform`.
//!
//! In reading order: `script` is what is run, `path` on which ways, `plain` beside what, `ours` how
//! the engine runs it, `lockstep` the comparison, `differences` what may differ on purpose,
//! `report` what is told.
//!
//! # Algorithm
//! Each script is run on each path, each time on new databases of its own. Jobs run on several
//! threads.
//!
//! # Not here
//! What happens when transactions of several clients meet, but for the differences by design that
//! show only then (`program`): [`monolite_testkit::schedule`], and `monolite torture`.

mod ask;
mod content;
mod differences;
mod lockstep;
mod ours;
mod path;
mod plain;
mod program;
mod report;
mod said;
mod script;
mod split;
mod statement;
mod subject;
mod tokens;

#[cfg(test)]
mod tests;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result, bail};
use monolite_testkit::blocking::locked;

use lockstep::{Found, Lockstep, Outcome};
use ours::Ours;
use plain::Plain;
use script::Script;

pub use path::{PATHS, Path};
pub use report::{Difference, Left, PathReport, Report, Used};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directories with scripts, or scripts.
    pub scripts: Vec<PathBuf>,
    /// The paths that each takes.
    pub paths: Vec<&'static Path>,
    /// Where databases are made and removed.
    pub scratch: PathBuf,
    /// Scripts that run at once.
    pub threads: usize,
}

/// What a run tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// So many jobs, a script on a path each, will be done.
    Begins(usize),
    /// So many are done.
    Done(usize),
    /// Something the user should read in passing.
    Note(&'a str),
}

/// How a run says how far it is, and how it is told to stop.
#[derive(Clone)]
pub struct Watch<'a> {
    /// Is told of every event.
    pub tell: &'a (dyn Fn(Event<'_>) + Sync),
    /// Set when the user wants the run to end; what was found until then is reported.
    pub stop: Arc<AtomicBool>,
}

/// Runs every script on every path.
///
/// # Errors
/// When a script cannot be read, or there is none, the directory for scratch files cannot be
/// written to, or SQLite is too old.
pub fn run(plan: &Plan, watch: &Watch<'_>) -> Result<Report> {
    // The reference opens SQLite without the engine, which has to be first.
    monolite_sqlite::initialize().map_err(anyhow::Error::msg)?;
    let scripts = read(&plan.scripts)?;
    // Said once, and not by each job.
    tempfile::tempdir_in(&plan.scratch).with_context(|| {
        format!("no database can be made in {}; create the directory", plan.scratch.display())
    })?;
    if scripts.is_empty() {
        bail!("there is no .sql file in {:?}", plan.scripts);
    }
    let jobs: Vec<(Arc<Script>, &'static Path)> = scripts
        .iter()
        .flat_map(|script| plan.paths.iter().map(move |path| (Arc::clone(script), *path)))
        .collect();
    (watch.tell)(Event::Begins(jobs.len()));
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let report = Mutex::new(Report::new(&scripts, &plan.paths));
    let work = || {
        while let Some((script, path)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if watch.stop.load(Ordering::Relaxed) {
                break;
            }
            let outcome = run_one(script, path, &plan.scratch, &watch.stop);
            if let Some(found) = outcome.found.first() {
                let (script, line, path) = (&script.name, found.line, path.name);
                (watch.tell)(Event::Note(&format!("{script}:{line}: differs on {path}")));
            }
            locked(&report).add(script, path, outcome);
            (watch.tell)(Event::Done(done.fetch_add(1, Ordering::Relaxed) + 1));
        }
    };
    thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.is_stopped = watch.stop.load(Ordering::Relaxed);
    report.saw(&program::observe()?);
    report.finish();
    Ok(report)
}

/// All scripts below `places`, short ones first.
fn read(places: &[PathBuf]) -> Result<Vec<Arc<Script>>> {
    let mut files = Vec::new();
    for place in places {
        find(place, &mut files).with_context(|| format!("cannot read {}", place.display()))?;
    }
    files.sort();
    files.dedup();
    let script =
        |(_, file): &(u64, PathBuf)| Script::read(file, &file.display().to_string()).map(Arc::new);
    files.iter().map(script).collect()
}

fn find(place: &FilePath, files: &mut Vec<(u64, PathBuf)>) -> Result<()> {
    let about = fs::metadata(place)?;
    if about.is_dir() {
        for entry in fs::read_dir(place)? {
            find(&entry?.path(), files)?;
        }
    } else if place.extension().is_some_and(|it| it == "sql") {
        files.push((about.len(), place.to_owned()));
    }
    Ok(())
}

/// Runs a script on a path; what keeps it from its end is a finding.
fn run_one(script: &Script, path: &'static Path, scratch: &FilePath, stop: &AtomicBool) -> Outcome {
    let run = || {
        let scratch = tempfile::Builder::new().prefix("conform-").tempdir_in(scratch);
        compare(script, path, scratch.context("no directory can be made")?.path(), stop)
    };
    let ours = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(error)) => format!("the run came to an end: {error:#}"),
        Err(_) => "the run panicked".into(),
    };
    let found = Found { line: 0, sql: "the script".into(), plain: String::new(), ours };
    Outcome { found: vec![found], ..Outcome::default() }
}

/// Runs `script` on `path`, on new databases in the empty directory `dir`.
fn compare(
    script: &Script,
    path: &'static Path,
    dir: &FilePath,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let mut subject = Ours::open(&dir.join("ours.db"), path, &script.options)?;
    Lockstep {
        script,
        path,
        plain: Plain::create(&dir.join("plain.db"), path.way)?,
        subject: &mut subject,
        is_stopped: &|| stop.load(Ordering::Relaxed),
        outcome: Outcome::default(),
    }
    .run()
}
