//! Owns the restore of a state to a file.
//!
//! # Algorithm
//! 1. List, plan. A file that vanishes meanwhile was merged or expired: list and plan again.
//! 2. Read the files of the plan, the newest first. A page is written when no newer file had it and
//!    the database ends behind it; so each page is written once.
//! 3. Every page of the database must have been written, and where checksums of the database are
//!    kept, theirs must be the last file's.
//!
//! # Durability
//! The output is whole and on disk, or not there; who may read it is its owner alone. How: the
//! module `output`.
//!
//! # Not here
//! `PRAGMA quick_check`, which takes SQLite; the position record, which is the engine's.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use monolite_ltx::{
    Checksum, DatabaseChecksum, Decoder, Header, IndexedFile, PageSize, Pgno, Trailer, Txid,
};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::Layout;
use crate::output::Output;
use crate::plan::{Plan, Target};
use crate::source::{FileSource, Pieces};
use crate::store::Store;

/// How often a plan is made anew because a file has vanished. Files vanish once an hour.
const PLANS: u32 = 5;

/// How many bytes are gathered for one write.
const GATHERED: usize = 1 << 20;

/// How the files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// To their ends, comparing the sum of each.
    Whole,
    /// Only the pages that are needed, each decoded once, by the index. **No sum is compared**: a
    /// changed byte can go unnoticed. For files that were just verified, or keep checksums of the
    /// database.
    ByIndex,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The state after this TXID.
    pub txid: Txid,
    /// Size of its pages.
    pub page_size: PageSize,
    /// Its size in pages.
    pub pages: u32,
    /// How many files it was made of.
    pub files: usize,
    /// How many pages were decoded for it.
    pub decoded: u64,
}

/// Restores a state to the file `output`, which its owner alone may read.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) when `output` is there, or a `-wal`, `-shm` or `-journal` beside
/// it, which would be applied to it, or another restore to it is under way; those of [`Plan::new`];
/// [`Corrupt`](ErrorKind::Corrupt); [`Io`](ErrorKind::Io); those of the store. Nothing is left
/// then.
///
/// # Durability
/// The file has its name when it is whole and on disk.
pub fn restore(
    store: &dyn Store,
    layout: &Layout,
    target: Target,
    output: &Path,
    reading: Reading,
) -> Result<Restored> {
    let output = Output::create(output)?;
    let restored = restore_to(store, layout, target, output.file(), reading)?;
    output.publish()?;
    Ok(restored)
}

fn restore_to(
    store: &dyn Store,
    layout: &Layout,
    target: Target,
    output: &File,
    reading: Reading,
) -> Result<Restored> {
    let mut left = PLANS;
    loop {
        left -= 1;
        let catalog = Catalog::read(store, layout)?;
        let made = Plan::new(&catalog, target, store, layout)
            .and_then(|plan| apply(store, layout, &plan, output, reading));
        match made {
            Err(error) if error.kind() == ErrorKind::NotFound && left > 0 => {
                // Unless the next list is another, the answer stays.
                if Catalog::read(store, layout)?.files() == catalog.files() {
                    return Err(error);
                }
            }
            made => return made,
        }
    }
}

fn apply(
    store: &dyn Store,
    layout: &Layout,
    plan: &Plan,
    output: &File,
    reading: Reading,
) -> Result<Restored> {
    let last = plan.files().last().ok_or_else(|| Error::invalid("a plan without files"))?;
    let header = last.header(store, layout)?;
    // A page takes more than a byte in its file, so no more memory is taken than files are long.
    let bytes = plan.files().iter().fold(0, |sum: u64, file| sum.saturating_add(file.len));
    if u64::from(header.commit) > bytes {
        let is = header.commit;
        return Err(Error::corrupt(format!("{is} pages in files of {bytes} bytes")));
    }
    let mut database = Database::begin(output, &header)?;
    for (at, file) in plan.files().iter().rev().enumerate() {
        let input = Input { store, layout, file: *file };
        let read = match reading {
            Reading::Whole => whole(&input, &mut database)?,
            Reading::ByIndex => by_index(&input, &mut database)?,
        };
        if at == 0 {
            database.expected = read.database;
        }
    }
    let decoded = database.decoded;
    database.finish()?;
    Ok(Restored {
        txid: plan.txid(),
        page_size: header.page_size,
        pages: header.commit,
        files: plan.files().len(),
        decoded,
    })
}

/// A file of a plan.
struct Input<'a> {
    store: &'a dyn Store,
    layout: &'a Layout,
    file: ArchivedFile,
}

