//! Runs a suite: announces it, loads its data, measures its sections, and returns the record.

use super::{Bundle, Entry, Ground, SuiteOptions, Turn};
use crate::device;
use crate::drivers::postgres::server;
use crate::drivers::{Absent, Extent, Profile, Store, engine};
use crate::harness::{DROPPED_SHARE, Turns, outcome_cell};
use crate::machine::{self, Machine};
use crate::plan::{self, Pace, Planned};
use crate::progress::{Interrupt, Progress};
use crate::report::record::{Cell, RECORD_VERSION, Record, Setup, Verification, today};
use anyhow::{Context, Result, ensure};
use std::time::Instant;

/// A file system in memory, on Linux.
const MEMORY: &str = "/dev/shm";

/// A suite.
pub trait Play {
    /// As its command names it.
    fn name(&self) -> &'static str;

    /// Loads what its trials need into the ground's directory, and says what that is.
    fn prepare(&self, ground: &Ground<'_>) -> Result<Vec<String>>;

    /// What there is to measure.
    fn sections(&self, ground: &Ground<'_>) -> Vec<Bundle>;
}

/// Runs a suite.
pub fn run(
    suite: &dyn Play,
    options: &SuiteOptions,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<Record> {
    ensure!(options.rounds >= 1, "--rounds must be at least 1");
    let begin = Instant::now();
    std::fs::create_dir_all(&options.data)
        .with_context(|| format!("cannot create {}", options.data.display()))?;
    let scratch = tempfile::Builder::new().prefix("monolite-bench-").tempdir_in(&options.data)?;
    let memory = tempfile::Builder::new().prefix("monolite-bench-").tempdir_in(MEMORY).ok();
    let memory = memory.as_ref().map(tempfile::TempDir::path);
    let ground = Ground { options, dir: scratch.path(), memory, interrupt };
    let bundles = selected(suite, &ground);
    let filter = options.only.as_deref().unwrap_or_default();
    ensure!(
        !bundles.is_empty(),
        "no scenario's name contains {filter:?}; --only takes a part of one"
    );
    let planned: Vec<Planned> = bundles.iter().flat_map(planned_cells(options)).collect();
    let needed = plan::duration(plan::total(&planned, options.rounds));
    let budget = options.budget.map_or(String::new(), |budget| {
        format!("; fewer rounds where it would take more than {}", plan::duration(budget))
    });
    progress.note(&format!("{} cells in about {needed}, and loading{budget}", planned.len()));
    engine::initialize_sqlite()?;
    let built = Instant::now();
    progress.begin("loading", None);
    let work = suite.prepare(&ground)?;
    progress.begin("measuring the device", None);
    let probe = device::probe(&options.data, options.round, interrupt)?;
    let deadline = options.budget.map(|budget| built + budget);
    let mut pace = Pace::new(&planned, deadline);
    let (mut cells, mut verifications, mut sections) = (Vec::new(), Vec::new(), Vec::new());
    for bundle in &bundles {
        let measured = measure(bundle, options, &mut pace, progress, interrupt)?;
        let operations = measured.iter().filter_map(Cell::measurement).map(|c| c.operations());
        verifications.push(Verification {
            after: bundle.section.key.clone(),
            check: bundle.check.into(),
            accounts: operations.sum(),
        });
        cells.extend(measured);
        sections.push(bundle.section.clone());
    }
    progress.finish();
    Ok(Record {
        record_version: RECORD_VERSION,
        suite: suite.name().into(),
        date: today(),
        command: options.command.clone(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_memory_bytes: machine::peak_memory_bytes(),
        machine: Machine::look(&options.data),
        setup: setup(options, &cells),
        data: None,
        work,
        sections,
        device: probe,
        cells,
        limits: Vec::new(),
        verifications,
    })
}

fn setup(options: &SuiteOptions, cells: &[Cell]) -> Setup {
    let measured = |cell: &&Cell| cell.measurement().is_some() && cell.id.contains("/postgres");
    let postgres = cells.iter().find(measured).and_then(|_| server::version().ok());
    Setup {
        postgres,
        monolite: env!("CARGO_PKG_VERSION").into(),
        sqlite: rusqlite::version().into(),
        engine: vec!["the defaults, but for what a line's name says".into()],
        rounds: options.rounds,
        ..Setup::default()
    }
}

/// The sections that are asked for, with the entries that are.
fn selected(suite: &dyn Play, ground: &Ground<'_>) -> Vec<Bundle> {
    let filter = ground.options.only.as_deref().unwrap_or_default();
    let mut bundles = suite.sections(ground);
    for bundle in &mut bundles {
        let key = bundle.section.key.clone();
        bundle.entries.retain(|entry| id(&key, entry).contains(filter));
    }
    bundles.retain(|bundle| !bundle.entries.is_empty());
    bundles
}

fn id(key: &str, entry: &Entry) -> String {
    format!("{key}/{}/{}", entry.line, entry.x)
}

fn profile(key: &str, entry: &Entry, options: &SuiteOptions) -> Profile {
    Profile {
        id: id(key, entry),
        name: entry.name.clone(),
        durability: entry.durability,
        extent: Extent::Time(options.round),
        store: Store::Nowhere,
        failing: None,
    }
}

fn planned_cells(options: &SuiteOptions) -> impl Fn(&Bundle) -> Vec<Planned> {
    move |bundle| {
        let key = &bundle.section.key;
        let entries = bundle.entries.iter();
        entries.map(|entry| Planned::of(&profile(key, entry, options))).collect()
    }
}

fn measure(
    bundle: &Bundle,
    options: &SuiteOptions,
    pace: &mut Pace,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<Vec<Cell>> {
    let key = &bundle.section.key;
    let planned = planned_cells(options)(bundle);
    let mut turns = Turns { pace, planned: &planned, wanted: options.rounds, progress };
    let outcomes = turns.run(
        |number, position| {
            let Entry { name, x, .. } = &bundle.entries[position];
            format!("{key}, round {number}: {name}, {x}")
        },
        |number, position, _| {
            let entry = &bundle.entries[position];
            interrupt.check()?;
            machine::settle(&options.data)?;
            let share = if number == 0 { DROPPED_SHARE } else { 1.0 };
            let length = options.round.mul_f64(share);
            let round = (entry.trial)(&Turn { length, seed: number as u64, interrupt });
            round.map_err(|error| match error.is::<Absent>() {
                true => error,
                false => error.context(format!("{} failed", id(key, entry))),
            })
        },
    )?;
    let profiles = bundle.entries.iter().map(|entry| profile(key, entry, options));
    Ok(profiles.zip(outcomes).map(|(profile, outcome)| outcome_cell(&profile, outcome)).collect())
}
