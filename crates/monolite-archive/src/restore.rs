//! Owns the restore of a state to a file.
//!
//! # Algorithm
//! 1. List, plan. When a file of the plan is damaged or gone, list and plan again without it, for
//!    the same state. It may have been merged or have expired meanwhile.
//! 2. Read the files of the plan, the newest first. A page is written when no newer file had it and
//!    the database ends behind it; so each page is written once. What comes next is fetched
//!    meanwhile, and what was decoded is written: by threads of their own.
//! 3. Every page of the database must have been written, and where checksums of the database are
//!    kept, theirs must be the last file's.
//! 4. A restore that was stopped goes on where it was, if the plan is the same: [`progress`].
//!
//! # Durability
//! The output is whole and on disk, or not there; who may read it is its owner alone. How: the
//! module `output`.
//!
//! # Not here
//! `PRAGMA quick_check`, which takes SQLite; the position record, which is the engine's.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::thread::{self, Scope};
use std::time::Duration;

use monolite_ltx::{Decoder, Header, PageSize, Timestamp, Trailer, Txid};

use self::database::Database;
use self::progress::{Begun, Progress, Saved};

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::file::ArchivedFile;
use crate::layout::Layout;
use crate::output::Output;
use crate::plan::{Kept, Plan, Target};
use crate::source::FileSource;
use crate::store::Store;

mod database;
mod progress;
mod writer;

/// How often it is noted how far a restore is. That waits for the disk, which has to write all of
/// it before the end anyway.
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The state after this TXID.
    pub txid: Txid,
    /// Of when it is: the time of its last TXID.
    pub time: Timestamp,
    /// The next state that is kept by itself; `None` when this is the newest.
    pub next: Option<Kept>,
    /// Whether it is certainly the state of the time that was asked for: `false` when later states
    /// from before that time may have been merged away or lost. `true` for other targets.
    pub is_exact: bool,
    /// Size of its pages.
    pub page_size: PageSize,
    /// Its size in pages.
    pub pages: u32,
    /// How many files it was made of.
    pub files: usize,
    /// Files that were listed and needed, and are damaged or gone: others have the same.
    pub around: Vec<Error>,
}

/// Restores a state to the file `output`, which its owner alone may read.
///
/// What is made is beside `output`, with the ending `.monolite-part`. A restore that was killed, or
/// whose store failed, leaves it there once it has taken some seconds, and **the next one to the
/// same `output` goes on from it**: if the plan is the same, and each file that was read the same
/// object as then, by its [`Tag`](crate::Tag). The latest state of an archive that grows is of
/// another plan each time; that of a [`Txid`] is not, until files are merged. Otherwise it begins
/// anew.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) when `output` is there, or a `-wal`, `-shm` or `-journal` beside
/// it, which would be applied to it; when its name belongs to another database (it ends so itself,
/// or with `-archive` or `.monolite-part`); when another restore to it is under way; those of
/// [`Plan::new`];
/// [`Corrupt`](ErrorKind::Corrupt) and [`Gap`](ErrorKind::Gap) when files are damaged or gone, and
/// no others lead to the same state; [`Io`](ErrorKind::Io); those of the store. Nothing is left but
/// after an error of the store.
///
/// # Durability
/// The file has its name when it is whole and on disk.
pub fn restore(
    store: &dyn Store,
    layout: &Layout,
    target: Target,
    output: &Path,
) -> Result<Restored> {
    restore_noting(store, layout, target, output, NOTED_EVERY)
}

/// [`restore`] that notes how far it is every so often: for tests.
pub fn restore_noting(
    store: &dyn Store,
    layout: &Layout,
    target: Target,
    output: &Path,
    every: Duration,
) -> Result<Restored> {
    let output = Output::create(output)?;
    let goes_on = Cell::new(output.is_left());
    let job = Job { store, layout, output: output.file(), every, goes_on: &goes_on };
    match job.restore(target) {
        Ok(restored) => {
            output.publish()?;
            Ok(restored)
        }
        Err(error) => {
            let is_of_store = error.is_transient() || error.kind() == ErrorKind::Denied;
            if is_of_store && goes_on.get() {
                output.keep();
            }
            Err(error)
        }
    }
}

/// A restore.
struct Job<'a> {
    store: &'a dyn Store,
    layout: &'a Layout,
    output: &'a File,
    every: Duration,
    /// Whether the output may have something that another one goes on from.
    goes_on: &'a Cell<bool>,
}

