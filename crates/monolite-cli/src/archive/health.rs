//! Owns the judgement whether an archive keeps up with its database (`status --max-lag`).
//!
//! # Algorithm
//! A primary that closed has archived everything. Otherwise:
//! - With the database's files: commits that are not archived must be within the time, while this
//!   waits and looks again. If there are none, the primary is idle, or gone if no process has the
//!   file open. No clock is looked at.
//! - From the store alone: the newest file must not be older, by the wall clock. An idle primary
//!   makes no request, so it cannot be told from one that is gone.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use monolite::archive::lock_holder;
use monolite_archive::internals::{ArchivedFile, Catalog, Level, has_unarchived, wall_clock_now};
use monolite_archive::{Lineage, Record, State};
use monolite_ltx::Timestamp;
use serde::Serialize;

use super::Watched;

/// How long a rest is between two looks at what is archived.
const LOOK: Duration = Duration::from_millis(500);

/// Whether an archive keeps up.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    pub(super) is_healthy: bool,
    /// Why, as a sentence.
    pub(super) says: String,
}

impl Health {
    fn good(says: impl Into<String>) -> Health {
        Health { is_healthy: true, says: says.into() }
    }

    fn bad(says: impl Into<String>) -> Health {
        Health { is_healthy: false, says: says.into() }
    }

    /// An error unless it is healthy.
    pub(super) fn into_result(self) -> Result<()> {
        if !self.is_healthy {
            bail!(self.says);
        }
        Ok(())
    }
}

/// Judges an archive whose newest file is of `time`, and which may be behind by `most`.
///
/// # Errors
/// Those of the store, and of a `database` that is not the archive's.
pub(super) fn judge(
    archive: &Watched,
    catalog: &Catalog,
    time: Timestamp,
    primary: Option<&Record>,
    most: Duration,
    database: Option<&Path>,
) -> Result<Health> {
    if primary.is_some_and(|primary| primary.state == State::Released) {
        return Ok(Health::good("healthy: the primary has closed, and archived everything"));
    }
    let Some(path) = database else { return Ok(by_age(time, wall_clock_now(), most)) };
    let primary = primary.context("the archive has no leader record: leave out --database")?;
    beside(archive, catalog, most, path, primary.lineage)
}

/// By the age of the newest file alone.
fn by_age(time: Timestamp, now: Timestamp, most: Duration) -> Health {
    let age = u64::try_from(now.millis().saturating_sub(time.millis())).unwrap_or(0);
    let age = Duration::from_millis(age);
    let says = format!("the newest file is {} s old by this machine's clock", age.as_secs());
    if age <= most {
        return Health::good(format!("healthy: {says}"));
    }
    Health::bad(format!(
        "{says}: its primary has nothing to archive, or is cut off, or gone; --database FILE, on \
         its machine, tells which"
    ))
}

/// By the files of the database.
fn beside(
    archive: &Watched,
    catalog: &Catalog,
    most: Duration,
    path: &Path,
    lineage: Lineage,
) -> Result<Health> {
    let start = Instant::now();
    let mut slot = newest(catalog)?;
    let first = slot.txids.max();
    // The slot behind the first one may have been made before this began.
    while slot.txids.max().get() <= first.get() + 1 {
        let header = slot.header(archive, &archive.layout)?;
        if !has_unarchived(path, lineage, &header)? {
            return Ok(match lock_holder(path) {
                Some(holder) => Health::good(format!("healthy: {holder} has archived everything")),
                None => Health::bad(format!(
                    "no process has {} open, and its primary did not close it. What it committed \
                     is archived; start it again",
                    path.display()
                )),
            });
        }
        if start.elapsed() >= most {
            let holder = lock_holder(path);
            let holder = holder.as_deref().unwrap_or("and no process has it open");
            let (path, most) = (path.display(), most.as_secs_f64());
            return Ok(Health::bad(format!(
                "{path} has commits that were not archived within {most} s ({holder})"
            )));
        }
        std::thread::sleep(LOOK.min(most.saturating_sub(start.elapsed())));
        archive.goes_on()?;
        slot = newest(&Catalog::read(archive, &archive.layout)?)?;
    }
    Ok(Health::good("healthy: commits are being archived"))
}

fn newest(catalog: &Catalog) -> Result<ArchivedFile> {
    catalog.level(Level::SLOTS).last().copied().context("an archive without slots")
}
