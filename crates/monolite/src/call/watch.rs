//! Owns what other threads may see of a connection's snapshot, and how they can end it.
//!
//! # Algorithm
//! The use of the snapshot that is under way is one atomic word: when it began, and whether it is
//! being revoked. So a revoker claims exactly the use it has looked at: a use can end only from
//! [`Stage::Running`], and waits for a revoker that has claimed it.

#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::{Revocation, Revoker};

use crate::activity::{Activity, Trace};
use crate::clock::{Clock, nanos};
use crate::primitives::sync::atomic::{AtomicU64, Ordering};
use crate::primitives::thread;
use crate::progress::{AtomicBatchNumber, BatchNumber};

/// One connection's snapshot as others see it; on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Watch {
    /// The use under way, see [`UseState`]; 0 while idle.
    state: AtomicU64,
    /// The latest batch that its snapshot is known to contain; [`BatchNumber::MAX`] without one.
    snapshot: AtomicBatchNumber,
    /// When that snapshot was taken, in nanoseconds of the clock; the maximum without one.
    taken: AtomicU64,
    revoker: Revoker,
    /// Who uses it, and for what.
    trace: Trace,
}

/// The call that has been using one of these snapshots for longest.
pub(crate) fn longest<'w>(
    watches: impl IntoIterator<Item = &'w Arc<Watch>>,
    latest: BatchNumber,
    now: Duration,
) -> Option<Activity> {
    let calls = watches.into_iter().filter_map(|watch| watch.activity(latest, now));
    calls.max_by_key(|call| call.time)
}

/// No use is under way.
const IDLE: u64 = 0;

/// A use under way, packed into one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UseState {
    /// Nanoseconds of the clock; 2^62 of them are 146 years.
    began: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running = 1,
    BeingRevoked = 2,
    Revoked = 3,
}

impl UseState {
    fn pack(self) -> u64 {
        self.began << 2 | self.stage as u64
    }

    fn unpack(word: u64) -> Option<UseState> {
        let stage = match word & 3 {
            1 => Stage::Running,
            2 => Stage::BeingRevoked,
            3 => Stage::Revoked,
            _ => return None,
        };
        Some(UseState { began: word >> 2, stage })
    }
}

impl Watch {
    pub(crate) fn new(revoker: Revoker, clock: Arc<dyn Clock>) -> Watch {
        Watch {
            state: AtomicU64::new(IDLE),
            snapshot: AtomicBatchNumber::new(BatchNumber::MAX),
            taken: AtomicU64::new(u64::MAX),
            revoker,
            trace: Trace::new(clock),
        }
    }

    /// Who uses the snapshot, and for what.
    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The call that uses the snapshot now, which lacks some of the batches up to `latest` if it
    /// keeps the WAL.
    pub(crate) fn activity(&self, latest: BatchNumber, now: Duration) -> Option<Activity> {
        let began = || Some(UseState::unpack(self.state.load(Ordering::Acquire))?.began);
        let before = began()?;
        let keeps_wal = self.outdated_for(latest, now).is_some();
        let caller = self.trace.caller();
        let call = Activity::new(caller, Duration::from_nanos(before), &self.trace, now);
        // What was seen may be of the next use.
        (began()? == before).then_some(Activity { keeps_wal, ..call })
    }

    /// A snapshot was taken `now` that contains the batches up to `committed`.
    pub(crate) fn take_snapshot(&self, committed: BatchNumber, now: Duration) {
        assert_ne!(committed, BatchNumber::MAX, "that is no snapshot");
        self.taken.store(nanos(now), Ordering::Release);
        self.snapshot.store(committed, Ordering::Release);
    }

    /// The snapshot is gone.
    pub(crate) fn end_snapshot(&self) {
        self.snapshot.store(BatchNumber::MAX, Ordering::Release);
        self.taken.store(u64::MAX, Ordering::Release);
    }

    /// A use of the snapshot begins.
    pub(crate) fn begin(&self, now: Duration) {
        let before = self.state.load(Ordering::Relaxed);
        assert_eq!(before, IDLE, "one use of a snapshot is under way");
        let running = UseState { began: nanos(now), stage: Stage::Running };
        self.state.store(running.pack(), Ordering::Release);
    }

