//! Owns what a program does with an archive whose database need not be open: restore, verification,
//! the leader record, and the test of a store.

use std::path::Path;

use super::Archive;
use crate::error::Result;
use crate::plan::Target;
use crate::probe::probe;
use crate::random::drawn;
use crate::record::{Holder, Record};
use crate::requests::leader;
use crate::restore::{Restored, restore};
use crate::verify::{Proof, verify};

impl Archive {
    /// Restores a state to the new file `output`, which its owner alone may read.
    ///
    /// A restore that was stopped after some seconds leaves a file with the ending
    /// `.monolite-part` beside `output`; the next one to the same `output` goes on from it,
    /// if it is to read the same files. The newest state of an archive that grows needs other files
    /// each time; that of a [`Txid`](crate::Txid) stays the same until files are merged.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when `output`, or a `-wal`, `-shm` or `-journal`
    /// beside it, exists, when its name belongs to another database, or when another restore to it
    /// is under way; [`NotFound`](crate::ErrorKind::NotFound) when there is no such state, or no
    /// longer exactly; [`Corrupt`](crate::ErrorKind::Corrupt) and [`Gap`](crate::ErrorKind::Gap)
    /// when files are damaged or gone and no others lead to the same state;
    /// [`Io`](crate::ErrorKind::Io); those of the store.
    ///
    /// # Durability
    /// The file gets its name when it is whole and on disk.
    pub fn restore(&self, target: Target, output: &Path) -> Result<Restored> {
        restore(&*self.store, &self.layout, target, output)
    }

    /// Reads every file, compares all its checksums, and looks whether each snapshot leads to the
    /// newest state without a hole.
    ///
    /// # Errors
    /// Those of the store. Damaged files, holes, and files that the store lists and refuses to give
    /// are in [`Proof::problems`].
    pub fn verify(&self) -> Result<Proof> {
        verify(&*self.store, &self.layout, &mut |_| {})
    }

    /// The leader record, which says which process is the primary; `None` before a primary of
    /// Monolite made one.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) or [`Unsupported`](crate::ErrorKind::Unsupported) for
    /// a record that cannot be read; those of the store.
    pub fn leader(&self) -> Result<Option<Record>> {
        leader(&*self.store, &self.layout)
    }

    /// Tests whether the store refuses what [`Store`](crate::Store) says that it refuses: it
    /// creates an object twice, and replaces it under a wrong and a right tag. The object is
    /// deleted afterwards.
    ///
    /// ```
    /// # fn main() -> monolite_archive::Result<()> {
    /// use std::sync::Arc;
    ///
    /// use monolite_archive::{Archive, Layout, MemoryStore};
    ///
    /// let archive = Archive::of(Arc::new(MemoryStore::new()), Layout::directory());
    /// archive.probe()?;
    /// assert!(archive.leader()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when the store does what it must refuse: two
    /// primaries could then write at once. Those of the store, after which nothing is known.
    pub fn probe(&self) -> Result<()> {
        probe(&*self.store, &self.layout, Holder::from_bits(drawn()?))
    }
}
