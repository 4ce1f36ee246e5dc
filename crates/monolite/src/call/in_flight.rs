//! Owns the transactions that the writer has taken from its queue and not handed on, while it runs
//! a closure: within reach of others, should the closure not return.
//!
//! # Algorithm
//! The writer [holds](HeldBatch) them except while it runs a closure. When a closure has been
//! running for too long, another thread takes them and answers them: those that have not run, and
//! those whose batch is now not committed. The writer learns that its batch was taken when the
//! closure returns, and rolls it back.
//!
//! # Invariants
//! - The thread that has the transactions answers them. A batch that was taken is never committed.
//!
//! # Threads and locks
//! The writer has the lock whenever no closure runs, so other threads only try it, one at a time: a
//! failed attempt shows that no closure runs. While a batch is taken, the write queue's lock is
//! taken under it.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::activity::{Activity, Caller, Trace};
use crate::call::entry::Entry;
use crate::clock::Clock;

/// What the writer has in its hands beside the member that runs.
#[derive(Default)]
pub(crate) struct Batch {
    /// Members that are to run, in their order.
    pub(crate) inbox: VecDeque<Entry>,
    /// Members of the open transaction, in their order.
    pub(crate) done: Vec<Entry>,
}

/// Whether the writer found its batch as it had left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collected {
    Whole,
    /// It was taken; nothing of it may be committed.
    Taken,
}

#[derive(Default)]
struct Desk {
    batch: Batch,
    /// The closure that runs.
    closure: Option<Closure>,
    /// Whether the batch was taken from it.
    is_taken: bool,
}

/// A closure that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closure {
    pub(crate) since: Duration,
    /// How long it may take.
    pub(crate) limit: Duration,
    pub(crate) caller: Caller,
}

pub(crate) struct InFlight {
    desk: Mutex<Desk>,
    /// For threads other than the writer's, before they try the desk.
    looking: Mutex<()>,
    /// Which statement of the closure runs.
    trace: Trace,
}

/// The batch in the hands of the writer. What is in it when this is dropped is dropped, too.
pub(crate) struct HeldBatch<'d> {
    in_flight: &'d InFlight,
    /// Always there except during [`HeldBatch::leave_while`].
    desk: Option<MutexGuard<'d, Desk>>,
}

/// The desk in the hands of another thread than the writer's.
struct LeftDesk<'d> {
    /// Given back first, so that the next one who looks gets it.
    desk: MutexGuard<'d, Desk>,
    _alone: MutexGuard<'d, ()>,
}

impl Deref for LeftDesk<'_> {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl DerefMut for LeftDesk<'_> {
    fn deref_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }
}

impl InFlight {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> InFlight {
        InFlight { desk: Mutex::default(), looking: Mutex::default(), trace: Trace::new(clock) }
    }

    /// The batch, for the writer.
    pub(crate) fn hold(&self) -> HeldBatch<'_> {
        HeldBatch { in_flight: self, desk: Some(self.desk()) }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The desk while the writer runs a closure.
    fn left_desk(&self) -> Option<LeftDesk<'_>> {
        let alone = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let desk = match self.desk.try_lock() {
            Ok(desk) => desk,
            Err(TryLockError::Poisoned(desk)) => desk.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(LeftDesk { desk, _alone: alone })
    }

    /// Takes the batch if the closure that runs has been running `now` for longer than `patience`
    /// says of its limit.
    pub(crate) fn take_overdue(
        &self,
        now: Duration,
        patience: impl Fn(Duration) -> Duration,
    ) -> Option<Batch> {
        let mut desk = self.left_desk()?;
        let closure = desk.closure?;
        if desk.is_taken || closure.since >= now.saturating_sub(patience(closure.limit)) {
            return None;
        }
        desk.is_taken = true;
        Some(std::mem::take(&mut desk.batch))
    }

    /// What the closure does `now` whose batch was taken, how long it may take, and what `act` says
    /// while it has not returned.
    pub(crate) fn while_stuck<T>(
        &self,
        now: Duration,
        act: impl FnOnce() -> T,
    ) -> Option<(Activity, Duration, T)> {
        let desk = self.left_desk()?;
        let closure = desk.closure.filter(|_| desk.is_taken)?;
        Some((self.activity_of(&closure, now), closure.limit, act()))
    }

