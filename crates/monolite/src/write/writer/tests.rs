//! Tests of the writer, driven without threads and with a clock of their own.
//!
//! Each rule of the writer has a test that fails without it; `cargo xtask planted` breaks the rules
//! in copies of the source, and runs these tests.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use monolite_sqlite::{CheckpointMode, Connection};

use super::{Entry, Room, Writer, no_room_left};
use crate::call::completion::{Completion, Outcome};
use crate::call::in_flight::{HeldBatch, InFlight};
use crate::call::member::{Body, ForeignKeys, Once, Repeatable, Submission, Terms};
use crate::clock::hand::HandClock;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::files::open::{self, Files};
use crate::options::Options;
use crate::stats::Recorder;
use crate::tx::Tx;

/// A WAL that restarts when it is asked to, or that a reader sits on.
#[derive(Default)]
struct BenchRoom {
    is_blocked: bool,
}

impl Room for BenchRoom {
    fn restart_wal(&self, writer: &Connection) -> Result<()> {
        if self.is_blocked {
            return Err(no_room_left());
        }
        assert!(!writer.checkpoint(CheckpointMode::Restart)?.blocked);
        Ok(())
    }
}

type Caller<T> = Arc<Completion<T, Error>>;

struct Bench {
    writer: Writer,
    clock: Arc<HandClock>,
    recorder: Arc<Recorder>,
    room: BenchRoom,
    batch: HeldBatch<'static>,
    _files: Files,
}

impl Bench {
    fn new() -> Bench {
        let clock = Arc::new(HandClock::default());
        Bench::with_clock(Arc::clone(&clock) as Arc<dyn Clock>, clock)
    }

    fn with_clock(clock: Arc<dyn Clock>, hand: Arc<HandClock>) -> Bench {
        let options =
            Options::new().clock(clock).readers(1).write_time_limit(Duration::from_millis(100));
        let opened = open::open(&options, Path::new(":memory:"), Duration::ZERO).unwrap();
        let recorder = Arc::new(Recorder::default());
        let (connection, deadline) = (opened.writer, opened.writer_deadline);
        let (figures, progress) = (Arc::clone(&recorder), Arc::default());
        let writer = Writer::new(connection, deadline, &options, figures, progress, opened.wal);
        let batch = Box::leak(Box::new(InFlight::new(options.clock))).hold();
        let room = BenchRoom::default();
        let mut bench = Bench { writer, clock: hand, recorder, room, batch, _files: opened.files };
        let schema = bench.add(|tx| {
            tx.execute_batch(
                "CREATE TABLE t(id INTEGER PRIMARY KEY, v INTEGER NOT NULL) STRICT;
                 CREATE TABLE child(id INTEGER PRIMARY KEY, parent INTEGER NOT NULL
                     REFERENCES t(id) DEFERRABLE INITIALLY DEFERRED) STRICT;",
            )
        });
        bench.run();
        schema.result().unwrap();
        bench
    }

