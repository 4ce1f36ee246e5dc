//! Owns sets of pages: which ones a transaction has read.
//!
//! # Algorithm
//! A [`PageRecorder`] is a hash table of page numbers with open addressing, at most half full, and
//! a list of the numbers in it. Most insertions find their page at the first probe: a transaction
//! fetches the root of a table again and again. Page 1 is never in a set; of it, only the schema
//! cookie matters to a query, and that is kept beside the pages.
//!
//! # Not here
//! Who inserts: `pcache`. What a set is compared with: [`crate::vfs::Changes`] and
//! [`Pages::batch_changed`](crate::Pages::batch_changed).

/// The pages that a transaction has read from its snapshot, and the schema that it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet {
    pages: Box<[u32]>,
    cookie: u32,
}

impl PageSet {
    pub(crate) fn new(pages: Box<[u32]>, cookie: u32) -> PageSet {
        PageSet { pages, cookie }
    }

    /// The numbers of the pages, each once and in no particular order; page 1 is not among them.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// The schema cookie of the snapshot.
    pub fn cookie(&self) -> u32 {
        self.cookie
    }
}

/// Slots of an empty table: 256 bytes are cleared in a few ns, and a transaction of a few point
/// reads fits.
const FEWEST_SLOTS: usize = 64;

/// A table that has grown beyond this is given back instead of being cleared.
const MAX_KEPT_SLOTS: usize = 4096;

/// A free slot. No page has this number.
const FREE: u32 = 0;

/// Gathers page numbers, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct PageRecorder {
    /// A power of two of them, or none before the first start.
    slots: Vec<u32>,
    pages: Vec<u32>,
    limit: usize,
    is_full: bool,
}

impl PageRecorder {
    /// Forgets everything, and takes up to `limit` pages from now on.
    pub(crate) fn start(&mut self, limit: usize) {
        if self.slots.is_empty() || self.slots.len() > MAX_KEPT_SLOTS {
            self.slots = vec![FREE; FEWEST_SLOTS];
            self.pages = Vec::with_capacity(FEWEST_SLOTS / 2);
        } else if !self.pages.is_empty() {
            self.slots.fill(FREE);
            self.pages.clear();
        }
        self.limit = limit;
        self.is_full = false;
    }

    /// Adds `pgno`, which is not zero. Only after `start`.
    #[inline]
    pub(crate) fn insert(&mut self, pgno: u32) {
        let mut at = self.home(pgno);
        loop {
            match self.slots[at] {
                found if found == pgno => return,
                FREE => return self.insert_new(pgno, at),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// The slot of a page: Fibonacci hashing (Knuth, TAOCP volume 3, section 6.4), which spreads
    /// neighbouring pages.
    #[inline]
    fn home(&self, pgno: u32) -> usize {
        let hash = u64::from(pgno.wrapping_mul(0x9e37_79b9));
        ((hash * self.slots.len() as u64) >> 32) as usize
    }

    #[cold]
    fn insert_new(&mut self, pgno: u32, at: usize) {
        if self.pages.len() >= self.limit {
            self.is_full = true;
            return;
        }
        self.slots[at] = pgno;
        self.pages.push(pgno);
        assert!(self.pages.len() <= self.limit, "pages are gathered within their limit");
        if self.pages.len() * 2 > self.slots.len() {
            self.grow();
        }
        assert!(self.slots.len().is_power_of_two(), "a slot is found by a mask");
    }

    fn grow(&mut self) {
        self.slots = vec![FREE; self.slots.len() * 2];
        for index in 0..self.pages.len() {
            let pgno = self.pages[index];
            let mut at = self.home(pgno);
            while self.slots[at] != FREE {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = pgno;
        }
    }

    /// Whether one of those that were inserted since the start is such a page.
    pub(crate) fn has(&self, is_such: impl Fn(u32) -> bool) -> bool {
        self.pages.iter().any(|pgno| is_such(*pgno))
    }

    /// What was inserted since the start; `None` when there was more than the limit.
    pub(crate) fn pages(&self) -> Option<Box<[u32]>> {
        (!self.is_full).then(|| self.pages.as_slice().into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_recorder_holds_what_a_set_holds() {
        let mut state = 1_u64;
        let mut recorder = PageRecorder::default();
        for round in 0..200_u64 {
            let mut expected = BTreeSet::new();
            recorder.start(usize::MAX);
            for _ in 0..round * 97 % 7000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pgno = 2 + (state >> 33) as u32 % (1 + round as u32 * 50);
                recorder.insert(pgno);
                expected.insert(pgno);
            }
            let pages = recorder.pages().unwrap();
            assert_eq!(pages.len(), expected.len());
            assert_eq!(pages.into_iter().collect::<BTreeSet<u32>>(), expected);
        }
    }

    #[test]
    fn more_pages_than_the_limit_are_no_set_until_the_next_start() {
        let mut recorder = PageRecorder::default();
        recorder.start(100);
        (2..102).for_each(|pgno| recorder.insert(pgno));
        recorder.insert(50);
        assert_eq!(recorder.pages().unwrap().len(), 100);
        recorder.insert(102);
        assert_eq!(recorder.pages(), None);
        recorder.insert(50);
        assert_eq!(recorder.pages(), None);
        recorder.start(100);
        recorder.insert(7);
        assert_eq!(*recorder.pages().unwrap(), [7]);
    }
}
