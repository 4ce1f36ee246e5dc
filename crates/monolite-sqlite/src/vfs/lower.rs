//! From us to SQLite: the files of the lower VFS behind safe types.
//!
//! # Invariants
//! - A [`LowerFile`] is open from `new` to `close`, both called by `shim` alone; a `File` only ever
//!   borrows one.
//! - Nothing is written to another file than the one that was opened, and none is read for a WAL.
//!   No lock of the wal-index is taken in another by the connection that has mapped it first.
//! - No single write exceeds [`MAX_WRITE_BYTES`].

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use rusqlite::ffi;
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::fault::{FileFault, note_fault, take_refusal};
use super::locks::{FileLock, LowerLock};
use super::{FileKind, IoError, Result, Snapshot};
use crate::locked::locked;

/// The most that is handed to the lower file in one write.
///
/// The unix VFS masks a length with `0x1ffff`, so 128 KiB would be taken for nothing at all
/// (`seekAndWriteFd`). This is the largest number of pages below that; measured on ext4, a page
/// costs 0.86 µs in writes of 64 KiB, 0.63 in these, and 0.50 in writes without bound.
pub const MAX_WRITE_BYTES: usize = 124 * 1024;

/// An open file of the lower VFS.
#[derive(Debug)]
pub struct LowerFile {
    file: *mut ffi::sqlite3_file,
    /// Owned by the database file, shared with its WAL.
    ties: Option<Arc<Ties>>,
    /// Of a database file that is this process's alone.
    file_lock: Option<FileLock>,
    /// None for a temporary file.
    path: Option<Box<Path>>,
    /// None where it cannot be known.
    descriptor: Option<Descriptor>,
    /// Of the wal-index, which SQLite opens once in a process. Known to the connection that mapped
    /// it first: the engine's writer.
    shm: Option<Descriptor>,
    /// Of a file of the database.
    kind: Option<FileKind>,
}

/// What the database file of a connection and its WAL have in common.
#[derive(Debug, Default)]
pub(super) struct Ties {
    /// Counts how often this connection released the WAL's write lock.
    write_releases: AtomicU64,
    /// What an overlay shows.
    shown: Mutex<Option<Snapshot>>,
    /// Of the database file, where it can be known.
    database: OnceLock<Descriptor>,
}

/// Calls a method of the lower file.
macro_rules! call {
    ($self:ident.$method:ident($($argument:expr),*)) => {{
        // SAFETY: `file` is open (invariant of `LowerFile`), so `pMethods` is its method table; the
        // `&mut self` of the caller makes this the only call in progress, and every pointer among
        // the arguments comes from a live reference of matching length.
        unsafe {
            let method = (*(*$self.file).pMethods).$method;
            method.expect("the shim offers what the lower file has")($self.file, $($argument),*)
        }
    }};
}

fn check(code: c_int) -> Result {
    match IoError::from_code(code) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Whether the last call of the system failed because a limit left no room: of the size
/// of files, or of a user's share of the disk. SQLite calls these I/O errors.
fn no_room() -> bool {
    let error = io::Error::last_os_error();
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded)
}

/// Remembers what the system has said of the file at `path`, for [`take_file_fault`]; returns
/// `code`.
///
/// [`take_file_fault`]: super::take_file_fault
fn failed(path: Option<Box<Path>>, doing: &'static str, errno: Errno, code: IoError) -> IoError {
    if let Some(path) = path {
        note_fault(FileFault::new(path, doing, errno.raw_os_error(), code));
    }
    code
}

fn signed(offset: u64) -> i64 {
    i64::try_from(offset).expect("a file offset fits in an i64")
}

impl LowerFile {
    /// # Safety
    /// `file` must be open in a lower VFS, used by this value alone, and stay so until `close`.
    pub(super) unsafe fn new(
        file: *mut ffi::sqlite3_file,
        ties: Option<Arc<Ties>>,
        file_lock: Option<FileLock>,
        path: Option<&Path>,
    ) -> LowerFile {
        let path = path.map(Box::from);
        let (descriptor, shm, kind) = (None, None, None);
        let mut lower = LowerFile { file, ties, file_lock, path, descriptor, shm, kind };
        lower.descriptor = Descriptor::asked(|| _ = lower.size());
        lower
    }

