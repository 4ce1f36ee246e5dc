//! The groups of transactions that want the same rows: mixed kinds, rows that are decided on, one
//! hot row, parents and children. Ours beside PostgreSQL, with a connection for each client.
//!
//! The standard run has a few of these cells. A filter that begins with the name of one of the
//! groups, as `mixed/`, runs all of it.

use super::{Candidates, Group, Groups, PostgresCell, TIMED_TRANSFERS};
use crate::drivers::contest::hot_row::HotRow;
use crate::drivers::contest::mixed::{Mixed, Plan, Returning};
use crate::drivers::contest::parent_child::{Ids, ParentAndChild};
use crate::drivers::contest::{Contest, EngineContest};
use crate::drivers::postgres::contest::PostgresContest;
use crate::drivers::script::Reading;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::names::CONTESTS;
use crate::report::record::{Cell, Verification};
use crate::tps::{Rivals, TpsOptions};
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

pub(super) const GROUP: Group = Group { run, postgres };

/// The application's time after each operation of the mixed workload, or before a decision.
const MIXED_DELAY: Duration = Duration::from_millis(1);

/// The application's time between the read and the write of the hot row.
const DECISION: Duration = Duration::from_millis(5);

/// The application's time between a parent and its children.
const BETWEEN: Duration = Duration::from_millis(5);

/// Numbers of clients of a group that is asked for by its name.
const CLIENTS: [u64; 4] = [12, 64, 256, 1_024];

/// The same of parents and children.
const FAMILY_CLIENTS: [u64; 3] = [8, 64, 256];

/// From so many clients on a transaction takes a good part of a round, so that rounds are longer.
const MANY: u64 = 256;
const LONGER: u32 = 2;

/// What clients contend in.
#[derive(Clone, Copy)]
enum Work {
    Mixed(Plan, Returning),
    HotRow,
    Family(Ids),
}

/// Whose transactions they are.
#[derive(Clone, Copy)]
enum Whose {
    Ours,
    /// READ COMMITTED, and `FOR UPDATE` where the application reads what it decides on.
    Locking,
    Serializable,
}

/// A line of a table, for each number of clients.
struct Line {
    group: &'static str,
    key: &'static str,
    /// What the name says after the number of clients.
    name: &'static str,
    whose: Whose,
    work: Work,
    /// Whether the standard run has it.
    brief: bool,
}

const fn line(
    [group, key, name]: [&'static str; 3],
    whose: Whose,
    work: Work,
    brief: bool,
) -> Line {
    Line { group, key, name, whose, work, brief }
}

const LOCKING: &str = "read committed, FOR UPDATE";

use Whose::{Locking, Ours, Serializable};
use Work::{Family, HotRow as OneRow, Mixed as Kinds};

const LINES: [Line; 17] = [
    line(["mixed", "monolite", ""], Ours, Kinds(Plan::Mixed, Returning::Columns), true),
    line(
        ["mixed", "monolite-rowids", ", ids returned"],
        Ours,
        Kinds(Plan::Mixed, Returning::Id),
        true,
    ),
    line(
        ["mixed", "monolite-silent", ", nothing returned"],
        Ours,
        Kinds(Plan::Mixed, Returning::Nothing),
        false,
    ),
    line(["mixed", "postgres-locking", LOCKING], Locking, Kinds(Plan::Mixed, Returning::Id), false),
    line(
        ["mixed", "postgres-ser", "serializable"],
        Serializable,
        Kinds(Plan::Mixed, Returning::Id),
        false,
    ),
    line(["hot-rows", "monolite", ""], Ours, Kinds(Plan::Decide, Returning::Nothing), false),
    line(
        ["hot-rows", "monolite-ordered", ", rows in order"],
        Ours,
        Kinds(Plan::DecideInOrder, Returning::Nothing),
        false,
    ),
    line(
        ["hot-rows", "postgres-locking", LOCKING],
        Locking,
        Kinds(Plan::Decide, Returning::Nothing),
        false,
    ),
    line(
        ["hot-rows", "postgres-ordered", "read committed, FOR UPDATE, rows in order"],
        Locking,
        Kinds(Plan::DecideInOrder, Returning::Nothing),
        false,
    ),
    line(
        ["hot-rows", "postgres-ser", "serializable"],
        Serializable,
        Kinds(Plan::Decide, Returning::Nothing),
        false,
    ),
    line(["hot-row", "monolite", ""], Ours, OneRow, true),
    line(["hot-row", "postgres-locking", LOCKING], Locking, OneRow, false),
    line(["hot-row", "postgres-ser", "serializable"], Serializable, OneRow, false),
    line(["parent-child", "monolite-asked", ", id asked for"], Ours, Family(Ids::Asked), true),
    line(["parent-child", "monolite-given", ", ids given"], Ours, Family(Ids::Given), true),
    line(
        ["parent-child", "postgres-asked", "read committed, id asked for"],
        Locking,
        Family(Ids::Asked),
        true,
    ),
    line(
        ["parent-child", "postgres-ser-asked", "serializable, id asked for"],
        Serializable,
        Family(Ids::Asked),
        false,
    ),
];

impl Line {
    fn clients(&self, options: &TpsOptions) -> Vec<u64> {
        let (all, these): (&[u64], _) = match self.work {
            Family(_) => (&FAMILY_CLIENTS, &options.interactive.families),
            _ => (&CLIENTS, &options.interactive.mixed),
        };
        let asked = options.only.as_deref().unwrap_or_default();
        if asked.starts_with(&format!("{}/", self.group)) {
            return all.to_vec();
        }
        let is_in = self.brief || options.interactive.rivals == Rivals::All;
        if is_in { these.clone() } else { Vec::new() }
    }

    fn profile(&self, clients: u64, groups: &Groups<'_>) -> Profile {
        let Cellular { id, name } = self.cell(clients);
        let long = if clients < MANY { 1 } else { LONGER };
        let extent = Extent::Time(groups.options.timed_round * long);
        let profile = groups.profile(id, &name, Durability::Durable, extent);
        Profile { store: Store::Nowhere, ..profile }
    }

    fn cell(&self, clients: u64) -> Cellular {
        let id = format!("{}/durable/{}-{clients}", self.group, self.key);
        let name = match self.whose {
            Ours => format!("monolite, {clients} clients{}", self.name),
            _ => format!("PostgreSQL, {clients} clients, {}", self.name),
        };
        Cellular { id, name }
    }
}

/// Identity of a cell.
struct Cellular {
    id: String,
    name: String,
}

/// Whether a cell of PostgreSQL needs its accounts.
pub(super) fn needs_no_accounts(id: &str) -> bool {
    CONTESTS.iter().any(|(group, _)| id.starts_with(group))
}

fn postgres(options: &TpsOptions) -> Vec<PostgresCell> {
    let lines = LINES.iter().filter(|line| !matches!(line.whose, Ours));
    let cells = lines.flat_map(|line| {
        line.clients(options).into_iter().map(|clients| {
            let Cellular { id, name } = line.cell(clients);
            PostgresCell { id, name, durability: Durability::Durable }
        })
    });
    cells.collect()
}

fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
    let transfers = (groups.options.transactions as usize).min(TIMED_TRANSFERS);
    let mut cells = Vec::new();
    for (group, _) in CONTESTS {
        let name = format!("interactive, {}", group.trim_end_matches('/'));
        let measured = groups.measure(bench, &name, transfers, groups.contest(group))?;
        let operations = measured.iter().filter_map(Cell::measurement).map(|it| it.operations());
        let accounts = operations.sum();
        if accounts > 0 {
            bench.verifications.push(Verification {
                after: format!("all of {name}"),
                check: "after each round the database holds just what was acknowledged".into(),
                accounts,
            });
        }
        cells.extend(measured);
    }
    Ok(cells)
}

