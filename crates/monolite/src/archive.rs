//! Owns what the engine and an archive tell each other: a copy of the database elsewhere, which
//! gets every commit, in order, when it is on this disk. How that is kept, and where, is the
//! archive's; the crate `monolite-archive` has one.
//!
//! # Algorithm
//! Nothing is copied on the way of a commit: what is given are positions in the WAL, and the
//! archive reads the WAL when it likes ([`Primary::wal`]).
//! 1. [`Archive::open`], while no other process can have the file: the WAL that a crash has left,
//!    before it is emptied.
//! 2. [`Archiving::start`], when the database is open.
//! 3. [`Archiving::durable`], behind each sync and before its writes are answered.
//! 4. Before the WAL begins anew or is cut, [`Archiving::may_restart`], and where it may,
//!    [`Archiving::capture`]: what the archive has not read by then would be gone. The writer waits
//!    for that, so [`Archiving::prepare`] comes before, without holding up a write.
//! 5. [`Archiving::settled`], when the WAL is empty and everything is in the database file.
//! 6. [`Archiving::close`], before the last checkpoint.
//!
//! With [`Durability::Archived`](crate::Durability) a write is answered when the archive reports it
//! ([`Primary::archived`]); [`Archiving::awaited`] tells the archive that a write waits.
//!
//! # Invariants
//! - A position that is given is the end of a commit of which SQLite has said that it succeeded.
//! - Positions rise; everything up to the one that [`Archiving::durable`] has is on this disk.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use monolite_sqlite::lock_holder;
pub use monolite_sqlite::vfs::WalPosition;
pub use monolite_sqlite::wal::{Frame, Frames, MARKER_BYTES, WAL_HEADER_BYTES, WalReader};

use crate::error::{Error, ErrorKind, Result};
pub use crate::pacer::Pacer;

/// Which names a database and a copy of one may have.
pub mod names {
    pub use crate::names::{ARCHIVE, PART, check_target, exists, with_ending};
}

/// Where a database is to be archived, see [`Options::archive`](crate::Options::archive).
pub trait Archive: fmt::Debug + Send + Sync {
    /// Begins with one database, which this process has to itself. Called on the thread that opens
    /// it.
    ///
    /// # Errors
    /// They have the opening fail, and the WAL stays as it was found.
    fn open(&self, found: Found<'_>) -> Result<Arc<dyn Archiving>, Refusal>;

    /// How long the oldest commit may have been waiting to be archived before writes are refused
    /// (`Overloaded`; nothing of them is done); `None` for no limit. Until the first copy of the
    /// database is archived nothing is, so the lag counts from the opening.
    fn lag_limit(&self) -> Option<Duration>;

    /// Longest time that a write with [`Durability::Archived`](crate::Durability), when it is on
    /// this disk, waits to be archived, and a read for what it has seen
    /// ([`Database::read_archived`](crate::Database::read_archived)): 1 ms to 24 h. Then the write
    /// ends with `CommitUnknown`, and the read with `Timeout`.
    fn time_limit(&self) -> Duration;

    /// Whether followers may stream from it.
    fn streams(&self) -> bool {
        false
    }
}

/// Why an archive has the opening of its database fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the caller can do about it.
    pub kind: ErrorKind,
    /// What is wrong, as a sentence that names the remedy.
    pub message: String,
}

impl From<Refusal> for Error {
    fn from(Refusal { kind, message }: Refusal) -> Error {
        Error::new(kind, message)
    }
}

/// Pages that another database has committed, for [`Replica`](crate::Replica).
pub trait Pages: Send {
    /// Gives all of them, each with its number, from 1 on. May be called again.
    ///
    /// # Errors
    /// Those of reading them, and of `give`.
    fn each(&mut self, give: &mut dyn FnMut(u32, &[u8]) -> io::Result<()>) -> io::Result<()>;
}

/// A database file as an open has found it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Found<'a> {
    /// Its canonical path.
    pub database: &'a Path,
    /// What the file system said of it before anything was written to it.
    pub file: fs::Metadata,
    /// Its WAL, if that has a header, and where the last commit in it ends, or the header where
    /// there is none. It is emptied when [`Archive::open`] has returned.
    pub wal: Option<(WalReader, u64)>,
}

