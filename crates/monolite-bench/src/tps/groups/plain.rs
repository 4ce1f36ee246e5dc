//! The groups without anything between the statements of a transaction: bursts, closed loops,
//! reads, bursts beside backups, and bursts on data larger than the cache.

use super::{Candidates, Groups, TIMED_TRANSFERS, raw_settings};
use crate::drivers::appends::Appends;
use crate::drivers::asked::Reading;
use crate::drivers::backups::BurstBesideBackups;
use crate::drivers::engine::{EngineBurst, EngineClients, EngineReads};
use crate::drivers::postgres::reads::PostgresReads;
use crate::drivers::postgres::transfers::PostgresTransfers;
use crate::drivers::raw::{Isolation, RawReads, RawTransfers};
use crate::drivers::script::Script;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::{self, Durability, READER_CACHE_BYTES};
use crate::report::names::{APPENDS, BACKUPS, BURST_ALONE};
use crate::report::record::Cell;
use crate::workload::{Draw, Skew};
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

/// Transactions per commit of the batch that everything is compared with, as published.
const BATCH: u64 = 10_000;

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

/// Connections of PostgreSQL's pools.
const POOLS: [usize; 2] = [8, 64];

/// How long a round beside backups is: a backup of ten million accounts takes about as long.
const BACKUP_ROUND: Duration = Duration::from_secs(15);

/// Rounds of the uniform draw are longer by this, so that there are checkpoints in them.
const UNIFORM_LONGER: u32 = 2;

/// Transfers drawn for such a round: about as many as the fastest does in it, since one that comes
/// a second time finds its pages in the cache.
const UNIFORM_TRANSFERS: usize = 60_000;

/// Everything is submitted at once, and each transaction is acknowledged one by one.
pub(super) fn bursts(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = groups.options.transactions as usize;
    let mut cells = Vec::new();
    for &durability in &groups.options.durabilities {
        let name = format!("burst, {durability}");
        cells.extend(groups.measure(bench, &name, transfers, groups.bursts(durability))?);
    }
    Ok(cells)
}

/// Clients that wait for each transaction before they submit the next.
pub(super) fn closed_loops(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = (groups.options.transactions as usize).min(TIMED_TRANSFERS);
    let mut cells = Vec::new();
    for &durability in &groups.options.durabilities {
        let name = format!("closed loop, {durability}");
        cells.extend(groups.measure(bench, &name, transfers, groups.closed_loop(durability))?);
    }
    Ok(cells)
}

/// Point reads by one thread.
pub(super) fn reads(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let durability = Durability::Durable;
    let all = Extent::Operations(groups.options.transactions * READS_PER_TRANSACTION);
    let profile = |key: &str, name: &str, extent| {
        let profile = groups.profile(format!("reads/durable/{key}"), name, durability, extent);
        Profile { store: Store::Nowhere, ..profile }
    };
    let database = groups.database.to_owned();
    let settings = raw_connection::Settings {
        cache_bytes: READER_CACHE_BYTES,
        ..raw_settings(groups.options, durability)
    };
    let raw = RawReads { database: database.clone(), settings };
    let ours = EngineReads { database, settings: groups.engine_settings(durability) };
    let theirs = "PostgreSQL, one connection, prepared statement";
    let candidates = vec![
        Candidate::new(profile("raw", "raw, prepared statement, unix-excl", all), raw),
        Candidate::new(profile("monolite", "monolite, read(…).wait()", all), ours),
        Candidate::new(
            profile("postgres", theirs, groups.timed()),
            PostgresReads { postgres: groups.postgres },
        ),
    ];
    groups.measure(bench, "point reads", groups.options.transactions as usize, candidates)
}

/// A burst with and without backups beside it. It is run when it is asked for by name, and not with
/// all others: what it compares is the engine with itself.
pub(super) fn backups(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let filter = groups.options.only.as_deref().unwrap_or_default();
    if !filter.starts_with(BACKUPS) {
        return Ok(Vec::new());
    }
    let (durable, extent) = (Durability::Durable, Extent::Time(BACKUP_ROUND));
    let alone = groups.profile(BURST_ALONE, "monolite, without one", durable, extent);
    let id = format!("{BACKUPS}durable/beside");
    let beside = groups.profile(id, "monolite, while backups are made", durable, extent);
    let burst = BurstBesideBackups { burst: groups.burst(durable) };
    let candidates =
        vec![Candidate::new(alone, groups.burst(durable)), Candidate::new(beside, burst)];
    groups.measure(bench, "a burst beside backups", TIMED_TRANSFERS, candidates)
}

