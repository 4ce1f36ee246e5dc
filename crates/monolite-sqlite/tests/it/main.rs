//! What is left when another library has initialised SQLite before: a process of its own, since
//! that can happen once in each.

use std::sync::Arc;

use monolite_sqlite::vfs::{Direct, Lower, Vfs, WalControl};
use monolite_sqlite::{Connection, Role, Settings};

#[test]
fn pages_are_not_tracked_when_another_library_was_first() {
    let _first = rusqlite::Connection::open_in_memory().unwrap();
    let direct = Direct::new(Arc::new(WalControl::keeping_frames(u64::MAX)));
    let vfs = Vfs::register(Lower::UnixExcl, Arc::new(direct)).unwrap();
    let settings = Settings::new(vfs.name());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    let writer = Connection::open(&path, Role::Writer, &settings).unwrap();
    writer.begin_immediate().unwrap();
    writer.raw().execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES(1)").unwrap();
    assert!(!writer.pages().track(100));
    assert_eq!(writer.pages().take(), None);
    writer.commit().unwrap();
}
