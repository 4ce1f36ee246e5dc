//! Owns a change of the leader record by its holder.

use std::time::Duration;

use super::{Machine, Reply, Request, Step};
use crate::error::Error;
use crate::record::Record;
use crate::store::Tag;

/// Swaps the record of its holder for another one of the same epoch.
#[derive(Clone, Debug)]
pub struct Update {
    record: Box<Record>,
    over: Tag,
    state: State,
    /// When the request that may succeed was first sent: the lease counts from here.
    began: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Writing,
    Reading,
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
    /// Somebody else has the record.
    Fenced,
}

impl Update {
    /// Of a record that was read under the tag `over`.
    pub(super) fn new(mut record: Record, over: Tag) -> Update {
        record.counter = record.counter.saturating_add(1);
        Update { record: Box::new(record), over, state: State::Writing, began: None }
    }

    fn request(&self) -> Request {
        match self.state {
            State::Writing => Request::WriteRecord(self.record.clone(), Some(self.over.clone())),
            State::Reading => Request::ReadRecord,
        }
    }

    fn done(&self, tag: Tag, now: Duration) -> Step<Result<Updated, Error>> {
        let (record, began) = (self.record.clone(), self.began.unwrap_or(now));
        Step::Ended(Ok(Updated::Done { record, tag, began }))
    }
}

impl Machine for Update {
    type Outcome = Result<Updated, Error>;

    fn step(&mut self, reply: Option<Reply>, now: Duration) -> Step<Self::Outcome> {
        self.began.get_or_insert(now);
        match (self.state, reply) {
            (State::Writing, Some(Reply::Written(tag))) => return self.done(tag, now),
            // It may have been done, and may be still.
            (State::Writing, Some(_)) => self.state = State::Reading,
            (State::Reading, Some(Reply::Record(found))) => match found {
                Some((record, tag)) if record == self.record => return self.done(tag, now),
                Some((_, tag)) if tag == self.over => self.state = State::Writing,
                _ => return Step::Ended(Ok(Updated::Fenced)),
            },
            (State::Reading, Some(Reply::Failed(error))) if !error.is_transient() => {
                return Step::Ended(Err(error));
            }
            (State::Reading, Some(_)) | (_, None) => {}
        }
        Step::Ask(self.request())
    }
}
