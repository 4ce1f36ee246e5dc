//! Owns what is kept for followers that stream: of each page that has changed, the last version.
//!
//! # Algorithm
//! 1. Commits come in pieces that join without a gap. Each page of one replaces the version that is
//!    there, and is noted at the end of its piece.
//! 2. A follower gets one [`Part`] of all pages that are noted behind where it is. So one that is
//!    slow gets fewer pages than were written, and never has to wait for those it does not need.
//! 3. Beyond [`MESSAGE_BYTES`] the oldest page goes, and with it the followers that need it.
//!
//! # Invariants
//! - All pages that have changed between `from` and `read` are there.
//! - What a part has is archived by its bound: checked at the end of the slot.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use monolite::archive::{Frames, WalPosition};
use monolite_ltx::{PageSize, Txid};

use crate::streaming::{MESSAGE_BYTES, Message, Part};

/// How many seals are kept.
const SEALS: usize = 256;

/// How many bounds are kept.
const BOUNDS: usize = 4096;

/// What a page takes in memory beside itself.
const ENTRY_BYTES: usize = 64;

/// The end of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    pub(super) txid: Txid,
    pub(super) at: WalPosition,
    /// Size of the database in pages.
    pub(super) pages: u32,
}

impl Seal {
    /// Of a part that this slot has first.
    fn must_be_within(self, bound: u64) {
        debug_assert!(self.txid.get() <= bound, "a part is archived by the TXID that it has");
    }
}

/// What a follower gets next.
pub(super) enum Next {
    Part(Changes),
    Seal(Seal),
    Nothing,
    Gone,
}

/// A part whose pages are not put together yet.
pub(super) struct Changes {
    part: Part,
    pages: Vec<(u32, Arc<[u8]>)>,
}

#[derive(Default)]
pub(super) struct Ring {
    epoch: u64,
    /// From where on it has all.
    from: WalPosition,
    /// The pages, by where they have come.
    pages: BTreeMap<(WalPosition, u32), Arc<[u8]>>,
    places: HashMap<u32, WalPosition>,
    /// The generations of the WAL of which it has something, by number, and their salts.
    generations: VecDeque<(u64, [u32; 2])>,
    /// As the last piece says it of itself, without pages and generations.
    last: Option<Part>,
    seals: VecDeque<Seal>,
    /// Where pieces end that no slot has yet, and the TXIDs that they were said to be archived by.
    bounds: VecDeque<(WalPosition, u64)>,
    /// How far the WAL was read, and the size of the database there.
    read: Option<(WalPosition, u32)>,
    /// When a follower was there last.
    pub(super) wanted: Option<Instant>,
    pub(super) is_over: bool,
}

impl Changes {
    /// Where it ends.
    pub(super) fn to(&self) -> WalPosition {
        self.part.to
    }

    /// The message.
    pub(super) fn encode(mut self) -> Vec<u8> {
        self.pages.sort_unstable_by_key(|(pgno, _)| *pgno);
        let mut body = Message::Part(self.part).encode();
        body.reserve(self.pages.iter().map(|(_, page)| 4 + page.len()).sum());
        for (pgno, page) in self.pages {
            body.extend_from_slice(&pgno.to_le_bytes());
            body.extend_from_slice(&page);
        }
        body
    }
}

impl Ring {
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How far it was read, or the last slot that has ended, and the size of the database there.
    pub(super) fn read(&self) -> Option<(WalPosition, u32)> {
        self.read
    }

    /// Where its last piece ends, and the salts of the WAL there.
    pub(super) fn end(&self) -> Option<(WalPosition, [u32; 2])> {
        let last = self.last.as_ref()?;
        self.generations.back().map(|(_, salts)| (last.to, *salts))
    }

    pub(super) fn last_seal(&self) -> Option<Seal> {
        self.seals.back().copied()
    }

    /// Where this slot ends.
    pub(super) fn end_of(&self, slot: u64) -> Option<WalPosition> {
        self.seals.iter().find(|seal| seal.txid.get() == slot).map(|seal| seal.at)
    }

    pub(super) fn forgets_pages(&mut self) {
        self.pages.clear();
        self.places.clear();
        self.generations.clear();
        (self.last, self.read) = (None, None);
    }

