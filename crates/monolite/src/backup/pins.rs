//! Owns the snapshots of backups and checks, which keep the WAL for as long as they are there: like
//! those of reads they are revoked near its limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::activity::Caller;
use crate::call::watch::Watch;
use crate::clock::Clock;
use crate::progress::Progress;
use crate::read::holders::SnapshotHolder;
use crate::read::readers::Reader;

/// The snapshots of all backups and checks of a database.
pub(crate) struct BackupPins {
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    watches: Mutex<Vec<Arc<Watch>>>,
}

impl BackupPins {
    pub(crate) fn new(clock: Arc<dyn Clock>, progress: Arc<Progress>) -> BackupPins {
        BackupPins { clock, progress, watches: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the snapshot that `reader` has just taken for `caller`, while no commit runs.
    pub(crate) fn note(self: &Arc<BackupPins>, reader: Reader, caller: Caller) -> BackupPin {
        let watch = Arc::new(Watch::new(reader.connection.revoker(), Arc::clone(&self.clock)));
        let now = self.clock.now();
        watch.take_snapshot(self.progress.exposed(), now);
        watch.trace().begin(caller);
        watch.begin(now);
        self.all().push(Arc::clone(&watch));
        BackupPin { reader, watch, began: now, pins: Arc::clone(self) }
    }
}

impl SnapshotHolder for BackupPins {
    /// All are in use.
    fn release_idle(&self, _age: Duration) -> Option<Duration> {
        let (exposed, now) = (self.progress.exposed(), self.clock.now());
        self.all().iter().filter_map(|watch| watch.outdated_for(exposed, now)).max()
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        self.all().clone()
    }

    /// A backup or check may take as long as it takes.
    fn has_time_limit(&self) -> bool {
        false
    }

    fn wake_waiters(&self) {}
}

/// A connection with a snapshot.
pub(crate) struct BackupPin {
    pub(crate) reader: Reader,
    watch: Arc<Watch>,
    began: Duration,
    pins: Arc<BackupPins>,
}

impl BackupPin {
    /// Whether the snapshot was there until now.
    pub(crate) fn holds(&self) -> bool {
        !self.reader.connection.interruption().is_revoked()
    }

    /// Ends the snapshot, while the copy goes on.
    pub(crate) fn release(&self) {
        self.end();
        // A revoker that looked at the use before must not take this for it.
        self.watch.begin(self.began + Duration::from_nanos(1));
    }

    fn end(&self) {
        // Who revokes it uses the connection until then.
        self.watch.end();
        self.watch.end_snapshot();
        // Fails only on a broken connection, which is closed soon.
        let _ = self.reader.connection.rollback();
    }
}

impl Drop for BackupPin {
    fn drop(&mut self) {
        self.pins.all().retain(|watch| !Arc::ptr_eq(watch, &self.watch));
        self.end();
    }
}
