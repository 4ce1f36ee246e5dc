//! The pace of a run, with time as numbers.
use super::*;

fn cell(id: &str, seconds: u64) -> Planned {
    Planned { id: id.into(), estimate: Duration::from_secs(seconds) }
}

#[test]
fn rounds_are_lowered_until_the_rest_fits() {
    let (first, second) = ([cell("a/x/1", 10)], [cell("b/x/1", 10)]);
    let both = [first.clone(), second.clone()].concat();
    let start = Instant::now();
    let plan = |seconds| Pace::new(&both, Some(start + Duration::from_secs(seconds)));
    // Three counted rounds and a dropped one of both take 72 s.
    assert_eq!(plan(72).begin_group(&first, 3, start), 3);
    assert_eq!(plan(71).begin_group(&first, 3, start), 2);
    assert_eq!(plan(1).begin_group(&first, 3, start), 1);
    assert_eq!(Pace::new(&both, None).begin_group(&first, 3, start), 3);
}

#[test]
fn a_slow_machine_is_noticed_in_the_first_group() {
    let (first, second) = ([cell("a/x/1", 10)], [cell("b/x/1", 10)]);
    let both = [first.clone(), second.clone()].concat();
    let start = Instant::now();
    let mut pace = Pace::new(&both, Some(start + Duration::from_secs(100)));
    assert_eq!(pace.begin_group(&first, 3, start), 3);
    assert_eq!(pace.time_left(3), Duration::from_secs(72));
    for dropped in [true, false, false, false] {
        let took = if dropped { 12 } else { 20 };
        pace.finish_round(&first[0], dropped, Duration::from_secs(took));
    }
    let now = start + Duration::from_secs(72);
    // 28 s are left, and a counted round takes 20 now.
    assert_eq!(pace.begin_group(&second, 3, now), 1);
    assert_eq!(pace.time_left(1), Duration::from_secs(32));
}

#[test]
fn times_are_written_for_people() {
    let text = |seconds| duration(Duration::from_secs(seconds));
    assert_eq!([text(9), text(60), text(250)], ["9 s", "1 min", "4 min 10 s"]);
    assert_eq!(text(5_400), "1 h 30 min");
}
