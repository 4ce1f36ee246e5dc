//! What [`crate::drivers::contest`] does, on PostgreSQL: a connection for each client.
//!
//! # Algorithm
//! 1. Make the tables anew and vacuum them; connect, and prepare nothing yet.
//! 2. Each client begins a transaction, does the workload's statements, each awaited, and commits.
//!    A serialization failure or a deadlock is answered by doing it again, and counted.
//! 3. One that has failed when the round is over is given up: with a thousand clients at one row,
//!    waiting for all of them would take minutes. It does not count, and the round's note says how
//!    many there were.
//! 4. Compare what the tables hold with what was acknowledged.

use super::transfers::{Reading, is_retryable};
use super::{Postgres, connect};
use crate::drivers::contest::{Client, Contest, Ended, Sums, Ticket, compare, drive, seed};
use crate::drivers::{Absent, Candidate, Goal, Outcome, Profile, Round, Work};
use anyhow::{Context, Result};
use deadpool_postgres::{Object, Transaction};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

/// How long to wait for connections of an earlier candidate to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// A contest of PostgreSQL's transactions.
pub struct PostgresContest<'p, C> {
    /// What it is.
    pub profile: Profile,
    /// The server.
    pub postgres: &'p Postgres,
    /// Connections, each a client.
    pub clients: u64,
    /// READ COMMITTED or SERIALIZABLE.
    pub isolation: IsolationLevel,
    /// Of what the application decides on.
    pub reading: Reading,
    /// What they do.
    pub contest: C,
}

impl<C: Contest> Candidate for PostgresContest<'_, C> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let postgres = self.postgres;
        let (round, done) = postgres.runtime.block_on(async {
            self.make().await?;
            let mut clients = Vec::new();
            for connection in self.connections().await? {
                clients.push(PostgresClient {
                    connection,
                    isolation: self.isolation,
                    reading: self.reading,
                    contest: self.contest.clone(),
                });
            }
            let first = Ticket { index: 1, seed: seed(work) };
            let begin = Instant::now();
            let goal = work.goal(self.profile.extent);
            let done = drive(clients, goal, first, work.interrupt).await?;
            let round = Round::of(&done.parts, begin.elapsed());
            compare(self.sums().await?, done.sums)?;
            Ok::<_, anyhow::Error>((round, done))
        })?;
        let note = (done.given_up > 0).then(|| {
            format!("{} transactions were given up when the round was over", done.given_up)
        });
        Ok(Outcome { round: Round { note, ..round }, warmed: 0 })
    }
}

impl<C: Contest> PostgresContest<'_, C> {
    async fn make(&self) -> Result<()> {
        let client = connect(&self.postgres.config).await?;
        client.batch_execute(self.contest.postgres()).await.context("cannot make the tables")?;
        let vacuum = format!("VACUUM (ANALYZE) {}", self.contest.tables());
        client.batch_execute(&vacuum).await?;
        Ok(())
    }

    async fn sums(&self) -> Result<Sums> {
        let client = connect(&self.postgres.config).await?;
        let row = client.query_one(self.contest.sums_sql(), &[]).await?;
        Ok([0, 1, 2, 3].map(|column| row.get(column)))
    }

    /// A connection for each client, from a pool that keeps them for the next round.
    async fn connections(&self) -> Result<Vec<Object>> {
        let size = usize::try_from(self.clients)?;
        let pool = self.postgres.pool(size, self.profile.durability)?;
        let end = Instant::now() + PATIENCE;
        let mut connections = Vec::with_capacity(size);
        while connections.len() < size {
            match pool.get().await {
                Ok(connection) => connections.push(connection),
                Err(error) => {
                    let error = anyhow::Error::from(error);
                    if !is_full(&error) {
                        return Err(error);
                    }
                    if Instant::now() > end {
                        return Err(Absent(format!(
                            "the server does not take {size} connections; set max_connections"
                        ))
                        .into());
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        Ok(connections)
    }
}

/// Whether the server has as many connections as it takes.
fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<tokio_postgres::Error>();
        cause.and_then(|error| error.code()) == Some(&SqlState::TOO_MANY_CONNECTIONS)
    })
}

struct PostgresClient<C> {
    connection: Object,
    isolation: IsolationLevel,
    reading: Reading,
    contest: C,
}

impl<C: Contest> Client for PostgresClient<C> {
    async fn transact(&mut self, ticket: Ticket, goal: &Goal) -> Result<Ended> {
        let mut repeated = 0;
        loop {
            match self.attempt(ticket).await {
                Ok(sums) => return Ok(Ended { sums: Some(sums), repeated }),
                Err(error) if is_retryable(&error) => repeated += 1,
                Err(error) => return Err(error),
            }
            if goal.is_late() {
                return Ok(Ended { sums: None, repeated });
            }
        }
    }
}

impl<C: Contest> PostgresClient<C> {
    async fn attempt(&mut self, ticket: Ticket) -> Result<Sums> {
        let begin = self.connection.build_transaction().isolation_level(self.isolation);
        let asked = Asked { transaction: begin.start().await?, reading: self.reading };
        let sums = self.contest.on_postgres(&asked, ticket).await?;
        asked.transaction.commit().await?;
        Ok(sums)
    }
}

/// A transaction that is asked in SQLite's words: parameters are `?1`, all of them whole numbers.
pub struct Asked<'c> {
    transaction: Transaction<'c>,
    reading: Reading,
}

impl Asked<'_> {
    /// Returns all rows.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn query(&self, sql: &str, parameters: &[i64]) -> Result<Vec<Row>> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        Ok(self.transaction.query(&statement, &values(parameters)).await?)
    }

    /// Returns how many rows were changed.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn execute(&self, sql: &str, parameters: &[i64]) -> Result<u64> {
        let statement = self.transaction.prepare_cached(&sql.replace('?', "$")).await?;
        Ok(self.transaction.execute(&statement, &values(parameters)).await?)
    }

    /// Returns the one number of a query of one row.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn number(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        let rows = self.query(sql, parameters).await?;
        Ok(rows.first().context("there is no such row")?.get(0))
    }

    /// Returns a number that the application decides on, read as it must be in this isolation.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn number_to_decide_on(&self, sql: &str, parameters: &[i64]) -> Result<i64> {
        match self.reading {
            Reading::Plain => self.number(sql, parameters).await,
            Reading::ForUpdate => self.number(&format!("{sql} FOR UPDATE"), parameters).await,
        }
    }
}

fn values(parameters: &[i64]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|parameter| parameter as &(dyn ToSql + Sync)).collect()
}
