//! A follower beside its primary: whatever the primary does, each read is of one of its states, a
//! snapshot that is held stays as it is, and the file is the primary's in the end. The tests of the
//! command kill one.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use monolite::archive::ArchiveToken;
use monolite::rusqlite::{self, Connection, OpenFlags, types::ValueRef};
use monolite::{Database, Durability, ErrorKind, Options, Sharing};
use monolite_archive::{
    Archive, Follower, Layout, Store as _, Txid,
    internals::{Catalog, Level, Present, adopt},
};

use crate::archive::{TestPace, compact_level};
use crate::archiving::{Bench, create, insert, wait_until};
use crate::gaps::gaps;
use crate::wire::{SLOTS, Wire};

const LIMIT: Duration = Duration::from_secs(60);

fn follow(bench: &Bench, sharing: Sharing) -> Follower {
    follow_with(bench, bench.archive(), sharing)
}

fn follow_with(bench: &Bench, archive: Archive, sharing: Sharing) -> Follower {
    let options = Options::new().readers(4).wal_limit_bytes(8 << 20).sharing(sharing);
    archive.time_limit(LIMIT).follow(options, followed(bench)).unwrap()
}

fn followed(bench: &Bench) -> PathBuf {
    bench.directory.path().join("followed.db")
}

/// What SQL is asked on: a read of the engine, or a connection of plain SQLite.
trait Ask {
    fn ask(&self, sql: &str) -> monolite::Result<rusqlite::Statement<'_>>;
}

impl Ask for Connection {
    fn ask(&self, sql: &str) -> monolite::Result<rusqlite::Statement<'_>> {
        Ok(self.prepare(sql)?)
    }
}

impl Ask for monolite::ReadTx<'_> {
    fn ask(&self, sql: &str) -> monolite::Result<rusqlite::Statement<'_>> {
        self.prepare(sql)
    }
}

/// How many groups the primary has written, and a number for all that a database has then.
fn state(db: &impl Ask) -> monolite::Result<(i64, u64)> {
    let mut hasher = DefaultHasher::new();
    // Its rows have another order behind a VACUUM.
    let names = "SELECT name, sql FROM sqlite_schema ORDER BY name";
    let mut tables = Vec::new();
    for table in db
        .ask(names)?
        .query_map((), |row| Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?)))?
    {
        let (name, sql) = table?;
        sql.hash(&mut hasher);
        if sql.is_some_and(|sql| sql.starts_with("CREATE TABLE")) {
            tables.push(name);
        }
    }
    for table in tables {
        let mut all = db.ask(&format!("SELECT * FROM \"{table}\" ORDER BY rowid"))?;
        let columns = all.column_count();
        let mut rows = all.query(())?;
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.hash(&mut hasher),
                    other => format!("{other:?}").hash(&mut hasher),
                }
            }
        }
    }
    let n = db.ask("SELECT n FROM beat")?.query_row((), |row| row.get(0))?;
    Ok((n, hasher.finish()))
}

/// The state after each group.
#[derive(Default)]
struct States(Mutex<BTreeMap<i64, u64>>);

impl States {
    fn note(&self, (n, sum): (i64, u64)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(n, sum);
    }

    /// A reader may be faster than the primary's own look.
    fn has(&self, (n, sum): (i64, u64)) {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&n).copied();
        wait_until("the primary has looked", || known().is_some());
        assert_eq!(known(), Some(sum), "group {n}");
    }
}

