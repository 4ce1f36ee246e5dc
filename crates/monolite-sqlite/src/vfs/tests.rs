//! Real SQLite connections over the shim. The [`model`] compares random transactions, failures and
//! crashes with a map in memory; `cargo xtask planted` breaks each rule of the gather for them.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, OpenFlags, ffi};

use super::*;

mod changes;
mod descriptors;
mod model;

/// What a [`Probed`] storage saw and is to do.
#[derive(Default)]
struct Probe {
    ungathered: AtomicBool,
    wal_writes: AtomicU64,
    wal_reads: AtomicU64,
    wal_syncs: AtomicU64,
    database_syncs: AtomicU64,
    shm_locks: AtomicU64,
    /// Reads of the database that are longer than any page.
    long_reads: AtomicU64,
    live_files: AtomicI64,
    opened: Mutex<HashMap<FileKind, u64>>,
    deleted: Mutex<Vec<PathBuf>>,
    /// The WAL write, counted down to zero, that fails after half of it was written.
    fail_wal_write_in: AtomicI64,
    fail_with: Mutex<Option<IoError>>,
    refuse_open: Mutex<Option<FileKind>>,
    panic_in_wal_write: AtomicBool,
    panic_in_database_read: AtomicBool,
}

impl Probe {
    fn fail_wal_write(&self, after: i64, with: IoError) {
        *self.fail_with.lock().unwrap() = Some(with);
        self.fail_wal_write_in.store(after + 1, SeqCst);
    }

    fn failure_due(&self) -> Option<IoError> {
        let due = self.fail_wal_write_in.load(SeqCst) > 0
            && self.fail_wal_write_in.fetch_sub(1, SeqCst) == 1;
        due.then(|| self.fail_with.lock().unwrap().expect("set with the countdown"))
    }
}

/// [`Direct`], with a probe between the gather and the lower file.
struct Probed {
    wal: Arc<WalControl>,
    probe: Arc<Probe>,
}

struct ProbedFile {
    kind: FileKind,
    probe: Arc<Probe>,
}

impl Drop for ProbedFile {
    fn drop(&mut self) {
        self.probe.live_files.fetch_sub(1, SeqCst);
    }
}

impl Storage for Probed {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> Result<Box<dyn File>> {
        assert!(lower.size().is_ok(), "the lower file is open");
        assert!(path.is_some() || kind == FileKind::Temp);
        if *self.probe.refuse_open.lock().unwrap() == Some(kind) {
            return Err(IoError::CANT_OPEN);
        }
        *self.probe.opened.lock().unwrap().entry(kind).or_default() += 1;
        self.probe.live_files.fetch_add(1, SeqCst);
        let file = ProbedFile { kind, probe: Arc::clone(&self.probe) };
        if kind != FileKind::Wal || self.probe.ungathered.load(SeqCst) {
            return Ok(Box::new(file));
        }
        Ok(Box::new(Gather::new(file, Arc::clone(&self.wal))))
    }

    fn delete(&self, deletion: &Deletion<'_>) -> Result {
        self.probe.deleted.lock().unwrap().push(deletion.path().to_owned());
        deletion.perform()
    }
}

impl File for ProbedFile {
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let panics = self.probe.panic_in_database_read.load(SeqCst);
        assert!(!(panics && self.kind == FileKind::Database), "asked to panic in a read");
        if buf.len() > 65_536 {
            self.probe.long_reads.fetch_add(1, SeqCst);
        }
        if self.kind == FileKind::Wal {
            self.probe.wal_reads.fetch_add(1, SeqCst);
        }
        lower.read(buf, at)
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        if self.kind != FileKind::Wal {
            return lower.write(data, at);
        }
        assert!(!self.probe.panic_in_wal_write.load(SeqCst), "asked to panic in a write");
        self.probe.wal_writes.fetch_add(1, SeqCst);
        match self.probe.failure_due() {
            None => lower.write(data, at),
            Some(error) => {
                lower.write(&data[..data.len() / 2], at)?;
                Err(error)
            }
        }
    }

    /// Counts only: nothing here tests power loss.
    fn sync(&mut self, _lower: &mut LowerFile, _flags: SyncFlags) -> Result {
        match self.kind {
            FileKind::Wal => self.probe.wal_syncs.fetch_add(1, SeqCst),
            FileKind::Database => self.probe.database_syncs.fetch_add(1, SeqCst),
            FileKind::Journal | FileKind::Temp => 0,
        };
        Ok(())
    }

    fn shm_lock(&mut self, lower: &mut LowerFile, lock: ShmLock) -> Result {
        self.probe.shm_locks.fetch_add(1, SeqCst);
        lower.shm_lock(lock)
    }
}

