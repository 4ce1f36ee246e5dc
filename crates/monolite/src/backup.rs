//! Owns backups: a file with the content that the database had at one moment, made while it goes
//! on.
//!
//! # Algorithm
//! 1. Make the file, reserve its space, and copy what is in the WAL into the database
//!    (a checkpoint, in the background), so that little is left for the next steps. Where the disk
//!    is full, all of it is left.
//! 2. **The moment.** On the writer's thread, between two batches, a snapshot is taken, and it is
//!    found out what of it is in the WAL ([`Start::take`]).
//! 3. Those pages are written to the backup. Then the moment is guarded: a checkpoint that is about
//!    to overwrite a page of the database file writes the old one to the backup before
//!    ([`Moment`]), and the snapshot is not needed any more. It has kept the WAL for as long as the
//!    rest of it took to be copied.
//! 4. All other pages are copied from the database file, past SQLite's cache, in slices, with rests
//!    in between while there are writes.
//! 5. When the commits of the moment are on disk and the backup is, too, it gets its name
//!    ([`part`]).
//!
//! With [`Sharing::Shared`](crate::Sharing) other processes checkpoint, and take no page before. So
//! the snapshot stays until the end, and where it is revoked the copy begins again. There are no
//! rests: the WAL grows for as long as the copy takes.
//!
//! # Durability
//! A backup has no transaction that the database could lose in a power cut.
//!
//! # Not here
//! Why so: `docs/decisions/backups-copy-on-write.md`.

pub(crate) mod part;
pub(crate) mod pins;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monolite_sqlite::CheckpointMode;
use monolite_sqlite::copy::Start;
use monolite_sqlite::rusqlite::{self, ffi};
use monolite_sqlite::vfs::{Fault, Guarded, Moment, WalControl, WalPosition};
use part::{HeaderOf, Part};
use pins::{BackupPin, BackupPins};

use crate::call::between::BetweenBatches;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::JobContext;
use crate::pacer::Pacer;
use crate::progress::{BatchNumber, Progress};
use crate::read::readers::{OpenReader, Reader};

/// What is written before the disk is asked to have it: less is left for the sync at the end, and
/// the sync upon which writes are acknowledged never waits behind more than this.
const SLICE_BYTES: u64 = 4 << 20;

/// How many copies are begun when their snapshots are revoked.
const ATTEMPTS: u32 = 4;

/// What a backup has copied.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let target = directory.path().join("copy.db");
/// # let db = monolite::Database::open(":memory:")?;
/// let monolite::Backup { pages, bytes, .. } = db.backup(&target).wait()?;
/// println!("{pages} pages, {bytes} bytes");
/// # Ok(db.close()?)
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// How many pages.
    pub pages: u64,
    /// How long the file is.
    pub bytes: u64,
}

/// What backups need of the engine.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) database: PathBuf,
    pub(crate) open_reader: OpenReader,
    pub(crate) between: Arc<BetweenBatches>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) wal: Arc<WalControl>,
    pub(crate) pins: Arc<BackupPins>,
    /// Whether no other process has the database.
    pub(crate) is_exclusive: bool,
    /// Whether pages are verified by their checksums.
    pub(crate) is_verified: bool,
}

/// How a copy of the pages has ended.
enum Copied {
    Whole(Backup),
    /// Its snapshot was revoked.
    Overtaken,
}

impl Source {
    /// Makes a backup at `target`.
    pub(crate) fn back_up(&self, target: &Path, job: &JobContext) -> Result<Backup> {
        let context = |error: Error| error.context(format!("no backup to {}", target.display()));
        let copied = self.copy_at(target, HeaderOf::Backup, job);
        copied.map(|(backup, _)| backup).map_err(context)
    }

    /// Makes a backup at `target`, and tells where in the WAL its moment is.
    pub(crate) fn copy_at(
        &self,
        target: &Path,
        header: HeaderOf,
        job: &JobContext,
    ) -> Result<(Backup, WalPosition)> {
        let mode = fs::metadata(&self.database).map_or(0o600, |meta| meta.mode());
        let part = Part::create(target, mode)?;
        for _ in 0..ATTEMPTS {
            job.check()?;
            let (pin, start, (number, position)) = self.begin(job)?;
            match self.copy(&part, &pin, start, job)? {
                Copied::Whole(backup) => {
                    part.complete(header)?;
                    self.progress.wait_durable(number)?;
                    job.check()?;
                    part.publish()?;
                    return Ok((backup, position));
                }
                Copied::Overtaken => {}
            }
        }
        let message = "the snapshot of the copy was ended again and again, as it kept the WAL from \
                       restarting near its limit; raise the option wal_limit_bytes, or make the \
                       backup while less is written";
        Err(Error::new(ErrorKind::Timeout, message))
    }

