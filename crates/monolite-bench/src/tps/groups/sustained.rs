//! A burst that goes on, beside a reader that holds a snapshot. It is run when it is asked for.

use super::{Candidates, Group, Groups, TIMED_TRANSFERS};
use crate::drivers::Extent;
use crate::drivers::engine::{EngineBurst, Settings, Sql};
use crate::drivers::sustained::SustainedBurst;
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::record::Cell;
use anyhow::Result;
use std::time::Duration;

pub(super) const GROUP: Group = Group { run, postgres: |_| Vec::new() };

/// Transactions of the burst without checkpoints: half of what fills the 128 MiB at which the
/// engine begins to copy the WAL.
const SHORT_BURST: u64 = 150_000;

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let Some(time) = groups.options.sustained else { return Ok(Vec::new()) };
    let rounds = std::mem::replace(&mut bench.rounds, 1);
    let cells =
        groups.measure(bench, "sustained burst", TIMED_TRANSFERS, groups.sustained(time))?;
    bench.rounds = rounds;
    Ok(cells)
}

impl<'g> Groups<'g> {
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
}
