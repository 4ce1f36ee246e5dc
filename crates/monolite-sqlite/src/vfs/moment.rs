//! Owns the content that a database has at one moment, so that it can be copied while the database
//! goes on: copy-on-write for the database file.
//!
//! # Algorithm
//! At the moment, the database file has that content but for the pages that the WAL has newer, and
//! these have been *taken* already (read from the WAL, under a snapshot). From then on two threads
//! take pages, and a page is taken once:
//! 1. The *copier* goes through the file in the order of its pages ([`Moment::copy`]).
//! 2. A connection that is about to write a page of the file, or to cut it off, which only a
//!    checkpoint does, takes it before ([`Moment::before_write`]).
//!
//! A page is read from the file and marked as taken under one lock, so no page is read while it is
//! written, and none is written before it was read. What was read is handed to [`Images`].
//!
//! # Invariants
//! - A page that is not taken has in the file what it had at the moment.
//! - A checkpoint never fails for a copy's sake: what goes wrong ends the copy ([`Fault`]).
//!
//! # Threads and locks
//! The lock is held while up to [`RUN_BYTES`] are read, and by a checkpoint also while it hands one
//! page to [`Images`]. A commit never takes it.
//!
//! # Not here
//! Checkpoints of other processes, which do not see this: with such a moment a copy needs a
//! snapshot all the time. See `docs/decisions/backups-copy-on-write.md`.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::checksums::is_intact;
use super::{File, IoError, LowerFile, read_database_at};
use crate::locked::locked;

/// What is read at once, at most: some 50 µs of copying, for which a checkpoint may have to wait.
const RUN_BYTES: usize = if cfg!(test) { 32 << 10 } else { 256 << 10 };

/// The byte at which the page begins that SQLite never uses, as its locks are there.
const LOCK_BYTE: u64 = 1 << 30;

/// Where the pages of a moment go.
pub trait Images: Send + Sync {
    /// Keeps `pages`, one or more whole ones, which begin at byte `at` of the database file. Called
    /// once for each page, on any thread.
    ///
    /// # Errors
    /// Those of the place that they are kept in; they end the copy.
    fn save(&self, pages: &[u8], at: u64) -> io::Result<()>;
}

/// Why the content of a moment cannot be had.
#[derive(Debug)]
pub enum Fault {
    /// The database could not be read.
    Read(IoError),
    /// The page's checksum is wrong.
    Damaged {
        /// Its number.
        pgno: u32,
    },
    /// The images could not be kept.
    Save(io::Error),
}

impl From<IoError> for Fault {
    fn from(error: IoError) -> Fault {
        Fault::Read(error)
    }
}

/// The content of a database at one moment, as far as it has not been taken.
pub struct Moment {
    page_bytes: usize,
    pages: u32,
    is_verified: bool,
    images: Box<dyn Images>,
    state: Mutex<MomentState>,
    taken: AtomicU32,
}

struct MomentState {
    /// A bit for each page.
    taken: Vec<u64>,
    fault: Option<Fault>,
    /// No page is taken any more.
    is_over: bool,
}

impl MomentState {
    fn is_taken(&self, index: u32) -> bool {
        self.taken[index as usize / 64] >> (index % 64) & 1 != 0
    }

    /// Marks a page, and tells whether it was not.
    fn mark(&mut self, index: u32) -> bool {
        let is_new = !self.is_taken(index);
        self.taken[index as usize / 64] |= 1 << (index % 64);
        is_new
    }
}

impl Moment {
    /// The moment of a database of `pages` pages, of which none is taken. With `is_verified` those
    /// that a checkpoint takes have to have the right checksum, too.
    pub fn new(
        page_bytes: usize,
        pages: u32,
        is_verified: bool,
        images: Box<dyn Images>,
    ) -> Moment {
        assert!(page_bytes.is_power_of_two(), "a page has {page_bytes} bytes");
        let taken = vec![0; (pages as usize).div_ceil(64)];
        let state = MomentState { taken, fault: None, is_over: false };
        let taken = AtomicU32::new(0);
        Moment { page_bytes, pages, is_verified, images, state: Mutex::new(state), taken }
    }

    /// How many pages there are.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// How long the file was, in bytes.
    pub fn bytes(&self) -> u64 {
        self.at(self.pages)
    }

    /// How many of them are taken.
    pub fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// So many pages more are taken.
    fn count(&self, pages: u32) {
        let before = self.taken.fetch_add(pages, Ordering::Relaxed);
        assert!(before + pages <= self.pages, "a page of a moment is taken once");
    }

    /// Takes page `pgno`, whose content was read elsewhere; a page beyond the last is not part of
    /// the moment.
    ///
    /// # Errors
    /// [`Fault::Save`].
    pub fn take(&self, pgno: u32, page: &[u8]) -> Result<(), Fault> {
        let Some(index) = pgno.checked_sub(1).filter(|index| *index < self.pages) else {
            return Ok(());
        };
        if locked(&self.state).mark(index) {
            self.count(1);
            self.images.save(page, self.at(index)).map_err(Fault::Save)?;
        }
        Ok(())
    }