/// A burst on accounts each of which is equally likely: data larger than the cache, as most tables
/// are. It is left out where the whole run draws so.
pub(super) fn uniform(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    if groups.options.skew == Skew::Uniform {
        return Ok(Vec::new());
    }
    let extent = Extent::Time(groups.options.timed_round * UNIFORM_LONGER);
    let profile = |key: &str, name: &str| {
        groups.profile(format!("uniform/durable/{key}"), name, Durability::Durable, extent)
    };
    let raw = profile("raw-batch", "raw, batches of 10,000, no isolation");
    let theirs = profile("postgres-64", "PostgreSQL, pool 64, read committed");
    let candidates = vec![
        groups.raw(raw, BATCH, Isolation::None),
        Candidate::new(profile("monolite", "monolite"), groups.burst(Durability::Durable)),
        groups.pool(theirs, 64),
    ];
    let uniform = Draw::new(Skew::Uniform, groups.options.rows);
    let draw = std::mem::replace(&mut bench.draw, uniform);
    let transfers = UNIFORM_TRANSFERS.min(groups.options.transactions as usize);
    let cells = groups.measure(bench, "burst, uniform", transfers, candidates);
    bench.draw = draw;
    cells
}

impl<'g> Groups<'g> {
    fn burst(&self, durability: Durability) -> EngineBurst {
        let settings = self.engine_settings(durability);
        EngineBurst { database: self.database.to_owned(), settings }
    }

    fn raw(&self, profile: Profile, batch: u64, isolation: Isolation) -> Candidate<'g> {
        let settings = raw_settings(self.options, profile.durability);
        let database = self.database.to_owned();
        Candidate::new(profile, RawTransfers { database, settings, batch, isolation })
    }

    fn pool(&self, profile: Profile, pool: usize) -> Candidate<'g> {
        let transfers = PostgresTransfers {
            postgres: self.postgres,
            pool,
            isolation: IsolationLevel::ReadCommitted,
            reading: Reading::Plain,
            script: Script::PLAIN,
        };
        Candidate::new(Profile { store: Store::Server, ..profile }, transfers)
    }

    fn clients(&self, durability: Durability, clients: u64) -> EngineClients {
        let settings = self.engine_settings(durability);
        let database = self.database.to_owned();
        EngineClients { database, settings, clients, executors: 1, reads_per_write: 0 }
    }

    fn bursts(&self, durability: Durability) -> Candidates<'g> {
        let all = Extent::Operations(self.options.transactions);
        let profile = |key: &str, name: &str, extent| {
            self.profile(format!("burst/{durability}/{key}"), name, durability, extent)
        };
        let one = profile("one-per-commit", "raw, one transaction per commit", self.timed());
        let batch = profile("raw-batch", "raw, batches of 10,000, no isolation", all);
        let guarded = profile("raw-batch-savepoints", "raw, batches of 10,000, savepoints", all);
        let failing = Profile {
            failing: Some(FAILING),
            ..profile("monolite-failing", "monolite, 1 in 100 failing", all)
        };
        let reading = EngineClients {
            executors: READING_EXECUTORS,
            reads_per_write: READS_PER_WRITE,
            ..self.clients(durability, READING_CLIENTS)
        };
        let reads = profile("monolite-reads", "monolite, 3 awaited reads per write", all);
        let mut group = vec![
            self.raw(one, 1, Isolation::None),
            self.raw(batch, BATCH, Isolation::None),
            self.raw(guarded, BATCH, Isolation::Savepoint),
            Candidate::new(profile("monolite", "monolite", all), self.burst(durability)),
            Candidate::new(failing, self.burst(durability)),
            Candidate::new(reads, reading),
        ];
        group.extend(POOLS.map(|pool| {
            let name = format!("PostgreSQL, pool {pool}, read committed");
            self.pool(profile(&format!("postgres-{pool}"), &name, self.timed()), pool)
        }));
        group
    }

    fn closed_loop(&self, durability: Durability) -> Candidates<'g> {
        let profile = |key: String, name: String| {
            self.profile(format!("closed/{durability}/{key}"), name, durability, self.timed())
        };
        let mut group: Candidates<'g> = Vec::new();
        if durability == Durability::Durable {
            let name = "device, append 4 KiB + fdatasync";
            let profile = self.profile(APPENDS, name, durability, self.timed());
            let profile = Profile { store: Store::Nowhere, ..profile };
            group.push(Candidate::new(profile, Appends { dir: self.options.data.clone() }));
        }
        for &clients in &self.options.waiting_clients {
            let raw = profile(format!("raw-batch-{clients}"), format!("raw, batches of {clients}"));
            let name = match clients {
                1 => "monolite, 1 client (a thread)".to_owned(),
                _ => format!("monolite, {clients} clients (futures)"),
            };
            let ours = profile(format!("monolite-{clients}"), name);
            group.push(self.raw(raw, clients, Isolation::None));
            group.push(Candidate::new(ours, self.clients(durability, clients)));
        }
        group
    }
}
