//! For whom a write waits while followers come, lag and go.

use super::*;

const ONE: ReplicaId = ReplicaId::from_bits(1);
const TWO: ReplicaId = ReplicaId::from_bits(2);

fn at(offset: u64) -> WalPosition {
    WalPosition { generation: 3, offset }
}

/// What a turn finds while the record lists these.
fn turn(replicas: &Replicas, listed: &[ReplicaId]) -> (Option<Vec<ReplicaId>>, Had) {
    let mut state = replicas.state();
    let wanted = state.wanted(listed, true);
    (wanted, state.had())
}

#[test]
fn nothing_is_acknowledged_before_the_record_lists_those_who_have_it() {
    let replicas = Replicas::default();
    let one = replicas.connected(ONE, at(1));
    assert_eq!(turn(&replicas, &[]), (None, None), "no write has asked");
    assert_eq!(replicas.listed(), 1, "it would be listed");
    replicas.ask();
    assert_eq!(replicas.listed(), 0, "it is not yet");
    assert_eq!(turn(&replicas, &[]), (Some(vec![ONE]), None));
    assert_eq!(one.has(at(5)), None);
    assert_eq!(turn(&replicas, &[ONE]), (None, Some((at(5), 1))));
    assert_eq!(one.has(at(6)), Some((at(6), 1)));
}

#[test]
fn one_who_comes_is_waited_for_at_once_and_listed_once_it_has_all() {
    let replicas = Replicas::default();
    replicas.ask();
    let one = replicas.connected(ONE, at(9));
    assert_eq!(turn(&replicas, &[ONE]), (None, Some((at(9), 1))));
    let two = replicas.connected(TWO, at(4));
    assert_eq!(one.has(at(10)), None, "the new one lacks it");
    assert_eq!(turn(&replicas, &[ONE]), (None, None), "it has not all that was acknowledged");
    assert_eq!(two.has(at(9)), Some((at(9), 1)));
    assert_eq!(turn(&replicas, &[ONE]), (Some(vec![ONE, TWO]), Some((at(9), 1))));
    assert_eq!(turn(&replicas, &[ONE, TWO]), (None, Some((at(9), 2))));
}

#[test]
fn one_who_is_gone_is_waited_for_until_the_record_does_not_list_it() {
    let replicas = Replicas::default();
    replicas.ask();
    let one = replicas.connected(ONE, at(1));
    let two = replicas.connected(TWO, at(1));
    assert_eq!(turn(&replicas, &[ONE, TWO]), (None, Some((at(1), 2))));
    drop(two);
    assert_eq!(one.has(at(2)), None);
    assert_eq!(turn(&replicas, &[ONE, TWO]), (Some(vec![ONE]), None));
    assert_eq!(one.has(at(3)), None, "the record may still list both");
    assert_eq!(turn(&replicas, &[ONE]), (None, Some((at(3), 1))));
    drop(one);
    assert_eq!(turn(&replicas, &[ONE]), (None, None), "the last one stays");
    // It comes again, and another connection of it ends late.
    let again = replicas.connected(ONE, at(3));
    let late = Connection { replicas: &replicas, replica: 1, number: 1 };
    assert!(again.is_current() && !late.is_current());
    drop(late);
    assert_eq!(again.has(at(4)), Some((at(4), 1)));
}

#[test]
fn one_who_says_nothing_of_what_it_was_sent_is_not_current() {
    let replicas = Replicas::default();
    let one = replicas.connected(ONE, at(1));
    let owes_since = |age| one.said(|said| said.owes = Some((at(5), Instant::now() - age)));
    one.sent(at(5));
    assert!(one.is_current());
    owes_since(PATIENCE);
    assert!(!one.is_current());
    let _ = one.has(at(4));
    assert!(one.is_current(), "it goes on");
    owes_since(PATIENCE);
    let _ = one.has(at(5));
    assert!(one.is_current(), "it has all");
}

#[test]
fn none_is_listed_where_no_write_asks_and_all_of_before_is_archived() {
    let replicas = Replicas::default();
    let mut state = replicas.state();
    assert_eq!(state.wanted(&[ONE], false), None);
    assert_eq!(state.wanted(&[ONE], true), Some(Vec::new()));
    assert_eq!(state.wanted(&[], true), None);
}
