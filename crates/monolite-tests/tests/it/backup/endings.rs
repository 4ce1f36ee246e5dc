//! How backups end: whole under their name, or with nothing by that name.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fastrand::Rng;
use monolite::{Database, ErrorKind, rusqlite};
use monolite_testkit::child::{say, variable};
use monolite_testkit::mounts::{Mount, say_skipped};
use rustix::fs::{FlockOperation, flock};

use super::load::Load;
use super::{check, create, others, places, transfer};
use crate::child::spawn;
use crate::patience::{ends, eventually};

fn refused(db: &Database, target: &Path, kind: ErrorKind, said: &str) {
    let error = db.backup(target).wait().unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(said), "{error}");
    assert!(error.to_string().starts_with("no backup to "), "{error}");
}

#[test]
fn nothing_is_overwritten() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    fs::write(&target, "precious").unwrap();
    refused(&db, &target, ErrorKind::Invalid, "exists");
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    fs::remove_file(&target).unwrap();
    std::os::unix::fs::symlink("nowhere", &target).unwrap();
    refused(&db, &target, ErrorKind::Invalid, "a link to nowhere");
    fs::remove_file(&target).unwrap();
    refused(&db, &path, ErrorKind::Invalid, "exists");
    refused(&db, directory.path(), ErrorKind::Invalid, "directory");
    refused(&db, &directory.path().join("missing/b.db"), ErrorKind::Storage, "does not exist");
    refused(&db, &directory.path().join("b-wal"), ErrorKind::Invalid, "-wal");
    // It would be played back into the backup.
    for ending in ["-wal", "-journal", "-shm"] {
        let beside = directory.path().join(format!("backup.db{ending}"));
        fs::write(&beside, "old").unwrap();
        refused(&db, &target, ErrorKind::Invalid, "play back");
        fs::remove_file(&beside).unwrap();
    }
    assert_eq!(others(directory.path()), [] as [&str; 0]);
    db.backup(&target).wait().unwrap();
    check(&target);
}

#[test]
fn a_name_that_belongs_to_another_database_is_refused_for_a_copy_and_a_database() {
    let (directory, path, _) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    for ending in ["-wal", "-shm", "-journal", "-archive", ".monolite-part"] {
        let target = directory.path().join(format!("other.db{ending}"));
        refused(&db, &target, ErrorKind::Invalid, "the database \"other.db\"");
        let opened = Database::open(&target).unwrap_err();
        assert_eq!(opened.kind(), ErrorKind::Invalid, "{opened}");
    }
    assert_eq!(others(directory.path()), [] as [&str; 0]);
}

#[test]
fn a_name_that_is_taken_meanwhile_is_not_overwritten() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    // The job waits for the writer, so the name is taken after it was looked at.
    let part = directory.path().join("backup.db.monolite-part");
    let begun = part.clone();
    let taken = target.clone();
    let backing_up = db.clone();
    let backup = db
        .write(move |_| {
            let backup = backing_up.backup(&taken);
            eventually("the backup begins", || begun.exists());
            fs::write(&taken, "precious").unwrap();
            Ok::<_, monolite::Error>(backup)
        })
        .wait()
        .unwrap();
    assert_eq!(backup.wait().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert!(!part.exists());
}

#[test]
fn a_backup_that_is_cancelled_leaves_nothing() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 2);
    let mut cancelled = 0;
    let mut random = Rng::with_seed(7);
    for _ in 0..12 {
        let backup = db.backup(&target);
        let (monitor, pages) = (backup.monitor(), random.u64(0..1_500));
        eventually("it is so far", || {
            let progress = monitor.progress();
            progress.done >= pages.min(progress.total) && progress.total > 0 || target.exists()
        });
        monitor.cancel();
        match backup.wait() {
            Ok(_) => {
                check(&target);
                fs::remove_file(&target).unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Aborted, "{error:?}");
                cancelled += 1;
            }
        }
        assert_eq!(others(directory.path()), [] as [&str; 0]);
    }
    assert!(cancelled > 1, "{cancelled}");
    // A handle that is dropped does the same.
    drop(db.backup(&target));
    load.stop();
    db.close().unwrap();
    assert!(others(directory.path()).iter().all(|name| name == "backup.db"));
}

#[test]
fn two_backups_at_once_are_both_whole_and_one_target_has_one() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 2);
    load.wait_for(500);
    let (a, b) = (target.with_extension("a"), target.with_extension("b"));
    let both = (db.backup(&a), db.backup(&b));
    both.0.wait().unwrap();
    both.1.wait().unwrap();
    check(&a);
    check(&b);
    let both = [db.backup(&target), db.backup(&target)].map(|backup| backup.wait());
    let kinds: Vec<_> = both.iter().filter_map(|it| Some(it.as_ref().err()?.kind())).collect();
    assert!(
        matches!(kinds[..], [ErrorKind::Overloaded | ErrorKind::Invalid]),
        "one is made, and the other refused: {both:?}"
    );
    check(&target);
    load.stop();
    let mut names = others(directory.path());
    names.sort();
    assert_eq!(names, ["backup.a", "backup.b", "backup.db"]);
}

