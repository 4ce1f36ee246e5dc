//! Owns snapshots: what a connection's read transaction sees, taken down so that an overlay can see
//! the same.
//!
//! # Algorithm
//! A reader of a WAL database reads the header of the wal-index, takes one of five locks (READ
//! locks, of which the first means that it ignores the WAL), passes a memory barrier, and compares
//! the header again; if it has changed, the reader releases the lock and starts over
//! (`walTryBeginRead` in SQLite's `wal.c`). So the header copied at that barrier is the
//! transaction's once the lock is kept: headers never come back, and a copy that caught one in the
//! middle of a change has a wrong checksum.
//!
//! # Invariants
//! - A snapshot is *pinned* while the connection it was taken from keeps that lock. The count that
//!   tells goes up before the lock is released, so a read after which the snapshot is still pinned
//!   has read what the lock protected.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use rusqlite::ffi;

use super::{CommitSequence, Result, ShmLock, ShmRegion, ShmRequest};
use crate::vfs::IoError;

/// The words of a `WalIndexHdr`, see <https://sqlite.org/walformat.html>.
pub(super) const HEADER_WORDS: usize = 12;

/// The words of one region of the wal-index.
pub(super) const REGION_WORDS: usize = 8_192;

/// The only version of the wal-index there is.
const INDEX_VERSION: u32 = 3_007_000;

/// The header of a wal-index: one `WalIndexHdr`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(pub(crate) [u32; HEADER_WORDS]);

impl Header {
    /// Whether it is that of an initialised index of the known version, and whole.
    pub(crate) fn is_valid(&self) -> bool {
        let words = &self.0;
        let is_init = words[3].to_ne_bytes()[0] != 0;
        words[0] == INDEX_VERSION && is_init && self.sums() == [words[10], words[11]]
    }

    fn sums(&self) -> [u32; 2] {
        let mut sums = [0_u32; 2];
        for pair in self.0[..HEADER_WORDS - 2].chunks_exact(2) {
            sums[0] = sums[0].wrapping_add(pair[0]).wrapping_add(sums[1]);
            sums[1] = sums[1].wrapping_add(pair[1]).wrapping_add(sums[0]);
        }
        sums
    }

    /// Gives it the checksum of its words.
    pub(super) fn seal(&mut self) {
        [self.0[10], self.0[11]] = self.sums();
    }

    /// How many commits the wal-index has seen since it was made.
    pub(crate) fn commits(&self) -> u32 {
        self.0[2]
    }

    /// The page size in bytes.
    pub(crate) fn page_bytes(&self) -> u32 {
        let bytes = self.0[3].to_ne_bytes();
        let size = u32::from(u16::from_ne_bytes([bytes[2], bytes[3]]));
        // 65,536 does not fit and is stored as 1.
        if size == 1 { 65_536 } else { size }
    }

    /// The last frame of the WAL that belongs to it.
    pub(crate) fn last_frame(&self) -> u32 {
        self.0[4]
    }

    /// The size of the database in pages.
    pub(crate) fn pages(&self) -> u32 {
        self.0[5]
    }

    /// The salts of the WAL, which no other generation of it has.
    pub(crate) fn salts(&self) -> [u32; 2] {
        [self.0[8], self.0[9]]
    }
}

/// What the read transaction of one connection sees, for an overlay to see it too.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) header: Header,
    /// Which READ lock is held; 0 for a reader that ignores the WAL.
    pub(crate) slot: c_int,
    /// Where the wal-index is: the same for all connections of a database in this process.
    pub(super) index: usize,
    /// Of the connection; counts the READ locks it has released.
    releases: Arc<AtomicU64>,
    /// That count while the lock is held.
    held_at: u64,
    /// The number of a commit that it contains, with all before it.
    pub(crate) sequence: CommitSequence,
}

/// What a snapshot shows. Two are equal only if no commit lies between them; when the WAL has
/// restarted, they are different without one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Version(Header);

impl Snapshot {
    /// What it shows. [`Snapshot::sequence`] does not tell: a commit is visible before it is
    /// counted, so of two snapshots with the same number one may lack it.
    pub fn version(&self) -> Version {
        Version(self.header)
    }

    /// Whether the connection that it was taken from is still in that read transaction.
    ///
    /// What was read of the files before the call is of the snapshot if the answer is `true`.
    pub fn is_pinned(&self) -> bool {
        // What was read before must not be read after the load.
        fence(SeqCst);
        self.releases.load(SeqCst) == self.held_at
    }

    /// [`Changes::sequence`](super::Changes::sequence) before it was taken; unknown when its
    /// connection knows of no record of changes.
    pub fn sequence(&self) -> CommitSequence {
        self.sequence
    }

    /// Whether the WAL has parts of it. If not, everything is in the database file.
    pub(crate) fn uses_wal(&self) -> bool {
        self.slot != 0
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salts, last_frame) = (self.0.salts(), self.0.last_frame());
        write!(f, "{:08x}-{:08x}:{last_frame}", salts[0], salts[1])
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("last_frame", &self.header.last_frame())
            .field("pages", &self.header.pages())
            .field("uses_wal", &self.uses_wal())
            .field("is_pinned", &self.is_pinned())
            .finish_non_exhaustive()
    }
}

