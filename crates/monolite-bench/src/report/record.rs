//! `raw.json`: everything a run measured, and what it measured it on.
//!
//! # Invariants
//! Every table of a report is computed from this record alone, so that a table in a document can be
//! made again. It names no host, user or directory.

use crate::dataset::{Identity, Origin};
use crate::device::DeviceProbe;
pub use crate::drivers::WalSample;
use crate::drivers::contention::Contention;
use crate::drivers::traffic::Traffic;
use crate::drivers::{Profile, Round};
use crate::machine::{CpuTime, Machine, Processes};
use crate::raw_connection::Durability;
use crate::statistics::{Percentiles, Spread};
use crate::workload::{HotSet, Skew};
use serde::{Deserialize, Serialize};

/// Version of this record's layout.
pub const RECORD_VERSION: u32 = 1;

/// One run of a suite of `monolite bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`RECORD_VERSION`] of the program that wrote it.
    pub record_version: u32,
    /// The suite, as its command names it.
    pub suite: String,
    /// Day of the run, UTC, as `2026-11-21`.
    pub date: String,
    /// The command that repeats the run; directories replaced by `DIR`.
    pub command: String,
    /// Time that the whole run took.
    pub seconds: f64,
    /// Most memory this process held, drawn work and histograms included.
    pub peak_memory_bytes: u64,
    /// Hardware and kernel.
    pub machine: Machine,
    /// Software and its settings.
    pub setup: Setup,
    /// The data set, of a suite that keeps one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// The data otherwise, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<String>,
    /// What cells named `key/line/x` show, for each such key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// What the device can do.
    pub device: DeviceProbe,
    /// All figures.
    pub cells: Vec<Cell>,
    /// What is physically possible, for the closed-loop cells.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<PhysicalLimit>,
    /// Checks of the work; each passed, or there would be no record.
    pub verifications: Vec<Verification>,
}

/// Software, and how it was set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Version of this program.
    pub monolite: String,
    /// Version of the bundled SQLite.
    pub sqlite: String,
    /// Settings of the engine.
    pub engine: Vec<String>,
    /// Pragmas of raw connections, durable and buffered.
    pub raw_pragmas: Vec<String>,
    /// Version of PostgreSQL, when there was one.
    pub postgres: Option<String>,
    /// Settings of PostgreSQL.
    pub postgres_settings: Vec<String>,
    /// Why there was no PostgreSQL.
    pub postgres_missing: Option<String>,
    /// Counted rounds.
    pub rounds: usize,
    /// Transactions per burst round.
    pub transactions: u64,
}

/// The data set, and how hot it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// What was loaded.
    pub identity: Identity,
    /// By this run, or before.
    pub origin: Origin,
    /// Size of the database file.
    pub file_bytes: u64,
    /// Page cache of the writing connection, raw and ours.
    pub writer_cache_bytes: u64,
    /// How accounts are drawn.
    pub skew: Skew,
    /// What one burst round touches.
    pub hot_set: HotSet,
}

/// Cells that are compared: a line for each candidate, a column for each `x`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Begins the names of its cells, as `begin/disk-1-0`.
    pub key: String,
    /// What was done.
    pub title: String,
    /// What the figures mean, in one sentence.
    pub meaning: String,
    /// What differs between columns, as `threads`.
    pub x: String,
    /// What is counted, as `reads`.
    pub unit: String,
}

/// One figure: a candidate in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Unique name, as `burst/durable/monolite`.
    pub id: String,
    /// Name in a table.
    pub name: String,
    /// What an acknowledgement meant.
    pub durability: Durability,
    /// What came of it.
    pub outcome: CellOutcome,
}

/// Measured or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CellOutcome {
    /// The figures.
    Measured(Box<Measurement>),
    /// Why there are none.
    Missing(String),
}

impl Cell {
    /// A cell with figures.
    pub fn measured(profile: &Profile, measurement: Measurement) -> Cell {
        Cell {
            id: profile.id.clone(),
            name: profile.name.clone(),
            durability: profile.durability,
            outcome: CellOutcome::Measured(Box::new(measurement)),
        }
    }

    /// A cell without.
    pub fn missing(profile: &Profile, reason: &str) -> Cell {
        let outcome = CellOutcome::Missing(reason.into());
        let (id, name) = (profile.id.clone(), profile.name.clone());
        Cell { id, name, durability: profile.durability, outcome }
    }

    /// Returns the figures, when there are any.
    pub fn measurement(&self) -> Option<&Measurement> {
        match &self.outcome {
            CellOutcome::Measured(measurement) => Some(measurement),
            CellOutcome::Missing(_) => None,
        }
    }
}

