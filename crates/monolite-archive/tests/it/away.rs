//! A store that is away: who waits for it does so for a bounded time, and holds up nobody else.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use monolite::{Committed, Database, Durability, ErrorKind, Options};
use monolite_archive::{
    Archive, DirectoryStore, Layout, Target,
    internals::{Call, Fault, FaultyStore, restore},
};
use monolite_ltx::Txid;
use tempfile::TempDir;

/// A store that answers no request while it is away.
struct Away {
    directory: TempDir,
    is_away: Arc<AtomicBool>,
}

impl Away {
    fn new() -> Away {
        Away { directory: tempfile::tempdir().unwrap(), is_away: Arc::default() }
    }

    fn archive(&self) -> Archive {
        let is_away = Arc::clone(&self.is_away);
        let decide = move |_: Call<'_>| {
            while is_away.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(2));
            }
            Fault::None
        };
        let store = Arc::new(FaultyStore::new(self.store(), decide));
        Archive::of(store, Layout::directory()).close_time(Duration::ZERO)
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.directory.path().join("archive"))
    }

    fn open(&self, options: Options) -> Database {
        self.open_with(options, self.archive())
    }

    fn open_with(&self, options: Options, archive: Archive) -> Database {
        let path = self.directory.path().join("db");
        let db = options.readers(1).archive(archive).open(path).unwrap();
        let sql = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
        db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
        db.read_archived(|_| Ok(())).wait().unwrap();
        db
    }

    fn be(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Rows of what is restored at `txid`.
    fn rows_at(&self, txid: u64) -> i64 {
        let output: PathBuf = self.directory.path().join(format!("restored-{txid}"));
        let target = Target::Txid(Txid::new(txid).unwrap());
        let (store, layout) = (self.store(), Layout::directory());
        restore(&store, &layout, target, &output).unwrap();
        let restored = monolite::rusqlite::Connection::open(&output).unwrap();
        restored.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap()
    }
}

impl Drop for Away {
    /// A test that fails leaves no thread in the store.
    fn drop(&mut self) {
        self.be(false);
    }
}

/// What `work` gives, which must not take long.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(Duration::from_secs(20)).expect("it waits for the store")
}

fn insert(db: &Database, v: i64) -> monolite::Write<usize> {
    db.write(move |tx| tx.execute("INSERT INTO t(v) VALUES (?1)", [v]))
}

fn count(db: &Database, v: i64) -> i64 {
    let sql = "SELECT count(*) FROM t WHERE v = ?1";
    db.read(move |tx| tx.query_row(sql, [v], |row| row.get(0))).wait().unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future on this thread; `None` when it has not ended within `patience`.
fn within<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, start) = (Context::from_waker(&waker), Instant::now());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return Some(output),
            Poll::Pending if start.elapsed() >= patience => return None,
            Poll::Pending => thread::park_timeout(patience.saturating_sub(start.elapsed())),
        }
    }
}

