//! Owns what can be known of pending migrations before they are applied: what they will rebuild,
//! and whether they can be applied at all.
//!
//! # Algorithm
//! A dry run applies all of them in one transaction, and undoes it. SQLite switches foreign keys by
//! their flag at any time, only its pragma does not. So where one of them has foreign keys off, the
//! transaction has, and they are on during each of the others.

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::rusqlite;

use super::{Migration, Migrations, NAMED, violations, wrong};
use crate::activity::Caller;
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, ForeignKeys, Once, Submission, Terms};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::database::Database;
use crate::error::{Error, Result};
use crate::jobs::Job;
use crate::tx::{ReadTx, Tx};

/// Rows that are copied in a second, and as many that an index gets: half of what was measured with
/// 2 million rows of 100 bytes and three indexes, on two cores that others used (10 s).
const ROWS_A_SECOND: u64 = 400_000;

/// The same online, with nothing written beside it: rows are copied, compared, and deleted.
const ROWS_A_SECOND_ONLINE: u64 = 100_000;

/// A pending migration, and what it will do, as far as that is known before.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute_batch("CREATE TABLE user(id INTEGER PRIMARY KEY)")).wait()?;
/// let sql = "-- monolite: rebuild=user
///     CREATE TABLE user(id INTEGER PRIMARY KEY, name TEXT NOT NULL DEFAULT '?');";
/// let migrations = monolite::Migrations::new().with("0002_names.sql", sql)?;
/// let planned = &migrations.plan(&db)?[0];
/// assert_eq!(planned.name, "0002_names.sql");
/// assert_eq!((&*planned.rebuilds[0].table, planned.rebuilds[0].rows), ("user", Some(0)));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Planned {
    /// The name of its file.
    pub name: String,
    /// The tables that it declares to rebuild. All other writes wait meanwhile, as they do for any
    /// migration, unless it is done online.
    pub rebuilds: Vec<PlannedRebuild>,
}

/// A rebuild that is declared in a pending migration, see [`Planned`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PlannedRebuild {
    /// The table.
    pub table: String,
    /// How many rows it has now; `None` when there is no such table yet.
    pub rows: Option<u64>,
    /// How many indexes it has now, without those of its constraints.
    pub indexes: u64,
    /// About how long it will take. It depends on the machine, and on the size of the rows; online,
    /// also on how much is written meanwhile.
    pub time: Duration,
    /// Whether other writes go on meanwhile.
    pub is_online: bool,
}

/// How a dry run ends, which is undone in any case.
enum Ended {
    Applied(Vec<String>),
    Failed(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Failed(error)
    }
}

impl Migrations {
    /// Those that [`Migrations::up`] would apply, in order. Blocks while it counts the rows of the
    /// tables that are to be rebuilt.
    ///
    /// # Errors
    /// `Invalid` when something is wrong with those that were applied, or with the online rebuild
    /// that is under way, for one that has no `CREATE TABLE` of a table that it rebuilds, and for
    /// one that rebuilds a table online that has no `INTEGER PRIMARY KEY`, or with other statements
    /// than that takes; those of [`Read::wait`](crate::Read::wait). What else is refused
    /// [`Migrations::dry_run`] finds.
    pub fn plan<E>(&self, db: &Database<E>) -> Result<Vec<Planned>> {
        let (all, db) = (self.clone(), db.with_error::<Error>());
        db.read(move |tx| {
            let pending = all.pending_in(tx)?;
            pending.into_iter().map(|it| it.plan(tx)).collect()
        })
        .wait()
    }

    /// Applies those that are pending in one transaction, undoes it, and gives their names. Other
    /// writes wait for it, as for [`Migrations::up`]. Each of them may take as long as it might
    /// there.
    ///
    /// What only the end of a transaction shows is not found: changes that do not fit in the WAL.
    ///
    /// # Errors
    /// Those of [`Migrations::up`].
    ///
    /// # Cancellation
    /// It goes on, and is undone.
    pub fn dry_run<E>(&self, db: &Database<E>) -> Job<Vec<String>> {
        let (all, writes) = (self.clone(), Arc::clone(db.writes()));
        db.jobs().start(Caller::default(), move |_| match all.rehearse(&writes).wait() {
            Ok(never) => match never {},
            Err(Ended::Applied(names)) => Ok(names),
            Err(Ended::Failed(error)) => Err(error),
        })
    }

