//! Owns the reading of commits from a WAL file, for who keeps them elsewhere.
//!
//! # Invariants
//! - What is given is whole commits, and each frame has the salts of the file's header and the sum
//!   that goes on from the frame before it: neither an older generation's frames nor damaged ones
//!   are ever given.
//!
//! # Not here
//! Whether a commit is one: its frame may be in the file although its transaction was rolled back
//! (see [`Gather`](crate::vfs::Gather)). Who reads says up to where.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::{
    FRAME_HEADER_BYTES, WAL_HEADER_BYTES, is_summed, number_at, order_of, page_bytes_of_wal,
    read_whole, salts_at, sums_at,
};
use crate::fletcher::{Order, Sums};

/// How much is read or copied at once.
const PIECE_BYTES: usize = 1 << 20;

const FRAME_HEADER: usize = FRAME_HEADER_BYTES as usize;

/// A WAL file of one generation, to be read.
#[derive(Debug)]
pub struct WalReader {
    file: File,
    header: [u8; WAL_HEADER_BYTES as usize],
    order: Order,
    page_bytes: usize,
}

/// Whole commits of a WAL, in their order.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    frame_bytes: usize,
    salts: [u32; 2],
    from: u64,
}

/// One page as a commit has it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'f> {
    /// The page's number, from 1 on.
    pub pgno: u32,
    /// Size of the database in pages, in the last frame of a commit; otherwise 0.
    pub commit: u32,
    /// The page.
    pub page: &'f [u8],
}

