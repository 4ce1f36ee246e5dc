//! Owns whether the statement of a connection has to end: as its time is over, or as the snapshot
//! was revoked.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::flag::Flag;
use crate::locked::locked;

/// What has ended statements of a connection.
#[derive(Debug, Default)]
pub struct Interruption {
    late: Flag,
    revoked: AtomicBool,
    /// Who rests in the middle of a statement, to be told of a revocation.
    resting: Mutex<Option<Waker>>,
}

impl Interruption {
    /// Whether a statement was interrupted by [`Settings::overdue`](crate::Settings::overdue)
    /// since the last call.
    #[inline]
    pub fn take_late(&self) -> bool {
        self.late.take()
    }

    pub(crate) fn mark_late(&self) {
        self.late.set(true);
    }

    /// Whether the connection's snapshot was revoked, see [`Revoker`](crate::Revoker).
    #[inline]
    pub fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    pub(crate) fn mark_revoked(&self) {
        self.revoked.store(true, Ordering::Release);
        // After the mark: who wakes looks at it. Without the lock: waking runs code of others.
        let resting = locked(&self.resting).take();
        resting.into_iter().for_each(Waker::wake);
    }

    /// Has `waker` woken when the snapshot is revoked; `None` ends that. The caller asks
    /// [`Interruption::is_revoked`] after this, as the revocation may have come before.
    pub fn wake_when_revoked(&self, waker: Option<Waker>) {
        *locked(&self.resting) = waker;
    }

    /// Forgets also that a statement was interrupted: the same one may have been ended twice, and
    /// who was told of the one end has not asked for the other.
    pub(crate) fn forget(&self) {
        self.late.set(false);
        self.revoked.store(false, Ordering::Release);
    }
}
