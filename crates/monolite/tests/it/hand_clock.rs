//! A clock that moves when a test says so: a time limit is then passed by exactly those whom the
//! test chose, however slow the machine is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolite::Clock;

#[derive(Debug, Default)]
pub(crate) struct HandClock(AtomicU64);

impl HandClock {
    pub(crate) fn new() -> Arc<HandClock> {
        Arc::default()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}
