//! Transactions that all want one row: they read it, decide for a while, and write it.

use super::Contest;
use crate::drivers::asked::Asked;
use crate::drivers::clients::{Sums, Ticket};
use crate::drivers::script::pause;
use anyhow::Result;
use std::time::Duration;

const READ: &str = "SELECT n FROM hot WHERE id = 1";
const SET: &str = "UPDATE hot SET n = ?1 WHERE id = 1";

/// The workload.
#[derive(Clone, Copy, Debug)]
pub struct HotRow {
    /// The application's time between the read and the write.
    pub delay: Duration,
}

impl Contest for HotRow {
    fn sqlite(&self) -> &'static str {
        "CREATE TABLE hot(id INTEGER PRIMARY KEY, n INTEGER NOT NULL); \
         INSERT INTO hot VALUES (1, 0)"
    }

    fn postgres(&self) -> &'static str {
        "DROP TABLE IF EXISTS hot; \
         CREATE TABLE hot(id BIGINT PRIMARY KEY, n BIGINT NOT NULL); INSERT INTO hot VALUES (1, 0)"
    }

    fn tables(&self) -> &'static str {
        "hot"
    }

    fn sums_sql(&self) -> &'static str {
        "SELECT n, CAST(0 AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT) FROM hot"
    }

    async fn run(&self, tx: &impl Asked, _: Ticket) -> Result<Sums> {
        let seen = tx.to_decide_on(READ, &[]).await?;
        pause(self.delay).await;
        tx.execute(SET, &[seen + 1]).await?;
        Ok([1, 0, 0, 0])
    }
}
