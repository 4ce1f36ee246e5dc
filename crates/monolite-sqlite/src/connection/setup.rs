//! Owns how a connection is set up: what may be asked for ([`Settings`]), how its file is opened,
//! and SQLite's own settings of it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{OpenFlags, Result, ffi};

use super::Role;
use crate::additions::Setup;
use crate::codes::{check, failure};
use crate::pcache::MainCache;
use crate::rowids::Rowids;
use crate::untrusted::set_limit;
use crate::vfs::WalControl;

/// Page cache of a connection for which none was asked.
const CACHE_KIB: u64 = 8 << 10;

/// Bytes of the larger pieces of lookaside memory: SQLite's own default. A cursor takes about half.
const PIECE_BYTES: c_int = 1_200;

/// Larger pieces of lookaside memory, some of which SQLite divides into small ones: 150 KB.
pub(super) const PIECES: c_int = 128;

/// What a sort of a connection has in memory, at most, before it goes on in temporary files; that
/// of a connection with a smaller page cache has as much as that.
const SORT_KIB: u64 = 16 << 10;

/// Bytes that SQLite allows a value or a row at most, unless it was compiled otherwise.
pub const MAX_VALUE_BYTES: c_int = 1_000_000_000;

/// How connections of one database are opened.
pub struct Settings {
    /// Name of a registered VFS.
    pub vfs: String,
    /// Page cache in KiB.
    pub cache_kib: u64,
    /// How long a lock held by another process is waited for.
    pub busy_timeout: Duration,
    /// `false` switches every sync of SQLite itself off (for databases that die with the process).
    pub sync: bool,
    /// Bytes that a value or a row may have, at most [`MAX_VALUE_BYTES`].
    pub value_bytes: c_int,
    /// Bytes that a database which is new reserves at the end of each page.
    pub reserved_bytes: u8,
    /// Asked about every 1,000 virtual machine instructions (100 for untrusted SQL); `true`
    /// interrupts the statement.
    pub overdue: Overdue,
    /// The numbers that are given out ahead, for connections that insert.
    pub rowids: Option<Arc<Rowids>>,
    /// The record of all changes to the database, if no other process writes to it: lets readers
    /// and overlays keep the pages in their cache that no commit has changed.
    pub control: Option<Arc<WalControl>>,
    /// Adds an application's functions, collations and modules.
    pub setup: Option<Setup>,
}

impl Settings {
    /// Of a database that every process may write to, in files of the VFS with the name `vfs`:
    /// everything is synced, nothing is waited for or ended, and nothing is added.
    pub fn new(vfs: &str) -> Settings {
        Settings {
            vfs: vfs.to_owned(),
            cache_kib: CACHE_KIB,
            busy_timeout: Duration::ZERO,
            sync: true,
            value_bytes: MAX_VALUE_BYTES,
            reserved_bytes: 0,
            overdue: Arc::new(|| false),
            rowids: None,
            control: None,
            setup: None,
        }
    }
}

/// Says whether the statement that runs has to end.
pub type Overdue = Arc<dyn Fn() -> bool + Send + Sync>;

pub(super) fn open_flags(role: Role) -> OpenFlags {
    // A reader is opened read-write, too: a read-only descriptor could not take part in
    // process-private locking. `query_only` keeps it from writing.
    let common = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let mutex = match role.is_serialized() {
        true => OpenFlags::SQLITE_OPEN_FULL_MUTEX,
        false => OpenFlags::SQLITE_OPEN_NO_MUTEX,
    };
    match role {
        Role::Inspector => {
            OpenFlags::SQLITE_OPEN_READ_ONLY
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_EXRESCODE
                | mutex
        }
        Role::Writer => common | mutex | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Reader | Role::Untrusted | Role::Overlay | Role::Checkpointer => common | mutex,
    }
}

pub(super) fn harden(connection: &rusqlite::Connection) -> Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Closing must not checkpoint by itself: after a failed sync the WAL is all there is to trust.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // SAFETY: the handle is open and used by this thread alone.
    check(unsafe { ffi::sqlite3_enable_load_extension(connection.handle(), 0) })
}

/// Gives the connection so much memory for small pieces. [`PIECES`] are more than SQLite's 48 KB,
/// which the statements that are kept can use up for good: every cursor that runs would come from
/// the heap then.
///
/// # Errors
/// `SQLITE_BUSY` while a part of what there is is used.
pub(super) fn have_lookaside(connection: &rusqlite::Connection, pieces: c_int) -> Result<()> {
    // SAFETY: the handle is open and used by this thread alone, and LOOKASIDE takes a pointer
    // (null: SQLite allocates) and two ints.
    check(unsafe {
        let (op, memory) = (ffi::SQLITE_DBCONFIG_LOOKASIDE, ptr::null_mut::<c_void>());
        ffi::sqlite3_db_config(connection.handle(), op, memory, PIECE_BYTES, pieces)
    })
}

