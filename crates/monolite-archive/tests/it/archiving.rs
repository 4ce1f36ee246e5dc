//! A database that is open, and what its archive has of it: after a close, a kill, an outage, and
//! when somebody else has the archive.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Durability, ErrorKind, Options, rusqlite};
use monolite_archive::{
    Archive, DirectoryStore, ErrorKind as Kind, Layout, State, Target,
    internals::{
        Adopted, Call, Fault, FaultyStore, Level, Pace, Present, adopt, leader, restore, verify,
    },
};
use tempfile::TempDir;

use crate::archive::{TestPace, compact_level};

/// A database and its archive, each in a directory of its own.
pub(crate) struct Bench {
    pub(crate) directory: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("db/ledger.db")
    }

    pub(crate) fn url(&self) -> String {
        self.directory.path().join("archive").to_str().unwrap().to_owned()
    }

    pub(crate) fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.directory.path().join("archive"))
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive::at(&self.url()).unwrap().interval(Duration::from_millis(5))
    }

    /// One whose store can be away.
    pub(crate) fn archive_that_goes_away(&self) -> (Archive, Arc<AtomicBool>) {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let decide = move |_: Call<'_>| {
            if away.load(Ordering::Relaxed) { Fault::LostRequest } else { Fault::None }
        };
        let store = Arc::new(FaultyStore::new(self.store(), decide));
        let archive = Archive::of(store, Layout::directory()).interval(Duration::from_millis(5));
        (archive, is_away)
    }

    pub(crate) fn open(&self, durability: Durability) -> monolite::Result<Database> {
        self.open_with(self.archive(), durability)
    }

    pub(crate) fn open_with(
        &self,
        archive: Archive,
        durability: Durability,
    ) -> monolite::Result<Database> {
        fs::create_dir_all(self.file().parent().unwrap()).unwrap();
        // A store that fails one request in four can take long to get through a copy.
        let patience = Duration::from_secs(300);
        let options = Options::new().readers(1).wal_limit_bytes(8 << 20);
        options.archive(archive.time_limit(patience)).durability(durability).open(self.file())
    }

    /// What the archive has, in a new file.
    pub(crate) fn restored(&self) -> PathBuf {
        let output = self.directory.path().join(format!("restored-{}", fastrand::u64(..)));
        let layout = Layout::directory();
        restore(&self.store(), &layout, Target::Latest, &output).unwrap();
        output
    }

    fn is_whole(&self) {
        let proof = verify(&self.store(), &Layout::directory(), &mut |_| {}).unwrap();
        assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    }

    /// Whether the closed file and what is restored are the same, byte by byte.
    pub(crate) fn is_the_same(&self) {
        let (file, restored) = (fs::read(self.file()).unwrap(), fs::read(self.restored()).unwrap());
        let differing = |at: &usize| file.get(*at) != restored.get(*at);
        let first: Vec<_> = (0..file.len()).filter(differing).take(20).collect();
        assert!(file == restored, "{} and {} bytes: {first:?}", file.len(), restored.len());
        self.is_whole();
    }
}

pub(crate) fn create(db: &Database) {
    let sql = "CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE INDEX i ON t(v)";
    db.write(|tx| tx.execute_batch(sql)).wait().unwrap();
}

pub(crate) fn insert(db: &Database, bytes: u32) -> monolite::Result<usize> {
    let sql = "INSERT INTO t(v) VALUES (randomblob(?1))";
    db.write(move |tx| tx.execute(sql, [bytes])).wait()
}

/// Inserts so many rows of 20 kB, each in the table and in the index: the WAL begins anew about
/// every 200.
pub(crate) fn insert_many(db: &Database, rows: u32) {
    for _ in (0..rows).step_by(50) {
        let sql = "INSERT INTO t(v) VALUES (randomblob(20000))";
        let writes: Vec<_> = (0..50).map(|_| db.write(move |tx| tx.execute(sql, ()))).collect();
        writes.into_iter().for_each(|write| assert_eq!(write.wait().unwrap(), 1));
    }
}

