//! What the checker says of good histories, and of each kind of anomaly in their midst.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::seeded::{good, plant};
use super::{Fate, Kind, Step, Transaction, check};

#[test]
fn good_histories_are_never_accused() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let length = rng.usize(1..2_000);
        assert_eq!(check(&good(length, &mut rng)), [], "seed {seed}");
    }
}

#[test]
fn each_planted_anomaly_is_called_by_its_name() {
    for kind in Kind::ALL {
        for seed in 0..20 {
            let mut rng = Rng::with_seed(seed);
            let mut history = good(800, &mut rng);
            plant(&mut history, kind, &mut rng);
            let names: BTreeSet<Kind> = check(&history).iter().map(|it| it.kind).collect();
            assert_eq!(names.first(), Some(&kind), "seed {seed}: {:?}", check(&history));
            assert!(names.contains(&kind) && names.len() <= 2, "seed {seed}: {names:?}");
        }
    }
}

#[test]
fn several_anomalies_are_told_apart() {
    let mut rng = Rng::with_seed(1);
    let mut history = good(5_000, &mut rng);
    Kind::ALL.iter().for_each(|kind| plant(&mut history, *kind, &mut rng));
    let names: BTreeSet<Kind> = check(&history).iter().map(|it| it.kind).collect();
    assert_eq!(names, BTreeSet::from(Kind::ALL));
}

/// The last read, in time, of a list that holds at least two values.
fn a_long_read(history: &mut [Transaction]) -> &mut Vec<u64> {
    let reads = history.iter_mut().filter(|it| it.fate == Fate::Committed).flat_map(|it| {
        let begin = it.begin;
        it.steps.iter_mut().filter_map(move |step| match step {
            Step::Read { list, .. } => Some((begin, list)),
            Step::Append { .. } => None,
        })
    });
    reads.filter(|(_, list)| list.len() > 20).max_by_key(|(begin, _)| *begin).unwrap().1
}

#[test]
fn a_forged_read_is_noticed() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let history = good(600, &mut rng);
        let forge = |what: &str, forgery: &dyn Fn(&mut Vec<u64>)| {
            let mut forged = history.clone();
            forgery(a_long_read(&mut forged));
            assert!(!check(&forged).is_empty(), "seed {seed}: {what}");
        };
        forge("the oldest value is the latest", &|list| list.rotate_left(1));
        forge("two values are swapped", &|list| list.swap(3, 4));
        forge("half of it is missing", &|list| list.truncate(5));
        forge("a value comes twice", &|list| list.push(list[0]));
    }
}

#[test]
fn an_unknown_transaction_may_have_happened_or_not() {
    let append = |fate| Transaction {
        begin: 1,
        end: 2,
        fate,
        steps: vec![Step::Append { key: 1, value: 1 }],
    };
    let read = |list: &[u64]| Transaction {
        begin: 5,
        end: 6,
        fate: Fate::Committed,
        steps: vec![Step::Read { key: 1, list: list.to_vec() }],
    };
    assert_eq!(check(&[append(Fate::Unknown), read(&[])]), []);
    assert_eq!(check(&[append(Fate::Unknown), read(&[1])]), []);
    assert_eq!(check(&[append(Fate::Failed), read(&[])]), []);
    assert_eq!(check(&[append(Fate::Failed), read(&[1])])[0].kind, Kind::AbortedRead);
    assert_eq!(check(&[append(Fate::Committed), read(&[])])[0].kind, Kind::LostAppend);
}
