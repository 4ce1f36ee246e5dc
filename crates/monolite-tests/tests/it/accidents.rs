//! What operators do to the files of a database that is open: moved, mounted twice, replaced, cut.
//! It is noticed before anything more is acknowledged, and nothing that can be kept is destroyed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use monolite::rusqlite::Connection;
use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage, SyncFlags};
use monolite::{Database, Durability, Error, ErrorKind, Options, Sharing};
use monolite_testkit::markers;
use monolite_testkit::mounts::{Mount, MountedFile, say_skipped};
use monolite_testkit::storage::wal_beside;

const LIMIT: Duration = Duration::from_secs(10);

/// A directory with an open database of one row.
fn one_row(options: Options) -> (tempfile::TempDir, PathBuf, Database) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("db");
    let db = options.open(&path).unwrap();
    markers::create(&db).unwrap();
    put(&db, 1).unwrap();
    (directory, path, db)
}

fn put(db: &Database, id: i64) -> Result<(), Error> {
    db.write(move |tx| markers::put(tx, id)).wait()
}

fn refusal(path: &Path) -> String {
    let error = Database::open(path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

/// The WALs that were put aside in the directory of `path`.
fn kept(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    names.filter(|name| name.to_str().unwrap().contains("-wal-of-lost-file-")).collect()
}

#[test]
fn an_opening_that_fails_names_what_is_odd_about_the_files() {
    let (directory, path, db) = one_row(Options::new());
    db.close().unwrap();
    let (wal, elsewhere) = (wal_beside(&path), directory.path().join("elsewhere"));
    let said = || Database::open(&path).unwrap_err().to_string();
    fs::write(&elsewhere, b"").unwrap();
    let _ = fs::remove_file(&wal);
    std::os::unix::fs::symlink(&elsewhere, &wal).unwrap();
    let told = said();
    assert!(told.contains("is a symbolic link"), "{told}");
    fs::remove_file(&wal).unwrap();
    let chattr = |change: &str, of: &Path| {
        let done = std::process::Command::new("chattr").arg(change).arg(of).status();
        done.is_ok_and(|status| status.success())
    };
    let around = path.parent().unwrap();
    for (attribute, word, of) in
        [('i', "immutable", &*path), ('a', "append-only", &path), ('i', "immutable", around)]
    {
        if !chattr(&format!("+{attribute}"), of) {
            say_skipped("attributes of a file", "chattr cannot set them here").unwrap();
            continue;
        }
        let told = said();
        assert!(chattr(&format!("-{attribute}"), of));
        assert!(told.contains(&*of.to_string_lossy()), "{told}");
        assert!(told.contains(word) && told.contains("chattr"), "{told}");
    }
    Database::open(&path).unwrap();
}

#[test]
fn a_file_that_is_mounted_twice_is_open_once() {
    let (directory, path, db) = one_row(Options::new());
    let again = match Mount::again(directory.path()) {
        Ok(again) => again,
        Err(error) => return say_skipped("a directory mounted twice", &error.to_string()).unwrap(),
    };
    let other = again.path().join("db");
    for _ in 0..2 {
        let said = refusal(&other);
        assert!(said.contains("open in this process already, as"), "{said}");
        put(&db, 2).unwrap_or_else(|error| assert_eq!(error.kind(), ErrorKind::Constraint));
    }
    db.close().unwrap();
    let db = Database::open(&other).unwrap();
    assert!(refusal(&path).contains("open in this process already, as"));
    db.close().unwrap();
    assert_eq!(markers::in_file(&path).unwrap(), [1, 2].into());
}

#[test]
fn a_database_behind_fuse_is_refused() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (directory, path, db) = one_row(Options::new().sharing(sharing));
        let fuse = match Mount::by_fuse(directory.path()) {
            Ok(fuse) => fuse,
            Err(error) => return say_skipped("a FUSE mount", &error.to_string()).unwrap(),
        };
        for name in ["db", "new"] {
            let error = Options::new().sharing(sharing).open(fuse.path().join(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("it is on FUSE"), "{error}");
        }
        // What only reads or writes a file whole may be there.
        let backup = fuse.path().join("backup");
        db.backup(&backup).wait().unwrap();
        assert_eq!(markers::in_file(&directory.path().join("backup")).unwrap(), [1].into());
        put(&db, 2).unwrap();
        db.close().unwrap();
        assert_eq!(markers::in_file(&path).unwrap(), [1, 2].into());
    }
}

#[test]
fn a_wal_that_was_deleted_is_copied_where_locks_are_listed_with_another_device() {
    let mounted = Mount::small("16m").and_then(|above| Ok((Mount::layered(&above)?, above)));
    let (mount, _above) = match mounted {
        Ok(mounted) => mounted,
        Err(error) => return say_skipped("a layered directory", &error.to_string()).unwrap(),
    };
    let path = mount.path().join("db");
    let db = Database::open(&path).unwrap();
    markers::create(&db).unwrap();
    put(&db, 1).unwrap();
    fs::remove_file(wal_beside(&path)).unwrap();
    let told = put(&db, 2).unwrap_err().to_string();
    assert!(told.contains("close copies what it holds into the database"), "{told}");
    let told = db.close().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned);
    assert!(told.to_string().contains("nothing acknowledged is lost"), "{told}");
    assert!(markers::in_file(&path).unwrap().contains(&1));
}

