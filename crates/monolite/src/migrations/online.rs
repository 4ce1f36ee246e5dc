//! Owns how a migration rebuilds a table online: which of its steps comes when, and how much each
//! takes from the application.
//!
//! # Algorithm
//! 1. What a copy takes is compared with the room on the disk, and the rebuild begins: a short
//!    transaction.
//! 2. Steps copy rows, each as one write among others. How many rows is measured: so that a step
//!    takes some milliseconds while others write, and more when none does. While others write, it
//!    rests twice as long as the step has kept the writer, unless rows change faster than it
//!    copies them again: then the next step is under way at once.
//! 3. When all are copied, both tables are compared range by range on snapshots, which no write
//!    waits for. They are compared again when the schema has changed meanwhile.
//! 4. A short transaction exchanges the tables and notes the migration, if few rows have changed
//!    since the last step.
//! 5. Steps delete the old rows.
//!
//! A job that is cancelled, or a process that ends, leaves the rebuild as it is: the triggers go on
//! to note what changes. It is resumed by [`Migrations::up`].
//!
//! # Not here
//! What the steps do, and what is in the file: `monolite-sqlite`, `connection/rebuild/online`.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::{OnlinePlan, RebuildPhase, Rebuilding, Step};

use super::{Migration, Migrations, wrong};
use crate::activity::Caller;
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, Repeatable, Submission};
use crate::call::write::Write;
use crate::call::write_queue::WriteQueue;
use crate::clock::Stopwatch;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Job, JobContext};
use crate::maintenance::Maintenance;
use crate::pacer::Pacer;
use crate::tx::Tx;

/// What a step takes while others write, with its commit: that syncs pages all over new indexes,
/// and others wait for it.
const BESIDE_OTHERS: Duration = Duration::from_millis(4);

/// The commit of a step is counted as at most so many times the rest of it: what others have
/// written is in the same commit, which may take much longer.
const COMMIT: u32 = 3;

/// What a step takes while none does, without its commit. One that comes then waits for [`AT_ONCE`]
/// of them, once.
const ALONE: Duration = Duration::from_millis(8);

/// Steps that are under way while none writes, or when it is behind, so that they go on while the
/// disk syncs.
const AT_ONCE: usize = 2;

/// So many steps after another write none does.
const QUIET: u32 = 50;

/// How long is rested behind a step while others write, in times of what it took with its commit.
const RESTS: u32 = 2;

/// Rows of the first step, of the least and of the largest.
const ROWS: [u32; 3] = [200, 20, 50_000];

/// Rows that are compared on one snapshot: some ten milliseconds of one core.
const COMPARED: u32 = 20_000;

/// Of the rows of a step, as many may have changed when the tables are exchanged: they lie
/// anywhere, and take about a millisecond. Twice as many each time that there were more.
const AT_SWAP: u32 = 16;

/// With so many rows that do not fit it ends: each step looks for them one by one.
const LEFT: usize = 1_000;

/// How long is rested when the WAL or the queue is full.
const FULL_REST: Duration = Duration::from_millis(200);

/// How often a range is compared whose snapshot was revoked, and all rows while the schema changes.
const ATTEMPTS: u32 = 10;

/// An online rebuild that is under way, see [`MigrationStatus`](super::MigrationStatus).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct OnlineRebuild {
    /// The name of its migration.
    pub migration: String,
    /// The table.
    pub table: String,
    /// What it does.
    pub phase: RebuildPhase,
    /// Rows that are copied, those that changed since once.
    pub rows: u64,
    /// Rows that there were when it began.
    pub total: u64,
    /// Rows that could not be in the new table when [`Migrations::up`] ended last, and what to do,
    /// in words.
    pub refused: Option<String>,
    /// Why it cannot go on, and can only be aborted: the table, an index or trigger of it or what
    /// the engine has made for it was changed, or the migration is not there as it was.
    pub obstacle: Option<String>,
}

impl From<Rebuilding> for OnlineRebuild {
    fn from(it: Rebuilding) -> OnlineRebuild {
        let Rebuilding { name, table, phase, rows, total, refused, obstacle, .. } = it;
        OnlineRebuild { migration: name, table, phase, rows, total, refused, obstacle }
    }
}

