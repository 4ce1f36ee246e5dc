//! Who waits for the archive, and who does not: handles of either durability, reads, the limit of
//! the lag, and the tokens by which a moment is named elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::archive::ArchiveToken;
use monolite::{Database, Durability, ErrorKind, Options, rusqlite};
use monolite_archive::{
    Archive, DirectoryStore, Layout, Part, Record, Store, Target,
    internals::{Call, Fault, FaultyStore, Present, adopt, restore},
};
use monolite_ltx::Txid;
use tempfile::TempDir;

use crate::archive::TestPace;

/// A database whose archive is slow to be told of anything, and can be away.
struct Bench {
    directory: TempDir,
    is_away: Arc<AtomicBool>,
    interval: Duration,
}

impl Bench {
    fn new(interval: Duration) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        Bench { directory, is_away: Arc::default(), interval }
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.directory.path().join("archive"))
    }

    fn away(&self) -> impl Store + use<> {
        let is_away = Arc::clone(&self.is_away);
        FaultyStore::new(self.store(), move |_: Call<'_>| {
            if is_away.load(Ordering::Relaxed) { Fault::LostRequest } else { Fault::None }
        })
    }

    fn archive(&self) -> Archive {
        let archive = Archive::of(Arc::new(self.away()), Layout::directory());
        archive.interval(self.interval).close_time(Duration::ZERO)
    }

    fn options(&self) -> Options {
        Options::new().readers(1).archive(self.archive())
    }

    /// Some openings may keep next to nothing beside the database, so that a copy follows.
    fn options_of(&self, opening: u32) -> Options {
        if opening % 4 < 3 {
            return self.options();
        }
        Options::new().readers(1).archive(self.archive().staged_limit_bytes(1))
    }

    fn record(&self) -> Record {
        let key = Layout::directory().leader();
        let text = self.store().get(&key, Part::Whole(Record::LIMIT)).unwrap().unwrap();
        Record::decode(&text.bytes).unwrap()
    }

    /// Writes a row that is archived, and one that is not; the tokens of both.
    fn leaves_a_row(&self) -> (ArchiveToken, ArchiveToken) {
        let db = self.open(self.options().durability(Durability::Archived));
        insert(&db).unwrap();
        let archived = db.archive_token().unwrap();
        db.backup(self.directory.path().join("copy")).wait().unwrap();
        self.be_away(true);
        insert(&db.with_durability(Durability::Synced)).unwrap();
        let left = db.archive_token().unwrap();
        db.close().unwrap();
        self.be_away(false);
        (archived, left)
    }

    /// Whether the record says of a token that it may be lost.
    fn has_lost(&self, token: ArchiveToken) {
        let error = self.record().locate(token).unwrap_err();
        assert_eq!(error.kind(), monolite_archive::ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("may be lost"), "{error}");
    }

    /// A write more is archived: the one token stays good, and the other one lost.
    fn goes_on(&self, db: &Database, archived: ArchiveToken, lost: ArchiveToken) {
        insert(db).unwrap();
        db.read_archived(|_| Ok(())).wait().unwrap();
        assert_eq!(self.restored(Target::Token(archived)), Some(1));
        self.has_lost(lost);
        db.close().unwrap();
    }

    fn open(&self, options: Options) -> Database {
        let db = options.open(self.directory.path().join("db")).unwrap();
        wait_until("it can be restored", || db.stats().archive.unwrap().is_restorable);
        let create = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v)";
        db.write(|tx| tx.execute_batch(create)).wait().unwrap();
        db
    }

    fn be_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Rows of what is restored at `target`.
    fn restored(&self, target: Target) -> Option<i64> {
        let output = self.directory.path().join(format!("restored-{}", fastrand::u64(..)));
        restore(&self.store(), &Layout::directory(), target, &output).ok()?;
        let restored = rusqlite::Connection::open(&output).unwrap();
        let rows = restored.query_row("SELECT count(*) FROM t", (), |row| row.get(0)).unwrap();
        fs::remove_file(output).unwrap();
        Some(rows)
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it takes too long until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn insert(db: &Database) -> monolite::Result<usize> {
    db.write(|tx| tx.execute("INSERT INTO t(v) VALUES (1)", ())).wait()
}

const NEVER: Duration = Duration::from_secs(3_600);

#[test]
fn a_handle_waits_for_the_archive_and_others_do_not() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options());
    let archived = db.with_durability(Durability::Archived);
    insert(&archived).unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(1), "an interval of an hour does not count");
    // A transaction of it waits, too, and so does what is made from the handle.
    archived
        .with_time_limit(Duration::from_secs(5))
        .with_principal(7)
        .transact(async |tx| tx.execute("INSERT INTO t(v) VALUES (2)", ()).wait())
        .wait()
        .unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(2));
    bench.be_away(true);
    insert(&db).unwrap();
    let pending = archived.write(|tx| tx.execute("INSERT INTO t(v) VALUES (1)", ()));
    wait_until("it is committed", || {
        db.read(|tx| tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0)))
            .wait()
            .unwrap()
            == 4
    });
    insert(&db).unwrap();
    wait_until("only that one waits", || db.stats().unsynced_transactions == 1);
    bench.be_away(false);
    pending.wait().unwrap();
    assert!(bench.restored(Target::Latest) >= Some(4));
    db.close().unwrap();
}

