//! Owns the engine's own descriptor of the WAL file: its sync, and the proof that it and the
//! database are still the files at their paths.
//!
//! # Invariants
//! - The WAL file carries no POSIX locks, so it may be opened and closed beside SQLite. The
//!   database and `-shm` files must not be: closing any descriptor drops SQLite's locks.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monolite_sqlite::vfs::Storage;

/// The WAL file beside a database.
pub(crate) struct WalFile {
    storage: Arc<dyn Storage>,
    file: File,
    wal: Identity,
    database: Identity,
}

/// Which file was at a path.
struct Identity {
    name: &'static str,
    path: PathBuf,
    inode: u64,
    device: u64,
}

impl Identity {
    fn new(name: &'static str, path: PathBuf, meta: &Metadata) -> Identity {
        Identity { name, path, inode: meta.ino(), device: meta.dev() }
    }

    /// Fails with `NotFound` unless the same file is at the path. Opens no descriptor.
    fn check(&self) -> io::Result<()> {
        let gone = |how| io::Error::new(io::ErrorKind::NotFound, format!("{} {how}", self.name));
        match fs::metadata(&self.path) {
            Ok(meta) if meta.ino() == self.inode && meta.dev() == self.device => Ok(()),
            Ok(_) => Err(gone("was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(gone("was deleted or renamed"))
            }
            Err(error) => Err(error),
        }
    }
}

/// The path of the WAL that belongs to `database`.
pub(crate) fn wal_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

impl WalFile {
    /// Opens the WAL that belongs to `database`.
    pub(crate) fn open(database: &Path, storage: Arc<dyn Storage>) -> io::Result<WalFile> {
        let path = wal_path(database);
        let file = File::options().read(true).write(true).open(&path)?;
        let wal = Identity::new("the WAL file", path, &file.metadata()?);
        let there = fs::metadata(database)?;
        let database = Identity::new("the database file", database.to_owned(), &there);
        Ok(WalFile { storage, file, wal, database })
    }

    /// Puts everything written to the WAL before this call on disk.
    ///
    /// # Errors
    /// Those of `fdatasync`, after which nothing more may be believed of this file: Linux reports
    /// a failed write-back once and then calls the pages clean. `NotFound` when the WAL or
    /// the database was deleted, renamed or replaced, so that nobody will find what was written.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.storage.sync_wal(&self.file)?;
        self.wal.check()?;
        self.database.check()
    }
}

/// Syncs the directory of `path`, so that files created in it survive a power loss.
pub(crate) fn sync_directory(path: &Path, storage: &dyn Storage) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| storage.sync_directory(directory))
}
