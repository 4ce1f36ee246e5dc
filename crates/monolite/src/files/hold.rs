//! Owns the second lock that keeps other processes out of a database that is this process's alone.
//!
//! SQLite's lock on the database file is a POSIX lock. The process loses it when any of its code
//! opens the database file and closes it again, as a copy of the file does, and is not told. With
//! [`Sharing::Exclusive`](crate::Sharing::Exclusive) the next process would then take itself for
//! the only one, recover the WAL that is in use, and delete it when it is done. But it must lock
//! the `-shm` file first, which an exclusive SQLite does not use. So that file is locked here.
//!
//! # Invariants
//! - It is locked when the database is locked already, so that no SQLite of this process has the
//!   file open, whose locks would go when it is closed here; and before anything is read.
//! - The file is removed only while the database is locked: a process that had it open already
//!   would not share its locks with the next one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};

/// The `-shm` file of a database, and the lock on it.
#[derive(Debug)]
pub(crate) struct Hold {
    database: PathBuf,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    locked: Option<File>,
    /// Whether it was created for this.
    is_new: bool,
    /// Why it could not be locked the last time.
    failure: Option<io::Error>,
}

impl Hold {
    pub(crate) fn new(database: &Path) -> Hold {
        let mut name = database.as_os_str().to_owned();
        name.push("-shm");
        Hold { database: database.to_owned(), path: name.into(), state: Mutex::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file, unless it is; the lock on the database must be held.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it locked; those of creating the file.
    pub(crate) fn lock(&self) -> io::Result<()> {
        let mut state = self.state();
        if state.locked.is_none() {
            let file = self.open();
            let locked = file.and_then(|(file, is_new)| {
                state.is_new |= is_new;
                fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
                Ok(file)
            });
            state.locked = Some(locked.map_err(|error| {
                let kind = error.kind();
                state.failure = Some(error);
                io::Error::from(kind)
            })?);
        }
        Ok(())
    }

    /// Opens the file, or creates it for the users that the database is for, as SQLite does; tells
    /// whether it was created.
    fn open(&self) -> io::Result<(File, bool)> {
        let opened = File::options().read(true).write(true).open(&self.path);
        if !opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return opened.map(|file| (file, false));
        }
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        let like = fs::metadata(&self.database)?;
        file.set_permissions(like.permissions())?;
        // Only root can, and only root need.
        let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
        Ok((file, true))
    }

    /// Why the file could not be locked, if it was that and nobody else has it locked.
    pub(crate) fn take_failure(&self) -> Option<io::Error> {
        let failure = self.state().failure.take();
        failure.filter(|error| error.kind() != io::ErrorKind::WouldBlock)
    }

    /// Removes the file if it was created for this, and lets go of it then, for a database that
    /// cannot be opened. The database must still be locked.
    pub(crate) fn undo(&self) {
        if self.state().is_new {
            self.remove();
        }
    }

    /// Removes the file and lets go of it. The database must still be locked.
    pub(crate) fn remove(&self) {
        if let Some(_locked) = self.state().locked.take() {
            // A file that stays does no harm: SQLite initialises it at the next open.
            let _ = fs::remove_file(&self.path);
        }
    }
}
