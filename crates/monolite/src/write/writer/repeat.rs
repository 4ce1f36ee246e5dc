//! Owns how the writer commits what another database has committed: as the work of a member that
//! has a transaction to itself, before that.
//!
//! # Invariants
//! - It is one commit, or nothing. One that is larger than the WAL may be is committed all the
//!   same, in a WAL that has begun anew: a follower has to repeat what its primary did.

use std::io;

use monolite_sqlite::rusqlite;
use monolite_sqlite::vfs::{IoError, LimitHit};

use super::refusals::{Uncommitted, no_room_left};
use super::{MAX_RUNS_ALONE, Room, Writer};
use crate::call::entry::Entry;
use crate::call::in_flight::HeldBatch;
use crate::error::{Error, ErrorKind, Result};

impl Writer {
    /// Commits the group of `entry`, and runs it as [`Writer::run_alone`] behind that.
    ///
    /// # Errors
    /// As [`Writer::run_alone`].
    pub(super) fn run_and_repeat(
        &mut self,
        entry: &mut Entry,
        batch: &mut HeldBatch<'_>,
        room: &dyn Room,
    ) -> Result<()> {
        let limit = self.wal.limit_bytes();
        for _ in 0..MAX_RUNS_ALONE {
            let repeated = self.repeat(entry);
            self.now = self.clock.now();
            self.wal.set_limit_bytes(limit);
            match repeated {
                Ok(()) => return self.run_alone(entry, batch, room),
                Err(Uncommitted::Full(LimitHit::TooLarge)) => self.wal.set_limit_bytes(u64::MAX),
                Err(uncommitted) if uncommitted.lacks_room() => {
                    self.make_room(|writer| room.restart_wal(writer))?;
                }
                Err(uncommitted) => {
                    entry.overrule(uncommitted.of_once());
                    return Ok(());
                }
            }
        }
        self.wal.set_limit_bytes(limit);
        Err(no_room_left())
    }

    fn repeat(&mut self, entry: &mut Entry) -> Result<(), Uncommitted> {
        // Waits for another process that writes, and has SQLite recover what a killed one left.
        self.begin().map_err(|error| Uncommitted::Failed(error.into()))?;
        self.abandon();
        let group = entry.member.group().expect("a member that repeats has a group");
        self.progress.expose();
        let mut failure = None;
        let (pages, marker) = (&mut group.pages, group.marker.as_deref());
        let repeated = self.connection.repeat(group.size, group.after, marker, &mut |take| {
            let mut give = |number, page: &[u8]| take(number, page).map_err(io::Error::other);
            let given = pages.iter_mut().try_for_each(|pages| pages.each(&mut give));
            given.map_err(|error| {
                let code = error.get_ref().and_then(|it| it.downcast_ref::<IoError>()).copied();
                code.unwrap_or_else(|| {
                    failure = Some(error);
                    IoError::DATA
                })
            })
        });
        let error = match repeated {
            Ok(commits) => {
                group.last.note(commits, group.marker.take());
                self.wal.note_committed();
                return Ok(());
            }
            Err(error) if is_outdated(&error) => written_by_another(),
            Err(error) => error.into(),
        };
        self.wal.note_failed();
        let hit = self.wal.take_limit_hit();
        if let Some(failure) = failure {
            let message = format!("the pages to be repeated cannot be read: {failure}");
            return Err(Uncommitted::Failed(Error::new(ErrorKind::Storage, message)));
        }
        self.note_lost_write(&error, "a commit");
        if hit == Some(LimitHit::GateShut) {
            return Err(Uncommitted::Failed(group.last.failure()));
        }
        Err(hit.map_or(Uncommitted::Failed(error), Uncommitted::of))
    }
}

fn is_outdated(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|it| it.extended_code == IoError::OUTDATED.code())
}

fn written_by_another() -> Error {
    Error::new(ErrorKind::Conflict, "another program has written to the file")
}
