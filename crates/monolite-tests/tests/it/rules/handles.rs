//! Handles: queues that are full, waits that would never end, handles that nobody keeps.

use std::sync::Arc;
use std::thread;

use monolite::{Database, Error, ErrorKind, Options, Write};

use super::{create, database, ids, insert};
use crate::patience::{Driven, Gate, ends, eventually, poll_once};

/// A database whose queue holds `capacity` and whose writer stands at the gate.
fn held_up(capacity: usize) -> (Database, Arc<Gate>, Write<(), Error>) {
    let db = Options::new().queue_capacity(capacity).open(":memory:").unwrap();
    create(&db);
    let gate = Arc::new(Gate::default());
    let stop = Arc::clone(&gate);
    let holding = db.write(move |_| {
        stop.pass();
        Ok(())
    });
    eventually("the writer is held up", || gate.arrivals() > 0);
    (db, gate, holding)
}

#[test]
fn try_write_refuses_when_the_queue_is_full() {
    let (db, gate, _holding) = held_up(2);
    let queued = [insert(&db, 1), insert(&db, 2)];
    let refused = db.try_write(|tx| tx.execute("INSERT INTO t(id) VALUES (3)", ())).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(refused.to_string().contains("2 transactions"), "{refused}");
    assert_eq!(db.stats().queue_depth, 2);
    gate.open();
    queued.into_iter().for_each(|it| assert_eq!(it.wait().unwrap(), 1));
    db.try_write(|tx| tx.execute("INSERT INTO t(id) VALUES (4)", ())).unwrap().wait().unwrap();
    assert_eq!(ids(&db), [1, 2, 4]);
}

/// Threads that wait for a write each.
fn waiting(db: &Database) -> Vec<thread::JoinHandle<Result<usize, Error>>> {
    let insert = |id| {
        let db = db.clone();
        thread::spawn(move || insert(&db, id).wait())
    };
    (2..10).map(insert).collect()
}

#[test]
fn a_dropped_write_runs_in_the_queue_and_in_front_of_it() {
    let (db, gate, holding) = held_up(1);
    drop(insert(&db, 1));
    drop(insert(&db, 2));
    let mut polled = insert(&db, 3);
    assert!(poll_once(&mut polled).is_pending());
    drop(polled);
    gate.open();
    holding.wait().unwrap();
    insert(&db, 4).wait().unwrap();
    assert_eq!(ids(&db), [1, 2, 3, 4], "1 was in the queue, 2 and 3 waited for room");
}

#[test]
fn a_read_inside_of_a_write_sees_what_is_committed() {
    let db = database();
    insert(&db, 1).wait().unwrap();
    let inside = db.clone();
    let (own, committed) = ends("a read inside of a write", {
        let db = db.clone();
        move || {
            db.write(move |tx| {
                tx.execute("INSERT INTO t(id) VALUES (2)", ())?;
                let count = "SELECT COUNT(*) FROM t";
                let own: i64 = tx.query_row(count, (), |row| row.get(0))?;
                let read = inside.read(|tx| tx.query_row(count, (), |row| row.get::<_, i64>(0)));
                Ok::<_, Error>((own, read.wait()?))
            })
            .wait()
            .unwrap()
        }
    });
    assert_eq!((own, committed), (2, 1));
}

#[test]
fn a_read_sees_one_snapshot_whatever_is_written_meanwhile() {
    let db = database();
    let inside = db.clone();
    let (before, after) = db
        .read(move |tx| {
            let count = || tx.query_row("SELECT COUNT(*) FROM t", (), |row| row.get::<_, i64>(0));
            let before = count()?;
            insert(&inside, 1).wait()?;
            Ok::<_, Error>((before, count()?))
        })
        .wait()
        .unwrap();
    assert_eq!((before, after), (0, 0));
    assert_eq!(ids(&db), [1], "and the next one sees the write");
}

#[test]
fn a_write_that_gave_up_its_place_in_the_queue_does_not_strand_those_behind_it() {
    let (db, gate, holding) = held_up(1);
    let queued = insert(&db, 1);
    let mut staying = Driven::start(insert(&db, 2));
    let leaving = Driven::start(insert(&db, 3));
    drop(leaving);
    assert!(!staying.is_done(), "the queue is still full");
    gate.open();
    holding.wait().unwrap();
    queued.wait().unwrap();
    eventually("the write that stayed is woken", || staying.is_done());
}

#[test]
fn a_write_that_is_polled_often_takes_one_place_among_those_who_wait() {
    let (db, gate, holding) = held_up(1);
    let queued = insert(&db, 1);
    let mut eager = Driven::start(insert(&db, 2));
    for _ in 0..100 {
        eager.poll();
    }
    let mut patient = Driven::start(insert(&db, 3));
    gate.open();
    holding.wait().unwrap();
    queued.wait().unwrap();
    eventually("the eager write", || eager.is_done());
    eventually("the patient write is woken", || patient.is_done());
}

#[test]
fn a_write_closure_that_closes_a_database_which_is_being_closed_does_not_wait_for_itself() {
    let db = database();
    let gate = Arc::new(Gate::default());
    let (inside, stop) = (db.clone(), Arc::clone(&gate));
    let handle = db.write(move |_| {
        stop.pass();
        inside.close()
    });
    eventually("the closure runs", || gate.arrivals() > 0);
    let other = db.clone();
    let closing = thread::spawn(move || other.close());
    eventually("the database is closing", || db.try_write(|_| Ok::<_, Error>(())).is_err());
    gate.open();
    ends("both", move || {
        assert_eq!(handle.wait().unwrap_err().kind(), ErrorKind::Invalid);
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn a_future_that_was_woken_and_is_not_polled_strands_nobody() {
    let (db, gate, _holding) = held_up(1);
    let queued = insert(&db, 1);
    let waiting = waiting(&db);
    let mut polled = insert(&db, 10);
    assert!(poll_once(&mut polled).is_pending());
    assert_eq!(db.stats().queue_depth, 1);
    gate.open();
    queued.wait().unwrap();
    ends("all waiting writes", move || {
        waiting.into_iter().for_each(|it| assert_eq!(it.join().unwrap().unwrap(), 1));
    });
    eventually("the polled write", || poll_once(&mut polled).is_ready());
    assert_eq!(ids(&db), (1..=10).collect::<Vec<_>>());
}