#[test]
fn a_file_that_was_renamed_is_open_under_both_names() {
    let (directory, path, db) = one_row(Options::new());
    let moved = directory.path().canonicalize().unwrap().join("moved");
    fs::rename(&path, &moved).unwrap();
    fs::rename(wal_beside(&path), wal_beside(&moved)).unwrap();
    for name in [&moved, &path] {
        assert!(refusal(name).contains("open in this process already"));
    }
    assert!(!path.exists());
    let told = put(&db, 2).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(markers::in_file(&moved).unwrap().contains(&1));
}

#[test]
fn a_file_that_is_mounted_alone_is_refused() {
    let (_directory, path, db) = one_row(Options::new());
    db.close().unwrap();
    let mounted = match MountedFile::new(&path) {
        Ok(mounted) => mounted,
        Err(error) => return say_skipped("a file mounted alone", &error.to_string()).unwrap(),
    };
    let said = refusal(mounted.path());
    assert!(said.contains("mount its directory"), "{said}");
    assert_eq!(
        Options::new().add_page_checksums(mounted.path()).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    Database::open(&path).unwrap().close().unwrap();
}

#[test]
fn a_link_to_nowhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (link, target) = (directory.path().join("db"), directory.path().join("nowhere"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let said = refusal(&link);
    assert!(said.contains("nowhere, which is not there"), "{said}");
    assert!(!target.exists());
}

#[test]
fn a_file_that_was_replaced_while_idle_keeps_what_was_put_there() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let (directory, path, db) = one_row(Options::new().durability(durability));
        let backup = directory.path().join("backup");
        let other = Options::new().open(&backup).unwrap();
        markers::create(&other).unwrap();
        put(&other, 7).unwrap();
        other.close().unwrap();
        fs::rename(&backup, &path).unwrap();
        let told = db.close().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
        let kept = kept(&path);
        assert_eq!(kept.len(), 1);
        assert!(told.to_string().contains(kept[0].to_str().unwrap()), "{told}");
        let db = Database::open(&path).unwrap();
        put(&db, 8).unwrap();
        db.close().unwrap();
        assert_eq!(markers::in_file(&path).unwrap(), [7, 8].into());
    }
}

