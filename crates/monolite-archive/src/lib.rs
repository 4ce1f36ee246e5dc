//! Keeps the history of a SQLite database in a bucket or a directory while [Monolite](monolite) has
//! it open, and restores any kept moment of it to a new file.
//!
//! ```
//! use monolite::{Durability, Options};
//! use monolite_archive::{Archive, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let url = directory.path().join("archive");
//! # let url = url.to_str().expect("it is text");
//! # let (file, restored) = (directory.path().join("shop.db"), directory.path().join("new.db"));
//! // `url` is s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a path.
//! let archive = Archive::at(url)?;
//! let options = Options::new().archive(archive.clone()).durability(Durability::Archived);
//! let db = options.open(&file)?;
//! db.write(|tx| tx.execute_batch("CREATE TABLE orders(id INTEGER PRIMARY KEY, item TEXT)"))
//!     .wait()?; // on the disk and in the archive
//! db.close()?;
//!
//! // On another machine: everything that was acknowledged.
//! let made = archive.restore(Target::Latest, &restored)?;
//! println!("the state of {}", made.time);
//! assert!(archive.verify()?.problems.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! - [`Archive`] is built from an address and given to [`monolite::Options::archive`].
//! - [`Archive::restore`] makes a file of a [`Target`], [`Archive::verify`] reads every file and
//!   compares its checksums, and [`Archive::leader`] says which process is the primary.
//! - [`Follower`] is a file that has what the archive has, a moment later, for reads, and that can
//!   be the next primary's ([`Follower::claim`], [`Follower::promote`]).
//! - [`Store`] is the trait for a store of one's own; [`Archive::probe`] tests it.
//!
//! `monolite archive` does all of that on the command line; the guide is `docs/guides/archive.md`.
//!
//! # Format
//! LTX files in the layout of Litestream, and a leader record ([`Record`]):
//! `docs/formats/archive.md`.
//!
//! # Not here
//! Requests over a network, unless a feature `s3`, `gcs` or `azure` is on, or followers stream
//! ([`Archive::stream_to`]).

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod internals;

// From above to below: what is done with an archive, who may do it, and what it consists of.
mod archiver;
mod compaction;
mod comparison;
mod follower;
mod open;
mod probe;
mod restore;
mod retention;
mod verify;

mod output;
mod plan;
mod source;

mod catalog;

mod requests;
mod streaming;

mod protocol;

mod file;
mod layout;
mod record;
mod seen;
mod slot;
mod store;
mod wall_clock;

mod owner;
mod random;

mod error;

pub use archiver::Archive;
pub use error::{Error, ErrorKind, Result};
pub use follower::{Follower, FollowerStats, Succession, Takeover};
pub use layout::Layout;
pub use monolite_ltx::{Timestamp, Txid};
pub use plan::{Kept, Target};
pub use record::{Epoch, Lineage, Record, State};
pub use restore::Restored;
pub use retention::Keep;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
pub use store::{BucketStore, Service};
pub use store::{DirectoryStore, Fetched, Listed, Listing, MemoryStore, Part, Store, Tag};
pub use verify::Proof;

/// Compiles what the guide shows.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/archive-setup.md")]
    struct ArchiveSetup;
    #[doc = include_str!("../../../docs/guides/failover.md")]
    struct Failover;
    #[doc = include_str!("../../../docs/guides/read-replicas.md")]
    struct ReadReplicas;
}
