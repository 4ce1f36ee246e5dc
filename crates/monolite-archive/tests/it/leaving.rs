//! Closes beside a store that never answers: they end, and what is left behind touches nothing.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Durability};
use monolite_archive::{
    Archive, Layout,
    internals::{Call, Fault, FaultyStore, leader},
};

use crate::archiving::{Bench, count, create, insert, wait_until};

/// What a close takes at most beside such a store, with a slow disk.
const END: Duration = Duration::from_secs(9);

/// A database and a store that does not return from calls while `hangs`.
struct Hanging {
    bench: Bench,
    hangs: Arc<AtomicBool>,
}

impl Hanging {
    fn new() -> Hanging {
        Hanging { bench: Bench::new(), hangs: Arc::default() }
    }

    /// Opens it; calls of which `which` is true hang.
    fn open(&self, which: impl Fn(Call<'_>) -> bool + Send + 'static) -> Database {
        let hangs = Arc::clone(&self.hangs);
        let decide = move |call: Call<'_>| {
            while which(call) && hangs.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            Fault::None
        };
        let store = Arc::new(FaultyStore::new(self.bench.store(), decide));
        let archive = Archive::of(store, Layout::directory()).interval(Duration::from_millis(5));
        let archive = archive.opening_wait(Duration::from_millis(200)).close_time(Duration::ZERO);
        // A minute passes each time that somebody looks.
        let minutes = AtomicU64::new(0);
        let archive = archive
            .upkeep_every(Duration::from_millis(5))
            .passed(move || Duration::from_secs(minutes.fetch_add(1, Ordering::Relaxed) * 60));
        self.bench.open_with(archive, Durability::Synced).unwrap()
    }

    /// Closes it in time, and opens it again beside what was left; that goes on at once, or when
    /// somebody has written, and nothing comes of it.
    fn outlives(&self, db: Database, rows: i64) {
        let start = Instant::now();
        let kept = db.clone();
        db.close().unwrap();
        assert!(start.elapsed() < END, "{:?}", start.elapsed());
        let error = kept.stats().archive.unwrap().last_error.unwrap();
        assert!(error.contains("not waited for"), "{error}");
        drop(kept);
        let db = self.bench.open(Durability::Archived).unwrap();
        insert(&db, 100).unwrap();
        let record = || leader(&self.bench.store(), &Layout::directory()).unwrap().unwrap();
        let before = record();
        let beside = self.bench.file().with_file_name("ledger.db-archive");
        let position = fs::read(beside.join("position.json")).unwrap();
        self.hangs.store(false, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(500));
        assert_eq!(record(), before, "nobody takes it back");
        assert_eq!(fs::read(beside.join("position.json")).unwrap(), position);
        insert(&db, 100).unwrap();
        db.close().unwrap();
        assert_eq!(count(&self.bench.restored()), rows + 2);
        self.bench.is_the_same();
    }
}

fn upload() {
    let hanging = Hanging::new();
    let (told, waits) = mpsc::channel();
    let db = hanging.open(move |call| {
        let is_slot = matches!(call, Call::Create(key) if key.starts_with("ltx/0/"));
        is_slot && told.send(()).is_ok()
    });
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    let beside = hanging.bench.file().with_file_name("ledger.db-archive");
    hanging.hangs.store(true, Ordering::Relaxed);
    while waits.try_recv().is_ok() {}
    insert(&db, 100).unwrap();
    waits.recv_timeout(Duration::from_secs(20)).unwrap();
    wait_until("the first is counted", || db.stats().unsynced_transactions == 0);
    thread::scope(|scope| {
        // Who waits for the archive is told.
        let archived = db.with_durability(Durability::Archived);
        let waiting = scope.spawn(move || insert(&archived, 100));
        wait_until("it waits", || db.stats().unsynced_transactions > 0);
        hanging.outlives(db.clone(), 2);
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), monolite::ErrorKind::CommitUnknown, "{error}");
    });
    assert!(!beside.join("copy.db").exists());
}

fn beginning() {
    let hanging = Hanging::new();
    let db = hanging.open(|_| true);
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    db.close().unwrap();
    hanging.hangs.store(true, Ordering::Relaxed);
    let db = hanging.open(|_| true);
    insert(&db, 100).unwrap();
    hanging.outlives(db, 1);
}

fn copy() {
    let hanging = Hanging::new();
    hanging.hangs.store(true, Ordering::Relaxed);
    let db = hanging.open(|call| matches!(call, Call::Create(key) if key.starts_with("ltx/9/")));
    create(&db);
    insert(&db, 100).unwrap();
    let beside = hanging.bench.file().with_file_name("ledger.db-archive");
    wait_until("it is copied", || beside.join("copy.db").exists());
    hanging.outlives(db, 1);
    assert!(!beside.join("copy.db").exists());
}

fn upkeep() {
    let hanging = Hanging::new();
    let (told, waits) = mpsc::channel();
    hanging.hangs.store(true, Ordering::Relaxed);
    let db = hanging.open(move |call| {
        let is_merged = matches!(call, Call::Create(key) if key.starts_with("ltx/1/"));
        is_merged && told.send(()).is_ok()
    });
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    waits.recv_timeout(Duration::from_secs(20)).unwrap();
    hanging.outlives(db, 0);
}

/// Each close waits for seconds, so they do so side by side.
#[test]
fn a_close_leaves_behind_what_does_not_return() {
    thread::scope(|scope| {
        for case in [upload, beginning, copy, upkeep] {
            scope.spawn(case);
        }
    });
}
