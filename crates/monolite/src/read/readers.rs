//! Owns the pool of reader connections and the life of a read transaction.
//!
//! # Algorithm
//! 1. A read takes a free connection, trying the one its thread used last first; when all are
//!    taken it waits for one, for as long as a read may take.
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

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use monolite_sqlite::Connection;

use crate::activity::slow::SlowLog;
use crate::activity::{Activity, CallKind, Caller, Slowest};
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

struct Seat {
    /// `None` before a spare one is used, and once the pool is closed.
    reader: Option<Reader>,
    snapshot: Option<KeptSnapshot>,
}

/// The read transaction that is open on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeptSnapshot {
    /// Batches that it is known to contain.
    committed: BatchNumber,
    /// [`Readers::renewals`] when it was taken.
    renewals: u64,
}

struct Slot {
    seat: Mutex<Seat>,
    /// Set with the reader.
    watch: OnceLock<Arc<Watch>>,
    counts: Counts,
}

impl Slot {
    fn new(reader: Option<Reader>, clock: &Arc<dyn Clock>) -> Slot {
        let watch = OnceLock::new();
        if let Some(reader) = &reader {
            let revoker = reader.connection.revoker();
            watch.get_or_init(|| Arc::new(Watch::new(revoker, Arc::clone(clock))));
        }
        let seat = Seat { reader, snapshot: None };
        Slot { seat: Mutex::new(seat), watch, counts: Counts::default() }
    }

    fn is_overdue(&self, now: Duration, limit: Duration) -> bool {
        self.watch.get().is_some_and(|watch| watch.is_overdue(now, limit))
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
    /// Connections in the hands of reads that wait for another one.
    waiting: Mutex<usize>,
    freed: Condvar,
    waiters: AtomicUsize,
}

impl Readers {
    /// Those of `readers`; each that is `None` is opened when it is used.
    pub(crate) fn new(
        readers: Vec<Option<Reader>>,
        open: OpenReader,
        database: DatabaseId,
        keep_snapshots: bool,
        options: &Options,
        progress: Arc<Progress>,
        slow: SlowLog,
    ) -> Readers {
        let ordinary = readers.len();
        let others = (0..ordinary * SPARES + 1).map(|_| None);
        let slots = readers.into_iter().chain(others);
        Readers {
            slots: slots.map(|reader| Slot::new(reader, &options.clock)).collect(),
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
            waiting: Mutex::new(0),
            freed: Condvar::new(),
            waiters: AtomicUsize::new(0),
        }
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
        self.check_nesting()?;
        let turn = self.take_turn()?;
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
        let watches = self.slots.iter().filter_map(|slot| slot.watch.get());
        longest(watches, self.progress.exposed(), self.clock.now())
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
        let first = preferred_slot();
        (0..ordinary.len()).find_map(|i| self.try_slot(&ordinary[(first + i) % ordinary.len()]))
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
        match slot.seat.try_lock() {
            Ok(seat) => Some(self.turn(slot, seat)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.turn(slot, poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn turn<'r>(&'r self, slot: &'r Slot, seat: MutexGuard<'r, Seat>) -> Turn<'r> {
        Turn { readers: self, slot, seat: Some(seat), waited: Duration::ZERO }
    }

    /// Waits for every read to end, closes the connections, and refuses reads from then on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for slot in &self.slots {
            let mut seat = slot.seat.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(watch) = slot.watch.get() {
                seat.end_snapshot(watch);
            }
            seat.reader = None;
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
            let Some(watch) = slot.watch.get() else { continue };
            match slot.seat.try_lock() {
                Ok(mut seat) => seat.end_snapshot(watch),
                Err(_) => oldest = oldest.max(watch.outdated_for(exposed, now)),
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
        self.slots.iter().filter_map(|slot| slot.watch.get().cloned()).collect()
    }

    fn wake_waiters(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.freed.notify_all();
        }
    }
}

impl Seat {
    /// The watch of the slot, whose connection is opened now if it is not.
    fn watch<'s>(&mut self, readers: &Readers, slot: &'s Slot) -> Result<&'s Arc<Watch>> {
        if readers.closed.load(Ordering::Acquire) {
            return Err(Error::closed());
        }
        if self.reader.is_none() {
            self.reader = Some((readers.open)()?);
        }
        let reader = self.reader.as_ref().ok_or_else(Error::closed)?;
        let revoker = reader.connection.revoker();
        let new = || Arc::new(Watch::new(revoker, Arc::clone(&readers.clock)));
        Ok(slot.watch.get_or_init(new))
    }

