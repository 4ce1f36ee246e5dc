//! The end of a database: everything accepted is answered, everything answered is there, and what
//! is left is one stock SQLite file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use monolite::{Database, Error, ErrorKind, Options};

use crate::patience::{Gate, ends, eventually};
use monolite_testkit::markers;
use monolite_testkit::random::SeededRng;

fn assert_stock_file(path: &Path) {
    for end in ["-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        assert!(!Path::new(&name).exists(), "{end} is left");
    }
}

/// Numbers that were acknowledged, and numbers that were refused.
type Answers = (BTreeSet<i64>, BTreeSet<i64>);

/// Writes until the database is closed.
fn write_until_closed(db: &Database, next: &AtomicI64) -> Answers {
    let mut answers = Answers::default();
    loop {
        let handles: Vec<_> = (0..8)
            .map(|_| {
                let id = next.fetch_add(1, Ordering::SeqCst);
                (id, db.write(move |tx| markers::put(tx, id)))
            })
            .collect();
        for (id, handle) in handles {
            match handle.wait() {
                Ok(()) => _ = answers.0.insert(id),
                Err(error) if error.kind() == ErrorKind::Closed => _ = answers.1.insert(id),
                Err(error) => panic!("{id}: {error:?}"),
            }
        }
        if !answers.1.is_empty() {
            return answers;
        }
    }
}

#[test]
fn closing_under_load_acknowledges_or_refuses_every_write() {
    let mut rng = SeededRng::new();
    for queue in [2, 64, 16_384] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let db = Options::new().queue_capacity(queue).open(&path).unwrap();
        markers::create(&db).unwrap();
        let next = AtomicI64::new(0);
        let enough = rng.i64(50..500);
        let (acknowledged, refused) = thread::scope(|scope| {
            let clients: Vec<_> =
                (0..6).map(|_| scope.spawn(|| write_until_closed(&db, &next))).collect();
            eventually("some writes", || next.load(Ordering::SeqCst) > enough);
            db.close().unwrap();
            let mut all = Answers::default();
            for answers in clients.into_iter().map(|client| client.join().unwrap()) {
                all.0.extend(answers.0);
                all.1.extend(answers.1);
            }
            all
        });
        assert_stock_file(&path);
        let found = markers::in_file(&path).unwrap();
        assert_eq!(found, acknowledged, "queue of {queue}");
        assert!(found.is_disjoint(&refused) && !acknowledged.is_empty());
    }
}

#[test]
fn a_closed_database_refuses_and_closes_again() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    markers::create(&db).unwrap();
    let other = db.clone();
    db.close().unwrap();
    db.close().unwrap();
    other.close().unwrap();
    let write = other.write(|tx| markers::put(tx, 1)).wait().unwrap_err();
    let tried = other.try_write(|tx| markers::put(tx, 1)).err().unwrap();
    let read = other.read(|tx| tx.query_row("SELECT 1", (), |_| Ok(()))).wait().unwrap_err();
    let durable = db.read_durable(|tx| tx.query_row("SELECT 1", (), |_| Ok(()))).wait();
    for error in [write, tried, read, durable.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

#[test]
fn closing_waits_for_a_running_read() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    markers::create(&db).unwrap();
    let gate = Gate::default();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let one = "SELECT n FROM total";
            db.read(|tx| {
                let before: i64 = tx.query_row(one, (), |row| row.get(0))?;
                gate.pass();
                Ok::<_, Error>((before, tx.query_row(one, (), |row| row.get::<_, i64>(0))?))
            })
            .wait()
        });
        eventually("the read began", || gate.arrivals() > 0);
        let closing = scope.spawn(|| db.close());
        eventually("writes are refused", || db.try_write(|_| Ok::<_, Error>(())).is_err());
        gate.open();
        assert_eq!(reading.join().unwrap().unwrap(), (0, 0));
        closing.join().unwrap().unwrap();
    });
}

#[test]
fn many_threads_may_close_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    ends("closing", move || {
        let closing: Vec<_> = (0..8)
            .map(|_| {
                let db = db.clone();
                thread::spawn(move || db.close())
            })
            .collect();
        closing.into_iter().for_each(|it| it.join().unwrap().unwrap());
    });
    assert_stock_file(&path);
}

/// Waits until nobody in this process has the file open any more.
fn await_closed(path: &Path) {
    eventually("the file is free", || match Database::open(path) {
        Ok(db) => db.close().is_ok(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            false
        }
    });
    assert_stock_file(path);
}

#[test]
fn the_last_handle_may_be_dropped_inside_of_a_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    let gate = Arc::new(Gate::default());
    let (mut last, stop) = (Some(db.clone()), Arc::clone(&gate));
    let handle = db.write(move |tx| {
        markers::put(tx, 1)?;
        stop.pass();
        last.take();
        Ok::<_, Error>(())
    });
    drop(db);
    gate.open();
    ends("the write", move || handle.wait()).unwrap();
    await_closed(&path);
    assert_eq!(markers::in_file(&path).unwrap(), BTreeSet::from([1]));
}

#[test]
fn a_closure_that_closes_its_own_database_is_told_that_nothing_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    let refused = |closed: Result<(), Error>| {
        let error = closed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("nothing was closed"), "{error}");
    };
    let own = db.clone();
    let write = db.write(move |tx| {
        refused(own.close());
        markers::put(tx, 1)
    });
    ends("the write", move || write.wait()).unwrap();
    let own = db.clone();
    let read = db.read(|_| {
        refused(own.close());
        Ok::<_, Error>(())
    });
    read.wait().unwrap();
    let tx = db.transaction().unwrap();
    let own = db.clone();
    let statement = tx.query_row("SELECT 1", (), move |_| {
        refused(own.close());
        Ok(())
    });
    statement.wait().unwrap();
    db.write(|tx| markers::put(tx, 2)).wait().unwrap();
    drop(tx);
    db.close().unwrap();
    assert_eq!(markers::in_file(&path).unwrap(), BTreeSet::from([1, 2]));
}

#[test]
fn dropping_the_last_handle_keeps_what_was_submitted_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    let handles: Vec<_> =
        (0..100).map(|id| (id, db.write(move |tx| markers::put(tx, id)))).collect();
    ends("dropping", move || drop(db));
    assert_stock_file(&path);
    for (id, handle) in handles {
        handle.wait().unwrap_or_else(|error| panic!("{id}: {error}"));
    }
    assert_eq!(markers::in_file(&path).unwrap(), (0..100).collect());
}
