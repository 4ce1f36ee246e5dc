//! What [`crate::drivers::contest`] does, on PostgreSQL: a connection for each client.
//!
//! # Algorithm
//! 1. Make the tables anew and vacuum them; connect, and prepare nothing yet.
//! 2. Each client begins a transaction, does the workload's statements, each awaited, and commits.
//!    A serialization failure, a deadlock, or no room to note another conflict, is answered by
//!    doing it again, and counted.
//! 3. One that has failed when the round is over is given up, and the server ends a statement that
//!    waits for much longer than the round: with a thousand clients at one row, or in deadlocks of
//!    a second each, waiting for all of them would take minutes. It does not count, and the round's
//!    note says how many there were.
//! 4. Compare what the tables hold with what was acknowledged.

use super::transfers::is_retryable;
use super::{Postgres, connect, there};
use crate::drivers::asked::OnPostgres;
use crate::drivers::asked::Reading;
use crate::drivers::clients::{Client, Ended, Sums, Ticket, drive};
use crate::drivers::contest::{Contest, compare, seed};
use crate::drivers::{Absent, Driver, Goal, Outcome, Profile, Round, Work};
use crate::raw_connection::Durability;
use anyhow::{Context, Result};
use deadpool_postgres::Object;
use std::time::{Duration, Instant};
use tokio_postgres::IsolationLevel;
use tokio_postgres::error::SqlState;

/// How long to wait for connections of an earlier candidate to go.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a statement under way at the end of a round is waited for, at least.
const GRACE: Duration = Duration::from_secs(2);

/// A contest of PostgreSQL's transactions.
pub struct PostgresContest<'p, C> {
    pub postgres: Option<&'p Postgres>,
    pub clients: u64,
    pub isolation: IsolationLevel,
    pub reading: Reading,
    pub contest: C,
}

impl<C: Contest> Driver for PostgresContest<'_, C> {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let (round, done) = there(self.postgres).runtime.block_on(async {
            self.make().await?;
            let mut clients = Vec::new();
            // The server ends a statement that waits for longer than the round, after its end. That
            // costs nothing while the clock runs.
            let length = work
                .goal(profile.extent)
                .deadline
                .map_or(GRACE, |end| end.saturating_duration_since(Instant::now()) + GRACE);
            let limit = format!("SET statement_timeout = {}", length.as_millis());
            for connection in self.connections().await? {
                connection.batch_execute(&limit).await?;
                clients.push(PostgresClient {
                    connection,
                    isolation: self.isolation,
                    reading: self.reading,
                    contest: self.contest.clone(),
                });
            }
            let first = Ticket { index: 1, seed: seed(work) };
            let begin = Instant::now();
            let goal = work.goal(profile.extent);
            let done = drive(clients, goal, first, work.interrupt).await?;
            let round = Round::of(&done.parts, begin.elapsed());
            // Others use these connections, too.
            for connection in self.connections().await? {
                connection.batch_execute("RESET statement_timeout").await?;
            }
            compare(self.sums().await?, done.sums)?;
            Ok::<_, anyhow::Error>((round, done))
        })?;
        let note = match done.given_up {
            0 => None,
            1 => Some("1 transaction was given up when the round was over".to_owned()),
            some => Some(format!("{some} transactions were given up when the round was over")),
        };
        Ok(Outcome { round: Round { note, ..round }, warmed: 0 })
    }
}

impl<C: Contest> PostgresContest<'_, C> {
    async fn make(&self) -> Result<()> {
        let client = connect(&there(self.postgres).config).await?;
        client.batch_execute(self.contest.postgres()).await.context("cannot make the tables")?;
        let vacuum = format!("VACUUM (ANALYZE) {}", self.contest.tables());
        client.batch_execute(&vacuum).await?;
        Ok(())
    }

    async fn sums(&self) -> Result<Sums> {
        let client = connect(&there(self.postgres).config).await?;
        let row = client.query_one(self.contest.sums_sql(), &[]).await?;
        Ok([0, 1, 2, 3].map(|column| row.get(column)))
    }

    /// A connection for each client, from a pool that keeps them for the next round.
    async fn connections(&self) -> Result<Vec<Object>> {
        let size = usize::try_from(self.clients)?;
        let pool = there(self.postgres).pool(size, Durability::Durable)?;
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

fn has_state(error: &anyhow::Error, state: &SqlState) -> bool {
    let error = error.downcast_ref::<tokio_postgres::Error>();
    error.and_then(|error| error.code()) == Some(state)
}

fn is_cancelled(error: &anyhow::Error) -> bool {
    has_state(error, &SqlState::QUERY_CANCELED)
}

/// Whether SERIALIZABLE has no room to note another conflict, as happens with a thousand clients:
/// what was noted goes away with the transactions under way, so that trying again helps.
fn has_no_room(error: &anyhow::Error) -> bool {
    has_state(error, &SqlState::OUT_OF_MEMORY)
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
                Err(error) if is_retryable(&error) || has_no_room(&error) => repeated += 1,
                Err(error) if is_cancelled(&error) => {}
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
        let asked = OnPostgres { transaction: begin.start().await?, reading: self.reading };
        let sums = self.contest.run(&asked, ticket).await?;
        asked.transaction.commit().await?;
        Ok(sums)
    }
}
