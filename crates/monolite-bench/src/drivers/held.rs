//! Raw `BEGIN IMMEDIATE` held while the application is elsewhere.
//!
//! The write lock is held across the delay, so other connections could only wait for it; one thread
//! shows all the throughput there is.

use super::raw::Statements;
use super::{Candidate, Outcome, Profile, Round, Work};
use crate::raw_connection;
use crate::statistics::Latencies;
use anyhow::Result;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One transfer per commit, with a delay between its two updates.
#[derive(Debug)]
pub struct HeldTransfers {
    /// What it is.
    pub profile: Profile,
    /// The data set.
    pub database: PathBuf,
    /// Of its connection.
    pub settings: raw_connection::Settings,
    /// Between the updates.
    pub delay: Duration,
}

impl Candidate for HeldTransfers {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let connection = raw_connection::open(&self.database, self.settings)?;
        let mut statements = Statements::prepare(&connection)?;
        let goal = work.goal(self.profile.extent);
        let (mut done, mut latencies, begin) = (0, Latencies::default(), Instant::now());
        while !goal.reached(done) {
            work.interrupt.check()?;
            let start = Instant::now();
            statements.held(&work.transfer(done), || {
                if !self.delay.is_zero() {
                    std::thread::sleep(self.delay);
                }
            })?;
            latencies.record(start.elapsed());
            done += 1;
        }
        let elapsed = begin.elapsed();
        let wal_bytes_max = raw_connection::wal_bytes(&self.database);
        let round = Round {
            operations: done,
            taken: done,
            elapsed,
            latencies,
            wal_bytes_max,
            checkpoints: raw_connection::wal_restarts(&self.database),
            ..Round::default()
        };
        Ok(Outcome { round, warmed: 0 })
    }
}
