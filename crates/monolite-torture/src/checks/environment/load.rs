//! Four threads that write, while something happens to their database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use monolite::{Database, ErrorKind};
use monolite_testkit::blocking::locked;
use monolite_testkit::markers;

const WRITERS: usize = 4;

/// Longest wait for the load to come so far; many times what it takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came of a load.
#[derive(Default)]
pub(super) struct Came {
    pub(super) acknowledged: BTreeSet<i64>,
    /// Acknowledged although submitted after the harm was done.
    pub(super) after: u64,
    /// The first message of each kind of refusal.
    pub(super) refusals: BTreeMap<String, String>,
    /// Whether writing went on until the end.
    pub(super) goes_on: bool,
}

/// A load at work.
pub(super) struct Load<'a> {
    db: &'a Database,
    next: AtomicI64,
    is_done: AtomicBool,
    stop: AtomicBool,
    came: Mutex<Came>,
}

impl Load<'_> {
    /// Waits until so many more transactions were acknowledged, or writing has stopped; whether
    /// they were.
    pub(super) fn await_more(&self, more: usize) -> bool {
        let count = || self.came().acknowledged.len();
        let (start, enough) = (Instant::now(), count() + more);
        while count() < enough && start.elapsed() < PATIENCE && !self.is_poisoned() {
            thread::sleep(Duration::from_millis(1));
        }
        count() >= enough
    }

    fn came(&self) -> std::sync::MutexGuard<'_, Came> {
        locked(&self.came)
    }

    fn is_poisoned(&self) -> bool {
        self.came().refusals.contains_key("Poisoned")
    }

    fn write(&self, filling: &[u8]) {
        while !self.stop.load(Ordering::SeqCst) {
            let id = self.next.fetch_add(1, Ordering::SeqCst);
            let is_after = self.is_done.load(Ordering::SeqCst);
            let filling = filling.to_vec();
            let result = self.db.write(move |tx| markers::put_filled(tx, id, &filling)).wait();
            let mut came = self.came();
            match result {
                Ok(()) => {
                    came.acknowledged.insert(id);
                    came.after += u64::from(is_after);
                }
                Err(error) => {
                    let kind = format!("{:?}", error.kind());
                    came.refusals.entry(kind).or_insert_with(|| error.to_string());
                    if matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Closed) {
                        return;
                    }
                }
            }
        }
    }
}

/// Runs `harm` under load, then lets `more` transactions be written, if they are.
pub(super) fn under_load(
    db: &Database,
    first: i64,
    filling: usize,
    more: usize,
    harm: impl FnOnce(&Load<'_>) -> Result<()>,
) -> Result<Came> {
    let filling = vec![7; filling];
    let load = Load {
        db,
        next: AtomicI64::new(first),
        is_done: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        came: Mutex::default(),
    };
    let harmed = thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| load.write(&filling));
        }
        load.await_more(50);
        let harmed = harm(&load);
        load.is_done.store(true, Ordering::SeqCst);
        let goes_on = harmed.is_ok() && load.await_more(more);
        load.came().goes_on = goes_on;
        load.stop.store(true, Ordering::SeqCst);
        harmed
    });
    harmed?;
    Ok(load.came.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
