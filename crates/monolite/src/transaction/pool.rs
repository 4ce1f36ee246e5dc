//! Owns the pool of connections on which interactive transactions run, fewer than there are
//! transactions.
//!
//! # Algorithm
//! 1. A [`PooledConnection`] is an **overlay** on a snapshot that a [`Pin`] keeps: a connection
//!    that sees the snapshot and the transaction's own writes, and shows them to no other.
//!    Where there can be no overlay it is an ordinary reader, which a transaction leaves with its
//!    first write.
//! 2. Between two statements a transaction leaves its connection **parked**. If it was not taken by
//!    the next statement, the transaction goes on where it was.
//! 3. Otherwise the transaction gets another connection and a newer snapshot, and the caller
//!    replays on it what the transaction did so far. So a parked connection can be taken at any
//!    moment, by a transaction that needs one or by the checkpointer.
//! 4. Which one is taken away: the one that was parked first if that is longer ago than the age
//!    that a snapshot may reach, else the one that was parked last. Transactions that sleep equally
//!    long come back in the order in which they left, so the one that left last is awaited longest;
//!    taking the first would take from each in turn.
//! 5. While more transactions are open than there are connections, nothing is parked: most would be
//!    taken away, and the few connections that serve all of them keep warm page caches.
//! 6. A **long** transaction would be replayed for longer and longer before each of its statements.
//!    So its connection is parked whatever the number of transactions, does not count among those
//!    that there may be (up to as many again), and is taken away last. A thread that waited for a
//!    core took long, too, so what is not very long has to take long twice: when its statements
//!    were run, and when they were replayed.
//!
//! # Threads and locks
//! `state` is held for a few instructions; nothing is opened, begun or ended under it, but at the
//! close.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::vfs::{Changes, WalControl};

use super::connection::{PooledConnection, ReadSet};
use super::pins::Pins;
use crate::activity::Activity;
use crate::activity::slow::SlowLog;
use crate::call::member::Terms;
use crate::call::watch::{Watch, longest};
use crate::clock::{Clock, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::progress::Progress;
use crate::read::holders::SnapshotHolder;
use crate::read::readers::{OpenReader, Reader};
use crate::threads::Awake;
use crate::tx::Tx;

/// Time that the statements of a transaction take together, from which on it is a long one: to
/// replay it costs ten times what it costs to take a new snapshot.
const LONG: Duration = Duration::from_micros(100);

/// As [`LONG`], also when it was not replayed yet: no thread that can run waits so long for a core.
const VERY_LONG: Duration = Duration::from_millis(20);

/// How often a waiter looks whether a statement has overrun its time, so that its connection does
/// not count any more.
const LOOK: Duration = Duration::from_millis(50);

/// Opens the connections of transactions.
pub(crate) struct PoolOpener {
    /// A reader: it pins snapshots, and is in the pool itself where there are no overlays.
    pub(crate) reader: OpenReader,
    /// An overlay; `None` where there can be none.
    pub(crate) overlay: Box<dyn Fn() -> Result<Option<Reader>> + Send + Sync>,
}

/// Where a statement begins.
pub(crate) enum Start {
    /// The first of its transaction: everything that was committed before is in its snapshot.
    First,
    Later,
    /// As `Later`; on the newest snapshot if its own is older than this and its leading reads would
    /// meet a change there.
    Unless(Duration),
}

/// What is to be remembered of a connection that is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    /// What its leading reads have read.
    LeadingReads,
}

/// What it costs to take a connection away from its transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Time that the transaction's statements have taken, and would take again.
    pub(crate) work: Duration,
    /// Time that the latest replay of them took.
    replay: Duration,
}

impl Cost {
    fn is_long(&self) -> bool {
        self.work >= VERY_LONG || self.work.min(self.replay) >= LONG
    }

    /// A replay that took so long was necessary.
    pub(crate) fn note_replay(&mut self, took: Duration) {
        self.replay = took;
    }
}

