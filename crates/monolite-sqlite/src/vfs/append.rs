//! Owns commits of whole pages that come from elsewhere: frames of the WAL that SQLite has not
//! made, written and published as it does.
//!
//! # Algorithm
//! What `sqlite3WalFrames`, `walIndexAppend` and `walRestartLog` do, through the files of a
//! connection that has no transaction open:
//! 1. Take the write lock of the WAL.
//! 2. Where the database file has everything that is in the WAL, and no reader uses it, let it
//!    begin anew: a new header of the wal-index, without frames.
//! 3. Write the header of an empty WAL, and sync it, so that no frames of before are behind it.
//! 4. Write the frames. The VFS gathers them, limits them and records their pages as those of any
//!    commit. The last one has the size of the database.
//! 5. Enter the frames into the wal-index: page numbers, and the hash slots by which readers find
//!    them. Then its header, the second copy first.
//! 6. Release the lock.
//!
//! To every connection, this one included, it is the commit of another process: readers keep the
//! snapshot that they have, and see the new header when they take the next.
//!
//! # Markers
//! A commit may have a *marker*: bytes of the caller's that are on disk with it, and with no other.
//! It is the commit's first frame, of a page behind the end of the database. That page is never
//! part of the database, because in `wal.c` and `pager.c`
//! - a page behind the size of the snapshot is not read (`getPageNormal` gives zeros);
//! - a checkpoint passes frames of pages behind the size (`iDbpage>mxPage` in `walCheckpoint`), and
//!   of the others only takes the last one of each page, if a reader's snapshot allows it;
//! - where the database grows later, it grows with frames of its new pages behind the marker, and
//!   the last frame of a page counts. The lock page never gets one, so no marker has its number.
//!
//! A WAL that begins anew, or is cut, takes the markers with it, and asks the
//! [gate](super::WalControl::set_gate) before: for a commit from here, when the header is written.
//!
//! # Invariants
//! - Nothing is visible before all frames are in the file, and entered.
//! - What fails before that leaves frames without a meaning, which the next commit overwrites.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use rusqlite::ffi;

use super::overlay::{
    BACKFILL_ATTEMPTED, BACKFILLED, FRAMES, MARK_UNUSED, PAGE_NUMBERS, READ_MARKS, REGION_BYTES,
    Table,
};
use super::snapshot::{HEADER_WORDS, Header, REGION_WORDS};
use super::{IoError, Result};
use crate::fletcher::{Order, Sums};
use crate::vfs::lower::{of_database, of_wal};
use crate::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES, marker_page};

/// Frames in each region of the wal-index but the first.
const MORE_FRAMES: usize = 4_096;

/// The first three bytes and a half of a WAL, and its version.
const MAGIC: u32 = 0x377f_0682;
const WAL_VERSION: u32 = 3_007_000;

/// The order in which new WALs are summed, as SQLite has it: the machine's.
const NATIVE: Order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };

/// The locks of the wal-index, and how many: to write; of readers that ignore the WAL; of all
/// others.
const WRITE: [c_int; 2] = [0, 1];
const OUTSIDE: [c_int; 2] = [3, 1];
const READERS: [c_int; 2] = [4, 4];

const SHARED: c_int = ffi::SQLITE_SHM_SHARED;
const EXCLUSIVE: c_int = ffi::SQLITE_SHM_EXCLUSIVE;

/// Where the bytes are that SQLite locks, in a page of their own that is never written.
const LOCK_BYTE: usize = 0x4000_0000;

/// Takes one page after another, with their numbers.
pub type TakePage<'t> = dyn FnMut(u32, &[u8]) -> Result + 't;

