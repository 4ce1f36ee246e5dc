//! Owns which followers have acknowledged how much, and for whom of them a write waits that is to
//! be replicated ([`Durability::Replicated`](monolite::Durability)).
//!
//! # Algorithm
//! The leader record lists the *replicas*: of the followers that stream, those that have all that
//! was acknowledged so far. (Kafka calls this the in-sync set.) A write is acknowledged when all of
//! them have it, and they are as many as it asks for. A follower that is listed may be the next
//! primary; no other may, as the [claim](crate::protocol::Claim) sees to.
//! 1. A follower that streams counts at once: from then on nothing is acknowledged that it lacks.
//! 2. As soon as it has all that was acknowledged before, the record lists it.
//! 3. One that is gone, or says nothing for [`PATIENCE`] of what it was sent, is taken off the
//!    record while another one is left, and does not count any more *once the record is written*.
//! 4. A primary whose writes do not ask for it, and that has archived what an earlier process had
//!    left, lists none.
//!
//! # Invariants
//! - Who is listed counts: a write waits for a superset of the listed at all times.
//! - Who is listed has all that was acknowledged.
//!
//! Both hold without a clock. A claimant swaps the record in which it is listed. If the primary has
//! taken it off before, the swap fails. If not, the primary cannot change the record any more, so
//! it waits for this follower whatever it acknowledges; and what the follower has said to have is
//! in the file that it goes on with.
//!
//! # Not here
//! A copy of a follower's files is the same replica: two of them must not stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use monolite::archive::{Primary as Engine, WalPosition};

use super::Shared;
use super::lease::change;
use crate::record::ReplicaId;
use crate::streaming::PATIENCE;

/// How often it is looked who is to be listed, once a write has asked; and before.
const LOOK: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_millis(250);

/// What one connection of a follower has said.
struct Said {
    /// Of several connections of one follower the last one counts.
    connection: u64,
    at: WalPosition,
    /// What was sent last, and since when nothing was said of it.
    owes: Option<(WalPosition, Instant)>,
}

#[derive(Default)]
struct State {
    connections: u64,
    said: BTreeMap<u128, Said>,
    /// For whom a write waits.
    counts: BTreeSet<u128>,
    /// How many are listed, all of whom count.
    listed: usize,
    /// What is acknowledged: each who counts has it.
    told: Option<WalPosition>,
    /// Whether a write has asked for it.
    is_asked: bool,
}

/// The followers of one primary.
#[derive(Default)]
pub(super) struct Replicas(Mutex<State>);

/// A connection of a follower.
pub(super) struct Connection<'r> {
    replicas: &'r Replicas,
    replica: u128,
    number: u64,
}

/// What all have who count, and how many are listed.
type Had = Option<(WalPosition, usize)>;

impl State {
    fn had(&mut self) -> Had {
        let of = |replica: &u128| self.said.get(replica).map(|said| said.at);
        let had = self.counts.iter().map(of).min().flatten();
        let had = had.filter(|had| self.listed > 0 && self.told.is_none_or(|told| told <= *had))?;
        self.told = Some(had);
        Some((had, self.listed))
    }

    /// Who is to be listed where these are, if that is to change. All of them count from here on.
    fn wanted(&mut self, listed: &[ReplicaId], is_all_archived: bool) -> Option<Vec<ReplicaId>> {
        self.listed = listed.len();
        self.counts = listed.iter().map(|replica| replica.bits()).collect();
        if !self.is_asked {
            return (!listed.is_empty() && is_all_archived).then(Vec::new);
        }
        self.counts.extend(self.said.keys());
        let has_all = |said: &&Said| self.told.is_none_or(|told| told <= said.at);
        let fit = self.said.iter().filter(|(_, said)| has_all(said));
        let fit: Vec<ReplicaId> = fit.map(|(replica, _)| ReplicaId::from_bits(*replica)).collect();
        let is_new = fit.len() != listed.len() || !fit.iter().all(|it| listed.contains(it));
        (is_new && !fit.is_empty()).then_some(fit)
    }
}

impl Replicas {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write asks for them.
    pub(super) fn ask(&self) {
        self.state().is_asked = true;
    }

    /// How many the record lists, or would if a write asked for it.
    pub(super) fn listed(&self) -> u64 {
        let state = self.state();
        let would = if state.is_asked { 0 } else { state.said.len() };
        state.listed.max(would) as u64
    }

    /// A follower streams that has everything up to `at`.
    pub(super) fn connected(&self, replica: ReplicaId, at: WalPosition) -> Connection<'_> {
        let mut state = self.state();
        state.connections += 1;
        let (replica, number) = (replica.bits(), state.connections);
        state.said.insert(replica, Said { connection: number, at, owes: None });
        if state.is_asked {
            state.counts.insert(replica);
        }
        Connection { replicas: self, replica, number }
    }
}

impl Connection<'_> {
    /// Runs `change` with what it has said; `None` where a later connection counts.
    fn said<T>(&self, change: impl FnOnce(&mut Said) -> T) -> Option<T> {
        let mut state = self.replicas.state();
        let said = state.said.get_mut(&self.replica)?;
        (said.connection == self.number).then(|| change(said))
    }

    /// It is sent everything up to `to`.
    pub(super) fn sent(&self, to: WalPosition) {
        self.said(|said| {
            let since = said.owes.map_or_else(Instant::now, |(_, since)| since);
            said.owes = Some((to, since));
        });
    }

    /// It says to have everything up to `at`.
    pub(super) fn has(&self, at: WalPosition) -> Had {
        self.said(|said| {
            said.at = said.at.max(at);
            said.owes = said.owes.filter(|(to, _)| at < *to).map(|(to, _)| (to, Instant::now()));
        });
        self.replicas.state().had()
    }

    /// Whether it still is the follower's, and says something in time.
    pub(super) fn is_current(&self) -> bool {
        let in_time =
            |said: &mut Said| said.owes.is_none_or(|(_, since)| since.elapsed() < PATIENCE);
        self.said(in_time).unwrap_or(false)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if self.said(|_| {}).is_some() {
            self.replicas.state().said.remove(&self.replica);
        }
    }
}

/// Has the record list who is to be, until the archive is closed or another process has it.
pub(super) fn run(shared: &Shared, engine: &dyn Engine) {
    let Some(replicas) = shared.parts.as_ref().map(|parts| &parts.replicas) else { return };
    while shared.rests(if replicas.state().is_asked { LOOK } else { REST }) {
        let Some(term) = shared.term().clone() else { continue };
        let turn = term.turn();
        let is_over = shared.term().as_ref().is_none_or(|now| !Arc::ptr_eq(now, &term));
        if is_over {
            continue;
        }
        let listed = term.primary().record().replicas.clone();
        // The feed's lock comes before that of the replicas.
        let is_all_archived = shared.stats().is_restorable && !shared.feed().has_of_earlier();
        let (wanted, had) = {
            let mut state = replicas.state();
            let wanted = state.wanted(&listed, is_all_archived);
            (wanted, state.had())
        };
        had.into_iter().for_each(|(to, count)| engine.replicated(to, count));
        let Some(wanted) = wanted else { continue };
        let Ok(update) = term.primary().has_replicas(wanted) else { continue };
        if !change(shared, engine, &term, update, LOOK) {
            return;
        }
        drop(turn);
    }
}

#[cfg(test)]
mod tests;
