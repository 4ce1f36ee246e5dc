//! The arithmetic of the gate: what counts as passed, failed and skipped.

use anyhow::bail;

use super::{Run, Tally};

const OK: &str = "test result: ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; \
                  finished in 0.00s";
const BAD: &str = "test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";

#[test]
fn closing_lines_of_all_test_binaries_are_summed() {
    let mut tally = Tally::default();
    for line in [OK, "test some::name ... ok", BAD] {
        tally.add(line);
    }
    assert_eq!(tally, Tally { passed: 8, failed: 1, skipped: 0, left: 2 });
}

#[test]
fn a_test_that_says_it_was_skipped_has_not_passed() {
    let mut tally = Tally { passed: 5, ..Tally::default() };
    tally.count_skips("power_cut: not root\n\n");
    assert_eq!(tally, Tally { passed: 4, skipped: 1, ..Tally::default() });
}

#[test]
fn one_failed_step_fails_the_run_and_stops_none() {
    let mut run = Run::new(None);
    run.step("tidy", |_| Ok(()));
    assert!(run.report().is_ok());
    run.step("fmt", |_| bail!("unformatted"));
    run.step("test", |tested| {
        tested.tally.passed += 1;
        Ok(())
    });
    let failed = run.report().unwrap_err().to_string();
    assert!(failed.contains("fmt: unformatted"), "{failed}");
    assert_eq!((run.steps.len(), run.tested.tally.passed), (3, 1));
}

#[test]
fn tests_of_which_none_ran_fail() {
    assert!(Tally::default().check_that_some_passed().is_err());
    assert!(Tally { passed: 1, ..Tally::default() }.check_that_some_passed().is_ok());
}
