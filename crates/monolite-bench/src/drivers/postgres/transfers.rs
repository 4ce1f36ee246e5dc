//! Transfers against PostgreSQL from a pool of connections, as a server application would do them.
//!
//! One task per connection of the pool: take a connection, `START TRANSACTION`, the first update,
//! the application's delay, the second update, `COMMIT`, each awaited; or what else
//! [`crate::drivers::script`] says. Statements are prepared once per connection. A serialization
//! failure or a deadlock is answered by doing the transaction again, and counted.

use super::Postgres;
use crate::drivers::script::{Reading, Script, Workload, changes, decide};
use crate::drivers::traffic::Traffic;
use crate::drivers::{Candidate, Goal, Outcome, Part, Profile, Round, Work};
use crate::workload::Transfer;
use anyhow::{Result, ensure};
use deadpool_postgres::{Client, Pool, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, Statement};

const WITHDRAW: &str = "UPDATE account SET balance = balance - $1 WHERE id = $2";
const DEPOSIT: &str = "UPDATE account SET balance = balance + $1 WHERE id = $2";
pub(super) const BALANCE: &str = "SELECT balance FROM account WHERE id = $1";
const LOCKED_BALANCE: &str = "SELECT balance FROM account WHERE id = $1 FOR UPDATE";
const SET: &str = "UPDATE account SET balance = $1 WHERE id = $2";

/// Transfers per connection before the clock starts: enough that each has connected and prepared.
const WARM_UP_PER_CONNECTION: u64 = 4;

/// Transfers from a pool.
pub struct PostgresTransfers<'p> {
    /// What it is.
    pub profile: Profile,
    /// The server.
    pub postgres: &'p Postgres,
    /// Connections.
    pub pool: usize,
    /// READ COMMITTED or SERIALIZABLE.
    pub isolation: IsolationLevel,
    /// Of balances on which the application decides.
    pub reading: Reading,
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
        let shared = Arc::new(Shared {
            pool,
            transfers,
            next: AtomicU64::default(),
            isolation: self.isolation,
            reading: self.reading,
            script: self.script,
        });
        let warm_up = Goal { count: self.pool as u64 * WARM_UP_PER_CONNECTION, deadline: None };
        let round = self.postgres.runtime.block_on(async {
            self.drive(&shared, warm_up, work).await?;
            shared.next.store(0, Ordering::Relaxed);
            let goal = work.goal(self.profile.extent);
            let before = self.postgres.wal_position().await?;
            let round = self.drive(&shared, goal, work).await?;
            let wal_bytes = self.postgres.wal_position().await? - before;
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
        let statements = Statements::prepare(&client, self.reading).await?;
        let start = client.build_transaction().isolation_level(self.isolation).start();
        let held = Held { statements, transaction: start.await? };
        match self.script.workload {
            Workload::Blind => self.blind(&held, transfer).await?,
            Workload::Decide => self.decided(&held, transfer).await?,
        }
        held.transaction.commit().await?;
        Ok(())
    }

    async fn blind(&self, held: &Held<'_>, transfer: Transfer) -> Result<()> {
        let Transfer { from, to, amount } = transfer;
        held.change(&held.statements.withdraw, amount, from).await?;
        self.pause().await;
        if self.script.third_statement {
            held.balance(to).await?;
            self.pause().await;
        }
        held.change(&held.statements.deposit, amount, to).await
    }

    async fn decided(&self, held: &Held<'_>, transfer: Transfer) -> Result<()> {
        let sides = changes(transfer);
        let first = held.balance(sides[0].id).await?;
        if self.script.third_statement {
            self.pause().await;
        }
        let balances = [first, held.balance(sides[1].id).await?];
        self.pause().await;
        for (side, balance) in sides.iter().zip(decide(sides, balances)) {
            held.change(&held.statements.set, balance, side.id).await?;
        }
        Ok(())
    }

    async fn pause(&self) {
        if !self.script.delay.is_zero() {
            tokio::time::sleep(self.script.delay).await;
        }
    }
}

/// The prepared statements of a connection, which keeps them.
struct Statements {
    withdraw: Statement,
    deposit: Statement,
    balance: Statement,
    set: Statement,
}

impl Statements {
    async fn prepare(client: &Client, reading: Reading) -> Result<Statements> {
        let balance = match reading {
            Reading::Plain => BALANCE,
            Reading::ForUpdate => LOCKED_BALANCE,
        };
        Ok(Statements {
            withdraw: client.prepare_cached(WITHDRAW).await?,
            deposit: client.prepare_cached(DEPOSIT).await?,
            balance: client.prepare_cached(balance).await?,
            set: client.prepare_cached(SET).await?,
        })
    }
}

/// A transaction on a connection of the pool.
struct Held<'c> {
    statements: Statements,
    transaction: Transaction<'c>,
}

impl Held<'_> {
    async fn change(&self, statement: &Statement, amount: i64, id: i64) -> Result<()> {
        let (amount, id) = (i32::try_from(amount)?, i32::try_from(id)?);
        let changed = self.transaction.execute(statement, &[&amount, &id]).await?;
        ensure!(changed == 1, "there is no account {id}");
        Ok(())
    }

    async fn balance(&self, id: i64) -> Result<i64> {
        let id = i32::try_from(id)?;
        let row = self.transaction.query_one(&self.statements.balance, &[&id]).await?;
        Ok(i64::from(row.get::<_, i32>(0)))
    }
}

pub(super) fn is_retryable(error: &anyhow::Error) -> bool {
    let state = error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code());
    state.is_some_and(|state| {
        *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
    })
}
