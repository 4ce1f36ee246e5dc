//! Overlays beside real readers, writers and checkpoints on real files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::ErrorCode;

use super::*;
use crate::connection::{CheckpointMode, Role, Settings};
use crate::vfs::{ChecksumUse, Checksummed, Direct, Lower, PageChecksums, Vfs, WalControl};

mod pins;

/// A database with a writer, whose other connections are opened as needed.
struct Rig {
    writer: Connection,
    path: PathBuf,
    vfs: Vfs,
    overlay_vfs: Vfs,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig::over(Lower::UnixExcl, 0)
    }

    fn over(lower: Lower, reserved_bytes: u8) -> Rig {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let direct = Direct::new(Arc::new(WalControl::keeping_frames(u64::MAX)));
        let checksums = Arc::new(PageChecksums::new(ChecksumUse::Verify));
        let storage = Arc::new(Checksummed::new(Arc::new(direct), checksums));
        let vfs = Vfs::register(lower, storage.clone()).unwrap();
        let overlay_vfs = vfs.register_overlays(storage).unwrap();
        let settings = settings(&vfs, reserved_bytes);
        let writer = Connection::open(&path, Role::Writer, &settings).unwrap();
        let rig = Rig { writer, path, vfs, overlay_vfs, _directory: directory };
        rig.write(
            "CREATE TABLE parent(id INTEGER PRIMARY KEY, name TEXT UNIQUE);
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL
                 CHECK (balance >= 0), owner INTEGER REFERENCES parent(id));
             CREATE TABLE log(entry TEXT);
             CREATE TRIGGER logged AFTER UPDATE ON account BEGIN
                 INSERT INTO log VALUES (new.id || ':' || new.balance);
             END;
             INSERT INTO parent VALUES (1, 'one'), (2, 'two');
             INSERT INTO account VALUES (1, 100, 1), (2, 200, 2), (3, 300, NULL)",
        );
        rig
    }

    fn write(&self, sql: &str) {
        // A reader that meets a half-written header has the write lock for a moment.
        while let Err(error) = self.writer.begin_immediate() {
            assert_eq!(extended_code(&error), ffi::SQLITE_BUSY);
            std::thread::yield_now();
        }
        self.writer.raw().execute_batch(sql).unwrap();
        self.writer.commit().unwrap();
    }

    fn checkpoint(&self, mode: CheckpointMode) -> crate::Checkpoint {
        self.writer.checkpoint(mode).unwrap()
    }

    fn reader(&self) -> Connection {
        Connection::open(&self.path, Role::Reader, &settings(&self.vfs, 0)).unwrap()
    }

    /// A reader in a transaction that has read.
    fn guard(&self) -> Connection {
        let guard = self.reader();
        begin(&guard);
        guard
    }

    fn overlay(&self) -> Connection {
        Connection::open(&self.path, Role::Overlay, &settings(&self.overlay_vfs, 0)).unwrap()
    }

    /// The bytes of database and WAL.
    fn files(&self) -> (Vec<u8>, Vec<u8>) {
        let wal = format!("{}-wal", self.path.display());
        // Reading through a descriptor of our own drops no lock that anybody else relies on: no
        // other process is there.
        (std::fs::read(&self.path).unwrap(), std::fs::read(wal).unwrap())
    }
}

fn settings(vfs: &Vfs, reserved_bytes: u8) -> Settings {
    Settings { reserved_bytes, sync: false, ..Settings::new(vfs.name()) }
}

fn begin(guard: &Connection) {
    guard.begin_read().unwrap();
    balance(guard, 1);
}

fn renew(guard: &Connection) -> Snapshot {
    guard.rollback().unwrap();
    begin(guard);
    guard.snapshot().unwrap()
}

fn balance(connection: &Connection, id: i64) -> Option<i64> {
    let sql = "SELECT balance FROM account WHERE id = ?1";
    connection
        .with_statement(sql, |statement| {
            use rusqlite::OptionalExtension as _;
            statement.query_row([id], |row| row.get(0)).optional()
        })
        .unwrap()
        .unwrap()
}

fn count(connection: &Connection, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    connection.raw().query_row(&sql, [], |row| row.get(0)).unwrap()
}

fn run(connection: &Connection, sql: &str) -> Result<()> {
    connection.raw().execute_batch(sql)
}

fn extended_code(error: &rusqlite::Error) -> i32 {
    error.sqlite_error().map_or(0, |error| error.extended_code)
}