pub(crate) fn count(path: &Path) -> i64 {
    let db = rusqlite::Connection::open(path).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let has_table = "SELECT count(*) FROM sqlite_schema WHERE name = 't'";
    if db.query_row(has_table, (), |row| row.get::<_, i64>(0)).unwrap() == 0 {
        return 0;
    }
    db.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap()
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it takes too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// An interval for each would take longer than the test waits.
#[test]
fn what_had_no_room_in_a_group_is_archived_behind_it_at_once() {
    let bench = Bench::new();
    let archive = bench.archive().interval(Duration::from_secs(2)).slot_bytes(64 << 10, 256 << 20);
    fs::create_dir_all(bench.file().parent().unwrap()).unwrap();
    let db = Options::new().archive(archive).open(bench.file()).unwrap();
    create(&db);
    for _ in 0..30 {
        insert(&db, 64 << 10).unwrap();
    }
    let token = db.archive_token().unwrap();
    let archived = || db.stats().archive.unwrap();
    wait_until("all is archived", || archived().lag_ms == 0 && archived().txid > 30);
    assert!(archived().txid <= token.txid);
    db.close().unwrap();
}

#[test]
fn what_was_closed_is_restored_byte_by_byte() {
    let bench = Bench::new();
    for round in 0..4 {
        let db = bench.open(Durability::Synced).unwrap();
        if round == 0 {
            create(&db);
        }
        for _ in 0..50 {
            insert(&db, 2_000).unwrap();
        }
        // A file that gets shorter, too.
        db.write(|tx| tx.execute("DELETE FROM t WHERE id % 3 = 0", ())).wait().unwrap();
        db.vacuum().wait().unwrap();
        let snapshots = || fs::read_dir(bench.directory.path().join("archive/ltx/9")).unwrap();
        db.close().unwrap();
        bench.is_the_same();
        assert_eq!(snapshots().count(), 1, "it went on where it was: round {round}");
        assert!(!fs::exists(bench.directory.path().join("db/ledger.db-wal")).unwrap());
    }
}

#[test]
fn what_was_acknowledged_as_archived_is_restored_at_once() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for expected in 1..=20 {
        insert(&db, 3_000).unwrap();
        assert_eq!(count(&bench.restored()), expected);
    }
    let stats = db.stats().archive.unwrap();
    assert!(stats.txid > 20 && stats.epoch == 1 && stats.is_restorable, "{stats:?}");
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
#[ignore = "long: the gate runs it"]
fn while_the_store_is_away_writes_go_on_and_nothing_is_missing_afterwards() {
    let bench = Bench::new();
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.close_time(Duration::from_millis(200));
    let db = bench.open_with(archive.clone(), Durability::Synced).unwrap();
    create(&db);
    wait_until("it can be restored", || db.stats().archive.unwrap().is_restorable);
    is_away.store(true, Ordering::Relaxed);
    insert_many(&db, 800);
    let stats = db.stats().archive.unwrap();
    assert!(stats.staged_bytes > 8 << 20, "the WAL has begun anew: {stats:?}");
    assert!(stats.lag_ms > 0 && stats.failed_requests > 0 && stats.last_error.is_some());
    is_away.store(false, Ordering::Relaxed);
    wait_until("it has caught up", || db.stats().archive.unwrap().lag_ms == 0);
    assert_eq!(db.stats().archive.unwrap().staged_bytes, 0);
    assert_eq!(count(&bench.restored()), 800);
    is_away.store(true, Ordering::Relaxed);
    insert(&db, 10).unwrap();
    db.close().unwrap();
    assert!(count(&bench.restored()) == 800, "the store was away");
    is_away.store(false, Ordering::Relaxed);
    let db = bench.open_with(archive, Durability::Synced).unwrap();
    wait_until("it has what was left", || count(&bench.restored()) == 801);
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn more_than_may_be_staged_is_given_up_for_a_copy() {
    let bench = Bench::new();
    let (archive, is_away) = bench.archive_that_goes_away();
    let db = bench.open_with(archive.staged_limit_bytes(1 << 20), Durability::Synced).unwrap();
    create(&db);
    wait_until("it can be restored", || db.stats().archive.unwrap().is_restorable);
    is_away.store(true, Ordering::Relaxed);
    insert_many(&db, 400);
    assert!(db.stats().archive.unwrap().staged_bytes <= 1 << 20);
    is_away.store(false, Ordering::Relaxed);
    wait_until("it is copied", || count(&bench.restored()) == 400);
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn where_gaps_are_refused_writes_are_until_the_store_is_back() {
    let bench = Bench::new();
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.staged_limit_bytes(1 << 20).refuse_gaps(true);
    let db = bench.open_with(archive, Durability::Synced).unwrap();
    create(&db);
    wait_until("it has all", || {
        let stats = db.stats().archive.unwrap();
        stats.copies_because.is_none() && stats.lag_ms == 0
    });
    is_away.store(true, Ordering::Relaxed);
    let mut written = 0;
    let refused = loop {
        match insert(&db, 20_000) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 5_000, "it keeps more than it may");
    };
    assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    assert!(db.stats().archive.unwrap().copies_because.is_none());
    is_away.store(false, Ordering::Relaxed);
    wait_until("it goes on", || insert(&db, 10).is_ok());
    db.close().unwrap();
    bench.is_the_same();
    assert_eq!(count(&bench.restored()), written + 1);
}

/// A proxy in between says such things of what it does not find, or cannot do just now.
#[test]
fn refusal_of_a_slot_that_is_no_other_primarys_is_tried_again() {
    for kind in [Kind::NotFound, Kind::Unsupported, Kind::Denied] {
        let (bench, refuses) = (Bench::new(), Arc::new(AtomicBool::new(false)));
        let refused = Arc::clone(&refuses);
        let store = FaultyStore::new(bench.store(), move |call| match call {
            Call::Create(_) | Call::Swap(_) if refused.load(Ordering::SeqCst) => {
                Fault::Refused(kind)
            }
            _ => Fault::None,
        });
        let archive = Archive::of(Arc::new(store), Layout::directory());
        let archive = archive.interval(Duration::from_millis(5));
        let db = bench.open_with(archive, Durability::Archived).unwrap();
        create(&db);
        refuses.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let written = scope.spawn(|| insert(&db, 100));
            let is_told = |told: String| told.contains("refused");
            let last_error = || db.stats().archive.unwrap().last_error;
            wait_until("it is told", || last_error().is_some_and(is_told));
            refuses.store(false, Ordering::SeqCst);
            assert_eq!(written.join().unwrap().unwrap(), 1, "{kind:?}");
        });
        db.close().unwrap();
        bench.is_the_same();
    }
}