/// One group: the schema, its size, and content of all kinds change.
fn group(db: &Database, n: i64) {
    // Of texts that an archive compresses: the large amount is not to fill the disk.
    let sql = match n % 23 {
        0 => format!(
            "CREATE TABLE u{n}(a, b TEXT); CREATE INDEX x{n} ON u{n}(b);
            INSERT INTO u{n} SELECT value, hex(randomblob(20)) FROM generate_series(1, 50)"
        ),
        1 if n > 50 => format!("DROP TABLE IF EXISTS u{}", (n - 24) / 23 * 23),
        2 => "ALTER TABLE t ADD COLUMN c".into(),
        3 => "ALTER TABLE t DROP COLUMN c".into(),
        7 => "DELETE FROM t WHERE id % 3 = 0".into(),
        11 => {
            "INSERT INTO t(v) SELECT printf('%0900d', random()) FROM generate_series(1, 120)".into()
        }
        // More than the WAL of the follower may have.
        13 if n % 230 == 128 => {
            "INSERT INTO t(v) SELECT printf('%04000d', random()) FROM generate_series(1, 4000);
             DELETE FROM t WHERE length(v) = 4000 AND id % 50 > 0"
                .into()
        }
        17 => "UPDATE t SET v = printf('%0700d', random()) WHERE id % 5 = 1".into(),
        19 => "DELETE FROM t WHERE id % 2 = 0".into(),
        _ => "INSERT INTO t(v) VALUES (printf('%0300d', random())), (printf('%06000d', random()))"
            .into(),
    };
    let written = db.write(move |tx| {
        tx.execute_batch(&sql)?;
        tx.execute("UPDATE beat SET n = ?1", [n])
    });
    written.wait().unwrap();
}

/// Reads until it is over, each snapshot twice.
fn read_beside(
    states: &States,
    is_over: &AtomicBool,
    mut read: impl FnMut(Duration) -> Option<[(i64, u64); 2]>,
) -> u32 {
    let (mut reads, mut last) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let held = Duration::from_millis(fastrand::u64(..40));
        let Some([first, second]) = read(held) else { continue };
        assert_eq!(first, second, "a snapshot that is held stays as it is");
        assert!(first.0 >= last, "{} comes behind {last}", first.0);
        states.has(first);
        (reads, last) = (reads + 1, first.0);
    }
    reads
}

/// Reads through the engine of the follower.
fn read_own(states: &States, is_over: &AtomicBool, follower: &Follower) -> u32 {
    read_beside(states, is_over, |held| {
        let twice = follower.database().read(|tx| {
            let first = state(tx)?;
            thread::sleep(held);
            Ok([first, state(tx)?])
        });
        match twice.wait() {
            // A large group needs the WAL.
            Err(error) if error.kind() == ErrorKind::Timeout => None,
            twice => Some(twice.unwrap()),
        }
    })
}

