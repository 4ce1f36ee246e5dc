//! Tests of what is told of batches, on one thread.

use std::sync::{Arc, Mutex};

use super::{BatchNumber, Progress};
use crate::error::ErrorKind;

/// What those who asked were told, in this order.
type Told = Arc<Mutex<Vec<(u64, Option<ErrorKind>)>>>;

fn ask(progress: &Progress, number: u64, told: &Told) {
    let told = Arc::clone(told);
    progress.when_durable(BatchNumber(number), move |verdict| {
        told.lock().unwrap().push((number, verdict.err().map(|error| error.kind())));
    });
}

/// As the writer leaves it that has committed so many batches, none of them durable.
fn committed(batches: u64) -> Progress {
    let progress = Progress::default();
    for _ in 0..batches {
        progress.finish_commit(progress.start_commit());
    }
    progress
}

fn take(told: &Told) -> Vec<(u64, Option<ErrorKind>)> {
    std::mem::take(&mut told.lock().unwrap())
}

#[test]
fn batches_are_numbered_in_their_order_and_exposed_before_they_are_committed() {
    let progress = Progress::default();
    assert_eq!((progress.exposed(), progress.committed()), Default::default());
    for number in 1..=3 {
        let before = BatchNumber(number - 1);
        assert_eq!(progress.start_commit(), BatchNumber(number));
        assert_eq!((progress.exposed(), progress.committed()), (before, before));
        progress.expose();
        assert_eq!((progress.exposed(), progress.committed()), (BatchNumber(number), before));
        progress.finish_commit(BatchNumber(number));
        assert_eq!(progress.committed(), BatchNumber(number));
    }
}

#[test]
fn each_is_told_once_when_its_batch_is_durable() {
    let (progress, told) = (committed(4), Told::default());
    for number in [3, 1, 2, 1] {
        ask(&progress, number, &told);
    }
    assert_eq!(take(&told), []);
    progress.finish_sync(BatchNumber(1));
    assert_eq!(take(&told), [(1, None), (1, None)]);
    progress.finish_sync(BatchNumber(1));
    assert_eq!(take(&told), []);
    progress.finish_sync(BatchNumber(4));
    assert_eq!(take(&told), [(3, None), (2, None)]);
    ask(&progress, 4, &told);
    assert_eq!(take(&told), [(4, None)], "at once");
    progress.wait_durable(BatchNumber(4)).unwrap();
}

#[test]
fn an_earlier_batch_takes_nothing_back() {
    let (progress, told) = (committed(2), Told::default());
    progress.finish_sync(BatchNumber(2));
    progress.finish_sync(BatchNumber(1));
    // For ever, were it not durable.
    progress.wait_durable(BatchNumber(2)).unwrap();
    ask(&progress, 2, &told);
    assert_eq!(take(&told), [(2, None)]);
}

#[test]
fn poison_is_told_to_all_whose_batch_is_not_durable_with_its_first_reason() {
    let (progress, told) = (committed(1), Told::default());
    progress.finish_sync(BatchNumber(1));
    ask(&progress, 2, &told);
    progress.check_poison().unwrap();
    assert!(!progress.is_poisoned());
    progress.poison("the first reason".into());
    progress.poison("the second reason".into());
    assert!(progress.is_poisoned());
    for number in 1..=3 {
        ask(&progress, number, &told);
    }
    let poisoned = Some(ErrorKind::Poisoned);
    assert_eq!(take(&told), [(2, poisoned), (1, None), (2, poisoned), (3, poisoned)]);
    progress.wait_durable(BatchNumber(1)).unwrap();
    let errors = [progress.wait_durable(BatchNumber(2)), progress.check_poison()];
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.to_string().contains("the first reason"), "{error}");
    }
}

#[test]
fn who_is_told_may_ask_again() {
    let (progress, told) = (Arc::new(committed(1)), Told::default());
    for number in 1..=2 {
        let (asked, told) = (Arc::clone(&progress), Arc::clone(&told));
        progress.when_durable(BatchNumber(number), move |_| ask(&asked, 1, &told));
    }
    // Would wait for its own lock.
    progress.finish_sync(BatchNumber(1));
    progress.poison("it is broken on purpose".into());
    assert_eq!(take(&told), [(1, None), (1, None)]);
}

#[test]
#[should_panic(expected = "a batch is durable that was committed")]
fn a_batch_that_is_durable_before_it_is_committed_is_a_defect() {
    committed(1).finish_sync(BatchNumber(2));
}
