//! Divides a budget among suites.
//!
//! # Algorithm
//! 1. Every suite begins at the deepest of its depths.
//! 2. While all of them together do not fit with one round each, the one that takes longest is run
//!    less deep, as long as there is one.
//! 3. Each gets what it needs for one round, and a part of the rest in proportion to what it needs
//!    for all rounds beyond that, but no more than that.

use crate::suites::Depth;
use std::time::Duration;

/// Time that a suite needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Need {
    /// With one round.
    pub least: Duration,
    /// With all rounds.
    pub all: Duration,
}

/// What a suite needs at each depth.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The suite.
    pub name: &'static str,
    /// The deepest first; one at least.
    pub of: Vec<(Depth, Need)>,
}

/// What a suite gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// The suite.
    pub name: &'static str,
    /// How deep it is run.
    pub depth: Depth,
    /// Time after which it leaves out rounds.
    pub budget: Duration,
    /// Time that it takes, about.
    pub expected: Duration,
}

/// Returns the time that all of them need at their shallowest depth, with one round.
pub fn least(needs: &[Needs]) -> Duration {
    needs.iter().filter_map(|needs| needs.of.last()).map(|(_, need)| need.least).sum()
}

/// Divides `budget`. Where not even the least fits, everybody gets that.
pub fn divide(needs: &[Needs], budget: Duration) -> Vec<Share> {
    let mut levels = vec![0; needs.len()];
    let need = |levels: &[usize], suite: usize| needs[suite].of[levels[suite]].1;
    let sum = |levels: &[usize]| -> Duration {
        (0..needs.len()).map(|suite| need(levels, suite).least).sum()
    };
    while sum(&levels) > budget {
        let can = (0..needs.len()).filter(|suite| levels[*suite] + 1 < needs[*suite].of.len());
        let Some(longest) = can.max_by_key(|suite| need(&levels, *suite).least) else { break };
        levels[longest] += 1;
    }
    let spare = budget.saturating_sub(sum(&levels));
    let beyond = |suite: usize| {
        let need = need(&levels, suite);
        need.all.saturating_sub(need.least)
    };
    let wanted: Duration = (0..needs.len()).map(beyond).sum();
    let part = if wanted.is_zero() { 0.0 } else { spare.as_secs_f64() / wanted.as_secs_f64() };
    (0..needs.len())
        .map(|suite| {
            let time = need(&levels, suite).least + beyond(suite).mul_f64(part.min(1.0));
            Share {
                name: needs[suite].name,
                depth: needs[suite].of[levels[suite]].0,
                // What nobody needs helps where the estimates were too low.
                budget: time.mul_f64(slack(budget, spare, wanted)),
                expected: time,
            }
        })
        .collect()
}

/// By how much shares may be exceeded, since not all of the budget is needed.
fn slack(budget: Duration, spare: Duration, wanted: Duration) -> f64 {
    let unused = spare.saturating_sub(wanted);
    let used = budget.saturating_sub(unused);
    if used.is_zero() { 1.0 } else { budget.as_secs_f64() / used.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn need(least: u64, all: u64) -> Need {
        Need { least: Duration::from_secs(least), all: Duration::from_secs(all) }
    }

    fn needs(name: &'static str, of: [Need; 3]) -> Needs {
        let depths = [Depth::Full, Depth::Standard, Depth::Quick];
        Needs { name, of: depths.into_iter().zip(of).collect() }
    }

    fn two() -> [Needs; 2] {
        [
            needs("long", [need(100, 200), need(40, 80), need(10, 10)]),
            needs("short", [need(50, 150), need(20, 60), need(5, 5)]),
        ]
    }

    #[test]
    fn what_fits_is_run_whole() {
        let shares = divide(&two(), Duration::from_secs(700));
        assert!(shares.iter().all(|share| share.depth == Depth::Full));
        let expected: Vec<u64> = shares.iter().map(|share| share.expected.as_secs()).collect();
        assert_eq!(expected, [200, 150]);
        // The rest of the budget is there for those that take longer than thought.
        assert_eq!(shares[0].budget, Duration::from_secs(400));
    }

    #[test]
    fn rounds_are_left_out_in_proportion_before_any_suite_is_run_less_deep() {
        let shares = divide(&two(), Duration::from_secs(250));
        assert!(shares.iter().all(|share| share.depth == Depth::Full));
        let expected: Vec<u64> = shares.iter().map(|share| share.expected.as_secs()).collect();
        assert_eq!(expected, [150, 100]);
        assert_eq!(shares[0].budget, shares[0].expected);
    }

    #[test]
    fn the_longest_suite_is_run_less_deep_first() {
        let shares = divide(&two(), Duration::from_secs(100));
        let depths: Vec<Depth> = shares.iter().map(|share| share.depth).collect();
        assert_eq!(depths, [Depth::Standard, Depth::Full]);
        let total: Duration = shares.iter().map(|share| share.expected).sum();
        assert!(total <= Duration::from_secs(100), "{total:?}");
    }

    #[test]
    fn where_nothing_fits_everybody_gets_the_least() {
        let shares = divide(&two(), Duration::from_secs(3));
        assert!(shares.iter().all(|share| share.depth == Depth::Quick));
        assert_eq!(shares[0].expected, Duration::from_secs(10));
        assert_eq!(least(&two()), Duration::from_secs(15));
        assert!(divide(&[], Duration::from_secs(3)).is_empty());
    }
}
