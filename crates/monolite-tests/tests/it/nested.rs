//! Reads inside of reads: waited for or awaited, they are answered or refused at once.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use monolite::{Database, Error, ErrorKind, Options, ReadTx};

const READERS: usize = 3;

/// Longer than a test may take.
const LIMIT: Duration = Duration::from_secs(600);

fn open() -> Database {
    let options = Options::new().readers(READERS).read_time_limit(LIMIT);
    let db = options.open(":memory:").unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (7)")).wait().unwrap();
    db
}

fn seven(tx: &ReadTx<'_>) -> Result<i64, Error> {
    tx.query_row("SELECT x FROM t", (), |row| row.get(0))
}

/// As many reads at once as there are connections, each with one inside; how these end.
fn in_a_circle(outer: fn(&Database, Arc<Barrier>) -> Result<i64, Error>) -> Vec<Option<ErrorKind>> {
    let db = open();
    let all_are_in = Arc::new(Barrier::new(READERS));
    let run = |_| {
        let (db, all_are_in) = (db.clone(), Arc::clone(&all_are_in));
        thread::spawn(move || outer(&db, all_are_in).err().map(|error| error.kind()))
    };
    let threads: Vec<_> = (0..READERS).map(run).collect();
    threads.into_iter().map(|it| it.join().unwrap()).collect()
}

fn awaited(db: &Database, all_are_in: Arc<Barrier>) -> Result<i64, Error> {
    let inner = db.clone();
    smol::block_on(db.read(move |_| {
        all_are_in.wait();
        smol::block_on(inner.read(seven))
    }))
}

fn waited_for(db: &Database, all_are_in: Arc<Barrier>) -> Result<i64, Error> {
    let read = db.read(move |_| {
        all_are_in.wait();
        db.read(seven).wait()
    });
    read.wait()
}

#[test]
fn reads_in_reads_on_all_connections_wait_for_nobody_for_ever() {
    for outer in [awaited, waited_for] {
        let ends = in_a_circle(outer);
        assert!(ends.contains(&Some(ErrorKind::Invalid)), "{ends:?}");
        assert!(ends.iter().flatten().all(|kind| *kind == ErrorKind::Invalid), "{ends:?}");
        assert!(ends.contains(&None), "the others go on: {ends:?}");
    }
}