#[test]
fn a_database_whose_writes_wait_has_handles_that_do_not() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options().durability(Durability::Archived));
    let synced = db.with_durability(Durability::Synced);
    bench.be_away(true);
    insert(&synced).unwrap();
    synced
        .transact(async |tx| tx.execute("INSERT INTO t(v) VALUES (2)", ()).wait())
        .wait()
        .unwrap();
    bench.be_away(false);
    insert(&db).unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(3));
    let buffered = db.with_durability(Durability::Buffered);
    let refused = insert(&buffered).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let refused = buffered.transaction().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    insert(&buffered.with_durability(Durability::Synced)).unwrap();
    db.close().unwrap();
}

#[test]
fn a_read_waits_until_what_it_saw_is_archived() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options());
    let rows = |db: &Database| {
        let sql = "SELECT count(*) FROM t";
        db.read_archived(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait()
    };
    insert(&db).unwrap();
    assert_eq!(rows(&db).unwrap(), 1);
    assert_eq!(bench.restored(Target::Latest), Some(1));
    bench.be_away(true);
    assert_eq!(rows(&db).unwrap(), 1, "all is there, so nobody is asked");
    insert(&db).unwrap();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(rows(&db).unwrap(), 2);
            is_done.store(true, Ordering::Relaxed);
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!is_done.load(Ordering::Relaxed), "the store is away");
        bench.be_away(false);
    });
    assert_eq!(bench.restored(Target::Latest), Some(2));
    let inside = db.write(move |_| Ok(())).wait();
    inside.unwrap();
    db.close().unwrap();
    let none = Database::open(":memory:").unwrap();
    let refused = none.read_archived(|_| Ok(())).wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
}

#[test]
#[ignore = "long: the gate runs it"]
fn a_read_of_what_a_crash_has_left_waits_for_that() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options());
    bench.be_away(true);
    insert(&db).unwrap();
    // Its close has no time to upload it.
    db.close().unwrap();
    let (told, waits) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let db = bench.options().open(bench.directory.path().join("db")).unwrap();
        let reader = db.clone();
        scope.spawn(move || {
            let sql = "SELECT count(*) FROM t";
            let read = reader.read_archived(|tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0)));
            told.send(read.wait()).unwrap();
        });
        assert!(waits.recv_timeout(Duration::from_millis(200)).is_err(), "it is not archived");
        bench.be_away(false);
        assert_eq!(waits.recv().unwrap().unwrap(), 1);
        assert_eq!(bench.restored(Target::Latest), Some(1));
        db.close().unwrap();
    });
}

