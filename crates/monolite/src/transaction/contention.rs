//! Owns the waiting of interactive transactions that collide: they take turns among themselves, and
//! no other work waits.
//!
//! # Algorithm
//! [`schedule`] says who goes on where. A [`Visit`] is one attempt of a transaction: it asks for a
//! turn before the statements and in the family that are known to collide, before the snapshot is
//! taken in which the statement runs, and keeps what it is given until the writer has committed it
//! or it has come to nothing. It learns from its own conflict, for itself and the others.
//!
//! While no transaction has conflicted for a while, no spot is known and no transaction asks: the
//! cost is a look at one atomic.
//!
//! # Invariants
//! - A turn is a schedule and no lock: the writer decides whether a transaction commits, by what
//!   its statements answer there, regardless of turns.
//! - A visit waits at a spot only while all the turns that it has are at smaller ones; otherwise it
//!   goes on without the turn. Waiting at a statement, it has no turn in its family.
//! - No thread of the engine waits: waiting is a future, or blocks the caller's thread.
//!
//! # Threads and locks
//! `state` is held for a few instructions; wakers run outside it. That of a visit is never held
//! while that one is asked for.

#[cfg(all(test, shuttle))]
mod models;
pub(crate) mod schedule;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_timer::Delay;

use crate::call::discards::quietly;
use crate::call::inside::DatabaseId;
use crate::clock::Clock;
use crate::options::{Options, Turns};
use crate::primitives::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::primitives::sync::{Mutex, MutexGuard, PoisonError};
use crate::primitives::thread_local;
use crate::progress::Observer;
use crate::stats::Recorder;
use schedule::{Answer, Changes, End, Manner, Schedule, Spot, Visitor};

/// Shortest time to an alarm: one that is over already is not worth less.
const TICK: Duration = Duration::from_millis(1);

/// Statements of an attempt that are remembered for the next one.
const REMEMBERED: usize = 64;

/// All that wait at a spot of a database.
pub(crate) struct Contention {
    database: DatabaseId,
    state: Mutex<TurnsState>,
    /// How many spots are known.
    known: AtomicUsize,
    numbers: AtomicU64,
    /// Those that are committed with the batch that the writer is at.
    committed: Mutex<Vec<Arc<Visit>>>,
    has_committed: AtomicBool,
    clock: Arc<dyn Clock>,
    recorder: Arc<Recorder>,
}

#[derive(Default)]
struct TurnsState {
    schedule: Schedule,
    waiting: HashMap<(Spot, Visitor), Arc<Bell>>,
    is_closed: bool,
}

/// Tells one who waits that something has changed for it.
#[derive(Default)]
struct Bell(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    may_go_on: bool,
    waker: Option<Waker>,
}

