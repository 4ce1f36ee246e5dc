//! Every kept moment is restored as the model has it, and what is not kept is an error.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use monolite_archive::{
    ErrorKind, Fetched, Keep, Layout, Listing, MemoryStore, Part, Result, Store, Tag, Target,
    internals::{
        ArchivedFile, Call, Catalog, Fault, FaultyStore, Level, Plan, Slot, restore, verify,
    },
};
use monolite_ltx::{
    BaseChecksum, Checksum, Encoder, Header, PageSize, Pgno, Timestamp, Txid, TxidRange,
};

use crate::archive::{Archive, compact_level, scratch, snapshot, what_may_go};
use crate::world::txid;

fn level(number: u8) -> Level {
    Level::new(number).unwrap()
}

/// A history of so many TXIDs, with levels and snapshots made on the way.
fn with_levels(txids: u64, is_tracked: bool) -> Archive<MemoryStore> {
    let seed = crate::schedules::number("MONOLITE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut archive = Archive::new(MemoryStore::new(), seed, is_tracked);
    let end = archive.newest().0.get() + txids;
    let mut round = 0;
    while archive.newest().0.get() < end {
        let some = archive.rng.u64(5..25);
        archive.live(some.min(end - archive.newest().0.get()));
        round += 1;
        let (store, layout) = (&archive.store, &archive.layout);
        compact_level(store, layout, level(1), None).unwrap().unwrap();
        if round % 4 == 0 {
            compact_level(store, layout, level(2), None).unwrap().unwrap();
        }
        if round % 12 == 0 {
            compact_level(store, layout, level(3), None).unwrap().unwrap();
        }
        if round % 30 == 0 {
            snapshot(store, layout, archive.newest().0).unwrap();
        }
    }
    archive
}

#[test]
#[ignore = "long: the gate runs it"]
fn every_txid_is_restored_as_the_model_has_it() {
    let archive = with_levels(2000, false);
    for (at, moment) in &archive.moments {
        let (txid, bytes) = archive.restored(Target::Txid(*at)).unwrap();
        assert_eq!(txid, *at);
        assert!(bytes == moment.bytes(), "TXID {at} is not what it was");
    }
    let (newest, moment) = archive.newest();
    let latest = archive.restored(Target::Latest).unwrap();
    assert!(latest == (newest, moment.bytes()));
    let proof = verify(&archive.store, &archive.layout, &mut |_| {}).unwrap();
    assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    assert!(proof.files > 2000);
}

#[test]
fn every_time_is_restored_though_the_clock_jumps() {
    let archive = with_levels(300, false);
    let mut rng = archive.rng.clone();
    let times: Vec<i64> = archive.moments.values().map(|moment| moment.time.millis()).collect();
    assert!(times.is_sorted_by(|one, other| one < other), "they rise whatever the clock says");
    for _ in 0..300 {
        let near = times[rng.usize(..times.len())] + rng.i64(-1..2);
        let time = Timestamp::from_millis(near);
        let expected = archive.moments.iter().rfind(|(_, moment)| moment.time < time);
        let restored = archive.restored(Target::Before(time));
        match expected {
            Some((txid, moment)) => assert!(restored.unwrap() == (*txid, moment.bytes())),
            None => assert_eq!(restored.unwrap_err().kind(), ErrorKind::NotFound),
        }
    }
}

#[test]
fn checksums_of_the_database_are_compared_where_they_are_kept() {
    let mut archive = Archive::new(MemoryStore::new(), 7, true);
    // A fence keeps no checksums, so the chain does up to it.
    archive.take_over();
    for _ in 0..40 {
        archive.commit();
    }
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
    // Another content under the name and with the checksums of this moment: the sum of the file is
    // right, the database's is not.
    let forged = archive.forged(txid(20));
    archive.store.overwrite(&archive.layout.slot(txid(20)), &forged);
    let error = archive.restored(Target::Txid(txid(20))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("the database has the checksum"), "{error}");
}

/// After retention: what is kept is right, what is not is an error, and nothing is wrong.
#[test]
fn what_retention_leaves_is_restored_and_the_rest_is_an_error() {
    let mut archive = with_levels(900, false);
    let times: Vec<Timestamp> = archive.moments.values().map(|moment| moment.time).collect();
    let now = *times.last().unwrap();
    let age = |at: usize| (now.millis() - times[at].millis()).unsigned_abs();
    let keep =
        Keep { slots: Duration::from_millis(age(800)), snapshots: Duration::from_millis(age(600)) };
    let retention = what_may_go(&archive.store, &archive.layout, keep, now).unwrap();
    assert!(retention.slots.len() > 500 && !retention.files.is_empty());
    let is_down = |one: &ArchivedFile, other: &ArchivedFile| {
        one.level > other.level
            || (one.level == other.level && one.txids.min() < other.txids.min())
            || (one.txids.is_snapshot() && one.txids.max() < other.txids.max())
    };
    assert!(retention.files.is_sorted_by(is_down));
    let before = archive.store.len();
    let deleted = retention.delete_files(&archive.store, &archive.layout).unwrap();
    let slots = archive.delete(&retention.slots);
    assert_eq!(before - archive.store.len(), deleted + usize::try_from(slots).unwrap());
    let (mut kept, mut gone) = (0, 0);
    for (at, moment) in &archive.moments {
        match archive.restored(Target::Txid(*at)) {
            Ok((txid, bytes)) => {
                assert!(txid == *at && bytes == moment.bytes(), "TXID {at} is not what it was");
                kept += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                gone += 1;
            }
        }
    }
    assert!(kept > 100 && gone > 500, "{kept} {gone}");
    let proof = verify(&archive.store, &archive.layout, &mut |_| {}).unwrap();
    assert!(proof.problems.is_empty(), "{:?}", proof.problems);
    // Life goes on: the levels continue, and a second look finds nothing more.
    let again = what_may_go(&archive.store, &archive.layout, keep, now).unwrap();
    assert_eq!((again.files.len(), again.slots.len()), (0, 0));
    archive.live(30);
    compact_level(&archive.store, &archive.layout, level(1), None).unwrap().unwrap();
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
}

/// The slots go and the process dies before the files do.
#[test]
fn retention_leaves_the_slots_that_the_first_level_goes_on_with() {
    let mut archive = Archive::new(MemoryStore::new(), 13, false);
    let (store, layout) = (archive.store.clone(), archive.layout.clone());
    archive.live(49);
    compact_level(&store, &layout, level(1), None).unwrap().unwrap();
    archive.live(50);
    snapshot(&store, &layout, archive.newest().0).unwrap();
    archive.live(10);
    let now = Timestamp::from_millis(archive.newest().1.time.millis() + 1);
    let keep = Keep { slots: Duration::ZERO, snapshots: Duration::ZERO };
    let retention = what_may_go(&store, &layout, keep, now).unwrap();
    assert!(retention.slots.iter().all(|slot| slot.txid <= txid(50)));
    assert!(archive.delete(&retention.slots) > 40);
    let file = compact_level(&store, &layout, level(1), None).unwrap().unwrap();
    assert_eq!(file.txids, TxidRange::new(txid(51), txid(110)).unwrap());
    // Now they may go.
    let retention = what_may_go(&store, &layout, keep, now).unwrap();
    assert!(archive.delete(&retention.slots) > 40);
    assert_eq!(retention.delete_files(&store, &layout).unwrap(), 2);
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
}

#[test]
fn retention_refuses_when_a_level_has_a_hole() {
    let archive = with_levels(200, false);
    let first = archive.moments[&Txid::FIRST].time;
    let now = Timestamp::from_millis(archive.newest().1.time.millis() + 1);
    let age = (now.millis() - first.millis()).unsigned_abs();
    let keep = Keep { slots: Duration::ZERO, snapshots: Duration::from_millis(age * 2) };
    let retention = what_may_go(&archive.store, &archive.layout, keep, now).unwrap();
    assert!(retention.slots.len() > 150);
    let catalog = Catalog::read(&archive.store, &archive.layout).unwrap();
    for number in 1..4 {
        // A short history has no files of the third level.
        let Some(victim) = catalog.level(level(number)).first() else { continue };
        archive.store.delete(&archive.layout.file(victim.level, victim.txids)).unwrap();
    }
    // What no level covers any more stays.
    let left = what_may_go(&archive.store, &archive.layout, keep, now).unwrap();
    assert!(left.slots.len() < retention.slots.len());
    // Half of it is lost: nothing may go.
    archive.store.delete(&archive.layout.slot(txid(4))).unwrap();
    let refused = what_may_go(&archive.store, &archive.layout, keep, now);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Gap);
}

