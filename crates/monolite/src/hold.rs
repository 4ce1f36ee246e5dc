//! Owns the second lock that keeps other processes out of a database that is this process's alone.
//!
//! SQLite's lock on the database file is a POSIX lock. The process loses it when any of its code
//! opens the database file and closes it again, as a copy of the file does, and is not told. With
//! [`Sharing::Exclusive`](crate::Sharing::Exclusive) the next process would then take itself for
//! the only one, and delete the WAL when it is done. But it must lock the `-shm` file first, which
//! an exclusive SQLite does not use. So that file is locked here.
//!
//! # Invariants
//! - The file is removed only while the database is locked: a process that had it open already
//!   would not share its locks with the next one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};

/// The `-shm` file of a database, locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct Hold {
    path: PathBuf,
    _file: File,
}

impl Hold {
    /// Locks the `-shm` file of `database`, whose own lock this process must hold.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it locked; those of creating the file.
    pub(crate) fn new(database: &Path) -> io::Result<Hold> {
        let mut name = database.as_os_str().to_owned();
        name.push("-shm");
        let path = PathBuf::from(name);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Hold { path, _file: file })
    }

    /// Removes the file and lets go of it. The database must still be locked.
    pub(crate) fn remove(self) {
        // A file that stays does no harm: SQLite starts with it anew.
        let _ = fs::remove_file(&self.path);
    }
}
