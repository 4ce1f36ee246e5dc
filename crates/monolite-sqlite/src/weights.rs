//! Owns what the running transaction has allocated on this thread, by what it may be for, and how
//! long SQLite can work on that without asking anybody: rows that are to be sorted, values over
//! which a function passes, expressions that are walked over while a statement is prepared.
//!
//! Counted by the allocator ([`crate::memory`]), and only while there is a budget.

use std::cell::Cell;
use std::time::Duration;

use crate::pcache;

thread_local! {
    /// Bytes of pieces smaller than [`SMALL`] that were allocated and not released.
    static IN_SMALL: Cell<i64> = const { Cell::new(0) };
    /// Those of when a statement was last begun to be prepared.
    static SMALL_BEFORE: Cell<i64> = const { Cell::new(0) };
    /// Bytes of larger pieces that are no pages, and how many there are.
    static IN_LARGER: Cell<i64> = const { Cell::new(0) };
    static LARGER: Cell<i64> = const { Cell::new(0) };
    /// Bytes of the largest piece since a statement began to run.
    static LARGEST: Cell<i64> = const { Cell::new(0) };
}

/// In smaller rows the terms are what makes a sort slow, in larger ones the bytes.
const SMALL: i64 = 2_048;

/// Nanoseconds that a sort takes for each byte of small pieces: measured 33 for 60,000 rows of 490
/// terms that are all equal, with SQLite 3.54.1 (x86-64, 2.1 GHz), and less for rows of few terms.
const SORT_NANOS: u64 = 40;

/// Picoseconds that a sort takes for each byte of larger pieces and each time that it compares
/// them, which is the logarithm of their number: measured 430 for rows of 3,000 bytes and of
/// 100,000 that are equal but for the last ones, compared by `NOCASE`, the slowest collation.
const COMPARE_PICOS: u64 = 600;

/// How many times longer a sort takes where texts are kept as UTF-16: `NOCASE` and `RTRIM` compare
/// UTF-8, and SQLite makes that of both texts each time. Measured 9 to 19, for 2,000 to 6,000 rows
/// of 480 keys of two letters.
const SORT_TIMES_UTF16: u32 = 24;

/// Picoseconds that preparing a statement can take for each byte that it has allocated and each
/// level of its expressions, without allocating meanwhile. SQLite asks at each level whether all
/// below it is constant, and of a call within calls it walks over all below it again. Measured 21
/// for 97 common table expressions of 96 additions of calls with 12 constants each, 7 for one
/// without the calls; and 100 to 200 for 60 to 85 of 95 calls of `abs()` in each other, by how much
/// later they ended than was foreseen.
const WALK_PICOS: u64 = 200;

/// Bytes of a value for which SQLite may not have asked the allocator: it keeps smaller pieces of
/// its own (lookaside memory), of up to 1,200 bytes.
const UNSEEN: i64 = 2_048;

/// Picoseconds that a pass over a value takes for each byte: measured 2,300 for the last element of
/// a JSON array, and 1,700 for the number that a text of digits is.
const PASS_PICOS: u64 = 2_500;

/// All of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weights {
    in_small: i64,
    small_before: i64,
    in_larger: i64,
    larger: i64,
    largest: i64,
}

impl Weights {
    /// Puts these in place of what was counted on this thread, which it returns.
    pub(crate) fn put(self) -> Weights {
        Weights {
            in_small: IN_SMALL.replace(self.in_small),
            small_before: SMALL_BEFORE.replace(self.small_before),
            in_larger: IN_LARGER.replace(self.in_larger),
            larger: LARGER.replace(self.larger),
            largest: LARGEST.replace(self.largest),
        }
    }
}

/// A piece was allocated.
pub(crate) fn add(bytes: i64) {
    if bytes < SMALL {
        IN_SMALL.set(IN_SMALL.get().saturating_add(bytes));
    } else if !pcache::is_page() {
        IN_LARGER.set(IN_LARGER.get().saturating_add(bytes));
        LARGER.set(LARGER.get().saturating_add(1));
    }
}

/// A piece was released.
pub(crate) fn remove(bytes: i64) {
    if bytes < SMALL {
        IN_SMALL.set(IN_SMALL.get().saturating_sub(bytes));
    } else if !pcache::is_page() {
        IN_LARGER.set(IN_LARGER.get().saturating_sub(bytes));
        LARGER.set(LARGER.get().saturating_sub(1));
    }
}

/// A piece is asked for that may be a value; whether it is the largest one, so that what was
/// foreseen of passes is not enough any more.
pub(crate) fn note_value(bytes: i64) -> bool {
    let is_largest = bytes > LARGEST.get().max(UNSEEN);
    if is_largest {
        LARGEST.set(bytes);
    }
    is_largest
}

fn number(of: &'static std::thread::LocalKey<Cell<i64>>) -> u64 {
    u64::try_from(of.get()).unwrap_or(0)
}

/// How long it takes at most to sort what was allocated within the running budget, in a database
/// whose texts are kept as UTF-16.
pub(crate) fn time_to_sort_utf16() -> Duration {
    time_to_sort().saturating_mul(SORT_TIMES_UTF16)
}

/// How long it takes at most to sort what was allocated within the running budget.
pub(crate) fn time_to_sort() -> Duration {
    let compared = u64::from(number(&LARGER).checked_ilog2().map_or(0, |log| log + 1));
    let larger = number(&IN_LARGER).saturating_mul(COMPARE_PICOS).saturating_mul(compared) / 1_000;
    let small = number(&IN_SMALL).saturating_mul(SORT_NANOS);
    Duration::from_nanos(small.saturating_add(larger))
}

/// A statement is prepared from now on.
pub(crate) fn start_preparing() {
    SMALL_BEFORE.set(IN_SMALL.get());
}

/// How long it takes at most to prepare the rest of a statement whose expressions have so many
/// levels, when nothing of it is allocated.
pub(crate) fn time_of_walks(levels: u64) -> Duration {
    let own = IN_SMALL.get().saturating_sub(SMALL_BEFORE.get());
    let walked = u64::try_from(own).unwrap_or(0).saturating_mul(WALK_PICOS);
    Duration::from_nanos(walked.saturating_mul(levels) / 1_000)
}

/// What was allocated until now is no value of the statement that runs.
#[inline]
pub(crate) fn forget_values() {
    LARGEST.set(0);
}

/// How long it takes at most to pass so often over the largest value that the running statement
/// has made.
pub(crate) fn time_of_passes(passes: u32) -> Duration {
    let bytes = number(&LARGEST).max(UNSEEN.unsigned_abs());
    let picos = bytes.saturating_mul(PASS_PICOS).saturating_mul(passes.into());
    Duration::from_nanos(picos / 1_000)
}