/// The archiving of one open database. Its methods are called on several threads of the engine.
pub trait Archiving: Send + Sync {
    /// The database is open.
    ///
    /// # Errors
    /// They have the opening fail.
    fn start(&self, primary: Arc<dyn Primary>) -> Result<(), Refusal>;

    /// Everything up to this position is on the disk. Commits are answered after this call, so it
    /// must be quick.
    fn durable(&self, to: WalPosition);

    /// A write waits until everything committed so far is archived ([`Primary::waiting`]), so
    /// durable content should go at once. Must be quick.
    fn awaited(&self);

    /// A write waits until followers have everything committed so far. Must be quick.
    fn replicates(&self) {}

    /// How long the oldest commit has been waiting that is durable and not archived, or that
    /// nothing can be restored; zero when everything is archived. Must be quick.
    fn lag(&self) -> Duration;

    /// What everything that is durable now is archived as, or will be; `None` while that is
    /// not known: before a primary begins, and while a copy of the whole database is due.
    fn token(&self) -> Option<ArchiveToken>;

    /// Why this primary may lack what a token names: one of a predecessor, or of a later primary
    /// before the term of this one has begun. `None` where it has that, or does not know. Must be
    /// quick.
    fn may_lack(&self, _: ArchiveToken) -> Option<String> {
        None
    }

    /// The WAL is about to begin anew. It nearly always is a moment later.
    fn prepare(&self);

    /// Whether the WAL may begin anew, or be cut, behind this position, which is that of its last
    /// commit. Where it may not, commits are appended to it up to its limit, and refused with
    /// `Overloaded` beyond. The writer waits.
    fn may_restart(&self, to: WalPosition) -> bool;

    /// The WAL begins anew when this has returned: everything in it up to this position, which is
    /// that of its last commit, must have been read. `next` has the salts with which it begins;
    /// none when it is cut. The writer waits. What is in the WAL is in the database file, on the
    /// disk.
    ///
    /// # Errors
    /// Why it was not kept, as a sentence. The WAL stays as it is then, and the commit fails with
    /// `Overloaded`.
    fn capture(&self, to: WalPosition, next: Option<[u32; 2]>) -> Result<(), String>;

    /// The WAL is empty, and the database file is on the disk and has everything. No write to it
    /// begins until this has returned.
    fn settled(&self);

    /// No commit follows. What is done here has to have an end: the close waits for it.
    fn close(&self);

    /// How far it is.
    fn stats(&self) -> ArchiveStats;
}

/// How far an archive is, in [`Stats::archive`](crate::Stats::archive).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ArchiveStats {
    /// The number of the primary's term; 0 until it has one.
    pub epoch: u64,
    /// The number of what was archived last (the TXID); 0 before.
    pub txid: u64,
    /// How long the oldest commit has been waiting that is on this disk and not archived, in
    /// milliseconds; 0 when there is none.
    pub lag_ms: u64,
    /// What is left of the primary's lease, in milliseconds: so long followers leave it alone if it
    /// says nothing from now on. `None` without one.
    pub lease_left_ms: Option<u64>,
    /// Bytes that were kept beside the database because they had not been archived when the WAL
    /// began anew.
    pub staged_bytes: u64,
    /// Whether the newest state that is archived can be restored: not before the first copy of the
    /// whole database is there, and not from when files are found to be lost until another one is.
    pub is_restorable: bool,
    /// Why a copy of the whole database is due or under way, if one is. A close does not wait for
    /// it; the next opening makes it.
    pub copies_because: Option<String>,
    /// How many followers stream.
    pub followers: u64,
    /// How many of them a write waits for that is to be
    /// [replicated](crate::Durability::Replicated), and any of which may be the next primary.
    /// Before the first such write: how many it would wait for.
    pub replicas: u64,
    /// Requests of the store that have failed.
    pub failed_requests: u64,
    /// What went wrong last in each activity (uploading, copying, merging, deleting and others), if
    /// that has not succeeded since; several are separated by `; `.
    pub last_error: Option<String>,
    /// Where clients find the primary that has taken over; empty if that is not known. `None` while
    /// the archive is this database's: from then on it acknowledges nothing more.
    pub successor: Option<String>,
}

