//! Who follows an archive slot by slot, as Litestream does, has the database behind each kind of
//! gap: another program wrote to it, too much waited, another file took over.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolite::rusqlite::{Connection, OpenFlags};
use monolite::{Database, Durability};
use monolite_archive::{
    Layout, Store as _, Target,
    internals::{
        ArchivedFile, Catalog, Horizon, Level, Retention, Slot, restore, snapshot, verify,
    },
};
use monolite_ltx::{Decoder, Pgno, Txid, TxidRange};

use crate::archive::compact_level;
use crate::archiving::{Bench, create, insert, insert_many};
use crate::programs::{Held, Running, Site, programs, wait_for};

const SUMS: &str = "SELECT count(*) || ' ' || total(length(v)) || ' ' || max(hex(v)) FROM t";

/// What tells a sound database from others.
fn content(path: &Path) -> Option<String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", path.display());
    let db = Connection::open_with_flags(uri, flags).ok()?;
    let sound: String = db.query_row("PRAGMA integrity_check", (), |row| row.get(0)).ok()?;
    (sound == "ok").then_some(())?;
    db.query_row(SUMS, (), |row| row.get(0)).ok()
}

/// A database with a history, which is open.
fn begun(bench: &Bench) -> Database {
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for _ in 0..20 {
        insert(&db, 2_000).unwrap();
    }
    db
}

fn another_program_writes(bench: &Bench) {
    let other = Connection::open(bench.file()).unwrap();
    other.execute_batch("UPDATE t SET v = randomblob(1500)").unwrap();
    other.close().unwrap();
}

fn reopened(bench: &Bench, archive: monolite_archive::Archive) -> Database {
    let db = bench.open_with(archive, Durability::Archived).unwrap();
    wait_for("the copy is there", 60, || db.stats().archive.unwrap().copies_because.is_none());
    // What comes next changes some pages, and leaves others.
    let sql = "UPDATE t SET v = randomblob(1000) WHERE id % 7 = 1";
    db.write(move |tx| tx.execute(sql, ())).wait().unwrap();
    insert(&db, 100).unwrap();
    db
}

/// Each kind of gap, one after the other; `check` is told of the file that is archived then.
/// Databases of at most so many bytes fill a slot as a whole.
pub(crate) fn gaps(bench: &Bench, whole_slot: u64, check: impl Fn(&str, &Path)) {
    begun(bench).close().unwrap();
    check("before", &bench.file());
    let other = Connection::open(bench.file()).unwrap();
    other.execute_batch("UPDATE t SET v = randomblob(1500) WHERE id % 2 = 0").unwrap();
    other.close().unwrap();
    reopened(bench, bench.archive().slot_bytes(128 << 20, whole_slot)).close().unwrap();
    check("another program wrote", &bench.file());

    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.staged_limit_bytes(1 << 20).slot_bytes(128 << 20, whole_slot);
    let db = bench.open_with(archive, Durability::Synced).unwrap();
    is_away.store(true, Ordering::Relaxed);
    insert_many(&db, 400);
    assert!(db.stats().archive.unwrap().copies_because.is_some());
    is_away.store(false, Ordering::Relaxed);
    wait_for("the copy is there", 60, || db.stats().archive.unwrap().copies_because.is_none());
    insert(&db, 100).unwrap();
    db.close().unwrap();
    check("too much waited", &bench.file());

    let _ = std::fs::remove_file(bench.file());
    std::fs::remove_dir_all(bench.file().with_file_name("ledger.db-archive")).unwrap();
    let other = Connection::open(bench.file()).unwrap();
    let sql = "CREATE TABLE u(v); INSERT INTO u VALUES (randomblob(50000));
               CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); CREATE INDEX i ON t(v);
               INSERT INTO t(v) VALUES (randomblob(3000)), (randomblob(3000)), (randomblob(3))";
    other.execute_batch(sql).unwrap();
    other.close().unwrap();
    let archive = bench.archive().take_over(true).slot_bytes(128 << 20, whole_slot);
    reopened(bench, archive).close().unwrap();
    check("another file took over", &bench.file());
}

/// The file that a follower has, who has restored once and looks at slots alone from then on.
struct Follower {
    path: PathBuf,
    reached: Txid,
}

