//! Owns the pool of reader connections and the life of a read transaction.
//!
//! # Algorithm
//! 1. A read takes a free connection, trying the one its thread used last first, and one that is
//!    open before another; when all are taken it waits for one, for as long as a read may take.
//! 2. **Kept snapshots.** A read transaction is not ended with its read. The next read on the
//!    connection continues with it if no batch became visible since its snapshot was taken and no
//!    checkpoint asked for new ones, which saves the locks of a new one. (Only with
//!    `Sharing::Exclusive`, where no other process commits.)
//! 3. A kept snapshot pins the WAL, so the checkpointer ends those of idle connections, and
//!    revokes those of readers that hold one for too long.
//! 4. A read that **overruns** its time is ended ([`crate::watchdog`]), but its closure may go on
//!    for as long as it likes, and has its connection. For each of these one of the **spare**
//!    connections may be used.
//! 5. A read inside of a write closure has a connection in **reserve**. If it waited for one of the
//!    others, and reads on all of those waited for the writer, none would go on.
//! 6. A read inside of a read waits with a connection in its hands. When all connections are in the
//!    hands of such, the one that would be the last to wait is refused, and the others go on.
//!
//! # Invariants
//! - A read sees every write acknowledged before it began: `committed` is read before the
//!   snapshot is taken, and acknowledgement follows `committed`.
//! - A read sees no less than any read that ended before it began: a kept snapshot is not used
//!   while a later commit is `exposed`, since a new snapshot contains that before `committed` does.
//! - Nothing read after a revocation reaches the caller.

#[cfg(all(test, shuttle))]
mod models;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::Connection;

use crate::activity::slow::SlowLog;
use crate::activity::{Activity, CallKind, Caller, Slowest, events};
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::call::watch::{Watch, longest};
use crate::call::work::{self, Attached};
use crate::clock::{Clock, Deadline, Patience, Stopwatch};
use crate::error::{Error, ErrorKind, Result};
use crate::options::Options;
use crate::primitives::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::primitives::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use crate::progress::{BatchNumber, Progress};
use crate::read::holders::SnapshotHolder;
use crate::stats::names;
use crate::threads::Awake;
use crate::tx::{ReadTx, collation_panicked};

/// Spare connections for each ordinary one: beyond that, something is wrong that more connections
/// do not mend.
const SPARES: usize = 3;

/// How often a read that waits for a connection looks whether another one has overrun its time.
const LOOK: Duration = Duration::from_millis(20);

/// A connection of the pool, with the time limit that its statements obey.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    pub(crate) deadline: Arc<Deadline>,
}

#[derive(Default)]
struct Seat {
    /// `None` before it is used, when it was idle for long, and once the pool is closed.
    open: Option<Box<Open>>,
    snapshot: Option<KeptSnapshot>,
}

/// A connection, with what others may see of it.
struct Open {
    reader: Reader,
    watch: Arc<Watch>,
}

/// The read transaction that is open on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptSnapshot {
    /// Batches that it is known to contain.
    committed: BatchNumber,
    /// [`Readers::renewals`] when it was taken.
    renewals: u64,
}

#[derive(Default)]
struct Slot {
    seat: Mutex<Seat>,
    /// That of the seat's connection, also while that is in use.
    watch: Mutex<Option<Arc<Watch>>>,
    is_open: AtomicBool,
    counts: Counts,
}

impl Slot {
    fn is_overdue(&self, now: Duration, limit: Duration) -> bool {
        self.watch().is_some_and(|watch| watch.is_overdue(now, limit))
    }

    fn watch(&self) -> Option<Arc<Watch>> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_watch(&self, watch: Option<Arc<Watch>>) {
        self.is_open.store(watch.is_some(), Ordering::Relaxed);
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = watch;
    }

