//! The groups of interactive transactions: delays, sleepers, and what they cost.
//!
//! Those that want the same rows are in [`super::contests`].

use super::{Candidates, Group, Groups, PostgresCell, raw_settings};
use crate::drivers::held::HeldTransfers;
use crate::drivers::interactive::{Call, InteractiveTransfers};
use crate::drivers::postgres::transfers::PostgresTransfers;
use crate::drivers::script::{Reading, Script, Workload};
use crate::drivers::sleepers::WritesBesideSleepers;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::record::Cell;
use crate::tps::{InteractiveOptions, TpsOptions};
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

pub(super) const GROUP: Group = Group { run, postgres };

/// Transfers drawn for a round with delays.
const DELAYED_TRANSFERS: usize = 50_000;

/// Transactions that are open and asleep.
const SLEEPERS: u64 = 2_000;

/// Rounds beside sleepers are longer by this: each sleeps for a second.
const SLEEPING_ROUNDS: u32 = 4;

/// A line of the delay tables.
struct Line {
    key: String,
    name: String,
    driver: Driver,
}

#[derive(Clone, Copy)]
enum Driver {
    Engine { clients: u64 },
    Held { clients: u64 },
    Postgres { pool: usize, isolation: IsolationLevel, reading: Reading },
}

fn lines(options: &InteractiveOptions, workload: Workload) -> Vec<Line> {
    let engine = |&clients: &u64| Line {
        key: format!("interactive-{clients}"),
        name: format!("monolite, {clients} clients"),
        driver: Driver::Engine { clients },
    };
    let mut lines: Vec<Line> = options.clients.iter().map(engine).collect();
    lines.extend(options.holders.iter().map(|&clients| Line {
        key: format!("held-{clients}"),
        name: match clients {
            1 => "raw, BEGIN IMMEDIATE held, 1 client".into(),
            _ => format!("raw, BEGIN IMMEDIATE held, {clients} clients"),
        },
        driver: Driver::Held { clients },
    }));
    lines.extend(postgres_lines(options, workload));
    lines
}

/// What of PostgreSQL is correct: with READ COMMITTED an application that decides on balances which
/// it did not lock loses money.
fn postgres_lines(options: &InteractiveOptions, workload: Workload) -> Vec<Line> {
    let weak = match workload {
        Workload::Blind => ("rc", "read committed", Reading::Plain),
        Workload::Decide => ("locking", "read committed, FOR UPDATE", Reading::ForUpdate),
    };
    let strong = ("ser", "serializable", Reading::Plain);
    let levels = [(weak, IsolationLevel::ReadCommitted), (strong, IsolationLevel::Serializable)];
    let mut lines = Vec::new();
    for &pool in &options.pools {
        lines.extend(levels.map(|((key, name, reading), isolation)| Line {
            key: format!("postgres-{pool}-{key}"),
            name: format!("PostgreSQL, pool {pool}, {name}"),
            driver: Driver::Postgres { pool, isolation, reading },
        }));
    }
    lines
}

fn id(workload: Workload, line: &Line, column: &str) -> String {
    format!("{}/durable/{}/{column}", workload.key(), line.key)
}

fn postgres(options: &TpsOptions) -> Vec<PostgresCell> {
    let options = &options.interactive;
    let mut cells = Vec::new();
    for workload in Workload::ALL {
        for line in postgres_lines(options, workload) {
            cells.extend(options.columns.iter().map(|column| PostgresCell {
                id: id(workload, &line, column),
                name: line.name.clone(),
                durability: Durability::Durable,
            }));
        }
    }
    cells
}

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = (groups.options.transactions as usize).min(DELAYED_TRANSFERS);
    let sets = [
        ("interactive, blind", groups.delays(Workload::Blind)),
        ("interactive, decide", groups.delays(Workload::Decide)),
        ("interactive, sleepers", groups.sleepers()),
        ("interactive, cost", groups.costs()),
    ];
    let mut cells = Vec::new();
    for (name, candidates) in sets {
        cells.extend(groups.measure(bench, name, transfers, candidates)?);
    }
    Ok(cells)
}

