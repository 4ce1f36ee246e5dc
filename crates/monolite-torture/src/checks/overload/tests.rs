//! The judging notices each broken promise.

use super::*;

fn good() -> Figures {
    Figures {
        peak: 10_000.0,
        goodput: 9_500.0,
        share: 0.95,
        slowest: 9_000.0,
        offered: 100_000.0,
        least_times: 10.0,
        refused: 1,
        p99_ns: 300_000_000,
        high_water_bytes: LIMIT / 2,
        ..Figures::default()
    }
}

#[test]
fn each_broken_promise_is_noticed() {
    assert!(judge(&good()).is_empty(), "{:?}", judge(&good()));
    type Break = fn(&mut Figures);
    let breaks: [(Break, &str); 9] = [
        (|it| it.share = 0.79, "79 % of the peak"),
        (|it| it.high_water_bytes = LIMIT + 1, "of memory were held"),
        (|it| it.anonymous_bytes = LIMIT + 1, "of memory were held"),
        (|it| it.p99_ns = 700_000_000, "99th percentile"),
        (|it| it.refused = 0, "no overload"),
        (|it| it.offer_ns = 100_001, "half of the offers took"),
        (|it| it.wrong = 1, "wrong answer"),
        (|it| it.lost = 1, "1 acknowledged transactions were lost"),
        (|it| it.partial = 1, "1 found in part"),
    ];
    for (breaks, says) in breaks {
        let mut figures = good();
        breaks(&mut figures);
        let found = judge(&figures);
        assert!(found.len() == 1 && found[0].contains(says), "{says}: {found:?}");
    }
}

#[test]
fn a_load_that_could_not_be_offered_says_nothing_of_speed_and_the_rest_is_judged() {
    let starved = || Figures {
        least_times: 8.9,
        goodput: 100.0,
        share: 0.01,
        slowest: 100.0,
        refused: 0,
        p99_ns: u64::MAX,
        ..good()
    };
    assert!(!was_asked(&starved()) && was_asked(&good()));
    assert!(judge(&starved()).is_empty(), "{:?}", judge(&starved()));
    assert_eq!(judge(&Figures { least_times: 9.0, ..starved() }).len(), 3);
    type Break = fn(&mut Figures);
    let breaks: [Break; 5] = [
        |it| it.offer_ns = 1_000_000,
        |it| it.high_water_bytes = LIMIT + 1,
        |it| it.wrong = 1,
        |it| it.lost = 1,
        |it| it.partial = 1,
    ];
    for breaks in breaks {
        let mut figures = starved();
        breaks(&mut figures);
        assert_eq!(judge(&figures).len(), 1, "{figures:?}");
    }
}
