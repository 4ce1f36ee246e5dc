//! What marks say of the age of files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use monolite_ltx::Txid;

use super::{PART_OF_AGE, Seeing, Seen};

fn txid(number: u64) -> Txid {
    Txid::new(number).unwrap()
}

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn a_file_is_as_old_as_the_first_mark_behind_it() {
    let mut seeing = Seeing::begin(Seen::default(), seconds(1_000));
    assert_eq!(seeing.older_than(Duration::ZERO, seconds(9_000)), None, "nothing was noted");
    for (number, at) in [(10, 1_000), (20, 1_060), (30, 1_120)] {
        seeing.note(txid(number), seconds(at));
    }
    let old = |age| seeing.older_than(seconds(age), seconds(1_130)).map(Txid::get);
    assert_eq!(
        [131, 130, 71, 70, 11, 10].map(old),
        [None, Some(10), Some(10), Some(20), Some(20), Some(30)]
    );
}

#[test]
fn the_next_primary_goes_on_where_the_record_ends_whatever_its_clock_says() {
    let mut first = Seeing::begin(Seen::default(), seconds(50_000));
    first.note(txid(10), seconds(50_000));
    first.note(txid(20), seconds(50_100));
    for clock in [0, 7, 90_000] {
        let second = Seeing::begin(first.seen().clone(), seconds(clock));
        assert_eq!(second.at(seconds(clock)), seconds(100));
        let old = |age, later| second.older_than(seconds(age), seconds(clock + later));
        assert_eq!(old(101, 0), None);
        assert_eq!(old(101, 1), Some(txid(10)));
        assert_eq!(old(101, 101), Some(txid(20)));
    }
}

#[test]
fn years_of_marks_are_few_and_say_no_file_is_older_than_it_is() {
    let mut seeing = Seeing::begin(Seen::default(), Duration::ZERO);
    let (half_minute, mut most) = (30, 0);
    let mut number = 1;
    // Three years: an hour of marks, and then nothing for some days.
    while number * half_minute < 3 * 365 * 86_400 {
        number += if number % 120 == 0 { 3 * 2_880 } else { 1 };
        seeing.note(txid(number), seconds(number * half_minute));
        most = most.max(seeing.seen().0.len());
    }
    assert!(most < 300, "{most} marks");
    let now = number * half_minute;
    for age in [60, 3_600, 86_400, 30 * 86_400, 700 * 86_400] {
        let old = seeing.older_than(seconds(age), seconds(now)).unwrap().get() * half_minute;
        assert!(old <= now - age, "it is said to be older than {age} s");
        let longest = age + age / (PART_OF_AGE - 1) + 4 * 86_400;
        assert!(now - old <= longest, "{} s instead of {age}", now - old);
    }
    assert!(seeing.seen().is_in_order());
}

#[test]
fn marks_that_go_back_are_not_noted() {
    let mut seeing = Seeing::begin(Seen::default(), seconds(10));
    seeing.note(txid(5), seconds(20));
    seeing.note(txid(4), seconds(30));
    seeing.note(txid(6), seconds(15));
    assert_eq!(seeing.seen().0.len(), 1);
    assert_eq!(seeing.at(seconds(5)), Duration::ZERO, "the clock was before its beginning");
}
