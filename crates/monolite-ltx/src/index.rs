//! Owns the index of pages near a file's end: which page is where.
//!
//! # Format
//! For each page in order its number, the offset of its header in the file, and its length with the
//! header, as unsigned varints: seven bits a byte, lowest first, bit 7 set in all but the last. A
//! byte 0. Then the length of all this without these 8 bytes, big-endian; and the trailer.
//!
//! # Invariants
//! Both readers demand what every writer does: varints without needless bytes, the first page right
//! behind the header, each right behind the one before, and the index right behind the last and the
//! six zeros. So an index says no less and no more than the pages do.

use crate::checksum::{Checksum, Digest};
use crate::error::{Error, Result};
use crate::frame;
use crate::header::{Header, Trailer};
use crate::page::{PageOrder, Pgno};

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

/// Takes a varint from the front of `bytes`; `None` if there is none in its shortest form.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7F);
        if (bits << shift) >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            let is_shortest = *byte != 0 || shift == 0;
            return is_shortest.then_some(value);
        }
    }
    None
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

/// The last bytes of a file: where its index is, and its trailer.
///
/// With it a page is read by three small requests: the header, this, and the index (see
/// [`PageIndex::decode`]); or by two, if the end of the file is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Length of the index in bytes, with the zero at its end.
    index_len: u64,
    /// Length of the file in bytes.
    file_len: u64,
    trailer: Trailer,
}

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
        Ok(Footer { index_len, file_len, trailer })
    }

    /// What the file says at its end.
    pub fn trailer(&self) -> Trailer {
        self.trailer
    }

    /// The bytes of the file in which the index is, from the first to before the last. There are no
    /// more than the file and its number of pages allow.
    pub fn index_range(&self) -> std::ops::Range<u64> {
        let end = self.file_len - Footer::LEN as u64;
        end - self.index_len..end
    }
}

/// The most bytes an index can have, when `spare` bytes are there for pages and their entries: the
/// entries are longest, and the pages shortest.
fn most_index_bytes(header: &Header, spare: u64) -> u64 {
    let pages = spare / (frame::MIN_LEN + MAX_ENTRY_LEN) + 1;
    1 + pages.min(u64::from(header.commit)) * MAX_ENTRY_LEN
}

/// Where one page is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageEntry {
    /// Its number.
    pub pgno: Pgno,
    /// Where its header begins, in bytes from the start of the file.
    pub offset: u64,
    /// Its length with the header, in bytes.
    pub length: u32,
}

/// Where the pages of a file are, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageIndex(Vec<PageEntry>);

impl PageIndex {
    /// Reads the index, the bytes [`Footer::index_range`] of a file that begins with `header`. It
    /// takes 16 bytes of memory a page.
    ///
    /// An index is checked against itself and the length of the file, not against its pages.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when `bytes` has another length,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when it is no index of such a file.
    pub fn decode(bytes: &[u8], header: &Header, footer: &Footer) -> Result<PageIndex> {
        if bytes.len() as u64 != footer.index_len {
            let message = format!("{} bytes for an index of {}", bytes.len(), footer.index_len);
            return Err(Error::invalid(message));
        }
        let mut parser = IndexParser::new(header, footer);
        parser.feed(bytes, true)?;
        parser.finish()
    }

    /// All entries, by page number.
    pub fn entries(&self) -> &[PageEntry] {
        &self.0
    }

    /// Where page `pgno` is; `None` when the file does not have it.
    pub fn find(&self, pgno: Pgno) -> Option<PageEntry> {
        let at = self.0.binary_search_by_key(&pgno, |entry| entry.pgno).ok()?;
        self.0.get(at).copied()
    }
}

/// Reads an index in parts. It stops at the first entry that is none, so memory grows with what is
/// really there.
#[derive(Debug)]
pub(crate) struct IndexParser<'a> {
    header: &'a Header,
    range: std::ops::Range<u64>,
    order: PageOrder,
    entries: Vec<PageEntry>,
    /// Where in the file the next part is.
    at: u64,
    /// Where in the file the next page must be.
    next: u64,
    is_ended: bool,
}

impl<'a> IndexParser<'a> {
    pub(crate) fn new(header: &'a Header, footer: &Footer) -> IndexParser<'a> {
        let (range, order) = (footer.index_range(), header.page_order());
        let (at, next) = (range.start, Header::LEN as u64);
        IndexParser { header, range, order, entries: Vec::new(), at, next, is_ended: false }
    }

    /// Whether the zero at the end was read.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Reads entries from the front of `bytes` and returns their length. Unless it `is_last`, a
    /// rest that could be cut within an entry is left for the next time.
    pub(crate) fn feed(&mut self, bytes: &[u8], is_last: bool) -> Result<usize> {
        let mut rest = bytes;
        while !self.is_ended && (is_last || rest.len() as u64 >= MAX_ENTRY_LEN) {
            let before = rest.len();
            self.entry(&mut rest)?;
            self.at += (before - rest.len()) as u64;
        }
        Ok(bytes.len() - rest.len())
    }

    /// The index, if it ended where it must.
    pub(crate) fn finish(self) -> Result<PageIndex> {
        let behind = self.range.end.saturating_sub(self.at);
        if behind > 0 {
            return Err(self.refused(format!("{behind} bytes behind its end")));
        }
        self.order.end().map_err(|why| self.refused(why))?;
        if self.next.saturating_add(frame::HEADER_LEN as u64) != self.range.start {
            return Err(self.refused(format!("pages that end at {}", self.next)));
        }
        Ok(PageIndex(self.entries))
    }

    fn entry(&mut self, rest: &mut &[u8]) -> Result<()> {
        let number = take_varint(rest).ok_or_else(|| self.refused("no page number".into()))?;
        if number == 0 {
            self.is_ended = true;
            return Ok(());
        }
        let (offset, length) = (take_varint(rest), take_varint(rest));
        let entry = entry(self.header, number, offset, length)
            .ok_or_else(|| self.refused(format!("no entry of page {number}")))?;
        self.order.accept(entry.pgno).map_err(|why| self.refused(why))?;
        if entry.offset != self.next {
            let (is, must) = (entry.offset, self.next);
            return Err(self.refused(format!("page {number} at {is}, not at {must}")));
        }
        self.next = self.next.saturating_add(u64::from(entry.length));
        self.entries.push(entry);
        Ok(())
    }

    fn refused(&self, why: String) -> Error {
        Error::corrupt(self.at, format!("the index has {why}"))
    }
}

/// An entry whose numbers are in their ranges.
fn entry(
    header: &Header,
    number: u64,
    offset: Option<u64>,
    length: Option<u64>,
) -> Option<PageEntry> {
    let pgno = u32::try_from(number).ok().and_then(Pgno::new)?;
    let length =
        length.filter(|n| (frame::MIN_LEN..=frame::max_len(header.page_size)).contains(n))?;
    Some(PageEntry { pgno, offset: offset?, length: u32::try_from(length).ok()? })
}

#[cfg(test)]
mod tests;
