//! An acknowledged transaction is on disk: when it is acknowledged, and failed syncs. What a power
//! cut leaves is tried by the test kit's schedules, and by the torture (`images`, `cuts`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use monolite::{Database, Durability, Error, ErrorKind, Options, ReadTx, Transaction, Write};
use tempfile::TempDir;

use crate::patience::{Driven, Gate, ends, eventually};
use monolite_testkit::markers;
use monolite_testkit::storage::{Call, Disk, Fault, Operation, RealSyncs, wal_beside};

/// A database over a disk whose syncs can stop and fail.
struct Machine {
    _directory: TempDir,
    path: PathBuf,
    syncs: Arc<Syncs>,
    db: Database,
}

/// How the next syncs behave.
#[derive(Default)]
struct Syncs {
    /// Every sync of the WAL for an acknowledgement stops here once it has begun.
    gate: Mutex<Option<Arc<Gate>>>,
    fail: AtomicBool,
    /// How many were asked for.
    count: AtomicU32,
}

impl Syncs {
    fn before(&self, call: &Call) -> Option<Fault> {
        if call.operation == Operation::SyncWal {
            self.count.fetch_add(1, Ordering::SeqCst);
            let gate = self.gate.lock().unwrap().clone();
            if let Some(gate) = gate {
                gate.pass();
            }
        }
        (call.operation.is_sync() && self.fail.load(Ordering::SeqCst)).then_some(Fault::Error)
    }
}

fn machine(options: Options) -> Machine {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    db.close().unwrap();
    // The real syncs are made, too, so that real timing is what is tested.
    let disk = Disk::holding(&path, RealSyncs::Made).unwrap();
    let syncs = Arc::new(Syncs::default());
    let hook = Arc::clone(&syncs);
    disk.set_hook(move |call| hook.before(call));
    let db = disk.under(options).open(&path).unwrap();
    Machine { _directory: directory, path, syncs, db }
}

impl Machine {
    fn put(&self, id: i64) -> Write<(), Error> {
        self.db.write(move |tx| markers::put(tx, id))
    }

    /// A write whose closure waits at a gate before it writes.
    fn put_behind_a_gate(&self, id: i64) -> (Arc<Gate>, Driven<Write<(), Error>>) {
        let gate = Arc::new(Gate::default());
        let stop = Arc::clone(&gate);
        let write = self.db.write(move |tx| {
            stop.pass();
            markers::put(tx, id)
        });
        (gate, Driven::start(write))
    }

    fn visible(&self) -> i64 {
        let count = self.db.read(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get(0)));
        count.wait().unwrap()
    }

    /// Lets the syncs from now on wait at a gate.
    fn stop_syncs(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        *self.syncs.gate.lock().unwrap() = Some(Arc::clone(&gate));
        gate
    }
}

/// Whether a write is acknowledged although no sync has begun since its commit, in two ways: the
/// sync has not ended, and it began before the commit.
fn is_acknowledged_too_early(durability: Durability) -> (bool, bool) {
    let machine = machine(Options::new().durability(durability));
    let first_sync = machine.stop_syncs();
    // The second is in the queue before the first commits, so that the writer does not stay with
    // the sync of the first.
    let (first_gate, mut first) = machine.put_behind_a_gate(1);
    eventually("the first write runs", || first_gate.arrivals() > 0);
    let (second_gate, mut second) = machine.put_behind_a_gate(2);
    first_gate.open();
    if durability == Durability::Synced {
        eventually("the first sync begins", || first_sync.arrivals() > 0);
    }
    eventually("the first write is visible", || machine.visible() == 1);
    let second_sync = machine.stop_syncs();
    second_gate.open();
    eventually("the second write is visible", || machine.visible() == 2);
    if durability == Durability::Buffered {
        eventually("the first answer", || first.is_done());
    }
    let before_the_end = first.is_done();
    first_sync.open();
    eventually("the first answer", || first.is_done());
    if durability == Durability::Synced {
        eventually("the second sync begins", || second_sync.arrivals() > 0);
    } else {
        eventually("the second answer", || second.is_done());
    }
    let by_an_older_sync = second.is_done();
    second_sync.open();
    eventually("the second answer", || second.is_done());
    first.output().unwrap();
    second.output().unwrap();
    (before_the_end, by_an_older_sync)
}

#[test]
fn nobody_is_acknowledged_before_a_sync_that_began_after_the_commit() {
    assert_eq!(is_acknowledged_too_early(Durability::Synced), (false, false));
}

#[test]
fn buffered_durability_acknowledges_before_the_sync_and_is_noticed() {
    assert_eq!(is_acknowledged_too_early(Durability::Buffered), (true, true));
}

#[test]
fn a_durable_read_waits_for_the_sync_of_what_it_saw_and_another_read_does_not() {
    let machine = machine(Options::new());
    let gate = machine.stop_syncs();
    let mut write = Driven::start(machine.put(1));
    eventually("the write is visible", || machine.visible() == 1);
    let has_read = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&has_read);
    let mut durable = Driven::start(machine.db.read_durable(move |tx| {
        let seen = tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0));
        flag.store(true, Ordering::SeqCst);
        seen
    }));
    eventually("the durable read has read", || has_read.load(Ordering::SeqCst));
    // As long again as this many other reads take, it has no answer.
    for _ in 0..1_000 {
        assert_eq!(machine.visible(), 1);
        assert!(!durable.is_done() && !write.is_done());
    }
    gate.open();
    eventually("the durable read", || durable.is_done());
    assert_eq!(durable.output().unwrap(), 1);
    eventually("the write", || write.is_done());
}

