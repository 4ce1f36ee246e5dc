//! Point reads.

use super::{Candidates, Group, Groups, PostgresCell, READS_PER_TRANSACTION, raw_settings};
use crate::drivers::engine::EngineReads;
use crate::drivers::postgres::reads::PostgresReads;
use crate::drivers::raw::RawReads;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::{self, Durability, READER_CACHE_BYTES};
use crate::report::record::Cell;
use crate::tps::TpsOptions;
use anyhow::Result;

pub(super) const GROUP: Group = Group { run, postgres };

fn postgres(_: &TpsOptions) -> Vec<PostgresCell> {
    vec![PostgresCell {
        id: "reads/durable/postgres".into(),
        name: "PostgreSQL, one connection, prepared statement".into(),
        durability: Durability::Durable,
    }]
}

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    groups.measure(bench, "point reads", groups.options.transactions as usize, groups.reads())
}

impl<'g> Groups<'g> {
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
        let mut group: Candidates<'g> = vec![
            Box::new(RawReads { profile: raw, database: database.clone(), settings }),
            Box::new(EngineReads {
                profile: ours,
                database,
                settings: self.engine_settings(durability),
            }),
        ];
        group.extend(self.postgres_reads());
        group
    }

    fn postgres_reads(&self) -> Option<Box<dyn Candidate + 'g>> {
        let PostgresCell { id, name, durability } = postgres(self.options).pop()?;
        let profile = self.profile(id, &name, durability, self.timed());
        let profile = Profile { store: Store::Nowhere, ..profile };
        Some(Box::new(PostgresReads { profile, postgres: self.postgres? }))
    }
}
