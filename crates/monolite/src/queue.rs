//! Owns the bounded queue between callers and the thread that serves them.
//!
//! # Algorithm
//! Producers append under a mutex; the consumer takes everything that has gathered (up to a batch)
//! in one turn, so the lock is taken once per batch on its side. The consumer is signalled only
//! when it sleeps, so a busy one costs its producers no system call.
//!
//! Of several consumers one at a time is on its way out of its sleep: items that come meanwhile
//! signal nobody. When it takes an item and more are left, it signals the next before it works. So
//! short work is done by few consumers that stay awake, and long work still finds them all.
//!
//! Between two lonely items the consumer may sleep and be woken in less time than either takes. So
//! it notices how long it slept: after a short sleep it spins for up to [`SPIN`] before the next
//! one, and a spin that saw nothing is not repeated until another short sleep.
//!
//! A producer that finds the queue full gets a ticket and leaves a waker under it; each place that
//! becomes free wakes the holder of the oldest. One that is woken too late keeps its ticket, and so
//! its turn. One that goes away gives the ticket back, or, woken already, wakes the next.
//!
//! # Invariants
//! - Never holds more than `capacity` items.
//! - After `close`, no item gets in, and every item that was in is still handed out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long the consumer spins at most: a sleep and its wake-up, 30 to 40 µs each, on the machines
/// that we measured.
const SPIN: Duration = Duration::from_micros(80);

/// Why an item was not accepted; the item comes back.
pub(crate) enum Rejected<T> {
    Full(T),
    Closed(T),
}

/// A place among the producers that wait for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

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

struct State<T> {
    items: VecDeque<T>,
    waiting_producers: BTreeMap<Ticket, Waker>,
    next_ticket: u64,
    consumer_sleeps: u32,
    /// A consumer was signalled and has not come back from its sleep yet.
    wakes_up: bool,
    kicked: bool,
    closed: bool,
    last_sleep_was_short: bool,
}

pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    not_empty: Condvar,
    /// Changes with every item, kick and close, for a consumer that spins.
    events: AtomicU64,
    /// Whether there was no room when the lock was last given back, for a producer that would not
    /// wait: under overload most are refused, and must neither cost nor hinder the others.
    full: AtomicBool,
    capacity: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Queue<T> {
        let state = State {
            items: VecDeque::new(),
            waiting_producers: BTreeMap::new(),
            next_ticket: 0,
            consumer_sleeps: 0,
            wakes_up: false,
            kicked: false,
            closed: false,
            last_sleep_was_short: false,
        };
        Queue {
            state: Mutex::new(state),
            not_empty: Condvar::new(),
            events: AtomicU64::new(0),
            full: AtomicBool::new(false),
            capacity,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
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

    /// As [`Queue::push`]; when the queue is full, `waker` is woken once a place is free, and
    /// `ticket` is the producer's to keep until it got in or calls [`Queue::leave`].
    pub(crate) fn push_or_wait(
        &self,
        item: T,
        waker: &Waker,
        ticket: &mut Option<Ticket>,
    ) -> Result<(), Rejected<T>> {
        let (mut state, rejected) = match self.append(self.state(), item) {
            Ok(()) => {
                if let Some(own) = ticket.take() {
                    self.state().waiting_producers.remove(&own);
                }
                return Ok(());
            }
            Err(rejected) => rejected,
        };
        if matches!(rejected, Rejected::Full(_)) {
            let next = Ticket(state.next_ticket);
            state.next_ticket += u64::from(ticket.is_none());
            let own = *ticket.get_or_insert(next);
            state.waiting_producers.insert(own, waker.clone());
        }
        Err(rejected)
    }

    fn append<'q>(
        &self,
        mut state: MutexGuard<'q, State<T>>,
        item: T,
    ) -> Result<(), (MutexGuard<'q, State<T>>, Rejected<T>)> {
        if state.closed {
            return Err((state, Rejected::Closed(item)));
        }
        if state.items.len() >= self.capacity {
            return Err((state, Rejected::Full(item)));
        }
        state.items.push_back(item);
        if state.items.len() == self.capacity {
            self.full.store(true, Ordering::Relaxed);
        }
        self.events.fetch_add(1, Ordering::Release);
        self.wake_one(state);
        Ok(())
    }

    /// Wakes a consumer if one sleeps and none is on its way already.
    fn wake_one(&self, mut state: MutexGuard<'_, State<T>>) {
        let wakes = state.consumer_sleeps > 0 && !std::mem::replace(&mut state.wakes_up, true);
        drop(state);
        if wakes {
            self.not_empty.notify_one();
        }
    }

    /// Gives up waiting for room.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut state = self.state();
        if state.waiting_producers.remove(&ticket).is_some() {
            return;
        }
        let next = state.waiting_producers.pop_first();
        drop(state);
        next.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Moves up to `most` items into `into`; sleeps until there is something to do, or until
    /// `patience` is over.
    pub(crate) fn take(
        &self,
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
            // Nobody would take an item and so wake the next one, should a producer that was woken
            // never come back for its place.
            let waiting = std::mem::take(&mut state.waiting_producers);
            if !waiting.is_empty() {
                drop(state);
                waiting.into_values().for_each(Waker::wake);
                state = self.state();
                continue;
            }
            if std::mem::take(&mut state.last_sleep_was_short) {
                let (spun, saw_something) = self.spin(state);
                state = spun;
                state.last_sleep_was_short = saw_something;
                // Also when nothing was seen: an item that came after the last look found nobody
                // asleep and woke nobody.
                continue;
            }
            state.consumer_sleeps += 1;
            let start = Instant::now();
            let (woken, timed_out) = self.sleep(state, patience);
            state = woken;
            state.consumer_sleeps -= 1;
            state.wakes_up = false;
            state.last_sleep_was_short = start.elapsed() < SPIN;
            if timed_out && state.items.is_empty() && !state.closed {
                state.kicked = false;
                return Taken::TimedOut;
            }
        }
        let count = state.items.len().min(most);
        if into.is_empty() && count == state.items.len() {
            std::mem::swap(into, &mut state.items);
        } else {
            into.extend(state.items.drain(..count));
        }
        let room = self.capacity - state.items.len();
        if room > 0 {
            self.full.store(false, Ordering::Relaxed);
        }
        let wakers = wake_list(&mut state.waiting_producers, room);
        if state.items.is_empty() {
            drop(state)
        } else {
            self.wake_one(state)
        }
        wakers.into_iter().for_each(Waker::wake);
        Taken::Items
    }

    /// Waits for an event without sleeping, and without the lock; tells whether there was one.
    fn spin<'a>(&'a self, state: MutexGuard<'a, State<T>>) -> (MutexGuard<'a, State<T>>, bool) {
        let before = self.events.load(Ordering::Acquire);
        drop(state);
        let start = Instant::now();
        let saw_something = loop {
            if self.events.load(Ordering::Acquire) != before {
                break true;
            }
            if start.elapsed() > SPIN {
                break false;
            }
            std::hint::spin_loop();
        };
        (self.state(), saw_something)
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        patience: Option<Duration>,
    ) -> (MutexGuard<'a, State<T>>, bool) {
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
        self.state().kicked = true;
        self.events.fetch_add(1, Ordering::Release);
        self.not_empty.notify_all();
    }

    /// Lets nothing in any more, and wakes everyone who waits.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        self.full.store(false, Ordering::Relaxed);
        self.events.fetch_add(1, Ordering::Release);
        let wakers = std::mem::take(&mut state.waiting_producers);
        drop(state);
        self.not_empty.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }
}

