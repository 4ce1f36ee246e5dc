//! Owns the record of which commit changed which page last.
//!
//! # Algorithm
//! 1. `Gather` sees the page number in the header of every frame. When the commit frame has
//!    arrived, and before it is written, the commit gets the next number, which is stored in the
//!    slot of each of its pages ([`Changes::record`]). The commit is not visible yet: SQLite
//!    publishes it in the wal-index after that write has returned.
//! 2. The number becomes the [`Changes::sequence`] when the connection releases the WAL's write
//!    lock ([`Published`]), which SQLite does after the commit is visible, or was undone.
//! 3. A transaction reads the sequence, then takes its snapshot. Whether a page has changed since
//!    is whether its slot holds a greater number.
//!
//! Why races only ever say "changed": a commit that the snapshot lacks was not visible after the
//! sequence was read, so its number, which is published later still, is greater than the sequence,
//! and it is in the slots before any reader can see the commit. A commit that became visible
//! between the two has a greater number too, although the snapshot has it. A commit that failed
//! after it was recorded has changed nothing.
//!
//! The slot of a page is its number modulo [`SLOTS`]. Pages that share one are taken for changed
//! together; a slot is never emptied.
//!
//! # Threads and locks
//! One connection at a time has the write lock and records. Reading takes no lock. Slots are
//! written before the commit is visible and before the sequence is released, so a thread that knows
//! of the commit by either way finds them.
//!
//! # Not here
//! - Writes of other processes: the record is of use only where there are none.
//! - Checkpoints and restarting the WAL move pages and change none. `VACUUM` writes frames.
//! - A commit that was reported as failed although its frames are in the file (see `Gather`) is
//!   undone for this process; only a recovery after its end could find it.
//! - Overlays: their file takes no lock of the files below, and writes none.
//! - The open transaction of a writer: [`Pages::batch_changed`].
//!
//! [`Pages::batch_changed`]: crate::Pages::batch_changed

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi;

use super::{File, LowerFile, Result, ShmLock, WalControl};
use crate::pages::PageSet;

/// How many slots there are: pages of a file up to 4 GiB (of 4 KiB pages) share none.
///
/// The 8 MiB are touched only where pages change. A batch in which 4,000 distinct pages change (a
/// window of some 10 ms under full load) lets a transaction with 8 pages of a larger file be taken
/// for changed with a probability of 8 × 4,000 / 2^20 = 3 %; with 2^16 slots it would be 39 %.
const SLOTS: usize = 1 << 20;

// The slot of a page is found by a mask.
const _: () = assert!(SLOTS.is_power_of_two());

/// The number of a commit of SQLite, as this process has seen them in its WAL: 1, 2, 3 … in their
/// order. [`CommitSequence::UNKNOWN`] is before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitSequence(u64);

impl CommitSequence {
    /// Of a snapshot with unknown content: every commit may be later.
    pub const UNKNOWN: CommitSequence = CommitSequence(0);
}

/// Which commit of this process changed which page last.
pub struct Changes {
    slots: Box<[AtomicU64]>,
    /// The number of the last commit that was recorded.
    recorded: AtomicU64,
    /// The number of the last commit that was visible, or undone, when the write lock was released.
    published: AtomicU64,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes { slots: zeroed_slots(), recorded: AtomicU64::new(0), published: AtomicU64::new(0) }
    }
}

/// Memory that the system hands out page by page as it is touched.
fn zeroed_slots() -> Box<[AtomicU64]> {
    let slots = Box::into_raw(vec![0_u64; SLOTS].into_boxed_slice());
    // SAFETY: `AtomicU64` has the size, the validity and, on 64-bit targets, the alignment of
    // `u64`, which is asserted; the memory is owned and no other pointer to it exists.
    unsafe {
        const { assert!(align_of::<u64>() == align_of::<AtomicU64>()) };
        Box::from_raw(slots as *mut [AtomicU64])
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("sequence", &self.sequence()).finish_non_exhaustive()
    }
}

impl Changes {
    fn slot(&self, pgno: u32) -> &AtomicU64 {
        &self.slots[pgno as usize % SLOTS]
    }

    /// The number of the newest commit that every snapshot taken from now on has. To be read before
    /// the snapshot is taken.
    pub fn sequence(&self) -> CommitSequence {
        CommitSequence(self.published.load(Ordering::Acquire))
    }

    /// Whether a commit later than `sequence` may have changed page `pgno`.
    pub fn changed_since(&self, pgno: u32, sequence: CommitSequence) -> bool {
        CommitSequence(self.slot(pgno).load(Ordering::Acquire)) > sequence
    }

    /// Whether a commit later than `sequence` may have changed one of `pages`. The schema cookie is
    /// not looked at: compare it by [`Pages::batch_changed`].
    ///
    /// [`Pages::batch_changed`]: crate::Pages::batch_changed
    pub fn any_changed_since(&self, pages: &PageSet, sequence: CommitSequence) -> bool {
        pages.pages().iter().any(|pgno| self.changed_since(*pgno, sequence))
    }

    /// Records a commit that is not visible yet; under the WAL's write lock.
    pub(super) fn record(&self, pages: &[u32]) {
        let number = self.recorded.load(Ordering::Relaxed) + 1;
        for pgno in pages {
            assert_ne!(*pgno, 0, "pages are numbered from 1 on");
            self.slot(*pgno).store(number, Ordering::Release);
        }
        self.recorded.store(number, Ordering::Relaxed);
    }

    /// Publishes what was recorded; by who has the WAL's write lock, after the commit is visible.
    fn publish(&self) {
        let number = self.recorded.load(Ordering::Relaxed);
        assert!(self.sequence().0 <= number, "commits are published in their order");
        self.published.store(number, Ordering::Release);
    }
}

/// A database file that publishes the commits of its connection, and asks the
/// [gate](WalControl::set_gate) whether the WAL may begin anew. Its pages are read as a whole, so
/// that the page cache sees each of them.
#[derive(Debug)]
pub(super) struct Published<F> {
    inner: F,
    control: Arc<WalControl>,
    /// Whether this connection has the write lock of the WAL.
    has_write_lock: bool,
}

impl<F: File> Published<F> {
    pub(super) fn new(inner: F, control: Arc<WalControl>) -> Published<F> {
        Published { inner, control, has_write_lock: false }
    }
}

impl<F: File> File for Published<F> {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut self.inner)
    }

    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        if lock.releases_write_lock() && std::mem::take(&mut self.has_write_lock) {
            self.control.changes().publish();
        }
        if lock.has_wal_begin_anew() {
            self.control.ask_gate()?;
        }
        let outcome = self.inner.shm_lock(lower, lock);
        self.has_write_lock |= outcome.is_ok() && lock.is_write_lock() && lock.takes();
        outcome
    }

    fn device_characteristics(&mut self, lower: &mut LowerFile) -> c_int {
        self.inner.device_characteristics(lower) & !ffi::SQLITE_IOCAP_SUBPAGE_READ
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        let end = at + data.len() as u64;
        self.control.moments().before_write(&mut self.inner, lower, at, end);
        self.inner.write(lower, data, at)?;
        self.control.note_database_end(end);
        Ok(())
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        self.control.moments().before_write(&mut self.inner, lower, size, u64::MAX);
        self.control.note_database_cut(size);
        let cut = self.inner.truncate(lower, size);
        // A commit may have set space aside meanwhile.
        self.control.note_database_cut(size);
        cut
    }
}