/// Commits pages to the WAL of `connection`, which has no transaction open, so that the database
/// has `pages` pages afterwards. `give` gives all that change; of one that it gives twice the later
/// content counts, and what is behind the end is left out.
///
/// Returns the number of commits that the wal-index has counted. Where that is not `after` before,
/// another connection has written meanwhile. A `marker` is found by
/// [`WalReader::marker`](crate::wal::WalReader::marker).
///
/// # Errors
/// Those of `give`, and `DATA` for a marker that does not fit a page; `SQLITE_BUSY` when another
/// connection writes, `SQLITE_BUSY_SNAPSHOT` when one has written; `SQLITE_FULL` as every commit;
/// those of the files.
pub(crate) fn append(
    connection: &rusqlite::Connection,
    pages: u32,
    after: Option<u32>,
    marker: Option<&[u8]>,
    give: &mut dyn FnMut(&mut TakePage<'_>) -> Result,
) -> Result<u32> {
    let mut appended = Err(IoError::CANT_OPEN);
    of_database(connection, |database, _| {
        let found = of_wal(connection, |wal, _| {
            let files = Files { database, wal };
            appended =
                files.locked(WRITE, EXCLUSIVE, || commit(&files, pages, after, marker, give));
            ffi::SQLITE_OK
        });
        found.map_or_else(|error| error.code(), |_| ffi::SQLITE_OK)
    })?;
    appended
}

/// How many commits of any process the wal-index has counted, where it has been used.
///
/// # Errors
/// Those of the files.
pub(crate) fn commits(connection: &rusqlite::Connection) -> Result<u32> {
    let mut counted = Err(IoError::CANT_OPEN);
    of_database(connection, |database, _| {
        let files = Files { database, wal: ptr::null_mut() };
        counted = files.region(0).map(|first| header_of(first).commits());
        ffi::SQLITE_OK
    })?;
    counted
}

fn header_of(first: &[AtomicU32]) -> Header {
    Header(std::array::from_fn(|at| first[at].load(Relaxed)))
}

fn commit(
    files: &Files,
    pages: u32,
    after: Option<u32>,
    marker: Option<&[u8]>,
    give: &mut dyn FnMut(&mut TakePage<'_>) -> Result,
) -> Result<u32> {
    let first = files.region(0)?;
    let mut header = header_of(first);
    let is_torn =
        (0..HEADER_WORDS).any(|at| first[HEADER_WORDS + at].load(Relaxed) != header.0[at]);
    if is_torn || !header.is_valid() {
        // A writer was killed in between: the next transaction of SQLite recovers it.
        return Err(IoError::BUSY);
    }
    if after.is_some_and(|after| after != header.commits()) {
        return Err(IoError::OUTDATED);
    }
    let may_begin_anew =
        files.locked(OUTSIDE, SHARED, || begin_anew_if_copied(files, first, &mut header));
    match may_begin_anew {
        // Where a reader uses the WAL, or a checkpoint does, commits are appended to it.
        Err(error) if error.code() & 0xff != ffi::SQLITE_BUSY => return Err(error),
        _ => {}
    }
    let mut frames = Frames::new(files, &mut header, pages)?;
    marker.map_or(Ok(()), |marker| frames.mark(marker))?;
    give(&mut |number, page| frames.take(number, page))?;
    let numbers = frames.end()?;
    enter(files, header.last_frame() as usize - numbers.len(), &numbers)?;
    header.0[2] = header.0[2].wrapping_add(1);
    publish(files, first, &mut header);
    Ok(header.commits())
}

/// Has the WAL begin anew, if its content is in the database file. The lock of those who ignore the
/// WAL is held, as by a writer of SQLite: a checkpoint that copies has it to itself, and looks
/// under it whether the WAL has begun anew.
fn begin_anew_if_copied(files: &Files, first: &[AtomicU32], header: &mut Header) -> Result {
    if header.last_frame() == 0 || first[BACKFILLED].load(Relaxed) != header.last_frame() {
        return Ok(());
    }
    files.locked(READERS, EXCLUSIVE, || begin_anew(files, first, header))
}

/// Has the WAL begin anew, whose content is in the database file and used by no reader.
fn begin_anew(files: &Files, first: &[AtomicU32], header: &mut Header) -> Result {
    let [next, _] = header.salts().map(|salt| u32::from_be_bytes(salt.to_ne_bytes()));
    header.0[4] = 0;
    header.0[8] = u32::from_ne_bytes(next.wrapping_add(1).to_be_bytes());
    header.0[9] = random();
    publish(files, first, header);
    first[BACKFILLED].store(0, Relaxed);
    first[BACKFILL_ATTEMPTED].store(0, Relaxed);
    first[READ_MARKS + 1].store(0, Relaxed);
    first[READ_MARKS + 2..READ_MARKS + 5].iter().for_each(|it| it.store(MARK_UNUSED, Relaxed));
    Ok(())
}

/// Makes `header` that of the wal-index.
fn publish(files: &Files, first: &[AtomicU32], header: &mut Header) {
    header.seal();
    for (at, word) in header.0.iter().enumerate() {
        first[HEADER_WORDS + at].store(*word, Relaxed);
    }
    files.barrier();
    for (at, word) in header.0.iter().enumerate() {
        first[at].store(*word, Relaxed);
    }
}

/// Enters frames behind the first `before` into the wal-index.
fn enter(files: &Files, before: usize, numbers: &[u32]) -> Result {
    for (at, number) in numbers.iter().enumerate() {
        let frame = before + at + 1;
        let region = (frame + MORE_FRAMES - FRAMES - 1) / MORE_FRAMES;
        let words = files.region(region)?;
        let (begins, numbers_at) = match region {
            0 => (0, PAGE_NUMBERS),
            _ => (FRAMES + (region - 1) * MORE_FRAMES, 0),
        };
        let table = Table::of(words, numbers_at);
        let within = frame - begins;
        // What a generation before has left, or a writer that was killed.
        if within == 1 || table.page_number(within) != 0 {
            table.forget_from(within);
        }
        table.enter(within, *number);
    }
    Ok(())
}

/// The frames of one commit.
struct Frames<'f> {
    files: &'f Files,
    header: &'f mut Header,
    page_bytes: usize,
    /// The size of the database afterwards, in pages.
    pages: u32,
    order: Order,
    numbers: Vec<u32>,
    /// The last page that was given: which is the last one of all says the size.
    held: Option<(u32, Vec<u8>)>,
}

impl<'f> Frames<'f> {
    /// Behind those that the WAL has, which gets a header where it has none.
    fn new(files: &'f Files, header: &'f mut Header, pages: u32) -> Result<Frames<'f>> {
        let page_bytes = files.page_bytes()?;
        if header.last_frame() == 0 {
            begin_wal(files, header, page_bytes)?;
        }
        let is_big = header.0[3].to_ne_bytes()[1] != 0;
        let order = if is_big { Order::Big } else { Order::Little };
        let page_bytes = page_bytes as usize;
        Ok(Frames { files, header, page_bytes, pages, order, numbers: Vec::new(), held: None })
    }

    fn mark(&mut self, marker: &[u8]) -> Result {
        let mut page = marker_page(marker).ok_or(IoError::DATA)?;
        if page.len() > self.page_bytes {
            return Err(IoError::DATA);
        }
        page.resize(self.page_bytes, 0);
        let number = marker_number(self.pages, self.page_bytes).ok_or(IoError::FULL)?;
        self.write(number, &page, 0)
    }

    fn take(&mut self, number: u32, page: &[u8]) -> Result {
        if number == 0 || page.len() != self.page_bytes {
            return Err(IoError::DATA);
        }
        if number > self.pages {
            return Ok(());
        }
        let mut memory = Vec::new();
        if let Some((number, held)) = self.held.take() {
            self.write(number, &held, 0)?;
            memory = held;
        }
        memory.clear();
        memory.extend_from_slice(page);
        self.held = Some((number, memory));
        Ok(())
    }

    /// Writes the last one, and tells the numbers of all.
    fn end(mut self) -> Result<Vec<u32>> {
        let (number, page) = self.held.take().ok_or(IoError::DATA)?;
        self.write(number, &page, self.pages)?;
        self.header.0[5] = self.pages;
        Ok(self.numbers)
    }

    /// Writes the next frame; `size` is not 0 in the last one.
    fn write(&mut self, number: u32, page: &[u8], size: u32) -> Result {
        let words = &mut self.header.0;
        let mut frame = [0; FRAME_HEADER_BYTES as usize];
        frame[..4].copy_from_slice(&number.to_be_bytes());
        frame[4..8].copy_from_slice(&size.to_be_bytes());
        frame[8..12].copy_from_slice(&words[8].to_ne_bytes());
        frame[12..16].copy_from_slice(&words[9].to_ne_bytes());
        let sums = Sums { first: words[6], second: words[7] };
        let sums = sums.over(&frame[..8], self.order).over(page, self.order);
        frame[16..].copy_from_slice(&sums.to_wal());
        let at =
            WAL_HEADER_BYTES + u64::from(words[4]) * (FRAME_HEADER_BYTES + self.page_bytes as u64);
        self.files.write_wal(&frame, at)?;
        self.files.write_wal(page, at + FRAME_HEADER_BYTES)?;
        (words[6], words[7]) = (sums.first, sums.second);
        words[4] = words[4].checked_add(1).ok_or(IoError::FULL)?;
        self.numbers.push(number);
        Ok(())
    }
}

