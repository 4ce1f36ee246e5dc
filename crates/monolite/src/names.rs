//! Owns which names a database and a copy of one may have: what SQLite and the engine append to a
//! name for the files that they keep beside it belongs to the database without that ending.
//!
//! # Invariants
//! - Nothing is written to a name that SQLite or the engine would take for a part of another
//!   database, and delete, overwrite or play back.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// What SQLite appends for the files that it keeps beside a database.
pub(crate) const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What a copy's name ends with as long as it is not whole. The next copy to the same target
/// removes such a file, or goes on with it.
pub const PART: &str = ".monolite-part";

/// What an archive appends for its directory beside the database.
pub const ARCHIVE: &str = "-archive";

/// What a file system lets a name have.
const MAX_BYTES: usize = 255;

/// Sees whether a database may be called so.
///
/// # Errors
/// `Invalid` for a name that belongs to another database, or is too long for the files beside it.
pub(crate) fn check(path: &Path) -> Result<()> {
    let why = |ending: &str| match ending {
        PART => "the engine takes such a file for an unfinished copy",
        ARCHIVE => "the engine keeps what belongs to a database's archive under such a name",
        _ => "SQLite takes such a file for a part of that database",
    };
    // A database from before this rule keeps its name: nothing deletes it.
    let endings = COMPANIONS.iter().chain([&PART]);
    let refused = endings.chain((!path.exists()).then_some(&ARCHIVE));
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    for ending in refused.copied() {
        if let Some(other) = name.strip_suffix(ending.as_bytes()) {
            let other = String::from_utf8_lossy(other);
            let reason = format!(
                "its name ends with {ending}, which belongs to the database {other:?}: {}; choose \
                 another name",
                why(ending)
            );
            return Err(unusable(path, &reason));
        }
    }
    check_length(path, "-journal", "of a file beside it")
}

/// Sees whether a copy of a database may be written to `target`: the name is free, and so are those
/// of the files that would be taken for a part of it.
///
/// # Errors
/// `Invalid` when it is not.
pub fn check_target(target: &Path) -> Result<()> {
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if is_there(target) {
        return Err(exists(target));
    }
    check(target)?;
    check_length(target, PART, "that it has until it is whole")?;
    let beside = COMPANIONS.map(|ending| with_ending(target, ending));
    if let Some(file) = beside.iter().find(|file| is_there(file)) {
        let message = format!(
            "{} exists, which SQLite would take for a part of {} and play back into it; move it \
             away, or choose another name",
            file.display(),
            target.display()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

/// The error of a copy whose target is there.
pub fn exists(target: &Path) -> Error {
    let message = format!(
        "{} exists, and a copy overwrites nothing; move it away, or choose another name",
        target.display()
    );
    Error::new(ErrorKind::Invalid, message)
}

/// The name of the file beside `path` that ends so.
pub fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn check_length(path: &Path, ending: &str, whose: &str) -> Result<()> {
    let length = path.file_name().map_or(0, OsStr::len);
    let most = MAX_BYTES - ending.len();
    if length <= most {
        return Ok(());
    }
    let reason = format!(
        "its name has {length} bytes, and with the ending {whose} ({ending}) a name has at most \
         {MAX_BYTES}; {most} are left"
    );
    Err(unusable(path, &reason))
}

/// The error of a path that no database can have.
pub(crate) fn unusable(path: &Path, reason: &str) -> Error {
    let message = format!("{path:?} cannot be a database: {reason}");
    Error::new(ErrorKind::Invalid, message)
}
