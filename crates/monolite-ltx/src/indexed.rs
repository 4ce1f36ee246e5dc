//! Reads single pages of a file by its index, without the rest of it.

use std::io::{Read, Seek, SeekFrom};

use crate::checksum::Digest;
use crate::error::{Error, Result};
use crate::frame::Unpacker;
use crate::header::{Header, Trailer};
use crate::index::{Footer, IndexParser, PageEntry, PageIndex};
use crate::page::Pgno;
use crate::source::Source;

/// How much of an index is read at a time, in bytes: the entries of some 2,000 pages, on any stack.
const PART: usize = 16 << 10;

/// A file that is open for reading any of its pages.
///
/// **A page that is read so is checked less than by a [`Decoder`](crate::Decoder)**: it has its
/// number and its size, and decompressed as it must. No sum covers a single page of a block, so a
/// changed byte in it can go unnoticed; [`verify`](crate::verify) the file before, once.
///
/// Memory: two pages, and 16 bytes for each page of the file.
///
/// ```
/// # use monolite_ltx::*;
/// # let header = Header {
/// #     page_size: PageSize::new(512)?,
/// #     commit: 9,
/// #     txids: TxidRange::single(Txid::new(5).unwrap()),
/// #     timestamp: Timestamp::from_millis(0),
/// #     base: BaseChecksum::Untracked,
/// #     wal: None,
/// #     node_id: 0,
/// # };
/// # let mut encoder = Encoder::new(Vec::new(), header)?;
/// # encoder.page(Pgno::new(3).unwrap(), &[7; 512])?;
/// # let file = encoder.finish(None)?.output;
/// let mut file = monolite_ltx::IndexedFile::open(std::io::Cursor::new(file))?;
/// let page = file.page(Pgno::new(3).unwrap())?;
/// assert_eq!(page, Some(&[7; 512][..]));
/// assert_eq!(file.page(Pgno::new(4).unwrap())?, None, "it did not change");
/// # Ok::<(), monolite_ltx::Error>(())
/// ```
#[derive(Debug)]
pub struct IndexedFile<R> {
    reader: R,
    header: Header,
    trailer: Trailer,
    index: PageIndex,
    unpacker: Unpacker,
}

impl<R: Read + Seek> IndexedFile<R> {
    /// Reads the header, the trailer and the index. The file is all that `reader` has.
    ///
    /// # Errors
    /// Those of [`Header::decode`], [`Footer::decode`] and [`PageIndex::decode`];
    /// [`Io`](crate::ErrorKind::Io).
    pub fn open(mut reader: R) -> Result<IndexedFile<R>> {
        let end = reader.seek(SeekFrom::End(0));
        let file_len = end.map_err(|error| Error::of_io(0, "find the end", error))?;
        let mut source = at(&mut reader, 0)?;
        let header = Header::decode(&source.take("the header")?)?;
        let start = file_len.checked_sub(Footer::LEN as u64);
        let start = start.ok_or_else(|| Error::truncated(file_len, "the file ends within it"))?;
        let footer = at(&mut reader, start)?.take("the trailer")?;
        let footer = Footer::decode(&footer, &header, file_len)?;
        let index = read_index(&mut reader, &header, &footer)?;
        let unpacker = Unpacker::new(header.page_size);
        Ok(IndexedFile { reader, header, trailer: footer.trailer(), index, unpacker })
    }

    /// What the file begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What it ends with.
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// Where its pages are.
    pub fn index(&self) -> &PageIndex {
        &self.index
    }

    /// Reads page `pgno`; `None` when the file does not have it.
    ///
    /// # Errors
    /// Those of [`PageReader::read`].
    pub fn page(&mut self, pgno: Pgno) -> Result<Option<&[u8]>> {
        let Some(entry) = self.index.find(pgno) else { return Ok(None) };
        let mut source = at(&mut self.reader, entry.offset)?;
        read_entry(&mut source, &mut self.unpacker, entry)?;
        Ok(Some(self.unpacker.page()))
    }
}

/// Reads the index in parts, so that memory is taken for entries that are there, and not for what
/// the footer says.
fn read_index<R: Read + Seek>(
    reader: &mut R,
    header: &Header,
    footer: &Footer,
) -> Result<PageIndex> {
    let range = footer.index_range();
    let mut source = at(reader, range.start)?;
    let mut parser = IndexParser::new(header, footer);
    let mut buffer = [0; PART];
    // The bytes at the beginning of the buffer that are left from the part before.
    let mut left = 0;
    while !parser.is_ended() {
        let missing = range.end - source.offset();
        let part = usize::try_from(missing).map_or(PART - left, |n| n.min(PART - left));
        source.fill(&mut buffer[left..left + part], "the index")?;
        let bytes = left + part;
        let used = parser.feed(&buffer[..bytes], part as u64 == missing)?;
        buffer.copy_within(used..bytes, 0);
        left = bytes - used;
    }
    parser.finish()
}

fn at<R: Read + Seek>(reader: &mut R, offset: u64) -> Result<Source<&mut R>> {
    let sought = reader.seek(SeekFrom::Start(offset));
    sought.map_err(|error| Error::of_io(offset, "seek", error))?;
    Ok(Source::new(reader, offset))
}

/// Reads single pages of files of one page size from bytes that were fetched by an index: parts of
/// objects in a store, say. What [`IndexedFile`] says of checks holds here, too.
///
/// Memory: two pages.
#[derive(Debug)]
pub struct PageReader(Unpacker);

impl PageReader {
    /// For files that begin with `header`, or another one of the same page size.
    pub fn new(header: &Header) -> PageReader {
        PageReader(Unpacker::new(header.page_size))
    }

    /// The page of which `frame` are the bytes, those of the file from `entry.offset` on, as many
    /// as `entry.length`.
    ///
    /// # Errors
    /// [`Truncated`](crate::ErrorKind::Truncated) when `frame` is too short,
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when it is another page or none, or longer.
    pub fn read(&mut self, entry: PageEntry, frame: &[u8]) -> Result<&[u8]> {
        let mut source = Source::new(frame, entry.offset);
        read_entry(&mut source, &mut self.0, entry)?;
        source.end()?;
        Ok(self.0.page())
    }
}

fn read_entry<R: Read>(
    source: &mut Source<R>,
    unpacker: &mut Unpacker,
    entry: PageEntry,
) -> Result<()> {
    // No sum of the file is to be had here.
    let found = unpacker.read(source, &mut Digest::new())?;
    let length = source.offset() - entry.offset;
    match found {
        Some(pgno) if pgno == entry.pgno && length == u64::from(entry.length) => Ok(()),
        Some(pgno) => {
            let message = format!(
                "page {pgno} in {length} bytes where the index has page {} in {}",
                entry.pgno, entry.length
            );
            Err(Error::corrupt(entry.offset, message))
        }
        None => {
            Err(Error::corrupt(entry.offset, format!("no page, but {} in the index", entry.pgno)))
        }
    }
}