/// A moment of an archived history, see
/// [`Database::archive_token`](crate::Database::archive_token).
///
/// Of two tokens of one `lineage` and `epoch` that with the larger `txid` has all that the other
/// has. Of a later `epoch`, a later primary or the next opening, the leader record says where its
/// predecessor's commits are.
///
/// As text it is `lineage-epoch-txid` in hexadecimal digits, 32, 16 and 16 of them.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// use monolite::archive::ArchiveToken;
/// let token = ArchiveToken { lineage: 0xabc, epoch: 3, txid: 4_711 };
/// let text = token.to_string();
/// assert_eq!(text, "00000000000000000000000000000abc-0000000000000003-0000000000001267");
/// assert_eq!(text.parse::<ArchiveToken>()?, token);
/// assert!("3-4711".parse::<ArchiveToken>().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArchiveToken {
    /// The history that it is of; drawn when its archive was begun.
    pub lineage: u128,
    /// The term of the primary that has committed it.
    pub epoch: u64,
    /// The number of what it is archived in.
    pub txid: u64,
}

impl fmt::Display for ArchiveToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:016x}-{:016x}", self.lineage, self.epoch, self.txid)
    }
}

impl FromStr for ArchiveToken {
    type Err = Error;

    /// # Errors
    /// `Invalid` when it is none.
    fn from_str(text: &str) -> Result<ArchiveToken> {
        let is_hexadecimal = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parts: Vec<&str> = text.split('-').filter(is_hexadecimal).collect();
        let token = match parts[..] {
            [lineage, epoch, txid] if (lineage.len(), epoch.len(), txid.len()) == (32, 16, 16) => {
                let lineage = u128::from_str_radix(lineage, 16).ok();
                let number = |part| u64::from_str_radix(part, 16).ok();
                lineage.zip(number(epoch).zip(number(txid)))
            }
            _ => None,
        };
        let (lineage, (epoch, txid)) = token.ok_or_else(|| {
            let message = format!(
                "{text:?} is no token of an archive, which has 32, 16 and 16 hexadecimal digits \
                 with a - between them"
            );
            Error::new(ErrorKind::Invalid, message)
        })?;
        Ok(ArchiveToken { lineage, epoch, txid })
    }
}

/// An open database as its archive sees it. It may be kept for longer than the database is open;
/// then it does nothing, and what would be read is an error.
pub trait Primary: fmt::Debug + Send + Sync {
    /// The WAL as it is now; `None` when it is empty. It stays as it is until the next
    /// [`Archiving::capture`] has returned, but for commits that are added.
    ///
    /// # Errors
    /// Those of reading it.
    fn wal(&self) -> io::Result<Option<WalReader>>;

    /// Size of the database's pages in bytes, and how many there are.
    ///
    /// # Errors
    /// Those of a read.
    fn size(&self) -> Result<(u32, u32)>;

    /// Copies the database of one moment to a file that is not there yet, while it goes on; the
    /// result is where in the WAL that moment was. Everything up to it is on the disk then. Blocks.
    ///
    /// # Errors
    /// Those of [`Database::backup`](crate::Database::backup).
    fn copy(&self, target: &Path) -> Result<WalPosition>;

    /// How many wait until what was committed is archived
    /// ([`Durability::Archived`](crate::Durability::Archived),
    /// [`Database::read_archived`](crate::Database::read_archived)).
    fn waiting(&self) -> usize;

    /// Everything up to this position is archived, and everything that an earlier process had left:
    /// those who wait for it are answered. The position before all commits says the latter alone.
    fn archived(&self, to: WalPosition);

    /// So many followers, which alone may be the next primary, have everything up to this position
    /// on their disks, and everything that an earlier process had left.
    fn replicated(&self, to: WalPosition, count: usize);

    /// Another process is the primary of this history. Nothing is acknowledged any more. Those who
    /// wait for the archive get `Fenced` if it `is_certain` that their commits are not in history,
    /// and `CommitUnknown` if not.
    fn fenced(&self, reason: String, is_certain: bool);

    /// An activity of the archive has failed.
    fn failed(&self, error: &str);
}
