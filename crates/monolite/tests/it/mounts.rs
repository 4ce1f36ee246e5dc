//! File systems that refuse: mounted for one test, unmounted at its end. Needs root; a test that
//! cannot have its mount says `SKIPPED` on standard error and why.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system.
pub(crate) struct Mount {
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Mount {
    /// A file system in memory with room for `size` (as `mount` says it).
    pub(crate) fn small(test: &str, size: &str) -> Option<Mount> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let option = format!("size={size}");
        let mounted = mount(&["-t", "tmpfs", "-o", &option, "tmpfs"], &path);
        Mount::checked(test, mounted, path, directory)
    }

    /// A directory that `prepare` has filled and nobody can write to.
    pub(crate) fn read_only(test: &str, prepare: impl FnOnce(&Path)) -> Option<Mount> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        prepare(&path);
        let name = path.to_str().unwrap();
        let bound = mount(&["--bind", name], &path);
        let mount_point = Mount::checked(test, bound, path.clone(), directory)?;
        if let Err(reason) = mount(&["-o", "remount,ro,bind"], &path) {
            skipped(test, &reason);
            return None;
        }
        Some(mount_point)
    }

    fn checked(
        test: &str,
        mounted: Result<(), String>,
        path: PathBuf,
        directory: tempfile::TempDir,
    ) -> Option<Mount> {
        match mounted {
            Ok(()) => Some(Mount { path, _directory: directory }),
            Err(reason) => {
                skipped(test, &reason);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.path).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.path.display());
        }
    }
}

fn mount(arguments: &[&str], path: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(path).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Says so, also in the file that the gate counts skipped tests by.
fn skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}");
    eprintln!("{line}");
    if let Some(list) = std::env::var_os("MONOLITE_SKIPS") {
        let mut list = std::fs::File::options().append(true).create(true).open(list).unwrap();
        writeln!(list, "{line}").unwrap();
    }
}
