//! Known-bad histories, made from a good one by hand, and what the checker says of them.

use fastrand::Rng;

use super::{Contents, Op, Record, State, check};

/// Half writes, half reads, one in six failed, run one after another in the model.
fn good(seed: u64, length: usize) -> (Vec<Record>, Contents) {
    let mut rng = Rng::with_seed(seed);
    let mut state = State::default();
    let mut history = Vec::new();
    for id in 1..=length as i64 {
        let floor = (state.last_number() - rng.i64(0..3)).max(0);
        if rng.u8(..6) == 0 {
            history.push(Record::Failed { id });
        } else if rng.bool() {
            let ops: Vec<Op> = (0..rng.u8(1..5)).map(|_| Op::random(&mut rng)).collect();
            let saw = state.run(id, &ops);
            history.push(Record::Wrote { id, number: state.last_number(), floor, ops, saw });
        } else {
            let ops: Vec<Op> = (0..3).map(|_| Op::random_read(&mut rng)).collect();
            let saw = state.look(&ops);
            history.push(Record::Read { number: state.last_number(), floor, ops, saw });
        }
    }
    rng.shuffle(&mut history);
    (history, state.contents())
}

fn for_each_seed(claim: impl Fn(Vec<Record>, Contents)) {
    for seed in 0..20 {
        let (history, end) = good(seed, 300);
        claim(history, end);
    }
}

#[test]
fn a_good_history_is_not_accused() {
    for_each_seed(|history, end| check(&history, &end).unwrap());
}

#[test]
fn an_acknowledged_transaction_that_the_database_lost_is_noticed() {
    for_each_seed(|history, _| {
        let mut writes: Vec<&Record> = history.iter().filter(|it| it.is_write()).collect();
        writes.sort_by_key(|it| it.place());
        for lost in [0, writes.len() / 2, writes.len() - 1] {
            let mut left = State::default();
            for (at, record) in writes.iter().enumerate().filter(|(at, _)| *at != lost) {
                let Record::Wrote { id, ops, .. } = record else { panic!("{at}") };
                left.run(*id, ops);
            }
            let error = check(&history, &left.contents()).unwrap_err();
            assert!(error.contains("FROM done"), "{error}");
        }
    });
}

#[test]
fn what_a_failed_transaction_left_behind_is_noticed() {
    for_each_seed(|history, end| {
        for at in 1..end.tables.len() {
            let mut holds = end.clone();
            match holds.tables[at].last_mut() {
                Some(value) => *value += 1,
                None => holds.tables[at].push(1),
            }
            assert!(check(&history, &holds).is_err(), "{}", Contents::QUERIES[at]);
        }
    });
}

#[test]
fn a_value_that_nobody_could_have_seen_is_noticed() {
    for_each_seed(|history, end| {
        for at in 0..history.len() {
            let mut forged = history.clone();
            let (Record::Wrote { saw, .. } | Record::Read { saw, .. }) = &mut forged[at] else {
                continue;
            };
            let Some(value) = saw.last_mut() else { continue };
            *value += 1;
            assert!(check(&forged, &end).is_err(), "{:?}", forged[at]);
        }
    });
}

#[test]
fn a_read_or_a_write_that_is_ordered_before_what_was_acknowledged_is_noticed() {
    let is_read = |record: &Record| matches!(record, Record::Read { .. });
    let is_write = |record: &Record| matches!(record, Record::Wrote { .. });
    for is_it in [is_read as fn(&Record) -> bool, is_write] {
        for_each_seed(|mut history, end| {
            let late = history.iter_mut().find(|record| is_it(record)).unwrap();
            if let Record::Read { number, floor, .. } | Record::Wrote { number, floor, .. } = late {
                *floor = *number + 1;
            }
            assert!(check(&history, &end).unwrap_err().contains("acknowledged before"));
        });
    }
}

#[test]
fn two_transactions_with_one_number_are_noticed() {
    for_each_seed(|mut history, end| {
        let again = history.iter().find(|it| it.is_write()).cloned().unwrap();
        history.push(again);
        assert!(check(&history, &end).unwrap_err().contains("was expected"));
    });
}

#[test]
fn an_untold_transaction_counts_where_it_was_found() {
    for_each_seed(|mut history, end| {
        for record in &mut history {
            if let Record::Wrote { id, number, floor, ops, .. } = record.clone() {
                *record = Record::Untold { id, number: Some(number), floor, ops };
            }
        }
        check(&history, &end).unwrap();
        for record in &mut history {
            if let Record::Untold { number, .. } = record {
                *number = None;
                break;
            }
        }
        assert!(check(&history, &end).is_err(), "the database holds more than was replayed");
    });
}
