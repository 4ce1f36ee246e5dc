//! The groups of candidates, in the order they run: burst, closed loop, reads, then those of
//! interactive transactions; and that of the profile for untrusted SQL, which runs when it is asked
//! for alone.
//!
//! Candidates of a group are interleaved, so what is compared belongs into one group.

mod interactive;
mod profile;

use super::TpsOptions;
use crate::drivers::appends::Appends;
use crate::drivers::engine::{EngineBurst, EngineClients, EngineReads, Preparing, Settings, Sql};
use crate::drivers::postgres::Postgres;
use crate::drivers::postgres::transfers::{PostgresTransfers, Reading};
use crate::drivers::raw::{Isolation, RawReads, RawTransfers};
use crate::drivers::script::{Script, Workload};
use crate::drivers::sustained::SustainedBurst;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::{self, CHECKPOINT_MOST, CHECKPOINT_SHARE, Durability};
use crate::raw_connection::{READER_CACHE_BYTES, WRITER_CACHE_BYTES};
use crate::report::names::APPENDS;
use crate::report::record::Cell;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

/// Transactions per commit of the batch that everything is compared with, as published.
pub const BATCH: u64 = 10_000;

/// One in this many fails in the failing scenario.
const FAILING: u64 = 100;

/// Logical clients of the scenario with reads. Enough that the writer's batches stay full while
/// every client waits for its reads and its own acknowledgement.
const READING_CLIENTS: u64 = 8_192;

/// Threads that drive them.
const READING_EXECUTORS: u64 = 2;

/// Point reads awaited before each write: 75 % reads, 25 % writes, as published.
const READS_PER_WRITE: u64 = 3;

/// Point reads per round of the read scenario, per burst transaction.
const READS_PER_TRANSACTION: u64 = 2;

/// Transfers drawn at most for a round that is measured by time; it begins again after the last.
const TIMED_TRANSFERS: usize = 200_000;

/// Transfers drawn for a round with delays.
const DELAYED_TRANSFERS: usize = 50_000;

/// Transactions of the burst without checkpoints: half of what fills the 128 MiB at which the
/// engine begins to copy the WAL.
const SHORT_BURST: u64 = 150_000;

type Candidates<'g> = Vec<Box<dyn Candidate + 'g>>;

/// Builds and runs the groups.
pub struct Groups<'g> {
    /// What to run.
    pub options: &'g TpsOptions,
    /// The data set.
    pub database: &'g Path,
    /// The server, when there is one.
    pub postgres: Option<&'g Postgres>,
}

/// Returns how raw connections that write are set, in a run with these options.
pub fn raw_settings(options: &TpsOptions, durability: Durability) -> raw_connection::Settings {
    raw_connection::Settings {
        durability,
        cache_bytes: WRITER_CACHE_BYTES,
        checkpoint_wal_bytes: (options.wal_limit_bytes / CHECKPOINT_SHARE).min(CHECKPOINT_MOST),
    }
}

/// Whether any cell of PostgreSQL is asked for.
pub fn wants_postgres(options: &TpsOptions) -> bool {
    let mut bursts = Durability::ALL
        .iter()
        .flat_map(|durability| POOLS.map(|pool| format!("burst/{durability}/postgres-{pool}")));
    bursts.any(|id| selected(options, &id)) || interactive::wants_postgres(options)
}

const POOLS: [usize; 2] = [8, 64];

fn selected(options: &TpsOptions, id: &str) -> bool {
    options.only.as_ref().is_none_or(|filter| id.contains(filter.as_str()))
}

impl<'g> Groups<'g> {
    /// Runs every group and returns all cells, those without figures included.
    ///
    /// # Errors
    /// Those of [`Bench::interleave`].
    pub fn run(&self, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
        let burst = self.options.transactions as usize;
        let mut cells = Vec::new();
        for durability in Durability::ALL {
            let group = format!("burst, {durability}");
            cells.extend(self.measure(bench, &group, burst, self.burst(durability))?);
        }
        for durability in Durability::ALL {
            let group = format!("closed loop, {durability}");
            let candidates = self.closed_loop(durability);
            let transfers = burst.min(TIMED_TRANSFERS);
            cells.extend(self.measure(bench, &group, transfers, candidates)?);
        }
        cells.extend(self.measure(bench, "point reads", burst, self.reads())?);
        cells.extend(self.interactive(bench)?);
        if let Some(time) = self.options.sustained {
            let rounds = std::mem::replace(&mut bench.rounds, 1);
            let group = self.sustained(time);
            cells.extend(self.measure(bench, "sustained burst", TIMED_TRANSFERS, group)?);
            bench.rounds = rounds;
        }
        cells.extend(self.profile_groups(bench)?);
        cells.extend(self.missing());
        Ok(cells)
    }

