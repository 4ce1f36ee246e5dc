//! Transfers against PostgreSQL from a pool of connections, as a server application would do them.
//!
//! One task per connection of the pool: take a connection, `START TRANSACTION`, the first update,
//! the application's delay, the second update, `COMMIT`, each awaited. Statements are prepared once
//! per connection. A serialization failure or a deadlock is answered by doing the transaction
//! again, and counted.

use super::Postgres;
use crate::drivers::{Candidate, Goal, Outcome, Profile, Round, Work};
use crate::statistics::Latencies;
use crate::workload::Transfer;
use anyhow::{Result, ensure};
use deadpool_postgres::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

const WITHDRAW: &str = "UPDATE account SET balance = balance - $1 WHERE id = $2";
const DEPOSIT: &str = "UPDATE account SET balance = balance + $1 WHERE id = $2";
const BALANCE: &str = "SELECT balance FROM account WHERE id = $1";

/// Transfers per connection before the clock starts: enough that each has connected and prepared.
const WARM_UP_PER_CONNECTION: u64 = 4;

/// What a transfer looks like from the application.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// READ COMMITTED or SERIALIZABLE.
    pub isolation: IsolationLevel,
    /// Between two statements.
    pub delay: Duration,
    /// Whether the balance is read between the updates, with another delay after it.
    pub third_statement: bool,
}

/// Transfers from a pool.
pub struct PostgresTransfers<'p> {
    /// What it is.
    pub profile: Profile,
    /// The server.
    pub postgres: &'p Postgres,
    /// Connections.
    pub pool: usize,
    /// Each transaction.
    pub script: Script,
}

impl Candidate for PostgresTransfers<'_> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let pool = self.postgres.pool(self.pool, self.profile.durability)?;
        let transfers: Arc<[Transfer]> = work.transfers.into();
        let shared = Shared { pool, transfers, next: AtomicU64::default(), script: self.script };
        let shared = Arc::new(shared);
        let warm_up = Goal { count: self.pool as u64 * WARM_UP_PER_CONNECTION, deadline: None };
        let round = self.postgres.runtime.block_on(async {
            self.drive(&shared, warm_up, work).await?;
            shared.next.store(0, Ordering::Relaxed);
            let goal = work.goal(self.profile.extent);
            self.drive(&shared, goal, work).await
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
                    let mut part = Round::default();
                    loop {
                        let index = shared.next.fetch_add(1, Ordering::Relaxed);
                        if goal.reached(index) || interrupt.requested() {
                            return Ok(part);
                        }
                        let start = Instant::now();
                        part.retries += shared.transfer(index).await?;
                        part.latencies.record(start.elapsed());
                        part.operations += 1;
                    }
                })
            })
            .collect();
        let (mut round, mut latencies) = (Round::default(), Latencies::default());
        for task in tasks {
            let part: Result<Round> = task.await?;
            let part = part?;
            round.operations += part.operations;
            round.retries += part.retries;
            latencies.merge(&part.latencies);
        }
        Ok(Round { elapsed: begin.elapsed(), taken: round.operations, latencies, ..round })
    }
}

struct Shared {
    pool: Pool,
    transfers: Arc<[Transfer]>,
    next: AtomicU64,
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
        let withdraw = client.prepare_cached(WITHDRAW).await?;
        let deposit = client.prepare_cached(DEPOSIT).await?;
        let balance = client.prepare_cached(BALANCE).await?;
        let (from, to) = (i32::try_from(transfer.from)?, i32::try_from(transfer.to)?);
        let amount = i32::try_from(transfer.amount)?;
        let isolation = self.script.isolation;
        let transaction = client.build_transaction().isolation_level(isolation).start().await?;
        let withdrawn = transaction.execute(&withdraw, &[&amount, &from]).await?;
        self.delay().await;
        if self.script.third_statement {
            let _: i32 = transaction.query_one(&balance, &[&to]).await?.get(0);
            self.delay().await;
        }
        let deposited = transaction.execute(&deposit, &[&amount, &to]).await?;
        transaction.commit().await?;
        ensure!(withdrawn == 1 && deposited == 1, "{transfer:?} changed no row");
        Ok(())
    }

    async fn delay(&self) {
        if !self.script.delay.is_zero() {
            tokio::time::sleep(self.script.delay).await;
        }
    }
}

fn is_retryable(error: &anyhow::Error) -> bool {
    let state = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code());
    state.is_some_and(|state| {
        *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
    })
}