/// A place in the pool at which a transaction left its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parked(pub(super) u64);

/// What a transaction has of the connection of its last statement.
pub(crate) enum Left {
    Parked(Parked),
    /// Nothing but the pages it had read, where they are known.
    Gone(Option<ReadSet>),
}

struct Waiting {
    connection: Box<PooledConnection>,
    since: Duration,
    is_long: bool,
}

#[derive(Default)]
struct PoolState {
    #[expect(clippy::vec_box, reason = "connections move between here and their users")]
    vacant: Vec<Box<PooledConnection>>,
    parked: BTreeMap<Parked, Waiting>,
    /// How many of those are of long transactions.
    parked_long: usize,
    /// One for each connection that is open.
    watches: Vec<Arc<Watch>>,
    opening: usize,
    /// How often one was taken.
    taken: u64,
    /// Connections that are being closed, outside of the lock.
    closing: usize,
    next: u64,
    closed: bool,
    /// Threads that sleep until a connection is free or gone. (A signal is a system call, also
    /// without waiters.)
    waiting: usize,
}

impl PoolState {
    fn park(&mut self, waiting: Waiting) -> Parked {
        let place = Parked(self.next);
        self.next += 1;
        self.parked_long += usize::from(waiting.is_long);
        let before = self.parked.insert(place, waiting);
        assert!(before.is_none(), "a place is given once");
        place
    }

    fn unpark(&mut self, place: Parked) -> Option<Waiting> {
        assert!(self.parked_long <= self.parked.len(), "long transactions are among the parked");
        let waiting = self.parked.remove(&place)?;
        self.parked_long -= usize::from(waiting.is_long);
        Some(waiting)
    }

    /// The parked connection that is missed least, see the header.
    fn take_away(&mut self, now: Duration, age: Duration) -> Option<Box<PooledConnection>> {
        let (first, waiting) = self.parked.first_key_value()?;
        let is_old = now.saturating_sub(waiting.since) > age;
        let short = || self.parked.iter().rev().find(|(_, it)| !it.is_long);
        let last = || short().or_else(|| self.parked.last_key_value());
        let place = if is_old { *first } else { *last()?.0 };
        self.unpark(place).map(|waiting| waiting.connection)
    }

    /// How many more connections there are than `most`. Those do not count that long transactions
    /// keep while they rest, up to as many again, nor, by the same measure, those whose statement
    /// has overrun its time.
    fn surplus(&self, most: usize, is_overdue: impl Fn(&Watch) -> bool) -> isize {
        let over = (self.watches.len() + self.opening) as isize - most as isize;
        let over = over - self.parked_long.min(most) as isize;
        // Only where it matters: each is looked at.
        if over < 0 {
            return over;
        }
        over - self.watches.iter().filter(|watch| is_overdue(watch)).count().min(most) as isize
    }
}

/// All connections of a database.
pub(crate) struct Pool {
    state: Mutex<PoolState>,
    freed: Condvar,
    pins: Pins,
    opener: PoolOpener,
    most: usize,
    age: Duration,
    /// How long a statement may take.
    time_limit: Duration,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    changes: Arc<WalControl>,
    awake: Arc<Awake>,
    slow: SlowLog,
}

/// A connection in the hands of one statement.
pub(crate) struct HeldConnection<'s> {
    pool: &'s Pool,
    connection: Option<Box<PooledConnection>>,
    /// Whether the transaction's own snapshot is still open on it.
    pub(crate) is_warm: bool,
}

