//! An open database and its archive when something else goes wrong: copies that are overtaken,
//! other programs in the archive meanwhile, files and directories that are damaged or gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use monolite::archive::ArchiveStats;
use monolite::{Database, Durability, ErrorKind, rusqlite};
use monolite_archive::{
    Archive, DirectoryStore, Layout, Target,
    internals::{
        Call, Catalog, Fault, FaultyStore, Level, Slot, compact_level, restore, snapshot, verify,
    },
};
use monolite_ltx::{BaseChecksum, Encoder, Header, PageSize, Pgno, Timestamp};

use crate::archiving::{Bench, count, create, insert, insert_many, wait_until};

const LAYOUT: fn() -> Layout = Layout::directory;

fn stats(db: &Database) -> ArchiveStats {
    db.stats().archive.unwrap()
}

fn has_all(db: &Database) -> bool {
    let stats = stats(db);
    stats.lag_ms == 0 && stats.copies_because.is_none()
}

/// What another program does to a closed database.
fn change(file: &Path, sql: &str) {
    let other = rusqlite::Connection::open(file).unwrap();
    other.execute_batch(sql).unwrap();
    other.close().unwrap();
}

const CHANGE: &str = "UPDATE t SET v = randomblob(1500) WHERE id % 2 = 0";

fn files_beside(bench: &Bench) -> PathBuf {
    bench.file().with_file_name("ledger.db-archive")
}

/// What was kept beside the database because the store was away.
fn staged(bench: &Bench) -> Vec<PathBuf> {
    let entries = fs::read_dir(files_beside(bench)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|it| it.extension().is_some_and(|it| it == "wal")).collect();
    files.sort();
    files
}

/// An archive in which the upload of a copy waits until it is let go.
struct SlowCopy {
    begun: Arc<AtomicUsize>,
    goes_on: Arc<AtomicBool>,
}

impl SlowCopy {
    fn of(bench: &Bench) -> (SlowCopy, Archive) {
        let slow = SlowCopy { begun: Arc::default(), goes_on: Arc::default() };
        let (begun, goes_on) = (Arc::clone(&slow.begun), Arc::clone(&slow.goes_on));
        let decide = move |call: Call<'_>| {
            if matches!(call, Call::Create(key) if key.contains("ltx/9/")) {
                begun.fetch_add(1, Ordering::Relaxed);
                wait_until("the copy goes on", || goes_on.load(Ordering::Relaxed));
            }
            Fault::None
        };
        let store = Arc::new(FaultyStore::new(bench.store(), decide));
        // The opening would wait for the copy for ten seconds.
        let archive = Archive::of(store, LAYOUT()).opening_wait(Duration::from_millis(100));
        (slow, archive.interval(Duration::from_millis(5)))
    }

    /// Opens the database, and has `then` done with it while the copy is on its way.
    fn during(&self, bench: &Bench, archive: Archive, then: impl FnOnce(&Database)) -> Database {
        thread::scope(|scope| {
            let opened = scope.spawn(|| bench.open_with(archive, Durability::Synced).unwrap());
            wait_until("the copy begins", || self.begun.load(Ordering::Relaxed) > 0);
            let db = opened.join().unwrap();
            then(&db);
            self.goes_on.store(true, Ordering::Relaxed);
            wait_until("it has all", || has_all(&db));
            db
        })
    }
}

/// A closed database that is archived, to which another program has written since.
fn changed_elsewhere() -> Bench {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    for _ in 0..20 {
        insert(&db, 2_000).unwrap();
    }
    db.close().unwrap();
    change(&bench.file(), CHANGE);
    bench
}

#[test]
#[ignore = "long: the gate runs it"]
fn copy_that_was_overtaken_is_not_taken_for_the_next_one() {
    let bench = changed_elsewhere();
    let (slow, archive) = SlowCopy::of(&bench);
    let db = slow.during(&bench, archive.staged_limit_bytes(1 << 20), |db| {
        insert_many(db, 400);
        // The limit, and a batch that is being written.
        let wal = bench.file().with_file_name("ledger.db-wal");
        let bytes = wal.metadata().unwrap().len();
        assert!(bytes <= 9 << 20, "the WAL has {bytes} bytes while the copy waits");
    });
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
    assert_eq!(count(&bench.restored()), 421);
}

