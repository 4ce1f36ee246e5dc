//! What a counter gives.

use super::*;

#[test]
fn no_number_is_given_twice_whoever_asks() {
    let rowids = Arc::new(Rowids::new());
    let take = |rowids: Arc<Rowids>| {
        let counter = rowids.counter("t", false).unwrap();
        (0..1_000).map(move |at| counter.take(1, 1 + at % 3).unwrap()).collect::<Vec<_>>()
    };
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let rowids = Arc::clone(&rowids);
            std::thread::spawn(move || take(rowids))
        })
        .collect();
    let mut given: Vec<GivenRowids> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    given.sort_by_key(|given| given.first);
    assert_eq!(given[0].first, 1);
    assert!(given.windows(2).all(|pair| pair[0].last() + 1 == pair[1].first));
}

#[test]
fn a_counter_is_behind_what_is_there_and_never_goes_back() {
    let rowids = Rowids::new();
    let counter = rowids.counter("Table", false).unwrap();
    assert!(!counter.has_given());
    assert_eq!(counter.take(-4, 2), Some(GivenRowids { first: -4, count: 2 }));
    assert!(counter.has_given());
    rowids.find("tABLE").unwrap().raise(100);
    assert!(rowids.find("other").is_none());
    assert_eq!(counter.take(7, 1).unwrap().first, 101);
    assert_eq!(counter.take(500, 1).unwrap().first, 500);
    rowids.find("table").unwrap().raise(3);
    assert_eq!(rowids.counter("TABLE", false).unwrap().take(1, 1).unwrap().first, 501);
}

#[test]
fn a_counter_of_a_dropped_table_begins_anew_only_when_no_promise_is_left() {
    let rowids = Rowids::new();
    let counter = rowids.counter("t", true).unwrap();
    let next = || counter.take(1, 1).unwrap().first();
    let dropped = HashSet::from(["T".to_owned()]);
    assert_eq!(next(), 1);
    for promised in [rowids.open_transactions(), rowids.step_bytes()] {
        promised.store(1, Ordering::Relaxed);
        let before = next();
        rowids.dropped(&dropped);
        assert_eq!(next(), before + 1);
        promised.store(0, Ordering::Relaxed);
    }
    rowids.dropped(&dropped);
    assert_eq!(next(), 1);
}

#[test]
fn no_number_is_among_the_last_ones() {
    let counter = Counter::new();
    assert_eq!(counter.take(LAST, 2), None);
    assert_eq!(counter.take(LAST - 1, 2).unwrap().last(), LAST);
    assert_eq!(counter.take(1, 1), None);
}

#[test]
fn a_row_far_above_the_others_moves_no_counter() {
    let counter = Counter::new();
    assert_eq!(counter.take(1, 3).unwrap().last(), 3);
    // Of transactions that may be rolled back.
    counter.raise(i64::MAX - 2);
    counter.raise(3 + FAR + 1);
    assert_eq!(counter.take(i64::MAX - 1, 1), None);
    assert_eq!(counter.take(4 + FAR, 1), None);
    assert_eq!(counter.take(4, 1).unwrap().first, 4);
    counter.raise(3 + FAR);
    assert_eq!(counter.take(4, 1).unwrap().first, 4 + FAR);
}
