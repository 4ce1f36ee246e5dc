//! Owns how the content of a database at one moment is found: which pages the WAL has of it, and
//! what of it is in the database file.
//!
//! # Algorithm
//! 1. [`Start::take`], while no commit runs: a snapshot, then a look at how far the WAL is copied.
//!    When all of it is, the database file has the content of the snapshot. Otherwise some frame
//!    was not copied when the snapshot was taken, so that the snapshot is a reader of the WAL,
//!    which cannot restart before it ends, and the content is that of the file with the newest of
//!    all frames so far for each page. (A reader that has nothing to read in the WAL keeps
//!    checkpoints from writing the file, and does not keep the WAL. Then all of it was copied.)
//!    Nothing is written, so that a copy to another disk can be made of a disk that is full.
//! 2. [`Start::moment`] takes the pages that the WAL has, with checksums where the file has them.
//!    As long as the snapshot is there, a checkpoint writes no page of the file that the WAL does
//!    not have up to the snapshot, so all others are in the file as they were.
//! 3. From then on either the snapshot stays, or the moment is guarded ([`vfs::Guarded`]) before
//!    it ends.
//!
//! [`vfs::Guarded`]: crate::vfs::Guarded
//!
//! # Format
//! That of a WAL is told in [`wal`](crate::wal). A database says in the bytes 16 and 17 of its
//! header how large its pages are (1 stands for 65,536), and in the bytes 18 and 19 that it has a
//! WAL (2) or a rollback journal (1).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;

use rusqlite::Result;

use crate::fletcher::{Order, Sums};
use crate::header::{HEADER_BYTES, MAGIC, RESERVED_AT};
use crate::vfs::{
    Fault, Images, IoError, Moment, RESERVED_BYTES, database_size, read_database_at, read_wal_at,
};
use crate::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES, number_at, page_bytes_of_wal};
use crate::{CheckpointMode, Connection};

/// What the file format versions say of a database with a rollback journal.
const ROLLBACK_JOURNAL: u8 = 1;

/// A snapshot, and where its content is.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// How many frames of the WAL belong to it; none when all of it is in the database file.
    frames: u32,
}

impl Start {
    /// Takes a snapshot on `reader`, which has none. No commit may run meanwhile. `other` is a
    /// connection without a transaction.
    ///
    /// # Errors
    /// Those of SQLite; `reader` has no snapshot then.
    pub fn take(reader: &Connection, other: &Connection) -> Result<Start> {
        #[cfg(test)]
        tests::meanwhile();
        reader.begin_read()?;
        match other.checkpoint(CheckpointMode::Look) {
            Ok(seen) if seen.is_kept_out() => reader.rollback().and(Err(IoError::BUSY.into())),
            Ok(seen) if seen.is_complete() => Ok(Start { frames: 0 }),
            Ok(seen) => Ok(Start { frames: seen.wal_frames }),
            Err(error) => reader.rollback().and(Err(error)),
        }
    }

    /// The moment of the snapshot, which `reader` still has. `images` makes the place for a
    /// database of so many bytes. The pages that the WAL has are taken, or some of them when
    /// `goes_on` ends that.
    ///
    /// # Errors
    /// Those of reading and of `images`.
    pub fn moment(
        self,
        reader: &Connection,
        is_verified: bool,
        images: impl FnOnce(u64) -> io::Result<Box<dyn Images>>,
        goes_on: impl Fn(&Moment) -> bool,
    ) -> std::result::Result<Moment, Fault> {
        let connection = reader.raw();
        let wal = WalPages::read(connection, self.frames)?;
        let (page_bytes, pages) = match &wal {
            Some(wal) => (wal.page_bytes, wal.database_pages),
            None => size_of_file(connection)?,
        };
        let images = images(page_bytes as u64 * u64::from(pages)).map_err(Fault::Save)?;
        let moment = Moment::new(page_bytes, pages, is_verified, images);
        let Some(wal) = wal else { return Ok(moment) };
        let has_checksums = wal.has_checksums(connection)?;
        let mut page = vec![0; page_bytes];
        for (pgno, at) in wal.newest {
            if !goes_on(&moment) {
                break;
            }
            read_wal_at(connection, &mut page, at)?;
            if has_checksums {
                stamp(&mut page);
            }
            moment.take(pgno, &page)?;
        }
        Ok(moment)
    }
}

