//! Owns page checksums: a damaged page is an error when it is read, and never data.
//!
//! # Format
//! That of SQLite's own checksum VFS (<https://sqlite.org/cksumvfs.html>). A database has checksums
//! when byte 20 of its header, the bytes reserved at the end of each page, is
//! [`RESERVED_BYTES`]. Those eight bytes are the sums of `fletcher` over the rest of the page, in
//! little-endian words, stored as two little-endian words.
//!
//! # Algorithm
//! 1. A page on its way to the database file gets its checksum, in a copy.
//! 2. A page that comes from the database file is compared with its checksum.
//! 3. A page in the WAL has no checksum of its own: SQLite has summed the frame before it is
//!    written, so the page must not be changed any more. But each frame has the sums over
//!    everything before it and itself. A page read from the WAL is compared with those, which
//!    begin with the sums in the frame before.
//!    A page that the writer has put there twice in the open transaction is not: SQLite sums it
//!    again before the commit, and only its own connection reads it before.
//! 4. A rewrite ([`PageChecksums::begin_rewrite`]) lays out each page anew, and writes page 1 last.
//!    All pages that it writes get a checksum, whatever page 1 says meanwhile.
//! 5. A page that a rollback journal plays back is written as it is: its last bytes are content in
//!    a file that had no checksums, and its old checksum in one that had them.
//!
//! # Invariants
//! - Whether the file has checksums is known before any page of it is compared or written: its
//!   header is read when it is opened, and page 1 of a new file is its first write.
//! - Pages are read as a whole: the files do not offer reads of less than a page
//!   (`SQLITE_IOCAP_SUBPAGE_READ`), which SQLite uses for long values.
//!
//! # Not here
//! A page whose content is that of another page, or all zeros, has a valid checksum: the format
//! does not include the page number. See `docs/decisions/page-checksums.md`.

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

use super::{Deletion, File, FileKind, IoError, LowerFile, Result, Storage};
use crate::fletcher::{Order, Sums};
use crate::header::{HEADER_BYTES, MAGIC, RESERVED_AT};
use crate::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES, number_at};

/// The bytes at the end of each page that hold its checksum.
pub const RESERVED_BYTES: u8 = 8;

/// How much of a file that seems to have no checksums is searched for a page with one.
const SEARCHED_BYTES: usize = 256 << 10;

/// What is done about checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumUse {
    /// Pages that are read must have the right one.
    Verify,
    /// Pages get them in a [rewrite](PageChecksums::begin_rewrite), and before in a file that has
    /// them; none is looked at. For the rewriting of a file that has none, or wrong ones.
    Stamp,
    /// They are kept up to date in a file that had them when it was opened; none is looked at.
    Keep,
}

/// What is known of the checksums of one database, by all of its files.
#[derive(Debug)]
pub struct PageChecksums {
    purpose: ChecksumUse,
    /// Byte 20 of the header as last read or written; [`UNKNOWN`] before.
    reserved: AtomicU16,
    /// Since the header last told of checksums, or from the beginning, the file was searched for
    /// some, and had none.
    was_searched: AtomicBool,
    /// Whether each page that is written has room for a checksum, whatever page 1 says.
    is_rewritten: AtomicBool,
    /// Whether the last call on the journal has read a page, which is then written to the database.
    plays_back: AtomicBool,
}

const UNKNOWN: u16 = u16::MAX;

impl PageChecksums {
    /// Nothing is known of the file yet.
    pub fn new(purpose: ChecksumUse) -> PageChecksums {
        let reserved = AtomicU16::new(UNKNOWN);
        PageChecksums {
            purpose,
            reserved,
            was_searched: AtomicBool::new(false),
            is_rewritten: AtomicBool::new(false),
            plays_back: AtomicBool::new(false),
        }
    }

    /// The only connection is about to lay out each page anew, with room for a checksum, in one
    /// transaction over a rollback journal. It writes nothing else before it is closed.
    pub fn begin_rewrite(&self) {
        self.is_rewritten.store(true, Relaxed);
    }

