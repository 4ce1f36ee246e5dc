//! Owns how far a file was read, in bytes that outlive the process.
//!
//! # Format
//! The file's header, 100 bytes; then big-endian, 8 bytes each: the offset, the states of the sums
//! of the file and of its index, the index's length, the database's checksum or 0; 4 bytes each:
//! the last page, the number of pages.
//!
//! # Invariants
//! It has all that a [`Decoder`](super::Decoder) keeps from one page to the next.

use crate::checksum::Checksum;
use crate::error::{Error, Result};
use crate::header::{BaseChecksum, Header};
use crate::index::IndexState;

/// How far a [`Decoder`](super::Decoder) is, between two pages: one in another process
/// [goes on](super::Decoder::resume) from there, and compares the same sums at the end.
///
/// **It is trusted.** Keep it where no other program writes, with a sum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) header: Header,
    pub(super) offset: u64,
    pub(super) digest: u64,
    pub(super) index: IndexState,
    pub(super) database: Option<Checksum>,
    pub(super) last: u32,
    pub(super) pages: u32,
}

impl Position {
    /// Length in bytes.
    pub const LEN: usize = Header::LEN + 48;

    /// The byte of the file that is read next.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// As it is stored.
    ///
    /// # Errors
    /// Those of [`Header::encode`].
    pub fn encode(&self) -> Result<[u8; Position::LEN]> {
        let IndexState { sum, length } = self.index;
        let longs = [self.offset, self.digest, sum, length, Checksum::bits_of(self.database)];
        let shorts = [self.last, self.pages];
        let bytes = self.header.encode()?.into_iter();
        let bytes = bytes.chain(longs.into_iter().flat_map(u64::to_be_bytes));
        let mut bytes = bytes.chain(shorts.into_iter().flat_map(u32::to_be_bytes));
        Ok(std::array::from_fn(|_| bytes.next().unwrap_or_default()))
    }

    /// Reads what [`encode`](Position::encode) gave.
    ///
    /// # Errors
    /// Those of [`Header::decode`]; [`Corrupt`](crate::ErrorKind::Corrupt) for what it never gives.
    pub fn decode(bytes: &[u8; Position::LEN]) -> Result<Position> {
        let (header, rest) = bytes.split_first_chunk().ok_or_else(wrong)?;
        let header = Header::decode(header)?;
        let (longs, rest) = rest.split_first_chunk::<40>().ok_or_else(wrong)?;
        let (longs, _) = longs.as_chunks::<8>();
        let (shorts, _) = rest.as_chunks::<4>();
        let long = |at: usize| u64::from_be_bytes(longs[at]);
        let short = |at: usize| u32::from_be_bytes(shorts[at]);
        let database = Checksum::from_bits(long(4));
        let has_sum = header.base == BaseChecksum::Snapshot;
        if database.is_some() != has_sum || (long(4) != 0) != has_sum {
            return Err(wrong());
        }
        Ok(Position {
            header,
            offset: long(0),
            digest: long(1),
            index: IndexState { sum: long(2), length: long(3) },
            database,
            last: short(0),
            pages: short(1),
        })
    }
}

fn wrong() -> Error {
    Error::corrupt(Header::LEN as u64, "no position in a file")
}
