//! Every moment that an open database has archived is, restored, what a model was then: by TXID and
//! by time, while the schema changes, the file grows and shrinks, another program writes to it, and
//! the clock jumps by up to a day.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use monolite::rusqlite::Connection;
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, Layout, Reading, Store, Target,
    internals::{Catalog, Level, Plan, Slot, restore},
};
use monolite_ltx::{Timestamp, Txid};

use crate::archive::{compact_level, scratch, snapshot};
use crate::programs::{Site, wait_for};
use crate::story::{Moments, Story, digest_of, expected};

/// A clock that a test sets.
#[derive(Clone, Default)]
struct Jumping(Arc<AtomicI64>);

impl Jumping {
    fn now(&self) -> Timestamp {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        Timestamp::from_millis(real as i64 + self.0.load(Ordering::Relaxed))
    }

    fn jump(&self, rng: &mut fastrand::Rng) {
        self.0.fetch_add(rng.i64(-86_400_000..86_400_000), Ordering::Relaxed);
    }
}

fn open(site: &Site, path: &Path, clock: &Jumping) -> Database {
    let (clock, durability) = (clock.clone(), Durability::Archived);
    let archive = Archive::at(&site.ours).unwrap().interval(Duration::from_millis(1));
    let archive = archive.clock(move || clock.now());
    let options = Options::new().readers(1).wal_limit_bytes(8 << 20);
    let db = options.archive(archive).durability(durability).open(path).unwrap();
    wait_for("the archive has the database", 60, || {
        let stats = db.stats().archive.unwrap();
        stats.is_restorable && stats.copies_because.is_none() && stats.lag_ms == 0
    });
    db
}

fn txid(db: &Database) -> u64 {
    db.stats().archive.unwrap().txid
}

/// A database lives for so many TXIDs.
fn live(site: &Site, path: &Path, txids: u64, story: &mut Story) -> Moments {
    let clock = Jumping::default();
    let (mut moments, mut merged) = (Moments::new(), 0);
    let mut db = open(site, path, &clock);
    moments.insert(txid(&db), story.digest());
    while txid(&db) < txids {
        match story.rng.u16(..400) {
            0 => {
                db.close().unwrap();
                if story.rng.bool() {
                    let other = Connection::open(path).unwrap();
                    other.execute_batch(&story.told()).unwrap();
                }
                db = open(site, path, &clock);
                // If there is a copy behind the fence, its state is that of the fence.
                let copy = site.catalog().level(Level::SNAPSHOTS).last().unwrap().txids.max();
                if copy.get() + 1 == txid(&db) {
                    moments.insert(copy.get(), story.digest());
                }
            }
            1..8 => clock.jump(&mut story.rng),
            _ => story.step(&db),
        }
        // Whoever writes next is behind it: all that was written is archived.
        moments.insert(txid(&db), story.digest());
        if txid(&db) > merged + 100 {
            merged = txid(&db);
            let (store, layout) = site.open();
            compact_level(store.as_ref(), &layout, Level::FIRST, None).unwrap().unwrap();
            if story.rng.u8(..5) == 0 {
                compact_level(store.as_ref(), &layout, Level::new(2).unwrap(), None).unwrap();
                snapshot(store.as_ref(), &layout, site.catalog().newest().unwrap()).unwrap();
            }
        }
    }
    db.close().unwrap();
    moments
}

/// Restores every TXID and compares it with the model; how many there were.
fn compare(store: &dyn Store, layout: &Layout, catalog: &Catalog, moments: &Moments) -> usize {
    let (first, newest) = (*moments.keys().next().unwrap(), catalog.newest().unwrap().get());
    let directory = scratch();
    let output = directory.path().join("restored.db");
    for at in first..=newest {
        let reading = [Reading::Whole, Reading::ByIndex][usize::from(at % 2 == 0)];
        let target = Target::Txid(Txid::new(at).unwrap());
        restore(store, layout, target, &output, reading).unwrap();
        assert_eq!(digest_of(&output), expected(moments, at), "TXID {at}");
        std::fs::remove_file(&output).unwrap();
    }
    (newest - first + 1) as usize
}

/// The time of each TXID leads to it, and to none behind it.
fn compare_times(store: &dyn Store, layout: &Layout, catalog: &Catalog, first: u64) -> usize {
    let mut before: Option<(Txid, Timestamp)> = None;
    let slots = catalog.level(Level::SLOTS).iter().filter(|it| it.txids.max().get() >= first);
    let mut compared = 0;
    for slot in slots {
        let at = slot.txids.max();
        // A fence with a copy behind it has that one's state, which is of later.
        let mut copies = catalog.level(Level::SNAPSHOTS).iter().filter(|it| it.txids.max() == at);
        let is_fence = slot.len <= Slot::FENCE_LEN;
        let file = copies.rfind(|_| is_fence).unwrap_or(slot);
        let time = file.header(store, layout).unwrap().timestamp;
        let just = Timestamp::from_millis(time.millis() + 1);
        let plan = |time| Plan::new(catalog, Target::Before(time), store, layout).unwrap().txid();
        assert_eq!(plan(just), at, "before {just}");
        if let Some((last, earlier)) = before {
            assert!(earlier < time, "{at} is not later than {last}");
            assert_eq!(plan(time), last, "before {time}");
        }
        before = Some((at, time));
        compared += 1;
    }
    compared
}

#[test]
#[ignore = "long: the gate runs it"]
fn every_moment_is_what_the_model_was() {
    let txids = crate::schedules::number("MONOLITE_MOMENTS").unwrap_or(2_000);
    let seed = crate::schedules::number("MONOLITE_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("MONOLITE_SEED={seed}");
    let directory = scratch();
    let site = Site::directory(&directory.path().join("archive"));
    let path = directory.path().join("ledger.db");
    let mut story = Story::new(seed);
    let moments = live(&site, &path, txids, &mut story);
    assert_eq!(digest_of(&path), Some(story.digest()));
    let ((store, layout), catalog) = (site.open(), site.catalog());
    let first = *moments.keys().next().unwrap();
    let times = compare_times(store.as_ref(), &layout, &catalog, first);
    let restored = compare(store.as_ref(), &layout, &catalog, &moments);
    println!("{restored} restored, {times} times, {} files", catalog.files().len());
    assert!(restored as u64 >= txids - first);
}

/// The comparison notices a moment that is another.
#[test]
#[should_panic(expected = "TXID 9")]
fn a_moment_that_is_another_is_noticed() {
    let directory = scratch();
    let site = Site::directory(&directory.path().join("archive"));
    let mut story = Story::new(1);
    let mut moments = live(&site, &directory.path().join("ledger.db"), 20, &mut story);
    let wrong = expected(&moments, 9).unwrap() ^ 1;
    moments.insert(9, wrong);
    let (store, layout) = site.open();
    compare(store.as_ref(), &layout, &site.catalog(), &moments);
}
