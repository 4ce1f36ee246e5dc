//! Owns whether files of the configuration have changed.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

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
