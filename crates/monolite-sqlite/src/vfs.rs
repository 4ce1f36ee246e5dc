//! The VFS seam: every file call of an engine connection passes through a [`Storage`].
//!
//! A [`Vfs`] is registered with SQLite for one database instance, under a name of its own, on top
//! of SQLite's `unix` or `unix-excl` VFS. What its files do is decided by a [`Storage`]: [`Direct`]
//! in production; fault injection, recording and overlays are other implementations of the same
//! trait.
//!
//! # Algorithm
//! 1. SQLite opens a file. The shim opens it in the lower VFS, asks [`Storage::open`] for a
//!    [`File`] and stores both in the memory that SQLite set aside for the file.
//! 2. Each later call goes C callback → [`File`] method → [`LowerFile`]. A method that is not
//!    overridden forwards, so a database read costs one virtual call: no allocation, no lock.
//! 3. The lower file is lent to every call and never owned by the `File`: the unix VFS keeps
//!    pointers into the connection's memory, so nothing may hold a lower file beyond its `xClose`.
//!
//! # Invariants
//! - A panic in a `Storage` or a `File` becomes an I/O error; it never unwinds into C.
//! - The shim offers shared memory exactly where the lower file does.
//! - No memory mapping is offered (`xFetch`), so that no read bypasses a `File`.
//!
//! # Threads and locks
//! The files of a connection are used by one thread at a time and move with the connection. Only
//! opening a file takes a lock.
//!
//! # Not here
//! The gathering of WAL frames is in [`gather`](self::Gather), their copies for readers in
//! `recent`, the record of changed pages in [`changes`](self::Changes), commits of pages from
//! elsewhere in `append`, the locks of a database
//! that is one process's alone in `locks`, temporary files in [`Spill`]; the C side is in `shim`
//! and `spill` (SQLite calls us) and `lower` (we call SQLite), which hold all `unsafe` of it.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use rusqlite::ffi;

use crate::codes::failure;

mod append;
mod changes;
mod checksums;
mod control;
mod descriptor;
mod fault;
mod gather;
mod locks;
mod lower;
mod moment;
mod overlay;
mod recent;
mod shim;
mod snapshot;
mod spill;
#[cfg(test)]
mod tests;

pub use append::TakePage;
pub(crate) use append::{append, commits};
pub use changes::{Changes, CommitSequence};
pub use checksums::{
    ChecksumUse, Checksummed, PageChecksums, PageFault, RESERVED_BYTES, take_page_fault,
};
pub use control::{Anew, LimitHit, WalControl, WalPosition};
pub use fault::{FileFault, take_file_fault};
pub use gather::{Gather, MAX_HELD_BYTES};
pub use lower::{
    Deletion, LockLevel, LowerFile, MAX_WRITE_BYTES, ShmLock, ShmRegion, ShmRequest, SyncFlags,
    sync_database,
};
pub(crate) use lower::{
    database_size, of_database, read_database_at, read_wal_at, with_database_locked,
};
pub use moment::{Fault, Guarded, Images, Moment};
pub(crate) use overlay::{BACKFILLED, PAGE_NUMBERS, READ_MARKS, finds_frames, header_in};
pub(crate) use snapshot::{Request, ask};
pub use snapshot::{Snapshot, Version};
pub use spill::{JOURNAL_BYTES, Spill};

use changes::Published;

/// What a file call returns.
pub type Result<T = ()> = std::result::Result<T, IoError>;

/// An SQLite result code other than `SQLITE_OK`, possibly extended.
///
/// An error of [`File::write`] must be `SQLITE_FULL` or an `SQLITE_IOERR`: those are the codes upon
/// which SQLite rolls the transaction back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError(NonZero<c_int>);

