//! Owns overlays as connections: the taking of a snapshot, transactions on it that are always
//! rolled back, and the test that the SQLite in the program lets this be done.
//!
//! # Algorithm
//! 1. A *guard*, an ordinary reader, begins and reads: it pins a snapshot, as every reader does.
//! 2. [`Connection::snapshot`] takes down which one.
//! 3. [`Connection::begin_on`] lets an overlay write on that snapshot, in its own memory, invisible
//!    to every other connection. [`Connection::rollback`] ends it.
//! 4. The guard ends its transaction after that. If it ends earlier (it may be revoked), what the
//!    overlay still reads from the files is refused with `SQLITE_IOERR_BLOCKED`, and what it has in
//!    memory is still the snapshot's.
//!
//! # Invariants
//! - No byte of the database, its WAL or the live wal-index is changed by an overlay.
//! - An overlay sees the snapshot and its own changes, or reports an error.
//!
//! # Not here
//! How files and wal-index of an overlay work: `vfs::overlay`.

use std::cell::Cell;
use std::fmt;

use rusqlite::{Result, ffi};

use super::Connection;
use crate::codes::failure;
use crate::statements::Own;
use crate::vfs::{
    BACKFILLED, PAGE_NUMBERS, READ_MARKS, Request, Snapshot, ask, finds_frames, header_in,
};

/// What an overlay keeps beside what every connection has.
pub(crate) struct OverlayState {
    /// The size of the page cache in KiB, until it is set: that needs the database header.
    pending_cache_kib: Cell<Option<u64>>,
}

impl OverlayState {
    pub(crate) fn new(cache_kib: u64) -> OverlayState {
        OverlayState { pending_cache_kib: Cell::new(Some(cache_kib)) }
    }
}

/// Makes sure that `connection` was opened with the VFS of overlays.
pub(crate) fn check_vfs(connection: &rusqlite::Connection) -> Result<()> {
    ask(connection, Request::Show(None))
        .map_err(|_| misuse("an overlay has to be opened with the VFS of `Vfs::register_overlays`"))
}

fn misuse(text: impl Into<String>) -> rusqlite::Error {
    failure(ffi::SQLITE_MISUSE, text)
}

impl Connection {
    pub(crate) fn refuse_to_overlay(&self, what: &str) -> Result<()> {
        if self.overlay.is_none() {
            return Ok(());
        }
        Err(misuse(format!("{what} is refused to an overlay, whose changes are for itself alone")))
    }

    /// What the read transaction of this connection sees, for overlays to see it too.
    ///
    /// `None` when no transaction is open, on an overlay, and where overlays cannot be: over
    /// [`crate::vfs::Lower::Unix`], or a VFS that is not ours.
    pub fn snapshot(&self) -> Option<Snapshot> {
        if self.overlay.is_some() {
            return None;
        }
        let mut taken = None;
        ask(self.raw(), Request::Snapshot(&mut taken)).ok()?;
        let mut snapshot = taken?;
        snapshot.sequence = self.sequence();
        Some(snapshot)
    }

    /// Begins a transaction on `snapshot`: this overlay sees it and its own writes, which no other
    /// connection sees. [`Connection::rollback`] ends it.
    ///
    /// The connection that the snapshot was taken from has to stay in its transaction until then.
    /// After it has left, by itself or revoked, statements that need a page of the files fail with
    /// `SQLITE_IOERR_BLOCKED`, and others still answer from the snapshot.
    ///
    /// # Errors
    /// `SQLITE_IOERR_BLOCKED` when it has left already, an `SQLITE_IOERR_SHMMAP` for a snapshot of
    /// another database, `SQLITE_BUSY` while a statement or a transaction is open here,
    /// `SQLITE_MISUSE` if this is no overlay, and those of reading.
    pub fn begin_on(&self, snapshot: &Snapshot) -> Result<()> {
        let Some(state) = &self.overlay else {
            return Err(misuse("only an overlay can begin on a snapshot"));
        };
        ask(self.raw(), Request::Show(Some(snapshot)))?;
        self.keep_pages(snapshot.sequence);
        self.begin(Own::BeginImmediate)?;
        self.set_cache_size(state).inspect_err(|_| {
            let _ = self.rollback();
        })
    }

    fn set_cache_size(&self, state: &OverlayState) -> Result<()> {
        let Some(kib) = state.pending_cache_kib.get() else { return Ok(()) };
        let pragma = format!("PRAGMA cache_size = -{kib}");
        self.as_engine(|| self.raw().execute_batch(&pragma))?;
        state.pending_cache_kib.set(None);
        Ok(())
    }

    /// The first region of the wal-index.
    fn index_words(&self) -> Result<Vec<u32>> {
        let mut words = None;
        ask(self.raw(), Request::Index(&mut words))?;
        words.ok_or_else(|| misuse("the wal-index is not mapped"))
    }
}

/// Tests that the SQLite in this program keeps its wal-index in the way that overlays rely on, and
/// that they work: `overlay` shows what `guard` sees and its own change, no other connection sees
/// that change, and the rollback removes it. Both are connections of the same database, without a
/// transaction.
///
/// # Errors
/// The reason why overlays are not available. Write transactions have to be kept then in another
/// way.
pub fn test_overlay(guard: &Connection, overlay: &Connection) -> std::result::Result<(), Unfit> {
    guard.begin_read()?;
    let outcome = test_on(guard, overlay);
    let ended = overlay.rollback().and(guard.rollback());
    outcome.and(Ok(ended?))
}

