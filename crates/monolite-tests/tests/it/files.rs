//! Files and options that cannot be used: a clear error each, nothing lost, and all is well again
//! once the cause is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use monolite::vfs::{self, Direct, File, FileKind, LowerFile, Storage};
use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options, Sharing, rusqlite};

use crate::patience::{eventually, one};
use monolite_testkit::markers;
use monolite_testkit::mounts::{Mount, say_skipped};
use monolite_testkit::scratch::without_links;
use monolite_testkit::storage::wal_beside;

/// A closed database with one transaction in it.
fn make(path: &Path) {
    let db = Database::open(path).unwrap();
    markers::create(&db).unwrap();
    db.write(|tx| markers::put(tx, 1)).wait().unwrap();
    db.close().unwrap();
}

fn refusal(path: &Path, kind: ErrorKind) -> String {
    let error = Database::open(path).unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    error.to_string()
}

#[test]
fn every_option_out_of_its_range_is_refused_by_name() {
    let (zero, century) = (Duration::ZERO, Duration::from_secs(100 * 365 * 86_400));
    let (new, of_transactions) = (Options::new, InteractiveOptions::default);
    let wrong = [
        ("readers", new().readers(0)),
        ("readers", new().readers(1_025)),
        ("reader_cache_bytes", new().reader_cache_bytes(1)),
        ("reader_cache_bytes", new().reader_cache_bytes(u64::MAX)),
        ("writer_cache_bytes", new().writer_cache_bytes(1)),
        ("writer_cache_bytes", new().writer_cache_bytes(u64::MAX)),
        ("max_batch", new().max_batch(0)),
        ("max_batch", new().max_batch(usize::MAX)),
        ("max_batch_time", new().max_batch_time(zero)),
        ("max_batch_time", new().max_batch_time(century)),
        ("queue_capacity", new().queue_capacity(0)),
        ("queue_capacity", new().queue_capacity(usize::MAX)),
        ("write_time_limit", new().write_time_limit(zero)),
        ("write_time_limit", new().write_time_limit(century)),
        ("read_time_limit", new().read_time_limit(zero)),
        ("read_time_limit", new().read_time_limit(century)),
        ("slow_transaction", new().slow_transaction(zero)),
        ("slow_transaction", new().slow_transaction(century)),
        ("on_slow", new().on_slow(zero, |_| ())),
        ("on_slow", new().on_slow(century, |_| ())),
        ("wal_limit_bytes", new().wal_limit_bytes((8 << 20) - 1)),
        ("wal_limit_bytes", new().wal_limit_bytes(u64::MAX)),
        ("InteractiveOptions::max_open", new().interactive(of_transactions().max_open(0))),
        ("InteractiveOptions::connections", new().interactive(of_transactions().connections(0))),
        ("InteractiveOptions::attempts", new().interactive(of_transactions().attempts(0))),
    ];
    for (name, options) in wrong {
        let error = options.open(":memory:").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
        assert!(error.to_string().contains(&format!("option {name} is")), "{error}");
    }
}

#[test]
fn paths_that_cannot_be_a_database_are_refused() {
    let directory = without_links().unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(refusal(&at("missing/db"), ErrorKind::Storage).contains("directory"));
    for (path, advice) in [
        ("file:/nowhere/monolite/db?mode=ro", "file: URIs are not"),
        ("~/nowhere/monolite.db", "home_dir()"),
    ] {
        let told = refusal(Path::new(path), ErrorKind::Storage);
        assert!(told.contains("taken literally") && told.contains(advice), "{told}");
    }
    assert!(!refusal(&at("missing/db"), ErrorKind::Storage).contains("literally"));
    assert!(refusal(directory.path(), ErrorKind::Invalid).contains("it is a directory"));
    assert!(refusal(&at("a\0b"), ErrorKind::Invalid).contains("a NUL byte"));
    assert!(refusal(&at("db/"), ErrorKind::Invalid).contains("ends with a slash"));
    make(&at("db"));
    fs::hard_link(at("db"), at("other")).unwrap();
    assert!(refusal(&at("other"), ErrorKind::Invalid).contains("hard links"));
    fs::remove_file(at("other")).unwrap();
    Database::open(at("db")).unwrap().close().unwrap();
}