impl Input<'_> {
    fn source(&self, pieces: Pieces) -> FileSource<'_> {
        FileSource::new(self.store, self.layout, self.file, pieces)
    }

    /// Whether it is the file that its name says, and of this database.
    fn must_fit(&self, header: &Header, database: &Database<'_>) -> Result<()> {
        self.file.must_have(header, self.layout)?;
        database.must_fit(header)
    }

    fn failed(&self, error: monolite_ltx::Error) -> Error {
        Error::of_ltx(self.file.key(self.layout), error)
    }
}

fn whole(input: &Input<'_>, database: &mut Database<'_>) -> Result<Trailer> {
    let failed = |error| input.failed(error);
    let mut decoder = Decoder::new(input.source(Pieces::Large)).map_err(failed)?;
    input.must_fit(decoder.header(), database)?;
    while let Some(page) = decoder.next_page().map_err(failed)? {
        database.decoded += 1;
        if database.wants(page.pgno) {
            database.put(page.pgno, page.data)?;
        }
    }
    database.flush()?;
    decoder.trailer().copied().ok_or_else(|| Error::corrupt("a file without an end"))
}

fn by_index(input: &Input<'_>, database: &mut Database<'_>) -> Result<Trailer> {
    let failed = |error| input.failed(error);
    let mut indexed = IndexedFile::open(input.source(Pieces::Small)).map_err(failed)?;
    input.must_fit(indexed.header(), database)?;
    let entries = indexed.index().entries().iter().map(|entry| entry.pgno);
    let wanted: Vec<Pgno> = entries.filter(|pgno| database.wants(*pgno)).collect();
    for pgno in wanted {
        if let Some(page) = indexed.page(pgno).map_err(failed)? {
            database.decoded += 1;
            database.put(pgno, page)?;
        }
    }
    database.flush()?;
    Ok(*indexed.trailer())
}

/// A database that is being written.
struct Database<'a> {
    file: &'a File,
    page_size: PageSize,
    commit: u32,
    /// A bit for each page that was written.
    written: Vec<u64>,
    missing: u32,
    sum: DatabaseChecksum,
    /// What the sum must be, where one is kept.
    expected: Option<Checksum>,
    /// Pages that follow each other, and where they begin in the file.
    gathered: (u64, Vec<u8>),
    decoded: u64,
}

impl Database<'_> {
    /// As large as it will be, and empty, whatever an earlier plan has written: the lock page stays
    /// so.
    fn begin<'a>(file: &'a File, header: &Header) -> Result<Database<'a>> {
        let (page_size, commit) = (header.page_size, header.commit);
        let len = u64::from(commit) * u64::from(page_size.get());
        let emptied = file.set_len(0).and_then(|()| file.set_len(len));
        emptied.map_err(|error| Error::of_io("size the output", error))?;
        let lock_page = u32::from(page_size.lock_page().get() <= commit);
        Ok(Database {
            file,
            page_size,
            commit,
            written: vec![0; commit as usize / 64 + 1],
            missing: commit - lock_page,
            sum: DatabaseChecksum::empty(page_size),
            expected: None,
            gathered: (0, Vec::new()),
            decoded: 0,
        })
    }

    fn must_fit(&self, header: &Header) -> Result<()> {
        if header.page_size != self.page_size {
            let (is, must) = (header.page_size, self.page_size);
            return Err(Error::corrupt(format!("pages of {is} and of {must} bytes in one chain")));
        }
        Ok(())
    }

    /// Whether the page is part of the state, and no newer file had it.
    fn wants(&self, pgno: Pgno) -> bool {
        let (word, bit) = place(pgno);
        pgno.get() <= self.commit && self.written[word] & bit == 0
    }

    fn put(&mut self, pgno: Pgno, page: &[u8]) -> Result<()> {
        let (word, bit) = place(pgno);
        self.written[word] |= bit;
        self.missing = self.missing.saturating_sub(1);
        self.sum.toggle(pgno, page);
        let offset = u64::from(pgno.get() - 1) * u64::from(self.page_size.get());
        let end = self.gathered.0 + self.gathered.1.len() as u64;
        if offset != end || self.gathered.1.len() >= GATHERED {
            self.flush()?;
            self.gathered.0 = offset;
        }
        self.gathered.1.extend_from_slice(page);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let (offset, bytes) = &mut self.gathered;
        let written = self.file.write_all_at(bytes, *offset);
        written.map_err(|error| Error::of_io("write the output", error))?;
        bytes.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.flush()?;
        if self.missing > 0 {
            let message = format!("{} pages are in no file of the chain", self.missing);
            return Err(Error::corrupt(message));
        }
        let is = self.sum.value();
        if let Some(must) = self.expected.filter(|must| *must != is) {
            return Err(Error::corrupt(format!("the database has the checksum {is}, not {must}")));
        }
        Ok(())
    }
}

fn place(pgno: Pgno) -> (usize, u64) {
    (pgno.get() as usize / 64, 1 << (pgno.get() % 64))
}
