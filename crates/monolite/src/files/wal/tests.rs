//! A descriptor of the WAL that leads to the file of somebody else.

use monolite_sqlite::vfs::Direct;

use super::*;

#[test]
fn sync_of_another_file_is_no_sync_of_the_wal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    fs::write(&path, []).unwrap();
    fs::write(wal_path(&path), []).unwrap();
    let control = Arc::new(WalControl::default());
    let storage = Arc::new(Direct::new(Arc::clone(&control)));
    let mut wal = WalFile::open(&path, storage, control, true).unwrap();
    wal.sync().unwrap();
    // As when other code of the process has closed it, and opened a file then.
    wal.file = File::create(directory.path().join("other")).unwrap();
    let refused = wal.sync().unwrap_err().to_string();
    assert!(refused.contains("leads to another file"), "{refused}");
}