/// A database over a probed VFS, in a directory of its own.
struct Rig {
    control: Arc<WalControl>,
    probe: Arc<Probe>,
    vfs: Vfs,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new(lower: Lower) -> Rig {
        Rig::with(lower, WalControl::keeping_frames(u64::MAX))
    }

    fn with(lower: Lower, control: WalControl) -> Rig {
        let control = Arc::new(control);
        let probe = Arc::new(Probe::default());
        let storage = Probed { wal: Arc::clone(&control), probe: Arc::clone(&probe) };
        let vfs = Vfs::register(lower, Arc::new(storage)).unwrap();
        Rig { control, probe, vfs, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("test.db")
    }

    fn wal_file_bytes(&self) -> u64 {
        std::fs::metadata(self.directory.path().join("test.db-wal")).unwrap().len()
    }

    fn open_with(&self, uri_query: &str) -> Connection {
        let uri = format!("file:{}{uri_query}", self.path().display());
        let flags = OpenFlags::default();
        Connection::open_with_flags_and_vfs(uri, flags, self.vfs.name()).unwrap()
    }

    /// A connection in WAL mode, without checkpoints of its own or syncs.
    fn open(&self) -> Connection {
        let connection = self.open_with("");
        let pragmas = "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; \
                       PRAGMA synchronous=OFF; PRAGMA cache_spill=OFF;";
        connection.execute_batch(pragmas).unwrap();
        connection
    }

    fn open_with_table(&self) -> Connection {
        let connection = self.open();
        connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)").unwrap();
        connection
    }
}

fn insert(connection: &Connection, rows: i64) -> rusqlite::Result<()> {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
               INSERT INTO t(v) SELECT zeroblob(3000) FROM n";
    connection.execute(sql, [rows]).map(drop)
}

fn count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT count(v) FROM t", [], |row| row.get(0))
}

fn integrity(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))
}

fn code_of<T: std::fmt::Debug>(result: rusqlite::Result<T>) -> c_int {
    match result.unwrap_err() {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code,
        other => panic!("not an SQLite error: {other}"),
    }
}

/// Opens a copy of the files as they are now, as after a crash, with SQLite's own VFS.
fn after_crash(path: &Path) -> (Connection, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    for suffix in ["", "-wal"] {
        let from = PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::copy(from, format!("{}{suffix}", copy.display())).unwrap();
    }
    let connection =
        Connection::open_with_flags_and_vfs(copy, OpenFlags::default(), "unix").unwrap();
    connection.execute_batch("PRAGMA synchronous=OFF").unwrap();
    (connection, directory)
}

#[test]
fn a_large_commit_is_one_write_below_the_gather() {
    let rig = Rig::new(Lower::UnixExcl);
    let gathered = rig.open_with_table();
    let before = rig.probe.wal_writes.load(SeqCst);
    insert(&gathered, 900).unwrap();
    assert_eq!(rig.probe.wal_writes.load(SeqCst) - before, 1);
    assert!(rig.wal_file_bytes() > 900 * 4096);

    let plain = Rig::new(Lower::UnixExcl);
    plain.probe.ungathered.store(true, SeqCst);
    let ungathered = plain.open_with_table();
    let before = plain.probe.wal_writes.load(SeqCst);
    insert(&ungathered, 900).unwrap();
    assert!(plain.probe.wal_writes.load(SeqCst) - before > 1800);
    assert_eq!(plain.wal_file_bytes(), rig.wal_file_bytes());
}

#[test]
fn a_file_without_checksums_is_searched_for_some_once() {
    let rig = Rig::new(Lower::UnixExcl);
    let probed = Probed { wal: Arc::clone(&rig.control), probe: Arc::clone(&rig.probe) };
    let checksums = Arc::new(PageChecksums::new(ChecksumUse::Verify));
    let storage = Checksummed::new(Arc::new(probed), checksums);
    let rig = Rig { vfs: Vfs::register(Lower::UnixExcl, Arc::new(storage)).unwrap(), ..rig };
    let (writer, reader) = (rig.open_with_table(), rig.open());
    insert(&writer, 1).unwrap();
    writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    for _ in 0..5 {
        // The reader reads page 1 again after each, from the database file: it has not changed.
        writer.execute("UPDATE t SET v = zeroblob(3000)", []).unwrap();
        assert_eq!(count(&reader).unwrap(), 1);
    }
    assert_eq!(rig.probe.long_reads.load(SeqCst), 1);
}

