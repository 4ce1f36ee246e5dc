//! Owns the list of database files that are open in this process, so that no file has two writers.
//!
//! Locks between processes do not help here: POSIX locks belong to the process.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

static OPEN: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// The right to have a path open; given back when dropped.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Registration {
    /// # Errors
    /// `Invalid` when `path` (canonical) is open in this process.
    pub(crate) fn new(path: &Path) -> Result<Registration> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.insert(path.to_owned()) {
            let message = format!(
                "{} is open in this process already; clone the Database instead of opening it \
                 again",
                path.display()
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Registration(path.to_owned()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}
