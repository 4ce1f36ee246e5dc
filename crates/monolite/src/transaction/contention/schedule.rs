//! Owns which transactions go on, and which wait, where transactions were found to collide. It
//! knows no threads, and is told the time.
//!
//! # Algorithm
//! A conflict makes two [`Spot`]s known: the statement that answered otherwise, with its parameters
//! (as a rule one row), and the family of the transaction. A transaction that comes to a known spot
//! asks for a **turn**, and gives it back when it has committed, failed or gone.
//!
//! 1. At a **statement** there is one turn at first. An answer that is the same as the one before
//!    shows that the turn before changed nothing there, so the wait was in vain. From then on there
//!    is one more turn, so their number doubles while nothing changes there, and beyond [`OPEN`]
//!    the spot is forgotten. A conflict halves it.
//! 2. A **family** is only counted at first: each conflict weighs [`WEIGHT`] times what a commit
//!    does. When conflicts have the upper hand ([`TOO_MANY`]), half as many turns are given as
//!    there were attempts under way, from then on one more after each commit while a transaction
//!    waits, and [`WEIGHT`] fewer after each conflict, so it stays at the number at which a third
//!    of the attempts conflict; no fewer than [`FEWEST`], because then the conflicts have other
//!    reasons.
//! 3. Turns are given to the oldest transaction first, by the beginning of its first attempt.
//! 4. A turn is **taken away** after twice the time that one usually takes here, [`SHORTEST_HOLD`]
//!    at least and [`LONGEST_HOLD`] at most: its holder goes on without.
//! 5. A spot without a conflict or an awaited change within [`MEMORY`], and without waiters, is
//!    forgotten.
//!
//! # Invariants
//! - A queue never stalls: its head looks in time at overdue turns ([`Changes::heads`]), and all
//!   others wait behind a head.
//! - No circle of waiting: a transaction with turns waits only at a spot greater than all of theirs
//!   ([`super::Visit`] keeps that). The time limits are for applications whose own code waits.
//!
//! # Not here
//! Whether a transaction may commit: `steps`. Nothing that is wrong here is more than a delay.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Turns at one statement beyond which it is no obstacle.
const OPEN: usize = 64;

/// Commits that weigh as much as one conflict: at a third, half as much again is done as committed.
const WEIGHT: usize = 2;

/// Weight of conflicts, less that of commits, at which a family gets turns.
const TOO_MANY: usize = 32;

/// Turns of a family at least: enough to keep the cores busy while each waits for its application.
const FEWEST: usize = 8;

/// How long a turn lasts at least: a pause of the machine must not take it from everybody.
const SHORTEST_HOLD: Duration = Duration::from_millis(100);

/// How long a turn lasts at most, as one that is dead holds up the others for as long.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// As how many times what is usual a turn counts that took longer: 30 ms become 1.5 s in a dozen
/// turns where that is what they take now, and in none where few take so long.
const MOST_TIMES_USUAL: u32 = 4;

/// How long a spot is remembered at which nothing happens.
const MEMORY: Duration = Duration::from_secs(1);

/// Spots that are remembered; some hundred bytes each, and those that wait.
const MOST_SPOTS: usize = 1_024;

/// Where transactions collide. A transaction passes several in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Spot {
    /// A statement with its parameters.
    Statement(u64),
    /// All transactions of a kind.
    Family(u64),
}

/// An attempt of a transaction; the order is that in which turns are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Visitor {
    /// When its first attempt began; zero goes before all.
    pub(crate) since: Duration,
    pub(crate) number: u64,
}

/// How a visitor uses its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Beside others, as many as there are turns.
    Beside,
    /// Without others beside it: a last attempt.
    Alone,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    Conflict,
    /// It was rolled back, for whatever reason, or has changed nothing.
    Other,
}

/// What a visitor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No transactions collide there.
    Free,
    Turn,
    Waits,
}

/// Who is to be told something.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// They have got their turn, or need none any more.
    pub(crate) granted: Vec<(Spot, Visitor)>,
    /// They are first in their queue, and are to look when [`Schedule::next_look`] says so.
    pub(crate) heads: Vec<(Spot, Visitor)>,
}

