//! The groups of candidates: a file for each, and a line in the table of them.
//!
//! Candidates of a group are interleaved, so what is compared belongs into one group.

mod backups;
mod burst;
mod closed_loop;
mod contests;
mod interactive;
mod reads;
mod uniform;

use super::TpsOptions;
use crate::drivers::engine::{Settings, Sql};
use crate::drivers::postgres::Postgres;
use crate::drivers::raw::{Isolation, RawTransfers};
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::WRITER_CACHE_BYTES;
use crate::raw_connection::{self, CHECKPOINT_MOST, CHECKPOINT_SHARE, Durability};
use crate::report::record::Cell;
use anyhow::Result;
use std::path::Path;

/// Point reads per round of the read scenario, per burst transaction.
const READS_PER_TRANSACTION: u64 = 2;

/// Transfers drawn at most for a round that is measured by time; it begins again after the last.
const TIMED_TRANSFERS: usize = 200_000;

/// The groups, in the order in which they run. Their tables are in `report::tables`.
const GROUPS: [Group; 7] = [
    burst::GROUP,
    closed_loop::GROUP,
    reads::GROUP,
    interactive::GROUP,
    contests::GROUP,
    backups::GROUP,
    // Last: each account that it touches is looked at again after each candidate that follows.
    uniform::GROUP,
];

/// Candidates that are compared with each other, or a few such sets that belong together.
struct Group {
    /// Measures what is asked for.
    run: fn(&Groups<'_>, &mut Bench<'_>) -> Result<Vec<Cell>>,
    /// Its cells that cannot be measured without PostgreSQL.
    postgres: fn(&TpsOptions) -> Vec<PostgresCell>,
}

/// A cell of PostgreSQL, by its name.
pub(super) struct PostgresCell {
    pub(super) id: String,
    name: String,
    durability: Durability,
}

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
    postgres_cells(options).next().is_some()
}

/// Whether any of them is a transfer between accounts.
pub fn wants_accounts_in_postgres(options: &TpsOptions) -> bool {
    postgres_cells(options).any(|cell| !contests::needs_no_accounts(&cell.id))
}

fn selected(options: &TpsOptions, id: &str) -> bool {
    options.only.as_ref().is_none_or(|filter| id.contains(filter.as_str()))
}

impl<'g> Groups<'g> {
    /// Runs every group and returns all cells, those without figures included.
    pub fn run(&self, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for group in &GROUPS {
            cells.extend((group.run)(self, bench)?);
        }
        cells.extend(self.missing());
        Ok(cells)
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

    /// The cells that cannot be measured, with the reason.
    fn missing(&self) -> Vec<Cell> {
        if self.postgres.is_some() {
            return Vec::new();
        }
        let missing =
            |cell: PostgresCell| Cell::missing(&cell.id, &cell.name, cell.durability, "missing");
        postgres_cells(self.options).map(missing).collect()
    }
}

/// The cells of PostgreSQL that are asked for.
pub(super) fn postgres_cells(options: &TpsOptions) -> impl Iterator<Item = PostgresCell> {
    let all = GROUPS.iter().flat_map(|group| (group.postgres)(options));
    all.filter(|cell| selected(options, &cell.id))
}