#[test]
fn a_file_that_was_deleted_while_idle_is_told_at_the_close() {
    for durability in [Durability::Synced, Durability::Buffered] {
        let (_directory, path, db) = one_row(Options::new().durability(durability));
        fs::remove_file(&path).unwrap();
        let others: Vec<_> = (0..3)
            .map(|_| {
                let other = db.clone();
                thread::spawn(move || other.close())
            })
            .collect();
        // Whoever closes is told, also later.
        assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
        for other in others {
            assert_eq!(other.join().unwrap().unwrap_err().kind(), ErrorKind::Poisoned);
        }
        assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(kept(&path).len(), 1);
        Database::open(&path).unwrap().close().unwrap();
        assert_eq!(kept(&path).len(), 1);
    }
}

#[test]
fn a_buffered_database_notices_within_a_moment_that_its_file_is_gone() {
    let (_directory, path, db) = one_row(Options::new().durability(Durability::Buffered));
    fs::remove_file(&path).unwrap();
    thread::sleep(Duration::from_millis(20));
    let told = put(&db, 2).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
}

#[test]
fn a_wal_that_was_cut_stops_all_writes() {
    for is_idle in [false, true] {
        let (_directory, path, db) = one_row(Options::new());
        fs::OpenOptions::new().write(true).open(wal_beside(&path)).unwrap().set_len(0).unwrap();
        if !is_idle {
            let start = std::time::Instant::now();
            let told = loop {
                let told = put(&db, 2).unwrap_err();
                if told.kind() == ErrorKind::Poisoned || start.elapsed() > LIMIT {
                    break told;
                }
            };
            assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
        }
        let told = db.close().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    }
}

#[test]
fn a_wal_without_its_database_is_not_thrown_away() {
    let (directory, path, db) = one_row(Options::new());
    // What a crash leaves, as another process sees it.
    let away = directory.path().join("away");
    fs::create_dir(&away).unwrap();
    let there = away.join("db");
    fs::copy(wal_beside(&path), wal_beside(&there)).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::File::create(&there).unwrap();
        }
        let told = Database::open(&there).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Storage, "{told}");
        assert!(told.to_string().contains("put it back"), "{told}");
        assert!(fs::metadata(wal_beside(&there)).unwrap().len() > 0);
        assert_eq!(there.exists(), is_empty);
    }
    // As good as empty for SQLite.
    fs::write(&there, "\n").unwrap();
    let told = Database::open(&there).unwrap_err();
    assert!(told.to_string().contains("put it back"), "{told}");
    db.close().unwrap();
    fs::rename(wal_beside(&there), away.join("kept")).unwrap();
    let journal = away.join("db-journal");
    // What a crash of plain SQLite leaves: the magic, a record, and a database of two pages.
    let mut header = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    header.extend([0, 0, 0, 1, 1, 2, 3, 4, 0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 16, 0]);
    header.resize(512 + 4_104, 0);
    fs::write(&journal, &header).unwrap();
    let told = Database::open(&there).unwrap_err();
    assert!(told.to_string().contains("rollback journal"), "{told}");
    assert!(journal.exists());
    // One of a database that was being made.
    header[19] = 0;
    fs::write(&journal, header).unwrap();
    Database::open(&there).unwrap().close().unwrap();
}

#[test]
fn a_database_that_was_moved_behind_a_link_takes_no_more_writes() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (directory, path, db) = one_row(Options::new().sharing(sharing));
        let large = directory.path().join("large");
        fs::create_dir(&large).unwrap();
        fs::rename(&path, large.join("db")).unwrap();
        std::os::unix::fs::symlink(large.join("db"), &path).unwrap();
        let told = put(&db, 2).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
        assert!(told.to_string().contains("replaced by a link"), "{told}");
        db.close().unwrap_err();
        // As it says: the database back, and its WAL beside it.
        fs::remove_file(&path).unwrap();
        fs::rename(large.join("db"), &path).unwrap();
        fs::rename(&kept(&path)[0], wal_beside(&path)).unwrap();
        assert!(markers::in_file(&path).unwrap().contains(&1));
    }
}