    /// Ends the use under way, and tells whether it was revoked.
    pub(crate) fn end(&self) -> bool {
        loop {
            let word = self.state.load(Ordering::Acquire);
            let stage = UseState::unpack(word).map(|state| state.stage);
            if stage == Some(Stage::BeingRevoked) {
                thread::yield_now();
                continue;
            }
            let end = self.state.compare_exchange(word, IDLE, Ordering::AcqRel, Ordering::Relaxed);
            if end.is_ok() {
                return stage == Some(Stage::Revoked);
            }
        }
    }

    /// How long the use under way has been going on.
    pub(crate) fn running_for(&self, now: Duration) -> Option<Duration> {
        let use_under_way = UseState::unpack(self.state.load(Ordering::Acquire))?;
        Some(Duration::from_nanos(nanos(now).saturating_sub(use_under_way.began)))
    }

    /// How long the use under way has been going on, if its snapshot lacks some of the batches up
    /// to `latest`.
    pub(crate) fn outdated_for(&self, latest: BatchNumber, now: Duration) -> Option<Duration> {
        let time = self.running_for(now)?;
        (self.snapshot.load(Ordering::Acquire) < latest).then_some(time)
    }

    /// Whether the use under way has been going on for longer than `limit`, or was ended from
    /// outside and goes on.
    pub(crate) fn is_overdue(&self, now: Duration, limit: Duration) -> bool {
        let under_way = UseState::unpack(self.state.load(Ordering::Acquire));
        under_way.is_some_and(|it| {
            it.stage != Stage::Running || nanos(now).saturating_sub(it.began) > nanos(limit)
        })
    }

    /// Ends the use that is under way.
    pub(crate) fn stop(&self) {
        let Some(running) = UseState::unpack(self.state.load(Ordering::Acquire)) else { return };
        self.revoke(running);
    }

    /// As [`Watch::stop`], if the use began before `began_by`.
    pub(crate) fn stop_begun_before(&self, began_by: Duration) {
        let Some(running) = UseState::unpack(self.state.load(Ordering::Acquire)) else { return };
        if running.began < nanos(began_by) {
            self.revoke(running);
        }
    }

    /// Revokes a snapshot that lacks some of the batches up to `latest` and is in a use that
    /// began before `began_by`; tells whether it did.
    pub(crate) fn revoke_outdated(&self, latest: BatchNumber, began_by: Duration) -> bool {
        self.revoke_if(began_by, || self.snapshot.load(Ordering::Acquire) < latest)
    }

    /// Revokes a snapshot that was taken before `moment` and is in a use that began before
    /// `began_by`; tells whether it did.
    pub(crate) fn revoke_taken_before(&self, moment: Duration, began_by: Duration) -> bool {
        self.revoke_if(began_by, || self.taken.load(Ordering::Acquire) < nanos(moment))
    }

    fn revoke_if(&self, began_by: Duration, is_in_the_way: impl Fn() -> bool) -> bool {
        let Some(running) = UseState::unpack(self.state.load(Ordering::Acquire)) else {
            return false;
        };
        running.began <= nanos(began_by) && is_in_the_way() && self.revoke(running)
    }

    /// Claims the use `running` and ends its snapshot; `false` when it is over, or ended already.
    /// One that was ended while its user was inside of SQLite may still have its snapshot, and is
    /// ended again.
    fn revoke(&self, running: UseState) -> bool {
        let has_snapshot = || self.snapshot.load(Ordering::Acquire) != BatchNumber::MAX;
        match running.stage {
            Stage::Running => {}
            Stage::Revoked if has_snapshot() => {}
            Stage::Revoked | Stage::BeingRevoked => return false,
        }
        let claimed = UseState { stage: Stage::BeingRevoked, ..running };
        let (from, to) = (running.pack(), claimed.pack());
        if self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.revoker.revoke() == Revocation::Ended {
            self.end_snapshot();
        }
        let revoked = UseState { stage: Stage::Revoked, ..running };
        self.state.store(revoked.pack(), Ordering::Release);
        running.stage == Stage::Running
    }
}