/// A database whose archive refuses gaps, and next to nothing beside itself; its store is away.
fn open_where_gaps_are_refused(bench: &Bench) -> (Database, Arc<AtomicBool>) {
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.staged_limit_bytes(1 << 20).refuse_gaps(true);
    let archive = archive.close_time(Duration::ZERO).opening_wait(Duration::from_secs(1));
    let db = bench.open_with(archive, Durability::Synced).unwrap();
    (db, is_away)
}

/// The same with as much in its WAL as may not be kept beside it.
fn written_while_the_store_is_away(bench: &Bench) -> (Database, Arc<AtomicBool>) {
    let (db, is_away) = open_where_gaps_are_refused(bench);
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    is_away.store(true, Ordering::Relaxed);
    for _ in 0..15 {
        insert(&db, 100_000).unwrap();
    }
    (db, is_away)
}

fn refused(db: &Database) -> (i64, monolite::Error) {
    let mut written = 0;
    loop {
        match insert(db, 100_000) {
            Ok(_) => written += 1,
            Err(error) => return (written, error),
        }
        assert!(written < 5_000, "it keeps more than it may");
    }
}

#[test]
fn where_gaps_are_refused_an_outage_has_the_room_of_the_wal_besides() {
    let bench = Bench::new();
    let (db, is_away) = written_while_the_store_is_away(&bench);
    // It has more than may be kept beside the database, so it stays as it is.
    let checkpointed = db.checkpoint().wait().unwrap();
    assert!(!checkpointed.restarts, "{checkpointed:?}");
    assert_eq!(checkpointed.pages_left, 0);
    let since = Instant::now();
    let (written, error) = refused(&db);
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    assert!(error.to_string().contains("archived"), "{error}");
    // Each is in the table and in the index, and an eighth of the WAL is for one batch.
    assert!(written >= 15, "{written} are all that the WAL has room for");
    assert!(since.elapsed() < Duration::from_secs(4), "nothing is waited for that does not come");
    assert!(db.stats().archive.unwrap().staged_bytes <= 1 << 20);
    is_away.store(false, Ordering::Relaxed);
    wait_until("it goes on", || insert(&db, 10).is_ok());
    db.read_archived(|_| Ok(())).wait().unwrap();
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn a_close_beside_a_store_that_is_away_does_not_speak_of_a_full_disk() {
    let bench = Bench::new();
    let (db, is_away) = written_while_the_store_is_away(&bench);
    let error = db.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    assert!(error.to_string().contains("the archive lacks commits of it"), "{error}");
    is_away.store(false, Ordering::Relaxed);
    let (db, _) = open_where_gaps_are_refused(&bench);
    db.read_archived(|_| Ok(())).wait().unwrap();
    db.close().unwrap();
    assert_eq!(count(&bench.restored()), 15);
    bench.is_the_same();
}

/// Each opening empties the WAL that it finds, and may have to keep all of it.
#[test]
fn openings_beside_a_store_that_is_away_keep_one_wal_at_most_besides() {
    let bench = Bench::new();
    let (db, _) = open_where_gaps_are_refused(&bench);
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    db.close().unwrap();
    let mut written = 0;
    for opening in 0..3 {
        let (archive, is_away) = bench.archive_that_goes_away();
        is_away.store(true, Ordering::Relaxed);
        let archive = archive.staged_limit_bytes(1 << 20).refuse_gaps(true);
        let archive = archive.close_time(Duration::ZERO).opening_wait(Duration::ZERO);
        let db = bench.open_with(archive, Durability::Synced).unwrap();
        let (more, error) = refused(&db);
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
        assert_eq!(more > 0, opening == 0, "{more} in opening {opening}");
        written += more;
        let staged = db.stats().archive.unwrap().staged_bytes;
        assert!(staged <= (1 << 20) + (8 << 20), "{staged} bytes");
        // Where nothing was written the WAL is empty.
        assert_eq!(db.close().is_ok(), opening > 0);
    }
    let (db, _) = open_where_gaps_are_refused(&bench);
    db.read_archived(|_| Ok(())).wait().unwrap();
    db.close().unwrap();
    assert_eq!(count(&bench.restored()), written);
    bench.is_the_same();
}

#[test]
fn a_second_file_and_a_stale_one_are_refused_and_may_take_over() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    // Another database in the same archive.
    let other = bench.directory.path().join("other.db");
    let refused = Options::new().archive(bench.archive()).open(&other).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(refused.to_string().contains("another database"), "{refused}");
    db.close().unwrap();
    // The machine goes back to what it was; the archive does not.
    let before = bench.directory.path().join("before");
    fs::create_dir(&before).unwrap();
    copy_files(bench.file().parent().unwrap(), &before);
    let db = bench.open(Durability::Archived).unwrap();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    fs::remove_dir_all(bench.file().parent().unwrap()).unwrap();
    fs::create_dir(bench.file().parent().unwrap()).unwrap();
    copy_files(&before, bench.file().parent().unwrap());
    let refused = bench.open(Durability::Archived).map(drop);
    if let Err(refused) = refused {
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    }
    let db = bench.open_with(bench.archive().take_over(true), Durability::Archived).unwrap();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
}

