//! The engine survives every failing allocation, and the judging notices what it must.

use monolite_testkit::child::{self, Program};

use super::*;
use crate::checks::environment::CHECK;

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    child::play(&[(ROLE, play)]);
}

#[test]
fn the_engine_survives_every_failing_allocation() {
    let name = "checks::allocations::tests::plays_the_role_it_was_started_for";
    let mut outcome = CHECK.outcome();
    Setting::with(&CHECK, 1, &Program::this_test(name).unwrap(), |setting| {
        for (scenario, mode) in [("batch", MODES[1]), ("read", MODES[1])] {
            assert!(one(setting, &mut outcome, scenario, mode).unwrap() > 0, "nobody noticed");
        }
    });
    assert!(outcome.is_kept(), "{outcome:#?}");
    assert!(outcome.attempted > 30, "{outcome:#?}");
    // The last play of "batch" needs fewer allocations than the failing one. The five that do not
    // give up on purpose are one batch: acknowledged together, or none of them.
    let acknowledged = outcome.acknowledged;
    assert!(acknowledged >= 5 && acknowledged.is_multiple_of(5), "{outcome:#?}");
}

#[test]
fn an_unclear_error_is_noticed() {
    let mut seen = Seen::default();
    seen.refused(&Error::aborted("nobody knows"));
    assert_eq!(seen.complaints.len(), 1, "{:?}", seen.complaints);
}