impl Follower {
    fn begin(bench: &Bench) -> Follower {
        let path = bench.directory.path().join("follower.db");
        let (store, layout) = (bench.store(), Layout::directory());
        let made = restore(&store, &layout, Target::Latest, &path).unwrap();
        Follower { path, reached: made.txid }
    }

    fn follow(&mut self, bench: &Bench) {
        let (store, layout) = (bench.store(), Layout::directory());
        let mut database = std::fs::read(&self.path).unwrap();
        loop {
            let next = self.reached.next().unwrap();
            let part = monolite_archive::Part::Whole(u64::MAX);
            let Some(slot) = store.get(&layout.slot(next), part).unwrap() else { break };
            let mut decoder = Decoder::new(&slot.bytes[..]).unwrap();
            let (bytes, pages) = (decoder.header().page_size.bytes(), decoder.header().commit);
            database.resize(bytes * pages as usize, 0);
            while let Some(page) = decoder.next_page().unwrap() {
                let at = (page.pgno.get() as usize - 1) * bytes;
                database[at..at + bytes].copy_from_slice(page.data);
            }
            self.reached = next;
        }
        std::fs::write(&self.path, database).unwrap();
    }
}

#[test]
fn who_follows_slot_by_slot_has_the_database_behind_each_gap() {
    let bench = Bench::new();
    let follower = std::cell::RefCell::new(None);
    gaps(&bench, u64::MAX, |kind, file| {
        let mut follower = follower.borrow_mut();
        let follower = follower.get_or_insert_with(|| Follower::begin(&bench));
        follower.follow(&bench);
        let (has, must) = (content(&follower.path), content(file));
        assert!(must.is_some() && has == must, "{kind}: {has:?} instead of {must:?}");
        bench.is_the_same();
        // The slot behind the copy leads across it, when that was deleted.
        if kind != "before" {
            let deleted = Deleted::copy(&bench);
            let output = restored(&bench, Target::Latest).unwrap();
            assert!(std::fs::read(output).unwrap() == std::fs::read(file).unwrap(), "{kind}");
            deleted.is_named(&restored(&bench, Target::Txid(deleted.fence)).unwrap_err());
            deleted.bring_back();
        }
    });
}

/// What an archive has without the newest snapshot, a copy of the database at a gap.
struct Deleted {
    path: PathBuf,
    fence: Txid,
}

impl Deleted {
    fn copy(bench: &Bench) -> Deleted {
        let (store, layout) = (bench.store(), Layout::directory());
        let copy = Catalog::read(&store, &layout).unwrap();
        let copy = copy.level(Level::SNAPSHOTS).last().unwrap().txids;
        let path = store.root().join(layout.file(Level::SNAPSHOTS, copy));
        std::fs::rename(&path, path.with_extension("away")).unwrap();
        Deleted { path, fence: copy.max() }
    }

    fn bring_back(self) {
        std::fs::rename(self.path.with_extension("away"), self.path).unwrap();
    }

