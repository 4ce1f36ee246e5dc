//! Owns the files of overlays: connections that show a snapshot which another one pins, and let a
//! transaction change pages in its own memory alone.
//!
//! # Format
//! The first region of the wal-index, in 32-bit words: two copies of the header (0 to 23); the
//! frames copied to the database (24); the five read marks (25 to 29); lock bytes (30, 31); frames
//! whose copying was begun (32); unused (33); the page numbers of the first 4,062 frames; and 8,192
//! hash slots of 16 bits, each the number of a frame or 0. A page's slots begin at its number times
//! 383, modulo 8,192, and end at the first that is 0. See <https://sqlite.org/walformat.html>.
//!
//! # Algorithm
//! 1. SQLite's locks of the wal-index to read and to write succeed here and lock nothing, so an
//!    overlay always gets the write lock, unseen by other connections. Its pin protects what it
//!    reads.
//! 2. Its first region of the wal-index is a private copy, in which both headers are the
//!    snapshot's. SQLite compares its own header with that before it writes and copies it at a
//!    rollback; with the live one a write would be refused as soon as another connection commits,
//!    and a rollback would move the connection to another snapshot and clean the writer's hash
//!    table.
//! 3. If the snapshot uses the WAL, none of it counts as copied to the database (the live figure
//!    tells of the newest snapshot only: an older version of a page with a newer one is never
//!    copied). If it does not, everything counts as copied, which makes SQLite ignore the WAL.
//! 4. The private hash table has the frames that were committed so far, and more of them are
//!    entered as snapshots get younger: in one generation of the WAL (told by its salts) committed
//!    frames stay what they are. Frames behind the snapshot's last are ignored by SQLite.
//! 5. The other regions are the live ones. SQLite changes them when it writes frames to the WAL or
//!    takes some back. An overlay never has any there: the first write of one is refused.
//! 6. Every read of a file looks at the pin afterwards. If it is gone, the read fails, so pages
//!    that a checkpoint or the next WAL generation has overwritten are never taken for the
//!    snapshot's.
//!
//! # Invariants
//! - No byte of the database, its WAL or the live wal-index is changed through these files.
//! - The private region changes only while SQLite holds no READ lock through it.

use std::ffi::c_int;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

use rusqlite::ffi;

use super::snapshot::{HEADER_WORDS, Header, REGION_WORDS};
use super::{
    Deletion, File, FileKind, IoError, LockLevel, LowerFile, Result, ShmLock, ShmRegion,
    ShmRequest, Snapshot, Storage, SyncFlags, take_page_fault,
};

/// Where the frames are counted that were copied to the database.
pub(crate) const BACKFILLED: usize = 2 * HEADER_WORDS;
/// Where the read marks are.
pub(crate) const READ_MARKS: usize = BACKFILLED + 1;
pub(super) const BACKFILL_ATTEMPTED: usize = 32;
/// Where the page numbers of frames begin.
pub(crate) const PAGE_NUMBERS: usize = 34;
const SLOTS: usize = 4_096;

/// The frames that the first region has room for.
pub(super) const FRAMES: usize = SLOTS - PAGE_NUMBERS;
const SLOT_COUNT: usize = 8_192;
const HASH_FACTOR: u32 = 383;

/// The size of each region of the wal-index.
pub(super) const REGION_BYTES: c_int = REGION_WORDS as c_int * 4;

/// A read mark that stands for none.
pub(super) const MARK_UNUSED: u32 = u32::MAX;

/// Entering more frames than this one by one takes longer than copying the whole table.
const ENTERED_SINGLY: usize = 256;

/// The storage of overlays: that of the database, to be read.
pub(super) struct Overlays {
    below: Arc<dyn Storage>,
}

impl Overlays {
    pub(super) fn new(below: Arc<dyn Storage>) -> Overlays {
        Overlays { below }
    }
}