#[test]
fn snapshot_made_of_files_is_not_taken_for_a_copy_that_is_on_its_way() {
    let bench = changed_elsewhere();
    let (slow, archive) = SlowCopy::of(&bench);
    let db = slow.during(&bench, archive, |_| {
        let mut catalog = Catalog::read(&bench.store(), &LAYOUT()).unwrap();
        let newest = catalog.newest().unwrap();
        let made = snapshot(&bench.store(), &LAYOUT(), &mut catalog, newest).unwrap();
        assert_eq!(made.txids.max().get(), newest.get() - 1, "the fence's is the primary's");
    });
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
}

/// A snapshot of what `file` has, up to the TXID that the key says.
fn snapshot_of(file: &Path, key: &str) -> Vec<u8> {
    let bytes = fs::read(file).unwrap();
    let page_size = PageSize::new(4_096).unwrap();
    let header = Header {
        page_size,
        commit: u32::try_from(bytes.len() / page_size.bytes()).unwrap(),
        txids: Layout::txids(key).unwrap(),
        timestamp: Timestamp::from_millis(1),
        base: BaseChecksum::Untracked,
        wal: None,
        node_id: 0,
    };
    let mut encoder = Encoder::new(Vec::new(), header).unwrap();
    for (number, page) in (1..).zip(bytes.chunks(page_size.bytes())) {
        encoder.page(Pgno::new(number).unwrap(), page).unwrap();
    }
    encoder.finish(None).unwrap().output
}

/// Archives a write while the store does what `decide` says; then so many copies are there.
fn archives_behind(
    bench: &Bench,
    decide: impl FnMut(Call<'_>) -> Fault + Send + 'static,
    copies: usize,
) {
    let store = Arc::new(FaultyStore::new(bench.store(), decide));
    let archive = Archive::of(store, LAYOUT()).interval(Duration::from_millis(5));
    let db = bench.open_with(archive, Durability::Archived).unwrap();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
    let catalog = Catalog::read(&bench.store(), &LAYOUT()).unwrap();
    assert_eq!(catalog.level(Level::SNAPSHOTS).len(), copies);
}

#[test]
fn another_file_of_the_name_of_a_copy_has_it_go_behind_another_fence() {
    let bench = changed_elsewhere();
    let (root, old, is_there) =
        (bench.store().root().to_owned(), bench.restored(), AtomicBool::new(false));
    let decide = move |call: Call<'_>| {
        if let Call::Create(key) = call
            && key.contains("ltx/9/")
            && !is_there.swap(true, Ordering::Relaxed)
        {
            fs::write(root.join(key), snapshot_of(&old, key)).unwrap();
        }
        Fault::None
    };
    archives_behind(&bench, decide, 3);
}

#[test]
fn copy_whose_answer_was_lost_is_not_uploaded_again() {
    let bench = changed_elsewhere();
    let is_lost = AtomicBool::new(false);
    let decide = move |call: Call<'_>| match call {
        Call::Create(key) if key.contains("ltx/9/") && !is_lost.swap(true, Ordering::Relaxed) => {
            Fault::LostAnswer
        }
        _ => Fault::None,
    };
    archives_behind(&bench, decide, 2);
}

#[test]
fn newest_slot_that_was_cut_is_no_shorter_history() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 2_000).unwrap();
    db.close().unwrap();
    let newest = Catalog::read(&bench.store(), &LAYOUT()).unwrap().newest().unwrap();
    let path = bench.store().root().join(LAYOUT().slot(newest));
    // One is as short as a fence, and is none.
    for len in [Slot::FENCE_LEN, 100, 2, 0] {
        fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        let output = bench.file().with_file_name("restored.db");
        let error = restore(&bench.store(), &LAYOUT(), Target::Latest, &output).unwrap_err();
        assert_eq!(error.kind(), monolite_archive::ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&LAYOUT().slot(newest)), "{len}: {error}");
        let proof = verify(&bench.store(), &LAYOUT(), &mut |_| {}).unwrap();
        assert_eq!(proof.problems.len(), 1, "{:?}", proof.problems);
    }
}