    fn activity_of(&self, closure: &Closure, now: Duration) -> Activity {
        let activity = Activity::new(closure.caller, closure.since, &self.trace, now);
        Activity { has_writer: true, ..activity }
    }

    /// What the closure does that runs, if one does, and how many others wait in its batch.
    pub(crate) fn activity(&self, now: Duration) -> Option<Activity> {
        let look = || {
            let desk = self.left_desk()?;
            let waiting = (desk.batch.inbox.len() + desk.batch.done.len()) as u64;
            desk.closure.map(|closure| (closure, waiting))
        };
        let (closure, waiting) = look()?;
        // Without the lock, for which the writer would wait: another one may run by now.
        let activity = self.activity_of(&closure, now);
        let (same, _) = look()?;
        (same.since == closure.since).then_some(Activity { waiting, ..activity })
    }

    /// Whether the batch was taken from a closure which has not returned.
    pub(crate) fn is_stuck(&self) -> bool {
        self.left_desk().is_some_and(|desk| desk.is_taken && desk.closure.is_some())
    }
}

impl<'d> HeldBatch<'d> {
    /// Where the statements of closures are shown.
    pub(crate) fn trace(&self) -> &'d Trace {
        &self.in_flight.trace
    }

    /// Leaves the batch within reach of others while `run` runs `closure`.
    pub(crate) fn leave_while<R>(
        &mut self,
        closure: Closure,
        run: impl FnOnce() -> R,
    ) -> (R, Collected) {
        if let Some(desk) = &mut self.desk {
            desk.closure = Some(closure);
        }
        self.desk = None;
        let result = run();
        let mut desk = self.in_flight.desk();
        assert!(desk.closure.take().is_some(), "the writer runs one closure at a time");
        let was_taken = std::mem::take(&mut desk.is_taken);
        let is_gone = desk.batch.inbox.is_empty() && desk.batch.done.is_empty();
        assert!(!was_taken || is_gone, "a batch that was taken has one owner");
        self.desk = Some(desk);
        (result, if was_taken { Collected::Taken } else { Collected::Whole })
    }
}

impl Deref for HeldBatch<'_> {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.desk.as_ref().expect("the writer has its batch when it runs no closure").batch
    }
}

impl DerefMut for HeldBatch<'_> {
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.desk.as_mut().expect("the writer has its batch when it runs no closure").batch
    }
}

impl Drop for HeldBatch<'_> {
    /// Also when a defect unwinds the writer, out of a closure, too.
    fn drop(&mut self) {
        let in_flight = self.in_flight;
        let desk = self.desk.get_or_insert_with(|| in_flight.desk());
        desk.closure = None;
        let batch = std::mem::take(&mut desk.batch);
        self.desk = None;
        drop(batch);
    }
}

#[test]
fn looking_never_waits_for_the_writer() {
    let in_flight = InFlight::new(Arc::<crate::clock::SystemClock>::default());
    let look = || in_flight.activity(Duration::from_secs(3));
    let mut batch = in_flight.hold();
    assert_eq!(look(), None, "the writer has the lock, and would be waited for on its own thread");
    let (since, limit) = (Duration::from_secs(1), Duration::from_secs(5));
    let closure = Closure { since, limit, caller: Caller::default() };
    let (seen, _) = batch.leave_while(closure, look);
    assert_eq!(seen.map(|call| (call.has_writer, call.time)), Some((true, Duration::from_secs(2))));
    assert_eq!(look(), None);
}

#[test]
fn all_who_look_at_once_see_the_closure() {
    let in_flight = InFlight::new(Arc::<crate::clock::SystemClock>::default());
    let closure =
        Closure { since: Duration::ZERO, limit: Duration::MAX, caller: Caller::default() };
    let look = || (0..200_000).all(|_| in_flight.activity(Duration::from_secs(1)).is_some());
    let (seen, _) = in_flight.hold().leave_while(closure, || {
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(look));
            threads.map(|it| it.join().unwrap())
        })
    });
    assert_eq!(seen, [true; 3]);
}
