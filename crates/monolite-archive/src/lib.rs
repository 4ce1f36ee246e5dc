//! The archive: a copy of one database under one prefix of an object store or in a directory, from
//! which any kept moment can be restored, and in which one process at a time makes history.
//!
//! # Format
//! Files are LTX, laid out as Litestream lays them out ([`Layout`]), and a leader record
//! ([`Record`]).
//!
//! # Not here
//! Where commits come from: this crate knows neither SQLite nor the engine. Requests over a
//! network: a [`Store`] is a trait. Threads and clocks: calls block, and who calls has both.

#![forbid(unsafe_code)]

// From above to below: what is done with an archive, who may do it, and what it consists of.
mod compaction;
mod probe;
mod restore;
mod retention;
mod verify;

mod plan;
mod source;

mod catalog;

mod requests;

mod protocol;

mod layout;
mod record;
mod slot;
mod store;

mod error;

pub use catalog::{ArchivedFile, Catalog};
pub use compaction::{compact_level, snapshot, span_start};
pub use error::{Error, ErrorKind, Result};
pub use layout::{Layout, Level, LevelKeys};
pub use plan::{Plan, Target};
pub use probe::probe;
pub use protocol::{
    Candidate, Certainty, Claim, ClaimOutcome, Claimed, Covered, Deleted, Deletion, Fill, Filled,
    Grounds, Machine, Primary, Reply, Request, Step, Unrecorded, Update, Updated,
};
pub use record::{Epoch, Fence, Holder, Lineage, Record, State};
pub use requests::{Pace, carry_out, leader, run};
pub use restore::{Reading, Restored, restore};
pub use retention::{Keep, Retention};
pub use slot::{Found, Place, Slot, SlotId};
#[cfg(feature = "bucket")]
pub use store::{BucketStore, Service};
pub use store::{
    Call, Decide, DirectoryStore, Fault, FaultyStore, Fetched, Listed, Listing, MemoryStore, Part,
    Store, Tag,
};
pub use verify::{Proof, verify};