/// The figures of a cell over its counted rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Acknowledged operations a second.
    pub per_second: Spread,
    /// Awaited reads a second beside them.
    pub reads_per_second: Spread,
    /// Latency over all counted rounds, submission to acknowledgement.
    pub latency: Percentiles,
    /// Transactions that failed, on purpose, in all rounds.
    pub failed: u64,
    /// Attempts repeated, in all rounds.
    pub retries: u64,
    /// WAL at its largest, where there is one to look at.
    pub wal_bytes_max: u64,
    /// Checkpoints in all rounds after which the WAL restarted, where they can be counted.
    pub checkpoints: u64,
    /// How transactions got in each other's way otherwise, in all rounds.
    #[serde(default, skip_serializing_if = "Contention::is_none")]
    pub contention: Contention,
    /// [`Contention::unchanged_share`] in all rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged_share: Option<f64>,
    /// CPU used in all rounds, where that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuTime>,
    /// What the server used in all rounds, of one that is a process of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
    /// What was read and written in all rounds, where that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// Size of the WAL over time in the last round, where it was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wal: Vec<WalSample>,
    /// What else is to be known, of each counted round; of some, in records made before rounds
    /// without a note had an empty one.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Each counted round.
    pub rounds: Vec<RoundFigures>,
}

/// The figures of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundFigures {
    /// Operations acknowledged.
    pub operations: u64,
    /// Time they took.
    pub seconds: f64,
    /// Operations a second.
    pub per_second: f64,
    /// Awaited reads a second.
    pub reads_per_second: f64,
}

impl Measurement {
    /// The notes, each with the round that it is of where there are several.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let (rounds, notes) = (self.rounds.len(), self.notes.len());
        let of = move |at: usize, note: &String| match rounds {
            0 | 1 => note.clone(),
            _ if rounds == notes => format!("round {}: {note}", at + 1),
            _ => format!("in one of {rounds} rounds: {note}"),
        };
        let told = self.notes.iter().enumerate().filter(|(_, note)| !note.is_empty());
        told.map(move |(at, note)| of(at, note))
    }

    /// Acknowledged operations of all counted rounds.
    pub fn operations(&self) -> u64 {
        self.rounds.iter().map(|round| round.operations).sum()
    }

    /// Time of all counted rounds.
    pub fn seconds(&self) -> f64 {
        let seconds: f64 = self.rounds.iter().map(|round| round.seconds).sum();
        seconds.max(f64::MIN_POSITIVE)
    }

    /// Attempts repeated in a second.
    pub fn retries_per_second(&self) -> f64 {
        self.retries as f64 / self.seconds()
    }

    /// Share of all attempts that had to be repeated.
    pub fn repeated(&self) -> f64 {
        self.retries as f64 / (self.operations() + self.retries).max(1) as f64
    }
}

impl RoundFigures {
    /// The figures of `round`.
    pub fn of(round: &Round) -> RoundFigures {
        let seconds = round.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        RoundFigures {
            operations: round.operations,
            seconds,
            per_second: round.operations as f64 / seconds,
            reads_per_second: round.reads as f64 / seconds,
        }
    }
}

/// What a number of waiting clients could reach at most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhysicalLimit {
    /// The cell it belongs to.
    pub cell: String,
    /// Clients, each waiting for its acknowledgement.
    pub clients: u64,
    /// Median of appending a page and syncing it; zero when nothing is synced.
    pub sync_latency_ns: u64,
    /// Raw batches of this many transactions, without isolation, in the same run.
    pub batch_ceiling_per_second: f64,
    /// The smaller of clients / sync latency and the ceiling.
    pub per_second: f64,
    /// What was reached, as a share of it.
    pub reached: f64,
    /// How it was computed.
    pub method: String,
}

/// A check that passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The cell whose last round it followed.
    pub after: String,
    /// What was checked.
    pub check: String,
    /// Accounts looked at.
    pub accounts: u64,
}

impl Section {
    /// A section of this key and title, what its figures mean, its columns, and what is counted.
    pub fn new(
        key: impl Into<String>,
        title: impl Into<String>,
        meaning: &str,
        [x, unit]: [&str; 2],
    ) -> Section {
        let (meaning, x, unit) = (meaning.into(), x.into(), unit.into());
        Section { key: key.into(), title: title.into(), meaning, x, unit }
    }

    /// Returns line and column of a cell, if it stands in this section.
    pub fn place<'c>(&self, cell: &'c Cell) -> Option<(&'c str, &'c str)> {
        cell.id.strip_prefix(&self.key)?.strip_prefix('/')?.split_once('/')
    }
}

impl Record {
    /// What its checks are of: where there are accounts, the money on them.
    pub fn checked(&self) -> &'static str {
        if self.suite == "tps" { "money" } else { "work" }
    }

    /// Returns the cell with this name.
    pub fn cell(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id == id)
    }

    /// Returns the median rate of the cell with this name.
    pub fn rate(&self, id: &str) -> Option<f64> {
        Some(self.cell(id)?.measurement()?.per_second.median)
    }
}

/// Returns the day, UTC, as a record has it.
pub fn today() -> String {
    jiff::Timestamp::now().to_string().chars().take("2026-11-21".len()).collect()
}
