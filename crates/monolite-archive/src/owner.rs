//! Owns to whom new files belong. What root makes in another user's directory it gives to that
//! user, as SQLite does with a WAL: the program that runs as that user has to go on with it.
//!
//! What cannot be given stays as it is made, as SQLite has it: a file system may know no owners,
//! and root may have lost the right. The next program that may not write there says so.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use rustix::process::geteuid;

/// Gives a new file or directory to the owner of what is at `path`.
pub(crate) fn give_to_owner_of(path: &Path, new: &File) {
    let Ok(like) = fs::metadata(named(path)) else { return };
    let is_another =
        new.metadata().is_ok_and(|is| (is.uid(), is.gid()) != (like.uid(), like.gid()));
    if geteuid().is_root() && is_another {
        let _ = fchown(new, Some(like.uid()), Some(like.gid()));
    }
}

/// Gives a new file or directory in `directory` to its owner, and to those to read and write who
/// may do so there.
pub(crate) fn give_as_in(directory: &Path, new: &File) {
    let (Ok(like), Ok(is)) = (fs::metadata(named(directory)), new.metadata()) else { return };
    let allowed = if is.is_dir() { 0o777 } else { 0o666 };
    let mode = like.mode() & allowed;
    if is.mode() & allowed != mode {
        // What a directory has besides is inherited by the system.
        let _ = new.set_permissions(Permissions::from_mode(is.mode() & 0o7000 | mode));
    }
    give_to_owner_of(directory, new);
}

/// The directory of a name without one is the present one.
fn named(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn file_may_be_read_and_written_by_those_of_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, expected) in [(0o700, 0o600), (0o770, 0o660), (0o755, 0o644)] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let path = directory.path().join(format!("{mode:o}"));
            give_as_in(directory.path(), &File::create(&path).unwrap());
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, expected);
        }
    }
}