#[test]
fn frames_written_a_moment_ago_are_read_without_the_file() {
    let rig = Rig::new(Lower::UnixExcl);
    let (writer, reader) = (rig.open_with_table(), rig.open());
    insert(&writer, 10).unwrap();
    let before = rig.probe.wal_reads.load(SeqCst);
    assert_eq!(count(&reader).unwrap(), 10);
    assert_eq!(rig.probe.wal_reads.load(SeqCst), before);

    // A load is not kept, nor does it take the place of what is.
    insert(&writer, 1_000).unwrap();
    assert_eq!(count(&reader).unwrap(), 1_010);
    assert!(rig.probe.wal_reads.load(SeqCst) > before + 900);

    // Where other processes write, nothing may be kept.
    let probed = Probed { wal: Arc::default(), probe: Arc::clone(&rig.probe) };
    let rig = Rig { vfs: Vfs::register(Lower::Unix, Arc::new(probed)).unwrap(), ..rig };
    drop((writer, reader));
    let (writer, reader) = (rig.open(), rig.open());
    insert(&writer, 10).unwrap();
    let before = rig.probe.wal_reads.load(SeqCst);
    assert_eq!(count(&reader).unwrap(), 1_020);
    assert!(rig.probe.wal_reads.load(SeqCst) > before);
}