#[test]
fn what_was_committed_outlives_a_deleted_or_replaced_wal() {
    for (is_idle, is_replaced) in [(false, false), (true, false), (false, true), (true, true)] {
        let (_directory, path, db) = one_row(Options::new());
        let earlier = path.with_extension("earlier");
        fs::copy(wal_beside(&path), &earlier).unwrap();
        (2..=50).for_each(|id| put(&db, id).unwrap());
        if is_replaced {
            fs::rename(&earlier, wal_beside(&path)).unwrap();
        } else {
            fs::remove_file(wal_beside(&path)).unwrap();
        }
        if !is_idle {
            let told = put(&db, 51).unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
            assert!(told.to_string().contains("close copies"), "{told}");
        }
        let told = db.close().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
        assert!(told.to_string().contains("nothing acknowledged is lost"), "{told}");
        assert_eq!(kept(&path).len(), usize::from(is_replaced));
        let found = markers::in_file(&path).unwrap();
        assert!(found.is_superset(&(1..=50).collect()), "{found:?}");
        let db = Database::open(&path).unwrap();
        put(&db, 100).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_deleted_wal_is_written_over_nobody() {
    // The lock is lost: whoever opened the database now would have it, too.
    let (_directory, path, db) = one_row(Options::new());
    fs::remove_file(wal_beside(&path)).unwrap();
    drop(fs::File::open(&path).unwrap());
    let told = db.close().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert!(!told.to_string().contains("nothing acknowledged is lost"), "{told}");
    // With others beside it there is no such lock.
    let (_directory, path, db) = one_row(Options::new().sharing(Sharing::Shared));
    fs::remove_file(wal_beside(&path)).unwrap();
    let told = put(&db, 2).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert!(told.to_string().contains("read it out before"), "{told}");
    let seen = db.read(|tx| tx.query_row("SELECT count(*) FROM whole", (), |row| row.get(0)));
    assert!((1..=2).contains(&seen.wait().unwrap()), "what it holds can be read");
    db.close().unwrap_err();
}

/// What the first interactive transaction, and one beside it, are told.
fn told_to_transactions(db: &Database) {
    let first = db.transaction().unwrap();
    for tx in [first, db.transaction().unwrap()] {
        let count = "SELECT count(*) FROM whole";
        let told = tx.query_row(count, (), |row| row.get::<_, i64>(0)).wait().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Storage, "{told}");
        assert!(told.to_string().contains("database file was"), "{told}");
    }
}

#[test]
fn a_database_that_was_emptied_keeps_its_wal() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let (_directory, path, db) = one_row(Options::new().sharing(sharing));
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        told_to_transactions(&db);
        assert!(fs::metadata(wal_beside(&path)).unwrap().len() > 0);
        let told = db.close().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
        assert!(fs::metadata(wal_beside(&path)).unwrap().len() > 0);
    }
}

/// Cuts a file to half of its length, which is returned.
fn cut(path: &Path) -> u64 {
    let half = fs::metadata(path).unwrap().len() / 2;
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(half).unwrap();
    half
}

#[test]
fn a_database_that_was_cut_takes_no_more_writes() {
    for durability in [Durability::Synced, Durability::Buffered] {
        for is_idle in [false, true] {
            let (_directory, path, db) = one_row(Options::new());
            db.close().unwrap();
            let db = Options::new().durability(durability).open(&path).unwrap();
            put(&db, 2).unwrap();
            let half = cut(&path);
            if !is_idle {
                let start = std::time::Instant::now();
                let told = loop {
                    match put(&db, 3) {
                        Err(told) if told.kind() == ErrorKind::Poisoned => break told,
                        // One that is buffered looks now and then.
                        _ => assert!(start.elapsed() < LIMIT),
                    }
                };
                assert!(told.to_string().contains("the database file was cut"), "{told}");
            }
            let told = db.close().unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
            assert!(told.to_string().contains("the database file was cut"), "{told}");
            assert_eq!(fs::metadata(&path).unwrap().len(), half, "nothing is written into it");
            assert!(fs::metadata(wal_beside(&path)).unwrap().len() > 0, "its WAL stays");
        }
    }
}

