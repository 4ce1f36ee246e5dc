//! The groups of candidates, in the order in which they run.
//!
//! Candidates of a group are interleaved, so what is compared belongs into one group.

mod contests;
mod interactive;
mod plain;

use super::TpsOptions;
use crate::drivers::engine::Settings;
use crate::drivers::postgres::Postgres;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::WRITER_CACHE_BYTES;
use crate::raw_connection::{self, CHECKPOINT_MOST, CHECKPOINT_SHARE, Durability};
use crate::report::record::Cell;
use anyhow::Result;
pub(super) use contests::needs_no_accounts;
use std::path::Path;

/// Transfers drawn at most for a round that is measured by time; it begins again after the last.
const TIMED_TRANSFERS: usize = 200_000;

/// Measures what is asked for of candidates that are compared, or of a few such sets.
type Group = fn(&Groups<'_>, &mut Bench<'_>) -> Result<Vec<Cell>>;

/// The groups. Their tables are in `report::tables`.
const GROUPS: [Group; 7] = [
    plain::bursts,
    plain::closed_loops,
    plain::reads,
    interactive::run,
    contests::run,
    plain::backups,
    // Last: each account that it touches is looked at again after each candidate that follows.
    plain::uniform,
];

type Candidates<'g> = Vec<Candidate<'g>>;

/// Builds and runs the groups.
pub struct Groups<'g> {
    pub options: &'g TpsOptions,
    pub database: &'g Path,
    /// The server, when there is one.
    pub postgres: Option<&'g Postgres>,
    /// Whether there will be a server: then its cells are planned.
    pub expects_postgres: bool,
}

/// Returns how raw connections that write are set, in a run with these options.
pub fn raw_settings(options: &TpsOptions, durability: Durability) -> raw_connection::Settings {
    raw_connection::Settings {
        durability,
        cache_bytes: WRITER_CACHE_BYTES,
        checkpoint_wal_bytes: (options.wal_limit_bytes / CHECKPOINT_SHARE).min(CHECKPOINT_MOST),
    }
}

impl<'g> Groups<'g> {
    /// Runs every group and returns all cells, those without figures included.
    pub fn run(&self, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for group in &GROUPS {
            cells.extend(group(self, bench)?);
        }
        Ok(cells)
    }

    /// Measures what the filter selects; what needs PostgreSQL is missing where there is none.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        group: &str,
        transfers: usize,
        mut candidates: Candidates<'_>,
    ) -> Result<Vec<Cell>> {
        let filter = self.options.only.as_deref().unwrap_or_default();
        candidates.retain(|candidate| candidate.profile.id.contains(filter));
        let there = self.postgres.is_some() || self.expects_postgres;
        let (candidates, missing): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|it| there || !it.profile.is_of_postgres());
        let mut cells = Vec::new();
        if !candidates.is_empty() {
            cells = bench.interleave(group, transfers, candidates)?;
        }
        cells.extend(missing.iter().map(|candidate| Cell::missing(&candidate.profile, "missing")));
        Ok(cells)
    }

    fn profile(
        &self,
        id: impl Into<String>,
        name: impl Into<String>,
        durability: Durability,
        extent: Extent,
    ) -> Profile {
        let (id, name) = (id.into(), name.into());
        Profile { id, name, durability, extent, store: Store::Dataset, failing: None }
    }

    fn timed(&self) -> Extent {
        Extent::Time(self.options.timed_round)
    }

    fn engine_settings(&self, durability: Durability) -> Settings {
        let wal_limit_bytes = self.options.wal_limit_bytes;
        Settings { durability, wal_limit_bytes }
    }
}
