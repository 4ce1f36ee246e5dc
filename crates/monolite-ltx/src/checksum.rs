//! Owns the sums of the format: of a file, of a page, and of a whole database.
//!
//! # Format
//! CRC-64/GO-ISO, which is Go's `crc64.ISO`: polynomial x⁶⁴ + x⁴ + x³ + x + 1, reflected
//! (0xD800000000000000), start and final xor all ones; of `123456789` it is `b90956c775a41001`. A
//! stored sum has bit 63 set whatever it was, so that 0 can mean that there is none.
//!
//! # Algorithm
//! The sum of a page is taken over its number, four bytes big-endian, and its content. The sum of a
//! database is the xor of those of its pages, the lock page left out, with bit 63 set after each
//! step: a page is taken out as it is put in. It is that of `superfly/ltx`, `checksum.go`.

use std::fmt;
use std::str::FromStr;

use crc_fast::CrcAlgorithm;

use crate::error::{Error, Result};
use crate::page::{PageSize, Pgno};

/// The bit that is set in every sum that there is.
const PRESENT: u64 = 1 << 63;

/// A sum as it is stored: 64 bits, of which bit 63 is always set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(u64);

impl Checksum {
    /// Of a database without pages.
    pub const EMPTY_DATABASE: Checksum = Checksum(PRESENT);

    /// The sum that is stored as `bits`; `None` unless bit 63 is set.
    pub const fn from_bits(bits: u64) -> Option<Checksum> {
        if bits & PRESENT == 0 { None } else { Some(Checksum(bits)) }
    }

    /// As it is stored.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Of one page with its number. `page` is its content, uncompressed.
    pub fn of_page(pgno: Pgno, page: &[u8]) -> Checksum {
        let mut digest = Digest::new();
        digest.update(&pgno.get().to_be_bytes());
        digest.update(page);
        digest.sum()
    }

    /// Of a database (`self`) with one page more or less, whose sum is `page`.
    #[must_use]
    pub const fn toggle(self, page: Checksum) -> Checksum {
        Checksum(PRESENT | (self.0 ^ page.0))
    }

    /// What is stored for a sum that may be missing: 0 means that it is.
    pub(crate) fn bits_of(sum: Option<Checksum>) -> u64 {
        sum.map_or(0, Checksum::bits)
    }
}

/// Sixteen lower-case hexadecimal digits.
impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = Error;

    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless it is what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Checksum> {
        let sum = crate::txid::hex(text).and_then(Checksum::from_bits);
        sum.ok_or_else(|| Error::invalid(format!("{text:?} is no checksum of 16 hex digits")))
    }
}

/// The sum of a database whose pages change.
///
/// It knows which page is the lock page and leaves it out, so that a loop over a file need not.
///
/// ```
/// use monolite_ltx::{Checksum, DatabaseChecksum, PageSize, Pgno};
///
/// let (page_size, one) = (PageSize::new(512)?, Pgno::new(1).unwrap());
/// let mut sum = DatabaseChecksum::empty(page_size);
/// sum.toggle(one, &[7; 512]);
/// // The page changes: the old one is taken out, the new one put in.
/// sum.toggle(one, &[7; 512]);
/// assert_eq!(sum.value(), Checksum::EMPTY_DATABASE);
/// sum.toggle(one, &[8; 512]);
/// assert_eq!(sum.value(), Checksum::of_page(one, &[8; 512]));
/// # Ok::<(), monolite_ltx::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseChecksum {
    lock_page: Pgno,
    value: Checksum,
}

impl DatabaseChecksum {
    /// Of a database without pages.
    pub fn empty(page_size: PageSize) -> DatabaseChecksum {
        DatabaseChecksum::of(page_size, Checksum::EMPTY_DATABASE)
    }

    /// Of a database whose sum is known.
    pub fn of(page_size: PageSize, value: Checksum) -> DatabaseChecksum {
        DatabaseChecksum { lock_page: page_size.lock_page(), value }
    }

    /// Puts a page in, or takes out one that is in.
    pub fn toggle(&mut self, pgno: Pgno, page: &[u8]) {
        if pgno != self.lock_page {
            self.value = self.value.toggle(Checksum::of_page(pgno, page));
        }
    }

    /// The sum of what is in now.
    pub fn value(&self) -> Checksum {
        self.value
    }
}

/// A sum in the making.
#[derive(Debug, Clone)]
pub(crate) struct Digest(crc_fast::Digest);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(crc_fast::Digest::new(CrcAlgorithm::Crc64GoIso))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// One that goes on from where another was at [`state`](Digest::state).
    pub(crate) fn resume(state: u64) -> Digest {
        Digest(crc_fast::Digest::new_with_init_state(CrcAlgorithm::Crc64GoIso, state))
    }

    /// What it has come to.
    pub(crate) fn state(&self) -> u64 {
        self.0.get_state()
    }

    /// The sum of everything until now.
    pub(crate) fn sum(&self) -> Checksum {
        Checksum(PRESENT | self.0.finalize())
    }
}

#[cfg(test)]
mod tests;
