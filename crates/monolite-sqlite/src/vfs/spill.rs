//! Owns the temporary files of a database: where SQLite sorts, builds indexes, and keeps what a
//! statement has in between, beyond what fits in memory.
//!
//! # Algorithm
//! SQLite opens such a file without a name, when the memory for its content is used up: runs of a
//! sort, tables in between (`DISTINCT`, materialized views), the copy of a `VACUUM`, and what a
//! long statement would be undone with. Each is a file in the directory of the database that has
//! no name there, or loses it before it is used, so none is left behind by a process that is
//! killed. Where that directory cannot be written, which only a file that is read as it is allows,
//! it is made in the directory of the system for such files.
//!
//! # Invariants
//! - The lengths of all temporary files of a database together never exceed the limit of its
//!   [`Spill`]: a file that would be longer is refused with `SQLITE_FULL` before it is written.
//! - What a file was given is given back when it is cut or closed.
//!
//! # Not here
//! A rollback journal has a name, and is the unix VFS's. Memory before a file is needed is SQLite's
//! (`setup`).

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_io_methods};

use super::fault::{FileFault, note_fault, note_refusal};
use super::{IoError, Result, guard};

/// What SQLite keeps of a long statement in memory before there is a file: a thousand pages of
/// 4 KiB.
///
/// It is allocated at once. Only pages that are used take memory, and a file for each of these
/// statements would cost more than the statement.
pub const JOURNAL_BYTES: c_int = 4 << 20;

/// Where a database has its temporary files, and how much.
#[derive(Debug)]
pub struct Spill {
    directory: Box<Path>,
    limit_bytes: u64,
    bytes: AtomicU64,
    bytes_max: AtomicU64,
}

impl Spill {
    /// Temporary files in `directory`, which take `limit_bytes` together at most.
    pub fn new(directory: &Path, limit_bytes: u64) -> Spill {
        let (bytes, bytes_max) = (AtomicU64::new(0), AtomicU64::new(0));
        Spill { directory: directory.into(), limit_bytes, bytes, bytes_max }
    }

    /// What they take now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The most that they have taken at once.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// What errors call such a file.
    pub(super) fn place(&self) -> Box<Path> {
        self.directory.join("(a temporary file)").into()
    }

    /// Whether a file may be longer by so much, which it then is.
    fn take(&self, bytes: u64) -> bool {
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        let taken = self.bytes.fetch_update(Relaxed, Relaxed, more);
        taken.inspect(|now| _ = self.bytes_max.fetch_max(now + bytes, Relaxed)).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "temporary files give back what they were given");
    }

    fn create(&self) -> io::Result<File> {
        match tempfile::tempfile_in(&self.directory) {
            Err(error) if is_unwritable(&error) => tempfile::tempfile(),
            made => made,
        }
    }

    /// Makes a file in the memory of SQLite's for one.
    ///
    /// # Errors
    /// `SQLITE_FULL` or `SQLITE_CANTOPEN`, see [`take_file_fault`](super::take_file_fault).
    ///
    /// # Safety
    /// `file` must point to [`FILE_BYTES`] that are SQLite's for this file.
    pub(super) unsafe fn open(self: &Arc<Spill>, file: *mut sqlite3_file) -> Result {
        let made = self.create().map_err(|error| {
            let code = if is_full(&error) { IoError::FULL } else { IoError::CANT_OPEN };
            let errno = error.raw_os_error().unwrap_or(0);
            note_fault(FileFault::new(self.place(), "creating", errno, code));
            code
        })?;
        let state = SpillFile { file: made, bytes: 0, errno: 0, spill: Arc::clone(self) };
        let state = Box::into_raw(Box::new(state));
        let made = Temporary { base: sqlite3_file { pMethods: &raw const METHODS }, state };
        // SAFETY: the caller vouches for the memory, which SQLite aligns for its own files.
        unsafe { file.cast::<Temporary>().write(made) };
        Ok(())
    }
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// An open file.
struct SpillFile {
    file: File,
    /// How long it is.
    bytes: u64,
    /// What the system has said of the last call that failed.
    errno: c_int,
    spill: Arc<Spill>,
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.spill.give_back(self.bytes);
    }
}

