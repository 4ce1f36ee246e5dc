//! One file of a simulated disk: what of it is durable, and what was written since.
//!
//! # Algorithm
//! 1. A write or a change of size is *pending* once it was done, with a number.
//! 2. A sync takes the next number when it begins. When it has succeeded, every change below that
//!    number is part of the *durable* bytes.
//! 3. A sync that fails makes the changes below its number *abandoned*, as Linux does: the pages
//!    are called clean, so a later sync does not write them. A page that is written again is dirty
//!    as a whole, here by sectors: the next sync makes the whole sector durable, with whatever was
//!    abandoned in it. A change of size is metadata, which stays dirty or in the journal: the next
//!    sync that succeeds makes it durable, in its order.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::content::Content;

/// Bytes that a disk writes whole.
pub(super) const SECTOR: usize = 512;

#[derive(Clone, Debug)]
pub(super) enum What {
    Write { at: usize, data: Arc<[u8]> },
    Size(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) number: u64,
    pub(super) what: What,
    /// A sync of it failed; if it is a write, no later one will try again.
    abandoned: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Content,
    pub(super) pending: VecDeque<Change>,
    /// The number of the next change.
    next: u64,
    /// As a reader sees it.
    size: usize,
}

impl Inode {
    /// A file that is on disk with this content.
    pub(super) fn on_disk(content: Content) -> Inode {
        Inode { size: content.len(), durable: content, ..Inode::default() }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn note(&mut self, what: What) {
        self.size = match &what {
            What::Write { at, data } => self.size.max(at + data.len()),
            What::Size(size) => *size,
        };
        self.pending.push_back(Change { number: self.next, what, abandoned: false });
        self.next += 1;
    }

    /// What a sync that begins now will settle.
    pub(super) fn mark(&self) -> u64 {
        self.next
    }

    /// A sync that began at `mark` succeeded. Syncs may overlap.
    pub(super) fn settle(&mut self, mark: u64) {
        let count = self.pending.partition_point(|change| change.number < mark);
        let settled: Vec<Change> = self.pending.drain(..count).collect();
        let written = redirtied(&settled);
        let durable = &mut self.durable;
        let mut left: Vec<Change> = Vec::new();
        for change in settled {
            match &change.what {
                What::Size(size) => {
                    durable.resize(*size);
                    left.retain_mut(|earlier| earlier.survives_cut(*size));
                }
                What::Write { at, data } if !change.abandoned => durable.write(*at, data),
                What::Write { at, data } => {
                    for (sector, at, piece) in pieces(*at, data) {
                        if written.contains(&sector) {
                            durable.write(at, piece);
                        } else {
                            let what = What::Write { at, data: piece.into() };
                            left.push(Change { what, ..change.clone() });
                        }
                    }
                }
            }
        }
        for change in left.into_iter().rev() {
            self.pending.push_front(change);
        }
    }

    /// A sync that began at `mark` failed.
    pub(super) fn abandon(&mut self, mark: u64) {
        for change in self.pending.iter_mut().take_while(|change| change.number < mark) {
            change.abandoned = true;
        }
    }
}

impl Change {
    /// Whether it still counts once the file was durably cut to `size`.
    fn survives_cut(&self, size: usize) -> bool {
        match &self.what {
            What::Size(_) => false,
            What::Write { at, .. } => *at < size,
        }
    }
}

/// The sectors that were written and not abandoned, if anything was abandoned.
fn redirtied(changes: &[Change]) -> HashSet<usize> {
    if !changes.iter().any(|change| change.abandoned) {
        return HashSet::new();
    }
    let kept = changes.iter().filter(|change| !change.abandoned);
    let sectors = kept.filter_map(|change| match &change.what {
        What::Write { at, data } => Some(at / SECTOR..(at + data.len()).div_ceil(SECTOR)),
        What::Size(_) => None,
    });
    sectors.flatten().collect()
}

/// A write, cut at the borders of sectors: sector, place, bytes.
pub(super) fn pieces(at: usize, data: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let end = at + data.len();
    (at / SECTOR..end.div_ceil(SECTOR)).map(move |sector| {
        let (from, to) = ((sector * SECTOR).max(at), ((sector + 1) * SECTOR).min(end));
        (sector, from, &data[from - at..to - at])
    })
}