impl<'g> Groups<'g> {
    /// All lines of a group; those with as many clients, which are compared, one after the other.
    fn contest(&self, group: &str) -> Candidates<'g> {
        let lines = LINES.iter().filter(|line| group.trim_end_matches('/') == line.group);
        let mut places: Vec<(u64, &Line)> = lines
            .flat_map(|line| line.clients(self.options).into_iter().map(move |n| (n, line)))
            .collect();
        places.sort_by_key(|(clients, _)| *clients);
        places.into_iter().filter_map(|(clients, line)| self.contestant(line, clients)).collect()
    }

    fn contestant(&self, line: &Line, clients: u64) -> Option<Box<dyn Candidate + 'g>> {
        match line.work {
            Kinds(plan, returning) => {
                self.by(line, clients, Mixed { plan, returning, delay: MIXED_DELAY })
            }
            OneRow => self.by(line, clients, HotRow { delay: DECISION }),
            Family(ids) => self.by(line, clients, ParentAndChild { ids, delay: BETWEEN }),
        }
    }

    fn by(
        &self,
        line: &Line,
        clients: u64,
        contest: impl Contest,
    ) -> Option<Box<dyn Candidate + 'g>> {
        let profile = line.profile(clients, self);
        let (isolation, reading) = match line.whose {
            Ours => {
                return Some(Box::new(EngineContest {
                    settings: self.engine_settings(profile.durability),
                    profile,
                    dir: self.options.data.clone(),
                    clients,
                    contest,
                }));
            }
            Locking => (IsolationLevel::ReadCommitted, Reading::ForUpdate),
            Serializable => (IsolationLevel::Serializable, Reading::Plain),
        };
        let postgres = self.postgres?;
        Some(Box::new(PostgresContest { profile, postgres, clients, isolation, reading, contest }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Depth;

    #[test]
    fn every_group_has_lines_and_every_line_a_group() {
        for (group, _) in CONTESTS {
            assert!(LINES.iter().any(|line| format!("{}/", line.group) == group), "{group}");
        }
        let known =
            |line: &&Line| CONTESTS.iter().any(|(group, _)| *group == format!("{}/", line.group));
        assert_eq!(LINES.iter().filter(known).count(), LINES.len());
    }

    #[test]
    fn a_group_that_is_asked_for_by_name_is_run_whole() {
        let some = TpsOptions::new(".".into(), Depth::Standard);
        let all = TpsOptions { only: Some("mixed/".into()), ..some.clone() };
        assert_eq!(LINES[4].clients(&some), Vec::<u64>::new());
        assert_eq!(LINES[4].clients(&all), CLIENTS);
        let mixed = |cell: &PostgresCell| cell.id.starts_with("mixed/");
        assert_eq!(postgres(&all).into_iter().filter(mixed).count(), 2 * CLIENTS.len());
        assert!(!postgres(&some).iter().any(mixed));
    }
}