fn wake_list(waiting: &mut BTreeMap<Ticket, Waker>, room: usize) -> Vec<Waker> {
    std::iter::from_fn(|| waiting.pop_first()).take(room).map(|(_, waker)| waker).collect()
}

#[test]
fn an_item_that_comes_as_the_consumer_stops_spinning_is_taken() {
    use std::sync::{Arc, mpsc};
    let queue = Arc::new(Queue::new(8));
    let (taken, was_taken) = mpsc::channel();
    let consumed = Arc::clone(&queue);
    let consumer = std::thread::spawn(move || {
        let mut items = VecDeque::new();
        while consumed.take(8, &mut items, None) != Taken::Closed {
            items.drain(..).for_each(|item: u32| taken.send(item).unwrap());
        }
    });
    for item in 0..20_000 {
        // Around the moment at which a spin ends.
        let pause =
            SPIN - Duration::from_micros(8) + Duration::from_nanos(u64::from(item % 16_000));
        let start = Instant::now();
        while start.elapsed() < pause {}
        assert!(queue.push(item).is_ok());
        let answer = was_taken.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(item), "nobody took it");
    }
    queue.close();
    consumer.join().unwrap();
}

#[test]
fn a_kick_is_told_from_the_end_of_the_patience() {
    let queue = Queue::new(8);
    let mut items = VecDeque::new();
    let patience = Some(Duration::from_millis(1));
    assert!(queue.push(1).is_ok());
    queue.kick();
    assert_eq!(queue.take(8, &mut items, patience), Taken::Items);
    assert_eq!(queue.take(8, &mut items, patience), Taken::Kicked);
    assert_eq!(queue.take(8, &mut items, patience), Taken::TimedOut);
}

#[test]
fn consumers_that_sleep_are_all_found_by_items_that_wait_for_each_other() {
    use std::sync::mpsc;
    const CONSUMERS: usize = 4;
    let queue = Queue::new(8);
    let (started, starts) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..CONSUMERS {
            let (queue, started) = (&queue, started.clone());
            scope.spawn(move || {
                let mut items = VecDeque::new();
                while queue.take(1, &mut items, None) != Taken::Closed {
                    items.drain(..).for_each(|go_on: mpsc::Receiver<()>| {
                        started.send(()).unwrap();
                        // Ends with the round.
                        assert!(go_on.recv().is_err());
                    });
                }
            });
        }
        let mut outcome = Ok(());
        for round in 0..300 {
            if round % 3 == 0 {
                // Long enough for all to be asleep.
                std::thread::sleep(SPIN * 4);
            }
            let mut ends = Vec::new();
            for _ in 0..CONSUMERS {
                let (end, go_on) = mpsc::channel();
                assert!(queue.push(go_on).is_ok());
                ends.push(end);
            }
            let wait = |_| starts.recv_timeout(Duration::from_secs(20));
            outcome = (0..CONSUMERS).try_for_each(wait);
            if outcome.is_err() {
                break;
            }
        }
        queue.close();
        assert_eq!(outcome, Ok(()), "an item was left although consumers slept");
    });
}