impl WalReader {
    /// Reads the header of `file`; `None` when it has none that is right, as one without commits.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn open(file: File) -> io::Result<Option<WalReader>> {
        let mut header = [0; WAL_HEADER_BYTES as usize];
        if !read_whole(&file, &mut header, 0)? || !is_summed(&header) {
            return Ok(None);
        }
        let (order, page_bytes) = (order_of(&header), page_bytes_of_wal(&header));
        Ok(page_bytes.map(|page_bytes| WalReader { file, header, order, page_bytes }))
    }

    /// What tells this generation of the WAL from others.
    pub fn salts(&self) -> [u32; 2] {
        salts_at(&self.header, 16)
    }

    /// Size of the database's pages in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn frame_bytes(&self) -> usize {
        FRAME_HEADER + self.page_bytes
    }

    /// Where the frame of this number, from 1 on, ends in the file; for 0 where the first begins.
    pub fn end_of(&self, frames: u64) -> u64 {
        WAL_HEADER_BYTES + frames * self.frame_bytes() as u64
    }

    /// The sums over everything before `from`.
    fn sums_before(&self, from: u64) -> io::Result<Sums> {
        if from == WAL_HEADER_BYTES {
            return Ok(sums_at(&self.header, 24));
        }
        let mut before = [0; FRAME_HEADER];
        let at = from.checked_sub(self.frame_bytes() as u64);
        let at = at.ok_or_else(|| damaged(from, "no frame begins there"))?;
        if !read_whole(&self.file, &mut before, at)? || salts_at(&before, 8) != self.salts() {
            return Err(damaged(at, "the frame is not there"));
        }
        Ok(sums_at(&before, 16))
    }

    /// Whether the frame at `at` is the last one of a commit, by what it says.
    pub(super) fn is_commit(&self, at: u64) -> io::Result<bool> {
        let mut header = [0; FRAME_HEADER];
        if !read_whole(&self.file, &mut header, at)? {
            return Err(damaged(at, "the file ends before"));
        }
        Ok(number_at(&header, 4) != 0)
    }

    fn check_place(&self, at: u64) -> io::Result<()> {
        let behind = at.checked_sub(WAL_HEADER_BYTES);
        if behind.is_none_or(|behind| !behind.is_multiple_of(self.frame_bytes() as u64)) {
            return Err(damaged(at, "no frame begins there"));
        }
        Ok(())
    }

    /// The commits between two places, of which the second is the end of one: those that fit in
    /// `most` bytes, or the first one if that does not.
    ///
    /// # Errors
    /// Those of reading the file; `InvalidData` when a frame is not right, or the last one ends no
    /// commit.
    pub fn commits(&self, from: u64, to: u64, most: u64) -> io::Result<Frames> {
        self.check_place(from)?;
        self.check_place(to)?;
        let mut sums = self.sums_before(from)?;
        let frame_bytes = self.frame_bytes();
        let (mut bytes, mut at, mut end) = (Vec::new(), from, 0);
        while at < to {
            let start = bytes.len();
            bytes.resize(start + frame_bytes, 0);
            let frame = &mut bytes[start..];
            if !read_whole(&self.file, frame, at)? {
                return Err(damaged(at, "the file ends before"));
            }
            sums = self.follow(frame, sums, at)?;
            at += frame_bytes as u64;
            let is_commit = number_at(frame, 4) != 0;
            if is_commit && (end == 0 || bytes.len() as u64 <= most) {
                end = bytes.len();
            }
            if end > 0 && bytes.len() as u64 > most {
                break;
            }
        }
        if end < bytes.len() && at >= to && bytes.len() as u64 <= most || end == 0 && to > from {
            return Err(damaged(to, "no commit ends there"));
        }
        bytes.truncate(end);
        assert!(bytes.len().is_multiple_of(frame_bytes), "frames are read whole");
        Ok(Frames { bytes, frame_bytes, salts: self.salts(), from })
    }

    /// The sums up to the end of a frame, whose own must be these.
    fn follow(&self, frame: &[u8], sums: Sums, at: u64) -> io::Result<Sums> {
        let (header, page) = frame.split_at(FRAME_HEADER);
        let sums = sums.over(&header[..8], self.order).over(page, self.order);
        if salts_at(header, 8) != self.salts() || sums != sums_at(header, 16) {
            return Err(damaged(at, "the frame's sum is wrong"));
        }
        Ok(sums)
    }

    /// Copies what lies between two places into an empty file, where it can be read as it can be
    /// here: the header, and those frames in their places. Nothing is synced.
    ///
    /// # Errors
    /// Those of reading and writing the files; `InvalidData` when a frame is not right.
    pub fn copy(&self, from: u64, to: u64, into: &File) -> io::Result<()> {
        self.check_place(from)?;
        self.check_place(to)?;
        let mut sums = self.sums_before(from)?;
        into.write_all_at(&self.header, 0)?;
        if from > WAL_HEADER_BYTES {
            let mut before = [0; FRAME_HEADER];
            let at = from - self.frame_bytes() as u64;
            self.file.read_exact_at(&mut before, at)?;
            into.write_all_at(&before, at)?;
        }
        let at_once = (PIECE_BYTES / self.frame_bytes()).max(1) * self.frame_bytes();
        let mut piece = vec![0; at_once];
        let mut at = from;
        while at < to {
            let len = at_once.min(usize::try_from(to - at).unwrap_or(usize::MAX));
            if !read_whole(&self.file, &mut piece[..len], at)? {
                return Err(damaged(at, "the file ends before"));
            }
            for frame in piece[..len].chunks_exact(self.frame_bytes()) {
                sums = self.follow(frame, sums, at)?;
            }
            into.write_all_at(&piece[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }
}

impl Frames {
    /// What tells their generation of the WAL from others.
    pub fn salts(&self) -> [u32; 2] {
        self.salts
    }

    /// Where the first one begins in the file.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Where the last one ends.
    pub fn to(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    /// Size of the database's pages in bytes.
    pub fn page_bytes(&self) -> usize {
        self.frame_bytes - FRAME_HEADER
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        self.bytes.chunks_exact(self.frame_bytes).map(|frame| {
            let (header, page) = frame.split_at(FRAME_HEADER);
            Frame { pgno: number_at(header, 0), commit: number_at(header, 4), page }
        })
    }

    /// Size of the database in pages behind the last commit; 0 when there is none.
    pub fn commit(&self) -> u32 {
        self.iter().last().map_or(0, |frame| frame.commit)
    }
}

fn damaged(at: u64, how: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the WAL at byte {at}: {how}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io;
    use std::os::unix::fs::FileExt as _;

    use rusqlite::Connection;
    use tempfile::TempDir;

    use super::WalReader;

    struct Bench {
        directory: TempDir,
        writer: Connection,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let writer = Connection::open(directory.path().join("db")).unwrap();
            writer
                .execute_batch(
                    "PRAGMA page_size = 512; PRAGMA journal_mode = WAL; \
                     PRAGMA wal_autocheckpoint = 0; CREATE TABLE t(v)",
                )
                .unwrap();
            Bench { directory, writer }
        }

        fn insert(&self, bytes: u32) -> u64 {
            self.writer.execute("INSERT INTO t VALUES (randomblob(?1))", [bytes]).unwrap();
            fs::metadata(self.wal()).unwrap().len()
        }

        fn wal(&self) -> std::path::PathBuf {
            self.directory.path().join("db-wal")
        }

        fn reader(&self) -> WalReader {
            WalReader::open(File::open(self.wal()).unwrap()).unwrap().unwrap()
        }
    }

    #[test]
    fn commits_are_whole_and_within_what_was_asked_for() {
        let bench = Bench::new();
        let ends = [bench.insert(100), bench.insert(5_000), bench.insert(100)];
        let reader = bench.reader();
        let all = reader.commits(32, ends[2], u64::MAX).unwrap();
        assert_eq!((all.from(), all.to(), all.page_bytes()), (32, ends[2], 512));
        assert_eq!(all.commit(), all.iter().last().unwrap().commit);
        assert!(all.iter().all(|frame| frame.page.len() == 512 && frame.pgno > 0));
        assert_eq!(reader.commits(ends[0], ends[2], u64::MAX).unwrap().to(), ends[2]);
        assert_eq!(reader.commits(32, ends[2], ends[1]).unwrap().to(), ends[1]);
        let first = reader.commits(ends[0], ends[2], 1).unwrap();
        assert_eq!(first.to(), ends[1], "a commit is never split");
        assert_eq!(reader.commits(ends[1], ends[1], 1).unwrap().iter().count(), 0);
        let within = reader.commits(ends[0], ends[1] - 536, u64::MAX).unwrap_err();
        assert_eq!(within.kind(), io::ErrorKind::InvalidData, "{within}");
        assert!(reader.commits(40, ends[0], 1).is_err());
    }

    #[test]
    fn a_copy_of_a_part_reads_as_the_original() {
        let bench = Bench::new();
        let (from, to) = (bench.insert(100), bench.insert(5_000));
        let path = bench.directory.path().join("copy");
        let file = File::create(&path).unwrap();
        bench.reader().copy(from, to, &file).unwrap();
        let copy = WalReader::open(File::open(&path).unwrap()).unwrap().unwrap();
        assert_eq!(copy.salts(), bench.reader().salts());
        let there = copy.commits(from, to, u64::MAX).unwrap();
        assert_eq!(there.bytes, bench.reader().commits(from, to, u64::MAX).unwrap().bytes);
        assert!(copy.commits(32, to, u64::MAX).is_err(), "what is before was not copied");
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let bench = Bench::new();
        let (from, to) = (bench.insert(100), bench.insert(700));
        let file = File::options().read(true).write(true).open(bench.wal()).unwrap();
        for at in (from..to).step_by(7) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            let error = bench.reader().commits(from, to, u64::MAX).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{at}: {error}");
            file.write_all_at(&byte, at).unwrap();
        }
        assert!(bench.reader().commits(from, to, u64::MAX).is_ok());
    }

    #[test]
    fn frames_of_an_older_generation_are_none() {
        let bench = Bench::new();
        let end = bench.insert(5_000);
        bench.writer.execute_batch("PRAGMA wal_checkpoint(RESTART)").unwrap();
        let before = bench.reader().salts();
        bench.insert(10);
        let reader = bench.reader();
        assert_ne!(reader.salts(), before);
        assert!(reader.commits(32, end, u64::MAX).is_err());
    }
}
