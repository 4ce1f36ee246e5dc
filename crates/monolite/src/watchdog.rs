//! Owns the thread that looks whether closures come back, and sees to it that the others go on when
//! one does not.
//!
//! SQLite's own time is bounded by the deadline of each connection. Other code of a closure (a
//! sleep, a circular wait, a loop) cannot be ended. So after its time:
//! - **A write** has the writer. All who wait for it, in its batch or in the queue, are refused
//!   with `Overloaded`, until it returns; its batch is not committed. If it waits for one of them,
//!   that is what makes it return.
//! - **A read** or a **statement** of an interactive transaction has a connection, and perhaps a
//!   reader thread. Its snapshot is ended, another connection may be used in place of its own, and
//!   another thread takes the place of its thread.
//! - **A close** returns with an error that says so, and is completed when the closure returns.
//!
//! The thread runs while the database is in use, and for a while after. When it ends, it closes the
//! connections that are opened when they are used: an idle database keeps only its writer's.
//! A backup does not keep it. But a call that is [reported](crate::lookout) has the writer or keeps
//! the WAL, and until the WAL is copied, the writer's thread stays, and this one with it.
//!
//! # Invariants
//! - While a use is under way there is a thread, or one is being started. A use is begun before
//!   [`Awake::note`] asks for the thread; the thread says that it leaves, and looks for a use the
//!   last time some milliseconds later. So one of both sees the other.
//!
//! # Time
//! The limits are those of the engine's [`Clock`]; the thread looks every [`period`] of real time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use monolite_sqlite::trim_memory;

use crate::activity::Activity;
use crate::call::in_flight::InFlight;
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::write_queue::WriteQueue;
use crate::clock::{Clock, Stopwatch};
use crate::error::{Error, ErrorKind};
use crate::lookout::Lookout;
use crate::options::Options;
use crate::read::holders::SnapshotHolders;
use crate::stats::Recorder;
use crate::threads::{Awake, Work, linger};

/// Part of a limit after which the thread looks again.
const LOOKS: u32 = 8;

const MIN_PERIOD: Duration = Duration::from_millis(5);

const MAX_PERIOD: Duration = Duration::from_millis(500);

/// A closure of a write is not late for the others before this is over, too: a moment in which it
/// got no core is none of its doing.
const MIN_GRACE: Duration = Duration::from_millis(250);

/// How often the closures are looked at whose limits are these.
fn period(write_limit: Duration, read_limit: Duration) -> Duration {
    (write_limit.min(read_limit) / LOOKS).clamp(MIN_PERIOD, MAX_PERIOD)
}

pub(crate) struct Watchdog {
    database: DatabaseId,
    awake: Arc<Awake>,
    queue: Arc<WriteQueue>,
    in_flight: Arc<InFlight>,
    holders: Arc<SnapshotHolders>,
    lookout: Arc<Lookout>,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
    write_limit: Duration,
    read_limit: Duration,
    stopped: Mutex<bool>,
    stop: Condvar,
}

/// What `monolite-watch` does.
pub(crate) struct Watching(pub(crate) Arc<Watchdog>);

impl Work for Watching {
    const THREAD: &'static str = "monolite-watch";

    fn run(self) -> Watching {
        let _inside = Inside::enter(self.0.database, Place::Write);
        self.0.run();
        self
    }
}

impl Watchdog {
    pub(crate) fn new(
        awake: Arc<Awake>,
        queue: Arc<WriteQueue>,
        in_flight: Arc<InFlight>,
        holders: Arc<SnapshotHolders>,
        lookout: Arc<Lookout>,
        options: &Options,
        recorder: Arc<Recorder>,
    ) -> Watchdog {
        Watchdog {
            database: queue.database(),
            awake,
            queue,
            in_flight,
            holders,
            lookout,
            clock: Arc::clone(&options.clock),
            recorder,
            write_limit: options.write_time_limit,
            read_limit: options.read_time_limit,
            stopped: Mutex::new(false),
            stop: Condvar::new(),
        }
    }