/// As after a close that was not clean, and as the guide says.
#[test]
fn older_state_in_place_of_the_file_is_refused_after_a_clean_close() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    let older = bench.directory.path().join("older.db");
    db.backup(&older).wait().unwrap();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    let newest = bench.directory.path().join("newest.db");
    fs::rename(bench.file(), &newest).unwrap();
    fs::rename(&older, bench.file()).unwrap();
    let refused = bench.open(Durability::Archived).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert!(refused.to_string().contains("Archive::take_over"), "{refused}");
    assert_eq!(count(&bench.restored()), 2, "what was acknowledged is there");
    // Both remedies help.
    fs::rename(bench.file(), &older).unwrap();
    fs::rename(&newest, bench.file()).unwrap();
    bench.open(Durability::Archived).unwrap().close().unwrap();
    fs::rename(&older, bench.file()).unwrap();
    let db = bench.open_with(bench.archive().take_over(true), Durability::Archived).unwrap();
    db.close().unwrap();
    assert_eq!(count(&bench.restored()), 1);
    bench.is_the_same();
    // It is the one that is archived from now on, and so is a copy of file and directory.
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let moved = bench.directory.path().join("moved");
    fs::create_dir(&moved).unwrap();
    copy_files(bench.file().parent().unwrap(), &moved);
    let options = Options::new().archive(bench.archive()).durability(Durability::Archived);
    options.open(moved.join("ledger.db")).unwrap().close().unwrap();
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn who_was_fenced_acknowledges_nothing_more() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    // The archive is restored elsewhere, and goes on there.
    let restored = bench.restored();
    let archive = bench.archive().take_over(true);
    let options = Options::new().archive(archive).durability(Durability::Archived);
    let new = options.open(&restored).unwrap();
    new.write(|tx| tx.execute("INSERT INTO t(v) VALUES (x'22')", ())).wait().unwrap();
    let refused = insert(&db, 10).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(insert(&db, 10).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Fenced);
    new.close().unwrap();
    assert_eq!(count(&bench.restored()), 2);
    let refused = bench.open(Durability::Archived).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
}

