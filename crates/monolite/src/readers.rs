//! Owns the pool of reader connections and the life of a read transaction.
//!
//! # Algorithm
//! 1. A read takes a free connection, trying the one its thread used last first; when all are
//!    taken it waits for one.
//! 2. **Kept snapshots.** A read transaction is not ended with its read. The next read on the
//!    connection goes on with it when no batch can have been seen by anybody since its snapshot was
//!    taken and no checkpoint asked for new ones, which saves the locks of a new one. (Only with
//!    `Sharing::Exclusive`: nobody else can commit.)
//! 3. A kept snapshot pins the WAL, so the checkpointer ends those of idle connections, and
//!    revokes those of readers that hold one for too long.
//!
//! # Invariants
//! - A read sees every write acknowledged before it began: `committed` is read before the
//!   snapshot is taken, and acknowledgement follows `committed`.
//! - A read sees no less than any read that ended before it began: a kept snapshot is not used
//!   while a later commit is `exposed`, since a new snapshot contains that before `committed` does.
//! - Nothing read after a revocation reaches the caller.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use monolite_sqlite::Connection;

use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::tx::Tx;
use crate::untrusted::starved;
use crate::watch::Watch;

/// A connection of the pool, with the time limit that its statements obey.
pub(crate) struct Reader {
    pub(crate) connection: Connection,
    pub(crate) deadline: Arc<Deadline>,
}

struct Seat {
    /// `None` once the pool is closed.
    reader: Option<Reader>,
    snapshot: Option<Snapshot>,
    last_sql: RefCell<String>,
}

/// The read transaction that is open on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Snapshot {
    /// Batches that it is known to contain.
    committed: u64,
    /// [`Readers::renewals`] when it was taken.
    renewals: u64,
}

struct Slot {
    seat: Mutex<Seat>,
    watch: Watch,
    counts: Counts,
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

pub(crate) struct Readers {
    slots: Box<[Slot]>,
    keep_snapshots: bool,
    /// Changes when kept snapshots must not be used any more.
    renewals: AtomicU64,
    time_limit: Duration,
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    waiting: Mutex<()>,
    freed: Condvar,
    waiters: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(
        readers: Vec<Reader>,
        keep_snapshots: bool,
        time_limit: Duration,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
    ) -> Readers {
        let slots = readers.into_iter().map(|reader| {
            let watch = Watch::new(reader.connection.revoker());
            let seat = Seat { reader: Some(reader), snapshot: None, last_sql: RefCell::default() };
            Slot { seat: Mutex::new(seat), watch, counts: Counts::default() }
        });
        Readers {
            slots: slots.collect(),
            keep_snapshots,
            renewals: AtomicU64::new(0),
            time_limit,
            clock,
            progress,
            waiting: Mutex::new(()),
            freed: Condvar::new(),
            waiters: AtomicUsize::new(0),
        }
    }

    /// Runs `body` in a read transaction on this thread.
    pub(crate) fn run<T, E: From<Error>>(
        &self,
        body: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let _nesting = Nesting::enter(self)?;
        self.take_turn().read(body)
    }

    /// Reads so far, and those of them that went on with a kept snapshot.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            self.slots.iter().map(|slot| of(&slot.counts).load(Ordering::Relaxed)).sum()
        };
        (sum(|counts| &counts.reads), sum(|counts| &counts.kept))
    }

    fn take_turn(&self) -> Turn<'_> {
        if let Some(turn) = self.try_turn() {
            return turn;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        let turn = loop {
            if let Some(turn) = self.try_turn() {
                break turn;
            }
            waiting = self.freed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        };
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        turn
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        let first = preferred_slot();
        (0..self.slots.len()).find_map(|i| {
            let slot = &self.slots[(first + i) % self.slots.len()];
            let seat = match slot.seat.try_lock() {
                Ok(seat) => seat,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return None,
            };
            Some(Turn { readers: self, slot, seat: Some(seat) })
        })
    }

    /// Ends the snapshots that idle connections keep, has busy ones take a new one for their next
    /// read, and tells how long the oldest read with an outdated one has been going on.
    pub(crate) fn release_idle(&self) -> Option<Duration> {
        self.renewals.fetch_add(1, Ordering::AcqRel);
        let (exposed, now) = (self.progress.exposed(), self.clock.now());
        let mut oldest = None;
        for slot in &self.slots {
            match slot.seat.try_lock() {
                Ok(mut seat) => seat.end_snapshot(&slot.watch),
                Err(_) => oldest = oldest.max(slot.watch.outdated_for(exposed, now)),
            }
        }
        oldest
    }

    /// What others may see of each connection's snapshot.
    pub(crate) fn watches(&self) -> impl Iterator<Item = &Watch> {
        self.slots.iter().map(|slot| &slot.watch)
    }

    /// Whether the calling thread is inside of a read of this pool.
    pub(crate) fn is_inside(&self) -> bool {
        INSIDE.with_borrow(|inside| inside.iter().any(|other| std::ptr::eq(*other, self)))
    }

    /// Waits for every read to end, closes the connections, and refuses reads from then on.
    pub(crate) fn close(&self) {
        for slot in &self.slots {
            let mut seat = slot.seat.lock().unwrap_or_else(PoisonError::into_inner);
            seat.end_snapshot(&slot.watch);
            seat.reader = None;
        }
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_all();
    }
}

