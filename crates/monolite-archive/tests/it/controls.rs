//! Rules left out on purpose: the checkers of the simulation notice each.

use std::io::Write as _;

use crate::schedules::{number, schedule};
use crate::world::Control;

/// In how many schedules a rule that is left out must be noticed at least once.
const SCHEDULES: u64 = 1000;

/// With `MONOLITE_SCHEDULES` it runs that many and says in how many the control was noticed.
fn is_noticed(control: Control) {
    let found = (0..SCHEDULES).find_map(|seed| schedule(seed, Some(control)).err());
    let found = found.unwrap_or_else(|| panic!("{control:?} is not noticed"));
    let is_about_history = ["loss", "fork", "partial"].iter().any(|word| found.starts_with(word));
    assert!(is_about_history, "{control:?}: {found}");
    if let Some(count) = number("MONOLITE_SCHEDULES") {
        let noticed = (0..count).filter(|seed| schedule(*seed, Some(control)).is_err()).count();
        let line = format!("{control:?}: {noticed} of {count}; {found}\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn unconditional_put_is_noticed() {
    is_noticed(Control::UnconditionalPut);
}

#[test]
fn lease_only_is_noticed() {
    is_noticed(Control::LeaseOnly);
}

#[test]
fn restore_before_the_fence_is_noticed() {
    is_noticed(Control::RestoreBeforeFence);
}

#[test]
fn refused_taken_for_success_is_noticed() {
    is_noticed(Control::RefusedIsSuccess);
}

#[test]
fn deleted_fences_is_noticed() {
    is_noticed(Control::FencesDeleted);
}

#[test]
fn deletion_without_a_renewal_is_noticed() {
    is_noticed(Control::DeletionWithoutRenewal);
}

#[test]
fn two_in_flight_is_noticed() {
    is_noticed(Control::TwoInFlight);
}
