//! Owns the limit of a single test. libtest tells which tests have run for a minute; one that has
//! not ended some minutes later hangs, and is named.

use std::time::{Duration, Instant};

/// When libtest tells of a test that has not ended.
const TOLD_AFTER: Duration = Duration::from_secs(60);

/// A test that takes longer hangs: the longest takes a quarter of a minute, and a busy machine some
/// times that.
pub(super) const LIMIT: Duration = Duration::from_secs(5 * 60);

/// The tests that take over a minute.
#[derive(Debug, Default)]
pub(super) struct SlowTests {
    /// With the moment when libtest told of each.
    running: Vec<(String, Instant)>,
    ended: Vec<(String, Duration)>,
}

impl SlowTests {
    /// Adds one line of the output of `cargo test`, which came `now`.
    pub(super) fn add(&mut self, line: &str, now: Instant) {
        if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") {
            // What the program before this one did not end ended with it.
            self.running.clear();
        }
        let Some(test) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = test.split_once(" has been running for over ") {
            self.running.push((name.to_owned(), now));
        } else if let Some((name, _)) = test.rsplit_once(" ... ")
            && let Some(at) = self.running.iter().position(|(running, _)| running == name)
        {
            let (name, told) = self.running.swap_remove(at);
            self.ended.push((name, now - told + TOLD_AFTER));
        }
    }

    /// The tests that should have ended by `now`.
    pub(super) fn hanging(&self, now: Instant) -> Vec<&str> {
        let is_late = |told: &Instant| now - *told + TOLD_AFTER > LIMIT;
        let late = self.running.iter().filter(|(_, told)| is_late(told));
        late.map(|(name, _)| name.as_str()).collect()
    }

    /// Those that have ended, the slowest first.
    pub(super) fn slowest(&self) -> Vec<(&str, Duration)> {
        let mut all: Vec<_> =
            self.ended.iter().map(|(name, took)| (name.as_str(), *took)).collect();
        all.sort_by_key(|(_, took)| std::cmp::Reverse(*took));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "test a::slow has been running for over 60 seconds";

    #[test]
    fn a_test_hangs_that_was_told_of_and_has_not_ended() {
        let (mut tests, start) = (SlowTests::default(), Instant::now());
        tests.add("test a::quick ... ok", start);
        tests.add(TOLD, start);
        let at_limit = start + LIMIT - TOLD_AFTER;
        assert!(tests.hanging(at_limit).is_empty());
        assert_eq!(tests.hanging(at_limit + Duration::from_secs(1)), ["a::slow"]);
    }

    #[test]
    fn a_test_that_ended_does_not_hang_and_is_among_the_slowest() {
        let (mut tests, start) = (SlowTests::default(), Instant::now());
        tests.add(TOLD, start);
        tests.add("test b::slower has been running for over 60 seconds", start);
        tests.add("test a::slow ... ok", start + Duration::from_secs(1));
        tests.add("test b::slower ... FAILED", start + Duration::from_secs(2));
        assert!(tests.hanging(start + 2 * LIMIT).is_empty());
        let slowest =
            [("b::slower", Duration::from_secs(62)), ("a::slow", Duration::from_secs(61))];
        assert_eq!(tests.slowest(), slowest);
    }

    #[test]
    fn what_a_program_that_died_did_not_end_does_not_hang() {
        let (mut tests, start) = (SlowTests::default(), Instant::now());
        tests.add(TOLD, start);
        tests.add("     Running tests/it/main.rs (target/debug/deps/it-0)", start);
        assert!(tests.hanging(start + 2 * LIMIT).is_empty());
    }
}
