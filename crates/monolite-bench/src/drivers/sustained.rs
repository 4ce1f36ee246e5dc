//! The engine under a burst that does not end, with and without what makes a WAL grow.
//!
//! # Algorithm
//! The burst of [`EngineBurst`], for a time instead of a count. Beside it one reader holds a
//! snapshot for [`HELD`], by a query now and then, as a report would. Whether the reader got to its
//! end or was ended by the engine is part of the figures: near the WAL's limit the engine ends old
//! snapshots.

use super::engine::EngineBurst;
use super::{Candidate, Outcome, Profile, Work};
use crate::workload::BALANCE_SQL;
use anyhow::{Result, ensure};
use monolite::{Database, Error, ErrorKind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the reader holds its snapshot.
pub const HELD: Duration = Duration::from_secs(10);

/// The hottest account of the Pareto draw.
const HOT: i64 = 0;

/// How long the reader rests between two queries.
const PAUSE: Duration = Duration::from_millis(50);

/// A burst beside a reader that holds a snapshot.
#[derive(Debug)]
pub struct SustainedBurst {
    /// The burst.
    pub burst: EngineBurst,
}

impl Candidate for SustainedBurst {
    fn profile(&self) -> &Profile {
        &self.burst.profile
    }

    fn run(&mut self, work: &Work<'_>) -> Result<Outcome> {
        let db = self.burst.open()?;
        let reader = hold_snapshot(&db);
        let mut outcome = self.burst.run_on(&db, work)?;
        let fate = reader.join().expect("the reader does not panic")?;
        outcome.round.note = Some(format!(
            "{fate}; the WAL's limit was {} MiB",
            self.burst.settings.wal_limit_bytes >> 20
        ));
        Ok(outcome)
    }
}

/// Starts the reader; it says what became of it.
fn hold_snapshot(db: &Database) -> JoinHandle<Result<String>> {
    let db = db.clone();
    thread::spawn(move || {
        let begin = Instant::now();
        let read = db.read(|tx| {
            let version = || tx.query_row(BALANCE_SQL, [HOT], |row| row.get::<_, i64>(0));
            let first = version()?;
            while begin.elapsed() < HELD {
                thread::sleep(PAUSE);
                if version()? != first {
                    return Err(Error::aborted("the snapshot changed under the reader"));
                }
            }
            Ok(())
        });
        let answer = read.wait();
        let held = begin.elapsed().as_secs_f64();
        match answer {
            Ok(()) => Ok(format!("the reader held its snapshot for {held:.1} s")),
            Err(error) => {
                ensure!(error.kind() == ErrorKind::Timeout, "the reader failed: {error}");
                Ok(format!("the reader's snapshot was ended by the engine after {held:.1} s"))
            }
        }
    })
}
