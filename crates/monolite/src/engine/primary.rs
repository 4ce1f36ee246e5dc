//! Owns what an engine has to do with an archive: what that may do with the open database, what it
//! is asked before the WAL begins anew, and those who wait for it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use monolite_sqlite::vfs::{Anew, WalPosition};
use monolite_sqlite::wal::WalReader;

use super::Engine;
use crate::activity::{CallKind, Caller};
use crate::archive::{ArchiveToken, Archiving, Primary};
use crate::backup;
use crate::backup::part::HeaderOf;
use crate::call::member::ArchiveWait;
use crate::call::write_queue::WriteQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::files::open::Opened;
use crate::files::wal::WalFile;
use crate::jobs::Jobs;
use crate::options::{Durability, Options};
use crate::progress::{Observer, Progress};
use crate::read::handle::WaitForArchive;
use crate::write::answers::Answers;
use crate::write::archived::Archived;

/// The parts of an engine that its archive uses.
struct OpenDatabase {
    wal: Arc<WalFile>,
    source: backup::Source,
    jobs: Arc<Jobs>,
    archived: Arc<Archived>,
    progress: Arc<Progress>,
    queue: Arc<WriteQueue>,
}

impl fmt::Debug for OpenDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenDatabase").field(&self.source.database).finish()
    }
}

impl Primary for OpenDatabase {
    fn wal(&self) -> io::Result<Option<WalReader>> {
        self.wal.reader()
    }

    fn size(&self) -> Result<(u32, u32)> {
        let reader = (self.source.open_reader)()?;
        Ok(reader.connection.maintenance().size()?)
    }

    fn copy(&self, target: &Path) -> Result<WalPosition> {
        let (source, target) = (self.source.clone(), target.to_owned());
        let copy = move |job: &_| source.copy_at(&target, HeaderOf::Database, job);
        self.jobs
            .start(Caller::default().of(CallKind::Copy), move |job| {
                copy(job).map(|(_, position)| position)
            })
            .wait()
    }

    fn waiting(&self) -> usize {
        self.archived.waiting()
    }

    fn archived(&self, to: WalPosition) {
        self.archived.note(to);
    }

    fn replicated(&self, to: WalPosition, count: usize) {
        self.archived.note_replicated(to, count);
    }

    fn fenced(&self, reason: String, is_certain: bool) {
        self.archived.note_unknown(!is_certain);
        self.progress.stop(ErrorKind::Fenced, reason);
        self.queue.close();
        self.archived.look();
    }

    fn failed(&self, error: &str) {
        self.progress.events.warn("the archive fails", error);
    }
}

/// The archive, and those who wait for it.
#[derive(Clone)]
pub(super) struct ArchiveSide {
    pub(super) archiving: Arc<dyn Archiving>,
    pub(super) archived: Arc<Archived>,
}

impl Observer for ArchiveSide {
    fn durable(&self, to: WalPosition) {
        self.archiving.durable(to);
    }
}

impl ArchiveSide {
    /// Has the archive read what the WAL holds before that is overwritten or cut off.
    pub(super) fn of(
        opened: &Opened,
        options: &Options,
        progress: &Arc<Progress>,
    ) -> Option<ArchiveSide> {
        let archiving = Arc::clone(opened.archiving.as_ref()?);
        // The archive has the WAL in turn: neither may keep the other for good.
        let (control, reading) = (Arc::downgrade(&opened.wal), Arc::downgrade(&archiving));
        opened.wal.set_gate(move |next| {
            let both = control.upgrade().zip(reading.upgrade());
            both.is_some_and(|(control, reading)| match next {
                Anew::Asked => reading.may_restart(control.committed()),
                Anew::Begins(salts) => reading.capture(control.committed(), Some(salts)).is_ok(),
                Anew::Cut => reading.capture(control.committed(), None).is_ok(),
            })
        });
        let wal = Arc::downgrade(&opened.wal);
        let (capacity, limit) = (options.queue_capacity, options.archive_time_limit());
        // It keeps what has this.
        let asked = Arc::downgrade(&archiving);
        let hurry = move |replicated| {
            asked.upgrade().iter().for_each(|archiving| match replicated {
                false => archiving.awaited(),
                true => archiving.replicates(),
            });
        };
        let progress = Arc::clone(progress);
        let archived = Archived::new(capacity, limit, progress, wal, Box::new(hurry));
        Some(ArchiveSide { archiving, archived: Arc::new(archived) })
    }

    /// Why the WAL stays beside a database that is closed.
    pub(super) fn keeps_wal(&self) -> Error {
        let reason = self.archiving.stats().last_error;
        let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
        let message = format!(
            "the database is closed, and its WAL stays beside it: the archive lacks commits of \
             it{reason}, and no more may be kept elsewhere; they are archived when the database \
             is opened again"
        );
        Error::new(ErrorKind::Overloaded, message)
    }

