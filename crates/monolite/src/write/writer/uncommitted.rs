//! Owns why a commit failed: for want of room, for which the WAL may restart, or for good.

use monolite_sqlite::vfs::LimitHit;

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
    /// Whether the transaction may fit when the WAL restarts.
    pub(super) fn lacks_room(&self) -> bool {
        matches!(self, Uncommitted::Full(LimitHit::NoRoomLeft) | Uncommitted::DiskFull(_))
    }
}

/// What the WAL holds keeps it from beginning anew.
pub(crate) fn not_captured() -> Error {
    let message = "the WAL has to begin anew, and what it holds is neither archived nor may be \
                   kept beside the database: see Stats::archive for why; nothing was changed. \
                   Try again when the archive answers";
    Error::new(ErrorKind::Overloaded, message)
}

pub(super) fn no_room_left() -> Error {
    let message = "the WAL had too little room left for the transaction and its neighbours; try \
                   again, or raise the option wal_limit_bytes";
    Error::new(ErrorKind::Overloaded, message)
}
