//! Closures that block, nest, close, sleep or are given up: the others go on, or are told why not,
//! within the limits.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Error, ErrorKind, Options, Result};
use monolite_testkit::blocking::block_on;

use super::{ask_writer, database, number};
use crate::patience::{Gate, ends, eventually, one, poll_once};

/// What a write and a read may take here.
const LIMIT: Duration = Duration::from_millis(400);

/// By when everybody else is told, beyond the limit: the engine's grace and a busy machine.
const SLACK: Duration = Duration::from_secs(3);

fn limited() -> Options {
    Options::new().readers(2).write_time_limit(LIMIT).read_time_limit(LIMIT)
}

/// What a write closure may try that waits for another write of the same database.
type Waits = fn(&Database) -> Result<usize>;

const ADD: &str = "UPDATE a SET v = v + 1";

#[test]
fn a_write_that_waits_for_itself_is_told_so_and_does_not_run() {
    let ways: [Waits; 5] = [
        |db| db.write(|tx| tx.execute(ADD, ())).wait(),
        |db| block_on(db.write(|tx| tx.execute(ADD, ()))),
        |db| db.try_write(|tx| tx.execute(ADD, ()))?.wait(),
        |db| block_on(db.transact(|tx| async move { tx.execute(ADD, ()).await })),
        |db| db.transact(async |tx| tx.execute(ADD, ()).wait()).wait(),
    ];
    let (_directory, _, db) = database(limited());
    for (number, way) in ways.into_iter().enumerate() {
        let inner = db.clone();
        let outer = db.write(move |_| Ok::<_, Error>(way(&inner)));
        let told = ends("the outer write", move || outer.wait()).unwrap().unwrap_err();
        let kind = if number == 2 { ErrorKind::CommitUnknown } else { ErrorKind::Invalid };
        assert_eq!(told.kind(), kind, "{number}: {told}");
    }
    // Only the one that says so is not known to have not run.
    assert_eq!(one(&db, "SELECT v FROM a"), 11);
    // Not waited for, it runs.
    let inner = db.clone();
    let outer = db.write(move |_| {
        drop(inner.write(|tx| tx.execute(ADD, ())));
        Ok::<_, Error>(())
    });
    outer.wait().unwrap();
    eventually("the inner write", || one(&db, "SELECT v FROM a") == 12);
}

#[test]
fn a_write_that_waits_for_itself_through_another_thread_is_ended_by_its_limit() {
    let (_directory, _, db) = database(limited());
    let started = Instant::now();
    let (inner, told) = (db.clone(), Arc::new(Mutex::new(None)));
    let tell = Arc::clone(&told);
    let outer = db.write(move |tx| {
        tx.execute("UPDATE b SET v = 0", ())?;
        let inner = inner.clone();
        let waits = thread::spawn(move || inner.write(|tx| tx.execute(ADD, ())).wait());
        *tell.lock().unwrap() = Some(waits.join().unwrap());
        Ok::<_, Error>(())
    });
    let neighbour = db.write(|tx| tx.execute(ADD, ()));
    let late = ends("the outer write", move || outer.wait()).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    let inner = told.lock().unwrap().take().unwrap().unwrap_err();
    assert_eq!(inner.kind(), ErrorKind::Overloaded, "{inner}");
    assert!(inner.to_string().contains("write_time_limit"), "{inner}");
    match ends("the neighbour", move || neighbour.wait()) {
        Ok(_) => assert_eq!(one(&db, "SELECT v FROM a"), 11),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Overloaded),
    }
    assert!(started.elapsed() < LIMIT + SLACK, "{:?}", started.elapsed());
    assert_eq!(one(&db, "SELECT v FROM b"), 20);
    assert!(db.stats().refused_behind_stuck > 0);
    db.write(|tx| tx.execute(ADD, ())).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn who_shares_a_batch_with_a_closure_that_does_not_return_is_told_and_not_committed() {
    let (_directory, path, db) = database(limited());
    let gate = Arc::new(Gate::default());
    let (before, stuck, after) = crate::patience::as_one_batch(&db, || {
        let before = db.write(|tx| tx.execute(ADD, ()));
        let stop = Arc::clone(&gate);
        let stuck = db.write(move |_| {
            stop.pass();
            Ok::<_, Error>(())
        });
        (before, stuck, db.write(|tx| tx.execute(ADD, ())))
    });
    let started = Instant::now();
    let told = ends("those beside it", move || [before.wait(), after.wait()]);
    assert!(started.elapsed() < LIMIT + SLACK, "{:?}", started.elapsed());
    for error in told.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    }
    let later = db.write(|tx| tx.execute(ADD, ()));
    assert_eq!(
        ends("a later one", move || later.wait()).unwrap_err().kind(),
        ErrorKind::Overloaded
    );
    // Reads go on, and a close says what it waits for.
    assert_eq!(one(&db, "SELECT v FROM a"), 10);
    let closing = db.clone();
    let closed = ends("the close", move || closing.close()).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Timeout, "{closed}");
    gate.open();
    assert_eq!(stuck.wait().unwrap_err().kind(), ErrorKind::Timeout);
    let closing = db.clone();
    ends("the close", move || closing.close()).unwrap();
    let reopened = Database::open(path).unwrap();
    assert_eq!(one(&reopened, "SELECT v FROM a"), 10);
}

