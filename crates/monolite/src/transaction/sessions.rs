//! Owns the pool of connections on which interactive transactions run, fewer than there are
//! transactions.
//!
//! # Algorithm
//! 1. A [`Session`] is an **overlay** on a snapshot that a [`Pin`] keeps: a connection that sees
//!    the snapshot and the transaction's own writes, and gives none of them to anybody. Where there
//!    can be no overlay it is an ordinary reader, which a transaction leaves with its first write.
//! 2. Between two statements a transaction leaves its session **parked**. If nobody else has needed
//!    it by the next statement, the transaction goes on where it was.
//! 3. Otherwise the transaction gets another session and a newer snapshot, and the caller replays
//!    on it what the transaction did so far. A parked session is therefore nobody's property: it
//!    can be taken away at any moment, by a transaction that needs one or by the checkpointer.
//! 4. Which one is taken away: the one that was parked first if that is longer ago than the age
//!    that a snapshot may reach, else the one that was parked last. Transactions that sleep equally
//!    long come back in the order in which they left, so the one that left last is awaited longest;
//!    taking the first would take from everybody in turn.
//! 5. While more transactions are open than there are sessions, nothing is parked: most would be
//!    taken away, and the few sessions that serve all of them keep warm page caches.
//! 6. A transaction that has only changed rows keeps its snapshot then, and the numbers of the
//!    pages that it changed ([`WriteSet`]). Its next change can run on that snapshot without those
//!    before it: if it uses none of these pages, it does what it would have done behind them.
//! 7. A **long** transaction would be replayed for longer and longer before each of its statements.
//!    So its session is parked whatever the number of transactions, does not count among those that
//!    there may be (up to as many again), and is taken away last. When it is taken away all the
//!    same, the replay that follows earns the transaction an undisturbed time of the same length,
//!    as long as it keeps coming back. So replays take half of the sessions' time at most. A thread
//!    that waited for a core took long, too, so what is not very long has to take long twice: when
//!    its statements were run, and when they were replayed.
//!
//! # Threads and locks
//! `pool` is held for a few instructions; nothing is opened, begun or ended under it, but at the
//! close.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use monolite_sqlite::vfs::{Changes, WalControl};

use super::pins::{Pin, Pins};
use super::session::{ReadSet, Session, WriteSet};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::holders::SnapshotHolder;
use crate::progress::Progress;
use crate::readers::{OpenReader, Reader};
use crate::tx::Tx;
use crate::watch::Watch;

/// Time that the statements of a transaction take together, from which on it is a long one: to
/// replay it costs ten times what it costs to take a new snapshot.
const LONG: Duration = Duration::from_micros(100);

/// As [`LONG`], also when it was not replayed yet: no thread that can run waits so long for a core.
const VERY_LONG: Duration = Duration::from_millis(20);

/// Longest undisturbed time: others may be waiting.
const MAX_UNDISTURBED: Duration = Duration::from_millis(250);

/// A transaction keeps its undisturbed time while it rests no longer than this part of it between
/// two statements.
const REST_PARTS: u32 = 4;

/// How often somebody who waits looks whether a statement has overrun its time, so that its
/// connection does not count any more.
const LOOK: Duration = Duration::from_millis(50);

/// Opens the connections of transactions.
pub(crate) struct Opener {
    /// A connection that pins snapshots, or is a session where there are no overlays.
    pub(crate) reader: OpenReader,
    /// An overlay; `None` where there can be none.
    pub(crate) overlay: Box<dyn Fn() -> Result<Option<Reader>> + Send + Sync>,
}

/// Where a statement begins.
pub(crate) enum Start {
    /// The first of its transaction: everything that was committed before is in its snapshot.
    First,
    Later,
    On(Arc<Pin>),
}

/// What is to be remembered of a session that is not parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Nothing,
    /// What its leading reads have read.
    LeadingReads,
    /// What was changed: that is all the transaction did.
    Changes,
}

/// What it costs to take a session away from its transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Time that the transaction's statements have taken, and would take again.
    pub(crate) work: Duration,
    /// Time that the latest replay of them took.
    replay: Duration,
    /// Until when it is undisturbed.
    pub(crate) undisturbed_until: Duration,
    /// How long it may rest and stay so.
    rest: Duration,
}

impl Cost {
    fn is_long(&self) -> bool {
        self.work >= VERY_LONG || self.work.min(self.replay) >= LONG
    }

    /// A replay that ended `now` and took so long was necessary.
    pub(crate) fn note_replay(&mut self, took: Duration, now: Duration) {
        self.replay = took;
        let earned = if took >= LONG { took.min(MAX_UNDISTURBED) } else { Duration::ZERO };
        self.undisturbed_until = now + earned;
        self.rest = earned / REST_PARTS;
    }
}