#[test]
fn those_who_wait_for_a_store_that_is_away_hold_up_no_other_write() {
    let away = Away::new();
    let db = away.open(Options::new().queue_capacity(8));
    let archived = db.with_durability(Durability::Archived);
    away.be(true);
    // Those of the last are given up.
    let mut waiting: Vec<_> = (0..8).map(|_| insert(&archived, 1)).collect();
    waiting.truncate(4);
    let (other, refused) = (db.clone(), archived.clone());
    soon(move || {
        while count(&other, 1) < 8 {
            thread::sleep(Duration::from_millis(2));
        }
        for _ in 0..10 {
            let error = insert(&refused, 2).wait().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
            assert!(error.to_string().contains("queue_capacity"), "{error}");
        }
        assert_eq!(count(&other, 2), 0, "it is refused before it runs");
        for _ in 0..20 {
            insert(&other, 3).wait().unwrap();
        }
        other
            .transact(async |tx| tx.execute("INSERT INTO t(v) VALUES (3)", ()).wait())
            .wait()
            .unwrap();
        // One is told before it is counted.
        while other.stats().unsynced_transactions > 8 {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(other.stats().unsynced_transactions, 8);
    });
    away.be(false);
    waiting.into_iter().for_each(|write| assert_eq!(write.wait().unwrap(), 1));
    insert(&archived, 2).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn a_write_that_waits_too_long_for_the_archive_is_told_so_and_can_ask() {
    let away = Away::new();
    let archive = away.archive().time_limit(Duration::from_millis(100));
    let db = away.open_with(Options::new(), archive);
    let archived = db.with_durability(Durability::Archived);
    away.be(true);
    let shorter = archived.with_time_limit(Duration::from_millis(20));
    let token = soon(move || {
        let late = |error: monolite::Error, limit: &str| {
            assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error}");
            let text = error.to_string();
            assert!(text.contains("on this disk") && text.contains(limit), "{text}");
        };
        late(insert(&archived, 1).wait().unwrap_err(), "100.0ms");
        late(insert(&shorter, 1).wait().unwrap_err(), "20.0ms");
        let tx = archived.transaction().unwrap();
        tx.execute("INSERT INTO t(v) VALUES (1)", ()).wait().unwrap();
        late(tx.commit().wait().unwrap_err(), "100.0ms");
        let add = |tx: &monolite::Transaction| tx.execute("INSERT INTO t(v) VALUES (1)", ()).wait();
        late(shorter.transact(async |tx| add(&tx)).wait().unwrap_err(), "20.0ms");
        assert_eq!(count(&archived, 1), 4, "they are committed");
        // What is read is told in time, too.
        let error = archived.read_archived(|_| Ok(())).wait().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        archived.archive_token().unwrap()
    });
    assert!(db.stats().archive.unwrap().txid < token.txid);
    away.be(false);
    soon({
        let db = db.clone();
        move || {
            while db.stats().archive.unwrap().txid < token.txid {
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    assert!(away.rows_at(token.txid) >= 4, "what was on this disk is archived");
    db.close().unwrap();
}

#[test]
fn an_outcome_that_could_not_be_archived_in_time_is_given_to_the_next_who_asks() {
    let away = Away::new();
    let db = away.open(Options::new());
    let archived = db.with_durability(Durability::Archived);
    let pay = |db: &Database| {
        db.transact_once("payment-1", async |tx| {
            tx.execute("INSERT INTO t(v) VALUES (1)", ()).wait()?;
            Ok(((), *b"paid"))
        })
        .wait()
    };
    away.be(true);
    let first = archived.with_time_limit(Duration::from_millis(50));
    soon(move || {
        let error = pay(&first).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error}");
        // It is there, and nobody is told before it is archived.
        assert_eq!(pay(&first).unwrap_err().kind(), ErrorKind::Timeout);
    });
    away.be(false);
    let again = soon(move || pay(&archived).unwrap());
    assert!(matches!(again, Committed::Before { outcome } if outcome == b"paid"));
    assert_eq!(count(&db, 1), 1);
    db.close().unwrap();
}

#[test]
fn awaited_reads_that_wait_for_the_archive_keep_no_thread_from_others() {
    let away = Away::new();
    let db = away.open(Options::new());
    away.be(true);
    insert(&db, 1).wait().unwrap();
    let seen = soon({
        let db = db.clone();
        move || {
            let mut waiting: Vec<_> =
                (0..4).map(|_| Box::pin(db.read_archived(|_| Ok(())))).collect();
            let mut context = Context::from_waker(Waker::noop());
            for read in &mut waiting {
                assert!(read.as_mut().poll(&mut context).is_pending());
            }
            let sql = "SELECT count(*) FROM t";
            let read = db.read(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0)));
            within(Duration::from_secs(19), read)
        }
    });
    assert_eq!(seen.unwrap().unwrap(), 1);
    away.be(false);
    db.close().unwrap();
}
