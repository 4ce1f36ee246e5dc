//! Tests of when the WAL is copied, by whom, and what is done about who is in the way. Batches are
//! written by hand, and the checkpointer's passes run on the test's thread.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolite_sqlite::Connection;

use super::{Checkpointer, Checkpoints, GRACE, SHORT};
use crate::call::inside::DatabaseId;
use crate::call::queue::Taken;
use crate::call::watch::Watch;
use crate::call::write_queue::WriteQueue;
use crate::clock::Clock as _;
use crate::clock::hand::HandClock;
use crate::error::ErrorKind;
use crate::files::open::{Files, open};
use crate::options::Options;
use crate::progress::{BatchNumber, Progress};
use crate::read::holders::{SnapshotHolder, SnapshotHolders};
use crate::stats::Recorder;
use crate::threads::Work as _;
use crate::write::writer::Room as _;

/// A WAL of 256 pages.
const LIMIT: u64 = 1 << 20;

/// Who has a snapshot, as the checkpoints see it: one connection.
struct Holder {
    connection: Mutex<Connection>,
    watch: Arc<Watch>,
    clock: Arc<HandClock>,
    /// The ages for which it was asked.
    asked: Mutex<Vec<Duration>>,
}

impl SnapshotHolder for Holder {
    fn release_idle(&self, age: Duration) -> Option<Duration> {
        self.asked.lock().unwrap().push(age);
        self.watch.outdated_for(BatchNumber::MAX, self.clock.now())
    }

    fn watches(&self) -> Vec<Arc<Watch>> {
        vec![Arc::clone(&self.watch)]
    }

    fn wake_waiters(&self) {}
}

impl Holder {
    /// Begins a read, which ends only if it is revoked.
    fn read(&self) {
        self.connection.lock().unwrap().begin_read().unwrap();
        self.watch.take_snapshot(BatchNumber::default(), self.clock.now());
        self.watch.begin(self.clock.now());
    }

    /// Ends it; tells whether it was revoked.
    fn leave(&self) -> bool {
        let is_revoked = self.watch.end();
        let mut connection = self.connection.lock().unwrap();
        connection.restore_after_revocation().unwrap();
        connection.rollback().unwrap();
        self.watch.end_snapshot();
        is_revoked
    }
}

struct Bench {
    checkpointer: Checkpointer,
    checkpoints: Arc<Checkpoints>,
    holder: Arc<Holder>,
    writer: Connection,
    progress: Arc<Progress>,
    recorder: Arc<Recorder>,
    clock: Arc<HandClock>,
    _files: Files,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_patience(Duration::ZERO)
    }

    /// With a writer that waits so long for room.
    fn with_patience(patience: Duration) -> Bench {
        let clock = Arc::<HandClock>::default();
        clock.advance(Duration::from_secs(3_600));
        let mut options = Options::new().readers(1).clock(Arc::clone(&clock) as _);
        options.wal_limit_bytes = LIMIT;
        options.write_time_limit = patience;
        let opened = open(&options, Path::new(":memory:"), Duration::ZERO).unwrap();
        let connection = (opened.open_reader)().unwrap().connection;
        let watch = Arc::new(Watch::new(connection.revoker(), Arc::clone(&clock) as _));
        let (connection, asked) = (Mutex::new(connection), Mutex::default());
        let holder = Holder { connection, watch, clock: Arc::clone(&clock), asked };
        let holder = Arc::new(holder);
        let (progress, recorder) = (Arc::<Progress>::default(), Arc::<Recorder>::default());
        let holders = SnapshotHolders::new(
            vec![Arc::clone(&holder) as _],
            &options,
            Arc::clone(&progress),
            Arc::clone(&recorder),
        );
        let checkpoints =
            Checkpoints::new(opened.wal, Arc::new(holders), None, &options, Arc::clone(&recorder));
        let checkpoints = Arc::new(checkpoints);
        let queue = Arc::new(WriteQueue::new(DatabaseId::new(), 1, Arc::clone(&progress)));
        let checkpointer = Checkpointer {
            database: queue.database(),
            open: opened.open_checkpointer,
            checkpoints: Arc::clone(&checkpoints),
            queue,
            progress: Arc::clone(&progress),
        };
        let (writer, _files) = (opened.writer, opened.files);
        let bench =
            Bench { checkpointer, checkpoints, holder, writer, progress, recorder, clock, _files };
        bench.write("CREATE TABLE t(v)");
        bench.checkpoints.finish(&bench.writer).unwrap();
        bench
    }

    fn write(&self, sql: &str) {
        let number = self.progress.start_commit();
        self.writer.begin_immediate().unwrap();
        self.writer.execute_batch(sql).unwrap();
        self.progress.expose();
        self.writer.commit().unwrap();
        self.progress.finish_commit(number);
    }

    /// Writes until the WAL has so many 16th parts of its limit.
    fn fill(&self, parts: u64) {
        while self.checkpoints.wal_bytes() < LIMIT / 16 * parts {
            self.write("INSERT INTO t VALUES (zeroblob(9000))");
        }
    }

    /// Whether the checkpointer was woken since this was last asked.
    fn is_wanted(&self) -> bool {
        std::mem::take(&mut self.checkpoints.signal().wanted)
    }

    fn asked(&self) -> Vec<Duration> {
        std::mem::take(&mut self.holder.asked.lock().unwrap())
    }
}