#[test]
fn a_wal_that_grows_by_small_commits_is_made_longer_ahead_of_them() {
    for lower in [Lower::Unix, Lower::UnixExcl] {
        let rig = Rig::with(
            lower,
            WalControl::keeping_frames(u64::MAX).writing_ahead(&std::env::temp_dir()),
        );
        let connection = rig.open_with_table();
        let (mut sizes, commits) = (BTreeSet::new(), 200);
        for commit in 1..=commits {
            insert(&connection, 1).unwrap();
            let (copy, _directory) = after_crash(&rig.path());
            assert_eq!(count(&copy).unwrap(), commit);
            sizes.insert(rig.wal_file_bytes());
        }
        assert_eq!(integrity(&connection).unwrap(), "ok");
        let (used, last) = (rig.control.wal_bytes(), rig.wal_file_bytes());
        assert!(sizes.len() > 1 && sizes.len() <= commits as usize / 20, "{sizes:?}");
        assert!(used < last && used + (512 << 10) >= last, "{used} of {last} bytes are in use");
        assert_eq!(rig.control.wal_bytes_max(), used, "zeros are not in use");
        let wal = std::fs::read(rig.directory.path().join("test.db-wal")).unwrap();
        assert!(wal[used as usize..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn nothing_is_written_ahead_of_large_commits_or_beyond_the_limit() {
    let rig = Rig::with(
        Lower::UnixExcl,
        WalControl::keeping_frames(u64::MAX).writing_ahead(&std::env::temp_dir()),
    );
    let connection = rig.open_with_table();
    while rig.wal_file_bytes() > rig.control.wal_bytes() {
        insert(&connection, 40).unwrap();
    }
    insert(&connection, 40).unwrap();
    assert_eq!(rig.wal_file_bytes(), rig.control.wal_bytes());
    rig.control.set_limit_bytes(rig.control.wal_bytes() + 100_000);
    insert(&connection, 1).unwrap();
    assert_eq!(rig.wal_file_bytes(), rig.control.wal_bytes());
}

#[test]
fn nothing_is_written_ahead_where_the_room_is_not_known() {
    let nowhere = Path::new("/no/such/directory");
    let control = WalControl::keeping_frames(u64::MAX).writing_ahead(nowhere);
    let rig = Rig::with(Lower::UnixExcl, control);
    let connection = rig.open_with_table();
    for _ in 0..20 {
        insert(&connection, 1).unwrap();
        assert_eq!(rig.wal_file_bytes(), rig.control.wal_bytes());
    }
}

#[test]
fn zeros_for_which_there_is_no_room_fail_nothing() {
    let rig = Rig::with(
        Lower::UnixExcl,
        WalControl::keeping_frames(u64::MAX).writing_ahead(&std::env::temp_dir()),
    );
    let connection = rig.open_with_table();
    while rig.wal_file_bytes() > rig.control.wal_bytes() {
        insert(&connection, 40).unwrap();
    }
    // The one behind the commit's own.
    rig.probe.fail_wal_write(1, IoError::FULL);
    insert(&connection, 1).unwrap();
    assert_eq!(rig.wal_file_bytes(), rig.control.wal_bytes(), "what was written is given back");
    let (copy, _directory) = after_crash(&rig.path());
    assert_eq!(count(&copy).unwrap(), count(&connection).unwrap());
    assert_eq!(integrity(&copy).unwrap(), "ok");
    insert(&connection, 1).unwrap();
    assert!(rig.wal_file_bytes() > rig.control.wal_bytes());
}

#[test]
fn full_synchronous_syncs_what_was_gathered() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    connection.execute_batch("PRAGMA synchronous=FULL").unwrap();
    let before = rig.probe.wal_syncs.load(SeqCst);
    insert(&connection, 20).unwrap();
    assert_eq!(rig.probe.wal_syncs.load(SeqCst) - before, 1);
}

#[test]
fn exceeding_the_limit_is_full_and_leaves_no_trace() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    insert(&connection, 10).unwrap();
    let size = rig.wal_file_bytes();
    assert_eq!(rig.control.wal_bytes(), size);
    rig.control.set_limit_bytes(size + 100_000);

    assert_eq!(code_of(insert(&connection, 100)), ffi::SQLITE_FULL);
    assert!(connection.is_autocommit());
    assert_eq!(rig.control.take_limit_hit(), Some(LimitHit::NoRoomLeft));
    assert_eq!(rig.control.take_limit_hit(), None);
    assert_eq!(rig.wal_file_bytes(), size, "nothing of the commit was passed on");
    assert_eq!((rig.control.wal_bytes(), rig.control.wal_bytes_max()), (size, size));

    insert(&connection, 10).unwrap();
    assert_eq!(rig.control.take_limit_hit(), None);
    assert_eq!(count(&connection).unwrap(), 20);
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
    insert(&connection, 20).unwrap();
    assert!(rig.control.wal_bytes() < rig.control.wal_bytes_max());
    assert_eq!(integrity(&connection).unwrap(), "ok");
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert_eq!(rig.control.wal_bytes(), 0);
}

#[test]
fn the_limit_tells_a_transaction_that_never_fits_from_one_that_finds_no_room_now() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    rig.control.set_limit_bytes(300_000);
    insert(&connection, 40).unwrap();
    let full_with = |pages| {
        assert_eq!(code_of(insert(&connection, pages)), ffi::SQLITE_FULL);
        rig.control.take_limit_hit()
    };
    assert_eq!(full_with(60), Some(LimitHit::NoRoomLeft));
    connection.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
    assert_eq!(full_with(100), Some(LimitHit::TooLarge));
    assert_eq!(full_with(100), Some(LimitHit::TooLarge), "again, in the WAL that stayed empty");
    insert(&connection, 60).unwrap();
    assert_eq!(full_with(60), Some(LimitHit::NoRoomLeft));
    assert_eq!(count(&connection).unwrap(), 100);
}

#[test]
fn a_spilled_transaction_meets_the_limit_and_is_rolled_back() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    connection.execute_batch("PRAGMA cache_spill=ON; PRAGMA cache_size=10").unwrap();
    rig.control.set_limit_bytes(5 << 20);
    assert_eq!(code_of(insert(&connection, 2000)), ffi::SQLITE_FULL);
    assert!(connection.is_autocommit());
    assert_eq!(rig.control.take_limit_hit(), Some(LimitHit::NoRoomLeft));
    insert(&connection, 5).unwrap();
    assert_eq!(count(&connection).unwrap(), 5);
    let (copy, _directory) = after_crash(&rig.path());
    assert_eq!((count(&copy).unwrap(), integrity(&copy).unwrap()), (5, "ok".to_owned()));
}

