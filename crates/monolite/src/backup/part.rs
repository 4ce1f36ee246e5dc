//! Owns the file that a backup writes, and how it comes by its name: when all of it is on disk, and
//! never over another file.
//!
//! # Algorithm
//! 1. The content goes to a file beside the target, called as it with [`PART`] behind. It is
//!    locked (`flock`) for as long as it is written. The run of pages at its beginning stays in
//!    memory: until the end the file begins with zeros, and SQLite takes it for no database.
//! 2. At the end that run is written, the file is synced, and gets the target's name in a step that
//!    fails when there is such a file (`RENAME_NOREPLACE`, or a hard link where that is not known).
//!    Then the directory is synced.
//! 3. One that finds a file with that ending looks whether it is locked. If not, its writer is
//!    gone, and the name is removed. Only the name: a process that was killed between the link and
//!    the removal of the first name has left a whole backup with two names.
//!
//! # Invariants
//! - What has the target's name is whole and on disk.
//! - No file but a leftover of this module's is removed, and none is opened that has another name,
//!   too: it could be a database of this process, whose locks would go when it is closed again.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use monolite_sqlite::copy::leave_wal_mode;
use monolite_sqlite::vfs::Images;
use rustix::fs::{CWD, FallocateFlags, FlockOperation, OFlags, RenameFlags, fallocate, flock};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result, remedy_of};
use crate::files::identity::canonical;
use crate::names::{PART, check_target, exists, with_ending};

/// How often another one may be in between when the file is made.
const TRIES: u32 = 10;

/// What the header of a copy says of a WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderOf {
    /// None is needed: any SQLite opens it, also where nothing can be written.
    Backup,
    /// What the database's says, byte by byte.
    Database,
}

/// A backup that is being written.
pub(super) struct Part {
    file: Arc<File>,
    path: PathBuf,
    target: PathBuf,
    beginning: Arc<Mutex<Vec<u8>>>,
    /// Whether it has the name [`Part::path`], by this process.
    has_name: bool,
}

impl Part {
    /// Begins a backup to `target`, with the permissions `mode` less those that the process's mask
    /// takes.
    pub(super) fn create(target: &Path, mode: u32) -> Result<Part> {
        let target = canonical(target)?;
        check_target(&target)?;
        let path = with_ending(&target, PART);
        for _ in 0..TRIES {
            let mut new = File::options();
            let new = new.read(true).write(true).create_new(true).mode(mode & 0o666);
            match new.open(&path) {
                Ok(file) => {
                    if lock(&file, &path)? == Lock::Taken && is_at(&file, &path) {
                        let (file, beginning) = (Arc::new(file), Arc::default());
                        return Ok(Part { file, path, target, beginning, has_name: true });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    remove_leftover(&path, &target)?;
                }
                Err(error) => return Err(failed(&path, &error)),
            }
        }
        Err(under_way(&target))
    }

    /// Where the pages of a database of so many bytes are written. There is room on the disk for
    /// all of them then, where that can be had at once. What an earlier attempt has written is
    /// written again.
    pub(super) fn images(&self, bytes: u64) -> io::Result<Box<dyn Images>> {
        match fallocate(&*self.file, FallocateFlags::empty(), 0, bytes.max(1)) {
            // It is told later if there is too little.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            reserved => reserved?,
        }
        self.file.set_len(bytes)?;
        let (file, beginning) = (Arc::clone(&self.file), Arc::clone(&self.beginning));
        Ok(Box::new(PartImages { file, beginning }))
    }

    /// Puts what was written so far on disk.
    pub(super) fn sync_some(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| failed(&self.path, &error))
    }

    /// Puts everything on disk but the name; with a header that says that the file has no WAL, or
    /// the one that the database has.
    pub(super) fn complete(&self, header: HeaderOf) -> Result<()> {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if header == HeaderOf::Backup {
            leave_wal_mode(&mut beginning);
        }
        let written = self.file.write_all_at(&beginning, 0);
        written.and_then(|()| self.file.sync_all()).map_err(|error| failed(&self.path, &error))
    }

    /// Gives the file the target's name, on disk.
    pub(super) fn publish(mut self) -> Result<()> {
        check_target(&self.target)?;
        let (from, to) = (&self.path, &self.target);
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        let named = match renamed {
            Ok(()) => {
                self.has_name = false;
                Ok(())
            }
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(from, to),
            Err(error) => Err(error.into()),
        };
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(to)),
            Err(error) => Err(failed(to, &error)),
            Ok(()) => {
                if std::mem::take(&mut self.has_name) {
                    fs::remove_file(from).map_err(|error| failed(from, &error))?;
                }
                let directory = to.parent().unwrap_or(Path::new("/"));
                File::open(directory).and_then(|it| it.sync_all()).map_err(|error| {
                    // It would be there until the next power cut, and is not answered for.
                    let _ = fs::remove_file(to);
                    failed(directory, &error)
                })
            }
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.has_name && is_at(&self.file, &self.path) {
            // One that stays is found by the next backup to the same target.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The pages of a backup on their way to its file.
struct PartImages {
    file: Arc<File>,
    beginning: Arc<Mutex<Vec<u8>>>,
}

impl Images for PartImages {
    fn save(&self, pages: &[u8], at: u64) -> io::Result<()> {
        if at == 0 {
            let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
            beginning.clear();
            beginning.extend_from_slice(pages);
            return Ok(());
        }
        self.file.write_all_at(pages, at)
    }
}

#[derive(PartialEq, Eq)]
enum Lock {
    Taken,
    /// Locked by another process.
    Busy,
    /// The file system has none.
    Unknown,
}

fn lock(file: &File, path: &Path) -> Result<Lock> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::WOULDBLOCK) => Ok(Lock::Busy),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Lock::Unknown),
        Err(error) => Err(failed(path, &error.into())),
    }
}

/// Whether `file` is the one that has the name `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Removes what a backup to `target` that was killed has left at `path`.
fn remove_leftover(path: &Path, target: &Path) -> Result<()> {
    let remove = || match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    };
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there.map_err(|error| failed(path, &error))?,
    };
    if !there.is_file() {
        let message = format!("{} is in the way of the backup; move it away", path.display());
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if there.nlink() > 1 {
        return remove();
    }
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let file = match File::options().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.map_err(|error| failed(path, &error))?,
    };
    match lock(&file, path)? {
        Lock::Busy => Err(under_way(target)),
        Lock::Taken if is_at(&file, path) => remove(),
        // Another process has just removed it.
        Lock::Taken => Ok(()),
        Lock::Unknown => {
            let message = format!(
                "{} is left of another backup, or one goes on: the file system has no locks by \
                 which to tell; remove it when none does",
                path.display()
            );
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

fn under_way(target: &Path) -> Error {
    let message = format!(
        "another backup to {} is under way; wait for it, or choose another name",
        target.display()
    );
    Error::new(ErrorKind::Overloaded, message)
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let (path, remedy) = (path.display(), remedy_of(error));
    let message = format!("{path}: {error}{remedy}; nothing is left of the backup");
    Error::new(ErrorKind::Storage, message)
}
