//! Owns why a transaction was not committed, and the errors that its members get.

use std::time::Duration;

use monolite_sqlite::rusqlite;
use monolite_sqlite::vfs::LimitHit;

use crate::activity::Slowest;
use crate::error::{Error, ErrorKind};

/// Why a commit failed. Its transaction is to be rolled back.
pub(super) enum Uncommitted {
    /// It would have crossed the limit of the WAL.
    Full(LimitHit),
    /// The WAL cannot get longer, for want of space on the disk.
    DiskFull(Error),
    Failed(Error),
}

impl Uncommitted {
    /// That of a transaction which the WAL refused.
    pub(super) fn of(hit: LimitHit) -> Uncommitted {
        match hit {
            LimitHit::GateShut => Uncommitted::Failed(not_captured()),
            LimitHit::DiskFull => Uncommitted::DiskFull(disk_full()),
            LimitHit::TooLarge | LimitHit::NoRoomLeft => Uncommitted::Full(hit),
        }
    }

    /// Whether the transaction may fit when the WAL restarts.
    pub(super) fn lacks_room(&self) -> bool {
        matches!(self, Uncommitted::Full(LimitHit::NoRoomLeft) | Uncommitted::DiskFull(_))
    }

    /// The answer to a member that cannot run again, where room was lacking.
    pub(super) fn of_once(self) -> Error {
        match self {
            Uncommitted::Full(_) => no_room_left(),
            Uncommitted::DiskFull(error) | Uncommitted::Failed(error) => error.of_commit(),
        }
    }
}

/// What the WAL holds keeps it from beginning anew.
pub(crate) fn not_captured() -> Error {
    let message = "the WAL has to begin anew, and its commits are not archived and may not be \
                   kept beside the database (Stats::archive says why): nothing was changed; try \
                   again when the archive answers";
    Error::new(ErrorKind::Overloaded, message)
}

pub(super) fn no_room_left() -> Error {
    let message = "the WAL had too little room left for the transaction and its neighbours; try \
                   again, or raise the option wal_limit_bytes";
    Error::new(ErrorKind::Overloaded, message)
}

pub(super) fn disk_full() -> Error {
    let message = "the disk has no space for the pages of the transaction: nothing was changed; \
                   free some, or delete rows in smaller transactions";
    Error::new(ErrorKind::Storage, message)
}

pub(super) fn swallowed_rollback() -> Error {
    let message = "a statement of the transaction rolled all of it back, and its closure returned \
                   Ok; return the statement's error";
    Error::new(ErrorKind::Aborted, message)
}

pub(super) fn late(time: Duration, limit: Duration, whose: &str, slowest: &Slowest) -> Error {
    let message = format!(
        "the transaction was rolled back after {time:.1?}: it may take {limit:.1?} ({whose}); \
         {slowest}"
    );
    Error::new(ErrorKind::Timeout, message)
}

pub(super) fn deferred_violation(keys: &[String]) -> Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    let mut text =
        String::from("a deferred foreign key was still violated at the end of the transaction");
    if !keys.is_empty() {
        text.push_str(": ");
        text.push_str(&keys.join(", "));
    }
    rusqlite::Error::SqliteFailure(code, Some(text)).into()
}