/// Slots behind the newest fence were lost, and a merged file has their TXIDs.
#[test]
fn fence_goes_behind_merged_files_that_reach_past_the_newest_slot() {
    let mut archive = Archive::new(MemoryStore::new(), 5, false);
    archive.live(10);
    archive.take_over();
    let fence = archive.newest().0;
    for _ in 0..5 {
        archive.commit();
    }
    let (newest, moment) = archive.newest();
    compact_level(&archive.store, &archive.layout, level(1), None).unwrap().unwrap();
    for slot in fence.get() + 1..=newest.get() {
        archive.store.delete(&archive.layout.slot(txid(slot))).unwrap();
    }
    archive.take_over();
    assert_eq!(archive.newest().0, newest.next().unwrap(), "no TXID is used twice");
    let latest = archive.restored(Target::Latest).unwrap();
    assert!(latest == (newest.next().unwrap(), moment.bytes()));
}

#[test]
fn hole_is_an_error_and_never_a_shorter_result() {
    let mut archive = Archive::new(MemoryStore::new(), 3, false);
    archive.live(40);
    archive.store.delete(&archive.layout.slot(txid(20))).unwrap();
    let kind = |target| archive.restored(target).unwrap_err().kind();
    assert_eq!(kind(Target::Latest), ErrorKind::Gap);
    assert_eq!(kind(Target::Txid(txid(30))), ErrorKind::Gap);
    assert_eq!(kind(Target::Txid(txid(20))), ErrorKind::Gap);
    let future = archive.restored(Target::Txid(txid(99))).unwrap_err();
    let said = "the oldest is 0000000000000001, the newest 0000000000000029";
    assert!(future.kind() == ErrorKind::NotFound && future.to_string().contains(said), "{future}");
    assert!(archive.restored(Target::Txid(txid(19))).is_ok());
    let proof = verify(&archive.store, &archive.layout, &mut |_| {}).unwrap();
    assert_eq!(proof.problems.len(), 1);
    assert_eq!(proof.problems[0].kind(), ErrorKind::Gap);
    assert!(!proof.is_restorable);
    let merged = || compact_level(&archive.store, &archive.layout, level(1), None);
    assert_eq!(merged().unwrap().unwrap().txids.max(), txid(19), "what is before the hole");
    assert_eq!(merged().unwrap_err().kind(), ErrorKind::Gap);
    let snapshot = archive.layout.file(Level::SNAPSHOTS, TxidRange::single(Txid::FIRST));
    archive.store.delete(&snapshot).unwrap();
    let now = Timestamp::from_millis(archive.newest().1.time.millis() + 1);
    for target in [Target::Txid(txid(19)), Target::Before(now)] {
        let error = archive.restored(target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no snapshot is there at all"), "{error}");
    }
}

#[test]
fn changed_byte_is_found_by_proof_and_restore() {
    let mut archive = Archive::new(MemoryStore::new(), 4, false);
    archive.live(30);
    let mut rng = archive.rng.clone();
    for _ in 0..60 {
        let key = archive.layout.slot(txid(rng.u64(2..31)));
        let body = archive.store.get(&key, Part::Whole(1 << 20)).unwrap().unwrap().bytes;
        let mut damaged = body.clone();
        // The sum, which every change in the file must agree with.
        let at = rng.usize(body.len() - 8..body.len());
        damaged[at] ^= 1 << rng.u8(..7);
        archive.store.overwrite(&key, &damaged);
        let proof = verify(&archive.store, &archive.layout, &mut |_| {}).unwrap();
        assert_eq!(proof.problems.len(), 1, "{key}");
        let error = archive.restored(Target::Latest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        archive.store.overwrite(&key, &body);
    }
    // A file under the name of another one.
    let body = archive.store.get(&archive.layout.slot(txid(9)), Part::Whole(1 << 20));
    archive.store.overwrite(&archive.layout.slot(txid(10)), &body.unwrap().unwrap().bytes);
    assert!(!verify(&archive.store, &archive.layout, &mut |_| {}).unwrap().problems.is_empty());
    let error = archive.restored(Target::Latest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// A file as somebody made it who breaks the rules of a chain.
fn made(
    page_size: u32,
    at: u64,
    commit: u32,
    pages: &[u32],
    sums: Option<(BaseChecksum, Checksum)>,
) -> Vec<u8> {
    let header = Header {
        page_size: PageSize::new(page_size).unwrap(),
        commit,
        txids: TxidRange::single(txid(at)),
        timestamp: Timestamp::from_millis(at as i64),
        base: sums.map_or(BaseChecksum::Untracked, |(base, _)| base),
        wal: None,
        node_id: 0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    for page in pages {
        encoder.page(Pgno::new(*page).unwrap(), &vec![*page as u8; page_size as usize]).unwrap();
    }
    encoder.finish(sums.map(|(_, after)| after)).unwrap().output
}

#[test]
fn chain_whose_files_do_not_fit_is_corrupt() {
    let sum = Checksum::from_bits(1 << 63 | 5).unwrap();
    let wrong = Some((BaseChecksum::Database(sum), sum));
    let cases = [
        ("page 2 is in no file", made(512, 2, 3, &[3], None)),
        ("a size that no file is long enough for", made(512, 2, 0xFFFF_FFFE, &[1], None)),
        ("another page size", made(1024, 2, 1, &[1], None)),
        ("another checksum of the database", made(512, 2, 1, &[1], wrong)),
    ];
    for (case, slot) in cases {
        let archive = Archive::new(MemoryStore::new(), 1, false);
        let layout = &archive.layout;
        let snapshot = layout.file(Level::SNAPSHOTS, TxidRange::single(Txid::FIRST));
        archive.store.overwrite(&snapshot, &made(512, 1, 1, &[1], None));
        archive.store.create(&layout.slot(txid(2)), &slot, None).unwrap();
        let error = archive.restored(Target::Latest).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{case}: {error}");
        assert!(archive.restored(Target::Txid(Txid::FIRST)).is_ok());
    }
}

#[test]
fn slot_of_several_txids_is_a_problem() {
    let mut archive = Archive::new(MemoryStore::new(), 2, false);
    archive.live(10);
    let (store, layout) = (archive.store.clone(), archive.layout.clone());
    let file = compact_level(&store, &layout, level(1), None).unwrap().unwrap();
    let body = store.get(&layout.file(file.level, file.txids), Part::Whole(1 << 20)).unwrap();
    store.create(&layout.file(Level::SLOTS, file.txids), &body.unwrap().bytes, None).unwrap();
    let proof = verify(&store, &layout, &mut |_| {}).unwrap();
    assert_eq!(proof.problems.len(), 1, "its name excludes no other slot");
    assert_eq!(proof.problems[0].kind(), ErrorKind::Corrupt);
}

/// A stray Litestream writes whatever is there: every sum is right, and the epoch is not ours.
#[test]
fn slot_of_another_writer_is_a_problem() {
    let mut archive = Archive::new(MemoryStore::new(), 2, false);
    archive.live(10);
    archive.take_over();
    let (store, layout) = (&archive.store, &archive.layout);
    assert!(verify(store, layout, &mut |_| {}).unwrap().problems.is_empty());
    let key = layout.slot(txid(7));
    store.overwrite(&key, &made(512, 7, 1, &[1], None));
    let proof = verify(store, layout, &mut |_| {}).unwrap();
    assert_eq!(proof.problems.len(), 1);
    let problem = &proof.problems[0];
    assert_eq!(problem.kind(), ErrorKind::Corrupt);
    assert!(problem.to_string().contains("of epoch 0, in a slot of epoch 1"), "{problem}");
}

/// More than is fetched at once, of noise, which does not shrink.
#[test]
fn large_file_is_fetched_in_parts_and_a_change_meanwhile_is_noticed() {
    let header = Header {
        page_size: PageSize::MAX,
        commit: 290,
        txids: TxidRange::single(Txid::FIRST),
        timestamp: Timestamp::from_millis(0),
        base: BaseChecksum::Untracked,
        wal: None,
        node_id: 0,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    let (mut page, mut expected) = (vec![0; 65_536], Vec::new());
    for number in 1..=290 {
        rng.fill(&mut page);
        encoder.page(Pgno::new(number).unwrap(), &page).unwrap();
        expected.extend_from_slice(&page);
    }
    let body = encoder.finish(None).unwrap().output;
    let layout = Layout::directory();
    let key = layout.file(Level::SNAPSHOTS, header.txids);
    for change_at in [None, Some(4), Some(7)] {
        let inner = MemoryStore::new();
        inner.create(&key, &body, None).unwrap();
        let (behind, other, name) = (inner.clone(), body.clone(), key.clone());
        let mut gets = 0;
        let store = FaultyStore::new(inner, move |call| {
            gets += u32::from(call == Call::Get(&name));
            if change_at == Some(gets) {
                // Equal content, but another object.
                behind.overwrite(&name, &other);
            }
            Fault::None
        });
        let directory = scratch();
        let output = directory.path().join("out.db");
        let done = restore(&store, &layout, Target::Latest, &output);
        match change_at {
            None => assert!(done.is_ok() && std::fs::read(&output).unwrap() == expected),
            Some(_) => assert_eq!(done.unwrap_err().kind(), ErrorKind::Corrupt),
        }
    }
}

/// Row 8 of the interleavings, for readers: the fence lies where a slot was compacted and deleted.
#[test]
fn fence_that_no_record_lists_is_passed_over() {
    let mut archive = Archive::new(MemoryStore::new(), 5, false);
    archive.live(40);
    let (store, layout) = (&archive.store, &archive.layout);
    compact_level(store, layout, level(1), None).unwrap().unwrap();
    let group = |slot: &u64| {
        let end = store.get(&layout.slot(txid(*slot)), Part::End(0)).unwrap().unwrap();
        end.len > monolite_archive::internals::Slot::FENCE_LEN
    };
    let victim = txid((10..30).find(group).unwrap());
    store.delete(&layout.slot(victim)).unwrap();
    let place = monolite_archive::internals::Place {
        page_size: crate::archive::PAGE_SIZE,
        commit: 1,
        time: archive.moments[&victim].time,
    };
    let garbage =
        monolite_archive::internals::Slot::fence(monolite_archive::Epoch(1), victim, place)
            .unwrap();
    store.create(&layout.slot(victim), garbage.bytes(), None).unwrap();
    let error = archive.restored(Target::Txid(victim)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
}

#[test]
fn output_that_is_there_or_has_a_wal_is_refused() {
    let mut archive = Archive::new(MemoryStore::new(), 6, false);
    archive.live(3);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let directory = scratch();
        let output = directory.path().join("out.db");
        let beside = directory.path().join(format!("out.db{suffix}"));
        std::fs::write(&beside, "precious").unwrap();
        let (store, layout) = (&archive.store, &archive.layout);
        let refused = restore(store, layout, Target::Latest, &output);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid, "{suffix}");
        assert_eq!(std::fs::read_to_string(&beside).unwrap(), "precious");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn name_that_belongs_to_another_database_is_refused_for_a_restore() {
    let mut archive = Archive::new(MemoryStore::new(), 6, false);
    archive.live(3);
    for ending in ["-wal", "-shm", "-journal", "-archive", ".monolite-part"] {
        let directory = scratch();
        let output = directory.path().join(format!("out.db{ending}"));
        let (store, layout) = (&archive.store, &archive.layout);
        let refused = restore(store, layout, Target::Latest, &output).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{ending}");
        assert!(refused.to_string().contains("the database \"out.db\""), "{refused}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn restore_touches_no_file_but_its_own() {
    let mut archive = Archive::new(MemoryStore::new(), 6, false);
    archive.live(3);
    let directory = scratch();
    let path = |name: &str| directory.path().join(name);
    let restored = |output: &Path, target| restore(&archive.store, &archive.layout, target, output);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
    let output = path("out.db");
    // A file of the user's, which is called as a temporary file often is.
    std::fs::write(path("out.db.tmp"), "precious").unwrap();
    assert!(restored(&output, Target::Txid(txid(99))).is_err());
    // A link where its own would be.
    std::os::unix::fs::symlink(path("out.db.tmp"), path("out.db.monolite-part")).unwrap();
    let refused = restored(&output, Target::Latest).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    std::fs::remove_file(path("out.db.monolite-part")).unwrap();
    // Another restore that goes on, and then is gone.
    let other = std::fs::File::create_new(path("out.db.monolite-part")).unwrap();
    other.lock().unwrap();
    std::fs::write(path("out.db.monolite-part"), "half").unwrap();
    let refused = restored(&output, Target::Latest).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(read("out.db.monolite-part"), "half");
    drop(other);
    restored(&output, Target::Latest).unwrap();
    assert_eq!(read("out.db.tmp"), "precious");
    let mode = std::fs::metadata(&output).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    // A whole file with two names, whose process was killed before the first one went.
    std::fs::hard_link(&output, path("new.db.monolite-part")).unwrap();
    let bytes = std::fs::read(&output).unwrap();
    restored(&path("new.db"), Target::Txid(txid(2))).unwrap();
    assert!(std::fs::read(&output).unwrap() == bytes);
}

/// It comes while the last file is read.
#[test]
fn output_that_came_meanwhile_is_not_replaced() {
    let mut archive = Archive::new(MemoryStore::new(), 6, false);
    archive.live(3);
    let directory = scratch();
    let output = directory.path().join("out.db");
    let (other, snapshot) = (output.clone(), archive.layout.level(Level::SNAPSHOTS));
    let store = FaultyStore::new(archive.store.clone(), move |call| {
        if let Call::Get(key) = call
            && key.starts_with(&snapshot)
        {
            std::fs::write(&other, "precious").unwrap();
        }
        Fault::None
    });
    let refused = restore(&store, &archive.layout, Target::Latest, &output);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// A store to which something is done when the first slot is read.
struct Vanishing {
    inner: MemoryStore,
    is_gone: AtomicBool,
    vanish: fn(&MemoryStore),
}

/// The slots are merged and deleted.
fn merge_slots(store: &MemoryStore) {
    let layout = Layout::directory();
    compact_level(store, &layout, Level::FIRST, None).unwrap();
    for slot in store.list("ltx/0", None).unwrap().objects {
        store.delete(&slot.key).unwrap();
    }
}

fn lose_newest_slot(store: &MemoryStore) {
    let slots = store.list("ltx/0", None).unwrap().objects;
    store.delete(&slots.last().unwrap().key).unwrap();
}

impl Store for Vanishing {
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag> {
        self.inner.create(key, body, time)
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag> {
        self.inner.swap(key, body, expected)
    }

    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>> {
        if key.starts_with("ltx/0/") && !self.is_gone.swap(true, Ordering::Relaxed) {
            (self.vanish)(&self.inner);
        }
        self.inner.get(key, part)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.inner.delete(key)
    }
}

#[test]
fn file_that_vanishes_has_the_plan_made_again() {
    let mut archive = Archive::new(MemoryStore::new(), 8, false);
    archive.live(20);
    let (inner, is_gone) = (archive.store.clone(), AtomicBool::new(false));
    let store = Vanishing { inner, is_gone, vanish: merge_slots };
    let directory = scratch();
    let output = directory.path().join("out.db");
    let restored = restore(&store, &archive.layout, Target::Latest, &output).unwrap();
    assert_eq!((restored.txid, restored.files), (archive.newest().0, 2));
    assert!(restored.around.is_empty(), "it was merged: {:?}", restored.around);
    assert!(std::fs::read(&output).unwrap() == archive.newest().1.bytes());
}

#[test]
fn newest_state_that_vanishes_meanwhile_is_an_error_and_never_an_older_state() {
    let mut archive = Archive::new(MemoryStore::new(), 8, false);
    archive.live(20);
    archive.commit();
    let (inner, is_gone) = (archive.store.clone(), AtomicBool::new(false));
    let store = Vanishing { inner, is_gone, vanish: lose_newest_slot };
    let directory = scratch();
    let output = directory.path().join("out.db");
    let lost = restore(&store, &archive.layout, Target::Latest, &output);
    let lost = lost.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Gap, "{lost}");
    assert!(lost.to_string().ends_with("by its TXID"), "{lost}");
}

#[test]
fn restore_goes_around_damaged_files_to_the_same_state() {
    let archive = with_levels(900, false);
    let (store, layout) = (&archive.store, &archive.layout);
    let (newest, _) = archive.newest();
    let catalog = Catalog::read(store, layout).unwrap();
    let snapshots = catalog.level(Level::SNAPSHOTS);
    assert!(snapshots.len() > 1);
    let middle = moment_in_the_middle(&archive, snapshots[0].txids.max());
    for target in [Target::Latest, Target::Txid(newest), Target::Txid(middle)] {
        let plan = Plan::new(&catalog, target, store, layout).unwrap();
        let must = archive.moments[&plan.txid()].bytes();
        // A slot has nothing beside it here, and neither has the first snapshot.
        let has_others =
            |file: &&ArchivedFile| file.level != Level::SLOTS && (**file != snapshots[0]);
        for file in plan.files().iter().filter(has_others) {
            let key = layout.file(file.level, file.txids);
            let body = store.get(&key, Part::Whole(1 << 24)).unwrap().unwrap().bytes;
            let fence_len = Slot::FENCE_LEN as usize;
            for at in [20, body.len() - 20, fence_len] {
                let mut damaged = body.clone();
                damaged[at] ^= 1;
                // One is as short as a fence, and is none.
                damaged.truncate(if at == fence_len { fence_len } else { body.len() });
                store.overwrite(&key, &damaged);
                let directory = scratch();
                let output = directory.path().join("out.db");
                let made = restore(store, layout, target, &output).unwrap();
                assert!(std::fs::read(&output).unwrap() == must, "{key} {at}");
                assert_eq!((made.txid, made.around.len()), (plan.txid(), 1), "{key} {at}");
                assert!(made.around[0].to_string().contains(&key), "{:?}", made.around);
                let proof = verify(store, layout, &mut |_| {}).unwrap();
                assert!(proof.is_restorable && proof.problems.len() == 1, "{key} {at}");
            }
            store.overwrite(&key, &body);
        }
    }
}

/// A TXID whose plan has merged files and more.
fn moment_in_the_middle(archive: &Archive<MemoryStore>, after: Txid) -> Txid {
    let catalog = Catalog::read(&archive.store, &archive.layout).unwrap();
    let first = catalog.level(Level::FIRST);
    let behind = first.iter().filter(|file| file.txids.min() > after);
    behind.map(|file| file.txids.max()).nth(3).unwrap()
}

#[test]
fn state_whose_last_way_is_damaged_is_an_error_with_a_remedy() {
    let mut archive = with_levels(100, false);
    archive.commit();
    let (store, layout) = (&archive.store, &archive.layout);
    let (newest, _) = archive.newest();
    let key = layout.slot(newest);
    let body = store.get(&key, Part::Whole(1 << 20)).unwrap().unwrap().bytes;
    let at = body.len() - 20;
    let mut flipped = body.clone();
    flipped[at] ^= 1;
    for damaged in [&flipped[..], &body[..Slot::FENCE_LEN as usize]] {
        store.overwrite(&key, damaged);
        let lost = archive.restored(Target::Latest).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Corrupt, "{lost}");
        let said = lost.to_string();
        assert!(said.contains(&key) && said.contains("uploads a copy of itself"), "{said}");
        assert!(!verify(store, layout, &mut |_| {}).unwrap().is_restorable);
    }
}

/// Deletion trusts the names of files.
#[test]
fn nothing_is_merged_from_a_file_that_has_other_txids_than_its_name() {
    let archive = with_levels(300, false);
    let (store, layout) = (&archive.store, &archive.layout);
    let catalog = Catalog::read(store, layout).unwrap();
    let (newest, _) = archive.newest();
    let base = *catalog.level(Level::SNAPSHOTS).last().unwrap();
    let other = catalog.level(Level::FIRST).iter().find(|it| it.txids.max() > base.txids.max());
    let [base, other] = [&base, other.unwrap()].map(|file| layout.file(file.level, file.txids));
    let body = store.get(&other, Part::Whole(1 << 24)).unwrap().unwrap().bytes;
    store.overwrite(&base, &body);
    let error = snapshot(store, layout, newest).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let after = Catalog::read(store, layout).unwrap();
    assert_eq!(after.level(Level::SNAPSHOTS).len(), catalog.level(Level::SNAPSHOTS).len());
}

/// Row 9 of the interleavings.
#[test]
fn stale_compactor_changes_nothing() {
    let mut archive = Archive::new(MemoryStore::new(), 9, false);
    archive.live(20);
    // Two compactors have listed the same; the slower one is faster with less.
    let whole = archive.store.clone();
    let file = compact_level(&whole, &archive.layout, level(1), None).unwrap().unwrap();
    let key = archive.layout.file(file.level, file.txids);
    let body = archive.store.get(&key, Part::Whole(1 << 20)).unwrap().unwrap();
    archive.store.delete(&key).unwrap();
    let again = compact_level(&archive.store, &archive.layout, level(1), None).unwrap().unwrap();
    assert_eq!(again, file);
    let bytes = archive.store.get(&key, Part::Whole(1 << 20)).unwrap().unwrap().bytes;
    assert!(bytes == body.bytes, "the same inputs make the same file");
    archive.live(5);
    let next = compact_level(&archive.store, &archive.layout, level(1), None).unwrap().unwrap();
    assert_eq!(next.txids.min(), txid(file.txids.max().get() + 1));
    assert_eq!(compact_level(&archive.store, &archive.layout, level(1), None).unwrap(), None);
    let misplaced = compact_level(&archive.store, &archive.layout, Level::SNAPSHOTS, None);
    assert_eq!(misplaced.unwrap_err().kind(), ErrorKind::Invalid);
}

/// Two compactors at once: the other one is faster.
#[test]
fn file_that_another_compactor_has_made_is_taken() {
    let mut archive = Archive::new(MemoryStore::new(), 9, false);
    archive.live(20);
    let (inner, layout) = (archive.store.clone(), archive.layout.clone());
    let other = inner.clone();
    let store = FaultyStore::new(inner, move |call| {
        if let Call::Create(_) = call {
            compact_level(&other, &layout, Level::FIRST, None).unwrap();
        }
        Fault::None
    });
    let file = compact_level(&store, &archive.layout, level(1), None).unwrap().unwrap();
    assert_eq!(file.txids, TxidRange::new(txid(2), archive.newest().0).unwrap());
}

/// They listed at different times, and made `2-20`, `2-25` and `21-30`.
#[test]
fn level_goes_on_from_files_of_several_compactors() {
    let mut archive = Archive::new(MemoryStore::new(), 9, false);
    archive.take_over();
    let (store, layout) = (archive.store.clone(), archive.layout.clone());
    let compact = |number| compact_level(&store, &layout, level(number), None).unwrap().unwrap();
    let body = |file: &ArchivedFile| {
        let object = store.get(&layout.file(file.level, file.txids), Part::Whole(1 << 20));
        object.unwrap().unwrap().bytes
    };
    let until = |archive: &mut Archive<_>, end| {
        while archive.newest().0 < txid(end) {
            archive.commit();
        }
    };
    let mut others = Vec::new();
    for end in [20, 25] {
        until(&mut archive, end);
        let file = compact(1);
        assert_eq!(file.txids, TxidRange::new(txid(2), txid(end)).unwrap());
        let key = layout.file(file.level, file.txids);
        others.push((key.clone(), body(&file)));
        store.delete(&key).unwrap();
    }
    let (key, body) = &others[0];
    store.create(key, body, None).unwrap();
    until(&mut archive, 30);
    assert_eq!(compact(1).txids, TxidRange::new(txid(21), txid(30)).unwrap());
    let (key, body) = &others[1];
    store.create(key, body, None).unwrap();
    assert_eq!(compact(2).txids, TxidRange::new(txid(2), txid(30)).unwrap());
    until(&mut archive, 35);
    assert_eq!(compact(1).txids, TxidRange::new(txid(31), txid(35)).unwrap());
    assert_eq!(compact(2).txids, TxidRange::new(txid(31), txid(35)).unwrap());
    for slot in (2..36).map(txid) {
        store.delete(&layout.slot(slot)).unwrap();
    }
    for end in [30, 35] {
        let restored = archive.restored(Target::Txid(txid(end))).unwrap();
        assert!(restored.1 == archive.moments[&txid(end)].bytes(), "TXID {end}");
    }
}

#[test]
fn level_begins_with_a_file_across_the_end_of_the_newest_snapshot() {
    let mut archive = Archive::new(MemoryStore::new(), 9, false);
    let (store, layout) = (archive.store.clone(), archive.layout.clone());
    let compact = |number| compact_level(&store, &layout, level(number), None).unwrap().unwrap();
    archive.live(20);
    let covered = compact(1);
    archive.live(36);
    snapshot(&store, &layout, archive.newest().0).unwrap();
    archive.live(43);
    let across = compact(1);
    assert_eq!(across.txids, TxidRange::new(txid(22), txid(100)).unwrap());
    assert!(covered.txids.max() < txid(57));
    assert_eq!(compact(2).txids, across.txids);
    let (newest, moment) = archive.newest();
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
    archive.live(10);
    assert_eq!(compact(1).txids.min(), txid(101));
    assert_eq!(compact(2).txids.min(), txid(101));
}

#[test]
fn snapshot_of_many_files_is_made_in_steps() {
    let mut archive = Archive::new(MemoryStore::new(), 14, false);
    archive.live(600);
    let (newest, moment) = archive.newest();
    let (store, layout) = (&archive.store, &archive.layout);
    assert_eq!(snapshot(store, layout, newest).unwrap().txids.max(), newest);
    let catalog = Catalog::read(store, layout).unwrap();
    let ends = catalog.level(Level::SNAPSHOTS).iter().map(|file| file.txids.max().get());
    assert_eq!(ends.collect::<Vec<_>>(), [1, 256, 511, 601], "256 files at a time");
    assert!(archive.restored(Target::Latest).unwrap() == (newest, moment.bytes()));
}