impl IoError {
    /// The storage, or the configured WAL limit, has no room (`SQLITE_FULL`).
    pub const FULL: IoError = IoError::constant(ffi::SQLITE_FULL);
    /// What was read is not what was written (`SQLITE_IOERR_DATA`).
    pub const DATA: IoError = IoError::constant(ffi::SQLITE_IOERR_DATA);
    /// What was read cannot have been written so (`SQLITE_CORRUPT`).
    pub const CORRUPT: IoError = IoError::constant(ffi::SQLITE_CORRUPT);
    /// A read failed (`SQLITE_IOERR_READ`).
    pub const READ: IoError = IoError::constant(ffi::SQLITE_IOERR_READ);
    /// A read went past the end of the file; the rest of the buffer was zeroed.
    pub const SHORT_READ: IoError = IoError::constant(ffi::SQLITE_IOERR_SHORT_READ);
    /// A write failed (`SQLITE_IOERR_WRITE`).
    pub const WRITE: IoError = IoError::constant(ffi::SQLITE_IOERR_WRITE);
    /// A sync failed (`SQLITE_IOERR_FSYNC`).
    pub const SYNC: IoError = IoError::constant(ffi::SQLITE_IOERR_FSYNC);
    /// A truncation failed (`SQLITE_IOERR_TRUNCATE`).
    pub const TRUNCATE: IoError = IoError::constant(ffi::SQLITE_IOERR_TRUNCATE);
    /// A deletion failed (`SQLITE_IOERR_DELETE`).
    pub const DELETE: IoError = IoError::constant(ffi::SQLITE_IOERR_DELETE);
    /// A lock cannot be had (`SQLITE_IOERR_LOCK`).
    pub const LOCK: IoError = IoError::constant(ffi::SQLITE_IOERR_LOCK);
    /// A lock of the wal-index cannot be had (`SQLITE_IOERR_SHMLOCK`).
    pub const SHM_LOCK: IoError = IoError::constant(ffi::SQLITE_IOERR_SHMLOCK);
    /// The wal-index cannot be mapped (`SQLITE_IOERR_SHMMAP`).
    pub const SHM_MAP: IoError = IoError::constant(ffi::SQLITE_IOERR_SHMMAP);
    /// Another connection holds a lock (`SQLITE_BUSY`).
    pub const BUSY: IoError = IoError::constant(ffi::SQLITE_BUSY);
    /// Another connection has written since (`SQLITE_BUSY_SNAPSHOT`).
    pub const OUTDATED: IoError = IoError::constant(ffi::SQLITE_BUSY_SNAPSHOT);
    /// A file cannot be opened (`SQLITE_CANTOPEN`).
    pub const CANT_OPEN: IoError = IoError::constant(ffi::SQLITE_CANTOPEN);

    /// A file control that the file does not know (`SQLITE_NOTFOUND`).
    pub(crate) const NOT_FOUND: IoError = IoError::constant(ffi::SQLITE_NOTFOUND);
    /// What an overlay shows is not pinned any more (`SQLITE_IOERR_BLOCKED`, which SQLite itself
    /// has ceased to use).
    pub const UNPINNED: IoError = IoError::constant(ffi::SQLITE_IOERR_BLOCKED);

    const fn constant(code: c_int) -> IoError {
        IoError(NonZero::new(code).expect("an error code is not SQLITE_OK"))
    }

    /// The error that an SQLite result code stands for; `None` for `SQLITE_OK`.
    pub fn from_code(code: c_int) -> Option<IoError> {
        NonZero::new(code).map(IoError)
    }

    /// The (extended) SQLite result code.
    pub fn code(self) -> c_int {
        self.0.get()
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", ffi::code_to_str(self.code()), self.code())
    }
}

impl std::error::Error for IoError {}

impl From<IoError> for rusqlite::Error {
    fn from(error: IoError) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(error.code()), None)
    }
}

/// Runs `call`, and turns a panic into the code `on_panic`.
fn guard(on_panic: c_int, call: impl FnOnce() -> Result) -> c_int {
    // A file whose method panicked may be in any state, but only a Rust one: its bytes are in
    // doubt, memory is not. SQLite rolls back and closes.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => ffi::SQLITE_OK,
        Ok(Err(error)) => error.code(),
        Err(_panic) => on_panic,
    }
}

/// The VFS of SQLite that does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// Standard POSIX locks and a `-shm` file: other processes can use the database too.
    Unix,
    /// Locks and wal-index private to this process: point reads cost no system call for locking.
    UnixExcl,
}

impl Lower {
    fn name(self) -> &'static CStr {
        match self {
            Lower::Unix => c"unix",
            Lower::UnixExcl => c"unix-excl",
        }
    }
}

/// What SQLite opened a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// The main database file.
    Database,
    /// Its write-ahead log.
    Wal,
    /// A rollback journal or super-journal.
    Journal,
    /// Temporary databases, sorter files, statement journals.
    Temp,
}

impl FileKind {
    fn from_open_flags(flags: c_int) -> FileKind {
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            FileKind::Database
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            FileKind::Wal
        } else if flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL) != 0 {
            FileKind::Journal
        } else {
            FileKind::Temp
        }
    }
}

