//! Owns the gathering of WAL frames: a commit is handed to the file in large writes.
//!
//! SQLite writes a commit as, for each page, a 24-byte frame header and then the page. Bytes 4 to 7
//! of a header, the database size in pages, are not zero on the commit's last frame only. SQLite
//! publishes the commit in the wal-index as soon as the write of that frame's page has returned.
//!
//! # Algorithm
//! The buffer is a write-back cache of one contiguous range of the file, the *held* range.
//! 1. A frame header at or after the append point starts a held range when there is none.
//! 2. A write that lies in the held range changes it in place; one that begins at its end extends
//!    it (a rolled back savepoint writes its frames again, a spilled page is overwritten).
//! 3. Any other write first flushes the held range and then goes straight to the file. That is
//!    always correct, merely slower. It is the way of the WAL header, of checksums that SQLite
//!    rewrites after the commit frame, and of frames below the append point.
//! 4. When the page of a commit frame has arrived, the held range is flushed before the write
//!    returns. It is flushed too once it exceeds [`MAX_HELD_BYTES`]: frames without a commit frame
//!    mean nothing.
//! 5. Before that flush, the commit and the page numbers of its frames are given to
//!    [`Changes`](super::Changes): the commit is not visible yet.
//! 6. Reads that overlap the held range, and every size, sync and truncate, flush first.
//! 7. What was flushed is kept for readers where [`WalControl`] says so (`recent`), and forgotten
//!    before something else is written there.
//! 8. A small flush that would make the file longer makes it longer by [`AHEAD_BYTES`] of zeros,
//!    where [`WalControl::writing_ahead`] has asked for it. The commits that follow overwrite them,
//!    and syncing those changes nothing but data: no size, no map of the file's blocks. Zeros are
//!    no frame, so a recovery that meets them is at the end of the WAL.
//! 9. Before a commit that makes the database larger is flushed, space is set aside for the file
//!    ([`WalControl::writing_ahead`]), so that a checkpoint lacks none. A WAL that cannot get
//!    longer is told of as one that has met its limit: the writer then has it restart. What a write
//!    took that found too little room is given back.
//! 10. Before the WAL begins anew, and before commits in it are cut off, the gate is asked
//!     ([`WalControl::set_gate`]).
//!
//! # Invariants
//! - When a commit is published nothing is held: its last write flushed, or failed.
//! - Nothing is held across the release of the write lock. Another connection may then write frames
//!   at the same place, over which a late flush of ours would be corruption. The lock is released
//!   through the database file, which counts ([`LowerFile::write_releases`]); a range held under an
//!   older count belongs to a transaction that was rolled back and is dropped. A WAL file without
//!   that count holds nothing. Under `locking_mode=EXCLUSIVE` there is no lock and no other
//!   connection.
//! - Nothing is written beyond the end of the file: another program has then cut the file, and
//!   acknowledged commits with it.
//! - Nothing is written after a sync that has failed. One of the header can be in the middle of a
//!   transaction whose pages are spilled, where a caller may take its error for an answer.
//! - A write that fails drops what is held: SQLite rolls the transaction back, and under
//!   `locking_mode=EXCLUSIVE` nothing else would void the commit frame that may be among it. A read
//!   that fails to flush keeps it: its transaction may go on.
//!
//! # Durability
//! A commit frame that reached the file although its write reported an error can be found by
//! recovery after a crash, as with SQLite itself: an error of `COMMIT` other than the limit's
//! leaves the outcome open until the next commit has overwritten those frames.

use std::sync::Arc;

use super::{Anew, File, LimitHit, LowerFile, Result, SyncFlags, WalControl};
use crate::vfs::IoError;
use crate::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES, number_at};

/// How much is held before it is flushed without a commit frame; also what a writer may keep in
/// memory.
///
/// A commit of this size that exceeds the limit leaves no trace in the file.
pub const MAX_HELD_BYTES: usize = 4 << 20;

/// The last frame before a flush may begin just below the bound and have the largest page there is.
const HELD_CAPACITY_BYTES: usize = MAX_HELD_BYTES + FRAME_HEADER_BYTES as usize + 65_536;

/// For so many pages of a commit there is memory from one to the next.
const KEPT_PAGES: usize = 1_000;

/// By how much a small flush makes the file longer than it must be.
const AHEAD_BYTES: u64 = 512 << 10;

/// The largest flush that is small. A larger one pays for its own growth, and zeros behind it would
/// be a good part of all that is written.
const MAX_SMALL_BYTES: usize = 64 << 10;

/// A WAL file that gathers the frames of a commit before it hands them to `F`.
#[derive(Debug)]
pub struct Gather<F> {
    inner: F,
    control: Arc<WalControl>,
    held: Vec<u8>,
    /// Offset of `held` in the file.
    held_at: u64,
    /// The end of everything this transaction has written: below it, nothing new is gathered.
    append_point: u64,
    /// Whether the WAL restarted with this transaction.
    restarts: bool,
    /// The count of write lock releases under which the three above are valid.
    releases: Option<u64>,
    /// From the WAL header, or else the first frame seen. Fixed for as long as a WAL file is open.
    page_bytes: Option<u64>,
    /// Where the page of a commit frame is awaited.
    commit_page_at: Option<u64>,
    /// How many pages the database has behind that commit.
    commit_pages: u32,
    /// Whether a sync has failed: the content of the disk is then unknown, and nothing is written
    /// any more.
    has_failed: bool,
    /// The pages of the frames since the last commit; those of frames that were written again, or
    /// rolled back with a savepoint, among them.
    changed: Vec<u32>,
}