impl Pool {
    pub(crate) fn new(
        opener: PoolOpener,
        options: &Options,
        progress: Arc<Progress>,
        changes: Arc<WalControl>,
        awake: Arc<Awake>,
        slow: SlowLog,
    ) -> Pool {
        let (state, freed) = (Mutex::default(), Condvar::new());
        let (open, clock) = (Arc::clone(&opener.reader), Arc::clone(&options.clock));
        Pool {
            state,
            freed,
            pins: Pins::new(open, Arc::clone(&clock), Arc::clone(&progress)),
            opener,
            most: options.interactive.connections,
            age: options.interactive.snapshot_age,
            time_limit: options.read_time_limit,
            clock,
            progress,
            changes,
            awake,
            slow,
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_overdue(&self, watch: &Watch, now: Duration) -> bool {
        watch.is_overdue(now, self.time_limit)
    }

    /// A connection for the next statement of a transaction under `terms`: the one that was parked
    /// if it is still there, else one with another snapshot. Waits while every connection runs a
    /// statement, for `limit` at most.
    ///
    /// # Errors
    /// `Closed`; `Timeout` when none became free; those of opening a connection and of beginning.
    pub(crate) fn take(
        &self,
        terms: Terms,
        parked: Option<Parked>,
        start: Start,
        limit: Duration,
    ) -> Result<HeldConnection<'_>> {
        let now = self.clock.now();
        let mut state = self.state();
        state.taken += 1;
        if let Some(waiting) = parked.and_then(|parked| state.unpark(parked)) {
            drop(state);
            let (connection, rested) = (waiting.connection, now.saturating_sub(waiting.since));
            let is_to_move = self.is_to_move(&connection, &start, now);
            let is_warm = rested <= self.age && !is_to_move;
            if !is_warm {
                connection.end();
            }
            let start = if is_to_move { Start::First } else { start };
            return self.hold(terms, connection, is_warm, start);
        }
        let patience = Patience::of(limit);
        loop {
            if state.closed {
                return Err(Error::closed());
            }
            if let Some(connection) = state.vacant.pop() {
                drop(state);
                return self.hold(terms, connection, false, start);
            }
            let now = self.clock.now();
            if state.surplus(self.most, |watch| self.is_overdue(watch, now)) < 0 {
                state.opening += 1;
                drop(state);
                let connection = self.open_one()?;
                return self.hold(terms, connection, false, start);
            }
            if let Some(connection) = state.take_away(now, self.age) {
                drop(state);
                connection.end();
                return self.hold(terms, connection, false, start);
            }
            let left = patience.left();
            if left.is_zero() {
                drop(state);
                return Err(none_free(self.most, limit, self.longest()));
            }
            state = self.wait(state, LOOK.min(left));
        }
    }

    /// The statement that has been running for longest.
    fn longest(&self) -> Option<Activity> {
        longest(&self.watches(), self.progress.exposed(), self.clock.now())
    }

    fn is_to_move(&self, connection: &PooledConnection, start: &Start, now: Duration) -> bool {
        let Start::Unless(patience) = start else { return false };
        let is_old = |taken| now.saturating_sub(taken) > *patience;
        connection.taken().is_some_and(is_old)
            && connection.have_leading_reads_changed(self.changes())
    }

    fn wait<'p>(
        &self,
        mut state: MutexGuard<'p, PoolState>,
        time: Duration,
    ) -> MutexGuard<'p, PoolState> {
        state.waiting += 1;
        let waited = self.freed.wait_timeout(state, time);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        assert!(state.waiting > 0, "a thread that waits is counted");
        state.waiting -= 1;
        state
    }

    fn signal(&self, state: MutexGuard<'_, PoolState>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.freed.notify_all();
        }
    }

    fn open_one(&self) -> Result<Box<PooledConnection>> {
        let opened = self.open_connection();
        let mut state = self.state();
        assert!(state.opening > 0, "a connection that is being opened is counted");
        state.opening -= 1;
        if let Ok(connection) = &opened {
            state.watches.push(Arc::clone(connection.watch()));
        }
        self.signal(state);
        opened
    }

    fn open_connection(&self) -> Result<Box<PooledConnection>> {
        let overlay = (self.opener.overlay)()?;
        let is_overlay = overlay.is_some();
        let reader = overlay.map_or_else(|| (self.opener.reader)(), Ok)?;
        Ok(Box::new(PooledConnection::new(reader, is_overlay, &self.clock)))
    }

    fn hold(
        &self,
        terms: Terms,
        connection: Box<PooledConnection>,
        is_warm: bool,
        start: Start,
    ) -> Result<HeldConnection<'_>> {
        let held = HeldConnection { pool: self, connection: Some(connection), is_warm };
        let connection = held.connection();
        let now = self.clock.now();
        if !is_warm {
            connection.set_foreign_keys(terms.foreign_keys)?;
        }
        match (is_warm, connection.is_overlay()) {
            (true, _) => {}
            (false, true) => connection.begin_on(match start {
                Start::First => self.pins.pin(true, self.age)?,
                Start::Later | Start::Unless(_) => self.pins.pin(false, self.age)?,
            })?,
            (false, false) => connection.begin(&self.progress, now)?,
        }
        connection.watch().trace().begin(terms.caller);
        connection.watch().begin(now);
        self.awake.note();
        Ok(held)
    }

    /// Ends the snapshot of a transaction that is over.
    pub(crate) fn give_up(&self, parked: Parked) {
        self.finish(parked, |_| ());
    }

    /// As [`Pool::give_up`]; tells which pages the leading reads of the transaction have read.
    /// `None` when that is not known, because the connection was taken, or an answer depended on
    /// more than pages.
    pub(crate) fn read_set(&self, parked: Parked) -> Option<ReadSet> {
        self.finish(parked, PooledConnection::read_set).flatten()
    }

    fn finish<T>(&self, parked: Parked, last: impl FnOnce(&PooledConnection) -> T) -> Option<T> {
        let Waiting { connection, .. } = self.state().unpark(parked)?;
        let result = last(&connection);
        connection.end();
        self.vacate(connection);
        Some(result)
    }

    /// Which pages were changed when.
    pub(crate) fn changes(&self) -> &Changes {
        self.changes.changes()
    }

    /// Whether a connection is still parked there.
    pub(crate) fn has(&self, parked: Parked) -> bool {
        self.state().parked.contains_key(&parked)
    }

    fn leave(&self, connection: Box<PooledConnection>, left: Left) -> Left {
        connection.end();
        self.vacate(connection);
        left
    }

    fn vacate(&self, connection: Box<PooledConnection>) {
        let mut state = self.state();
        let is_overdue = |watch: &Watch| self.is_overdue(watch, self.clock.now());
        if !state.closed && state.surplus(self.most, is_overdue) > 0 {
            state.watches.retain(|watch| !Arc::ptr_eq(watch, connection.watch()));
            state.closing += 1;
            drop(state);
            drop(connection);
            state = self.state();
            assert!(state.closing > 0, "a connection that is being closed is counted");
            state.closing -= 1;
        } else {
            assert!(state.vacant.len() < state.watches.len(), "a connection is given back once");
            // If the pool is closed, its close closes the connection.
            state.vacant.push(connection);
        }
        self.signal(state);
        // Who closes it when it is not used any more may have left.
        self.awake.note();
    }

    fn rested(&self, now: Duration, age: Duration) -> Option<Box<PooledConnection>> {
        let mut state = self.state();
        let (first, waiting) = state.parked.first_key_value()?;
        let place = (now.saturating_sub(waiting.since) >= age).then_some(*first)?;
        state.unpark(place).map(|waiting| waiting.connection)
    }

    /// Waits for running statements to end, closes all connections, and refuses statements from
    /// then on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        loop {
            state.parked_long = 0;
            let parked = std::mem::take(&mut state.parked).into_values().map(|it| it.connection);
            let connections: Vec<_> = parked.chain(std::mem::take(&mut state.vacant)).collect();
            for connection in &connections {
                connection.end();
                state.watches.retain(|watch| !Arc::ptr_eq(watch, connection.watch()));
            }
            drop(connections);
            if state.watches.is_empty() && state.opening == 0 && state.closing == 0 {
                break;
            }
            state = self.wait(state, LOOK);
        }
        let are_closed = state.parked.is_empty() && state.vacant.is_empty();
        assert!(are_closed, "no connection outlives the pool");
        self.signal(state);
        self.pins.close();
    }
}