    fn is_named(&self, error: &monolite_archive::Error) {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        assert_eq!(error.kind(), monolite_archive::ErrorKind::Gap, "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

fn restored(bench: &Bench, target: Target) -> monolite_archive::Result<PathBuf> {
    let output = bench.directory.path().join(format!("restored-{}", fastrand::u64(..)));
    restore(&bench.store(), &Layout::directory(), target, &output).map(|_| output)
}

#[test]
fn nothing_leads_across_the_deleted_copy_of_any_gap() {
    let bench = Bench::new();
    let (store, layout) = (bench.store(), Layout::directory());
    gaps(&bench, 0, |kind, _| {
        if kind == "before" {
            return;
        }
        let deleted = Deleted::copy(&bench);
        let fence = deleted.fence;
        let mut catalog = Catalog::read(&store, &layout).unwrap();
        let newest = catalog.newest().unwrap();
        assert!(newest > fence, "{kind}");
        for target in [Target::Latest, Target::Txid(fence), Target::Txid(newest)] {
            deleted.is_named(&restored(&bench, target).unwrap_err());
        }
        restored(&bench, Target::Txid(Txid::new(fence.get() - 1).unwrap())).unwrap();
        let proof = verify(&store, &layout, &mut |_| {}).unwrap();
        assert!(!proof.is_restorable, "{kind}");
        proof.problems.iter().for_each(|problem| deleted.is_named(problem));
        assert_eq!(proof.problems.len(), 1, "{kind}");
        let horizon = Horizon { slots: Some(newest), snapshots: None };
        let refused = Retention::new(&catalog, horizon).unwrap_err();
        assert!(refused.to_string().contains("nothing may be deleted"), "{refused}");
        deleted.is_named(&snapshot(&store, &layout, &mut catalog, newest).unwrap_err());
        while compact_level(&store, &layout, Level::FIRST, None).unwrap().is_some() {}
        let crosses = |file: &&ArchivedFile| file.txids.min() < fence && file.txids.max() >= fence;
        let merged = Catalog::read(&store, &layout).unwrap();
        assert_eq!(merged.level(Level::FIRST).iter().find(crosses), None, "{kind}");
        assert_eq!(merged.level(Level::FIRST).last().unwrap().txids.max(), newest, "{kind}");
        deleted.bring_back();
        bench.is_the_same();
    });
}

#[test]
fn primary_whose_copy_was_deleted_makes_another() {
    let bench = Bench::new();
    let archive =
        || bench.archive().slot_bytes(128 << 20, 0).upkeep_every(Duration::from_millis(10));
    begun(&bench).close().unwrap();
    another_program_writes(&bench);
    reopened(&bench, archive()).close().unwrap();
    Deleted::copy(&bench);
    let db = bench.open_with(archive(), Durability::Archived).unwrap();
    wait_for("there is another copy", 60, || {
        verify(&bench.store(), &Layout::directory(), &mut |_| {}).unwrap().is_restorable
    });
    db.close().unwrap();
    let output = restored(&bench, Target::Latest).unwrap();
    assert!(std::fs::read(output).unwrap() == std::fs::read(bench.file()).unwrap());
}

/// The fence says that nothing has changed, and the copy that is lost says what has.
#[test]
fn nothing_before_a_damaged_copy_is_taken_for_what_it_had() {
    let bench = Bench::new();
    begun(&bench).close().unwrap();
    another_program_writes(&bench);
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let catalog = Catalog::read(&bench.store(), &Layout::directory()).unwrap();
    let copy = catalog.level(Level::SNAPSHOTS).last().unwrap().txids;
    let path = bench.store().root().join(Layout::directory().file(Level::SNAPSHOTS, copy));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let restored = |txid| {
        let (store, layout) = (bench.store(), Layout::directory());
        let output = bench.directory.path().join(format!("restored-{txid}"));
        restore(&store, &layout, Target::Txid(txid), &output)
    };
    let lost = restored(copy.max()).unwrap_err();
    assert_eq!(lost.kind(), monolite_archive::ErrorKind::Corrupt, "{lost}");
    restored(Txid::new(copy.max().get() - 1).unwrap()).unwrap();
}

/// The slot behind a copy has all pages, whatever was in the WAL, and the next opening goes on
/// behind it.
#[test]
fn slot_that_has_the_whole_database_is_gone_on_from() {
    let bench = Bench::new();
    begun(&bench).close().unwrap();
    another_program_writes(&bench);
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    let catalog = || monolite_archive::internals::Catalog::read(&store, &layout).unwrap();
    let newest = *catalog().level(Level::SLOTS).last().unwrap();
    assert!(newest.len > Slot::FENCE_LEN);
    let copy = *catalog().level(Level::SNAPSHOTS).last().unwrap();
    assert_eq!(copy.txids.max().next(), Some(newest.txids.max()));
    let bytes = std::fs::read(store.root().join(layout.slot(newest.txids.max()))).unwrap();
    let mut decoder = Decoder::new(&bytes[..]).unwrap();
    let mut pages = 0;
    while let Some(page) = decoder.next_page().unwrap() {
        pages += 1;
        assert_eq!(Some(page.pgno), Pgno::new(pages));
    }
    assert_eq!(pages, decoder.header().commit);
    for _ in 0..3 {
        let db = bench.open(Durability::Archived).unwrap();
        insert(&db, 10).unwrap();
        db.close().unwrap();
        bench.is_the_same();
    }
    assert_eq!(catalog().level(Level::SNAPSHOTS).len(), 2, "no other copy was due");
}

/// A slot is one request, from memory, so the copy of a large database is a snapshot alone.
#[test]
fn copy_of_a_large_database_fills_no_slot() {
    let bench = Bench::new();
    begun(&bench).close().unwrap();
    let other = Connection::open(bench.file()).unwrap();
    let large = "CREATE TABLE large(v); INSERT INTO large VALUES (zeroblob(2 << 20))";
    other.execute_batch(large).unwrap();
    other.close().unwrap();
    let archive = bench.archive().slot_bytes(128 << 20, 1 << 20);
    let db = bench.open_with(archive, Durability::Archived).unwrap();
    wait_for("the copy is there", 120, || db.stats().archive.unwrap().copies_because.is_none());
    db.close().unwrap();
    let (store, layout) = (bench.store(), Layout::directory());
    let catalog = monolite_archive::internals::Catalog::read(&store, &layout).unwrap();
    let newest = |level| catalog.level(level).last().unwrap().txids.max();
    assert_eq!(catalog.level(Level::SNAPSHOTS).len(), 2);
    assert_eq!(newest(Level::SLOTS), newest(Level::SNAPSHOTS), "the fence is the last slot");
}

/// The record knows of the fence as well.
#[test]
fn no_merged_file_crosses_the_fence_of_a_copy_whose_slot_is_lost() {
    let bench = Bench::new();
    let (store, layout) = (bench.store(), Layout::directory());
    let read = || Catalog::read(&store, &layout).unwrap();
    let second = Level::new(2).unwrap();
    let merge = |level| while compact_level(&store, &layout, level, None).unwrap().is_some() {};
    // A level begins behind a snapshot, so both have begun before there is a gap.
    begun(&bench).close().unwrap();
    [Level::FIRST, second].into_iter().for_each(merge);
    reopened(&bench, bench.archive()).close().unwrap();
    merge(Level::FIRST);
    another_program_writes(&bench);
    reopened(&bench, bench.archive()).close().unwrap();
    merge(Level::FIRST);
    let fence = read().level(Level::SNAPSHOTS).last().unwrap().txids.max();
    assert!(read().level(Level::FIRST).iter().any(|it| it.txids == TxidRange::single(fence)));
    store.delete(&layout.slot(fence)).unwrap();
    merge(second);
    let crosses = |file: &&ArchivedFile| file.txids.min() < fence && file.txids.max() >= fence;
    let merged = read();
    assert_eq!(merged.level(second).iter().find(crosses), None);
    assert!(merged.level(second).last().unwrap().txids.max() > fence);
}

/// A first copy is followed by nobody.
#[test]
fn first_copy_fills_no_slot() {
    let bench = Bench::new();
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let catalog =
        monolite_archive::internals::Catalog::read(&bench.store(), &Layout::directory()).unwrap();
    assert_eq!(catalog.level(Level::SLOTS).len(), 1, "its fence");
}

#[test]
fn litestream_follows_across_each_gap() {
    let test = "litestream_follows_across_each_gap";
    let Some([litestream]) = programs(test, ["litestream"]) else { return };
    let bench = Bench::new();
    let site = Site::directory(bench.store().root());
    let follower = bench.directory.path().join("follower.db");
    let following = std::cell::OnceCell::new();
    gaps(&bench, u64::MAX, |kind, file| {
        following.get_or_init(|| {
            let mut follow = site.litestream(&litestream);
            follow.args(["restore", "-f", "-follow-interval", "50ms", "-o"]);
            Running::start(follow.arg(&follower).arg(&site.theirs))
        });
        let must = content(file);
        assert!(must.is_some(), "{kind}");
        wait_for(&format!("it has all: {kind}"), 60, || {
            follower.exists() && content(&follower) == must
        });
    });
}

#[test]
fn litestreams_vfs_that_is_held_open_sees_the_database_behind_each_gap() {
    let test = "litestreams_vfs_that_is_held_open_sees_the_database_behind_each_gap";
    let Some([extension, _]) = programs(test, ["litestream-vfs.so", "sqlite3"]) else { return };
    let bench = Bench::new();
    let site = Site::directory(bench.store().root());
    let held = std::cell::RefCell::new(None);
    gaps(&bench, u64::MAX, |kind, file| {
        let mut held = held.borrow_mut();
        let held = held.get_or_insert_with(|| Held::open(&extension, &site));
        let must = content(file);
        assert!(must.is_some(), "{kind}");
        wait_for(&format!("it has all: {kind}"), 60, || held.sound(SUMS).ok() == must);
    });
}
