//! From SQLite to us: the C callbacks of the VFS and of its files.
//!
//! # Format
//! The memory that SQLite sets aside for a file holds a [`ShimFile`], and the lower VFS's own file
//! [`LOWER_OFFSET`] bytes into it.
//!
//! # Invariants
//! - A `sqlite3_vfs` is never freed, since any connection may still point to it; it is used again
//!   for a later registration once none of its files is open.
//! - Every callback catches unwinding, except those that only forward to the lower VFS.
//! - `pMethods` is set last in an open that succeeds and stays null in one that fails, so SQLite
//!   calls no method of a file that was not built.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rusqlite::ffi;
use rusqlite::ffi::{sqlite3_file, sqlite3_io_methods, sqlite3_vfs};

use super::descriptor;
use super::locks::{FileLock, Locks, Second};
use super::lower::Ties;
use super::snapshot::{self, REQUEST, Request, Tracker};
use super::spill::{self, Spill};
use super::{
    Deletion, File, FileKind, IoError, LockLevel, Lower, LowerFile, Result, ShmLock, ShmRequest,
    Storage, SyncFlags, guard,
};
use crate::locked::locked;
use crate::surroundings;

/// A VFS known to SQLite; dropping it takes the name away.
pub(super) struct Registered(&'static Slot);

/// A `sqlite3_vfs` and what its callbacks need. Lives for ever.
struct Slot {
    name: CString,
    vfs: *mut sqlite3_vfs,
    lower: *mut sqlite3_vfs,
    /// Which one that is.
    kind: Lower,
    /// `None` once the registration was dropped.
    served: Mutex<Option<Served>>,
    open_files: AtomicUsize,
}

/// What a registration serves.
#[derive(Clone)]
struct Served {
    storage: Arc<dyn Storage>,
    /// Of a database that is this process's alone.
    locks: Option<Arc<Locks>>,
    /// Whose temporary files are not those of the lower VFS.
    spill: Option<Arc<Spill>>,
}

// SAFETY: both VFS pointers stay valid for ever. The lower one is read only; ours is changed by
// SQLite alone, under its own mutex, after `new_slot` has filled it in.
unsafe impl Send for Slot {}
// SAFETY: as above; the other fields are `Sync` themselves.
unsafe impl Sync for Slot {}

/// Slots whose registration was dropped and which no file uses.
static FREE_SLOTS: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

impl Registered {
    pub(super) fn new(lower: Lower, storage: Arc<dyn Storage>) -> Result<Registered> {
        let locks = match lower {
            Lower::Unix => None,
            Lower::UnixExcl => Some(Arc::default()),
        };
        Registered::serving(lower, Served { storage, locks, spill: None })
    }

    /// One more on the same database, with other files.
    pub(super) fn beside(&self, storage: Arc<dyn Storage>) -> Result<Registered> {
        let served = locked(&self.0.served).clone();
        let (locks, spill) = served.map_or((None, None), |served| (served.locks, served.spill));
        Registered::serving(Lower::UnixExcl, Served { storage, locks, spill })
    }

    fn serving(lower: Lower, served: Served) -> Result<Registered> {
        // SAFETY: the name is a C string.
        let vfs = unsafe { ffi::sqlite3_vfs_find(lower.name().as_ptr()) };
        if vfs.is_null() {
            return Err(IoError::CANT_OPEN);
        }
        descriptor::watch(vfs);
        let slot = free_slot(vfs).unwrap_or_else(|| new_slot(vfs, lower));
        *locked(&slot.served) = Some(served);
        // SAFETY: the VFS is complete and lives for ever, and so does its name.
        let code = unsafe { ffi::sqlite3_vfs_register(slot.vfs, 0) };
        match IoError::from_code(code) {
            None => Ok(Registered(slot)),
            Some(error) => Err(error),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.0.name.to_str().expect("the name is ASCII")
    }

    pub(super) fn lock_also(&self, second: Second) {
        if let Some(Served { locks: Some(locks), .. }) = &*locked(&self.0.served) {
            locks.lock_also(second);
        }
    }

    pub(super) fn spill_into(&self, spill: &Arc<Spill>) {
        if let Some(served) = &mut *locked(&self.0.served) {
            served.spill = Some(Arc::clone(spill));
        }
    }

    pub(super) fn has_open_files(&self) -> bool {
        self.0.open_files.load(Ordering::Acquire) > 0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Registered(slot) = self;
        // SAFETY: the VFS was registered by `new`. It stays valid for connections that still use
        // it.
        unsafe { ffi::sqlite3_vfs_unregister(slot.vfs) };
        let served = locked(&slot.served).take();
        drop(served);
        if slot.open_files.load(Ordering::Acquire) == 0 {
            locked(&FREE_SLOTS).push(slot);
        }
    }
}

fn free_slot(lower: *mut sqlite3_vfs) -> Option<&'static Slot> {
    let mut free = locked(&FREE_SLOTS);
    let index = free.iter().position(|slot| slot.lower == lower)?;
    Some(free.swap_remove(index))
}

fn new_slot(lower: *mut sqlite3_vfs, kind: Lower) -> &'static Slot {
    // SAFETY: the lower VFS is one of SQLite's own, registered for good.
    let (size, longest_path) = unsafe { ((*lower).szOsFile, (*lower).mxPathname) };
    assert!(size as usize >= spill::FILE_BYTES, "a temporary file fits where the VFS has its own");
    let name = unused_name();
    let vfs = Box::into_raw(Box::new(sqlite3_vfs {
        iVersion: 2,
        szOsFile: LOWER_OFFSET as c_int + size,
        mxPathname: longest_path,
        pNext: ptr::null_mut(),
        zName: name.as_ptr(),
        pAppData: ptr::null_mut(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    let open_files = AtomicUsize::new(0);
    let slot = Box::new(Slot { name, vfs, lower, kind, served: Mutex::new(None), open_files });
    let slot: &'static Slot = Box::leak(slot);
    // SAFETY: `vfs` was allocated above and SQLite does not know it yet.
    unsafe { (*vfs).pAppData = ptr::from_ref(slot).cast_mut().cast() };
    slot
}

/// A name that no VFS has: another version of this crate in the program counts on its own.
fn unused_name() -> CString {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("monolite-{number}")).expect("the name has no zero byte");
        // SAFETY: the name is a C string.
        if unsafe { ffi::sqlite3_vfs_find(name.as_ptr()) }.is_null() {
            return name;
        }
    }
}

// ---- files ----

/// Our part of an open file.
#[repr(C)]
struct ShimFile {
    base: sqlite3_file,
    lower: LowerFile,
    file: Box<dyn File>,
    tracker: Tracker,
    slot: &'static Slot,
}

/// Aligned for whatever the lower VFS keeps.
const LOWER_OFFSET: usize = size_of::<ShimFile>().next_multiple_of(16);

/// Methods without and with shared memory.
static METHODS: [sqlite3_io_methods; 2] = [methods(false), methods(true)];

const fn methods(has_shm: bool) -> sqlite3_io_methods {
    sqlite3_io_methods {
        iVersion: 2,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(check_reserved_lock),
        xFileControl: Some(file_control),
        xSectorSize: Some(sector_size),
        xDeviceCharacteristics: Some(device_characteristics),
        xShmMap: if has_shm { Some(shm_map) } else { None },
        xShmLock: if has_shm { Some(shm_lock) } else { None },
        xShmBarrier: if has_shm { Some(shm_barrier) } else { None },
        xShmUnmap: if has_shm { Some(shm_unmap) } else { None },
        xFetch: None,
        xUnfetch: None,
    }
}

/// The methods that offer what those of the lower file do.
fn methods_like(lower: &sqlite3_io_methods) -> &'static sqlite3_io_methods {
    &METHODS[usize::from(lower.iVersion >= 2 && lower.xShmMap.is_some())]
}

fn is_ours(methods: *const sqlite3_io_methods) -> bool {
    METHODS.iter().any(|ours| ptr::eq(ours, methods))
}

/// # Safety
/// `file` must have been built by `open` and not been closed, and SQLite be in no other call on it.
unsafe fn shim<'a>(file: *mut sqlite3_file) -> &'a mut ShimFile {
    // SAFETY: `open` wrote a `ShimFile` there; the caller says that no other reference is in use.
    unsafe { &mut *file.cast::<ShimFile>() }
}

/// # Safety
/// SQLite's arguments of an `xOpen`.
unsafe fn open_file(
    slot: &'static Slot,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> Result {
    let served = locked(&slot.served).clone().ok_or(IoError::CANT_OPEN)?;
    let Served { storage, locks, spill } = served;
    let kind = FileKind::from_open_flags(flags);
    let spill = spill.filter(|_| name.is_null());
    // SAFETY: a name that is not null is a C string that SQLite keeps for the whole call.
    let path = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
    let path = path.map(|path| Path::new(OsStr::from_bytes(path.to_bytes())));
    // SAFETY: the caller vouches for `name` and `file`; SQLite reserved `szOsFile` bytes.
    let mut lower = unsafe {
        let lower_file = file.byte_add(LOWER_OFFSET);
        match &spill {
            Some(spill) => spill.open(lower_file)?,
            None => open_lower(slot.lower, name, lower_file, flags, out_flags)?,
        }
        let file_lock = locks.filter(|_| kind == FileKind::Database).map(FileLock::new);
        let place = spill.map(|spill| spill.place());
        let known_by = place.as_deref().or(path);
        LowerFile::new(lower_file, ties(kind, name), file_lock, known_by).of_kind(kind)
    };
    let opened = catch_unwind(AssertUnwindSafe(|| storage.open(kind, path, &mut lower)));
    match opened.unwrap_or(Err(IoError::CANT_OPEN)) {
        Ok(made) => {
            slot.open_files.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the memory is SQLite's for this file, `szOsFile` bytes aligned to 8; the
            // lower file is open, so it has methods.
            unsafe {
                let base = sqlite3_file { pMethods: lower_methods(file) };
                let tracker = Tracker::default();
                file.cast::<ShimFile>().write(ShimFile { base, lower, file: made, tracker, slot });
            }
            Ok(())
        }
        Err(error) => {
            lower.close();
            Err(error)
        }
    }
}

/// # Safety
/// As for `open_file`, with `lower_file` the memory of the lower VFS's part.
unsafe fn open_lower(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    lower_file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> Result {
    // SAFETY: the arguments are those of our own `xOpen`, for the lower VFS's part of the memory. A
    // failed open that set `pMethods` has to be closed (documentation of `sqlite3_vfs.xOpen`).
    let code = unsafe {
        (*lower_file).pMethods = ptr::null();
        let code = (*vfs).xOpen.expect("a VFS opens")(vfs, name, lower_file, flags, out_flags);
        if code != ffi::SQLITE_OK && !(*lower_file).pMethods.is_null() {
            (*(*lower_file).pMethods).xClose.expect("a file closes")(lower_file);
        }
        code
    };
    IoError::from_code(code).map_or(Ok(()), Err)
}

/// # Safety
/// The lower part of `file` must be open.
unsafe fn lower_methods(file: *mut sqlite3_file) -> *const sqlite3_io_methods {
    // SAFETY: an open file has methods, by the caller's word.
    methods_like(unsafe { &*(*file.byte_add(LOWER_OFFSET)).pMethods })
}

/// The ties that a file of this kind has: new ones for a database file, and for a WAL those of its
/// database.
///
/// # Safety
/// For a WAL, `name` must be what SQLite passed to `xOpen`.
unsafe fn ties(kind: FileKind, name: *const c_char) -> Option<Arc<Ties>> {
    match kind {
        FileKind::Database => Some(Arc::default()),
        // SAFETY: the pager opens the WAL with a name that leads to its database file, which is
        // open and not in a call: SQLite opens the WAL between calls on it, on the same thread.
        FileKind::Wal => unsafe {
            let database = ffi::sqlite3_database_file_object(name);
            if database.is_null() || !is_ours((*database).pMethods) {
                return None;
            }
            (*database.cast::<ShimFile>()).lower.share_ties()
        },
        FileKind::Journal | FileKind::Temp => None,
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite closes an open file once and does not use it again.
    let ShimFile { lower, file: made, slot, .. } = unsafe { file.cast::<ShimFile>().read() };
    let dropped = guard(ffi::SQLITE_IOERR_CLOSE, || {
        drop(made);
        Ok(())
    });
    let closed = lower.close();
    slot.open_files.fetch_sub(1, Ordering::Release);
    if closed == ffi::SQLITE_OK { dropped } else { closed }
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: an open file, and `len` > 0 bytes of SQLite's that are not used elsewhere. Allocated
    // in C, they hold some value or other.
    let (shim, buf) =
        unsafe { (shim(file), slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)) };
    guard(ffi::SQLITE_IOERR_READ, || shim.file.read(&mut shim.lower, buf, at as u64))
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: i64,
) -> c_int {
    // SAFETY: an open file, and `len` > 0 bytes that SQLite does not change during the call.
    let (shim, data) =
        unsafe { (shim(file), slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    guard(ffi::SQLITE_IOERR_WRITE, || shim.file.write(&mut shim.lower, data, at as u64))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    guard(ffi::SQLITE_IOERR_TRUNCATE, || shim.file.truncate(&mut shim.lower, size as u64))
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    guard(ffi::SQLITE_IOERR_FSYNC, || shim.file.sync(&mut shim.lower, SyncFlags(flags)))
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut i64) -> c_int {
    // SAFETY: SQLite passes an open file of ours and a place for the size.
    let (shim, out) = unsafe { (shim(file), &mut *out) };
    guard(ffi::SQLITE_IOERR_FSTAT, || {
        *out = shim.file.size(&mut shim.lower)? as i64;
        Ok(())
    })
}

unsafe extern "C" fn lock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    guard(ffi::SQLITE_IOERR_LOCK, || shim.file.lock(&mut shim.lower, LockLevel(level)))
}

unsafe extern "C" fn unlock(file: *mut sqlite3_file, level: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    guard(ffi::SQLITE_IOERR_UNLOCK, || shim.file.unlock(&mut shim.lower, LockLevel(level)))
}

unsafe extern "C" fn check_reserved_lock(file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours and a place for the answer.
    let (shim, out) = unsafe { (shim(file), &mut *out) };
    shim.lower.check_reserved_lock(out)
}

unsafe extern "C" fn file_control(
    file: *mut sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    if op == REQUEST {
        // SAFETY: only `snapshot::ask` uses the opcode, with a `Request` that it lends.
        let request = unsafe { &mut *argument.cast::<Request<'_>>() };
        return guard(ffi::SQLITE_IOERR, || match request {
            Request::Show(snapshot) => shim.file.show(&mut shim.lower, *snapshot),
            _ => snapshot::answer(&shim.tracker, request),
        });
    }
    // SAFETY: SQLite passes what it defines for `op`.
    unsafe { shim.lower.file_control(op, argument) }
}

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    unsafe { shim(file) }.lower.sector_size()
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    let ask = AssertUnwindSafe(|| shim.file.device_characteristics(&mut shim.lower));
    // A file that promises nothing is always right.
    catch_unwind(ask).unwrap_or(0)
}

unsafe extern "C" fn shm_map(
    file: *mut sqlite3_file,
    index: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite passes an open file of ours and a place for the address.
    let (shim, out) = unsafe { (shim(file), &mut *out) };
    let request = ShmRequest { index, size, extend };
    guard(ffi::SQLITE_IOERR_SHMMAP, || {
        let region = shim.file.shm_map(&mut shim.lower, request)?;
        // Other processes may use the wal-index of a VFS that is not exclusive.
        if shim.slot.kind == Lower::UnixExcl {
            shim.tracker.note_map(request, &region);
        }
        *out = region.address;
        IoError::from_code(region.code).map_or(Ok(()), Err)
    })
}

unsafe extern "C" fn shm_lock(
    file: *mut sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let lock = ShmLock { offset, count, flags };
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    if lock.releases_write_lock() {
        // Before the release: from then on another connection may write where this one did.
        shim.lower.note_write_release();
    }
    if !lock.takes() {
        // Before the release, too: what it protected may change from then on.
        shim.tracker.note_release(lock);
    }
    guard(ffi::SQLITE_IOERR_SHMLOCK, || {
        shim.file.shm_lock(&mut shim.lower, lock)?;
        if lock.takes() {
            shim.tracker.note_taken(lock);
        }
        Ok(())
    })
}

unsafe extern "C" fn shm_barrier(file: *mut sqlite3_file) {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    guard(ffi::SQLITE_OK, || {
        shim.file.shm_barrier(&mut shim.lower);
        shim.tracker.note_barrier();
        Ok(())
    });
}

unsafe extern "C" fn shm_unmap(file: *mut sqlite3_file, delete_flag: c_int) -> c_int {
    // SAFETY: SQLite passes an open file of ours.
    let shim = unsafe { shim(file) };
    shim.tracker.note_unmap();
    guard(ffi::SQLITE_IOERR, || shim.file.shm_unmap(&mut shim.lower, delete_flag))
}

// ---- the VFS itself ----

/// # Safety
/// `vfs` must be one of ours, as it is when SQLite calls its methods.
unsafe fn slot_of(vfs: *mut sqlite3_vfs) -> &'static Slot {
    // SAFETY: `new_slot` stored a slot there, which lives for ever.
    unsafe { &*(*vfs).pAppData.cast::<Slot>() }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls with our VFS and memory of `szOsFile` bytes for the file.
    unsafe { (*file).pMethods = ptr::null() };
    // SAFETY: as above, and the arguments are passed on as they came.
    guard(ffi::SQLITE_CANTOPEN, || unsafe { open_file(slot_of(vfs), name, file, flags, out_flags) })
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite calls with our VFS and a C string; the lower VFS is there for good.
    let (slot, deletion) = unsafe {
        let slot = slot_of(vfs);
        (slot, Deletion::new(slot.lower, CStr::from_ptr(name), sync))
    };
    guard(ffi::SQLITE_IOERR_DELETE, || {
        let served = locked(&slot.served).clone();
        served.map_or_else(|| deletion.perform(), |served| served.storage.delete(&deletion))
    })
}

/// Defines callbacks that do nothing but call the lower VFS.
macro_rules! forward {
    ($($name:ident => $method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($argument: $type),*) $(-> $result)? {
            // SAFETY: SQLite calls with our VFS; the arguments are those the lower VFS expects.
            unsafe {
                let lower = slot_of(vfs).lower;
                (*lower).$method.expect("the unix VFS has every method")(lower, $($argument),*)
            }
        }
    )*};
}

type Symbol = Option<unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char)>;

