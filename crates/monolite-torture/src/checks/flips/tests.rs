//! The check passes the engine, and notices what it must.

use std::collections::BTreeSet;

use monolite_testkit::child::Program;

use super::*;

/// What came of some cases, up to the first that was answered wrongly.
fn verdicts(pages: Pages, judge: Judge) -> Vec<Verdict> {
    let directory = tempfile::tempdir().unwrap();
    let sample = Sample::make(directory.path(), pages).unwrap();
    let path = directory.path().join("case.db");
    let mut verdicts = Vec::new();
    while verdicts.len() < 60 && !verdicts.last().is_some_and(is_wrong) {
        let seed = verdicts.len() as u64;
        verdicts.push(trial::run(&sample, seed, &path, pages, judge).unwrap());
    }
    verdicts
}

fn is_wrong(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Wrong(_))
}

#[test]
fn damage_is_detected_or_harmless() {
    let verdicts = verdicts(Pages::Checked, Judge::Fair);
    assert!(!verdicts.iter().any(is_wrong), "{:?}", verdicts.last());
    let kinds: BTreeSet<String> = verdicts.iter().map(|verdict| format!("{verdict:?}")).collect();
    assert!(kinds.len() >= 4, "only {kinds:?}");
}

/// Page 1 no longer says that there are checksums, and is damaged elsewhere, too.
#[test]
fn a_header_with_several_damaged_bits_is_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let sample = Sample::make(directory.path(), Pages::Checked).unwrap();
    let path = directory.path().join("case.db");
    for seed in [1_751_748_499_214_858_199, 7_497_383_231_363_202_779] {
        let verdict = trial::run(&sample, seed, &path, Pages::Checked, Judge::Fair).unwrap();
        assert_eq!(verdict, Verdict::Detected(When::Open), "{seed}");
    }
}

#[test]
fn wrong_answers_without_checksums_are_noticed() {
    assert!(verdicts(Pages::Unchecked, Judge::Fair).iter().any(is_wrong));
}

#[test]
fn lost_transactions_without_a_report_are_noticed() {
    assert!(verdicts(Pages::Checked, Judge::Deaf).iter().any(is_wrong));
}

#[test]
fn a_run_keeps_the_promise_and_notices_both_controls() {
    let program = Program::this().unwrap();
    let outcome = Setting::with(&CHECK, 1, &program, |setting| run(setting, 40)).unwrap();
    assert!(outcome.is_kept(), "{outcome:?}");
    assert_eq!((outcome.attempted, outcome.controls.len()), (40, 2), "{outcome:?}");
}
