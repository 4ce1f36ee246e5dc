//! The candidates: each drives one database in one way, for one round at a time.

pub mod appends;
pub mod asked;
pub mod backups;
pub mod clients;
pub mod contention;
pub mod contest;
pub mod engine;
pub mod held;
pub mod interactive;
pub mod postgres;
pub mod raw;
pub mod script;
pub mod sleepers;
pub mod traffic;

use self::contention::Contention;
use self::traffic::Traffic;
use crate::machine::{CpuTime, Processes};
use crate::progress::Interrupt;
use crate::raw_connection::Durability;
use crate::statistics::Latencies;
use crate::workload::Transfer;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a candidate works in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// This many transactions (or reads), then stop.
    Operations(u64),
    /// As many as fit in this time.
    Time(Duration),
}

/// Where a candidate's money is, which decides how it is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In the data set's file: account by account, and the sum.
    Dataset,
    /// On a server: the sum, at the end of the run.
    Server,
    /// There is none.
    Nowhere,
}

/// The work of one round, the same for every candidate of the group.
#[derive(Debug)]
pub struct Work<'a> {
    /// Transfers, drawn before the clock starts. When all are done they begin again.
    pub transfers: &'a [Transfer],
    /// Share of the candidate's extent to do: 1 in a counted round.
    pub share: f64,
    /// Transfers at most that warm caches before the clock starts, after a database was opened:
    /// they bring most of the hot pages into its cache.
    pub warm_up_transfers: usize,
    /// Checked now and then.
    pub interrupt: &'a Interrupt,
}

impl Work<'_> {
    /// Returns transfer number `index`.
    pub fn transfer(&self, index: u64) -> Transfer {
        self.transfers[(index % self.transfers.len() as u64) as usize]
    }

    /// Returns the end of a round that begins now.
    pub fn goal(&self, extent: Extent) -> Goal {
        match extent {
            Extent::Operations(count) => {
                let count = (count as f64 * self.share).ceil() as u64;
                Goal { count: count.max(1), deadline: None }
            }
            Extent::Time(time) => {
                Goal { count: u64::MAX, deadline: Some(Instant::now() + time.mul_f64(self.share)) }
            }
        }
    }

    /// Returns the transfers that warm caches before the clock starts.
    pub fn warm_up(&self) -> &[Transfer] {
        &self.transfers[..self.transfers.len().min(self.warm_up_transfers)]
    }
}

/// When a round ends.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Operations to do at most.
    pub count: u64,
    /// Time to stop at.
    pub deadline: Option<Instant>,
}

impl Goal {
    /// Whether operation number `next` is one too many.
    pub fn reached(&self, next: u64) -> bool {
        next >= self.count || self.is_late()
    }

    /// Whether its time is over.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Takes the next operation for one of many clients, until the round is over; one at least.
    /// Those taken are the first ones, without a gap, however many clients there are.
    pub fn take(&self, next: &AtomicU64) -> Option<u64> {
        if self.is_late() && next.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let index = next.fetch_add(1, Ordering::Relaxed);
        (index < self.count).then_some(index)
    }
}

/// What one candidate did in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Operations acknowledged (failed ones not among them).
    pub operations: u64,
    /// Transfers taken from the work, in order; those that fail on purpose included.
    pub taken: u64,
    /// Awaited reads beside the operations.
    pub reads: u64,
    /// Transactions that failed, all on purpose.
    pub failed: u64,
    /// Attempts that had to be repeated.
    pub retries: u64,
    /// How the transactions got in each other's way otherwise.
    pub contention: Contention,
    /// CPU that it took, where that was measured.
    pub cpu: Option<CpuTime>,
    /// What the server used, of one that is a process of its own.
    pub processes: Option<Processes>,
    /// Time from the first submission to the last acknowledgement.
    pub elapsed: Duration,
    /// Latency of an operation, from submission to acknowledgement.
    pub latencies: Latencies,
    /// WAL at its largest, warm-up included.
    pub wal_bytes_max: u64,
    /// Times that a checkpoint was completed and the WAL restarted, warm-up included.
    pub checkpoints: u64,
    /// Size of the WAL over time, where it was looked at.
    pub wal: Vec<WalSample>,
    /// What was read and written, where that was counted.
    pub traffic: Option<Traffic>,
    /// What else is to be known of the round.
    pub note: Option<String>,
}

/// A look at the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalSample {
    /// Since the round began.
    pub seconds: f64,
    /// Size of the file.
    pub bytes: u64,
}

/// What one of many clients did in a round.
///
/// It keeps its latencies as they are: a histogram for each of thousands of clients would take its
/// memory, and most of the time that is measured, from the candidate.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Latency of each acknowledged operation.
    pub latencies: Vec<Duration>,
    /// Attempts that had to be repeated.
    pub retries: u64,
    /// Rests in the busy handler of raw SQLite.
    pub busy_waits: u64,
}

impl Part {
    /// Adds an acknowledged operation that began at `start`.
    pub fn acknowledged(&mut self, start: Instant) {
        self.latencies.push(start.elapsed());
    }
}

impl Round {
    /// The round that these clients did together, one operation per latency.
    pub fn of(parts: &[Part], elapsed: Duration) -> Round {
        let mut round = Round { elapsed, ..Round::default() };
        for part in parts {
            part.latencies.iter().for_each(|latency| round.latencies.record(*latency));
            round.operations += part.latencies.len() as u64;
            round.retries += part.retries;
            round.contention.busy_waits += part.busy_waits;
        }
        round.taken = round.operations;
        round
    }
}

/// What a candidate is.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Unique name, as `burst/durable/monolite`.
    pub id: String,
    pub name: String,
    /// What its acknowledgement means.
    pub durability: Durability,
    pub extent: Extent,
    /// Where its money is.
    pub store: Store,
    /// One transaction in this many fails on purpose, the last of each run of that many.
    pub failing: Option<u64>,
}

impl Profile {
    /// Whether it needs PostgreSQL.
    pub fn is_of_postgres(&self) -> bool {
        self.id.contains("/postgres")
    }

    /// Whether transfer number `index` must fail.
    pub fn fails(&self, index: u64) -> bool {
        self.failing.is_some_and(|every| index % every == every - 1)
    }
}

/// One driver, used in one way.
pub struct Candidate<'c> {
    pub profile: Profile,
    driver: Box<dyn Driver + 'c>,
}

impl<'c> Candidate<'c> {
    /// A driver of this profile.
    pub fn new(profile: Profile, driver: impl Driver + 'c) -> Candidate<'c> {
        Candidate { profile, driver: Box::new(driver) }
    }

    /// Works through a round.
    pub fn run(&self, work: &Work<'_>) -> Result<Outcome> {
        self.driver.run(&self.profile, work)
    }
}

/// Drives one database in one way.
pub trait Driver {
    /// Opens its database, warms up, works through the round, and closes. Only the work is timed.
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome>;
}

/// Why a candidate cannot be measured here: an error of it that is a gap in the report and not the
/// end of the run.
#[derive(Clone, Debug)]
pub struct Absent(pub String);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}

/// A round, and the warm-up transfers that were done before it.
#[derive(Debug)]
pub struct Outcome {
    /// The timed part.
    pub round: Round,
    /// How many of [`Work::warm_up`] were done first.
    pub warmed: u64,
}
