//! Owns [`Histogram`], a distribution in fixed buckets, and [`Measured`], into which threads
//! record one.
//!
//! # Algorithm
//! The bounds are 1, 2, 3 and 5 times each power of ten, from a millionth of the unit (for whole
//! numbers from 1) over eight decades. They never change, so two readings can be subtracted, and
//! the histograms of several processes can be added. A quantile is interpolated in its bucket, as
//! `histogram_quantile` of PromQL does. So it is less than twice or more than half of the true one,
//! and never on the other side of a bound.
//!
//! # Threads and locks
//! Buckets are atomics. A reading beside a recording may have its bucket and not its sum, or the
//! other way around.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Recorded;

/// Bounds of the first decade.
const STEPS: [u64; 4] = [1, 2, 3, 5];

/// From a microsecond to 100 seconds: a cached commit, and a disk that hangs.
const DECADES: usize = 8;

/// Upper bounds of all buckets but the last one, which has none, in units of the first bound.
const BOUNDS: [u64; STEPS.len() * DECADES + 1] = bounds();

const BUCKETS: usize = BOUNDS.len() + 1;

/// What a value in nanoseconds is divided by to be shown in seconds.
const NANOS: u64 = 1_000_000_000;

const fn bounds() -> [u64; STEPS.len() * DECADES + 1] {
    let mut bounds = [1; STEPS.len() * DECADES + 1];
    let (mut at, mut power) = (0, 1);
    while at < bounds.len() {
        bounds[at] = STEPS[at % STEPS.len()] * power;
        at += 1;
        if at % STEPS.len() == 0 {
            power *= 10;
        }
    }
    bounds
}

/// The first bound, in what is recorded: a millionth of the unit, if it can be divided.
const fn first(unit: u64) -> u64 {
    unit.div_ceil(1_000_000)
}

/// A distribution of times in seconds, or of numbers, in buckets that never change.
///
/// It counts from the opening of the database. [`since`](Histogram::since) gives that of the time
/// between two readings.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// let before = db.stats();
/// db.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// let commits = db.stats().commit_seconds.since(&before.commit_seconds);
/// assert_eq!(commits.count(), 1);
/// assert!(commits.sum() <= commits.quantile(1.0));
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// How much of what is recorded is one of what is shown.
    unit: u64,
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { unit: NANOS, counts: [0; BUCKETS], sum: 0 }
    }
}

impl Histogram {
    /// Number of measurements.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of all measurements. Divided by the count it is the mean.
    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.unit as f64
    }

    /// The upper bound of each bucket, and how many measurements were not above it. Those above the
    /// last bound are only in [`count`](Histogram::count).
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut cumulative = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            cumulative += count;
            ((bound * first(self.unit)) as f64 / self.unit as f64, cumulative)
        })
    }

    /// The value that a share `q` of the measurements, from 0 to 1, does not exceed; 0 where
    /// nothing was measured.
    ///
    /// It is exact to the bucket, and interpolated in it: less than twice, and more than half of
    /// the true one. Compared with a bound (1, 2, 3 or 5 times a power of ten) it is exact. Above
    /// the last bound (100 s) it is that bound.
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = q * self.count() as f64;
        let (mut lower, mut before) = (0.0, 0);
        for (upper, cumulative) in self.buckets() {
            if cumulative > 0 && cumulative as f64 >= rank {
                let share = (rank - before as f64) / (cumulative - before) as f64;
                return lower + (upper - lower) * share;
            }
            (lower, before) = (upper, cumulative);
        }
        if self.count() == 0 { 0.0 } else { lower }
    }

    /// What was measured after `earlier`, a reading of the same open database.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let counts = array::from_fn(|at| self.counts[at].saturating_sub(earlier.counts[at]));
        Histogram { unit: self.unit, counts, sum: self.sum.saturating_sub(earlier.sum) }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = to.serialize_struct("Histogram", 3)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum", &self.sum())?;
        fields.serialize_field("buckets", &self.buckets().collect::<Vec<_>>())?;
        fields.end()
    }
}

/// Where times are recorded.
pub(crate) type Times = Measured<NANOS>;

/// Where whole numbers are recorded.
pub(crate) type Numbers = Measured<1>;

/// A histogram that several threads may record into; `UNIT` of what they record is one of what is
/// shown.
pub(crate) struct Measured<const UNIT: u64> {
    counts: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl<const UNIT: u64> Default for Measured<UNIT> {
    fn default() -> Measured<UNIT> {
        Measured { counts: array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const UNIT: u64> Measured<UNIT> {
    pub(crate) fn record(&self, value: u64) {
        let at = BOUNDS.partition_point(|bound| bound * first(UNIT) < value);
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }
}

impl Times {
    pub(crate) fn record_time(&self, time: Duration) {
        self.record(crate::clock::nanos(time));
    }
}

impl<const UNIT: u64> Recorded<Histogram> for Measured<UNIT> {
    fn show(&self) -> Histogram {
        Histogram {
            unit: UNIT,
            counts: array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
