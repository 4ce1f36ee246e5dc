//! Lists in pieces, what others have left, and file systems that lack something.

use std::io::Error as IoError;
use std::os::unix::fs::PermissionsExt as _;

use super::{DirectoryStore, NO_LOCKS, is_temporary, lock, not_linked, not_locked};
use crate::error::ErrorKind;
use crate::store::Store as _;

#[test]
fn long_folder_is_listed_piece_by_piece() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(directory.path()).listing(7);
    let mut expected: Vec<String> = (0..50).map(|number| format!("a/{number:03}")).collect();
    fastrand::shuffle(&mut expected);
    for key in &expected {
        store.create(key, b"x", None).unwrap();
    }
    expected.sort();
    let (mut keys, mut after, mut lists) = (Vec::new(), None::<String>, 0);
    loop {
        let listing = store.list("a", after.as_deref()).unwrap();
        assert!(listing.objects.len() <= 7, "memory is bounded");
        keys.extend(listing.objects.into_iter().map(|object| object.key));
        after = keys.last().cloned();
        lists += 1;
        if !listing.is_cut {
            break;
        }
    }
    assert_eq!((keys, lists), (expected, 8));
}

#[test]
fn list_that_is_exactly_full_is_not_cut() {
    let directory = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(directory.path()).listing(7);
    for number in 0..7 {
        store.create(&format!("a/{number}"), b"x", None).unwrap();
    }
    let listing = store.list("a", None).unwrap();
    assert_eq!((listing.objects.len(), listing.is_cut), (7, false));
}

#[test]
fn name_of_ours_is_told_from_others() {
    for name in ["0000-0001.ltx.12-0.tmp", "leader.1-17.tmp"] {
        assert!(is_temporary(name), "{name}");
    }
    for name in ["0000-0001.ltx.tmp", "a.1-2", "a.1.tmp", "a.1-x.tmp", "a.-1.tmp", "1-2.tmp"] {
        assert!(!is_temporary(name), "{name}");
    }
}

#[test]
fn what_others_left_goes_when_it_is_old_and_ours() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("a");
    std::fs::create_dir(&folder).unwrap();
    for name in ["one.12-0.tmp", "one.ltx.tmp", "one.txt"] {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        // An old content says nothing: somebody may be about to link it.
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    let names = || {
        let entries = std::fs::read_dir(&folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let store = DirectoryStore::new(directory.path());
    store.create("a/two", b"x", None).unwrap();
    assert_eq!(names(), ["one.12-0.tmp", "one.ltx.tmp", "one.txt", "two"]);
    // As if a day were less than nothing; when a file was changed cannot be set.
    let store = DirectoryStore::new(directory.path()).leaving(-10);
    store.create("a/three", b"x", None).unwrap();
    assert_eq!(names(), ["one.ltx.tmp", "one.txt", "three", "two"]);
}

/// Another user's process may have it open, and must be able to open it again.
#[test]
fn lock_file_that_is_there_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let mode_of = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let path = directory.path().join("lock");
    set(directory.path(), 0o770);
    drop(lock(&path).unwrap());
    assert_eq!(mode_of(&path) & 0o777, 0o660, "as the directory");
    set(&path, 0o606);
    drop(lock(&path).unwrap());
    assert_eq!(mode_of(&path) & 0o777, 0o606);
}

#[test]
fn where_there_are_no_locks_or_links_nobody_asks_again() {
    let error = not_locked("leader", IoError::from_raw_os_error(NO_LOCKS));
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unsupported, false));
    let error = not_locked("leader", IoError::from_raw_os_error(5));
    assert_eq!(error.kind(), ErrorKind::Io);
    let error = not_linked("slot".as_ref(), IoError::from_raw_os_error(1));
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unsupported, false));
    let error = not_linked("slot".as_ref(), IoError::from_raw_os_error(5));
    assert_eq!(error.kind(), ErrorKind::Io);
}
