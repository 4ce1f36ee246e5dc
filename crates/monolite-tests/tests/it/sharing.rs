//! Other processes beside ours: welcome with `Sharing::Shared`, told to wait with `Exclusive`.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use monolite::rusqlite::{Connection, ErrorCode};
use monolite::{Database, Options, Sharing};

use crate::child::spawn;
use crate::patience::one;
use monolite_testkit::child::{await_parent, say, variable};
use monolite_testkit::markers;

/// The child: stock SQLite through `rusqlite`, which reads and writes the file.
pub(crate) fn use_plain_sqlite() -> anyhow::Result<()> {
    let outcome = plain_sqlite(&variable::<String>("FILE")?, variable("ID")?);
    match outcome {
        Ok(seen) => say(&format!("saw {seen}")),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            say(&format!("busy {error}"));
        }
        Err(error) => say(&format!("failed {error}")),
    }
    Ok(())
}

/// The child: another engine, which wants to convert the file, and then to have it for itself.
pub(crate) fn open_alone() -> anyhow::Result<()> {
    let path = variable::<String>("FILE")?;
    let converted = Options::new().add_page_checksums(&path).map(drop);
    let opened = Options::new().sharing(Sharing::Exclusive).open(&path).map(drop);
    match (converted, opened) {
        (Err(a), Err(b)) if a.kind() == b.kind() => say(&format!("refused {:?} {b}", b.kind())),
        both => say(&format!("refused not {both:?}")),
    }
    Ok(())
}

fn plain_sqlite(path: &str, id: i64) -> monolite::rusqlite::Result<i64> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_millis(if id > 0 { 10_000 } else { 0 }))?;
    let seen = connection.query_row("SELECT n FROM total", [], |row| row.get(0))?;
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE;
         INSERT INTO whole VALUES ({id});
         INSERT INTO part VALUES ({id}, 1, x''), ({id}, 2, x''), ({id}, 3, x'');
         UPDATE total SET n = n + 1;
         COMMIT;
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))?;
    Ok(seen)
}

fn put(db: &Database, id: i64) {
    db.write(move |tx| markers::put(tx, id)).wait().unwrap();
}

fn total(db: &Database) -> i64 {
    one(db, "SELECT n FROM total")
}

#[test]
fn a_shared_file_is_read_and_written_by_another_process_beside_us() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    markers::create(&db).unwrap();
    for round in 0..5 {
        put(&db, round * 2 + 2);
        assert_eq!(total(&db), round * 2 + 1);
        let id = (round * 2 + 1).to_string();
        let variables = [("FILE", path.to_str().unwrap()), ("ID", id.as_str())];
        let mut child = spawn("uses plain SQLite", &variables);
        let seen = child.await_word("saw ").unwrap();
        child.succeeds().unwrap();
        assert_eq!(seen, (round * 2 + 1).to_string(), "it sees what we acknowledged");
        assert_eq!(total(&db), round * 2 + 2, "we see what it committed");
    }
    db.close().unwrap();
    assert_eq!(markers::in_file(&path).unwrap(), (1..=10).collect());
}

/// The child: stock SQLite that reads for as long as its parent lets it.
pub(crate) fn read_for_long() -> anyhow::Result<()> {
    let connection = Connection::open(variable::<String>("FILE")?)?;
    connection.execute_batch("BEGIN; SELECT n FROM total")?;
    say("reads");
    await_parent();
    Ok(())
}

#[test]
fn a_shared_file_is_closed_beside_a_reader_of_another_process_without_waiting_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    markers::create(&db).unwrap();
    put(&db, 1);
    let mut reader = spawn("reads for long", &[("FILE", path.to_str().unwrap())]);
    reader.await_word("reads").unwrap();
    put(&db, 2);
    let start = Instant::now();
    db.close().unwrap();
    // It waited for the whole of SQLite's own patience, 5 s.
    assert!(start.elapsed() < Duration::from_millis(4_500), "{:?}", start.elapsed());
    reader.go_on();
    reader.succeeds().unwrap();
    assert_eq!(markers::in_file(&path).unwrap(), [1, 2].into());
}

#[test]
fn an_exclusive_file_stays_locked_although_its_own_process_closed_a_descriptor_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().sharing(Sharing::Exclusive).open(&path).unwrap();
    markers::create(&db).unwrap();
    put(&db, 1);
    drop(std::fs::File::open(&path).unwrap());
    let second = directory.path().join("db-shm");
    let inode = std::fs::metadata(&second).unwrap().ino();
    let held = format!("WRITE {} ", std::process::id());
    let is_ours = |line: &str| line.contains(&held) && line.contains(&format!(":{inode} 0 EOF"));
    // It is read in pieces, and a lock is passed over when one before it goes meanwhile.
    let locks = || std::fs::read_to_string("/proc/locks").unwrap();
    assert!((0..8).any(|_| locks().lines().any(is_ours)), "inode {inode} is not locked");
    put(&db, 2);
    // Nothing was checkpointed: what a second engine recovers, it destroys.
    let wal = directory.path().join("db-wal");
    let length = std::fs::metadata(&wal).unwrap().len();
    assert!(length > 0);
    let mut second_engine = spawn("opens it alone", &[("FILE", path.to_str().unwrap())]);
    let refusal = second_engine.await_word("refused ").unwrap();
    second_engine.succeeds().unwrap();
    assert!(refusal.starts_with("Overloaded"), "{refusal}");
    assert!(refusal.contains(&format!("pid {}", std::process::id())), "{refusal}");
    assert_eq!(std::fs::metadata(&wal).unwrap().len(), length, "it was left alone");
    put(&db, 3);
    db.close().unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(markers::in_file(&path).unwrap(), [1, 2, 3].into());
}

/// Plain connections to the file at `path`: one that keeps others from writing, and one on a thread
/// whose checkpoint waits for that, for a part of a second.
fn checkpointing(path: &Path) -> (Connection, JoinHandle<()>) {
    let open = || {
        let plain = Connection::open(path).unwrap();
        plain.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
        plain
    };
    let (writing, other) = (open(), open());
    writing.execute_batch("BEGIN IMMEDIATE").unwrap();
    let checkpoint = thread::spawn(move || {
        other.busy_timeout(Duration::from_millis(700)).unwrap();
        let answer = other.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        answer.unwrap();
    });
    thread::sleep(Duration::from_millis(100));
    (writing, checkpoint)
}

#[test]
fn a_checkpoint_waits_for_that_of_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v); INSERT INTO t VALUES (1)")).wait().unwrap();
    let (_writing, theirs) = checkpointing(&path);
    let done = db.checkpoint().wait().unwrap();
    assert!(done.pages_left < 100, "{done:?}");
    theirs.join().unwrap();
    db.close().unwrap();
}

#[test]
fn nothing_is_counted_as_recovered_while_another_program_makes_a_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let plain = Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(v)").unwrap();
    let (_writing, theirs) = checkpointing(&path);
    let db = Options::new().sharing(Sharing::Shared).open(&path).unwrap();
    assert!(!theirs.is_finished());
    assert_eq!(db.stats().wal_frames_recovered, 0);
    theirs.join().unwrap();
    db.close().unwrap();
}