impl SpillFile {
    fn failed(&mut self, error: &io::Error, code: IoError) -> IoError {
        self.errno = error.raw_os_error().unwrap_or(0);
        if is_full(error) { IoError::FULL } else { code }
    }

    fn read(&mut self, buf: &mut [u8], at: u64) -> Result {
        let mut filled = 0;
        while filled < buf.len() {
            match self.file.read_at(&mut buf[filled..], at + filled as u64) {
                Ok(0) => {
                    buf[filled..].fill(0);
                    return Err(IoError::SHORT_READ);
                }
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(&error, IoError::READ)),
            }
        }
        Ok(())
    }

    fn write(&mut self, data: &[u8], at: u64) -> Result {
        let more = (at + data.len() as u64).saturating_sub(self.bytes);
        if !self.spill.take(more) {
            note_refusal(self.spill.limit_bytes);
            return Err(IoError::FULL);
        }
        self.bytes += more;
        assert!(self.spill.bytes() >= self.bytes, "temporary files are counted together");
        let written = self.file.write_all_at(data, at);
        written.map_err(|error| self.failed(&error, IoError::WRITE))
    }

    fn truncate(&mut self, size: u64) -> Result {
        // SQLite makes none longer.
        let size = size.min(self.bytes);
        let cut = self.file.set_len(size);
        cut.map_err(|error| self.failed(&error, IoError::TRUNCATE))?;
        self.spill.give_back(self.bytes - size);
        self.bytes = size;
        Ok(())
    }
}

/// What is in SQLite's memory for a file.
#[repr(C)]
struct Temporary {
    base: sqlite3_file,
    /// From `Box::into_raw`, until the file is closed.
    state: *mut SpillFile,
}

/// The memory that a file needs: less than one of the unix VFS has.
pub(super) const FILE_BYTES: usize = size_of::<Temporary>();

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(nothing),
    xDeviceCharacteristics: Some(nothing),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// # Safety
/// `file` must be open by [`Spill::open`], and SQLite be in no other call on it.
unsafe fn state<'a>(file: *mut sqlite3_file) -> &'a mut SpillFile {
    // SAFETY: the caller says so; `open` wrote a `Temporary` there, whose box lives until `close`.
    unsafe { &mut *(*file.cast::<Temporary>()).state }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once and does not use it again.
    let state = unsafe { Box::from_raw((*file.cast::<Temporary>()).state) };
    guard(ffi::SQLITE_IOERR_CLOSE, || {
        drop(state);
        Ok(())
    })
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: an open file, and `len` bytes of the caller's that are not used elsewhere.
    let (state, buf) =
        unsafe { (state(file), slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)) };
    guard(ffi::SQLITE_IOERR_READ, || state.read(buf, at as u64))
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: i64,
) -> c_int {
    // SAFETY: an open file, and `len` bytes that do not change during the call.
    let (state, data) =
        unsafe { (state(file), slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    guard(ffi::SQLITE_IOERR_WRITE, || state.write(data, at as u64))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let state = unsafe { state(file) };
    guard(ffi::SQLITE_IOERR_TRUNCATE, || state.truncate(size as u64))
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours and a place for the size.
    unsafe { *out = state(file).bytes as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    if op != ffi::SQLITE_FCNTL_LAST_ERRNO {
        return ffi::SQLITE_NOTFOUND;
    }
    // SAFETY: an open file of ours, and this control has a place for an int.
    unsafe { *argument.cast::<c_int>() = state(file).errno };
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

/// No other connection has the file, so locks do nothing.
unsafe extern "C" fn lock(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// It is gone after a crash.
unsafe extern "C" fn sync(_file: *mut sqlite3_file, _flags: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// SQLite's own defaults hold.
unsafe extern "C" fn nothing(_file: *mut sqlite3_file) -> c_int {
    0
}