#[test]
fn a_database_that_is_closed_meanwhile_leaves_no_backup() {
    for late in [0, 1, 500, 1_000] {
        let (directory, path, target) = places();
        let db = Database::open(&path).unwrap();
        create(&db);
        let backup = db.backup(&target);
        eventually("it is so far", || backup.progress().done >= late || target.exists());
        db.close().unwrap();
        match backup.wait() {
            Ok(_) => _ = check(&target),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
                assert_eq!(others(directory.path()), [] as [&str; 0]);
            }
        }
        assert_eq!(db.backup(&target).wait().unwrap_err().kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_waker_that_closes_the_database_does_not_wait_for_itself() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    ends("the backup", move || {
        struct Close(Database);
        impl std::task::Wake for Close {
            fn wake(self: std::sync::Arc<Self>) {
                assert_eq!(self.0.close().unwrap_err().kind(), ErrorKind::Invalid);
            }
        }
        let waker = std::task::Waker::from(std::sync::Arc::new(Close(db.clone())));
        let mut backup = db.backup(&target);
        let mut polled = std::task::Context::from_waker(&waker);
        let mut outcome = std::pin::Pin::new(&mut backup).poll(&mut polled);
        while outcome.is_pending() {
            std::thread::park_timeout(std::time::Duration::from_millis(5));
            outcome = std::pin::Pin::new(&mut backup).poll(&mut polled);
        }
        db.close().unwrap();
    });
}

#[test]
fn a_backup_is_as_private_as_its_database() {
    let (_directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    db.backup(&target).wait().unwrap();
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let test = "a_full_disk_is_an_error_and_leaves_nothing";
    let mount = match Mount::small("3m") {
        Ok(mount) => mount,
        Err(reason) => return say_skipped(test, &format!("{reason:#}")).unwrap(),
    };
    let (_directory, path, _) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let load = Load::start(&db, 1);
    load.wait_for(100);
    refused(&db, &mount.path().join("b.db"), ErrorKind::Storage, "No space left");
    assert_eq!(others(mount.path()), [] as [&str; 0]);
    load.stop();
    db.write(|tx| transfer(tx, 1)).wait().unwrap();
    db.close().unwrap();
}

#[test]
fn what_a_killed_backup_has_left_is_removed_and_nothing_else_is() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    let part = directory.path().join("backup.db.monolite-part");
    // Of one that is under way, it is not.
    let other = fs::File::create(&part).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    refused(&db, &target, ErrorKind::Overloaded, "under way");
    assert!(part.exists());
    drop(other);
    // Of one that was killed between the two names of a file that has them by hard links.
    fs::write(&part, "a whole backup").unwrap();
    let finished = directory.path().join("moved.db");
    fs::hard_link(&part, &finished).unwrap();
    db.backup(&target).wait().unwrap();
    check(&target);
    assert_eq!(fs::read(&finished).unwrap(), b"a whole backup");
    fs::remove_file(&target).unwrap();
    // What is no file of ours stays.
    fs::create_dir(&part).unwrap();
    refused(&db, &target, ErrorKind::Invalid, "in the way");
    fs::remove_dir(&part).unwrap();
    std::os::unix::fs::symlink(&finished, &part).unwrap();
    refused(&db, &target, ErrorKind::Invalid, "in the way");
    assert_eq!(fs::read(&finished).unwrap(), b"a whole backup");
}

/// The child: transfers and backups until it is killed.
pub(crate) fn back_up_until_killed() -> anyhow::Result<()> {
    let db = Database::open(variable::<String>("FILE")?)?;
    let load = Load::start(&db, 2);
    for number in 0.. {
        let target = format!("{}.{number}", variable::<String>("TARGET")?);
        let backup = db.backup(&target);
        say(&format!("begins {number}"));
        backup.wait()?;
        say(&format!("made {number}"));
    }
    load.stop();
    Ok(())
}

#[test]
fn a_process_that_is_killed_leaves_no_half_backup_under_its_name() {
    let (directory, path, target) = places();
    let db = Database::open(&path).unwrap();
    create(&db);
    db.close().unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let (file, prefix) = (path.to_str().unwrap(), target.to_str().unwrap());
    let mut leftovers = 0;
    for _ in 0..4 {
        let mut child = spawn("backs up until killed", &[("FILE", file), ("TARGET", prefix)]);
        let (last, micros) = (random.u32(0..3), random.u64(0..60_000));
        child.await_word(&format!("begins {last}")).unwrap();
        std::thread::park_timeout(std::time::Duration::from_micros(micros));
        child.kill().unwrap();
        let mut made = 0;
        for name in others(directory.path()) {
            let place = directory.path().join(&name);
            if name.ends_with(".monolite-part") {
                // It is no database, unless it was whole and lacked only its name.
                let part = rusqlite::Connection::open(&place).unwrap();
                let read = part.query_row("SELECT * FROM last", (), |row| row.get::<_, i64>(0));
                if read.is_ok() {
                    check(&place);
                }
                drop(part);
                leftovers += 1;
                let whole = name.trim_end_matches(".monolite-part");
                let db = Database::open(&path).unwrap();
                db.backup(directory.path().join(whole)).wait().unwrap();
                db.close().unwrap();
                assert!(!place.exists(), "the next backup removes it");
                check(&directory.path().join(whole));
            } else {
                check(&place);
                made += 1;
            }
        }
        assert!(made >= last, "{made} of {last} that were told of");
        for name in others(directory.path()) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    println!("{leftovers} leftovers");
}
