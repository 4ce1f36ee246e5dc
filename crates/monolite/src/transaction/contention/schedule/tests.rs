//! Turns, step by step, on a clock that stands where it is put.

use std::collections::VecDeque;

use super::*;

const ROW: Spot = Spot::Statement(7);
const FAMILY: Spot = Spot::Family(1);

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn visitor(number: u64) -> Visitor {
    Visitor { since: ms(number), number }
}

/// One at which a conflict was met by an attempt that took so long.
fn known(spot: Spot, took: Duration) -> Schedule {
    let mut schedule = Schedule::default();
    schedule.note_conflict(ms(0), spot, took);
    schedule
}

fn ask(schedule: &mut Schedule, now: u64, spot: Spot, number: u64) -> Answer {
    schedule.ask(ms(now), spot, visitor(number), Manner::Beside)
}

/// Who is told, first those that got their turn.
type Told = (Vec<u64>, Vec<u64>);

fn told(changes: &Changes) -> Told {
    let numbers = |all: &[(Spot, Visitor)]| all.iter().map(|(_, it)| it.number).collect();
    (numbers(&changes.granted), numbers(&changes.heads))
}

fn leave(schedule: &mut Schedule, now: u64, spot: Spot, number: u64, end: End) -> Told {
    let mut changes = Changes::default();
    schedule.leave(ms(now), spot, visitor(number), end, &mut changes);
    told(&changes)
}

fn answers(schedule: &mut Schedule, now: u64, number: u64, answer: u128) -> Told {
    let mut changes = Changes::default();
    schedule.note_answer(ms(now), ROW, visitor(number), answer, &mut changes);
    told(&changes)
}

#[test]
fn nobody_waits_where_nobody_has_collided() {
    let mut schedule = known(ROW, ms(5));
    assert_eq!(ask(&mut schedule, 0, Spot::Statement(8), 1), Answer::Free);
    assert_eq!(ask(&mut schedule, 0, FAMILY, 1), Answer::Free);
}

#[test]
fn turns_go_to_the_oldest_first() {
    let mut schedule = known(ROW, ms(5));
    assert_eq!(ask(&mut schedule, 0, ROW, 5), Answer::Turn);
    assert_eq!(ask(&mut schedule, 0, ROW, 9), Answer::Waits);
    assert_eq!(ask(&mut schedule, 0, ROW, 3), Answer::Waits);
    assert_eq!(leave(&mut schedule, 1, ROW, 5, End::Committed), (vec![3], vec![9]));
    assert_eq!(leave(&mut schedule, 2, ROW, 3, End::Other), (vec![9], vec![]));
}

#[test]
fn who_gives_up_its_place_is_not_waited_for() {
    let mut schedule = known(ROW, ms(5));
    (1..=3).for_each(|number| {
        ask(&mut schedule, 0, ROW, number);
    });
    assert_eq!(leave(&mut schedule, 1, ROW, 2, End::Other), (vec![], vec![3]));
    assert_eq!(leave(&mut schedule, 1, ROW, 1, End::Other), (vec![3], vec![]));
}

#[test]
fn a_turn_is_taken_away_after_twice_the_usual_time() {
    for (usual, limit) in [(5, 100), (80, 160), (60_000, 5_000)] {
        let mut schedule = known(ROW, ms(usual));
        ask(&mut schedule, 0, ROW, 1);
        ask(&mut schedule, 0, ROW, 2);
        ask(&mut schedule, 0, ROW, 3);
        assert_eq!(schedule.next_look(ms(1), ROW, visitor(2)), Some(ms(limit - 1)));
        assert_eq!(schedule.next_look(ms(1), ROW, visitor(3)), None);
        let mut changes = Changes::default();
        assert_eq!(schedule.look(ms(limit - 1), ROW, &mut changes), 0);
        assert_eq!(schedule.look(ms(limit), ROW, &mut changes), 1);
        assert_eq!(told(&changes), (vec![2], vec![3]));
        // What is taken away cannot be given back.
        let late = leave(&mut schedule, limit + 1, ROW, 1, End::Committed);
        assert_eq!(late, Told::default());
    }
}

#[test]
fn answers_that_stay_the_same_open_the_way() {
    let mut schedule = known(ROW, ms(5));
    (1..=100).for_each(|number| {
        ask(&mut schedule, 0, ROW, number);
    });
    assert_eq!(answers(&mut schedule, 1, 1, 42), Told::default());
    leave(&mut schedule, 1, ROW, 1, End::Committed);
    let mut under_way = vec![2];
    let mut rounds = 0;
    while schedule.is_known(ROW) {
        rounds += 1;
        let mut next = Vec::new();
        for number in under_way {
            next.extend(answers(&mut schedule, 2, number, 42).0);
            next.extend(leave(&mut schedule, 2, ROW, number, End::Committed).0);
        }
        under_way = next;
    }
    assert!(rounds < 8, "{rounds}");
}

#[test]
fn answers_that_change_keep_it_narrow() {
    let mut schedule = known(ROW, ms(5));
    (1..=100).for_each(|number| {
        ask(&mut schedule, 0, ROW, number);
    });
    for number in 1..100 {
        answers(&mut schedule, number, number, number.into());
        assert_eq!(leave(&mut schedule, number, ROW, number, End::Committed).0, [number + 1]);
    }
}

#[test]
fn a_spot_is_forgotten_when_nothing_happens_there() {
    let mut schedule = known(ROW, ms(5));
    assert_eq!(ask(&mut schedule, 1_000, ROW, 1), Answer::Turn);
    leave(&mut schedule, 1_000, ROW, 1, End::Committed);
    assert_eq!(ask(&mut schedule, 1_001, ROW, 2), Answer::Free);
    assert_eq!(schedule.len(), 0);
}

