//! Owns the table of idempotency keys in the file, which the engine alone reads and changes
//! ([`crate::names`]), and the time by which they expire.
//!
//! # Format
//! One row for each key, written in the transaction that the key is of: `key TEXT PRIMARY KEY,
//! outcome BLOB NOT NULL, expires INTEGER NOT NULL`. The first commit with a key makes the table.
//! `expires` is in seconds of *counted time* and begins at [`ORIGIN`]. The row with the empty key,
//! which a user cannot choose, holds the counted time in its outcome: nanoseconds in 8 bytes,
//! big-endian.
//!
//! Earlier versions wrote Unix seconds into `expires` and had no such row. [`ORIGIN`] is larger
//! than any Unix time of SQLite, which tells the two apart. To an earlier version every new key is
//! one that lives.
//!
//! # Algorithm
//! 1. Counted time is the time in the row at the first use of a key, and what the engine's
//!    monotonic clock says has passed since ([`KeyTime`]). Nothing reads the wall clock.
//! 2. A commit with a key looks the row up, and writes it when it is a second late. Time after the
//!    last such commit is lost with the process, and time without a process does not count: keys
//!    live longer, never shorter.
//! 3. A key with a Unix time lives. Each writing of the row gives up to [`ADOPTED`] of them a whole
//!    lifetime from then on.
//!
//! # Invariants
//! - A key lives for its lifetime at least. A process that has the file to itself counts no more
//!   than what passed.
//! - Where several processes have the file, one that was idle would count time in which another has
//!   stored keys. So a process counts at most [`APART`] from the last time that it found in the row
//!   or wrote, and adds [`APART`] to the lifetimes of its keys. Proof: let `f(t)` be the time in
//!   the row at `t`, and a key be stored at `k`. A process that knows `f(s)` writes at most `f(s) +
//!   (t - s)`, and for `s < k` at most `f(k) + APART`. So `f(t) <= f(k) + (t - k) + APART`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{ErrorCode, OptionalExtension as _, Result};

use super::Connection;
use crate::locked::locked;
use crate::names;
use crate::statements::Own;
use crate::traits::Traits;

/// Where counted time begins; SQLite's Unix times end below 2^38, with the year 9999.
const ORIGIN: i64 = 1 << 40;

/// How late the counted time in the file may be.
const LATE: Duration = Duration::from_secs(1);

/// What a process counts at most from one of its rows to the next where others have the file, too.
const APART: Duration = Duration::from_secs(60);

/// Keys with a Unix time that get one of counted time with each row: a page or two for each.
const ADOPTED: i64 = 100;

/// Counts the time that an open database has seen pass, for all its connections.
pub struct KeyTime {
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    /// What counts from one row to the next.
    at_most: Duration,
    /// What each key lives longer, since others may have counted so much too much.
    spare: Duration,
    state: Mutex<KnownTime>,
}

#[derive(Default)]
struct KnownTime {
    /// What the file is known to have said.
    known: Option<Counted>,
    /// What was written last, until it is found in the file: a transaction may be rolled back.
    written: Option<Counted>,
}

/// A counted time, and what the clock said then.
#[derive(Clone, Copy)]
struct Counted {
    time: Duration,
    clock: Duration,
}