/// The page that a marker of a database of so many pages stands for.
fn marker_number(pages: u32, page_bytes: usize) -> Option<u32> {
    let behind = pages.checked_add(1)?;
    if behind as usize == LOCK_BYTE / page_bytes + 1 { behind.checked_add(1) } else { Some(behind) }
}

/// Writes the header of an empty WAL.
fn begin_wal(files: &Files, header: &mut Header, page_bytes: u32) -> Result {
    let words = &mut header.0;
    if words[8..10] == [0; 2] {
        words[8..10].fill_with(random);
    }
    let is_big = NATIVE == Order::Big;
    let mut bytes = [0; WAL_HEADER_BYTES as usize];
    // The sequence number is a hint that is used nowhere.
    for (at, number) in [MAGIC | u32::from(is_big), WAL_VERSION, page_bytes, 1].iter().enumerate() {
        bytes[4 * at..][..4].copy_from_slice(&number.to_be_bytes());
    }
    bytes[16..20].copy_from_slice(&words[8].to_ne_bytes());
    bytes[20..24].copy_from_slice(&words[9].to_ne_bytes());
    let sums = Sums::default().over(&bytes[..24], NATIVE);
    bytes[24..].copy_from_slice(&sums.to_wal());
    files.write_wal(&bytes, 0)?;
    files.sync_wal()?;
    // 65,536 does not fit and is stored as 1.
    let [low, high] = ((page_bytes & 0xfe00 | page_bytes >> 16) as u16).to_ne_bytes();
    words[3] = u32::from_ne_bytes([1, u8::from(is_big), low, high]);
    (words[6], words[7]) = (sums.first, sums.second);
    Ok(())
}

