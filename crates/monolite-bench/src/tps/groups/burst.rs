//! Bursts: everything is submitted at once, and each transaction is acknowledged one by one.

use super::{Candidates, Group, Groups, PostgresCell};
use crate::drivers::engine::{EngineBurst, EngineClients};
use crate::drivers::postgres::transfers::PostgresTransfers;
use crate::drivers::raw::Isolation;
use crate::drivers::script::{Reading, Script, Workload};
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::record::Cell;
use crate::tps::TpsOptions;
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

pub(super) const GROUP: Group = Group { run, postgres };

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

/// Connections of PostgreSQL's pools.
const POOLS: [usize; 2] = [8, 64];

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = groups.options.transactions as usize;
    let mut cells = Vec::new();
    for &durability in &groups.options.durabilities {
        let name = format!("burst, {durability}");
        cells.extend(groups.measure(bench, &name, transfers, groups.burst(durability))?);
    }
    Ok(cells)
}

fn postgres(options: &TpsOptions) -> Vec<PostgresCell> {
    let of = |durability| POOLS.map(|pool| postgres_cell(durability, pool));
    options.durabilities.iter().copied().flat_map(of).collect()
}

fn postgres_cell(durability: Durability, pool: usize) -> PostgresCell {
    PostgresCell {
        id: format!("burst/{durability}/postgres-{pool}"),
        name: format!("PostgreSQL, pool {pool}, read committed"),
        durability,
    }
}

impl<'g> Groups<'g> {
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
            let PostgresCell { id, name, durability } = postgres_cell(durability, pool);
            let profile = self.profile(id, &name, durability, self.timed());
            group.extend(self.postgres(profile, pool));
        }
        group
    }

    pub(super) fn postgres(
        &self,
        profile: Profile,
        pool: usize,
    ) -> Option<Box<dyn Candidate + 'g>> {
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
}
