//! Limits are kept: the WAL's size, the queue's length, a reader's hold on the past.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, Options};

use crate::patience::{Gate, as_one_batch, eventually};
use monolite_testkit::markers;
use monolite_testkit::storage::wal_beside;

/// The smallest that may be configured.
const LIMIT: u64 = 8 << 20;

/// Enough to fill the WAL several times.
const ENOUGH: i64 = 600;

const FILLING: [u8; 9_000] = [5; 9_000];

struct Loaded {
    _directory: tempfile::TempDir,
    db: Database,
    next: AtomicI64,
    stop: AtomicBool,
    largest: AtomicU64,
}

/// Runs `beside` while four threads write, and checks the size of the WAL all the time. Returns
/// once `ENOUGH` was written after `beside` ended.
fn under_load(beside: impl FnOnce(&Loaded)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().wal_limit_bytes(LIMIT).readers(4).open(&path).unwrap();
    markers::create(&db).unwrap();
    let loaded = Loaded {
        _directory: directory,
        db,
        next: AtomicI64::new(1),
        stop: AtomicBool::new(false),
        largest: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| watch_the_wal(&loaded, &wal_beside(&path)));
        let writers: Vec<_> =
            (0..4).map(|_| scope.spawn(|| write_until_stopped(&loaded))).collect();
        let stopping = Stopping(&loaded.stop);
        beside(&loaded);
        loaded.await_writes(ENOUGH);
        drop(stopping);
        writers.into_iter().for_each(|it| it.join().unwrap());
    });
    let (largest, stats) = (loaded.largest.load(Ordering::SeqCst), loaded.db.stats());
    assert!(largest > LIMIT / 4, "the WAL was seen at {largest} bytes: there was no load");
    assert!(largest <= LIMIT && stats.wal_bytes_max <= LIMIT, "{largest}, {stats:?}");
    assert!(stats.checkpoints_completed > 0);
    loaded.db.close().unwrap();
    let found = markers::in_file(&path).unwrap();
    assert_eq!(found.len() as i64, loaded.next.load(Ordering::SeqCst) - 1);
}

/// Stops the load, also when the test fails.
struct Stopping<'l>(&'l AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Loaded {
    /// Waits until this many more transactions were begun.
    fn await_writes(&self, more: i64) {
        let enough = self.next.load(Ordering::SeqCst) + more;
        eventually("writes go on", || self.next.load(Ordering::SeqCst) >= enough);
    }
}

fn write_until_stopped(loaded: &Loaded) {
    while !loaded.stop.load(Ordering::SeqCst) {
        let id = loaded.next.fetch_add(1, Ordering::SeqCst);
        loaded.db.write(move |tx| markers::put_filled(tx, id, &FILLING)).wait().unwrap();
    }
}

fn watch_the_wal(loaded: &Loaded, wal: &Path) {
    while !loaded.stop.load(Ordering::SeqCst) {
        if let Ok(meta) = std::fs::metadata(wal) {
            loaded.largest.fetch_max(meta.len(), Ordering::SeqCst);
        }
        thread::yield_now();
    }
}

#[test]
fn a_reader_that_idles_on_its_snapshot_is_ended_and_writes_go_on() {
    under_load(|loaded| {
        let count = "SELECT n FROM total";
        let read = loaded.db.read(|tx| {
            let before: i64 = tx.query_row(count, (), |row| row.get(0))?;
            loaded.await_writes(ENOUGH * 2);
            let after: i64 = tx.query_row(count, (), |row| row.get(0))?;
            Ok::<_, Error>((before, after))
        });
        let error = read.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(loaded.db.stats().revoked_readers > 0);
        let again = loaded.db.read(|tx| tx.query_row(count, (), |row| row.get::<_, i64>(0)));
        assert!(again.wait().unwrap() >= ENOUGH, "the connection serves the next read");
    });
}

#[test]
fn a_reader_that_sits_on_an_open_row_stops_writes_visibly_and_only_as_long_as_it_sits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let options = Options::new().wal_limit_bytes(LIMIT);
    let db = options.write_time_limit(Duration::from_millis(200)).open(&path).unwrap();
    markers::create(&db).unwrap();
    db.write(|tx| markers::put(tx, 0)).wait().unwrap();
    let gate = Gate::default();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = db.read(|tx| {
                let mut query = tx.prepare("SELECT id FROM whole")?;
                let mut rows = query.query(())?;
                assert!(rows.next()?.is_some());
                gate.pass();
                while rows.next()?.is_some() {}
                Ok::<_, Error>(())
            });
            read.wait()
        });
        eventually("the reader sits on its row", || gate.arrivals() > 0);
        let put = |id| db.write(move |tx| markers::put_filled(tx, id, &FILLING)).wait();
        let refused = (1..ENOUGH).find_map(|id| put(id).err()).unwrap();
        gate.open();
        assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
        assert!(refused.to_string().contains("a reader keeps it"), "{refused}");
        assert!(db.stats().wal_bytes_max <= LIMIT);
        assert_eq!(reading.join().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        (ENOUGH..ENOUGH + 50).for_each(|id| put(id).unwrap());
    });
}

