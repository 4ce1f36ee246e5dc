//! Raw `BEGIN IMMEDIATE` held while the application is elsewhere.
//!
//! A connection and a thread for each client. The write lock is held across the application's time,
//! so the others wait for it in SQLite's busy handler, with the rests of SQLite's own
//! (`sqlite3_busy_timeout`) but without an end; each rest is counted.

use super::raw::Statements;
use super::script::Script;
use super::{Driver, Goal, Outcome, Part, Profile, Round, Work};
use crate::raw_connection;
use anyhow::Result;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What SQLite's own busy handler rests before each further attempt, in milliseconds; the last one
/// again and again.
const RESTS_MS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];

thread_local! {
    /// Rests of this thread's connection; SQLite hands the handler nothing to count in.
    static RESTS: AtomicU64 = const { AtomicU64::new(0) };
}

/// One transfer per commit, with the application's time in the middle of it.
#[derive(Debug)]
pub struct HeldTransfers {
    pub database: PathBuf,
    pub settings: raw_connection::Settings,
    pub clients: u64,
    pub script: Script,
}

impl Driver for HeldTransfers {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        // The last connection that closes removes the WAL, whose size is looked at below.
        let _keeps_it_open = raw_connection::open(&self.database, self.settings)?;
        let open = |_| raw_connection::open(&self.database, self.settings);
        let connections = (0..self.clients).map(open).collect::<Result<Vec<_>>>()?;
        let goal = work.goal(profile.extent);
        let (next, begin) = (&AtomicU64::new(0), Instant::now());
        let parts: Vec<Result<Part>> = thread::scope(|scope| {
            let client =
                |connection| scope.spawn(move || self.client(connection, work, goal, next));
            let clients: Vec<_> = connections.into_iter().map(client).collect();
            clients.into_iter().map(|client| client.join().expect("no client panics")).collect()
        });
        let elapsed = begin.elapsed();
        let mut round = Round::of(&parts.into_iter().collect::<Result<Vec<_>>>()?, elapsed);
        round.wal_bytes_max = raw_connection::wal_bytes(&self.database);
        round.checkpoints = raw_connection::wal_restarts(&self.database);
        Ok(Outcome { round, warmed: 0 })
    }
}

impl HeldTransfers {
    fn client(
        &self,
        mut connection: Connection,
        work: &Work<'_>,
        goal: Goal,
        next: &AtomicU64,
    ) -> Result<Part> {
        connection.busy_handler(Some(rest))?;
        let mut statements = Statements::prepare(&connection)?;
        let mut part = Part::default();
        while let Some(index) = goal.take(next) {
            work.interrupt.check()?;
            let start = Instant::now();
            statements.held(work.transfer(index), &self.script, || pause(self.script.delay))?;
            part.acknowledged(start);
        }
        part.busy_waits = RESTS.with(|rests| rests.load(Ordering::Relaxed));
        Ok(part)
    }
}

fn rest(attempt: i32) -> bool {
    RESTS.with(|rests| rests.fetch_add(1, Ordering::Relaxed));
    let position = usize::try_from(attempt).unwrap_or(0).min(RESTS_MS.len() - 1);
    thread::sleep(Duration::from_millis(RESTS_MS[position]));
    true
}

fn pause(delay: Duration) {
    if !delay.is_zero() {
        thread::sleep(delay);
    }
}
