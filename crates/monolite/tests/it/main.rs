//! What a subscriber of `tracing` is told. In a process of its own: it is subscribed for all of it.

#![expect(clippy::unwrap_used, reason = "these are tests")]

mod subscriber;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;
use std::{fs, thread};

use monolite::archive::{
    Archive, ArchiveStats, ArchiveToken, Archiving, Found, Primary, Refusal, WalPosition,
};
use monolite::{Database, Error, ErrorKind, Options, UntrustedLimits};
use subscriber::{Told, eventually, subscribe, told};
use tempfile::TempDir;
use tracing::Level;

const MS: Duration = Duration::from_millis(1);

/// A database of this name with a table `t(x UNIQUE)`.
fn open(name: &str, options: Options) -> (TempDir, Database) {
    subscribe();
    let directory = tempfile::tempdir().unwrap();
    let db = options.open(directory.path().join(name)).unwrap();
    db.write(|tx| tx.execute("CREATE TABLE t(x UNIQUE)", ())).wait().unwrap();
    (directory, db)
}

fn add(db: &Database, x: &'static str) -> Result<usize, Error> {
    db.write(move |tx| tx.execute("INSERT INTO t VALUES (?1)", [x])).wait()
}

/// What is told of calls with this name, each as its kind and outcome.
fn calls(name: &str) -> Vec<(String, String)> {
    let calls = told(|it| it.target == "monolite::call" && it.field("name") == name);
    calls.iter().map(|it| (it.field("kind").into(), it.field("outcome").into())).collect()
}

fn pairs<const N: usize>(all: [(&str, &str); N]) -> Vec<(String, String)> {
    all.map(|(kind, outcome)| (kind.into(), outcome.into())).into()
}

#[test]
fn each_call_is_told_once_in_the_span_of_its_caller() {
    let (_directory, db) = open("calls", Options::new());
    let db = db.named("each call");
    let span = tracing::info_span!("request");
    let request = span.enter();
    add(&db, "secret").unwrap();
    add(&db, "secret").unwrap_err();
    let panics = db.write(|_| -> Result<(), Error> { panic!("of the closure") });
    catch_unwind(AssertUnwindSafe(|| panics.wait())).unwrap_err();
    let inside = db.write(|_| {
        tracing::info!(target: "monolite::test", name = "each call", "in the closure");
        Ok::<_, Error>(())
    });
    inside.wait().unwrap();
    let count = |tx: &monolite::ReadTx<'_>| {
        tracing::info!(target: "monolite::test", name = "each call", "in the closure");
        tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))
    };
    db.read(count).wait().unwrap();
    smol::block_on(db.read(count)).unwrap();
    db.read(|_| Err::<(), _>(Error::aborted("it gave up"))).wait().unwrap_err();
    let rows = db.read_stream("SELECT x FROM t", (), |row| row.get::<_, String>(0)).wait();
    assert_eq!(rows.count(), 1);
    let untrusted = |sql: &str| db.query_untrusted(sql, (), &UntrustedLimits::new()).wait();
    untrusted("SELECT x FROM t").unwrap();
    untrusted("DELETE FROM t").unwrap_err();
    let tx = db.transaction().unwrap();
    smol::block_on(tx.execute("INSERT INTO t VALUES ('other')", ())).unwrap();
    tx.execute("INSERT INTO t VALUES ('other')", ()).wait().unwrap_err();
    tx.commit().wait().unwrap();
    drop(request);
    db.close().unwrap();

    let all = [
        ("Write", "Ok"),
        ("Write", "Constraint"),
        ("Write", "Panicked"),
        ("Write", "Ok"),
        ("Read", "Ok"),
        ("Read", "Ok"),
        ("Read", "Failed"),
        ("Stream", "Ok"),
        ("Untrusted", "Ok"),
        ("Untrusted", "Invalid"),
        ("Statement", "Ok"),
        ("Statement", "Constraint"),
        ("Commit", "Ok"),
    ];
    assert_eq!(calls("each call"), pairs(all));
    // On a busy machine, one may also be told as slow.
    let of_it = told(|it| {
        ["monolite::call", "monolite::test"].contains(&it.target) && it.field("name") == "each call"
    });
    assert_eq!(of_it.len(), all.len() + 3, "and those of the closures");
    for it in &of_it {
        assert_eq!(it.span, Some("request"), "{it:?}");
        assert!(!it.has("secret") && !it.has("INSERT"), "{it:?}");
    }
    let first = &of_it[0];
    assert_eq!((first.level, first.field("changed_rows")), (Level::DEBUG, "1"));
    assert!(first.field("place").contains("main.rs:"), "{first:?}");
    let times = ["wait_seconds", "run_seconds", "sync_seconds"].map(|it| first.seconds(it));
    assert!(times.iter().all(|time| (0.0..60.0).contains(time)), "{first:?}");
    assert!(times[1] > 0.0 && times[2] > 0.0, "{first:?}");
}