#[test]
fn a_database_that_the_engine_makes_shorter_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA auto_vacuum = FULL; CREATE TABLE t(v)").unwrap();
    drop(plain);
    let db = Database::open(&path).unwrap();
    let fill = "INSERT INTO t SELECT zeroblob(4000) FROM (VALUES (1), (2), (3), (4), (5))";
    let length = || fs::metadata(&path).unwrap().len();
    for _ in 0..2 {
        for _ in 0..40 {
            db.write(move |tx| tx.execute(fill, ())).wait().unwrap();
        }
        wait_until(|| length() > 400_000);
        db.write(|tx| tx.execute("DELETE FROM t", ())).wait().unwrap();
        wait_until(|| length() < 100_000);
        db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
    }
    db.close().unwrap();
}

/// Waits for what an idle engine does after half a second.
fn wait_until(is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_open_that_fails_leaves_no_empty_file() {
    for ending in ["-wal", "-shm"] {
        for sharing in [Sharing::Exclusive, Sharing::Shared] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            let beside = directory.path().join(format!("db{ending}"));
            fs::create_dir(&beside).unwrap();
            let open = || Options::new().sharing(sharing).open(&path);
            let told = open().unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Storage, "{ending} {sharing:?} {told}");
            let left = fs::metadata(&path).map_or(None, |meta| Some(meta.len()));
            assert_ne!(left, Some(0), "{ending} {sharing:?}");
            // Somebody else's stays.
            let _ = fs::remove_file(&path);
            fs::File::create(&path).unwrap();
            open().unwrap_err();
            assert!(path.exists());
            fs::remove_dir(&beside).unwrap();
            open().unwrap().close().unwrap();
        }
    }
}

#[test]
fn no_transaction_answers_from_another_database_at_the_same_path() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).join("db");
        for name in ["live", "other"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let other = Database::open(at("other")).unwrap();
        markers::create(&other).unwrap();
        other.close().unwrap();
        let db = Options::new().sharing(sharing).open(at("live")).unwrap();
        markers::create(&db).unwrap();
        put(&db, 1).unwrap();
        fs::rename(directory.path().join("live"), directory.path().join("away")).unwrap();
        fs::rename(directory.path().join("other"), directory.path().join("live")).unwrap();
        told_to_transactions(&db);
        assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
    }
}

/// A disk on which somebody deletes the database while it is being synced.
struct Deleted {
    direct: Direct,
    path: PathBuf,
    is_near: Arc<AtomicBool>,
}

struct DeletedFile {
    path: PathBuf,
    is_near: Arc<AtomicBool>,
}

impl Storage for Deleted {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        if kind != FileKind::Database {
            return self.direct.open(kind, path, lower);
        }
        let (path, is_near) = (self.path.clone(), Arc::clone(&self.is_near));
        Ok(self.direct.around(kind, DeletedFile { path, is_near }))
    }
}

impl File for DeletedFile {
    fn sync(&mut self, lower: &mut LowerFile, flags: SyncFlags) -> vfs::Result {
        if self.is_near.swap(false, Ordering::SeqCst) {
            fs::remove_file(&self.path).unwrap();
        }
        lower.sync(flags)
    }
}

#[test]
fn a_database_that_is_deleted_during_the_close_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("db");
    let is_near = Arc::new(AtomicBool::new(false));
    let (near, place) = (Arc::clone(&is_near), path.clone());
    let db = Options::new()
        .storage(move |direct| {
            Arc::new(Deleted { direct, path: place.clone(), is_near: Arc::clone(&near) })
        })
        .open(&path)
        .unwrap();
    markers::create(&db).unwrap();
    put(&db, 1).unwrap();
    is_near.store(true, Ordering::SeqCst);
    let told = db.close().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert!(!is_near.load(Ordering::SeqCst) && !path.exists());
    assert!(fs::metadata(&kept(&path)[0]).unwrap().len() > 0);
}
