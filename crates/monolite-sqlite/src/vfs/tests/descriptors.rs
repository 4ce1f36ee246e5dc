//! Descriptors that other code of the process has closed, and that lead to files of others now.

use std::fs::{self, File};
use std::mem::forget;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use rustix::io::dup2;

use super::*;

const OTHERS: &[u8] = &[b'o'; 100_000];

/// Has every descriptor of the file at `path` lead to another one, which is returned.
fn take_over(rig: &Rig, path: &Path) -> PathBuf {
    let other = rig.directory.path().join("other");
    fs::write(&other, OTHERS).unwrap();
    lead(path, &File::options().read(true).write(true).open(&other).unwrap());
    other
}

/// Has every descriptor of the file at `path` lead to `file`.
fn lead(path: &Path, file: &File) {
    let of_path = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let is_it = fs::read_link(entry.path()).is_ok_and(|target| target == path);
        is_it.then(|| entry.file_name().into_string().unwrap().parse::<RawFd>().unwrap())
    };
    let numbers: Vec<RawFd> = fs::read_dir("/proc/self/fd").unwrap().filter_map(of_path).collect();
    assert!(!numbers.is_empty(), "the file is open");
    for number in numbers {
        // SAFETY: SQLite's own descriptor stays open, and its.
        let mut descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        dup2(file, &mut descriptor).unwrap();
        forget(descriptor);
    }
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_written_to_a_file_that_took_over_the_descriptor() {
    for (ending, lower) in
        [("", Lower::UnixExcl), ("-wal", Lower::UnixExcl), ("", Lower::Unix), ("-wal", Lower::Unix)]
    {
        let rig = Rig::new(lower);
        let connection = rig.open_with_table();
        insert(&connection, 3).unwrap();
        let path = PathBuf::from(format!("{}{ending}", rig.path().display()));
        let other = take_over(&rig, &path);
        let refused = code_of(insert(&connection, 3));
        assert_eq!(refused & 0xff, ffi::SQLITE_IOERR, "{ending} {lower:?}");
        let fault = take_file_fault(refused).expect("it is known what failed");
        assert_eq!(*fault.path, *path);
        assert!(fault.to_string().contains("has closed its descriptor"), "{fault}");
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let copied: rusqlite::Result<i64> = connection.query_row(checkpoint, [], |row| row.get(0));
        assert_ne!(copied.ok(), Some(0), "{ending} {lower:?}");
        let (again, _kept) = after_crash(&rig.path());
        assert_eq!(count(&again), Ok(3), "{ending} {lower:?}");
        drop(connection);
        assert_eq!(fs::read(other).unwrap(), OTHERS, "{ending} {lower:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_locked_in_a_file_that_took_over_the_descriptor_of_the_wal_index() {
    let rig = Rig::new(Lower::Unix);
    let connection = rig.open_with_table();
    insert(&connection, 3).unwrap();
    let path = PathBuf::from(format!("{}-shm", rig.path().display()));
    take_over(&rig, &path);
    let refused = code_of(insert(&connection, 3));
    assert_eq!(refused, ffi::SQLITE_IOERR_SHMLOCK, "others would not see the lock");
    let fault = take_file_fault(refused).expect("it is known what failed");
    assert_eq!(*fault.path, *path);
    assert!(fault.to_string().contains("has closed its descriptor"), "{fault}");
    let (again, _kept) = after_crash(&rig.path());
    assert_eq!(count(&again), Ok(3));
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_is_written_by_a_descriptor_of_the_same_file_that_appends() {
    for (ending, lower) in [("", Lower::UnixExcl), ("", Lower::Unix), ("-wal", Lower::Unix)] {
        let rig = Rig::new(lower);
        let connection = rig.open_with_table();
        insert(&connection, 3).unwrap();
        let path = PathBuf::from(format!("{}{ending}", rig.path().display()));
        let before = fs::read(&path).unwrap();
        lead(&path, &File::options().read(true).append(true).open(&path).unwrap());
        let written = insert(&connection, 3);
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let copied: rusqlite::Result<i64> = connection.query_row(checkpoint, [], |row| row.get(0));
        assert!(written.is_err() || copied.ok() != Some(0), "{ending} {lower:?}");
        let (again, _kept) = after_crash(&rig.path());
        assert!(count(&again).unwrap() >= 3, "{ending} {lower:?}");
        assert!(fs::read(&path).unwrap() == before, "{ending} {lower:?}");
    }
}
