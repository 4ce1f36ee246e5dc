//! Owns the connections on which interactive transactions run, fewer than there are transactions.
//!
//! # Algorithm
//! 1. A [`Session`] is a **guard**, a connection that only reads and whose read transaction pins a
//!    snapshot, and an **overlay** on the same snapshot, which takes the transaction's own writes
//!    and gives none of them to anybody. The overlay begins with the first write.
//! 2. Between two statements a transaction leaves its session **parked**. If nobody else has needed
//!    it by the next statement, the transaction goes on where it was.
//! 3. Otherwise the transaction gets another session and a new snapshot, and the caller replays on
//!    it what the transaction did so far. A parked session is therefore nobody's property: it can
//!    be taken away at any moment, by a transaction that needs one or by the checkpointer.
//! 4. Which one is taken away: the one that was parked first if that is longer ago than the age
//!    that a snapshot may reach, else the one that was parked last. Transactions that sleep equally
//!    long come back in the order in which they left, so the one that left last is awaited longest;
//!    taking the first would take from everybody in turn.
//!
//! # Threads and locks
//! `pool` is held for a few instructions; nothing is opened, begun or ended under it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::PageSet;
use monolite_sqlite::vfs::{Changes, WalControl};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::readers::Reader;
use crate::tx::Tx;
use crate::untrusted::starved;
use crate::watch::Watch;

/// Opens a session's connections: the guard and, where there can be one, the overlay.
pub(crate) type Opener = Box<dyn Fn() -> Result<(Reader, Option<Reader>)> + Send + Sync>;

/// The connections of one transaction at a time.
pub(crate) struct Session {
    guard: Reader,
    overlay: Option<Reader>,
    watch: Arc<Watch>,
    last_sql: RefCell<String>,
    /// Whether the overlay is on the guard's snapshot.
    is_laid_over: Cell<bool>,
    /// [`Changes::sequence`](monolite_sqlite::vfs::Changes::sequence) before the snapshot.
    sequence: Cell<u64>,
}

/// Pages that a transaction may read before it is not worth to look at each.
const MOST_PAGES: usize = 4_096;

/// The pages that the answers of a transaction hang on, and the state they were in.
pub(crate) struct ReadSet {
    guard: PageSet,
    /// What was read behind the transaction's own writes.
    overlay: Option<PageSet>,
    sequence: u64,
}

impl ReadSet {
    /// Whether one of the pages may have changed since, by a commit or in the open batch of the
    /// writer, whose transaction `tx` is.
    pub(crate) fn has_changed(&self, changes: &Changes, tx: &Tx<'_>) -> bool {
        [Some(&self.guard), self.overlay.as_ref()]
            .into_iter()
            .flatten()
            .any(|pages| changes.any_changed_since(pages, self.sequence) || tx.batch_changed(pages))
    }
}

/// Which connection a statement runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Guard,
    Overlay,
}

impl Session {
    /// Whether the transaction's own writes can run here.
    pub(crate) fn has_overlay(&self) -> bool {
        self.overlay.is_some()
    }

    /// Whether `sql` only reads, as far as the guard can tell.
    pub(crate) fn only_reads(&self, sql: &str) -> bool {
        // A statement that cannot be prepared is told so where it runs.
        self.guard.connection.with_statement(sql, |statement| statement.readonly()).unwrap_or(true)
    }

    fn begin(
        &self,
        progress: &Progress,
        changes: Option<&WalControl>,
        now: Duration,
    ) -> Result<()> {
        let committed = progress.committed();
        if let Some(control) = changes {
            // Before the snapshot, so that a race can only take a page for changed.
            self.sequence.set(control.changes().sequence());
            self.guard.connection.track_pages(MOST_PAGES);
        }
        self.guard.connection.begin_deferred()?;
        self.guard.connection.forget_last_insert();
        self.guard.connection.pin_snapshot()?;
        self.watch.take_snapshot(committed, now);
        Ok(())
    }

    /// Ends the snapshot and everything that was written over it.
    fn end(&self) {
        // Either fails only on a broken connection, whose next statement reports it.
        if let Some(overlay) = self.overlay.as_ref().filter(|_| self.is_laid_over.take()) {
            let _ = overlay.connection.rollback();
        }
        let _ = self.guard.connection.rollback();
        self.watch.end_snapshot();
    }

