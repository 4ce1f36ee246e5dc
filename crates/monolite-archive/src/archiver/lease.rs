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

use super::failures::Activity;
use super::refused::{fenced, not_ours};
use super::{Archive, Shared};
use crate::error::Error;
use crate::protocol::{Primary, Update, Updated};
use crate::record::Record;
use crate::requests::{Pace, boottime, leader, run as run_machine};

impl Archive {
    /// For how long a primary may be silent before a follower takes over by itself
    /// ([`Follower::claim`](crate::Follower::claim)), 1 s to 1 h; `None` for ever, and no follower
    /// does after a close either. Default: none. The primary changes the leader record every
    /// third of it, which each time is a request that costs. A short one has a primary replaced
    /// that was only slow, which loses nothing that was acknowledged as archived.
    ///
    /// # Panics
    /// When it is shorter or longer.
    #[must_use]
    pub fn lease(mut self, lease: Option<Duration>) -> Archive {
        let is_fit = |it| (Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(it);
        assert!(lease.as_ref().is_none_or(is_fit), "a lease of {lease:?} is not 1 s to 1 h");
        self.lease = lease;
        self
    }

    /// Where clients find the primary while it is this process, as they like it: the leader record
    /// and the errors of its predecessors say it. At most 1,024 bytes, or no opening succeeds.
    /// Default: the name of the host, and the number of the process.
    #[must_use]
    pub fn address(mut self, address: &str) -> Archive {
        self.address = address.into();
        self
    }
}

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
    pub(super) fn term(&self) -> MutexGuard<'_, Option<Arc<Term>>> {
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

    /// Waits so long; `false` when nothing more is uploaded.
    pub(super) fn rests(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut control = self.control();
        while !control.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.resting.wait_timeout(control, left);
            control = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// That another primary has the record, and where clients find it, if the store says so.
    pub(super) fn fenced_by(&self) -> Error {
        let record = leader(self.archive.store.as_ref(), &self.archive.layout);
        self.replaced_by(record.ok().flatten().as_ref())
    }

    /// Likewise, by this record if it could be read.
    pub(super) fn replaced_by(&self, record: Option<&Record>) -> Error {
        self.stats().successor = Some(record.map_or_else(String::new, |it| it.address.clone()));
        fenced(record)
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
        let Ok(update) = term.primary().renew() else { continue };
        if !change(shared, engine, &term, update, every) {
            return;
        }
        drop(turn);
    }
}

/// Changes the record of a term whose turn the caller has; whether it still is ours. A failure is
/// followed by a rest of `every`.
pub(super) fn change(
    shared: &Shared,
    engine: &dyn Engine,
    term: &Term,
    mut update: Update,
    every: Duration,
) -> bool {
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
                    return false;
                }
            }
            None => return false,
        }
    };
    term.primary().updated(&updated);
    if updated == Updated::Fenced {
        let error = shared.fenced_by();
        shared.failed(Activity::Renewal, &error);
        // A slot that was under way may be history.
        engine.fenced(not_ours(&error), false);
        return false;
    }
    shared.succeeded(Activity::Renewal);
    true
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

/// Who this is, for operators who look at the record.
pub(super) fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    format!("{name}, process {}", std::process::id())
}
