//! What is tracked is what is read. [`soundness`] compares what the page check says with what
//! queries give, over random transactions.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::vfs::{self, Direct, File, FileKind, Lower, LowerFile, Storage, Vfs, WalControl};
use crate::{CheckpointMode, Connection, PageSet, Role, Settings};

mod kept;
mod soundness;

/// More pages than any of these transactions reads.
const LIMIT: usize = 100_000;

/// [`Direct`] over files that note which pages are read from the database file.
struct Noting {
    direct: Direct,
    read: Arc<Mutex<BTreeSet<u32>>>,
}

struct NotingFile(Arc<Mutex<BTreeSet<u32>>>);

impl Storage for Noting {
    fn open(
        &self,
        kind: FileKind,
        _: Option<&Path>,
        _: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        Ok(match kind {
            FileKind::Database => self.direct.around(kind, NotingFile(Arc::clone(&self.read))),
            _ => self.direct.around(kind, vfs::Forward),
        })
    }
}

impl File for NotingFile {
    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> vfs::Result {
        self.0.lock().unwrap().insert((at / 4096 + 1) as u32);
        lower.read(buf, at)
    }
}

struct Rig {
    control: Arc<WalControl>,
    read: Arc<Mutex<BTreeSet<u32>>>,
    vfs: Vfs,
    overlay_vfs: Vfs,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let control = Arc::new(WalControl::keeping_frames(u64::MAX));
        let read = Arc::<Mutex<BTreeSet<u32>>>::default();
        let direct = Direct::new(Arc::clone(&control));
        let storage = Arc::new(Noting { direct, read: Arc::clone(&read) });
        let vfs = Vfs::register(Lower::UnixExcl, storage.clone()).unwrap();
        let overlay_vfs = vfs.register_overlays(storage).unwrap();
        Rig { control, read, vfs, overlay_vfs, directory: tempfile::tempdir().unwrap() }
    }

    fn open(&self, role: Role) -> Connection {
        self.open_with(role, None)
    }

    /// A connection that keeps pages from one snapshot to the next.
    fn open_keeping(&self, role: Role) -> Connection {
        self.open_with(role, Some(Arc::clone(&self.control)))
    }

    fn open_with(&self, role: Role, control: Option<Arc<WalControl>>) -> Connection {
        let vfs = if role == Role::Overlay { &self.overlay_vfs } else { &self.vfs };
        let settings = Settings { control, sync: false, ..Settings::new(vfs.name()) };
        Connection::open(&self.directory.path().join("test.db"), role, &settings).unwrap()
    }

    /// A writer whose database has been filled by `sql`, all of it in the database file.
    fn filled(&self, sql: &str) -> Connection {
        let writer = self.open(Role::Writer);
        write(&writer, sql);
        assert!(!writer.checkpoint(CheckpointMode::Truncate).unwrap().blocked);
        writer
    }
}

fn write(writer: &Connection, sql: &str) {
    writer.begin_immediate().unwrap();
    writer.raw().execute_batch(sql).unwrap();
    writer.commit().unwrap();
}

/// Every row as text.
fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let collect = |statement: &mut rusqlite::Statement<'_>| {
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        let mut all = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            all.push((0..columns).map(|at| format!("{:?},", row.get_ref_unwrap(at))).collect());
        }
        all
    };
    connection.with_statement(sql, collect).unwrap()
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, v TEXT);
    CREATE INDEX t_k ON t(k);
    CREATE TABLE w(a TEXT, b INT, v TEXT, PRIMARY KEY(a, b)) WITHOUT ROWID;
    CREATE TABLE big(id INTEGER PRIMARY KEY, v BLOB);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
    INSERT INTO t SELECT i, i * 7919 % 4000, hex(randomblob(30)) FROM n;
    INSERT INTO w SELECT v, k, hex(randomblob(30)) FROM t;
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
    INSERT INTO big SELECT i, randomblob(40000 + i) FROM n;";