#[test]
fn copy_that_nothing_was_written_behind_is_gone_on_with() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    db.close().unwrap();
    let other = rusqlite::Connection::open(bench.file()).unwrap();
    other.execute("INSERT INTO t(v) VALUES (x'00')", ()).unwrap();
    drop(other);
    for _ in 0..2 {
        let db = bench.open(Durability::Archived).unwrap();
        wait_until("it is copied", || db.stats().archive.unwrap().copies_because.is_none());
        db.close().unwrap();
    }
    bench.is_the_same();
    assert_eq!(count(&bench.restored()), 2);
}

/// As a machine's image that is started twice.
#[test]
fn cloned_directory_is_refused_beside_the_original_and_after_it() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    let clone = bench.directory.path().join("clone");
    fs::create_dir(&clone).unwrap();
    copy_files(bench.file().parent().unwrap(), &clone);
    let refused = || {
        let options = Options::new().archive(bench.archive()).durability(Durability::Archived);
        let refused = options.open(clone.join("ledger.db")).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    };
    refused();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    refused();
    bench.is_the_same();
    assert_eq!(count(&bench.restored()), 2);
}

/// Descriptors of this process that lead into the bench.
fn descriptors(bench: &Bench) -> Vec<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let paths = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(bench.directory.path())).collect()
}

#[test]
fn closed_database_leaves_no_descriptor() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    assert!(!descriptors(&bench).is_empty());
    db.close().unwrap();
    drop(db);
    wait_until("all is closed", || descriptors(&bench).is_empty());
}

/// Real time, of which there is so much.
struct Within(Instant, Duration);

impl Pace for Within {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&mut self, until: Duration) -> bool {
        thread::sleep(until.saturating_sub(self.now()));
        self.now() < self.1
    }
}

#[test]
fn primary_that_fills_one_slot_behind_the_other_is_fenced_all_the_same() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let write = || insert(&db, 10).err();
                scope.spawn(move || std::iter::repeat_with(write).flatten().next().unwrap())
            })
            .collect();
        wait_until("it is busy", || db.stats().archive.unwrap().txid > 20);
        let mut pace = Within(Instant::now(), Duration::from_secs(30));
        let (store, layout) = (bench.store(), Layout::directory());
        let adopted = adopt(&store, &layout, Present::TakeOver, None, &mut pace).unwrap();
        // Should it not be fenced, its clients have an end all the same.
        let closed = db.close();
        assert!(adopted.is_some(), "it is not fenced within 30 s");
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::Fenced);
        for client in clients {
            let kind = client.join().unwrap().kind();
            // What comes while it is being closed; and what meets the fence before the record lists
            // it, as on a busy machine.
            let is_told =
                matches!(kind, ErrorKind::Fenced | ErrorKind::Closed | ErrorKind::CommitUnknown);
            assert!(is_told, "{kind:?}");
        }
    });
}

/// Where the child of a test works.
const CHILD: &str = "MONOLITE_ARCHIVING_CHILD";

/// No test: what is run in a process of its own, to be killed.
#[test]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else { return };
    let (directory, url) = (PathBuf::from(&directory), format!("{directory}/archive"));
    let archive = Archive::at(&url).unwrap().interval(Duration::from_millis(2));
    // It keeps nothing beside the database: the next opening would remove that, and have room for
    // the WAL, and then no copy is due.
    let archive = archive.staged_limit_bytes(0);
    let options = Options::new().readers(1).wal_limit_bytes(8 << 20);
    let options = options.archive(archive).durability(Durability::Archived);
    let db = options.open(directory.join("db/ledger.db")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)"))
        .wait()
        .unwrap();
    let mut out = std::io::stdout();
    loop {
        let writes: Vec<_> = (0..fastrand::u32(1..30))
            .map(|_| {
                let bytes = fastrand::u32(10..30_000);
                let sql = "INSERT INTO t(v) VALUES (randomblob(?1)) RETURNING id";
                db.write(move |tx| tx.query_row(sql, [bytes], |row| row.get::<_, i64>(0)))
            })
            .collect();
        for write in writes {
            writeln!(out, "acknowledged {}", write.wait().unwrap()).unwrap();
        }
    }
}