impl Storage for Overlays {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        let below = self.below.open(kind, path, lower)?;
        match kind {
            FileKind::Database => Ok(Box::new(Database::new(Shown { below }))),
            FileKind::Wal => Ok(Box::new(Shown { below })),
            FileKind::Journal => Err(IoError::CANT_OPEN),
            FileKind::Temp => Ok(below),
        }
    }

    fn delete(&self, _deletion: &Deletion<'_>) -> Result {
        Err(IoError::DELETE)
    }
}

/// The outcome of a read that has just been made, if the snapshot was pinned to its end.
fn if_pinned(lower: &LowerFile, outcome: Result) -> Result {
    if lower.is_shown_pinned() == Some(false) {
        // A page that was overwritten meanwhile is no damaged one.
        take_page_fault();
        return Err(IoError::UNPINNED);
    }
    outcome
}

/// A file of an overlay, which is read while its snapshot is pinned, and never changed.
struct Shown {
    below: Box<dyn File>,
}

impl File for Shown {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.below)
    }

    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let outcome = self.below.read(lower, buf, at);
        if_pinned(lower, outcome)
    }

    fn write(&mut self, _lower: &mut LowerFile, _data: &[u8], _at: u64) -> Result {
        Err(IoError::WRITE)
    }

    fn truncate(&mut self, _lower: &mut LowerFile, _size: u64) -> Result {
        Err(IoError::TRUNCATE)
    }

    fn sync(&mut self, _lower: &mut LowerFile, _flags: SyncFlags) -> Result {
        Err(IoError::SYNC)
    }
}

/// The database file of an overlay.
struct Database {
    below: Shown,
    private: Region,
    /// The first region of the live wal-index, once SQLite has asked for it.
    live: Option<ShmRegion>,
    is_reading: bool,
}

// SAFETY: the region that `live` points to is shared by all connections of the process, and
// belongs to no thread.
unsafe impl Send for Database {}

impl Database {
    fn new(below: Shown) -> Database {
        Database { below, private: Region::new(), live: None, is_reading: false }
    }

    /// Makes the private region that of `snapshot`.
    fn refresh(&mut self, snapshot: &Snapshot) -> Result {
        let Some(live) = &self.live else { return Ok(()) };
        if live.address.addr() != snapshot.index {
            return Err(IoError::SHM_MAP);
        }
        // SAFETY: the address is that of a region of the wal-index, `REGION_WORDS` words that stay
        // while this connection has it mapped (`shm_unmap` forgets it).
        let live = unsafe { Table::new(live.address.cast()) };
        self.private.set_header(snapshot);
        if snapshot.uses_wal() {
            self.private.enter_frames(snapshot, &live);
        }
        if snapshot.is_pinned() {
            return Ok(());
        }
        self.private.forget_frames();
        Err(IoError::UNPINNED)
    }

    fn map_first(&mut self, lower: &mut LowerFile, request: ShmRequest) -> Result<ShmRegion> {
        let snapshot = lower.shown().ok_or(IoError::SHM_MAP)?;
        let live = self.below.shm_map(lower, ShmRequest { extend: 0, ..request })?;
        if live.address.is_null() || live.code != ffi::SQLITE_OK || request.size != REGION_BYTES {
            return Err(IoError::SHM_MAP);
        }
        self.live = Some(live);
        self.refresh(&snapshot)?;
        Ok(ShmRegion { address: self.private.words.as_ptr().cast(), code: ffi::SQLITE_OK })
    }
}