    pub(super) fn begins(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.forgets_pages();
            self.seals.clear();
            self.bounds.clear();
            self.epoch = epoch;
        }
    }

    pub(super) fn seals(&mut self, seal: Seal) {
        let ended = self.bounds.partition_point(|(to, _)| *to <= seal.at);
        self.bounds.drain(..ended).for_each(|(_, bound)| seal.must_be_within(bound));
        self.seals.push_back(seal);
        let old = self.seals.len().saturating_sub(SEALS);
        self.seals.drain(..old);
    }

    /// It is to go on from `at`, if it was not to do so from elsewhere.
    pub(super) fn goes_on_from(&mut self, at: WalPosition, pages: u32) {
        if self.read.is_none() {
            (self.from, self.read) = (at, Some((at, pages)));
        }
    }

    /// Keeps the commits of `frames`, which begin where it was read to. False when they do not have
    /// all pages by which the database has grown.
    pub(super) fn keep(&mut self, frames: &Frames, generation: u64, bound: u64) -> bool {
        let (commit, page_bytes) = (frames.commit(), frames.page_bytes() as u32);
        let Some((_, pages_before)) = self.read else { return false };
        let Ok(size) = PageSize::new(page_bytes) else { return false };
        let lock = size.lock_page().get();
        let is_kept = |pgno: u32| (1..=commit).contains(&pgno) && pgno != lock;
        let pages: BTreeMap<u32, &[u8]> =
            frames.iter().filter(|it| is_kept(it.pgno)).map(|it| (it.pgno, it.page)).collect();
        let mut grown = (pages_before.saturating_add(1)..=commit).filter(|pgno| *pgno != lock);
        if !grown.all(|pgno| pages.contains_key(&pgno)) || pages.is_empty() {
            return false;
        }
        let to = WalPosition { generation, offset: frames.to() };
        if commit < pages_before {
            self.pages.retain(|(_, pgno), _| *pgno <= commit);
            self.places.retain(|pgno, _| *pgno <= commit);
        }
        for (pgno, page) in pages {
            if let Some(before) = self.places.insert(pgno, to) {
                self.pages.remove(&(before, pgno));
            }
            self.pages.insert((to, pgno), page.into());
        }
        while self.pages.len() * (page_bytes as usize + ENTRY_BYTES) > MESSAGE_BYTES {
            let Some(((at, pgno), _)) = self.pages.pop_first() else { break };
            self.places.remove(&pgno);
            self.from = at;
        }
        // A slot may have it by now: it was read without a lock.
        match self.seals.iter().find(|seal| to <= seal.at) {
            Some(seal) => seal.must_be_within(bound),
            None => self.bounds.push_back((to, bound)),
        }
        let old = self.bounds.len().saturating_sub(BOUNDS);
        self.bounds.drain(..old);
        if self.generations.back().is_none_or(|(number, _)| *number < generation) {
            self.generations.push_back((generation, frames.salts()));
        }
        let first = self.from.generation;
        self.generations.retain(|(number, _)| *number >= first);
        let (generations, pages) = (Vec::new(), Vec::new());
        self.last = Some(Part { to, generations, bound, commit, page_bytes, pages });
        self.read = Some((to, commit));
        true
    }

    /// Whether what is kept leads on from `at`.
    pub(super) fn leads_from(&self, at: WalPosition) -> bool {
        self.read.is_some() && self.from <= at
    }

    /// What comes behind `at` for a follower that knows of `slot`.
    pub(super) fn next(&self, epoch: u64, slot: u64, at: WalPosition) -> Next {
        if self.epoch != epoch || !self.leads_from(at) {
            return Next::Gone;
        }
        let is_new = |seal: &&Seal| seal.txid.get() > slot && seal.at <= at;
        if let Some(seal) = self.seals.iter().find(is_new) {
            return Next::Seal(*seal);
        }
        let Some(mut part) = self.last.clone().filter(|last| last.to > at) else {
            return Next::Nothing;
        };
        let of_part = self.generations.iter().filter(|(number, _)| *number >= at.generation);
        part.generations = of_part.copied().collect();
        let behind = self.pages.range((at, u32::MAX)..);
        let pages = behind.map(|((_, pgno), page)| (*pgno, Arc::clone(page))).collect();
        Next::Part(Changes { part, pages })
    }
}

#[cfg(test)]
mod tests;