/// Decides what the files of one database instance do.
pub trait Storage: Send + Sync {
    /// Makes the file for `lower`, which has just been opened. `path` is `None` for a temporary
    /// file that SQLite left nameless.
    ///
    /// # Errors
    /// An error closes `lower` again and fails the open.
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>>;

    /// Deletes a journal or WAL that SQLite no longer needs.
    ///
    /// # Errors
    /// Those of the lower VFS, unless overridden.
    fn delete(&self, deletion: &Deletion<'_>) -> Result {
        deletion.perform()
    }

    /// Puts everything written to the WAL on disk, through the engine's own descriptor of it: the
    /// sync upon which writes are acknowledged.
    ///
    /// # Errors
    /// Those of `fdatasync`.
    fn sync_wal(&self, wal: &std::fs::File) -> std::io::Result<()> {
        wal.sync_data()
    }

    /// Puts the names of the files in `directory` on disk, so that a file created in it is still
    /// there after power loss.
    ///
    /// # Errors
    /// Those of opening the directory and of `fsync`.
    fn sync_directory(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::File::open(directory)?.sync_all()
    }
}

/// One open file. Every method goes to the file [below](File::below) unless it is overridden.
///
/// Dropping the `File` is its `xClose`; the lower file is closed right after.
pub trait File: Send {
    /// The file that this one decorates; `None` where that is the lower file itself.
    #[inline]
    fn below(&mut self) -> Option<&mut dyn File> {
        None
    }

    /// Fills `buf` from offset `at`, in bytes. On [`IoError::SHORT_READ`] the bytes past the end of
    /// the file must have been zeroed.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        match self.below() {
            Some(below) => below.read(lower, buf, at),
            None => lower.read(buf, at),
        }
    }

    /// Writes all of `data` at offset `at`, in bytes.
    ///
    /// # Errors
    /// `SQLITE_FULL` or an `SQLITE_IOERR`; part of `data` may have been written.
    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        match self.below() {
            Some(below) => below.write(lower, data, at),
            None => lower.write(data, at),
        }
    }

    /// Cuts or extends the file to `size` bytes.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        match self.below() {
            Some(below) => below.truncate(lower, size),
            None => lower.truncate(size),
        }
    }

    /// Makes everything written so far survive power loss.
    ///
    /// # Errors
    /// The SQLite result code of the failure. What was written is then in doubt.
    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> Result {
        match self.below() {
            Some(below) => below.sync(lower, flags),
            None => lower.sync(flags),
        }
    }

    /// The size of the file in bytes.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn size(&mut self, lower: &mut LowerFile) -> Result<u64> {
        match self.below() {
            Some(below) => below.size(lower),
            None => lower.size(),
        }
    }

    /// Raises the lock on the database file to `level`.
    ///
    /// # Errors
    /// `SQLITE_BUSY` when another connection holds it, or the code of the failure.
    fn lock(&mut self, lower: &mut LowerFile, level: LockLevel) -> Result {
        match self.below() {
            Some(below) => below.lock(lower, level),
            None => lower.lock(level),
        }
    }

    /// Lowers the lock on the database file to `level`.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn unlock(&mut self, lower: &mut LowerFile, level: LockLevel) -> Result {
        match self.below() {
            Some(below) => below.unlock(lower, level),
            None => lower.unlock(level),
        }
    }

    /// Maps one region of the wal-index.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn shm_map(&mut self, lower: &mut LowerFile, request: ShmRequest) -> Result<ShmRegion> {
        match self.below() {
            Some(below) => below.shm_map(lower, request),
            None => lower.shm_map(request),
        }
    }

    /// Takes or releases locks of the wal-index.
    ///
    /// # Errors
    /// `SQLITE_BUSY` when another connection holds one, or the code of the failure.
    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        match self.below() {
            Some(below) => below.shm_lock(lower, lock),
            None => lower.shm_lock(lock),
        }
    }

    /// Orders loads and stores of the wal-index around this call.
    fn shm_barrier(&mut self, lower: &mut LowerFile) {
        match self.below() {
            Some(below) => below.shm_barrier(lower),
            None => lower.shm_barrier(),
        }
    }

    /// Unmaps the wal-index, and deletes it if `delete_flag` is not zero.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    fn shm_unmap(&mut self, lower: &mut LowerFile, delete_flag: c_int) -> Result {
        match self.below() {
            Some(below) => below.shm_unmap(lower, delete_flag),
            None => lower.shm_unmap(delete_flag),
        }
    }

    /// What SQLite may expect of the file: flags `SQLITE_IOCAP_…`.
    fn device_characteristics(&mut self, lower: &mut LowerFile) -> c_int {
        match self.below() {
            Some(below) => below.device_characteristics(lower),
            None => lower.device_characteristics(),
        }
    }

    /// Has an overlay be one of `snapshot` from the next transaction on. Only the database file of
    /// an overlay can, and it is the outermost decorator, so no other file has this to forward.
    ///
    /// # Errors
    /// `SQLITE_NOTFOUND` where the file is not that of an overlay; otherwise see
    /// [`Vfs::register_overlays`].
    fn show(&mut self, _lower: &mut LowerFile, _snapshot: Option<&Snapshot>) -> Result {
        Err(IoError::NOT_FOUND)
    }
}