#[test]
fn durable_reads_that_wait_for_a_sync_hold_up_no_other_read() {
    let machine = machine(Options::new().readers(2));
    let gate = machine.stop_syncs();
    let mut write = Driven::start(machine.put(1));
    eventually("the write is visible", || machine.visible() == 1);
    let read =
        |tx: &ReadTx<'_>| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0));
    let mut durable: Vec<_> =
        (0..20).map(|_| Driven::start(machine.db.read_durable(read))).collect();
    let mut other = Driven::start(machine.db.read(read));
    eventually("another read", || other.is_done());
    assert_eq!(other.output().unwrap(), 1);
    assert!(durable.iter_mut().all(|read| !read.is_done()) && !write.is_done());
    gate.open();
    for mut read in durable {
        eventually("a durable read", || read.is_done());
        assert_eq!(read.output().unwrap(), 1);
    }
    eventually("the write", || write.is_done());
}

#[test]
fn a_read_only_transaction_is_answered_when_what_it_saw_is_on_disk() {
    let machine = machine(Options::new());
    let saw = |tx: &Transaction| {
        tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0)).wait().unwrap()
    };
    let untouched = machine.db.transaction().unwrap();
    assert_eq!(saw(&untouched), 0);
    let gate = machine.stop_syncs();
    let mut write = Driven::start(machine.put(1));
    eventually("the write is visible", || machine.visible() == 1);
    // What it saw is on disk.
    untouched.commit().wait().unwrap();
    let tx = machine.db.transaction().unwrap();
    assert_eq!(saw(&tx), 1);
    let mut commit = Driven::start(tx.commit());
    for _ in 0..1_000 {
        assert_eq!(machine.visible(), 1);
        assert!(!commit.is_done() && !write.is_done());
    }
    gate.open();
    eventually("the commit", || commit.is_done());
    commit.output().unwrap();
    eventually("the write", || write.is_done());
}

#[test]
fn a_failed_sync_poisons_and_is_never_repeated() {
    let machine = machine(Options::new());
    machine.put(1).wait().unwrap();
    let gate = machine.stop_syncs();
    machine.syncs.fail.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (2..20).map(|id| machine.put(id)).collect();
    eventually("the sync begins", || gate.arrivals() > 0);
    let before = machine.syncs.count.load(Ordering::SeqCst);
    gate.open();
    for write in waiting {
        let error = write.wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("simulated I/O error"), "{error}");
    }
    // The disk is well again, and that changes nothing.
    machine.syncs.fail.store(false, Ordering::SeqCst);
    assert_eq!(machine.put(20).wait().unwrap_err().kind(), ErrorKind::Poisoned);
    let tried = machine.db.try_write(|tx| markers::put(tx, 21)).err().unwrap();
    assert_eq!(tried.kind(), ErrorKind::Poisoned);
    assert!(machine.visible() >= 1, "reads go on");
    let database = std::fs::metadata(&machine.path).unwrap().modified().unwrap();
    let db = machine.db.clone();
    assert_eq!(ends("closing", move || db.close()).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(machine.syncs.count.load(Ordering::SeqCst), before, "another sync was tried");
    assert!(wal_beside(&machine.path).exists(), "the WAL is all there is to recover from");
    let after = std::fs::metadata(&machine.path).unwrap().modified().unwrap();
    assert_eq!(database, after, "closing wrote to the database");
    let db = Database::open(&machine.path).unwrap();
    db.write(|tx| markers::put(tx, 30)).wait().unwrap();
    db.close().unwrap();
    let found = markers::in_file(&machine.path).unwrap();
    assert!(found.contains(&1) && found.contains(&30));
}

#[test]
fn a_durable_read_of_a_poisoned_database_is_refused() {
    let machine = machine(Options::new());
    machine.syncs.fail.store(true, Ordering::SeqCst);
    assert_eq!(machine.put(1).wait().unwrap_err().kind(), ErrorKind::Poisoned);
    let durable = machine
        .db
        .read_durable(|tx| tx.query_row("SELECT n FROM total", (), |row| row.get::<_, i64>(0)));
    assert_eq!(durable.wait().unwrap_err().kind(), ErrorKind::Poisoned);
}

/// After so many acknowledgements the engine has not noticed the harm.
const MANY: usize = 100;

/// Lets `harm` happen to the database or its WAL under load, and returns what was acknowledged
/// after it.
fn acknowledged_after(is_wal: bool, harm: fn(&Path)) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    let (next, is_done) = (AtomicI64::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut after = 0;
                    loop {
                        let id = next.fetch_add(1, Ordering::SeqCst);
                        let was_done = is_done.load(Ordering::SeqCst);
                        match db.write(move |tx| markers::put(tx, id)).wait() {
                            Ok(()) if after < MANY => after += usize::from(was_done),
                            Ok(()) => return after,
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
                                return after;
                            }
                        }
                    }
                })
            })
            .collect();
        eventually("a load", || next.load(Ordering::SeqCst) > 50);
        harm(&if is_wal { wal_beside(&path) } else { path.clone() });
        is_done.store(true, Ordering::SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

#[test]
fn nothing_is_acknowledged_once_the_database_or_its_wal_was_deleted_or_replaced() {
    let delete = |file: &Path| std::fs::remove_file(file).unwrap();
    let replace = |file: &Path| {
        let other = file.with_extension("other");
        std::fs::copy(file, &other).unwrap();
        std::fs::rename(other, file).unwrap();
    };
    for is_wal in [true, false] {
        assert_eq!(acknowledged_after(is_wal, delete), 0, "WAL: {is_wal}");
        assert_eq!(acknowledged_after(is_wal, replace), 0, "WAL: {is_wal}");
    }
}