impl Bell {
    fn rung(&self) -> MutexGuard<'_, Rung> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, may_go_on: bool) {
        let mut rung = self.rung();
        rung.may_go_on |= may_go_on;
        let waker = rung.waker.take();
        drop(rung);
        if let Some(waker) = waker {
            quietly(|| waker.wake());
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut rung = self.rung();
        if rung.may_go_on {
            return Poll::Ready(());
        }
        rung.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Contention {
    pub(crate) fn new(
        database: DatabaseId,
        options: &Options,
        recorder: Arc<Recorder>,
    ) -> Arc<Contention> {
        let clock = Arc::clone(&options.clock);
        let is_closed = options.turns == Turns::Off;
        Arc::new(Contention {
            database,
            state: Mutex::new(TurnsState { is_closed, ..TurnsState::default() }),
            known: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            committed: Mutex::default(),
            has_committed: AtomicBool::new(false),
            clock,
            recorder,
        })
    }

    /// Changes the schedule, and tells whom that concerns.
    fn change<T>(&self, change: impl FnOnce(&mut TurnsState, Duration, &mut Changes) -> T) -> T {
        let (now, mut changes) = (self.clock.now(), Changes::default());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state, now, &mut changes);
        self.known.store(state.schedule.len(), Ordering::Relaxed);
        let granted: Vec<_> =
            changes.granted.iter().filter_map(|it| state.waiting.remove(it)).collect();
        let heads: Vec<_> =
            changes.heads.iter().filter_map(|it| state.waiting.get(it).cloned()).collect();
        drop(state);
        granted.iter().for_each(|bell| bell.ring(true));
        heads.iter().for_each(|bell| bell.ring(false));
        result
    }

    /// Whether nothing is known to collide.
    fn is_calm(&self) -> bool {
        self.known.load(Ordering::Relaxed) == 0
    }

    fn is_known(&self, spot: Spot) -> bool {
        !self.is_calm() && self.change(|state, _, _| state.schedule.is_known(spot))
    }

    /// Lets all transactions go on, and none wait any more.
    pub(crate) fn close(&self) {
        self.change(|state, _, changes| {
            state.is_closed = true;
            state.schedule = Schedule::default();
            changes.granted.extend(state.waiting.keys());
        });
    }
}

impl Observer for Contention {
    /// Those who waited for what the writer was at go on.
    fn visible(&self) {
        if !self.has_committed.load(Ordering::Relaxed) {
            return;
        }
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_committed.store(false, Ordering::Relaxed);
        let visits = std::mem::take(&mut *committed);
        drop(committed);
        visits.iter().for_each(|visit| visit.finish(End::Committed));
    }
}

/// One attempt of a transaction among those that collide.
pub(crate) struct Visit {
    contention: Arc<Contention>,
    visitor: Visitor,
    manner: Manner,
    /// Whether it began inside of the closure of another one, which waits for it: whatever turn
    /// that has, this one would wait for in vain.
    is_nested: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    family: Option<u64>,
    /// Where it has a turn, or waits for one.
    spots: Vec<Spot>,
    /// When it last began, or went on.
    began: Duration,
    /// Whether its next statement needs a snapshot that was taken since the turn was given.
    needs_newer: bool,
    is_over: bool,
    /// The statements of an attempt that has ended in a conflict.
    collided: Vec<u64>,
}

thread_local! {
    /// The databases in closures of whose transactions the thread is.
    static CLOSURES: RefCell<Vec<DatabaseId>> = const { RefCell::new(Vec::new()) };
}

/// The thread is in the closure of a transaction until this is dropped.
pub(crate) struct InClosure {
    _not_send: PhantomData<*const ()>,
}

impl InClosure {
    pub(crate) fn enter(database: DatabaseId) -> InClosure {
        let _ = CLOSURES.try_with(|closures| closures.borrow_mut().push(database));
        InClosure { _not_send: PhantomData }
    }
}

impl Drop for InClosure {
    fn drop(&mut self) {
        let _ = CLOSURES.try_with(|closures| closures.borrow_mut().pop());
    }
}

fn is_in_closure(database: DatabaseId) -> bool {
    CLOSURES.try_with(|closures| closures.borrow().contains(&database)).unwrap_or(false)
}

impl Visit {
    /// A transaction that begins now.
    pub(crate) fn new(contention: &Arc<Contention>, family: Option<u64>) -> Arc<Visit> {
        let since = contention.clock.now();
        Visit::at(contention, since, Manner::Beside, family)
    }

    fn at(
        contention: &Arc<Contention>,
        since: Duration,
        manner: Manner,
        family: Option<u64>,
    ) -> Arc<Visit> {
        let number = contention.numbers.fetch_add(1, Ordering::Relaxed);
        let inner = Inner { family, began: contention.clock.now(), ..Inner::default() };
        Arc::new(Visit {
            contention: Arc::clone(contention),
            visitor: Visitor { since, number },
            manner,
            is_nested: is_in_closure(contention.database),
            inner: Mutex::new(inner),
        })
    }

