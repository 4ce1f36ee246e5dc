//! The arithmetic of the gate: what counts as passed, failed and skipped.

use std::time::Duration;

use super::{Step, Tally, names_a_failure, report};

const OK: &str = "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; \
                  finished in 0.00s";
const BAD: &str = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";

fn ended(failure: Option<&str>) -> Step {
    Step { name: "fmt", took: Duration::from_secs(1), failure: failure.map(str::to_owned) }
}

#[test]
fn closing_lines_of_all_test_binaries_are_summed() {
    let mut tally = Tally::default();
    for line in [OK, "test some::name ... ok", BAD] {
        tally.add(line);
    }
    assert_eq!(tally, Tally { passed: 8, failed: 1, skipped: 2 });
}

#[test]
fn a_test_that_says_it_was_skipped_has_not_passed() {
    let mut tally = Tally { passed: 5, failed: 0, skipped: 0 };
    tally.count_skips("power_cut: not root\n\n");
    assert_eq!(tally, Tally { passed: 4, failed: 0, skipped: 1 });
}

#[test]
fn one_failed_step_fails_the_gate() {
    let tally = Tally { passed: 1, failed: 0, skipped: 0 };
    assert!(report(&[ended(None)], tally).is_ok());
    let failed = report(&[ended(None), ended(Some("unformatted"))], tally).unwrap_err();
    assert!(failed.to_string().contains("fmt: unformatted"), "{failed}");
}

#[test]
fn a_gate_in_which_no_test_ran_fails() {
    assert!(report(&[ended(None)], Tally::default()).is_err());
}

#[test]
fn failed_tests_and_programs_that_died_are_named() {
    let died = "  process didn't exit successfully: `target/it-1234` (signal: 6, SIGABRT)";
    assert!(names_a_failure("test some::name ... FAILED") && names_a_failure(died));
    assert!(!names_a_failure("test some::name ... ok") && !names_a_failure(OK));
    assert!(!names_a_failure(BAD), "the closing line names nothing");
}
