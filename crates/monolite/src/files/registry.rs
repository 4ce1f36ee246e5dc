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

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use monolite_sqlite::forks;

use crate::error::{Error, ErrorKind, Result};
use crate::files::identity::{FileId, not_created};

static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

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
        // Held while a file is created, see `FileId::at`.
        let mut open = open();
        let at_path = open.iter().find(|used| used.path == path);
        let (file, is_new) = match at_path {
            Some(used) => (used.file, false),
            None => FileId::at(path).map_err(|error| not_created(path, &error))?,
        };
        let Some(used) = open.iter().find(|used| used.file == file) else {
            let (path, state) = (path.to_owned(), FileState::Open);
            let created = is_new.then(|| path.clone());
            open.push(Entry { path, file, state, forks: forks() });
            return Ok(Registration { file, created });
        };
        let message = match used.state {
            _ if used.forks != forks() => opened_by_parent(path),
            FileState::Open => format!(
                "{} is open in this process already{}; clone the Database instead of opening it \
                 again",
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

    /// Keeps the file for as long as the process lives, and says why.
    pub(crate) fn keep(self) -> Error {
        let mut open = open();
        let its = open.iter_mut().find(|used| used.file == self.file);
        let message = its.map_or_else(String::new, |used| {
            used.state = FileState::LeftOpen;
            left_open(&used.path)
        });
        drop(open);
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