    /// Takes the pages from page `pgno` on that are read at once, from the database file of
    /// `connection`, and returns the number of the page to go on with; none when that was the last.
    ///
    /// # Errors
    /// What ended the copy, here or in a checkpoint.
    pub fn copy(
        &self,
        connection: &rusqlite::Connection,
        pgno: u32,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<u32>, Fault> {
        let first = pgno.saturating_sub(1);
        let most = (RUN_BYTES / self.page_bytes).max(1) as u32;
        let mut state = locked(&self.state);
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        let Some(from) = (first..self.pages).find(|index| !state.is_taken(*index)) else {
            return Ok(None);
        };
        let end = self.pages.min(from.saturating_add(most));
        let to = (from..end).find(|index| state.is_taken(*index)).unwrap_or(end);
        buffer.resize((to - from) as usize * self.page_bytes, 0);
        self.read_run(connection, from, buffer)?;
        (from..to).for_each(|index| _ = state.mark(index));
        drop(state);
        self.count(to - from);
        self.images.save(buffer, self.at(from)).map_err(Fault::Save)?;
        Ok(Some(to + 1))
    }

    /// Reads the pages from `from` on.
    fn read_run(
        &self,
        connection: &rusqlite::Connection,
        from: u32,
        buffer: &mut [u8],
    ) -> Result<(), Fault> {
        if !self.is_verified && read_database_at(connection, buffer, self.at(from)).is_ok() {
            return Ok(());
        }
        // A page is verified when it is read alone.
        for (index, page) in (from..).zip(buffer.chunks_exact_mut(self.page_bytes)) {
            match read_database_at(connection, page, self.at(index)) {
                Err(IoError::SHORT_READ) if self.is_lock_page(index) => page.fill(0),
                read => read?,
            }
        }
        Ok(())
    }

    /// Sees whether a checkpoint has ended the copy.
    ///
    /// # Errors
    /// What ended it.
    pub fn check(&self) -> Result<(), Fault> {
        locked(&self.state).fault.take().map_or(Ok(()), Err)
    }

    fn at(&self, index: u32) -> u64 {
        u64::from(index) * self.page_bytes as u64
    }

    fn is_lock_page(&self, index: u32) -> bool {
        LOCK_BYTE / self.page_bytes as u64 == u64::from(index)
    }

    /// Takes what is between the bytes `from` and `to` of the file, which are about to change.
    fn before_write(&self, file: &mut dyn File, lower: &mut LowerFile, from: u64, to: u64) {
        let page = self.page_bytes as u64;
        let end = to.div_ceil(page).min(u64::from(self.pages));
        let mut buffer = Vec::new();
        for index in from / page..end {
            // It is below the number of pages.
            let index = index as u32;
            let mut state = locked(&self.state);
            if state.is_over || state.fault.is_some() || state.is_taken(index) {
                continue;
            }
            buffer.resize(self.page_bytes, 0);
            match self.read_before_write(file, lower, index, &mut buffer) {
                Ok(()) => {
                    state.mark(index);
                    self.count(1);
                }
                Err(fault) => state.fault = Some(fault),
            }
        }
    }

    fn read_before_write(
        &self,
        file: &mut dyn File,
        lower: &mut LowerFile,
        index: u32,
        page: &mut [u8],
    ) -> Result<(), Fault> {
        match file.read(lower, page, self.at(index)) {
            Err(IoError::SHORT_READ) if self.is_lock_page(index) => page.fill(0),
            read => read?,
        }
        if self.is_verified && !is_intact(page) {
            return Err(Fault::Damaged { pgno: index + 1 });
        }
        self.images.save(page, self.at(index)).map_err(Fault::Save)
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, pages) = (self.taken(), self.pages);
        f.debug_struct("Moment").field("taken", &taken).field("pages", &pages).finish()
    }
}

/// The moments of one database that are being copied.
#[derive(Debug, Default)]
pub(super) struct Moments {
    /// How many there are, which is mostly none: read by every write to the file.
    count: AtomicU32,
    all: RwLock<Vec<Arc<Moment>>>,
}

impl Moments {
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Moment>>)) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
        self.count.store(all.len() as u32, Ordering::SeqCst);
    }

    /// The bytes from `from` to `to` of the database file `file` are about to change.
    pub(super) fn before_write(
        &self,
        file: &mut dyn File,
        lower: &mut LowerFile,
        from: u64,
        to: u64,
    ) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().for_each(|moment| moment.before_write(file, lower, from, to));
    }
}

/// A moment whose pages are taken before they are written, until this is dropped: then none is
/// taken any more by a checkpoint, and [`Images`] are given none by it.
#[derive(Debug)]
pub struct Guarded {
    control: Arc<super::WalControl>,
    moment: Arc<Moment>,
}

impl Guarded {
    /// From now on a page of `moment` is taken before it is written. Until this returns, the
    /// caller's snapshot must keep pages that are not taken from being written.
    pub fn new(control: &Arc<super::WalControl>, moment: &Arc<Moment>) -> Guarded {
        let (control, moment) = (Arc::clone(control), Arc::clone(moment));
        control.moments().change(|all| all.push(Arc::clone(&moment)));
        Guarded { control, moment }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.control.moments().change(|all| all.retain(|it| !Arc::ptr_eq(it, &self.moment)));
        // A checkpoint may have found it there just before.
        locked(&self.moment.state).is_over = true;
    }
}