const QUERIES: &[&str] = &[
    "SELECT v FROM t WHERE id = 1234",
    "SELECT v FROM t WHERE id = 999999",
    "SELECT v FROM t WHERE k = 321",
    "SELECT k FROM t WHERE k BETWEEN 100 AND 900",
    "SELECT v FROM t WHERE id BETWEEN 100 AND 1100",
    "SELECT v FROM t WHERE id BETWEEN 5000 AND 6000",
    "SELECT v FROM t WHERE k > 5000",
    "SELECT b FROM w WHERE a = (SELECT v FROM t WHERE id = 77)",
    "SELECT * FROM w ORDER BY a, b LIMIT 300",
    "SELECT count(*) FROM t",
    "SELECT count(*) FROM w",
    "SELECT max(id), min(k) FROM t",
    "SELECT count(*) FROM t AS a JOIN t AS b ON a.k = b.id WHERE a.id < 500",
    "SELECT k % 10, count(*) FROM t GROUP BY 1 ORDER BY 2, 1",
    "SELECT v FROM big WHERE id = 7",
    "SELECT substr(v, 39000, 10) FROM big WHERE id = 8",
    "SELECT length(v) FROM big",
    "SELECT name FROM sqlite_schema",
    "SELECT value FROM json_each('[1, 2]') JOIN t ON t.id = value",
];

/// What a transaction of `query` on `reader` fetched.
fn fetched(reader: &Connection, query: &str) -> BTreeSet<u32> {
    reader.begin_read().unwrap();
    assert!(reader.pages().track(LIMIT));
    rows(reader, query);
    let pages = reader.pages().take().unwrap();
    reader.rollback().unwrap();
    let set: BTreeSet<u32> = pages.pages().iter().copied().collect();
    assert_eq!(set.len(), pages.pages().len());
    set
}

/// What a connection that has nothing in its cache reads from the file for `query`.
fn read_cold(rig: &Rig, query: &str) -> BTreeSet<u32> {
    let reader = rig.open(Role::Reader);
    rows(&reader, "SELECT 1 FROM sqlite_schema");
    reader.raw().release_memory().unwrap();
    rig.read.lock().unwrap().clear();
    rows(&reader, query);
    let mut read = std::mem::take(&mut *rig.read.lock().unwrap());
    read.remove(&1);
    read
}

#[test]
fn the_pages_fetched_are_those_that_a_cold_cache_reads() {
    let rig = Rig::new();
    let _writer = rig.filled(SCHEMA);
    let reader = rig.open(Role::Reader);
    let mut largest = 0;
    for query in QUERIES {
        let cold = read_cold(&rig, query);
        for _ in 0..3 {
            let warm = fetched(&reader, query);
            let missing: Vec<_> = cold.difference(&warm).collect();
            assert!(missing.is_empty(), "{query}: {missing:?} of {} missing", cold.len());
            assert!(warm.len() <= cold.len() + 1, "{query}: {} for {}", warm.len(), cold.len());
        }
        largest = largest.max(cold.len());
    }
    assert!(largest > 100, "the largest query read {largest} pages");
    // The leaf, and the ten pages of a value of 40 KB.
    assert!(fetched(&reader, "SELECT v FROM big WHERE id = 7").len() >= 11);
}

#[test]
fn nothing_is_recorded_before_or_after() {
    let rig = Rig::new();
    let _writer = rig.filled(SCHEMA);
    let reader = rig.open(Role::Reader);
    reader.begin_read().unwrap();
    rows(&reader, "SELECT count(*) FROM t");
    assert_eq!(reader.pages().take(), None);
    assert!(reader.pages().track(LIMIT));
    let none = reader.pages().take().unwrap();
    assert!(none.pages().is_empty());
    rows(&reader, "SELECT count(*) FROM t");
    assert_eq!(reader.pages().take(), None);
    // After the end of the transaction nobody knows which schema it saw.
    assert!(reader.pages().track(LIMIT));
    reader.rollback().unwrap();
    assert_eq!(reader.pages().take(), None);
}

/// Whether the pages say everything about a transaction of `sql`.
fn is_tracked(writer: &Connection, sql: &str) -> bool {
    writer.begin_immediate().unwrap();
    assert!(writer.pages().track(LIMIT));
    rows(writer, sql);
    let taken = writer.pages().take().is_some();
    writer.rollback().unwrap();
    taken
}

#[test]
fn other_inputs_than_pages_make_a_transaction_untrackable() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    let is_tracked = |sql: &str| is_tracked(&writer, sql);
    for round in ["prepared now", "prepared before"] {
        for sql in [
            "PRAGMA user_version",
            "SELECT * FROM pragma_freelist_count",
            "SELECT pageno FROM dbstat",
            "SELECT count(*) FROM temp.sqlite_schema",
        ] {
            assert!(!is_tracked(sql), "{sql}, {round}");
        }
        assert!(is_tracked("SELECT count(*) FROM t"), "{round}");
        assert!(is_tracked("UPDATE t SET v = 'x' WHERE id = 7"), "{round}");
    }
    for sql in ["CREATE TABLE x(y)", "DROP INDEX t_k", "ALTER TABLE t ADD COLUMN z"] {
        assert!(!is_tracked(sql), "{sql}");
    }
}

