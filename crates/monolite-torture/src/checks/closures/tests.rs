//! The check keeps its promises in small, and its controls are noticed.

use fastrand::Rng;

use super::act::Act;

#[test]
fn acts_of_every_kind_are_drawn_and_a_seed_draws_the_same_again() {
    let draw = |seed| {
        let mut rng = Rng::with_seed(seed);
        (0..500).map(|_| format!("{:?}", Act::random(&mut rng))).collect::<Vec<_>>().join(" ")
    };
    let drawn = draw(7);
    assert_eq!(drawn, draw(7));
    for word in [
        "WriteOnce",
        "TryWrite",
        "ReadDurable",
        "Transact",
        "Statement",
        "Join",
        "GiveUp",
        "Forget",
        "BadWaker",
        "SleepBetweenRows",
        "Endless",
        "Panic",
        "Fail",
        "Close",
        "Stay",
        "at_drop: Do",
        "at_drop: Panic",
        "at_drop: Sleep",
        "is_elsewhere: true",
    ] {
        assert!(drawn.contains(word), "{word}");
    }
}