    fn add<T, F>(&mut self, body: F) -> Caller<T>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let caller = Completion::new();
        let job = Submission::new(Repeatable(body), Terms::default(), Arc::clone(&caller));
        self.batch.inbox.push_back(Entry::new(Box::new(job)));
        caller
    }

    fn add_once<T, F>(&mut self, body: F) -> Caller<T>
    where
        T: Send + 'static,
        F: FnOnce(&Tx<'_>) -> Result<T> + Send + 'static,
    {
        let caller = Completion::new();
        let job = Submission::new(Once(Some(body)), Terms::default(), Arc::clone(&caller));
        self.batch.inbox.push_back(Entry::new(Box::new(job)));
        caller
    }

    fn add_without_keys<T, B>(&mut self, body: B) -> Caller<T>
    where
        T: Send + 'static,
        B: Body<T, Error> + 'static,
    {
        let caller = Completion::new();
        let terms = Terms { foreign_keys: ForeignKeys::Off, ..Terms::default() };
        let job = Submission::new(body, terms, Arc::clone(&caller));
        self.batch.inbox.push_back(Entry::new(Box::new(job)));
        caller
    }

    fn insert(&mut self, id: i64) -> Caller<u32> {
        self.add(move |tx| {
            tx.execute("INSERT INTO t VALUES (?1, 0)", [id])?;
            Ok(tx.attempt())
        })
    }

    /// With a WAL that holds some 70 pages, of which `filled` bytes are taken.
    fn with_small_wal(filled: i64) -> Bench {
        let mut bench = Bench::new();
        bench.add(|tx| tx.execute_batch("CREATE TABLE blob(v BLOB)"));
        bench.run();
        assert!(!bench.writer.connection.checkpoint(CheckpointMode::Restart).unwrap().blocked);
        bench.writer.wal.set_limit_bytes(300_000);
        let filling = bench.add_blob(filled);
        bench.run();
        filling.result().unwrap();
        bench
    }

    fn add_blob(&mut self, bytes: i64) -> Caller<u32> {
        self.add(move |tx| {
            tx.execute("INSERT INTO blob VALUES (zeroblob(?1))", [bytes])?;
            Ok(tx.attempt())
        })
    }

    fn add_blob_once(&mut self, bytes: i64) -> Caller<usize> {
        self.add_once(move |tx| tx.execute("INSERT INTO blob VALUES (zeroblob(?1))", [bytes]))
    }

    /// Steps until the inbox is empty, answering each batch as the sync thread would.
    fn run(&mut self) -> usize {
        let mut steps = 0;
        while !self.batch.inbox.is_empty() {
            self.writer.step(&mut self.batch, &self.room).into_iter().for_each(Entry::answer);
            steps += 1;
        }
        steps
    }

    /// What a connection of its own sees: only what is committed.
    fn ids(&self) -> Vec<i64> {
        let raw = self.writer.connection().raw();
        assert!(raw.is_autocommit(), "a transaction was left open");
        let mut statement = raw.prepare("SELECT id FROM t ORDER BY id").unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(std::result::Result::unwrap).collect()
    }
}

trait Answered<T> {
    fn result(&self) -> Result<T>;
    fn is_answered(&self) -> bool;
}

impl<T> Answered<T> for Caller<T> {
    fn result(&self) -> Result<T> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => outcome.unwrap_for_caller(),
            Poll::Pending => panic!("not answered"),
        }
    }

    fn is_answered(&self) -> bool {
        self.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

fn give_up<T>() -> Result<T> {
    Err(Error::aborted("on purpose"))
}

#[test]
fn nobody_is_answered_by_a_step() {
    let mut bench = Bench::new();
    let caller = bench.insert(1);
    let done = bench.writer.step(&mut bench.batch, &bench.room);
    assert!(!caller.is_answered());
    done.into_iter().for_each(Entry::answer);
    caller.result().unwrap();
}

#[test]
fn a_batch_without_failures_is_one_commit_without_savepoints() {
    let mut bench = Bench::new();
    let before = bench.recorder.commits.get();
    let callers: Vec<_> = (0..100).map(|id| bench.insert(id)).collect();
    assert_eq!(bench.run(), 1);
    assert!(callers.iter().all(|caller| caller.result().unwrap() == 1));
    assert_eq!(bench.recorder.commits.get() - before, 1);
    assert_eq!(bench.recorder.savepoints.get(), 0);
    assert_eq!(bench.ids().len(), 100);
}

#[test]
fn failing_member_rolls_back_alone() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let failing = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        give_up::<()>()
    });
    let last = bench.insert(3);
    bench.run();
    assert_eq!(failing.result().unwrap_err().kind(), ErrorKind::Aborted);
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn member_that_failed_before_it_wrote_costs_its_neighbours_nothing() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let failing = bench.add(|tx| {
        tx.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))?;
        give_up::<()>()
    });
    bench.run();
    assert!(failing.result().is_err());
    assert_eq!(first.result().unwrap(), 1, "the neighbour ran again");
    assert_eq!(bench.recorder.reruns.get(), 0);
}