/// Follows the READ lock of one connection.
#[derive(Default)]
pub(super) struct Tracker {
    index: Option<NonNull<AtomicU32>>,
    slot: Option<c_int>,
    /// The lock was taken, and the barrier behind it has not been passed.
    awaits_barrier: bool,
    header: Option<Header>,
    releases: Arc<AtomicU64>,
}

impl Tracker {
    /// A region was mapped.
    pub(super) fn note_map(&mut self, request: ShmRequest, region: &ShmRegion) {
        if request.index == 0 {
            self.index = NonNull::new(region.address.cast());
        }
    }

    /// The wal-index is about to be unmapped.
    pub(super) fn note_unmap(&mut self) {
        self.release();
        self.index = None;
    }

    /// A lock was taken.
    pub(super) fn note_taken(&mut self, lock: ShmLock) {
        if let Some(slot) = lock.shared_read_slot() {
            self.slot = Some(slot);
            self.awaits_barrier = true;
        }
    }

    /// A lock is about to be released.
    pub(super) fn note_release(&mut self, lock: ShmLock) {
        if lock.shared_read_slot().is_some() {
            self.release();
        }
    }

    fn release(&mut self) {
        if self.slot.take().is_some() {
            self.awaits_barrier = false;
            self.releases.fetch_add(1, SeqCst);
        }
    }

    /// A barrier was passed.
    pub(super) fn note_barrier(&mut self) {
        if self.awaits_barrier {
            self.awaits_barrier = false;
            // SAFETY: `index` is the first region of the wal-index, which stays mapped until
            // `note_unmap`; its first `HEADER_WORDS` words are aligned to 4. They are loaded one by
            // one, atomically, since the writer may be storing them.
            self.header = self.index.map(|index| unsafe { load_header(index.as_ptr()) });
        }
    }

    /// The snapshot of the read transaction, if there is one.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let slot = self.slot.filter(|_| !self.awaits_barrier)?;
        let (index, header) = (self.index?, self.header.filter(Header::is_valid)?);
        Some(Snapshot {
            header,
            slot,
            index: index.as_ptr().addr(),
            releases: Arc::clone(&self.releases),
            held_at: self.releases.load(Relaxed),
            sequence: CommitSequence::UNKNOWN,
        })
    }

    /// The first region of the wal-index, word by word.
    pub(super) fn index_words(&self) -> Option<Vec<u32>> {
        let index = self.index?;
        // SAFETY: a mapped region has `REGION_WORDS` words and stays until `note_unmap`.
        let words = unsafe { std::slice::from_raw_parts(index.as_ptr(), REGION_WORDS) };
        Some(words.iter().map(|word| word.load(Relaxed)).collect())
    }
}

/// # Safety
/// `words` must point to at least `HEADER_WORDS` words.
unsafe fn load_header(words: *const AtomicU32) -> Header {
    // SAFETY: the caller vouches for the words.
    let words = unsafe { std::slice::from_raw_parts(words, HEADER_WORDS) };
    Header(std::array::from_fn(|at| words[at].load(Relaxed)))
}

/// What this crate asks of the database file of one of its connections.
pub(crate) enum Request<'r> {
    /// The snapshot of the connection's read transaction.
    Snapshot(&'r mut Option<Snapshot>),
    /// To be an overlay of this snapshot from the next transaction on; `None` for none.
    Show(Option<&'r Snapshot>),
    /// The first region of the wal-index.
    Index(&'r mut Option<Vec<u32>>),
}

/// The opcode of a [`Request`] as a file control; those above 100 are not SQLite's.
pub(super) const REQUEST: c_int = 0x4d_4f_4e_4f;

/// Asks the main database file of `connection`. The connection's own mutex is held meanwhile.
///
/// # Errors
/// Those of the request; `SQLITE_NOTFOUND` if the file is not one of this crate's VFSs.
pub(crate) fn ask(
    connection: &rusqlite::Connection,
    mut request: Request<'_>,
) -> rusqlite::Result<()> {
    let argument: *mut c_void = (&raw mut request).cast();
    // SAFETY: the handle is open for as long as `connection` is borrowed, the name is a C string,
    // and only our own files know the opcode; they take the argument for a `Request`, as it is.
    let code = unsafe {
        ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), REQUEST, argument)
    };
    match IoError::from_code(code) {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

/// Answers what came with the opcode [`REQUEST`], except for [`Request::Show`].
pub(super) fn answer(tracker: &Tracker, request: &mut Request<'_>) -> Result {
    match request {
        Request::Snapshot(taken) => **taken = tracker.snapshot(),
        Request::Index(words) => **words = tracker.index_words(),
        Request::Show(_) => return Err(IoError::NOT_FOUND),
    }
    Ok(())
}