/// Reads with plain SQLite.
fn read_stock(states: &States, is_over: &AtomicBool, path: &Path) -> u32 {
    let stock = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    stock.busy_timeout(LIMIT).unwrap();
    read_beside(states, is_over, |held| {
        stock.execute_batch("BEGIN").unwrap();
        let first = state(&stock).unwrap();
        thread::sleep(held);
        let twice = [first, state(&stock).unwrap()];
        let check = "PRAGMA integrity_check";
        let sound: String = stock.query_row(check, (), |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        stock.execute_batch("COMMIT").unwrap();
        Some(twice)
    })
}

/// Has readers end, also when the test has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has a primary write `groups`, and reads beside it. With a wire it streams, and slots are few.
fn every_read_is_of_the_primary(sharing: Sharing, groups: i64, wire: Option<&Wire>) {
    let bench = Bench::new();
    fs::create_dir_all(bench.file().parent().unwrap()).unwrap();
    let archive = bench.archive().time_limit(LIMIT);
    let options = Options::new().durability(Durability::Archived);
    let options = match wire {
        None => options.archive(archive),
        Some(wire) => {
            options.archive(wire.primary(archive.interval(SLOTS))).durability(Durability::Synced)
        }
    };
    let db = options.open(bench.file()).unwrap();
    let sql = "CREATE TABLE beat(n); INSERT INTO beat VALUES (0);
               CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE INDEX i ON t(v)";
    db.write(move |tx| tx.execute_batch(sql)).wait().unwrap();
    let (states, is_over) = (&States::default(), &AtomicBool::new(false));
    let look = |db: &Database| db.read(|tx| state(tx)).wait().unwrap();
    states.note(look(&db));
    db.read_archived(|_| Ok(())).wait().unwrap();
    let archive = bench.archive();
    let archive = wire.map_or(archive.clone(), |wire| wire.follower(archive.interval(SLOTS / 4)));
    let (follower, path) = (&follow_with(&bench, archive, sharing), followed(&bench));
    thread::scope(|scope| {
        let ends = Ends(is_over);
        let own = |_| scope.spawn(move || read_own(states, is_over, follower));
        let mut readers: Vec<_> = (0..2).map(own).collect();
        if sharing == Sharing::Shared {
            readers.push(scope.spawn(|| read_stock(states, is_over, &path)));
        }
        for n in 1..=groups {
            group(&db, n);
            states.note(look(&db));
            if n % 100 == 0 {
                db.vacuum().wait().unwrap();
            }
            if wire.is_some() && n % 7 == 0 {
                // The WAL begins anew.
                db.checkpoint().wait().unwrap();
            }
        }
        let token = db.archive_token().unwrap();
        let last = follower.read_at(token, |tx| state(tx)).unwrap();
        states.has(last);
        assert_eq!(last.0, groups);
        drop(ends);
        let reads = readers.into_iter().map(|reader| reader.join().unwrap());
        assert!(reads.min() > Some(0), "each has read");
    });
    db.close().unwrap();
    let stats = follower.stats();
    assert!(wire.is_some() || stats.files >= groups as u64, "{stats:?}");
    assert!(wire.is_none() || stats.parts > 20, "{stats:?}");
    assert_eq!(stats.copies, 0, "{stats:?}");
    assert_eq!((stats.last_error, stats.lag_ms), (None, 0));
    follower.database().close().unwrap();
    is_same(&bench);
}

/// Whether the closed files are equal, byte by byte.
fn is_same(bench: &Bench) {
    let (theirs, ours) = (fs::read(bench.file()).unwrap(), fs::read(followed(bench)).unwrap());
    let pages = theirs.chunks(4096).zip(ours.chunks(4096)).enumerate();
    let differing: Vec<_> = pages.filter(|(_, (a, b))| a != b).map(|(at, _)| at + 1).collect();
    assert!(theirs == ours, "{} and {} bytes: {differing:?}", theirs.len(), ours.len());
}

fn groups(least: i64) -> i64 {
    std::env::var("MONOLITE_FOLLOWED").ok().and_then(|it| it.parse().ok()).unwrap_or(least)
}

#[test]
fn every_read_of_a_shared_file_is_of_a_state_of_the_primary() {
    every_read_is_of_the_primary(Sharing::Shared, groups(250), None);
}

#[test]
fn every_read_of_an_exclusive_file_is_of_a_state_of_the_primary() {
    every_read_is_of_the_primary(Sharing::Exclusive, groups(250), None);
}

#[test]
fn every_read_of_a_stream_is_of_a_state_of_the_primary() {
    every_read_is_of_the_primary(Sharing::Shared, groups(400), Some(&Wire::new()));
}

#[test]
fn stream_that_is_cut_goes_on_where_it_was_or_by_the_archive() {
    let (wire, is_over) = (&Wire::new(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let ends = Ends(is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(fastrand::u64(100..600)));
                wire.cut(Duration::from_millis(fastrand::u64(0..2) * fastrand::u64(..300)));
            }
        });
        every_read_is_of_the_primary(Sharing::Exclusive, groups(400), Some(wire));
        drop(ends);
    });
}

#[test]
fn gaps_are_bridged_or_a_copy_is_put_in_place() {
    for whole_slot in [u64::MAX, 0] {
        let bench = Bench::new();
        let follower = std::cell::RefCell::new(None::<Follower>);
        gaps(&bench, whole_slot, |kind, file| {
            let mut follower = follower.borrow_mut();
            let follower = follower.get_or_insert_with(|| follow(&bench, Sharing::Exclusive));
            let sql = "SELECT count(*) || ' ' || total(length(v)) || ' ' || max(hex(v)) FROM t";
            let plain = Connection::open(file).unwrap();
            let must: String = plain.query_row(sql, (), |row| row.get(0)).unwrap();
            let has = || {
                follower.database().read(|tx| tx.query_row(sql, (), |row| row.get(0))).wait().ok()
            };
            wait_until(kind, || has().as_ref() == Some(&must));
            let sound = follower.database().check().wait().unwrap();
            assert!(sound.is_sound(), "{kind}: {sound:?}");
        });
        let follower = follower.into_inner().unwrap();
        let stats = follower.stats();
        follower.close().unwrap();
        is_same(&bench);
        // A slot with all pages is one like others.
        assert_eq!(stats.copies, if whole_slot == 0 { 3 } else { 0 }, "{stats:?}");
    }
}