    /// As a file of this kind, of which others have to know the descriptor or check it.
    pub(super) fn of_kind(mut self, kind: FileKind) -> LowerFile {
        self.kind = Some(kind);
        if let (FileKind::Database, Some(ties), Some(own)) = (kind, &self.ties, self.descriptor) {
            ties.database.get_or_init(|| own);
        }
        self
    }

    /// Sees whether the descriptor leads to the file that was opened.
    ///
    /// # Errors
    /// `code` when it does not.
    fn check_descriptor(&self, doing: &'static str, code: IoError) -> Result {
        let Err(errno) = self.descriptor.map_or(Ok(()), Descriptor::check) else { return Ok(()) };
        Err(failed(self.path.clone(), doing, errno, code))
    }

    /// Sees also, of a WAL, whether its database is still read where it was: what is about to be
    /// written came from there.
    fn check_before_write(&self) -> Result {
        self.check_descriptor("writing", IoError::WRITE)?;
        let ties = self.ties.as_ref().filter(|_| self.kind == Some(FileKind::Wal));
        let database = ties.and_then(|ties| ties.database.get());
        let Some(Err(errno)) = database.map(|it| it.check()) else { return Ok(()) };
        Err(failed(self.database_path(), "reading", errno, IoError::WRITE))
    }

