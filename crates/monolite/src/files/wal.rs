//! Owns the engine's own descriptor of the WAL file: its sync, and the proof that it and the
//! database are still the files at their paths.
//!
//! # Invariants
//! - The WAL file carries no POSIX locks, so it may be opened and closed beside SQLite. The
//!   database and `-shm` files must not be: closing any descriptor drops SQLite's locks.
//! - A WAL does not stay beside another database than its own: the next open of that would replay
//!   old pages into it.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use monolite_sqlite::holds_lock;
use monolite_sqlite::vfs::{Storage, WalControl};
use monolite_sqlite::wal::WalReader;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::process::{Resource, getrlimit};

use crate::files::identity::{EMPTY, Watched};

/// Names under which WALs are kept that have lost their database, at most.
const MAX_KEPT: u32 = 1_000;

/// What the WAL has of the disk at least, while its database is open.
pub(crate) const SET_ASIDE_BYTES: u64 = 4 << 20;

/// The part of the free space that is set aside at most.
const MOST_PARTS: u64 = 4;

/// How often a database file is looked at that seems to be too short: it may have been made shorter
/// and longer again by a checkpoint, meanwhile.
const LOOKS: u32 = 3;

/// The WAL file beside a database.
pub(crate) struct WalFile {
    storage: Arc<dyn Storage>,
    control: Arc<WalControl>,
    /// Whether no other process empties the WAL.
    is_exclusive: bool,
    /// Whether the WAL has been found missing beside its database.
    is_unlinked: AtomicBool,
    file: File,
    wal: Watched,
    database: Watched,
}

/// The path of the WAL that belongs to `database`.
pub(crate) fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

impl WalFile {
    /// Opens the WAL that belongs to `database`.
    pub(crate) fn open(
        database: &Path,
        storage: Arc<dyn Storage>,
        control: Arc<WalControl>,
        is_exclusive: bool,
    ) -> io::Result<WalFile> {
        let path = wal_path(database);
        let file = File::options().read(true).write(true).open(&path)?;
        let wal = Watched::new("the WAL file", path, &file.metadata()?);
        let there = fs::metadata(database)?;
        control.note_database_bytes(there.len());
        let database = Watched::new("the database file", database.to_owned(), &there);
        let is_unlinked = AtomicBool::new(false);
        Ok(WalFile { storage, control, is_exclusive, is_unlinked, file, wal, database })
    }

