//! Plain writes of rows of their own, beside interactive transactions that all want one row.
//!
//! # Algorithm
//! Sixteen tasks write, each the next row of its own when the one before is acknowledged; these
//! writes are what is counted. Beside them go on, until they are told to stop:
//! - nobody;
//! - transactions that read one row, decide for 5 ms, and write it;
//! - transactions that ask a service for 1.5 s in between, while a plain write changes that row
//!   every 50 ms: none of these can commit before its last attempt.

use super::super::engine::{Settings, close};
use super::super::interactive::{contention, pause, runtime};
use super::super::{Candidate, Goal, Outcome, Part, Profile, Round, Work};
use crate::progress::Interrupt;
use anyhow::{Context as _, Result, ensure};
use monolite::{Database, ErrorKind, Transaction};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Tasks whose writes are counted.
pub const WRITERS: u64 = 16;

const TABLES: &str = "CREATE TABLE hot(id INTEGER PRIMARY KEY, n INTEGER NOT NULL); \
                      INSERT INTO hot VALUES (1, 0); \
                      CREATE TABLE cold(id INTEGER PRIMARY KEY, n INTEGER NOT NULL); \
                      INSERT INTO cold SELECT value, 0 FROM json_each(\
                      '[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]')";
const COLD: &str = "UPDATE cold SET n = n + 1 WHERE id = ?1";
const HOT: &str = "UPDATE hot SET n = n + 1 WHERE id = 1";
const READ: &str = "SELECT n FROM hot WHERE id = 1";
const SET: &str = "UPDATE hot SET n = ?1 WHERE id = 1";
const SUMS: &str = "SELECT (SELECT sum(n) FROM cold), (SELECT n FROM hot)";

/// How often a plain write changes the row that those with a service have read.
const RIVAL: Duration = Duration::from_millis(50);

/// Who is beside the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// Tasks with interactive transactions.
    pub clients: u64,
    /// The application's time between the read and the write.
    pub delay: Duration,
    /// Whether plain writes change the row, too.
    pub is_rivalled: bool,
}

/// Plain writers, and who is beside them.
#[derive(Debug)]
pub struct Bystanders {
    /// What it is.
    pub profile: Profile,
    /// Where the database is made.
    pub dir: PathBuf,
    /// Of the engine.
    pub settings: Settings,
    /// Who is beside them.
    pub beside: Beside,
}

impl Candidate for Bystanders {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let dir = tempfile::Builder::new().prefix("bystanders-").tempdir_in(&self.dir)?;
        let db = self.settings.open(&dir.path().join("bystanders.db"))?;
        let made: Result<(), monolite::Error> = db.write(|tx| tx.execute_batch(TABLES)).wait();
        made.context("cannot make the rows")?;
        let goal = work.goal(self.profile.extent);
        let done = runtime()?.block_on(drive(&db, self.beside, goal, work.interrupt))?;
        let Done { parts, hot, elapsed, contention } = done;
        let mut round = Round { contention, ..Round::of(&parts, elapsed) };
        let found: Result<(i64, i64), monolite::Error> =
            db.read(move |tx| tx.query_row(SUMS, [], |row| Ok((row.get(0)?, row.get(1)?)))).wait();
        let expected = (round.operations as i64, hot as i64);
        let found = found.context("cannot read what was written")?;
        ensure!(found == expected, "{found:?} is there where {expected:?} was acknowledged");
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed: 0 })
    }
}

/// What was done together.
struct Done {
    parts: Vec<Part>,
    /// Acknowledged changes of the row that is wanted.
    hot: u64,
    elapsed: Duration,
    contention: super::super::Contention,
}

async fn drive(db: &Database, beside: Beside, goal: Goal, interrupt: &Interrupt) -> Result<Done> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut others = Vec::new();
    for _ in 0..beside.clients {
        others.push(decide(db.clone(), beside.delay, Arc::clone(&stop)));
    }
    if beside.is_rivalled {
        others.push(rival(db.clone(), Arc::clone(&stop)));
    }
    let (before, begin) = (db.stats(), Instant::now());
    let next = Arc::new(AtomicU64::new(0));
    let write = |row: u64| {
        let (db, next, interrupt) = (db.clone(), Arc::clone(&next), interrupt.clone());
        tokio::spawn(async move {
            let mut part = Part::default();
            while goal.take(&next).is_some() {
                interrupt.check()?;
                let start = Instant::now();
                let written: Result<usize, monolite::Error> =
                    db.write(move |tx| tx.execute(COLD, [row as i64])).await;
                written.context("a plain write failed")?;
                part.acknowledged(start);
            }
            Ok::<_, anyhow::Error>(part)
        })
    };
    let writers: Vec<_> = (1..=WRITERS).map(write).collect();
    let mut parts = Vec::new();
    for writer in writers {
        parts.push(writer.await??);
    }
    let elapsed = begin.elapsed();
    let contention = contention(&before, &db.stats());
    stop.store(true, Ordering::Relaxed);
    let mut hot = 0;
    for other in others {
        hot += other.await??;
    }
    Ok(Done { parts, hot, elapsed, contention })
}

/// Reads the row, takes its time, and writes it, again and again; how often that was committed.
fn decide(db: Database, delay: Duration, stop: Arc<AtomicBool>) -> JoinHandle<Result<u64>> {
    tokio::spawn(async move {
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            let run = |tx: Transaction| async move {
                let seen: i64 = tx.query_row(READ, (), |row| row.get(0)).await?;
                pause(delay).await;
                tx.execute(SET, [seen + 1]).await?;
                Ok(())
            };
            let ended: Result<(), monolite::Error> = db.transact(run).await;
            match ended {
                Ok(()) => done += 1,
                // Those who are too slow for a turn of their own, as documented.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error).context("a transaction failed"),
            }
        }
        Ok(done)
    })
}

/// Changes the row now and then; how often.
fn rival(db: Database, stop: Arc<AtomicBool>) -> JoinHandle<Result<u64>> {
    tokio::spawn(async move {
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            let written: Result<usize, monolite::Error> = db.write(|tx| tx.execute(HOT, ())).await;
            written.context("a plain write of the row failed")?;
            done += 1;
            pause(RIVAL).await;
        }
        Ok(done)
    })
}
