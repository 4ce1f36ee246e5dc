//! What is synced by whom, and what a sync that fails leaves behind.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;

use super::*;
use crate::call::inside::DatabaseId;
use crate::call::queue::Taken;
use crate::clock::hand::HandClock;
use crate::error::ErrorKind;
use crate::files::open::{Opened, open};
use crate::files::wal::wal_path;
use crate::options::Options;
use crate::write::answers::tests::{Caller, batch};

/// A syncer of an empty database, without a thread.
struct Bench {
    syncer: Arc<Syncer>,
    clock: Arc<HandClock>,
    // Closed before its file is removed: the file's number is then another's, who cannot open it.
    _database: Opened,
    directory: TempDir,
}

impl Bench {
    fn new(durability: Durability) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let database =
            open(&Options::new().readers(1), &directory.path().join("db"), Duration::ZERO).unwrap();
        let (clock, progress) = (Arc::<HandClock>::default(), Arc::<Progress>::default());
        // The files have not been looked at yet.
        clock.advance(LOOK);
        let syncer = Arc::new(Syncer {
            handover: Handover::default(),
            answers: Arc::new(Answers::new(100, Arc::clone(&progress), None)),
            wal: Arc::clone(&database.wal_file),
            looked: AtomicU64::new(0),
            durability,
            queue: Arc::new(WriteQueue::new(DatabaseId::new(), 10, Arc::clone(&progress))),
            progress,
            recorder: Arc::default(),
            clock: Arc::clone(&clock) as _,
            observers: Arc::new([]),
        });
        Bench { syncer, clock, directory, _database: database }
    }

    /// A batch of two members that was committed up to `offset`.
    fn committed(&self, offset: u64) -> (CommittedBatch, Vec<Caller>) {
        batch(&self.syncer.progress, 2, offset)
    }

    fn syncs(&self) -> u64 {
        self.syncer.recorder.syncs.get()
    }

    /// Has somebody put another file in the place of the WAL, so that a sync of ours is no use.
    fn replace_wal(&self) {
        let wal = wal_path(&self.directory.path().join("db"));
        fs::rename(&wal, self.directory.path().join("aside")).unwrap();
        fs::write(Path::new(&wal), b"another").unwrap();
    }

    fn is_queue_closed(&self) -> bool {
        let no_wait = Some(Duration::ZERO);
        self.syncer.queue.take(1, &mut VecDeque::new(), no_wait) == Taken::Closed
    }
}

fn is_answered(callers: &[Caller]) -> bool {
    callers.iter().all(|caller| caller.is_delivered())
}

/// How many are told that it is not known what became of their write. The others are told what
/// their members say, which were not run.
fn count_poisoned(callers: Vec<Caller>) -> usize {
    let waited = callers.into_iter().map(|caller| caller.wait().unwrap_for_caller());
    waited.filter(|it| it.as_ref().is_err_and(|it| it.kind() == ErrorKind::Poisoned)).count()
}

#[test]
fn one_sync_covers_every_batch_that_was_committed_before_it() {
    let bench = Bench::new(Durability::Synced);
    let batches: Vec<_> = (1..=5).map(|at| bench.committed(at * 100)).collect();
    let mut all = Vec::new();
    for (batch, callers) in batches {
        bench.syncer.finish(batch, false);
        assert!(!is_answered(&callers));
        all.extend(callers);
    }
    bench.syncer.handover.close();
    bench.syncer.run();
    assert!(is_answered(&all));
    assert_eq!(bench.syncs(), 1);
    assert_eq!(bench.syncer.answers.unanswered(), 0);
}

#[test]
fn a_lonely_batch_is_synced_where_it_was_committed() {
    let bench = Bench::new(Durability::Synced);
    let (batch, callers) = bench.committed(100);
    bench.syncer.finish(batch, true);
    assert!(is_answered(&callers));
    assert_eq!(bench.syncs(), 1);
}

#[test]
fn a_lonely_batch_does_not_overtake_one_that_is_unanswered() {
    let bench = Bench::new(Durability::Synced);
    let ((first, early), (second, late)) = (bench.committed(100), bench.committed(200));
    bench.syncer.finish(first, false);
    bench.syncer.finish(second, true);
    assert!(!is_answered(&early) && !is_answered(&late));
    assert_eq!(bench.syncs(), 0);
    bench.syncer.handover.close();
    bench.syncer.run();
    assert!(is_answered(&early) && is_answered(&late));
}

#[test]
fn nobody_is_told_ok_behind_a_sync_that_failed_and_there_is_no_other() {
    let bench = Bench::new(Durability::Synced);
    let ((first, early), (second, late)) = (bench.committed(100), bench.committed(200));
    bench.replace_wal();
    assert!(!bench.is_queue_closed());
    bench.syncer.finish(first, true);
    assert_eq!(count_poisoned(early), 2);
    assert!(bench.is_queue_closed());
    bench.syncer.finish(second, true);
    assert_eq!(count_poisoned(late), 2);
    assert_eq!(bench.syncs(), 1);
}

#[test]
fn buffered_batches_are_answered_without_a_sync_and_the_files_looked_at_now_and_then() {
    let bench = Bench::new(Durability::Buffered);
    let (batch, callers) = bench.committed(100);
    bench.syncer.finish(batch, true);
    bench.replace_wal();
    let (unnoticed, told_ok) = bench.committed(200);
    bench.syncer.finish(unnoticed, true);
    bench.clock.advance(LOOK);
    let (noticed, told) = bench.committed(300);
    bench.syncer.finish(noticed, true);
    assert_eq!((count_poisoned(callers), count_poisoned(told_ok)), (0, 0));
    assert_eq!(count_poisoned(told), 2);
    assert_eq!(bench.syncs(), 0);
}

#[test]
fn the_thread_ends_when_everything_is_answered() {
    let bench = Bench::new(Durability::Synced);
    let syncer = Arc::clone(&bench.syncer);
    let thread = thread::spawn(move || syncer.run());
    let (batch, callers) = bench.committed(100);
    bench.syncer.finish(batch, false);
    assert_eq!(count_poisoned(callers), 0);
    bench.syncer.handover.close();
    thread.join().unwrap();
}

/// A batch out of order is one.
#[test]
#[cfg(debug_assertions)]
fn a_defect_poisons_the_database_and_all_are_answered() {
    let bench = Bench::new(Durability::Synced);
    let ((first, dropped), (second, early)) = (bench.committed(100), bench.committed(200));
    let (third, late) = bench.committed(300);
    let syncer = Arc::clone(&bench.syncer);
    let thread = thread::spawn(move || syncer.run());
    bench.syncer.finish(second, false);
    assert_eq!(count_poisoned(early), 0);
    bench.syncer.finish(first, false);
    dropped.into_iter().for_each(|caller| drop(caller.wait().unwrap_for_caller()));
    bench.syncer.finish(third, false);
    assert_eq!(count_poisoned(late), 2);
    assert!(bench.is_queue_closed());
    bench.syncer.handover.close();
    thread.join().unwrap();
}
