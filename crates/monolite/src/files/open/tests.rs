//! Tests of what an open finds, opens and leaves behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use monolite_sqlite::wal::{FRAME_HEADER_BYTES, WAL_HEADER_BYTES};
use tempfile::TempDir;

use super::{Opened, RecoveredWal, open};
use crate::Database;
use crate::error::ErrorKind;
use crate::files::wal::wal_path;
use crate::options::{Durability, Options, Sharing};

/// Bytes of a page of a new database.
const PAGE_BYTES: u64 = 4_096;

fn options() -> Options {
    Options::new().readers(2)
}

fn opened(path: &Path) -> Opened {
    open(&options(), path, Duration::ZERO).unwrap()
}

/// A folder, and the path of a database in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    (directory, path)
}

fn write(database: &Opened, sql: &str) {
    database.writer.begin_immediate().unwrap();
    database.writer.execute_batch(sql).unwrap();
    database.writer.commit().unwrap();
}

fn count(database: &Opened) -> i64 {
    let reader = (database.open_reader)().unwrap();
    reader.connection.raw().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

/// Bytes of the WAL at `path` up to the end of its last frame; zeros follow that are no frame.
fn used_bytes(path: &Path) -> u64 {
    let last = fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let frame = FRAME_HEADER_BYTES + PAGE_BYTES;
    WAL_HEADER_BYTES + (last - WAL_HEADER_BYTES).div_ceil(frame) * frame
}

/// A file with one row, and the WAL with a second one, as a crash leaves them.
fn crashed() -> (TempDir, PathBuf) {
    let (_origin, from) = place();
    let (directory, path) = place();
    let database = opened(&from);
    write(&database, "CREATE TABLE t(v); INSERT INTO t VALUES (zeroblob(9000))");
    write(&database, "INSERT INTO t VALUES (zeroblob(9000))");
    fs::copy(&from, &path).unwrap();
    fs::copy(wal_path(&from), wal_path(&path)).unwrap();
    (directory, path)
}

#[test]
fn a_database_in_memory_is_not_synced_and_gone_at_its_end() {
    let database = opened(Path::new(":memory:"));
    assert_eq!(database.durability, Durability::Buffered);
    let path = PathBuf::from(database.writer.raw().path().unwrap());
    assert!(path.is_file());
    // Whose files are open yet.
    let Opened { files, writer, .. } = database;
    files.close().unwrap();
    drop(writer);
    assert!(!path.exists() && !path.parent().unwrap().exists());
}

#[test]
fn what_must_exist_is_not_created() {
    let (_directory, path) = place();
    let must = options().must_exist();
    let refused = |path: &Path| open(&must, path, Duration::ZERO).map(drop).unwrap_err();
    assert_eq!(refused(&path).kind(), ErrorKind::Storage);
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    assert!(refused(&path).to_string().contains("is empty"));
    drop(opened(&path));
    open(&must, &path, Duration::ZERO).map(drop).unwrap();
    open(&must, Path::new(":memory:"), Duration::ZERO).map(drop).unwrap();
}

#[test]
fn readers_do_not_write() {
    let (_directory, path) = place();
    let database = opened(&path);
    assert_eq!(database.durability, Durability::Synced);
    assert_eq!(database.recovered, RecoveredWal { frames: 0, discarded: 0 });
    write(&database, "CREATE TABLE t(v)");
    let reader = (database.open_reader)().unwrap();
    reader.connection.begin_read().unwrap();
    reader.connection.raw().query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
    assert!(reader.connection.execute_batch("INSERT INTO t VALUES (1)").is_err());
    reader.connection.rollback().unwrap();
}

#[test]
fn what_a_crash_left_is_in_the_file_before_anybody_reads_it() {
    let (_directory, path) = crashed();
    assert!(fs::metadata(wal_path(&path)).unwrap().len() > 0);
    let database = opened(&path);
    assert_eq!(fs::metadata(wal_path(&path)).unwrap().len(), 0);
    assert_eq!((count(&database), database.recovered.discarded), (2, 0));
}

#[test]
fn the_wal_is_emptied_only_behind_a_look_at_all_that_was_recovered() {
    let (_directory, path) = crashed();
    let wal = used_bytes(&wal_path(&path));
    let frames = (wal - WAL_HEADER_BYTES) / (FRAME_HEADER_BYTES + PAGE_BYTES);
    let database = opened(&path);
    assert_eq!(database.recovered, RecoveredWal { frames, discarded: 0 });
}

#[test]
fn no_connection_is_opened_to_another_file_that_came_to_the_path() {
    let (directory, path) = place();
    let database = opened(&path);
    drop((database.open_reader)().unwrap());
    fs::rename(&path, directory.path().join("away")).unwrap();
    assert_eq!((database.open_reader)().map(drop).unwrap_err().kind(), ErrorKind::Storage);
    fs::write(&path, "").unwrap();
    assert_eq!((database.open_reader)().map(drop).unwrap_err().kind(), ErrorKind::Storage);
    assert_eq!((database.pool.overlay)().map(drop).unwrap_err().kind(), ErrorKind::Storage);
}

#[test]
fn interactive_transactions_have_overlays_where_nobody_else_writes() {
    for (sharing, has_overlays) in [(Sharing::Exclusive, true), (Sharing::Shared, false)] {
        let (_directory, path) = place();
        let options = options().sharing(sharing);
        let database = open(&options, &path, Duration::ZERO).unwrap();
        write(&database, "CREATE TABLE t(v)");
        for _ in 0..2 {
            assert_eq!((database.pool.overlay)().unwrap().is_some(), has_overlays);
        }
        assert_eq!(database.is_exclusive, has_overlays);
        drop((database.pool.reader)().unwrap());
    }
}

#[test]
fn a_backup_beside_the_wal_of_a_crash_is_refused_and_both_stay() {
    let (directory, path) = crashed();
    let backup = directory.path().join("backup");
    let db = Database::open(directory.path().join("other")).unwrap();
    db.write(|tx| tx.execute_batch("CREATE TABLE t(v)")).wait().unwrap();
    db.backup(&backup).wait().unwrap();
    db.close().unwrap();
    fs::copy(&backup, &path).unwrap();
    let files = || [path.clone(), wal_path(&path)].map(|file| fs::read(file).unwrap());
    let before = files();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let refused = open(&options().sharing(sharing), &path, Duration::ZERO).map(drop);
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Storage);
        let text = error.to_string();
        assert!(text.contains(&format!("delete or move {}-wal", path.display())), "{text}");
    }
    let error = Options::new().check_file(&path).wait().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(files() == before, "a file was changed");
    fs::remove_file(wal_path(&path)).unwrap();
    assert_eq!(count(&opened(&path)), 0);
}