#[test]
fn member_that_rolls_back_the_outer_transaction_takes_nobody_with_it() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let rolling_back = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        // Swallows the error, so that only the check can notice.
        Ok(tx.execute("INSERT OR ROLLBACK INTO t VALUES (2, 0)", []).is_err())
    });
    let last = bench.insert(3);
    bench.run();
    assert_eq!(rolling_back.result().unwrap_err().kind(), ErrorKind::Aborted);
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn statement_after_a_silent_rollback_neither_runs_nor_survives() {
    let mut bench = Bench::new();
    let refused = bench.add(|tx| {
        let mut late = tx.prepare("INSERT INTO t VALUES (9, 0)")?;
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        assert!(tx.execute("INSERT OR ROLLBACK INTO t VALUES (2, 0)", []).is_err());
        // Prepared before, so it passes `Tx` by: only the commit hook stops it.
        assert!(late.execute([]).is_err());
        tx.execute("INSERT INTO t VALUES (10, 0)", [])
    });
    bench.run();
    let error = refused.result().unwrap_err();
    assert!(error.to_string().contains("rolled back"), "{error}");
    assert_eq!(bench.ids(), Vec::<i64>::new());
}

#[test]
fn deferred_foreign_key_is_its_members_failure_alone() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let orphan = bench.add(|tx| tx.execute("INSERT INTO child VALUES (1, 77)", []));
    let last = bench.insert(3);
    let commits = bench.recorder.commits.get();
    bench.run();
    assert_eq!(orphan.result().unwrap_err().kind(), ErrorKind::Constraint);
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
    assert_eq!(bench.recorder.commits.get() - commits, 1, "the batch's commit failed");
}

#[test]
fn a_deferral_of_foreign_keys_ends_with_its_member() {
    let mut bench = Bench::new();
    let deferring = bench.add(|tx| {
        tx.execute_batch(
            "CREATE TABLE kid(id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t(id)) STRICT;
             PRAGMA defer_foreign_keys = ON;
             INSERT INTO kid VALUES (1, 7); INSERT INTO t VALUES (7, 0);",
        )
    });
    let next = bench.add(|tx| {
        let refused = tx.execute("INSERT INTO kid VALUES (2, 77)", []);
        Ok(refused.is_err_and(|error| error.is_foreign_key_violation()))
    });
    bench.run();
    deferring.result().unwrap();
    assert!(next.result().unwrap());
}

#[test]
fn member_without_foreign_keys_has_a_transaction_to_itself() {
    let mut bench = Bench::new();
    let orphan = |tx: &Tx<'_>| tx.execute("INSERT INTO child(parent) VALUES (77)", []);
    let (before, first) = (bench.add(orphan), bench.add_without_keys(Repeatable(orphan)));
    let (once, after) = (bench.add_without_keys(Once(Some(orphan))), bench.add(orphan));
    let valid = bench.insert(77);
    assert_eq!(bench.run(), 4);
    assert!(before.result().is_err() && after.result().is_err());
    assert!(first.result().is_ok() && once.result().is_ok() && valid.result().is_ok());
}

#[test]
fn closure_that_runs_once_without_foreign_keys_is_not_run_again_for_room() {
    let mut bench = Bench::with_small_wal(200_000);
    let blob = |tx: &Tx<'_>| tx.execute("INSERT INTO blob VALUES (zeroblob(200000))", []);
    for is_blocked in [true, false] {
        bench.room.is_blocked = is_blocked;
        let once = bench.add_without_keys(Once(Some(blob)));
        bench.run();
        assert_eq!(once.result().unwrap_err().kind(), ErrorKind::Overloaded);
    }
    let again = bench.add_without_keys(Once(Some(blob)));
    bench.run();
    again.result().unwrap();
}

#[test]
fn closure_that_runs_once_cannot_be_undone_by_a_later_neighbour() {
    let mut bench = Bench::new();
    let once = bench.add_once(|tx| tx.execute("INSERT INTO t VALUES (1, 0)", []));
    let rolling_back = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        tx.execute("INSERT OR ROLLBACK INTO t VALUES (2, 0)", [])
    });
    bench.run();
    once.result().unwrap();
    assert!(rolling_back.result().is_err());
    assert_eq!(bench.ids(), [1]);
}