#[test]
fn a_statement_inside_of_its_own_transactions_map_is_told_so() {
    let (_directory, _, db) = database(limited());
    let tx = Arc::new(db.transaction().unwrap());
    let same = Arc::clone(&tx);
    let nested =
        tx.query_row("SELECT 1", (), move |_| Ok(same.query_row("SELECT 2", (), number).wait()));
    let told = ends("the statement", {
        let tx = nested.wait();
        move || tx
    })
    .unwrap()
    .unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
    // Through another thread the limit ends it.
    let same = Arc::clone(&tx);
    let joined = tx.query_row("SELECT 1", (), move |_| {
        let same = Arc::clone(&same);
        Ok(thread::spawn(move || same.query_row("SELECT 2", (), number).wait()).join().unwrap())
    });
    let started = Instant::now();
    // The limit of either may come first.
    let told = joined.wait().and_then(|inner| inner).unwrap_err();
    assert!(started.elapsed() < LIMIT + SLACK, "{:?}", started.elapsed());
    assert_eq!(told.kind(), ErrorKind::Timeout);
}

#[test]
fn another_database_may_be_waited_for() {
    let (_a, _, a) = database(limited());
    let (_b, _, b) = database(limited());
    let other = b.clone();
    a.write(move |_| {
        other.write(|tx| tx.execute(ADD, ())).wait()?;
        block_on(other.write(|tx| tx.execute(ADD, ())))?;
        other.transact(async |tx| tx.execute(ADD, ()).wait()).wait()?;
        other.read_durable(|tx| tx.query_row("SELECT v FROM a", (), number)).wait()
    })
    .wait()
    .unwrap();
    assert_eq!(one(&b, "SELECT v FROM a"), 13);
}

#[test]
fn a_durable_read_waits_for_no_closure() {
    let (_a, _, a) = database(Options::new());
    let (_b, _, b) = database(Options::new());
    let inner = (a.clone(), b);
    let circle = a.write(move |_| {
        let a = inner.0.clone();
        let read = inner.1.write(move |_| {
            a.read_durable(|tx| tx.query_row("SELECT v FROM a", (), number)).wait()
        });
        read.wait()
    });
    assert_eq!(ends("the circle", move || circle.wait()).unwrap(), 10);
}

/// Writes when it is dropped, and waits for that, here or on another thread.
struct WritesAtDrop {
    db: Database,
    is_here: bool,
    told: Arc<Mutex<Option<Result<usize>>>>,
}

impl Drop for WritesAtDrop {
    fn drop(&mut self) {
        let db = self.db.clone();
        let write = move || db.write(|tx| tx.execute(ADD, ())).wait();
        let told = if self.is_here { write() } else { thread::spawn(write).join().unwrap() };
        *self.told.lock().unwrap() = Some(told);
    }
}