impl<F: File> Gather<F> {
    /// Gathers the frames of the WAL file `inner`, within the limit of `control`.
    pub fn new(inner: F, control: Arc<WalControl>) -> Gather<F> {
        Gather {
            inner,
            control,
            held: Vec::new(),
            held_at: 0,
            append_point: 0,
            restarts: false,
            releases: None,
            page_bytes: None,
            commit_page_at: None,
            commit_pages: 0,
            has_failed: false,
            changed: Vec::new(),
        }
    }

    fn held_end(&self) -> u64 {
        self.held_at + self.held.len() as u64
    }

    /// Drops what a transaction left that no longer has the write lock.
    fn forget_ended_transaction(&mut self, lower: &LowerFile) {
        let releases = lower.write_releases();
        if releases != self.releases {
            self.releases = releases;
            self.held = Vec::new();
            self.append_point = 0;
            self.restarts = false;
            self.commit_page_at = None;
            self.changed.clear();
        }
    }

    fn flush(&mut self, lower: &mut LowerFile) -> Result {
        if self.held.is_empty() {
            return Ok(());
        }
        assert!(self.held_at >= WAL_HEADER_BYTES, "the header of a WAL is never held");
        let size = self.whole_size(lower, self.held_at)?;
        // Taken out, so that a panic below drops them: it fails the transaction.
        let held = std::mem::take(&mut self.held);
        self.forget_recent(self.held_at);
        let written = self.inner.write(lower, &held, self.held_at);
        self.note_full(lower, written, size);
        if written.is_ok() && held.len() <= MAX_SMALL_BYTES {
            self.write_ahead(lower, self.held_at + held.len() as u64, size);
        }
        if written.is_ok() {
            self.control.recent().inspect(|recent| recent.keep(&held, self.held_at));
            self.control.note_file_end(self.held_at + held.len() as u64);
            self.control.keep_spare(held);
        } else {
            self.held = held;
        }
        written
    }

    /// Where the disk had no room for a write: gives back what the write took beyond `size`, which
    /// the database file may need, and notes that the WAL cannot get longer, unless it has
    /// restarted with this transaction.
    fn note_full(&mut self, lower: &mut LowerFile, written: Result, size: u64) {
        if written != Err(IoError::FULL) {
            return;
        }
        // It only gives room to others: the error of the write is what counts.
        let _ = self.inner.truncate(lower, size);
        if !self.restarts {
            self.control.note_limit_hit(LimitHit::DiskFull);
        }
    }

    /// How long the file is, when everything before `at` is there. SQLite leaves no gaps, so a
    /// shorter file was cut by another program.
    fn whole_size(&mut self, lower: &mut LowerFile, at: u64) -> Result<u64> {
        let size = self.inner.size(lower)?;
        if size < at { Err(IoError::SHORT_READ) } else { Ok(size) }
    }

    /// Makes the file longer than `end`, where the last write ended that found it `size` long.
    fn write_ahead(&mut self, lower: &mut LowerFile, end: u64, size: u64) {
        static ZEROS: [u8; AHEAD_BYTES as usize] = [0; AHEAD_BYTES as usize];
        let room = self.control.limit_bytes().saturating_sub(end);
        let is_wanted = size < end && room >= AHEAD_BYTES;
        if is_wanted
            && self.control.writes_ahead(end + AHEAD_BYTES)
            && self.inner.write(lower, &ZEROS, end).is_err()
        {
            // The zeros are not needed, and a part of them may be there and take room.
            let _ = self.inner.truncate(lower, end);
        }
    }

    /// The file is about to change at `at`.
    fn forget_recent(&self, at: u64) {
        self.control.recent().inspect(|recent| recent.forget(at));
    }

    fn write_through(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        self.flush(lower)?;
        let size = self.whole_size(lower, at)?;
        self.forget_recent(at);
        let written = self.inner.write(lower, data, at);
        self.note_full(lower, written, size);
        written?;
        self.control.note_file_end(at + data.len() as u64);
        Ok(())
    }

    fn write_wal_header(&mut self, lower: &mut LowerFile, data: &[u8]) -> Result {
        let is_whole = data.len() as u64 >= WAL_HEADER_BYTES;
        let salts = || [number_at(data, 16), number_at(data, 20)];
        self.control.pass_gate(if is_whole { Anew::Begins(salts()) } else { Anew::Cut })?;
        self.write_through(lower, data, 0)?;
        self.page_bytes = is_whole.then(|| number_at(data, 8).into());
        self.append_point = WAL_HEADER_BYTES;
        self.restarts = self.releases.is_some();
        self.control.note_restart(WAL_HEADER_BYTES);
        Ok(())
    }