    /// Has the file system set space aside for the database file of this WAL, between two bytes,
    /// without making the file longer. Nothing is set aside where it cannot do that.
    ///
    /// # Errors
    /// [`IoError::FULL`] when there is none.
    pub(super) fn set_aside_for_database(&self, from: u64, to: u64) -> Result {
        let database = self.ties.as_ref().and_then(|ties| ties.database.get());
        match database.map_or(Ok(()), |database| database.set_aside(from, to)) {
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                Err(failed(self.database_path(), "writing", errno, IoError::FULL))
            }
            // A write to the file reports what is wrong with it.
            _ => Ok(()),
        }
    }

    /// Of a WAL.
    fn database_path(&self) -> Option<Box<Path>> {
        let wal = self.path.as_ref()?.as_os_str().as_bytes();
        let database = OsStr::from_bytes(wal.strip_suffix(b"-wal").unwrap_or(wal));
        Some(Path::new(database).into())
    }

    /// Sees whether a lock of the wal-index would be one that others see.
    fn check_shm(&self) -> Result {
        let Some(Err(errno)) = self.shm.map(Descriptor::check) else { return Ok(()) };
        let path = self.path.as_ref().map(|path| {
            let mut path = path.as_os_str().to_owned();
            path.push("-shm");
            Path::new(&path).into()
        });
        Err(failed(path, "locking", errno, IoError::SHM_LOCK))
    }

    /// As [`check`]; remembers what the system has said, for [`take_file_fault`].
    fn done(&mut self, doing: &'static str, code: c_int) -> Result {
        let Err(code) = check(code) else { return Ok(()) };
        let mut errno: c_int = 0;
        let asked = call!(self.xFileControl(ffi::SQLITE_FCNTL_LAST_ERRNO, (&raw mut errno).cast()));
        if let Some(path) = &self.path
            && asked == ffi::SQLITE_OK
            && errno != 0
            && code != IoError::SHORT_READ
        {
            note_fault(FileFault::new(path.clone(), doing, errno, code));
        }
        Err(code)
    }

    /// Remembers that the last write found no room. SQLite forgets what the system has said of
    /// that.
    fn note_full(&self) {
        let limit_bytes = take_refusal();
        let Some(path) = &self.path else { return };
        let errno = io::Error::last_os_error().raw_os_error().filter(|_| no_room());
        let errno = errno.unwrap_or(Errno::NOSPC.raw_os_error());
        let fault = FileFault::new(path.clone(), "writing", errno, IoError::FULL);
        note_fault(fault.of_limit(limit_bytes));
    }

    /// Closes the file, whose method table the caller no longer uses.
    pub(super) fn close(mut self) -> c_int {
        // What it holds among its own kind is not the file system's to give back. That its lower
        // part cannot be unlocked shows in the close that follows.
        let _ = self.unlock(LockLevel(ffi::SQLITE_LOCK_NONE));
        call!(self.xClose())
    }

    /// Reads `buf.len()` bytes from offset `at`.
    ///
    /// # Errors
    /// [`IoError::SHORT_READ`] past the end, with the rest of `buf` zeroed;
    /// [`IoError::CORRUPT`] when the file ends amid the page; the code of the failure.
    pub fn read(&mut self, buf: &mut [u8], at: u64) -> Result {
        if self.kind == Some(FileKind::Wal) {
            self.check_descriptor("reading", IoError::READ)?;
        }
        let len = c_int::try_from(buf.len()).expect("SQLite reads at most an int at once");
        let code = call!(self.xRead(buf.as_mut_ptr().cast(), len, signed(at)));
        let read = self.done("reading", code);
        // SQLite would take what was cut off for zeros. It reads the first page before it knows
        // how large pages are.
        let is_page = self.kind == Some(FileKind::Database) && at > 0;
        let amid = at + 1..at + buf.len() as u64;
        if is_page && read == Err(IoError::SHORT_READ) && amid.contains(&self.size()?) {
            return Err(IoError::CORRUPT);
        }
        read
    }

    /// Writes all of `data` at offset `at`, in pieces of at most [`MAX_WRITE_BYTES`].
    ///
    /// # Errors
    /// `SQLITE_FULL` or an `SQLITE_IOERR`; part of `data` may have been written.
    pub fn write(&mut self, data: &[u8], mut at: u64) -> Result {
        self.check_before_write()?;
        for piece in data.chunks(MAX_WRITE_BYTES) {
            let len = piece.len() as c_int;
            let code = call!(self.xWrite(piece.as_ptr().cast(), len, signed(at)));
            if code == ffi::SQLITE_FULL || code != ffi::SQLITE_OK && no_room() {
                self.note_full();
                return Err(IoError::FULL);
            }
            self.done("writing", code)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Cuts or extends the file to `size` bytes.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn truncate(&mut self, size: u64) -> Result {
        self.check_descriptor("cutting", IoError::TRUNCATE)?;
        let code = call!(self.xTruncate(signed(size)));
        self.done("cutting", code)
    }

    /// Syncs the file.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn sync(&mut self, flags: SyncFlags) -> Result {
        self.check_descriptor("syncing", IoError::SYNC)?;
        let code = call!(self.xSync(flags.0));
        self.done("syncing", code)
    }

    /// The size of the file in bytes.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn size(&mut self) -> Result<u64> {
        let mut size = 0;
        check(call!(self.xFileSize(&raw mut size)))?;
        Ok(u64::try_from(size).expect("a file size is not negative"))
    }

    /// Raises the lock on the file.
    ///
    /// # Errors
    /// `SQLITE_BUSY` when another connection holds it, or the code of the failure.
    pub fn lock(&mut self, level: LockLevel) -> Result {
        let Some(mut file_lock) = self.file_lock.take() else {
            return LowerLock::lock(self, level);
        };
        let locked = file_lock.lock(self, level);
        self.file_lock = Some(file_lock);
        locked
    }

    /// Lowers the lock on the file.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn unlock(&mut self, level: LockLevel) -> Result {
        let Some(mut file_lock) = self.file_lock.take() else {
            return LowerLock::unlock(self, level);
        };
        let unlocked = file_lock.unlock(self, level);
        self.file_lock = Some(file_lock);
        unlocked
    }

    /// Maps one region of the wal-index.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn shm_map(&mut self, request: ShmRequest) -> Result<ShmRegion> {
        let ShmRequest { index, size, extend } = request;
        let mut address = ptr::null_mut();
        let mut code = ffi::SQLITE_OK;
        let asked =
            Descriptor::asked(|| code = call!(self.xShmMap(index, size, extend, &raw mut address)));
        if code == ffi::SQLITE_OK && self.shm.is_none() {
            // It asks for the size of the database file first, where the wal-index is not open yet.
            self.shm = asked.filter(|_| asked != self.descriptor);
        }
        match code & 0xff {
            ffi::SQLITE_OK | ffi::SQLITE_READONLY => Ok(ShmRegion { address, code }),
            _ => check(code).map(|()| unreachable!("the code is an error")),
        }
    }

    /// Takes or releases locks of the wal-index.
    ///
    /// # Errors
    /// `SQLITE_BUSY` when another connection holds one, or the code of the failure.
    pub fn shm_lock(&mut self, lock: ShmLock) -> Result {
        if lock.takes() {
            self.check_shm()?;
        }
        check(call!(self.xShmLock(lock.offset, lock.count, lock.flags)))
    }

    /// Orders loads and stores of the wal-index around this call.
    pub fn shm_barrier(&mut self) {
        call!(self.xShmBarrier());
    }

    /// Unmaps the wal-index, and deletes it if `delete_flag` is not zero.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn shm_unmap(&mut self, delete_flag: c_int) -> Result {
        check(call!(self.xShmUnmap(delete_flag)))
    }

    /// How often this file's connection has released the WAL's write lock: of a database file or
    /// its WAL. `None` when the file is neither, or not tied to its database.
    ///
    /// A WAL file learns from it that what was written since the last commit is void.
    pub fn write_releases(&self) -> Option<u64> {
        self.ties.as_ref().map(|ties| ties.write_releases.load(Relaxed))
    }

    /// Counts a release. `Relaxed` does: only the connection's own files read it, and what moves a
    /// connection between threads orders their accesses.
    pub(super) fn note_write_release(&self) {
        if let Some(ties) = &self.ties {
            ties.write_releases.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn share_ties(&self) -> Option<Arc<Ties>> {
        self.ties.clone()
    }

    /// Sets what this overlay's files show.
    pub(super) fn set_shown(&self, snapshot: Option<Snapshot>) {
        if let Some(ties) = &self.ties {
            *locked(&ties.shown) = snapshot;
        }
    }

    /// What this overlay's files show.
    pub(super) fn shown(&self) -> Option<Snapshot> {
        locked(&self.ties.as_ref()?.shown).clone()
    }

    /// Whether that is pinned; `None` when nothing is shown.
    pub(super) fn is_shown_pinned(&self) -> Option<bool> {
        locked(&self.ties.as_ref()?.shown).as_ref().map(Snapshot::is_pinned)
    }

    pub(super) fn check_reserved_lock(&mut self, held: &mut c_int) -> c_int {
        if let Some(file_lock) = &self.file_lock {
            *held = c_int::from(file_lock.is_reserved());
            return ffi::SQLITE_OK;
        }
        call!(self.xCheckReservedLock(ptr::from_mut(held)))
    }

    /// # Safety
    /// `argument` must be what SQLite defines for the opcode `op`.
    pub(super) unsafe fn file_control(&mut self, op: c_int, argument: *mut c_void) -> c_int {
        call!(self.xFileControl(op, argument))
    }

    pub(super) fn sector_size(&mut self) -> c_int {
        call!(self.xSectorSize())
    }

    /// What SQLite may expect of the file: flags `SQLITE_IOCAP_…`.
    pub fn device_characteristics(&mut self) -> c_int {
        call!(self.xDeviceCharacteristics())
    }
}

/// The locks of the lower file itself.
impl LowerLock for LowerFile {
    fn lock(&mut self, level: LockLevel) -> Result {
        check(call!(self.xLock(level.0)))
    }

    fn unlock(&mut self, level: LockLevel) -> Result {
        check(call!(self.xUnlock(level.0)))
    }
}

/// How SQLite wants a file synced (`SQLITE_SYNC_NORMAL`, `FULL`, `DATAONLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFlags(pub(super) c_int);

/// A lock of the database file, `SQLITE_LOCK_NONE` to `SQLITE_LOCK_EXCLUSIVE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockLevel(pub(super) c_int);

/// A request for one region of the wal-index.
#[derive(Clone, Copy, Debug)]
pub struct ShmRequest {
    /// Which region.
    pub index: c_int,
    /// The size of each region in bytes.
    pub size: c_int,
    /// Not zero if a region that does not exist is to be made.
    pub extend: c_int,
}

/// A region of the wal-index, as the lower VFS mapped it. Only a lower file can make one.
#[derive(Debug)]
pub struct ShmRegion {
    /// Null when there is no such region and none was to be made.
    pub(super) address: *mut c_void,
    /// `SQLITE_OK`, or a kind of `SQLITE_READONLY`, which comes with a region too.
    pub(super) code: c_int,
}

/// A call that takes or releases locks of the wal-index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmLock {
    /// The first lock: 0 is the write lock, 1 the checkpoint lock, 2 recovery, 3 to 7 the read
    /// marks.
    pub offset: c_int,
    /// How many locks.
    pub count: c_int,
    /// `SQLITE_SHM_LOCK` or `UNLOCK`, with `SHARED` or `EXCLUSIVE`.
    pub flags: c_int,
}

