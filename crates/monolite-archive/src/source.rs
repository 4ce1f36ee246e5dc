//! Owns the reading of one file of an archive as a stream, part by part.

use std::io::{self, Read, Seek, SeekFrom};

use crate::catalog::ArchivedFile;
use crate::error::Error;
use crate::layout::Layout;
use crate::store::{Part, Store, Tag};

/// How much is asked for at a time, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pieces {
    /// A file is read from its beginning to its end: few requests.
    Large,
    /// Many files at the same time, or single pages.
    Small,
}

impl Pieces {
    fn bytes(self) -> u64 {
        match self {
            Pieces::Large => 4 << 20,
            Pieces::Small => 64 << 10,
        }
    }
}

/// A file that is read. A file that vanishes meanwhile, or is another one, is an error.
pub(crate) struct FileSource<'a> {
    store: &'a dyn Store,
    layout: &'a Layout,
    file: ArchivedFile,
    pieces: Pieces,
    at: u64,
    /// What was fetched, and where in the file it begins.
    piece: (u64, Vec<u8>),
    tag: Option<Tag>,
}

impl<'a> FileSource<'a> {
    pub(crate) fn new(
        store: &'a dyn Store,
        layout: &'a Layout,
        file: ArchivedFile,
        pieces: Pieces,
    ) -> FileSource<'a> {
        FileSource { store, layout, file, pieces, at: 0, piece: (0, Vec::new()), tag: None }
    }

    /// What was fetched from the present place on; empty at the end of the file.
    fn fetched(&mut self) -> Result<&[u8], Error> {
        let (start, bytes) = (self.piece.0, self.piece.1.len() as u64);
        if !(start..start + bytes).contains(&self.at) && self.at < self.file.len {
            self.fetch()?;
        }
        let within = self.at.saturating_sub(self.piece.0);
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        Ok(self.piece.1.get(within..).unwrap_or_default())
    }

    fn fetch(&mut self) -> Result<(), Error> {
        let key = self.layout.file(self.file.level, self.file.txids);
        let end = self.at.saturating_add(self.pieces.bytes()).min(self.file.len);
        let object = self.store.get(&key, Part::Range(self.at..end))?;
        let object = object.ok_or_else(|| self.file.vanished(self.layout))?;
        let is_same = self.tag.as_ref().is_none_or(|tag| *tag == object.tag);
        if object.len != self.file.len || !is_same {
            return Err(Error::corrupt(format!("{key:?} changed while it was read")));
        }
        if object.bytes.len() as u64 != end - self.at {
            return Err(Error::corrupt(format!("{key:?} was cut on its way")));
        }
        self.tag = Some(object.tag);
        self.piece = (self.at, object.bytes);
        Ok(())
    }
}

impl Read for FileSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fetched()?.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for FileSource<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let from = |base: u64, by: i64| base.checked_add_signed(by);
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => from(self.file.len, by),
            SeekFrom::Current(by) => from(self.at, by),
        };
        self.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}