/// Runs the child and kills it when its WAL has so many bytes; the last row that it was told of.
fn run_and_kill(directory: &Path, wal_bytes: u64) -> i64 {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "archiving::child", "--nocapture"]).env(CHILD, directory);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        let number = |line: &str| line.strip_prefix("acknowledged ")?.parse::<i64>().ok();
        output.lines().map_while(Result::ok).filter_map(|line| number(&line)).last()
    });
    let wal = directory.join("db/ledger.db-wal");
    wait_until("the WAL is as long", || wal.metadata().is_ok_and(|it| it.len() >= wal_bytes));
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "it ended by itself");
    reader.join().unwrap().unwrap_or(0)
}

/// A file system in memory at `path`, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Option<SmallDisk> {
        fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256m", "tmpfs"]).arg(path);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        is_mounted.then(|| SmallDisk(path.to_owned()))
    }

    /// Leaves no byte of it.
    fn fill(&self) {
        let mut ballast = fs::File::create(self.0.join("ballast")).unwrap();
        for size in [1 << 20, 4_096, 1] {
            while ballast.write_all(&vec![7; size]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn database_killed_on_a_full_disk_opens_and_is_copied_once_there_is_room() {
    let test = "database_killed_on_a_full_disk_opens_and_is_copied_once_there_is_room";
    for is_closed in [false, true] {
        let bench = Bench::new();
        let Some(disk) = SmallDisk::mount(bench.file().parent().unwrap()) else {
            return crate::programs::skip(test, "no small tmpfs can be mounted");
        };
        // No copy is due when the WAL is so short that it fits.
        let acknowledged = run_and_kill(bench.directory.path(), 1 << 20);
        let copies = || fs::read_dir(bench.directory.path().join("archive/ltx/9")).unwrap().count();
        let before = copies();
        disk.fill();
        let position = bench.file().with_file_name("ledger.db-archive/position.json.new");
        std::os::unix::fs::symlink("/dev/full", &position).unwrap();
        let archive = || bench.archive().opening_wait(Duration::ZERO).close_time(Duration::ZERO);
        let refused = bench.open_with(archive().refuse_gaps(true), Durability::Synced);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Storage, "where gaps are refused");
        let db = bench.open_with(archive(), Durability::Synced).unwrap();
        let sql = "SELECT count(*) FROM t";
        let rows: i64 = db.read(move |tx| tx.query_row(sql, (), |row| row.get(0))).wait().unwrap();
        assert!(rows >= acknowledged, "{rows} of {acknowledged}");
        assert!(db.stats().archive.unwrap().copies_because.is_some());
        let there_is_room = || {
            fs::remove_file(disk.0.join("ballast")).unwrap();
            fs::remove_file(&position).unwrap();
        };
        let db = if is_closed {
            // Nothing could be recorded: the next opening knows of the killed process alone.
            let _ = db.close();
            there_is_room();
            bench.open_with(archive(), Durability::Synced).unwrap()
        } else {
            there_is_room();
            db
        };
        wait_until("it is copied", || {
            let stats = db.stats().archive.unwrap();
            stats.copies_because.is_none() && stats.is_restorable
        });
        insert(&db, 10).unwrap();
        db.read_archived(|_| Ok(())).wait().unwrap();
        db.close().unwrap();
        bench.is_the_same();
        assert_eq!(count(&bench.restored()), rows + 1);
        assert!(copies() > before, "it was copied");
    }
}

/// Requests that fail in every way, one in so many.
fn failing(one_in: u32, is_on: &Arc<AtomicBool>) -> impl FnMut(Call<'_>) -> Fault + Send + 'static {
    let is_on = Arc::clone(is_on);
    move |_| {
        if !is_on.load(Ordering::Relaxed) || fastrand::u32(0..one_in) > 0 {
            return Fault::None;
        }
        let faults = [Fault::Conflict, Fault::Busy, Fault::LostRequest, Fault::LostAnswer];
        faults[fastrand::usize(0..faults.len())]
    }
}

#[test]
#[ignore = "long: the gate runs it"]
fn whatever_a_database_goes_through_its_archive_is_the_same() {
    let rounds = crate::schedules::number("MONOLITE_LIVES").unwrap_or(12);
    let seed = crate::schedules::number("MONOLITE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("MONOLITE_SEED={seed}");
    fastrand::seed(seed);
    let bench = Bench::new();
    let fails = Arc::new(AtomicBool::new(false));
    let mut rows = 0_i64;
    for round in 0..rounds {
        let store = Arc::new(FaultyStore::new(bench.store(), failing(4, &fails)));
        let archive = Archive::of(store, Layout::directory());
        let interval = Duration::from_millis(fastrand::u64(0..30));
        let archive = archive.interval(interval).close_time(Duration::from_secs(60));
        let archive = archive.staged_limit_bytes([u64::MAX, 4 << 20][fastrand::usize(0..2)]);
        let durability = [Durability::Synced, Durability::Archived][fastrand::usize(0..2)];
        fails.store(fastrand::bool(), Ordering::Relaxed);
        let db = bench.open_with(archive, durability).unwrap();
        if round == 0 {
            create(&db);
        }
        for _ in 0..fastrand::u32(1..15) {
            match fastrand::u32(0..8) {
                0 => drop(db.checkpoint().wait().unwrap()),
                // Not when the content does not fit in this WAL.
                1 => drop(db.vacuum().wait()),
                2 => {
                    let sql = "DELETE FROM t WHERE id % 3 = 1";
                    let gone = db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
                    rows -= gone as i64;
                }
                3 => thread::sleep(Duration::from_millis(fastrand::u64(0..60))),
                4 => {
                    // Its commit fails when its frames are written, now and then.
                    let sql = "INSERT INTO t(id, v) VALUES (1, x''), (1, x'')";
                    assert!(db.write(move |tx| tx.execute(sql, ())).wait().is_err());
                }
                _ => {
                    let (writes, bytes) = (fastrand::u32(1..30), fastrand::u32(1..30_000));
                    let insert = |_| {
                        let sql = "INSERT INTO t(v) VALUES (randomblob(?1))";
                        db.write(move |tx| tx.execute(sql, [bytes]))
                    };
                    let written: Vec<_> = (0..writes).map(insert).collect();
                    for write in written {
                        rows += write.wait().unwrap() as i64;
                    }
                }
            }
        }
        if fastrand::bool() {
            let scratch = bench.directory.path().join("backup");
            db.backup(&scratch).wait().unwrap();
            fs::remove_file(scratch).unwrap();
        }
        fails.store(false, Ordering::Relaxed);
        wait_until("nothing is to be copied", || {
            db.stats().archive.unwrap().copies_because.is_none()
        });
        db.close().unwrap();
        bench.is_the_same();
        assert_eq!(count(&bench.file()), rows, "round {round}");
        if fastrand::u32(0..4) == 0 {
            // Another program, which the archive does not see.
            let other = rusqlite::Connection::open(bench.file()).unwrap();
            rows += other.execute("INSERT INTO t(v) VALUES (x'00')", ()).unwrap() as i64;
        }
    }
}

#[test]
fn what_is_merged_does_not_undo_what_a_copy_has() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    // A level that has begun goes on with what is before the copy.
    let (store, layout) = (bench.store(), Layout::directory());
    compact_level(&store, &layout, Level::FIRST, None).unwrap().unwrap();
    insert(&db, 3_000).unwrap();
    db.close().unwrap();
    let other = rusqlite::Connection::open(bench.file()).unwrap();
    other.execute("UPDATE t SET v = x'00'", ()).unwrap();
    drop(other);
    // A copy closes the gap, and slots follow that have other pages.
    let db = bench.open(Durability::Archived).unwrap();
    let sql = "CREATE TABLE u(id INTEGER PRIMARY KEY)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    db.close().unwrap();
    for level in [Level::FIRST, Level::new(2).unwrap()] {
        while compact_level(&store, &layout, level, None).unwrap().is_some() {}
        bench.is_the_same();
    }
}

/// Takes the archive of a bench over.
fn adopted(
    bench: &Bench,
    present: Present,
    database: Option<&Path>,
) -> monolite_archive::Result<Adopted> {
    let mut pace = TestPace::default();
    let adopted = adopt(&bench.store(), &Layout::directory(), present, database, &mut pace);
    adopted.map(|adopted| adopted.expect("the clock never ends"))
}

#[test]
fn adopted_archive_goes_on_with_what_was_restored() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 100).unwrap();
    // Its primary is there.
    let refused = adopted(&bench, Present::Refuse, None).unwrap_err();
    assert_eq!(refused.kind(), Kind::Fenced);
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    assert_eq!(insert(&db, 100).unwrap(), 1);
    // The machine is gone, they say.
    let restored = bench.restored();
    let record = leader(&bench.store(), &Layout::directory()).unwrap().unwrap();
    let made = adopted(&bench, Present::TakeOver, Some(&restored)).unwrap();
    assert_eq!((made.record.lineage, made.record.state), (record.lineage, State::Released));
    assert_eq!((made.record.epoch.0, made.before), (record.epoch.0 + 1, Some(record)));
    assert_eq!(insert(&db, 100).unwrap_err().kind(), ErrorKind::Fenced);
    let _ = db.close();
    // The same program on the new machine, which says nothing of a takeover.
    let options = || Options::new().archive(bench.archive()).durability(Durability::Archived);
    let db = options().open(&restored).unwrap();
    assert_eq!(insert(&db, 100).unwrap(), 1);
    db.close().unwrap();
    assert_eq!(count(&bench.restored()), 3);
    bench.is_whole();
    let stale = options().open(bench.file());
    assert_eq!(stale.map(drop).unwrap_err().kind(), ErrorKind::Fenced);
}

#[test]
fn released_archive_is_adopted_and_its_file_goes_on_no_more() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    db.close().unwrap();
    let made = adopted(&bench, Present::Refuse, None).unwrap();
    assert_eq!(made.record.state, State::Released);
    let again = adopted(&bench, Present::Refuse, None).unwrap();
    assert_eq!(again.record.epoch.0, made.record.epoch.0 + 1);
    assert!(again.fence > made.fence);
    bench.is_whole();
    assert_eq!(count(&bench.restored()), 0);
    // It may have been started again, by whatever starts it when a machine comes back.
    let stale = bench.open(Durability::Archived).map(drop).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Fenced, "{stale}");
    assert!(stale.to_string().contains("Archive::take_over"), "{stale}");
}