    /// What the transaction has read on its snapshot, and with `own_writes` also behind its own
    /// writes; `None` when that is not known.
    fn read_set(&self, own_writes: bool) -> Option<ReadSet> {
        let guard = self.guard.connection.take_pages()?;
        let overlay = self.overlay.as_ref().filter(|_| own_writes && self.is_laid_over.get());
        let overlay = match overlay {
            Some(overlay) => Some(overlay.connection.take_pages()?),
            None => None,
        };
        Some(ReadSet { guard, overlay, sequence: self.sequence.get() })
    }

    fn reader(&self, side: Side) -> Result<&Reader> {
        if side == Side::Guard {
            return Ok(&self.guard);
        }
        let overlay = self.overlay.as_ref().ok_or_else(no_overlay)?;
        if !self.is_laid_over.get() {
            let snapshot = self.guard.connection.snapshot().ok_or_else(no_overlay)?;
            overlay.connection.track_pages(MOST_PAGES);
            overlay.connection.begin_on(&snapshot)?;
            overlay.connection.forget_last_insert();
            self.is_laid_over.set(true);
        }
        Ok(overlay)
    }

    /// Runs `body` on one of the connections, for `limit` at most.
    ///
    /// # Errors
    /// `Timeout` when it took longer, or its snapshot was revoked; `Invalid` when it was refused
    /// memory. The transaction cannot go on then.
    fn run<T>(
        &self,
        side: Side,
        clock: &dyn Clock,
        limit: Duration,
        body: impl FnOnce(&Tx<'_>) -> T,
    ) -> Result<T> {
        let reader = self.reader(side)?;
        let start = clock.now();
        reader.deadline.set(start, limit);
        let budget = reader.connection.start_budget();
        let result = body(&Tx::new(&reader.connection, 1, &self.last_sql));
        let is_starved = reader.connection.end_budget(budget);
        reader.deadline.clear();
        let signals = reader.connection.signals();
        if signals.is_revoked() {
            return Err(revoked(clock.now() - start));
        }
        if signals.take_interrupted() {
            return Err(late(limit));
        }
        if is_starved { Err(starved()) } else { Ok(result) }
    }

    fn restore_after_revocation(&mut self) {
        let readers = self.overlay.iter_mut().chain([&mut self.guard]);
        for reader in readers {
            // Fails only on a broken connection, whose next statement reports it.
            let _ = reader.connection.restore_after_revocation();
        }
        self.is_laid_over.set(false);
        self.watch.end_snapshot();
    }
}

/// A place in the pool that a transaction left its session at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parked(u64);

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
    opener: Opener,
    most: usize,
    age: Duration,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    /// `None` where other processes may write, too.
    changes: Option<Arc<WalControl>>,
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
        changes: Option<Arc<WalControl>>,
    ) -> Sessions {
        let (pool, freed) = (Mutex::default(), Condvar::new());
        Sessions { pool, freed, opener, most, age, clock, progress, changes }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session for the next statement: the one that was parked if it is still there, else one
    /// with a new snapshot. Blocks while every session runs a statement.
    ///
    /// # Errors
    /// `Closed`; those of opening a connection and of beginning.
    pub(crate) fn take(&self, parked: Option<Parked>) -> Result<Held<'_>> {
        let now = self.clock.now();
        let mut pool = self.pool();
        if let Some(waiting) = parked.and_then(|parked| pool.parked.remove(&parked)) {
            drop(pool);
            let is_warm = now.saturating_sub(waiting.since) <= self.age;
            if !is_warm {
                waiting.session.end();
            }
            return self.hold(waiting.session, is_warm, now);
        }
        loop {
            if pool.closed {
                return Err(closed());
            }
            if let Some(session) = pool.vacant.pop() {
                drop(pool);
                return self.hold(session, false, now);
            }
            if pool.watches.len() + pool.opening < self.most {
                pool.opening += 1;
                drop(pool);
                let session = self.open_one()?;
                return self.hold(session, false, now);
            }
            if let Some(session) = pool.take_away(now, self.age) {
                drop(pool);
                session.end();
                return self.hold(session, false, now);
            }
            pool = self.freed.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open_one(&self) -> Result<Box<Session>> {
        let opened = (self.opener)().map(|(guard, overlay)| {
            // The overlay reads what the guard pins, so it has to end first.
            let on_top = overlay.iter().map(|reader| reader.connection.revoker());
            let revokers = on_top.chain([guard.connection.revoker()]).collect();
            Box::new(Session {
                guard,
                overlay,
                watch: Arc::new(Watch::new(revokers)),
                last_sql: RefCell::default(),
                is_laid_over: Cell::new(false),
                sequence: Cell::new(0),
            })
        });
        let mut pool = self.pool();
        pool.opening -= 1;
        if let Ok(session) = &opened {
            pool.watches.push(Arc::clone(&session.watch));
        }
        drop(pool);
        self.freed.notify_one();
        opened
    }

    fn hold(&self, session: Box<Session>, is_warm: bool, now: Duration) -> Result<Held<'_>> {
        let held = Held { sessions: self, session: Some(session), is_warm };
        let session = held.session();
        if !is_warm {
            session.begin(&self.progress, self.changes.as_deref(), now)?;
        }
        session.watch.begin(now);
        Ok(held)
    }

    /// Ends the snapshot of a transaction that is over.
    pub(crate) fn give_up(&self, parked: Parked) {
        self.finish(parked, |_| ());
    }

    /// As [`Sessions::give_up`]; tells which pages the transaction has read, with `own_writes` also
    /// those that it read behind its own writes. `None` when that is not known, because somebody
    /// else has taken the session or other things than pages were read.
    pub(crate) fn read_set(&self, parked: Parked, own_writes: bool) -> Option<ReadSet> {
        self.changes.as_ref()?;
        self.finish(parked, |session| session.read_set(own_writes)).flatten()
    }

    fn finish<T>(&self, parked: Parked, last: impl FnOnce(&Session) -> T) -> Option<T> {
        let Waiting { session, .. } = self.pool().parked.remove(&parked)?;
        let result = last(&session);
        session.end();
        self.vacate(session);
        Some(result)
    }

    /// Which pages were changed when, where that is known.
    pub(crate) fn changes(&self) -> Option<&Changes> {
        self.changes.as_deref().map(WalControl::changes)
    }

    fn vacate(&self, session: Box<Session>) {
        let mut pool = self.pool();
        let closed_meanwhile = pool.closed.then_some(());
        match closed_meanwhile {
            None => pool.vacant.push(session),
            Some(()) => {
                pool.watches.retain(|watch| !Arc::ptr_eq(watch, &session.watch));
                drop(pool);
                drop(session);
            }
        }
        self.freed.notify_all();
    }

    /// Ends the snapshots of transactions that have rested for longer than `age`, and tells how
    /// long the oldest running statement with an outdated one has been going on.
    pub(crate) fn release_parked(&self, age: Duration) -> Option<Duration> {
        let now = self.clock.now();
        while let Some(session) = self.rested(now, age) {
            session.end();
            self.vacate(session);
        }
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
            pool = self.freed.wait(pool).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pool);
        self.freed.notify_all();
    }
}

impl Held<'_> {
    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().expect("a session is held until it is parked or dropped")
    }

    /// As [`Session::run`].
    pub(crate) fn run<T>(
        &self,
        side: Side,
        limit: Duration,
        body: impl FnOnce(&Tx<'_>) -> T,
    ) -> Result<T> {
        self.session().run(side, &*self.sessions.clock, limit, body)
    }

    /// Leaves the session with its snapshot open; `None` when the snapshot was revoked meanwhile.
    pub(crate) fn park(mut self) -> Option<Parked> {
        let mut session = self.session.take().expect("a session is parked once");
        if session.watch.end() {
            session.restore_after_revocation();
            self.sessions.vacate(session);
            return None;
        }
        let since = self.sessions.clock.now();
        let mut pool = self.sessions.pool();
        if pool.closed {
            drop(pool);
            session.end();
            self.sessions.vacate(session);
            return None;
        }
        let place = Parked(pool.next);
        pool.next += 1;
        pool.parked.insert(place, Waiting { session, since });
        drop(pool);
        self.sessions.freed.notify_one();
        Some(place)
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

fn no_overlay() -> Error {
    Error::new(ErrorKind::Internal, "a snapshot was lost before the first write on it")
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
