//! Owns the keys of an archive's objects.
//!
//! # Format
//! Below the prefix of one database:
//!
//! | key | |
//! |---|---|
//! | `<level>/<min>-<max>.ltx` in S3 and OSS | the level as four hexadecimal digits |
//! | `ltx/<level>/<min>-<max>.ltx` elsewhere | the level as a decimal number |
//! | `monolite/leader` | the leader record |
//! | `monolite/probe-…` | by which a store is tried, for a moment |
//!
//! Level 0 has the slots, one TXID each; levels 1 to 8 what was compacted; level 9 the snapshots.
//! All but the record is Litestream's layout, in which it finds and keeps what it knows.

use monolite_ltx::{Txid, TxidRange};

use crate::error::{Error, Result};

/// A level of files: what is in one reaches further back than what is in the one below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// The slots.
    pub const SLOTS: Level = Level(0);
    /// The first that is compacted.
    pub const FIRST: Level = Level(1);
    /// What is merged of the first.
    pub const SECOND: Level = Level(2);
    /// What is merged of the second.
    pub const THIRD: Level = Level(3);
    /// The last that is compacted.
    pub const LAST: Level = Level(8);
    /// The snapshots.
    pub const SNAPSHOTS: Level = Level(9);

    /// Level `number`; `None` above 9.
    pub const fn new(number: u8) -> Option<Level> {
        if number <= Level::SNAPSHOTS.0 { Some(Level(number)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The level whose files are merged into those of this one; `None` for slots and snapshots,
    /// which are made of something else.
    pub fn below(self) -> Option<Level> {
        let is_compacted = self >= Level::FIRST && self <= Level::LAST;
        is_compacted.then(|| Level(self.0 - 1))
    }

    /// All levels, the slots first.
    pub fn all() -> impl DoubleEndedIterator<Item = Level> {
        (0..=Level::SNAPSHOTS.0).map(Level)
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(out)
    }
}

/// How a kind of store has levels in its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LevelKeys {
    /// `ltx/0`: directories, GCS, Azure, SFTP, WebDAV, NATS.
    Decimal,
    /// `0000`: S3 and what speaks like it, OSS.
    Hexadecimal,
}

/// Where the objects of one archive are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    prefix: String,
    levels: LevelKeys,
}

impl Layout {
    /// Below `prefix`, which may be empty.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when a part of the prefix is empty, `.` or `..`.
    #[doc(hidden)]
    pub fn new(prefix: &str, levels: LevelKeys) -> Result<Layout> {
        let is_part = |part: &str| !matches!(part, "" | "." | "..");
        if !prefix.is_empty() && !prefix.split('/').all(is_part) {
            return Err(Error::invalid(format!("{prefix:?} can be no prefix of keys")));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Layout { prefix, levels })
    }

    /// Of an archive that has a directory for itself.
    pub fn directory() -> Layout {
        Layout { prefix: String::new(), levels: LevelKeys::Decimal }
    }

    /// The key below which the files of a level are.
    #[doc(hidden)]
    pub fn level(&self, level: Level) -> String {
        match self.levels {
            LevelKeys::Decimal => format!("{}ltx/{}", self.prefix, level.0),
            LevelKeys::Hexadecimal => format!("{}{:04x}", self.prefix, level.0),
        }
    }

    /// The key of a file.
    #[doc(hidden)]
    pub fn file(&self, level: Level, txids: TxidRange) -> String {
        format!("{}/{}", self.level(level), txids.file_name())
    }

    /// The key of a slot.
    #[doc(hidden)]
    pub fn slot(&self, txid: Txid) -> String {
        self.file(Level::SLOTS, TxidRange::single(txid))
    }

    /// The key of the leader record.
    #[doc(hidden)]
    pub fn leader(&self) -> String {
        format!("{}monolite/leader", self.prefix)
    }

    /// What the keys begin with by which a store is tried.
    pub(crate) fn probe(&self) -> String {
        format!("{}monolite/probe", self.prefix)
    }

    /// The TXIDs of the file that a key is of, whatever its level; `None` when it is none.
    #[doc(hidden)]
    pub fn txids(key: &str) -> Option<TxidRange> {
        let name = key.rsplit('/').next().unwrap_or(key);
        TxidRange::from_file_name(name).ok()
    }
}

#[cfg(test)]
mod tests;
