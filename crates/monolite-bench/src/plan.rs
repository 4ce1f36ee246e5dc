//! How long a run takes: what is planned, what has passed, and what still fits into its budget.
//!
//! # Algorithm
//! 1. Every candidate is asked for its extent before anything runs; a counted round of it is
//!    estimated as its time, or as its operations at `ASSUMED_PER_SECOND`, and `OVERHEAD`.
//! 2. While the run goes on, the estimates are scaled by what the work done so far took over what
//!    it was estimated to take: a slow machine is noticed in the first group.
//! 3. Before each group, the counted rounds are lowered, down to one, until what is left fits into
//!    what is left of the budget. No cell is ever left out for time: which cells there are is
//!    decided by the options alone.

use crate::drivers::{Extent, Profile};
use std::time::{Duration, Instant};

/// Operations a second that a counted round is planned with.
const ASSUMED_PER_SECOND: f64 = 150_000.0;

/// Time around a counted round: the file system is synced, the database opened and warmed, and
/// every account that was touched is compared. Measured on two cores.
const OVERHEAD: Duration = Duration::from_millis(450);

/// The dropped first round, as a share of a counted one; its overhead is as long.
const DROPPED_ROUND: f64 = 0.6;

/// Estimates are trusted as they are until this much of them has been worked through.
const TRUSTED_UNTIL: Duration = Duration::from_secs(8);

/// A candidate as it is planned.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Name of its cell.
    pub id: String,
    /// Of one counted round.
    pub estimate: Duration,
}

impl Planned {
    /// Plans a candidate.
    pub fn of(profile: &Profile) -> Planned {
        Planned { id: profile.id.clone(), estimate: estimate(profile.extent) }
    }
}

/// Returns the time that a counted round takes, about.
pub fn estimate(extent: Extent) -> Duration {
    OVERHEAD
        + match extent {
            Extent::Time(time) => time,
            Extent::Operations(count) => Duration::from_secs_f64(count as f64 / ASSUMED_PER_SECOND),
        }
}

/// Returns the time that this many counted rounds of all of them take, about.
pub fn total(planned: &[Planned], rounds: usize) -> Duration {
    let one: Duration = planned.iter().map(|cell| cell.estimate).sum();
    one.mul_f64(rounds as f64 + DROPPED_ROUND)
}

/// What has passed, and what is left.
#[derive(Clone, Debug)]
pub struct Pace {
    deadline: Option<Instant>,
    /// One counted round of everything that has not begun.
    ahead: Duration,
    /// What is left of the group under way.
    group: Duration,
    estimated: Duration,
    spent: Duration,
}

impl Pace {
    /// Begins to work through `planned`, until `deadline` if there is one.
    pub fn new(planned: &[Planned], deadline: Option<Instant>) -> Pace {
        Pace {
            deadline,
            ahead: planned.iter().map(|cell| cell.estimate).sum(),
            group: Duration::ZERO,
            estimated: Duration::ZERO,
            spent: Duration::ZERO,
        }
    }

    /// Begins a group, and returns how many of its counted rounds fit, one at least.
    pub fn begin_group(&mut self, planned: &[Planned], wanted: usize, now: Instant) -> usize {
        let one: Duration = planned.iter().map(|cell| cell.estimate).sum();
        let all = self.ahead.max(one);
        let fits = |rounds: &usize| {
            let needed = all.mul_f64((*rounds as f64 + DROPPED_ROUND) * self.factor());
            self.deadline.is_none_or(|deadline| now + needed <= deadline)
        };
        let rounds = (1..=wanted).rev().find(fits).unwrap_or(1);
        self.ahead = self.ahead.saturating_sub(one);
        self.group = one.mul_f64(rounds as f64 + DROPPED_ROUND);
        rounds
    }

    /// Notes that a round of a candidate is over.
    pub fn finish_round(&mut self, planned: &Planned, dropped: bool, took: Duration) {
        let estimate = planned.estimate.mul_f64(if dropped { DROPPED_ROUND } else { 1.0 });
        self.group = self.group.saturating_sub(estimate);
        self.estimated += estimate;
        self.spent += took;
    }

    /// Notes time spent on something that has no estimate of its own.
    pub fn spend(&mut self, took: Duration) {
        self.spent += took;
    }

    /// Returns the time left, about, if all later groups have this many counted rounds.
    pub fn time_left(&self, rounds: usize) -> Duration {
        let ahead = self.ahead.mul_f64(rounds as f64 + DROPPED_ROUND);
        (self.group + ahead).mul_f64(self.factor())
    }

    fn factor(&self) -> f64 {
        if self.estimated < TRUSTED_UNTIL {
            return 1.0;
        }
        self.spent.as_secs_f64() / self.estimated.as_secs_f64()
    }
}

/// Writes a time for people, as `4 min 10 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests;
