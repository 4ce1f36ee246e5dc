//! Owns how one page is stored: its header, its compressed content, and the bounds of both.
//!
//! # Format
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | page number; 0, with the flags, ends the pages |
//! | 4 | 2 | flags: 0x1, the form that is written now |
//! | 6 | 4 | length of the block |
//! | 10 | … | one LZ4 block, which gives exactly one page |
//!
//! Without the flag it is the old form, which Litestream wrote up to v0.5.15: an LZ4 *frame*
//! follows at byte 6 (see [`old`]). It is read and never written.
//!
//! # Invariants
//! - A length is checked before anything is allocated or read for it.
//! - What is written is never longer than [`max_len`]: a page that does not shrink becomes a block
//!   of literals.

mod old;

use std::io::Read;

use lz4_flex::block::get_maximum_output_size;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};

use crate::checksum::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::page::{PageSize, Pgno};
use crate::source::Source;

/// Flag of a page whose LZ4 block is preceded by its length.
const FLAG_SIZED: u16 = 0x1;

/// Length of a page's header without the length of its block.
pub(crate) const HEADER_LEN: usize = 6;
/// Length of a page's header with it.
const SIZED_HEADER_LEN: usize = 10;

/// What ends the pages.
pub(crate) const END: [u8; HEADER_LEN] = [0; HEADER_LEN];

/// The shortest that a page can be stored: a header with a length, and one byte. (The shortest old
/// frame is longer.)
pub(crate) const MIN_LEN: u64 = 11;

/// Room for the headers and sums of an old frame, generously.
const OLD_OVERHEAD: u64 = 80;

/// The longest block that any LZ4 compressor makes of a page (`LZ4_compressBound`).
pub(crate) fn max_block_len(page_size: PageSize) -> usize {
    page_size.bytes() + page_size.bytes() / 255 + 16
}

/// The longest that a page can be stored, in either form.
pub(crate) fn max_len(page_size: PageSize) -> u64 {
    max_block_len(page_size) as u64 + OLD_OVERHEAD
}

/// Reads pages, with memory for one.
#[derive(Debug)]
pub(crate) struct Unpacker {
    page: Vec<u8>,
    /// The compressed page, at its beginning.
    packed: Vec<u8>,
    packed_len: usize,
}

impl Unpacker {
    pub(crate) fn new(page_size: PageSize) -> Unpacker {
        let packed = vec![0; max_block_len(page_size)];
        Unpacker { page: vec![0; page_size.bytes()], packed, packed_len: 0 }
    }

    /// The page that was read last.
    pub(crate) fn page(&self) -> &[u8] {
        &self.page
    }

    /// Its block; `None` if it was stored as a frame.
    pub(crate) fn block(&self) -> Option<&[u8]> {
        self.packed.get(..self.packed_len).filter(|block| !block.is_empty())
    }

    /// Reads what is stored at `source`, a page or the end of the pages, and adds to `digest` what
    /// the sum of the file covers of it.
    pub(crate) fn read<R: Read>(
        &mut self,
        source: &mut Source<R>,
        digest: &mut Digest,
    ) -> Result<Option<Pgno>> {
        let start = source.offset();
        let header = source.take::<HEADER_LEN>("the header of a page")?;
        digest.update(&header);
        if header == END {
            return Ok(None);
        }
        let [n1, n2, n3, n4, f1, f2] = header;
        let number = u32::from_be_bytes([n1, n2, n3, n4]);
        let Some(pgno) = Pgno::new(number) else {
            return Err(Error::corrupt(start, format!("the page number {number}")));
        };
        self.packed_len = 0;
        match u16::from_be_bytes([f1, f2]) {
            FLAG_SIZED => self.read_block(source, digest, pgno)?,
            0 => old::read(source, &mut self.page, &mut self.packed)
                .map_err(|error| error.about(&format!("page {pgno}, an LZ4 frame")))?,
            flags => {
                let message = format!("page {pgno} with the flags {flags:#06x}");
                return Err(Error::new(ErrorKind::Unsupported, message).at(start + 4));
            }
        }
        digest.update(&self.page);
        Ok(Some(pgno))
    }

