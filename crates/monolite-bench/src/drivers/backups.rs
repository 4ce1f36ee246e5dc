//! The engine under a burst while it copies itself.
//!
//! # Algorithm
//! The burst of [`EngineBurst`], for a time. Beside it one backup after another is made for all of
//! that time, warm-up included, to a file in a temporary directory beside the data set; the last
//! one is cancelled. So each moment of the round is one of a backup: when it begins, copies, syncs,
//! and gets its name.

use super::engine::{self, EngineBurst};
use super::{Driver, Outcome, Profile, Work};
use anyhow::{Context as _, Result, ensure};
use monolite::{Database, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How often it is looked whether the round is over.
const LOOK: Duration = Duration::from_millis(5);

/// A burst beside backups.
#[derive(Debug)]
pub struct BurstBesideBackups {
    pub burst: EngineBurst,
}

impl Driver for BurstBesideBackups {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let beside = self.burst.database.parent().context("the data set has no directory")?;
        let scratch = tempfile::tempdir_in(beside).context("cannot make a directory")?;
        let (db, is_over) = (self.burst.open()?, AtomicBool::new(false));
        let (outcome, backups) = thread::scope(|scope| {
            let backups = scope.spawn(|| back_up(&db, scratch.path(), &is_over));
            let outcome = self.burst.run_on_open(&db, profile, work);
            is_over.store(true, Ordering::Release);
            (outcome, backups.join().expect("backups do not panic"))
        });
        let (mut outcome, (made, pages, total)) = (outcome?, backups?);
        outcome.round.note =
            Some(format!("{made} backups were made, and {pages} of {total} pages"));
        engine::close(&db, &mut outcome.round)?;
        Ok(outcome)
    }
}

/// Makes backups until `is_over`: how many, and how many pages of how many of the last one.
fn back_up(db: &Database, scratch: &Path, is_over: &AtomicBool) -> Result<(u64, u64, u64)> {
    for made in 0.. {
        let target = scratch.join(format!("backup-{made}.db"));
        let backup = db.backup(&target);
        let monitor = backup.monitor();
        let (ended, progress) = thread::scope(|scope| {
            let waiting = scope.spawn(|| backup.wait());
            while !waiting.is_finished() && !is_over.load(Ordering::Acquire) {
                thread::sleep(LOOK);
            }
            let progress = monitor.progress();
            monitor.cancel();
            (waiting.join().expect("a backup does not panic"), progress)
        });
        match ended {
            Ok(_) => std::fs::remove_file(&target).context("cannot remove a backup")?,
            Err(error) => {
                let is_cancelled = error.kind() == ErrorKind::Aborted;
                ensure!(is_cancelled, "a backup failed: {error}");
                return Ok((made, progress.done, progress.total));
            }
        }
    }
    unreachable!("it ends with the round")
}