#[test]
fn files_are_not_merged_across_a_copy() {
    for page_size in [4_096, 8_192] {
        let bench = Bench::new();
        let merged = || {
            let mut catalog = Catalog::read(&bench.store(), &LAYOUT()).unwrap();
            let (first, second) = (Level::FIRST, Level::new(2).unwrap());
            for level in [first, second] {
                let mut next =
                    || compact_level(&bench.store(), &LAYOUT(), &mut catalog, level, None);
                while next().unwrap().is_some() {}
            }
            catalog
        };
        let db = bench.open(Durability::Archived).unwrap();
        create(&db);
        for number in 0..20 {
            insert(&db, 2_000).unwrap();
            if number == 10 {
                merged();
            }
        }
        db.close().unwrap();
        change(&bench.file(), CHANGE);
        let sql = format!("PRAGMA journal_mode = DELETE; PRAGMA page_size = {page_size}; VACUUM");
        change(&bench.file(), &sql);
        let db = bench.open(Durability::Archived).unwrap();
        for _ in 0..5 {
            insert(&db, 200).unwrap();
        }
        db.close().unwrap();
        let catalog = merged();
        let (slots, second) = (catalog.level(Level::SLOTS), catalog.level(Level::new(2).unwrap()));
        assert_eq!(second.last().unwrap().txids.max(), slots.last().unwrap().txids.max());
        bench.is_the_same();
        // As when slots have been deleted, which the levels have.
        for slot in slots.iter().filter(|slot| slot.len > 131) {
            fs::remove_file(bench.store().root().join(LAYOUT().slot(slot.txids.min()))).unwrap();
        }
        bench.is_the_same();
    }
}

/// The next fence stands behind the fence of a copy, which says the size of before.
#[test]
fn fence_behind_a_copy_says_its_size() {
    let bench = changed_elsewhere();
    change(&bench.file(), "INSERT INTO t(v) SELECT randomblob(9000) FROM t");
    change(&bench.file(), "PRAGMA journal_mode = DELETE; PRAGMA page_size = 8192; VACUUM");
    for _ in 0..3 {
        bench.open(Durability::Archived).unwrap().close().unwrap();
        bench.is_the_same();
        let catalog = Catalog::read(&bench.store(), &LAYOUT()).unwrap();
        let fence = catalog.level(Level::SLOTS).last().unwrap();
        let fence = fence.header(&bench.store(), &LAYOUT()).unwrap();
        let copy = catalog.level(Level::SNAPSHOTS).last().unwrap();
        if fence.txids.max() > copy.txids.max() {
            let copy = copy.header(&bench.store(), &LAYOUT()).unwrap();
            assert_eq!((fence.page_size, fence.commit), (copy.page_size, copy.commit));
        }
    }
    let db = bench.open(Durability::Archived).unwrap();
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
}

/// A time at which only the fence was there, and not what the copy behind it has.
#[test]
fn copy_is_not_restored_to_a_time_before_it_was_made() {
    let bench = changed_elsewhere();
    let before = count(&bench.restored());
    let db = bench.open(Durability::Archived).unwrap();
    let catalog = Catalog::read(&bench.store(), &LAYOUT()).unwrap();
    db.close().unwrap();
    let header =
        |file: &monolite_archive::internals::ArchivedFile| file.header(&bench.store(), &LAYOUT());
    let mut fences = catalog.level(Level::SLOTS).iter().filter(|it| it.len == Slot::FENCE_LEN);
    let fence = header(fences.next_back().unwrap()).unwrap();
    let copy = header(catalog.level(Level::SNAPSHOTS).last().unwrap()).unwrap();
    assert_eq!(fence.txids.max(), copy.txids.max());
    assert!(fence.timestamp < copy.timestamp);
    let restored_to = |millis| {
        let output = bench.directory.path().join(format!("at-{millis}"));
        let target = Target::Before(Timestamp::from_millis(millis));
        restore(&bench.store(), &LAYOUT(), target, &output).unwrap();
        fs::read(output).unwrap()
    };
    let (old, new) = (restored_to(copy.timestamp.millis()), fs::read(bench.file()).unwrap());
    assert_eq!(count(&bench.restored()), before);
    assert_ne!(old, new, "the copy has what was committed after the fence");
    assert_eq!(restored_to(copy.timestamp.millis() + 1), new);
}

