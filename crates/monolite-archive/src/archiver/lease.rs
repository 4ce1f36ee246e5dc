//! Owns the lease of a primary: the leader record is changed every third of it, whatever else the
//! archive does, so that a follower which sees no change for all of it may take over.
//!
//! # Algorithm
//! Each term has the state of the protocol ([`Term`]), which the uploading thread and
//! `monolite-lease` share. A change of the record is made by who has the term's turn. One that the
//! other thread makes renews the lease as well.
//!
//! # Not here
//! No answer depends on the lease. A write that waits for the archive is answered when its slot
//! is filled, and a read that does when what it saw is: the successor's fence refuses both, however
//! late a stopped process wakes up. A write that is only synced may be answered by a primary that
//! does not know yet of its successor: its file keeps the write, and history lacks it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use monolite::archive::Primary as Engine;

use super::Shared;
use super::failures::Activity;
use super::refused::{fenced, not_ours};
use crate::error::Error;
use crate::protocol::{Primary, Updated};
use crate::requests::{Pace, boottime, leader, run as run_machine};

/// How often the record is changed, in parts of the lease.
const RENEWALS: u32 = 3;

/// What the threads share of one term.
#[derive(Debug)]
pub(super) struct Term {
    primary: Mutex<Primary>,
    turn: Mutex<()>,
}

impl Term {
    pub(super) fn new(primary: Primary) -> Term {
        Term { primary: Mutex::new(primary), turn: Mutex::default() }
    }

    /// The state, for a few instructions.
    pub(super) fn primary(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has this changes the record.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn term(&self) -> MutexGuard<'_, Option<Arc<Term>>> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease is of this term from now on.
    pub(super) fn begins(&self, term: &Arc<Term>) {
        *self.term() = Some(Arc::clone(term));
    }

    /// The term is over, and no change of the record by it is under way: a claim of the next
    /// epoch by this process is not to be taken for another's.
    pub(super) fn leaves_term(&self) {
        let term = self.term().take();
        term.iter().for_each(|term| drop(term.turn()));
    }

    /// That another primary has the record, and where clients find it, if the store says so.
    pub(super) fn fenced_by(&self) -> Error {
        let record = leader(self.archive.store.as_ref(), &self.archive.layout);
        fenced(record.ok().flatten().as_ref())
    }
}

/// Renews until the archive is closed, or another process has the record.
pub(super) fn run(shared: &Shared, engine: &dyn Engine, lease: Duration) {
    let every = lease / RENEWALS;
    while shared.rests(every) {
        let Some(term) = shared.term().clone() else { continue };
        let turn = term.turn();
        let is_over = shared.term().as_ref().is_none_or(|now| !Arc::ptr_eq(now, &term));
        // What was renewed less than a half of the time ago is not due.
        let is_fresh = term.primary().has_lease(boottime(), lease - every / 2);
        if is_over || is_fresh {
            continue;
        }
        let Ok(mut update) = term.primary().renew() else { continue };
        let archive = &shared.archive;
        let mut pace = Renewing { shared, every };
        let (store, layout) = (archive.store.as_ref(), &archive.layout);
        let updated = loop {
            match run_machine(&mut update, store, layout, &mut pace) {
                Some(Ok(updated)) => break updated,
                // Until it ends no other change may begin.
                Some(Err(error)) => {
                    pace.failed(&error);
                    if !pace.wait(boottime() + every) {
                        return;
                    }
                }
                None => return,
            }
        };
        term.primary().updated(&updated);
        drop(turn);
        if updated == Updated::Fenced {
            let error = shared.fenced_by();
            shared.failed(Activity::Renewal, &error);
            // A slot that was under way may be history.
            return engine.fenced(not_ours(&error), false);
        }
        shared.succeeded(Activity::Renewal);
    }
}

/// The time in which the record is renewed.
struct Renewing<'a> {
    shared: &'a Shared,
    every: Duration,
}

impl Pace for Renewing<'_> {
    fn now(&self) -> Duration {
        boottime()
    }

    /// A rest is no longer than the time in which the next renewal is due.
    fn wait(&mut self, until: Duration) -> bool {
        let is_late = |until: Instant| Instant::now() >= until;
        self.shared.rests(until.saturating_sub(self.now()).min(self.every / 2))
            && !self.shared.control().closing.is_some_and(is_late)
    }

    fn failed(&mut self, error: &Error) {
        self.shared.failed(Activity::Renewal, error);
    }
}