/// The file that passes everything on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward;

impl File for Forward {}

/// The storage of production: everything is passed on, WAL frames are gathered, and it is recorded
/// which pages they change.
#[derive(Debug)]
pub struct Direct {
    wal: Arc<WalControl>,
}

impl Direct {
    /// The storage of the database whose WAL is governed by `wal`.
    pub fn new(wal: Arc<WalControl>) -> Direct {
        Direct { wal }
    }

    /// Puts around `file` what the engine's own file of this kind has around the lower one: the
    /// gathering of WAL frames and the record of [`Changes`]. `file` then sees the calls that go to
    /// the disk.
    pub fn around(&self, kind: FileKind, file: impl File + 'static) -> Box<dyn File> {
        match kind {
            FileKind::Wal => Box::new(Gather::new(file, Arc::clone(&self.wal))),
            FileKind::Database => Box::new(Published::new(file, Arc::clone(&self.wal))),
            FileKind::Journal | FileKind::Temp => Box::new(file),
        }
    }
}

impl Storage for Direct {
    fn open(
        &self,
        kind: FileKind,
        _path: Option<&Path>,
        _lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        Ok(self.around(kind, Forward))
    }
}

/// A VFS registered with SQLite, under a name no other one has.
///
/// Keep it for as long as its connections: dropping it unregisters the name, and a connection that
/// outlives it goes on with the files it has open but can open no further one (`SQLITE_CANTOPEN`).
pub struct Vfs {
    slot: shim::Registered,
}

impl Vfs {
    /// Registers a VFS over `lower` whose files are those of `storage`. Initializes SQLite.
    ///
    /// # Errors
    /// When the platform has no such VFS, or SQLite is too old or out of memory.
    pub fn register(lower: Lower, storage: Arc<dyn Storage>) -> rusqlite::Result<Vfs> {
        crate::initialize().map_err(|refusal| failure(ffi::SQLITE_MISUSE, refusal))?;
        Ok(Vfs { slot: shim::Registered::new(lower, storage)? })
    }

    /// Registers a VFS for the overlays ([`crate::Role::Overlay`]) of the database that this one,
    /// over [`Lower::UnixExcl`], is for; `storage` is that of this one.
    ///
    /// Its files read what those of `storage` do. They refuse every change, and reading after the
    /// snapshot is not pinned any more.
    ///
    /// # Errors
    /// As for [`Vfs::register`].
    pub fn register_overlays(&self, storage: Arc<dyn Storage>) -> rusqlite::Result<Vfs> {
        Ok(Vfs { slot: self.slot.beside(Arc::new(overlay::Overlays::new(storage)))? })
    }

    /// The name to open connections with.
    pub fn name(&self) -> &str {
        self.slot.name()
    }

    /// Has `lock` be called whenever the database file, over [`Lower::UnixExcl`], has been locked
    /// against everybody else, and before SQLite reads anything of it. It may be called again while
    /// its lock is held. Said once, before the first connection is opened.
    ///
    /// When it fails, so does what SQLite was about to do: with `SQLITE_BUSY` for `WouldBlock`, or
    /// else with `SQLITE_CANTOPEN`.
    pub fn lock_also(&self, lock: impl Fn() -> std::io::Result<()> + Send + Sync + 'static) {
        self.slot.lock_also(locks::Second(Box::new(lock)));
    }

    /// Has temporary files be those of `spill`, and not of the unix VFS. Said once, before anything
    /// is opened or registered beside this one.
    pub fn spill_into(&self, spill: &Arc<Spill>) {
        self.slot.spill_into(spill);
    }

    /// Whether a connection has one of its files open.
    pub fn has_open_files(&self) -> bool {
        self.slot.has_open_files()
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vfs").field("name", &self.name()).finish_non_exhaustive()
    }
}
