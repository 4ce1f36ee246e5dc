//! The good engine passes random schedules; stand-ins with a known flaw do not; a failing schedule
//! becomes small and stays failing when it is read back.

use std::path::Path;

use monolite::Durability;

use super::{Blindness, Ending, Engine, Mix, Naive, Schedule, Step, Validation, execute, shrink};
use crate::random::SeededRng;

const STORMY: Mix<'static> =
    Mix { length: 150, failing: 5, endings: &Ending::FAILING, is_stormy: true, interactive: 3 };
const ROLLBACKS: Mix<'static> = Mix {
    length: 150,
    failing: 5,
    endings: &[Ending::OrRollback, Ending::RaiseRollback, Ending::OwnError],
    is_stormy: false,
    interactive: 0,
};

fn wrong_with(blindness: Blindness, schedule: &Schedule, directory: &Path) -> Option<String> {
    let file = tempfile::tempdir_in(directory).unwrap();
    let mut naive = Naive::new(&file.path().join("db"), blindness).unwrap();
    execute(schedule, &mut naive).wrong
}

#[test]
fn the_engine_passes_random_schedules_with_everything_going_wrong() {
    let mut rng = SeededRng::new();
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let schedule = Schedule::random(rng.u64(..), &STORMY);
        let mut engine = Engine::new(directory.path(), &schedule).unwrap();
        let ran = execute(&schedule, &mut engine);
        assert_eq!(ran.wrong, None, "schedule {}", schedule.seed);
        assert!(ran.interactive > 0 && ran.acknowledged > ran.interactive, "{ran:?}");
        assert_eq!(ran.lost, 0, "{ran:?}");
    }
}

#[test]
fn interactive_transactions_without_validation_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let calm = Mix { is_stormy: false, ..STORMY };
    for seed in 0..5 {
        let schedule = Schedule::random(seed, &calm);
        let run = |validation| {
            let (at, synced) = (directory.path(), Durability::Synced);
            let mut engine = Engine::with(at, &schedule, synced, validation).unwrap();
            execute(&schedule, &mut engine)
        };
        assert_eq!(run(Validation::On).wrong, None, "seed {seed}");
        assert!(run(Validation::Off).wrong.is_some(), "seed {seed}");
    }
}

#[test]
fn a_schedule_does_the_same_each_time() {
    let directory = tempfile::tempdir().unwrap();
    let calm = Mix { is_stormy: false, ..STORMY };
    let schedule = Schedule::random(7, &calm);
    let run = || execute(&schedule, &mut Engine::new(directory.path(), &schedule).unwrap());
    let (first, second) = (run(), run());
    assert_eq!(first, second);
}

#[test]
fn every_blind_stand_in_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    for blindness in [Blindness::LostTransactions, Blindness::Failures, Blindness::Commits(10)] {
        for seed in 0..10 {
            let schedule = Schedule::random(seed, &ROLLBACKS);
            let wrong = wrong_with(blindness, &schedule, directory.path());
            assert!(wrong.is_some(), "{blindness:?}, seed {seed}");
        }
    }
}

#[test]
fn a_failing_schedule_becomes_small_and_fails_again_when_it_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = |it: &Schedule| wrong_with(Blindness::LostTransactions, it, directory.path());
    let schedule = Schedule::random(1, &ROLLBACKS);
    let small = shrink(&schedule, 500, |candidate| wrong(candidate).is_some());
    let transactions: usize = small
        .steps
        .iter()
        .map(|step| if let Step::Batch { members, .. } = step { members.len() } else { 0 })
        .sum();
    assert!(transactions <= 3, "{small:#?}");
    let path = directory.path().join("schedule.jsonl");
    small.save(&path).unwrap();
    let read_back = Schedule::load(&path).unwrap();
    assert_eq!(read_back, small);
    assert!(wrong(&read_back).is_some());
}