impl ShmLock {
    /// Whether this ends a write transaction of the WAL.
    pub fn releases_write_lock(self) -> bool {
        // The wal-index format fixes WAL_WRITE_LOCK at 0.
        self.offset == 0 && !self.takes()
    }

    /// Whether this is about the lock of a write transaction and no other.
    pub fn is_write_lock(self) -> bool {
        self.offset == 0 && self.count == 1
    }

    /// Whether this takes the locks without which SQLite has no WAL begin anew: the read marks from
    /// the second one on, all together. It takes them so for nothing else (`walRestartLog`,
    /// `walCheckpoint`).
    pub fn has_wal_begin_anew(self) -> bool {
        // The format fixes WAL_READ_LOCK(1) at 4, and WAL_NREADER at 5.
        self.takes() && self.offset == 4 && self.count == 4
    }

    /// Which READ lock a reader takes or releases with this; `None` for any other lock.
    pub fn shared_read_slot(self) -> Option<c_int> {
        // The format fixes WAL_READ_LOCK(0) at 3; a reader holds one of them, shared.
        (self.offset >= 3 && self.flags & ffi::SQLITE_SHM_SHARED != 0).then_some(self.offset - 3)
    }

    /// Whether this takes locks.
    pub fn takes(self) -> bool {
        self.flags & ffi::SQLITE_SHM_LOCK != 0
    }
}

