//! Owns the protocol by which one process at a time fills the slots of an archive. It does no I/O:
//! it says what to ask of a store, is told the answer, and says what comes next, so that
//! simulations and archives run the same code.
//!
//! # Algorithm
//! A slot is created if it is absent, one at a time, numbered without a gap. *The slot alone makes
//! a commit history.* A primary's next slot is its last one and 1. Who takes over puts a **fence**,
//! a slot without pages, into the first free slot: that very one, or the one after it if the old
//! primary's last request landed first, which then is history and was read. A fence is never
//! deleted, so a request of the old primary is refused whenever it arrives, without any clock.
//!
//! 1. [`Claim`]: take the next epoch in the leader record by compare-and-swap; *then* find the
//!    newest slot and fence the one after it, climbing over what belongs to smaller epochs; *then*
//!    look whether the record still is ours. Only what lies below the fence is read, and after it
//!    was set.
//! 2. [`Fill`]: create the slot. Any answer but success says nothing: look into the slot. What is
//!    ours by length and sum was done; where nothing is, the same bytes again; anything else, and
//!    this primary is fenced for good.
//! 3. [`Update`]: change the record by compare-and-swap: to serve, to renew, to release. Here, too,
//!    anything but success says nothing, and the record is read.
//! 4. Note the newest slot; renew; only then delete slots before it ([`Deletion`]), no fence, and
//!    none that a higher level does not cover. A claimant's list comes after its claim, that after
//!    this renewal: it sees the newest slot, or a later one. Nothing but this order counts: however
//!    long the deletes take, and whatever is renewed and filled meanwhile.
//!
//! [`Primary`] holds the order between them.
//!
//! # Invariants
//! - What is acknowledged is the only content its slot ever has, and below every later fence.
//! - Below a fence there is no hole, and a reader knows which fences are history.
//! - A group of which it is said that it is not in history is not.
//!
//! `tests/it/interleavings.rs` has what could break them, a test each; in the simulation of
//! `tests/it/world.rs` checkers look at them in every turn, and notice when a rule is left out
//! (`tests/it/controls.rs`).
//!
//! # Not here
//! When to try again after a failure, and how long: who runs a machine waits as it likes
//! ([`run`](crate::internals::run)). A machine gives up by itself only where the store says
//! that the same request will not succeed later either, and a read says that it was not done.

use std::time::Duration;

use monolite_ltx::{Header, Txid};

use crate::error::Error;
use crate::record::Record;
use crate::slot::{Found, Slot};
use crate::store::Tag;

mod claim;
mod deletion;
mod fill;
mod primary;
mod swap;
mod update;

pub use claim::{Candidate, Claim, ClaimOutcome, Claimed, Grounds, Replicated, Unrecorded};
pub use deletion::{Covered, Deletion};
pub use fill::{Certainty, Fill, Filled};
pub use primary::Primary;
pub use update::{Update, Updated};

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The leader record and its tag.
    ReadRecord,
    /// Put the record where the one of that tag is, or where none is.
    WriteRecord(Box<Record>, Option<Tag>),
    /// The number of the newest slot.
    FindNewest,
    /// What the newest file of the levels above the slots begins with.
    FindMerged,
    /// What is in a slot.
    Look(Txid),
    /// Create a slot, unless it is there.
    Put(Slot),
    /// Delete a slot.
    Delete(Txid),
}

impl Request {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Request::ReadRecord | Request::FindNewest | Request::FindMerged | Request::Look(_)
        )
    }
}

/// What a store answers.
#[derive(Debug)]
pub enum Reply {
    /// To [`Request::ReadRecord`].
    Record(Option<(Box<Record>, Tag)>),
    /// The request was done: a record written, with its tag now.
    Written(Tag),
    /// To [`Request::FindNewest`]; `None` when there are no slots.
    Newest(Option<Txid>),
    /// To [`Request::FindMerged`]; `None` when there are no such files.
    Merged(Option<Header>),
    /// To [`Request::Look`].
    Slot(Option<Found>),
    /// The request was done: a slot created or deleted.
    Done,
    /// Anything else. Of a write it says nothing.
    Failed(Error),
}

impl Reply {
    /// The error, if the same request will not succeed later either.
    fn lasting_error(self) -> Option<Error> {
        match self {
            Reply::Failed(error) if !error.is_transient() => Some(error),
            _ => None,
        }
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Step<T> {
    /// Ask this of the store, then go on with the answer.
    Ask(Request),
    /// Go on, without an answer, when the clock says this.
    Wait(Duration),
    /// It has ended.
    Ended(T),
}

/// One procedure of the protocol.
///
/// A machine that was interrupted, or ended with an error of the store (such as refused
/// credentials), can be resumed: it repeats the last request, or the write that was found not to be
/// done. A dropped machine may have a request under way, which does no harm, but its outcome is
/// unknown.
pub trait Machine {
    /// What comes of it.
    type Outcome;

    /// Goes on: with no reply at the beginning and after a wait, otherwise with the reply to what
    /// was asked. `now` is a clock that no one sets and that counts while the machine sleeps
    /// (`CLOCK_BOOTTIME`). A reply that does not fit what was asked counts as none, and the same is
    /// asked again.
    fn step(&mut self, reply: Option<Reply>, now: Duration) -> Step<Self::Outcome>;
}
