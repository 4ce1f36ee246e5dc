//! Owns the list of database files that are open in this process, so that no file has two writers.
//!
//! Locks between processes do not help here: POSIX locks belong to the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind, Result};

static OPEN: LazyLock<Mutex<HashMap<PathBuf, Use>>> = LazyLock::new(Mutex::default);

/// What is done with a path.
#[derive(Clone, Copy)]
enum Use {
    Open,
    /// It was closed, but SQLite keeps a connection, for statements that were never dropped.
    LeftOpen,
}

/// The right to have a path open; given back when dropped.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Registration {
    /// # Errors
    /// `Invalid` when `path` (canonical) is open in this process.
    pub(crate) fn new(path: &Path) -> Result<Registration> {
        let message = match open().entry(path.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(Use::Open);
                return Ok(Registration(path.to_owned()));
            }
            Entry::Occupied(used) => match used.get() {
                Use::Open => format!(
                    "{} is open in this process already; clone the Database instead of opening it \
                     again",
                    path.display()
                ),
                Use::LeftOpen => left_open(path),
            },
        };
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Keeps the path for as long as the process lives, and says why.
    pub(crate) fn keep(self) -> Error {
        if let Some(its) = open().get_mut(&self.0) {
            *its = Use::LeftOpen;
        }
        let error = Error::new(ErrorKind::Invalid, left_open(&self.0));
        std::mem::forget(self);
        error
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        open().remove(&self.0);
    }
}

fn open() -> MutexGuard<'static, HashMap<PathBuf, Use>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn left_open(path: &Path) -> String {
    format!(
        "{} was closed, and everything is in it, but it stays locked until this process ends: a \
         closure left a statement, rows or a blob that was never dropped (mem::forget, Box::leak), \
         and SQLite keeps the connection for it; drop them in the closure",
        path.display()
    )
}
