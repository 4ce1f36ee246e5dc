//! What operators do to the files of a database that is open: moved, mounted twice, replaced, cut.
//! It is noticed before anything more is acknowledged, and nothing that can be kept is destroyed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use monolite::rusqlite::Connection;
use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage, SyncFlags};
use monolite::{Database, Durability, Error, ErrorKind, Options, Sharing};
use monolite_testkit::markers;
use monolite_testkit::mounts::{Mount, say_skipped};
use monolite_testkit::storage::wal_beside;

use crate::patience::eventually;

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

/// The WALs that were put aside in the directory of `path`.
fn kept(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    names.filter(|name| name.to_str().unwrap().contains("-wal-of-lost-file-")).collect()
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
fn a_database_that_the_engine_makes_shorter_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    // The engine sets SQLite up, unless another one has used it before.
    Database::open(":memory:").unwrap().close().unwrap();
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
        eventually("the file's length", || length() > 400_000);
        db.write(|tx| tx.execute("DELETE FROM t", ())).wait().unwrap();
        eventually("the file's length", || length() < 100_000);
        db.write(|tx| tx.execute("INSERT INTO t VALUES (1)", ())).wait().unwrap();
    }
    db.close().unwrap();
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

#[test]
fn a_file_that_was_renamed_is_open_under_both_names() {
    let (directory, path, db) = one_row(Options::new());
    let moved = directory.path().canonicalize().unwrap().join("moved");
    fs::rename(&path, &moved).unwrap();
    fs::rename(wal_beside(&path), wal_beside(&moved)).unwrap();
    for name in [&moved, &path] {
        let told = Database::open(name).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Invalid, "{told}");
        assert!(told.to_string().contains("open in this process already"), "{told}");
    }
    assert!(!path.exists());
    let told = put(&db, 2).unwrap_err();
    assert_eq!(told.kind(), ErrorKind::Poisoned, "{told}");
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
    assert!(markers::in_file(&moved).unwrap().contains(&1));
}
