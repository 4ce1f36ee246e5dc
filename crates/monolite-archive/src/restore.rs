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
//! `<output>.tmp` is written and synced, renamed, and the directory synced: the output is whole or
//! not there.
//!
//! # Not here
//! `PRAGMA quick_check`, which takes SQLite; the position record, which is the engine's.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use monolite_ltx::{
    Checksum, DatabaseChecksum, Decoder, Header, IndexedFile, PageSize, Pgno, Trailer, Txid,
};

use crate::catalog::{ArchivedFile, Catalog};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::plan::{Plan, Target};
use crate::source::{FileSource, Pieces};
use crate::store::{Store, sync_directory};

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

/// Restores a state to the file `output`.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) when `output` is there, or a `-wal`, `-shm` or `-journal` beside
/// it, which would be applied to it; those of [`Plan::new`]; [`Corrupt`](ErrorKind::Corrupt);
/// [`Io`](ErrorKind::Io); those of the store. Nothing is left then.
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
    must_be_free(output)?;
    let temporary = with_suffix(output, ".tmp");
    let restored = restore_to(store, layout, target, &temporary, reading).and_then(|restored| {
        must_be_free(output)?;
        let renamed = fs::rename(&temporary, output);
        renamed.map_err(|error| Error::of_io(format!("rename to {}", output.display()), error))?;
        sync_directory(output.parent().unwrap_or(Path::new("")))?;
        Ok(restored)
    });
    if restored.is_err() {
        // What is left of it is in nobody's way, and gone at the next attempt.
        let _ = fs::remove_file(&temporary);
    }
    restored
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn must_be_free(output: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = with_suffix(output, suffix);
        if path.symlink_metadata().is_ok() {
            let message = format!("{} is there; restore to another name", path.display());
            return Err(Error::invalid(message));
        }
    }
    Ok(())
}

fn restore_to(
    store: &dyn Store,
    layout: &Layout,
    target: Target,
    path: &Path,
    reading: Reading,
) -> Result<Restored> {
    let mut left = PLANS;
    loop {
        left -= 1;
        let catalog = Catalog::read(store, layout)?;
        let made = Plan::new(&catalog, target, store, layout)
            .and_then(|plan| apply(store, layout, &plan, path, reading));
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
    path: &Path,
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
    let mut database = Database::create(path, &header)?;
    for (at, file) in plan.files().iter().rev().enumerate() {
        let read = match reading {
            Reading::Whole => whole(store, layout, *file, &mut database)?,
            Reading::ByIndex => by_index(store, layout, *file, &mut database)?,
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

fn whole(
    store: &dyn Store,
    layout: &Layout,
    file: ArchivedFile,
    database: &mut Database,
) -> Result<Trailer> {
    let failed = |error| Error::of_ltx(layout.file(file.level, file.txids), error);
    let source = FileSource::new(store, layout, file, Pieces::Large);
    let mut decoder = Decoder::new(source).map_err(failed)?;
    file.must_have(decoder.header(), layout)?;
    database.must_fit(decoder.header())?;
    while let Some(page) = decoder.next_page().map_err(failed)? {
        database.decoded += 1;
        if database.wants(page.pgno) {
            database.put(page.pgno, page.data)?;
        }
    }
    database.flush()?;
    decoder.trailer().copied().ok_or_else(|| Error::corrupt("a file without an end"))
}

fn by_index(
    store: &dyn Store,
    layout: &Layout,
    file: ArchivedFile,
    database: &mut Database,
) -> Result<Trailer> {
    let failed = |error| Error::of_ltx(layout.file(file.level, file.txids), error);
    let source = FileSource::new(store, layout, file, Pieces::Small);
    let mut indexed = IndexedFile::open(source).map_err(failed)?;
    file.must_have(indexed.header(), layout)?;
    database.must_fit(indexed.header())?;
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
struct Database {
    file: File,
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

impl Database {
    /// As large as it will be, and empty: the lock page stays so.
    fn create(path: &Path, header: &Header) -> Result<Database> {
        let failed = |error| Error::of_io(format!("create {}", path.display()), error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).open(path).map_err(failed)?;
        let (page_size, commit) = (header.page_size, header.commit);
        file.set_len(u64::from(commit) * u64::from(page_size.get())).map_err(failed)?;
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
        self.file.sync_all().map_err(|error| Error::of_io("sync the output", error))
    }
}

fn place(pgno: Pgno) -> (usize, u64) {
    (pgno.get() as usize / 64, 1 << (pgno.get() % 64))
}