forward! {
    access => xAccess(name: *const c_char, flags: c_int, out: *mut c_int) -> c_int;
    full_pathname => xFullPathname(name: *const c_char, len: c_int, out: *mut c_char) -> c_int;
    dl_open => xDlOpen(name: *const c_char) -> *mut c_void;
    dl_error => xDlError(len: c_int, out: *mut c_char);
    dl_sym => xDlSym(library: *mut c_void, name: *const c_char) -> Symbol;
    dl_close => xDlClose(library: *mut c_void);
    randomness => xRandomness(len: c_int, out: *mut c_char) -> c_int;
    sleep => xSleep(microseconds: c_int) -> c_int;
    last_error => xGetLastError(len: c_int, out: *mut c_char) -> c_int;
    running_time => xCurrentTime(out: *mut f64) -> c_int;
    running_time_int64 => xCurrentTimeInt64(out: *mut i64) -> c_int;
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    let Some(frozen) = surroundings::frozen_julian_ms() else {
        // SAFETY: the arguments are passed on as they came.
        return unsafe { running_time(vfs, out) };
    };
    // SAFETY: SQLite passes a place for the time, which is in days.
    unsafe { *out = frozen as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, out: *mut i64) -> c_int {
    let Some(frozen) = surroundings::frozen_julian_ms() else {
        // SAFETY: the arguments are passed on as they came.
        return unsafe { running_time_int64(vfs, out) };
    };
    // SAFETY: SQLite passes a place for the time.
    unsafe { *out = frozen };
    ffi::SQLITE_OK
}
