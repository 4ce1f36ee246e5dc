//! Owns the connections on which interactive transactions run, fewer than there are transactions.
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
//!
//! # Threads and locks
//! `pool` is held for a few instructions; nothing is opened, begun or ended under it, but at the
//! close.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::PageSet;
use monolite_sqlite::vfs::{Changes, WalControl};

use super::pins::{Kept, OpenReader, Pin, Pins};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::readers::Reader;
use crate::tx::Tx;
use crate::untrusted::starved;
use crate::watch::Watch;

/// Opens the connections of transactions.
pub(crate) struct Opener {
    /// A connection that pins snapshots, or is a session where there are no overlays.
    pub(crate) reader: OpenReader,
    /// An overlay; `None` where there can be none.
    pub(crate) overlay: Box<dyn Fn() -> Result<Option<Reader>> + Send + Sync>,
}

/// The connection of one transaction at a time.
pub(crate) struct Session {
    reader: Reader,
    is_overlay: bool,
    /// Keeps the snapshot of an overlay.
    pin: RefCell<Option<Arc<Pin>>>,
    watch: Arc<Watch>,
    last_sql: RefCell<String>,
    /// The pages that were read before the first write, once there was one: `Some(None)` when they
    /// are not known.
    read_first: RefCell<Option<Option<PageSet>>>,
}

/// Pages that a transaction may read before it is not worth to look at each.
const MOST_PAGES: usize = 4_096;

/// The pages that the answers of a transaction hang on, and the state they were in.
pub(crate) struct ReadSet {
    pages: Vec<PageSet>,
    sequence: u64,
}

impl ReadSet {
    /// Whether one of the pages may have changed since, by a commit or in the open batch of the
    /// writer, whose transaction `tx` is.
    pub(crate) fn has_changed(&self, changes: &Changes, tx: &Tx<'_>) -> bool {
        let has_changed =
            |pages| changes.any_changed_since(pages, self.sequence) || tx.batch_changed(pages);
        self.pages.iter().any(has_changed)
    }
}

/// What a transaction has changed that did nothing but change rows, on a snapshot that it keeps.
pub(crate) struct WriteSet {
    kept: Arc<Kept>,
    /// In ascending order.
    pages: Vec<u32>,
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
    /// What was read, with `own_writes` also behind the transaction's own writes.
    ReadSet {
        own_writes: bool,
    },
    /// What was changed: that is all the transaction did.
    WriteSet,
}

impl Session {
    /// Whether the transaction's own writes can run here.
    pub(crate) fn is_overlay(&self) -> bool {
        self.is_overlay
    }

    /// Whether `sql` only reads, as far as this connection can tell.
    pub(crate) fn only_reads(&self, sql: &str) -> bool {
        // A statement that cannot be prepared is told so where it runs.
        self.reader.connection.with_statement(sql, |statement| statement.readonly()).unwrap_or(true)
    }

    /// Takes the snapshot of `pin`.
    fn begin_on(&self, pin: Arc<Pin>) -> Result<()> {
        self.reader.connection.begin_on(&pin.snapshot)?;
        // Nothing but the schema has been read before.
        self.reader.connection.track_pages(MOST_PAGES);
        self.reader.connection.forget_last_insert();
        self.watch.take_snapshot(pin.committed, pin.taken);
        self.pin.replace(Some(pin));
        Ok(())
    }

    /// Takes a snapshot of its own.
    fn begin(&self, progress: &Progress, now: Duration) -> Result<()> {
        let committed = progress.committed();
        self.reader.connection.begin_deferred()?;
        self.reader.connection.forget_last_insert();
        self.reader.connection.pin_snapshot()?;
        self.watch.take_snapshot(committed, now);
        Ok(())
    }

    /// Ends the snapshot and everything that was written over it.
    fn end(&self) {
        // Fails only on a broken connection, whose next statement reports it.
        let _ = self.reader.connection.rollback();
        self.pin.take();
        self.read_first.take();
        self.watch.end_snapshot();
    }

