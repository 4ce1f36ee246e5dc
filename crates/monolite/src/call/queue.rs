//! Owns the bounded queue between callers and the thread that serves them.
//!
//! # Algorithm
//! Producers append under a mutex; the consumer takes everything that has gathered (up to a batch)
//! in one turn, so the lock is taken once per batch on its side. The consumer is signalled only
//! when it sleeps, so a busy one costs its producers no system call.
//!
//! Of several consumers one at a time is on its way out of its sleep: items that come meanwhile
//! send no signal. When it takes an item and more are left, it signals the next before it works. So
//! short work is done by few consumers that stay awake, and long work still finds them all.
//!
//! Between two lonely items the consumer may sleep and be woken in less time than either takes. So
//! it notices how long it slept: after a short sleep it spins for up to [`SPIN`] before the next
//! one, and a spin that saw nothing is not repeated until another short sleep.
//!
//! An item that finds no room waits before the door, and its producer gets a ticket, with which it
//! can take the item back. Each place that becomes free is given to the one that has waited
//! longest, whatever its producer does meanwhile: one that holds many tickets may look at one after
//! another. Items of principals have an order and room of their own: [`lanes`].
//!
//! A queue may have its consumers started when there is work ([`Queue::has_consumers_started`]): an
//! item that finds none asleep starts another one, up to a number. One that has slept for long
//! [leaves](Queue::leave).
//!
//! # Invariants
//! - Never holds more than `capacity` items that are in. No item waits while there is room.
//! - Where consumers are started, one is counted while there is an item or a kick: it leaves under
//!   the lock under which items come.
//! - After `close`, no item gets in, and every item that was in is still handed out.

pub(crate) mod lanes;
#[cfg(all(test, shuttle))]
mod models;

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::primitives::hint;
use crate::primitives::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::primitives::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use lanes::{Lanes, Queued, Spent, Ticket};

/// How long the consumer spins at most: a sleep and its wake-up, 30 to 40 µs each, on the machines
/// that we measured.
const SPIN: Duration = Duration::from_micros(80);

/// Why an item was not accepted; the item comes back.
pub(crate) enum Rejected<T> {
    Full(T),
    Closed(T),
}

/// Where an item has come to that may wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    In,
    Waits(Ticket),
}

/// What made [`Queue::take`] return.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Items were taken.
    Items,
    /// [`Queue::kick`] was called, possibly before the last call of [`Queue::take`]; no items.
    Kicked,
    /// The time is over; no items.
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

struct QueueState<T> {
    items: Lanes<T>,
    consumer_sleeps: u32,
    /// A consumer was signalled and has not come back from its sleep yet.
    wakes_up: bool,
    /// Consumers that were started and have not left.
    started: usize,
    kicked: bool,
    closed: bool,
    last_sleep_was_short: bool,
}

pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    not_empty: Condvar,
    /// Changes with every item, kick and close, for a consumer that spins.
    events: AtomicU64,
    /// Whether there was no room when the lock was last given back, for a producer that would not
    /// wait: under overload most are refused, and must neither cost nor hinder the others.
    full: AtomicBool,
    staff: OnceLock<Staff>,
}

/// Consumers that are started when there is work for them.
struct Staff {
    most: usize,
    start: Box<dyn Fn() + Send + Sync>,
}

