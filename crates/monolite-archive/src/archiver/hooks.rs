//! Owns what tests alone set of an archive.

use std::sync::Arc;
use std::time::Duration;

use monolite_ltx::Timestamp;

use super::Archive;

impl Archive {
    /// How long an opening waits until what it is told of, and a copy that is due, are there.
    #[doc(hidden)]
    #[must_use]
    pub fn opening_wait(mut self, time: Duration) -> Archive {
        self.opening = time;
        self
    }

    /// How often it is looked whether something can be merged or deleted.
    #[doc(hidden)]
    #[must_use]
    pub fn upkeep_every(mut self, time: Duration) -> Archive {
        self.upkeep = time;
        self
    }

    /// How many bytes of commits a group has at most, and a database that fills a slot.
    #[doc(hidden)]
    #[must_use]
    pub fn slot_bytes(mut self, group: u64, whole: u64) -> Archive {
        (self.group, self.whole_slot) = (group, whole);
        self
    }

    /// The monotonic clock by which files grow older.
    #[doc(hidden)]
    #[must_use]
    pub fn passed(mut self, passed: impl Fn() -> Duration + Send + Sync + 'static) -> Archive {
        self.passed = Arc::new(passed);
        self
    }

    /// The time of day that slots and copies get.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Archive {
        self.clock = Arc::new(clock);
        self
    }
}