/// How large the pages of the database file are, and how many it has.
fn size_of_file(connection: &rusqlite::Connection) -> std::result::Result<(usize, u32), IoError> {
    // Nothing was ever written to one that has no header.
    let Some(page_bytes) = page_bytes(connection)? else { return Ok((512, 0)) };
    let pages = database_size(connection)? / page_bytes as u64;
    Ok((page_bytes, u32::try_from(pages).map_err(|_| IoError::READ)?))
}

/// How large the pages of a database are that has a header.
fn page_bytes(connection: &rusqlite::Connection) -> std::result::Result<Option<usize>, IoError> {
    let mut header = [0; HEADER_BYTES];
    match read_database_at(connection, &mut header, 0) {
        Err(IoError::SHORT_READ) => return Ok(None),
        read => read?,
    }
    Ok(page_bytes_in(&header))
}

/// What the header at the beginning of a database says of it.
fn page_bytes_in(beginning: &[u8]) -> Option<usize> {
    let bytes = match beginning.get(16..HEADER_BYTES)? {
        [0, 1, ..] => 65_536,
        [high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
        _ => return None,
    };
    let is_header = beginning.starts_with(MAGIC) && bytes >= 512 && bytes.is_power_of_two();
    is_header.then_some(bytes)
}

/// Where the WAL has its pages.
struct WalPages {
    page_bytes: usize,
    /// How many pages the database has behind the last commit.
    database_pages: u32,
    /// For each page where the newest of them begins, in bytes.
    newest: BTreeMap<u32, u64>,
}

impl WalPages {
    /// Whether pages have a checksum in the file. In the WAL they have none.
    fn has_checksums(
        &self,
        connection: &rusqlite::Connection,
    ) -> std::result::Result<bool, IoError> {
        let mut first = vec![0; self.page_bytes];
        match self.newest.get(&1) {
            Some(at) => read_wal_at(connection, &mut first, *at)?,
            None => read_database_at(connection, &mut first, 0)?,
        }
        Ok(first[RESERVED_AT] == RESERVED_BYTES)
    }

    /// Of the first `frames` frames, of which the last is that of a commit; nothing when there are
    /// none.
    fn read(
        connection: &rusqlite::Connection,
        frames: u32,
    ) -> std::result::Result<Option<WalPages>, IoError> {
        if frames == 0 {
            return Ok(None);
        }
        let mut header = [0; WAL_HEADER_BYTES as usize];
        read_wal_at(connection, &mut header, 0)?;
        let page_bytes = page_bytes_of_wal(&header).ok_or(IoError::DATA)?;
        let mut pages = WalPages { page_bytes, database_pages: 0, newest: BTreeMap::new() };
        let mut frame = [0; FRAME_HEADER_BYTES as usize];
        for number in 0..u64::from(frames) {
            let at = WAL_HEADER_BYTES + number * (FRAME_HEADER_BYTES + page_bytes as u64);
            read_wal_at(connection, &mut frame, at)?;
            if frame[8..16] != header[16..24] {
                return Err(IoError::DATA);
            }
            pages.newest.insert(number_at(&frame, 0), at + FRAME_HEADER_BYTES);
            pages.database_pages = number_at(&frame, 4);
        }
        // The last one is that of a commit, and has it.
        if pages.database_pages == 0 { Err(IoError::DATA) } else { Ok(Some(pages)) }
    }
}

/// Makes of the pages at the beginning of a database those of one with a rollback journal, so that
/// opening it needs no WAL. A right checksum stays right, and a wrong one wrong.
pub fn leave_wal_mode(beginning: &mut [u8]) {
    let Some(page) = page_bytes_in(beginning).and_then(|bytes| beginning.get_mut(..bytes)) else {
        return;
    };
    let has_checksum = page[RESERVED_AT] == RESERVED_BYTES && page.ends_with(&sums_of(page));
    (page[18], page[19]) = (ROLLBACK_JOURNAL, ROLLBACK_JOURNAL);
    if has_checksum {
        stamp(page);
    }
}

/// Gives a page its checksum.
fn stamp(page: &mut [u8]) {
    let (sums, end) = (sums_of(page), page.len());
    page[end - sums.len()..].copy_from_slice(&sums);
}

/// The checksum of a page that reserves bytes for one.
fn sums_of(page: &[u8]) -> [u8; RESERVED_BYTES as usize] {
    let end = page.len() - usize::from(RESERVED_BYTES);
    Sums::default().over(&page[..end], Order::Little).to_page()
}
