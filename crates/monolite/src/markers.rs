//! Owns what is known of the last commit of a [replica](crate::Replica): its marker, which is on
//! disk with it as long as its WAL is, and who keeps that when the WAL goes.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolite_sqlite::vfs::Anew;

use crate::archive::{WAL_HEADER_BYTES, WalReader};
use crate::error::{Error, ErrorKind};

/// What the WAL of a [`Replica`](crate::Replica) has when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastCommit {
    /// No commit; the salts of its header, if it has one.
    Nothing(Option<[u32; 2]>),
    /// A commit, and its marker.
    Marked(Vec<u8>),
    /// A commit without a marker, or what another process has in use.
    Unmarked,
}

/// What keeps the marker of the last commit of a [`Replica`](crate::Replica) when the WAL goes that
/// has it.
pub trait Keeper: Send + Sync {
    /// The database is being opened, and its WAL has this; all of it is in the database file, on
    /// the disk. Returns the marker of the state that the file has, if it is known.
    fn found(&self, last: LastCommit) -> Option<Vec<u8>>;

    /// The WAL goes when this has returned, and `marker` with it: that of the last commit, which is
    /// in the database file, on the disk. `next` has the salts with which the WAL begins anew; none
    /// when it is cut. Nothing is written to the database file before the WAL has begun with them,
    /// or with others of which this is told. The writer waits.
    ///
    /// # Errors
    /// Why it was not noted. The WAL stays as it is then, and the commit fails with `Storage`.
    fn leaves(&self, marker: &[u8], next: Option<[u32; 2]>) -> Result<(), String>;
}

/// What is known of the last commit of a [`Replica`](crate::Replica).
pub(crate) struct Last {
    keeper: Arc<dyn Keeper>,
    commits: AtomicU32,
    marker: Mutex<Option<Vec<u8>>>,
    /// Why the keeper failed last.
    failure: Mutex<Option<String>>,
}

impl fmt::Debug for Last {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Last").field("commits", &self.commits).finish_non_exhaustive()
    }
}

impl Last {
    pub(crate) fn of(keeper: Arc<dyn Keeper>) -> Last {
        let commits = AtomicU32::default();
        Last { keeper, commits, marker: Mutex::default(), failure: Mutex::default() }
    }

    /// How many commits the wal-index had counted behind it.
    pub(crate) fn commits(&self) -> u32 {
        self.commits.load(Ordering::Relaxed)
    }

    /// The wal-index has counted so many.
    pub(crate) fn counts(&self, commits: u32) {
        self.commits.store(commits, Ordering::Relaxed);
    }

    /// Asks the keeper which state the file has, whose WAL has so many frames of commits, and is
    /// about to be emptied.
    ///
    /// # Errors
    /// Those of reading the WAL, and of the keeper.
    pub(crate) fn find(&self, wal: Option<&WalReader>, frames: u64) -> io::Result<()> {
        let last = match wal {
            None => LastCommit::Nothing(None),
            Some(wal) if frames > 0 => {
                wal.marker(wal.end_of(frames))?.map_or(LastCommit::Unmarked, LastCommit::Marked)
            }
            // Where another process has it in use, no frames were found.
            Some(wal) => match wal.commits(WAL_HEADER_BYTES, wal.end_of(u32::MAX.into()), 1) {
                Ok(_) => LastCommit::Unmarked,
                Err(_) => LastCommit::Nothing(Some(wal.salts())),
            },
        };
        let Some(marker) = self.keeper.found(last) else { return Ok(()) };
        self.keeper.leaves(&marker, None).map_err(io::Error::other)?;
        *locked(&self.marker) = Some(marker);
        Ok(())
    }

    /// A commit has succeeded. To be called on the thread that commits, before the next one.
    pub(crate) fn note(&self, commits: u32, marker: Option<Vec<u8>>) {
        self.counts(commits);
        *locked(&self.marker) = marker;
    }

    /// Whether that may become of the WAL. Called where nothing commits.
    pub(crate) fn lets(&self, next: Anew) -> bool {
        let next = match next {
            Anew::Asked => return true,
            Anew::Begins(salts) => Some(salts),
            Anew::Cut => None,
        };
        let Some(marker) = locked(&self.marker).clone() else { return true };
        let left = self.keeper.leaves(&marker, next);
        let is_noted = left.is_ok();
        *locked(&self.failure) = left.err();
        is_noted
    }

    /// Why the WAL may not begin anew.
    pub(crate) fn failure(&self) -> Error {
        let why = locked(&self.failure).take().unwrap_or_default();
        let message = format!("the WAL may not begin anew before its position is noted: {why}");
        Error::new(ErrorKind::Storage, message)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