    /// Makes sure that a read transaction is open whose snapshot contains everything committed.
    fn start(
        &mut self,
        readers: &Readers,
        slot: &Slot,
        watch: &Watch,
        now: Duration,
    ) -> Result<()> {
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
        self.end_snapshot(watch);
        self.reader.as_ref().ok_or_else(Error::closed)?.connection.begin_read()?;
        self.snapshot = Some(current);
        watch.take_snapshot(current.committed, now);
        Ok(())
    }

    fn end_snapshot(&mut self, watch: &Watch) {
        let (Some(_), Some(reader)) = (self.snapshot.take(), &self.reader) else { return };
        // Fails only on a broken connection, whose next statement reports it.
        let _ = reader.connection.rollback();
        watch.end_snapshot();
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
        let watch = seat.watch(readers, slot)?;
        let now = readers.clock.now();
        seat.start(readers, slot, watch, now)?;
        watch.trace().begin(caller);
        watch.begin(now);
        let attached = work::attach(watch);
        let reader = seat.reader.as_ref().ok_or_else(Error::closed)?;
        reader.deadline.set(now, limit);
        Counts::count(&slot.counts.reads);
        let tx = ReadTx::new(&reader.connection, watch.trace());
        let result = body(&tx);
        reader.deadline.clear();
        let time = || readers.clock.now().saturating_sub(now);
        let slowest = || tx.slowest();
        // A stream takes as long as its consumer.
        let is_slow = readers.clock.coarse().saturating_sub(now) > readers.slow.above;
        if is_slow && caller.kind == CallKind::Read {
            let time = time();
            let queued = |it: Attached| it.queued().elapsed().saturating_sub(time);
            readers.slow.note(caller, time, || attached.map_or(waited, queued), slowest);
        }
        // It has nothing to defer, and is tried again when the next snapshot is taken.
        let _ = reader.connection.foreign_keys().end_deferral();
        let interruption = reader.connection.interruption();
        let has_panicked = reader.connection.panics().take();
        if interruption.is_revoked() {
            let time = time();
            let is_late = time > limit;
            let error = if is_late { late(limit, whose, &slowest()) } else { revoked(time) };
            return Err(error.into());
        }
        if interruption.take_late() {
            return Err(late(limit, whose, &slowest()).into());
        }
        if has_panicked {
            return Err(collation_panicked().into());
        }
        result
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(mut seat) = self.seat.take() {
            self.leave(&mut seat);
        }
        if self.readers.waiters.load(Ordering::SeqCst) > 0 {
            drop(self.readers.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            self.readers.freed.notify_one();
        }
    }
}

impl Turn<'_> {
    /// Leaves the connection as the next read expects it, after a panic, too.
    fn leave(&self, seat: &mut Seat) {
        let Some(watch) = self.slot.watch.get() else { return };
        let is_revoked = watch.end();
        let Some(reader) = &mut seat.reader else { return };
        reader.deadline.clear();
        // An I/O error ends the transaction of a read as well as that of a write.
        let is_over = !reader.connection.is_in_transaction();
        if is_revoked {
            // Fails only on a broken connection, whose next statement reports it.
            let _ = reader.connection.restore_after_revocation();
            seat.end_snapshot(watch);
        }
        if !self.readers.keep_snapshots || is_over || std::thread::panicking() {
            seat.end_snapshot(watch);
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
