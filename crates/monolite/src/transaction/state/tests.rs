//! What each state of a transaction lets happen.

use super::*;
use crate::transaction::pool::Parked;
use crate::transaction::steps::tests::{change, failed, query};

fn parked() -> Left {
    Left::Parked(Parked(7))
}

fn aborted() -> Error {
    Error::aborted("first")
}

fn new() -> InteractiveState {
    InteractiveState::new()
}

fn with(left: Left) -> InteractiveState {
    let mut state = new();
    state.leave(left);
    state
}

#[test]
fn what_a_statement_takes_is_gone_until_it_leaves_something() {
    let mut state = with(parked());
    assert!(matches!(state.take_left(), Left::Parked(Parked(7))));
    assert!(matches!(state.place(), Place::Pool(Left::Gone(None))));
    assert!(matches!(state.take_left(), Left::Gone(None)));
    state.leave(parked());
    assert!(matches!(state.place(), Place::Pool(Left::Parked(Parked(7)))));
}

#[test]
fn from_the_writer_nothing_leads_back_to_the_pool() {
    let mut state = with(parked());
    state.move_to_writer();
    state.leave(parked());
    assert!(matches!(state.place(), Place::Writer));
    assert!(matches!(state.take_left(), Left::Gone(None)));
}

#[test]
fn the_first_end_stays_and_gives_back_what_was_left() {
    let mut state = with(parked());
    let left = state.end(&aborted());
    assert!(matches!(left, Some(Place::Pool(Left::Parked(Parked(7))))));
    assert!(state.end(&Error::new(ErrorKind::Timeout, "second")).is_none());
    let ending = state.ending().unwrap();
    assert_eq!(ending.kind(), ErrorKind::Aborted);
    assert_eq!(ending.error().to_string(), "the transaction is over: first");
    // Nothing that comes late makes it go on.
    state.leave(parked());
    state.move_to_writer();
    assert_eq!(state.ending().map(Ending::kind), Some(ErrorKind::Aborted));
}

#[test]
fn the_error_of_an_ending_ends_it_with_the_same_words() {
    let first = Ending::from(&aborted()).error();
    assert_eq!(Ending::from(&first).error().to_string(), first.to_string());
}

#[test]
fn a_commit_ends_it_whatever_was_before() {
    let mut state = with(parked());
    assert!(matches!(state.finish(&aborted()), Place::Pool(Left::Parked(_))));
    assert!(matches!(state.finish(&Error::new(ErrorKind::Conflict, "late")), Place::Over(_)));
    assert_eq!(state.ending().map(Ending::kind), Some(ErrorKind::Conflict));
}

#[test]
fn what_is_remembered_hangs_on_what_was_done() {
    let mut state = new();
    assert_eq!(state.memory_after(&query()), Memory::Nothing, "it is read again");
    assert_eq!(state.memory_after(&change()), Memory::Nothing);
    assert_eq!(state.memory_after(&failed()), Memory::Nothing);
    state.steps.push(query());
    assert_eq!(state.memory_after(&query()), Memory::Nothing);
    assert_eq!(state.memory_after(&change()), Memory::LeadingReads);
    let mut state = new();
    state.steps.push(change());
    assert_eq!(state.memory_after(&change()), Memory::Nothing);
}

#[test]
fn snapshots_of_which_nothing_is_known_are_not_the_same() {
    assert!(!Snapshot::default().is_same_as(&Snapshot::default()));
}
