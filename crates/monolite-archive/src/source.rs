//! Owns the reading of one file of an archive as a stream, part by part.
//!
//! # Threads and locks
//! Of a file that is read as a whole up to [`AHEAD`] parts are fetched ahead, by a thread each: one
//! request does not fill the line to an object store, and what was fetched is used meanwhile. They
//! end before the scope that they are of. Where no thread can be begun the reader fetches itself.

use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, ErrorKind};
use crate::file::{ArchivedFile, vanished};
use crate::layout::Layout;
use crate::store::{Fetched, Part, Store, Tag};

/// How many parts are fetched ahead. With the one that is used they take 20 MiB of memory.
const AHEAD: usize = 4;

/// How much is asked for at a time, in bytes: of a file that is read from its beginning to its end,
/// and of many files at the same time.
const LARGE: u64 = 4 << 20;
const SMALL: u64 = 64 << 10;

/// A file that is read. A file that vanishes meanwhile, or is another one, is an error.
pub(crate) struct FileSource<'scope, 'env> {
    store: &'env dyn Store,
    file: ArchivedFile,
    key: String,
    at: u64,
    /// What was fetched, and where in the file it begins.
    piece: (u64, Vec<u8>),
    tag: Option<Tag>,
    /// Where threads may be begun that fetch ahead.
    scope: Option<&'scope Scope<'scope, 'env>>,
    ahead: VecDeque<Ahead<'scope>>,
}

/// A part that is being fetched.
struct Ahead<'scope> {
    part: Range<u64>,
    thread: ScopedJoinHandle<'scope, Result<Option<Fetched>, Error>>,
}

impl<'scope, 'env> FileSource<'scope, 'env> {
    /// One of many that are read at the same time.
    pub(crate) fn new(
        store: &'env dyn Store,
        layout: &Layout,
        file: ArchivedFile,
    ) -> FileSource<'scope, 'env> {
        let (key, piece, ahead) = (file.key(layout), (0, Vec::new()), VecDeque::new());
        FileSource { store, file, key, at: 0, piece, tag: None, scope: None, ahead }
    }

    /// The same, read from its beginning to its end by few requests, ahead.
    pub(crate) fn reading_ahead(self, scope: &'scope Scope<'scope, 'env>) -> Self {
        FileSource { scope: Some(scope), ..self }
    }

    /// The same, read on from byte `at`; another object than that of `tag` is an error.
    pub(crate) fn going_on(self, at: u64, tag: Tag) -> Self {
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

    /// Fetches what comes next.
    fn fetch(&mut self) -> Result<(), Error> {
        if self.ahead.front().is_some_and(|ahead| ahead.part.start != self.at) {
            self.ahead.clear();
        }
        self.fetch_ahead();
        let (part, object) = match self.ahead.pop_front() {
            Some(Ahead { part, thread }) => (part, thread.join().unwrap_or_else(panicked)),
            None => {
                let part = self.part(self.at);
                (part.clone(), self.store.get(&self.key, Part::Range(part)))
            }
        };
        // In the place of the one that is used now.
        self.fetch_ahead();
        let object = object?.ok_or_else(|| vanished(&self.key))?;
        let is_same = self.tag.as_ref().is_none_or(|tag| *tag == object.tag);
        if object.len != self.file.len || !is_same {
            return Err(Error::corrupt(format!("{:?} changed while it was read", self.key)));
        }
        if object.bytes.len() as u64 != part.end - part.start {
            return Err(Error::corrupt(format!("{:?} was cut on its way", self.key)));
        }
        self.tag = Some(object.tag);
        self.piece = (part.start, object.bytes);
        Ok(())
    }

    /// Begins to fetch as many parts as may be under way.
    fn fetch_ahead(&mut self) {
        let Some(scope) = self.scope else { return };
        let mut next = self.ahead.back().map_or(self.at, |last| last.part.end);
        while self.ahead.len() < AHEAD && next < self.file.len {
            let (store, key, part) = (self.store, self.key.clone(), self.part(next));
            next = part.end;
            let range = Part::Range(part.clone());
            // A panic of a thread that is not joined would become the scope's.
            let get = move || catch_unwind(AssertUnwindSafe(|| store.get(&key, range)));
            let begun = Builder::new().spawn_scoped(scope, || get().unwrap_or_else(panicked));
            let Ok(thread) = begun else { return };
            self.ahead.push_back(Ahead { part, thread });
        }
    }

    /// The part that begins at `at`.
    fn part(&self, at: u64) -> Range<u64> {
        let bytes = if self.scope.is_some() { LARGE } else { SMALL };
        at..at.saturating_add(bytes).min(self.file.len)
    }
}

fn panicked(_: Box<dyn Any + Send>) -> Result<Option<Fetched>, Error> {
    Err(Error::new(ErrorKind::Lost, "a panic of a store"))
}

impl Read for FileSource<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fetched()?.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}
