//! Owns the engine's own descriptor of the WAL file: its sync, and the proof that it is still the
//! file at that path.
//!
//! # Invariants
//! - The WAL file carries no POSIX locks, so it may be opened and closed beside SQLite. The
//!   database and `-shm` files must not be: closing any descriptor drops SQLite's locks.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use monolite_sqlite::vfs::Storage;

/// The WAL file beside a database.
pub(crate) struct WalFile {
    storage: Arc<dyn Storage>,
    file: File,
    path: PathBuf,
    inode: u64,
    device: u64,
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
        let meta = file.metadata()?;
        Ok(WalFile { storage, file, path, inode: meta.ino(), device: meta.dev() })
    }

    /// Puts everything written to the WAL before this call on disk.
    ///
    /// # Errors
    /// Those of `fdatasync`, after which nothing more may be believed of this file: Linux reports
    /// a failed write-back once and then calls the pages clean. `NotFound` when the file was
    /// deleted or replaced, so that what was written went nowhere.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.storage.sync_wal(&self.file)?;
        match fs::metadata(&self.path) {
            Ok(meta) if meta.ino() == self.inode && meta.dev() == self.device => Ok(()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::NotFound, "the WAL file was replaced")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::Error::new(io::ErrorKind::NotFound, "the WAL file was deleted"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Syncs the directory of `path`, so that files created in it survive a power loss.
pub(crate) fn sync_directory(path: &Path, storage: &dyn Storage) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| storage.sync_directory(directory))
}
