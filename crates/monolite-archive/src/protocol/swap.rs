//! Owns one compare-and-swap of the leader record, for those who take an epoch and those who have
//! one.
//!
//! # Algorithm
//! Write; on any answer but success read: the new record was written; the old one was not, write
//! again; another one means another holder. Where the answer was an error that stays (no
//! permission, a record that cannot be), and the record is still the old one, it ends with that
//! error.

use super::{Reply, Request};
use crate::error::Error;
use crate::record::Record;
use crate::store::Tag;

/// Puts a record where the one of a tag is, or where none is.
#[derive(Clone, Debug)]
pub(super) struct Swap {
    record: Box<Record>,
    over: Option<Tag>,
    state: SwapState,
}

#[derive(Clone, Debug)]
enum SwapState {
    Writing,
    /// The answer to the write said nothing, but for an error that stays.
    Reading(Option<Error>),
}

/// What came of a [`Swap`].
pub(super) enum Swapped {
    /// The record is there, under this tag.
    Done(Box<Record>, Tag),
    /// Another one is.
    Another,
}

impl Swap {
    pub(super) fn new(record: Record, over: Option<Tag>) -> Swap {
        Swap { record: Box::new(record), over, state: SwapState::Writing }
    }

    pub(super) fn request(&self) -> Request {
        match self.state {
            SwapState::Writing => Request::WriteRecord(self.record.clone(), self.over.clone()),
            SwapState::Reading(_) => Request::ReadRecord,
        }
    }

    /// Goes on with what was asked for; `None` while it has not ended. After an error the write is
    /// what is asked for next, or the read that failed.
    pub(super) fn answered(&mut self, reply: Reply) -> Result<Option<Swapped>, Error> {
        match (self.state.clone(), reply) {
            (SwapState::Writing, Reply::Written(tag)) => {
                return Ok(Some(Swapped::Done(self.record.clone(), tag)));
            }
            // It may have been done, and may be still.
            (SwapState::Writing, reply) => self.state = SwapState::Reading(reply.lasting_error()),
            (SwapState::Reading(error), Reply::Record(found)) => match found {
                Some((record, tag)) if record == self.record => {
                    return Ok(Some(Swapped::Done(record, tag)));
                }
                found if found.as_ref().map(|(_, tag)| tag) == self.over.as_ref() => {
                    self.state = SwapState::Writing;
                    return error.map_or(Ok(None), Err);
                }
                _ => return Ok(Some(Swapped::Another)),
            },
            (SwapState::Reading(_), reply) => return reply.lasting_error().map_or(Ok(None), Err),
        }
        Ok(None)
    }
}
