//! Tests of the pool of reader connections, driven by hand on one thread where one is enough.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use monolite_sqlite::Connection;

use super::Readers;
use crate::activity::Caller;
use crate::activity::slow::SlowLog;
use crate::call::inside::{DatabaseId, Inside, Place};
use crate::clock::hand::HandClock;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open::{Files, open};
use crate::options::Options;
use crate::progress::Progress;
use crate::read::holders::SnapshotHolder as _;

/// Nobody waits so long here; a read that has overrun it is made by the clock.
const LIMIT: Duration = Duration::from_secs(60);

/// A pool, and the writer beside it.
struct Bench {
    readers: Readers,
    database: DatabaseId,
    clock: Arc<HandClock>,
    progress: Arc<Progress>,
    writer: Connection,
    _files: Files,
}

impl Bench {
    fn new(connections: usize) -> Bench {
        Bench::with(connections, true, LIMIT)
    }

    fn with(connections: usize, keep_snapshots: bool, limit: Duration) -> Bench {
        let (clock, progress) = (Arc::<HandClock>::default(), Arc::<Progress>::default());
        let options = Options::new().readers(connections).read_time_limit(limit);
        let opened = open(&options, Path::new(":memory:"), Duration::ZERO).unwrap();
        let database = DatabaseId::new();
        let readers = Readers::new(
            opened.open_reader,
            database,
            keep_snapshots,
            &options.clock(Arc::clone(&clock) as _),
            Arc::clone(&progress),
            Arc::default(),
            SlowLog::default(),
        );
        let (writer, _files) = (opened.writer, opened.files);
        let bench = Bench { readers, database, clock, progress, writer, _files };
        bench.commit("CREATE TABLE t(v)");
        bench
    }

    fn commit(&self, sql: &str) {
        let number = self.progress.start_commit();
        self.commit_unnoticed(sql);
        self.progress.expose();
        self.progress.finish_commit(number);
    }

    fn commit_unnoticed(&self, sql: &str) {
        self.writer.begin_immediate().unwrap();
        self.writer.execute_batch(sql).unwrap();
        self.writer.commit().unwrap();
    }

    fn count(&self) -> Result<i64> {
        self.readers.run(Caller::default(), None, |tx| {
            tx.query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        })
    }

    /// Whether idle connections have snapshots.
    fn snapshots(&self) -> Vec<bool> {
        let seats = self.readers.slots.iter();
        let seats = seats.map(|slot| slot.seat.lock().unwrap_or_else(PoisonError::into_inner));
        let has = |seat: &super::Seat| {
            let is_open =
                seat.open.as_ref().is_some_and(|it| it.reader.connection.is_in_transaction());
            assert_eq!(is_open, seat.snapshot.is_some());
            is_open
        };
        seats.map(|seat| has(&seat)).collect()
    }

    /// Runs `inner` within so many reads on connections of their own; returns the outcome of the
    /// outermost.
    fn within(&self, reads: usize, inner: &mut dyn FnMut()) -> Result<()> {
        if reads == 0 {
            inner();
            return Ok(());
        }
        let turn = self.readers.take_turn()?;
        turn.read(Caller::default(), None, |_| {
            let _ = self.within(reads - 1, inner);
            Ok(())
        })
    }
}

#[test]
fn a_snapshot_is_kept_until_something_may_have_been_seen_behind_it() {
    let bench = Bench::new(1);
    let kept = || {
        bench.count().unwrap();
        bench.readers.counts().1
    };
    assert_eq!([kept(), kept()], [0, 1]);
    bench.commit("INSERT INTO t VALUES (1)");
    assert_eq!(bench.count().unwrap(), 1);
    assert_eq!([kept(), kept()], [2, 3]);
    let number = bench.progress.start_commit();
    assert_eq!(kept(), 4);
    bench.progress.expose();
    assert_eq!([kept(), kept()], [4, 4]);
    bench.progress.finish_commit(number);
    assert_eq!([kept(), kept()], [4, 5]);
    assert_eq!(bench.readers.counts().0, 10);
}

#[test]
fn a_file_that_others_write_to_has_a_new_snapshot_for_each_read() {
    let bench = Bench::with(1, false, LIMIT);
    for count in 0..3 {
        assert_eq!(bench.count().unwrap(), count);
        assert!(!bench.snapshots().contains(&true));
        bench.commit_unnoticed("INSERT INTO t VALUES (1)");
    }
    assert_eq!(bench.readers.counts(), (3, 0));
}

