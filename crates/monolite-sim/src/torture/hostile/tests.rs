//! A sample of the cases is refused, and every control is noticed.

use super::*;
use crate::child;

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    child::play(&[(ROLE, play)]);
}

fn program() -> Program {
    Program::this_test("torture::hostile::tests::plays_the_role_it_was_started_for").unwrap()
}

#[test]
fn there_are_enough_cases_and_each_has_a_name() {
    let cases = cases::all();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 300, "{}", cases.len());
}

#[test]
fn a_sample_of_the_cases_does_not_escape() {
    let count = cases::all().len();
    for (offset, (_, way)) in Way::ALL.into_iter().enumerate() {
        let numbers: Vec<_> = (offset..count).step_by(37).collect();
        let mut tried = 0;
        let mut done = |count| {
            tried += count;
            false
        };
        let escapes = attempt(&program(), Guard::Profile, way, &numbers, &mut done).unwrap();
        let told: Vec<_> = escapes.iter().map(|it| (it.case, &it.what)).collect();
        assert!(told.is_empty(), "{way:?}: {told:?}");
        assert_eq!(tried, numbers.len() as u64);
    }
}

#[test]
fn what_escapes_is_noticed() {
    let mut outcome = Outcome::default();
    controls(&program(), &mut outcome).unwrap();
    assert!(outcome.controls.iter().all(|it| it.detected), "{:#?}", outcome.controls);
}
