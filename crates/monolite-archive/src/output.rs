//! Owns the file that a restore writes, and how it comes by its name: when all of it is on disk,
//! and never over another file.
//!
//! # Algorithm
//! 1. The content goes to a file beside the target, called as it with [`PART`] behind, which only
//!    its owner may read. It is created, never opened, and locked (`flock`) for as long as it is
//!    written.
//! 2. At the end it is given to the owner of the directory, if root has made it. It is synced and
//!    gets the target's name by a link, which fails when there is such a file; then the first name
//!    goes, and the directory is synced. A file system without links has it renamed, right after a
//!    look.
//! 3. One that finds a file with that ending looks whether it is locked. If not, its writer is
//!    gone: a file left by a restore of this user is taken over, and the name of any other is
//!    removed. Only the name: a process that was killed between the link and the removal of the
//!    first name has left a whole file with two names.
//!
//! Ending and lock are those of the engine's backups: either finds what the other has left.
//!
//! # Invariants
//! - What has the target's name is whole and on disk.
//! - No file but a leftover is removed or written, and none is opened that has another name, too:
//!   it could be a database of this process, whose locks would go when it is closed again.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind as IoErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use monolite::archive::names::{self, PART, with_ending};
use rustix::process::geteuid;

use crate::error::{Error, Result};
use crate::owner::give_to_owner_of;
use crate::store::sync_directory;

/// How often another one may be in between when the file is made.
const TRIES: u32 = 10;

/// A file that is being written, and becomes `target`.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    path: PathBuf,
    target: PathBuf,
    /// Whether another one has begun it.
    is_left: bool,
    is_kept: bool,
}

impl Output {
    /// A file beside `target`: empty, or as another one has left it.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a name that is not free or that no database can
    /// have, or when another one is being written to it; [`Io`](crate::ErrorKind::Io).
    pub(crate) fn create(target: &Path) -> Result<Output> {
        must_be_free(target)?;
        let path = with_ending(target, PART);
        for _ in 0..TRIES {
            let mut new = File::options();
            match new.read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    // One who finds it before it is locked takes it for a leftover.
                    if lock(&file, &path)? != Lock::Busy && is_at(&file, &path) {
                        return Ok(Output::of(file, path, target, false));
                    }
                }
                Err(error) if error.kind() == IoErrorKind::AlreadyExists => {
                    if let Some(file) = take_leftover(&path, target)? {
                        return Ok(Output::of(file, path, target, true));
                    }
                }
                Err(error) => return Err(failed("create", &path)(error)),
            }
        }
        Err(under_way(target))
    }

    fn of(file: File, path: PathBuf, target: &Path, is_left: bool) -> Output {
        Output { file, path, target: target.to_owned(), is_left, is_kept: false }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether another one has begun it.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Leaves it to the next one.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Puts the file on disk under the target's name.
    ///
    /// # Errors
    /// As of [`create`](Output::create). Nothing is left then.
    pub(crate) fn publish(self) -> Result<()> {
        let (path, target) = (&self.path, &self.target);
        give_to_owner_of(target.parent().unwrap_or(Path::new("")), &self.file);
        self.file.sync_all().map_err(failed("sync", path))?;
        must_be_free(target)?;
        match fs::hard_link(path, target) {
            Ok(()) => fs::remove_file(path).map_err(failed("remove", path))?,
            Err(error) if error.kind() == IoErrorKind::AlreadyExists => {
                return Err(Error::invalid(names::exists(target).to_string()));
            }
            Err(error) if has_no_links(&error) => {
                fs::rename(path, target).map_err(failed("rename to", target))?;
            }
            Err(error) => return Err(failed("link", target)(error)),
        }
        sync_directory(target.parent().unwrap_or(Path::new(""))).inspect_err(|_| {
            // It would be there until the next power cut, and is not answered for.
            let _ = fs::remove_file(target);
        })
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.is_kept && is_at(&self.file, &self.path) {
            // One that stays is found by the next one to the same target.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a restore to `output` that was stopped, or goes on, has beside it; `None` when there is
/// nothing.
pub fn unfinished(output: &Path) -> Option<PathBuf> {
    let path = with_ending(output, PART);
    path.symlink_metadata().is_ok().then_some(path)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Taken,
    /// Locked by another process.
    Busy,
    /// The file system has none.
    Unknown,
}

fn lock(file: &File, path: &Path) -> Result<Lock> {
    match file.try_lock() {
        Ok(()) => Ok(Lock::Taken),
        Err(TryLockError::WouldBlock) => Ok(Lock::Busy),
        Err(TryLockError::Error(error)) if error.kind() == IoErrorKind::Unsupported => {
            Ok(Lock::Unknown)
        }
        Err(TryLockError::Error(error)) => Err(failed("lock", path)(error)),
    }
}

/// Whether `file` is the one that has the name `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// What one that is gone has left at `path` on the way to `target`, locked; `None` when that could
/// not be gone on with, and was removed.
fn take_leftover(path: &Path, target: &Path) -> Result<Option<File>> {
    let remove = || match fs::remove_file(path) {
        Err(error) if error.kind() != IoErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(None),
    };
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        there => there.map_err(failed("look at", path))?,
    };
    if !there.is_file() {
        let message = format!("{} is in the way; move it away", path.display());
        return Err(Error::invalid(message));
    }
    if there.nlink() > 1 {
        return remove();
    }
    let file = match File::options().read(true).write(true).open(path) {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed("open", path))?,
    };
    match lock(&file, path)? {
        Lock::Busy => Err(under_way(target)),
        Lock::Taken if is_at(&file, path) => {
            // That of a backup may be for others to read.
            let is_ours = there.uid() == geteuid().as_raw() && there.mode() & 0o777 == 0o600;
            if is_ours { Ok(Some(file)) } else { remove() }
        }
        // Another process has just removed it.
        Lock::Taken => Ok(None),
        Lock::Unknown => {
            let message = format!(
                "{} is left of another restore, or one goes on: the file system has no locks by \
                 which to tell; remove it when none does",
                path.display()
            );
            Err(Error::invalid(message))
        }
    }
}

/// Sees whether a database may be restored to `target`.
fn must_be_free(target: &Path) -> Result<()> {
    names::check_target(target).map_err(|refused| Error::invalid(refused.to_string()))
}

/// What Linux says of a link where there are none, is that it is not permitted.
fn has_no_links(error: &std::io::Error) -> bool {
    matches!(error.kind(), IoErrorKind::PermissionDenied | IoErrorKind::Unsupported)
}

fn under_way(target: &Path) -> Error {
    let message = format!(
        "another restore to {} is under way; wait for it, or restore to another name",
        target.display()
    );
    Error::invalid(message)
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let doing = format!("{doing} {}", path.display());
    move |error| Error::of_io(doing, error)
}