impl File for Database {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut self.below)
    }

    /// Shared locks keep others from an exclusive one, and are all that is needed to read.
    fn lock(&mut self, lower: &mut LowerFile, level: LockLevel) -> Result {
        if level > LockLevel(ffi::SQLITE_LOCK_SHARED) {
            return Err(IoError::LOCK);
        }
        self.below.lock(lower, level)
    }

    fn shm_map(&mut self, lower: &mut LowerFile, request: ShmRequest) -> Result<ShmRegion> {
        if request.index == 0 {
            return self.map_first(lower, request);
        }
        let region = self.below.shm_map(lower, ShmRequest { extend: 0, ..request })?;
        if region.address.is_null() { Err(IoError::SHM_MAP) } else { Ok(region) }
    }

    /// The locks to recover, to copy frames and to restart the WAL are refused: with them SQLite
    /// would change the live regions.
    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        if lock.shared_read_slot().is_some() {
            if lock.takes() && lower.is_shown_pinned() != Some(true) {
                return Err(IoError::UNPINNED);
            }
            self.is_reading = lock.takes();
        } else if lock.takes() && !lock.is_write_lock() {
            return Err(IoError::SHM_LOCK);
        }
        Ok(())
    }

    fn shm_unmap(&mut self, lower: &mut LowerFile, _delete_flag: c_int) -> Result {
        self.live = None;
        self.is_reading = false;
        self.below.shm_unmap(lower, 0)
    }

    /// # Errors
    /// `SQLITE_BUSY` in a transaction, [`IoError::UNPINNED`], and an `SQLITE_IOERR_SHMMAP` for a
    /// snapshot of another database.
    fn show(&mut self, lower: &mut LowerFile, snapshot: Option<&Snapshot>) -> Result {
        if self.is_reading {
            return Err(IoError::BUSY);
        }
        lower.set_shown(None);
        if let Some(snapshot) = snapshot {
            self.refresh(snapshot)?;
            lower.set_shown(Some(snapshot.clone()));
        }
        Ok(())
    }
}

/// A region of the wal-index in memory of our own.
struct Region {
    /// `REGION_WORDS` of them; from `Box::into_raw`, as SQLite has the address, too.
    words: NonNull<AtomicU32>,
    /// The generation of the WAL whose frames are in the table, and how many.
    entered: Option<([u32; 2], usize)>,
}

// SAFETY: the memory is owned. SQLite uses it from within calls on the connection, which has the
// file that this is part of.
unsafe impl Send for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.words.as_ptr(), REGION_WORDS);
        // SAFETY: `new` has it from `Box::into_raw`, with this length; SQLite forgets the address
        // before it closes the file.
        drop(unsafe { Box::from_raw(words) });
    }
}

impl Region {
    fn new() -> Region {
        let words: Box<[AtomicU32]> = (0..REGION_WORDS).map(|_| AtomicU32::new(0)).collect();
        let words = NonNull::new(Box::into_raw(words).cast()).expect("a box is not null");
        Region { words, entered: None }
    }

    fn table(&self) -> Table<'_> {
        // SAFETY: `REGION_WORDS` words that live as long as `self`.
        unsafe { Table::new(self.words.as_ptr()) }
    }

    fn set_header(&self, snapshot: &Snapshot) {
        let words = self.table().words;
        for (at, word) in snapshot.header.0.iter().enumerate() {
            words[at].store(*word, Relaxed);
            words[HEADER_WORDS + at].store(*word, Relaxed);
        }
        let last_frame = snapshot.header.last_frame();
        let backfilled = if snapshot.uses_wal() { 0 } else { last_frame };
        words[BACKFILLED].store(backfilled, Relaxed);
        words[BACKFILL_ATTEMPTED].store(backfilled, Relaxed);
        let marks = [0, last_frame, MARK_UNUSED, MARK_UNUSED, MARK_UNUSED];
        for (word, mark) in words[READ_MARKS..].iter().zip(marks) {
            word.store(mark, Relaxed);
        }
    }

    /// Enters the frames of `live` that belong to `snapshot`.
    fn enter_frames(&mut self, snapshot: &Snapshot, live: &Table<'_>) {
        let salts = snapshot.header.salts();
        let last = FRAMES.min(snapshot.header.last_frame() as usize);
        let known = self.entered.filter(|(generation, _)| *generation == salts);
        let entered = known.map_or(0, |(_, entered)| entered);
        let table = self.table();
        if last > entered + ENTERED_SINGLY {
            table.copy(live, last);
        } else {
            if known.is_none() {
                table.clear();
            }
            for frame in entered + 1..=last {
                table.enter(frame, live.page_number(frame));
            }
        }
        self.entered = Some((salts, entered.max(last)));
    }

    fn forget_frames(&mut self) {
        self.entered = None;
    }
}

