//! What holds up others is named while it does: the caller, the line in its code, the statement.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{
    Activity, CallKind, Database, ErrorKind, Function, InteractiveOptions, NameStats, Options,
    ReadTx, SlowTransaction, name_stats, prometheus,
};
use monolite_testkit::clock::HandClock;

use crate::patience::{Gate, eventually, poll_once};

const SECOND: Duration = Duration::from_secs(1);

/// From when on a call is reported here.
const LIMIT: Duration = Duration::from_millis(300);

/// A query that waits at the gate.
const SLOW: &str = "SELECT hold()";

/// Clients of the tests, those that hold something up included.
const CLIENTS: usize = 64;

/// A database in a directory, with the SQL function `hold()`, which waits at the gate.
struct Bench {
    db: Database,
    gate: Arc<Gate>,
    reported: Arc<Mutex<Vec<(Activity, Instant)>>>,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn with(options: Options) -> Bench {
        let (gate, reported) = (Arc::<Gate>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (held, told) = (Arc::clone(&gate), Arc::clone(&reported));
        let options = options
            .connection_setup(move |connection| {
                let held = Arc::clone(&held);
                connection.scalar("hold", 0, Function::DETERMINISTIC, move |_| {
                    held.pass();
                    Ok(0)
                })
            })
            .on_slow(LIMIT, move |call| told.lock().unwrap().push((call.clone(), Instant::now())));
        let directory = tempfile::tempdir().unwrap();
        let db = options.open(directory.path().join("db")).unwrap();
        db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
        Bench { db, gate, reported, _directory: directory }
    }

    /// What runs under this name.
    fn running(&self, name: &str) -> Option<Activity> {
        self.db.running().into_iter().find(|call| call.caller.name == Some(name))
    }

    /// Waits for the report of `name`, which has run since before `since`.
    fn await_report(&self, name: &str, since: Instant) -> Activity {
        let mut found = None;
        eventually("the call is reported", || {
            let reported = self.reported.lock().unwrap();
            found = reported.iter().find(|(call, _)| call.caller.name == Some(name)).cloned();
            found.is_some()
        });
        let (call, at) = found.unwrap();
        assert!(at - since < SECOND, "{name} was reported after {:?}", at - since);
        assert!(call.time > LIMIT, "{call:?}");
        call
    }
}

/// Lets all go on that wait at the gate, and stops the load, also when the test fails.
struct Release<'b>(&'b Gate, &'b AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
        self.0.open();
    }
}

/// The line of the call, as `file:line`.
fn place(call: &Activity) -> String {
    let place = call.caller.place.unwrap();
    format!("{}:{}", place.file(), place.line())
}

#[test]
fn each_of_64_clients_that_holds_up_others_is_named_while_it_does() {
    let bench = Bench::with(Options::new().readers(8));
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let open = bench.db.named("open").transaction().unwrap();
    open.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0)).wait().unwrap();
    let [slow, keeper] = ["slow", "keeper"].map(|name| bench.db.named(name));
    thread::scope(|scope| {
        let release = Release(&bench.gate, &stop);
        for _ in 0..CLIENTS - 4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    bench.db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
                    written.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        // One has a slow statement, one keeps its snapshot: commits follow, which they lack.
        let query = |tx: &ReadTx<'_>| tx.query_row(SLOW, (), |row| row.get::<_, i64>(0));
        let (line, slow) = (line!(), slow.read(query));
        let keeper = keeper.read(|tx| {
            tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))?;
            bench.gate.pass();
            Ok(())
        });
        let readers = [scope.spawn(|| drop(slow.wait())), scope.spawn(|| drop(keeper.wait()))];
        eventually("both are there", || bench.gate.arrivals() == 2);
        let since = Instant::now();
        let (report, keeper) =
            (bench.await_report("slow", since), bench.await_report("keeper", since));
        assert_eq!(report.statement.as_deref(), Some(SLOW));
        assert!(report.keeps_wal && report.caller.kind == CallKind::Read, "{report:?}");
        assert_eq!(place(&report), format!("{}:{line}", file!()));
        assert!(keeper.keeps_wal && keeper.statement.is_none(), "{keeper:?}");
        // One sleeps in the writer, and all others wait for it.
        let asleep = Arc::clone(&bench.gate);
        let sleeper = bench.db.named("sleeper").write(move |tx| {
            tx.execute("INSERT INTO t VALUES (2)", ())?;
            asleep.pass();
            Ok(())
        });
        eventually("it has the writer", || bench.gate.arrivals() == 3);
        let since = Instant::now();
        let report = bench.await_report("sleeper", since);
        assert!(report.has_writer && report.statement.is_none(), "{report:?}");
        assert!(report.to_string().starts_with("sleeper ("), "{report}");
        eventually("all others wait for it", || {
            bench.running("sleeper").unwrap().waiting == (CLIENTS - 4) as u64
        });
        let named = ["slow", "keeper", "sleeper"].map(|name| bench.running(name).unwrap());
        assert!(named.iter().all(|call| call.time > LIMIT));
        // Nothing is reported twice.
        let reported = bench.reported.lock().unwrap().clone();
        let named = reported.iter().filter(|(call, _)| call.caller.name.is_some());
        assert_eq!(named.count(), 3, "{reported:?}");
        let [idle] = &bench.db.open_transactions()[..] else { panic!("one is open") };
        assert_eq!((idle.caller.name, idle.statements), (Some("open"), 1));
        assert!(idle.time > LIMIT && !idle.is_running);
        drop(release);
        sleeper.wait().unwrap();
        readers.into_iter().for_each(|it| it.join().unwrap());
    });
    assert!(written.load(Ordering::SeqCst) > 0);
    drop(open);
    assert!(bench.db.open_transactions().is_empty());
    eventually("nothing runs", || bench.db.running().is_empty());
}

