//! Owns the time that primaries have seen pass, and how old what is archived is by it.
//!
//! A wall clock is set, by people, by NTP, at a boot. So nothing is merged or deleted by it. What
//! counts is time that passed on a monotonic clock while a primary was there.
//!
//! # Format
//! The leader record has a list of marks, each with `txid` and `ms`: everything up to this TXID was
//! in the archive when primaries had seen so many milliseconds, all together. Both rise; the last
//! mark says how much was seen.
//!
//! # Algorithm
//! 1. A primary goes on counting from the last mark of the record that it has claimed ([`Seeing`]).
//!    The one before it changes the record no more, so no time is counted twice.
//! 2. It notes a mark for the slots that it has filled. The record gets the marks with changes that
//!    are made anyway: an hourly renewal while there is something to do, and the release.
//! 3. What a mark covers is at least as old as the mark.
//! 4. Marks are thinned out: one goes when those around it are no farther apart than a sixteenth of
//!    the age of the later one. So files are kept a sixteenth longer at most, and some 250 marks
//!    are enough for ten years.
//!
//! # Invariants
//! No file is older by its marks than it is: what is not noted, thinned out, or lost with a crash
//! makes it younger, and it is kept longer.

use std::time::Duration;

use monolite_ltx::Txid;
use serde::{Deserialize, Serialize};

/// Marks go when they are closer together than this part of their age.
const PART_OF_AGE: u64 = 16;

/// That everything up to a TXID was there after so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    #[serde(with = "txid")]
    txid: Txid,
    ms: u64,
}

/// The time that was seen, in marks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Seen(Vec<Mark>);

impl Seen {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_in_order(&self) -> bool {
        self.0.is_sorted_by(|one, other| one.txid <= other.txid && one.ms <= other.ms)
    }

    /// How much was seen.
    fn total(&self) -> Duration {
        Duration::from_millis(self.0.last().map_or(0, |mark| mark.ms))
    }

    /// Everything up to `txid` is there at `at`.
    fn note(&mut self, txid: Txid, at: Duration) {
        let ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        if self.0.last().is_none_or(|last| last.txid <= txid && last.ms <= ms) {
            self.0.push(Mark { txid, ms });
            self.thin_out();
        }
    }

    fn thin_out(&mut self) {
        let now = self.0.last().map_or(0, |mark| mark.ms);
        let mut at = 1;
        while let Some(after) = self.0.get(at + 1) {
            let apart = after.ms - self.0[at - 1].ms;
            if apart <= (now - after.ms) / PART_OF_AGE {
                self.0.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Up to which TXID everything is older than `age` at `at`.
    fn older_than(&self, age: Duration, at: Duration) -> Option<Txid> {
        let until = at.checked_sub(age)?.as_millis();
        let old = self.0.partition_point(|mark| u128::from(mark.ms) <= until);
        self.0[..old].last().map(|mark| mark.txid)
    }
}

/// The time that was seen, as a primary goes on counting it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seeing {
    seen: Seen,
    /// How much was seen when it began.
    before: Duration,
    /// What the clock said then.
    since: Duration,
}

impl Seeing {
    /// From now on, when the clock says `clock`; `seen` is what the record says that was claimed.
    pub(crate) fn begin(seen: Seen, clock: Duration) -> Seeing {
        Seeing { before: seen.total(), seen, since: clock }
    }

    /// How much was seen when it began.
    pub(crate) fn before(&self) -> Duration {
        self.before
    }

    /// How much is seen when the clock says `clock`.
    pub(crate) fn at(&self, clock: Duration) -> Duration {
        self.before.saturating_add(clock.saturating_sub(self.since))
    }

    /// Everything up to `txid` is there.
    pub(crate) fn note(&mut self, txid: Txid, clock: Duration) {
        let at = self.at(clock);
        self.seen.note(txid, at);
    }

    /// Up to which TXID everything is older than `age`.
    pub(crate) fn older_than(&self, age: Duration, clock: Duration) -> Option<Txid> {
        self.seen.older_than(age, self.at(clock))
    }

    /// The marks, for the record.
    pub(crate) fn seen(&self) -> &Seen {
        &self.seen
    }
}

/// TXIDs as in names of files.
pub(crate) mod txid {
    use monolite_ltx::Txid;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(txid: &Txid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(txid)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Txid, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