impl Job<'_> {
    fn restore(&self, target: Target) -> Result<Restored> {
        let (store, layout) = (self.store, self.layout);
        let (mut around, mut newest) = (Vec::<Error>::new(), None);
        loop {
            let catalog = Catalog::read(store, layout)?;
            must_reach(&catalog, newest)?;
            newest = catalog.newest();
            // What is not listed any more was merged or has expired.
            around.retain(|lost| lost.lost_file().is_some_and(|it| catalog.files().contains(&it)));
            let lost: Vec<ArchivedFile> = around.iter().filter_map(Error::lost_file).collect();
            let plan = Plan::around(&catalog, &lost, target, store, layout);
            match plan.and_then(|plan| thread::scope(|scope| self.apply(&plan, scope))) {
                Ok(restored) => return Ok(Restored { around, ..restored }),
                Err(error) if error.lost_file().is_some_and(|file| !lost.contains(&file)) => {
                    around.push(error);
                }
                Err(error) => return Err(no_way(around, error)),
            }
        }
    }

    fn apply<'a>(&'a self, plan: &Plan, scope: &'a Scope<'a, '_>) -> Result<Restored> {
        let (store, layout) = (self.store, self.layout);
        let last = plan.files().last().ok_or_else(|| Error::invalid("a plan without files"))?;
        let header = last.header(store, layout)?;
        // A page takes more than a byte in its file, so no more memory is taken than files are
        // long.
        let bytes = plan.files().iter().fold(0, |sum: u64, file| sum.saturating_add(file.len));
        if u64::from(header.commit) > bytes {
            let is = header.commit;
            let error = Error::corrupt(format!("{is} pages in files of {bytes} bytes"));
            return Err(error.of_file(*last));
        }
        let mut progress =
            Progress::new(self.output, plan, layout, &header, self.every, self.goes_on);
        let (mut database, mut begun) = self.begin(&mut progress, &header, scope)?;
        for (at, file) in plan.files().iter().rev().enumerate().skip(progress.done()) {
            let input = Input { layout, file: *file };
            let read = thread::scope(|scope| {
                let source = FileSource::new(store, layout, *file).reading_ahead(scope);
                whole(&input, source, begun.take(), &mut database, &mut progress)
            });
            let read = read.map_err(|error| error.of_file(*file))?;
            if at == 0 {
                database.expected = read.database;
            }
        }
        database.finish()?;
        Ok(Restored {
            txid: plan.txid(),
            time: plan.kept().time,
            next: plan.next(),
            is_exact: plan.is_exact(),
            page_size: header.page_size,
            pages: header.commit,
            files: plan.files().len(),
            around: Vec::new(),
        })
    }

    /// The database as an earlier restore has left it, with the file that it was in the middle of;
    /// or a new one.
    fn begin<'a>(
        &'a self,
        progress: &mut Progress<'_>,
        header: &Header,
        scope: &'a Scope<'a, '_>,
    ) -> Result<(Database<'a>, Option<Begun>)> {
        if self.goes_on.get()
            && let Some(saved) = progress.take_up(self.store)?
        {
            let Saved { database, begun } = saved;
            let database = Database::resume(scope, self.output, header, database)?;
            return Ok((database, Some(begun)));
        }
        self.goes_on.set(false);
        Ok((Database::begin(scope, self.output, header)?, None))
    }
}

/// Whether a list still leads to what an earlier one had: the newest file is never deleted.
fn must_reach(catalog: &Catalog, newest: Option<Txid>) -> Result<()> {
    match newest.filter(|newest| catalog.newest() < Some(*newest)) {
        Some(newest) => {
            let message = format!(
                "the newest state, {newest}, is gone from the archive meanwhile: restore an \
                 earlier one by its TXID"
            );
            Err(Error::new(ErrorKind::Gap, message))
        }
        None => Ok(()),
    }
}

/// Why no files lead to a state without those that are lost.
fn no_way(around: Vec<Error>, error: Error) -> Error {
    let Some(lost) = around.into_iter().next() else { return error };
    let message = format!(
        "{lost}; without that file, {error}; restore an earlier state by its TXID, or open the \
         database with this archive: it uploads a copy of itself"
    );
    let kind = if lost.kind() == ErrorKind::NotFound { ErrorKind::Gap } else { lost.kind() };
    Error::new(kind, message)
}

/// A file of a plan.
struct Input<'a> {
    layout: &'a Layout,
    file: ArchivedFile,
}

impl Input<'_> {
    /// Whether it is the file that its name says, and of this database.
    fn must_fit(&self, header: &Header, database: &Database<'_>) -> Result<()> {
        self.file.must_have(header, self.layout)?;
        database.must_fit(header)
    }

    fn failed(&self, error: monolite_ltx::Error) -> Error {
        Error::of_ltx(self.file.key(self.layout), error)
    }
}

fn whole(
    input: &Input<'_>,
    source: FileSource<'_, '_>,
    begun: Option<Begun>,
    database: &mut Database<'_>,
    progress: &mut Progress<'_>,
) -> Result<Trailer> {
    let failed = |error| input.failed(error);
    let mut decoder = match begun {
        Some(Begun { position, tag }) => {
            Decoder::resume(source.going_on(position.offset(), tag), &position)
        }
        None => Decoder::new(source).map_err(failed)?,
    };
    input.must_fit(decoder.header(), database)?;
    let before = database.decoded;
    while let Some(page) = decoder.next_page().map_err(failed)? {
        database.decoded += 1;
        if database.wants(page.pgno) {
            database.put(page.pgno, page.data)?;
        }
        if progress.is_due(database.decoded, database.decoded == before + 1)
            && let (Some(position), Some(tag)) = (decoder.position(), decoder.reader().tag())
        {
            progress.note(database, &Begun { position, tag: tag.clone() })?;
        }
    }
    let tag = decoder.reader().tag().ok_or_else(|| Error::corrupt("a file that was not read"))?;
    progress.read(tag.clone());
    decoder.trailer().copied().ok_or_else(|| Error::corrupt("a file without an end"))
}