#[test]
fn a_statement_of_an_open_transaction_is_named_while_it_runs() {
    let bench = Bench::with(Options::new());
    let tx = bench.db.named("tx").transaction().unwrap();
    thread::scope(|scope| {
        let statement = scope.spawn(|| tx.execute("INSERT INTO t VALUES (hold())", ()).wait());
        eventually("it runs", || bench.gate.arrivals() == 1);
        let running = bench.running("tx").unwrap();
        assert_eq!(running.caller.kind, CallKind::Statement);
        assert_eq!(running.statement.as_deref(), Some("INSERT INTO t VALUES (hold())"));
        let [open] = &bench.db.open_transactions()[..] else { panic!("one is open") };
        assert!(open.is_running && open.keeps_snapshot && open.statements == 0, "{open:?}");
        bench.gate.open();
        statement.join().unwrap().unwrap();
    });
    let [open] = &bench.db.open_transactions()[..] else { panic!("one is open") };
    assert!(!open.is_running && open.keeps_snapshot && open.statements == 1, "{open:?}");
    tx.commit().wait().unwrap();
}

#[test]
fn checks_and_backups_are_named_while_they_run() {
    let directory = tempfile::tempdir().unwrap();
    let db = Database::open(directory.path().join("db")).unwrap();
    let rows = "CREATE TABLE t(x); INSERT INTO t WITH RECURSIVE n(i) AS \
                (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT hex(i) FROM n";
    db.write(move |tx| tx.execute_batch(rows)).wait().unwrap();
    let named = db.named("nightly");
    let seen = || {
        let running = db.running();
        let its = running.iter().find(|call| call.caller.name == Some("nightly"))?;
        Some((its.caller.kind, its.caller.place?.file()))
    };
    let expected = Some((CallKind::Copy, file!()));
    eventually("a check is named", || {
        let job = named.check();
        let found = (0..20).any(|_| {
            thread::sleep(Duration::from_millis(1));
            seen() == expected
        });
        job.wait().unwrap();
        found
    });
    let mut number = 0;
    eventually("a backup is named", || {
        number += 1;
        let job = named.backup(directory.path().join(format!("copy-{number}")));
        let found = (0..50).any(|_| seen() == expected);
        job.wait().unwrap();
        found
    });
    db.close().unwrap();
}

