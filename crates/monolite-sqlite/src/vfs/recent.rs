//! Owns a copy of the WAL frames that were written last: most reads of a page from the WAL are of
//! one that has just been committed, and become a copy within the process instead of a system call.
//!
//! # Algorithm
//! What a [`Gather`](super::Gather) has flushed is kept as one *piece*: a range of the file and its
//! bytes. The pieces follow one another in the file, with gaps where something was written past the
//! gather; the oldest goes when they have more than their [`share`] together. A read that lies in
//! one piece is answered from it, and any other by the file. The memory of a large piece that is
//! forgotten serves the next one: fresh memory costs as much again as the copy.
//!
//! A WAL has [`RECENT_BYTES`], or an equal share of [`PROCESS_BYTES`] among those that keep pieces
//! when that is less. One that does not write keeps what it has until its database rests.
//!
//! # Invariants
//! - A piece is byte for byte what its range of the file has. Before anything is written or cut
//!   off, the pieces that end behind that place are forgotten; a piece is kept once its write has
//!   succeeded. This holds only while no other process writes to the WAL.
//! - Who may still read a frame is decided as without this module, by locks and pins: a piece that
//!   is read while it is forgotten is a frame that is read while it is overwritten.
//!
//! # Threads and locks
//! The lock is held to look a piece up and to change the list; bytes are copied without it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::locked::locked;

/// What the pieces have together at most. At the highest rate of commits that was measured, 25,000
/// frames a second, that is the last 80 milliseconds.
const RECENT_BYTES: usize = 8 << 20;

/// What all WALs of the process have together at most: four at the highest rate. Many that are
/// written in turn commit less each.
const PROCESS_BYTES: usize = 4 * RECENT_BYTES;

/// How many WALs keep pieces.
static KEEPERS: AtomicUsize = AtomicUsize::new(0);

/// What a WAL may keep while `keepers` of the process keep something.
fn share(keepers: usize) -> usize {
    RECENT_BYTES.min(PROCESS_BYTES / keepers.max(1))
}

/// Larger commits are not kept: they are loads, and the next one would take their place.
fn most_of_a_piece(share: usize) -> usize {
    share / 4
}

/// Smaller pieces come from memory that the allocator has at hand.
const LARGE_BYTES: usize = 64 << 10;

/// The frames that were written last.
#[derive(Debug)]
pub(super) struct RecentFrames {
    pieces: Mutex<Pieces>,
    keepers: &'static AtomicUsize,
}

impl Default for RecentFrames {
    fn default() -> RecentFrames {
        RecentFrames { pieces: Mutex::default(), keepers: &KEEPERS }
    }
}

impl Drop for RecentFrames {
    fn drop(&mut self) {
        self.clear();
    }
}

/// In the order of their places in the file.
#[derive(Debug, Default)]
struct Pieces {
    kept: VecDeque<Piece>,
    bytes: usize,
    /// Memory of large pieces that were forgotten, no more of it than pieces may have.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
    /// Whether it is one of those that are counted.
    is_keeper: bool,
}

#[derive(Clone, Debug)]
struct Piece {
    at: u64,
    bytes: Arc<Vec<u8>>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl Pieces {
    /// Memory for a piece of `len` bytes: as much, or a spare one of less than twice as much.
    fn take_spare(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |spare: &Vec<u8>| (len..len * 2).contains(&spare.capacity());
        let spare = self.spare.swap_remove(self.spare.iter().rposition(fits)?);
        assert!(self.spare_bytes >= spare.capacity(), "spare memory is counted");
        self.spare_bytes -= spare.capacity();
        Some(spare)
    }

    /// What is left of `piece` when no reader uses it any more: nothing, if its memory is kept.
    fn recycle(&mut self, piece: Piece, share: usize) -> Option<Vec<u8>> {
        assert!(self.bytes >= piece.bytes.capacity(), "the bytes of pieces are counted");
        self.bytes -= piece.bytes.capacity();
        let memory = Arc::into_inner(piece.bytes)?;
        let bytes = memory.capacity();
        if bytes < LARGE_BYTES || self.spare_bytes + bytes > share {
            return Some(memory);
        }
        self.spare_bytes += bytes;
        self.spare.push(memory);
        None
    }
}

impl RecentFrames {
    fn share(&self) -> usize {
        share(self.keepers.load(Relaxed))
    }

