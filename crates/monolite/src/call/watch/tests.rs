//! Tests of the uses of a snapshot, on a connection that runs nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::Connection;

use super::Watch;
use crate::clock::hand::HandClock;
use crate::files::open::{Files, open};
use crate::options::Options;
use crate::progress::{BatchNumber, Progress};

const MS: Duration = Duration::from_millis(1);

/// A reader connection and its watch.
struct Bench {
    watch: Watch,
    connection: Connection,
    _writer: Connection,
    _files: Files,
}

impl Bench {
    fn new() -> Bench {
        let opened = open(&Options::new().readers(1), Path::new(":memory:"), Duration::ZERO);
        let opened = opened.unwrap();
        let connection = (opened.open_reader)().unwrap().connection;
        let watch = Watch::new(connection.revoker(), Arc::<HandClock>::default());
        Bench { watch, connection, _writer: opened.writer, _files: opened.files }
    }

    /// Takes a snapshot of what there was up to `committed`, and begins a use of it.
    fn begin(&self, committed: BatchNumber, now: Duration) {
        self.connection.begin_read().unwrap();
        self.watch.take_snapshot(committed, now);
        self.watch.begin(now);
    }

    fn is_revoked(&self) -> bool {
        assert_eq!(
            self.connection.is_in_transaction(),
            !self.connection.interruption().is_revoked()
        );
        self.connection.interruption().is_revoked()
    }
}

/// The first two batches.
fn batches() -> [BatchNumber; 2] {
    let progress = Progress::default();
    [progress.start_commit(), progress.start_commit()]
}

#[test]
fn nothing_is_under_way_before_a_use_and_behind_it() {
    let bench = Bench::new();
    let [_, latest] = batches();
    let idle = || {
        assert_eq!(bench.watch.running_for(MS), None);
        assert_eq!(bench.watch.outdated_for(latest, MS), None);
        assert!(!bench.watch.is_overdue(Duration::MAX, Duration::ZERO));
        assert!(!bench.watch.revoke_outdated(latest, MS * 9));
        assert!(!bench.watch.revoke_taken_before(MS * 9, MS * 9));
        bench.watch.stop();
        bench.watch.stop_begun_before(MS * 9);
        assert!(!bench.connection.interruption().is_revoked());
        assert!(!bench.watch.end());
    };
    idle();
    bench.begin(BatchNumber::default(), MS);
    assert!(!bench.watch.end());
    idle();
}

#[test]
fn a_use_tells_how_long_it_goes_on_and_whether_its_snapshot_is_outdated() {
    let bench = Bench::new();
    let [first, second] = batches();
    bench.begin(first, MS * 5);
    assert_eq!(bench.watch.running_for(MS * 7), Some(MS * 2));
    assert_eq!(bench.watch.running_for(MS), Some(Duration::ZERO), "the clocks of two cores");
    assert_eq!(bench.watch.outdated_for(first, MS * 7), None);
    assert_eq!(bench.watch.outdated_for(second, MS * 7), Some(MS * 2));
    assert!(!bench.watch.is_overdue(MS * 7, MS * 2));
    assert!(bench.watch.is_overdue(MS * 8, MS * 2));
    bench.watch.end_snapshot();
    assert_eq!(bench.watch.outdated_for(second, MS * 7), None);
}

#[test]
fn a_snapshot_that_has_everything_and_a_use_that_began_later_are_not_revoked() {
    let bench = Bench::new();
    let [first, second] = batches();
    bench.begin(first, MS * 5);
    assert!(!bench.watch.revoke_outdated(first, MS * 9));
    assert!(!bench.watch.revoke_outdated(second, MS * 5 - Duration::from_nanos(1)));
    assert!(!bench.watch.revoke_taken_before(MS * 5, MS * 9));
    assert!(!bench.watch.revoke_taken_before(MS * 6, MS * 4));
    bench.watch.stop_begun_before(MS * 5);
    assert!(!bench.is_revoked());
    assert!(!bench.watch.end());
}

#[test]
fn a_snapshot_that_is_in_the_way_is_revoked_once() {
    let [first, second] = batches();
    let revocations: [fn(&Watch, BatchNumber) -> bool; 2] = [
        |watch, second| watch.revoke_outdated(second, MS * 5),
        |watch, _| watch.revoke_taken_before(MS * 6, MS * 5),
    ];
    for revoke in revocations {
        let bench = Bench::new();
        bench.begin(first, MS * 5);
        assert!(revoke(&bench.watch, second));
        assert!(bench.is_revoked());
        assert!(!revoke(&bench.watch, second));
        assert_eq!(bench.watch.outdated_for(second, MS * 9), None, "its snapshot is gone");
        assert!(bench.watch.end());
        assert!(!bench.watch.end());
    }
}

#[test]
fn a_use_that_is_stopped_is_overdue_until_its_end() {
    let stops: [fn(&Watch); 2] = [Watch::stop, |watch| watch.stop_begun_before(MS * 6)];
    for stop in stops {
        let bench = Bench::new();
        bench.begin(BatchNumber::default(), MS * 5);
        stop(&bench.watch);
        assert!(bench.is_revoked());
        assert!(bench.watch.is_overdue(MS * 5, MS));
        assert!(bench.watch.end());
        assert!(!bench.watch.is_overdue(MS * 9, MS));
    }
}

#[test]
fn a_use_that_keeps_its_snapshot_is_ended_again_and_counts_once() {
    let Bench { watch, connection, _writer, _files } = Bench::new();
    let [first, second] = batches();
    connection.begin_read().unwrap();
    watch.take_snapshot(first, MS);
    watch.begin(MS);
    // Whose snapshot nobody can end any more.
    drop(connection);
    assert!(watch.revoke_outdated(second, MS));
    assert_eq!(watch.outdated_for(second, MS * 2), Some(MS));
    assert!(!watch.revoke_outdated(second, MS));
    assert!(watch.end());
}