#[test]
fn a_result_that_nobody_takes_may_wait_for_the_engine_in_its_drop() {
    for (is_here, is_overruled) in [(true, false), (false, false), (true, true), (false, true)] {
        let (_directory, _, db) = database(limited());
        let (told, gate) = (Arc::default(), Arc::new(Gate::default()));
        let left = WritesAtDrop { db: db.clone(), is_here, told: Arc::clone(&told) };
        let stop = Arc::clone(&gate);
        let write = db.write_once(move |_| {
            stop.pass();
            if is_overruled {
                thread::sleep(LIMIT * 2);
            }
            Ok::<_, Error>(left)
        });
        eventually("it runs", || gate.arrivals() == 1);
        drop(write);
        gate.open();
        eventually("the drop", || told.lock().unwrap().is_some());
        assert_eq!(told.lock().unwrap().take().unwrap().unwrap(), 1);
        assert_eq!(ask_writer(&db, "SELECT v FROM a"), 11);
    }
}

#[test]
fn a_closure_that_waits_for_the_engine_in_its_drop_is_told_so() {
    let (_directory, _, db) = database(Options::new());
    let told = Arc::default();
    let kept = WritesAtDrop { db: db.clone(), is_here: true, told: Arc::clone(&told) };
    db.write(move |_| {
        let _kept = &kept;
        Ok::<_, Error>(())
    })
    .wait()
    .unwrap();
    eventually("the drop", || told.lock().unwrap().is_some());
    let told = told.lock().unwrap().take().unwrap().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
    assert_eq!(ask_writer(&db, "SELECT v FROM a"), 10);
}

#[test]
fn reads_that_sleep_hold_the_connections_no_longer_than_their_limit() {
    let (_directory, _, db) = database(limited());
    let gate = Arc::new(Gate::default());
    let sleepers: Vec<_> = (0..2)
        .map(|_| {
            let (db, stop) = (db.clone(), Arc::clone(&gate));
            thread::spawn(move || {
                db.read(move |tx| {
                    let mut query = tx.prepare("SELECT v FROM a UNION ALL SELECT v FROM b")?;
                    let mut rows = query.query(())?;
                    rows.next()?;
                    stop.pass();
                    rows.next()?;
                    Ok::<_, Error>(())
                })
                .wait()
            })
        })
        .collect();
    eventually("both sleep", || gate.arrivals() == 2);
    let started = Instant::now();
    let next = db.clone();
    ends("the next read", move || assert_eq!(one(&next, "SELECT v FROM a"), 10));
    assert!(started.elapsed() < LIMIT + SLACK, "{:?}", started.elapsed());
    let started = Instant::now();
    for _ in 0..100 {
        assert_eq!(one(&db, "SELECT v FROM a"), 10);
    }
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
    // The engine looks at the time of closures every eighth of the limit.
    thread::sleep(LIMIT);
    gate.open();
    for sleeper in sleepers {
        let error = sleeper.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("read_time_limit"), "{error}");
    }
    assert_eq!(one(&db, "SELECT v FROM a"), 10);
}

#[test]
fn an_awaited_transaction_does_not_wait_behind_long_awaited_reads() {
    let (_directory, _, db) = database(Options::new().readers(2));
    let gate = Arc::new(Gate::default());
    let reports: Vec<_> = (0..4)
        .map(|_| {
            let (db, gate) = (db.clone(), Arc::clone(&gate));
            thread::spawn(move || {
                block_on(db.read(move |tx| {
                    gate.pass();
                    tx.query_row("SELECT v FROM a", (), number)
                }))
            })
        })
        .collect();
    eventually("all threads for reads are busy", || gate.arrivals() == 2);
    let payment = db.clone();
    ends("the payment", move || {
        block_on(payment.transact(|tx| async move {
            tx.query_row("SELECT v FROM a", (), number).await?;
            tx.execute(ADD, ()).await
        }))
        .unwrap();
    });
    gate.open();
    reports.into_iter().for_each(|report| assert!(report.join().unwrap().is_ok()));
}