    /// Has the pages that were read so far told apart from those that a write reads.
    pub(crate) fn note_first_write(&self) {
        self.read_first.replace(Some(self.reader.connection.take_pages()));
        self.reader.connection.track_pages(MOST_PAGES);
    }

    /// What the transaction has read on its snapshot, and with `own_writes` also behind its own
    /// writes; `None` when that is not known.
    fn read_set(&self, own_writes: bool) -> Option<ReadSet> {
        let sequence = self.pin.borrow().as_ref()?.snapshot.sequence();
        let pages = match (self.read_first.take(), own_writes) {
            (Some(first), false) => vec![first?],
            (Some(first), true) => vec![first?, self.reader.connection.take_pages()?],
            (None, _) => vec![self.reader.connection.take_pages()?],
        };
        Some(ReadSet { pages, sequence })
    }

    /// The pages that were used on this snapshot, and which of them were changed; `None` when these
    /// are not known to be all.
    fn changed(&self) -> Option<(PageSet, Vec<u32>)> {
        let used = self.reader.connection.take_pages()?;
        let changed = self.reader.connection.changed_pages(&used)?;
        Some((used, changed))
    }

    /// Runs `body` for `limit` at most.
    ///
    /// # Errors
    /// `Timeout` when it took longer, or its snapshot was revoked; `Invalid` when it was refused
    /// memory. The transaction cannot go on then.
    fn run<T>(
        &self,
        clock: &dyn Clock,
        limit: Duration,
        body: impl FnOnce(&Tx<'_>) -> T,
    ) -> Result<T> {
        let Reader { connection, deadline } = &self.reader;
        let start = clock.now();
        deadline.set(start, limit);
        let budget = connection.start_budget();
        let result = body(&Tx::new(connection, 1, &self.last_sql));
        let is_starved = connection.end_budget(budget);
        deadline.clear();
        if connection.signals().is_revoked() {
            return Err(revoked(clock.now() - start));
        }
        if connection.signals().take_interrupted() {
            return Err(late(limit));
        }
        if is_starved { Err(starved()) } else { Ok(result) }
    }

    fn restore_after_revocation(&mut self) {
        // Fails only on a broken connection, whose next statement reports it.
        let _ = self.reader.connection.restore_after_revocation();
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
}

#[derive(Default)]
struct Pool {
    #[expect(clippy::vec_box, reason = "sessions move between here and their users")]
    vacant: Vec<Box<Session>>,
    parked: BTreeMap<Parked, Waiting>,
    /// One for each session that is open.
    watches: Vec<Arc<Watch>>,
    opening: usize,
    next: u64,
    closed: bool,
    /// Threads that sleep until a session is free or gone. (A signal is a system call, also when
    /// nobody waits for it.)
    waiting: usize,
}

impl Pool {
    /// The parked session that is missed least, see the header.
    fn take_away(&mut self, now: Duration, age: Duration) -> Option<Box<Session>> {
        let first = self.parked.first_key_value()?;
        let is_old = now.saturating_sub(first.1.since) > age;
        let taken = if is_old { self.parked.pop_first() } else { self.parked.pop_last() };
        taken.map(|(_, waiting)| waiting.session)
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
        most: usize,
        age: Duration,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        changes: Arc<WalControl>,
    ) -> Sessions {
        let (pool, freed) = (Mutex::default(), Condvar::new());
        let open = Arc::clone(&opener.reader);
        let (time, told) = (Arc::clone(&clock), Arc::clone(&progress));
        let pins = Pins::new(open, most, time, told);
        Sessions { pool, freed, pins, opener, most, age, clock, progress, changes }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session for the next statement of a transaction: the one that was parked if it is still
    /// there, else one with another snapshot. Blocks while every session runs a statement.
    ///
    /// # Errors
    /// `Closed`; those of opening a connection and of beginning.
    pub(crate) fn take(&self, parked: Option<Parked>, start: Start) -> Result<Held<'_>> {
        let now = self.clock.now();
        let mut pool = self.pool();
        if let Some(waiting) = parked.and_then(|parked| pool.parked.remove(&parked)) {
            drop(pool);
            let is_warm = now.saturating_sub(waiting.since) <= self.age;
            if !is_warm {
                waiting.session.end();
            }
            return self.hold(waiting.session, is_warm, start);
        }
        loop {
            if pool.closed {
                return Err(closed());
            }
            if let Some(session) = pool.vacant.pop() {
                drop(pool);
                return self.hold(session, false, start);
            }
            if pool.watches.len() + pool.opening < self.most {
                pool.opening += 1;
                drop(pool);
                let session = self.open_one()?;
                return self.hold(session, false, start);
            }
            if let Some(session) = pool.take_away(now, self.age) {
                drop(pool);
                session.end();
                return self.hold(session, false, start);
            }
            pool = self.wait(pool);
        }
    }

    fn wait<'p>(&self, mut pool: MutexGuard<'p, Pool>) -> MutexGuard<'p, Pool> {
        pool.waiting += 1;
        let mut pool = self.freed.wait(pool).unwrap_or_else(PoisonError::into_inner);
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
            pool.watches.push(Arc::clone(&session.watch));
        }
        self.signal(pool);
        opened
    }

    fn open_session(&self) -> Result<Box<Session>> {
        let overlay = (self.opener.overlay)()?;
        let is_overlay = overlay.is_some();
        let reader = overlay.map_or_else(|| (self.opener.reader)(), Ok)?;
        Ok(Box::new(Session {
            watch: Arc::new(Watch::new(reader.connection.revoker())),
            reader,
            is_overlay,
            pin: RefCell::default(),
            last_sql: RefCell::default(),
            read_first: RefCell::default(),
        }))
    }

    fn hold(&self, session: Box<Session>, is_warm: bool, start: Start) -> Result<Held<'_>> {
        let held = Held { sessions: self, session: Some(session), is_warm };
        let session = held.session();
        let now = self.clock.now();
        match (is_warm, session.is_overlay) {
            (true, _) => {}
            (false, true) => session.begin_on(match start {
                Start::On(pin) => pin,
                Start::First => self.pins.pin(true, self.age)?,
                Start::Later => self.pins.pin(false, self.age)?,
            })?,
            (false, false) => session.begin(&self.progress, now)?,
        }
        session.watch.begin(now);
        Ok(held)
    }

    /// A session on the snapshot of `wrote`, without the changes; `None` when that is gone.
    ///
    /// # Errors
    /// As [`Sessions::take`].
    pub(crate) fn take_without(&self, wrote: &WriteSet) -> Result<Option<Held<'_>>> {
        let pin = wrote.kept.pin(self.clock.now(), self.age);
        pin.map(|pin| self.take(None, Start::On(pin))).transpose()
    }

    /// Ends the snapshot of a transaction that is over.
    pub(crate) fn give_up(&self, parked: Parked) {
        self.finish(parked, |_| ());
    }

    /// As [`Sessions::give_up`]; tells which pages the transaction has read, with `own_writes` also
    /// those that it read behind its own writes. `None` when that is not known, because somebody
    /// else has taken the session or other things than pages were read.
    pub(crate) fn read_set(&self, parked: Parked, own_writes: bool) -> Option<ReadSet> {
        self.finish(parked, |session| session.read_set(own_writes)).flatten()
    }

    fn finish<T>(&self, parked: Parked, last: impl FnOnce(&Session) -> T) -> Option<T> {
        let Waiting { session, .. } = self.pool().parked.remove(&parked)?;
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
        let pin = session.pin.borrow();
        let changed = pin.as_ref().and_then(|pin| Some((pin, session.changed()?.1)));
        changed.map_or(Left::Gone(None), |(pin, mut pages)| {
            pages.sort_unstable();
            Left::Wrote(WriteSet { kept: self.pins.keep(pin), pages })
        })
    }

    fn leave(&self, session: Box<Session>, left: Left) -> Left {
        session.end();
        self.vacate(session);
        left
    }

    fn vacate(&self, session: Box<Session>) {
        let mut pool = self.pool();
        if pool.closed {
            pool.watches.retain(|watch| !Arc::ptr_eq(watch, &session.watch));
            drop(pool);
            drop(session);
            pool = self.pool();
        } else {
            pool.vacant.push(session);
        }
        self.signal(pool);
    }

    /// Ends the snapshots of transactions that have rested for longer than `age`, and tells how
    /// long the oldest running statement with an outdated one has been going on.
    pub(crate) fn release_parked(&self, age: Duration) -> Option<Duration> {
        let now = self.clock.now();
        while let Some(session) = self.rested(now, age) {
            session.end();
            self.vacate(session);
        }
        self.pins.release(age);
        let exposed = self.progress.exposed();
        self.pool().watches.iter().filter_map(|it| it.outdated_for(exposed, now)).max()
    }

    fn rested(&self, now: Duration, age: Duration) -> Option<Box<Session>> {
        let mut pool = self.pool();
        let first = pool.parked.first_entry()?;
        let is_old = now.saturating_sub(first.get().since) >= age;
        is_old.then(|| first.remove().session)
    }

    /// The age that a snapshot may reach between two statements.
    pub(crate) fn age(&self) -> Duration {
        self.age
    }

    /// What others may see of each session's snapshot.
    pub(crate) fn watches(&self) -> Vec<Arc<Watch>> {
        self.pool().watches.clone()
    }

    /// Waits for running statements to end, closes all connections, and refuses statements from
    /// then on.
    pub(crate) fn close(&self) {
        let mut pool = self.pool();
        pool.closed = true;
        loop {
            let parked = std::mem::take(&mut pool.parked).into_values().map(|it| it.session);
            let sessions: Vec<_> = parked.chain(std::mem::take(&mut pool.vacant)).collect();
            for session in &sessions {
                session.end();
                pool.watches.retain(|watch| !Arc::ptr_eq(watch, &session.watch));
            }
            drop(sessions);
            if pool.watches.is_empty() && pool.opening == 0 {
                break;
            }
            pool = self.wait(pool);
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
    /// those are too many, with `memory` of it.
    pub(crate) fn leave(mut self, open: usize, memory: Memory) -> Left {
        let mut session = self.session.take().expect("a session is left once");
        if session.watch.end() {
            session.restore_after_revocation();
            return self.sessions.leave(session, Left::Gone(None));
        }
        if open > self.sessions.most {
            let left = match memory {
                Memory::Nothing => Left::Gone(None),
                Memory::ReadSet { own_writes } => Left::Gone(session.read_set(own_writes)),
                Memory::WriteSet => self.sessions.wrote(&session),
            };
            return self.sessions.leave(session, left);
        }
        let since = self.sessions.clock.now();
        let mut pool = self.sessions.pool();
        if pool.closed {
            drop(pool);
            return self.sessions.leave(session, Left::Gone(None));
        }
        let place = Parked(pool.next);
        pool.next += 1;
        pool.parked.insert(place, Waiting { session, since });
        self.sessions.signal(pool);
        Left::Parked(place)
    }

    /// Leaves the session after a change that ran without those of `wrote`; `None` when it has used
    /// pages that they have changed, or may have, so that it has to be done behind them.
    pub(crate) fn leave_without(self, mut wrote: WriteSet) -> Option<Left> {
        let (used, changed) = self.session().changed()?;
        if used.pages().iter().any(|pgno| wrote.pages.binary_search(pgno).is_ok()) {
            return None;
        }
        wrote.pages.extend(changed);
        wrote.pages.sort_unstable();
        // The session ends with `self`: on it, the changes before are missing.
        Some(Left::Wrote(wrote))
    }
}

impl Drop for Held<'_> {
    /// Leaves the session to others, after an error or a panic.
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if session.watch.end() {
            session.restore_after_revocation();
        }
        session.end();
        self.sessions.vacate(session);
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again to use it")
}

fn revoked(age: Duration) -> Error {
    let message = format!(
        "the statement was ended after {age:.1?}: its snapshot kept the WAL from starting anew \
         near its limit; read in smaller pieces or raise the option wal_limit_bytes"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn late(limit: Duration) -> Error {
    let message = format!(
        "the statement took longer than {limit:.1?} (the option read_time_limit, or what was left \
         of transaction_time_limit)"
    );
    Error::new(ErrorKind::Timeout, message)
}
