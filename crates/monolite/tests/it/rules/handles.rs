//! Handles: queues that are full, waits that would never end, handles that nobody keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use monolite::{Database, Error, ErrorKind, Options, Write};

use super::{create, database, ids, insert};
use crate::patience::{Gate, ends, eventually, poll_once};

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

#[test]
fn write_waits_for_room() {
    let (db, gate, _holding) = held_up(1);
    let queued = insert(&db, 1);
    let waiting: Vec<_> = (2..10)
        .map(|id| {
            let db = db.clone();
            thread::spawn(move || insert(&db, id).wait())
        })
        .collect();
    assert_eq!(db.stats().queue_depth, 1);
    gate.open();
    queued.wait().unwrap();
    ends("all waiting writes", move || {
        waiting.into_iter().for_each(|it| assert_eq!(it.join().unwrap().unwrap(), 1));
    });
    assert_eq!(ids(&db), (1..10).collect::<Vec<_>>());
}

#[test]
fn a_handle_that_nobody_keeps_leaves_its_transaction_whole_or_absent() {
    let (db, gate, holding) = held_up(1);
    drop(insert(&db, 1));
    drop(insert(&db, 2));
    let mut polled = insert(&db, 3);
    assert!(poll_once(&mut polled).is_pending());
    drop(polled);
    gate.open();
    holding.wait().unwrap();
    insert(&db, 4).wait().unwrap();
    assert_eq!(ids(&db), [1, 4], "1 was in the queue, 2 and 3 never were");
}

#[test]
fn waiting_for_a_write_inside_of_a_write_is_an_error() {
    let db = database();
    let inner = db.clone();
    let error = ends("a write inside of a write", move || {
        let inside = inner.clone();
        inner.write(move |_| insert(&inside, 1).wait()).wait().unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("the closure's own transaction"), "{error}");
    insert(&db, 2).wait().unwrap();
}

#[test]
fn a_write_started_inside_of_a_write_runs_after_it() {
    let db = database();
    let (inside, started) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&started);
    db.write(move |tx| {
        drop(insert(&inside, 2));
        flag.store(true, Ordering::SeqCst);
        tx.execute("INSERT INTO t(id) VALUES (1)", ())
    })
    .wait()
    .unwrap();
    assert!(started.load(Ordering::SeqCst));
    eventually("the second write", || ids(&db) == [1, 2]);
}

#[test]
fn reads_nest_as_deep_as_there_are_readers_and_no_deeper() {
    fn nested(db: &Database, depth: u32) -> Result<i64, Error> {
        db.read(|tx| match depth {
            0 => tx.query_row("SELECT COUNT(*) FROM t", (), |row| row.get(0)),
            _ => nested(db, depth - 1),
        })
        .wait()
    }
    let db = Options::new().readers(3).open(":memory:").unwrap();
    create(&db);
    insert(&db, 1).wait().unwrap();
    let (three, four) = ends("nested reads", {
        let db = db.clone();
        move || (nested(&db, 2), nested(&db, 3))
    });
    assert_eq!(three.unwrap(), 1);
    assert_eq!(four.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(nested(&db, 2).unwrap(), 1);
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
