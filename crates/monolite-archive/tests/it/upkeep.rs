//! What an open database does to its archive beside uploading: slots become levels and snapshots,
//! and go; every moment that is kept is the one that it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Durability, ErrorKind, Options, rusqlite};
use monolite_archive::{
    Archive, DirectoryStore, Keep, Layout, Target,
    internals::{
        ArchivedFile, Call, Catalog, Fault, FaultyStore, Level, Slot, leader, restore, snapshot,
        verify,
    },
};
use monolite_ltx::{Timestamp, Txid};
use tempfile::TempDir;

const HOUR: i64 = 3_600_000;

/// A database whose archive has a time of day of its own.
struct Bench {
    directory: TempDir,
    /// What the wall clock says.
    millis: Arc<AtomicI64>,
    /// How much time has passed, and had when the machine was booted.
    passed: Arc<AtomicI64>,
    booted: Arc<AtomicI64>,
    /// Only with a control: what the wall clock was set by counts as passed.
    untrue: Arc<AtomicI64>,
    /// One request in so many fails; 0 for none.
    failing: Arc<AtomicU64>,
    requests: Arc<AtomicU64>,
    /// Whether no slot arrives, and no file of a level.
    without_slots: Arc<AtomicBool>,
    without_levels: Arc<AtomicBool>,
    /// Whether snapshots have to wait.
    holds_snapshots: Arc<AtomicBool>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            directory: tempfile::tempdir().unwrap(),
            millis: Arc::new(AtomicI64::new(1_700_000_000_000)),
            passed: Arc::default(),
            booted: Arc::default(),
            untrue: Arc::default(),
            failing: Arc::default(),
            requests: Arc::default(),
            without_slots: Arc::default(),
            without_levels: Arc::default(),
            holds_snapshots: Arc::default(),
        }
    }

    fn store(&self) -> DirectoryStore {
        DirectoryStore::new(self.directory.path().join("archive"))
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("db")
    }

    fn archive(&self) -> Archive {
        let (failing, requests) = (Arc::clone(&self.failing), Arc::clone(&self.requests));
        let without_slots = Arc::clone(&self.without_slots);
        let without_levels = Arc::clone(&self.without_levels);
        let holds_snapshots = Arc::clone(&self.holds_snapshots);
        let decide = move |call: Call<'_>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let is_slot = matches!(call, Call::Create(key) if key.starts_with("ltx/0/"));
            if is_slot && without_slots.load(Ordering::Relaxed) {
                return Fault::LostRequest;
            }
            let is_of_level = matches!(call, Call::Create(key) if key.starts_with("ltx/1/"));
            if is_of_level && without_levels.load(Ordering::Relaxed) {
                return Fault::Busy;
            }
            if matches!(call, Call::Create(key) if key.starts_with("ltx/9/")) {
                while holds_snapshots.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            let one_in = failing.load(Ordering::Relaxed);
            if one_in == 0 || fastrand::u64(..one_in) > 0 {
                return Fault::None;
            }
            [Fault::LostRequest, Fault::LostAnswer, Fault::Busy][fastrand::usize(..3)]
        };
        let store = Arc::new(FaultyStore::new(self.store(), decide));
        let millis = Arc::clone(&self.millis);
        let [passed, booted, untrue] = [&self.passed, &self.booted, &self.untrue].map(Arc::clone);
        let load = |millis: &AtomicI64| millis.load(Ordering::Relaxed);
        Archive::of(store, Layout::directory())
            .interval(Duration::from_millis(1))
            .upkeep_every(Duration::from_millis(5))
            .clock(move || Timestamp::from_millis(millis.load(Ordering::Relaxed)))
            .passed(move || {
                let millis = load(&passed) - load(&booted) + load(&untrue);
                Duration::from_millis(millis.unsigned_abs())
            })
    }

    fn open(&self, archive: Archive) -> Database {
        let options = Options::new().readers(1).durability(Durability::Archived);
        let db = options.archive(archive).open(self.file()).unwrap();
        let create = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, v BLOB)";
        db.write(|tx| tx.execute_batch(create)).wait().unwrap();
        db
    }

    fn pass(&self, millis: i64) {
        self.passed.fetch_add(millis, Ordering::Relaxed);
        self.set_clock(millis);
    }

    /// The wall clock is set, and no time passes.
    fn set_clock(&self, by: i64) {
        self.millis.fetch_add(by, Ordering::Relaxed);
    }

    /// A clock that nobody sets begins anew.
    fn reboot(&self) {
        self.booted.store(self.passed.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn catalog(&self) -> Catalog {
        Catalog::read(&self.store(), &Layout::directory()).unwrap()
    }

    fn count(&self, level: u8) -> usize {
        self.catalog().level(Level::new(level).unwrap()).len()
    }

    /// A thread of the database's own merges what was there in the span before, when it gets to it.
    fn merge_first_level(&self, txid: u64) {
        let end = || {
            let catalog = self.catalog();
            // What a snapshot has need not be merged, if the level begins anew.
            let levels = [Level::FIRST, Level::SNAPSHOTS].map(|level| catalog.level(level));
            levels.into_iter().flatten().map(|file| file.txids.max().get()).max()
        };
        wait_until("the first level has it", || {
            self.pass(30_000);
            let start = Instant::now();
            while end() < Some(txid) && start.elapsed() < Duration::from_millis(200) {
                thread::sleep(Duration::from_millis(5));
            }
            end() >= Some(txid)
        });
    }

    /// Slots but fences.
    fn groups(&self) -> usize {
        let catalog = self.catalog();
        catalog.level(Level::SLOTS).iter().filter(|slot| slot.len > Slot::FENCE_LEN).count()
    }

    fn restored(&self, target: Target) -> Option<i64> {
        let output = self.directory.path().join(format!("restored-{}", fastrand::u64(..)));
        restore(&self.store(), &Layout::directory(), target, &output).ok()?;
        let db = rusqlite::Connection::open(&output).unwrap();
        let sum = db.query_row("SELECT coalesce(sum(length(v)), 0) FROM t", (), |row| row.get(0));
        let sum = sum.unwrap();
        drop(db);
        fs::remove_file(output).unwrap();
        Some(sum)
    }

    /// Waits until nothing is asked of the store any more; how much was.
    fn rests(&self) -> u64 {
        // All is merged when its spans are over.
        self.pass(2 * HOUR);
        let asked = || self.requests.load(Ordering::Relaxed);
        let start = Instant::now();
        let mut before = (asked(), Instant::now());
        while before.1.elapsed() < Duration::from_millis(500) {
            assert!(start.elapsed() < Duration::from_secs(30), "it goes on asking: {}", asked());
            if asked() != before.0 {
                before = (asked(), Instant::now());
            }
            self.pass(60_000);
            thread::sleep(Duration::from_millis(5));
        }
        before.0
    }

    /// Waits until old slots are gone, and closes: the newest state can be restored.
    fn expires(&self, db: Database) {
        wait_until("old slots are gone", || {
            self.pass(HOUR);
            change(&db);
            thread::sleep(Duration::from_millis(50));
            self.groups() < 15
        });
        let sum = change(&db);
        db.close().unwrap();
        self.has_no_holes();
        assert_eq!(self.restored(Target::Latest), Some(sum));
    }

    fn has_no_holes(&self) {
        let proof = verify(&self.store(), &Layout::directory(), &mut |_| {}).unwrap();
        assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it takes too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Writes, changes and deletes; gives the sum that the table has then.
fn change(db: &Database) -> i64 {
    let bytes = fastrand::u32(1..3_000);
    db.write(move |tx| {
        tx.execute("INSERT INTO t(v) VALUES (randomblob(?1))", [bytes])?;
        tx.execute("DELETE FROM t WHERE id % 7 = ?1", [bytes % 7])?;
        tx.query_row("SELECT coalesce(sum(length(v)), 0) FROM t", (), |row| row.get(0))
    })
    .wait()
    .unwrap()
}

/// Days of a database, in so many steps of eleven minutes.
fn days(bench: &Bench, archive: &dyn Fn() -> Archive, steps: usize) {
    let mut model: BTreeMap<u64, i64> = BTreeMap::new();
    let mut db = bench.open(archive());
    for step in 0..steps {
        let sum = change(&db);
        model.insert(db.stats().archive.unwrap().txid, sum);
        // Now and then several within a span, and hours in which nothing happens.
        bench.pass([3_000, 3_000, 40_000, 400_000, 3_000_000][fastrand::usize(..5)]);
        if step % 10 == 9 {
            bench.merge_first_level(db.stats().archive.unwrap().txid);
        }
        if step % 100 == 50 {
            db.close().unwrap();
            db = bench.open(archive());
        }
    }
    bench.failing.store(0, Ordering::Relaxed);
    // Everything is old now, and one more write has it all looked through.
    bench.pass(30 * HOUR);
    let sum = change(&db);
    model.insert(db.stats().archive.unwrap().txid, sum);
    wait_until("old slots are gone", || {
        bench.pass(HOUR);
        thread::sleep(Duration::from_millis(50));
        bench.groups() <= 1
    });
    db.close().unwrap();
    bench.has_no_holes();
    let latest = model.values().next_back().copied();
    assert_eq!(bench.restored(Target::Latest), latest);
    let kept: Vec<Option<i64>> = model
        .iter()
        .map(|(txid, sum)| {
            let restored = bench.restored(Target::Txid(Txid::new(*txid).unwrap()));
            assert!(restored.is_none_or(|restored| restored == *sum), "{txid}: {restored:?}");
            restored
        })
        .collect();
    let count = kept.iter().flatten().count();
    assert!((3..steps * 7 / 8).contains(&count), "{count} of {} moments are kept", kept.len());
    assert!(bench.count(9) >= 2, "{} snapshots", bench.count(9));
    for level in 1..=3 {
        assert!(bench.count(level) > 0, "level {level} has no files");
    }
    // A primary that has renewed says so in the record.
    assert!(leader(&bench.store(), &Layout::directory()).unwrap().is_some());
}

#[test]
fn days_of_slots_become_levels_and_snapshots_and_each_kept_moment_is_right() {
    let bench = Bench::new();
    days(&bench, &|| bench.archive(), 160);
}

#[test]
#[ignore = "long: the gate runs it"]
fn the_same_when_requests_fail() {
    let bench = Bench::new();
    bench.failing.store(12, Ordering::Relaxed);
    days(&bench, &|| bench.archive(), 400);
}

#[test]
fn what_is_to_be_kept_for_ever_is() {
    let bench = Bench::new();
    let db = bench.open(bench.archive().keep(None));
    for _ in 0..60 {
        change(&db);
        bench.pass(HOUR);
    }
    wait_until("it is merged", || (1..=3).chain([9]).all(|level| bench.count(level) > 0));
    wait_until("a day was kept", || bench.count(9) > 1);
    let groups = bench.groups();
    assert!(groups >= 60, "{groups}");
    db.close().unwrap();
    bench.has_no_holes();
}

#[test]
fn what_is_older_than_its_snapshots_goes_with_them() {
    let bench = Bench::new();
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let keep = Keep { slots: hours(1), snapshots: hours(48) };
    let db = bench.open(bench.archive().keep(Some(keep)));
    for _ in 0..20 {
        change(&db);
        bench.pass(12 * HOUR);
        thread::sleep(Duration::from_millis(60));
    }
    change(&db);
    wait_until("old snapshots are gone", || {
        bench.pass(HOUR);
        change(&db);
        (1..=5).contains(&bench.count(9))
    });
    let sum = change(&db);
    db.close().unwrap();
    bench.has_no_holes();
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

/// What is merged beside the primary, which is not told: `monolite archive compact --snapshot`.
#[test]
fn a_snapshot_that_somebody_else_made_goes_with_what_leads_on_from_it() {
    let bench = Bench::new();
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let keep = Keep { slots: hours(1), snapshots: hours(48) };
    let db = bench.open(bench.archive().keep(Some(keep)));
    for _ in 0..3 {
        change(&db);
    }
    bench.merge_first_level(db.stats().archive.unwrap().txid);
    let stale = change(&db);
    let newest = db.stats().archive.unwrap().txid;
    let newest = Txid::new(newest).unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    let theirs = snapshot(&store, &layout, &mut bench.catalog(), newest).unwrap();
    bench.pass(HOUR);
    change(&db);
    bench.pass(HOUR);
    let time = Timestamp::from_millis(bench.millis.load(Ordering::Relaxed));
    for _ in 0..20 {
        bench.pass(12 * HOUR);
        change(&db);
        thread::sleep(Duration::from_millis(60));
    }
    wait_until("old snapshots are gone", || {
        bench.pass(HOUR);
        change(&db);
        // Less often than they are merged and deleted, on a busy machine, too.
        thread::sleep(Duration::from_millis(300));
        let catalog = bench.catalog();
        let mut snapshots = catalog.level(Level::SNAPSHOTS).iter();
        snapshots.all(|it| it.txids.max() > newest || *it == theirs) && bench.groups() < 5
    });
    bench.pass(HOUR);
    let sum = change(&db);
    thread::sleep(Duration::from_millis(60));
    db.close().unwrap();
    bench.has_no_holes();
    assert_ne!(bench.restored(Target::Before(time)), Some(stale), "a state of an hour before");
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

#[test]
fn an_idle_database_asks_for_nothing() {
    let bench = Bench::new();
    let db = bench.open(bench.archive());
    for _ in 0..30 {
        change(&db);
        bench.pass(HOUR / 4);
    }
    let asked = bench.rests();
    assert_eq!(db.read(|_| Ok(())).wait().map_err(|error| error.kind()), Ok::<_, ErrorKind>(()));
    assert_eq!(bench.requests.load(Ordering::Relaxed), asked);
    db.close().unwrap();
}

/// It has asked for a deletion, and the term ends in which that would be allowed.
#[test]
fn the_upkeep_goes_on_after_a_copy_of_the_database() {
    let bench = Bench::new();
    let db = bench.open(bench.archive().staged_limit_bytes(1));
    let copies = || db.stats().archive.unwrap().copies_because.is_some();
    for _ in 0..20 {
        change(&db);
        bench.pass(30_000);
    }
    bench.merge_first_level(db.stats().archive.unwrap().txid);
    bench.without_slots.store(true, Ordering::Relaxed);
    let synced = db.with_durability(Durability::Synced);
    change(&synced);
    wait_until("it is asked", || {
        bench.pass(2 * HOUR);
        thread::sleep(Duration::from_millis(200));
        db.stats().archive.unwrap().failed_requests > 0
    });
    wait_until("what waits is given up", || {
        db.checkpoint().wait().unwrap();
        change(&synced);
        copies()
    });
    bench.without_slots.store(false, Ordering::Relaxed);
    wait_until("the copy is there", || !copies());
    bench.expires(db);
}

/// What was listed before a copy came knows nothing of it, and of no gap before it.
#[test]
fn nothing_is_merged_across_a_copy_that_comes_after_the_archive_was_listed() {
    let bench = Bench::new();
    let db = bench.open(bench.archive().staged_limit_bytes(1));
    let copies = || db.stats().archive.unwrap().copies_because.is_some();
    for _ in 0..3 {
        change(&db);
    }
    bench.without_slots.store(true, Ordering::Relaxed);
    bench.holds_snapshots.store(true, Ordering::Relaxed);
    let synced = db.with_durability(Durability::Synced);
    wait_until("what waits is given up", || {
        change(&synced);
        db.checkpoint().wait().unwrap();
        copies()
    });
    bench.without_slots.store(false, Ordering::Relaxed);
    let begun = || leader(&bench.store(), &Layout::directory()).unwrap().unwrap().epoch.0 > 1;
    wait_until("a term begins for the copy", begun);
    // The upkeep lists what is there, and has nothing to merge.
    thread::sleep(Duration::from_millis(200));
    let asked = bench.requests.load(Ordering::Relaxed);
    thread::sleep(Duration::from_millis(100));
    assert_eq!(bench.requests.load(Ordering::Relaxed), asked, "it has listed the archive");
    bench.holds_snapshots.store(false, Ordering::Relaxed);
    wait_until("the copy is there", || !copies());
    let copy = bench.catalog().level(Level::SNAPSHOTS).last().unwrap().txids.max();
    for _ in 0..3 {
        change(&db);
    }
    let newest = db.stats().archive.unwrap().txid;
    bench.pass(30_000);
    let sum = change(&db);
    wait_until("the slots are merged", || {
        bench.pass(30_000);
        let catalog = bench.catalog();
        catalog.level(Level::FIRST).iter().any(|file| file.txids.max().get() >= newest)
    });
    for file in bench.catalog().level(Level::FIRST) {
        let crosses = file.txids.min() <= copy && file.txids.max() > copy;
        assert!(!crosses, "{} is across the copy at {copy}", file.txids);
    }
    db.close().unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

#[test]
fn uploads_do_not_hide_that_merging_fails() {
    let bench = Bench::new();
    let db = bench.open(bench.archive());
    let last_error = || db.stats().archive.unwrap().last_error;
    bench.without_levels.store(true, Ordering::Relaxed);
    change(&db);
    wait_until("merging fails", || {
        bench.pass(30_000);
        last_error().is_some()
    });
    for _ in 0..50 {
        change(&db);
        let told = last_error().unwrap_or_default();
        assert!(told.starts_with("merging into level 1: "), "{told:?} after an upload");
    }
    bench.without_levels.store(false, Ordering::Relaxed);
    wait_until("merging succeeds", || {
        bench.pass(30_000);
        last_error().is_none()
    });
    db.close().unwrap();
}

#[test]
fn snapshots_are_made_and_files_expire_though_merging_is_stuck() {
    let bench = Bench::new();
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let keep = Keep { slots: hours(1), snapshots: hours(48) };
    let db = bench.open(bench.archive().keep(Some(keep)));
    bench.without_levels.store(true, Ordering::Relaxed);
    for _ in 0..10 {
        change(&db);
    }
    let first = bench.catalog().level(Level::SNAPSHOTS)[0];
    wait_until("merging fails", || {
        bench.pass(30_000);
        change(&db);
        let told = db.stats().archive.unwrap().last_error.unwrap_or_default();
        told.starts_with("merging into level 1: ") && !told.contains("; ")
    });
    wait_until("a snapshot is made, and what it replaces goes", || {
        bench.pass(6 * HOUR);
        change(&db);
        thread::sleep(Duration::from_millis(60));
        bench.count(9) > 1 && !bench.catalog().files().contains(&first) && bench.groups() < 10
    });
    let sum = change(&db);
    db.close().unwrap();
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

/// A file that was merged is damaged before the next level has it. A day later all is as before,
/// and the file goes when it expires.
fn damage_a_merged_file(has_later_snapshot: bool) {
    let bench = Bench::new();
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let archive = || bench.archive().keep(Some(Keep { slots: hours(1), snapshots: hours(48) }));
    let db = bench.open(archive());
    // Files that the second level, which has begun, has not got yet.
    let victims = || {
        let catalog = bench.catalog();
        let end = catalog.level(Level::SECOND).last().map(|file| file.txids.max());
        let is_left = |file: &ArchivedFile| end.is_some_and(|end| file.txids.min() > end);
        catalog.level(Level::FIRST).iter().copied().filter(is_left).collect::<Vec<_>>()
    };
    while victims().len() < 2 {
        change(&db);
        bench.merge_first_level(db.stats().archive.unwrap().txid);
    }
    change(&db);
    let (store, layout) = (bench.store(), Layout::directory());
    if has_later_snapshot {
        let newest = Txid::new(db.stats().archive.unwrap().txid).unwrap();
        snapshot(&store, &layout, &mut bench.catalog(), newest).unwrap();
    }
    // The next one knows of the snapshot.
    db.close().unwrap();
    let victim = victims()[0];
    damage(&store.root().join(layout.file(victim.level, victim.txids)));
    let db = bench.open(archive());
    let stats = || db.stats().archive.unwrap();
    let passed = || bench.passed.load(Ordering::Relaxed);
    if !has_later_snapshot {
        let begun = passed();
        // A snapshot of a fence would end below it.
        change(&db);
        wait_until("the snapshot of the day is made", || {
            bench.pass(HOUR);
            thread::sleep(Duration::from_millis(60));
            bench.count(9) > 1
        });
        assert!(passed() - begun < 27 * HOUR, "{} ms", passed() - begun);
        bench.rests();
    }
    let begun = passed();
    let is_behind = |number| {
        let catalog = bench.catalog();
        let files = catalog.level(Level::new(number).unwrap());
        files.iter().any(|file| file.txids.min() > victim.txids.max())
    };
    wait_until("merging goes on behind it", || {
        bench.pass(HOUR / 4);
        change(&db);
        thread::sleep(Duration::from_millis(60));
        assert!(stats().is_restorable && stats().copies_because.is_none(), "{:?}", stats());
        is_behind(2) && is_behind(3) && stats().last_error.is_none()
    });
    assert!(passed() - begun < 4 * HOUR, "{} ms", passed() - begun);
    wait_until("the damaged file is gone", || {
        bench.pass(6 * HOUR);
        change(&db);
        thread::sleep(Duration::from_millis(60));
        !bench.catalog().files().contains(&victim)
    });
    let sum = change(&db);
    db.close().unwrap();
    bench.has_no_holes();
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

#[test]
fn merging_goes_on_behind_a_damaged_file_when_a_snapshot_is_behind_it() {
    damage_a_merged_file(true);
}

#[test]
fn merging_goes_on_behind_a_damaged_file_within_a_day() {
    damage_a_merged_file(false);
}

/// What is listed then leads to a state, and that is an older one.
#[test]
fn newest_slot_that_is_gone_is_told() {
    let bench = Bench::new();
    // Its close would wait for a store in which nothing can be uploaded.
    let db = bench.open(bench.archive().close_time(Duration::from_millis(100)));
    let stats = || db.stats().archive.unwrap();
    for _ in 0..3 {
        change(&db);
    }
    bench.merge_first_level(stats().txid);
    change(&db);
    let newest = Txid::new(stats().txid).unwrap();
    bench.holds_snapshots.store(true, Ordering::Relaxed);
    fs::remove_file(bench.store().root().join(Layout::directory().slot(newest))).unwrap();
    wait_until("it is noticed", || {
        bench.pass(30_000);
        !stats().is_restorable
    });
    // The store has seen the file that is gone, and takes the directory for another one.
    db.close().unwrap();
    bench.holds_snapshots.store(false, Ordering::Relaxed);
    let db = bench.open(bench.archive());
    let sum = change(&db);
    db.close().unwrap();
    bench.has_no_holes();
    assert_eq!(bench.restored(Target::Latest), Some(sum));
}

fn damage(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// What another program does to a slot.
fn lose_a_slot(harm: impl Fn(&std::path::Path)) {
    let bench = Bench::new();
    let db = bench.open(bench.archive());
    let synced = db.with_durability(Durability::Synced);
    let stats = || db.stats().archive.unwrap();
    for _ in 0..3 {
        change(&db);
    }
    // A level that has begun goes on behind the hole.
    bench.merge_first_level(stats().txid);
    let sums: Vec<_> = (0..8).map(|_| (change(&db), stats().txid)).collect();
    assert!(stats().is_restorable && stats().last_error.is_none(), "{:?}", stats());
    let (before, lost) = (sums[3], Txid::new(sums[4].1).unwrap());
    harm(&bench.store().root().join(Layout::directory().slot(lost)));
    bench.holds_snapshots.store(true, Ordering::Relaxed);
    wait_until("it is noticed", || {
        bench.pass(30_000);
        !stats().is_restorable
    });
    assert!(stats().copies_because.unwrap().contains("lost files"), "{:?}", stats());
    assert!(stats().last_error.unwrap().contains("listing the archive"), "{:?}", stats());
    assert!(db.archive_token().is_err(), "nothing is archived before the copy is there");
    change(&synced);
    let proof = || verify(&bench.store(), &Layout::directory(), &mut |_| {}).unwrap();
    assert!(!proof().is_restorable && !proof().problems.is_empty());
    bench.holds_snapshots.store(false, Ordering::Relaxed);
    wait_until("the copy is there", || stats().is_restorable && stats().copies_because.is_none());
    wait_until("nothing fails", || stats().last_error.is_none());
    bench.rests();
    let sum = change(&db);
    assert_eq!(bench.restored(Target::Latest), Some(sum));
    bench.merge_first_level(stats().txid);
    wait_until("nothing fails", || stats().last_error.is_none());
    let copies = bench.count(9);
    // The next one knows of nothing, and finds nothing that it has to mend.
    db.close().unwrap();
    let db = bench.open(bench.archive());
    let sum = change(&db);
    bench.merge_first_level(db.stats().archive.unwrap().txid);
    db.close().unwrap();
    assert_eq!((bench.restored(Target::Latest), bench.count(9)), (Some(sum), copies));
    assert_eq!(bench.restored(Target::Txid(Txid::new(before.1).unwrap())), Some(before.0));
    // What was lost stays lost, which is told as long as something leads there.
    assert!(proof().is_restorable && !proof().problems.is_empty());
}

#[test]
fn hole_is_told_until_a_copy_closes_it() {
    lose_a_slot(|slot| fs::remove_file(slot).unwrap());
}

#[test]
fn damaged_slot_is_told_until_a_copy_closes_the_hole() {
    lose_a_slot(damage);
}

/// The primary of before has not found it, and this one has nothing to upload.
#[test]
fn hole_of_before_is_found_by_the_next_opening() {
    let bench = Bench::new();
    let archive = || bench.archive().upkeep_every(Duration::from_secs(3_600));
    let db = bench.open(archive());
    let lost = (0..4).map(|_| (change(&db), db.stats().archive.unwrap().txid)).nth(2).unwrap();
    let sum = change(&db);
    db.close().unwrap();
    let slot = Layout::directory().slot(Txid::new(lost.1).unwrap());
    fs::remove_file(bench.store().root().join(slot)).unwrap();
    assert_eq!(bench.restored(Target::Latest), None);
    let options = Options::new().readers(1).archive(bench.archive());
    let db = options.open(bench.file()).unwrap();
    wait_until("it can be restored", || bench.restored(Target::Latest) == Some(sum));
    db.close().unwrap();
}

/// A database lives while the wall clock is set by any of `jumps`, with commits before and behind
/// each jump, is closed and opened after reboots, and has files merged and deleted. Whatever
/// [`Keep`] promises by the time that passed is restored, and is what it was.
fn lives_while_the_clock_is_set(
    bench: &Bench,
    seed: u64,
    jumps: std::ops::Range<i64>,
    is_control: bool,
) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let keep = Keep { slots: hours(1), snapshots: hours(24) };
    let archive = || bench.archive().keep(Some(keep));
    let passed = || bench.passed.load(Ordering::Relaxed);
    // By TXID: the sum, and when it was written by the time that passed.
    let mut model: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    let mut ends = BTreeSet::new();
    let mut db = bench.open(archive());
    for step in 0..120 {
        let sum = change(&db);
        let txid = db.stats().archive.unwrap().txid;
        model.insert(txid, (sum, passed()));
        bench.pass([1_000, 40_000, 400_000, 3_000_000][rng.usize(..4)]);
        if step % 6 == 5 {
            let jump = rng.i64(jumps.clone());
            bench.set_clock(jump);
            bench.untrue.fetch_add(if is_control { jump } else { 0 }, Ordering::Relaxed);
            // The upkeep has had its turn since then.
            bench.merge_first_level(txid);
            ends.insert(txid);
            bench.set_clock(if rng.bool() { -jump } else { 0 });
        }
        if step % 40 == 30 {
            db.close().unwrap();
            bench.reboot();
            db = bench.open(archive());
        }
    }
    let groups = bench.groups();
    assert!(groups < model.len(), "{groups} of {}: something went", model.len());
    for (txid, (sum, at)) in &model {
        let (age, restored) =
            (passed() - at, bench.restored(Target::Txid(Txid::new(*txid).unwrap())));
        let is_promised = age < HOUR || ends.contains(txid) && age < 24 * HOUR;
        assert!(restored.is_some() || !is_promised, "TXID {txid}, {age} ms old, is promised");
        assert!(restored.is_none_or(|restored| restored == *sum), "TXID {txid} is another");
    }
    bench.has_no_holes();
    bench.expires(db);
}

#[test]
fn whatever_the_wall_clock_says_all_that_is_promised_is_kept_and_the_rest_goes() {
    let days = 400 * 24 * HOUR;
    let seed = crate::schedules::number("MONOLITE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("MONOLITE_SEED={seed}");
    lives_while_the_clock_is_set(&Bench::new(), seed, -days..days, false);
}

/// The same notices time that was taken from the wall clock.
#[test]
#[should_panic(expected = "is promised")]
fn time_that_was_taken_from_the_wall_clock_is_noticed() {
    let days = 400 * 24 * HOUR;
    lives_while_the_clock_is_set(&Bench::new(), 1, 0..days, true);
}

/// A commit while the clock was ten years ahead: what follows lies there, too.
#[test]
fn one_commit_in_the_future_stops_neither_merging_nor_deleting() {
    let bench = Bench::new();
    let db = bench.open(bench.archive());
    let years = 10 * 365 * 24 * HOUR;
    bench.set_clock(years);
    change(&db);
    bench.set_clock(-years);
    for _ in 0..40 {
        change(&db);
        bench.pass(HOUR);
    }
    wait_until("all is merged", || (1..=3).chain([9]).all(|level| bench.count(level) > 0));
    wait_until("a snapshot a day is made", || bench.count(9) > 1);
    bench.expires(db);
}
