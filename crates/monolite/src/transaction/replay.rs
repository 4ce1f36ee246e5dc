//! Owns what an interactive transaction did on its way through the writer, where it is done again
//! and compared, and what follows from a conflict.
//!
//! # Invariants
//! - A transaction is committed only if each of its statements answers here what it answered
//!   before, except the leading reads when no page that they have read was changed. Who had a turn
//!   ([`super::contention`]) is of no importance here.

use std::sync::Arc;

use monolite_sqlite::vfs::CommitSequence;

use super::connection::ReadSet;
use super::contention::Visit;
use super::pool::Pool;
use super::steps::{Extent, Step, Steps};
use crate::activity::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::options::Validation;
use crate::stats::{Recorder, names};
use crate::tx::Tx;

/// What a transaction did, on its way through the writer.
pub(super) struct Replay {
    pub(super) steps: Steps,
    pub(super) read_set: Option<ReadSet>,
    /// The latest commit that the snapshot contains, where that is known.
    pub(super) sequence: Option<CommitSequence>,
    pub(super) pool: Arc<Pool>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) validation: Validation,
    pub(super) visit: Arc<Visit>,
    pub(super) caller: Caller,
    pub(super) is_counted: bool,
}

impl Replay {
    /// Does it again and compares; leaves out the leading reads if no page of theirs has changed.
    pub(super) fn run(&mut self, tx: &Tx<'_>) -> Result<()> {
        let changes = self.pool.changes();
        let is_unchanged = self.read_set.as_ref().is_some_and(|it| !it.has_changed(changes, tx));
        let extent = if is_unchanged { Extent::AfterLeadingReads } else { Extent::All };
        let replayed = self.steps.replay_in_writer(tx, extent, self.validation);
        if !std::mem::replace(&mut self.is_counted, true) {
            let recorder = &self.recorder;
            let path = match extent {
                Extent::All => &recorder.transactions_replayed,
                Extent::AfterLeadingReads => &recorder.transactions_unchanged,
            };
            path.add(1);
            if let Err(error) = &replayed
                && error.kind() == ErrorKind::Conflict
            {
                recorder.transaction_conflicts.add(1);
                names::of(self.caller).into_iter().for_each(|named| named.conflicts.add(1));
                recorder.events().conflict(self.caller, error);
                note_conflict(&self.visit, error, &self.steps);
            }
        }
        if replayed.is_ok() {
            self.visit.note_committed();
        }
        let is_same = tx.is_first() && self.sequence == Some(changes.sequence());
        replayed.map_err(|error| match error.kind() {
            ErrorKind::Conflict if is_same => not_repeatable(&error),
            _ => error,
        })
    }
}

/// Has the transaction and others learn where it has collided.
pub(super) fn note_conflict(visit: &Visit, error: &Error, steps: &Steps) {
    let at = error.conflicting_statement().and_then(|number| steps.iter().nth(number - 1));
    if let Some(step) = at {
        visit.note_conflict(step.fingerprint(), steps.iter().map(Step::fingerprint));
    }
}

/// A conflict although nothing changed.
pub(super) fn not_repeatable(conflict: &Error) -> Error {
    let message = format!(
        "a statement answered differently when it ran again, although nothing had changed: its \
         answer cannot be repeated, such as a rowid that SQLite draws at random because the \
         largest one is taken; give the value yourself, do not ask for it, or use Database::write \
         ({conflict})"
    );
    Error::new(ErrorKind::Invalid, message)
}
