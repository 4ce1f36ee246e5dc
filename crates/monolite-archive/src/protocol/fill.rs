//! Owns how a slot is filled, and how a primary learns that it is none any more.

use std::time::Duration;

use super::{Machine, Reply, Request, Step};
use crate::error::{Error, ErrorKind};
use crate::record::Fence;
use crate::slot::{Found, Slot};

/// Puts a group into its slot.
#[derive(Clone, Debug)]
pub struct Fill {
    slot: Slot,
    is_first_place: bool,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Putting,
    Looking,
    /// Whether the fence that was found is one of history.
    Asking(Found),
}

/// What came of a [`Fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The group is history.
    Done,
    /// The slot has a fence that somebody with a smaller epoch has left. List it in the record,
    /// and encode the group for the next slot.
    Fence(Fence),
    /// Somebody else is the primary, or another process says to be this one.
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
        Fill { slot, is_first_place, state: State::Putting }
    }

    /// The group.
    pub fn slot(&self) -> &Slot {
        &self.slot
    }

    fn looked(&mut self, found: Option<Found>) -> Option<Filled> {
        let Some(found) = found else {
            // The same bytes again: a request that is under way can only do the same.
            self.state = State::Putting;
            return None;
        };
        if found.id == self.slot.id() {
            return Some(Filled::Done);
        }
        let (epoch, slot) = (found.epoch(), self.slot.txid());
        if found.is_fence() && epoch < self.slot.epoch() {
            return Some(Filled::Fence(Fence { epoch, slot, carried_to: None }));
        }
        if found.is_fence() && self.is_first_place {
            self.state = State::Asking(found);
            return None;
        }
        Some(Filled::Fenced(Certainty::Unknown))
    }
}

impl Machine for Fill {
    type Outcome = Result<Filled, Error>;

    fn step(&mut self, reply: Option<Reply>, _now: Duration) -> Step<Self::Outcome> {
        match (self.state, reply) {
            (State::Putting, Some(Reply::Done)) => return Step::Ended(Ok(Filled::Done)),
            // Whatever was said, it may have been done, and may be still.
            (State::Putting, Some(_)) => self.state = State::Looking,
            (State::Looking, Some(Reply::Slot(found))) => {
                if let Some(filled) = self.looked(found) {
                    return Step::Ended(Ok(filled));
                }
            }
            // No file at all is nothing of ours.
            (State::Looking, Some(Reply::Failed(error)))
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) =>
            {
                return Step::Ended(Ok(Filled::Fenced(Certainty::Unknown)));
            }
            (State::Asking(fence), Some(Reply::Record(found))) => {
                let slot = self.slot.txid();
                let is_listed = found.is_some_and(|(record, _)| record.lists(fence.epoch(), slot));
                let certainty =
                    if is_listed { Certainty::NotInHistory } else { Certainty::Unknown };
                return Step::Ended(Ok(Filled::Fenced(certainty)));
            }
            (State::Asking(_), Some(Reply::Failed(error))) if !error.is_transient() => {
                return Step::Ended(Ok(Filled::Fenced(Certainty::Unknown)));
            }
            (State::Looking, Some(Reply::Failed(error))) if !error.is_transient() => {
                return Step::Ended(Err(error));
            }
            (State::Looking | State::Asking(_), Some(_)) | (_, None) => {}
        }
        Step::Ask(match self.state {
            State::Putting => Request::Put(self.slot.clone()),
            State::Looking => Request::Look(self.slot.txid()),
            State::Asking(_) => Request::ReadRecord,
        })
    }
}