/// A place in the pool that a transaction left its session at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parked(u64);

/// What a transaction has of the session of its last statement.
pub(crate) enum Left {
    Parked(Parked),
    /// Nothing but the pages it had read, where they are known.
    Gone(Option<ReadSet>),
    /// Nothing but what it has changed.
    Wrote(WriteSet),
}

struct Waiting {
    session: Box<Session>,
    since: Duration,
    is_long: bool,
    undisturbed_until: Duration,
}

#[derive(Default)]
struct Pool {
    #[expect(clippy::vec_box, reason = "sessions move between here and their users")]
    vacant: Vec<Box<Session>>,
    parked: BTreeMap<Parked, Waiting>,
    /// How many of those are of long transactions.
    parked_long: usize,
    /// One for each session that is open.
    watches: Vec<Arc<Watch>>,
    opening: usize,
    /// Sessions that are being closed, outside of the lock.
    closing: usize,
    next: u64,
    closed: bool,
    /// Threads that sleep until a session is free or gone. (A signal is a system call, also when
    /// nobody waits for it.)
    waiting: usize,
}

/// What [`Pool::take_away`] found.
enum TakenAway {
    Session(Box<Session>),
    /// Those that are parked are undisturbed until then.
    NotBefore(Duration),
    Nothing,
}

impl Pool {
    fn park(&mut self, waiting: Waiting) -> Parked {
        let place = Parked(self.next);
        self.next += 1;
        self.parked_long += usize::from(waiting.is_long);
        self.parked.insert(place, waiting);
        place
    }

    fn unpark(&mut self, place: Parked) -> Option<Waiting> {
        let waiting = self.parked.remove(&place)?;
        self.parked_long -= usize::from(waiting.is_long);
        Some(waiting)
    }

    /// The parked session that is missed least, see the header.
    fn take_away(&mut self, now: Duration, age: Duration) -> TakenAway {
        let Some((first, waiting)) = self.parked.first_key_value() else {
            return TakenAway::Nothing;
        };
        let is_old = now.saturating_sub(waiting.since) > age;
        let short = || self.parked.iter().rev().find(|(_, it)| !it.is_long);
        let disturbable = || self.parked.iter().rev().find(|(_, it)| it.undisturbed_until <= now);
        let place = if is_old {
            Some(*first)
        } else {
            short().or_else(disturbable).map(|(place, _)| *place)
        };
        match place.and_then(|place| self.unpark(place)) {
            Some(waiting) => TakenAway::Session(waiting.session),
            None => {
                let ends = self.parked.values().map(|it| it.undisturbed_until);
                ends.min().map_or(TakenAway::Nothing, TakenAway::NotBefore)
            }
        }
    }

    /// How many more sessions there are than `most`. Those do not count that long transactions keep
    /// while they rest, up to as many again, nor, by the same measure, those whose statement has
    /// overrun its time.
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

/// All sessions of a database.
pub(crate) struct Sessions {
    pool: Mutex<Pool>,
    freed: Condvar,
    pins: Pins,
    opener: Opener,
    most: usize,
    age: Duration,
    /// How long a statement may take.
    time_limit: Duration,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    changes: Arc<WalControl>,
}

/// A session in the hands of one statement.
pub(crate) struct Held<'s> {
    sessions: &'s Sessions,
    session: Option<Box<Session>>,
    /// Whether the transaction's own snapshot is still open on it.
    pub(crate) is_warm: bool,
}

