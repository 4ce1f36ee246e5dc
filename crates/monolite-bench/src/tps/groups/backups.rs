//! The group that states what a backup takes from writes: a burst with and without backups beside
//! it. It is run when it is asked for by name, and not with all others: what it compares is the
//! engine with itself.

use super::{Candidates, Group, Groups, TIMED_TRANSFERS};
use crate::drivers::Extent;
use crate::drivers::backups::BurstBesideBackups;
use crate::drivers::engine::EngineBurst;
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::names::{BACKUPS, BURST_ALONE};
use crate::report::record::Cell;
use anyhow::Result;
use std::time::Duration;

pub(super) const GROUP: Group = Group { run, postgres: |_| Vec::new() };

/// How long a round is: a backup of ten million accounts beside a burst takes about as long.
const ROUND: Duration = Duration::from_secs(15);

/// Runs the group, if the filter names it.
fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let filter = groups.options.only.as_deref().unwrap_or_default();
    if !filter.starts_with(BACKUPS) {
        return Ok(Vec::new());
    }
    groups.measure(bench, "a burst beside backups", TIMED_TRANSFERS, groups.backups())
}

impl<'g> Groups<'g> {
    fn backups(&self) -> Candidates<'g> {
        let burst = |id: &str, name: &str| EngineBurst {
            profile: self.profile(id.into(), name, Durability::Durable, Extent::Time(ROUND)),
            database: self.database.to_owned(),
            settings: self.engine_settings(Durability::Durable),
        };
        let beside = burst(&format!("{BACKUPS}durable/beside"), "monolite, while backups are made");
        vec![
            Box::new(burst(BURST_ALONE, "monolite, without one")),
            Box::new(BurstBesideBackups { burst: beside }),
        ]
    }
}