    /// The seat, if no read has it. A read that panicked has left it as a good one does.
    fn try_seat(&self) -> Option<MutexGuard<'_, Seat>> {
        match self.seat.try_lock() {
            Ok(seat) => Some(seat),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Closes its connection.
    fn close(&self, seat: &mut Seat) {
        seat.end_snapshot();
        self.set_watch(None);
        seat.open = None;
    }
}

/// Written by the one thread that has the seat; on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    reads: AtomicU64,
    kept: AtomicU64,
}

impl Counts {
    fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Opens one more connection.
pub(crate) type OpenReader = Arc<dyn Fn() -> Result<Reader> + Send + Sync>;

pub(crate) struct Readers {
    /// The ordinary ones, the spare ones, and the one in reserve.
    slots: Box<[Slot]>,
    ordinary: usize,
    open: OpenReader,
    closed: AtomicBool,
    database: DatabaseId,
    keep_snapshots: bool,
    /// Changes when kept snapshots must not be used any more.
    renewals: AtomicU64,
    time_limit: Duration,
    clock: Arc<dyn Clock>,
    slow: SlowLog,
    progress: Arc<Progress>,
    awake: Arc<Awake>,
    /// Connections in the hands of reads that wait for another one.
    waiting: Mutex<usize>,
    freed: Condvar,
    waiters: AtomicUsize,
}

impl Readers {
    /// As many as the option says; each is opened when it is used.
    pub(crate) fn new(
        open: OpenReader,
        database: DatabaseId,
        keep_snapshots: bool,
        options: &Options,
        progress: Arc<Progress>,
        awake: Arc<Awake>,
        slow: SlowLog,
    ) -> Readers {
        let ordinary = options.readers;
        let slots = ordinary + ordinary * SPARES + 1;
        Readers {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            ordinary,
            open,
            closed: AtomicBool::new(false),
            database,
            keep_snapshots,
            renewals: AtomicU64::new(0),
            time_limit: options.read_time_limit,
            clock: Arc::clone(&options.clock),
            slow,
            progress,
            awake,
            waiting: Mutex::new(0),
            freed: Condvar::new(),
            waiters: AtomicUsize::new(0),
        }
    }

    /// Opens the first connection before it is used.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn open_first(&self) -> Result<()> {
        let slot = &self.slots[0];
        slot.seat.lock().unwrap_or_else(PoisonError::into_inner).open(self, slot)
    }

