//! What a counter gives.

use super::*;

#[test]
fn no_number_is_given_twice_whoever_asks() {
    let rowids = Arc::new(Rowids::new());
    let take = |rowids: Arc<Rowids>| {
        let counter = rowids.counter("t").unwrap();
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
    let counter = rowids.counter("Table").unwrap();
    assert!(!counter.has_given());
    assert_eq!(counter.take(-4, 2), Some(GivenRowids { first: -4, count: 2 }));
    assert!(counter.has_given());
    rowids.inserted("tABLE", 100);
    rowids.inserted("other", 1_000);
    assert_eq!(counter.take(7, 1).unwrap().first, 101);
    assert_eq!(counter.take(500, 1).unwrap().first, 500);
    rowids.inserted("table", 3);
    assert_eq!(rowids.counter("TABLE").unwrap().take(1, 1).unwrap().first, 501);
}

#[test]
fn no_number_is_beyond_the_largest() {
    let counter = Counter::new();
    assert_eq!(counter.take(i64::MAX - 1, 3), None);
    assert_eq!(counter.take(i64::MAX - 1, 2).unwrap().last(), i64::MAX);
    assert_eq!(counter.take(1, 1), None);
}