#[test]
fn snapshot_keeps_the_wal_that_it_needs_when_all_of_it_is_copied() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for _ in 0..30 {
        insert(&db, 2_000).unwrap();
    }
    let follower = follow(&bench, Sharing::Shared);
    let sums = "SELECT count(*) || ' ' || group_concat(hex(v)) FROM t";
    let stock = Connection::open(followed(&bench)).unwrap();
    // It reads its pages again each time.
    stock.execute_batch("PRAGMA cache_size = 0").unwrap();
    let seen = || stock.query_row(sums, (), |row| row.get::<_, String>(0)).unwrap();
    let change = || {
        let sql = "UPDATE t SET v = randomblob(2000)";
        db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
        follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    };
    let wal = || fs::metadata(bench.directory.path().join("followed.db-wal")).unwrap().len();
    let mut longest = 0;
    for _ in 0..10 {
        change();
        stock.execute_batch("BEGIN").unwrap();
        let held = seen();
        let copied = follower.database().checkpoint().wait().unwrap();
        assert_eq!((copied.pages_left, copied.restarts), (0, false), "the reader needs the WAL");
        change();
        change();
        assert!(seen() == held, "its pages were overwritten");
        stock.execute_batch("COMMIT").unwrap();
        assert!(seen() != held);
        assert!(follower.database().checkpoint().wait().unwrap().restarts);
        longest = wal().max(longest);
    }
    change();
    assert!(wal() <= longest, "it has begun anew");
    stock.close().unwrap();
    db.close().unwrap();
    follower.close().unwrap();
    is_same(&bench);
}

/// After a kill the file may be ahead of what is noted: pages of before must not be seen again.
#[test]
fn what_may_be_applied_already_is_applied_as_one_commit() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for _ in 0..40 {
        insert(&db, 3_000).unwrap();
    }
    let follower = follow(&bench, Sharing::Exclusive);
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    let to = follower.stats().txid;
    follower.close().unwrap();
    insert(&db, 3_000).unwrap();
    // As a kill may have left it.
    let path = followed(&bench).with_file_name("followed.db-archive/follows.json");
    let noted = fs::read_to_string(&path).unwrap();
    let left = noted.replace(&format!("\"from\":{to}"), &format!("\"from\":{}", to - 38));
    assert_ne!(noted, left);
    fs::write(&path, left).unwrap();
    let (archive, is_away) = bench.archive_that_goes_away();
    is_away.store(true, Ordering::Relaxed);
    let follower = archive.follow(Options::new().readers(1), followed(&bench)).unwrap();
    assert_eq!((rows(&follower), follower.stats().txid), (40, to - 38), "without the store");
    wait_until("it is told", || follower.stats().last_error.is_some());
    is_away.store(false, Ordering::Relaxed);
    let start = Instant::now();
    loop {
        match rows(&follower) {
            40 => assert!(start.elapsed() < LIMIT),
            seen => break assert_eq!(seen, 41, "a reader goes back in time"),
        }
    }
    wait_until("it is counted", || follower.stats().files >= 39);
    db.close().unwrap();
    follower.close().unwrap();
    is_same(&bench);
}

fn token_of(bench: &Bench, txid: u64) -> ArchiveToken {
    let record = bench.archive().leader().unwrap().unwrap();
    ArchiveToken { lineage: record.lineage.bits(), epoch: record.epoch.0, txid }
}

fn rows(follower: &Follower) -> i64 {
    let rows = |tx: &monolite::ReadTx<'_>| {
        tx.query_row("SELECT count(*) FROM t", (), |row| row.get::<_, i64>(0))
    };
    follower.database().read(rows).wait().unwrap()
}

