//! Owns the file of a database that is being restored: which of its pages were written, and the
//! checksum of those.

use std::fs::File;
use std::thread::Scope;

use monolite_ltx::{Checksum, DatabaseChecksum, Header, PageSize, Pgno};

use super::writer::Writer;
use crate::error::{Error, Result};

/// A database that is being written.
pub(super) struct Database<'a> {
    file: &'a File,
    page_size: PageSize,
    commit: u32,
    pages: Pages,
    /// What the sum must be, where one is kept.
    pub(super) expected: Option<Checksum>,
    writer: Writer,
    pub(super) decoded: u64,
}

/// The pages that it has.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    /// A bit for each that was written.
    pub(super) written: Vec<u64>,
    pub(super) missing: u32,
    pub(super) sum: Checksum,
}

impl Pages {
    /// None of a database of `commit` pages.
    fn none(page_size: PageSize, commit: u32) -> Pages {
        let lock_page = u32::from(page_size.lock_page().get() <= commit);
        let (written, missing) = (vec![0; words_of(commit)], commit - lock_page);
        Pages { written, missing, sum: Checksum::EMPTY_DATABASE }
    }
}

/// How many words have a bit for each of so many pages.
pub(super) fn words_of(commit: u32) -> usize {
    commit as usize / 64 + 1
}

/// What is known of a database that is not whole, beside its pages' content.
#[derive(Clone, Debug)]
pub(super) struct Unfinished {
    pub(super) pages: Pages,
    pub(super) expected: Option<Checksum>,
    pub(super) decoded: u64,
}

impl<'a> Database<'a> {
    /// As large as it will be, and empty, whatever an earlier plan has written: the lock page stays
    /// so.
    pub(super) fn begin(
        scope: &'a Scope<'a, '_>,
        file: &'a File,
        header: &Header,
    ) -> Result<Database<'a>> {
        let (page_size, commit) = (header.page_size, header.commit);
        let len = u64::from(commit) * u64::from(page_size.get());
        let emptied = file.set_len(0).and_then(|()| file.set_len(len));
        emptied.map_err(|error| Error::of_io("size the output", error))?;
        let pages = Pages::none(page_size, commit);
        let nothing = Unfinished { pages, expected: None, decoded: 0 };
        Database::resume(scope, file, header, nothing)
    }

    /// One that goes on: its file has what `unfinished` says.
    pub(super) fn resume(
        scope: &'a Scope<'a, '_>,
        file: &'a File,
        header: &Header,
        unfinished: Unfinished,
    ) -> Result<Database<'a>> {
        let Unfinished { pages, expected, decoded } = unfinished;
        let (page_size, commit) = (header.page_size, header.commit);
        let writer = Writer::begin(scope, file)?;
        Ok(Database { file, page_size, commit, pages, expected, writer, decoded })
    }

    /// What [`resume`](Database::resume) takes, once all of it is on disk.
    pub(super) fn unfinished(&mut self) -> Result<Unfinished> {
        self.writer.sync()?;
        let (pages, expected, decoded) = (self.pages.clone(), self.expected, self.decoded);
        Ok(Unfinished { pages, expected, decoded })
    }

    pub(super) fn must_fit(&self, header: &Header) -> Result<()> {
        if header.page_size != self.page_size {
            let (is, must) = (header.page_size, self.page_size);
            return Err(Error::corrupt(format!("pages of {is} and of {must} bytes in one chain")));
        }
        Ok(())
    }

    /// Whether the page is part of the state, and no newer file had it.
    pub(super) fn wants(&self, pgno: Pgno) -> bool {
        let (word, bit) = place(pgno);
        pgno.get() <= self.commit && self.pages.written[word] & bit == 0
    }

    pub(super) fn put(&mut self, pgno: Pgno, page: &[u8]) -> Result<()> {
        assert!(self.wants(pgno), "page {pgno} of {} is written once", self.commit);
        let (word, bit) = place(pgno);
        self.pages.written[word] |= bit;
        self.pages.missing = self.pages.missing.saturating_sub(1);
        let mut sum = DatabaseChecksum::of(self.page_size, self.pages.sum);
        sum.toggle(pgno, page);
        self.pages.sum = sum.value();
        let offset = u64::from(pgno.get() - 1) * u64::from(self.page_size.get());
        self.writer.put(offset, page)
    }

    /// Sees that nothing lacks, and cuts off what is behind it.
    pub(super) fn finish(mut self) -> Result<()> {
        self.writer.sync()?;
        if self.pages.missing > 0 {
            let message = format!("{} pages are in no file of the chain", self.pages.missing);
            return Err(Error::corrupt(message));
        }
        let is = self.pages.sum;
        if let Some(must) = self.expected.filter(|must| *must != is) {
            return Err(Error::corrupt(format!("the database has the checksum {is}, not {must}")));
        }
        let len = u64::from(self.commit) * u64::from(self.page_size.get());
        self.file.set_len(len).map_err(|error| Error::of_io("size the output", error))
    }
}

fn place(pgno: Pgno) -> (usize, u64) {
    (pgno.get() as usize / 64, 1 << (pgno.get() % 64))
}