    /// Keeps what was written at `at`, where [`RecentFrames::forget`] was called before.
    pub(super) fn keep(&self, frames: &[u8], at: u64) {
        let share = self.share();
        if frames.len() > most_of_a_piece(share) {
            return;
        }
        let spare = locked(&self.pieces).take_spare(frames.len());
        let mut memory = spare.unwrap_or_else(|| Vec::with_capacity(frames.len()));
        memory.clear();
        memory.extend_from_slice(frames);
        let mut oldest = Vec::new();
        let mut pieces = locked(&self.pieces);
        let is_behind = pieces.kept.back().is_none_or(|last| last.end() <= at);
        assert!(is_behind, "pieces are in the order of their places");
        if !std::mem::replace(&mut pieces.is_keeper, true) {
            self.keepers.fetch_add(1, Relaxed);
        }
        pieces.bytes += memory.capacity();
        pieces.kept.push_back(Piece { at, bytes: Arc::new(memory) });
        while pieces.bytes > share {
            let Some(piece) = pieces.kept.pop_front() else { break };
            oldest.extend(pieces.recycle(piece, share));
        }
        assert!(pieces.bytes <= share, "frames are kept within their limit");
        if pieces.spare_bytes > share {
            // The share has become smaller.
            pieces.spare_bytes = 0;
            oldest.append(&mut pieces.spare);
        }
    }

    /// Forgets what is in the file at `at` and behind it.
    pub(super) fn forget(&self, at: u64) {
        let mut pieces = locked(&self.pieces);
        let stays = pieces.kept.partition_point(|piece| piece.end() <= at);
        let gone = pieces.kept.split_off(stays);
        let share = self.share();
        let recycled = gone.into_iter().filter_map(|piece| pieces.recycle(piece, share));
        let left: Vec<_> = recycled.collect();
        drop(pieces);
        drop(left);
    }

    /// Forgets everything, and gives its memory back.
    pub(super) fn clear(&self) {
        let pieces = std::mem::take(&mut *locked(&self.pieces));
        if pieces.is_keeper {
            let keepers = self.keepers.fetch_sub(1, Relaxed);
            assert!(keepers > 0, "those that keep pieces are counted");
        }
    }

