//! Interactive transactions that all want one row: they read it, decide for a while, and write it.
//!
//! # Algorithm
//! Every client is a task that begins its next transaction when the one before is acknowledged, as
//! in [`super::interactive`]; `transact` retries. The database is made anew for every round in a
//! directory of its own, and the row must hold the number of acknowledged transactions in the end.

use super::engine::{Settings, close};
use super::interactive::{contention, pause, runtime};
use super::{Candidate, Goal, Outcome, Part, Profile, Round, Work};
use crate::progress::Interrupt;
use anyhow::{Context as _, Result, ensure};
use monolite::{Database, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Many waiting clients of one row.
#[derive(Debug)]
pub struct HotRow {
    /// What it is.
    pub profile: Profile,
    /// Where the database is made.
    pub dir: PathBuf,
    /// Of the engine.
    pub settings: Settings,
    /// Tasks.
    pub clients: u64,
    /// The application's time between the read and the write.
    pub delay: Duration,
}

impl Candidate for HotRow {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let dir = tempfile::Builder::new().prefix("hot-row-").tempdir_in(&self.dir)?;
        let db = self.settings.open(&dir.path().join("hot.db"))?;
        let made: Result<(), monolite::Error> = db
            .write(|tx| {
                tx.execute_batch(
                    "CREATE TABLE hot(id INTEGER PRIMARY KEY, n INTEGER NOT NULL);
                     INSERT INTO hot VALUES (1, 0);",
                )
            })
            .wait();
        made.context("cannot make the hot row")?;
        let runtime = runtime()?;
        let session = |goal| {
            let (next, interrupt) = (AtomicU64::new(0), work.interrupt.clone());
            Arc::new(Session { db: db.clone(), next, goal, interrupt, delay: self.delay })
        };
        let once = Goal { count: self.clients, deadline: None };
        let warmed = runtime.block_on(session(once).drive(self.clients))?;
        let (before, begin) = (db.stats(), Instant::now());
        let session = session(work.goal(self.profile.extent));
        let parts = runtime.block_on(session.drive(self.clients))?;
        let elapsed = begin.elapsed();
        let contention = contention(&before, &db.stats());
        let mut round = Round { contention, ..Round::of(&parts, elapsed) };
        check(&db, &[warmed, parts])?;
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed: 0 })
    }
}

/// Compares the row with what was acknowledged: an update that was lost shows.
fn check(db: &Database, parts: &[Vec<Part>]) -> Result<()> {
    let acknowledged: usize = parts.iter().flatten().map(|part| part.latencies.len()).sum();
    let sql = "SELECT n FROM hot";
    let found: Result<i64, monolite::Error> =
        db.read(move |tx| tx.query_row(sql, (), |row| row.get(0))).wait();
    let found = found.context("cannot read the hot row")?;
    let is_right = usize::try_from(found) == Ok(acknowledged);
    ensure!(is_right, "hot row: {found} is there where {acknowledged} were acknowledged");
    Ok(())
}

struct Session {
    db: Database,
    next: AtomicU64,
    goal: Goal,
    interrupt: Interrupt,
    delay: Duration,
}

impl Session {
    async fn drive(self: Arc<Session>, clients: u64) -> Result<Vec<Part>> {
        let client = |_| tokio::spawn(Arc::clone(&self).client());
        let clients: Vec<_> = (0..clients).map(client).collect();
        let mut parts = Vec::new();
        for client in clients {
            parts.push(client.await??);
        }
        Ok(parts)
    }

    async fn client(self: Arc<Session>) -> Result<Part> {
        let mut part = Part::default();
        let delay = self.delay;
        while self.goal.take(&self.next).is_some() {
            self.interrupt.check()?;
            let start = Instant::now();
            let decide = |tx: Transaction| async move {
                let seen: i64 =
                    tx.query_row("SELECT n FROM hot WHERE id = 1", (), |row| row.get(0)).await?;
                pause(delay).await;
                tx.execute("UPDATE hot SET n = ?1 WHERE id = 1", [seen + 1]).await?;
                Ok(tx.attempt())
            };
            let done: Result<u32, monolite::Error> = self.db.transact(decide).await;
            let attempts = done.context("a transaction of the hot row failed")?;
            part.acknowledged(start);
            part.retries += u64::from(attempts) - 1;
        }
        Ok(part)
    }
}
