//! Owns what the machine takes from a measured time: how long the threads that the work went
//! through were ready to run and had no core, and how long the whole machine stood still.
//!
//! # Algorithm
//! 1. The kernel tells how long each thread has waited for a core (`schedstat`). Only those on the
//!    way of the work count, one behind the other: its caller, and for a write the engine's writer
//!    and sync threads. What other threads wait for at the same time takes nothing from the work.
//! 2. That tells nothing of a virtual machine whose host stops it. So a control thread does nothing
//!    but sleep for a moment at a time, and notes by how much it wakes late, without what it
//!    itself waited for a core.
//!
//! Where the system does not tell, nothing is taken off.

use std::fs::{read_dir, read_to_string};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

/// How long the control thread sleeps at a time.
const MOMENT: Duration = Duration::from_millis(1);

/// Being late by less is the timer's.
const TIMER: Duration = Duration::from_millis(4);

/// Threads of the engine that a write goes through.
const WRITING: [&str; 2] = ["monolite-write", "monolite-sync"];

/// Nanoseconds for which the machine has stood still since the control thread was started.
static STOOD_STILL: LazyLock<Arc<AtomicU64>> = LazyLock::new(|| {
    let nanos = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&nanos);
    // It goes on until the process ends, which is a child that was started for these measurements.
    thread::spawn(move || watch(&told));
    nanos
});

/// Adds up by how much sleeping takes too long.
fn watch(nanos: &AtomicU64) {
    loop {
        let (start, waited) = (Instant::now(), own_wait());
        thread::sleep(MOMENT);
        let waited = own_wait().saturating_sub(waited);
        let late = start.elapsed().saturating_sub(MOMENT + waited);
        if late > TIMER {
            nanos.fetch_add(u64::try_from(late.as_nanos()).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// Which threads the work goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The calling thread alone.
    Caller,
    /// The calling thread and the engine's writer.
    Writer,
}

/// When work began, and what the machine had taken until then.
#[derive(Clone, Copy)]
pub(super) struct Start {
    at: Instant,
    route: Route,
    taken: Duration,
}

impl Start {
    /// Work on `route` begins, which the calling thread will wait for.
    pub(super) fn now(route: Route) -> Start {
        let taken = taken(route);
        Start { at: Instant::now(), route, taken }
    }

    /// How long it has taken without what the machine took. Asked by the thread that began it.
    pub(super) fn elapsed(self) -> Duration {
        self.at.elapsed().saturating_sub(taken(self.route).saturating_sub(self.taken))
    }
}

/// What the machine has taken from work on `route` since ever.
fn taken(route: Route) -> Duration {
    let stood_still = Duration::from_nanos(STOOD_STILL.load(Ordering::Relaxed));
    let writing = if route == Route::Writer { wait_of_writing() } else { Duration::ZERO };
    stood_still + own_wait() + writing
}

/// How long the calling thread has waited for a core.
fn own_wait() -> Duration {
    wait_in("/proc/thread-self/schedstat").unwrap_or_default()
}

fn wait_of_writing() -> Duration {
    let tasks = read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waits = tasks.filter_map(|task| {
        let name = read_to_string(task.path().join("comm")).ok()?;
        let path = task.path().join("schedstat");
        WRITING.contains(&name.trim_end()).then(|| wait_in(path.to_str()?)).flatten()
    });
    waits.sum()
}

fn wait_in(path: &str) -> Option<Duration> {
    let text = read_to_string(path).ok()?;
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}
