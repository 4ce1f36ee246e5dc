//! Owns for how long a slot waits for those who were answered just now.
//!
//! # Algorithm
//! A client that is answered and writes again at once finds a request under way, and waits for all
//! of it before its own begins. Two halves of the clients would take turns for ever, each with its
//! own request. So the next slot waits until as many clients wait as did when the last slot was
//! stored: those in it and those behind it. It waits for half the time of a request at most, after
//! which they would do as well in the next one, and never for longer than [`MOST`], as after a
//! group that took minutes.
//!
//! Where writes do not come from clients that wait for each, so many never come, and the wait would
//! be for nothing. Each time that it was, twice as many slots are filled without it.
//!
//! # Invariants
//! At most every [`SLOTS_WITHOUT`]th slot waits for nothing.

use std::time::{Duration, Instant};

/// How long is waited, as a part of the time that a request has taken.
const PART: u32 = 2;

/// How long is waited at most: who writes again at once has done so by then.
const MOST: Duration = Duration::from_millis(50);

/// After so many slots without a wait it is tried again, at the latest.
const SLOTS_WITHOUT: u32 = 64;

/// Who is waited for before a slot.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// How many, and until when.
    next: Option<(usize, Instant)>,
    /// How many slots come without a wait, and how many of them are left.
    without: u32,
    left: u32,
}

impl Gathering {
    /// A slot is there now, whose request took so long. So many waited, for it or for the next.
    pub(super) fn filled(&mut self, waiting: usize, took: Duration, now: Instant) {
        self.next = (waiting > 0).then(|| (waiting, now + (took / PART).min(MOST)));
    }

    /// How many are to be waited for, and until when.
    pub(super) fn due(&mut self) -> Option<(usize, Instant)> {
        let next = self.next.take()?;
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        Some(next)
    }

    /// They have come, or not.
    pub(super) fn ended(&mut self, have_come: bool) {
        self.without = if have_come { 0 } else { (self.without * 2 + 1).min(SLOTS_WITHOUT - 1) };
        self.left = self.without;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::from_millis(10);

    /// How many of so many slots waited.
    fn waits(gathering: &mut Gathering, slots: u32, have_come: bool) -> u32 {
        let mut waits = 0;
        for _ in 0..slots {
            gathering.filled(5, TOOK, Instant::now());
            if gathering.due().is_some() {
                gathering.ended(have_come);
                waits += 1;
            }
        }
        waits
    }

    #[test]
    fn clients_that_come_again_are_always_waited_for() {
        let mut gathering = Gathering::default();
        assert_eq!(waits(&mut gathering, 100, true), 100);
        let now = Instant::now();
        gathering.filled(7, TOOK, now);
        assert_eq!(gathering.due(), Some((7, now + TOOK / 2)));
        assert_eq!(gathering.due(), None, "once for each slot");
        gathering.filled(7, Duration::from_secs(60), now);
        assert_eq!(gathering.due(), Some((7, now + MOST)), "a long request is no reason");
        gathering.filled(0, TOOK, now);
        assert_eq!(gathering.due(), None, "there is nobody");
    }

    #[test]
    fn those_who_do_not_are_waited_for_less_and_less_often() {
        let mut gathering = Gathering::default();
        // After 0, 1, 3, 7, 15, 31 and 63 slots, and from then on every 64th.
        assert_eq!(waits(&mut gathering, 127, false), 7);
        assert_eq!(waits(&mut gathering, 640, false), 10);
        assert_eq!(waits(&mut gathering, 64, true), 1, "it is tried again");
        assert_eq!(waits(&mut gathering, 100, true), 100);
    }
}