#[test]
fn a_read_a_stream_and_a_statement_that_panic_are_told_and_recorded() {
    let (_directory, db) = open("panics", Options::new().slow_transaction(MS));
    let db = db.named("panics");
    let is_raised = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let sleeps = |_: &monolite::ReadTx<'_>| -> Result<(), Error> {
        thread::sleep(20 * MS);
        panic!("of the closure")
    };
    is_raised(&|| drop(db.read(sleeps).wait()));
    is_raised(&|| drop(smol::block_on(db.read(sleeps))));
    is_raised(&|| {
        let rows = db.read_stream("SELECT 1", (), |row| Ok(row.get_unwrap::<_, String>(0))).wait();
        rows.for_each(drop);
    });
    let tx = db.transaction().unwrap();
    is_raised(&|| {
        let unwraps = |row: &monolite::Row<'_>| {
            thread::sleep(20 * MS);
            Ok(row.get_unwrap::<_, String>(0))
        };
        drop(tx.query_row("SELECT 1", (), unwraps).wait());
    });
    drop(tx);
    let ends = ["Read", "Read", "Stream", "Statement"].map(|kind| (kind, "Panicked"));
    assert_eq!(calls("panics"), pairs(ends));
    let names = monolite::name_stats();
    let figures = names.iter().find(|it| it.name == "panics").unwrap();
    assert_eq!((figures.reader_seconds.count(), figures.wait_seconds.count()), (3, 3));
    let slow = db.stats().slow_transactions;
    assert_eq!(slow.iter().filter(|it| it.caller.name == Some("panics")).count(), 3, "{slow:?}");
    db.close().unwrap();
}

#[test]
fn what_is_refused_is_told() {
    let (_directory, db) = open("refused", Options::new().queue_capacity(1));
    let db = db.named("refused");
    let (began, begins) = channel();
    let (lets_go, goes) = sync_channel::<()>(0);
    let holds = db.write_once(move |_| {
        began.send(()).unwrap();
        goes.recv().unwrap();
        Ok::<_, Error>(())
    });
    begins.recv().unwrap();
    let waits = db.write(|_| Ok::<_, Error>(()));
    let refused = db.try_write(|_| Ok::<_, Error>(())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert_eq!(calls("refused"), pairs([("Write", "Overloaded")]));
    lets_go.send(()).unwrap();
    holds.wait().unwrap();
    waits.wait().unwrap();
    db.close().unwrap();
    db.read(|_| Ok::<_, Error>(())).wait().unwrap_err();
    smol::block_on(db.read(|_| Ok::<_, Error>(()))).unwrap_err();
    db.write(|_| Ok::<_, Error>(())).wait().unwrap_err();
    let closed = [("Read", "Closed"), ("Read", "Closed"), ("Write", "Closed")];
    assert_eq!(calls("refused")[3..], pairs(closed));
}

#[test]
fn a_slow_call_is_told_with_its_statement() {
    let (_directory, db) = open("slow.db", Options::new().slow_transaction(MS / 1_000));
    add(&db.named("slow"), "secret").unwrap();
    let slow = told(|it| it.target == "monolite::slow" && it.field("name") == "slow");
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert_eq!((slow[0].level, slow[0].field("kind")), (Level::WARN, "Write"));
    assert_eq!(slow[0].field("statement"), "INSERT INTO t VALUES (?1)");
    assert!(
        slow[0].is_of("slow.db") && !slow[0].has("secret") && slow[0].seconds("run_seconds") > 0.0
    );
    db.close().unwrap();
}

#[test]
fn a_call_that_holds_up_others_is_told_while_it_does() {
    let (_directory, db) = open("held.db", Options::new().on_slow(20 * MS, |_| {}));
    let is_held = |it: &Told| it.is_of("held.db") && it.field("has_writer") == "true";
    let named = db.named("holds");
    let held = named.write(move |tx| {
        tx.query_row("SELECT 1", (), |_| {
            eventually(is_held);
            Ok(())
        })
    });
    held.wait().unwrap();
    let held = told(is_held);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!((held[0].level, held[0].target), (Level::WARN, "monolite::slow"));
    assert_eq!((held[0].field("name"), held[0].field("statement")), ("holds", "SELECT 1"));
    db.close().unwrap();
}

#[test]
fn a_conflict_is_told_once() {
    let (_directory, db) = open("conflict.db", Options::new());
    add(&db, "one").unwrap();
    let tx = db.named("conflicts").transaction().unwrap();
    tx.query_row("SELECT x FROM t", (), |_| Ok(())).wait().unwrap();
    db.write(|tx| tx.execute("UPDATE t SET x = 'two'", ())).wait().unwrap();
    let changed = tx.execute("DELETE FROM t", ()).wait().map(drop);
    let ended = changed.and_then(|()| tx.commit().wait());
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Conflict);
    let conflicts = told(|it| it.target == "monolite::conflict" && it.is_of("conflict.db"));
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    assert_eq!((conflicts[0].field("name"), conflicts[0].field("statement")), ("conflicts", "1"));
    db.close().unwrap();
}

