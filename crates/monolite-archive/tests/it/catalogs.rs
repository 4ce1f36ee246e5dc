//! A catalog that is kept says what a list says; and what a time means where clocks were set back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use monolite_archive::{
    ErrorKind, Layout, MemoryStore, Store, Target,
    internals::{
        ArchivedFile, Call, Catalog, Covered, Fault, FaultyStore, Horizon, Level, Plan, Retention,
        compact, compact_level, restore, snapshot, verify,
    },
};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange};

use crate::archive::Archive;
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
            let retention = Retention::new(&catalog, old(&archive, 60)).unwrap();
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
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
}

/// All but the last so many TXIDs are old.
fn old<S: Store>(archive: &Archive<S>, txids: usize) -> Horizon {
    let until = archive.moments.keys().rev().nth(txids + 1).copied();
    Horizon { slots: until, snapshots: until }
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
            let target = Target::Before(Timestamp::from_millis(time));
            let found = Plan::new(&catalog, target, &store, &layout).ok().map(|plan| plan.txid());
            let expected = last_before(&times, time).map(txid);
            assert_eq!(found, expected, "seed {seed}, before {time}, {times:?}");
        }
    }
}

/// The base is the newest snapshot up to the horizon, whatever the times of files say.
#[test]
fn retention_does_not_look_at_times() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    // The clock was an hour ahead for one snapshot.
    let hour = 3_600_000;
    let snapshots = [(1, 0), (10, 1_000), (20, hour), (30, 2_000), (40, 3_000)];
    for (end, time) in snapshots {
        theirs(&store, Level::SNAPSHOTS, range(1, end), time);
    }
    let catalog = Catalog::read(&store, &layout).unwrap();
    let gone = |until: Option<u64>| {
        let horizon = Horizon { slots: None, snapshots: until.map(txid) };
        let files = Retention::new(&catalog, horizon).unwrap().files;
        files.iter().map(|file| file.txids.max().get()).collect::<Vec<_>>()
    };
    assert_eq!(gone(None), [0; 0]);
    assert_eq!(gone(Some(1)), [0; 0]);
    assert_eq!(gone(Some(29)), [1, 10]);
    assert_eq!(gone(Some(30)), [1, 10, 20]);
}

/// What is over is said by the files themselves, also when one of them is years ahead.
#[test]
fn compaction_looks_at_no_clock() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    theirs(&store, Level::SNAPSHOTS, range(1, 1), 0);
    for (number, time) in [(2, 10_000), (3, 29_999), (4, 30_000), (5, 40_000)] {
        theirs(&store, Level::SLOTS, range(number, number), time);
    }
    let compact = || {
        let mut catalog = Catalog::read(&store, &layout).unwrap();
        let made = compact(&store, &layout, &mut catalog).unwrap();
        made.iter().map(|file| (file.level.get(), file.txids)).collect::<Vec<_>>()
    };
    assert_eq!(compact(), [(1, range(2, 3))]);
    assert_eq!(compact(), [], "nothing tells that the last span is over");
    let years = 1_700_000_000_000;
    theirs(&store, Level::SLOTS, range(6, 6), years);
    assert_eq!(compact(), [(1, range(4, 5)), (2, range(2, 5)), (3, range(2, 5))]);
}

/// A moment of each span is kept, however late it is merged: here after some days.
#[test]
fn compaction_merges_no_two_spans_into_one_file() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    theirs(&store, Level::SNAPSHOTS, range(1, 1), 0);
    let day = 86_400_000;
    let times = [10_000, 20_000, 40_000, day, day + 1, 2 * day, 2 * day + 31_000, 3 * day];
    for (number, time) in (2..).zip(times) {
        theirs(&store, Level::SLOTS, range(number, number), time);
    }
    let mut catalog = Catalog::read(&store, &layout).unwrap();
    compact(&store, &layout, &mut catalog).unwrap();
    let of = |level| catalog.level(level).iter().map(|file| file.txids).collect::<Vec<_>>();
    let each = [range(2, 3), range(4, 4), range(5, 6), range(7, 7), range(8, 8)];
    assert_eq!(of(Level::FIRST), each);
    assert_eq!(of(Level::SECOND), [range(2, 4), range(5, 6), range(7, 8)]);
    assert_eq!(of(Level::THIRD), [range(2, 4), range(5, 6), range(7, 8)]);
}

/// The states that are kept, by the times for which they are restored: each and the next one.
fn by_times(store: &MemoryStore, times: [i64; 4]) -> Vec<(u64, Option<u64>, bool)> {
    let layout = Layout::directory();
    let catalog = Catalog::read(store, &layout).unwrap();
    let plan = |time: &i64| {
        let time = Timestamp::from_millis(*time);
        let plan = Plan::new(&catalog, Target::Before(time), store, &layout).unwrap();
        let exactly = Plan::new(&catalog, Target::ExactlyBefore(time), store, &layout);
        match &exactly {
            Ok(exactly) => assert!(plan.is_exact() && *exactly == plan),
            Err(error) => {
                assert!(!plan.is_exact() && error.kind() == ErrorKind::NotFound, "{error}")
            }
        }
        let next = plan.next();
        let at = |time: Timestamp, txid: Txid| assert_eq!(time.millis(), txid.get() as i64 * 1_000);
        at(plan.kept().time, plan.txid());
        next.iter().for_each(|next| at(next.time, next.txid));
        (plan.txid().get(), next.map(|next| next.txid.get()), plan.is_exact())
    };
    times.iter().map(plan).collect()
}