#[test]
fn a_close_ends_reads_that_wait_for_a_store_that_is_away() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options());
    bench.be_away(true);
    insert(&db).unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| db.read_archived(|_| Ok(())).wait());
        let archived = db.with_durability(Durability::Archived);
        let writing = scope.spawn(move || insert(&archived));
        wait_until("somebody waits", || db.stats().unsynced_transactions > 0);
        thread::sleep(Duration::from_millis(50));
        db.close().unwrap();
        assert_eq!(reading.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(writing.join().unwrap().unwrap_err().kind(), ErrorKind::CommitUnknown);
    });
}

#[test]
fn writes_are_refused_when_the_archive_lags_too_far_behind() {
    let bench = Bench::new(Duration::from_millis(5));
    let limit = Duration::from_millis(500);
    let db = bench.open(bench.options().archive(bench.archive().lag_limit(limit)));
    // What is late from before would count, too.
    db.read_archived(|_| Ok(())).wait().unwrap();
    bench.be_away(true);
    let (start, mut written) = (Instant::now(), 1);
    insert(&db).unwrap();
    let refused = loop {
        match insert(&db) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing is refused");
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(refused.to_string().contains("Archive::lag_limit"), "{refused}");
    // The beginning of the lag is rounded down to a millisecond.
    assert!(start.elapsed() >= limit - Duration::from_millis(1), "{:?}", start.elapsed());
    let commit =
        db.transact(async |tx| tx.execute("INSERT INTO t(v) VALUES (2)", ()).wait()).wait();
    assert_eq!(commit.unwrap_err().kind(), ErrorKind::Overloaded);
    assert!(db.stats().archive.unwrap().lag_ms >= 500);
    let there =
        db.read(|tx| tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0)));
    assert_eq!(there.wait().unwrap(), written, "reads go on, and nothing of the refused is there");
    bench.be_away(false);
    wait_until("writes go on", || insert(&db).is_ok());
    db.read_archived(|_| Ok(())).wait().unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(written + 1));
    assert_eq!(db.stats().archive.unwrap().lag_ms, 0);
    db.close().unwrap();
}