    /// Takes the moment: a snapshot, where its content is, and the last batch that it has, with the
    /// place of the last commit.
    fn begin(&self, job: &JobContext) -> Result<(BackupPin, Start, (BatchNumber, WalPosition))> {
        let Reader { connection: first, .. } = (self.open_reader)()?;
        match self.noticing(first.checkpoint(CheckpointMode::Passive)) {
            // It only leaves less to do: the backup may be on another disk.
            Err(error) if error.extended_code() == Some(ffi::SQLITE_FULL) => {}
            copied => _ = copied?,
        }
        let reader = (self.open_reader)()?;
        let (progress, pins) = (Arc::clone(&self.progress), Arc::clone(&self.pins));
        let (wal, caller) = (Arc::clone(&self.wal), job.caller);
        self.between.run(
            || job.check(),
            move |writer| {
                progress.check_poison()?;
                // Other processes do not commit meanwhile either.
                writer.begin_immediate()?;
                let start = Start::take(&reader.connection, &first);
                writer.rollback()?;
                let (start, number) = (start?, (progress.exposed(), wal.committed()));
                Ok((pins.note(reader, caller), start, number))
            },
        )
    }

    /// Stops all acknowledgements when a sync has failed.
    fn noticing<T>(&self, result: rusqlite::Result<T>) -> Result<T> {
        let result = result.map_err(Error::from);
        if let Err(error) = &result
            && error.is_lost_write()
        {
            self.between.poison(format!("a checkpoint could not be synced ({error})"));
        }
        result
    }

    /// Copies the pages of a moment. What is read when its snapshot was revoked is of another one,
    /// or gone, and an error may tell so before the revocation is noticed.
    fn copy(&self, part: &Part, pin: &BackupPin, start: Start, job: &JobContext) -> Result<Copied> {
        let copied = self.copy_pages(part, pin, start, job);
        match copied {
            Ok(Some(backup)) if pin.holds() => Ok(Copied::Whole(backup)),
            Err(error) if pin.holds() => Err(error),
            _ => job.check().map(|()| Copied::Overtaken),
        }
    }

    /// As [`Source::copy`]; none as soon as the snapshot is known to be revoked.
    fn copy_pages(
        &self,
        part: &Part,
        pin: &BackupPin,
        start: Start,
        job: &JobContext,
    ) -> Result<Option<Backup>> {
        let goes_on = |moment: &Moment| {
            job.tell(moment.taken().into(), moment.pages().into());
            job.goes_on() && pin.holds()
        };
        let connection = &pin.reader.connection;
        let moment =
            start.moment(connection, self.is_verified, |bytes| part.images(bytes), goes_on);
        job.check()?;
        let moment = Arc::new(moment.map_err(of_fault)?);
        let guarded = self.is_exclusive.then(|| Guarded::new(&self.wal, &moment));
        if !pin.holds() {
            return Ok(None);
        }
        if self.is_exclusive {
            pin.release();
        }
        let mut next = Some(1);
        let (mut buffer, mut unsynced) = (Vec::new(), 0);
        let mut pacer = Pacer::new(self.progress.committed());
        while let Some(pgno) = next {
            job.check()?;
            next = moment.copy(connection.raw(), pgno, &mut buffer).map_err(of_fault)?;
            assert!(next.is_none_or(|next| next > pgno), "a copy goes on behind page {pgno}");
            job.tell(moment.taken().into(), moment.pages().into());
            unsynced += buffer.len() as u64;
            if unsynced >= SLICE_BYTES {
                part.sync_some()?;
                unsynced = 0;
                // Otherwise the snapshot is in the way for longer.
                if self.is_exclusive {
                    pacer.keep(self.progress.committed());
                }
            }
        }
        drop(guarded);
        moment.check().map_err(of_fault)?;
        assert_eq!(moment.taken(), moment.pages(), "a backup has all pages of its moment");
        Ok(Some(Backup { pages: moment.pages().into(), bytes: moment.bytes() }))
    }
}

fn of_fault(fault: Fault) -> Error {
    match fault {
        Fault::Read(error) => rusqlite::Error::from(error).into(),
        Fault::Damaged { pgno } => {
            let message = format!(
                "page {pgno} of the database file is damaged: its checksum is wrong; restore an \
                 earlier backup"
            );
            Error::new(ErrorKind::Corrupt, message)
        }
        Fault::Save(error) => {
            let message = format!("the backup cannot be written: {error}; nothing is left of it");
            Error::new(ErrorKind::Storage, message)
        }
    }
}