#[test]
fn a_read_of_short_statements_is_ended_by_its_limit() {
    let (_directory, _, db) = database(limited());
    let endless = db.read(|tx| {
        loop {
            tx.query_row("SELECT v FROM a", (), number)?;
            thread::sleep(Duration::from_millis(1));
        }
        #[expect(unreachable_code, reason = "it names the types")]
        Ok::<(), Error>(())
    });
    let started = Instant::now();
    assert_eq!(endless.wait().unwrap_err().kind(), ErrorKind::Timeout);
    assert!(started.elapsed() < LIMIT + SLACK, "{:?}", started.elapsed());
}

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT max(i) FROM n";

#[test]
fn reads_that_nobody_waits_for_any_more_stop_nobody() {
    let (_directory, _, db) = database(Options::new().readers(2));
    let gate = Arc::new(Gate::default());
    for number_of in 0..10 {
        let stop = Arc::clone(&gate);
        let mut read = Box::pin(db.read(move |tx| {
            if number_of % 2 == 0 {
                stop.pass();
            }
            tx.query_row(ENDLESS, (), number)
        }));
        assert!(poll_once(&mut read).is_pending());
        let tx = db.transaction().unwrap();
        let mut statement = Box::pin(tx.query_row(ENDLESS, (), number));
        assert!(poll_once(&mut statement).is_pending());
        thread::sleep(Duration::from_millis(5));
    }
    let started = Instant::now();
    let awaited = db.clone();
    ends("a later read", move || {
        block_on(awaited.read(|tx| tx.query_row("SELECT v FROM a", (), number))).unwrap();
        let tx = awaited.transaction().unwrap();
        block_on(tx.query_row("SELECT v FROM a", (), number)).unwrap();
    });
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
    gate.open();
    db.close().unwrap();
}

#[test]
fn more_handles_than_the_queue_holds_go_through_as_fast_as_fewer() {
    let (_directory, _, db) = database(Options::new().queue_capacity(64));
    let handles: Vec<_> = (0..4_000).map(|_| db.write(|tx| tx.execute(ADD, ()))).collect();
    // Nobody looks at any of them.
    eventually("all are done", || db.stats().transactions > 4_000);
    handles.into_iter().for_each(|it| assert_eq!(it.wait().unwrap(), 1));
    assert_eq!(one(&db, "SELECT v FROM a"), 4_010);
    assert!(db.stats().syncs < 1_000, "{} syncs", db.stats().syncs);
}

#[test]
fn a_handle_that_is_kept_beyond_its_transact_is_over() {
    let (_directory, _, db) = database(Options::new());
    let kept = Mutex::new(None);
    let done = block_on(db.transact(|tx| {
        let kept = &kept;
        async move {
            tx.execute("UPDATE a SET v = v + 100", ()).await?;
            *kept.lock().unwrap() = Some(tx);
            Ok::<_, Error>(())
        }
    }));
    done.unwrap();
    let tx = kept.lock().unwrap().take().unwrap();
    let awaited = block_on(tx.execute(ADD, ())).unwrap_err();
    let waited = tx.execute(ADD, ()).wait().unwrap_err();
    for told in [awaited, waited] {
        assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
        assert!(told.to_string().contains("it was committed"), "{told}");
    }
    assert_eq!(one(&db, "SELECT v FROM a"), 110);
}

#[test]
fn a_transact_whose_future_is_dropped_leaves_nothing_behind() {
    let (_directory, _, db) = database(Options::new());
    let kept = Mutex::new(None);
    {
        let mut running = std::pin::pin!(db.transact(|tx| {
            let kept = &kept;
            async move {
                tx.execute("UPDATE a SET v = v + 100", ()).wait()?;
                *kept.lock().unwrap() = Some(tx);
                std::future::pending::<Result<(), Error>>().await
            }
        }));
        block_on(async {
            std::future::poll_fn(|context| {
                let _ = running.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        });
    }
    let tx = kept.lock().unwrap().take().unwrap();
    let told = tx.query_row("SELECT v FROM a", (), number).wait().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
    assert!(told.to_string().contains("it was rolled back before"), "{told}");
    assert_eq!(one(&db, "SELECT v FROM a"), 10);
}