#[test]
fn token_is_waited_for_and_one_that_does_not_come_is_late() {
    let bench = Bench::new();
    let db = bench.open(Durability::Synced).unwrap();
    create(&db);
    db.read_archived(|_| Ok(())).wait().unwrap();
    let follower = follow(&bench, Sharing::Exclusive);
    for expected in 1..=50 {
        insert(&db, 100).unwrap();
        let token = db.archive_token().unwrap();
        let rows = "SELECT count(*) FROM t";
        let seen = follower.read_at(token, |tx| tx.query_row(rows, (), |row| row.get::<_, i64>(0)));
        assert!(seen.unwrap() >= expected);
    }
    let stats = follower.stats();
    let later = token_of(&bench, stats.txid + 1_000);
    let late = follower.wait_for(later, Duration::from_millis(50)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
    assert!(late.to_string().contains(&format!("{:016x}", stats.txid)), "{late}");
    let stranger = ArchiveToken { lineage: 7, ..later };
    let start = Instant::now();
    let refused = follower.wait_for(stranger, LIMIT).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(start.elapsed() < LIMIT / 2, "a wrong token is not waited for");
    // The primary is opened again: the fence of its epoch is all that is new.
    db.close().unwrap();
    let db = bench.open(Durability::Synced).unwrap();
    wait_until("there is a token", || db.archive_token().is_ok());
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    db.close().unwrap();
    follower.close().unwrap();
    is_same(&bench);
}

#[test]
fn writes_are_refused_by_name() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = Follower::open(&bench.url(), followed(&bench)).unwrap();
    let copy = follower.database();
    let sql = "INSERT INTO t(v) VALUES (1)";
    let tx = copy.transaction().unwrap();
    for refused in [
        copy.write(move |tx| tx.execute(sql, ())).wait().unwrap_err(),
        copy.named("x").with_principal(7).write(move |tx| tx.execute(sql, ())).wait().unwrap_err(),
        copy.read_only().write(move |tx| tx.execute(sql, ())).wait().unwrap_err(),
        tx.execute(sql, ()).wait().unwrap_err(),
        tx.execute_batch(sql).wait().unwrap_err(),
        copy.vacuum().wait().unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("follows") && said.contains(&bench.url()), "{said}");
    }
    assert_eq!(rows(&follower), 0);
    // Another follower, and a file that is something else, are refused.
    let second = Follower::open(&bench.url(), followed(&bench)).map(drop).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Overloaded, "{second}");
    let foreign = bench.directory.path().join("foreign.db");
    fs::write(&foreign, "").unwrap();
    for file in [bench.file(), foreign] {
        let other = Follower::open(&bench.url(), &file).map(drop).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid, "{other}");
        let said = other.to_string();
        assert!(said.starts_with(file.to_str().unwrap()), "the file is wrong: {said}");
        let beside = file.with_extension("db-archive");
        assert!(!beside.join("follows.lock").exists(), "it is left behind");
        assert_eq!(beside.exists(), file == bench.file());
    }
}

#[test]
fn what_was_merged_and_deleted_meanwhile_is_bridged() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = follow(&bench, Sharing::Exclusive);
    insert(&db, 100).unwrap();
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    let reached = follower.stats().txid;
    follower.close().unwrap();
    for _ in 0..40 {
        insert(&db, 5_000).unwrap();
    }
    db.close().unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    while compact_level(&store, &layout, Level::FIRST, None).unwrap().is_some() {}
    let catalog = Catalog::read(&store, &layout).unwrap();
    let merged = catalog.level(Level::FIRST).last().unwrap().txids.max();
    for slot in catalog.level(Level::SLOTS) {
        if slot.txids.max() <= merged && slot.len > 131 {
            store.delete(&layout.slot(slot.txids.min())).unwrap();
        }
    }
    assert!(merged.get() > reached + 1, "the follower needs what was merged");
    let follower = follow(&bench, Sharing::Exclusive);
    wait_until("it has all", || rows(&follower) == 41);
    assert_eq!(follower.stats().copies, 0);
    follower.close().unwrap();
    is_same(&bench);
}