    /// Whether a write of `len` bytes at `at` is the header of a frame, and not a piece of a page
    /// that SQLite split at a sector boundary.
    fn is_frame_header(&self, len: u64, at: u64) -> bool {
        let at_a_frame =
            |page: u64| (at - WAL_HEADER_BYTES).is_multiple_of(FRAME_HEADER_BYTES + page);
        len == FRAME_HEADER_BYTES
            && at >= WAL_HEADER_BYTES
            && self.page_bytes.is_none_or(at_a_frame)
    }

    /// Whether a held range may begin with the frame at `at`. Below the append point it may not:
    /// the last header that SQLite rewrites for its checksum is not followed by a page, so nothing
    /// would flush it.
    fn may_hold_from(&self, at: u64) -> bool {
        at >= self.append_point && self.releases.is_some()
    }

    /// Puts a write where it belongs: rules 1 to 3.
    fn place(&mut self, lower: &mut LowerFile, data: &[u8], at: u64, is_header: bool) -> Result {
        let end = at + data.len() as u64;
        assert!(end <= self.control.limit_bytes(), "no frame is written behind the limit");
        let holds = !self.held.is_empty();
        if holds && at >= self.held_at && end <= self.held_end() {
            let from = (at - self.held_at) as usize;
            self.held[from..from + data.len()].copy_from_slice(data);
        } else if holds && at == self.held_end() {
            self.held.extend_from_slice(data);
        } else if is_header && self.may_hold_from(at) {
            self.flush(lower)?;
            self.held = self.control.take_spare();
            // For many commits: untouched pages of a large allocation cost nothing.
            self.held.reserve_exact(HELD_CAPACITY_BYTES);
            self.held_at = at;
            self.held.extend_from_slice(data);
        } else {
            self.write_through(lower, data, at)?;
        }
        self.append_point = self.append_point.max(end);
        Ok(())
    }

    fn write_part(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        if at == 0 {
            return self.write_wal_header(lower, data);
        }
        if at + data.len() as u64 > self.control.limit_bytes() {
            let hit = if self.restarts { LimitHit::TooLarge } else { LimitHit::NoRoomLeft };
            self.control.note_limit_hit(hit);
            return Err(IoError::FULL);
        }
        self.write_frame_part(lower, data, at)
    }

    fn write_frame_part(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        let len = data.len() as u64;
        let is_header = self.is_frame_header(len, at);
        self.place(lower, data, at, is_header)?;
        if is_header {
            self.commit_pages = number_at(data, 4);
            self.commit_page_at = (self.commit_pages != 0).then_some(at + FRAME_HEADER_BYTES);
            self.changed.push(number_at(data, 0));
            return Ok(());
        }
        self.page_bytes.get_or_insert(len);
        if self.commit_page_at.take_if(|page_at| *page_at == at).is_some() {
            self.control.set_aside(lower, u64::from(self.commit_pages) * len)?;
            self.control.changes().record(&self.changed);
            self.changed.clear();
            self.changed.shrink_to(KEPT_PAGES);
            self.flush(lower)?;
            assert!(self.held.is_empty(), "nothing is held when a commit is published");
            self.control.note_commit_end(at + len);
        } else if self.held.len() >= MAX_HELD_BYTES {
            self.flush(lower)?;
        }
        Ok(())
    }
}

impl<F: File> File for Gather<F> {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut self.inner)
    }

    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        if !self.held.is_empty() {
            self.forget_ended_transaction(lower);
            if at < self.held_end() && at + buf.len() as u64 > self.held_at {
                self.flush(lower)?;
            }
        }
        match self.control.recent() {
            Some(recent) if recent.read(buf, at) => Ok(()),
            _ => self.inner.read(lower, buf, at),
        }
    }

    /// # Errors
    /// Also `SQLITE_FULL` when the WAL would exceed its limit. The commit is then absent from the
    /// file as long as it fits in [`MAX_HELD_BYTES`]; of a larger one, or one that SQLite's cache
    /// spilled and read back, frames without a commit frame may be there, which readers, recovery
    /// and checkpoints ignore and the next commit overwrites.
    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        if self.has_failed {
            return Err(IoError::SYNC);
        }
        self.forget_ended_transaction(lower);
        let written = self.write_part(lower, data, at);
        if written.is_err() {
            self.held = Vec::new();
            self.commit_page_at = None;
        }
        written
    }

    fn truncate(&mut self, lower: &mut LowerFile, size: u64) -> Result {
        self.forget_ended_transaction(lower);
        self.flush(lower)?;
        if size < self.control.wal_bytes() {
            self.control.pass_gate(Anew::Cut)?;
        }
        self.forget_recent(size);
        self.inner.truncate(lower, size)?;
        self.control.note_truncate(size);
        Ok(())
    }

    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> Result {
        self.forget_ended_transaction(lower);
        self.flush(lower)?;
        let synced = self.inner.sync(lower, flags);
        self.has_failed |= synced.is_err();
        synced
    }

    fn size(&mut self, lower: &mut LowerFile) -> Result<u64> {
        self.forget_ended_transaction(lower);
        self.flush(lower)?;
        self.inner.size(lower)
    }
}