#[derive(Debug)]
struct Holder {
    manner: Manner,
    since: Duration,
    has_waited: bool,
}

#[derive(Debug)]
struct Queue {
    /// Turns that there may be at the same time.
    width: usize,
    holders: HashMap<Visitor, Holder>,
    /// Whether one of them is to be alone.
    is_alone: bool,
    waiting: BTreeMap<Visitor, Manner>,
    /// What the statement answered last to a holder of the turn.
    answer: Option<u128>,
    /// Weight of the conflicts of a family, less that of the commits.
    pressure: usize,
    /// How long a turn takes, as a rule.
    usual: Duration,
    /// It may be forgotten then.
    until: Duration,
}

impl Queue {
    fn new(width: usize, usual: Duration) -> Queue {
        Queue {
            width,
            holders: HashMap::new(),
            is_alone: false,
            waiting: BTreeMap::new(),
            answer: None,
            pressure: 0,
            usual,
            until: Duration::ZERO,
        }
    }

    fn is_forgotten(&self, now: Duration) -> bool {
        self.until < now && self.waiting.is_empty()
    }

    fn hold_limit(&self) -> Duration {
        self.usual.saturating_mul(2).clamp(SHORTEST_HOLD, LONGEST_HOLD)
    }

    fn has_room_for(&self, manner: Manner) -> bool {
        match manner {
            Manner::Alone => self.holders.is_empty(),
            Manner::Beside => self.holders.len() < self.width && !self.is_alone,
        }
    }

    fn give(&mut self, now: Duration, visitor: Visitor, manner: Manner, has_waited: bool) {
        assert!(self.has_room_for(manner), "no more turns are given than there are");
        self.is_alone |= manner == Manner::Alone;
        self.holders.insert(visitor, Holder { manner, since: now, has_waited });
    }

    /// Gives the turns that there are to those who wait.
    fn advance(&mut self, now: Duration, spot: Spot, changes: &mut Changes) {
        let mut has_changed = false;
        while let Some((&visitor, &manner)) = self.waiting.first_key_value() {
            if !self.has_room_for(manner) {
                if has_changed {
                    changes.heads.push((spot, visitor));
                }
                return;
            }
            self.waiting.pop_first();
            self.give(now, visitor, manner, true);
            changes.granted.push((spot, visitor));
            has_changed = true;
        }
    }

    fn take_away_overdue(&mut self, now: Duration) -> usize {
        let (limit, before) = (self.hold_limit(), self.holders.len());
        self.holders.retain(|_, holder| now.saturating_sub(holder.since) < limit);
        self.is_alone &= !self.holders.is_empty();
        before - self.holders.len()
    }

    /// One that took far longer than usual was not itself at work: most such wait for a turn that
    /// their own task has, and it would make everybody else wait longer for them.
    fn note_time(&mut self, took: Duration) {
        let most = self.usual.max(SHORTEST_HOLD / 2).saturating_mul(MOST_TIMES_USUAL);
        self.usual = (self.usual * 7 + took.min(most)) / 8;
    }
}

/// All spots of a database.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    queues: HashMap<Spot, Queue>,
}

impl Schedule {
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    pub(crate) fn is_known(&self, spot: Spot) -> bool {
        self.queues.contains_key(&spot)
    }

    /// Asks for a turn; a visitor that must wait gets its turn by some later [`Changes`].
    pub(crate) fn ask(
        &mut self,
        now: Duration,
        spot: Spot,
        visitor: Visitor,
        manner: Manner,
    ) -> Answer {
        let Some(queue) = self.queues.get_mut(&spot) else { return Answer::Free };
        if queue.is_forgotten(now) {
            self.queues.remove(&spot);
            return Answer::Free;
        }
        let is_first = queue.waiting.first_key_value().is_none_or(|(first, _)| visitor < *first);
        if is_first && queue.has_room_for(manner) {
            queue.give(now, visitor, manner, false);
            return Answer::Turn;
        }
        queue.waiting.insert(visitor, manner);
        Answer::Waits
    }

