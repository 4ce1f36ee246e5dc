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

use monolite_sqlite::{Connection, Revocation, Revoker};

use crate::clock::{Clock, Deadline, nanos};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::stats::Recorder;
use crate::tx::Tx;
use crate::untrusted::starved;

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

/// What other threads may see of a reader; on cache lines of its own.
#[repr(align(128))]
struct Watch {
    /// The read under way, see [`State`]; 0 while idle.
    state: AtomicU64,
    /// Batches its snapshot contains; `u64::MAX` without one.
    snapshot: AtomicU64,
    /// When that snapshot was taken, in nanoseconds of the clock.
    taken: AtomicU64,
    reads: AtomicU64,
    kept: AtomicU64,
    revoker: Revoker,
}

/// No read is under way.
const IDLE: u64 = 0;

/// A read under way: when it began, and whether it is being revoked.
///
/// Packed into one word, so that a revoker can claim exactly the read it has looked at: a turn can
/// end only from `Running`, and waits for a revoker that has claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Nanoseconds of the clock; 2^62 of them are 146 years.
    began: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running = 1,
    BeingRevoked = 2,
    Revoked = 3,
}

impl State {
    fn pack(self) -> u64 {
        self.began << 2 | self.stage as u64
    }

    fn unpack(word: u64) -> Option<State> {
        let stage = match word & 3 {
            1 => Stage::Running,
            2 => Stage::BeingRevoked,
            3 => Stage::Revoked,
            _ => return None,
        };
        Some(State { began: word >> 2, stage })
    }
}

impl Watch {
    fn read_under_way(&self) -> Option<State> {
        State::unpack(self.state.load(Ordering::Acquire))
    }

    /// Claims the read `running` and ends its snapshot; `false` when it is over.
    fn revoke(&self, running: State) -> bool {
        let claimed = State { stage: Stage::BeingRevoked, ..running };
        let (from, to) = (running.pack(), claimed.pack());
        if self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.revoker.revoke() == Revocation::Ended {
            self.snapshot.store(u64::MAX, Ordering::Release);
        }
        let revoked = State { stage: Stage::Revoked, ..running };
        self.state.store(revoked.pack(), Ordering::Release);
        true
    }

    /// Ends the read under way, and tells whether it was revoked.
    fn end(&self) -> bool {
        loop {
            let word = self.state.load(Ordering::Acquire);
            let stage = State::unpack(word).map(|state| state.stage);
            if stage == Some(Stage::BeingRevoked) {
                std::thread::yield_now();
                continue;
            }
            let end = self.state.compare_exchange(word, IDLE, Ordering::AcqRel, Ordering::Relaxed);
            if end.is_ok() {
                return stage == Some(Stage::Revoked);
            }
        }
    }
}

struct Slot {
    seat: Mutex<Seat>,
    watch: Watch,
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
    recorder: Arc<Recorder>,
}

/// How readers stand in the way of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// How long the oldest read with an outdated snapshot has been going on.
    pub(crate) oldest: Duration,
}