#[test]
fn a_checkpoint_is_wanted_at_a_quarter_of_the_limit_and_again_when_one_was_done() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.fill(3);
        bench.checkpoints.note_growth();
        assert!(!bench.is_wanted());
        bench.fill(4);
        bench.checkpoints.note_growth();
        assert!(bench.is_wanted());
        let reader = (bench.checkpointer.open)().unwrap();
        assert!(bench.checkpointer.copy(&reader.connection).unwrap());
        let done = bench.checkpoints.finish(&bench.writer).unwrap();
        assert!(done.is_complete() && !done.blocked);
        assert_eq!(bench.checkpoints.wal_bytes(), 0, "the next commit overwrites it");
        bench.checkpoints.note_growth();
        assert!(!bench.is_wanted());
    }
    assert_eq!(bench.recorder.checkpoints_completed.get(), 3);
}

#[test]
fn one_checkpoint_is_under_way_at_a_time() {
    let bench = Bench::new();
    bench.checkpoints.request();
    assert!(bench.checkpointer.wait_for_work());
    bench.checkpoints.request();
    assert!(!bench.is_wanted());
    bench.checkpoints.finish(&bench.writer).unwrap();
    bench.checkpoints.request();
    assert!(bench.is_wanted());
    bench.checkpoints.stop();
    assert!(!bench.checkpointer.wait_for_work());
}

#[test]
fn what_a_read_prevented_is_tried_again_when_the_wal_has_grown_by_an_eighth_more() {
    let bench = Bench::new();
    bench.fill(4);
    bench.holder.read();
    bench.clock.advance(SHORT * 2);
    let done = bench.checkpoints.finish(&bench.writer).unwrap();
    assert!(done.is_complete() && done.blocked, "{done:?}");
    let blocked_at = bench.checkpoints.wal_bytes();
    assert!(blocked_at >= LIMIT / 4);
    bench.checkpoints.note_growth();
    assert!(!bench.is_wanted());
    while bench.checkpoints.wal_bytes() < blocked_at + LIMIT / 4 / 8 {
        assert!(!bench.is_wanted());
        bench.write("INSERT INTO t VALUES (1)");
        bench.checkpoints.note_growth();
    }
    assert!(bench.is_wanted());
    assert!(!bench.holder.leave(), "it was not revoked");
    assert!(!bench.checkpoints.finish(&bench.writer).unwrap().blocked);
    assert_eq!(bench.checkpoints.blocked_at.load(Ordering::Relaxed), 0);
}

#[test]
fn snapshots_at_rest_keep_their_age_until_the_wal_is_half_full() {
    let bench = Bench::new();
    let age = bench.checkpoints.snapshot_age;
    assert!(age > Duration::ZERO);
    bench.asked();
    bench.fill(7);
    bench.checkpoints.release_idle();
    bench.fill(8);
    bench.checkpoints.release_idle();
    assert_eq!(bench.asked(), [age, Duration::ZERO]);
}

