//! That windows, quantiles and bounds are what they say.

use std::time::Duration;

use super::{Histogram, Numbers, Times};
use crate::stats::Recorded as _;

fn times(millis: &[u64]) -> Histogram {
    let times = Times::default();
    millis.iter().for_each(|it| times.record_time(Duration::from_millis(*it)));
    times.show()
}

/// A percentile since the opening still said 0.1 ms after minutes in which each sync took 120 ms,
/// and 120 ms long after it.
#[test]
fn a_slow_minute_after_a_fast_day_is_seen_and_forgotten() {
    let times = Times::default();
    let record = |count, micros| {
        for _ in 0..count {
            times.record_time(Duration::from_micros(micros));
        }
        times.show()
    };
    let fast = record(100_000, 100);
    let slow = record(150, 120_000);
    let again = record(10_000, 100);
    assert!(slow.quantile(0.99) < 0.001, "of all time: {}", slow.quantile(0.99));
    assert!(slow.since(&fast).quantile(0.99) > 0.1);
    assert!(again.since(&slow).quantile(0.99) <= 0.0001);
    assert_eq!(again.since(&slow).count(), 10_000);
    assert!((again.since(&fast).sum() - (150.0 * 0.12 + 1.0)).abs() < 1e-9);
}

#[test]
fn a_quantile_is_never_on_the_other_side_of_a_bound_and_within_a_factor_of_two() {
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..200 {
        let mut drawn = || 1 + (rng.u64(500..1_000) << rng.u32(0..26));
        let mut nanos: Vec<u64> = (0..100).map(|_| drawn()).collect();
        let times = Times::default();
        nanos.iter().for_each(|it| times.record(*it));
        nanos.sort();
        for percent in [1, 50, 90, 99, 100] {
            let exact = nanos[percent - 1] as f64 / 1e9;
            let found = times.show().quantile(percent as f64 / 100.0);
            for (bound, _) in times.show().buckets() {
                assert_eq!(exact <= bound, found <= bound + 1e-12, "{percent} {exact} {found}");
            }
            let is_near = found <= 2.0 * exact && 2.0 * found >= exact;
            assert!(is_near || exact < 1e-6, "{percent}: {found} is not {exact}");
        }
    }
}

#[test]
fn what_is_at_a_bound_is_not_above_it() {
    let count_to = |histogram: &Histogram, at: f64| {
        histogram.buckets().find(|(bound, _)| *bound == at).map(|(_, count)| count)
    };
    let histogram = times(&[0, 99, 100, 101, 100_000, 100_001]);
    assert_eq!(count_to(&histogram, 0.1), Some(3));
    assert_eq!(count_to(&histogram, 100.0), Some(5));
    assert_eq!((histogram.count(), histogram.quantile(1.0)), (6, 100.0));
    let sizes = Numbers::default();
    [1, 2, 10_000].iter().for_each(|size| sizes.record(*size));
    assert_eq!(count_to(&sizes.show(), 1.0), Some(1));
    assert_eq!(count_to(&sizes.show(), 10_000.0), Some(3));
    assert_eq!(sizes.show().sum(), 10_003.0);
}

#[test]
fn nothing_measured_is_zero() {
    assert_eq!(times(&[]).quantile(0.99), 0.0);
    assert_eq!(times(&[7]).since(&times(&[7])).quantile(0.5), 0.0);
}
