//! Owns a member in the writer's hands: what is known of its runs, and how it is to run again.

use crate::call::member::{ForeignKeys, Member};
use crate::call::places::Place;
use crate::error::Error;

/// How a member is to run that has run before, or that wants a transaction to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// With its group, in which it succeeded before.
    InGroup,
    /// In a savepoint of its own, in its place behind its group.
    InPlace,
    /// In a transaction of its own.
    Alone,
}

/// A member in the writer's hands.
pub(crate) struct Entry {
    pub(crate) member: Box<dyn Member>,
    pub(crate) attempts: u32,
    pub(crate) failed: bool,
    pub(crate) again: Option<Again>,
    /// Of one that is to wait for the archive.
    pub(crate) place: Option<Place>,
}

impl Entry {
    pub(crate) fn new(member: Box<dyn Member>) -> Entry {
        let has_no_keys = member.terms().foreign_keys == ForeignKeys::Off;
        let again = (has_no_keys || member.alone().is_some()).then_some(Again::Alone);
        Entry { member, attempts: 0, failed: false, again, place: None }
    }

    pub(crate) fn answer(self) {
        // Before its caller can come again.
        drop(self.place);
        self.member.answer();
    }

    /// Makes `error` the answer.
    pub(crate) fn overrule(&mut self, error: Error) {
        self.failed = true;
        self.member.overrule(error);
    }

    /// Makes `error` the answer of a member whose batch is not committed, and answers it; one that
    /// has failed by itself keeps its own answer.
    pub(crate) fn refuse(mut self, error: &Error) {
        if !self.failed {
            self.overrule(error.repeated());
        }
        self.answer();
    }
}
