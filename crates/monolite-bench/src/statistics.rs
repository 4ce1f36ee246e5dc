//! Latency histograms and the spread of a figure over rounds.
//!
//! Latencies are recorded in nanoseconds with three significant digits; a burst records one
//! transaction in [`BURST_SAMPLE`] so that recording does not slow what it measures.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Transactions per recorded latency in a burst: a clock read and a histogram update cost about
/// 60 ns, 1.5 % of a transaction, when every one is recorded, and 0.1 % at one in sixteen.
pub const BURST_SAMPLE: usize = 16;

/// Latencies of one round or of several merged ones.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new(3).expect("three significant digits are valid"))
    }
}

impl Latencies {
    /// Records one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX >> 1);
        self.0.record(nanoseconds).expect("a resizing histogram records anything");
    }

    /// Adds all of `other`'s latencies.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("a resizing histogram accepts any other");
    }

    /// Returns the percentiles that every report prints.
    pub fn percentiles(&self) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Percentiles {
            samples: self.0.len(),
            mean_ns: self.0.mean() as u64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: self.0.max(),
        }
    }
}

/// Percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Latencies recorded.
    pub samples: u64,
    /// Arithmetic mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 % were at most this.
    pub p90_ns: u64,
    /// 99 % were at most this.
    pub p99_ns: u64,
    /// 99.9 % were at most this.
    pub p99_9_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A figure over the counted rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median; of an even number of rounds, the mean of the middle two.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `values`, zero when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Spread::default();
        };
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Spread { median, min, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_median_and_extremes() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::of([4.0, 1.0]).median, 2.5);
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn percentiles_are_within_three_digits() {
        let mut latencies = Latencies::default();
        for micros in 1..=1_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        let p = twice.percentiles();
        assert_eq!(p.samples, 2_000);
        for (got, want) in [(p.p50_ns, 500_000), (p.p99_ns, 990_000), (p.max_ns, 1_000_000)] {
            assert!(got.abs_diff(want) <= want / 500, "{got} {want}");
        }
    }
}
