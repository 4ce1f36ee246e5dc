//! A process that is forked while a database is open: the child is told that it is not its own, and
//! the parent goes on.

use std::process;
use std::thread;
use std::time::Duration;

use fork::Fork;
use monolite::{Database, Error, ErrorKind};

/// A child that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child that hung ends with.
const HUNG: i32 = 99;

/// Runs `child` in a forked process; returns the number that it gave.
fn in_child(child: impl FnOnce() -> i32) -> i32 {
    match fork::fork().expect("a process can be forked") {
        Fork::Child => {
            thread::spawn(|| {
                thread::sleep(PATIENCE);
                process::exit(HUNG);
            });
            process::exit(child());
        }
        Fork::Parent(pid) => {
            let status = fork::waitpid(pid).expect("the child can be waited for");
            assert_eq!(status & 0x7f, 0, "the child was killed");
            status >> 8
        }
    }
}

fn count(db: &Database) -> Result<i64, Error> {
    db.read(|tx| tx.query_row("SELECT count(*) FROM t", (), |row| row.get(0))).wait()
}

fn insert(db: &Database) -> Result<usize, Error> {
    db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait()
}

/// How many of the child's calls were refused as they should be.
fn refusals(db: Database) -> i32 {
    let is_refused = |told: Result<(), Error>| {
        told.is_err_and(|it| it.kind() == ErrorKind::Invalid && it.to_string().contains("forked"))
    };
    let refused = [
        is_refused(count(&db).map(drop)),
        is_refused(insert(&db).map(drop)),
        is_refused(db.try_write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).map(drop)),
        is_refused(db.transaction().map(drop)),
        is_refused(smol::block_on(db.read(|_| Ok::<_, Error>(())))),
        is_refused(smol::block_on(db.write(|_| Ok::<_, Error>(())))),
        is_refused(db.clone().close()),
    ];
    drop(db);
    refused.iter().map(|it| i32::from(*it)).sum()
}

#[test]
fn a_forked_process_is_told_that_the_database_is_its_parents() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().join("db"), ":memory:".into()] {
        let db = Database::open(&path).unwrap();
        db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
        let open = db.transaction().unwrap();
        open.execute("INSERT INTO t VALUES (2)", ()).wait().unwrap();
        for _ in 0..3 {
            insert(&db).unwrap();
            assert_eq!(in_child(|| refusals(db.clone())), 7);
        }
        // All handles dropped, and a transaction of the parent's.
        let (theirs, transaction) = (db.clone(), open);
        let ended = in_child(move || {
            drop(transaction);
            drop(theirs);
            7
        });
        assert_eq!(ended, 7);
        thread::sleep(Duration::from_millis(20));
        insert(&db).unwrap();
        assert_eq!(count(&db).unwrap(), 4);
        db.close().unwrap();
    }
    let db = Database::open(directory.path().join("db")).unwrap();
    assert_eq!(count(&db).unwrap(), 4);
    // The parent's file is not to be had while the parent has it.
    let open_again = || {
        let told = Database::open(directory.path().join("db")).unwrap_err();
        let says = told.to_string().contains("from which this one was forked");
        i32::from(told.kind() == ErrorKind::Invalid && says)
    };
    assert_eq!(in_child(open_again), 1);
    insert(&db).unwrap();
    // What a child opens itself is its own.
    let other = directory.path().join("other");
    let opened = in_child(|| {
        let db = Database::open(&other).unwrap();
        db.write(|tx| tx.execute_batch("CREATE TABLE t(v); INSERT INTO t VALUES (1)"))
            .wait()
            .unwrap();
        i32::from(count(&db).unwrap() == 1 && db.close().is_ok())
    });
    assert_eq!(opened, 1);
}
