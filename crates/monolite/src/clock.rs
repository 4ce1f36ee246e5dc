//! Owns the engine's sense of time: the [`Clock`], so that a simulator can bring its own, and the
//! one place where a thread looks at real time or rests in it.
//!
//! Limits on work are the clock's. Real time is for threads that wait for one another: a clock that
//! is moved by hand moves while they sleep. Clippy refuses `Instant::now` and `thread::sleep`
//! everywhere else in this crate.

#[cfg(test)]
pub(crate) mod hand;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Where the engine's time comes from.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// /// A clock that a test moves by hand.
/// #[derive(Debug, Default)]
/// struct ByHand(Mutex<Duration>);
///
/// impl monolite::Clock for ByHand {
///     fn now(&self) -> Duration {
///         *self.0.lock().unwrap()
///     }
/// }
///
/// # fn main() -> monolite::Result<()> {
/// let clock = Arc::new(ByHand::default());
/// let db = monolite::Options::new().clock(clock.clone()).open(":memory:")?;
/// let forgotten = db.transaction()?;
/// *clock.0.lock().unwrap() += Duration::from_secs(61);
/// let late = forgotten.execute("CREATE TABLE t(x)", ()).wait().unwrap_err();
/// assert_eq!(late.kind(), monolite::ErrorKind::Timeout);
/// # db.close()
/// # }
/// ```
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since an arbitrary start; never goes backwards.
    fn now(&self) -> Duration;

    /// The same time, or a few milliseconds less if that costs less: for the times of statements.
    fn coarse(&self) -> Duration {
        self.now()
    }
}

/// The system's monotonic clock.
///
/// ```
/// use monolite::{Clock, SystemClock};
///
/// let clock = SystemClock::default();
/// let before = clock.now();
/// assert!(clock.now() >= before);
/// ```
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    start_tick: Duration,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { start: real_now(), start_tick: system_time(ClockId::Monotonic) }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        real_now() - self.start
    }

    fn coarse(&self) -> Duration {
        system_time(COARSE).saturating_sub(self.start_tick)
    }
}

/// The time at the system's latest tick, up to 4 ms ago on Linux. It costs 10 ns to read, and the
/// exact one 40 to 100.
#[cfg(target_os = "linux")]
const COARSE: ClockId = ClockId::MonotonicCoarse;
#[cfg(not(target_os = "linux"))]
const COARSE: ClockId = ClockId::Monotonic;

fn system_time(of: ClockId) -> Duration {
    Duration::try_from(clock_gettime(of)).unwrap_or_default()
}

#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "this is the place"))]
fn real_now() -> Instant {
    Instant::now()
}

/// Lets the calling thread rest.
#[cfg_attr(not(test), expect(clippy::disallowed_methods, reason = "this is the place"))]
pub(crate) fn rest(time: Duration) {
    thread::sleep(time);
}

/// Real time since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch(real_now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        let time = real_now() - self.0;
        #[cfg(all(test, shuttle))]
        let time = crate::models::any_time_for(time);
        time
    }
}

/// A moment of real time, to a few milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick(u64);

impl Tick {
    pub(crate) fn now() -> Tick {
        Tick(nanos(system_time(COARSE)))
    }

    pub(crate) fn elapsed(self) -> Duration {
        Duration::from_nanos(Tick::now().0.saturating_sub(self.0))
    }
}

/// Some hundred years, which every clock can add.
const FOREVER_SECONDS: u64 = 10_000_000_000;

/// The real time that a caller is still ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Patience(Instant);

impl Patience {
    pub(crate) fn of(time: Duration) -> Patience {
        let now = real_now();
        Patience(now.checked_add(time).unwrap_or(now + Duration::from_secs(FOREVER_SECONDS)))
    }

    pub(crate) fn left(&self) -> Duration {
        self.0.saturating_duration_since(real_now())
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

    /// Whether the statement has to end.
    pub(crate) fn is_past(&self) -> bool {
        let at = self.at.load(Ordering::Relaxed);
        at != u64::MAX && nanos(self.clock.now()) > at
    }
}
