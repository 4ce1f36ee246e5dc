//! Owns a clock that tests move by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Clock, nanos};

/// Nanoseconds since its start.
#[derive(Debug, Default)]
pub(crate) struct HandClock {
    now: AtomicU64,
    /// By which each look at it moves it.
    tick: AtomicU64,
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        let tick = self.tick.load(Ordering::Relaxed);
        Duration::from_nanos(self.now.fetch_add(tick, Ordering::Relaxed))
    }
}

impl HandClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.now.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// Has each look at it take `time`.
    pub(crate) fn tick(&self, time: Duration) {
        self.tick.store(nanos(time), Ordering::Relaxed);
    }
}
