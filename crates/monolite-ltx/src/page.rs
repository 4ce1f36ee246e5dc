//! Owns the numbers of pages and their size, with the rules of SQLite for both.

use std::fmt;
use std::num::NonZeroU32;

use crate::error::{Error, Result};

/// The byte of a database that SQLite locks; the page around it is never written
/// (`PENDING_BYTE` in SQLite's `os.h`).
const PENDING_BYTE: u32 = 0x4000_0000;

/// The number of a page in its database, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pgno(NonZeroU32);

impl Pgno {
    /// The largest there can be: SQLite's limit, 2³² − 2 (`SQLITE_MAX_PAGE_COUNT`).
    pub const MAX: Pgno = Pgno(NonZeroU32::new(0xFFFF_FFFE).expect("it is not zero"));

    /// Page `number`; `None` for 0 and above [`Pgno::MAX`].
    pub const fn new(number: u32) -> Option<Pgno> {
        match NonZeroU32::new(number) {
            Some(number) if number.get() <= Pgno::MAX.get() => Some(Pgno(number)),
            _ => None,
        }
    }

    /// The number, 1 … 2³² − 2.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Pgno {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The size of a database's pages in bytes: a power of two, 512 … 65,536.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize(u32);

impl PageSize {
    /// The smallest that SQLite has.
    pub const MIN: PageSize = PageSize(512);
    /// The largest that SQLite has.
    pub const MAX: PageSize = PageSize(65_536);

    /// Pages of `bytes`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless it is a power of two, 512 … 65,536.
    pub fn new(bytes: u32) -> Result<PageSize> {
        if bytes.is_power_of_two() && (PageSize::MIN.0..=PageSize::MAX.0).contains(&bytes) {
            return Ok(PageSize(bytes));
        }
        let message = format!("a page size of {bytes} is no power of two from 512 to 65536");
        Err(Error::invalid(message))
    }

    /// In bytes.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// In bytes, as the length of a slice.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The page around the byte that SQLite locks, at 1 GiB. It has no content and is in no file.
    pub fn lock_page(self) -> Pgno {
        assert!(self.0.is_power_of_two(), "a page has {self} bytes");
        Pgno::new(PENDING_BYTE / self.0 + 1).expect("2^30 / 512 + 1 is within the range")
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Which page may come next in a file.
///
/// # Algorithm
/// Numbers rise, stay within the database's size afterwards, and leave out the lock page. In a
/// snapshot none else is left out.
#[derive(Debug, Clone)]
pub(crate) struct PageOrder {
    lock_page: Pgno,
    commit: u32,
    is_snapshot: bool,
    last: u32,
}

impl PageOrder {
    pub(crate) fn new(page_size: PageSize, commit: u32, is_snapshot: bool) -> PageOrder {
        PageOrder { lock_page: page_size.lock_page(), commit, is_snapshot, last: 0 }
    }

    /// One that goes on behind page `last`; 0 for its beginning.
    pub(crate) fn resume(self, last: u32) -> PageOrder {
        PageOrder { last, ..self }
    }

    /// The page that came last; 0 before the first.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Takes note of the next page, or says what is wrong with it.
    pub(crate) fn accept(&mut self, pgno: Pgno) -> Result<(), String> {
        let number = pgno.get();
        if number > self.commit {
            return Err(format!("page {pgno} of a database of {} pages", self.commit));
        }
        if pgno == self.lock_page {
            return Err(format!("page {pgno} is the lock page, which no file may have"));
        }
        if number <= self.last {
            return Err(format!("page {pgno} after page {}", self.last));
        }
        if self.is_snapshot && Some(number) != self.following() {
            return Err(format!(
                "page {pgno} after page {} of a snapshot, which must have all",
                self.last
            ));
        }
        self.last = number;
        Ok(())
    }

    /// Whether the pages may end here, or what lacks.
    pub(crate) fn end(&self) -> Result<(), String> {
        match self.following() {
            Some(lacking) if self.is_snapshot => {
                Err(format!("a snapshot of {} pages without page {lacking}", self.commit))
            }
            _ => Ok(()),
        }
    }

    /// The next page of a snapshot; `None` after the last.
    fn following(&self) -> Option<u32> {
        let next = self.last.checked_add(1)?;
        let next = if next == self.lock_page.get() { next + 1 } else { next };
        (next <= self.commit).then_some(next)
    }
}

#[cfg(test)]
mod tests;