/// What an online rebuild works with.
pub(super) struct Online<'j> {
    pub(super) writes: &'j Arc<WriteQueue>,
    pub(super) maintenance: &'j Maintenance,
    pub(super) job: &'j JobContext,
    pub(super) time_limit: Duration,
}

/// How much is done in one step, and how long is rested behind it.
struct Pace {
    most: u32,
    /// Steps since others have waited.
    quiet: u32,
    rest: Duration,
    /// Whether rows change as fast as they are copied again.
    is_behind: bool,
}

/// What a step tells of itself.
struct Taken {
    rows: u64,
    begun: Stopwatch,
    /// Without the commit.
    long: Duration,
    /// Members that wait behind it, others of the rebuild, too.
    behind: usize,
}

impl Taken {
    fn of(rows: u64, begun: Stopwatch, queue: &WriteQueue) -> Taken {
        Taken { rows, begun, long: begun.elapsed(), behind: queue.len() }
    }
}

impl Pace {
    fn new() -> Pace {
        Pace { most: ROWS[0], quiet: 0, rest: Duration::ZERO, is_behind: false }
    }

    fn at_once(&self) -> usize {
        if self.quiet < QUIET && !self.is_behind { 1 } else { AT_ONCE }
    }

    /// Notes a step that was just acknowledged.
    fn note(&mut self, taken: &Taken) {
        self.quiet = self.quiet.saturating_add(1);
        if taken.behind >= self.at_once() {
            self.quiet = 0;
        }
        let (target, long) = match self.quiet < QUIET {
            true => (BESIDE_OTHERS, taken.begun.elapsed().min(taken.long * (1 + COMMIT))),
            false => (ALONE, taken.long),
        };
        self.rest = if self.quiet < QUIET { long * RESTS } else { Duration::ZERO };
        if taken.rows < u64::from(self.most) / 2 {
            // It says little of how many it could have been.
            return;
        }
        let fits = u128::from(taken.rows) * target.as_micros() / long.as_micros().max(1);
        let fits = u32::try_from(fits).unwrap_or(u32::MAX);
        let gently = fits.clamp(self.most / 2, self.most.saturating_mul(2));
        self.most = gently.clamp(ROWS[1], ROWS[2]);
    }
}

impl Migrations {
    /// Ends the online rebuild that is under way, and deletes what it has made; gives the name of
    /// its migration, which is pending as before. Other writes go on meanwhile. The table is as the
    /// application has left it.
    ///
    /// # Errors
    /// Those of [`Write::wait`](crate::Write::wait).
    ///
    /// # Cancellation
    /// The rebuild has ended; what is left is deleted by the next [`Migrations::up`] or `abort`.
    pub fn abort<E>(db: &Database<E>) -> Job<Option<String>> {
        let (writes, maintenance) = (Arc::clone(db.writes()), db.maintenance());
        db.jobs().start(Caller::default(), move |job| {
            let time_limit = super::TIME_LIMIT;
            let online = Online { writes: &writes, maintenance: &maintenance, job, time_limit };
            let aborted = online.alone(|tx| {
                let Some(it) = tx.rebuilding()? else { return Ok(None) };
                tx.rebuild_online(|online| online.abort())?;
                // Or it was swapped or aborted before, and is only cleaned.
                Ok(Some((it.phase != RebuildPhase::Removing).then_some(it.name)))
            })?;
            if aborted.is_some() {
                online.clean()?;
            }
            Ok(aborted.flatten())
        })
    }
}