#[test]
fn a_read_in_the_way_is_given_the_less_time_the_fuller_the_wal_is() {
    let moment = Duration::from_nanos(1);
    for (parts, time, is_revoked) in [
        (7, GRACE * 9, false),
        (8, GRACE - moment, false),
        (8, GRACE, true),
        (12, SHORT - moment, false),
        (12, SHORT, true),
    ] {
        let bench = Bench::new();
        bench.holder.read();
        bench.fill(parts);
        bench.clock.advance(time);
        bench.checkpointer.press(time);
        assert_eq!(bench.holder.leave(), is_revoked, "{parts} {time:?}");
        assert_eq!(bench.recorder.revoked_readers.get(), u64::from(is_revoked));
    }
}

#[test]
fn the_writer_is_asked_to_finish_when_all_was_copied() {
    let bench = Bench::new();
    bench.fill(4);
    bench.checkpoints.request();
    let Bench { checkpointer, checkpoints, writer, recorder, .. } = bench;
    let queue = Arc::clone(&checkpointer.queue);
    let thread = std::thread::spawn(move || checkpointer.run());
    let kicked = queue.take(1, &mut Default::default(), None);
    assert_eq!(kicked, Taken::Kicked);
    assert!(checkpoints.is_finish_wanted());
    checkpoints.request();
    assert!(!checkpoints.signal().wanted, "it waits for the writer");
    checkpoints.finish(&writer).unwrap();
    assert!(!checkpoints.is_finish_wanted());
    assert_eq!(recorder.checkpoint_passes.get(), 1);
    checkpoints.stop();
    thread.join().unwrap();
}

#[test]
fn nothing_is_copied_behind_poison() {
    let bench = Bench::new();
    bench.fill(4);
    bench.progress.poison("it is broken on purpose".into());
    bench.checkpoints.request();
    let Bench { checkpointer, checkpoints, recorder, .. } = bench;
    let thread = std::thread::spawn(move || checkpointer.run());
    // Done with the first when there can be another.
    while checkpoints.signal().wanted || checkpoints.signal().under_way {
        std::thread::yield_now();
    }
    checkpoints.stop();
    thread.join().unwrap();
    assert!(!checkpoints.is_finish_wanted());
    assert_eq!(recorder.checkpoint_passes.get(), 0);
}

#[test]
fn the_writer_waits_for_room_only_when_less_than_an_eighth_is_free() {
    let bench = Bench::new();
    bench.fill(13);
    bench.checkpoints.reserve(&bench.writer).unwrap();
    assert_eq!(bench.recorder.wal_stalls.get(), 0);
    bench.fill(15);
    bench.checkpoints.reserve(&bench.writer).unwrap();
    assert_eq!(bench.recorder.wal_stalls.get(), 1);
    assert_eq!(bench.checkpoints.wal_bytes(), 0);
}

#[test]
fn a_read_that_leaves_the_writer_no_room_is_revoked_when_it_is_not_short_any_more() {
    // One that keeps the WAL from being copied, and one of all that is in it.
    for (before, behind) in [(1, 15), (15, 15)] {
        let bench = Bench::with_patience(Duration::from_secs(1));
        bench.fill(before);
        bench.holder.read();
        bench.fill(behind);
        let start = bench.clock.now();
        bench.clock.tick(Duration::from_millis(1));
        bench.checkpoints.restart_wal(&bench.writer).unwrap();
        assert!(bench.clock.now() - start >= SHORT);
        assert!(bench.holder.leave());
        assert_eq!(bench.recorder.revoked_readers.get(), 1);
    }
}

#[test]
fn a_writer_that_gets_no_room_in_time_is_told_who_is_in_the_way() {
    let bench = Bench::with_patience(Duration::from_millis(1));
    bench.fill(1);
    bench.holder.read();
    bench.fill(15);
    bench.clock.tick(Duration::from_millis(1));
    let error = bench.checkpoints.reserve(&bench.writer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.to_string().contains("a reader keeps it from restarting"), "{error}");
    assert!(!bench.holder.leave());
    bench.checkpoints.reserve(&bench.writer).unwrap();
}