#[test]
fn a_checkpoint_ends_the_snapshots_of_idle_connections_and_has_busy_ones_take_a_new_one() {
    let bench = Bench::new(2);
    bench.within(2, &mut || {}).unwrap();
    assert_eq!(bench.snapshots()[..2], [true, true]);
    assert_eq!(bench.readers.release_idle(Duration::ZERO), None);
    assert_eq!(bench.snapshots()[..2], [false, false]);
    let mut oldest = Vec::new();
    let release = &mut || {
        bench.clock.advance(Duration::from_secs(1));
        oldest.push(bench.readers.release_idle(Duration::ZERO));
        bench.commit("INSERT INTO t VALUES (1)");
        oldest.push(bench.readers.release_idle(Duration::ZERO));
    };
    bench.within(1, release).unwrap();
    assert_eq!(oldest, [None, Some(Duration::from_secs(1))]);
    assert_eq!(bench.snapshots().iter().filter(|it| **it).count(), 1);
    let kept = bench.readers.counts().1;
    bench.count().unwrap();
    let release = &mut || assert_eq!(bench.readers.release_idle(Duration::ZERO), None);
    bench.within(1, release).unwrap();
    bench.count().unwrap();
    assert_eq!(bench.readers.counts().1, kept + 1, "the last one is new, with nothing committed");
}

#[test]
fn a_read_that_gets_no_connection_in_time_is_told_so() {
    let bench = Bench::with(1, true, Duration::from_millis(5));
    let refused = &mut || {
        let error = bench.readers.take_turn().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains("no reader connection was free"), "{error}");
    };
    bench.within(1, refused).unwrap();
    bench.count().unwrap();
}

#[test]
fn for_each_read_that_has_overrun_its_time_there_is_a_spare_connection() {
    let bench = Bench::new(1);
    let mut spares = Vec::new();
    let spare = || bench.readers.try_spare().is_some();
    let outer = bench.within(1, &mut || {
        spares.push(spare());
        bench.clock.advance(LIMIT + Duration::from_nanos(1));
        spares.push(spare());
        // Two at once, of which the first does not overrun anything.
        bench.within(1, &mut || spares.push(spare())).unwrap();
        assert!(bench.readers.try_spare().is_some_and(|turn| {
            turn.read(Caller::default(), None, |_| Ok::<_, Error>(())).is_ok()
        }));
    });
    assert_eq!(spares, [false, true, false]);
    drop(outer);
    assert!(!spare(), "nothing is overdue any more");
    assert_eq!(bench.readers.watches().len(), 2, "a spare one was opened once");
}

#[test]
fn a_read_inside_of_a_write_has_a_connection_in_reserve() {
    let bench = Bench::new(1);
    let mut counts = Vec::new();
    let inside = &mut || {
        let _inside = Inside::enter(bench.database, Place::Write);
        counts.push(bench.count().unwrap());
        let mut nested = || counts.push(i64::from(bench.readers.try_turn().is_some()));
        bench.within(1, &mut nested).unwrap();
    };
    bench.within(1, inside).unwrap();
    assert_eq!(counts, [0, 0], "there is one");
    assert!(bench.within(1, &mut || assert!(bench.readers.try_turn().is_none())).is_ok());
}

#[test]
fn nothing_that_was_read_behind_a_revocation_reaches_the_caller() {
    let bench = Bench::new(1);
    let revoked: Result<i64> = bench.readers.run(Caller::default(), None, |tx| {
        let before = tx.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?;
        bench.clock.advance(Duration::from_secs(1));
        bench.commit("INSERT INTO t VALUES (1)");
        let now = Duration::from_secs(1);
        assert!(bench.readers.watches()[0].revoke_outdated(bench.progress.exposed(), now));
        Ok(before)
    });
    let error = revoked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("ended after 1.0s"), "{error}");
    assert!(!bench.snapshots().contains(&true));
    assert_eq!(bench.count().unwrap(), 1);
}

#[test]
fn a_read_that_was_stopped_behind_its_limit_is_told_of_the_limit() {
    let bench = Bench::new(1);
    let late: Result<()> = bench.readers.run(Caller::default(), None, |_| {
        bench.clock.advance(LIMIT + Duration::from_nanos(1));
        bench.readers.watches()[0].stop();
        Ok(())
    });
    let error = late.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("option read_time_limit"), "{error}");
    bench.count().unwrap();
}

#[test]
fn a_closed_pool_has_no_connections_and_opens_none() {
    let bench = Bench::new(2);
    bench.count().unwrap();
    bench.readers.close();
    assert!(bench.readers.slots.iter().all(|slot| slot.seat.lock().unwrap().open.is_none()));
    assert_eq!(bench.count().unwrap_err().kind(), ErrorKind::Closed);
    let reserve = Inside::enter(bench.database, Place::Write);
    assert_eq!(bench.count().unwrap_err().kind(), ErrorKind::Closed);
    drop(reserve);
}

#[test]
fn a_snapshot_kept_behind_a_read_that_panicked_is_ended_as_any_other() {
    let bench = Bench::new(1);
    let panics = || -> Result<()> {
        bench.readers.run(Caller::default(), None, |_| panic!("of the closure"))
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    bench.count().unwrap();
    assert!(bench.snapshots()[0]);
    bench.readers.release_idle(Duration::ZERO);
    assert!(!bench.snapshots().contains(&true));
    bench.readers.close_idle();
    assert!(bench.readers.slots.iter().all(|slot| slot.watch().is_none()));
}
