//! Transfers against PostgreSQL from a pool of connections, as a server application would do them.
//!
//! One task per connection of the pool: take a connection, `START TRANSACTION`, the first update,
//! the application's delay, the second update, `COMMIT`, each awaited; or what else
//! [`crate::drivers::script`] says. Statements are prepared once per connection. A serialization
//! failure or a deadlock is answered by doing the transaction again, and counted.

use super::{Postgres, there};
use crate::drivers::contest::asked::OnPostgres;
use crate::drivers::script::{Reading, Script, perform};
use crate::drivers::traffic::Traffic;
use crate::drivers::{Driver, Goal, Outcome, Part, Profile, Round, Work};
use crate::workload::Transfer;
use anyhow::Result;
use deadpool_postgres::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

pub(super) const BALANCE: &str = "SELECT balance FROM account WHERE id = $1";

/// Transfers per connection before the clock starts: enough that each has connected and prepared.
const WARM_UP_PER_CONNECTION: u64 = 4;

/// Transfers from a pool.
pub struct PostgresTransfers<'p> {
    /// The server.
    pub postgres: Option<&'p Postgres>,
    /// Connections.
    pub pool: usize,
    /// READ COMMITTED or SERIALIZABLE.
    pub isolation: IsolationLevel,
    /// Of balances on which the application decides.
    pub reading: Reading,
    /// Each transaction.
    pub script: Script,
}

impl Driver for PostgresTransfers<'_> {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let postgres = there(self.postgres);
        let pool = postgres.pool(self.pool, profile.durability)?;
        let transfers: Arc<[Transfer]> = work.transfers.into();
        let shared = Arc::new(Shared {
            pool,
            transfers,
            next: AtomicU64::default(),
            isolation: self.isolation,
            reading: self.reading,
            script: self.script,
        });
        let warm_up = Goal { count: self.pool as u64 * WARM_UP_PER_CONNECTION, deadline: None };
        let round = postgres.runtime.block_on(async {
            self.drive(&shared, warm_up, work).await?;
            shared.next.store(0, Ordering::Relaxed);
            let goal = work.goal(profile.extent);
            let before = postgres.wal_position().await?;
            let round = self.drive(&shared, goal, work).await?;
            let wal_bytes = postgres.wal_position().await? - before;
            let operations = round.operations;
            let traffic = Traffic { operations, wal_bytes, ..Traffic::default() };
            Ok::<_, anyhow::Error>(Round { traffic: Some(traffic), ..round })
        })?;
        Ok(Outcome { round, warmed: 0 })
    }
}

impl PostgresTransfers<'_> {
    async fn drive(&self, shared: &Arc<Shared>, goal: Goal, work: &Work<'_>) -> Result<Round> {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..self.pool)
            .map(|_| {
                let (shared, interrupt) = (Arc::clone(shared), work.interrupt.clone());
                tokio::spawn(async move {
                    let mut part = Part::default();
                    while let Some(index) = goal.take(&shared.next) {
                        interrupt.check()?;
                        let start = Instant::now();
                        part.retries += shared.transfer(index).await?;
                        part.acknowledged(start);
                    }
                    Ok(part)
                })
            })
            .collect();
        let mut parts = Vec::with_capacity(self.pool);
        for task in tasks {
            let part: Result<Part> = task.await?;
            parts.push(part?);
        }
        Ok(Round::of(&parts, begin.elapsed()))
    }
}

struct Shared {
    pool: Pool,
    transfers: Arc<[Transfer]>,
    next: AtomicU64,
    isolation: IsolationLevel,
    reading: Reading,
    script: Script,
}

impl Shared {
    /// Does transfer number `index`, again and again if need be, and returns how often again.
    async fn transfer(&self, index: u64) -> Result<u64> {
        let transfer = self.transfers[(index % self.transfers.len() as u64) as usize];
        let mut retries = 0;
        loop {
            match self.attempt(transfer).await {
                Err(error) if is_retryable(&error) => retries += 1,
                done => return done.map(|()| retries),
            }
        }
    }

    async fn attempt(&self, transfer: Transfer) -> Result<()> {
        let mut client = self.pool.get().await?;
        let start = client.build_transaction().isolation_level(self.isolation).start();
        let asked = OnPostgres { transaction: start.await?, reading: self.reading };
        perform(&asked, transfer, self.script).await?;
        asked.transaction.commit().await?;
        Ok(())
    }
}

pub(crate) fn is_retryable(error: &anyhow::Error) -> bool {
    let state = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code());
    state.is_some_and(|state| {
        *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
    })
}