#[test]
fn refused_calls_are_told_who_has_what_they_wait_for() {
    let limit = Duration::from_millis(600);
    let options = Options::new().readers(1).queue_capacity(1).read_time_limit(limit);
    let bench = Bench::with(options.write_time_limit(limit));
    let asleep = Arc::clone(&bench.gate);
    let sleeper = bench.db.named("sleeper").write(move |_| {
        asleep.pass();
        Ok(())
    });
    eventually("it has the writer", || bench.gate.arrivals() == 1);
    let held = format!("by sleeper ({}:", file!());
    // The queue is full.
    let waits = bench.db.write(|_| Ok(()));
    let mut refused = String::new();
    eventually("a refusal names it", || {
        let Err(error) = bench.db.try_write(|_| Ok(())) else { return true };
        refused = error.to_string();
        refused.contains("the write queue is full") && refused.contains(&held)
    });
    assert!(refused.contains(&held), "{refused}");
    // It does not return.
    let error = waits.wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let says = error.to_string();
    assert!(says.contains(&held) && says.contains("in its own code"), "{says}");
    bench.gate.open();
    assert_eq!(sleeper.wait().unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn a_report_that_panics_ends_no_one_else() {
    let gate = Arc::<Gate>::default();
    let reports = Arc::<AtomicUsize>::default();
    let (asleep, counted) = (Arc::clone(&gate), Arc::clone(&reports));
    let report = move |_: &Activity| {
        counted.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    };
    let db = Options::new().write_time_limit(LIMIT).on_slow(LIMIT / 3, report);
    let db = db.open(":memory:").unwrap();
    let sleeper = db.write(move |_| {
        asleep.pass();
        Ok(())
    });
    eventually("it is reported", || reports.load(Ordering::SeqCst) == 1);
    // The thread that made the report goes on.
    assert_eq!(db.write(|_| Ok(())).wait().unwrap_err().kind(), ErrorKind::Overloaded);
    gate.open();
    assert_eq!(sleeper.wait().unwrap_err().kind(), ErrorKind::Timeout);
}

#[test]
fn a_read_without_a_connection_is_told_who_has_one() {
    let bench = Bench::with(Options::new().readers(1).read_time_limit(LIMIT));
    let held = bench.db.named("holder");
    thread::scope(|scope| {
        // That many can be there: one reader and its spares.
        for reads in 1..=4 {
            let read = || held.read(|tx| tx.query_row(SLOW, (), |row| row.get::<_, i64>(0))).wait();
            scope.spawn(read);
            eventually("it runs", || bench.gate.arrivals() == reads);
        }
        let late = bench.db.read(|tx| tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0)));
        let says = late.wait().unwrap_err().to_string();
        assert!(says.contains("by holder (") && says.contains("running `SELECT hold()`"), "{says}");
        bench.gate.open();
    });
}

/// A database whose function `takes(ms)` takes that long, on a clock that only it moves.
fn timed() -> (Arc<HandClock>, Database) {
    let clock = Arc::new(HandClock::default());
    let moved = Arc::clone(&clock);
    let db = Options::new()
        .clock(Arc::clone(&clock) as _)
        .connection_setup(move |connection| {
            let moved = Arc::clone(&moved);
            connection.scalar("takes", 1, Function::DETERMINISTIC, move |call| {
                let time: i64 = call.get(0)?;
                moved.advance(Duration::from_millis(time.unsigned_abs()));
                Ok(time)
            })
        })
        .interactive(InteractiveOptions::default().snapshot_age(60 * SECOND))
        .open(":memory:")
        .unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).wait().unwrap();
    (clock, db)
}

/// Six statements, of which number `slow` takes 900 ms and the others 10 ms each.
fn six(slow: usize) -> Vec<String> {
    let time = |number| if number == slow { 900 } else { 10 };
    (0..6).map(|number| format!("SELECT takes({}), {number}", time(number))).collect()
}

fn only(db: &Database) -> SlowTransaction {
    let stats = db.stats();
    let slow = stats.slow_transactions;
    assert_eq!((slow.len(), stats.slow_calls), (1, 1), "{slow:?}");
    slow.into_iter().next().unwrap()
}

#[test]
fn the_slow_log_has_the_slow_statement_of_six_in_writes_and_reads() {
    for slow in 0..6 {
        let ms = Duration::from_millis;
        let (_, db) = timed();
        db.named("w")
            .write(move |tx| six(slow).iter().try_for_each(|sql| tx.query_row(sql, (), |_| Ok(()))))
            .wait()
            .unwrap();
        let write = only(&db);
        assert_eq!((write.caller.name, write.caller.kind), (Some("w"), CallKind::Write));
        assert_eq!((&write.statement, write.statement_time), (&six(slow)[slow], ms(900)));
        assert_eq!(write.time, ms(950));
        assert!(write.at.elapsed().unwrap() < 60 * SECOND);
        let (_, db) = timed();
        db.read(move |tx| six(slow).iter().try_for_each(|sql| tx.query_row(sql, (), |_| Ok(()))))
            .wait()
            .unwrap();
        let read = only(&db);
        assert_eq!((read.caller.name, read.caller.kind), (None, CallKind::Read));
        assert_eq!((&read.statement, read.statement_time), (&six(slow)[slow], ms(900)));
        assert_eq!(read.caller.place.unwrap().file(), file!());
    }
}