#[test]
fn closure_that_runs_once_fails_alone_and_runs_once() {
    let mut bench = Bench::new();
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let first = bench.insert(1);
    let once = bench.add_once(move |tx| {
        counted.fetch_add(1, Ordering::Relaxed);
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        give_up::<()>()
    });
    bench.run();
    assert!(once.result().is_err());
    assert_eq!(first.result().unwrap(), 1, "the neighbour ran again");
    assert_eq!((runs.load(Ordering::Relaxed), bench.ids()), (1, vec![1]));
}

#[test]
fn failure_is_answered_from_a_run_in_its_final_place() {
    let mut bench = Bench::new();
    // Not deterministic: its second run writes another value than its first.
    bench.add(|tx| tx.execute("INSERT INTO t VALUES (1, ?1)", [tx.attempt()]));
    let failing = bench.add(|tx| {
        let seen: i64 = tx.query_row("SELECT v FROM t WHERE id = 1", [], |r| r.get(0))?;
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        Err::<(), _>(Error::aborted(format!("saw {seen}")))
    });
    bench.run();
    let stored: i64 = bench
        .writer
        .connection()
        .raw()
        .query_row("SELECT v FROM t WHERE id = 1", [], |row| row.get(0))
        .unwrap();
    assert_eq!(failing.result().unwrap_err().to_string(), format!("saw {stored}"));
}

#[test]
fn member_over_its_time_limit_fails_alone() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let clock = Arc::clone(&bench.clock);
    let slow = bench.add(move |tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        clock.advance(Duration::from_secs(1));
        Ok(())
    });
    let last = bench.insert(3);
    bench.run();
    assert_eq!(slow.result().unwrap_err().kind(), ErrorKind::Timeout);
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn endless_statement_is_interrupted_and_fails_alone() {
    let mut bench =
        Bench::with_clock(Arc::new(SystemClock::default()), Arc::new(HandClock::default()));
    let first = bench.insert(1);
    let endless = bench.add(|tx| {
        tx.execute(
            "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n)
             SELECT i, 0 FROM n",
            [],
        )
    });
    let last = bench.insert(3);
    bench.run();
    let error = endless.result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("WITH RECURSIVE"), "{error}");
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn panic_reaches_its_caller_and_nobody_else() {
    let mut bench = Bench::new();
    let first = bench.insert(1);
    let panicking = bench.add(|tx| -> Result<()> {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        panic!("on purpose");
    });
    let last = bench.insert(3);
    bench.run();
    let outcome = panicking.poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Outcome::Panicked(payload)) = outcome else { panic!("no panic arrived") };
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    first.result().unwrap();
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn neighbours_that_change_their_mind_are_run_one_by_one() {
    let mut bench = Bench::new();
    // Succeeds the first time, fails after writing the second time, succeeds from then on.
    let moody = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (1, 0)", [])?;
        if tx.attempt() == 2 { give_up() } else { Ok(tx.attempt()) }
    });
    let failing = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        give_up::<()>()
    });
    let last = bench.insert(3);
    bench.run();
    assert_eq!(moody.result().unwrap(), 3);
    assert!(failing.result().is_err());
    last.result().unwrap();
    assert_eq!(bench.ids(), [1, 3]);
}

#[test]
fn failures_bring_savepoints_and_their_absence_ends_them() {
    let mut bench = Bench::new();
    let failing = |bench: &mut Bench, id: i64| {
        bench.add(move |tx| {
            tx.execute("INSERT INTO t VALUES (?1, 0)", [id])?;
            give_up::<()>()
        })
    };
    for id in 0..1_000 {
        if id % 100 == 99 {
            failing(&mut bench, id);
        } else {
            bench.insert(id);
        }
    }
    bench.run();
    assert_eq!(bench.ids().len(), 990);
    let guarded = bench.recorder.savepoints.get();
    assert!(guarded > 20, "only {guarded} savepoints");
    assert!(bench.recorder.reruns.get() < 500, "{} reruns", bench.recorder.reruns.get());
    for round in 0..30 {
        for id in 0..10_000 {
            bench.insert(10_000 * (round + 1) + id);
        }
        bench.run();
    }
    let before = bench.recorder.savepoints.get();
    bench.insert(-1);
    bench.run();
    assert_eq!(bench.recorder.savepoints.get(), before, "failures were not forgotten");
}