impl KeyTime {
    /// Counts by `clock`, which never goes backwards, in a file to which no other process writes.
    pub fn alone(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<KeyTime> {
        KeyTime::new(Box::new(clock), Duration::MAX, Duration::ZERO)
    }

    /// As [`KeyTime::alone`] in a file to which other processes write.
    pub fn shared(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Arc<KeyTime> {
        KeyTime::new(Box::new(clock), APART, APART)
    }

    fn new(
        clock: Box<dyn Fn() -> Duration + Send + Sync>,
        at_most: Duration,
        spare: Duration,
    ) -> Arc<KeyTime> {
        Arc::new(KeyTime { clock, at_most, spare, state: Mutex::default() })
    }

    /// The counted time now, if the file says `in_file`.
    fn now(&self, in_file: Duration) -> Duration {
        let clock = (self.clock)();
        let known = *locked(&self.state).known.get_or_insert(Counted { time: in_file, clock });
        known.time.saturating_add(self.passed(known, clock)).max(in_file)
    }

    /// As [`KeyTime::now`] for who has `in_file` from the transaction that is being written; and
    /// whether the file has to be told.
    fn advance(&self, in_file: Duration) -> (Duration, bool) {
        let clock = (self.clock)();
        let mut state = locked(&self.state);
        if let Some(written) = state.written.filter(|written| written.time == in_file) {
            state.known = Some(written);
        }
        let known = *state.known.get_or_insert(Counted { time: in_file, clock });
        let passed = self.passed(known, clock);
        let time = known.time.saturating_add(passed).max(in_file);
        let is_late = time >= in_file.saturating_add(LATE);
        if is_late {
            state.written = Some(Counted { time, clock });
        } else if time == in_file || passed == self.at_most {
            // Other processes have counted on; this one does from there.
            state.known = Some(Counted { time: in_file, clock });
        }
        (time, is_late)
    }

    fn passed(&self, since: Counted, clock: Duration) -> Duration {
        clock.saturating_sub(since.clock).min(self.at_most)
    }

    /// What a key has in `expires` that is stored at `now`.
    fn end(&self, now: Duration, lifetime: Duration) -> i64 {
        let last = now.saturating_add(lifetime).saturating_add(self.spare);
        seconds(last).saturating_add(1)
    }
}

/// A counted time as it is compared with `expires`.
fn seconds(time: Duration) -> i64 {
    ORIGIN.saturating_add_unsigned(time.as_secs())
}

/// The idempotency keys in the file, from [`Connection::keys`].
#[derive(Clone, Copy)]
pub struct Keys<'c>(pub(super) &'c Connection);

impl Keys<'_> {
    /// The outcome that was stored with `key`, unless it has expired.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn find(self, key: &str) -> Result<Option<Vec<u8>>> {
        if key.is_empty() {
            return Ok(None);
        }
        let found = self.0.as_engine(|| {
            let now = self.0.key_time.now(self.time_in_file()?);
            let find = (key, seconds(now), ORIGIN);
            self.0.prepared.with_own(Own::FindKey, |it| it.query_row(find, |row| row.get(0)))
        });
        match found.optional() {
            Err(error) if is_missing(&error) => Ok(None),
            found => found,
        }
    }

    /// Stores `key` and its outcome for `lifetime`, and removes up to `swept` others that have
    /// expired. A write transaction must be open.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn store(&self, key: &str, outcome: &[u8], lifetime: Duration, swept: i64) -> Result<()> {
        self.0.as_engine(|| {
            let in_file = match self.time_in_file() {
                Err(error) if is_missing(&error) => self.make_keys().map(|()| Duration::ZERO),
                time => time,
            };
            let (now, is_late) = self.0.key_time.advance(in_file?);
            let end = self.0.key_time.end(now, lifetime);
            if is_late {
                self.write_time_of_keys(now, end)?;
            }
            let expired = (seconds(now), ORIGIN, swept);
            self.0.prepared.with_own(Own::SweepKeys, |sweep| sweep.execute(expired))?;
            let store = (key, outcome, end);
            self.0.prepared.with_own(Own::StoreKey, |insert| insert.execute(store)).map(|_| ())
        })
    }

    /// The counted time in the file; zero until a second has passed.
    fn time_in_file(self) -> Result<Duration> {
        let read = |time: &mut rusqlite::Statement<'_>| time.query_row([], |row| row.get(0));
        let time: Option<[u8; 8]> = self.0.prepared.with_own(Own::FindTime, read).optional()?;
        Ok(time.map_or(Duration::ZERO, |time| Duration::from_nanos(u64::from_be_bytes(time))))
    }

    /// Writes the counted time, and has keys with a Unix time end at `end`.
    fn write_time_of_keys(self, now: Duration, end: i64) -> Result<()> {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let row = ("", nanos.to_be_bytes(), i64::MAX);
        self.0.prepared.with_own(Own::StoreKey, |insert| insert.execute(row))?;
        let adopt = (end, ORIGIN, ADOPTED);
        self.0.prepared.with_own(Own::AdoptKeys, |update| update.execute(adopt)).map(|_| ())
    }

    fn make_keys(self) -> Result<()> {
        self.0.unsettle(Traits::SCHEMA);
        let [table, index, ..] = names::DEFINITIONS;
        self.0.raw().execute_batch(&format!("{table};{index}"))
    }
}

/// Whether the table is not there: nothing was ever written to it.
pub(super) fn is_missing(error: &rusqlite::Error) -> bool {
    let is_unknown = error.sqlite_error_code() == Some(ErrorCode::Unknown);
    is_unknown && error.to_string().contains("no such table")
}

#[cfg(test)]
mod tests;
