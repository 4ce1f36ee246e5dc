//! Reads a file from its beginning to its end, and checks everything that can be checked.
//!
//! # Algorithm
//! The sum of the file covers the header, each page's header and length and its content as it was
//! before compression, the six zeros, the index with its length, and the database's checksum. The
//! index is compared with the pages by a sum of what it must be, so that memory does not grow with
//! the file. In a snapshot with checksums the database's own is computed, too.
//!
//! # Invariants
//! What the sum does not cover is checked by itself: the 8 bytes of the sum are compared;
//! compressed bytes must give exactly the page whose content it covers. So a change of one bit is
//! either an error, or it is one of a compressed block, or of an old frame, that gives the same
//! page (a copy from another place with the same bytes, say); pages, header and trailer are then as
//! they were written.

use std::io::Read;

use crate::checksum::{DatabaseChecksum, Digest};
use crate::error::{Error, Result};
use crate::frame::{Unpacker, max_len};
use crate::header::{BaseChecksum, Header, Trailer};
use crate::index::ExpectedIndex;
use crate::page::{PageOrder, Pgno};
use crate::source::Source;

mod position;

pub use position::Position;

/// One page of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<'a> {
    /// Its number.
    pub pgno: Pgno,
    /// Its content, as many bytes as the header says.
    pub data: &'a [u8],
}

/// Reads one file from a reader, page by page.
///
/// Memory: two pages, whatever the file's length. It reads in small pieces, so a file or a socket
/// should be behind a [`BufReader`](std::io::BufReader). Of the reader it takes exactly the file,
/// and one byte to see that nothing follows.
///
/// **Pages are given out before the file's sum is known.** What was made of them may be used once
/// [`next_page`](Decoder::next_page) has said `None`, and not before.
///
/// ```
/// # use monolite_ltx::*;
/// # let header = Header {
/// #     page_size: PageSize::new(512)?,
/// #     commit: 1,
/// #     txids: TxidRange::single(Txid::FIRST),
/// #     timestamp: Timestamp::from_millis(0),
/// #     base: BaseChecksum::Untracked,
/// #     wal: None,
/// #     node_id: 0,
/// # };
/// # let mut encoder = Encoder::new(Vec::new(), header)?;
/// # encoder.page(Pgno::new(1).unwrap(), &[7; 512])?;
/// # let file = encoder.finish(None)?.output;
/// let mut decoder = monolite_ltx::Decoder::new(&file[..])?;
/// let mut database = Vec::new();
/// while let Some(page) = decoder.next_page()? {
///     database.extend_from_slice(page.data);
/// }
/// assert!(decoder.trailer().is_some(), "the file was whole");
/// # assert_eq!(database, [7; 512]);
/// # Ok::<(), monolite_ltx::Error>(())
/// ```
#[derive(Debug)]
pub struct Decoder<R> {
    source: Source<R>,
    header: Header,
    order: PageOrder,
    digest: Digest,
    index: Option<ExpectedIndex>,
    /// Of the pages read, where they are all of a database whose checksum is kept.
    database: Option<DatabaseChecksum>,
    unpacker: Unpacker,
    pages: u32,
    state: DecoderState,
}

#[derive(Debug, Clone, Copy)]
enum DecoderState {
    Pages,
    Whole(Trailer),
    Failed,
}

impl<R: Read> Decoder<R> {
    /// Reads the header from `reader`, which stands at the beginning of the file.
    ///
    /// # Errors
    /// Those of [`Header::decode`]; [`Truncated`](crate::ErrorKind::Truncated);
    /// [`Io`](crate::ErrorKind::Io).
    pub fn new(reader: R) -> Result<Decoder<R>> {
        let mut source = Source::new(reader, 0);
        let bytes = source.take::<{ Header::LEN }>("the header")?;
        let header = Header::decode(&bytes)?;
        let mut digest = Digest::new();
        digest.update(&bytes);
        let database = match header.base {
            BaseChecksum::Snapshot => Some(DatabaseChecksum::empty(header.page_size)),
            BaseChecksum::Untracked | BaseChecksum::Database(_) => None,
        };
        Ok(Decoder {
            source,
            header,
            order: header.page_order(),
            digest,
            index: Some(ExpectedIndex::new()),
            database,
            unpacker: Unpacker::new(header.page_size),
            pages: 0,
            state: DecoderState::Pages,
        })
    }

    /// What the file begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What it ends with, once [`next_page`](Decoder::next_page) has said `None`.
    pub fn trailer(&self) -> Option<&Trailer> {
        match &self.state {
            DecoderState::Whole(trailer) => Some(trailer),
            DecoderState::Pages | DecoderState::Failed => None,
        }
    }

    /// How far it is, between two pages; `None` once the file was read to its end, or failed.
    pub fn position(&self) -> Option<Position> {
        let (DecoderState::Pages, Some(index)) = (self.state, &self.index) else { return None };
        Some(Position {
            header: self.header,
            offset: self.source.offset(),
            digest: self.digest.state(),
            index: index.state(),
            database: self.database.map(|database| database.value()),
            last: self.order.last(),
            pages: self.pages,
        })
    }