#[test]
fn batch_closes_on_count_and_on_time() {
    let mut bench = Bench::new();
    bench.writer.max_batch = 10;
    (0..25).for_each(|id| drop(bench.insert(id)));
    assert_eq!(bench.run(), 3);
    bench.writer.max_batch = 1_000;
    bench.writer.max_batch_time = Duration::from_millis(1);
    for _ in 0..4 {
        let clock = Arc::clone(&bench.clock);
        bench.add(move |_| {
            clock.advance(Duration::from_millis(1));
            Ok(())
        });
    }
    assert_eq!(bench.run(), 4);
}

#[test]
fn engine_statements_are_refused_even_after_the_engine_prepared_them() {
    let mut bench = Bench::new();
    bench.insert(1);
    let undone = bench.add(|tx| {
        tx.execute("INSERT INTO t VALUES (2, 0)", [])?;
        give_up::<()>()
    });
    bench.run();
    assert!(undone.result().is_err());
    let seen = Arc::new(Mutex::new(Vec::new()));
    for sql in [
        "BEGIN IMMEDIATE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT monolite_group",
        "ROLLBACK TO monolite_group",
        "RELEASE monolite_group",
        "RELEASE monolite_member",
    ] {
        let seen = Arc::clone(&seen);
        bench.add(move |tx| {
            let (run, prepared) = (tx.execute(sql, []), tx.prepare_cached(sql).map(|_| ()));
            seen.lock().unwrap().push((run.map(|_| ()), prepared));
            Ok(())
        });
    }
    bench.run();
    for (run, prepared) in seen.lock().unwrap().drain(..) {
        assert_eq!(run.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(prepared.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn only_what_an_empty_wal_cannot_hold_is_too_large() {
    let mut bench = Bench::with_small_wal(200_000);
    let (first, large) = (bench.insert(1), bench.add_blob(200_000));
    let (too_large, last) = (bench.add_blob(400_000), bench.insert(2));
    bench.run();
    large.result().unwrap();
    let error = too_large.result().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(first.result().is_ok() && last.result().is_ok());
    assert_eq!(bench.ids(), [1, 2]);
}

#[test]
fn members_that_fit_only_one_by_one_all_commit() {
    let mut bench = Bench::with_small_wal(100_000);
    let callers: Vec<_> = (0..20).map(|_| bench.add_blob(60_000)).collect();
    assert_eq!(bench.run(), 1 + 20, "one together, and one for each alone");
    assert!(callers.iter().all(|caller| caller.result().is_ok()));
}

#[test]
fn closure_that_runs_once_and_finds_no_room_may_try_again() {
    let mut bench = Bench::with_small_wal(200_000);
    let (neighbour, once) = (bench.insert(1), bench.add_blob_once(200_000));
    bench.run();
    assert_eq!(once.result().unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(neighbour.result().unwrap(), 2);
    let again = bench.add_blob_once(200_000);
    bench.run();
    again.result().unwrap();
    // The first is told of the WAL's state, the second of its own size.
    for kind in [ErrorKind::Overloaded, ErrorKind::Invalid] {
        let too_large = bench.add_blob_once(400_000);
        bench.run();
        assert_eq!(too_large.result().unwrap_err().kind(), kind);
    }
}

#[test]
fn closure_that_runs_once_and_failed_keeps_its_own_error() {
    let mut bench = Bench::with_small_wal(200_000);
    let (large, once) = (bench.add_blob(200_000), bench.add_once(|_| give_up::<()>()));
    bench.run();
    assert_eq!(once.result().unwrap_err().kind(), ErrorKind::Aborted);
    large.result().unwrap();
}

#[test]
fn batch_that_gets_no_room_is_refused_and_not_committed_in_part() {
    let mut bench = Bench::with_small_wal(200_000);
    bench.room.is_blocked = true;
    let (small, large) = (bench.insert(1), bench.add_blob(200_000));
    let once = bench.add_once(|tx| tx.execute("INSERT INTO t VALUES (2, 0)", []));
    bench.run();
    for error in [small.result().unwrap_err(), large.result().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    }
    assert_eq!(once.result().unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(bench.ids(), Vec::<i64>::new());
}