    /// Fills `buf` with what the file has at `at`; `false`, and `buf` is as it was, when that is
    /// not known here.
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> bool {
        let piece = {
            let pieces = locked(&self.pieces);
            let behind = pieces.kept.partition_point(|piece| piece.at <= at);
            behind.checked_sub(1).map(|last| pieces.kept[last].clone())
        };
        let Some(piece) = piece else { return false };
        let from = (at - piece.at) as usize;
        let Some(found) = piece.bytes.get(from..from + buf.len()) else { return false };
        buf.copy_from_slice(found);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = RECENT_BYTES / 4;

    /// A WAL of a process of its own.
    fn alone() -> RecentFrames {
        of(Box::leak(Box::default()))
    }

    /// One of the process that counts in `keepers`.
    fn of(keepers: &'static AtomicUsize) -> RecentFrames {
        RecentFrames { pieces: Mutex::default(), keepers }
    }

    /// What is found of the bytes in `place`.
    fn read(recent: &RecentFrames, place: std::ops::Range<u64>) -> Option<Vec<u8>> {
        let mut buf = vec![0; (place.end - place.start) as usize];
        recent.read(&mut buf, place.start).then_some(buf)
    }

    #[test]
    fn only_what_lies_in_one_piece_is_found() {
        let recent = alone();
        recent.keep(&[1, 2, 3, 4], 100);
        recent.keep(&[5, 6], 104);
        recent.keep(&[7], 200);
        assert_eq!(read(&recent, 101..103), Some(vec![2, 3]));
        assert_eq!(read(&recent, 100..104), Some(vec![1, 2, 3, 4]));
        assert_eq!(read(&recent, 104..106), Some(vec![5, 6]));
        assert_eq!(read(&recent, 200..201), Some(vec![7]));
        for place in [99..101, 103..105, 106..107, 200..202, 0..4] {
            assert_eq!(read(&recent, place.clone()), None, "{place:?}");
        }
    }

    #[test]
    fn everything_behind_a_change_is_forgotten() {
        let kept = |at| {
            let recent = alone();
            (0..4).for_each(|n| recent.keep(&[n; 10], u64::from(n) * 10));
            recent.forget(at);
            let pieces = locked(&recent.pieces);
            assert_eq!(pieces.bytes, pieces.kept.len() * 10);
            drop(pieces);
            (0..4).take_while(|n| read(&recent, n * 10..n * 10 + 10).is_some()).count()
        };
        assert_eq!([0, 1, 10, 19, 20, 39, 40].map(kept), [0, 0, 1, 1, 2, 3, 4]);
    }

    #[test]
    fn the_oldest_piece_goes_first_and_a_load_is_not_kept() {
        let recent = alone();
        let piece = vec![1; PIECE];
        let at = |n: usize| (n * PIECE) as u64;
        (0..5).for_each(|n| recent.keep(&piece, at(n)));
        recent.keep(&vec![1; PIECE + 1], at(5));
        let found: Vec<_> =
            (0..6).filter(|n| read(&recent, at(*n)..at(*n) + 1).is_some()).collect();
        assert_eq!(found, [1, 2, 3, 4]);
        assert_eq!(locked(&recent.pieces).bytes, RECENT_BYTES);
    }

    #[test]
    fn nothing_is_found_and_no_memory_kept_after_all_is_forgotten() {
        let recent = alone();
        let piece = vec![1; PIECE];
        recent.keep(&piece, 0);
        recent.forget(0);
        recent.keep(&[1; 10], 0);
        assert!(!locked(&recent.pieces).spare.is_empty());
        recent.clear();
        assert_eq!(read(&recent, 0..1), None);
        let pieces = locked(&recent.pieces);
        assert_eq!((pieces.bytes, pieces.spare_bytes), (0, 0));
        assert!(pieces.kept.is_empty() && pieces.spare.is_empty());
        drop(pieces);
        recent.keep(&[2; 10], 0);
        assert_eq!(read(&recent, 0..1), Some(vec![2]));
    }

    #[test]
    fn memory_is_used_again_and_never_what_somebody_reads() {
        let recent = alone();
        let len = |n: usize| LARGE_BYTES + n * 1_000 % LARGE_BYTES;
        let fill = |n: usize| vec![n as u8; len(n)];
        let mut at = 0;
        let mut read = Vec::new();
        let mut bytes = 0;
        for n in 0..1_000 {
            if n % 150 == 149 {
                at = 0;
                recent.forget(at);
            }
            recent.keep(&fill(n), at);
            at += len(n) as u64;
            let pieces = locked(&recent.pieces);
            if n % 10 == 0 {
                read.push((n, pieces.kept.back().unwrap().clone()));
            }
            bytes = bytes.max(pieces.bytes.max(pieces.spare_bytes));
            let of = |all: &[Vec<u8>]| all.iter().map(Vec::capacity).sum::<usize>();
            assert_eq!(pieces.spare_bytes, of(&pieces.spare));
            let kept = pieces.kept.iter().map(|piece| piece.bytes.capacity()).sum::<usize>();
            assert_eq!(pieces.bytes, kept);
        }
        assert!(read.iter().all(|(n, piece)| *piece.bytes == fill(*n)));
        assert!(bytes <= RECENT_BYTES, "{bytes}");
        assert!(!locked(&recent.pieces).spare.is_empty());
    }

    #[test]
    fn many_wals_keep_no_more_than_the_process_may() {
        let keepers: &'static AtomicUsize = Box::leak(Box::default());
        let wals: Vec<_> = (0..64).map(|_| of(keepers)).collect();
        let bytes = |wal: &RecentFrames| {
            let pieces = locked(&wal.pieces);
            pieces.bytes + pieces.spare_bytes
        };
        let write = |wal: &RecentFrames| {
            wal.forget(0);
            (0..200).for_each(|n| wal.keep(&[1; LARGE_BYTES], n * LARGE_BYTES as u64));
        };
        write(&wals[0]);
        assert!(bytes(&wals[0]) >= RECENT_BYTES);
        (0..2).for_each(|_| wals.iter().for_each(write));
        let kept = wals.iter().map(bytes).sum::<usize>();
        assert!((PROCESS_BYTES / 2..=2 * PROCESS_BYTES).contains(&kept), "{kept}");
        assert_eq!(
            wals.iter().filter(|wal| read(wal, 199 * 65_536..199 * 65_536 + 9).is_some()).count(),
            64
        );
        wals[1..].iter().for_each(RecentFrames::clear);
        write(&wals[0]);
        assert!(bytes(&wals[0]) >= RECENT_BYTES);
        drop(wals);
        assert_eq!(keepers.load(Relaxed), 0);
    }
}
