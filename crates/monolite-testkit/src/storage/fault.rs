//! The calls that a simulated disk sees, and what can go wrong with each.

use std::fmt;
use std::sync::Arc;

use monolite::vfs::FileKind;

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opens a file.
    Open,
    /// Reads from a file.
    Read,
    /// Writes to a file.
    Write,
    /// Cuts or extends a file.
    Truncate,
    /// Asks for the size of a file.
    Size,
    /// SQLite's sync of a file.
    Sync,
    /// The engine's sync of the WAL, upon which it acknowledges.
    SyncWal,
    /// The engine's sync of the directory.
    SyncDirectory,
    /// Deletes a journal or a WAL.
    Delete,
    /// Maps a part of the wal-index.
    MapIndex,
}

impl Operation {
    /// Whether it is one of the three syncs.
    pub fn is_sync(self) -> bool {
        matches!(self, Operation::Sync | Operation::SyncWal | Operation::SyncDirectory)
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The calls of a disk are counted from 1.
    pub number: u64,
    /// What it asks for.
    pub operation: Operation,
    /// Of which file.
    pub kind: FileKind,
    /// Where in the file, in bytes.
    pub at: u64,
    /// How many bytes, or the new size.
    pub bytes: u64,
    /// Whether it makes the file larger.
    pub extends: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { number, operation, kind, at, bytes, .. } = self;
        write!(f, "{number} {operation:?} {kind:?} at {at}, {bytes} bytes")
    }
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// An I/O error; nothing is done. After a failed sync the kernel takes what was pending for
    /// clean: it is still read, and no later sync writes it.
    Error,
    /// The disk is full; nothing is written.
    Full,
    /// Some sectors are written, then there is an I/O error.
    Short,
    /// A sync that fails and is reported as done: what a disk that lies does to an engine, and what
    /// an engine does that does not look at the result.
    Unreported,
    /// The data is written in the wrong order, and reported as written.
    Garbled,
}

impl Fault {
    /// The faults that a system may report for `operation`.
    pub fn of(operation: Operation) -> &'static [Fault] {
        match operation {
            Operation::Write => &[Fault::Error, Fault::Full, Fault::Short],
            _ => &[Fault::Error],
        }
    }

    /// This fault where it fits `operation`, and an error where it does not.
    fn fitting(self, operation: Operation) -> Fault {
        let fits = match self {
            Fault::Error => true,
            Fault::Full | Fault::Short | Fault::Garbled => operation == Operation::Write,
            Fault::Unreported => operation.is_sync(),
        };
        if fits { self } else { Fault::Error }
    }
}

/// How often a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Times {
    /// Only that call.
    Once,
    /// That call and every later one that this fault can happen to. A full disk refuses only what
    /// makes a file larger.
    FromThenOn,
}

/// Is asked about every call before it is done, on the thread that makes it and with no lock held:
/// it may wait, take an image, or answer with a fault.
pub type Hook = Arc<dyn Fn(&Call) -> Option<Fault> + Send + Sync>;

/// A fault at the call with a given number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of the call, from 1.
    pub at: u64,
    /// What happens to it.
    pub fault: Fault,
    /// Whether it goes on.
    pub times: Times,
}

impl Plan {
    /// What happens to `call`.
    pub fn decide(&self, call: &Call) -> Option<Fault> {
        if call.number == self.at {
            return Some(self.fault.fitting(call.operation));
        }
        let goes_on = call.number > self.at && self.times == Times::FromThenOn;
        let fault = self.fault.fitting(call.operation);
        let happens = match self.fault {
            Fault::Full => fault == Fault::Full && call.extends,
            _ => fault == self.fault,
        };
        (goes_on && happens).then_some(fault)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at call {} {:?}", self.fault, self.at, self.times)
    }
}