    /// Goes on at the `position` of another one. `reader` stands at its
    /// [`offset`](Position::offset), of the same file: the sums are compared at its end as if it
    /// had been read at once.
    pub fn resume(reader: R, position: &Position) -> Decoder<R> {
        let header = position.header;
        let sum = |value| DatabaseChecksum::of(header.page_size, value);
        Decoder {
            source: Source::new(reader, position.offset),
            header,
            order: header.page_order().resume(position.last),
            digest: Digest::resume(position.digest),
            index: Some(ExpectedIndex::resume(position.index)),
            database: position.database.map(sum),
            unpacker: Unpacker::new(header.page_size),
            pages: position.pages,
            state: DecoderState::Pages,
        }
    }

    /// What it reads from.
    pub fn reader(&self) -> &R {
        self.source.reader()
    }

    /// How many pages were read.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// How many bytes of the file were read.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Reads the next page. After the last it reads the rest of the file, checks all sums, and says
    /// `None`: the file is whole then.
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated), [`Corrupt`](crate::ErrorKind::Corrupt),
    /// [`Unsupported`](crate::ErrorKind::Unsupported), [`Io`](crate::ErrorKind::Io). Every later
    /// call fails, too.
    pub fn next_page(&mut self) -> Result<Option<Page<'_>>> {
        let page = self.advance()?;
        Ok(page.map(|pgno| Page { pgno, data: self.unpacker.page() }))
    }

    /// Reads to the end and checks everything.
    ///
    /// # Errors
    /// Those of [`next_page`](Decoder::next_page).
    pub fn verify(mut self) -> Result<Verified> {
        while self.advance()?.is_some() {}
        let (header, pages, len) = (self.header, self.pages, self.source.offset());
        match self.state {
            DecoderState::Whole(trailer) => Ok(Verified { header, trailer, pages, len }),
            DecoderState::Pages | DecoderState::Failed => Err(failed_before()),
        }
    }

    /// Reads the next page into `unpacker`.
    pub(crate) fn advance(&mut self) -> Result<Option<Pgno>> {
        match self.state {
            DecoderState::Pages => {}
            DecoderState::Whole(_) => return Ok(None),
            DecoderState::Failed => return Err(failed_before()),
        }
        self.state = DecoderState::Failed;
        let start = self.source.offset();
        let read = self.unpacker.read(&mut self.source, &mut self.digest)?;
        let Some(pgno) = read else {
            self.state = DecoderState::Whole(self.read_end()?);
            return Ok(None);
        };
        self.order.accept(pgno).map_err(|why| Error::corrupt(start, why))?;
        let length = self.source.offset() - start;
        if length > max_len(self.header.page_size) {
            return Err(Error::corrupt(start, format!("page {pgno} in {length} bytes")));
        }
        if let Some(index) = &mut self.index {
            index.add(pgno, start, length);
        }
        if let Some(database) = &mut self.database {
            database.toggle(pgno, self.unpacker.page());
        }
        self.pages = self.pages.saturating_add(1);
        self.state = DecoderState::Pages;
        Ok(Some(pgno))
    }

    /// The page that was read last, and the block it was stored in, if it was one.
    pub(crate) fn current(&self) -> (&[u8], Option<&[u8]>) {
        (self.unpacker.page(), self.unpacker.block())
    }

    /// Reads the index and the trailer, and compares all sums.
    fn read_end(&mut self) -> Result<Trailer> {
        let start = self.source.offset();
        self.order.end().map_err(|why| Error::corrupt(start, why))?;
        self.read_index()?;
        let at = self.source.offset();
        let bytes = self.source.take::<{ Trailer::LEN }>("the trailer")?;
        self.digest.update(&bytes[..8]);
        let trailer = Trailer::decode(bytes, &self.header, at)?;
        self.source.end()?;
        let sum = self.digest.sum();
        if sum != trailer.file {
            let message = format!("the checksum {} of a file that has {sum}", trailer.file);
            return Err(Error::corrupt(at + 8, message));
        }
        let computed = self.database.map(|database| database.value());
        if let Some(sum) = computed.filter(|sum| Some(*sum) != trailer.database) {
            let said = trailer.database.map_or(String::new(), |sum| sum.to_string());
            let message = format!("the checksum {said} of a database that has {sum}");
            return Err(Error::corrupt(at, message));
        }
        Ok(trailer)
    }

    /// Reads as many bytes as the index must have, and compares their sum with its.
    fn read_index(&mut self) -> Result<()> {
        let start = self.source.offset();
        let (mut length, expected) = self.index.take().unwrap_or_else(ExpectedIndex::new).finish();
        let (mut digest, mut buffer) = (Digest::new(), [0; 4096]);
        while length > 0 {
            let part = usize::try_from(length).map_or(buffer.len(), |n| n.min(buffer.len()));
            let part = &mut buffer[..part];
            self.source.fill(part, "the index")?;
            digest.update(part);
            self.digest.update(part);
            length -= part.len() as u64;
        }
        if digest.sum() != expected {
            return Err(Error::corrupt(start, "the index is not that of the pages"));
        }
        Ok(())
    }
}

fn failed_before() -> Error {
    Error::invalid("the file could not be read before")
}

/// A file that was read to its end, with all sums as they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// What it begins with.
    pub header: Header,
    /// What it ends with.
    pub trailer: Trailer,
    /// How many pages it has.
    pub pages: u32,
    /// Its length in bytes.
    pub len: u64,
}

/// Reads the file that begins where `reader` stands, to its end, and checks everything.
///
/// # Errors
/// Those of [`Decoder::new`] and [`Decoder::next_page`].
pub fn verify<R: Read>(reader: R) -> Result<Verified> {
    Decoder::new(reader)?.verify()
}

#[cfg(test)]
mod tests;
