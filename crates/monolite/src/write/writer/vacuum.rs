//! Owns how the writer rewrites a file without its free pages: as the work of a member that has a
//! transaction to itself, behind that.
//!
//! # Invariants
//! - Nothing is tried that does not fit in the WAL, as the whole file would be copied in vain.
//! - A vacuum that fails has changed nothing, and its member fails with it.

use std::time::Duration;

use monolite_sqlite::vfs::LimitHit;

use super::refusals::{Uncommitted, no_room_left, not_captured};
use super::{MAX_RUNS_ALONE, Room, Writer};
use crate::call::entry::Entry;
use crate::call::in_flight::HeldBatch;
use crate::error::{Error, ErrorKind, Result};

impl Writer {
    /// As [`Writer::run_alone`], and has SQLite rewrite the file behind it, if it has succeeded.
    ///
    /// # Errors
    /// As [`Writer::run_alone`].
    pub(super) fn run_and_vacuum(
        &mut self,
        entry: &mut Entry,
        batch: &mut HeldBatch<'_>,
        room: &dyn Room,
    ) -> Result<()> {
        self.run_alone(entry, batch, room)?;
        let limit = entry.member.alone().map_or(self.time_limit, |alone| alone.limit);
        if !entry.failed
            && let Err(error) = self.check_content_fits()
        {
            entry.overrule(error);
        }
        for _ in 0..MAX_RUNS_ALONE {
            if entry.failed {
                return Ok(());
            }
            match self.vacuum(limit) {
                Ok(()) => return Ok(()),
                Err(Uncommitted::Full(LimitHit::NoRoomLeft)) => {
                    self.make_room(|writer| room.restart_wal(writer))?;
                }
                Err(Uncommitted::Full(_)) => entry.overrule(self.too_large()),
                Err(Uncommitted::DiskFull(error) | Uncommitted::Failed(error)) => {
                    entry.overrule(error);
                }
            }
        }
        if entry.failed { Ok(()) } else { Err(no_room_left()) }
    }

    /// # Errors
    /// `Invalid` when the content does not fit in the WAL: nothing was tried then.
    fn check_content_fits(&self) -> Result<()> {
        let (bytes, limit) =
            (self.connection.maintenance().wal_bytes_of_content()?, self.wal.limit_bytes());
        if bytes <= limit {
            return Ok(());
        }
        let message = format!(
            "auto_vacuum is NONE, so the file has to be rewritten, and its {bytes} bytes do not \
             fit in the WAL ({limit} bytes, option wal_limit_bytes); raise the limit, or run \
             VACUUM on a backup (Database::backup) with plain SQLite, and put that in place"
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// One transaction of SQLite's own.
    fn vacuum(&mut self, limit: Duration) -> Result<(), Uncommitted> {
        self.deadline.set(self.now, limit);
        self.progress.expose();
        let vacuumed = self.connection.maintenance().vacuum().map_err(Error::from);
        self.deadline.clear();
        self.connection.interruption().take_late();
        self.now = self.clock.now();
        let Err(error) = vacuumed else {
            self.wal.note_committed();
            return Ok(());
        };
        self.wal.note_failed();
        self.note_lost_write(&error, "a vacuum");
        self.abandon();
        Err(match self.wal.take_limit_hit() {
            Some(LimitHit::GateShut) => Uncommitted::Failed(not_captured()),
            Some(hit) => Uncommitted::Full(hit),
            None if error.kind() == ErrorKind::Timeout => Uncommitted::Failed(late(limit)),
            None => Uncommitted::Failed(error.context("the file could not be rewritten")),
        })
    }
}

fn late(limit: Duration) -> Error {
    let message = format!(
        "the file was not rewritten: that may take {limit:.1?} (Database::with_time_limit, or an \
         hour), and would have taken longer; nothing was changed"
    );
    Error::new(ErrorKind::Timeout, message)
}