impl Sessions {
    pub(crate) fn new(
        opener: Opener,
        (most, age, time_limit): (usize, Duration, Duration),
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        changes: Arc<WalControl>,
    ) -> Sessions {
        let (pool, freed) = (Mutex::default(), Condvar::new());
        let open = Arc::clone(&opener.reader);
        let (time, told) = (Arc::clone(&clock), Arc::clone(&progress));
        let pins = Pins::new(open, most, time, told);
        Sessions { pool, freed, pins, opener, most, age, time_limit, clock, progress, changes }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_overdue(&self, watch: &Watch, now: Duration) -> bool {
        watch.is_overdue(now, self.time_limit)
    }

    /// A session for the next statement of a transaction: the one that was parked if it is still
    /// there, else one with another snapshot. Waits while every session runs a statement, for
    /// `limit` at most.
    ///
    /// # Errors
    /// `Closed`; `Timeout` when none became free; those of opening a connection and of beginning.
    pub(crate) fn take(
        &self,
        parked: Option<Parked>,
        start: Start,
        limit: Duration,
    ) -> Result<Held<'_>> {
        let now = self.clock.now();
        let mut pool = self.pool();
        if let Some(waiting) = parked.and_then(|parked| pool.unpark(parked)) {
            drop(pool);
            let is_warm = now.saturating_sub(waiting.since) <= self.age;
            if !is_warm {
                waiting.session.end();
            }
            return self.hold(waiting.session, is_warm, start);
        }
        let give_up = Instant::now() + limit;
        loop {
            if pool.closed {
                return Err(closed());
            }
            if let Some(session) = pool.vacant.pop() {
                drop(pool);
                return self.hold(session, false, start);
            }
            let now = self.clock.now();
            if pool.surplus(self.most, |watch| self.is_overdue(watch, now)) < 0 {
                pool.opening += 1;
                drop(pool);
                let session = self.open_one()?;
                return self.hold(session, false, start);
            }
            let patience = match pool.take_away(now, self.age) {
                TakenAway::Session(session) => {
                    drop(pool);
                    session.end();
                    return self.hold(session, false, start);
                }
                TakenAway::NotBefore(moment) => moment.saturating_sub(now).min(LOOK),
                TakenAway::Nothing => LOOK,
            };
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(none_free(self.most, limit));
            }
            pool = self.wait(pool, patience.min(left));
        }
    }

    fn wait<'p>(&self, mut pool: MutexGuard<'p, Pool>, time: Duration) -> MutexGuard<'p, Pool> {
        pool.waiting += 1;
        let waited = self.freed.wait_timeout(pool, time);
        let mut pool = waited.unwrap_or_else(PoisonError::into_inner).0;
        pool.waiting -= 1;
        pool
    }

    fn signal(&self, pool: MutexGuard<'_, Pool>) {
        let is_awaited = pool.waiting > 0;
        drop(pool);
        if is_awaited {
            self.freed.notify_all();
        }
    }

    fn open_one(&self) -> Result<Box<Session>> {
        let opened = self.open_session();
        let mut pool = self.pool();
        pool.opening -= 1;
        if let Ok(session) = &opened {
            pool.watches.push(Arc::clone(session.watch()));
        }
        self.signal(pool);
        opened
    }

    fn open_session(&self) -> Result<Box<Session>> {
        let overlay = (self.opener.overlay)()?;
        let is_overlay = overlay.is_some();
        let reader = overlay.map_or_else(|| (self.opener.reader)(), Ok)?;
        Ok(Box::new(Session::new(reader, is_overlay)))
    }

    fn hold(&self, session: Box<Session>, is_warm: bool, start: Start) -> Result<Held<'_>> {
        let held = Held { sessions: self, session: Some(session), is_warm };
        let session = held.session();
        let now = self.clock.now();
        match (is_warm, session.is_overlay()) {
            (true, _) => {}
            (false, true) => session.begin_on(match start {
                Start::On(pin) => pin,
                Start::First => self.pins.pin(true, self.age)?,
                Start::Later => self.pins.pin(false, self.age)?,
            })?,
            (false, false) => session.begin(&self.progress, now)?,
        }
        session.watch().begin(now);
        Ok(held)
    }

    /// A session on the snapshot of `wrote`, without the changes; `None` when that is gone.
    ///
    /// # Errors
    /// As [`Sessions::take`].
    pub(crate) fn take_without(
        &self,
        wrote: &WriteSet,
        limit: Duration,
    ) -> Result<Option<Held<'_>>> {
        let pin = wrote.kept.pin(self.clock.now(), self.age);
        pin.map(|pin| self.take(None, Start::On(pin), limit)).transpose()
    }

    /// Ends the snapshot of a transaction that is over.
    pub(crate) fn give_up(&self, parked: Parked) {
        self.finish(parked, |_| ());
    }

    /// As [`Sessions::give_up`]; tells which pages the leading reads of the transaction have read.
    /// `None` when that is not known, because somebody else has taken the session or other things
    /// than pages were read.
    pub(crate) fn read_set(&self, parked: Parked) -> Option<ReadSet> {
        self.finish(parked, Session::read_set).flatten()
    }

    fn finish<T>(&self, parked: Parked, last: impl FnOnce(&Session) -> T) -> Option<T> {
        let Waiting { session, .. } = self.pool().unpark(parked)?;
        let result = last(&session);
        session.end();
        self.vacate(session);
        Some(result)
    }

    /// Which pages were changed when.
    pub(crate) fn changes(&self) -> &Changes {
        self.changes.changes()
    }

    fn wrote(&self, session: &Session) -> Left {
        let changed = session.pin().and_then(|pin| Some((pin, session.changed()?.1)));
        changed.map_or(Left::Gone(None), |(pin, pages)| {
            Left::Wrote(WriteSet::new(self.pins.keep(&pin), pages))
        })
    }

    fn leave(&self, session: Box<Session>, left: Left) -> Left {
        session.end();
        self.vacate(session);
        left
    }

    fn vacate(&self, session: Box<Session>) {
        let mut pool = self.pool();
        let is_overdue = |watch: &Watch| self.is_overdue(watch, self.clock.now());
        if !pool.closed && pool.surplus(self.most, is_overdue) > 0 {
            pool.watches.retain(|watch| !Arc::ptr_eq(watch, session.watch()));
            pool.closing += 1;
            drop(pool);
            drop(session);
            pool = self.pool();
            pool.closing -= 1;
        } else {
            // If the pool is closed, whoever does that closes it.
            pool.vacant.push(session);
        }
        self.signal(pool);
    }

    fn rested(&self, now: Duration, age: Duration) -> Option<Box<Session>> {
        let mut pool = self.pool();
        let (first, waiting) = pool.parked.first_key_value()?;
        let place = (now.saturating_sub(waiting.since) >= age).then_some(*first)?;
        pool.unpark(place).map(|waiting| waiting.session)
    }

    /// Waits for running statements to end, closes all connections, and refuses statements from
    /// then on.
    pub(crate) fn close(&self) {
        let mut pool = self.pool();
        pool.closed = true;
        loop {
            pool.parked_long = 0;
            let parked = std::mem::take(&mut pool.parked).into_values().map(|it| it.session);
            let sessions: Vec<_> = parked.chain(std::mem::take(&mut pool.vacant)).collect();
            for session in &sessions {
                session.end();
                pool.watches.retain(|watch| !Arc::ptr_eq(watch, session.watch()));
            }
            drop(sessions);
            if pool.watches.is_empty() && pool.opening == 0 && pool.closing == 0 {
                break;
            }
            pool = self.wait(pool, LOOK);
        }
        self.signal(pool);
        self.pins.close();
    }
}