/// Each time the WAL begins anew, nothing that waits for the archive is left in it.
#[test]
fn lag_counts_while_a_copy_is_due() {
    let bench = Bench::new(Duration::from_millis(5));
    let limit = Duration::from_millis(500);
    let archive = bench.archive().staged_limit_bytes(0).lag_limit(limit);
    let options = Options::new().readers(1).archive(archive).wal_limit_bytes(8 << 20);
    let db = bench.open(options);
    db.read_archived(|_| Ok(())).wait().unwrap();
    bench.be_away(true);
    let start = Instant::now();
    let refused = loop {
        let sql = "INSERT INTO t(v) VALUES (zeroblob(100000))";
        if let Err(error) = db.write(move |tx| tx.execute(sql, ())).wait() {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing is refused");
    };
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(refused.to_string().contains("Archive::lag_limit"), "{refused}");
    assert!(db.stats().archive.unwrap().copies_because.is_some(), "a copy is due");
    bench.be_away(false);
    wait_until("writes go on", || insert(&db).is_ok());
    db.close().unwrap();
}

/// What is restored at the token's TXID has everything that was acknowledged before it, and when
/// all is archived there is a slot of that number.
#[test]
#[ignore = "long: the gate runs it"]
fn a_token_names_what_has_everything_before_it() {
    let bench = Bench::new(Duration::from_millis(3));
    let db = bench.open(bench.options());
    let mut tokens: Vec<(ArchiveToken, i64)> = Vec::new();
    for round in 0..300 {
        insert(&db).unwrap();
        // Some of them while a group is under way, some when the store has lagged behind.
        if fastrand::bool() {
            thread::sleep(Duration::from_micros(fastrand::u64(..4_000)));
        }
        if round % 60 == 30 {
            bench.be_away(true);
        } else if round % 60 == 50 {
            bench.be_away(false);
        }
        tokens.push((db.archive_token().unwrap(), round + 1));
    }
    bench.be_away(false);
    db.read_archived(|_| Ok(())).wait().unwrap();
    let last = db.stats().archive.unwrap();
    assert!(tokens.windows(2).all(|pair| pair[0].0.txid <= pair[1].0.txid));
    assert!(tokens.iter().all(|(token, _)| token.epoch == last.epoch && token.txid <= last.txid));
    assert_eq!(db.archive_token().unwrap().txid, last.txid);
    for (token, rows) in tokens {
        let restored = bench.restored(Target::Txid(Txid::new(token.txid).unwrap()));
        assert!(restored >= Some(rows), "{token} has {restored:?} rows of {rows}");
    }
    db.close().unwrap();
    let none = Database::open(":memory:").unwrap();
    assert_eq!(none.archive_token().unwrap_err().kind(), ErrorKind::Invalid);
}

/// What was not archived when a database was closed is found behind the fence of a later opening:
/// of the next one, or of one after openings that brought a part of it, or none.
#[test]
fn a_token_outlives_the_opening_in_which_it_was_given() {
    let bench = Bench::new(Duration::from_millis(1));
    let mut tokens: Vec<(ArchiveToken, i64)> = Vec::new();
    let mut rows = 0;
    for opening in 0..25 {
        bench.be_away(false);
        let db = bench.open(bench.options_of(opening));
        for round in 0..fastrand::i64(2..9) {
            bench.be_away(fastrand::u8(..3) > 0);
            insert(&db).unwrap();
            rows += 1;
            if let Ok(token) = db.archive_token() {
                tokens.push((token, rows));
            }
            // The WAL begins anew, so there is something to be kept beside it.
            if round % 2 == 1 {
                db.checkpoint().wait().unwrap();
            }
        }
        db.close().unwrap();
    }
    bench.be_away(false);
    let db = bench.open(bench.options());
    db.read_archived(|_| Ok(())).wait().unwrap();
    let record = bench.record();
    let epochs = tokens.iter().map(|(token, _)| token.epoch).collect::<BTreeSet<_>>().len();
    assert!(epochs > 15, "there are tokens of {epochs} openings");
    let mut carried = 0;
    for (token, rows) in tokens {
        let restored = bench.restored(Target::Token(token));
        assert!(restored >= Some(rows), "{token} has {restored:?} rows of {rows}");
        carried += usize::from(record.locate(token).unwrap().get() > token.txid);
    }
    assert!(carried > 5, "{carried} were carried over");
    db.close().unwrap();
}

/// Nor does one that was restored, and adopted for the archive.
#[test]
fn a_token_of_what_was_not_archived_is_an_error_behind_an_adoption() {
    let bench = Bench::new(NEVER);
    let (archived, lost) = bench.leaves_a_row();
    let file = bench.directory.path().join("restored.db");
    let (store, layout) = (bench.store(), Layout::directory());
    restore(&store, &layout, Target::Latest, &file).unwrap();
    let mut pace = TestPace::default();
    adopt(&store, &layout, Present::TakeOver, Some(&file), &mut pace).unwrap().unwrap();
    bench.has_lost(lost);
    for _ in 0..2 {
        let db = bench.options().open(&file).unwrap();
        wait_until("it can be restored", || db.stats().archive.unwrap().is_restorable);
        insert(&db).unwrap();
        db.read_archived(|_| Ok(())).wait().unwrap();
        bench.has_lost(lost);
        assert_eq!(bench.restored(Target::Token(archived)), Some(1));
        assert!(bench.restored(Target::Token(db.archive_token().unwrap())) >= Some(2));
        db.close().unwrap();
    }
}

/// Another file that takes the archive over does not have what the last one had not archived.
#[test]
fn a_token_of_what_was_left_behind_is_an_error() {
    let bench = Bench::new(NEVER);
    let (archived, lost) = bench.leaves_a_row();
    let archive = Archive::of(Arc::new(bench.store()), Layout::directory()).take_over(true);
    let copy = bench.directory.path().join("copy");
    let db = Options::new().archive(archive).open(copy).unwrap();
    bench.goes_on(&db, archived, lost);
}

/// An older copy that is written over the file need not have what was not archived.
#[test]
fn a_token_of_what_another_file_in_its_place_lacks_is_an_error() {
    let bench = Bench::new(NEVER);
    let (archived, lost) = bench.leaves_a_row();
    let [copy, file] = ["copy", "db"].map(|name| bench.directory.path().join(name));
    fs::copy(copy, file).unwrap();
    for _ in 0..2 {
        let db = bench.open(bench.options());
        bench.goes_on(&db, archived, lost);
    }
}

/// Nor does a file have it that has taken the archive over and ended before it served.
#[test]
fn a_token_of_what_was_left_behind_stays_an_error_when_a_takeover_has_ended_early() {
    let bench = Bench::new(NEVER);
    let (_, lost) = bench.leaves_a_row();
    let copy = bench.directory.path().join("copy");
    let swaps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&swaps);
    let store = FaultyStore::new(bench.store(), move |call: Call<'_>| match call {
        Call::Swap(_) if counted.fetch_add(1, Ordering::Relaxed) > 0 => Fault::LostRequest,
        _ => Fault::None,
    });
    let archive = Archive::of(Arc::new(store), Layout::directory()).close_time(Duration::ZERO);
    let archive = archive.take_over(true).opening_wait(Duration::ZERO);
    let db = Options::new().archive(archive).open(&copy).unwrap();
    wait_until("it would serve", || swaps.load(Ordering::Relaxed) > 1);
    db.close().unwrap();
    let archive = Archive::of(Arc::new(bench.store()), Layout::directory());
    let db = Options::new().archive(archive).open(&copy).unwrap();
    insert(&db).unwrap();
    db.read_archived(|_| Ok(())).wait().unwrap();
    bench.has_lost(lost);
    db.close().unwrap();
}