fn script(workload: Workload, column: &str) -> Script {
    let digits: String = column.chars().take_while(char::is_ascii_digit).collect();
    let milliseconds = digits.parse().expect("a column begins with its milliseconds");
    Script {
        workload,
        delay: Duration::from_millis(milliseconds),
        third_statement: column.ends_with("third"),
    }
}

impl<'g> Groups<'g> {
    /// Everything with one workload. Candidates that are compared, those of a column, run one after
    /// the other.
    fn delays(&self, workload: Workload) -> Candidates<'g> {
        let mut group: Candidates<'g> = Vec::new();
        let options = &self.options.interactive;
        for column in &options.columns {
            for line in lines(options, workload) {
                // There are many of these cells, and they are steady.
                let extent = Extent::Time(self.options.timed_round * 2 / 3);
                let id = id(workload, &line, column);
                let profile = self.profile(id, &line.name, Durability::Durable, extent);
                group.extend(self.delayed(profile, line.driver, script(workload, column)));
            }
        }
        group
    }

    fn delayed(
        &self,
        profile: Profile,
        driver: Driver,
        script: Script,
    ) -> Option<Box<dyn Candidate + 'g>> {
        let database = self.database.to_owned();
        match driver {
            Driver::Engine { clients } => {
                Some(Box::new(self.clients(profile, clients, Call::Transact, script)))
            }
            Driver::Held { clients } => {
                let settings = raw_settings(self.options, profile.durability);
                Some(Box::new(HeldTransfers { profile, database, settings, clients, script }))
            }
            Driver::Postgres { pool, isolation, reading } => {
                let profile = Profile { store: Store::Server, ..profile };
                let postgres = self.postgres?;
                Some(Box::new(PostgresTransfers {
                    profile,
                    postgres,
                    pool,
                    isolation,
                    reading,
                    script,
                }))
            }
        }
    }

    fn clients(
        &self,
        profile: Profile,
        clients: u64,
        call: Call,
        script: Script,
    ) -> InteractiveTransfers {
        let settings = self.engine_settings(profile.durability);
        let database = self.database.to_owned();
        InteractiveTransfers { profile, database, settings, clients, call, script }
    }

    /// Plain writes without and with transactions that sleep.
    fn sleepers(&self) -> Candidates<'g> {
        let mut group: Candidates<'g> = Vec::new();
        for &clients in &self.options.interactive.writers {
            for sleepers in [0, SLEEPERS] {
                let id = format!("sleepers/durable/{clients}-{sleepers}");
                let name = format!("monolite, {clients} clients that write, {sleepers} asleep");
                let extent = Extent::Time(self.options.timed_round * SLEEPING_ROUNDS);
                let profile = self.profile(id, &name, Durability::Durable, extent);
                let writes = self.clients(profile, clients, Call::Write, NO_DELAY);
                let accounts = self.options.rows;
                group.push(Box::new(WritesBesideSleepers { writes, sleepers, accounts }));
            }
        }
        group
    }

    /// The same two updates by `write` and by `transact`.
    fn costs(&self) -> Candidates<'g> {
        let mut group: Candidates<'g> = Vec::new();
        let calls = [(Call::Write, "write"), (Call::Transact, "transact")];
        for &clients in &self.options.interactive.costs {
            for (call, key) in calls {
                let id = format!("cost/durable/{key}-{clients}");
                let name = format!("monolite, {key}, {clients} clients");
                let profile = self.profile(id, &name, Durability::Durable, self.timed());
                group.push(Box::new(self.clients(profile, clients, call, NO_DELAY)));
            }
        }
        group
    }
}

const NO_DELAY: Script =
    Script { workload: Workload::Blind, delay: Duration::ZERO, third_statement: false };
