//! The groups of transactions that want the same rows: mixed kinds, rows that are decided on, one
//! hot row, parents and children. Ours beside PostgreSQL, with a connection for each client.
//!
//! The standard run has a few of these cells. A filter that begins with the name of one of the
//! groups, as `mixed/`, runs all of it.

use super::{Candidates, Groups, TIMED_TRANSFERS};
use crate::drivers::asked::Reading;
use crate::drivers::contest::hot_row::HotRow;
use crate::drivers::contest::mixed::{Mixed, Plan, Returning};
use crate::drivers::contest::parent_child::{Ids, ParentAndChild};
use crate::drivers::contest::{Contest, EngineContest};
use crate::drivers::postgres::contest::PostgresContest;
use crate::drivers::{Candidate, Extent, Profile, Store};
use crate::harness::Bench;
use crate::raw_connection::Durability;
use crate::report::names::CONTESTS;
use crate::report::record::{Cell, Verification};
use crate::tps::{Rivals, TpsOptions};
use anyhow::Result;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

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

/// A line of a table, for each number of clients: its group, its key, what its name says after the
/// number of clients, whose it is, what it does, and whether the standard run has it.
type Line = (&'static str, &'static str, &'static str, Whose, Work, bool);

const LOCKING: &str = "read committed, FOR UPDATE";
const ORDERED: &str = "read committed, FOR UPDATE, rows in order";

use Whose::{Locking, Ours, Serializable};
use Work::{Family, HotRow as OneRow};

const COLUMNS: Work = Work::Mixed(Plan::Mixed, Returning::Columns);
const IDS: Work = Work::Mixed(Plan::Mixed, Returning::Id);
const SILENT: Work = Work::Mixed(Plan::Mixed, Returning::Nothing);
const DECIDE: Work = Work::Mixed(Plan::Decide, Returning::Nothing);
const IN_ORDER: Work = Work::Mixed(Plan::DecideInOrder, Returning::Nothing);
const ASKED: Work = Family(Ids::Asked);

const LINES: [Line; 17] = [
    ("mixed", "monolite", "", Ours, COLUMNS, true),
    ("mixed", "monolite-rowids", ", ids returned", Ours, IDS, true),
    ("mixed", "monolite-silent", ", nothing returned", Ours, SILENT, false),
    ("mixed", "postgres-locking", LOCKING, Locking, IDS, false),
    ("mixed", "postgres-ser", "serializable", Serializable, IDS, false),
    ("hot-rows", "monolite", "", Ours, DECIDE, false),
    ("hot-rows", "monolite-ordered", ", rows in order", Ours, IN_ORDER, false),
    ("hot-rows", "postgres-locking", LOCKING, Locking, DECIDE, false),
    ("hot-rows", "postgres-ordered", ORDERED, Locking, IN_ORDER, false),
    ("hot-rows", "postgres-ser", "serializable", Serializable, DECIDE, false),
    ("hot-row", "monolite", "", Ours, OneRow, true),
    ("hot-row", "postgres-locking", LOCKING, Locking, OneRow, false),
    ("hot-row", "postgres-ser", "serializable", Serializable, OneRow, false),
    ("parent-child", "monolite-asked", ", id asked for", Ours, ASKED, true),
    ("parent-child", "monolite-given", ", ids given", Ours, Family(Ids::Given), true),
    ("parent-child", "postgres-asked", "read committed, id asked for", Locking, ASKED, true),
    (
        "parent-child",
        "postgres-ser-asked",
        "serializable, id asked for",
        Serializable,
        ASKED,
        false,
    ),
];

/// Numbers of clients of a line.
fn clients(&(group, .., work, brief): &Line, options: &TpsOptions) -> Vec<u64> {
    let (all, these): (&[u64], _) = match work {
        Family(_) => (&FAMILY_CLIENTS, &options.interactive.families),
        _ => (&CLIENTS, &options.interactive.mixed),
    };
    let asked = options.only.as_deref().unwrap_or_default();
    if asked.starts_with(&format!("{group}/")) {
        return all.to_vec();
    }
    let is_in = brief || options.interactive.rivals == Rivals::All;
    if is_in { these.clone() } else { Vec::new() }
}

/// Whether a cell of PostgreSQL needs no accounts.
pub(in crate::tps) fn needs_no_accounts(id: &str) -> bool {
    CONTESTS.iter().any(|(group, _)| id.starts_with(group))
}

pub(super) fn run(groups: &Groups<'_>, bench: &mut Bench<'_>) -> Result<Vec<Cell>> {
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
        let lines = LINES.iter().filter(|line| group.trim_end_matches('/') == line.0);
        let mut places: Vec<(u64, &Line)> = lines
            .flat_map(|line| clients(line, self.options).into_iter().map(move |n| (n, line)))
            .collect();
        places.sort_by_key(|(clients, _)| *clients);
        let contestant = |(clients, line): (u64, &Line)| match line.4 {
            Work::Mixed(plan, returning) => {
                self.by(line, clients, Mixed { plan, returning, delay: MIXED_DELAY })
            }
            OneRow => self.by(line, clients, HotRow { delay: DECISION }),
            Family(ids) => self.by(line, clients, ParentAndChild { ids, delay: BETWEEN }),
        };
        places.into_iter().map(contestant).collect()
    }

    fn by(&self, line: &Line, clients: u64, contest: impl Contest) -> Candidate<'g> {
        let &(group, key, name, whose, ..) = line;
        let id = format!("{group}/durable/{key}-{clients}");
        let name = match whose {
            Ours => format!("monolite, {clients} clients{name}"),
            _ => format!("PostgreSQL, {clients} clients, {name}"),
        };
        let long = if clients < MANY { 1 } else { LONGER };
        let extent = Extent::Time(self.options.timed_round * long);
        let profile = self.profile(id, name, Durability::Durable, extent);
        let profile = Profile { store: Store::Nowhere, ..profile };
        let (isolation, reading) = match whose {
            Ours => {
                let settings = self.engine_settings(Durability::Durable);
                let dir = self.options.data.clone();
                return Candidate::new(profile, EngineContest { dir, settings, clients, contest });
            }
            Locking => (IsolationLevel::ReadCommitted, Reading::ForUpdate),
            Serializable => (IsolationLevel::Serializable, Reading::Plain),
        };
        let postgres = self.postgres;
        let driver = PostgresContest { postgres, clients, isolation, reading, contest };
        Candidate::new(profile, driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Depth;

    #[test]
    fn every_group_has_lines_and_every_line_a_group() {
        let is_of = |line: &Line, group: &str| format!("{}/", line.0) == group;
        for (group, _) in CONTESTS {
            assert!(LINES.iter().any(|line| is_of(line, group)), "{group}");
        }
        let known = |line: &&Line| CONTESTS.iter().any(|(group, _)| is_of(line, group));
        assert_eq!(LINES.iter().filter(known).count(), LINES.len());
    }

    #[test]
    fn a_group_that_is_asked_for_by_name_is_run_whole() {
        let some = TpsOptions::new(".".into(), Depth::Standard);
        let all = TpsOptions { only: Some("mixed/".into()), ..some.clone() };
        assert_eq!(clients(&LINES[4], &some), Vec::<u64>::new());
        assert_eq!(clients(&LINES[4], &all), CLIENTS);
    }
}