#[test]
fn an_overlay_sees_its_own_writes_and_nobody_else_does() {
    let rig = Rig::new();
    let (guard, overlay) = (rig.guard(), rig.overlay());
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    let returned: i64 = overlay
        .raw()
        .query_row(
            "UPDATE account SET balance = balance - 1 WHERE id = 1 RETURNING balance",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!((returned, balance(&overlay, 1)), (99, Some(99)));
    assert_eq!(count(&overlay, "log"), 1, "the trigger ran");
    for other in [&guard, &rig.writer, &rig.reader()] {
        assert_eq!((balance(other, 1), count(other, "log")), (Some(100), 0));
    }
    rig.write("UPDATE account SET balance = 5 WHERE id = 1");
    assert_eq!(balance(&overlay, 1), Some(99), "another's commit does not show");
    overlay.rollback().unwrap();
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    assert_eq!(balance(&overlay, 1), Some(100), "nothing is left after the rollback");
    overlay.rollback().unwrap();
    overlay.begin_on(&renew(&guard)).unwrap();
    assert_eq!(balance(&overlay, 1), Some(5));
}

#[test]
fn an_overlay_changes_no_byte_of_database_wal_and_index() {
    let rig = Rig::new();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
                INSERT INTO account SELECT i, i, NULL FROM n";
    for slot_is_first in [false, true] {
        if slot_is_first {
            assert!(rig.checkpoint(CheckpointMode::Passive).is_complete());
        }
        let (guard, overlay) = (rig.guard(), rig.overlay());
        let snapshot = guard.snapshot().unwrap();
        assert_eq!(snapshot.uses_wal(), !slot_is_first);
        let before = (rig.files(), guard.index_words().unwrap());
        overlay.begin_on(&snapshot).unwrap();
        run(&overlay, fill).unwrap();
        run(&overlay, "UPDATE account SET balance = balance + 1; CREATE TABLE t(a)").unwrap();
        assert_eq!(balance(&overlay, 20_000), Some(20_001));
        overlay.rollback().unwrap();
        drop(overlay);
        assert!(before == (rig.files(), guard.index_words().unwrap()));
    }
    rig.write(fill);
    assert_eq!(balance(&rig.reader(), 20_000), Some(20_000));
}

/// Commits until the WAL has more than `frames` frames.
fn grow_wal(rig: &Rig, frames: u32) {
    let mut round = 0;
    while rig.guard().snapshot().unwrap().header.last_frame() <= frames {
        round += 1;
        rig.write(&format!(
            "DELETE FROM log;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
             INSERT INTO log SELECT {round} || hex(zeroblob(1500)) FROM n"
        ));
    }
}

#[test]
fn a_snapshot_stays_while_the_wal_grows_is_copied_and_restarts() {
    let rig = Rig::new();
    let overlay = rig.overlay();
    for round in 0..3 {
        rig.write(&format!("UPDATE account SET balance = {round}; DELETE FROM log"));
        let guard = rig.guard();
        let snapshot = guard.snapshot().unwrap();
        assert!(snapshot.uses_wal());
        overlay.begin_on(&snapshot).unwrap();
        run(&overlay, "INSERT INTO log VALUES ('own')").unwrap();
        // Everything changes, behind the pages that the overlay has in memory and before.
        rig.write("UPDATE account SET balance = 1000 + id");
        grow_wal(&rig, 10_000);
        rig.checkpoint(CheckpointMode::Passive);
        let late = rig.overlay();
        late.begin_on(&snapshot).unwrap();
        for connection in [&overlay, &late, &guard] {
            assert_eq!(
                (balance(connection, 2), balance(connection, 3)),
                (Some(round), Some(round))
            );
        }
        assert_eq!((count(&overlay, "log"), count(&late, "log"), count(&guard, "log")), (1, 0, 0));
        assert!(rig.checkpoint(CheckpointMode::Restart).blocked, "the guard is in the way");
        overlay.rollback().unwrap();
        late.rollback().unwrap();
        guard.rollback().unwrap();
        assert!(!rig.checkpoint(CheckpointMode::Restart).blocked, "the overlay is not");
        rig.write("UPDATE account SET balance = balance + 0");
        let snapshot = renew(&guard);
        assert!(snapshot.header.last_frame() < 100, "the WAL has restarted");
        overlay.begin_on(&snapshot).unwrap();
        assert_eq!(balance(&overlay, 2), Some(1002));
        overlay.rollback().unwrap();
    }
}

#[test]
fn a_snapshot_with_frames_in_later_regions_is_shown() {
    let rig = Rig::new();
    grow_wal(&rig, 9_000);
    rig.write("UPDATE account SET balance = 7 WHERE id = 3");
    let (guard, overlay) = (rig.guard(), rig.overlay());
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    assert_eq!((balance(&overlay, 3), count(&overlay, "log")), (Some(7), 301));
    assert_eq!(count(&guard, "log"), 301);
}

#[test]
fn a_guard_that_ignores_the_wal_has_overlays_that_ignore_it() {
    let rig = Rig::new();
    let (guard, overlay) = (rig.guard(), rig.overlay());
    // From now on the overlay knows the frames of this WAL.
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    overlay.rollback().unwrap();
    guard.rollback().unwrap();
    assert!(rig.checkpoint(CheckpointMode::Passive).is_complete());
    let snapshot = renew(&guard);
    assert!(!snapshot.uses_wal() && snapshot.header.last_frame() > 0);
    overlay.begin_on(&snapshot).unwrap();
    run(&overlay, "UPDATE account SET balance = 1 WHERE id = 1").unwrap();
    // The writer restarts the WAL over the frames that the snapshot has no need of.
    rig.write("UPDATE account SET balance = 9; INSERT INTO parent VALUES (3, 'three')");
    grow_wal(&rig, 500);
    assert_eq!((balance(&overlay, 1), balance(&overlay, 2)), (Some(1), Some(200)));
    assert_eq!(count(&overlay, "parent"), 2, "a page that is read only now");
    let late = rig.overlay();
    late.begin_on(&snapshot).unwrap();
    assert_eq!((balance(&late, 2), count(&late, "log")), (Some(200), 0));
}

#[test]
fn what_the_guard_no_longer_pins_is_refused() {
    let rig = Rig::new();
    let guard = rig.guard();
    let (overlay, other) = (rig.overlay(), rig.overlay());
    let snapshot = guard.snapshot().unwrap();
    overlay.begin_on(&snapshot).unwrap();
    assert!(snapshot.is_pinned());
    guard.rollback().unwrap();
    assert!(!snapshot.is_pinned());
    rig.write("UPDATE account SET balance = 9; DELETE FROM log");
    let error = run(&overlay, "SELECT * FROM account; SELECT * FROM log").unwrap_err();
    assert_eq!(extended_code(&error), ffi::SQLITE_IOERR_BLOCKED, "{error}");
    overlay.rollback().unwrap();
    for connection in [&overlay, &other] {
        let error = connection.begin_on(&snapshot).unwrap_err();
        assert_eq!(extended_code(&error), ffi::SQLITE_IOERR_BLOCKED, "{error}");
        assert!(!connection.is_in_transaction());
    }
    overlay.begin_on(&renew(&guard)).unwrap();
    assert_eq!(balance(&overlay, 1), Some(9));
}

#[test]
fn an_overlay_writes_nothing_even_when_told_to() {
    let rig = Rig::new();
    let (guard, overlay) = (rig.guard(), rig.overlay());
    let before = rig.files();
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    for refused in [
        overlay.commit(),
        overlay.begin_immediate(),
        overlay.begin_read(),
        overlay.checkpoint(CheckpointMode::Passive).map(|_| ()),
        overlay.maintenance().rewrite(8, || unreachable!("it is refused")),
        run(&overlay, "COMMIT"),
        run(&overlay, "ATTACH 'x' AS y"),
        run(&overlay, "PRAGMA journal_mode = DELETE"),
    ] {
        assert!(refused.is_err());
    }
    run(&overlay, "UPDATE account SET balance = 1").unwrap();
    // Behind the back of `Connection`: the file system is the last that says no.
    let written = overlay.may_commit.during(|| overlay.engine(Own::Commit));
    assert_eq!(extended_code(&written.unwrap_err()), ffi::SQLITE_IOERR_WRITE);
    overlay.rollback().unwrap();
    let spill = || run(&overlay, "PRAGMA cache_size = 2; PRAGMA main.cache_spill = 2");
    overlay.as_engine(spill).unwrap();
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    let spilled = run(&overlay, "INSERT INTO log VALUES (zeroblob(99999))").unwrap_err();
    assert_eq!(extended_code(&spilled), ffi::SQLITE_IOERR_WRITE);
    // SAFETY: the handle is open and used by this thread alone.
    let copied = unsafe {
        let (name, none) = (c"main".as_ptr(), std::ptr::null_mut());
        let mode = ffi::SQLITE_CHECKPOINT_TRUNCATE;
        ffi::sqlite3_wal_checkpoint_v2(overlay.raw().handle(), name, mode, none, none)
    };
    assert_ne!(copied, ffi::SQLITE_OK);
    // An autocommitted statement.
    assert!(run(&overlay, "UPDATE account SET balance = 2").is_err());
    drop(overlay);
    assert!(before == rig.files());
    assert_eq!(balance(&guard, 1), Some(100));
}

#[test]
fn a_snapshot_of_another_database_or_a_busy_overlay_is_refused() {
    let (rig, other) = (Rig::new(), Rig::new());
    let (guard, stranger) = (rig.guard(), other.guard());
    let overlay = rig.overlay();
    let error = overlay.begin_on(&stranger.snapshot().unwrap()).unwrap_err();
    assert_eq!(extended_code(&error), ffi::SQLITE_IOERR_SHMMAP, "before the index is mapped");
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    let error = overlay.begin_on(&guard.snapshot().unwrap()).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert_eq!(balance(&overlay, 1), Some(100));
    overlay.rollback().unwrap();
    let error = overlay.begin_on(&stranger.snapshot().unwrap()).unwrap_err();
    assert_eq!(extended_code(&error), ffi::SQLITE_IOERR_SHMMAP);
    assert!(guard.begin_on(&stranger.snapshot().unwrap()).is_err(), "a reader is no overlay");
    assert!(overlay.snapshot().is_none());
    let wrong_vfs = Connection::open(&rig.path, Role::Overlay, &settings(&rig.vfs, 0));
    assert!(wrong_vfs.is_err());
}

#[test]
fn a_wal_index_shared_with_other_processes_has_no_snapshots() {
    let rig = Rig::over(Lower::Unix, 0);
    assert!(rig.guard().snapshot().is_none());
    let reason = test_overlay(&rig.reader(), &rig.overlay()).unwrap_err().to_string();
    assert!(reason.contains("other processes"), "{reason}");
}

#[test]
fn checksums_are_verified_in_an_overlay() {
    let rig = Rig::over(Lower::UnixExcl, 8);
    rig.checkpoint(CheckpointMode::Truncate);
    let (guard, overlay) = (rig.guard(), rig.overlay());
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    assert_eq!(balance(&overlay, 3), Some(300));
    overlay.rollback().unwrap();
    guard.rollback().unwrap();
    rig.write("DROP TABLE log");
    rig.checkpoint(CheckpointMode::Truncate);
    let mut bytes = std::fs::read(&rig.path).unwrap();
    for page in bytes.chunks_mut(4_096).skip(1) {
        page[2_000] ^= 1;
    }
    std::fs::write(&rig.path, bytes).unwrap();
    guard.begin_read().unwrap();
    count(&guard, "pragma_page_count");
    run(&guard, "SELECT 1 FROM sqlite_schema").unwrap();
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    let error = run(&overlay, "SELECT * FROM account").unwrap_err();
    assert_eq!(extended_code(&error), ffi::SQLITE_IOERR_DATA, "{error}");
}

#[test]
fn an_overlay_is_revoked_from_another_thread() {
    let rig = Rig::new();
    let (guard, mut overlay) = (rig.guard(), rig.overlay());
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    run(&overlay, "UPDATE account SET balance = 1").unwrap();
    let revoker = overlay.revoker();
    let outcome = std::thread::spawn(move || revoker.revoke()).join().unwrap();
    assert_eq!(outcome, crate::Revocation::Interrupted);
    assert!(overlay.interruption().is_revoked());
    let interrupted = |error: &rusqlite::Error| extended_code(error) == ffi::SQLITE_INTERRUPT;
    let refused = overlay.with_statement("SELECT * FROM account", |_| ()).unwrap_err();
    assert!(interrupted(&refused), "{refused}");
    // One that had begun by then.
    let long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) \
                SELECT count(*) FROM n";
    let ended = overlay.raw().query_row(long, [], |_| Ok(())).unwrap_err();
    assert!(interrupted(&ended), "{ended}");
    assert!(!overlay.interruption().take_late(), "it was not late");
    overlay.restore_after_revocation().unwrap();
    assert!(!overlay.is_in_transaction());
    overlay.begin_on(&guard.snapshot().unwrap()).unwrap();
    assert_eq!(balance(&overlay, 1), Some(100));
    // The guard's revocation takes the pin away.
    let snapshot = guard.snapshot().unwrap();
    assert_eq!(guard.revoker().revoke(), crate::Revocation::Ended);
    assert!(!snapshot.is_pinned());
}

#[test]
fn the_self_test_passes_with_and_without_frames() {
    let rig = Rig::new();
    let (reader, overlay) = (rig.reader(), rig.overlay());
    test_overlay(&reader, &overlay).unwrap();
    grow_wal(&rig, 5_000);
    test_overlay(&reader, &overlay).unwrap();
    rig.checkpoint(CheckpointMode::Passive);
    test_overlay(&reader, &overlay).unwrap();
    rig.checkpoint(CheckpointMode::Truncate);
    test_overlay(&reader, &overlay).unwrap();
    assert!(!reader.is_in_transaction() && !overlay.is_in_transaction());
}
