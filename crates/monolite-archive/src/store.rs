//! Owns the trait of stores: the little that an archive asks of the place where its files lie.
//!
//! # Invariants
//! A store is usable for an archive that fences when of several [`create`](Store::create) of one
//! key at most one is done while the object is there, when [`swap`](Store::swap) replaces the
//! object of the given tag and no other, and when [`get`](Store::get) and [`list`](Store::list) see
//! every write that was answered.
//!
//! # Not here
//! Retries: a store makes none, least of all of conditional writes, whose second attempt would be
//! refused because of the first. Those who ask know when to ask again.

use std::fmt;
use std::io::Write;
use std::ops::Range;

use monolite_ltx::Timestamp;

use crate::error::Result;

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
mod bucket;
mod directory;
mod faulty;
mod memory;

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
pub use bucket::{BucketStore, Service};
pub use directory::DirectoryStore;
pub(crate) use directory::sync_directory;
pub use faulty::{Call, Decide, Fault, FaultyStore};
pub use memory::MemoryStore;

/// What tells one content of an object from another: an ETag, a generation. Opaque.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tag(String);

impl Tag {
    /// As a store of one's own gives it.
    pub fn new(text: impl Into<String>) -> Tag {
        Tag(text.into())
    }

    /// The text that the store gave.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Which bytes of an object are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All; an object of more than so many bytes is refused as
    /// [`Corrupt`](crate::ErrorKind::Corrupt).
    Whole(u64),
    /// From one byte to before another. Where the object ends earlier, those that there are.
    Range(Range<u64>),
    /// So many from its end, or all if it is shorter.
    End(u64),
}

impl Part {
    /// The bytes of an object of `len` bytes that are asked for; `None` when it is too long.
    pub(crate) fn of(&self, len: u64) -> Option<Range<u64>> {
        match self {
            Part::Whole(limit) => (len <= *limit).then_some(0..len),
            Part::Range(range) => {
                let end = range.end.min(len);
                Some(range.start.min(end)..end)
            }
            Part::End(bytes) => Some(len.saturating_sub(*bytes)..len),
        }
    }
}

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Those that were asked for.
    pub bytes: Vec<u8>,
    /// Length of the whole object in bytes.
    pub len: u64,
    /// Of the object that they are of. For [`Store::swap`] it must come from
    /// [`Part::Whole`] or from a write.
    pub tag: Tag,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its length in bytes.
    pub len: u64,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Objects in the order of their keys.
    pub objects: Vec<Listed>,
    /// Whether others follow: ask again, after the last of these.
    pub is_cut: bool,
}

/// A place for objects, each with a key of parts separated by `/`.
///
/// Calls block. **Of a write, any error leaves open whether it was done**, even much later.
pub trait Store: Send + Sync {
    /// Creates an object unless there is one of that key. `time` is kept beside it where the store
    /// can: programs that know a file's time without its header look there.
    ///
    /// # Errors
    /// Those of a store, see [`ErrorKind`](crate::ErrorKind); [`Io`](crate::ErrorKind::Io);
    /// [`Invalid`](crate::ErrorKind::Invalid) when there cannot be such a key.
    ///
    /// # Durability
    /// When it is answered it outlives the machine that asked, and in a directory a power cut.
    fn create(&self, key: &str, body: &[u8], time: Option<Timestamp>) -> Result<Tag>;

    /// The same for a body that is written piece by piece, as long as it may be: a bucket has a few
    /// parts of it in memory, and a directory none. `about` is how many bytes it has, if that is
    /// known, and 0 otherwise: above some gigabytes it decides how long parts are. It is visible
    /// when it is whole, or never. `write` is called once.
    ///
    /// **For files whose name says what is in them**, as those of levels and snapshots, and neither
    /// for slots nor for the record: a store may look whether the object is there, and then create
    /// it from its parts. Of two that do so in the same moment each may be told that it has, and
    /// the later one's body stays, of the same pages. [`create`](Store::create) never does that.
    ///
    /// Unless a store does better, the body is in memory.
    ///
    /// # Errors
    /// Those of [`create`](Store::create), and what `write` gives, which is how it is stopped:
    /// then nothing is created.
    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
    ) -> Result<Tag> {
        let _ = about;
        let mut body = Vec::new();
        write(&mut body)?;
        self.create(key, &body, time)
    }

    /// Replaces the object of tag `expected`.
    ///
    /// # Errors
    /// Those of [`create`](Store::create).
    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> Result<Tag>;

    /// Reads an object, or a part of it; `None` when there is none.
    ///
    /// # Errors
    /// Those of a store; [`Corrupt`](crate::ErrorKind::Corrupt) when it is longer than allowed.
    fn get(&self, key: &str, part: Part) -> Result<Option<Fetched>>;

    /// Lists the objects whose key is `prefix`, a `/`, and one more part; in order, those after
    /// the key `after`.
    ///
    /// # Errors
    /// Those of a store.
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Listing>;

    /// Deletes an object. That there is none is no error.
    ///
    /// # Errors
    /// Those of a store.
    fn delete(&self, key: &str) -> Result<()>;
}

/// So many bytes as a length in memory.
pub(crate) fn in_memory(bytes: u64) -> Result<usize> {
    let fits = usize::try_from(bytes);
    fits.map_err(|_| crate::error::Error::corrupt(format!("{bytes} bytes are too many")))
}
