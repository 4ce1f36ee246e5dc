//! The parts of an archive: its list of files, plans, merges and retention, and the protocol by
//! which one process at a time fills slots. For the command, tests, benchmarks and simulations.
//!
//! **Not covered by the promise of compatibility**: any release may change it.
//!
//! ```
//! use std::time::Duration;
//!
//! use monolite_archive::internals::*;
//! use monolite_archive::{Epoch, Layout, Lineage, MemoryStore, Result};
//! use monolite_ltx::{PageSize, Timestamp, Txid};
//!
//! /// A test's clock: waiting advances it.
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
//!     lease: Some(Duration::from_secs(10)),
//!     address: "10.0.0.1:7000".into(),
//!     stream: String::new(),
//!     page_size: PageSize::new(4096).expect("it is a power of two"),
//!     commit: 1,
//!     time: Timestamp::from_millis(1_700_000_000_000),
//!     unrecorded: Unrecorded::Refuse,
//!     replicated: Replicated::Nothing,
//! };
//! // Become the primary: take the next epoch, fence, read what is below, serve.
//! let grounds = Grounds::Silence(Duration::from_secs(2));
//! let claimed = run(&mut Claim::new(candidate, grounds), &store, &layout, &mut clock);
//! let Some(Ok(ClaimOutcome::Taken(claimed))) = claimed else { panic!("no other claimant") };
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

pub use crate::archiver::{Adopted, Present, adopt, has_unarchived, may_lack};
pub use crate::catalog::Catalog;
pub use crate::compaction::{compact, compact_level, snapshot, snapshot_at};
pub use crate::file::ArchivedFile;
pub use crate::follower::{Turn, follows, turn};
pub use crate::layout::{Level, LevelKeys};
pub use crate::open::{open, open_with};
pub use crate::output::unfinished;
pub use crate::plan::Plan;
pub use crate::probe::probe;
pub use crate::protocol::{
    Candidate, Certainty, Claim, ClaimOutcome, Claimed, Covered, Deletion, Fill, Filled, Grounds,
    Machine, Primary, Replicated, Reply, Request, Step, Unrecorded, Update, Updated,
};
pub use crate::record::{Fence, Holder, ReplicaId};
pub use crate::requests::{Pace, carry_out, leader, run};
pub use crate::restore::{restore, restore_noting};
pub use crate::retention::{Horizon, Retention};
pub use crate::slot::{Found, Place, Slot, SlotId};
pub use crate::store::{Call, Decide, Fault, FaultyStore};
pub use crate::verify::verify;
pub use crate::wall_clock::now as wall_clock_now;
