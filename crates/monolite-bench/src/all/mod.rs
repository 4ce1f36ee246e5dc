//! `bench all`: every suite within a time that is said first, and one record of them.
//!
//! # Algorithm
//! 1. Ask every suite how long it takes, at each depth, with all of its rounds and with one; divide
//!    the budget among them ([`plan`]), and say so.
//! 2. Run them one after the other. After each, write the record of what there is
//!    ([`crate::report::collection`]), and divide what is left of the budget among the others anew.
//! 3. An interrupted run is gone on with by the same command: suites that are in its record are not
//!    run again; the one that was under way is begun anew.
//!
//! # Not here
//! What a suite measures, and how it keeps to its share: [`crate::tps`], [`crate::suites`].

pub mod plan;

use crate::drivers::postgres::Source;
use crate::machine::Machine;
use crate::optional::With;
use crate::plan::duration;
use crate::progress::{Interrupt, Progress};
use crate::report::collection::{self, Collection, Settings};
use crate::report::record::{Record, today};
use crate::suites::{Depth, SUITES, Suite, SuiteOptions, stage};
use crate::tps::{self, TpsOptions};
use anyhow::{Context, Result, bail, ensure};
use plan::{Need, Needs, Share};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug)]
pub struct AllOptions {
    /// Where data sets and records are.
    pub data: PathBuf,
    /// Time that it is to take.
    pub budget: Duration,
    /// How much of each suite to run at most; less where the budget asks for it.
    pub depth: Depth,
    /// Where PostgreSQL comes from.
    pub postgres: Source,
    /// Optional drivers that take part.
    pub with: With,
    /// Begin anew although there is an unfinished run.
    pub fresh: bool,
    /// The command that repeats the run, without names of directories.
    pub command: String,
}

impl AllOptions {
    fn settings(&self) -> Settings {
        Settings {
            monolite: env!("CARGO_PKG_VERSION").into(),
            sqlite: rusqlite::version().into(),
            depth: format!("{:?}", self.depth).to_lowercase(),
            budget_seconds: self.budget.as_secs(),
            postgres: self.postgres != Source::None,
            drivers: self.with.names(),
        }
    }

    fn of_suite(&self, name: &str, depth: Depth, budget: Option<Duration>) -> SuiteOptions {
        SuiteOptions {
            postgres: self.postgres.clone(),
            with: self.with.clone(),
            budget,
            command: format!("{}, whose part it was: bench {name}{}", self.command, flag(depth)),
            ..SuiteOptions::new(self.data.clone(), depth)
        }
    }

    fn of_tps(&self, depth: Depth, budget: Option<Duration>) -> TpsOptions {
        let data = self.data.clone();
        let base = match depth {
            Depth::Quick => TpsOptions::quick(data),
            Depth::Standard => TpsOptions::standard(data),
            Depth::Full => TpsOptions::full(data),
        };
        TpsOptions {
            postgres: self.postgres.clone(),
            budget,
            command: format!("{}, whose part it was: bench tps{}", self.command, flag(depth)),
            ..base
        }
    }
}

fn flag(depth: Depth) -> &'static str {
    match depth {
        Depth::Quick => " --quick",
        Depth::Standard => "",
        Depth::Full => " --full",
    }
}

/// A suite of the run.
#[derive(Clone, Copy)]
enum Part {
    Tps,
    Other(&'static Suite),
}

impl Part {
    fn all() -> Vec<Part> {
        std::iter::once(Part::Tps).chain(SUITES.iter().map(Part::Other)).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Part::Tps => "tps",
            Part::Other(suite) => suite.name,
        }
    }

    /// How long it takes at each depth, the deepest first.
    fn needs(self, options: &AllOptions) -> Result<Needs> {
        let depths = [Depth::Full, Depth::Standard, Depth::Quick];
        let mut of = Vec::new();
        for depth in depths.into_iter().filter(|depth| *depth <= options.depth) {
            let (least, all) = match self {
                Part::Tps => tps::estimate(&options.of_tps(depth, None))?,
                Part::Other(suite) => {
                    stage::estimate(suite, &options.of_suite(suite.name, depth, None))
                }
            };
            of.push((depth, Need { least, all }));
        }
        Ok(Needs { name: self.name(), of })
    }

    fn run(
        self,
        options: &AllOptions,
        share: &Share,
        progress: &dyn Progress,
        interrupt: &Interrupt,
    ) -> Result<Record> {
        let budget = Some(share.budget);
        match self {
            Part::Tps => tps::run(&options.of_tps(share.depth, budget), progress, interrupt),
            Part::Other(suite) => {
                let options = options.of_suite(suite.name, share.depth, budget);
                stage::run(suite, &options, progress, interrupt)
            }
        }
    }
}

