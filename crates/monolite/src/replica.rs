//! Owns a database that another one's commits are repeated in, page by page: what a follower is
//! made of. The crate `monolite-archive` has one.
//!
//! # Invariants
//! - Nothing but those commits changes the database through its handles.
//! - A commit of another program, which only `Sharing::Shared` allows, is noticed before the next
//!   one is repeated, and that is refused then.
//! - While the WAL has commits, the last one's marker says which state the file has. Before they
//!   go, the [`Keeper`] has noted it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolite_sqlite::vfs::Anew;

use crate::archive::{Pages, WAL_HEADER_BYTES, WalReader};
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, Group, Submission};
use crate::call::write::Write;
use crate::database::Database;
use crate::error::{Error, ErrorKind, Result};
use crate::maintenance::REWRITE_LIMIT;
use crate::options::{Durability, Options, Sharing};

/// What the WAL of a [`Replica`] has when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastCommit {
    /// No commit; the salts of its header, if it has one.
    Nothing(Option<[u32; 2]>),
    /// A commit, and its marker.
    Marked(Vec<u8>),
    /// A commit without a marker, or what another process has in use.
    Unmarked,
}

/// What keeps the marker of the last commit of a [`Replica`] when the WAL goes that has it.
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

/// What is known of the last commit of a [`Replica`].
pub(crate) struct Last {
    keeper: Arc<dyn Keeper>,
    /// How many commits the wal-index had counted behind it.
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
        self.commits.store(commits, Ordering::Relaxed);
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

/// A database that repeats the commits of another one.
pub struct Replica {
    database: Database,
    last: Arc<Last>,
    is_exclusive: bool,
}

impl Replica {
    /// Opens the file at `path`, which has a state of the other database. Of `options` those hold
    /// that concern reads. `why` is what a write through a handle fails with.
    ///
    /// # Errors
    /// Those of [`Options::open`]; `Storage` when the keeper fails.
    pub fn open(
        options: Options,
        path: &Path,
        why: &str,
        keeper: Arc<dyn Keeper>,
    ) -> Result<Replica> {
        let commits = AtomicU32::default();
        let last = Last { keeper, commits, marker: Mutex::default(), failure: Mutex::default() };
        let last = Arc::new(last);
        let replica = Some(Arc::clone(&last));
        let (archive, optimize_every, durability) = (None, None, Durability::Synced);
        let is_exclusive = options.sharing == Sharing::Exclusive;
        let options = options.must_exist();
        let options = Options { archive, replica, optimize_every, durability, ..options };
        let database = options.open(path)?;
        let counted = |writer: &monolite_sqlite::Connection| Ok(writer.commits()?);
        let counted = database.engine().backups().between.run(|| Ok(()), counted)?;
        last.commits.store(counted, Ordering::Relaxed);
        Ok(Replica { database: database.reading_only(why), last, is_exclusive })
    }

    /// Whether no other process can open the file.
    pub fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// Its handle, which only reads.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Commits the pages of `groups`, oldest first, as one transaction behind which the database
    /// has `size` pages. Readers keep the snapshots that they have. A `marker` belongs to the commit
    /// and is no part of the database; it fits a page with
    /// [`MARKER_BYTES`](crate::archive::MARKER_BYTES) to spare. Blocks.
    ///
    /// # Durability
    /// It is on disk when this returns, with its marker: a process that is killed before has both
    /// or neither.
    ///
    /// # Errors
    /// `Conflict` when another program has written to the file since the last one; `Storage` for
    /// pages that cannot be read; those of a write of a [`Database`].
    pub fn repeat(
        &self,
        groups: Vec<Box<dyn Pages>>,
        size: u32,
        marker: Option<Vec<u8>>,
    ) -> Result<()> {
        self.submit(groups, size, marker, Some(self.last.commits.load(Ordering::Relaxed)))
    }

    /// As [`Replica::repeat`] with the whole of a database, over whatever is there.
    ///
    /// # Errors
    /// As [`Replica::repeat`], but for `Conflict`.
    pub fn replace(&self, whole: Box<dyn Pages>, size: u32, marker: Option<Vec<u8>>) -> Result<()> {
        self.submit(vec![whole], size, marker, None)
    }

    fn submit(
        &self,
        pages: Vec<Box<dyn Pages>>,
        size: u32,
        marker: Option<Vec<u8>>,
        after: Option<u32>,
    ) -> Result<()> {
        let writes = self.database.engine().queue();
        let group = Group { pages, size, marker, after, last: Arc::clone(&self.last) };
        let alone = Alone { limit: REWRITE_LIMIT, around: Around::Repeat };
        let caller = Completion::new();
        let terms = writes.terms().of_upkeep("follow");
        let member = Submission::new(group, terms, Arc::clone(&caller)).alone(alone);
        Write::submit(Box::new(member), caller, writes).wait()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
