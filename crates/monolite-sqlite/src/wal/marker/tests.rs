//! Commits with markers, beside stock SQLite.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::*;
use crate::vfs::{Direct, IoError, Lower, Vfs, append};

/// A file to which the states of another one are appended.
struct Bench {
    _vfs: Vfs,
    ours: Connection,
    stock: Connection,
    directory: TempDir,
}

/// Databases that grow by a page and by several, and shrink, of 512-byte pages.
fn states(directory: &Path) -> Vec<Vec<u8>> {
    let path = directory.join("source");
    let source = Connection::open(&path).unwrap();
    let begin = "PRAGMA page_size = 512; PRAGMA auto_vacuum = FULL; CREATE TABLE t(v);
                 PRAGMA journal_mode = WAL";
    source.execute_batch(begin).unwrap();
    let insert = "INSERT INTO t VALUES (randomblob(450))";
    let many = "INSERT INTO t SELECT randomblob(450) FROM t";
    let one = "DELETE FROM t WHERE rowid = (SELECT max(rowid) FROM t)";
    let half = "DELETE FROM t WHERE rowid > (SELECT max(rowid) / 2 FROM t)";
    let steps =
        ["", insert, insert, many, many, many, one, half, insert, insert, many, half, half, many];
    let state = |sql: &&str| {
        source.execute_batch(sql).unwrap();
        source.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        fs::read(&path).unwrap()
    };
    steps.iter().map(state).collect()
}

impl Bench {
    fn new(first: &[u8]) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        fs::write(&path, first).unwrap();
        let vfs = Vfs::register(Lower::Unix, Arc::new(Direct::new(Arc::default()))).unwrap();
        let flags = OpenFlags::default();
        let ours = Connection::open_with_flags_and_vfs(&path, flags, vfs.name()).unwrap();
        let stock = Connection::open_with_flags_and_vfs(&path, flags, "unix").unwrap();
        for connection in [&ours, &stock] {
            connection.execute_batch("PRAGMA wal_autocheckpoint = 0; SELECT * FROM t").unwrap();
        }
        Bench { _vfs: vfs, ours, stock, directory }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.path().join(format!("db{ending}"))
    }

    /// Appends the pages that differ between two states, and those that are new.
    fn append(&self, before: &[u8], after: &[u8], marker: &[u8]) -> Result<u32, IoError> {
        let pages = after.len() / 512;
        append(&self.ours, pages as u32, None, Some(marker), &mut |take| {
            let old: Vec<&[u8]> = before.chunks(512).collect();
            for (at, page) in after.chunks(512).enumerate() {
                if old.get(at) != Some(&page) {
                    take(at as u32 + 1, page)?;
                }
            }
            Ok(())
        })
    }

    fn marker(&self) -> Option<Vec<u8>> {
        let wal = WalReader::open(File::open(self.file("-wal")).unwrap()).unwrap().unwrap();
        let mut end = wal.end_of(0);
        while let Ok(next) = wal.commits(end, wal.end_of(u64::from(u32::MAX)), 1) {
            end = next.to();
        }
        wal.marker(end).unwrap()
    }

    fn sound(&self) -> i64 {
        let sound: String =
            self.stock.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        self.stock.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    /// As a checkpoint of stock SQLite; whether all of the WAL was copied.
    fn checkpoint(&self, how: &str) -> bool {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        let (all, copied): (i64, i64) = self.stock.query_row(&sql, [], row).unwrap();
        all == copied
    }
}

#[test]
fn marker_is_of_its_commit_and_of_no_page() {
    let directory = tempfile::tempdir().unwrap();
    let states = states(directory.path());
    let sizes: Vec<usize> = states.iter().map(|state| state.len() / 512).collect();
    let steps = || sizes.windows(2).map(|pair| pair[1] as i64 - pair[0] as i64);
    assert!(steps().any(|by| by == 1) && steps().any(|by| by > 1) && steps().any(|by| by < 0));
    for every in 1..=3 {
        let bench = Bench::new(&states[0]);
        let old = Connection::open(bench.file("")).unwrap();
        for (at, pair) in states.windows(2).enumerate() {
            let marker = format!("commit {at}");
            bench.append(&pair[0], &pair[1], marker.as_bytes()).unwrap();
            assert_eq!(bench.marker().unwrap(), marker.as_bytes());
            let rows = bench.sound();
            if at % 4 == 0 {
                // Keeps what comes from the file.
                let _ = old.execute_batch("COMMIT");
                old.execute_batch("BEGIN").unwrap();
                let seen: i64 =
                    old.query_row("SELECT count(*) FROM t", [], |it| it.get(0)).unwrap();
                assert_eq!(seen, rows);
            }
            if at % every == 0 {
                let copied = bench.checkpoint("PASSIVE");
                assert!(copied || at % 4 > 0);
                assert_eq!(bench.sound(), rows);
                assert!(!copied || fs::read(bench.file("")).unwrap() == pair[1], "{every} {at}");
            }
        }
        old.execute_batch("COMMIT").unwrap();
        assert!(bench.checkpoint("TRUNCATE"));
        assert!(fs::read(bench.file("")).unwrap() == *states.last().unwrap(), "{every}");
    }
}

#[test]
fn commits_of_others_have_no_marker() {
    let directory = tempfile::tempdir().unwrap();
    let states = states(directory.path());
    let bench = Bench::new(&states[0]);
    bench.append(&states[0], &states[1], b"ours").unwrap();
    assert_eq!(bench.marker().as_deref(), Some(&b"ours"[..]));
    bench.stock.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(bench.marker(), None);
    let wal = WalReader::open(File::open(bench.file("-wal")).unwrap()).unwrap().unwrap();
    assert_eq!(wal.marker(wal.end_of(0)).unwrap(), None);
    assert!(wal.marker(wal.end_of(1)).is_err(), "no commit ends there");
    let longest = [7; 512 - MARKER_BYTES];
    assert_eq!(bench.append(&states[1], &states[2], &[7; 512]), Err(IoError::DATA));
    bench.append(&states[1], &states[2], &longest).unwrap();
    assert_eq!(bench.marker().as_deref(), Some(&longest[..]));
}
