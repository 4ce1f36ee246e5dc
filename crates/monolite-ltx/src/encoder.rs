//! Writes a file, from its header to its trailer.

use std::io::Write;

use crate::checksum::{Checksum, DatabaseChecksum, Digest};
use crate::error::{Error, Result};
use crate::frame::{self, Packer};
use crate::header::{BaseChecksum, Header, Trailer};
use crate::index::IndexWriter;
use crate::page::{PageOrder, Pgno};

/// Writes one file to a writer, page by page.
///
/// Memory: two pages, and some 9 bytes for each page that was written, which become the index. Each
/// page is one `write` of the writer underneath.
///
/// The same header and pages give the same bytes, with one version of this crate. Another
/// compressor's files have other bytes and other sums, as the sum covers the compressed lengths.
///
/// ```
/// use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange};
///
/// let header = Header {
///     page_size: PageSize::new(4096)?,
///     commit: 1,
///     txids: TxidRange::single(Txid::FIRST),
///     timestamp: Timestamp::from_millis(1_700_000_000_000),
///     base: BaseChecksum::Untracked,
///     wal: None,
///     node_id: 0,
/// };
/// let mut encoder = Encoder::new(Vec::new(), header)?;
/// encoder.page(Pgno::new(1).unwrap(), &[0; 4096])?;
/// let written = encoder.finish(None)?;
/// assert_eq!(written.len, written.output.len() as u64);
/// # Ok::<(), monolite_ltx::Error>(())
/// ```
#[derive(Debug)]
pub struct Encoder<W> {
    output: W,
    header: Header,
    order: PageOrder,
    digest: Digest,
    index: IndexWriter,
    packer: Packer,
    /// Of the pages written, where they are all of a database whose checksum is kept.
    database: Option<DatabaseChecksum>,
    offset: u64,
    is_broken: bool,
}

/// A file that was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Written<W> {
    /// What it was written to. It was not flushed.
    pub output: W,
    /// What it begins with.
    pub header: Header,
    /// What it ends with.
    pub trailer: Trailer,
    /// Its length in bytes.
    pub len: u64,
}

impl<W: Write> Encoder<W> {
    /// Writes the header to `output`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when [`Header::encode`] refuses it, and for an empty
    /// database without checksums, which the format cannot say; [`Io`](crate::ErrorKind::Io).
    pub fn new(output: W, header: Header) -> Result<Encoder<W>> {
        let bytes = header.encode()?;
        if header.commit == 0 && !header.is_tracked() {
            let message = "a database of 0 pages in a file without checksums; say its size before";
            return Err(Error::invalid(message));
        }
        let database = match header.base {
            BaseChecksum::Snapshot => Some(DatabaseChecksum::empty(header.page_size)),
            BaseChecksum::Untracked | BaseChecksum::Database(_) => None,
        };
        let mut encoder = Encoder {
            output,
            header,
            order: header.page_order(),
            digest: Digest::new(),
            index: IndexWriter::default(),
            packer: Packer::new(header.page_size),
            database,
            offset: 0,
            is_broken: false,
        };
        encoder.digest.update(&bytes);
        encoder.write(&bytes)?;
        Ok(encoder)
    }

    /// What the file begins with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many bytes of the file were written.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes a page. Numbers must rise; a snapshot has all but the lock page, other files what
    /// changed.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when the page is of another size or may not come
    /// here; nothing was written then, and another page may. [`Io`](crate::ErrorKind::Io); part
    /// of the page may have been written then, and every later call fails.
    pub fn page(&mut self, pgno: Pgno, page: &[u8]) -> Result<()> {
        self.put(pgno, page, None)
    }

    /// The same, of which the compressed block may be known.
    pub(crate) fn put(&mut self, pgno: Pgno, page: &[u8], block: Option<&[u8]>) -> Result<()> {
        self.usable()?;
        if page.len() != self.header.page_size.bytes() {
            let (is, must) = (page.len(), self.header.page_size);
            return Err(Error::invalid(format!("page {pgno} of {is} bytes for a size of {must}")));
        }
        self.order.accept(pgno).map_err(Error::invalid)?;
        let frame = match block {
            Some(block) => self.packer.pack_block(pgno, block),
            None => self.packer.pack(pgno, page),
        };
        self.digest.update(frame::covered_header(frame));
        self.digest.update(page);
        if let Some(database) = &mut self.database {
            database.toggle(pgno, page);
        }
        let (start, length) = (self.offset, frame.len() as u64);
        assert!(start >= Header::LEN as u64, "pages come behind the header");
        self.index.add(pgno, start, length);
        self.is_broken = true;
        write(&mut self.output, frame, start)?;
        self.is_broken = false;
        self.offset = start + length;
        Ok(())
    }

    /// Writes the end of the pages, the index and the trailer.
    ///
    /// `database` is the checksum of the database once the file is applied. A file without
    /// checksums takes `None`; a snapshot computes it, and compares if one is given; any other
    /// needs it.
    ///
    /// The file is whole once the writer underneath has taken everything; flushing and syncing it
    /// is the caller's.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when pages of a snapshot lack, or the checksum is
    /// missing, not allowed, or not that of the pages; [`Io`](crate::ErrorKind::Io).
    pub fn finish(mut self, database: Option<Checksum>) -> Result<Written<W>> {
        self.usable()?;
        self.order.end().map_err(Error::invalid)?;
        let database = self.database_afterwards(database)?;
        self.digest.update(&frame::END);
        self.write(&frame::END)?;
        let index = std::mem::take(&mut self.index).finish();
        self.digest.update(&index);
        self.write(&index)?;
        self.digest.update(&Checksum::bits_of(database).to_be_bytes());
        assert_eq!(database.is_some(), self.header.is_tracked(), "a sum where sums are kept");
        let trailer = Trailer { database, file: self.digest.sum() };
        self.write(&trailer.encode())?;
        Ok(Written { output: self.output, header: self.header, trailer, len: self.offset })
    }

    /// The checksum for the trailer, by what was given and what is known.
    fn database_afterwards(&self, given: Option<Checksum>) -> Result<Option<Checksum>> {
        let is_empty = self.header.commit == 0;
        let computed = match &self.database {
            Some(database) => Some(database.value()),
            None if is_empty && self.header.is_tracked() => Some(Checksum::EMPTY_DATABASE),
            None => None,
        };
        match (given, computed) {
            (Some(given), _) if !self.header.is_tracked() => {
                Err(Error::invalid(format!("the checksum {given} in a file that keeps none")))
            }
            (Some(given), Some(computed)) if given != computed => Err(Error::invalid(format!(
                "the checksum {given} of a database that has {computed}"
            ))),
            (None, None) if self.header.is_tracked() => {
                Err(Error::invalid("no checksum of the database, in a file that keeps them"))
            }
            (given, computed) => Ok(computed.or(given)),
        }
    }

    fn usable(&self) -> Result<()> {
        if self.is_broken {
            return Err(Error::invalid("a write has failed before; begin a new file"));
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        write(&mut self.output, bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

fn write<W: Write>(output: &mut W, bytes: &[u8], offset: u64) -> Result<()> {
    output.write_all(bytes).map_err(|error| Error::of_io(offset, "write", error))
}