#[test]
fn a_failed_flush_fails_the_commit_and_nobody_sees_part_of_it() {
    let full = Some(LimitHit::DiskFull);
    for (part, error, hit) in [
        (0, IoError::WRITE, None),
        (0, IoError::FULL, full),
        (1, IoError::FULL, full),
        (2, IoError::WRITE, None),
    ] {
        let rig = Rig::new(Lower::UnixExcl);
        let (writer, reader) = (rig.open_with_table(), rig.open());
        insert(&writer, 10).unwrap();
        let before = rig.wal_file_bytes();
        rig.probe.fail_wal_write(part, error);
        assert_eq!(code_of(insert(&writer, 3000)), error.code());
        assert!(writer.is_autocommit());
        assert_eq!(rig.control.take_limit_hit(), hit);
        if (part, error) == (0, IoError::FULL) {
            assert_eq!(rig.wal_file_bytes(), before, "others may need the room");
        }
        assert_eq!((count(&reader).unwrap(), count(&writer).unwrap()), (10, 10));
        insert(&writer, 10).unwrap();
        assert_eq!((count(&reader).unwrap(), count(&writer).unwrap()), (20, 20));
        let (copy, _directory) = after_crash(&rig.path());
        assert_eq!((count(&copy).unwrap(), integrity(&copy).unwrap()), (20, "ok".to_owned()));
    }
}

/// One connection's held frames must not reach the file after another one has committed there.
fn rolled_back_spill_then_foreign_commit() -> rusqlite::Result<String> {
    let rig = Rig::new(Lower::UnixExcl);
    let (first, second) = (rig.open_with_table(), rig.open());
    first.execute_batch("PRAGMA cache_spill=ON; PRAGMA cache_size=10; BEGIN")?;
    insert(&first, 60)?;
    first.execute_batch("ROLLBACK")?;
    second.execute_batch("CREATE TABLE u AS SELECT randomblob(200000) AS w")?;
    first.query_row("SELECT count(w) FROM u", [], |row| row.get::<_, i64>(0))?;
    let (copy, _directory) = after_crash(&rig.path());
    let rows: i64 = copy.query_row("SELECT count(w) FROM u", [], |row| row.get(0))?;
    assert_eq!(rows, 1);
    integrity(&copy)
}

#[test]
fn held_frames_are_dropped_when_the_write_lock_is_released() {
    assert_eq!(rolled_back_spill_then_foreign_commit().unwrap(), "ok");
}

/// Without locks nothing but the failed write itself can void the commit frame that was held.
#[test]
fn a_failed_commit_does_not_come_back_after_a_crash() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with("");
    let pragmas = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; \
                   PRAGMA wal_autocheckpoint=0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)";
    connection.execute_batch(pragmas).unwrap();
    rig.probe.fail_wal_write(0, IoError::WRITE);
    assert_eq!(code_of(insert(&connection, 10)), ffi::SQLITE_IOERR_WRITE);
    connection.execute_batch("PRAGMA wal_checkpoint").unwrap();
    assert_eq!(count(&connection).unwrap(), 0);
    assert_eq!(count(&after_crash(&rig.path()).0).unwrap(), 0);
}

#[test]
fn a_panic_becomes_an_io_error() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    insert(&connection, 10).unwrap();
    rig.probe.panic_in_wal_write.store(true, SeqCst);
    assert_eq!(code_of(insert(&connection, 10)), ffi::SQLITE_IOERR_WRITE);
    rig.probe.panic_in_wal_write.store(false, SeqCst);
    insert(&connection, 10).unwrap();
    assert_eq!(count(&connection).unwrap(), 20);

    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let reader = rig.open();
    rig.probe.panic_in_database_read.store(true, SeqCst);
    assert_eq!(code_of(count(&reader)), ffi::SQLITE_IOERR_READ);
    rig.probe.panic_in_database_read.store(false, SeqCst);
    assert_eq!(count(&reader).unwrap(), 20);
}

#[test]
fn a_refused_open_is_an_error_and_closes_the_file() {
    let rig = Rig::new(Lower::UnixExcl);
    *rig.probe.refuse_open.lock().unwrap() = Some(FileKind::Wal);
    let connection = rig.open_with("");
    connection.execute_batch("PRAGMA journal_mode=WAL").unwrap();
    assert_eq!(code_of(connection.execute_batch("CREATE TABLE t(v)")), ffi::SQLITE_CANTOPEN);
    *rig.probe.refuse_open.lock().unwrap() = None;
    drop(connection);
    assert_eq!(rig.probe.live_files.load(SeqCst), 0);
    insert(&rig.open_with_table(), 1).unwrap();
}