/// A file that was written over is archived anew, also when an opening of it ends before that.
#[test]
fn a_file_that_is_another_one_is_still_ours_after_an_opening_without_the_store() {
    let bench = Bench::new(NEVER);
    let path = |name: &str| bench.directory.path().join(name);
    let db = bench.open(bench.options().durability(Durability::Archived));
    insert(&db).unwrap();
    fs::copy(path("db"), path("then")).unwrap();
    fs::copy(path("db-archive/position.json"), path("position")).unwrap();
    bench.be_away(true);
    db.close().unwrap();
    fs::copy(path("then"), path("db")).unwrap();
    fs::copy(path("position"), path("db-archive/position.json")).unwrap();
    let archive = bench.archive().opening_wait(Duration::ZERO);
    Options::new().archive(archive).open(path("db")).unwrap().close().unwrap();
    bench.be_away(false);
    bench.open(bench.options()).close().unwrap();
}

#[test]
fn an_outcome_that_is_kept_is_told_again_when_it_is_archived() {
    let bench = Bench::new(NEVER);
    let db = bench.open(bench.options());
    let pay = |db: &Database| {
        db.transact_once("payment-1", async |tx| {
            tx.execute("INSERT INTO t(v) VALUES (1)", ()).wait()?;
            Ok(((), *b"paid"))
        })
        .wait()
    };
    pay(&db).unwrap();
    bench.be_away(true);
    let archived = db.with_durability(Durability::Archived);
    thread::scope(|scope| {
        let again = scope.spawn(|| pay(&archived));
        thread::sleep(Duration::from_millis(100));
        assert!(!again.is_finished(), "the store is away, and whoever is told believes it");
        bench.be_away(false);
        assert!(matches!(
            again.join().unwrap().unwrap(),
            monolite::Committed::Before { outcome } if outcome == b"paid"
        ));
    });
    assert_eq!(bench.restored(Target::Latest), Some(1));
    db.close().unwrap();
}
