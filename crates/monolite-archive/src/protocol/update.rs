//! Owns a change of the leader record by its holder.

use std::time::Duration;

use super::swap::{Swap, Swapped};
use super::{Machine, Reply, Step};
use crate::error::Error;
use crate::record::Record;
use crate::store::Tag;

/// Swaps the record of its holder for another one of the same epoch.
#[derive(Clone, Debug)]
pub struct Update {
    swap: Swap,
    /// When the request that may succeed was first sent: the lease counts from here.
    began: Option<Duration>,
}

/// What came of an [`Update`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Updated {
    /// The record is the new one.
    Done {
        /// The record as it is now.
        record: Box<Record>,
        /// Its tag.
        tag: Tag,
        /// When the change began.
        began: Duration,
    },
    /// Another process has the record.
    Fenced,
}

impl Update {
    /// Of a record that was read under the tag `over`.
    pub(super) fn new(mut record: Record, over: Tag) -> Update {
        record.counter = record.counter.saturating_add(1);
        Update { swap: Swap::new(record, Some(over)), began: None }
    }
}

impl Machine for Update {
    type Outcome = Result<Updated, Error>;

    fn step(&mut self, reply: Option<Reply>, now: Duration) -> Step<Self::Outcome> {
        let began = *self.began.get_or_insert(now);
        match reply.map_or(Ok(None), |reply| self.swap.answered(reply)) {
            Ok(None) => Step::Ask(self.swap.request()),
            Ok(Some(Swapped::Done(record, tag))) => {
                Step::Ended(Ok(Updated::Done { record, tag, began }))
            }
            Ok(Some(Swapped::Another)) => Step::Ended(Ok(Updated::Fenced)),
            Err(error) => Step::Ended(Err(error)),
        }
    }
}
