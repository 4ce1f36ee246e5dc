//! Tests of the threads and connections that a database has while it is used, and while it is not.

use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::call::watch::Watch;
use crate::progress::BatchNumber;
use crate::read::holders::SnapshotHolder as _;
use crate::threads::shortage;
use crate::{CallKind, Caller, Database, ErrorKind, Options, UntrustedLimits};

/// How many descriptors of the WAL at `path` there are: one for each connection, and the engine's.
/// (SQLite keeps those of the database file for later connections, as the first `close` would drop
/// all locks.)
fn descriptors(path: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|it| fs::read_link(it.as_ref().unwrap().path()).is_ok_and(|it| it == path)).count()
}

fn is_used(db: &Database) -> bool {
    let parts = &db.engine().parts;
    parts.queue.is_attended()
        || parts.threads().iter().any(|threads| threads.queue.is_attended())
        || parts.awake.is_attended()
        || parts.untrusted.is_attended()
}

/// Waits until it is not used, and as many descriptors are left as there were `before`.
fn rests(db: &Database, wal: &Path, before: usize) {
    while is_used(db) || descriptors(wal) > before {
        std::thread::yield_now();
    }
}

fn use_it(db: &Database) {
    db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
    let count = |tx: &crate::ReadTx<'_>| tx.query_row("SELECT count(*) FROM t", (), |r| r.get(0));
    let waited: i64 = db.read(count).wait().unwrap();
    let awaited: i64 = smol::block_on(async { db.read(count).await.unwrap() });
    assert_eq!(waited, awaited);
    let transaction = db.transaction().unwrap();
    transaction.execute("INSERT INTO t VALUES (2)", ()).wait().unwrap();
    transaction.commit().wait().unwrap();
    let untrusted = db.query_untrusted("SELECT count(*) FROM t", (), &UntrustedLimits::new());
    // Not every SQLite can limit it.
    if let Err(error) = untrusted.wait() {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn an_idle_database_has_no_threads_and_only_the_connection_of_its_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (path, wal) = (path.join("db"), path.join("db-wal"));
    let db = Options::new().readers(2).open(path).unwrap();
    assert!(!is_used(&db));
    let before = descriptors(&wal);
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    for _ in 0..3 {
        use_it(&db);
        assert!(is_used(&db) && descriptors(&wal) > before);
        rests(&db, &wal, before);
    }
    db.close().unwrap();
}

#[test]
fn a_transaction_that_ends_while_the_database_rests_leaves_no_connection_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (path, wal) = (path.join("db"), path.join("db-wal"));
    let db = Options::new().open(path).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    rests(&db, &wal, descriptors(&wal));
    let before = descriptors(&wal);
    let transaction = db.transaction().unwrap();
    transaction.execute("INSERT INTO t VALUES (1)", ()).wait().unwrap();
    rests(&db, &wal, usize::MAX);
    assert!(descriptors(&wal) > before, "it keeps its connection");
    drop(transaction);
    rests(&db, &wal, before);
    db.close().unwrap();
}

#[test]
fn looking_starts_no_thread_and_opens_no_connection() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let (path, wal) = (path.join("db"), path.join("db-wal"));
    let db = Options::new().open(path).unwrap();
    let before = descriptors(&wal);
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    use_it(&db);
    rests(&db, &wal, before);
    assert!(db.running().is_empty() && db.open_transactions().is_empty());
    assert_eq!(db.stats().queue_depth, 0);
    assert!(!is_used(&db) && descriptors(&wal) == before);
    db.close().unwrap();
}

#[test]
fn a_copy_that_keeps_the_wal_is_reported_when_nothing_else_runs() {
    let (told, reports) = mpsc::channel();
    // By then a database at rest has no thread.
    let limit = Duration::from_millis(600);
    let options = Options::new().on_slow(limit, move |call| told.send(call.clone()).unwrap());
    let db = options.open(":memory:").unwrap();
    let copies = db.engine().backups();
    let reader = (copies.open_reader)().unwrap();
    reader.connection.begin_read().unwrap();
    let copy = copies.pins.note(reader, Caller::default().of(CallKind::Copy));
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    let call = reports.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(call.keeps_wal && call.caller.kind == CallKind::Copy, "{call:?}");
    copy.release();
    let running = db.running();
    assert!(matches!(&running[..], [it] if it.time >= limit && !it.keeps_wal), "{running:?}");
    let late = Duration::from_secs(1 << 30);
    let is_revoked = |it: &Arc<Watch>| {
        it.revoke_taken_before(late, late) || it.revoke_outdated(BatchNumber::MAX, late)
    };
    assert!(!copies.pins.watches().iter().any(is_revoked) && copy.holds());
    drop(copy);
    assert!(db.running().is_empty());
    db.close().unwrap();
}

#[test]
fn work_that_gets_no_thread_is_refused_and_later_work_is_done() {
    let db = Options::new().readers(2).open(":memory:").unwrap();
    shortage::after(0);
    let write = || db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait();
    let read = || {
        let read = db.read(|tx| tx.query_row("SELECT 1", (), |row| row.get::<_, i64>(0)));
        smol::block_on(async { read.await.map(drop) })
    };
    // No closure of a writer runs that is not watched.
    for (refused, thread) in [(write(), "monolite-watch"), (read(), "monolite-read")] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Storage, "{refused}");
        let text = refused.to_string();
        assert!(text.contains(thread) && text.ends_with("TasksMax= of systemd)"), "{text}");
    }
    shortage::after(usize::MAX);
    write().unwrap();
    read().unwrap();
    db.close().unwrap();
}

#[test]
fn the_time_of_the_call_that_has_the_writer_is_seen_meanwhile_and_gone_behind_it() {
    let db = Database::open(":memory:").unwrap();
    let seen = db.clone();
    let held = db.write(move |_| {
        std::thread::sleep(Duration::from_millis(20));
        Ok(seen.stats().writer_busy_seconds)
    });
    assert!(held.wait().unwrap() >= 0.02);
    assert_eq!(db.stats().writer_busy_seconds, 0.0);
    db.close().unwrap();
}
