//! Owns the deletion of slots: which may go, and after what.

use std::time::Duration;

use monolite_ltx::{Txid, TxidRange};

use super::update::{Update, Updated};
use super::{Machine, Reply, Request, Step};
use crate::error::Error;
use crate::slot::Slot;

/// A slot that a file of a higher level was seen to cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// Its number.
    pub txid: Txid,
    /// Its length in bytes, by which a fence is known.
    pub len: u64,
    /// The TXIDs of the file that has its pages.
    pub by: TxidRange,
}

/// Renews the record, and then deletes slots.
#[derive(Clone, Debug)]
pub struct Deletion {
    renewal: Update,
    renewed: Option<Updated>,
    /// Those that are left, the next one last.
    slots: Vec<Txid>,
    deleted: u64,
}

/// What came of a [`Deletion`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// What came of the renewal before it. If somebody else has the record, nothing was deleted.
    pub renewed: Updated,
    /// How many slots were deleted.
    pub slots: u64,
}

impl Deletion {
    /// Of those among `slots` that may go, while `newest` is the newest slot that is known to be
    /// filled.
    pub(super) fn new(renewal: Update, newest: Txid, slots: &[Covered]) -> Deletion {
        let may_go = |slot: &&Covered| {
            slot.txid < newest && slot.len > Slot::FENCE_LEN && slot.by.contains(slot.txid)
        };
        let slots = slots.iter().rev().filter(may_go).map(|slot| slot.txid).collect();
        Deletion { renewal, renewed: None, slots, deleted: 0 }
    }
}

impl Machine for Deletion {
    type Outcome = Result<Deleted, Error>;

    fn step(&mut self, reply: Option<Reply>, now: Duration) -> Step<Self::Outcome> {
        let Some(renewed) = &self.renewed else {
            return match self.renewal.step(reply, now) {
                Step::Ask(request) => Step::Ask(request),
                Step::Wait(until) => Step::Wait(until),
                Step::Ended(Err(error)) => Step::Ended(Err(error)),
                Step::Ended(Ok(renewed)) => {
                    if renewed == Updated::Fenced {
                        self.slots.clear();
                    }
                    self.renewed = Some(renewed);
                    self.step(None, now)
                }
            };
        };
        match reply {
            Some(Reply::Done) => {
                self.slots.pop();
                self.deleted += 1;
            }
            Some(Reply::Failed(error)) if !error.is_transient() => return Step::Ended(Err(error)),
            Some(_) | None => {}
        }
        match self.slots.last() {
            Some(slot) => Step::Ask(Request::Delete(*slot)),
            None => Step::Ended(Ok(Deleted { renewed: renewed.clone(), slots: self.deleted })),
        }
    }
}
