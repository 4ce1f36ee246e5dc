//! Owns who can keep the WAL from restarting: all that have connections with snapshots.
//!
//! A checkpoint asks them all to end unused snapshots, and revokes those used for too long. A new
//! kind of holder implements [`SnapshotHolder`], and is named where the engine is put together.

use std::sync::Arc;
use std::time::Duration;

use crate::activity::Activity;
use crate::call::watch::Watch;
use crate::clock::Clock;
use crate::options::Options;
use crate::progress::Progress;
use crate::stats::Recorder;

/// A holder of snapshots that can keep the WAL.
pub(crate) trait SnapshotHolder: Send + Sync {
    /// Ends the snapshots unused for longer than `age`. Returns how long the oldest use of an
    /// outdated one has been going on.
    fn release_idle(&self, age: Duration) -> Option<Duration>;

    /// What others may see of each connection's snapshot.
    fn watches(&self) -> Vec<Arc<Watch>>;

    /// Calls that wait for one of its connections.
    fn waiting(&self) -> usize {
        0
    }

    /// Whether a use of its snapshots may take as long as a read, and no longer.
    fn has_time_limit(&self) -> bool {
        true
    }

    /// Has those who wait for a connection look again: one has overrun its time, and does not count
    /// any more.
    fn wake_waiters(&self);

    /// How often its connections have been used.
    fn uses(&self) -> u64 {
        0
    }

    /// Closes the connections that are not in use, and can be opened again.
    fn close_idle(&self) {}
}

/// All of them.
pub(crate) struct SnapshotHolders {
    holders: Vec<Arc<dyn SnapshotHolder>>,
    progress: Arc<Progress>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
}

/// How snapshots stand in the way of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// How long the oldest use of an outdated snapshot has been going on.
    pub(crate) oldest: Duration,
}

impl SnapshotHolders {
    pub(crate) fn new(
        holders: Vec<Arc<dyn SnapshotHolder>>,
        options: &Options,
        progress: Arc<Progress>,
        recorder: Arc<Recorder>,
    ) -> SnapshotHolders {
        SnapshotHolders { holders, progress, clock: Arc::clone(&options.clock), recorder }
    }

    /// Ends unused snapshots: those that idle connections keep, and those of interactive
    /// transactions that have rested for longer than `age`. Returns what still pins the WAL.
    pub(crate) fn release_idle(&self, age: Duration) -> Option<Pinned> {
        let oldest = self.holders.iter().filter_map(|holder| holder.release_idle(age)).max();
        oldest.map(|oldest| Pinned { oldest })
    }

    /// Revokes the snapshots of reads and statements that have been going on for longer than `age`
    /// and are not the latest: they keep the WAL from being copied. A batch outdates them as soon
    /// as it may be seen.
    pub(crate) fn revoke_outdated(&self, age: Duration) {
        let exposed = self.progress.exposed();
        self.revoke(age, |watch, began_by| watch.revoke_outdated(exposed, began_by));
    }

    /// Revokes snapshots that were taken before `moment`, of reads and statements that have been
    /// going on for longer than `age`: when the WAL has been copied whole since then, they alone
    /// keep it from restarting. Later snapshots read the database file.
    pub(crate) fn revoke_taken_before(&self, moment: Duration, age: Duration) {
        self.revoke(age, |watch, began_by| watch.revoke_taken_before(moment, began_by));
    }

    fn revoke(&self, age: Duration, revoke: impl Fn(&Watch, Duration) -> bool) {
        let began_by = self.clock.now().saturating_sub(age);
        let revoked = self.watches().filter(|watch| revoke(watch, began_by)).count();
        self.recorder.revoked_readers.add(revoked as u64);
        if revoked > 0 {
            let what = "reads were ended so that the WAL can restart";
            self.recorder.events().warn(what, revoked);
        }
    }

    /// What others may see of each connection's snapshot.
    fn watches(&self) -> impl Iterator<Item = Arc<Watch>> {
        self.holders.iter().flat_map(|holder| holder.watches())
    }

    /// The calls that use a connection now.
    pub(crate) fn running(&self) -> Vec<Activity> {
        let (exposed, now) = (self.progress.exposed(), self.clock.now());
        let of = |holder: &Arc<dyn SnapshotHolder>| {
            let waiting = holder.waiting() as u64;
            let running = holder.watches().into_iter();
            let running = running.filter_map(move |watch| watch.activity(exposed, now));
            running.map(move |activity| Activity { waiting, ..activity })
        };
        self.holders.iter().flat_map(of).collect()
    }

    /// As [`SnapshotHolders::watches`], of those that have a time limit.
    pub(crate) fn limited_watches(&self) -> impl Iterator<Item = Arc<Watch>> {
        self.holders.iter().filter(|it| it.has_time_limit()).flat_map(|holder| holder.watches())
    }

    /// How often connections have been used.
    pub(crate) fn uses(&self) -> u64 {
        self.holders.iter().map(|holder| holder.uses()).sum()
    }

    /// See [`SnapshotHolder::close_idle`].
    pub(crate) fn close_idle(&self) {
        self.holders.iter().for_each(|holder| holder.close_idle());
    }

    /// See [`SnapshotHolder::wake_waiters`].
    pub(crate) fn wake_waiters(&self) {
        self.holders.iter().for_each(|holder| holder.wake_waiters());
    }
}