    /// Runs `body` of `caller` in a read transaction on this thread, for no longer than the option
    /// and `own_limit`, if there is one.
    pub(crate) fn run<T, E: From<Error>>(
        &self,
        caller: Caller,
        own_limit: Option<Duration>,
        body: impl FnOnce(&ReadTx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.database.check_process()?;
        let turn = self.check_nesting().and_then(|()| self.take_turn());
        let turn = turn.map_err(|error| events::refused(caller, error))?;
        let _inside = Inside::enter(self.database, Place::Read);
        turn.read(caller, own_limit, body)
    }

    /// # Errors
    /// `Invalid` when the thread is inside of as many reads as there are connections: it would wait
    /// for itself.
    fn check_nesting(&self) -> Result<()> {
        let held = self.database.reads_around();
        if held < self.ordinary {
            return Ok(());
        }
        let message = format!(
            "this thread is inside of {held} reads already, and one more would wait for itself; \
             use the closure's own transaction or raise the option readers"
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Reads so far, and those of them that went on with a kept snapshot.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            self.slots.iter().map(|slot| of(&slot.counts).load(Ordering::Relaxed)).sum()
        };
        (sum(|counts| &counts.reads), sum(|counts| &counts.kept))
    }

    /// A connection for the thread's read.
    ///
    /// # Errors
    /// `Timeout` when none became free for as long as a read may take; `Closed`.
    fn take_turn(&self) -> Result<Turn<'_>> {
        if let Some(turn) = self.try_turn() {
            return Ok(turn);
        }
        let (start, patience) = (Stopwatch::start(), Patience::of(self.time_limit));
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let held = self.held_by_thread();
        *waiting += held;
        let turn = loop {
            if self.closed.load(Ordering::Acquire) {
                break Err(Error::closed());
            }
            if let Some(turn) = self.try_turn().or_else(|| self.try_spare()) {
                break Ok(turn);
            }
            if held > 0 && *waiting >= self.ordinary {
                break Err(all_wait(held, self.ordinary));
            }
            let left = patience.left();
            if left.is_zero() {
                break Err(none_free(self.ordinary, self.time_limit, self.longest()));
            }
            let waited = self.freed.wait_timeout(waiting, left.min(LOOK));
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        assert!(*waiting >= held, "a read that waits is counted");
        *waiting -= held;
        let waiters = self.waiters.fetch_sub(1, Ordering::SeqCst);
        assert!(waiters > 0, "a read that waits is counted");
        turn.map(|mut turn| {
            turn.waited = start.elapsed();
            turn
        })
    }

    /// The read that has been going on for longest.
    fn longest(&self) -> Option<Activity> {
        longest(&self.watches(), self.progress.exposed(), self.clock.now())
    }

    /// Ordinary connections held by reads that the thread is inside of. The writer's thread has the
    /// one in reserve, for which no other thread waits, so it may wait for others.
    fn held_by_thread(&self) -> usize {
        if self.database.is_inside(Place::Write) { 0 } else { self.database.reads_around() }
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        let (ordinary, others) = self.slots.split_at(self.ordinary);
        let reserve = others.last().filter(|_| self.database.is_inside(Place::Write));
        if let Some(turn) = reserve.and_then(|slot| self.try_slot(slot)) {
            return Some(turn);
        }
        let first = preferred_slot() % ordinary.len();
        let (before, from) = ordinary.split_at(first);
        let in_turn = || from.iter().chain(before);
        let is_open = |slot: &&Slot| slot.is_open.load(Ordering::Relaxed);
        // No more are opened than are used at once.
        let open = in_turn().filter(is_open).find_map(|slot| self.try_slot(slot));
        open.or_else(|| in_turn().find_map(|slot| self.try_slot(slot)))
    }

    /// A spare connection, if there are reads that have overrun their time, and fewer spare ones in
    /// use.
    fn try_spare(&self) -> Option<Turn<'_>> {
        let now = self.clock.now();
        let is_overdue = |slot: &&Slot| slot.is_overdue(now, self.time_limit);
        let overdue = self.slots.iter().filter(is_overdue).count();
        let spares = &self.slots[self.ordinary..self.slots.len() - 1];
        spares.iter().take(overdue).find_map(|slot| self.try_slot(slot))
    }

    fn try_slot<'r>(&'r self, slot: &'r Slot) -> Option<Turn<'r>> {
        slot.try_seat().map(|seat| self.turn(slot, seat))
    }

    fn turn<'r>(&'r self, slot: &'r Slot, seat: MutexGuard<'r, Seat>) -> Turn<'r> {
        Turn { readers: self, slot, seat: Some(seat), waited: Duration::ZERO }
    }

    /// Waits for every read to end, closes the connections, and refuses reads from then on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for slot in &self.slots {
            slot.close(&mut slot.seat.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.wake_waiters();
    }
}

impl SnapshotHolder for Readers {
    /// Ends them whatever their age, and has busy connections take a new one for their next read.
    fn release_idle(&self, _age: Duration) -> Option<Duration> {
        self.renewals.fetch_add(1, Ordering::AcqRel);
        let (exposed, now) = (self.progress.exposed(), self.clock.now());
        let mut oldest = None;
        for slot in &self.slots {
            match slot.try_seat() {
                Some(mut seat) => seat.end_snapshot(),
                None => {
                    let outdated = slot.watch().and_then(|it| it.outdated_for(exposed, now));
                    oldest = oldest.max(outdated);
                }
            }
        }
        // A waiting read may have found this seat taken.
        self.wake_waiters();
        oldest
    }

