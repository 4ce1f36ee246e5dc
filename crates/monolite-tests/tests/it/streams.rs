//! Streams: rows with back-pressure, consumers that stall, streams that are dropped.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream as _;
use monolite::{Database, ErrorKind, Options, RowIterator, RowStream};
use smol::stream::StreamExt as _;

use crate::patience::eventually;

const NUMBERS: &str = "SELECT value FROM generate_series(1, ?1)";

/// Rows that a stream reads ahead.
const AHEAD: usize = 256;

fn numbers(db: &Database, count: i64) -> RowStream<i64> {
    db.read_stream(NUMBERS, [count], |row| row.get(0))
}

fn poll(stream: &mut RowStream<i64>) -> Poll<Option<monolite::Result<i64>>> {
    Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_stream_gives_every_row_of_one_snapshot() {
    let db = Database::open(":memory:").unwrap();
    db.write(|tx| {
        tx.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY)")?;
        let sql = "INSERT INTO t SELECT value FROM generate_series(1, 5000)";
        tx.execute(sql, ())
    })
    .wait()
    .unwrap();
    let all: Vec<i64> = (1..=5_000).collect();
    let stream = || db.read_stream("SELECT id FROM t ORDER BY id", (), |row| row.get::<_, i64>(0));
    let taken: monolite::Result<Vec<i64>> = stream().wait().collect();
    assert_eq!(taken.unwrap(), all);
    let mut half = stream();
    let taken = smol::block_on(async {
        let mut taken = vec![half.next().await.unwrap().unwrap()];
        db.write(|tx| tx.execute("DELETE FROM t", ())).await.unwrap();
        while let Some(id) = half.next().await {
            taken.push(id.unwrap());
        }
        taken
    });
    assert_eq!(taken, all);
    assert_eq!(stream().wait().count(), 0);
}

#[test]
fn whatever_ends_a_stream_early_is_its_last_item() {
    let db = Database::open(":memory:").unwrap();
    let mut wrong = db.read_stream("SELECT nothing", (), |row| row.get::<_, i64>(0)).wait();
    assert_eq!(wrong.next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    assert!(wrong.next().is_none());
    let sql = "SELECT iif(value < 3, value, 'x') FROM generate_series(1, 9)";
    let items: Vec<_> = db.read_stream(sql, (), |row| row.get::<_, i64>(0)).wait().collect();
    assert_eq!(items.len(), 3);
    assert_eq!(items[2].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    let late =
        db.with_time_limit(Duration::from_millis(30))
            .read_stream(NUMBERS, [i64::MAX / 2], |_| Ok(()));
    let last = late.wait().last().unwrap().unwrap_err();
    assert_eq!(last.kind(), ErrorKind::Timeout);
    db.close().unwrap();
    let closed = numbers(&db, 1).wait().next().unwrap().unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
}

#[test]
fn no_more_is_read_than_is_taken_and_some_ahead() {
    let db = Database::open(":memory:").unwrap();
    let read = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&read);
    let mut stream = db.read_stream(NUMBERS, [100_000], move |row| {
        counts.fetch_add(1, Ordering::SeqCst);
        row.get::<_, i64>(0)
    });
    assert!(poll(&mut stream).is_pending());
    eventually("rows are read ahead", || read.load(Ordering::SeqCst) >= AHEAD);
    for taken in 1..2_000 {
        let row = smol::block_on(stream.next());
        assert_eq!(row.unwrap().unwrap(), taken);
        assert!(read.load(Ordering::SeqCst) <= AHEAD + usize::try_from(taken).unwrap());
    }
}

#[test]
fn two_hundred_stalled_consumers_hold_up_no_read() {
    let limit = Duration::from_millis(400);
    let options = Options::new().readers(2).stream_stall_limit(limit);
    let db = options.open(":memory:").unwrap();
    let mut stalled: Vec<_> = (0..200).map(|_| numbers(&db, 100_000)).collect();
    for stream in &mut stalled {
        assert!(poll(stream).is_pending());
    }
    // Two of them run, and rest; the others wait.
    let start = Instant::now();
    for _ in 0..100 {
        let one =
            |tx: &monolite::ReadTx<'_>| tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0));
        assert_eq!(db.read(one).wait().unwrap(), 1);
        assert_eq!(smol::block_on(db.read(one)).unwrap(), 1);
        db.write(|tx| tx.execute("SELECT 1", ()).map(|_| 0).or(Ok(0))).wait().unwrap();
    }
    // One stalled stream after another, or any of them at all, would have taken far longer.
    assert!(start.elapsed() < limit * 20, "{:?}", start.elapsed());
    // The limit is kept: those that ran lose their connections, and the next ones run.
    eventually("others run", || {
        stalled[2..].iter_mut().any(|stream| matches!(poll(stream), Poll::Ready(Some(Ok(_)))))
    });
    let mut ended = 0;
    for stream in &mut stalled[..2] {
        while let Poll::Ready(Some(item)) = poll(stream) {
            let Err(error) = item else { continue };
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            assert!(error.to_string().contains("stream_stall_limit"), "{error}");
            ended += 1;
        }
    }
    assert!(ended >= 1);
}

/// A database whose WAL holds little, with a table of 4 MiB.
fn with_a_small_wal(directory: &Path) -> Database {
    let hour = Duration::from_secs(3_600);
    let options = Options::new().wal_limit_bytes(10 << 20).stream_stall_limit(hour);
    let db = options.read_time_limit(hour).open(directory.join("db")).unwrap();
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE b(id INTEGER PRIMARY KEY, x);
             INSERT INTO b(x) SELECT randomblob(3900) FROM generate_series(1, 1000)",
        )
    })
    .wait()
    .unwrap();
    db
}

