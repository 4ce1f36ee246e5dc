//! A catalog that is kept says what a list says; and what a time means where clocks were set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use monolite_archive::{
    ArchivedFile, Call, Catalog, Covered, ErrorKind, Fault, FaultyStore, Keep, Layout, Level,
    MemoryStore, Part, Reading, Retention, Store, Target, compact_level, snapshot,
};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange};

use crate::archive::{Archive, what_may_go};
use crate::world::txid;

#[test]
fn in_steady_state_nothing_is_listed() {
    let lists = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&lists);
    let store = FaultyStore::new(MemoryStore::new(), move |call| {
        counted.fetch_add(u64::from(matches!(call, Call::List(_))), Ordering::SeqCst);
        Fault::None
    });
    let mut archive = Archive::new(store, 17, false);
    archive.take_over();
    let layout = archive.layout.clone();
    let mut catalog = Catalog::read(&archive.store, &layout).unwrap();
    let (before, mut deleted) = (lists.load(Ordering::SeqCst), 0);
    for round in 1..=400 {
        let slot = archive.commit();
        catalog.insert(slot);
        let store = &archive.store;
        if round % 10 == 0 {
            let file = compact_level(store, &layout, &mut catalog, Level::FIRST, None).unwrap();
            assert!(file.is_some());
        }
        if round % 50 == 0 {
            let second = Level::new(2).unwrap();
            compact_level(store, &layout, &mut catalog, second, None).unwrap().unwrap();
        }
        if round % 100 == 0 {
            snapshot(store, &layout, &mut catalog, archive.newest().0).unwrap();
            let (keep, now) = old(&archive, 60);
            let retention = Retention::new(store, &layout, &catalog, keep, now).unwrap();
            deleted += retention.delete_files(store, &layout).unwrap();
            catalog.remove(&retention.files);
            assert!(archive.delete(&retention.slots) > 0);
            let slots: Vec<ArchivedFile> = retention.slots.iter().map(Covered::file).collect();
            catalog.remove(&slots);
        }
    }
    assert_eq!(lists.load(Ordering::SeqCst), before);
    assert!(deleted > 10);
    assert_eq!(catalog.files(), Catalog::read(&archive.store, &layout).unwrap().files());
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest, Reading::Whole).unwrap() == (newest, moment.bytes()));
}

/// What to keep so that all but the last so many TXIDs are old.
fn old<S: Store>(archive: &Archive<S>, txids: usize) -> (Keep, Timestamp) {
    let now = archive.newest().1.time;
    let last = archive.moments.values().rev().nth(txids).unwrap();
    let age = Duration::from_millis((now.millis() - last.time.millis()).unsigned_abs());
    (Keep { slots: age, snapshots: age }, now)
}

#[test]
fn file_that_somebody_else_deleted_is_not_found() {
    let mut archive = Archive::new(MemoryStore::new(), 18, false);
    archive.live(30);
    let (store, layout) = (archive.store.clone(), archive.layout.clone());
    let mut catalog = Catalog::read(&store, &layout).unwrap();
    store.delete(&layout.slot(txid(7))).unwrap();
    let merged = compact_level(&store, &layout, &mut catalog, Level::FIRST, None);
    assert_eq!(merged.unwrap_err().kind(), ErrorKind::NotFound);
    let mut listed = Catalog::read(&store, &layout).unwrap();
    let mut merged = || compact_level(&store, &layout, &mut listed, Level::FIRST, None);
    assert_eq!(merged().unwrap().unwrap().txids.max(), txid(6));
    assert_eq!(merged().unwrap_err().kind(), ErrorKind::Gap);
}