impl Readers {
    pub(crate) fn new(
        readers: Vec<Reader>,
        keep_snapshots: bool,
        time_limit: Duration,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        recorder: Arc<Recorder>,
    ) -> Readers {
        let slots = readers.into_iter().map(|reader| {
            let watch = Watch {
                state: AtomicU64::new(IDLE),
                snapshot: AtomicU64::new(u64::MAX),
                taken: AtomicU64::new(0),
                reads: AtomicU64::new(0),
                kept: AtomicU64::new(0),
                revoker: reader.connection.revoker(),
            };
            let seat = Seat { reader: Some(reader), snapshot: None, last_sql: RefCell::default() };
            Slot { seat: Mutex::new(seat), watch }
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
            recorder,
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
        let sum = |of: fn(&Watch) -> &AtomicU64| {
            self.slots.iter().map(|slot| of(&slot.watch).load(Ordering::Relaxed)).sum()
        };
        (sum(|watch| &watch.reads), sum(|watch| &watch.kept))
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
    /// read, and tells what still pins the WAL.
    pub(crate) fn release_idle(&self) -> Option<Pinned> {
        self.renewals.fetch_add(1, Ordering::AcqRel);
        let exposed = self.progress.exposed();
        let now = nanos(self.clock.now());
        let mut oldest = None;
        for slot in &self.slots {
            if let Ok(mut seat) = slot.seat.try_lock() {
                seat.end_snapshot(&slot.watch);
                continue;
            }
            let outdated = slot.watch.snapshot.load(Ordering::Acquire) < exposed;
            if let Some(read) = slot.watch.read_under_way().filter(|_| outdated) {
                let age = Duration::from_nanos(now.saturating_sub(read.began));
                oldest = oldest.max(Some(age));
            }
        }
        oldest.map(|oldest| Pinned { oldest })
    }

    /// Revokes the snapshots of reads that have been going on for longer than `age` and are not
    /// the latest: they keep the WAL from being copied. A batch that is committed in parts outdates
    /// them with its first part.
    pub(crate) fn revoke_outdated(&self, age: Duration) {
        let exposed = self.progress.exposed();
        let latest_begin = self.clock.now().saturating_sub(age);
        self.revoke(|watch, read| {
            read.began <= nanos(latest_begin) && watch.snapshot.load(Ordering::Acquire) < exposed
        });
    }

    /// Revokes snapshots that were taken before `moment`, of reads that have been going on for
    /// longer than `age`: when the WAL has been copied whole since then, they alone keep it from
    /// starting anew. Later snapshots read the database file.
    pub(crate) fn revoke_taken_before(&self, moment: Duration, age: Duration) {
        let latest_begin = self.clock.now().saturating_sub(age);
        self.revoke(|watch, read| {
            read.began <= nanos(latest_begin) && watch.taken.load(Ordering::Acquire) < nanos(moment)
        });
    }

    fn revoke(&self, is_in_the_way: impl Fn(&Watch, State) -> bool) {
        for Slot { watch, .. } in &self.slots {
            if let Some(read) = watch.read_under_way()
                && read.stage == Stage::Running
                && is_in_the_way(watch, read)
                && watch.revoke(read)
            {
                self.recorder.revoked_readers.add(1);
            }
        }
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
    fn start(&mut self, readers: &Readers, watch: &Watch, now: Duration) -> Result<()> {
        let renewals = readers.renewals.load(Ordering::Acquire);
        let current = Snapshot { committed: readers.progress.committed(), renewals };
        let is_latest =
            self.snapshot == Some(current) && readers.progress.exposed() <= current.committed;
        if readers.keep_snapshots && is_latest {
            watch.kept.store(watch.kept.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return Ok(());
        }
        self.end_snapshot(watch);
        self.reader.as_ref().ok_or_else(closed)?.connection.begin_deferred()?;
        self.snapshot = Some(current);
        watch.taken.store(nanos(now), Ordering::Release);
        watch.snapshot.store(current.committed, Ordering::Release);
        Ok(())
    }

    fn end_snapshot(&mut self, watch: &Watch) {
        let (Some(_), Some(reader)) = (self.snapshot.take(), &self.reader) else { return };
        // Fails only on a broken connection, whose next statement reports it.
        let _ = reader.connection.rollback();
        watch.snapshot.store(u64::MAX, Ordering::Release);
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
        let (readers, watch) = (self.readers, &self.slot.watch);
        let seat = self.seat.as_mut().expect("a turn has its seat until it is dropped");
        let now = readers.clock.now();
        seat.start(readers, watch, now)?;
        let read = State { began: nanos(now), stage: Stage::Running };
        watch.state.store(read.pack(), Ordering::Release);
        let reader = seat.reader.as_ref().ok_or_else(closed)?;
        reader.deadline.set(now, readers.time_limit);
        watch.reads.store(watch.reads.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
