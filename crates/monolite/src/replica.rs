//! Owns a database that another one's commits are repeated in, page by page: what a follower is
//! made of. The crate `monolite-archive` has one.
//!
//! # Invariants
//! - Nothing but those commits changes the database through its handles.
//! - A commit of another program, which only `Sharing::Shared` allows, is noticed before the next
//!   one is repeated, and that is refused then.
//! - While the WAL has commits, the last one's marker says which state the file has. Before they
//!   go, the [`Keeper`] has noted it.

use std::path::Path;
use std::sync::Arc;

use crate::archive::Pages;
use crate::call::completion::Completion;
use crate::call::member::{Alone, Around, Group, Submission};
use crate::call::write::Write;
use crate::database::Database;
use crate::error::Result;
use crate::maintenance::REWRITE_LIMIT;
use crate::markers::{Keeper, Last};
use crate::options::{Durability, Options, Sharing};

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
        let last = Arc::new(Last::of(keeper));
        let replica = Some(Arc::clone(&last));
        let (archive, optimize_every, durability) = (None, None, Durability::Synced);
        let is_exclusive = options.sharing == Sharing::Exclusive;
        let options = options.must_exist();
        let options = Options { archive, replica, optimize_every, durability, ..options };
        let database = options.open(path)?;
        let counted = |writer: &monolite_sqlite::Connection| Ok(writer.commits()?);
        let counted = database.engine().backups().between.run(|| Ok(()), counted)?;
        last.counts(counted);
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
    /// has `size` pages. Readers keep the snapshots that they have. A `marker` is on disk with the
    /// commit, and no part of the database; it fits a page with
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
        self.submit(groups, size, marker, Some(self.last.commits()))
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