/// A file that SQLite asks to be deleted.
#[derive(Debug)]
pub struct Deletion<'a> {
    vfs: *mut ffi::sqlite3_vfs,
    name: &'a CStr,
    sync_directory: c_int,
}

impl<'a> Deletion<'a> {
    /// # Safety
    /// `vfs` must be registered with SQLite for good, as its own ones are.
    pub(super) unsafe fn new(
        vfs: *mut ffi::sqlite3_vfs,
        name: &'a CStr,
        sync_directory: c_int,
    ) -> Deletion<'a> {
        Deletion { vfs, name, sync_directory }
    }

    /// The file.
    pub fn path(&self) -> &'a Path {
        Path::new(OsStr::from_bytes(self.name.to_bytes()))
    }

    /// Whether the deletion has to survive power loss.
    pub fn syncs_directory(&self) -> bool {
        self.sync_directory != 0
    }

    /// Deletes the file in the lower VFS.
    ///
    /// # Errors
    /// The SQLite result code of the failure.
    pub fn perform(&self) -> Result {
        // SAFETY: `vfs` is one of SQLite's own VFSs and `name` a C string that outlives the call.
        check(unsafe {
            let delete = (*self.vfs).xDelete.expect("the unix VFS deletes");
            delete(self.vfs, self.name.as_ptr(), self.sync_directory)
        })
    }
}

/// Syncs the main database file of `connection`, through whichever VFS it was opened with.
///
/// # Errors
/// The SQLite result code of the failed sync. The file's content is then in doubt.
///
/// # Durability
/// Every page written to the file before the call, by any connection, survives power loss.
pub fn sync_database(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    let sync = |file, methods: &ffi::sqlite3_io_methods| {
        // SAFETY: `of_database` gives the methods of an open file.
        unsafe { methods.xSync.expect("every file syncs")(file, ffi::SQLITE_SYNC_NORMAL) }
    };
    // A database in memory has no file.
    Ok(of_database(connection, sync).map(|_| ())?)
}

/// Reads from byte `at` of the main database file of `connection`, past its page cache.
///
/// # Errors
/// The SQLite result code of the failed read, also when the file is shorter.
pub(crate) fn read_database_at(
    connection: &rusqlite::Connection,
    into: &mut [u8],
    at: u64,
) -> Result {
    read_of(connection, ffi::SQLITE_FCNTL_FILE_POINTER, into, at)
}

