//! Owns the reading of one file of an archive as a stream, part by part.
//!
//! # Threads and locks
//! A file that is read as a whole is fetched by up to [`AT_ONCE`] threads, a part each: one request
//! does not fill the line to an object store. They end before the read that began them.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::error::{Error, ErrorKind};
use crate::file::ArchivedFile;
use crate::layout::Layout;
use crate::store::{Fetched, Part, Store, Tag};

/// How much is asked for at a time, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pieces {
    /// A file is read from its beginning to its end: few requests.
    Large,
    /// Many files at the same time, or single pages.
    Small,
}

/// How many requests fetch the parts of a file at the same time. With parts of 4 MiB they take
/// 16 MiB of memory.
const AT_ONCE: usize = 4;

impl Pieces {
    fn bytes(self) -> usize {
        match self {
            Pieces::Large => 4 << 20,
            Pieces::Small => 64 << 10,
        }
    }

    fn at_once(self) -> usize {
        match self {
            Pieces::Large => AT_ONCE,
            Pieces::Small => 1,
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

    /// The same, read on from byte `at`; another object than that of `tag` is an error.
    pub(crate) fn going_on(self, at: u64, tag: Tag) -> FileSource<'a> {
        FileSource { at, tag: Some(tag), ..self }
    }

    /// Which object it is, once something was fetched.
    pub(crate) fn tag(&self) -> Option<&Tag> {
        self.tag.as_ref()
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

    /// Fetches what comes next, in parts at the same time.
    fn fetch(&mut self) -> Result<(), Error> {
        let key = self.file.key(self.layout);
        let part = self.pieces.bytes();
        let parts = (self.at..self.file.len).step_by(part).take(self.pieces.at_once());
        let parts = parts.map(|at| at..at.saturating_add(part as u64).min(self.file.len));
        let parts: Vec<Range<u64>> = parts.collect();
        let fetched = match &parts[..] {
            [one] => vec![self.store.get(&key, Part::Range(one.clone()))],
            parts => at_once(self.store, &key, parts),
        };
        let mut bytes = Vec::new();
        for (part, object) in parts.into_iter().zip(fetched) {
            let object = object?.ok_or_else(|| self.file.vanished(self.layout))?;
            let is_same = self.tag.as_ref().is_none_or(|tag| *tag == object.tag);
            if object.len != self.file.len || !is_same {
                return Err(Error::corrupt(format!("{key:?} changed while it was read")));
            }
            if object.bytes.len() as u64 != part.end - part.start {
                return Err(Error::corrupt(format!("{key:?} was cut on its way")));
            }
            self.tag = Some(object.tag);
            if bytes.is_empty() {
                bytes = object.bytes;
            } else {
                bytes.extend_from_slice(&object.bytes);
            }
        }
        self.piece = (self.at, bytes);
        Ok(())
    }
}

/// What the store answers to requests that are sent at the same time.
fn at_once(
    store: &dyn Store,
    key: &str,
    parts: &[Range<u64>],
) -> Vec<Result<Option<Fetched>, Error>> {
    std::thread::scope(|scope| {
        let get = |part: &Range<u64>| {
            let part = Part::Range(part.clone());
            scope.spawn(move || store.get(key, part))
        };
        let threads: Vec<_> = parts.iter().map(get).collect();
        let joined = threads.into_iter().map(|thread| {
            let panicked = |_| Err(Error::new(ErrorKind::Lost, format!("{key:?}: a panic")));
            thread.join().unwrap_or_else(panicked)
        });
        joined.collect()
    })
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