    /// Runs until [`Watchdog::stop`], or until the database has not been used for a while.
    fn run(&self) {
        let limit = self.lookout.limit().unwrap_or(Duration::MAX);
        let period = period(self.write_limit.min(limit), self.read_limit);
        let (mut used, mut idle) = (self.holders.uses(), Stopwatch::start());
        let mut stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            drop(stopped);
            self.look();
            let uses = self.holders.uses();
            if self.is_in_use() || uses != used {
                (used, idle) = (uses, Stopwatch::start());
            } else if idle.elapsed() >= linger() && self.awake.leave(|| self.is_in_use()) {
                // What is used, or given back, from now on has another thread close it.
                self.holders.close_idle();
                return trim_memory();
            }
            stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            if !*stopped {
                let waited = self.stop.wait_timeout(stopped, period.min(linger()));
                stopped = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    pub(crate) fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.notify_all();
    }

    /// Whether something runs whose time is limited, or a thread waits for more of it.
    fn is_in_use(&self) -> bool {
        let now = self.clock.now();
        self.queue.is_attended()
            || self.lookout.threads.iter().any(|threads| threads.queue.is_attended())
            || self.holders.limited_watches().any(|watch| watch.running_for(now).is_some())
    }

    /// Whether a closure has overrun its time and not come back.
    pub(crate) fn is_stuck(&self) -> bool {
        self.in_flight.is_stuck() || self.is_read_overdue(self.clock.now())
    }

    fn look(&self) {
        let now = self.clock.now();
        self.look_at_writer(now);
        self.look_at_reads(now);
        self.lookout.report();
    }

    /// Refuses who waits for a closure that does not return.
    fn look_at_writer(&self, now: Duration) {
        let batch = self.in_flight.take_overdue(now, |limit| limit + MIN_GRACE.max(limit / 4));
        let holder = self.in_flight.activity(now).filter(|it| it.time > MIN_GRACE);
        self.queue.note_holder(holder.map(|it| it.held()));
        // Those that came while it had not returned, and none that came behind it.
        let stuck = self.in_flight.while_stuck(now, || self.queue.drain());
        let Some((holder, limit, queued)) = stuck else { return };
        let error = held_up(&holder, limit);
        let taken = batch.map(|batch| batch.done.into_iter().chain(batch.inbox));
        let taken: Vec<_> = taken.into_iter().flatten().collect();
        // Who is answered finds itself counted.
        let refused = taken.len() + queued.len();
        self.recorder.refused_behind_stuck.add(refused as u64);
        if refused > 0 {
            let what = "writes were refused behind a closure that does not return";
            let detail = format_args!("{refused}, behind {}", holder.caller);
            self.recorder.events().error(what, detail);
        }
        taken.into_iter().for_each(|entry| entry.refuse(&error));
        for mut member in queued {
            member.overrule(error.repeated());
            member.answer();
        }
    }

    /// Ends reads and statements that have overrun their time, and puts others in the place of what
    /// they have.
    fn look_at_reads(&self, now: Duration) {
        let began_by = now.saturating_sub(self.read_limit);
        self.holders.limited_watches().for_each(|watch| watch.stop_begun_before(began_by));
        self.lookout.threads.iter().for_each(|threads| threads.replace_lost(began_by));
        if self.is_read_overdue(now) {
            self.holders.wake_waiters();
        }
    }

    fn is_read_overdue(&self, now: Duration) -> bool {
        self.holders.limited_watches().any(|watch| watch.is_overdue(now, self.read_limit))
    }
}

fn held_up(holder: &Activity, limit: Duration) -> Error {
    let message = format!(
        "the writer has been held {}: its closure has not returned (it may take {limit:.1?}, \
         option write_time_limit): it sleeps, or waits for another write of the same database; \
         this one was not run: try again later",
        holder.held()
    );
    Error::new(ErrorKind::Overloaded, message)
}