    fn rehearse(self, writes: &Arc<WriteQueue>) -> Write<std::convert::Infallible, Ended> {
        let is_off = |it: &Arc<Migration>| it.directives.foreign_keys == ForeignKeys::Off;
        let foreign_keys =
            if self.list.iter().any(is_off) { ForeignKeys::Off } else { ForeignKeys::On };
        let limit = self.time_limit * u32::try_from(self.list.len().max(1)).unwrap_or(u32::MAX);
        let terms = Terms { foreign_keys, ..writes.terms().of_upkeep("migrations") };
        let body = move |tx: &Tx<'_>| {
            let mut names = Vec::new();
            for it in self.pending_in(tx)? {
                it.rehearse(tx)?;
                names.push(it.name.clone());
            }
            Err(Ended::Applied(names))
        };
        let caller = Completion::new();
        let member = Submission::new(Once(Some(body)), terms, Arc::clone(&caller));
        let alone = Alone { limit, around: Around::Nothing };
        Write::submit(Box::new(member.alone(alone)), caller, writes)
    }

    /// # Errors
    /// `Invalid` when something is wrong with those that were applied, or with the online rebuild
    /// that is under way.
    fn pending_in(&self, tx: &ReadTx<'_>) -> Result<Vec<&Arc<Migration>>> {
        let status = self.compared_with(&tx.migrations()?);
        let obstacle = tx.rebuilding()?.and_then(|it| self.obstacle(&it));
        match status.problems.first().or(obstacle.as_ref()) {
            Some(problem) => Err(wrong(problem)),
            None => Ok(self.list.iter().filter(|it| status.pending.contains(&it.name)).collect()),
        }
    }
}

impl Migration {
    fn plan(&self, tx: &ReadTx<'_>) -> Result<Planned> {
        let online = self.directives.online.as_ref();
        tx.read_rebuilds(&self.sql, &self.directives.rebuilds)
            .map_err(|error| self.named_in(error))?;
        let a_second = if online.is_some() { ROWS_A_SECOND_ONLINE } else { ROWS_A_SECOND };
        let plan = |table: &String| {
            let count = |sql: &str, table: &[&str]| {
                let of = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
                Ok::<_, Error>(
                    tx.query_row(sql, rusqlite::params_from_iter(table), of)?.unsigned_abs(),
                )
            };
            let of_schema = "SELECT count(*) FROM main.sqlite_schema WHERE tbl_name = ?1 COLLATE \
                             NOCASE AND rootpage <> 0 AND sql IS NOT NULL";
            let mut rows = None;
            // Its indexes, and itself.
            let objects = count(of_schema, &[table])?;
            if objects > 0 {
                let table = table.replace('"', "\"\"");
                rows = Some(count(&format!("SELECT count(*) FROM main.\"{table}\""), &[])?);
            }
            if let (Some(table), true) = (online, objects > 0) {
                tx.read_online(&self.sql, table).map_err(|error| self.named_in(error))?;
            }
            let milliseconds = rows.unwrap_or(0) * objects * 1_000 / a_second;
            let (table, time) = (table.clone(), Duration::from_millis(milliseconds));
            let (indexes, is_online) = (objects.saturating_sub(1), online.is_some());
            Ok(PlannedRebuild { table, rows, indexes, time, is_online })
        };
        let tables = self.directives.rebuilds.iter().chain(online);
        let rebuilds = tables.map(plan).collect::<Result<_>>()?;
        Ok(Planned { name: self.name.clone(), rebuilds })
    }

    /// Applies it in a transaction that has foreign keys off if any of them has.
    fn rehearse(&self, tx: &Tx<'_>) -> Result<()> {
        match self.directives.foreign_keys {
            ForeignKeys::Off => return self.run(tx),
            ForeignKeys::On => tx.with_foreign_keys(|| self.run(tx))?,
        }
        if tx.has_deferred_violation() {
            let (violated, count) = tx.foreign_key_violations(NAMED)?;
            return Err(self.named_in(violations(&violated, count)));
        }
        Ok(())
    }
}