    fn waiting(&self) -> usize {
        self.waiters.load(Ordering::SeqCst)
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        self.slots.iter().filter_map(Slot::watch).collect()
    }

    fn uses(&self) -> u64 {
        self.counts().0
    }

    /// Where other processes share the file, connections stay: when one of those deletes the WAL,
    /// only what has it open can read it out.
    fn close_idle(&self) {
        if !self.keep_snapshots {
            return;
        }
        for slot in &self.slots {
            if let Some(mut seat) = slot.try_seat() {
                slot.close(&mut seat);
            }
        }
        // A waiting read may have found a seat taken.
        self.wake_waiters();
    }

    fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_all();
        }
    }
}

impl Seat {
    /// Makes sure that a connection is open.
    fn open(&mut self, readers: &Readers, slot: &Slot) -> Result<()> {
        if readers.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        if self.open.is_none() {
            let reader = (readers.open)()?;
            let revoker = reader.connection.revoker();
            let watch = Arc::new(Watch::new(revoker, Arc::clone(&readers.clock)));
            slot.set_watch(Some(Arc::clone(&watch)));
            self.open = Some(Box::new(Open { reader, watch }));
        }
        Ok(())
    }

    /// Makes sure that a connection is open, and on it a read transaction whose snapshot contains
    /// everything committed.
    fn start(&mut self, readers: &Readers, slot: &Slot, now: Duration) -> Result<()> {
        self.open(readers, slot)?;
        let renewals = readers.renewals.load(Ordering::Acquire);
        let current = KeptSnapshot { committed: readers.progress.committed(), renewals };
        let is_latest =
            self.snapshot == Some(current) && readers.progress.exposed() <= current.committed;
        if readers.keep_snapshots && is_latest {
            Counts::count(&slot.counts.kept);
            return Ok(());
        }
        let is_newer = self.snapshot.is_none_or(|kept| kept.committed <= current.committed);
        assert!(is_newer, "a later read sees no earlier state");
        self.end_snapshot();
        let Open { reader, watch } = self.open.as_deref().ok_or_else(Error::closed)?;
        reader.connection.begin_read()?;
        watch.take_snapshot(current.committed, now);
        self.snapshot = Some(current);
        Ok(())
    }

    fn end_snapshot(&mut self) {
        let (Some(_), Some(open)) = (self.snapshot.take(), &self.open) else { return };
        // Fails only on a broken connection, whose next statement reports it.
        let _ = open.reader.connection.rollback();
        open.watch.end_snapshot();
    }
}

/// A reader connection in the hands of one read.
struct Turn<'r> {
    readers: &'r Readers,
    slot: &'r Slot,
    seat: Option<MutexGuard<'r, Seat>>,
    /// How long the read waited for it.
    waited: Duration,
}

