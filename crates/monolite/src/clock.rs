//! Owns the engine's sense of time, so that a simulator can bring its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Where the engine's time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since an arbitrary start; never goes backwards.
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Nanoseconds of `time` that fit an atomic; 584 years is forever.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment after which the statement that is running is interrupted.
#[derive(Debug)]
pub(crate) struct Deadline {
    clock: Arc<dyn Clock>,
    at: AtomicU64,
}

impl Deadline {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Deadline> {
        Arc::new(Deadline { clock, at: AtomicU64::new(u64::MAX) })
    }

    /// Sets the deadline `limit` after `start`.
    pub(crate) fn set(&self, start: Duration, limit: Duration) {
        self.at.store(nanos(start.saturating_add(limit)), Ordering::Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.at.store(u64::MAX, Ordering::Relaxed);
    }

    pub(crate) fn is_past(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != u64::MAX && nanos(self.clock.now()) > at
    }
}