    /// Puts everything written to the WAL before this call on disk.
    ///
    /// # Errors
    /// Those of `fdatasync`, after which nothing more may be believed of this file: Linux reports
    /// a failed write-back once and then calls the pages clean. `Other` when it was another file
    /// that was synced, as the descriptor was closed by others. Those of [`WalFile::check`].
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.storage.sync_wal(&self.file)?;
        if !self.wal.is(&self.file.metadata()?) {
            let path = self.wal.path().display();
            return Err(io::Error::other(format!(
                "the descriptor of {path} leads to another file: other code of this process has \
                 closed it; mend that code, and end the process"
            )));
        }
        self.check()
    }

    /// Sees whether the files are where they were.
    ///
    /// # Errors
    /// `NotFound` when the WAL or the database was deleted, renamed or replaced, so that no later
    /// open finds the written content, or the database was cut.
    pub(crate) fn check(&self) -> io::Result<()> {
        let wal = self.wal.check().map(|_| ());
        let Err(gone) = self.database.check() else {
            wal.map_err(|gone| self.note_unlinked(&gone))?;
            return self.check_database_length();
        };
        if wal.is_err() || gone.kind() != io::ErrorKind::NotFound {
            return Err(gone);
        }
        let moved = match self.put_aside() {
            Ok(kept) => format!(
                ", and its WAL is kept as {}: with the database put back at {}, it belongs beside \
                 it as {}",
                kept.display(),
                self.database.path().display(),
                self.wal.path().display()
            ),
            Err(error) => format!(
                "; move its WAL, {}, away before that path is opened ({error})",
                self.wal.path().display()
            ),
        };
        Err(io::Error::new(gone.kind(), format!("{gone}{moved}")))
    }

    /// As [`WalFile::check`], while no write runs; also checks that all of the WAL is there.
    ///
    /// # Errors
    /// As [`WalFile::check`]; `NotFound` when a part of the WAL is gone.
    pub(crate) fn check_whole(&self) -> io::Result<()> {
        self.check()?;
        self.check_length()
    }

    /// # Errors
    /// `NotFound` when another program has cut the database file. Its WAL stays: it belongs to no
    /// other file.
    fn check_database_length(&self) -> io::Result<()> {
        let (mut length, mut written) = (0, 0);
        for _ in 0..LOOKS {
            let before = self.control.database_bytes();
            length = self.database.check()?;
            written = before.min(self.control.database_bytes());
            // Others may make a shared one shorter, but not empty.
            if length >= written || !self.is_exclusive && length > EMPTY {
                return Ok(());
            }
        }
        let message = format!("the database file was cut from {written} to {length} bytes");
        Err(io::Error::new(io::ErrorKind::NotFound, message))
    }

    /// What reads the commits in the WAL; `None` while it has none.
    pub(crate) fn reader(&self) -> io::Result<Option<WalReader>> {
        WalReader::open(self.file.try_clone()?)
    }

    /// Sets space aside for the WAL, if it is empty: on a disk that is full later, the commits of
    /// deletions still fit, one behind the other, as the WAL restarts there.
    pub(crate) fn set_aside(&self) {
        let room = self.wal.path().parent().and_then(|directory| statvfs(directory).ok());
        let room = room.map_or(0, |it| it.f_bavail.saturating_mul(it.f_frsize) / MOST_PARTS);
        let bytes = SET_ASIDE_BYTES.min(room).min(self.control.limit_bytes());
        let may_be_so_long = getrlimit(Resource::Fsize).current.is_none_or(|most| bytes <= most);
        if bytes > 0 && may_be_so_long && self.file_bytes() == 0 {
            // Where the file system cannot, a full disk stays one.
            let _ = fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes);
        }
    }

    /// How long the file is.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    fn check_length(&self) -> io::Result<()> {
        let (length, written) = (self.wal.check()?, self.control.wal_bytes());
        if length < written && self.is_exclusive {
            let message = format!("the WAL file was cut from {written} to {length} bytes");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Ok(())
    }

    /// What is wrong with the files, when a write has failed. Does not have the close copy a WAL
    /// that was deleted: after a failed write it may not hold what was written.
    pub(crate) fn what_happened(&self) -> Option<io::Error> {
        self.check_for_connection().and_then(|()| self.check_length()).err()
    }

    /// Sees whether a connection that is opened now is one of the same files, and changes nothing.
    ///
    /// # Errors
    /// `NotFound` when it is not, or when the database was cut: SQLite would delete the WAL beside
    /// an empty one.
    pub(crate) fn check_for_connection(&self) -> io::Result<()> {
        self.check_database_length()?;
        self.wal.check().map(|_| ())
    }

    /// Whether the WAL has lost its name and nothing else has happened: this process can still read
    /// all of it, and copy it into the database. A file put in its place is moved aside, or it
    /// would be replayed over the copied pages.
    ///
    /// Not when others may have had the database meanwhile: what they have read of the WAL and
    /// written since would be written over. They are kept out by the lock on the database, which is
    /// held for as long as an exclusive one is open, unless the process has lost it.
    pub(crate) fn is_only_unlinked(&self) -> bool {
        let was_seen = self.is_unlinked.load(Ordering::Relaxed);
        let is_alone = self.is_exclusive && holds_lock(self.database.path());
        was_seen && is_alone && self.database.check().is_ok() && self.make_way()
    }

    /// Whether nothing is where the WAL was, from now on.
    fn make_way(&self) -> bool {
        if self.has_another_in_its_place() && self.put_aside().is_err() {
            return false;
        }
        fs::symlink_metadata(self.wal.path()).is_err()
    }

    /// Whether another file is where the WAL was. (A link may lead to the WAL itself.)
    fn has_another_in_its_place(&self) -> bool {
        let there = fs::symlink_metadata(self.wal.path());
        there.is_ok_and(|there| there.is_file()) && self.wal.check().is_err()
    }

    /// Notes that the WAL is gone beside its database, and says what can be done.
    fn note_unlinked(&self, gone: &io::Error) -> io::Error {
        let is_replaced = self.has_another_in_its_place() && self.is_exclusive;
        if !is_replaced && fs::symlink_metadata(self.wal.path()).is_ok() {
            return io::Error::new(gone.kind(), gone.to_string());
        }
        self.is_unlinked.store(true, Ordering::Relaxed);
        let what = if is_replaced {
            "close copies what the right one holds into the database, and moves the other aside"
        } else if self.is_exclusive {
            "close copies what it holds into the database"
        } else {
            "what it holds can be read until this process closes the database: read it out before"
        };
        io::Error::new(gone.kind(), format!("{gone}; {what}"))
    }

    /// Gives the WAL a name by which no database finds it.
    fn put_aside(&self) -> io::Result<PathBuf> {
        let path = self.wal.path();
        let name = |number: u32| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-of-lost-file-{number}"));
            PathBuf::from(name)
        };
        let is_free = |kept: &PathBuf| fs::symlink_metadata(kept).is_err();
        let kept = (1..=MAX_KEPT).map(name).find(is_free);
        let kept = kept.ok_or_else(|| io::Error::other("there are too many such files"))?;
        fs::rename(path, &kept)?;
        Ok(kept)
    }
}

/// Syncs the directory of `path`, so that files created in it survive a power loss.
pub(crate) fn sync_directory(path: &Path, storage: &dyn Storage) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| storage.sync_directory(directory))
}
