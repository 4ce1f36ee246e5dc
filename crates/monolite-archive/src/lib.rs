//! The archive: a copy of one database under one prefix of an object store or in a directory, from
//! which any kept moment can be restored, and in which one process at a time makes history.
//!
//! ```
//! use std::time::Duration;
//!
//! use monolite_archive::*;
//! use monolite_ltx::{PageSize, Timestamp, Txid};
//!
//! /// A test's clock: it is later when somebody waits.
//! struct Clock(Duration);
//!
//! impl Pace for Clock {
//!     fn now(&self) -> Duration {
//!         self.0
//!     }
//!
//!     fn wait(&mut self, until: Duration) -> bool {
//!         self.0 = until;
//!         true
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let (store, layout) = (MemoryStore::new(), Layout::directory());
//! let mut clock = Clock(Duration::ZERO);
//! let candidate = Candidate {
//!     holder: Holder::from_bits(0x5eed),
//!     lineage: Lineage::from_bits(0xfeed),
//!     ttl: Duration::from_secs(10),
//!     page_size: PageSize::new(4096).expect("it is a power of two"),
//!     commit: 1,
//!     time: Timestamp::from_millis(1_700_000_000_000),
//!     unrecorded: Unrecorded::Refuse,
//! };
//! // Become the primary: take the next epoch, fence, read what is below, serve.
//! let grounds = Grounds::Silence(Duration::from_secs(2));
//! let claimed = run(&mut Claim::new(candidate, grounds), &store, &layout, &mut clock);
//! let Some(Ok(ClaimOutcome::Taken(claimed))) = claimed else { panic!("nobody else is there") };
//! let mut primary = Primary::new(*claimed)?;
//! let updated = run(&mut primary.serve("10.0.0.1:7000", None)?, &store, &layout, &mut clock);
//! primary.updated(&updated.expect("the clock never ends")?);
//! assert_eq!((primary.epoch(), primary.next()), (Epoch(1), Txid::new(3).expect("it is not 0")));
//!
//! // The fence is the first slot, and the record says so.
//! let catalog = Catalog::read(&store, &layout)?;
//! assert_eq!(catalog.newest(), Txid::new(2));
//! assert_eq!(leader(&store, &layout)?.expect("it was made").address, "10.0.0.1:7000");
//! # Ok(())
//! # }
//! ```
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
mod archiver;
mod compaction;
mod comparison;
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

mod protocol;

mod file;
mod layout;
mod record;
mod seen;
mod slot;
mod store;
mod wall_clock;

mod owner;

mod error;

pub use archiver::{Adopted, Archive, Present, adopt};
pub use catalog::Catalog;
pub use compaction::{compact, compact_level, snapshot, snapshot_at};
pub use error::{Error, ErrorKind, Result};
pub use file::ArchivedFile;
pub use layout::{Layout, Level, LevelKeys};
pub use open::{open, open_with};
pub use output::unfinished;
pub use plan::{Kept, Plan, Target};
pub use probe::probe;
pub use protocol::{
    Candidate, Certainty, Claim, ClaimOutcome, Claimed, Covered, Deletion, Fill, Filled, Grounds,
    Machine, Primary, Reply, Request, Step, Unrecorded, Update, Updated,
};
pub use record::{Epoch, Fence, Holder, Lineage, Record, State};
pub use requests::{Pace, carry_out, leader, run};
#[doc(hidden)]
pub use restore::restore_noting;
pub use restore::{Reading, Restored, restore};
pub use retention::{Horizon, Keep, Retention};
pub use slot::{Found, Place, Slot, SlotId};
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
pub use store::{BucketStore, Service};
pub use store::{
    Call, Decide, DirectoryStore, Fault, FaultyStore, Fetched, Listed, Listing, MemoryStore, Part,
    Store, Tag,
};
pub use verify::{Proof, verify};