/// Where the kernel takes no new file, also from root.
#[test]
fn a_directory_that_takes_no_file_is_refused_with_a_remedy() {
    let said = refusal(Path::new("/proc/monolite.db"), ErrorKind::Storage);
    let is_told_root = said.ends_with("; see its permissions, or choose another directory");
    let is_told = is_told_root || said.contains("must be readable and writable");
    assert!(is_told && said.contains("/proc"), "{said}");
}

#[test]
fn names_that_leave_no_room_for_companions_are_refused_and_others_work() {
    let directory = without_links().unwrap();
    let root = directory.path().canonicalize().unwrap();
    make(&root.join("n".repeat(247)));
    for length in [248, 255, 256, 1_000] {
        let told = refusal(&root.join("n".repeat(length)), ErrorKind::Invalid);
        assert!(told.contains(&format!("its name has {length} bytes")), "{told}");
    }
    // A path of exactly so many bytes.
    let at = |length: usize| {
        let mut path = root.clone();
        while length - path.as_os_str().len() > 202 {
            path.push("d".repeat(200));
        }
        fs::create_dir_all(&path).unwrap();
        path.join("n".repeat(length - path.as_os_str().len() - 1))
    };
    make(&at(504));
    let told = refusal(&at(505), ErrorKind::Invalid);
    assert!(told.contains("its path has 505 bytes"), "{told}");
}

#[test]
fn a_file_is_open_once_in_a_process_whatever_its_name() {
    let directory = without_links().unwrap();
    let path = directory.path().join("db");
    let db = Database::open(&path).unwrap();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let roundabout = directory.path().join(".").join("db");
    for name in [&path, &link, &roundabout] {
        assert!(refusal(name, ErrorKind::Invalid).contains("open in this process already"));
    }
    db.close().unwrap();
    Database::open(&link).unwrap().close().unwrap();
}

#[test]
fn a_name_that_looks_like_an_address_is_a_file_name() {
    let directory = without_links().unwrap();
    let path = directory.path().join("file:db?mode=memory");
    make(&path);
    assert!(path.exists());
    assert_eq!(markers::in_file(&path.canonicalize().unwrap()).unwrap(), [1].into());
}

/// What is in the directory of `path`, and how long each is.
fn listing(path: &Path) -> BTreeMap<OsString, u64> {
    let entry = |it: io::Result<fs::DirEntry>| {
        let it = it.unwrap();
        (it.file_name(), it.metadata().unwrap().len())
    };
    fs::read_dir(path.parent().unwrap()).unwrap().map(entry).collect()
}

/// A file of plain SQLite with some bytes changed.
fn plain_file(path: &Path, journal: &str, bytes: &[(usize, u8)]) {
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{ending}", path.display()));
    }
    let plain = rusqlite::Connection::open(path).unwrap();
    let sql = format!("PRAGMA journal_mode = {journal}; CREATE TABLE t(x)");
    plain.execute_batch(&sql).unwrap();
    plain.close().unwrap();
    let mut content = fs::read(path).unwrap();
    bytes.iter().for_each(|(at, value)| content[*at] = *value);
    fs::write(path, content).unwrap();
}

#[test]
fn a_file_of_a_newer_format_is_refused_by_its_number_and_nothing_is_left_beside_it() {
    let newer: [(&[(usize, u8)], &str); 4] = [
        (&[(18, 3)], "write version (byte 18) is 3, and 2 is the newest"),
        (&[(19, 3)], "read version (byte 19) is 3, and 2 is the newest"),
        (&[(18, 7), (19, 7)], "read version (byte 19) is 7, and 2 is the newest"),
        (&[(47, 5)], "schema format (byte 44) is 5, and 4 is the newest"),
    ];
    let directory = without_links().unwrap();
    let path = directory.path().join("db");
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for journal in ["DELETE", "WAL"] {
            for (bytes, found) in newer {
                plain_file(&path, journal, bytes);
                let (before, content) = (listing(&path), fs::read(&path).unwrap());
                let error = Options::new().sharing(sharing).open(&path).unwrap_err();
                let told = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Invalid, "{sharing:?} {journal}: {told}");
                for words in [found, "open it with a newer SQLite", path.to_str().unwrap()] {
                    assert!(told.contains(words), "{sharing:?} {journal}: {told}");
                }
                assert_eq!(listing(&path), before, "{sharing:?} {journal} {found}");
                assert_eq!(fs::read(&path).unwrap(), content, "{sharing:?} {journal} {found}");
            }
        }
    }
}