impl Held<'_> {
    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().expect("a session is held until it is parked or dropped")
    }

    /// As [`Session::run`].
    pub(crate) fn run<T>(&self, limit: Duration, body: impl FnOnce(&Tx<'_>) -> T) -> Result<T> {
        self.session().run(&*self.sessions.clock, limit, body)
    }

    /// Leaves the session for a transaction that is one of `open`: with its snapshot, or, when
    /// those are too many and it is not a long one, with `memory` of it.
    pub(crate) fn leave(mut self, open: usize, memory: Memory, cost: &Cost) -> Left {
        let mut session = self.session.take().expect("a session is left once");
        if session.watch().end() {
            session.restore_after_revocation();
            return self.sessions.leave(session, Left::Gone(None));
        }
        let is_long = cost.is_long();
        if open > self.sessions.most && !is_long {
            let left = match memory {
                Memory::Nothing => Left::Gone(None),
                Memory::LeadingReads => Left::Gone(session.read_set()),
                Memory::Changes => self.sessions.wrote(&session),
            };
            return self.sessions.leave(session, left);
        }
        let since = self.sessions.clock.now();
        let undisturbed_until = cost.undisturbed_until.min(since + cost.rest);
        let mut pool = self.sessions.pool();
        if pool.closed {
            drop(pool);
            return self.sessions.leave(session, Left::Gone(None));
        }
        let place = pool.park(Waiting { session, since, is_long, undisturbed_until });
        self.sessions.signal(pool);
        Left::Parked(place)
    }

    /// Leaves the session after a change that ran without those of `wrote`; `None` when it has used
    /// pages that they have changed, or may have, so that it has to be done behind them.
    pub(crate) fn leave_without(self, wrote: WriteSet) -> Option<Left> {
        // The session ends with `self`: on it, the changes before are missing.
        wrote.with_independent(self.session()).map(Left::Wrote)
    }
}

impl Drop for Held<'_> {
    /// Leaves the session to others, after an error or a panic.
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if session.watch().end() {
            session.restore_after_revocation();
        }
        session.end();
        self.sessions.vacate(session);
    }
}

impl SnapshotHolder for Sessions {
    fn release_idle(&self, age: Duration) -> Option<Duration> {
        let now = self.clock.now();
        while let Some(session) = self.rested(now, age) {
            session.end();
            self.vacate(session);
        }
        self.pins.release(age);
        let exposed = self.progress.exposed();
        self.pool().watches.iter().filter_map(|it| it.outdated_for(exposed, now)).max()
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        self.pool().watches.clone()
    }

    /// They look by themselves, every [`LOOK`].
    fn wake_waiters(&self) {}
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again to use it")
}

fn none_free(most: usize, limit: Duration) -> Error {
    let message = format!(
        "none of the {most} connections for interactive transactions was free within {limit:.1?}: \
         statements run on all of them; end those, or raise the option transaction_connections"
    );
    Error::new(ErrorKind::Timeout, message)
}