#[test]
fn the_slow_log_has_slow_statements_of_interactive_transactions_and_no_waits_in_between() {
    let (clock, db) = timed();
    let tx = db.named("tx").transaction().unwrap();
    for sql in six(3) {
        // The application's time is no statement's.
        clock.advance(SECOND);
        tx.query_row(&sql, (), |_| Ok(())).wait().unwrap();
    }
    let slow = only(&db);
    assert_eq!((slow.caller.name, slow.caller.kind), (Some("tx"), CallKind::Statement));
    assert_eq!((slow.statement, slow.time), (six(3).remove(3), Duration::from_millis(900)));
    drop(tx);
}

/// The figures of `name`, which no other test uses.
fn named(name: &str) -> NameStats {
    name_stats().into_iter().find(|it| it.name == name).unwrap()
}

#[test]
fn each_name_has_its_figures_in_all_databases() {
    for _ in 0..2 {
        let (_, db) = timed();
        let db = db.named("figures");
        db.write(|tx| {
            tx.query_row("SELECT takes(40)", (), |_| Ok(()))?;
            tx.execute("INSERT INTO t VALUES (1), (2), (3)", ())
        })
        .wait()
        .unwrap();
        db.read(|tx| tx.query_row("SELECT takes(20)", (), |_| Ok(()))).wait().unwrap();
        let tx = db.transaction().unwrap();
        tx.query_row("SELECT takes(70)", (), |_| Ok(())).wait().unwrap();
        tx.rollback();
    }
    let stats = named("figures");
    assert_eq!((stats.writer_seconds.count(), stats.writer_seconds.sum()), (2, 0.08));
    assert_eq!((stats.reader_seconds.count(), stats.reader_seconds.sum()), (4, 0.18));
    assert_eq!((stats.wait_seconds.count(), stats.changed_rows), (6, 6));
    assert_eq!((stats.conflicts, stats.retries), (0, 0));
    let text = prometheus(&[]);
    for sample in [
        "named_writer_seconds_count{name=\"figures\"} 2",
        "named_changed_rows_total{name=\"figures\"} 6",
    ] {
        assert!(text.contains(&format!("\nmonolite_{sample}\n")), "{text}");
    }
}

#[test]
fn each_name_has_its_conflicts_and_retries() {
    let (_, db) = timed();
    let count =
        |tx: &ReadTx<'_>| tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0));
    db.named("loser")
        .transact(async |tx| {
            let seen: i64 = tx.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).await?;
            if seen == 0 {
                db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).await?;
            }
            tx.execute("INSERT INTO t VALUES (?1)", (seen,)).await
        })
        .wait()
        .unwrap();
    assert_eq!(db.read(move |tx| count(tx)).wait().unwrap(), 2);
    let stats = named("loser");
    assert_eq!((stats.conflicts, stats.retries), (1, 1));
}

#[test]
fn the_slow_log_tells_the_closure_from_its_statements_and_has_no_parameters() {
    let (clock, db) = timed();
    db.write(move |tx| {
        clock.advance(SECOND);
        tx.execute("INSERT INTO t VALUES (?1)", ["secret"])?;
        clock.advance(SECOND);
        Ok(())
    })
    .wait()
    .unwrap();
    let slow = only(&db);
    assert_eq!((slow.time, slow.statement_time), (2 * SECOND, Duration::ZERO));
    assert!(!format!("{slow:?}").contains("secret"));
}

#[test]
fn the_slow_log_has_the_time_in_the_queue() {
    let options = Options::new().slow_transaction(Duration::from_micros(1));
    let bench = Bench::with(options);
    let asleep = Arc::clone(&bench.gate);
    let first = bench.db.named("first").write(move |_| {
        asleep.pass();
        Ok(())
    });
    eventually("it has the writer", || bench.gate.arrivals() == 1);
    let second = bench.db.named("second").write(|tx| tx.execute("INSERT INTO t VALUES (1)", ()));
    let mut third = bench.db.named("third").write(|_| Ok(()));
    assert!(poll_once(&mut third).is_pending());
    bench.await_report("first", Instant::now());
    bench.gate.open();
    first.wait().unwrap();
    second.wait().unwrap();
    third.wait().unwrap();
    let slow = bench.db.stats().slow_transactions;
    let [first, second] = ["first", "second"]
        .map(|name| slow.iter().find(|it| it.caller.name == Some(name)).unwrap());
    assert!(first.wait < LIMIT && first.time > LIMIT, "{first:?}");
    assert!(second.wait > LIMIT / 2 && second.time < LIMIT, "{second:?}");
    assert!(second.sync > Duration::ZERO, "{second:?}");
}
