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
//!   would not share its locks with the next one. So it stays when another database has come to the
//!   path: the file may be that one's, which others have open.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::files::identity::Watched;

/// The `-shm` file of a database, and the lock on it.
#[derive(Debug)]
pub(crate) struct Hold {
    database: PathBuf,
    path: PathBuf,
    state: Mutex<HoldState>,
}

#[derive(Debug, Default)]
struct HoldState {
    locked: Option<Locked>,
    /// Whether it was created for this.
    is_new: bool,
    /// Why it could not be locked the last time.
    failure: Option<io::Error>,
}

#[derive(Debug)]
struct Locked {
    /// Has the lock for as long as it is open.
    _file: File,
    there: Watched,
    database: Watched,
}

impl Locked {
    /// Whether the file and its database are where they were.
    fn is_in_place(&self) -> bool {
        self.there.check().and_then(|_| self.database.check()).is_ok()
    }
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

    fn state(&self) -> MutexGuard<'_, HoldState> {
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
                self.watched(file)
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

    fn watched(&self, file: File) -> io::Result<Locked> {
        let there = Watched::new("the -shm file", self.path.clone(), &file.metadata()?);
        let meta = fs::metadata(&self.database)?;
        let database = Watched::new("the database file", self.database.clone(), &meta);
        Ok(Locked { _file: file, there, database })
    }

    /// Why the file could not be locked, unless another process has it locked.
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

    /// Removes the file, unless it or its database is no longer at its path, and lets go of it. The
    /// database must still be locked.
    pub(crate) fn remove(&self) {
        if let Some(locked) = self.state().locked.take()
            && locked.is_in_place()
        {
            // A file that stays does no harm: SQLite initialises it at the next open.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(directory: &Path) -> Hold {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("a.db"), "ours").unwrap();
        let hold = Hold::new(&directory.join("a.db"));
        hold.lock().unwrap();
        hold
    }

    #[test]
    fn the_file_is_removed_when_it_is_let_go_of() {
        let temporary = tempfile::tempdir().unwrap();
        let hold = locked(&temporary.path().join("data"));
        hold.remove();
        assert!(!hold.path().exists());
    }

    #[test]
    fn the_file_of_a_database_in_a_directory_that_took_the_place_stays() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("data");
        let hold = locked(&directory);
        fs::rename(&directory, temporary.path().join("away")).unwrap();
        let theirs = locked(&directory);
        hold.remove();
        assert!(theirs.path().exists(), "others have it open");
    }

    #[test]
    fn the_file_stays_when_another_database_took_the_place_of_ours() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().join("data");
        let hold = locked(&directory);
        fs::write(directory.join("b.db"), "another").unwrap();
        fs::rename(directory.join("b.db"), directory.join("a.db")).unwrap();
        hold.remove();
        assert!(hold.path().exists(), "somebody may have opened it for the other");
    }
}