#[test]
fn nothing_is_acknowledged_into_a_directory_that_is_not_the_one_of_before() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    let (root, away) = (bench.store().root().to_owned(), bench.directory.path().join("away"));
    fs::rename(&root, &away).unwrap();
    let (tell, told) = mpsc::channel();
    let writer = db.clone();
    let writing = thread::spawn(move || tell.send(insert(&writer, 10).is_ok()).unwrap());
    wait_until("it is noticed", || {
        stats(&db).last_error.is_some_and(|error| error.contains("mount it again"))
    });
    assert!(told.try_recv().is_err(), "it is in no archive");
    assert!(!root.join("ltx").exists());
    let _ = fs::remove_dir_all(&root);
    fs::rename(&away, &root).unwrap();
    writing.join().unwrap();
    assert!(told.recv().unwrap());
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn directory_without_an_archive_is_refused_and_stays_empty() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    db.close().unwrap();
    let (root, away) = (bench.store().root().to_owned(), bench.directory.path().join("away"));
    fs::rename(&root, &away).unwrap();
    let refused = bench.open(Durability::Archived).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert!(refused.to_string().contains("mounted"), "{refused}");
    assert!(!root.exists());
    fs::rename(&away, &root).unwrap();
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let db = DirectoryStore::new(&root);
    assert_eq!(Catalog::read(&db, &LAYOUT()).unwrap().level(Level::SNAPSHOTS).len(), 1);
    bench.is_the_same();
}

#[test]
fn close_does_not_wait_for_a_store_that_is_away_however_many_wait() {
    let bench = Bench::new();
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.close_time(Duration::from_millis(200));
    let db = bench.open_with(archive, Durability::Archived).unwrap();
    create(&db);
    is_away.store(true, Ordering::Relaxed);
    // More than may wait for it.
    let sql = "INSERT INTO t(v) VALUES (1)";
    let writes: Vec<_> = (0..20_000).map(|_| db.write(move |tx| tx.execute(sql, ()))).collect();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(db.close()).unwrap());
    told.recv_timeout(Duration::from_secs(60)).expect("it does not end").unwrap();
    let told = writes.into_iter().map(|write| write.wait().unwrap_err().kind());
    let (unknown, refused): (Vec<_>, Vec<_>) =
        told.partition(|kind| *kind == ErrorKind::CommitUnknown);
    let is_refused = |kind: &ErrorKind| matches!(kind, ErrorKind::Overloaded | ErrorKind::Closed);
    assert!(refused.iter().all(is_refused), "{refused:?}");
    assert!(!unknown.is_empty() && !refused.is_empty());
    is_away.store(false, Ordering::Relaxed);
    bench.open(Durability::Archived).unwrap().close().unwrap();
    bench.is_the_same();
    assert_eq!(count(&bench.restored()), unknown.len() as i64, "the others were not run");
}