#[test]
fn slot_that_is_lost_is_an_error_until_a_copy_is_there() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = follow(&bench, Sharing::Exclusive);
    insert(&db, 100).unwrap();
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    let lost = Txid::new(follower.stats().txid + 1).unwrap();
    follower.close().unwrap();
    insert(&db, 100).unwrap();
    insert(&db, 100).unwrap();
    bench.store().delete(&Layout::directory().slot(lost)).unwrap();
    let follower = follow(&bench, Sharing::Exclusive);
    wait_until("it is told", || follower.stats().last_error.is_some());
    assert_eq!(rows(&follower), 1, "reads go on");
    db.close().unwrap();
    // A primary whose file does not continue the archive uploads a copy.
    fs::remove_dir_all(bench.file().with_file_name("ledger.db-archive")).unwrap();
    let db = bench.open_with(bench.archive().take_over(true), Durability::Archived).unwrap();
    insert(&db, 100).unwrap();
    wait_until("it has all", || rows(&follower) == 4 && follower.stats().copies == 1);
    let stats = follower.stats();
    assert!(stats.copied_because.is_some(), "{stats:?}");
    assert_eq!((stats.last_error, stats.is_over), (None, false));
    db.close().unwrap();
    follower.close().unwrap();
    is_same(&bench);
}

#[test]
fn archive_of_another_database_is_an_error_that_stays() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = follow(&bench, Sharing::Exclusive);
    insert(&db, 100).unwrap();
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    let token = token_of(&bench, follower.stats().txid + 1);
    db.close().unwrap();
    // Another database archives at the same address.
    for folder in ["archive/ltx", "archive/monolite"] {
        fs::remove_dir_all(bench.directory.path().join(folder)).unwrap();
    }
    fs::remove_dir_all(bench.directory.path().join("db")).unwrap();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for _ in 0..10 {
        insert(&db, 100).unwrap();
    }
    wait_until("it is told", || follower.stats().is_over);
    let said = follower.stats().last_error.unwrap();
    assert!(said.contains("another database"), "{said}");
    assert_eq!(follower.wait_for(token, LIMIT).unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(rows(&follower), 1, "reads go on, and nothing of the other one is applied");
    db.close().unwrap();
}

#[test]
fn takeover_is_followed_and_what_was_fenced_off_is_not() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = follow(&bench, Sharing::Exclusive);
    for _ in 0..10 {
        insert(&db, 500).unwrap();
    }
    let token = db.archive_token().unwrap();
    // An operator takes it over while the primary lives; its later writes are nowhere.
    let (store, layout) = (bench.store(), Layout::directory());
    adopt(&store, &layout, Present::TakeOver, None, &mut TestPace::default()).unwrap().unwrap();
    assert_eq!(insert(&db, 7_777).unwrap_err().kind(), ErrorKind::Fenced);
    follower.wait_for(token, LIMIT).unwrap();
    let restored = bench.restored();
    let archive = bench.archive().take_over(true);
    let next = Options::new().archive(archive).durability(Durability::Archived);
    let next = next.open(&restored).unwrap();
    let mut expected = 10;
    for _ in 0..10 {
        insert(&next, 500).unwrap();
        expected += 1;
        let token = next.archive_token().unwrap();
        follower.wait_for(token, LIMIT).unwrap();
        assert_eq!(rows(&follower), expected);
    }
    // What the first one has archived is found by its token, in the new epoch, too.
    follower.wait_for(token, LIMIT).unwrap();
    next.close().unwrap();
    assert_eq!(follower.stats().epoch, 3);
    follower.close().unwrap();
    let (theirs, ours) = (fs::read(restored).unwrap(), fs::read(followed(&bench)).unwrap());
    assert!(theirs == ours, "{} and {} bytes", theirs.len(), ours.len());
}

#[test]
fn what_another_program_writes_to_the_file_is_noticed_and_undone() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let follower = follow(&bench, Sharing::Shared);
    insert(&db, 100).unwrap();
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    let scribble = |path: &Path| {
        let other = Connection::open(path).unwrap();
        other.execute_batch("INSERT INTO t(v) VALUES (randomblob(3000))").unwrap();
        other.close().unwrap();
    };
    scribble(&followed(&bench));
    insert(&db, 100).unwrap();
    follower.wait_for(db.archive_token().unwrap(), LIMIT).unwrap();
    assert_eq!(rows(&follower), 2, "while it follows");
    assert_eq!(follower.stats().copies, 1);
    follower.close().unwrap();
    scribble(&followed(&bench));
    let follower = follow(&bench, Sharing::Shared);
    assert_eq!(rows(&follower), 2, "while it was closed");
    assert_eq!(follower.stats().copies, 1);
    db.close().unwrap();
    follower.close().unwrap();
    is_same(&bench);
}
