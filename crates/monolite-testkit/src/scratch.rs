//! Directories for tests: in memory, for databases whose disk plays no part and whose syncs would
//! take longer than all else, and by the name that errors give.

use std::io;
use std::path::Path;

use tempfile::{Builder, TempDir};

/// A directory in memory where the system has such a place, else one in `elsewhere`.
pub fn in_memory(elsewhere: &Path) -> io::Result<TempDir> {
    let new = || {
        let mut new = Builder::new();
        new.prefix("monolite-");
        new
    };
    new().tempdir_in("/dev/shm").or_else(|_| new().tempdir_in(elsewhere))
}

/// A directory by its name without links, as errors give it.
pub fn without_links() -> io::Result<TempDir> {
    tempfile::tempdir_in(std::env::temp_dir().canonicalize()?)
}
