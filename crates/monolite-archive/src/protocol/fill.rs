//! Owns how a slot is filled, and how a primary learns that it is none any more.

use std::time::Duration;

use super::{Machine, Reply, Request, Step};
use crate::error::Error;
use crate::record::Fence;
use crate::slot::{Found, Slot};

/// Puts a group into its slot.
#[derive(Clone, Debug)]
pub struct Fill {
    slot: Slot,
    is_first_place: bool,
    state: FillState,
}

#[derive(Clone, Debug)]
enum FillState {
    Putting,
    /// The answer said nothing, but for an error that stays.
    Looking(Option<Error>),
    /// Whether the fence that was found is one of history.
    Asking(Found),
}

/// What came of a [`Fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The group is history.
    Done,
    /// The slot has a fence left by a smaller epoch. List it in the record, and encode the group
    /// for the next slot.
    Fence(Fence),
    /// Another process is the primary, or claims to be this one.
    Fenced(Certainty),
}

/// Whether a group that found its slot taken is in history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It is certainly not.
    NotInHistory,
    /// It may be: it may have been there, and its slot have been compacted and deleted since.
    Unknown,
}

impl Fill {
    /// `is_first_place` says that the group was not sent to another slot before.
    pub(super) fn new(slot: Slot, is_first_place: bool) -> Fill {
        Fill { slot, is_first_place, state: FillState::Putting }
    }

    /// The group.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    fn request(&self) -> Request {
        match self.state {
            FillState::Putting => Request::Put(self.slot.clone()),
            FillState::Looking(_) => Request::Look(self.slot.txid()),
            FillState::Asking(_) => Request::ReadRecord,
        }
    }

    /// Goes on with what was asked for; `None` while it has not ended.
    fn answered(&mut self, reply: Reply) -> Result<Option<Filled>, Error> {
        match (self.state.clone(), reply) {
            (FillState::Putting, Reply::Done) => return Ok(Some(Filled::Done)),
            // Whatever was said, it may have been done, and may be still.
            (FillState::Putting, reply) => self.state = FillState::Looking(reply.lasting_error()),
            (FillState::Looking(error), Reply::Slot(None)) => {
                // The same bytes again: a request that is under way can only do the same.
                self.state = FillState::Putting;
                return error.map_or(Ok(None), Err);
            }
            (FillState::Looking(_), Reply::Slot(Some(found))) => return Ok(self.found(found)),
            // What is no file, or one of another format, is nothing of ours.
            (FillState::Looking(_), Reply::Failed(error)) if error.is_about_content() => {
                return Ok(Some(Filled::Fenced(Certainty::Unknown)));
            }
            (FillState::Looking(_), reply) => return reply.lasting_error().map_or(Ok(None), Err),
            (FillState::Asking(fence), Reply::Record(found)) => {
                let slot = self.slot.txid();
                let is_listed = found.is_some_and(|(record, _)| record.lists(fence.epoch(), slot));
                let certainty =
                    if is_listed { Certainty::NotInHistory } else { Certainty::Unknown };
                return Ok(Some(Filled::Fenced(certainty)));
            }
            (FillState::Asking(_), reply) => {
                let unknown = Filled::Fenced(Certainty::Unknown);
                return Ok(reply.lasting_error().map(|_| unknown));
            }
        }
        Ok(None)
    }

    /// There is a file where the group was to be.
    fn found(&mut self, found: Found) -> Option<Filled> {
        if found.id == self.slot.id() {
            return Some(Filled::Done);
        }
        let (epoch, slot) = (found.epoch(), self.slot.txid());
        if found.is_fence() && epoch < self.slot.epoch() {
            return Some(Filled::Fence(Fence::new(epoch, slot)));
        }
        if found.is_fence() && self.is_first_place {
            self.state = FillState::Asking(found);
            return None;
        }
        Some(Filled::Fenced(Certainty::Unknown))
    }
}

impl Machine for Fill {
    type Outcome = Result<Filled, Error>;

    fn step(&mut self, reply: Option<Reply>, _now: Duration) -> Step<Self::Outcome> {
        match reply.map_or(Ok(None), |reply| self.answered(reply)) {
            Ok(None) => Step::Ask(self.request()),
            Ok(Some(filled)) => Step::Ended(Ok(filled)),
            Err(error) => Step::Ended(Err(error)),
        }
    }
}