#[test]
fn time_within_merged_files_leads_to_the_state_before_and_says_so() {
    let store = MemoryStore::new();
    theirs(&store, Level::SNAPSHOTS, range(1, 1), 1_000);
    for number in 2..=9 {
        theirs(&store, Level::SLOTS, range(number, number), 1_000 * number as i64);
    }
    let times = [1_500, 4_500, 6_500, 20_000];
    let all = [(1, Some(2), true), (4, Some(5), true), (6, Some(7), true), (9, None, true)];
    assert_eq!(by_times(&store, times), all);
    theirs(&store, Level::FIRST, range(3, 7), 7_000);
    assert_eq!(by_times(&store, times), all, "the slots are there");
    // Retention has come to the middle of the file: the slots behind lead nowhere by themselves.
    for number in [3, 4] {
        store.delete(&Layout::directory().slot(txid(number))).unwrap();
    }
    let some = [(1, Some(2), true), (2, Some(7), false), (2, Some(7), false), (9, None, true)];
    assert_eq!(by_times(&store, times), some);
    // A snapshot in the middle makes two of them states again.
    theirs(&store, Level::SNAPSHOTS, range(1, 5), 5_000);
    let again = [(1, Some(2), true), (2, Some(5), false), (6, Some(7), true), (9, None, true)];
    assert_eq!(by_times(&store, times), again);
}

/// Its TXIDs are in a merged file, too, and so the states behind it are restored.
#[test]
fn time_is_found_around_a_file_that_does_not_say_its_own() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    theirs(&store, Level::SNAPSHOTS, range(1, 1), 1_000);
    for number in 2..=9 {
        theirs(&store, Level::SLOTS, range(number, number), 1_000 * number as i64);
    }
    theirs(&store, Level::FIRST, range(3, 7), 7_000);
    store.overwrite(&layout.slot(txid(5)), &[0; 300]);
    let directory = tempfile::tempdir().unwrap();
    let restored = |target| {
        let output = directory.path().join(format!("{}", fastrand::u64(..)));
        let restored = restore(&store, &layout, target, &output);
        restored.map(|it| (it.txid.get(), it.is_exact)).map_err(|error| error.kind())
    };
    let before = |time| restored(Target::Before(Timestamp::from_millis(time)));
    assert_eq!(before(2_500), Ok((2, true)));
    assert_eq!(before(8_500), Ok((8, true)));
    assert_eq!(before(7_500), Ok((7, true)));
    for time in [4_500, 5_500, 6_500] {
        assert_eq!(before(time), Ok((4, false)), "the time of TXID 5 is not known");
        let exactly = Target::ExactlyBefore(Timestamp::from_millis(time));
        assert_eq!(restored(exactly), Err(ErrorKind::Corrupt));
    }
}

/// A snapshot behind a hole does not make of it what was merged.
#[test]
fn time_behind_a_hole_is_an_error() {
    let (store, layout) = (MemoryStore::new(), Layout::directory());
    theirs(&store, Level::SNAPSHOTS, range(1, 1), 1_000);
    for number in [2, 3, 5, 6] {
        theirs(&store, Level::SLOTS, range(number, number), 1_000 * number as i64);
    }
    theirs(&store, Level::SNAPSHOTS, range(1, 9), 9_000);
    let catalog = Catalog::read(&store, &layout).unwrap();
    let plan = |time| {
        let target = Target::Before(Timestamp::from_millis(time));
        let plan = Plan::new(&catalog, target, &store, &layout);
        plan.map(|plan| (plan.txid().get(), plan.is_exact())).map_err(|error| error.kind())
    };
    assert_eq!(plan(3_500), Ok((3, false)));
    assert_eq!(plan(5_500), Err(ErrorKind::Gap));
    assert_eq!(plan(9_500), Ok((9, true)));
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
    let plan = Plan::new(&catalog, Target::Before(time), &archive.store, &archive.layout).unwrap();
    assert_eq!(plan.txid(), *at);
    assert!(reads.load(Ordering::SeqCst) - before <= 12);
    assert_eq!(catalog.newest(), Some(archive.newest().0));
    assert!(*at > Txid::FIRST);
}

#[test]
fn file_that_the_store_does_not_give_is_a_problem_of_that_file() {
    for kind in [ErrorKind::Denied, ErrorKind::Io, ErrorKind::Lost] {
        let (of, is_away) = (Layout::directory().slot(txid(5)), Arc::new(AtomicU64::new(0)));
        let (key, away) = (of.clone(), Arc::clone(&is_away));
        let store = FaultyStore::new(MemoryStore::new(), move |call| {
            let is_of_it = call == Call::Get(&key) && away.load(Ordering::SeqCst) > 0;
            if is_of_it { Fault::Refused(kind) } else { Fault::None }
        });
        let mut archive = Archive::new(store, 4, false);
        archive.live(10);
        is_away.store(1, Ordering::SeqCst);
        let proof = verify(&archive.store, &archive.layout, &mut |_| {});
        if kind == ErrorKind::Lost {
            assert_eq!(proof.unwrap_err().kind(), kind, "the store is away");
            continue;
        }
        let proof = proof.unwrap();
        let problems: Vec<_> = proof.problems.iter().map(ToString::to_string).collect();
        assert!(problems.len() == 1 && problems[0].contains(&of), "{problems:?}");
        assert!(!proof.is_restorable && proof.files > 5);
        let refused = archive.restored(Target::Latest).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
    }
}