fn random() -> u32 {
    let mut number = 0_u32;
    // SAFETY: it fills the four bytes.
    unsafe { ffi::sqlite3_randomness(4, (&raw mut number).cast()) };
    number
}

/// The open files of a connection, whose mutex is held.
struct Files {
    database: *mut ffi::sqlite3_file,
    wal: *mut ffi::sqlite3_file,
}

/// Calls a method of an open file.
macro_rules! call {
    ($file:expr, $method:ident($($argument:expr),*)) => {{
        // SAFETY: the file is open for as long as its connection's mutex is held, which `append`
        // sees to; pointers among the arguments come from live references of matching length.
        unsafe {
            let method = (*(*$file).pMethods).$method;
            method.expect("a file of a WAL database has it")($file, $($argument),*)
        }
    }};
}

fn check(code: c_int) -> Result {
    IoError::from_code(code).map_or(Ok(()), Err)
}

impl Files {
    /// Runs `run` with locks of the wal-index.
    fn locked<T>(
        &self,
        [at, count]: [c_int; 2],
        how: c_int,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        check(call!(self.database, xShmLock(at, count, ffi::SQLITE_SHM_LOCK | how)))?;
        let ran = run();
        check(call!(self.database, xShmLock(at, count, ffi::SQLITE_SHM_UNLOCK | how)))?;
        ran
    }

    fn barrier(&self) {
        call!(self.database, xShmBarrier());
    }

    /// A region of the wal-index.
    fn region(&self, number: usize) -> Result<&[AtomicU32]> {
        let (number, mut address) =
            (c_int::try_from(number).map_err(|_| IoError::FULL)?, ptr::null_mut());
        check(call!(self.database, xShmMap(number, REGION_BYTES, 1, &raw mut address)))?;
        if address.is_null() {
            return Err(IoError::SHM_MAP);
        }
        // SAFETY: a mapped region has `REGION_WORDS` aligned words, and stays while the connection
        // is open. All loads and stores of this process are atomic or SQLite's own.
        Ok(unsafe { std::slice::from_raw_parts(address.cast(), REGION_WORDS) })
    }

    /// The size of the database's pages in bytes, by its file.
    fn page_bytes(&self) -> Result<u32> {
        let mut bytes = [0_u8; 2];
        check(call!(self.database, xRead(bytes.as_mut_ptr().cast(), 2, 16)))?;
        let size = u32::from(u16::from_be_bytes(bytes));
        let size = if size == 1 { 65_536 } else { size };
        if size.is_power_of_two() && size >= 512 { Ok(size) } else { Err(IoError::DATA) }
    }

    fn write_wal(&self, data: &[u8], at: u64) -> Result {
        let length = c_int::try_from(data.len()).expect("a page is short");
        let at = i64::try_from(at).map_err(|_| IoError::FULL)?;
        check(call!(self.wal, xWrite(data.as_ptr().cast(), length, at)))
    }

    fn sync_wal(&self) -> Result {
        check(call!(self.wal, xSync(ffi::SQLITE_SYNC_NORMAL)))
    }
}

#[test]
fn marker_is_never_of_the_lock_page() {
    assert_eq!(marker_number(1, 4_096), Some(2));
    assert_eq!(marker_number(262_143, 4_096), Some(262_144));
    assert_eq!(marker_number(262_144, 4_096), Some(262_146), "262,145 is the lock page");
    assert_eq!(marker_number(262_145, 4_096), Some(262_146));
    assert_eq!(marker_number(1 << 21, 512), Some((1 << 21) + 2));
    assert_eq!(marker_number(u32::MAX, 512), None);
}
