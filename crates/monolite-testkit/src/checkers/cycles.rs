//! Judges a history of transactions that append unique values to lists and read whole lists: is
//! there a serial order, which also keeps real time, that explains what was read? The method is
//! that of Elle (Kingsbury and Alvaro, VLDB 2020).
//!
//! # Algorithm
//! 1. A read of a list shows in which order its values were appended. All reads of a list must be
//!    prefixes of the longest one, which is its *order* (module `lists`). What cannot be in any
//!    order (values twice, of nobody, of failed transactions) is an anomaly by itself.
//! 2. Orders give dependencies: *ww* from the transaction that appended a value to the one that
//!    appended the next; *wr* from the one that appended the last value of a read to the reader;
//!    *rw* from a reader to the one that appended the first value that it did not see. Real time
//!    gives *rt* edges: from one that ended to one that began later.
//! 3. A cycle of dependencies is an anomaly (module `graph`): Tarjan's strongly connected
//!    components find them, and the kinds of edges that a cycle needs name it.
//!
//! The real-time order of `n` transactions has up to `n²` pairs. A chain of *moments*, one for each
//! end, carries the same order in `3n` edges.
//!
//! A history is checked in segments with lists of their own, so memory is bounded by the segment.

mod graph;
mod lists;
pub mod seeded;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It was acknowledged.
    Committed,
    /// It must have left nothing behind.
    Failed,
    /// Nobody was told.
    Unknown,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Appends a value, which nobody else appends to that list.
    Append {
        /// Which list.
        key: u64,
        /// What is appended.
        value: u64,
    },
    /// Reads a whole list.
    Read {
        /// Which list.
        key: u64,
        /// What was read, the oldest value first.
        list: Vec<u64>,
    },
}

/// A transaction, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// When the client began it, on a clock that all clients share.
    pub begin: u64,
    /// When the client was told; of no meaning if it was not.
    pub end: u64,
    /// What became of it.
    pub fate: Fate,
    /// Its steps in order. What a failed transaction read is not looked at.
    pub steps: Vec<Step>,
}

/// What is wrong with a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A list holds a value twice.
    DuplicateAppend,
    /// A list holds a value that nobody appended.
    UnknownValue,
    /// A read shows a value of a transaction that failed (G1a).
    AbortedRead,
    /// A read shows a transaction before its last append to that list (G1b).
    IntermediateRead,
    /// A transaction contradicts itself: it does not see its own append, or a list that it read
    /// before has changed.
    Internal,
    /// Two reads of a list, neither of which is a prefix of the other.
    IncompatibleOrder,
    /// An acknowledged append is in no later read.
    LostAppend,
    /// A read misses what was acknowledged before it began.
    StaleRead,
    /// Two transactions overwrote each other (G0).
    DirtyWrite,
    /// Transactions that saw each other (G1c).
    CircularInformation,
    /// Two transactions changed the same version of a list.
    LostUpdate,
    /// A transaction saw another one in part (G-single).
    ReadSkew,
    /// Two transactions each missed what the other wrote (G2-item).
    WriteSkew,
    /// Two readers saw two writes in different orders.
    LongFork,
    /// A longer cycle in which several transactions missed what the next one wrote (G2).
    AntiDependencyCycle,
    /// The only possible order contradicts real time.
    RealTimeOrder,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 16] = [
        Kind::DuplicateAppend,
        Kind::UnknownValue,
        Kind::AbortedRead,
        Kind::IntermediateRead,
        Kind::Internal,
        Kind::IncompatibleOrder,
        Kind::LostAppend,
        Kind::StaleRead,
        Kind::DirtyWrite,
        Kind::CircularInformation,
        Kind::LostUpdate,
        Kind::ReadSkew,
        Kind::WriteSkew,
        Kind::LongFork,
        Kind::AntiDependencyCycle,
        Kind::RealTimeOrder,
    ];
}

/// Something that no serial order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its name.
    pub kind: Kind,
    /// What shows it; transactions are named by their place in the history, as `T7`.
    pub what: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.what)
    }
}

/// Judges a history. Every list must be read once more after the last append to it; an append
/// that is never followed by a read cannot be missed.
pub fn check(history: &[Transaction]) -> Vec<Anomaly> {
    let mut anomalies = Vec::new();
    let edges = lists::dependencies(history, &mut anomalies);
    graph::find_cycles(history, edges, &mut anomalies);
    anomalies
}