    /// How many bytes the file reserves in each page; `None` before its header was seen.
    pub fn reserved_bytes(&self) -> Option<u8> {
        u8::try_from(self.reserved.load(Relaxed)).ok()
    }

    fn exist(&self) -> bool {
        self.reserved.load(Relaxed) == u16::from(RESERVED_BYTES)
    }

    /// Whether a page that is written now gets one.
    fn are_stamped(&self) -> bool {
        let is_played_back = self.plays_back.swap(false, Relaxed);
        !is_played_back && (self.exist() || self.is_rewritten.load(Relaxed))
    }

    fn are_verified(&self) -> bool {
        self.purpose == ChecksumUse::Verify
    }

    /// Learns from `data` at the start of the database file whether there are checksums.
    fn note_header(&self, data: &[u8]) {
        if data.len() >= HEADER_BYTES && data.starts_with(MAGIC) {
            self.reserved.store(u16::from(data[RESERVED_AT]), Relaxed);
            if self.exist() {
                self.was_searched.store(false, Relaxed);
            }
        }
    }
}

/// A page that is not what was once written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// Whether it was read from the database file or from its WAL.
    pub file: FileKind,
    /// The page's number, which in a WAL may itself be what is damaged.
    pub pgno: u32,
    /// Where the page begins in the file, in bytes.
    pub at: u64,
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = if self.file == FileKind::Wal { "WAL" } else { "database file" };
        let PageFault { pgno, at, .. } = self;
        write!(f, "page {pgno} at byte {at} of the {file} is damaged: its checksum is wrong")
    }
}

thread_local! {
    static FAULT: Cell<Option<PageFault>> = const { Cell::new(None) };
}

/// Takes what the last read on this thread found that failed with [`IoError::DATA`].
pub fn take_page_fault() -> Option<PageFault> {
    FAULT.take()
}

/// A storage around another one that gives pages checksums.
pub struct Checksummed {
    inner: Arc<dyn Storage>,
    checksums: Arc<PageChecksums>,
}

impl Checksummed {
    /// Does for the database in `inner` what `checksums` was made for.
    pub fn new(inner: Arc<dyn Storage>, checksums: Arc<PageChecksums>) -> Checksummed {
        Checksummed { inner, checksums }
    }
}

impl Storage for Checksummed {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        let mut inner = self.inner.open(kind, path, lower)?;
        if kind == FileKind::Database {
            read_header(&mut *inner, lower, &self.checksums)?;
        }
        let is_for_pages = match (self.checksums.purpose, kind) {
            (_, FileKind::Journal | FileKind::Temp) => false,
            (ChecksumUse::Verify, _) | (ChecksumUse::Stamp, FileKind::Database) => true,
            (ChecksumUse::Keep, FileKind::Database) => self.checksums.exist(),
            (_, FileKind::Wal) => false,
        };
        let checksums = Arc::clone(&self.checksums);
        Ok(match kind {
            FileKind::Journal => Box::new(Journal { inner, checksums }),
            _ if is_for_pages => Box::new(Pages::new(inner, kind, checksums)),
            _ => inner,
        })
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result {
        self.inner.delete(deletion)
    }

    fn sync_wal(&self, wal: &std::fs::File) -> std::io::Result<()> {
        self.inner.sync_wal(wal)
    }

    fn sync_directory(&self, directory: &Path) -> std::io::Result<()> {
        self.inner.sync_directory(directory)
    }
}