/// Reads from byte `at` of the WAL of `connection`, which has read its database.
///
/// # Errors
/// As [`read_database_at`].
pub(crate) fn read_wal_at(connection: &rusqlite::Connection, into: &mut [u8], at: u64) -> Result {
    read_of(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER, into, at)
}

fn read_of(connection: &rusqlite::Connection, which: c_int, into: &mut [u8], at: u64) -> Result {
    let length = c_int::try_from(into.len()).map_err(|_| IoError::READ)?;
    let to = into.as_mut_ptr().cast();
    let read = |file, methods: &ffi::sqlite3_io_methods| {
        // SAFETY: `of_file` gives the methods of an open file, and `to` points to `length` bytes
        // that are borrowed for as long as this.
        unsafe { methods.xRead.expect("every file reads")(file, to, length, signed(at)) }
    };
    if of_file(connection, which, read)? { Ok(()) } else { Err(IoError::SHORT_READ) }
}

/// How long the main database file of `connection` is, in bytes.
///
/// # Errors
/// The SQLite result code of the failure.
pub(crate) fn database_size(connection: &rusqlite::Connection) -> Result<u64> {
    let mut size = 0;
    let ask = |file, methods: &ffi::sqlite3_io_methods| {
        // SAFETY: `of_database` gives the methods of an open file, and the size is stored where
        // there is room for it.
        unsafe { methods.xFileSize.expect("every file has a size")(file, &raw mut size) }
    };
    of_database(connection, ask)?;
    Ok(u64::try_from(size).expect("a file size is not negative"))
}

/// Runs `run` while the main database file of `connection`, which has no transaction open and will
/// have none again, is locked against exclusive use. Does not run it where another process has that
/// lock. The lock goes when the connection is closed.
pub(crate) fn with_database_locked(connection: &rusqlite::Connection, run: impl FnOnce()) {
    let lock = |file, methods: &ffi::sqlite3_io_methods| {
        // SAFETY: `of_database` gives the methods of an open file.
        unsafe { methods.xLock.expect("every file locks")(file, ffi::SQLITE_LOCK_SHARED) }
    };
    if of_database(connection, lock) == Ok(true) {
        run();
    }
}

/// Calls `call` with the main database file of `connection` and its methods; tells whether there is
/// one.
pub(crate) fn of_database(
    connection: &rusqlite::Connection,
    call: impl FnOnce(*mut ffi::sqlite3_file, &ffi::sqlite3_io_methods) -> c_int,
) -> Result<bool> {
    of_file(connection, ffi::SQLITE_FCNTL_FILE_POINTER, call)
}

/// As [`of_database`], with its WAL, once it has read its database.
pub(super) fn of_wal(
    connection: &rusqlite::Connection,
    call: impl FnOnce(*mut ffi::sqlite3_file, &ffi::sqlite3_io_methods) -> c_int,
) -> Result<bool> {
    of_file(connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER, call)
}

/// As [`of_database`], with the file that the file control `which` tells of.
fn of_file(
    connection: &rusqlite::Connection,
    which: c_int,
    call: impl FnOnce(*mut ffi::sqlite3_file, &ffi::sqlite3_io_methods) -> c_int,
) -> Result<bool> {
    let mut file: *mut ffi::sqlite3_file = ptr::null_mut();
    // SAFETY: the handle is open for as long as `connection` is borrowed, and FILE_POINTER and
    // JOURNAL_POINTER store a `sqlite3_file*` through their argument. The file is the connection's
    // own, and nothing else uses it meanwhile: a `Connection` is not `Sync`, and who ends its
    // snapshot from another thread (`revoke`) enters its mutex, too. Where it has none, entering
    // and leaving do nothing.
    unsafe {
        let mutex = ffi::sqlite3_db_mutex(connection.handle());
        ffi::sqlite3_mutex_enter(mutex);
        let argument = (&raw mut file).cast();
        let code =
            ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), which, argument);
        let called = check(code).and_then(|()| {
            match file.as_ref().and_then(|file| file.pMethods.as_ref()) {
                Some(methods) => check(call(file, methods)).map(|()| true),
                None => Ok(false),
            }
        });
        ffi::sqlite3_mutex_leave(mutex);
        called
    }
}