#[test]
fn write_without_changes_behind_one_that_was_too_large_is_answered() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let refused = insert(&db, 9_000_000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    let (tell, told) = mpsc::channel();
    let writer = db.clone();
    let sql = "SELECT count(*) FROM t";
    let nothing =
        move || writer.write(move |tx| tx.query_row(sql, (), |row| row.get::<_, i64>(0))).wait();
    thread::spawn(move || tell.send(nothing()).unwrap());
    let answer = told.recv_timeout(Duration::from_secs(20)).expect("it waits for nothing");
    assert_eq!(answer.unwrap(), 0);
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn disk_without_room_for_the_position_fences_nobody() {
    let bench = Bench::new();
    let (archive, is_away) = bench.archive_that_goes_away();
    let db = bench.open_with(archive.staged_limit_bytes(1 << 20), Durability::Synced).unwrap();
    create(&db);
    wait_until("it has all", || has_all(&db));
    is_away.store(true, Ordering::Relaxed);
    insert_many(&db, 400);
    assert!(stats(&db).copies_because.is_some());
    // What cannot be written for want of room.
    let new = files_beside(&bench).join("position.json.new");
    fs::create_dir(&new).unwrap();
    is_away.store(false, Ordering::Relaxed);
    wait_until("it is tried", || {
        stats(&db).last_error.is_some_and(|error| error.contains("position.json"))
    });
    insert(&db, 10).unwrap();
    fs::remove_dir(&new).unwrap();
    wait_until("it has all", || has_all(&db));
    insert(&db, 10).unwrap();
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn leader_record_that_is_gone_or_an_older_one_is_told_until_it_is_back() {
    let bench = Bench::new();
    bench.open(Durability::Archived).unwrap().close().unwrap();
    let path = bench.store().root().join(LAYOUT().leader());
    let older = fs::read(&path).unwrap();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    let record = fs::read(&path).unwrap();
    let told = |what: &str| {
        wait_until(what, || {
            insert(&db, 10).unwrap();
            let told = stats(&db).last_error.unwrap_or_default();
            told.contains("looking at the leader record") && told.contains(what)
        });
    };
    fs::remove_file(&path).unwrap();
    told("is gone");
    fs::write(&path, older).unwrap();
    told("is of an earlier epoch");
    fs::write(&path, record).unwrap();
    wait_until("it is well", || {
        insert(&db, 10).unwrap();
        stats(&db).last_error.is_none()
    });
    db.close().unwrap();
    bench.is_the_same();
}

/// Writes more than the WAL holds while the store is away.
fn kept_beside(bench: &Bench) -> (Database, Arc<AtomicBool>) {
    let (archive, is_away) = bench.archive_that_goes_away();
    let archive = archive.close_time(Duration::from_millis(100));
    let db = bench.open_with(archive, Durability::Synced).unwrap();
    create(&db);
    wait_until("it has all", || has_all(&db));
    is_away.store(true, Ordering::Relaxed);
    insert_many(&db, 400);
    (db, is_away)
}

#[test]
fn staged_file_that_is_gone_costs_a_copy() {
    let bench = Bench::new();
    let (db, is_away) = kept_beside(&bench);
    staged(&bench).iter().for_each(|file| fs::remove_file(file).unwrap());
    is_away.store(false, Ordering::Relaxed);
    wait_until("it is copied", || has_all(&db));
    db.close().unwrap();
    bench.is_the_same();
}

#[test]
fn staged_file_that_is_gone_or_cut_when_it_is_opened_costs_a_copy() {
    for is_cut in [false, true] {
        let bench = Bench::new();
        let (db, _) = kept_beside(&bench);
        db.close().unwrap();
        let files = staged(&bench);
        let file = &files[files.len() / 2];
        if is_cut {
            fs::write(file, &fs::read(file).unwrap()[..1_000]).unwrap();
        } else {
            fs::remove_file(file).unwrap();
        }
        let db = bench.open(Durability::Archived).unwrap();
        insert(&db, 10).unwrap();
        db.close().unwrap();
        bench.is_the_same();
    }
}

#[test]
fn error_of_what_is_damaged_says_what_to_do_and_it_helps() {
    let bench = Bench::new();
    let db = bench.open(Durability::Archived).unwrap();
    create(&db);
    insert(&db, 10).unwrap();
    db.close().unwrap();
    let newest = Catalog::read(&bench.store(), &LAYOUT()).unwrap().newest().unwrap();
    for key in [LAYOUT().slot(newest), LAYOUT().leader()] {
        let path = bench.store().root().join(&key);
        fs::write(&path, &fs::read(&path).unwrap()[..50]).unwrap();
        let open = || bench.open_with(bench.archive().take_over(true), Durability::Archived);
        let refused = open().map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert!(refused.to_string().contains("move it away"), "{refused}");
        fs::remove_file(&path).unwrap();
        let db = open().unwrap();
        insert(&db, 10).unwrap();
        db.close().unwrap();
        bench.is_the_same();
    }
}
