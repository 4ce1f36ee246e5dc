//! Owns the list of database files that are open in this process, so that no file has two writers.
//!
//! Locks between processes do not help here: POSIX locks belong to the process.
//!
//! # Invariants
//! - Neither the file nor its path is used twice. The same file may be open under another path (a
//!   bind mount, a rename), and another file may have come to the path, beside the WAL of the
//!   first.
//! - A file that was created for a database which then could not be opened is removed again, unless
//!   another process has begun to use it.
//! - The number of a file that was deleted is free once its last connection is closed, and a new
//!   file may get it. So what meets a file that is being closed waits for the end of that.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolite_sqlite::forks;

use crate::clock::Patience;
use crate::error::{Error, ErrorKind, Result};
use crate::files::identity::{FileId, not_created};

/// How long the last connection may take to close before an opening is refused.
const CLOSING_PATIENCE: Duration = Duration::from_secs(5);

static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

/// A file that is open.
struct Entry {
    path: PathBuf,
    file: FileId,
    state: FileState,
    /// How often the process had been forked when it was opened.
    forks: u64,
}

#[derive(Clone, Copy)]
enum FileState {
    Open,
    /// Its last connection is being closed.
    Closing,
    /// It was closed, but SQLite keeps a connection, for statements that were never dropped.
    LeftOpen,
}

/// The right to have a file open; given back when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    file: FileId,
    /// Where the file was created, until it is a database.
    created: Option<PathBuf>,
}

impl Registration {
    /// Registers the file at `path` (canonical), which is created if there is none.
    ///
    /// # Errors
    /// `Invalid` when the file, or another one that was at `path`, is open in this process;
    /// `Storage` when it cannot be looked at or created.
    pub(crate) fn new(path: &Path) -> Result<Registration> {
        let mut open = open();
        let patience = Patience::of(CLOSING_PATIENCE);
        let mut created = None;
        let used = loop {
            // The list is locked while a file is created, see `FileId::at`.
            let at_path = open.iter().find(|used| used.path == path).map(|used| used.file);
            let at = at_path.map_or_else(|| FileId::at(path), |file| Ok((file, false)));
            let (file, is_new) = at.map_err(|error| not_created(path, &error))?;
            if is_new {
                created = Some(path.to_owned());
            }
            let Some(used) = open.iter().find(|used| used.file == file) else {
                let (path, state) = (path.to_owned(), FileState::Open);
                open.push(Entry { path, file, state, forks: forks() });
                return Ok(Registration { file, created });
            };
            let is_ending = matches!(used.state, FileState::Closing) && used.forks == forks();
            let left = patience.left();
            if !is_ending || left.is_zero() {
                break used;
            }
            open = CLOSED.wait_timeout(open, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        if let Some(path) = &created {
            used.file.remove_unused(path);
        }
        let message = match used.state {
            _ if used.forks != forks() => opened_by_parent(path),
            FileState::Open | FileState::Closing => format!(
                "{} is open in this process already{}; clone the Database instead of opening it \
                 again; one that is being closed is open until its last closure returns",
                path.display(),
                if used.path == path {
                    String::new()
                } else {
                    format!(", as {}", used.path.display())
                }
            ),
            FileState::LeftOpen => left_open(path),
        };
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// The file is a database now, and stays.
    pub(crate) fn is_database(&mut self) {
        self.created = None;
    }

    /// The last connection to the file is about to be closed.
    pub(crate) fn closes(&self) {
        let mut open = open();
        if let Some(used) = open.iter_mut().find(|used| used.file == self.file) {
            used.state = FileState::Closing;
        }
    }

    /// Keeps the file for as long as the process lives, and says why.
    pub(crate) fn keep(self) -> Error {
        let mut open = open();
        let its = open.iter_mut().find(|used| used.file == self.file);
        let message = its.map_or_else(String::new, |used| {
            used.state = FileState::LeftOpen;
            left_open(&used.path)
        });
        drop(open);
        CLOSED.notify_all();
        std::mem::forget(self);
        Error::new(ErrorKind::Invalid, message)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Held until it is gone, so that this process does not open it meanwhile.
        let mut open = open();
        if let Some(path) = &self.created {
            self.file.remove_unused(path);
        }
        open.retain(|used| used.file != self.file);
        CLOSED.notify_all();
    }
}

fn open() -> MutexGuard<'static, Vec<Entry>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn opened_by_parent(path: &Path) -> String {
    format!(
        "{} is open in the process from which this one was forked, and SQLite would take its \
         locks for this one's; open it after fork(), or start another program that opens it",
        path.display()
    )
}

fn left_open(path: &Path) -> String {
    format!(
        "{} was closed, and everything is in it, but it stays locked until this process ends: a \
         closure left a statement, rows or a blob that was never dropped (mem::forget, Box::leak), \
         or SQLite itself lost one (full-text tables that are each other's content), and SQLite \
         keeps the connection for it; drop them in the closure, or those tables",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    #[test]
    fn a_new_file_waits_for_the_end_of_the_one_whose_number_it_got() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        let registration = Registration::new(&old).unwrap();
        fs::hard_link(&old, &new).unwrap();
        fs::remove_file(&old).unwrap();
        let refused = Registration::new(&new).unwrap_err();
        assert!(refused.to_string().contains("is open in this process already, as"), "{refused}");
        registration.closes();
        thread::scope(|scope| {
            let opening = scope.spawn(|| Registration::new(&new));
            thread::sleep(Duration::from_millis(20));
            assert!(!opening.is_finished());
            drop(registration);
            opening.join().unwrap().unwrap();
        });
    }
}