    /// The next attempt of the same transaction.
    pub(crate) fn again(&self, manner: Manner) -> Arc<Visit> {
        let inner = self.inner();
        let since = match manner {
            Manner::Beside => self.visitor.since,
            Manner::Alone => Duration::ZERO,
        };
        let next = Visit::at(&self.contention, since, manner, inner.family);
        next.inner().collided.clone_from(&inner.collided);
        next
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the attempt has been going on, without the time that it has waited.
    pub(crate) fn took(&self) -> Duration {
        self.contention.clock.now().saturating_sub(self.inner().began)
    }

    /// Where an attempt has to ask before it begins: where the one before it has been, if others
    /// collide there, too.
    pub(crate) fn spots_before(&self) -> Vec<Spot> {
        let contention = &self.contention;
        if contention.is_calm() {
            return Vec::new();
        }
        let inner = self.inner();
        let statements = inner.collided.iter().map(|it| Spot::Statement(*it));
        let mut spots: Vec<_> = statements.chain(inner.family.map(Spot::Family)).collect();
        drop(inner);
        spots.retain(|spot| contention.is_known(*spot));
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// Where a transaction has to ask before it runs a statement; in its first one, which makes its
    /// `family`, also there.
    pub(crate) fn spots_at(
        &self,
        statement: impl FnOnce() -> u64,
        family: impl FnOnce() -> u64,
    ) -> Vec<Spot> {
        let mut inner = self.inner();
        let mut spots = Vec::new();
        if inner.family.is_none() {
            let family = family();
            inner.family = Some(family);
            spots.push(Spot::Family(family));
        }
        if self.contention.is_calm() || inner.is_over {
            return Vec::new();
        }
        spots.insert(0, Spot::Statement(statement()));
        spots.retain(|spot| !inner.spots.contains(spot));
        drop(inner);
        spots.retain(|spot| self.contention.is_known(*spot));
        spots
    }

    /// Asks for turns, and waits for them.
    pub(crate) async fn pass(self: Arc<Self>, spots: Vec<Spot>) {
        let contention = &self.contention;
        let spots = if self.is_nested { Vec::new() } else { spots };
        for spot in spots {
            if let Some(bell) = self.ask(spot) {
                let start = contention.clock.now();
                let waiting = Waiting { visit: &self, spot, bell };
                waiting.until_it_may_go_on().await;
                let now = contention.clock.now();
                self.inner().began = now;
                contention.recorder.turns_waited.add(1);
                contention.recorder.turn_wait_seconds.record_time(now.saturating_sub(start));
            }
        }
    }

    /// Asks for a turn; tells by what the visit is told of it, if it has to wait.
    fn ask(&self, spot: Spot) -> Option<Arc<Bell>> {
        let is_statement = matches!(spot, Spot::Statement(_));
        let inner = self.inner();
        let held = inner.spots.clone();
        let is_behind = |held: &Spot| matches!(held, Spot::Family(_)) || *held < spot;
        let may_wait = held.iter().all(is_behind) && !inner.is_over;
        drop(inner);
        let given_back: Vec<_> =
            held.into_iter().filter(|held| is_statement && *held > spot).collect();
        let asked = self.contention.change(|state, now, changes| {
            let schedule = &mut state.schedule;
            let answer = match state.is_closed {
                true => Answer::Free,
                false => schedule.ask(now, spot, self.visitor, self.manner),
            };
            if answer != Answer::Waits {
                return (answer, None);
            }
            if !may_wait {
                schedule.leave(now, spot, self.visitor, End::Other, changes);
                return (Answer::Free, None);
            }
            for family in &given_back {
                schedule.leave(now, *family, self.visitor, End::Other, changes);
            }
            let bell = Arc::<Bell>::default();
            state.waiting.insert((spot, self.visitor), Arc::clone(&bell));
            (Answer::Waits, Some(bell))
        });
        let (Answer::Turn | Answer::Waits, bell) = asked else { return None };
        let mut inner = self.inner();
        if bell.is_some() {
            inner.spots.retain(|spot| !given_back.contains(spot));
        }
        inner.spots.push(spot);
        inner.needs_newer |= is_statement;
        let is_over = inner.is_over;
        drop(inner);
        if is_over {
            self.withdraw(spot);
            return None;
        }
        bell
    }

    /// Whether the statement that runs next needs a snapshot that was taken after this.
    pub(crate) fn take_needs_newer(&self) -> bool {
        std::mem::take(&mut self.inner().needs_newer)
    }

    /// A statement has answered this.
    pub(crate) fn note_answer(&self, statement: impl FnOnce() -> u64, answer: u128) {
        if self.contention.is_calm() || !self.has_turn() {
            return;
        }
        let spot = Spot::Statement(statement());
        self.contention.change(|state, now, changes| {
            state.schedule.note_answer(now, spot, self.visitor, answer, changes);
        });
    }

    /// The attempt has ended in a conflict: the statement `at` of its `statements` answered
    /// otherwise.
    pub(crate) fn note_conflict(&self, at: u64, statements: impl Iterator<Item = u64>) {
        let took = self.took();
        let mut inner = self.inner();
        inner.collided = statements.take(REMEMBERED).chain([at]).collect();
        let family = inner.family;
        drop(inner);
        self.contention.change(|state, now, _| {
            if state.is_closed {
                return;
            }
            state.schedule.note_conflict(now, Spot::Statement(at), took);
            if let Some(family) = family {
                state.schedule.note_conflict(now, Spot::Family(family), took);
            }
        });
        self.finish(End::Conflict);
    }

    /// Whether it has a turn, or waits for one.
    pub(crate) fn has_turn(&self) -> bool {
        !self.inner().spots.is_empty()
    }

    /// The writer has done all of it, and it will be visible with the batch.
    pub(crate) fn note_committed(self: &Arc<Self>) {
        if !self.has_turn() {
            return;
        }
        let contention = &self.contention;
        let mut committed = contention.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.push(Arc::clone(self));
        contention.has_committed.store(true, Ordering::Relaxed);
    }

    /// Gives all turns back.
    pub(crate) fn finish(&self, end: End) {
        let mut inner = self.inner();
        inner.is_over = true;
        let spots = std::mem::take(&mut inner.spots);
        drop(inner);
        if spots.is_empty() {
            return;
        }
        self.contention.change(|state, now, changes| {
            for spot in spots {
                state.schedule.leave(now, spot, self.visitor, end, changes);
                // Should it wait there, it need not.
                changes.granted.push((spot, self.visitor));
            }
        });
    }

    /// Gives up the wait at `spot`.
    fn withdraw(&self, spot: Spot) {
        self.inner().spots.retain(|it| *it != spot);
        self.contention.change(|state, now, changes| {
            state.waiting.remove(&(spot, self.visitor));
            state.schedule.leave(now, spot, self.visitor, End::Other, changes);
        });
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // In a forked process the holder of a lock may be gone.
        if self.contention.database.check_process().is_ok() {
            self.finish(End::Other);
        }
    }
}

/// A wait at a spot; when it is dropped before its end, the place in the queue is given up.
struct Waiting<'v> {
    visit: &'v Visit,
    spot: Spot,
    bell: Arc<Bell>,
}

impl Waiting<'_> {
    async fn until_it_may_go_on(self) {
        let (mut alarm, mut has_looked) = (Alarm::default(), false);
        poll_fn(|context| {
            loop {
                if self.bell.poll(context).is_ready() {
                    return Poll::Ready(());
                }
                let Some(time) = self.next_look() else { return Poll::Pending };
                if time.is_zero() && !std::mem::replace(&mut has_looked, true) {
                    self.look();
                } else if alarm.set(time, context).is_pending() {
                    has_looked = false;
                    return Poll::Pending;
                }
            }
        })
        .await;
    }

    fn next_look(&self) -> Option<Duration> {
        let (spot, visitor) = (self.spot, self.visit.visitor);
        self.visit.contention.change(|state, now, _| state.schedule.next_look(now, spot, visitor))
    }

    fn look(&self) {
        let contention = &self.visit.contention;
        let lost =
            contention.change(|state, now, changes| state.schedule.look(now, self.spot, changes));
        contention.recorder.turns_taken_away.add(lost as u64);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.bell.rung().may_go_on {
            self.visit.withdraw(self.spot);
        }
    }
}

/// Wakes waiting threads after a time.
#[derive(Default)]
struct Alarm(Option<Delay>);

impl Alarm {
    /// Ready if the time is over already.
    fn set(&mut self, time: Duration, context: &mut Context<'_>) -> Poll<()> {
        // A model has no time.
        if cfg!(all(test, shuttle)) {
            return Poll::Pending;
        }
        Pin::new(self.0.insert(Delay::new(time.max(TICK)))).poll(context)
    }
}
