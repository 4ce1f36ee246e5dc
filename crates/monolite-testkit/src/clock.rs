//! A clock that moves when it is told to: a time limit is then passed by exactly those who were
//! chosen to, however slow the machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolite::Clock;

/// A clock that stands still until it is advanced.
#[derive(Debug, Default)]
pub struct HandClock(AtomicU64);

impl HandClock {
    /// A clock that shows zero.
    pub fn new() -> Arc<HandClock> {
        Arc::default()
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}