impl Seat {
    /// Makes sure that a read transaction is open whose snapshot contains everything committed.
    fn start(&mut self, readers: &Readers, slot: &Slot, now: Duration) -> Result<()> {
        let renewals = readers.renewals.load(Ordering::Acquire);
        let current = Snapshot { committed: readers.progress.committed(), renewals };
        let is_latest =
            self.snapshot == Some(current) && readers.progress.exposed() <= current.committed;
        if readers.keep_snapshots && is_latest {
            Counts::count(&slot.counts.kept);
            return Ok(());
        }
        self.end_snapshot(&slot.watch);
        self.reader.as_ref().ok_or_else(closed)?.connection.begin_read()?;
        self.snapshot = Some(current);
        slot.watch.take_snapshot(current.committed, now);
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
}

impl Turn<'_> {
    fn read<T, E: From<Error>>(
        mut self,
        body: impl FnOnce(&Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (readers, slot) = (self.readers, self.slot);
        let seat = self.seat.as_mut().expect("a turn has its seat until it is dropped");
        let now = readers.clock.now();
        seat.start(readers, slot, now)?;
        slot.watch.begin(now);
        let reader = seat.reader.as_ref().ok_or_else(closed)?;
        reader.deadline.set(now, readers.time_limit);
        Counts::count(&slot.counts.reads);
        let budget = reader.connection.start_budget();
        let result = body(&Tx::new(&reader.connection, 1, &seat.last_sql));
        let is_starved = reader.connection.end_budget(budget);
        reader.deadline.clear();
        let signals = reader.connection.signals();
        if signals.is_revoked() {
            return Err(revoked(readers.clock.now() - now).into());
        }
        if signals.take_interrupted() {
            return Err(late(readers.time_limit).into());
        }
        if is_starved && result.is_err() {
            return Err(starved().into());
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
        let watch = &self.slot.watch;
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

/// The reads that a thread is inside of: one that needs more connections than there are would wait
/// for itself.
struct Nesting;

thread_local! {
    static INSIDE: RefCell<Vec<*const Readers>> = const { RefCell::new(Vec::new()) };
}

impl Nesting {
    fn enter(readers: &Readers) -> Result<Nesting> {
        let this: *const Readers = readers;
        INSIDE.with_borrow_mut(|inside| {
            let held = inside.iter().filter(|other| std::ptr::eq(**other, this)).count();
            if held >= readers.slots.len() {
                let message = format!(
                    "a read inside of {held} other reads of this thread would wait for itself; use \
                     the closure's own transaction or raise the option readers"
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            inside.push(this);
            Ok(Nesting)
        })
    }
}

impl Drop for Nesting {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(Vec::pop);
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again to read")
}

fn revoked(age: Duration) -> Error {
    let message = format!(
        "the read was ended after {age:.1?}: its snapshot kept the WAL from starting anew near its \
         limit; read in smaller pieces or raise the option wal_limit_bytes"
    );
    Error::new(ErrorKind::Timeout, message)
}

fn late(limit: Duration) -> Error {
    let message = format!("the read took longer than {limit:.1?} (option read_time_limit)");
    Error::new(ErrorKind::Timeout, message)
}

/// The slot that the calling thread tries first: threads spread over the slots and stay.
fn preferred_slot() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}