/// Learns from the header of a database file whether it has checksums.
fn read_header(file: &mut dyn File, lower: &mut LowerFile, checksums: &PageChecksums) -> Result {
    let mut header = [0; HEADER_BYTES];
    match file.read(lower, &mut header, 0) {
        Ok(()) => checksums.note_header(&header),
        Err(IoError::SHORT_READ) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A database or WAL file whose pages are checked.
struct Pages {
    inner: Box<dyn File>,
    kind: FileKind,
    checksums: Arc<PageChecksums>,
    /// Holds a page while it gets its checksum, or a frame while it is checked.
    copy: Vec<u8>,
    /// Where the header of the frame in the WAL was written whose page comes next.
    header_at: Option<u64>,
    /// The first page in the WAL that the open transaction has put in the place of an earlier one,
    /// without summing the frames from there on again.
    unsummed_from: Option<u64>,
}

/// Whether so many bytes are a page and not a header.
fn is_page(len: usize) -> bool {
    len >= 512 && len.is_power_of_two()
}

fn sums_of(page: &[u8]) -> (Sums, &[u8]) {
    let (content, stored) = page.split_at(page.len() - usize::from(RESERVED_BYTES));
    (Sums::default().over(content, Order::Little), stored)
}

pub(super) fn is_intact(page: &[u8]) -> bool {
    let (sums, stored) = sums_of(page);
    sums.to_page() == stored
}

impl Pages {
    fn new(inner: Box<dyn File>, kind: FileKind, checksums: Arc<PageChecksums>) -> Pages {
        Pages { inner, kind, checksums, copy: Vec::new(), header_at: None, unsummed_from: None }
    }

    fn fault(&self, pgno: u32, at: u64) -> IoError {
        FAULT.set(Some(PageFault { file: self.kind, pgno, at }));
        IoError::DATA
    }

    /// Checks a page that came from the database file.
    fn check_page(&mut self, lower: &mut LowerFile, page: &[u8], at: u64) -> Result {
        if self.checksums.exist() {
            let pgno = u32::try_from(at / page.len() as u64 + 1).unwrap_or(u32::MAX);
            return if is_intact(page) { Ok(()) } else { Err(self.fault(pgno, at)) };
        }
        let is_first = at == 0 && page.starts_with(MAGIC);
        if is_first && self.has_lost_its_mark(lower, page)? {
            return Err(self.fault(1, 0));
        }
        Ok(())
    }

    /// Whether a file whose page 1 says that there are no checksums has some: page 1 itself, but
    /// for that byte, or, if more of it is damaged, another page.
    fn has_lost_its_mark(&mut self, lower: &mut LowerFile, page: &[u8]) -> Result<bool> {
        self.copy.clear();
        self.copy.extend_from_slice(page);
        self.copy[RESERVED_AT] = RESERVED_BYTES;
        if is_intact(&self.copy) {
            return Ok(true);
        }
        // Page 1 is read after every commit of another connection, and the search takes 0.2 ms.
        if self.checksums.was_searched.load(Relaxed) {
            return Ok(false);
        }
        let mut beginning = vec![0; SEARCHED_BYTES];
        match self.inner.read(lower, &mut beginning, 0) {
            Ok(()) | Err(IoError::SHORT_READ) => {}
            Err(error) => return Err(error),
        }
        // The header's page size may be damaged, too. Zeros are intact and prove nothing.
        let is_proof = |page: &[u8]| is_intact(page) && page.iter().any(|byte| *byte != 0);
        let mut sizes = (9..=16).map(|bits| 1 << bits);
        let found = sizes.any(|size| beginning.chunks_exact(size).skip(1).any(is_proof));
        self.checksums.was_searched.store(!found, Relaxed);
        Ok(found)
    }

    /// Reads a page of the WAL together with the header of its frame, and checks both.
    fn read_frame(&mut self, lower: &mut LowerFile, page: &mut [u8], at: u64) -> Result {
        let header_at = at - FRAME_HEADER_BYTES;
        self.copy.resize(FRAME_HEADER_BYTES as usize + page.len(), 0);
        let outcome = self.inner.read(lower, &mut self.copy, header_at);
        let (header, content) = self.copy.split_at(FRAME_HEADER_BYTES as usize);
        page.copy_from_slice(content);
        outcome?;
        let before_at = if header_at == WAL_HEADER_BYTES {
            WAL_HEADER_BYTES - 8
        } else {
            header_at - self.copy.len() as u64 + FRAME_HEADER_BYTES - 8
        };
        let mut before = [0; 8];
        self.inner.read(lower, &mut before, before_at)?;
        let (_, stored) = header.split_at(FRAME_HEADER_BYTES as usize - 8);
        let stored = Sums::from_wal(stored.try_into().expect("a frame ends with eight bytes"));
        let matches =
            |order| Sums::from_wal(before).over(&header[..8], order).over(content, order) == stored;
        // The order is that of the machine that began the WAL.
        if matches(Order::Little) || matches(Order::Big) {
            return Ok(());
        }
        let pgno = number_at(header, 0);
        Err(self.fault(pgno, at))
    }

    /// Takes note of a write to the WAL.
    fn note_frame(&mut self, len: usize, at: u64) {
        if len as u64 == FRAME_HEADER_BYTES {
            // Another transaction begins there, or this one sums its frames again from there on.
            self.unsummed_from.take_if(|from| at < *from);
            self.header_at = Some(at);
        } else if self.header_at.take() != at.checked_sub(FRAME_HEADER_BYTES) && is_page(len) {
            self.unsummed_from = Some(self.unsummed_from.map_or(at, |from| from.min(at)));
        }
    }

    fn is_page_of_a_frame(&self, len: usize, at: u64) -> bool {
        let frame = FRAME_HEADER_BYTES + len as u64;
        is_page(len)
            && at >= WAL_HEADER_BYTES + FRAME_HEADER_BYTES
            && (at - WAL_HEADER_BYTES) % frame == FRAME_HEADER_BYTES
    }
}

impl File for Pages {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.inner)
    }

    /// # Errors
    /// Also [`IoError::DATA`] for a page that is damaged, see [`take_page_fault`].
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let is_verified = self.checksums.are_verified();
        if self.kind == FileKind::Wal {
            let is_summed = self.unsummed_from.is_none_or(|from| at < from);
            return if is_verified && is_summed && self.is_page_of_a_frame(buf.len(), at) {
                self.read_frame(lower, buf, at)
            } else {
                self.inner.read(lower, buf, at)
            };
        }
        let outcome = self.inner.read(lower, buf, at);
        if at == 0 && outcome.is_ok() {
            self.checksums.note_header(buf);
        }
        // What lies beyond the end of the file was zeroed, and a page of zeros is intact.
        let has_content = matches!(outcome, Ok(()) | Err(IoError::SHORT_READ));
        if is_verified && has_content && is_page(buf.len()) {
            self.check_page(lower, buf, at)?;
        }
        outcome
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        if self.kind == FileKind::Wal {
            self.note_frame(data.len(), at);
            return self.inner.write(lower, data, at);
        }
        if at == 0 {
            self.checksums.note_header(data);
        }
        if !self.checksums.are_stamped() || !is_page(data.len()) {
            return self.inner.write(lower, data, at);
        }
        let (sums, stored) = sums_of(data);
        self.copy.clear();
        self.copy.extend_from_slice(&data[..data.len() - stored.len()]);
        self.copy.extend_from_slice(&sums.to_page());
        self.inner.write(lower, &self.copy, at)
    }

    fn device_characteristics(&mut self, lower: &mut LowerFile) -> c_int {
        self.inner.device_characteristics(lower) & !rusqlite::ffi::SQLITE_IOCAP_SUBPAGE_READ
    }
}

/// A rollback journal. Playing it back reads each page right before it is written.
struct Journal {
    inner: Box<dyn File>,
    checksums: Arc<PageChecksums>,
}

impl Journal {
    fn note(&self, plays_back: bool) {
        self.checksums.plays_back.store(plays_back, Relaxed);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.note(false);
    }
}

impl File for Journal {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.inner)
    }

    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        if is_page(buf.len()) {
            self.note(true);
        }
        self.inner.read(lower, buf, at)
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        self.note(false);
        self.inner.write(lower, data, at)
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        self.note(false);
        self.inner.truncate(lower, size)
    }
}