    /// When the visitor that waits at `spot` has to look, counted from `now`; `None` if it is not
    /// first.
    pub(crate) fn next_look(
        &self,
        now: Duration,
        spot: Spot,
        visitor: Visitor,
    ) -> Option<Duration> {
        let queue = self.queues.get(&spot)?;
        let (first, _) = queue.waiting.first_key_value()?;
        let oldest = queue.holders.values().map(|holder| holder.since).min().unwrap_or(now);
        (*first == visitor).then(|| (oldest + queue.hold_limit()).saturating_sub(now))
    }

    /// Takes turns away that have lasted too long; tells how many.
    pub(crate) fn look(&mut self, now: Duration, spot: Spot, changes: &mut Changes) -> usize {
        let Some(queue) = self.queues.get_mut(&spot) else { return 0 };
        let lost = queue.take_away_overdue(now);
        queue.advance(now, spot, changes);
        lost
    }

    /// A statement has answered this to a holder of the turn there.
    pub(crate) fn note_answer(
        &mut self,
        now: Duration,
        spot: Spot,
        visitor: Visitor,
        answer: u128,
        changes: &mut Changes,
    ) {
        let Some(queue) = self.queues.get_mut(&spot) else { return };
        let Some(holder) = queue.holders.get(&visitor) else { return };
        let is_awaited = holder.has_waited || !queue.waiting.is_empty();
        if queue.answer.replace(answer) != Some(answer) {
            if is_awaited {
                queue.until = now + MEMORY;
            }
            return;
        }
        queue.width += 1;
        if queue.width <= OPEN {
            return queue.advance(now, spot, changes);
        }
        let queue = self.queues.remove(&spot);
        let waiting = queue.into_iter().flat_map(|queue| queue.waiting.into_keys());
        changes.granted.extend(waiting.map(|visitor| (spot, visitor)));
    }

    /// Gives a turn back, or a place in the queue.
    pub(crate) fn leave(
        &mut self,
        now: Duration,
        spot: Spot,
        visitor: Visitor,
        end: End,
        changes: &mut Changes,
    ) {
        let Some(queue) = self.queues.get_mut(&spot) else { return };
        let is_head = queue.waiting.first_key_value().is_some_and(|(first, _)| *first == visitor);
        if queue.waiting.remove(&visitor).is_some() {
            if let Some(head) = queue.waiting.first_key_value().filter(|_| is_head) {
                changes.heads.push((spot, *head.0));
            }
            return queue.advance(now, spot, changes);
        }
        let Some(holder) = queue.holders.remove(&visitor) else { return };
        queue.is_alone &= holder.manner == Manner::Beside;
        queue.note_time(now.saturating_sub(holder.since));
        if end == End::Committed && matches!(spot, Spot::Family(_)) {
            queue.pressure = queue.pressure.saturating_sub(1);
            // More than are asked for would be no bound when they are.
            queue.width = queue.width.saturating_add(usize::from(!queue.waiting.is_empty()));
        }
        queue.advance(now, spot, changes);
    }

    /// A statement answered otherwise than before to an attempt that took so long.
    pub(crate) fn note_conflict(&mut self, now: Duration, spot: Spot, took: Duration) {
        if self.queues.len() >= MOST_SPOTS && !self.queues.contains_key(&spot) {
            self.queues.retain(|_, queue| !queue.is_forgotten(now));
            if self.queues.len() >= MOST_SPOTS {
                return;
            }
        }
        let (is_family, first) = match spot {
            Spot::Statement(_) => (false, 1),
            Spot::Family(_) => (true, usize::MAX),
        };
        let queue = self.queues.entry(spot).or_insert_with(|| Queue::new(first, took));
        queue.note_time(took);
        queue.until = now + MEMORY;
        if !is_family {
            queue.width = (queue.width / 2).max(1);
        } else if queue.width < usize::MAX {
            queue.width = queue.width.saturating_sub(WEIGHT).max(FEWEST);
        } else {
            queue.pressure += WEIGHT;
            if queue.pressure > TOO_MANY {
                queue.width = (queue.holders.len() / 2).max(FEWEST);
            }
        }
    }
}
