//! Schedules of the uses of a snapshot, and of those who end them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolite_sqlite::Connection;
use shuttle::thread;

use super::Watch;
use crate::clock::hand::HandClock;
use crate::files::open::Opened;
use crate::models::{SCHEDULES, check, database};
use crate::progress::{BatchNumber, Progress};

/// Uses of one connection.
const USES: u64 = 3;

/// A batch that the snapshot lacks.
fn first_batch() -> BatchNumber {
    Progress::default().start_commit()
}

/// Uses a snapshot again and again, at the moments 1, 2, 3; tells which uses were revoked.
fn use_snapshot(watch: &Watch, connection: &mut Connection) -> Vec<u64> {
    let mut revoked = Vec::new();
    for moment in 1..=USES {
        let now = Duration::from_nanos(moment);
        if !connection.is_in_transaction() {
            connection.begin_read().unwrap();
            watch.take_snapshot(BatchNumber::default(), now);
        }
        assert!(!connection.interruption().is_revoked(), "a use was ended that had not begun");
        watch.begin(now);
        thread::yield_now();
        let is_revoked = watch.end();
        assert_eq!(is_revoked, connection.interruption().is_revoked());
        assert_eq!(watch.running_for(now), None);
        if is_revoked {
            revoked.push(moment);
            connection.restore_after_revocation().unwrap();
            connection.rollback().unwrap();
            watch.end_snapshot();
        }
    }
    connection.rollback().unwrap();
    watch.end_snapshot();
    revoked
}

/// A reader, and the database that it belongs to.
type Used = Arc<Mutex<(Connection, Arc<Mutex<Opened>>)>>;

fn reader() -> Used {
    let database = database();
    let reader = (database.lock().unwrap().open_reader)().unwrap();
    Arc::new(Mutex::new((reader.connection, database)))
}

/// Has two threads end the uses of a snapshot meanwhile; returns how often they did, by what `end`
/// says, and which uses were revoked.
fn end_uses(
    reader: &Used,
    end: impl Fn(&Watch) -> bool + Copy + Send + 'static,
) -> (usize, Vec<u64>) {
    let revoker = reader.lock().unwrap().0.revoker();
    let watch = Arc::new(Watch::new(revoker, Arc::<HandClock>::default()));
    let (used, reader) = (Arc::clone(&watch), Arc::clone(reader));
    let user = thread::spawn(move || use_snapshot(&used, &mut reader.lock().unwrap().0));
    let others = [(); 2].map(|()| {
        let watch = Arc::clone(&watch);
        thread::spawn(move || usize::from(end(&watch)) + usize::from(end(&watch)))
    });
    let count = others.into_iter().map(|it| it.join().unwrap()).sum();
    (count, user.join().unwrap())
}

const FIRST: Duration = Duration::from_nanos(1);

const LAST: Duration = Duration::from_nanos(USES);

#[test]
fn each_revocation_ends_one_use_and_each_use_ends_once() {
    let reader = reader();
    check(SCHEDULES, move || {
        let (count, revoked) = end_uses(&reader, |it| it.revoke_outdated(first_batch(), LAST));
        assert_eq!(count, revoked.len());
    });
}

#[test]
fn only_the_use_that_was_looked_at_is_revoked() {
    let reader = reader();
    check(SCHEDULES, move || {
        let (count, revoked) = end_uses(&reader, |it| it.revoke_taken_before(LAST, FIRST));
        assert_eq!(count, revoked.len());
        assert!(revoked.is_empty() || revoked == [1], "{revoked:?}");
    });
}

#[test]
fn a_use_that_is_stopped_and_revoked_ends_once_and_no_other_does() {
    let reader = reader();
    check(SCHEDULES, move || {
        let (_, revoked) = end_uses(&reader, |it| {
            it.stop_begun_before(FIRST * 2);
            it.revoke_outdated(first_batch(), FIRST)
        });
        assert!(revoked.is_empty() || revoked == [1], "{revoked:?}");
    });
}
