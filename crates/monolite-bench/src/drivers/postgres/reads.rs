//! Autocommit point reads from PostgreSQL, one connection, one statement, each awaited.

use super::transfers::BALANCE;
use super::{Postgres, there};
use crate::drivers::{Driver, Goal, Outcome, Part, Profile, Round, Work};
use anyhow::{Result, ensure};
use deadpool_postgres::Client;
use std::time::Instant;
use tokio_postgres::Statement;

/// Reads before the clock starts.
const WARM_UP_READS: u64 = 1_000;

/// Reads by one client.
pub struct PostgresReads<'p> {
    pub postgres: Option<&'p Postgres>,
}

impl Driver for PostgresReads<'_> {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let postgres = there(self.postgres);
        let pool = postgres.pool(1, profile.durability)?;
        let round = postgres.runtime.block_on(async {
            let client = pool.get().await?;
            let statement = client.prepare_cached(BALANCE).await?;
            let warm_up = Goal { count: WARM_UP_READS, deadline: None };
            read(&client, &statement, warm_up, work).await?;
            read(&client, &statement, work.goal(profile.extent), work).await
        })?;
        Ok(Outcome { round, warmed: 0 })
    }
}

async fn read(client: &Client, balance: &Statement, goal: Goal, work: &Work<'_>) -> Result<Round> {
    let (mut part, mut done, begin) = (Part::default(), 0, Instant::now());
    while !goal.reached(done) {
        work.interrupt.check()?;
        let start = Instant::now();
        let id = i32::try_from(work.transfer(done).from)?;
        let found: i32 = client.query_one(balance, &[&id]).await?.get(0);
        part.acknowledged(start);
        ensure!(found != 0, "account {id} is empty");
        done += 1;
    }
    Ok(Round::of(&[part], begin.elapsed()))
}
