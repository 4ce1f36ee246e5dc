//! What the checks that kill and cut have in common: cases that run side by side, on both kinds of
//! file systems, and broken arrangements that are tried until one is noticed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use anyhow::{Result, anyhow};
use monolite_testkit::mounts::{Disk, FileSystem};

use crate::{Outcome, Setting};

/// To write into what all lanes write into.
///
/// # Errors
/// When a lane has panicked meanwhile.
pub(super) fn book(outcome: &Mutex<Outcome>) -> Result<MutexGuard<'_, Outcome>> {
    outcome.lock().map_err(|_| anyhow!("a lane panicked"))
}

/// Calls `lane` with each number below `count`, `at_once` of them at a time.
pub(super) fn side_by_side(
    at_once: u64,
    count: u64,
    lane: impl Fn(u64) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicU64::new(0);
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            lane(number)?;
        }
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..at_once.min(count)).map(|_| scope.spawn(work)).collect();
        let ends = lanes.into_iter().map(|lane| lane.join());
        let ends: Vec<Result<()>> =
            ends.map(|end| end.unwrap_or_else(|_| Err(anyhow!("a lane panicked")))).collect();
        ends.into_iter().collect()
    })
}

/// Half of the cuts are made on ext4, half on XFS. What cannot be mounted here is skipped visibly.
pub(super) fn on_both(
    setting: &Setting<'_>,
    amount: u64,
    outcome: &Mutex<Outcome>,
    lane: impl Fn(FileSystem, u64) -> Result<()> + Sync,
) -> Result<()> {
    side_by_side(2, 2, |number| {
        let (kind, cuts) = match number {
            0 => (FileSystem::Ext4, amount.div_ceil(2)),
            _ => (FileSystem::Xfs, amount / 2),
        };
        let unavailable = kind.missing().or_else(|| {
            let tried = Disk::new(setting.scratch(), kind).map(drop);
            tried.err().map(|error| format!("{}: {error:#}; root is needed", kind.name()))
        });
        let Some(reason) = unavailable else { return lane(kind, cuts) };
        book(outcome)?.skipped.push(reason);
        setting.watch.done(cuts);
        Ok(())
    })
}

/// Tries a broken arrangement until it is noticed; `attempt` says by what.
pub(super) fn control(
    setting: &Setting<'_>,
    name: &str,
    tries: u64,
    outcome: &Mutex<Outcome>,
    mut attempt: impl FnMut(u64) -> Result<Option<String>>,
) -> Result<()> {
    for number in 1..=tries {
        if setting.watch.is_stopped() {
            return Ok(());
        }
        if let Some(what) = attempt(number)? {
            book(outcome)?.control(name, true, format!("try {number}: {what}"));
            return Ok(());
        }
    }
    book(outcome)?.control(name, false, format!("not within {tries} tries"));
    Ok(())
}