impl HeldConnection<'_> {
    pub(crate) fn connection(&self) -> &PooledConnection {
        self.connection.as_ref().expect("a connection is held until it is parked or dropped")
    }

    /// As [`PooledConnection::run`].
    pub(crate) fn run<T>(
        &self,
        limit: Duration,
        body: impl FnOnce(&Tx<'_>) -> T,
        failure: impl FnOnce(&T) -> Option<&Error>,
    ) -> Result<T> {
        self.connection().run(&*self.pool.clock, &self.pool.slow, limit, body, failure)
    }

    /// Leaves the connection for a transaction that is one of `open`: with its snapshot, or, when
    /// those are too many and it is not a long one, with `memory` of it.
    pub(crate) fn leave(mut self, open: usize, memory: Memory, cost: &Cost) -> Left {
        let mut connection = self.connection.take().expect("a connection is left once");
        if connection.watch().end() {
            connection.restore_after_revocation();
            return self.pool.leave(connection, Left::Gone(None));
        }
        let is_long = cost.is_long();
        if open > self.pool.most && !is_long {
            let left = match memory {
                Memory::Nothing => Left::Gone(None),
                Memory::LeadingReads => Left::Gone(connection.read_set()),
            };
            return self.pool.leave(connection, left);
        }
        let since = self.pool.clock.now();
        let mut state = self.pool.state();
        if state.closed {
            drop(state);
            return self.pool.leave(connection, Left::Gone(None));
        }
        let place = state.park(Waiting { connection, since, is_long });
        self.pool.signal(state);
        Left::Parked(place)
    }
}