/// Runs every suite that is not in an unfinished record yet, and returns the whole record.
///
/// # Errors
/// When a suite fails, a record cannot be written, an unfinished one is of another run, the budget
/// is too short, or the user interrupts. What suites have measured by then is kept.
pub fn run(
    options: &AllOptions,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<Collection> {
    std::fs::create_dir_all(&options.data)
        .with_context(|| format!("cannot create {}", options.data.display()))?;
    let mut collection = begin_or_resume(options, progress)?;
    // What is fetched and built once is not a part of anybody's time.
    for suite in &SUITES {
        options.with.build(suite.name, &options.data, progress, interrupt)?;
    }
    let mut ahead = Part::all();
    ahead.retain(|part| !collection.has(part.name()));
    let needs: Result<Vec<Needs>> = ahead.iter().map(|part| part.needs(options)).collect();
    let mut needs = needs?;
    let left = |collection: &Collection| {
        options.budget.saturating_sub(Duration::from_secs_f64(collection.seconds))
    };
    if collection.records.is_empty() {
        let least = plan::least(&needs);
        ensure!(
            least <= options.budget,
            "all suites take {} at least; give them more time with --budget",
            duration(least)
        );
    }
    progress.note(&announcement(&plan::divide(&needs, left(&collection)), left(&collection)));
    let count = Part::all().len();
    while let Some(part) = ahead.first().copied() {
        let shares = plan::divide(&needs, left(&collection));
        let share = &shares[0];
        let number = count - ahead.len() + 1;
        let later = shares[1..].iter().map(|share| share.expected).sum();
        let begin = Instant::now();
        let (what, end) = (format!("{number}/{count} {}", share.name), begin + share.budget);
        let overall = Overall { inner: progress, what, end, later };
        overall.time_left(share.expected);
        let record = part.run(options, share, &overall, interrupt).map_err(|error| {
            let kept = collection.records.len();
            error.context(format!(
                "{} was not measured; {kept} of {count} suites are kept, and the same command goes \
                 on from there",
                share.name
            ))
        })?;
        collection.seconds += begin.elapsed().as_secs_f64();
        collection.records.push(record);
        ahead.remove(0);
        needs.remove(0);
        collection.ahead = ahead.iter().map(|part| part.name().to_owned()).collect();
        collection.keep(&options.data)?;
    }
    Ok(collection)
}

/// An unfinished record of the same run, or an empty one.
fn begin_or_resume(options: &AllOptions, progress: &dyn Progress) -> Result<Collection> {
    let settings = options.settings();
    let machine = Machine::look(&options.data);
    let unfinished = match options.fresh {
        true => None,
        false => Collection::unfinished(&options.data)?,
    };
    let Some(mut collection) = unfinished else {
        return Ok(Collection {
            collection_version: collection::VERSION,
            date: today(),
            command: options.command.clone(),
            settings,
            seconds: 0.0,
            interruptions: 0,
            ahead: Part::all().iter().map(|part| part.name().to_owned()).collect(),
            records: Vec::new(),
        });
    };
    if let Some(difference) = collection.settings.difference(&settings) {
        bail!(
            "there is an unfinished run with other settings ({difference}); repeat its command to \
             go on with it, `{}`, or begin anew with --fresh",
            collection.command
        );
    }
    let elsewhere = collection.records.iter().any(|record| record.machine != machine);
    ensure!(!elsewhere, "there is an unfinished run of another machine; begin anew with --fresh");
    collection.interruptions += 1;
    progress.note(&format!(
        "going on with the run of {}: {} are there",
        collection.date,
        collection.records.iter().map(|r| r.suite.as_str()).collect::<Vec<_>>().join(", ")
    ));
    Ok(collection)
}

fn announcement(shares: &[Share], budget: Duration) -> String {
    let total: Duration = shares.iter().map(|share| share.expected).sum();
    let parts: Vec<String> = shares
        .iter()
        .map(|share| {
            let depth = format!("{:?}", share.depth).to_lowercase();
            format!("{} {} ({depth})", share.name, duration(share.expected))
        })
        .collect();
    format!(
        "{} suites in about {} of {}: {}",
        shares.len(),
        duration(total.min(budget)),
        duration(budget),
        parts.join(", ")
    )
}

/// Progress of a suite, as a part of the whole.
struct Overall<'p> {
    inner: &'p dyn Progress,
    what: String,
    /// When its budget is used up, and it leaves out rounds.
    end: Instant,
    /// Of the suites that come after it.
    later: Duration,
}

impl Progress for Overall<'_> {
    fn begin(&self, what: &str, total: Option<u64>) {
        self.inner.begin(&format!("{}, {what}", self.what), total);
    }

    fn advance_to(&self, done: u64) {
        self.inner.advance_to(done);
    }

    fn finish(&self) {
        self.inner.finish();
    }

    fn time_left(&self, left: Duration) {
        let most = self.end.saturating_duration_since(Instant::now());
        self.inner.time_left(left.min(most) + self.later);
    }

    fn note(&self, text: &str) {
        self.inner.note(&format!("{}: {text}", self.what));
    }
}

#[cfg(test)]
mod tests;