/// Fills 70 % of the WAL while a reader keeps it from restarting, then runs `large` beside a
/// small write; the reader is ended. Returns what `large` returned.
fn in_a_wal_with_little_room<T>(db: &Database, large: impl FnOnce() -> T) -> T {
    let gate = Gate::default();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = db.read(|tx| {
                let count = || tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0));
                count()?;
                gate.pass();
                count()
            });
            read.wait()
        });
        eventually("the reader has its snapshot", || gate.arrivals() > 0);
        let first = db.stats().wal_bytes;
        for id in 100.. {
            db.write(move |tx| markers::put_filled(tx, id, &[3; 90_000])).wait().unwrap();
            if db.stats().wal_bytes >= first + LIMIT / 10 * 7 {
                break;
            }
        }
        let result = large();
        gate.open();
        assert_eq!(reading.join().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
        result
    })
}

/// Its three parts are 40 % of the limit together.
const LARGE: usize = LIMIT as usize / 10 * 4 / 3;

fn with_markers(directory: &Path) -> Database {
    // However slow the machine is, a batch is not cut short.
    let options = Options::new().wal_limit_bytes(LIMIT).max_batch_time(Duration::from_secs(60));
    let db = options.open(directory.join("db")).unwrap();
    markers::create(&db).unwrap();
    db
}

#[test]
fn a_transaction_that_an_empty_wal_holds_gets_room_in_a_full_one() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_markers(directory.path());
    in_a_wal_with_little_room(&db, || {
        let (large, small) = as_one_batch(&db, || {
            let large = db.write(|tx| markers::put_filled(tx, 1, &vec![1; LARGE]));
            (large, db.write(|tx| markers::put(tx, 2)))
        });
        large.wait().unwrap();
        small.wait().unwrap();
    });
    assert!(db.stats().wal_stalls > 0 && db.stats().wal_bytes_max <= LIMIT);
    db.close().unwrap();
    let found = markers::in_file(&directory.path().join("db")).unwrap();
    assert!(found.contains(&1) && found.contains(&2));
}

#[test]
fn a_batch_larger_than_the_wal_commits_in_parts_and_ends_a_reader_from_between_them() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_markers(directory.path());
    let (batch, reader) = (Arc::new(Gate::default()), Gate::default());
    let put = |id| {
        let batch = Arc::clone(&batch);
        db.write(move |tx| {
            if (id, tx.attempt()) == (30, 2) {
                batch.pass();
            }
            markers::put_filled(tx, id, &[4; 40_000])?;
            Ok::<_, Error>(tx.attempt())
        })
    };
    thread::scope(|scope| {
        let writes = as_one_batch(&db, || (0..200).map(put).collect::<Vec<_>>());
        eventually("thirty parts are committed", || batch.arrivals() > 0);
        let reading = scope.spawn(|| {
            let read = db.read(|tx| {
                let count = || tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0));
                count()?;
                reader.pass();
                count()
            });
            read.wait()
        });
        eventually("the reader has its snapshot", || reader.arrivals() > 0);
        batch.open();
        // Once in the batch and once alone: room is made before it runs out.
        writes.into_iter().for_each(|write| assert_eq!(write.wait().unwrap(), 2));
        reader.open();
        assert_eq!(reading.join().unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    });
    assert!(db.stats().wal_bytes_max <= LIMIT);
}

#[test]
fn the_read_after_one_that_was_ended_is_not_ended_with_it() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                   SELECT i FROM n JOIN total";
    under_load(|loaded| {
        for _ in 0..3 {
            let read = loaded.db.read(|tx| {
                let mut query = tx.prepare(endless)?;
                let mut rows = query.query(())?;
                while rows.next()?.is_some() {}
                Ok::<_, Error>(())
            });
            let error = read.wait().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(error.to_string().contains("wal_limit_bytes"), "{error}");
            for _ in 0..200 {
                let short = loaded
                    .db
                    .read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0)));
                short.wait().expect("a short read is not ended");
            }
        }
    });
}

#[test]
fn a_value_beyond_its_limit_is_refused_on_every_way() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().value_limit_bytes(1 << 20);
    let db = options.open(directory.path().join("db")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    let (large, fits) = ("SELECT length(zeroblob(1048577))", "SELECT length(zeroblob(1048576))");
    let insert = "INSERT INTO t VALUES (zeroblob(1048577))";
    let tx = db.transaction().unwrap();
    let length = |sql: &'static str| db.read(move |tx| tx.query_row(sql, (), |row| row.get(0)));
    let refused = [
        length(large).wait().map(|_: i64| ()).unwrap_err(),
        db.write(move |tx| tx.execute(insert, ())).wait().unwrap_err(),
        tx.execute(insert, ()).wait().unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("too big"), "{error}");
    }
    assert_eq!(length(fits).wait().unwrap(), 1_048_576);
}
