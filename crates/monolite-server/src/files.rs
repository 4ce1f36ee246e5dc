//! Owns what is wrong with files of the configuration, and whether they have changed.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// What is wrong with a configuration, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// Notices changes of files.
pub(crate) struct Changes {
    files: Vec<PathBuf>,
    seen: Mutex<Vec<Option<SystemTime>>>,
}

impl Changes {
    /// From now on.
    pub(crate) fn of(files: Vec<PathBuf>) -> Changes {
        let seen = Mutex::new(times(&files));
        Changes { files, seen }
    }

    /// Whether one of the files has changed since the last look.
    pub(crate) fn happened(&self) -> bool {
        let times = times(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let have_changed = *seen != times;
        *seen = times;
        have_changed
    }
}

fn times(files: &[PathBuf]) -> Vec<Option<SystemTime>> {
    let time = |file: &PathBuf| std::fs::metadata(file).and_then(|it| it.modified()).ok();
    files.iter().map(time).collect()
}
