//! The bytes of a file, in pieces that copies share until one of them changes: a crash is taken
//! and an image made of it for the price of what differs.
//!
//! # Invariants
//! - Every piece is whole, and zero from the end of the file on.
//! - A piece that two contents share is the same in both.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A few pages: a smaller one is dearer to share, a larger one to copy.
const PIECE: usize = 16 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pieces: Vec<Arc<[u8; PIECE]>>,
    len: usize,
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        let mut content = Content::default();
        content.write(0, &bytes);
        content
    }
}

impl Content {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes; the file grows as it must.
    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        self.resize(self.len.max(at + data.len()));
        self.change(at..at + data.len(), |piece, done| {
            piece.copy_from_slice(&data[done..done + piece.len()]);
        });
    }

    /// Makes these bytes, which are there, zero.
    pub(super) fn clear(&mut self, range: Range<usize>) {
        self.change(range, |piece, _| piece.fill(0));
    }

    /// Cuts the file, or extends it with zeros.
    pub(super) fn resize(&mut self, len: usize) {
        if len < self.len {
            let end = len.next_multiple_of(PIECE).min(self.len);
            self.clear(len..end);
        }
        self.pieces.resize_with(len.div_ceil(PIECE), || Arc::new([0; PIECE]));
        self.len = len;
    }

    /// Calls `change` with each part of `range` and its distance from the beginning of `range`.
    fn change(&mut self, range: Range<usize>, mut change: impl FnMut(&mut [u8], usize)) {
        let mut at = range.start;
        while at < range.end {
            let from = at % PIECE;
            let to = PIECE.min(from + range.end - at);
            change(&mut Arc::make_mut(&mut self.pieces[at / PIECE])[from..to], at - range.start);
            at += to - from;
        }
    }

    #[cfg(test)]
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes =
            self.pieces.iter().flat_map(|piece| piece.iter()).copied().collect::<Vec<_>>();
        bytes.truncate(self.len);
        bytes
    }

    /// Writes to a file that holds `before`, or anything if that is not known, what differs.
    pub(super) fn write_to(&self, file: &File, before: Option<&Content>) -> io::Result<()> {
        let is_there = |number: usize, piece: &Arc<[u8; PIECE]>| {
            let there = before.and_then(|before| before.pieces.get(number));
            there.is_some_and(|there| Arc::ptr_eq(there, piece))
        };
        for (number, piece) in self.pieces.iter().enumerate() {
            if !is_there(number, piece) {
                let at = number * PIECE;
                file.write_all_at(&piece[..PIECE.min(self.len - at)], at as u64)?;
            }
        }
        // What was cut off and is there again, as zeros or otherwise, is another piece.
        file.set_len(self.len as u64)
    }
}