impl<T: Queued> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Queue<T> {
        let state = QueueState {
            items: Lanes::new(capacity),
            consumer_sleeps: 0,
            wakes_up: false,
            started: 0,
            kicked: false,
            closed: false,
            last_sleep_was_short: false,
        };
        Queue {
            state: Mutex::new(state),
            not_empty: Condvar::new(),
            events: AtomicU64::new(0),
            full: AtomicBool::new(false),
            staff: OnceLock::new(),
        }
    }

    /// Has `start` start a consumer whenever an item or a kick finds none asleep, and fewer than
    /// `most` started. Where it cannot, it tells [`Queue::lacks_consumer`]. Called once, before the
    /// first item.
    pub(crate) fn has_consumers_started(
        &self,
        most: usize,
        start: impl Fn() + Send + Sync + 'static,
    ) {
        let staff = self.staff.set(Staff { most, start: Box::new(start) });
        assert!(staff.is_ok(), "the consumers of a queue are started in one way");
    }

    /// A started consumer that has found nothing to do ends, unless there is something by now;
    /// tells whether it does.
    pub(crate) fn leave(&self) -> bool {
        let mut state = self.state();
        if !state.items.is_empty() || state.kicked || state.closed {
            return false;
        }
        state.leave();
        if state.started == 0 {
            state.items.rest();
        }
        true
    }

    /// Whether a consumer was started and has not left.
    pub(crate) fn is_attended(&self) -> bool {
        self.state().started > 0
    }

    /// A consumer could not be started; tells whether there are others.
    pub(crate) fn lacks_consumer(&self) -> bool {
        let mut state = self.state();
        state.leave();
        state.started > 0
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.state().items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state().items.is_empty()
    }

    /// Whether an item would have been refused a moment ago because of those before it. Takes no
    /// lock. Never true once the queue is closed.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Appends `item`, or gives it back.
    pub(crate) fn push(&self, item: T) -> Result<(), Rejected<T>> {
        self.append(self.state(), item).map_err(|(_, rejected)| rejected)
    }

    /// Appends `item`, or has it wait for room; gives it back when the queue is closed.
    pub(crate) fn enter(&self, item: T) -> Result<Entered, T> {
        match self.append(self.state(), item) {
            Ok(()) => Ok(Entered::In),
            Err((_, Rejected::Closed(item))) => Err(item),
            Err((mut state, Rejected::Full(item))) => Ok(Entered::Waits(state.items.wait(item))),
        }
    }

    /// Takes back an item that still waits for room; `None` when it has got in.
    pub(crate) fn withdraw(&self, ticket: Ticket) -> Option<T> {
        self.state().items.withdraw(ticket)
    }

    fn append<'q>(
        &self,
        mut state: MutexGuard<'q, QueueState<T>>,
        item: T,
    ) -> Result<(), (MutexGuard<'q, QueueState<T>>, Rejected<T>)> {
        if state.closed {
            return Err((state, Rejected::Closed(item)));
        }
        if let Err(item) = state.items.push(item) {
            return Err((state, Rejected::Full(item)));
        }
        if state.items.is_full() {
            self.full.store(true, Ordering::Relaxed);
        }
        self.events.fetch_add(1, Ordering::Release);
        self.wake_one(state);
        Ok(())
    }

    /// Wakes a consumer if one sleeps and none is on its way already; starts one if none sleeps and
    /// there may be more.
    fn wake_one(&self, mut state: MutexGuard<'_, QueueState<T>>) {
        if state.consumer_sleeps > 0 {
            let is_on_its_way = std::mem::replace(&mut state.wakes_up, true);
            drop(state);
            if !is_on_its_way {
                self.not_empty.notify_one();
            }
        } else if let Some(staff) = self.staff.get().filter(|staff| state.started < staff.most) {
            state.started += 1;
            drop(state);
            (staff.start)();
        }
    }

    /// Moves up to `most` items into `into`; sleeps until there is something to do, or until
    /// `patience` is over.
    pub(crate) fn take(
        &self,
        most: usize,
        into: &mut VecDeque<T>,
        patience: Option<Duration>,
    ) -> Taken {
        self.take_after(&mut Spent::default(), most, into, patience)
    }

    /// As [`Queue::take`], of a consumer that has run the items it took before, and which say by
    /// what they `spent` whose turn it is.
    pub(crate) fn take_after(
        &self,
        spent: &mut Spent,
        most: usize,
        into: &mut VecDeque<T>,
        patience: Option<Duration>,
    ) -> Taken {
        let mut state = self.state();
        loop {
            if !state.items.is_empty() {
                break;
            }
            if std::mem::take(&mut state.kicked) {
                return Taken::Kicked;
            }
            if state.closed {
                return Taken::Closed;
            }
            if std::mem::take(&mut state.last_sleep_was_short) {
                let (spun, saw_something) = self.spin(state);
                state = spun;
                state.last_sleep_was_short = saw_something;
                // Also when nothing was seen: an item that came after the last look found no
                // sleeper and sent no signal.
                continue;
            }
            state.consumer_sleeps += 1;
            let start = Stopwatch::start();
            let (woken, timed_out) = self.sleep(state, patience);
            state = woken;
            assert!(state.consumer_sleeps > 0, "a consumer that sleeps is counted");
            state.consumer_sleeps -= 1;
            state.wakes_up = false;
            state.last_sleep_was_short = start.elapsed() < SPIN;
            if timed_out && state.items.is_empty() && !state.closed {
                state.kicked = false;
                return Taken::TimedOut;
            }
        }
        state.items.take(most, into, spent);
        self.note_room(&state);
        if state.items.is_empty() {
            drop(state)
        } else {
            self.wake_one(state)
        }
        Taken::Items
    }

    /// Takes whatever there is, without waiting.
    pub(crate) fn drain(&self) -> VecDeque<T> {
        let mut state = self.state();
        let items = state.items.drain();
        self.note_room(&state);
        items
    }

    fn note_room(&self, state: &QueueState<T>) {
        if !state.items.is_full() {
            self.full.store(false, Ordering::Relaxed);
        }
    }

    /// Waits for an event without sleeping, and without the lock; tells whether there was one.
    fn spin<'a>(
        &'a self,
        state: MutexGuard<'a, QueueState<T>>,
    ) -> (MutexGuard<'a, QueueState<T>>, bool) {
        let before = self.events.load(Ordering::Acquire);
        drop(state);
        let start = Stopwatch::start();
        let saw_something = loop {
            if self.events.load(Ordering::Acquire) != before {
                break true;
            }
            if start.elapsed() > SPIN {
                break false;
            }
            hint::spin_loop();
        };
        (self.state(), saw_something)
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, QueueState<T>>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'a, QueueState<T>>, bool) {
        match patience {
            None => (self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner), false),
            Some(patience) => {
                let (state, result) = self
                    .not_empty
                    .wait_timeout(state, patience)
                    .unwrap_or_else(PoisonError::into_inner);
                (state, result.timed_out())
            }
        }
    }

    /// Makes a sleeping consumer return without items.
    pub(crate) fn kick(&self) {
        let mut state = self.state();
        state.kicked = true;
        self.events.fetch_add(1, Ordering::Release);
        self.wake_one(state);
    }

    /// Accepts nothing more, and wakes all consumers. What waits for room still gets in.
    pub(crate) fn finish(&self) {
        self.state().closed = true;
        self.full.store(false, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Release);
        self.not_empty.notify_all();
    }

    /// Accepts nothing more, wakes all consumers, and gives back what waits for room.
    #[must_use = "a caller waits for each"]
    pub(crate) fn close(&self) -> Vec<T> {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            state.items.drain_waiting()
        };
        self.finish();
        waiting
    }
}

