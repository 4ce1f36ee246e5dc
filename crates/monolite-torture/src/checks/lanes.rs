//! What several checks have in common: cases that run side by side, on both kinds of file systems,
//! broken arrangements that are tried until one is noticed, and writes that become one batch.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use anyhow::{Result, anyhow};
use monolite::{Database, Error};
use monolite_testkit::blocking::locked;
use monolite_testkit::mounts::{Disk, FileSystem};

use crate::{Outcome, Setting};

/// To write into what all lanes write into.
///
/// # Errors
/// When a lane has panicked meanwhile.
pub(super) fn book(outcome: &Mutex<Outcome>) -> Result<MutexGuard<'_, Outcome>> {
    outcome.lock().map_err(|_| anyhow!("a lane panicked"))
}

/// A figure of a process's `/proc/ID/status`, in bytes; 0 where there is none.
pub(super) fn status(process: u32, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
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

/// Runs `submit` while the writer is held up, so that what it submits becomes one batch.
///
/// # Errors
/// That of the write which holds it up.
pub(crate) fn as_one_batch<R>(db: &Database, submit: impl FnOnce() -> R) -> Result<R, Error> {
    let ((arrive, arrived), (open, gate)) = (channel(), channel::<()>());
    let gate = Mutex::new(gate);
    let holding = db.write(move |_| {
        // If it is run again, the gate is open and no thread waits at it.
        let _ = arrive.send(());
        let _ = locked(&gate).recv();
        Ok::<_, Error>(())
    });
    // From here on the writer takes nothing before that has ended.
    let _ = arrived.recv();
    let submitted = submit();
    drop(open);
    holding.wait().map(|()| submitted)
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
    if setting.watch.is_stopped() {
        return Ok(());
    }
    book(outcome)?.control(name, false, format!("not within {tries} tries"));
    Ok(())
}