const REWRITE: &str = "UPDATE b SET x = randomblob(3900) WHERE id BETWEEN 100 AND 300";

/// Streams of which one row was taken, and whose queries rest.
fn stall(db: &Database) -> Vec<RowIterator<i64>> {
    let sql = "SELECT id FROM b ORDER BY id";
    let streams = (0..2).map(|_| db.read_stream(sql, (), |row| row.get(0)).wait());
    let mut stalled: Vec<_> = streams.collect();
    assert!(stalled.iter_mut().all(|stream| stream.next().unwrap().unwrap() == 1));
    stalled
}

fn assert_was_revoked(stream: RowIterator<i64>) {
    let items: Vec<_> = stream.collect();
    assert!(items.len() < 1_000, "{}", items.len());
    let error = items.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("kept the WAL from restarting"), "{error}");
}

/// The writer waits for room for 5 s, and then refuses.
#[test]
fn a_stalled_stream_is_ended_when_the_wal_needs_to_restart() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_a_small_wal(directory.path());
    let stalled = stall(&db);
    let mut longest = Duration::ZERO;
    for _ in 0..60 {
        let start = Instant::now();
        db.write(|tx| tx.execute(REWRITE, ())).wait().unwrap();
        longest = longest.max(start.elapsed());
    }
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    stalled.into_iter().for_each(assert_was_revoked);
    assert!(db.stats().revoked_readers >= 2);
    assert_eq!(stall(&db).pop().unwrap().map(Result::unwrap).count(), 999);
    db.close().unwrap();
}

#[test]
fn a_file_is_rewritten_beside_a_stalled_stream() {
    let directory = tempfile::tempdir().unwrap();
    let db = with_a_small_wal(directory.path());
    // 8 MB, which fit in the WAL and leave little room for more.
    let more = "INSERT INTO b(x) SELECT x FROM b";
    db.write(move |tx| tx.execute(more, ())).wait().unwrap();
    db.write(|tx| tx.execute("DELETE FROM b WHERE id % 16 = 1 AND id > 1", ())).wait().unwrap();
    let stalled = stall(&db);
    for _ in 0..3 {
        db.write(|tx| tx.execute(REWRITE, ())).wait().unwrap();
    }
    let start = Instant::now();
    assert!(db.vacuum().wait().unwrap().pages > 0);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    stalled.into_iter().for_each(assert_was_revoked);
    db.close().unwrap();
}

#[test]
fn a_stream_that_is_dropped_ends_its_query() {
    let hour = Duration::from_secs(3_600);
    let options = Options::new().readers(1).stream_stall_limit(hour).read_time_limit(hour);
    let db = options.open(":memory:").unwrap();
    // One that rests, one that finds no row, and one that waits behind them.
    let endless = "SELECT value FROM generate_series(1, 1000000000000) WHERE value < 0";
    for sql in [NUMBERS, endless] {
        let count = if sql == NUMBERS { vec![100_000] } else { vec![] };
        let mut first = db.read_stream(sql, count, |row| row.get::<_, i64>(0));
        let mut waits = numbers(&db, 10);
        assert!(poll(&mut first).is_pending() && poll(&mut waits).is_pending());
        if sql == NUMBERS {
            assert_eq!(smol::block_on(first.next()).unwrap().unwrap(), 1);
        }
        drop(numbers(&db, 10));
        drop(first);
        assert_eq!(waits.wait().count(), 10);
    }
    db.close().unwrap();
}

#[test]
fn a_stream_is_refused_where_it_would_wait_for_itself() {
    let db = Database::open(":memory:").unwrap();
    let inside = db.clone();
    let refused = db.write(move |_| {
        let item = numbers(&inside, 1).wait().next().unwrap();
        Ok(item.unwrap_err().kind())
    });
    assert_eq!(refused.wait().unwrap(), ErrorKind::Invalid);
}
