//! What a ring keeps, and what it says of commits of a real WAL.

use std::fs::File;

use monolite::archive::{Frames, WAL_HEADER_BYTES, WalPosition, WalReader};
use monolite::rusqlite::Connection;
use monolite_ltx::Txid;

use super::{Next, Ring, Seal};
use crate::streaming::MESSAGE_BYTES;

struct Bench {
    directory: tempfile::TempDir,
    writer: Connection,
    at: u64,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let writer = Connection::open(directory.path().join("db")).unwrap();
        let set = "PRAGMA auto_vacuum = FULL; PRAGMA journal_mode = WAL;
                   PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -100000";
        writer.execute_batch(set).unwrap();
        Bench { directory, writer, at: WAL_HEADER_BYTES }
    }

    /// What `sql` commits at the beginning of the next generation.
    fn restarted(&mut self, sql: &str) -> Frames {
        self.writer.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        self.at = WAL_HEADER_BYTES;
        self.commit(sql)
    }

    /// What `sql` commits.
    fn commit(&mut self, sql: &str) -> Frames {
        self.writer.execute_batch(sql).unwrap();
        let wal = File::open(self.directory.path().join("db-wal")).unwrap();
        let to = wal.metadata().unwrap().len();
        let frames = WalReader::open(wal).unwrap().unwrap().commits(self.at, to, u64::MAX).unwrap();
        self.at = to;
        frames
    }
}

fn at(offset: u64) -> WalPosition {
    WalPosition { generation: 1, offset }
}

/// A ring that has the first commit.
fn begun(bench: &mut Bench) -> Ring {
    let mut ring = Ring::default();
    ring.begins(1);
    ring.goes_on_from(at(WAL_HEADER_BYTES), 0);
    assert!(ring.keep(&bench.commit("CREATE TABLE t(id INTEGER PRIMARY KEY, v)"), 1, 2));
    ring
}

/// The numbers of the pages that come behind a position.
fn pages(ring: &Ring, from: u64) -> Option<Vec<u32>> {
    match ring.next(1, u64::MAX, at(from)) {
        Next::Part(part) => {
            let pages: Vec<u32> = part.pages.iter().map(|(pgno, _)| *pgno).collect();
            assert!(!pages.is_empty() && part.encode().len() <= MESSAGE_BYTES);
            Some(pages)
        }
        Next::Nothing => Some(Vec::new()),
        Next::Seal(_) | Next::Gone => None,
    }
}

#[test]
fn page_that_changes_again_is_sent_once_and_in_its_last_version() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    let first = bench.at;
    let mut last = Vec::new();
    for v in 0..50 {
        let frames = bench.commit(&format!("INSERT OR REPLACE INTO t VALUES (1, {v})"));
        last = frames.iter().last().unwrap().page.to_vec();
        assert!(ring.keep(&frames, 1, 2));
    }
    let Next::Part(part) = ring.next(1, 0, at(first)) else { panic!("there is a part") };
    assert_eq!(part.to(), at(bench.at));
    assert!(part.pages.len() == 1 && *part.pages[0].1 == last[..], "one page, as it is now");
    assert_eq!(pages(&ring, bench.at), Some(vec![]));
    assert!(pages(&ring, WAL_HEADER_BYTES).unwrap().len() > 1, "of the first commit, too");
}

#[test]
fn ring_is_bounded_and_says_from_where_on_it_has_all() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    let mut ends = Vec::new();
    for _ in 0..20 {
        ends.push(bench.at);
        assert!(ring.keep(&bench.commit("INSERT INTO t(v) VALUES (zeroblob(3000000))"), 1, 2));
    }
    assert!(pages(&ring, ends[0]).is_none() && pages(&ring, ends[8]).is_none());
    assert!(pages(&ring, ends[12]).unwrap().len() > 7 * 700);
    let large = bench.commit("INSERT INTO t(v) VALUES (zeroblob(40000000))");
    assert!(ring.keep(&large, 1, 2));
    assert!(pages(&ring, ends[19]).is_none(), "it goes by the archive");
    assert_eq!(pages(&ring, bench.at), Some(vec![]));
}

#[test]
fn pages_behind_the_end_are_left_out_and_new_ones_must_be_there() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    let first = bench.at;
    assert!(ring.keep(&bench.commit("INSERT INTO t(v) VALUES (zeroblob(300000))"), 1, 2));
    let shrunk = bench.commit("DELETE FROM t");
    let size = shrunk.commit();
    assert!(ring.keep(&shrunk, 1, 2));
    assert!(pages(&ring, first).unwrap().iter().all(|pgno| *pgno <= size));
    let grown = bench.commit("INSERT INTO t(v) VALUES (zeroblob(300000))");
    let later = bench.commit("INSERT INTO t(v) VALUES (1)");
    assert!(grown.commit() > size && !ring.keep(&later, 1, 2), "there are pages that it lacks");
}

#[test]
#[should_panic(expected = "archived by the TXID")]
fn part_that_is_archived_later_than_it_says_is_noticed() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    ring.seals(Seal { txid: Txid::new(3).unwrap(), at: at(bench.at), pages: 2 });
}

#[test]
fn part_that_is_kept_behind_its_slot_is_compared_with_that_slot() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    let frames = bench.commit("INSERT INTO t VALUES (1, 1)");
    let seal = |txid| Seal { txid: Txid::new(txid).unwrap(), at: at(bench.at), pages: 2 };
    ring.seals(seal(2));
    assert!(ring.keep(&frames, 1, 2));
    ring.seals(seal(3));
}

#[test]
fn part_names_the_generations_that_it_passes_over() {
    let mut bench = Bench::new();
    let mut ring = begun(&mut bench);
    let (first, salts) = (bench.at, ring.end().unwrap().1);
    let later = bench.restarted("INSERT INTO t VALUES (1, 1)");
    assert!(ring.keep(&later, 2, 3));
    let Next::Part(part) = ring.next(1, 0, at(first)) else { panic!("there is a part") };
    assert_eq!(part.part.generations, [(1, salts), (2, later.salts())]);
    let Next::Part(part) = ring.next(1, 0, WalPosition { generation: 2, offset: 32 }) else {
        panic!("there is a part")
    };
    assert_eq!(part.part.generations, [(2, later.salts())]);
}