    fn interactive(&self, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
        let transfers = (self.options.transactions as usize).min(DELAYED_TRANSFERS);
        let groups = [
            ("interactive, blind", self.delays(Workload::Blind)),
            ("interactive, decide", self.delays(Workload::Decide)),
            ("interactive, mixed", self.mixed()),
            ("interactive, sleepers", self.sleepers()),
            ("interactive, cost", self.costs()),
        ];
        let mut cells = Vec::new();
        for (group, candidates) in groups {
            cells.extend(self.measure(bench, group, transfers, candidates)?);
        }
        Ok(cells)
    }

    /// A burst too short for a checkpoint, and long ones beside a reader, within a limit that the
    /// reader's ten seconds exceed and one that they do not.
    fn sustained(&self, time: Duration) -> Candidates<'g> {
        let burst = |key: &str, name: &str, extent, wal_limit_bytes| {
            let id = format!("sustained/durable/{key}");
            let durability = Durability::Durable;
            EngineBurst {
                profile: self.profile(id, name, durability, extent),
                database: self.database.to_owned(),
                settings: Settings { durability, wal_limit_bytes, sql: Sql::Trusted },
            }
        };
        let seconds = time.as_secs();
        let limits = [("held", 1_u64 << 30), ("held-roomy", 8_u64 << 30)];
        let mut group: Candidates<'g> = vec![Box::new(burst(
            "short",
            "monolite, too short for a checkpoint",
            Extent::Operations(SHORT_BURST),
            limits[0].1,
        ))];
        for (key, limit) in limits {
            let name = format!("monolite, {seconds} s, WAL limit {} MiB", limit >> 20);
            let burst = burst(key, &name, Extent::Time(time), limit);
            group.push(Box::new(SustainedBurst { burst }));
        }
        group
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        group: &str,
        transfers: usize,
        mut candidates: Candidates<'_>,
    ) -> Result<Vec<Cell>> {
        candidates.retain(|candidate| selected(self.options, &candidate.profile().id));
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        bench.interleave(group, transfers, candidates)
    }

    fn profile(&self, id: String, name: &str, durability: Durability, extent: Extent) -> Profile {
        let store = Store::Dataset;
        Profile { id, name: name.into(), durability, extent, store, failing: None }
    }

    fn timed(&self) -> Extent {
        Extent::Time(self.options.timed_round)
    }

    fn engine_settings(&self, durability: Durability) -> Settings {
        let wal_limit_bytes = self.options.wal_limit_bytes;
        Settings { durability, wal_limit_bytes, sql: Sql::Trusted }
    }

    fn raw(&self, profile: Profile, batch: u64, isolation: Isolation) -> Box<dyn Candidate + 'g> {
        let settings = raw_settings(self.options, profile.durability);
        let database = self.database.to_owned();
        Box::new(RawTransfers { profile, database, settings, batch, isolation })
    }

    fn burst(&self, durability: Durability) -> Candidates<'g> {
        let all = Extent::Operations(self.options.transactions);
        let profile = |key: &str, name: &str, extent| {
            self.profile(format!("burst/{durability}/{key}"), name, durability, extent)
        };
        let database = self.database.to_owned();
        let settings = self.engine_settings(durability);
        let one = profile("one-per-commit", "raw, one transaction per commit", self.timed());
        let batch = profile("raw-batch", "raw, batches of 10,000, no isolation", all);
        let guarded = profile("raw-batch-savepoints", "raw, batches of 10,000, savepoints", all);
        let ours = profile("monolite", "monolite", all);
        let mut failing = profile("monolite-failing", "monolite, 1 in 100 failing", all);
        failing.failing = Some(FAILING);
        let reads = profile("monolite-reads", "monolite, 3 awaited reads per write", all);
        let mut group: Candidates<'g> = vec![
            self.raw(one, 1, Isolation::None),
            self.raw(batch, BATCH, Isolation::None),
            self.raw(guarded, BATCH, Isolation::Savepoint),
            Box::new(EngineBurst { profile: ours, database: database.clone(), settings }),
            Box::new(EngineBurst { profile: failing, database: database.clone(), settings }),
            Box::new(EngineClients {
                profile: reads,
                database,
                settings,
                clients: READING_CLIENTS,
                executors: READING_EXECUTORS,
                reads_per_write: READS_PER_WRITE,
            }),
        ];
        for pool in self.postgres.iter().flat_map(|_| POOLS) {
            let name = format!("PostgreSQL, pool {pool}, read committed");
            let profile = profile(&format!("postgres-{pool}"), &name, self.timed());
            group.extend(self.postgres(profile, pool));
        }
        group
    }

    fn postgres(&self, profile: Profile, pool: usize) -> Option<Box<dyn Candidate + 'g>> {
        let workload = Workload::Blind;
        Some(Box::new(PostgresTransfers {
            profile: Profile { store: Store::Server, ..profile },
            postgres: self.postgres?,
            pool,
            isolation: IsolationLevel::ReadCommitted,
            reading: Reading::Plain,
            script: Script { workload, delay: Duration::ZERO, third_statement: false },
        }))
    }

    fn closed_loop(&self, durability: Durability) -> Candidates<'g> {
        let profile = |key: String, name: String| {
            self.profile(format!("closed/{durability}/{key}"), &name, durability, self.timed())
        };
        let mut group: Candidates<'g> = Vec::new();
        if durability == Durability::Durable {
            let name = "device, append 4 KiB + fdatasync";
            let profile = self.profile(APPENDS.into(), name, durability, self.timed());
            let profile = Profile { store: Store::Nowhere, ..profile };
            group.push(Box::new(Appends { profile, dir: self.options.data.clone() }));
        }
        for &clients in &self.options.waiting_clients {
            let raw = profile(format!("raw-batch-{clients}"), format!("raw, batches of {clients}"));
            let name = match clients {
                1 => "monolite, 1 client (a thread)".to_owned(),
                _ => format!("monolite, {clients} clients (futures)"),
            };
            group.push(self.raw(raw, clients, Isolation::None));
            group.push(Box::new(EngineClients {
                profile: profile(format!("monolite-{clients}"), name),
                database: self.database.to_owned(),
                settings: self.engine_settings(durability),
                clients,
                executors: 1,
                reads_per_write: 0,
            }));
        }
        group
    }

    fn reads(&self) -> Candidates<'g> {
        let durability = Durability::Durable;
        let extent = Extent::Operations(self.options.transactions * READS_PER_TRANSACTION);
        let profile = |key: &str, name: &str| {
            let id = format!("reads/durable/{key}");
            Profile { store: Store::Nowhere, ..self.profile(id, name, durability, extent) }
        };
        let database = self.database.to_owned();
        let settings = raw_connection::Settings {
            cache_bytes: READER_CACHE_BYTES,
            ..raw_settings(self.options, durability)
        };
        let raw = profile("raw", "raw, prepared statement, unix-excl");
        let ours = profile("monolite", "monolite, read(…).wait()");
        vec![
            Box::new(RawReads { profile: raw, database: database.clone(), settings }),
            Box::new(EngineReads {
                profile: ours,
                database,
                settings: self.engine_settings(durability),
                preparing: Preparing::Kept,
            }),
        ]
    }

    /// The cells that cannot be measured, with the reason.
    fn missing(&self) -> Vec<Cell> {
        let mut missing = Vec::new();
        if self.postgres.is_none() {
            for (durability, pool) in
                Durability::ALL.iter().flat_map(|durability| POOLS.map(|pool| (*durability, pool)))
            {
                let id = format!("burst/{durability}/postgres-{pool}");
                let name = format!("PostgreSQL, pool {pool}, read committed");
                missing.push(Cell::missing(&id, &name, durability, "missing"));
            }
        }
        missing.extend(self.missing_delays());
        missing.retain(|cell| selected(self.options, &cell.id));
        missing
    }
}
