//! Owns the numbers of transactions, their ranges, and the names of files made of them.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The number of a transaction in the history of a database, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txid(NonZeroU64);

impl Txid {
    /// The first, whose file is a snapshot.
    pub const FIRST: Txid = Txid(NonZeroU64::MIN);

    /// Transaction `number`; `None` for 0.
    pub const fn new(number: u64) -> Option<Txid> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Txid(number)),
            None => None,
        }
    }

    /// The number, 1 … 2⁶⁴ − 1.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The one after it; `None` after the last there can be.
    pub fn next(self) -> Option<Txid> {
        self.0.checked_add(1).map(Txid)
    }
}

/// Sixteen lower-case hexadecimal digits, as in names of files.
impl fmt::Display for Txid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl FromStr for Txid {
    type Err = Error;

    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless it is what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Txid> {
        let txid = hex(text).and_then(Txid::new);
        txid.ok_or_else(|| Error::invalid(format!("{text:?} is no TXID of 16 hex digits")))
    }
}

/// The transactions of one file, from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TxidRange {
    min: Txid,
    max: Txid,
}

impl TxidRange {
    /// From `min` to `max`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when `max` comes before `min`.
    pub fn new(min: Txid, max: Txid) -> Result<TxidRange> {
        if min > max {
            return Err(Error::invalid(format!("TXIDs from {min} to {max} are no range")));
        }
        Ok(TxidRange { min, max })
    }

    /// `txid` alone.
    pub fn single(txid: Txid) -> TxidRange {
        TxidRange { min: txid, max: txid }
    }

    /// The first transaction.
    pub fn min(self) -> Txid {
        self.min
    }

    /// The last transaction.
    pub fn max(self) -> Txid {
        self.max
    }

    /// Whether a file of these is a snapshot: it begins with the first transaction, so it must have
    /// every page of the database.
    pub fn is_snapshot(self) -> bool {
        self.min == Txid::FIRST
    }

    /// Whether `txid` is one of them.
    pub fn contains(self, txid: Txid) -> bool {
        (self.min..=self.max).contains(&txid)
    }

    /// Whether a file of these can come after one of `earlier`: nothing lacks between them, and it
    /// goes further. They may overlap (`IsContiguous` of `superfly/ltx`).
    pub fn continues(self, earlier: TxidRange) -> bool {
        self.min.get() - 1 <= earlier.max.get() && self.max > earlier.max
    }

    /// The name of a file of these: `<min>-<max>.ltx`, 16 lower-case hexadecimal digits each.
    ///
    /// ```
    /// use monolite_ltx::{Txid, TxidRange};
    ///
    /// let range = TxidRange::new(Txid::FIRST, Txid::new(42).unwrap())?;
    /// assert_eq!(range.file_name(), "0000000000000001-000000000000002a.ltx");
    /// assert_eq!(TxidRange::from_file_name(&range.file_name())?, range);
    /// # Ok::<(), monolite_ltx::Error>(())
    /// ```
    pub fn file_name(self) -> String {
        assert!(self.min <= self.max, "a range has its first TXID before its last: {self}");
        format!("{self}.ltx")
    }

    /// What the name of a file says; a name without its directory.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) unless it is what [`file_name`](Self::file_name)
    /// writes.
    pub fn from_file_name(name: &str) -> Result<TxidRange> {
        let range = name.strip_suffix(".ltx").and_then(|stem| {
            let (min, max) = stem.split_once('-')?;
            TxidRange::new(min.parse().ok()?, max.parse().ok()?).ok()
        });
        range.ok_or_else(|| Error::invalid(format!("{name:?} is no name of an LTX file")))
    }
}

/// `<min>-<max>`, as in names of files.
impl fmt::Display for TxidRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.min, self.max)
    }
}

/// The number that 16 lower-case hexadecimal digits stand for.
pub(crate) fn hex(text: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 16 || !text.bytes().all(is_digit) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests;