#[test]
fn a_spot_is_remembered_while_changes_are_waited_for() {
    let mut schedule = known(ROW, ms(5));
    for number in 1..100 {
        let now = number * 100;
        assert_ne!(ask(&mut schedule, now, ROW, number), Answer::Free, "{number}");
        if number > 1 {
            leave(&mut schedule, now, ROW, number - 1, End::Committed);
        }
        answers(&mut schedule, now, number, number.into());
    }
}

#[test]
fn no_more_spots_are_remembered_than_there_may_be() {
    let mut schedule = Schedule::default();
    let statement = |number| Spot::Statement(number as u64);
    for number in 0..MOST_SPOTS + 10 {
        schedule.note_conflict(ms(0), statement(number), ms(1));
    }
    assert_eq!(schedule.len(), MOST_SPOTS);
    schedule.note_conflict(ms(2_000), statement(MOST_SPOTS + 20), ms(1));
    assert_eq!(schedule.len(), 1);
}

/// Clients of a family, each with an attempt under way or waiting.
#[derive(Default)]
struct Clients {
    under_way: VecDeque<u64>,
    next: u64,
}

impl Clients {
    fn begin(&mut self, schedule: &mut Schedule, now: u64) {
        self.next += 1;
        if ask(schedule, now, FAMILY, self.next) != Answer::Waits {
            self.under_way.push_back(self.next);
        }
    }

    /// Ends so many attempts in turn, every `nth` by a conflict; another one begins each time.
    fn churn(&mut self, schedule: &mut Schedule, attempts: u64, nth: u64) {
        for attempt in 1..=attempts {
            let number = self.under_way.pop_front().expect("somebody has a turn");
            let end = if attempt % nth == 0 { End::Conflict } else { End::Committed };
            if end == End::Conflict {
                schedule.note_conflict(ms(attempt), FAMILY, ms(5));
            }
            self.under_way.extend(leave(schedule, attempt, FAMILY, number, end).0);
            self.begin(schedule, attempt);
        }
    }
}

fn family(clients: usize) -> (Schedule, Clients) {
    let (mut schedule, mut all) = (known(FAMILY, ms(5)), Clients::default());
    (0..clients).for_each(|_| all.begin(&mut schedule, 0));
    (schedule, all)
}

fn width(schedule: &Schedule) -> usize {
    schedule.queues[&FAMILY].width
}

#[test]
fn a_family_that_conflicts_rarely_is_not_held_up() {
    let (mut schedule, mut clients) = family(1_000);
    clients.churn(&mut schedule, 10_000, 10);
    assert_eq!((width(&schedule), clients.under_way.len()), (usize::MAX, 1_000));
}

#[test]
fn a_family_that_conflicts_often_gets_as_few_turns_as_keep_the_cores_busy() {
    let (mut schedule, mut clients) = family(1_000);
    clients.churn(&mut schedule, 10_000, 2);
    assert_eq!((width(&schedule), clients.under_way.len()), (FEWEST, FEWEST));
    // And as many as anybody asks for, when they do no more.
    clients.churn(&mut schedule, 10_000, u64::MAX);
    assert_eq!(clients.under_way.len(), 1_000);
}

#[test]
fn a_family_gets_the_turns_at_which_a_third_of_its_attempts_conflict() {
    // The more are under way, the more of them conflict: half of them when there are 60.
    let (mut schedule, mut clients) = family(1_000);
    for round in 0..2_000 {
        let under_way = clients.under_way.len().max(1);
        let nth = (120 / under_way).max(1) as u64;
        clients.churn(&mut schedule, nth.min(120), nth);
        if round > 1_000 {
            assert!((25..=60).contains(&under_way), "{under_way}");
        }
    }
}

#[test]
fn a_last_attempt_is_alone_in_its_family() {
    let mut schedule = known(FAMILY, ms(5));
    let last = Visitor { since: Duration::ZERO, number: 100 };
    (1..=3).for_each(|number| assert_eq!(ask(&mut schedule, 0, FAMILY, number), Answer::Turn));
    assert_eq!(schedule.ask(ms(0), FAMILY, last, Manner::Alone), Answer::Waits);
    assert_eq!(ask(&mut schedule, 0, FAMILY, 4), Answer::Waits);
    (1..=2).for_each(|number| {
        assert_eq!(leave(&mut schedule, 1, FAMILY, number, End::Committed), Told::default());
    });
    assert_eq!(leave(&mut schedule, 1, FAMILY, 3, End::Committed).0, [last.number]);
    assert_eq!(ask(&mut schedule, 1, FAMILY, 5), Answer::Waits);
    let mut changes = Changes::default();
    schedule.leave(ms(2), FAMILY, last, End::Committed, &mut changes);
    assert_eq!(told(&changes).0, [4, 5]);
}

#[test]
fn a_few_that_wait_for_themselves_do_not_make_everybody_wait_as_long_for_them() {
    let mut queue = Queue::new(1, ms(20));
    for number in 0..100 {
        queue.note_time(ms(if number % 16 == 5 { 5_000 } else { 20 }));
        assert!(queue.hold_limit() <= ms(250), "{:?}", queue.hold_limit());
    }
    // Where all take long, that is soon known.
    (0..12).for_each(|_| queue.note_time(ms(1_500)));
    assert!(queue.hold_limit() >= ms(1_500), "{:?}", queue.hold_limit());
}