#[test]
fn a_transaction_that_uses_a_virtual_table_is_untrackable_and_no_other() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    write(&writer, "CREATE VIRTUAL TABLE f USING fts5(body)");
    let is_tracked = |sql: &str| is_tracked(&writer, sql);
    for round in ["prepared now", "prepared before"] {
        assert!(!is_tracked("SELECT rowid FROM f('a')"), "{round}");
        assert!(!is_tracked("INSERT INTO f VALUES ('a')"), "{round}");
        assert!(!is_tracked("SELECT t.v FROM t JOIN f ON f.rowid = t.id"), "{round}");
        assert!(is_tracked("SELECT v FROM t WHERE id = 5"), "{round}");
        assert!(is_tracked("SELECT count(*) FROM f_data"), "{round}");
        assert!(is_tracked("UPDATE t SET v = 'x' WHERE id = 7"), "{round}");
    }
    // The same texts behind other definitions.
    write(&writer, "CREATE TRIGGER g AFTER UPDATE ON t BEGIN INSERT INTO f VALUES (new.v); END");
    assert!(!is_tracked("UPDATE t SET v = 'x' WHERE id = 7"));
    write(&writer, "DROP TABLE f; DROP TRIGGER g; CREATE TABLE f(body)");
    assert!(is_tracked("INSERT INTO f VALUES ('a')"));
    assert!(is_tracked("UPDATE t SET v = 'x' WHERE id = 7"));
    writer.begin_immediate().unwrap();
    assert!(writer.pages().track(LIMIT));
    let made = "DROP TABLE f; CREATE VIRTUAL TABLE f USING fts5(body)";
    writer.execute_batch(made).unwrap();
    writer.pages().take();
    assert!(writer.pages().track(LIMIT));
    rows(&writer, "INSERT INTO f VALUES ('a')");
    assert_eq!(writer.pages().take(), None, "it was made in the same transaction");
    writer.rollback().unwrap();
    assert!(is_tracked("INSERT INTO f VALUES ('a')"));
}

#[test]
fn a_transaction_beside_a_virtual_table_leaves_statements_as_they_are() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    writer.begin_immediate().unwrap();
    writer.execute_batch("CREATE VIRTUAL TABLE f USING fts5(body)").unwrap();
    writer.settle_schema_at_end().unwrap();
    writer.commit().unwrap();
    let runs = |other: &str| {
        let change = |statement: &mut rusqlite::Statement<'_>| {
            statement.raw_execute().unwrap();
            statement.get_status(rusqlite::StatementStatus::Run)
        };
        writer.begin_immediate().unwrap();
        let runs = writer.with_statement("UPDATE t SET v = 'x' WHERE id = 7", change).unwrap();
        rows(&writer, other);
        writer.rollback().unwrap();
        runs
    };
    assert_eq!([1, 2, 3], [(); 3].map(|()| runs("SELECT 1")));
    runs("INSERT INTO f VALUES ('a')");
    assert_eq!(runs("SELECT 1"), 1, "the schema is read again behind it");
}

/// A file that lets SQLite read long values past the page cache.
struct Bypassed;

impl Storage for Bypassed {
    fn open(&self, _: FileKind, _: Option<&Path>, _: &mut LowerFile) -> vfs::Result<Box<dyn File>> {
        Ok(Box::new(vfs::Forward))
    }
}

#[test]
fn a_file_that_can_be_read_past_the_cache_is_not_tracked() {
    let vfs = Vfs::register(Lower::UnixExcl, Arc::new(Bypassed)).unwrap();
    let rig = Rig { vfs, ..Rig::new() };
    let writer = rig.filled(SCHEMA);
    assert!(!writer.pages().track(LIMIT));
}

#[test]
fn a_schema_change_is_a_change() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    let reader = rig.open(Role::Reader);
    reader.begin_read().unwrap();
    assert!(reader.pages().track(LIMIT));
    rows(&reader, "SELECT v FROM t WHERE id = 5");
    let pages = reader.pages().take().unwrap();
    writer.begin_immediate().unwrap();
    assert!(!writer.pages().batch_changed(&pages));
    writer.raw().execute_batch("CREATE TABLE later(x)").unwrap();
    assert!(writer.pages().batch_changed(&pages));
    writer.rollback().unwrap();
    writer.begin_immediate().unwrap();
    assert!(!writer.pages().batch_changed(&pages));
    writer.rollback().unwrap();
    // Without a transaction there is nothing to compare with.
    assert!(writer.pages().batch_changed(&pages));
}

