//! No database at all: one page appended and synced, again and again.
//!
//! Measured in turn with the waiting clients, so that their latency is compared with what the
//! device did in the same minute. Its pages are appended to a file of its own in the data
//! directory.

use super::{Driver, Outcome, Profile, Round, Work};
use crate::device::PAGE;
use crate::statistics::Latencies;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// Appends of a page, each followed by `fdatasync`.
#[derive(Debug)]
pub struct Appends {
    pub dir: PathBuf,
}

impl Driver for Appends {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let mut file =
            tempfile::tempfile_in(&self.dir).context("cannot write in the data directory")?;
        let goal = work.goal(profile.extent);
        let (mut done, mut latencies, begin) = (0, Latencies::default(), Instant::now());
        while !goal.reached(done) {
            work.interrupt.check()?;
            let start = Instant::now();
            file.write_all(&PAGE)?;
            file.sync_data()?;
            latencies.record(start.elapsed());
            done += 1;
        }
        let elapsed = begin.elapsed();
        let round = Round { operations: done, elapsed, latencies, ..Round::default() };
        Ok(Outcome { round, warmed: 0 })
    }
}