#[test]
fn only_the_newest_state_is_adopted() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 9_000).unwrap();
    let older = bench.restored();
    insert(&db, 100).unwrap();
    db.close().unwrap();
    let newest = bench.restored();
    let record = leader(&bench.store(), &Layout::directory()).unwrap();
    let other = bench.directory.path().join("other.db");
    let mut bytes = fs::read(&newest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&other, bytes).unwrap();
    let text = bench.directory.path().join("text.db");
    fs::write(&text, "this is no database").unwrap();
    let is_refused = |file: &Path| {
        let refused = adopted(&bench, Present::TakeOver, Some(file)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
        assert!(refused.to_string().contains("is not the archive's newest state"), "{refused}");
    };
    [&older, &other, &text].iter().for_each(|file| is_refused(file));
    let wal = newest.with_file_name(format!("{}-wal", newest.file_name().unwrap().display()));
    fs::write(&wal, "frames").unwrap();
    is_refused(&newest);
    fs::remove_file(wal).unwrap();
    assert_eq!(leader(&bench.store(), &Layout::directory()).unwrap(), record);
    adopted(&bench, Present::Refuse, Some(&newest)).unwrap();
}

/// The old process is started again behind the takeover, by word, and has written when the restored
/// file is to be next.
#[test]
fn file_that_was_restored_before_another_wrote_is_not_adopted() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    db.close().unwrap();
    adopted(&bench, Present::TakeOver, None).unwrap();
    let restored = bench.restored();
    let options = Options::new().archive(bench.archive().take_over(true));
    let db = options.durability(Durability::Archived).open(bench.file()).unwrap();
    insert(&db, 100).unwrap();
    db.close().unwrap();
    let refused = adopted(&bench, Present::Refuse, Some(&restored)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    assert_eq!(count(&bench.restored()), 1, "what was acknowledged is there");
}

#[test]
fn what_cannot_be_adopted_is_refused_before_anything_is_done() {
    let bench = Bench::new();
    let none = adopted(&bench, Present::TakeOver, None).unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound);
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    db.close().unwrap();
    let record = leader(&bench.store(), &Layout::directory()).unwrap();
    for file in [bench.file(), bench.directory.path().join("nowhere.db")] {
        let refused = adopted(&bench, Present::TakeOver, Some(&file)).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid, "{refused}");
    }
    assert_eq!(leader(&bench.store(), &Layout::directory()).unwrap(), record);
}
