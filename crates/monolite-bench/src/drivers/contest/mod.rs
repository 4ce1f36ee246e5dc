//! Interactive transactions that want the same rows, on small databases made anew for every round.
//!
//! # Algorithm
//! A [`Contest`] says what the tables are and what a transaction does; [`EngineContest`] and
//! [`PostgresContest`](super::postgres::contest::PostgresContest) run it by many clients. Each
//! client is a task that begins its next transaction when the one before is acknowledged. What the
//! acknowledged transactions changed is added up, and the database must hold just that in the end.
//!
//! # Invariants
//! Number and seed of a transaction decide everything that it does, so that every candidate of a
//! round is asked for the same.

pub mod hot_row;
pub mod mixed;
pub mod parent_child;

use super::asked::Asked;
use super::clients::{Client, Ended, Sums, Ticket, add, drive};
use super::engine::{Settings, close};
use super::interactive::{contention, runtime};
use super::{Driver, Goal, Outcome, Profile, Round, Work};
use anyhow::{Context as _, Result, ensure};
use monolite::{Database, Transaction};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Instant;

/// A workload that many clients contend in.
pub trait Contest: Clone + Debug + Send + Sync + 'static {
    /// Makes the tables and their rows in SQLite.
    fn sqlite(&self) -> &'static str;

    /// Does the same in PostgreSQL, whatever an earlier round has left.
    fn postgres(&self) -> &'static str;

    /// The tables, as PostgreSQL's `VACUUM` takes them.
    fn tables(&self) -> &'static str;

    /// A query for what acknowledged transactions must add up to, the same for both databases.
    fn sums_sql(&self) -> &'static str;

    /// Does everything but the commit, and returns what it changes.
    fn run(&self, tx: &impl Asked, ticket: Ticket) -> impl Future<Output = Result<Sums>> + Send;
}

/// Returns the seed of a round, from the transfers that all candidates have in common.
pub fn seed(work: &Work<'_>) -> u64 {
    let transfer = work.transfer(0);
    transfer.from.cast_unsigned() << 32 ^ transfer.to.cast_unsigned() ^ transfer.amount as u64
}

/// Compares what the database holds with what was acknowledged.
pub fn compare(found: Sums, expected: Sums) -> Result<()> {
    ensure!(found == expected, "{found:?} is there where {expected:?} was acknowledged");
    Ok(())
}

/// A contest of the engine's interactive transactions.
#[derive(Debug)]
pub struct EngineContest<C> {
    pub dir: PathBuf,
    pub settings: Settings,
    pub clients: u64,
    pub contest: C,
}

impl<C: Contest> Driver for EngineContest<C> {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let dir = tempfile::Builder::new().prefix("contest-").tempdir_in(&self.dir)?;
        let db = self.settings.open(&dir.path().join("contest.db"))?;
        let script = self.contest.sqlite();
        let made: Result<(), monolite::Error> = db.write(|tx| tx.execute_batch(script)).wait();
        made.context("cannot make the rows to contend for")?;
        let (runtime, seed) = (runtime()?, seed(work));
        let clients = || {
            let client = |_| EngineClient { db: db.with_error(), contest: self.contest.clone() };
            (0..self.clients).map(client).collect::<Vec<_>>()
        };
        let once = Goal { count: self.clients, deadline: None };
        let first = Ticket { index: 0, seed };
        let warmed = runtime.block_on(drive(clients(), once, first, work.interrupt))?;
        let (before, begin) = (db.stats(), Instant::now());
        let goal = work.goal(profile.extent);
        let first = Ticket { index: self.clients, seed };
        let done = runtime.block_on(drive(clients(), goal, first, work.interrupt))?;
        let elapsed = begin.elapsed();
        let contention = contention(&before, &db.stats());
        let mut round = Round { contention, ..Round::of(&done.parts, elapsed) };
        let mut expected = done.sums;
        add(&mut expected, warmed.sums);
        compare(self.sums(&db)?, expected)?;
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed: 0 })
    }
}

impl<C: Contest> EngineContest<C> {
    fn sums(&self, db: &Database) -> Result<Sums> {
        let sql = self.contest.sums_sql();
        let found: Result<Sums, monolite::Error> = db
            .read(move |tx| {
                tx.query_row(sql, [], |row| {
                    Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
                })
            })
            .wait();
        found.context("cannot read what was contended for")
    }
}

struct EngineClient<C> {
    db: Database<anyhow::Error>,
    contest: C,
}

impl<C: Contest> Client for EngineClient<C> {
    async fn transact(&mut self, ticket: Ticket, _: &Goal) -> Result<Ended> {
        let contest = &self.contest;
        let run = |tx: Transaction| async move {
            let sums = contest.run(&tx, ticket).await?;
            Ok((sums, tx.attempt()))
        };
        let (sums, attempts) = self.db.transact(run).await.context("a transaction failed")?;
        Ok(Ended { sums: Some(sums), repeated: u64::from(attempts) - 1 })
    }
}