/// Reads a row at `sequence` or later: its value, and the pages that were read.
fn read_tracked(reader: &Connection) -> (Vec<String>, PageSet) {
    reader.begin_read().unwrap();
    assert!(reader.pages().track(LIMIT));
    let value = rows(reader, "SELECT v FROM t WHERE id = 1");
    let pages = reader.pages().take().unwrap();
    reader.rollback().unwrap();
    (value, pages)
}

#[test]
fn whoever_sees_a_commit_finds_it_recorded() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    // A reader that meets a half-written header of the wal-index takes the write lock for a moment,
    // to see whether its writer has died.
    writer.raw().busy_timeout(Duration::from_secs(10)).unwrap();
    let changes = rig.control.changes();
    let readers = [rig.open(Role::Reader), rig.open(Role::Reader)];
    let (ended, mut commits) = (AtomicUsize::new(0), 0);
    let read = |reader: Connection| {
        let (mut same, mut other, start) = (0, 0, Instant::now());
        while same < 200 || other < 200 {
            assert!(start.elapsed() < Duration::from_secs(60), "{same} the same, {other} others");
            let sequence = changes.sequence();
            let (before, pages) = read_tracked(&reader);
            let (after, _) = read_tracked(&reader);
            if changes.any_changed_since(&pages, sequence) {
                other += 1;
            } else {
                assert_eq!(before, after);
                same += 1;
            }
        }
        ended.fetch_add(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        let threads = readers.map(|reader| scope.spawn(|| read(reader)));
        while ended.load(Ordering::SeqCst) < 2 && threads.iter().any(|it| !it.is_finished()) {
            commits += 1;
            write(&writer, &format!("UPDATE t SET v = {commits} WHERE id = 1"));
            if commits % 64 == 0 {
                writer.checkpoint(CheckpointMode::Passive).unwrap();
            }
            (0..commits % 50 * 40).for_each(|_| std::hint::spin_loop());
        }
    });
}

#[test]
fn pages_written_before_the_commit_count_as_changed() {
    let rig = Rig::new();
    let writer = rig.filled(SCHEMA);
    let reader = rig.open(Role::Reader);
    reader.begin_read().unwrap();
    assert!(reader.pages().track(LIMIT));
    rows(&reader, "SELECT v FROM t WHERE id = 1");
    let read = reader.pages().take().unwrap();
    let few = "PRAGMA cache_size = 8; PRAGMA main.cache_spill = 8";
    writer.as_engine(|| writer.raw().execute_batch(few)).unwrap();
    writer.begin_immediate().unwrap();
    writer.raw().execute_batch("UPDATE t SET v = lower(v) WHERE id = 1").unwrap();
    assert!(writer.pages().batch_changed(&read));
    writer.raw().execute_batch("UPDATE t SET v = lower(v) WHERE id > 1000").unwrap();
    assert!(writer.pages().batch_changed(&read), "the page was written, as the cache was full");
    writer.rollback().unwrap();
    writer.begin_immediate().unwrap();
    assert!(!writer.pages().batch_changed(&read), "nothing was changed");
    writer.rollback().unwrap();
}

#[test]
fn what_hangs_on_the_statements_before_is_not_tracked() {
    let rig = Rig::new();
    let writer = rig.filled(
        "CREATE TABLE t(x); CREATE TABLE log(x);
         CREATE VIEW seen AS SELECT total_changes() AS x;
         CREATE TRIGGER noted AFTER INSERT ON t BEGIN
             INSERT INTO log VALUES(last_insert_rowid());
         END;",
    );
    let is_tracked = |sql: &str| is_tracked(&writer, sql);
    for _ in 0..2 {
        assert!(!is_tracked("INSERT INTO log VALUES(changes())"));
        assert!(!is_tracked("INSERT INTO log SELECT Last_Insert_Rowid()"));
        assert!(!is_tracked("INSERT INTO log SELECT x FROM seen"));
        assert!(!is_tracked("INSERT INTO t VALUES(1)"), "by its trigger");
        assert!(is_tracked("INSERT INTO log VALUES(abs(-1))"));
    }
}