impl<T> QueueState<T> {
    fn leave(&mut self) {
        assert!(self.started > 0, "a consumer that leaves was started");
        self.started -= 1;
    }
}

#[cfg(test)]
impl Queued for u32 {}

#[test]
fn a_kick_is_told_from_the_end_of_the_patience() {
    let queue: Queue<u32> = Queue::new(8);
    let mut items = VecDeque::new();
    let patience = Some(Duration::from_millis(1));
    assert!(queue.push(1).is_ok());
    queue.kick();
    assert_eq!(queue.take(8, &mut items, patience), Taken::Items);
    assert_eq!(queue.take(8, &mut items, patience), Taken::Kicked);
    assert_eq!(queue.take(8, &mut items, patience), Taken::TimedOut);
}

#[test]
fn items_without_room_get_in_in_their_order_unless_they_are_withdrawn() {
    let queue: Queue<u32> = Queue::new(2);
    let entered: Vec<_> = (0..6).map(|item| queue.enter(item).unwrap()).collect();
    assert_eq!(entered[..2], [Entered::In, Entered::In]);
    let ticket = |at: usize| match entered[at] {
        Entered::Waits(ticket) => ticket,
        Entered::In => unreachable!("there was no room"),
    };
    assert_eq!(queue.withdraw(ticket(3)), Some(3));
    assert!(queue.push(7).is_err() && queue.is_full());
    let mut items = VecDeque::new();
    assert_eq!(queue.take(8, &mut items, None), Taken::Items);
    assert_eq!(queue.withdraw(ticket(2)), None, "it has got in");
    assert_eq!(queue.take(1, &mut items, None), Taken::Items);
    assert_eq!(items, [0, 1, 2]);
    assert_eq!(queue.drain(), [4, 5]);
    assert!(queue.push(8).is_ok());
    assert!(queue.push(9).is_ok());
    assert!(matches!(queue.enter(10), Ok(Entered::Waits(_))));
    assert_eq!(queue.close(), [10]);
    assert_eq!(queue.enter(11), Err(11));
    assert_eq!(queue.drain(), [8, 9]);
}

#[test]
fn what_waits_for_room_gets_into_a_queue_that_is_finished() {
    let queue: Queue<u32> = Queue::new(1);
    (0..3).for_each(|item| drop(queue.enter(item)));
    queue.finish();
    assert_eq!(queue.enter(3), Err(3));
    let mut items = VecDeque::new();
    while queue.take(8, &mut items, None) != Taken::Closed {}
    assert_eq!(items, [0, 1, 2]);
}
