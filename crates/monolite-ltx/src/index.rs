//! Owns the index of pages near a file's end: which page is where.
//!
//! # Format
//! For each page in order its number, the offset of its header in the file, and its length with the
//! header, as unsigned varints: seven bits a byte, lowest first, bit 7 set in all but the last. A
//! byte 0. Then the length of all this without these 8 bytes, big-endian; and the trailer.
//!
//! # Invariants
//! The reader demands what every writer does: varints without needless bytes, the first page right
//! behind the header, each right behind the one before, and the index right behind the last and the
//! six zeros. So an index says no less and no more than the pages do.

use crate::checksum::{Checksum, Digest};
use crate::error::{Error, Result};
use crate::frame;
use crate::header::{Header, Trailer};
use crate::page::Pgno;

/// The longest entry: a page number in 5 bytes, an offset in 10, a length in 3 (at most 66 KiB).
const MAX_ENTRY_LEN: u64 = 18;

/// Appends `value` as a varint.
pub(crate) fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(0x80 | (value & 0x7F) as u8);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_entry(pgno: Pgno, offset: u64, length: u64, bytes: &mut Vec<u8>) {
    put_varint(u64::from(pgno.get()), bytes);
    put_varint(offset, bytes);
    put_varint(length, bytes);
}

/// The index of a file that is written: some 9 bytes a page.
#[derive(Debug, Default)]
pub(crate) struct IndexWriter(Vec<u8>);

impl IndexWriter {
    pub(crate) fn add(&mut self, pgno: Pgno, offset: u64, length: u64) {
        put_entry(pgno, offset, length, &mut self.0);
    }

    /// The whole index.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.0.push(0);
        let length = self.0.len() as u64;
        self.0.extend_from_slice(&length.to_be_bytes());
        self.0
    }
}

/// The index that a file must have, by the pages that were read from it. It keeps a sum of it, so
/// that memory does not grow with the file.
#[derive(Debug)]
pub(crate) struct ExpectedIndex {
    digest: Digest,
    length: u64,
    entry: Vec<u8>,
}

/// How far an [`ExpectedIndex`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexState {
    /// The state of its sum.
    pub(crate) sum: u64,
    /// Its length in bytes.
    pub(crate) length: u64,
}

impl ExpectedIndex {
    pub(crate) fn new() -> ExpectedIndex {
        ExpectedIndex { digest: Digest::new(), length: 0, entry: Vec::new() }
    }

    pub(crate) fn add(&mut self, pgno: Pgno, offset: u64, length: u64) {
        self.entry.clear();
        put_entry(pgno, offset, length, &mut self.entry);
        self.digest.update(&self.entry);
        self.length = self.length.saturating_add(self.entry.len() as u64);
    }

    /// One that goes on from the [`state`](ExpectedIndex::state) of another.
    pub(crate) fn resume(state: IndexState) -> ExpectedIndex {
        let IndexState { sum, length } = state;
        ExpectedIndex { digest: Digest::resume(sum), length, entry: Vec::new() }
    }

    pub(crate) fn state(&self) -> IndexState {
        IndexState { sum: self.digest.state(), length: self.length }
    }

    /// Its length with the zero and the length behind it, and its sum.
    pub(crate) fn finish(mut self) -> (u64, Checksum) {
        let length = self.length.saturating_add(1);
        self.digest.update(&[0]);
        self.digest.update(&length.to_be_bytes());
        (length.saturating_add(8), self.digest.sum())
    }
}

/// The last bytes of a file: the length of its index, and its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer(Trailer);

impl Footer {
    /// Length of a footer in bytes.
    pub const LEN: usize = 24;

    /// Reads the last 24 bytes of a file that begins with `header` and has `file_len` bytes.
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated) when no file is so short,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the index cannot be of that length, or the
    /// checksums break a rule.
    pub fn decode(bytes: &[u8; Footer::LEN], header: &Header, file_len: u64) -> Result<Footer> {
        let least = (Header::LEN + frame::HEADER_LEN + 1 + Footer::LEN) as u64;
        if file_len < least {
            let message = format!("a file of {file_len} bytes; the shortest has {least}");
            return Err(Error::truncated(file_len, message));
        }
        let at = file_len - Footer::LEN as u64;
        let (halves, _) = bytes.as_chunks::<8>();
        let index_len = u64::from_be_bytes(halves[0]);
        let mut trailer = [0; Trailer::LEN];
        trailer.copy_from_slice(&bytes[8..]);
        let trailer = Trailer::decode(trailer, header, at + 8)?;
        let most = most_index_bytes(header, file_len - least);
        if !(1..=most).contains(&index_len) {
            let message = format!("an index of {index_len} bytes; at most {most} are possible");
            return Err(Error::corrupt(at, message));
        }
        Ok(Footer(trailer))
    }

    /// What the file says at its end.
    pub fn trailer(&self) -> Trailer {
        self.0
    }
}

/// The most bytes an index can have, when `spare` bytes are there for pages and their entries: the
/// entries are longest, and the pages shortest.
fn most_index_bytes(header: &Header, spare: u64) -> u64 {
    let pages = spare / (frame::MIN_LEN + MAX_ENTRY_LEN) + 1;
    1 + pages.min(u64::from(header.commit)) * MAX_ENTRY_LEN
}

#[cfg(test)]
mod tests;