#[test]
fn every_kind_of_file_passes_through_the_storage() {
    let rig = Rig::new(Lower::Unix);
    let connection = rig.open_with("");
    connection.execute_batch("PRAGMA temp_store=FILE; CREATE TABLE t(id, v)").unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; PRAGMA cache_size=10").unwrap();
    insert(&connection, 1000).unwrap();
    let sql = "PRAGMA cache_size=10; CREATE TEMP TABLE s AS SELECT randomblob(3000) FROM t; \
               CREATE INDEX i ON t(v)";
    connection.execute_batch(sql).unwrap();
    let kinds = rig.probe.opened.lock().unwrap().clone();
    for kind in [FileKind::Database, FileKind::Wal, FileKind::Journal, FileKind::Temp] {
        assert!(kinds.contains_key(&kind), "{kind:?} in {kinds:?}");
    }
    assert!(rig.probe.shm_locks.load(SeqCst) > 0);
    drop(connection);
    assert_eq!(rig.probe.live_files.load(SeqCst), 0);
    let deleted = rig.probe.deleted.lock().unwrap();
    assert!(deleted.iter().any(|path| path.to_string_lossy().ends_with("-wal")), "{deleted:?}");
}

#[test]
fn shared_memory_is_offered_only_where_the_lower_file_has_it() {
    let rig = Rig::new(Lower::Unix);
    let connection = rig.open_with("?nolock=1");
    let mode = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get::<_, String>(0));
    assert_eq!(mode.unwrap(), "delete");
}

#[test]
fn memory_mapping_is_refused() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    insert(&connection, 100).unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let reader = rig.open();
    reader.execute_batch("PRAGMA mmap_size=268435456").unwrap();
    assert_eq!(count(&reader).unwrap(), 100);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().any(|line| line.ends_with(rig.path().to_str().unwrap()));
    assert!(!mapped);
}

#[test]
fn sync_database_syncs_the_main_file_only() {
    let rig = Rig::new(Lower::UnixExcl);
    let connection = rig.open_with_table();
    let before = rig.probe.database_syncs.load(SeqCst);
    sync_database(&connection).unwrap();
    assert_eq!(rig.probe.database_syncs.load(SeqCst) - before, 1);
    sync_database(&Connection::open_in_memory().unwrap()).unwrap();

    // And for real, over the production storage.
    let direct = Vfs::register(Lower::Unix, Arc::new(Direct::new(Arc::default()))).unwrap();
    let path = rig.directory.path().join("other.db");
    let flags = OpenFlags::default();
    let connection = Connection::open_with_flags_and_vfs(path, flags, direct.name()).unwrap();
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(v)").unwrap();
    sync_database(&connection).unwrap();
}

#[test]
fn a_dropped_vfs_opens_nothing_more_and_its_connections_go_on() {
    let rig = Rig::new(Lower::Unix);
    let connection = rig.open_with_table();
    let Rig { vfs, directory, .. } = rig;
    let name = vfs.name().to_owned();
    drop(vfs);
    insert(&connection, 10).unwrap();
    assert_eq!(count(&connection).unwrap(), 10);
    let sql = "PRAGMA temp_store=FILE; CREATE TEMP TABLE s AS SELECT randomblob(9000000)";
    assert_eq!(code_of(connection.execute_batch(sql)), ffi::SQLITE_CANTOPEN);
    let path = directory.path().join("test.db");
    assert!(Connection::open_with_flags_and_vfs(path, OpenFlags::default(), &*name).is_err());
}

#[test]
fn names_differ_and_registering_many_times_leaks_nothing() {
    let first = Rig::new(Lower::Unix);
    let names: Vec<String> = (0..100)
        .map(|_| {
            let other = Rig::new(Lower::Unix);
            assert_ne!(other.vfs.name(), first.vfs.name());
            other.open_with_table();
            other.vfs.name().to_owned()
        })
        .collect();
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert!(distinct.len() < 60, "slots are used again, also while other tests take some");
}

#[test]
#[ignore = "long: the gate runs it"]
fn random_transactions_agree_with_the_model() {
    for seed in (0..60).chain([149]) {
        model::run(seed).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}