/// Why overlays are not available.
#[derive(Debug)]
pub enum Unfit {
    /// SQLite keeps its wal-index in another way.
    Layout(String),
    /// SQLite failed.
    Failed(rusqlite::Error),
}

impl Unfit {
    /// Whether a retry may succeed: descriptors, memory or space were lacking, or a lock was held.
    /// Other I/O errors are not among these: an overlay that does not fit this SQLite fails with
    /// one each time.
    pub fn may_pass(&self) -> bool {
        use rusqlite::ErrorCode as Code;
        let passing = [
            Code::CannotOpen,
            Code::DatabaseBusy,
            Code::DiskFull,
            Code::OperationInterrupted,
            Code::OutOfMemory,
        ];
        match self {
            Unfit::Layout(_) => false,
            Unfit::Failed(error) => {
                error.sqlite_error_code().is_some_and(|code| passing.contains(&code))
            }
        }
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Layout(reason) => write!(f, "overlays cannot be used: {reason}"),
            Unfit::Failed(error) => write!(f, "overlays cannot be used: {error}"),
        }
    }
}

impl From<rusqlite::Error> for Unfit {
    fn from(error: rusqlite::Error) -> Unfit {
        Unfit::Failed(error)
    }
}

fn test_on(guard: &Connection, overlay: &Connection) -> std::result::Result<(), Unfit> {
    let seen = Glance::of(guard)?;
    let snapshot = guard.snapshot().ok_or_else(|| {
        let reason = "the wal-index is shared with other processes, or its header is not that of \
                      version 3007000";
        Unfit::Layout(reason.into())
    })?;
    let before = guard.index_words()?;
    check_index(&before, &snapshot, &seen)?;
    for _ in 0..2 {
        overlay.begin_on(&snapshot)?;
        expect(Glance::of(overlay)? == seen, "it shows something else than its guard")?;
        let changed = seen.user_version.wrapping_add(1);
        set_user_version(overlay, changed)?;
        let own = Glance::of(overlay)?;
        expect(own.user_version == changed, "it does not see its own change")?;
        expect(Glance::of(guard)? == seen, "its guard sees its change")?;
        overlay.rollback()?;
    }
    let after = guard.index_words()?;
    // Another connection may have committed meanwhile.
    let is_same_commit = header_in(&before, 0) == header_in(&after, 0);
    let is_untouched = before[PAGE_NUMBERS..] == after[PAGE_NUMBERS..];
    expect(!is_same_commit || is_untouched, "it has changed the wal-index")
}

/// What a transaction sees at a glance.
#[derive(PartialEq, Eq)]
struct Glance {
    user_version: i32,
    schema_version: i32,
    page_bytes: u32,
    pages: u32,
    objects: i64,
}

impl Glance {
    fn of(connection: &Connection) -> Result<Glance> {
        let sql = "SELECT user_version, schema_version, page_size, page_count,
                          (SELECT count(*) FROM sqlite_schema)
                   FROM pragma_user_version, pragma_schema_version, pragma_page_size,
                        pragma_page_count";
        connection.as_engine(|| {
            connection.raw().query_row(sql, [], |row| {
                Ok(Glance {
                    user_version: row.get(0)?,
                    schema_version: row.get(1)?,
                    page_bytes: row.get(2)?,
                    pages: row.get(3)?,
                    objects: row.get(4)?,
                })
            })
        })
    }
}

fn set_user_version(connection: &Connection, version: i32) -> Result<()> {
    let sql = format!("PRAGMA user_version = {version}");
    connection.as_engine(|| connection.raw().execute_batch(&sql))
}

fn expect(holds: bool, otherwise: &str) -> std::result::Result<(), Unfit> {
    if holds { Ok(()) } else { Err(Unfit::Layout(otherwise.into())) }
}

/// Checks the first region of the live wal-index against what is known of `snapshot`, which it may
/// have left behind.
fn check_index(
    words: &[u32],
    snapshot: &Snapshot,
    seen: &Glance,
) -> std::result::Result<(), Unfit> {
    let header = &snapshot.header;
    let last_frame = header.last_frame();
    // An empty WAL has neither.
    let is_known = header.page_bytes() == seen.page_bytes && header.pages() == seen.pages;
    expect(is_known || last_frame == 0, "the header of the wal-index has another layout")?;
    if header_in(words, 0) != *header {
        return Ok(());
    }
    expect(header_in(words, 1) == *header, "the wal-index has no second header")?;
    if snapshot.uses_wal() {
        let mark = words[READ_MARKS + snapshot.slot as usize];
        expect(mark <= last_frame, "the read marks of the wal-index are elsewhere")?;
        return expect(finds_frames(words, last_frame), "the wal-index has other hash tables");
    }
    expect(words[BACKFILLED] == last_frame, "the wal-index counts copied frames elsewhere")
}

#[cfg(test)]
mod tests;
