//! Transfers against PostgreSQL from a pool of connections, as a server application would do them.
//!
//! One task per connection of the pool: take a connection, `START TRANSACTION`, the first update,
//! the application's delay, the second update, `COMMIT`, each awaited; or what else
//! [`crate::drivers::script`] says. Statements are prepared once per connection. A serialization
//! failure or a deadlock is answered by doing the transaction again, and counted.

use super::{Postgres, there};
use crate::drivers::asked::OnPostgres;
use crate::drivers::asked::Reading;
use crate::drivers::clients::{Client, Ended, Ticket, drive};
use crate::drivers::script::{Script, perform};
use crate::drivers::traffic::Traffic;
use crate::drivers::{Driver, Goal, Outcome, Profile, Round, Work};
use crate::workload::Transfer;
use anyhow::Result;
use deadpool_postgres::Pool;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

pub(super) const BALANCE: &str = "SELECT balance FROM account WHERE id = $1";

/// Transfers per connection before the clock starts: enough that each has connected and prepared.
const WARM_UP_PER_CONNECTION: u64 = 4;

/// Transfers from a pool.
pub struct PostgresTransfers<'p> {
    pub postgres: Option<&'p Postgres>,
    pub pool: usize,
    pub isolation: IsolationLevel,
    pub reading: Reading,
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
            isolation: self.isolation,
            reading: self.reading,
            script: self.script,
        });
        let warm_up = Goal { count: self.pool as u64 * WARM_UP_PER_CONNECTION, deadline: None };
        let clients = || vec![Arc::clone(&shared); self.pool];
        let first = Ticket::default();
        let round = postgres.runtime.block_on(async {
            drive(clients(), warm_up, first, work.interrupt).await?;
            let before = postgres.wal_position().await?;
            let (goal, begin) = (work.goal(profile.extent), Instant::now());
            let done = drive(clients(), goal, first, work.interrupt).await?;
            let round = Round::of(&done.parts, begin.elapsed());
            let wal_bytes = postgres.wal_position().await? - before;
            let operations = round.operations;
            let traffic = Traffic { operations, wal_bytes, ..Traffic::default() };
            Ok::<_, anyhow::Error>(Round { traffic: Some(traffic), ..round })
        })?;
        Ok(Outcome { round, warmed: 0 })
    }
}

struct Shared {
    pool: Pool,
    transfers: Arc<[Transfer]>,
    isolation: IsolationLevel,
    reading: Reading,
    script: Script,
}

impl Client for Arc<Shared> {
    async fn transact(&mut self, ticket: Ticket, _: &Goal) -> Result<Ended> {
        let transfer = self.transfers[(ticket.index % self.transfers.len() as u64) as usize];
        let mut repeated = 0;
        loop {
            match self.attempt(transfer).await {
                Err(error) if is_retryable(&error) => repeated += 1,
                done => return done.map(|()| Ended::acknowledged(repeated)),
            }
        }
    }
}

impl Shared {
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