#[test]
fn a_refused_open_leaves_nothing_that_was_not_there() {
    // The schema's root page is none; no page can have such a size; no database at all.
    let damages: [&[(usize, u8)]; 3] = [&[(100, 77)], &[(16, 3)], &[(3, 0)]];
    let directory = without_links().unwrap();
    let path = directory.path().join("db");
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for journal in ["DELETE", "WAL"] {
            for damage in damages {
                plain_file(&path, journal, damage);
                let before = listing(&path);
                let error = Options::new().sharing(sharing).open(&path).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                assert_eq!(listing(&path), before, "{sharing:?} {journal} {damage:?}: {error}");
                // What was there stays.
                fs::write(wal_beside(&path), "").unwrap();
                fs::write(format!("{}-shm", path.display()), "").unwrap();
                let before = listing(&path);
                assert!(Options::new().sharing(sharing).open(&path).is_err());
                let names = |of: BTreeMap<OsString, u64>| of.into_keys().collect::<Vec<_>>();
                assert_eq!(names(listing(&path)), names(before), "{sharing:?} {damage:?}");
            }
        }
    }
}

/// A storage whose directory cannot be synced, which is tried behind the recovery.
struct NoDirectorySync(Direct);

impl Storage for NoDirectorySync {
    fn open(
        &self,
        kind: FileKind,
        path: Option<&Path>,
        lower: &mut LowerFile,
    ) -> vfs::Result<Box<dyn File>> {
        self.0.open(kind, path, lower)
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Err(io::Error::other("on purpose"))
    }
}

#[test]
fn an_open_that_fails_behind_the_recovery_leaves_nothing_beside_the_file() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = without_links().unwrap();
        let path = directory.path().join("db");
        plain_file(&path, "WAL", &[]);
        let before = listing(&path);
        let options = Options::new().sharing(sharing).storage(|it| Arc::new(NoDirectorySync(it)));
        let error = options.open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert_eq!(listing(&path), before, "{sharing:?}");
        Options::new().sharing(sharing).open(&path).unwrap().close().unwrap();
    }
}

#[test]
fn what_is_no_file_beside_a_database_is_refused_at_once_and_by_name() {
    let directory = without_links().unwrap();
    let path = directory.path().join("a.db");
    make(&path);
    for ending in ["-wal", "-shm", "-journal"] {
        let beside = directory.path().join(format!("a.db{ending}"));
        type Make = fn(&Path) -> io::Result<()>;
        let ways: [Make; 3] = [
            |path| std::os::unix::fs::symlink("/nowhere/at/all", path),
            |path| fs::create_dir(path),
            |path| {
                let made = std::process::Command::new("mkfifo").arg(path).status()?;
                assert!(made.success());
                Ok(())
            },
        ];
        for way in ways {
            way(&beside).unwrap();
            let before = listing(&path);
            let message = refusal(&path, ErrorKind::Storage);
            assert!(message.contains(&*beside.to_string_lossy()), "{message}");
            assert_eq!(listing(&path), before);
            fs::remove_file(&beside).or_else(|_| fs::remove_dir(&beside)).unwrap();
        }
    }
    Database::open(&path).unwrap().close().unwrap();
}

#[test]
fn a_wal_that_was_left_beside_a_link_is_not_forgotten() {
    let directory = without_links().unwrap();
    let path = directory.path().join("a.db");
    make(&path);
    let elsewhere = directory.path().join("elsewhere.db");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    let wal = directory.path().join("a.db-wal");
    fs::write(&wal, [1; 5_000]).unwrap();
    let message = refusal(&path, ErrorKind::Storage);
    assert!(message.contains(&*wal.to_string_lossy()), "{message}");
    fs::remove_file(&wal).unwrap();
    let db = Database::open(&path).unwrap();
    db.close().unwrap();
    assert_eq!(markers::in_file(&elsewhere).unwrap(), [1].into());
}

/// What a test needs root for; without it the test says that it is skipped.
fn or_skip(test: &str, mount: anyhow::Result<Mount>) -> Option<Mount> {
    mount.map_err(|reason| say_skipped(test, &format!("{reason:#}")).unwrap()).ok()
}

fn fill_until_full(db: &Database) -> (BTreeSet<i64>, Error) {
    let mut acknowledged = BTreeSet::new();
    for id in 1..10_000 {
        match db.write(move |tx| markers::put_filled(tx, id, &[9; 20_000])).wait() {
            Ok(()) => _ = acknowledged.insert(id),
            Err(error) => return (acknowledged, error),
        }
    }
    panic!("the disk never became full");
}

