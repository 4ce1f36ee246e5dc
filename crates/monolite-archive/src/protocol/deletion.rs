//! Owns the deletion of slots: which may go, and after what.

use std::time::Duration;

use monolite_ltx::{Txid, TxidRange};

use super::{Machine, Reply, Request, Step};
use crate::error::Error;
use crate::file::ArchivedFile;
use crate::layout::Level;
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

impl Covered {
    /// The file that it is, for [`Catalog::remove`](crate::internals::Catalog::remove).
    pub fn file(&self) -> ArchivedFile {
        let txids = TxidRange::single(self.txid);
        ArchivedFile { level: Level::SLOTS, txids, len: self.len }
    }
}

/// Deletes slots, one after the other.
///
/// It needs nothing more of its primary, which goes on to renew and to fill meanwhile: a deletion
/// of an hour of slots takes longer than a TTL. One that ends with an error may be gone on with, or
/// left off; another plan finds the rest.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Those that are left, the next one last.
    slots: Vec<Txid>,
    deleted: u64,
}

impl Deletion {
    /// Of those among `slots` that may go, where slot `newest` was filled when a renewal that
    /// succeeded was begun.
    pub(super) fn new(newest: Txid, slots: &[Covered]) -> Deletion {
        let may_go = |slot: &&Covered| {
            slot.txid < newest && slot.len > Slot::FENCE_LEN && slot.by.contains(slot.txid)
        };
        let slots = slots.iter().rev().filter(may_go).map(|slot| slot.txid).collect();
        Deletion { slots, deleted: 0 }
    }
}

impl Machine for Deletion {
    /// How many slots were deleted.
    type Outcome = Result<u64, Error>;

    fn step(&mut self, reply: Option<Reply>, _now: Duration) -> Step<Self::Outcome> {
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
            None => Step::Ended(Ok(self.deleted)),
        }
    }
}
