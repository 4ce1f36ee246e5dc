//! The shapes of steps, and what hangs on them.

use monolite_sqlite::UserSavepoint;

use super::*;
use crate::parameters::IntoParameters as _;

/// A step as if it had been done.
pub(in crate::transaction) fn step(action: Action, nature: Nature) -> Step {
    let parameters = ().into_parameters().unwrap();
    let surroundings = Surroundings::now();
    let seen = Seen { rows: 0, ended: true, digest: 0 };
    let request = Request { action, text: "".into(), parameters, read_only: None };
    Step { request, surroundings, rowids: None, seen, nature }
}

pub(in crate::transaction) fn query() -> Step {
    step(Action::Query, Nature::Query)
}

pub(in crate::transaction) fn change() -> Step {
    step(Action::Change, Nature::Change)
}

pub(in crate::transaction) fn failed() -> Step {
    step(Action::Change, Nature::Harmless)
}

type Make = fn() -> Step;

fn of(steps: &[Make]) -> Steps {
    let mut all = Steps::default();
    steps.iter().for_each(|step| all.push(step()));
    all
}

fn savepoint() -> Step {
    step(Action::Savepoint(UserSavepoint::Open, 0), Nature::Change)
}

fn returning() -> Step {
    step(Action::Query, Nature::Change)
}

fn explained() -> Step {
    step(Action::Query, Nature::Report { counts: true })
}

#[test]
fn steps_are_of_one_kind_until_one_of_another_comes() {
    let cases: [(&[Make], Shape); 10] = [
        (&[], Shape::Empty),
        (&[query, query], Shape::Queries),
        (&[change, change], Shape::Mixed),
        (&[query, change], Shape::Mixed),
        (&[change, query], Shape::Mixed),
        (&[returning], Shape::Mixed),
        (&[savepoint, change], Shape::Mixed),
        (&[failed], Shape::Mixed),
        (&[explained, query], Shape::Mixed),
        (&[change, failed, change], Shape::Mixed),
    ];
    for (at, (steps, shape)) in cases.into_iter().enumerate() {
        assert_eq!(of(steps).shape(), shape, "case {at}");
        let Some((last, before)) = steps.split_last() else { continue };
        assert_eq!(of(before).shape_with(&last()), shape, "case {at}");
    }
}

#[test]
fn only_queries_at_the_beginning_can_be_left_out() {
    assert!(of(&[query, change, query]).have_leading_reads());
    for steps in [&[change, query] as &[Make], &[failed, query], &[explained, query], &[]] {
        assert!(!of(steps).have_leading_reads());
    }
}

#[test]
fn whatever_may_have_changed_something_counts() {
    for steps in [&[query, change] as &[Make], &[returning, query], &[savepoint]] {
        assert!(of(steps).may_have_changed());
    }
    assert!(!of(&[query, failed, explained]).may_have_changed());
    assert!(of(&[query, savepoint]).have_savepoints());
    assert!(!of(&[query, change]).have_savepoints());
}

#[test]
fn only_the_number_that_makes_a_name_unique_is_left_out() {
    for (name, rest) in [("x:1", "x"), ("x:", "x:"), ("x1", "x1"), ("1", "1"), ("a:b:27", "a:b")] {
        assert_eq!(without_number(name), rest);
    }
}