#[test]
fn a_full_disk_is_an_error_and_all_is_well_once_there_is_room() {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for (size, ballast_bytes) in [("2m", 600_000), ("4m", 2_600_000)] {
            let test = "a_full_disk_is_an_error_and_all_is_well_once_there_is_room";
            let Some(mount) = or_skip(test, Mount::small(size)) else { return };
            let path = mount.path().join("db");
            let ballast = mount.path().join("ballast");
            fs::write(&ballast, vec![1; ballast_bytes]).unwrap();
            let db = Options::new().sharing(sharing).open(&path).unwrap();
            markers::create(&db).unwrap();
            let (mut acknowledged, error) = fill_until_full(&db);
            assert_eq!(error.kind(), ErrorKind::Storage, "{error:?}");
            let named = format!("writing {}", path.display());
            assert!(error.to_string().contains(&named), "{error}");
            let total = one(&db, "SELECT n FROM total");
            assert_eq!(total, acknowledged.len() as i64, "reads go on");
            fs::remove_file(ballast).unwrap();
            let put = |id| db.write(move |tx| markers::put(tx, id)).wait();
            put(20_001).unwrap();
            put(20_002).unwrap();
            acknowledged.extend([20_001, 20_002]);
            // Closing may lack room for the checkpoint; the WAL then keeps what is acknowledged,
            // and is recovered where there is room.
            let elsewhere = without_links().unwrap();
            let found = match db.close() {
                Ok(()) => markers::in_file(&path).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Storage, "{error:?}");
                    assert!(error.to_string().contains(&named), "{error}");
                    let copy = elsewhere.path().join("db");
                    fs::copy(&path, &copy).unwrap();
                    fs::copy(wal_beside(&path), wal_beside(&copy)).unwrap();
                    markers::in_file(&copy).unwrap()
                }
            };
            assert_eq!(found, acknowledged, "{sharing:?} {size}");
        }
    }
}

/// Leaves no byte of the disk that `directory` is on.
fn fill_disk(directory: &Path) {
    let mut ballast = fs::File::create(directory.join("ballast")).unwrap();
    for size in [1 << 20, 4_096, 1] {
        while ballast.write_all(&vec![7; size]).is_ok() {}
    }
}

#[test]
fn rows_are_deleted_and_backups_made_on_a_full_disk() {
    let test = "rows_are_deleted_and_backups_made_on_a_full_disk";
    let elsewhere = without_links().unwrap();
    for (sharing, is_idle) in [(Sharing::Exclusive, true), (Sharing::Shared, false)] {
        let Some(mount) = or_skip(test, Mount::small("64m")) else { return };
        let path = mount.path().join("db");
        let db = Options::new().sharing(sharing).open(&path).unwrap();
        let create = "CREATE TABLE t(id INTEGER PRIMARY KEY, d BLOB)";
        db.write(move |tx| tx.execute_batch(create)).wait().unwrap();
        let insert = "INSERT INTO t(d) VALUES (randomblob(10000))";
        for _ in 0..1_000 {
            db.write(move |tx| tx.execute(insert, ())).wait().unwrap();
        }
        if is_idle {
            let is_cut = || fs::metadata(wal_beside(&path)).unwrap().len() == 0;
            eventually("the WAL is cut", is_cut);
        }
        fill_disk(mount.path());
        let grow =
            db.write(move |tx| tx.execute("INSERT INTO t(d) VALUES (zeroblob(9000000))", ()));
        assert_eq!(grow.wait().unwrap_err().kind(), ErrorKind::Storage, "{sharing:?} {is_idle}");
        // More than is in the WAL at once.
        for id in 1..=500 {
            let deleted = db.write(move |tx| tx.execute("DELETE FROM t WHERE id = ?1", [id]));
            let case = format!("{sharing:?}, {is_idle}, {id}");
            assert_eq!(deleted.wait().expect(&case), 1, "{case}");
        }
        // Their pages are used again.
        db.write(move |tx| tx.execute(insert, ())).wait().unwrap();
        let target = elsewhere.path().join(format!("{sharing:?}-{is_idle}"));
        db.backup(&target).wait().unwrap();
        db.close().unwrap();
        let backup = Database::open(&target).unwrap();
        let rows = one(&backup, "SELECT count(*) FROM t");
        assert_eq!(rows, 501);
    }
}
