//! Closed loops: clients that wait for each transaction before they submit the next.

use super::{Candidates, Group, Groups, TIMED_TRANSFERS};
use crate::drivers::appends::Appends;
use crate::drivers::engine::EngineClients;
use crate::drivers::raw::Isolation;
use crate::drivers::{Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::names::APPENDS;
use crate::report::record::Cell;
use anyhow::Result;

pub(super) const GROUP: Group = Group { run, postgres: |_| Vec::new() };

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = (groups.options.transactions as usize).min(TIMED_TRANSFERS);
    let mut cells = Vec::new();
    for &durability in &groups.options.durabilities {
        let name = format!("closed loop, {durability}");
        cells.extend(groups.measure(bench, &name, transfers, groups.closed_loop(durability))?);
    }
    Ok(cells)
}

impl<'g> Groups<'g> {
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
}
