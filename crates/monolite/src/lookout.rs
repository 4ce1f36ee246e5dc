//! Owns the answer to who holds what now, and the report of those who hold it for too long.
//!
//! # Threads and locks
//! Looking takes locks that calls hold for a few instructions, and only tries that of the writer.
//! The report is made on the thread of the [watchdog](crate::watchdog).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::activity::events::Events;
use crate::activity::{Activity, CallKind, Caller};
use crate::call::in_flight::InFlight;
use crate::call::write_queue::WriteQueue;
use crate::clock::Clock;
use crate::options::{OnSlow, Options};
use crate::read::holders::SnapshotHolders;
use crate::read::threads::ReadThreads;

pub(crate) struct Lookout {
    queue: Arc<WriteQueue>,
    in_flight: Arc<InFlight>,
    holders: Arc<SnapshotHolders>,
    /// Those of reads, statements and streams.
    pub(crate) threads: [Arc<ReadThreads>; 3],
    clock: Arc<dyn Clock>,
    on_slow: Option<OnSlow>,
    events: Events,
    /// The calls that were reported and go on, with the moments when they began.
    reported: Mutex<Vec<(Caller, Duration)>>,
}

impl Lookout {
    pub(crate) fn new(
        queue: Arc<WriteQueue>,
        in_flight: Arc<InFlight>,
        holders: Arc<SnapshotHolders>,
        threads: [Arc<ReadThreads>; 3],
        options: &Options,
        events: Events,
    ) -> Lookout {
        let (clock, on_slow) = (Arc::clone(&options.clock), options.on_slow.clone());
        let reported = Mutex::default();
        Lookout { queue, in_flight, holders, threads, clock, on_slow, events, reported }
    }

    /// From which time on a call is reported, if any is.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.on_slow.as_ref().map(|on_slow| on_slow.limit)
    }

    /// All calls that run: the one that has the writer, and those that have a connection.
    pub(crate) fn running(&self) -> Vec<Activity> {
        let mut running = Vec::from_iter(self.in_flight.activity(self.clock.now()));
        running.extend(self.holders.running());
        let [reads, statements, streams] = &self.threads;
        for call in &mut running {
            call.waiting += match call.caller.kind {
                _ if call.has_writer => self.queue.len(),
                CallKind::Read => reads.queue.len(),
                CallKind::Statement => statements.queue.len(),
                CallKind::Stream => streams.queue.len(),
                _ => 0,
            } as u64;
        }
        running
    }

    /// How long the call that has the writer has had it; nothing if none does.
    pub(crate) fn writer_busy(&self) -> Duration {
        let call = self.in_flight.activity(self.clock.now());
        call.map_or(Duration::ZERO, |call| call.time)
    }

    /// Reports the calls that have the writer, or keep the WAL, for longer than they may without a
    /// word; each once.
    pub(crate) fn report(&self) {
        let Some(OnSlow { limit, report }) = &self.on_slow else { return };
        let mut slow = self.running();
        slow.retain(|call| (call.has_writer || call.keeps_wal) && call.time > *limit);
        let identity = |call: &Activity| (call.caller, call.began);
        let all = slow.iter().map(identity).collect();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *reported, all);
        drop(reported);
        for call in slow.iter().filter(|call| !before.contains(&identity(call))) {
            self.events.held(call);
            // The panic hook has told of a panic; the others go on without it.
            let _ = catch_unwind(AssertUnwindSafe(|| report(call)));
        }
    }
}