    /// What reads wait for.
    pub(super) fn wait(&self) -> WaitForArchive {
        let archived = Arc::clone(&self.archived);
        Arc::new(move |replicas, limit| archived.when_all(replicas, limit))
    }

    /// Has the archive begin with the open database.
    ///
    /// # Errors
    /// What it refuses the database for.
    pub(super) fn start(self, engine: &Engine, wal: Arc<WalFile>) -> Result<()> {
        let primary = OpenDatabase {
            wal,
            source: engine.backups.clone(),
            jobs: Arc::clone(&engine.parts.jobs),
            archived: self.archived,
            progress: Arc::clone(&engine.parts.progress),
            queue: Arc::clone(&engine.parts.queue),
        };
        self.archiving.start(Arc::new(primary)).map_err(Error::from)
    }
}

impl Engine {
    /// # Errors
    /// See [`Database::with_durability`](crate::Database::with_durability).
    pub(crate) fn check_durability(&self, asked: Durability) -> Result<()> {
        let refused = |why| Err(Error::new(ErrorKind::Invalid, why));
        let is_buffered = self.durability == Durability::Buffered;
        match asked {
            Durability::Archived | Durability::Replicated(_) if self.archiving.is_none() => {
                Err(Error::without_archive(&format!("the durability {asked:?}")))
            }
            Durability::Replicated(0) => refused("the durability Replicated(0) is Synced"),
            Durability::Synced if is_buffered => refused(
                "the database was opened with the durability Buffered, so it never syncs; open it \
                 with Synced for this",
            ),
            Durability::Buffered if !is_buffered => refused(
                "the database was opened with another durability than Buffered, so all that it \
                 acknowledges is on the disk",
            ),
            _ => Ok(()),
        }
    }

    /// For what the answer of a write that is to be so durable waits: not longer than `limit` where
    /// the call has one.
    pub(crate) fn archive_wait(
        &self,
        asked: Durability,
        limit: Option<Duration>,
    ) -> Option<ArchiveWait> {
        asked.archive_wait(self.archive_limit(limit))
    }

    /// How long a call waits for the archive.
    pub(crate) fn archive_limit(&self, limit: Option<Duration>) -> Duration {
        limit.unwrap_or(self.archive_time_limit).min(self.archive_time_limit)
    }

    /// See [`Archiving::may_lack`].
    pub(crate) fn may_lack(&self, token: ArchiveToken) -> Option<String> {
        self.archiving.as_ref()?.may_lack(token)
    }

    /// # Errors
    /// See [`Database::archive_token`](crate::Database::archive_token).
    pub(crate) fn archive_token(&self) -> Result<ArchiveToken> {
        let archiving = self.archiving.as_ref();
        let archiving = archiving.ok_or_else(|| Error::without_archive("a token"))?;
        archiving.token().ok_or_else(|| {
            let reason = archiving.stats().last_error;
            let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
            let message = format!(
                "the archive has not answered yet, or has no copy of the database{reason}; try \
                 again later"
            );
            Error::new(ErrorKind::Overloaded, message)
        })
    }
}

/// How far an archive may lag behind.
pub(super) struct LagLimit {
    archiving: Arc<dyn Archiving>,
    limit: Duration,
}

impl LagLimit {
    pub(super) fn of(archive: Option<&ArchiveSide>, options: &Options) -> Option<LagLimit> {
        let archiving = Arc::clone(&archive?.archiving);
        let limit = options.archive.as_ref()?.lag_limit()?;
        Some(LagLimit { archiving, limit })
    }

    /// # Errors
    /// `Overloaded` when it lags farther behind.
    pub(super) fn check(&self) -> Result<()> {
        let (lag, limit) = (self.archiving.lag(), self.limit);
        if lag <= limit {
            return Ok(());
        }
        let reason = self.archiving.stats().last_error;
        let reason = reason.map_or_else(String::new, |error| format!(": {error}"));
        let message = format!(
            "the archive lags {lag:.1?} behind, and may lag {limit:.1?} (Archive::lag_limit)\
             {reason}; nothing was written: try again when the archive has caught up"
        );
        Err(Error::new(ErrorKind::Overloaded, message))
    }
}

/// Who tells so many members at most, behind the archive if they wait for that.
pub(super) fn answers(
    archive: Option<&ArchiveSide>,
    room: usize,
    progress: &Arc<Progress>,
) -> Arc<Answers> {
    let archived = archive.map(|archive| Arc::clone(&archive.archived));
    Arc::new(Answers::new(room, Arc::clone(progress), archived))
}