impl Drop for HeldConnection<'_> {
    /// Leaves the connection to others, after an error or a panic.
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if connection.watch().end() {
            connection.restore_after_revocation();
        }
        connection.end();
        self.pool.vacate(connection);
    }
}

impl SnapshotHolder for Pool {
    fn release_idle(&self, age: Duration) -> Option<Duration> {
        let now = self.clock.now();
        while let Some(connection) = self.rested(now, age) {
            connection.end();
            self.vacate(connection);
        }
        self.pins.release();
        let exposed = self.progress.exposed();
        self.state().watches.iter().filter_map(|it| it.outdated_for(exposed, now)).max()
    }

    fn waiting(&self) -> usize {
        self.state().waiting
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        self.state().watches.clone()
    }

    /// They look by themselves, every [`LOOK`].
    fn wake_waiters(&self) {}

    fn uses(&self) -> u64 {
        self.state().taken
    }

    fn close_idle(&self) {
        let mut state = self.state();
        let vacant = std::mem::take(&mut state.vacant);
        let is_vacant = |watch: &Arc<Watch>| vacant.iter().any(|it| Arc::ptr_eq(watch, it.watch()));
        state.watches.retain(|watch| !is_vacant(watch));
        state.closing += vacant.len();
        drop(state);
        let closed = vacant.len();
        drop(vacant);
        self.pins.close_idle();
        let mut state = self.state();
        assert!(state.closing >= closed, "a connection that is being closed is counted");
        state.closing -= closed;
        self.signal(state);
    }
}

fn none_free(most: usize, limit: Duration, longest: Option<Activity>) -> Error {
    let longest = longest.map_or_else(String::new, |it| format!(", one {}", it.held()));
    let message = format!(
        "none of the {most} connections for interactive transactions was free within {limit:.1?}: \
         statements run on all of them{longest}; end those, or raise \
         InteractiveOptions::connections"
    );
    Error::new(ErrorKind::Timeout, message)
}

#[cfg(test)]
mod tests;