/// A region of a wal-index: page numbers and hash slots.
pub(super) struct Table<'r> {
    words: &'r [AtomicU32],
    /// Where among them page numbers begin.
    numbers: usize,
    slots: &'r [AtomicU16],
}

impl<'r> Table<'r> {
    /// Of a region whose page numbers begin at this word.
    pub(super) fn of(words: &'r [AtomicU32], numbers: usize) -> Table<'r> {
        assert_eq!(words.len(), REGION_WORDS, "a region is whole");
        // SAFETY: the last `SLOTS` of the words hold two slots each.
        let slots =
            unsafe { std::slice::from_raw_parts(words.as_ptr().add(SLOTS).cast(), SLOT_COUNT) };
        Table { words, numbers, slots }
    }

    /// # Safety
    /// `words` must point to `REGION_WORDS` words that stay for the lifetime of the result.
    unsafe fn new(words: *const AtomicU32) -> Table<'r> {
        // SAFETY: the caller vouches for the words.
        Table::of(unsafe { std::slice::from_raw_parts(words, REGION_WORDS) }, PAGE_NUMBERS)
    }

    pub(super) fn page_number(&self, frame: usize) -> u32 {
        self.words[self.numbers + frame - 1].load(Relaxed)
    }

    /// Takes `frame` and all behind it out, as `walCleanupHash` does.
    pub(super) fn forget_from(&self, frame: usize) {
        for number in &self.words[self.numbers + frame - 1..SLOTS] {
            number.store(0, Relaxed);
        }
        self.forget_slots_behind(frame - 1);
    }

    /// What is behind is at the end of every chain of slots, so taking it away breaks none.
    fn forget_slots_behind(&self, last: usize) {
        for slot in self.slots {
            if usize::from(slot.load(Relaxed)) > last {
                slot.store(0, Relaxed);
            }
        }
    }

    fn clear(&self) {
        for word in &self.words[SLOTS..] {
            word.store(0, Relaxed);
        }
    }

    /// Enters the next frame, as `walIndexAppend` does.
    pub(super) fn enter(&self, frame: usize, pgno: u32) {
        self.words[self.numbers + frame - 1].store(pgno, Relaxed);
        let mut slot = pgno.wrapping_mul(HASH_FACTOR) as usize % SLOT_COUNT;
        // Half of the slots at most are taken.
        while self.slots[slot].load(Relaxed) != 0 {
            slot = (slot + 1) % SLOT_COUNT;
        }
        self.slots[slot].store(frame as u16, Relaxed);
    }

    /// Takes over the first `last` frames of `live`, whose owner may be adding others.
    fn copy(&self, live: &Table<'_>, last: usize) {
        let page_numbers = PAGE_NUMBERS..PAGE_NUMBERS + last;
        for at in page_numbers.chain(SLOTS..REGION_WORDS) {
            self.words[at].store(live.words[at].load(Relaxed), Relaxed);
        }
        // Some were added since.
        self.forget_slots_behind(last);
    }
}

/// The first or second header in the first region of a wal-index.
pub(crate) fn header_in(words: &[u32], which: usize) -> Header {
    Header(std::array::from_fn(|at| words[which * HEADER_WORDS + at]))
}

/// Whether the first region of a wal-index leads from the page of each of its frames, up to `last`,
/// to that frame.
pub(crate) fn finds_frames(words: &[u32], last: u32) -> bool {
    let slot = |at: usize| {
        let halves = words[SLOTS + at / 2].to_ne_bytes();
        usize::from(u16::from_ne_bytes([halves[at % 2 * 2], halves[at % 2 * 2 + 1]]))
    };
    (1..=FRAMES.min(last as usize)).all(|frame| {
        let first = words[PAGE_NUMBERS + frame - 1].wrapping_mul(HASH_FACTOR) as usize;
        let chain = (0..SLOT_COUNT).map(|step| slot((first + step) % SLOT_COUNT));
        chain.take_while(|found| *found != 0).any(|found| found == frame)
    })
}