/// Has the text of the latest error, which SQLite keeps, be no small piece: fails with a long one.
pub(super) fn have_large_error(connection: &rusqlite::Connection) {
    static NAME: [u8; 2 * PIECE_BYTES as usize] = {
        let mut name = [b'-'; 2 * PIECE_BYTES as usize];
        name[name.len() - 1] = 0;
        name
    };
    let (name, mode) = (NAME.as_ptr().cast(), ffi::SQLITE_CHECKPOINT_PASSIVE);
    // SAFETY: the handle is open and used by this thread alone, the name ends with a zero, and the
    // counts may be null. Nothing is done: no database has that name.
    unsafe {
        let counts = ptr::null_mut();
        ffi::sqlite3_wal_checkpoint_v2(connection.handle(), name, mode, counts, counts);
    }
}

/// Has every page that SQLite lays out from now on in a new file, or with `VACUUM`, end with
/// `bytes` that it does not use.
pub(super) fn reserve_bytes(connection: &rusqlite::Connection, bytes: u8) -> Result<()> {
    let mut bytes = c_int::from(bytes);
    // SAFETY: the handle is open and used by this thread alone, the name is a C string, and
    // RESERVE_BYTES reads and writes an int through its argument.
    check(unsafe {
        let (name, argument) = (c"main".as_ptr(), (&raw mut bytes).cast());
        let op = ffi::SQLITE_FCNTL_RESERVE_BYTES;
        ffi::sqlite3_file_control(connection.handle(), name, op, argument)
    })
}

pub(super) fn set_pragmas(
    connection: &rusqlite::Connection,
    role: Role,
    settings: &Settings,
) -> Result<()> {
    if role == Role::Writer {
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let text = format!("the database cannot use WAL mode, it stays in mode {mode}");
            return Err(failure(ffi::SQLITE_CANTOPEN, text));
        }
    }
    // What an untrusted query takes is counted as memory, so it gets no files.
    let temp_store = if role == Role::Untrusted { "MEMORY" } else { "FILE" };
    set_limit(connection, ffi::SQLITE_LIMIT_LENGTH, settings.value_bytes);
    // None of these reads the file, which an overlay cannot do before it has a snapshot.
    connection.execute_batch(&format!(
        "PRAGMA foreign_keys = ON; PRAGMA mmap_size = 0; PRAGMA wal_autocheckpoint = 0; \
         PRAGMA temp_store = {temp_store};",
    ))?;
    if role == Role::Overlay {
        return keep_changes_in_memory(connection);
    }
    let synchronous = if settings.sync { "NORMAL" } else { "OFF" };
    connection.execute_batch(&format!("PRAGMA synchronous = {synchronous};"))?;
    set_cache(connection, settings)?;
    if matches!(role, Role::Reader | Role::Untrusted) {
        connection.execute_batch("PRAGMA query_only = ON")?;
    }
    if role == Role::Inspector {
        // Reads the header.
        connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    }
    Ok(())
}

/// Has changed pages of the main database stay in the page cache until the commit, however many
/// they are.
fn keep_changes_in_memory(connection: &rusqlite::Connection) -> Result<()> {
    // Tables in between have caches of their own, and still spill.
    connection.execute_batch("PRAGMA main.cache_spill = 2147483647")
}

/// Gives the connection its page cache, and its sorts their memory.
///
/// For SQLite both are one figure. So it is told that of the sorts, and the cache is made larger
/// below it; it never sets that again. Where the cache cannot be reached, as another library has
/// initialised SQLite, sorts have as much memory as the cache.
fn set_cache(connection: &rusqlite::Connection, settings: &Settings) -> Result<()> {
    let cache_kib = settings.cache_kib;
    let set = |kib: u64| connection.execute_batch(&format!("PRAGMA cache_size = -{kib}"));
    if cache_kib <= SORT_KIB {
        return set(cache_kib);
    }
    set(SORT_KIB)?;
    // A cache whose pages have another size is another cache, so that has to be known before.
    connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    let Some(mut cache) = MainCache::of(connection) else { return set(cache_kib) };
    cache.resize(cache_kib << 10);
    drop(cache);
    // Changed pages are written when the larger cache is full, and not before.
    connection.execute_batch(&format!("PRAGMA main.cache_spill = -{cache_kib}"))
}