impl Turn<'_> {
    fn read<T, E: From<Error>>(
        mut self,
        caller: Caller,
        own_limit: Option<Duration>,
        body: impl FnOnce(&ReadTx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (readers, slot, waited) = (self.readers, self.slot, self.waited);
        let (limit, whose) = match own_limit.filter(|own| *own < readers.time_limit) {
            Some(own) => (own, "Database::with_time_limit"),
            None => (readers.time_limit, "option read_time_limit"),
        };
        let seat = self.seat.as_mut().expect("a turn has its seat until it is dropped");
        let now = readers.clock.now();
        let started = seat.start(readers, slot, now);
        started.map_err(|error| events::refused(caller, error))?;
        let Open { reader, watch } = seat.open.as_deref().ok_or_else(Error::closed)?;
        watch.trace().begin(caller);
        watch.begin(now);
        readers.awake.note();
        let attached = work::attach(watch);
        reader.deadline.set(now, limit);
        Counts::count(&slot.counts.reads);
        let tx = ReadTx::new(&reader.connection, watch.trace());
        // A panic is recorded as any other end.
        let ran = catch_unwind(AssertUnwindSafe(|| body(&tx)));
        reader.deadline.clear();
        let time = || readers.clock.now().saturating_sub(now);
        let slowest = || tx.slowest();
        // A stream takes as long as its consumer.
        let is_slow = readers.clock.coarse().saturating_sub(now) > readers.slow.above;
        let named = names::of(caller);
        let times = || {
            let time = time();
            let queued = |it: &Attached| it.queued().elapsed().saturating_sub(time);
            [attached.as_ref().map_or(waited, queued), time, Duration::ZERO]
        };
        if (is_slow || named.is_some()) && caller.kind == CallKind::Read {
            let [wait, time, _] = times();
            named.into_iter().for_each(|named| named.record_read(wait, time));
            readers.slow.note(caller, time, || wait, slowest);
        }
        let result = ran.unwrap_or_else(|payload| {
            events::call(caller, times, None, events::panicked);
            resume_unwind(payload)
        });
        // It has nothing to defer, and is tried again when the next snapshot is taken.
        let _ = reader.connection.foreign_keys().end_deferral();
        let interruption = reader.connection.interruption();
        let has_panicked = reader.connection.panics().take();
        let error = if interruption.is_revoked() {
            let time = time();
            Some(if time > limit { late(limit, whose, &slowest()) } else { revoked(time) })
        } else if interruption.take_late() {
            Some(late(limit, whose, &slowest()))
        } else {
            has_panicked.then(collation_panicked)
        };
        events::call(caller, times, None, || events::outcome(result.is_ok(), error.as_ref()));
        error.map_or(result, |error| Err(error.into()))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(mut seat) = self.seat.take() {
            self.leave(&mut seat);
        }
        // The watchdog may have left, and not closed a connection that was in use.
        self.readers.awake.note();
        if self.readers.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.readers.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.readers.freed.notify_one();
        }
    }
}

impl Turn<'_> {
    /// Leaves the connection as the next read expects it, after a panic, too.
    fn leave(&self, seat: &mut Seat) {
        let Some(Open { reader, watch }) = seat.open.as_deref_mut() else { return };
        let is_revoked = watch.end();
        reader.deadline.clear();
        // An I/O error ends the transaction of a read as well as that of a write.
        let is_over = !reader.connection.is_in_transaction();
        if is_revoked {
            // Fails only on a broken connection, whose next statement reports it.
            let _ = reader.connection.restore_after_revocation();
            seat.end_snapshot();
        }
        if !self.readers.keep_snapshots || is_over || std::thread::panicking() {
            seat.end_snapshot();
        }
    }
}

fn none_free(ordinary: usize, limit: Duration, longest: Option<Activity>) -> Error {
    let longest = longest.map_or_else(String::new, |it| format!(", one {}", it.held()));
    let message = format!(
        "no reader connection was free within {limit:.1?} (option read_time_limit): all {ordinary} \
         readers and their spares are busy{longest}; end long reads, or raise the option readers"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn all_wait(held: usize, ordinary: usize) -> Error {
    let message = format!(
        "this thread is inside of {held} reads already, and all {ordinary} connections belong to \
         reads that wait for another one, so they would wait for each other; use the closure's \
         own transaction or raise the option readers"
    );
    Error::new(ErrorKind::Invalid, message)
}

fn revoked(age: Duration) -> Error {
    let message = format!(
        "the read was ended after {age:.1?}: its snapshot kept the WAL from restarting near its \
         limit; read in smaller pieces or raise the option wal_limit_bytes"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn late(limit: Duration, whose: &str, slowest: &Slowest) -> Error {
    let message = format!(
        "the read was ended: it may take {limit:.1?} ({whose}), and took longer or would have; \
         {slowest}"
    );
    Error::new(ErrorKind::Timeout, message)
}

/// The slot that the calling thread tries first: threads spread over the slots and stay.
fn preferred_slot() -> usize {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}
