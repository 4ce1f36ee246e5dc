//! The suites beside `tps`, a file each.
//!
//! # Algorithm
//! 1. A suite says which sections it has: candidates that are compared, at each number of threads.
//! 2. They are counted, and the time they take is announced.
//! 3. The suite loads its data.
//! 4. [`stage`] runs the candidates of a section in turn, round after round, and drops the first.
//!
//! # Invariants
//! A trial counts an operation when it is acknowledged, and verifies in its own database that what
//! was acknowledged is there, and nothing else; one that finds otherwise ends the run.

pub mod archive;
pub mod begin;
pub mod servers;
pub mod shift;
pub mod stage;
pub mod yours;

use crate::drivers::Round;
use crate::drivers::postgres::{Source, server};
use crate::progress::Interrupt;
use crate::raw_connection::Durability;
use crate::report::record::Section;
use anyhow::{Context, Result};
use monolite::{Database, Options};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much of a suite to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Under a minute.
    Quick,
    /// Some minutes.
    Standard,
    /// Everything.
    Full,
}

impl Depth {
    /// Returns the number for this depth.
    pub fn pick<T>(self, quick: T, standard: T, full: T) -> T {
        match self {
            Depth::Quick => quick,
            Depth::Standard => standard,
            Depth::Full => full,
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    pub data: PathBuf,
    /// How much of it to run.
    pub depth: Depth,
    pub rounds: usize,
    /// Length of a round.
    pub round: Duration,
    /// Rows, where the suite has a number of its own that can be changed.
    pub rows: Option<u64>,
    /// Where PostgreSQL comes from.
    pub postgres: Source,
    /// Only cells whose name contains this.
    pub only: Option<String>,
    /// Time after which rounds are left out.
    pub budget: Option<Duration>,
    /// The command that repeats the run, without names of directories.
    pub command: String,
}

impl SuiteOptions {
    /// The run of this depth.
    pub fn new(data: PathBuf, depth: Depth) -> SuiteOptions {
        SuiteOptions {
            data,
            depth,
            rounds: depth.pick(1, 3, 3),
            round: Duration::from_millis(depth.pick(150, 500, 1_000)),
            rows: None,
            postgres: Source::Private,
            only: None,
            budget: depth.pick(Some(Duration::from_secs(55)), Some(Duration::from_secs(285)), None),
            command: String::new(),
        }
    }
}

/// What a suite stands on.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'g> {
    pub options: &'g SuiteOptions,
    /// A scratch directory on the disk that is measured, gone at the end.
    pub dir: &'g Path,
    /// A scratch directory in memory, where there is one.
    pub memory: Option<&'g Path>,
    /// Checked between batches of a load.
    pub interrupt: &'g Interrupt,
}

/// A section, and who takes part.
pub struct Bundle {
    /// What it shows.
    pub section: Section,
    /// What every trial of it verifies at its end.
    pub check: &'static str,
    pub entries: Vec<Entry>,
}

/// A candidate at one place of a section.
pub struct Entry {
    /// Its line: the middle of its cell's name.
    pub line: String,
    /// What to call the line; those of the engine begin with `monolite`, of raw SQLite with `raw`.
    pub name: String,
    pub x: String,
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Works through a round, and verifies it.
    pub trial: Trial,
}

impl Entry {
    /// One whose acknowledgements are durable, by `x` clients or threads, or whatever differs.
    pub fn new(
        line: impl Into<String>,
        name: impl Into<String>,
        x: impl ToString,
        trial: impl Fn(&Turn<'_>) -> Result<Round> + 'static,
    ) -> Entry {
        let (line, name, x) = (line.into(), name.into(), x.to_string());
        Entry { line, name, x, durability: Durability::Durable, trial: Box::new(trial) }
    }
}

/// Works through a round.
pub type Trial = Box<dyn Fn(&Turn<'_>) -> Result<Round>>;

/// A round of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'t> {
    /// How long it works.
    pub length: Duration,
    /// Of its random numbers, the same for all candidates of a round.
    pub seed: u64,
    /// Checked now and then.
    pub interrupt: &'t Interrupt,
}

impl Turn<'_> {
    /// The random numbers of a client.
    pub fn random(&self, client: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed << 32 | client as u64)
    }
}

/// Opens the engine, has `work` done, and closes it.
pub fn on_engine<T>(
    options: Options,
    path: &Path,
    work: impl FnOnce(&Database) -> Result<T>,
) -> Result<T> {
    let db = options.open(path).context("cannot open the engine")?;
    let done = work(&db)?;
    db.close()?;
    Ok(done)
}

/// Why PostgreSQL cannot take part.
pub fn no_postgres(ground: &Ground<'_>) -> Option<String> {
    match ground.options.postgres {
        Source::None => Some("left out by --no-postgres".into()),
        _ => server::find_binaries().err().map(|error| format!("{error:#}")),
    }
}
