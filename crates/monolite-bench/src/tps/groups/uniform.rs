//! A burst on accounts each of which is equally likely: data larger than the cache, as most tables
//! are. It is left out where the whole run draws so.

use super::{Candidates, Group, Groups, PostgresCell};
use crate::drivers::Extent;
use crate::drivers::engine::EngineBurst;
use crate::drivers::raw::Isolation;
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::record::Cell;
use crate::tps::TpsOptions;
use crate::workload::{Draw, Skew};
use anyhow::Result;

pub(super) const GROUP: Group = Group { run, postgres };

/// Transactions per commit of raw SQLite, as in the other bursts.
const BATCH: u64 = 10_000;

/// Rounds are longer by this, so that there are checkpoints in them.
const LONGER: u32 = 2;

/// Transfers drawn for a round: about as many as the fastest does in it, since one that comes a
/// second time finds its pages in the cache.
const TRANSFERS: usize = 60_000;

/// Connections of PostgreSQL's pool: the better one in the other burst.
const POOL: usize = 64;

fn is_left_out(options: &TpsOptions) -> bool {
    options.skew == Skew::Uniform
}

fn postgres(options: &TpsOptions) -> Vec<PostgresCell> {
    let cell = PostgresCell {
        id: format!("uniform/durable/postgres-{POOL}"),
        name: format!("PostgreSQL, pool {POOL}, read committed"),
        durability: Durability::Durable,
    };
    if is_left_out(options) { Vec::new() } else { vec![cell] }
}

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    if is_left_out(groups.options) {
        return Ok(Vec::new());
    }
    let uniform = Draw::new(Skew::Uniform, groups.options.rows);
    let draw = std::mem::replace(&mut bench.draw, uniform);
    let transfers = TRANSFERS.min(groups.options.transactions as usize);
    let cells = groups.measure(bench, "burst, uniform", transfers, groups.uniform());
    bench.draw = draw;
    cells
}

impl<'g> Groups<'g> {
    fn uniform(&self) -> Candidates<'g> {
        let durability = Durability::Durable;
        let extent = Extent::Time(self.options.timed_round * LONGER);
        let profile = |key: &str, name: &str| {
            self.profile(format!("uniform/{durability}/{key}"), name, durability, extent)
        };
        let mut group: Candidates<'g> = vec![
            self.raw(
                profile("raw-batch", "raw, batches of 10,000, no isolation"),
                BATCH,
                Isolation::None,
            ),
            Box::new(EngineBurst {
                profile: profile("monolite", "monolite"),
                database: self.database.to_owned(),
                settings: self.engine_settings(durability),
            }),
        ];
        for PostgresCell { id, name, durability } in postgres(self.options) {
            group.extend(self.postgres(self.profile(id, &name, durability, extent), POOL));
        }
        group
    }
}
