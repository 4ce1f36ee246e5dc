//! Judges a history of transactions: would they have given the same results one after another?
//!
//! # Algorithm
//! 1. Every transaction enters one row into the table `done` and learns its number from it. Those
//!    that fail give theirs back, so the numbers are the commit order and have no gaps.
//! 2. The history is replayed in that order in a plain model ([`State`]). Every value that any
//!    transaction saw must be the model's, and a read must see the model as it was after the last
//!    transaction that it contains.
//! 3. Real time: each transaction knows the highest number that anybody had been told of when it
//!    began. Its own number must be higher; a read must contain that number.
//! 4. In the end the database must hold what the model holds.
//!
//! A history is checked in segments: at a moment when nothing is under way, what was recorded so
//! far is replayed and forgotten, so memory is bounded by the segment.

mod model;
mod op;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub(crate) use model::filling;
pub use model::{Contents, State};
pub use op::{ACCOUNTS, ITEMS, OPENING_BALANCE, Op};

/// What became of one transaction.
///
/// `id` is the client's name of it, and `number` its place in the commit order, from 1; of a read
/// it is the last transaction that it contains. `floor` is the highest number that anybody had been
/// told of when it began. `ops` is what it did or asked, and `saw` what it was told.
#[allow(missing_docs, reason = "they are told above")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A write that was acknowledged.
    Wrote { id: i64, number: i64, floor: i64, ops: Vec<Op>, saw: Vec<i64> },
    /// A read.
    Read { number: i64, floor: i64, ops: Vec<Op>, saw: Vec<i64> },
    /// A write that must have left nothing behind.
    Failed { id: i64 },
    /// A write whose caller was not told, or did not listen; asked for afterwards in `done`.
    Untold { id: i64, number: Option<i64>, floor: i64, ops: Vec<Op> },
}

impl Record {
    /// Whether it is in the commit order.
    pub fn is_write(&self) -> bool {
        matches!(self, Record::Wrote { .. } | Record::Untold { number: Some(_), .. })
    }

    /// Where it belongs in the replay: a read comes after the last write that it contains.
    fn place(&self) -> Option<(i64, u8)> {
        match self {
            Record::Wrote { number, .. } | Record::Untold { number: Some(number), .. } => {
                Some((*number, 0))
            }
            Record::Read { number, .. } => Some((*number, 1)),
            Record::Failed { .. } | Record::Untold { number: None, .. } => None,
        }
    }
}

/// The model on its way through a history.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    state: State,
}

impl Replay {
    /// Begins with an empty history.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// The state after everything that was replayed.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Replays a segment: everything that happened since the last one.
    pub fn check(&mut self, segment: &[Record]) -> Result<(), String> {
        let mut in_order: Vec<_> =
            segment.iter().filter_map(|it| it.place().map(|place| (place, it))).collect();
        in_order.sort_by_key(|(place, _)| *place);
        in_order.into_iter().try_for_each(|(_, record)| self.step(record))
    }

    fn step(&mut self, record: &Record) -> Result<(), String> {
        let (number, least, saw, expected) = match record {
            Record::Wrote { id, number, floor, ops, saw } => {
                (*number, floor + 1, Some(saw), self.state.run(*id, ops))
            }
            Record::Untold { id, number: Some(number), floor, ops } => {
                (*number, floor + 1, None, self.state.run(*id, ops))
            }
            Record::Read { number, floor, ops, saw } => {
                (*number, *floor, Some(saw), self.state.look(ops))
            }
            Record::Failed { .. } | Record::Untold { number: None, .. } => return Ok(()),
        };
        let last = self.state.last_number();
        if number != last {
            return Err(format!("number {number} where {last} was expected: {record:?}"));
        }
        if number < least {
            return Err(format!("{least} was acknowledged before it began: {record:?}"));
        }
        match saw {
            Some(saw) if *saw != expected => Err(format!("expected {expected:?}: {record:?}")),
            _ => Ok(()),
        }
    }

    /// Judges what the database holds when everything has been answered and replayed.
    pub fn check_end(&self, holds: &Contents) -> Result<(), String> {
        self.state.contents().compare(holds)
    }
}

/// Checks a whole history from the empty database to its end.
pub fn check(history: &[Record], end: &Contents) -> Result<(), String> {
    let mut replay = Replay::new();
    replay.check(history)?;
    replay.check_end(end)
}