/// A file as Litestream writes it, whose time is what its clock said.
fn theirs(store: &MemoryStore, level: Level, txids: TxidRange, millis: i64) {
    let header = Header {
        page_size: PageSize::MIN,
        commit: 1,
        txids,
        timestamp: Timestamp::from_millis(millis),
        base: BaseChecksum::Untracked,
        wal: None,
        node_id: 0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    let mut page = vec![0; 512];
    page[..8].copy_from_slice(&txids.max().get().to_be_bytes());
    encoder.page(Pgno::new(1).unwrap(), &page).unwrap();
    let body = encoder.finish(None).unwrap().output;
    store.create(&Layout::directory().file(level, txids), &body, None).unwrap();
}

fn range(from: u64, to: u64) -> TxidRange {
    TxidRange::new(txid(from), txid(to)).unwrap()
}

/// An archive of Litestream's, of which a part is merged, and the times of its TXIDs.
fn with_a_clock_that_is_set(rng: &mut fastrand::Rng, txids: u64) -> (MemoryStore, Vec<i64>) {
    let store = MemoryStore::new();
    let (mut clock, mut times) = (100_000, Vec::new());
    for number in 1..=txids {
        clock += match rng.u8(..12) {
            0 => rng.i64(-3_000..3_000),
            _ => rng.i64(1..100),
        };
        times.push(clock);
        let level = if number == 1 { Level::SNAPSHOTS } else { Level::SLOTS };
        theirs(&store, level, range(number, number), clock);
    }
    let mut from = 2;
    while from < txids / 2 {
        let to = from + rng.u64(1..8);
        theirs(&store, Level::FIRST, range(from, to), times[to as usize - 1]);
        from = to + 1;
    }
    (store, times)
}

/// The last TXID, of those that are restored by themselves, that has an earlier time.
fn last_before(times: &[i64], time: i64) -> Option<u64> {
    times.iter().rposition(|is| *is < time).map(|at| at as u64 + 1)
}

#[test]
fn time_is_found_though_the_clock_was_set_back() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (store, times) = with_a_clock_that_is_set(&mut rng, 120);
        let layout = Layout::directory();
        let catalog = Catalog::read(&store, &layout).unwrap();
        for _ in 0..60 {
            let time = times[rng.usize(..times.len())] + rng.i64(-1..2);
            let found = catalog.newest_before(Timestamp::from_millis(time), &store, &layout);
            let expected = last_before(&times, time).map(txid);
            assert_eq!(found.unwrap(), expected, "seed {seed}, before {time}, {times:?}");
        }
    }
}

/// Nothing goes that is as new as what is kept, whatever stands behind it.
#[test]
fn retention_keeps_what_is_before_a_clock_that_was_set_back() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    // The clock was an hour ahead for one snapshot.
    let hour = 3_600_000;
    let snapshots = [(1, 0), (10, 1_000), (20, hour), (30, 2_000), (40, 3_000)];
    for (end, time) in snapshots {
        theirs(&store, Level::SNAPSHOTS, range(1, end), time);
    }
    let keep = Keep { slots: Duration::ZERO, snapshots: Duration::ZERO };
    let now = Timestamp::from_millis(4_000);
    let retention = what_may_go(&store, &layout, keep, now).unwrap();
    let ends: Vec<u64> = retention.files.iter().map(|file| file.txids.max().get()).collect();
    assert_eq!(ends, [1], "the one of TXID 10 is the base");
    assert!(store.get(&layout.file(Level::SNAPSHOTS, range(1, 10)), Part::End(0)).is_ok());
}

/// Above the first fence times rise, and few headers are read.
#[test]
fn times_of_ours_take_few_requests() {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let store = FaultyStore::new(MemoryStore::new(), move |call| {
        counted.fetch_add(u64::from(matches!(call, Call::Get(_))), Ordering::SeqCst);
        Fault::None
    });
    let mut archive = Archive::new(store, 19, false);
    archive.take_over();
    archive.live(500);
    let catalog = Catalog::read(&archive.store, &archive.layout).unwrap();
    let (at, moment) = archive.moments.iter().nth(30).unwrap();
    let time = Timestamp::from_millis(moment.time.millis() + 1);
    let before = reads.load(Ordering::SeqCst);
    let found = catalog.newest_before(time, &archive.store, &archive.layout).unwrap();
    assert_eq!(found, Some(*at));
    assert!(reads.load(Ordering::SeqCst) - before <= 10);
    assert_eq!(catalog.newest(), Some(archive.newest().0));
    assert!(*at > Txid::FIRST);
}
