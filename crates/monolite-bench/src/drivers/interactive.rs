//! The engine's interactive transactions, with the application's time in the middle of them.
//!
//! # Algorithm
//! Each client is a task of a tokio runtime with one thread for each core. It takes the next
//! transfer, runs it in `Database::transact`, awaits every statement and every rest, and takes the
//! next one when the transfer is acknowledged. Before the clock starts the transfers of the warm-up
//! fill the writer's cache, and every client runs a transaction that moves nothing, so that the
//! connections are open and their statements prepared.
//!
//! The same clients can run the same transfers in `Database::write`, for what that costs.

use super::clients::{Client, Ended, Ticket, drive};
use super::engine::{Fate, Settings, TransferError, close, submit, warm_up};
use super::script::{Script, perform};
use super::{Driver, Goal, Outcome, Part, Profile, Round, Work};
use crate::drivers::contention::Contention;
use crate::machine::cpu_time;
use crate::workload::Transfer;
use anyhow::{Context, Result, anyhow};
use monolite::{Database, Stats, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::{Builder, Runtime};

/// By which call a client does its transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `Database::transact`.
    Transact,
    /// `Database::write`, both updates in its closure and nothing between them.
    Write,
}

/// Transfers by many waiting clients.
#[derive(Debug)]
pub struct InteractiveTransfers {
    pub database: PathBuf,
    pub settings: Settings,
    pub clients: u64,
    pub call: Call,
    /// Each transaction; of no effect on [`Call::Write`].
    pub script: Script,
}

impl Driver for InteractiveTransfers {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let db = self.open()?;
        let runtime = runtime()?;
        let warmed = self.warm_up(&db, &runtime, work)?;
        let mut round = self.measure(&db, &runtime, profile, work)?;
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed })
    }
}

impl InteractiveTransfers {
    /// Opens the engine on the data set.
    pub(super) fn open(&self) -> Result<Database> {
        self.settings.open(&self.database)
    }

    /// Fills caches and opens connections.
    pub(super) fn warm_up(&self, db: &Database, runtime: &Runtime, work: &Work<'_>) -> Result<u64> {
        let warmed = warm_up(db, work)?;
        let nothing = |transfer: &Transfer| Transfer { amount: 0, ..*transfer };
        let work =
            Work { transfers: &work.transfers.iter().map(nothing).collect::<Vec<_>>(), ..*work };
        let once = Goal { count: self.clients, deadline: None };
        runtime.block_on(self.drive(db, &work, once))?;
        Ok(warmed)
    }

    /// Works through the round.
    pub(super) fn measure(
        &self,
        db: &Database,
        runtime: &Runtime,
        profile: &Profile,
        work: &Work<'_>,
    ) -> Result<Round> {
        let (before, cpu) = (db.stats(), cpu_time());
        let begin = Instant::now();
        let goal = work.goal(profile.extent);
        let parts = runtime.block_on(self.drive(db, work, goal))?;
        let elapsed = begin.elapsed();
        let cpu = Some(cpu_time().since(cpu));
        let contention = contention(&before, &db.stats());
        Ok(Round { contention, cpu, ..Round::of(&parts, elapsed) })
    }

    async fn drive(&self, db: &Database, work: &Work<'_>, goal: Goal) -> Result<Vec<Part>> {
        let session = Arc::new(Session {
            db: db.with_error(),
            plain: db.with_error(),
            transfers: work.transfers.into(),
            call: self.call,
            script: self.script,
        });
        let clients = vec![session; self.clients as usize];
        Ok(drive(clients, goal, Ticket::default(), work.interrupt).await?.parts)
    }
}

/// Starts the runtime of the clients.
pub(super) fn runtime() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().enable_time().build()?)
}

/// Returns what happened between two looks at the engine.
pub(super) fn contention(before: &Stats, after: &Stats) -> Contention {
    Contention {
        replayed: after.transactions_replayed - before.transactions_replayed,
        unchanged: after.transactions_unchanged - before.transactions_unchanged,
        read_only: after.transactions_read_only - before.transactions_read_only,
        resumed: after.transactions_resumed - before.transactions_resumed,
        busy_waits: 0,
    }
}

struct Session {
    db: Database<anyhow::Error>,
    plain: Database<TransferError>,
    transfers: Arc<[Transfer]>,
    call: Call,
    script: Script,
}

impl Client for Arc<Session> {
    async fn transact(&mut self, ticket: Ticket, _: &Goal) -> Result<Ended> {
        let transfer = self.transfers[(ticket.index % self.transfers.len() as u64) as usize];
        let attempts = self.transfer(transfer).await.context("a transfer failed")?;
        Ok(Ended::acknowledged(u64::from(attempts) - 1))
    }
}

impl Session {
    /// Returns how many attempts it took.
    async fn transfer(&self, transfer: Transfer) -> Result<u32> {
        if self.call == Call::Write {
            let done = submit(&self.plain, transfer, Fate::Succeeds).await;
            return done.map(|()| 1).map_err(|error| anyhow!("it was answered {error:?}"));
        }
        let script = self.script;
        let run = |tx: Transaction| async move {
            perform(&tx, transfer, script).await?;
            Ok(tx.attempt())
        };
        self.db.transact(run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_commit_is_counted_since_the_earlier_look() {
        let look = |by: u64| {
            let mut stats = Stats::default();
            stats.transactions_replayed = 10 * by;
            stats.transactions_unchanged = 20 * by;
            stats.transactions_read_only = 30 * by;
            stats.transactions_resumed = 50 * by;
            stats
        };
        let found = contention(&look(1), &look(3));
        let expected =
            Contention { replayed: 20, unchanged: 40, read_only: 60, resumed: 100, busy_waits: 0 };
        assert_eq!(found, expected);
        assert_eq!(found.unchanged_share(), Some(1.0 / 3.0));
        assert_eq!(contention(&look(1), &look(1)).unchanged_share(), None);
    }
}
