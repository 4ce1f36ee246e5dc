//! The groups that state the price of the profile for untrusted SQL: the same reads and writes with
//! and without it. They are run when they are asked for by name, and not with all others: what they
//! compare is the engine with itself.

use super::{Candidates, Group, Groups, READS_PER_TRANSACTION, TIMED_TRANSFERS};
use crate::drivers::engine::{EngineClients, EngineReads, Preparing, Settings, Sql};
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::names::PROFILE;
use crate::report::record::Cell;
use anyhow::Result;

pub(super) const GROUP: Group = Group { run, postgres: |_| Vec::new() };

/// Clients that wait for their writes: enough for the writer to be busy all the time.
const CLIENTS: u64 = 1_024;

const SQL: [(Sql, &str); 2] = [(Sql::Trusted, "trusted"), (Sql::Untrusted, "untrusted")];

/// Runs what was asked for of the price of the profile, if the filter names it.
fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let filter = groups.options.only.as_deref().unwrap_or_default();
    if !filter.starts_with(PROFILE) {
        return Ok(Vec::new());
    }
    let burst = groups.options.transactions as usize;
    let mut cells = Vec::new();
    for (preparing, key, how) in [
        (Preparing::Kept, "reads", "point reads, query_row"),
        (Preparing::Cached, "cached", "point reads, prepare_cached"),
    ] {
        let group = groups.profile_reads(preparing, key, how);
        cells.extend(groups.measure(bench, &format!("profile, {how}"), burst, group)?);
    }
    for durability in Durability::ALL {
        let group = groups.profile_writes(durability);
        let transfers = burst.min(TIMED_TRANSFERS);
        cells.extend(groups.measure(
            bench,
            &format!("profile, {durability} writes"),
            transfers,
            group,
        )?);
    }
    Ok(cells)
}

impl Groups<'_> {
    fn profile_settings(&self, durability: Durability, sql: Sql) -> Settings {
        Settings { sql, ..self.engine_settings(durability) }
    }

    fn profile_reads(&self, preparing: Preparing, key: &str, how: &str) -> Candidates<'_> {
        let durability = Durability::Durable;
        let extent = Extent::Operations(self.options.transactions * READS_PER_TRANSACTION);
        let candidate = |(sql, whose): (Sql, &str)| {
            let id = format!("{PROFILE}{durability}/{key}-{whose}");
            let name = format!("{how}, {whose}");
            let profile = self.profile(id, &name, durability, extent);
            Box::new(EngineReads {
                profile: Profile { store: Store::Nowhere, ..profile },
                database: self.database.to_owned(),
                settings: self.profile_settings(durability, sql),
                preparing,
            }) as Box<dyn Candidate>
        };
        SQL.into_iter().map(candidate).collect()
    }

    fn profile_writes(&self, durability: Durability) -> Candidates<'_> {
        let candidate = |(sql, whose): (Sql, &str)| {
            let id = format!("{PROFILE}{durability}/writes-{whose}");
            let name = format!("two updates, {CLIENTS} clients, {durability}, {whose}");
            Box::new(EngineClients {
                profile: self.profile(id, &name, durability, self.timed()),
                database: self.database.to_owned(),
                settings: self.profile_settings(durability, sql),
                clients: CLIENTS,
                executors: 1,
                reads_per_write: 0,
            }) as Box<dyn Candidate>
        };
        SQL.into_iter().map(candidate).collect()
    }
}
