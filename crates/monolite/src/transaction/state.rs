//! Owns what an interactive transaction is between two of its statements: what it has done and
//! seen, where its next statement runs, and whether it is over.
//!
//! # States
//! | place | its next statement |
//! |---|---|
//! | [`Left::Gone`] | on any connection of the pool, behind a replay of all steps; here it begins |
//! | [`Left::Parked`] | on the connection that it left, if that was not taken away meanwhile |
//! | [`Place::Writer`] | in the writer, behind all steps, and undone; from here only to the end |
//! | [`Place::Over`] | is refused |
//!
//! While a statement runs that may leave its connection again, the place is [`Left::Gone`]: that is
//! what remains when it fails.
//!
//! # Invariants
//! - The taker of a place ends what is in it: a connection goes back to the pool.
//! - All later calls return what ended the transaction first, except a statement that is not
//!   awaited any more, and a commit.

use std::mem;

use monolite_sqlite::GivenRowids;
use monolite_sqlite::vfs::{CommitSequence, Version};

use super::connection::PooledConnection;
use super::pool::{Cost, Left, Memory};
use super::savepoints::Savepoints;
use super::steps::{Shape, Step, Steps};
use crate::error::{Error, ErrorKind};
use crate::progress::BatchNumber;

/// How the error of a statement begins that comes afterwards.
const OVER: &str = "the transaction is over: ";

/// Why nothing more can run.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    kind: ErrorKind,
    why: String,
}

impl Ending {
    pub(super) fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What a statement is told that comes afterwards.
    pub(super) fn error(&self) -> Error {
        Error::new(self.kind, format!("{OVER}{}", self.why))
    }
}

impl From<&Error> for Ending {
    fn from(error: &Error) -> Ending {
        let said = error.to_string();
        // The error of an ending is that ending again.
        let why = said.strip_prefix(OVER).unwrap_or(&said).to_owned();
        Ending { kind: error.kind(), why }
    }
}

/// Where the next statement runs.
pub(super) enum Place {
    /// On a connection of the pool, of which this is left.
    Pool(Left),
    /// In the writer, which undoes it: it has written where there is no overlay.
    Writer,
    /// Nowhere.
    Over(Ending),
}

/// The snapshot of the latest statement.
#[derive(Clone, Copy, Default)]
pub(super) struct Snapshot {
    /// The latest batch that it may contain.
    pub(super) seen: BatchNumber,
    /// The latest commit that it contains, where that is known.
    pub(super) sequence: Option<CommitSequence>,
    /// What it shows, where that is known.
    pub(super) version: Option<Version>,
}

impl Snapshot {
    /// That which is open on `connection`.
    pub(super) fn of(connection: &PooledConnection) -> Snapshot {
        Snapshot {
            seen: connection.seen(),
            sequence: connection.sequence(),
            version: connection.version(),
        }
    }

    /// Whether both are known to show the same.
    pub(super) fn is_same_as(&self, other: &Snapshot) -> bool {
        self.version.is_some() && self.version == other.version
    }
}

/// An interactive transaction, when none of its statements runs.
pub(super) struct InteractiveState {
    pub(super) steps: Steps,
    pub(super) savepoints: Savepoints,
    pub(super) cost: Cost,
    pub(super) snapshot: Snapshot,
    /// The numbers that rows of the latest statement were given.
    pub(super) given: Option<GivenRowids>,
    place: Place,
}

impl InteractiveState {
    /// One that has done nothing yet.
    pub(super) fn new() -> InteractiveState {
        InteractiveState {
            steps: Steps::default(),
            savepoints: Savepoints::default(),
            cost: Cost::default(),
            snapshot: Snapshot::default(),
            given: None,
            place: Place::Pool(Left::Gone(None)),
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Why it is over, if it is.
    pub(super) fn ending(&self) -> Option<&Ending> {
        match &self.place {
            Place::Over(ending) => Some(ending),
            Place::Pool(_) | Place::Writer => None,
        }
    }

    /// What it has left of its connection, for the statement that runs now. Until that leaves
    /// something again, there is nothing.
    pub(super) fn take_left(&mut self) -> Left {
        match &mut self.place {
            Place::Pool(left) => mem::replace(left, Left::Gone(None)),
            Place::Writer | Place::Over(_) => Left::Gone(None),
        }
    }

    /// A statement has left this of its connection.
    pub(super) fn leave(&mut self, left: Left) {
        if let Place::Pool(place) = &mut self.place {
            *place = left;
        }
    }

    /// It writes where there is no overlay. What it had left was taken by the statement that does.
    pub(super) fn move_to_writer(&mut self) {
        if let Place::Pool(_) = self.place {
            self.place = Place::Writer;
        }
    }

    /// What is to be remembered of a connection on which `step` was done behind all others, if it
    /// cannot be parked.
    pub(super) fn memory_after(&self, step: &Step) -> Memory {
        match self.steps.shape_with(step) {
            Shape::Mixed if self.steps.have_leading_reads() => Memory::LeadingReads,
            // The next statement does all of it again, on the snapshot that it finds.
            Shape::Empty | Shape::Queries | Shape::Mixed => Memory::Nothing,
        }
    }

    /// Ends it for that reason, unless it is over; gives what it had left.
    pub(super) fn end(&mut self, ending: impl Into<Ending>) -> Option<Place> {
        self.ending().is_none().then(|| self.finish(ending))
    }

    /// Ends it for that reason, also when there was one before; gives what it had left.
    pub(super) fn finish(&mut self, ending: impl Into<Ending>) -> Place {
        mem::replace(&mut self.place, Place::Over(ending.into()))
    }
}

#[cfg(test)]
mod tests;