/// What is told of the engine of one database, with this text.
fn of_engine(database: &'static str, text: &'static str) -> impl Fn(&Told) -> bool {
    move |it| it.target == "monolite::engine" && it.is_of(database) && it.has(text)
}

#[test]
fn writes_that_are_refused_behind_a_closure_are_told() {
    let (_directory, db) = open("stuck.db", Options::new().write_time_limit(20 * MS));
    let holds = db.named("holds for ever").write_once(|_| {
        eventually(of_engine("stuck.db", "behind a closure"));
        Ok::<_, Error>(())
    });
    while !db.running().iter().any(|call| call.has_writer) {
        thread::yield_now();
    }
    assert_eq!(add(&db, "one").unwrap_err().kind(), ErrorKind::Overloaded);
    holds.wait().unwrap_err();
    let refused = told(of_engine("stuck.db", "behind a closure"));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].level, Level::ERROR);
    assert!(refused[0].field("detail").starts_with("1, behind holds for ever ("), "{refused:?}");
    db.close().unwrap();
}

#[test]
fn a_full_wal_and_the_reads_that_are_ended_for_it_are_told() {
    let (_directory, db) = open("full.db", Options::new().wal_limit_bytes(8 << 20));
    let (is_reading, is_full) = (AtomicBool::new(false), AtomicBool::new(false));
    let count = |tx: &monolite::ReadTx<'_>| {
        tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))
    };
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = db.read(|tx| {
                count(tx)?;
                is_reading.store(true, Ordering::SeqCst);
                while !is_full.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                count(tx)
            });
            read.wait()
        });
        while !is_reading.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let sql = "INSERT INTO t VALUES (randomblob(1500000))";
        let stalls = || db.stats().wal_stalls > 0 && db.stats().revoked_readers > 0;
        while !stalls() {
            db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
        }
        is_full.store(true, Ordering::SeqCst);
        reading.join().unwrap().unwrap_err();
    });
    let stats = db.stats();
    let full = told(of_engine("full.db", "room in the WAL"));
    let revoked = told(of_engine("full.db", "reads were ended"));
    assert_eq!(full.len() as u64, stats.wal_stalls, "{full:?}");
    let reads = revoked.iter().map(|it| it.field("detail").parse::<u64>().unwrap());
    assert_eq!(reads.sum::<u64>(), stats.revoked_readers, "{revoked:?}");
    db.close().unwrap();
}

#[test]
fn a_database_that_is_poisoned_tells_why() {
    let (directory, db) = open("poisoned.db", Options::new());
    fs::remove_file(directory.path().join("poisoned.db-wal")).unwrap();
    for _ in 0..2 {
        assert_eq!(add(&db, "one").unwrap_err().kind(), ErrorKind::Poisoned);
    }
    let stopped = told(of_engine("poisoned.db", "nothing more is acknowledged"));
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].level == Level::ERROR && stopped[0].has("Poisoned: "), "{stopped:?}");
    db.close().unwrap_err();
}

/// An archive that fails at once, and keeps nothing.
#[derive(Debug)]
struct Failing;

impl Archive for Failing {
    fn open(&self, _found: Found<'_>) -> Result<Arc<dyn Archiving>, Refusal> {
        Ok(Arc::new(Failing))
    }

    fn lag_limit(&self) -> Option<Duration> {
        None
    }

    fn time_limit(&self) -> Duration {
        MS
    }
}

impl Archiving for Failing {
    fn start(&self, primary: Arc<dyn Primary>) -> Result<(), Refusal> {
        primary.failed("the upload: no bucket");
        Ok(())
    }

    fn durable(&self, _to: WalPosition) {}

    fn awaited(&self) {}

    fn lag(&self) -> Duration {
        Duration::ZERO
    }

    fn token(&self) -> Option<ArchiveToken> {
        None
    }

    fn prepare(&self) {}

    fn may_restart(&self, _to: WalPosition) -> bool {
        true
    }

    fn capture(&self, _to: WalPosition, _next: Option<[u32; 2]>) -> Result<(), String> {
        Ok(())
    }

    fn settled(&self) {}

    fn close(&self) {}

    fn stats(&self) -> ArchiveStats {
        ArchiveStats::default()
    }
}

#[test]
fn an_archive_that_fails_is_told() {
    let (_directory, db) = open("archived.db", Options::new().archive(Failing));
    let failed = told(of_engine("archived.db", "the archive fails"));
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].field("detail"), "the upload: no bucket");
    db.close().unwrap();
}

#[test]
fn a_subscriber_that_panics_harms_no_call() {
    let (_directory, db) = open("hostile.db", Options::new().slow_transaction(MS / 1_000));
    let hostile = db.named("hostile");
    for name in ["one", "two"] {
        add(&hostile, name).unwrap();
        smol::block_on(hostile.read(|_| Ok::<_, Error>(()))).unwrap();
    }
    assert!(told(|it| it.field("name") == "hostile").len() >= 6);
    db.close().unwrap();
}