    fn read_block<R: Read>(
        &mut self,
        source: &mut Source<R>,
        digest: &mut Digest,
        pgno: Pgno,
    ) -> Result<()> {
        let at = source.offset();
        let length = source.take::<4>("the length of a page")?;
        digest.update(&length);
        let length = u32::from_be_bytes(length);
        let most = self.packed.len();
        let block = usize::try_from(length).ok().and_then(|length| self.packed.get_mut(..length));
        let Some(block) = block.filter(|block| !block.is_empty()) else {
            let message = format!("page {pgno} in {length} compressed bytes, of 1 to {most}");
            return Err(Error::corrupt(at, message));
        };
        source.fill(block, "a page")?;
        unpack(block, &mut self.page)
            .map_err(|why| Error::corrupt(at + 4, format!("page {pgno}: {why}")))?;
        self.packed_len = block.len();
        Ok(())
    }
}

/// Decompresses a block that must give all of `page`.
fn unpack(block: &[u8], page: &mut [u8]) -> Result<(), String> {
    match decompress_into(block, page) {
        Ok(length) if length == page.len() => Ok(()),
        Ok(length) => Err(format!("an LZ4 block of {length} bytes for {}", page.len())),
        Err(error) => Err(format!("no LZ4 block of {} bytes: {error}", page.len())),
    }
}

/// Compresses pages, with memory for one.
pub(crate) struct Packer {
    table: CompressTable,
    frame: Vec<u8>,
}

impl Packer {
    pub(crate) fn new(page_size: PageSize) -> Packer {
        let room = get_maximum_output_size(page_size.bytes()).max(max_block_len(page_size));
        Packer { table: CompressTable::default(), frame: vec![0; SIZED_HEADER_LEN + room] }
    }

    /// `page` as it is stored.
    pub(crate) fn pack(&mut self, pgno: Pgno, page: &[u8]) -> &[u8] {
        let room = &mut self.frame[SIZED_HEADER_LEN..];
        let shrunk = compress_into_with_table(page, room, &mut self.table).ok();
        let length = match shrunk.filter(|length| *length < page.len()) {
            Some(length) => length,
            None => literals(page, room),
        };
        self.with_header(pgno, length)
    }

    /// A page whose block is there already.
    pub(crate) fn pack_block(&mut self, pgno: Pgno, block: &[u8]) -> &[u8] {
        self.frame[SIZED_HEADER_LEN..][..block.len()].copy_from_slice(block);
        self.with_header(pgno, block.len())
    }

    fn with_header(&mut self, pgno: Pgno, length: usize) -> &[u8] {
        let size = u32::try_from(length).expect("a block is hardly longer than a page");
        self.frame[..4].copy_from_slice(&pgno.get().to_be_bytes());
        self.frame[4..6].copy_from_slice(&FLAG_SIZED.to_be_bytes());
        self.frame[6..10].copy_from_slice(&size.to_be_bytes());
        &self.frame[..SIZED_HEADER_LEN + length]
    }
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Packer").field("room", &self.frame.len()).finish_non_exhaustive()
    }
}

/// What the sum of the file covers of a page as it is stored: all but the block.
pub(crate) fn covered_header(frame: &[u8]) -> &[u8] {
    &frame[..SIZED_HEADER_LEN]
}

/// Writes `page` as one LZ4 sequence of literals: a token of 15, the rest of the length in bytes of
/// 255 and one below it, and the bytes. Returns its length.
fn literals(page: &[u8], block: &mut [u8]) -> usize {
    let rest = page.len() - 15;
    let (full, last) = (rest / 255, rest % 255);
    block[0] = 0xF0;
    block[1..=full].fill(255);
    block[full + 1] = u8::try_from(last).expect("it is a remainder of 255");
    block[full + 2..][..page.len()].copy_from_slice(page);
    full + 2 + page.len()
}

#[cfg(test)]
mod tests;