impl Online<'_> {
    /// Deletes what is left over, and sees whether the rebuild that is under way is of one of
    /// `all`.
    pub(super) fn settle(&self, all: &Migrations) -> Result<()> {
        let state = self
            .maintenance
            .on_snapshot(self.job, |reader| Ok(reader.connection.online().state()?))?;
        match state {
            Some(it) if it.phase == RebuildPhase::Removing => self.clean(),
            Some(it) => all.obstacle(&it).map_or(Ok(()), |why| Err(wrong(&why))),
            None => Ok(()),
        }
    }

    /// Applies `migration`, which rebuilds `table`, unless it was applied; tells whether it did.
    pub(super) fn apply(
        &self,
        all: &Migrations,
        migration: &Arc<Migration>,
        table: &str,
    ) -> Result<bool> {
        let total = self.look_for_room(table)?;
        let begin = {
            let (all, migration, table) = (all.clone(), Arc::clone(migration), table.to_owned());
            move |tx: &Tx<'_>| {
                all.begin_online(tx, &migration, &table, total).map(|it| it.map(Arc::new))
            }
        };
        let Some(plan) = self.alone(begin)? else { return Ok(false) };
        // The schema with which rows were compared.
        let (mut verified, mut compared, mut failures) = (None, 0, 0);
        // Rows that do not fit: they are looked at again in the end, when all are known.
        let left = RefCell::new(BTreeSet::new());
        let start = |most| self.step(migration, &plan, most, Some(left.borrow().clone()));
        let copied = self.steps(start, |done, pace| {
            // `None`: another process has ended it.
            let Some((step, state, taken)) = done else { return Ok(true) };
            self.job.tell(state.rows, state.total.max(state.rows));
            pace.note(&taken);
            pace.is_behind = step.is_behind;
            let is_even = step.is_copied && !step.is_behind;
            left.borrow_mut().extend(step.left);
            let count = left.borrow().len();
            if is_even && count > 0 || count >= LEFT {
                let all = u32::try_from(count).unwrap_or(u32::MAX).saturating_add(pace.most);
                self.step(migration, &plan, all, None).wait()?;
                left.borrow_mut().clear();
            } else if is_even && let Some(schema) = verified.filter(|it| *it == step.schema) {
                let most = (pace.most / AT_SWAP) << failures.min(8);
                failures += 1;
                return self.swap(migration, &plan, table, (most, schema));
            }
            if is_even {
                if compared == ATTEMPTS {
                    return Err(restless(table));
                }
                self.verify(&plan)?;
                (verified, compared) = (Some(step.schema), compared + 1);
            } else if !step.is_behind {
                self.job.rest(pace.rest);
            }
            Ok(false)
        });
        if let Err(error) = &copied
            && error.kind() == ErrorKind::Constraint
        {
            let (of, rows) = (Arc::clone(migration), error.to_string());
            self.alone(move |tx| match of.goes_on(tx)? {
                Some(_) => tx.rebuild_online(|online| online.note_refused(&rows)),
                None => Ok(()),
            })?;
        }
        copied?;
        self.clean()?;
        Ok(true)
    }

    /// Runs steps, each begun by `start` with the number of its rows, until `is_over` says so of
    /// one.
    fn steps<T: Send + 'static>(
        &self,
        start: impl Fn(u32) -> Write<T>,
        mut is_over: impl FnMut(T, &mut Pace) -> Result<bool>,
    ) -> Result<()> {
        let (mut pace, mut under_way) = (Pace::new(), VecDeque::new());
        loop {
            self.job.check()?;
            while under_way.len() < pace.at_once() {
                under_way.push_back(start(pace.most));
            }
            let first = under_way.pop_front().expect("at least one is begun");
            match first.wait() {
                Err(error) if error.kind() == ErrorKind::Overloaded => self.job.rest(FULL_REST),
                done => {
                    if is_over(done?, &mut pace)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Sees whether a copy of `table` has room on the disk; tells how many rows it has.
    fn look_for_room(&self, table: &str) -> Result<u64> {
        let size = self.maintenance.on_snapshot(self.job, |reader| {
            let online = reader.connection.online();
            let is_begun = online.state()?.is_some();
            Ok(if is_begun { None } else { Some(online.room(table)?) })
        })?;
        let Some(size) = size else { return Ok(0) };
        if size.free < size.needed {
            let message = format!(
                "{table} is not rebuilt online: the copy takes up to {} MB, and the disk has {} \
                    MB; \
                 nothing was changed",
                size.needed >> 20,
                size.free >> 20
            );
            return Err(Error::new(ErrorKind::Storage, message));
        }
        Ok(size.rows)
    }

    /// One step, see [`monolite_sqlite::Online::step`]; `None` when the rebuild is over, by another
    /// process.
    fn step(
        &self,
        migration: &Arc<Migration>,
        plan: &Arc<OnlinePlan>,
        most: u32,
        left: Option<BTreeSet<i64>>,
    ) -> Write<Option<(Step, Rebuilding, Taken)>> {
        let (of, plan, queue) = (Arc::clone(migration), Arc::clone(plan), Arc::clone(self.writes));
        self.among_others(move |tx| {
            let begun = Stopwatch::start();
            let Some(state) = of.goes_on(tx)? else { return Ok(None) };
            let step = tx.rebuild_online(|online| online.step(&plan, most, left.as_ref()))?;
            let taken = Taken::of(step.rows, begun, &queue);
            Ok(Some((step, state, taken)))
        })
    }

    fn verify(&self, plan: &OnlinePlan) -> Result<()> {
        let (mut from, mut attempts) = (Some(i64::MIN), 0);
        let (mut pacer, mut waited) = (Pacer::new(0), 0);
        while let Some(at) = from {
            let looked = self.maintenance.on_snapshot(self.job, |reader| {
                Ok(reader.connection.online().verify(plan, at, COMPARED)?)
            });
            match looked {
                Err(error) if error.kind() == ErrorKind::Timeout && attempts < ATTEMPTS => {
                    attempts += 1;
                }
                looked => (from, attempts) = (looked?, 0),
            }
            waited += u64::from(!self.writes.is_empty());
            pacer.keep(waited);
        }
        Ok(())
    }

    /// Exchanges the tables and notes the migration, if at most so many rows have changed, and the
    /// schema is the one with this number; tells whether it did.
    fn swap(
        &self,
        migration: &Arc<Migration>,
        plan: &Arc<OnlinePlan>,
        table: &str,
        at: (u32, i64),
    ) -> Result<bool> {
        let (of, plan, table) = (Arc::clone(migration), Arc::clone(plan), table.to_owned());
        self.alone(move |tx| {
            if of.goes_on(tx)?.is_none() {
                return Ok(true);
            }
            let is_there = tx.rebuild_online(|online| online.swap(&plan, (&of.sql, &table), at))?;
            if is_there {
                tx.note_migration(of.number, &of.name, &of.checksum)?;
            }
            Ok(is_there)
        })
    }

    fn clean(&self) -> Result<()> {
        let start = |most: u32| {
            let queue = Arc::clone(self.writes);
            self.among_others(move |tx| {
                let begun = Stopwatch::start();
                let is_there =
                    tx.rebuilding()?.is_some_and(|it| it.phase == RebuildPhase::Removing);
                let is_clean = !is_there || tx.rebuild_online(|online| online.clean(most))?;
                Ok((is_clean, Taken::of(most.into(), begun, &queue)))
            })
        };
        self.steps(start, |(is_clean, taken), pace| {
            pace.note(&taken);
            if !is_clean {
                self.job.rest(pace.rest);
            }
            Ok(is_clean)
        })
    }

    /// Runs `body` as a write among others.
    fn among_others<T: Send + 'static>(
        &self,
        body: impl FnMut(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Write<T> {
        let caller = Completion::new();
        let terms = self.writes.terms().of_upkeep("migrations");
        let member = Submission::new(Repeatable(body), terms, Arc::clone(&caller));
        Write::submit(Box::new(member.within(self.time_limit)), caller, self.writes)
    }

    /// Runs `body` in a transaction of its own.
    fn alone<T: Send + 'static>(
        &self,
        body: impl FnMut(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let caller = Completion::new();
        let terms = self.writes.terms().of_upkeep("migrations");
        let alone = Alone { limit: self.time_limit, around: Around::Nothing };
        let member = Submission::new(Repeatable(body), terms, Arc::clone(&caller)).alone(alone);
        Write::submit(Box::new(member), caller, self.writes).wait()
    }
}

impl Migrations {
    /// Begins or resumes the online rebuild of `migration`; `None` if it was applied.
    fn begin_online(
        &self,
        tx: &Tx<'_>,
        migration: &Migration,
        table: &str,
        total: u64,
    ) -> Result<Option<OnlinePlan>> {
        let status = self.compared_with(&tx.migrations()?);
        if let Some(problem) = status.problems.first() {
            return Err(wrong(problem));
        }
        if !status.pending.contains(&migration.name) {
            return Ok(None);
        }
        let (of, sql) = (migration.key(), (&*migration.sql, table));
        match tx.rebuilding()? {
            None => tx.rebuild_online(|online| online.begin(of, sql, total)),
            Some(it) if migration.is_of(&it) => tx.rebuild_online(|online| online.resume(sql)),
            Some(it) => Err(wrong(&stranger(&it))),
        }
        .map(Some)
    }

    /// Why the one that is under way cannot go on with these.
    pub(super) fn obstacle(&self, it: &Rebuilding) -> Option<String> {
        let is_known = || self.list.iter().any(|known| known.is_of(it));
        let is_lost = it.phase != RebuildPhase::Removing && !is_known();
        it.obstacle.clone().or_else(|| is_lost.then(|| stranger(it)))
    }
}

impl Migration {
    fn key(&self) -> (i64, &str, &str) {
        (self.number, &self.name, &self.checksum)
    }

    fn is_of(&self, it: &Rebuilding) -> bool {
        self.key() == (it.number, &*it.name, &*it.checksum)
    }

    /// How far the rebuild is; `None` when it was applied.
    fn goes_on(&self, tx: &Tx<'_>) -> Result<Option<Rebuilding>> {
        let state = tx.rebuilding()?;
        let state = state.filter(|it| self.is_of(it) && it.phase != RebuildPhase::Removing);
        if state.is_some() || tx.migrations()?.iter().any(|it| it.number == self.number) {
            return Ok(state);
        }
        Err(Error::aborted("the online rebuild was aborted, by another process or call"))
    }

    /// Does all that an online rebuild does in the open transaction.
    pub(super) fn rebuild_at_once(&self, tx: &Tx<'_>, table: &str) -> Result<()> {
        tx.rebuild_online(|online| {
            let sql = (&*self.sql, table);
            let plan = online.begin(self.key(), sql, 0)?;
            let schema = loop {
                let step = online.step(&plan, u32::MAX, None)?;
                if step.is_copied {
                    break step.schema;
                }
            };
            let is_swapped = online.swap(&plan, sql, (u32::MAX, schema))?;
            assert!(is_swapped, "all is copied");
            while !online.clean(u32::MAX)? {}
            Ok(())
        })
    }
}

fn restless(table: &str) -> Error {
    let message = format!(
        "the rows of {table} were compared {ATTEMPTS} times, and the schema changed \
         each time; stop what creates, drops or analyzes meanwhile, and apply the migration \
         again: it goes on where it was"
    );
    Error::new(ErrorKind::Conflict, message)
}

fn stranger(it: &Rebuilding) -> String {
    format!(
        "{} is being rebuilt online by the migration {}, which is not there as it was then; bring \
         it back, or abort the rebuild (Migrations::abort, or monolite migrate abort)",
        it.table, it.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_exchanged_only_with_the_schema_they_were_compared_with() {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path().join("db")).unwrap();
        let sql = "-- monolite: rebuild=t online\nCREATE TABLE t(id INTEGER PRIMARY KEY, a, b);";
        let all = Migrations::new().with("0001_t.sql", sql).unwrap();
        let migration = Arc::clone(&all.list[0]);
        let swapped = db.write(move |tx| {
            tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, a)")?;
            let of = (&*migration.sql, "t");
            let plan = tx.rebuild_online(|online| online.begin(migration.key(), of, 0))?;
            let step = || tx.rebuild_online(|online| online.step(&plan, 10, None));
            let swap = |schema| tx.rebuild_online(|online| online.swap(&plan, of, (10, schema)));
            tx.execute_batch("UPDATE t SET a = a")?;
            let before = step()?.schema;
            tx.execute_batch("UPDATE t SET a = a")?;
            assert_eq!(step()?.schema, before, "only another schema has another number");
            // A trigger that hides a change can have been there and be gone again.
            tx.execute_batch("CREATE TABLE other(x); DROP TABLE other")?;
            Ok::<_, Error>((swap(before)?, swap(step()?.schema)?))
        });
        assert_eq!(swapped.wait().unwrap(), (false, true));
        db.close().unwrap();
    }
}
