//! The groups of interactive transactions: delays, sleepers, and what they cost.
//!
//! Those that want the same rows are in [`super::contests`].

use super::{Candidates, Groups, raw_settings};
use crate::drivers::asked::Reading;
use crate::drivers::held::HeldTransfers;
use crate::drivers::interactive::{Call, InteractiveTransfers};
use crate::drivers::postgres::transfers::PostgresTransfers;
use crate::drivers::script::{Script, Workload};
use crate::drivers::sleepers::WritesBesideSleepers;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::record::Cell;
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

/// Transfers drawn for a round with delays.
const DELAYED_TRANSFERS: usize = 50_000;

/// Transactions that are open and asleep.
const SLEEPERS: u64 = 2_000;

/// Rounds beside sleepers are longer by this: each sleeps for a second.
const SLEEPING_ROUNDS: u32 = 4;

pub(super) fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
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
        let options = &self.options.interactive;
        // What of PostgreSQL is correct: with READ COMMITTED an application that decides on
        // balances which it did not lock loses money.
        let weak = match workload {
            Workload::Blind => ("rc", "read committed", Reading::Plain),
            Workload::Decide => ("locking", "read committed, FOR UPDATE", Reading::ForUpdate),
        };
        let strong = ("ser", "serializable", Reading::Plain);
        let levels =
            [(weak, IsolationLevel::ReadCommitted), (strong, IsolationLevel::Serializable)];
        let mut group: Candidates<'g> = Vec::new();
        for column in &options.columns {
            let script = script(workload, column);
            // There are many of these cells, and they are steady.
            let extent = Extent::Time(self.options.timed_round * 2 / 3);
            let profile = |line: String, name: String| {
                let id = format!("{}/durable/{line}/{column}", workload.key());
                self.profile(id, name, Durability::Durable, extent)
            };
            group.extend(options.clients.iter().map(|&clients| {
                let name = format!("monolite, {clients} clients");
                let profile = profile(format!("interactive-{clients}"), name);
                Candidate::new(profile, self.transfers(clients, Call::Transact, script))
            }));
            group.extend(options.holders.iter().map(|&clients| {
                let clients_named =
                    if clients == 1 { "1 client".into() } else { format!("{clients} clients") };
                let name = format!("raw, BEGIN IMMEDIATE held, {clients_named}");
                let settings = raw_settings(self.options, Durability::Durable);
                let database = self.database.to_owned();
                let held = HeldTransfers { database, settings, clients, script };
                Candidate::new(profile(format!("held-{clients}"), name), held)
            }));
            for (&pool, ((key, name, reading), isolation)) in
                options.pools.iter().flat_map(|pool| levels.map(|level| (pool, level)))
            {
                let name = format!("PostgreSQL, pool {pool}, {name}");
                let profile = profile(format!("postgres-{pool}-{key}"), name);
                let profile = Profile { store: Store::Server, ..profile };
                let postgres = self.postgres;
                let transfers = PostgresTransfers { postgres, pool, isolation, reading, script };
                group.push(Candidate::new(profile, transfers));
            }
        }
        group
    }

    fn transfers(&self, clients: u64, call: Call, script: Script) -> InteractiveTransfers {
        let settings = self.engine_settings(Durability::Durable);
        let database = self.database.to_owned();
        InteractiveTransfers { database, settings, clients, call, script }
    }

    /// Plain writes without and with transactions that sleep.
    fn sleepers(&self) -> Candidates<'g> {
        let mut group: Candidates<'g> = Vec::new();
        for &clients in &self.options.interactive.writers {
            for sleepers in [0, SLEEPERS] {
                let id = format!("sleepers/durable/{clients}-{sleepers}");
                let name = format!("monolite, {clients} clients that write, {sleepers} asleep");
                let extent = Extent::Time(self.options.timed_round * SLEEPING_ROUNDS);
                let profile = self.profile(id, name, Durability::Durable, extent);
                let writes = self.transfers(clients, Call::Write, Script::PLAIN);
                let accounts = self.options.rows;
                let driver = WritesBesideSleepers { writes, sleepers, accounts };
                group.push(Candidate::new(profile, driver));
            }
        }
        group
    }

    /// The same two updates by `write` and by `transact`.
    fn costs(&self) -> Candidates<'g> {
        let mut group: Candidates<'g> = Vec::new();
        for &clients in &self.options.interactive.costs {
            for (call, key) in [(Call::Write, "write"), (Call::Transact, "transact")] {
                let id = format!("cost/durable/{key}-{clients}");
                let name = format!("monolite, {key}, {clients} clients");
                let profile = self.profile(id, name, Durability::Durable, self.timed());
                group.push(Candidate::new(profile, self.transfers(clients, call, Script::PLAIN)));
            }
        }
        group
    }
}
