//! Schedules drawn at random: nothing acknowledged is lost, nothing forks, nothing is partial.

use std::io::Write as _;

use crate::world::{Control, Figures, World};

/// Turns of a schedule, unless `MONOLITE_TURNS` says another number.
const TURNS: u64 = 400;

/// How many schedules run, unless `MONOLITE_SCHEDULES` says another number.
const SCHEDULES: u64 = 2000;

/// Runs one schedule by its seed.
pub(crate) fn schedule(seed: u64, control: Option<Control>) -> Result<Figures, String> {
    let processes = if seed.is_multiple_of(4) { 5 } else { 3 };
    let mut world = World::new(seed, processes, control);
    world.run(number("MONOLITE_TURNS").unwrap_or(TURNS))?;
    Ok(world.figures)
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_in_any_schedule() {
    let (first, count) = match number("MONOLITE_SEED") {
        Some(seed) => (seed, 1),
        None => (fastrand::u64(..1 << 60), number("MONOLITE_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    let mut sum = Figures::default();
    for seed in first..first + count {
        let figures = schedule(seed, None)
            .unwrap_or_else(|violation| panic!("MONOLITE_SEED={seed} repeats this: {violation}"));
        sum.acknowledged += figures.acknowledged;
        sum.takeovers += figures.takeovers;
        sum.deleted += figures.deleted;
        sum.garbage += figures.garbage;
        sum.fenced_certain += figures.fenced_certain;
        sum.fenced_unknown += figures.fenced_unknown;
        sum.clones += figures.clones;
        sum.adopted += figures.adopted;
    }
    let line = format!("{count} schedules: {sum:?}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    // A world in which nothing happens would find nothing.
    if count >= SCHEDULES {
        assert!(sum.acknowledged > 5 * count && sum.takeovers > 2 * count, "{sum:?}");
        assert!(sum.deleted > count && sum.fenced_certain > 0 && sum.fenced_unknown > 0, "{sum:?}");
        assert!(sum.clones > 0 && sum.adopted > count / 4, "{sum:?}");
    }
    // Rare: a fence that lands where a slot was deleted.
    if count >= 20 * SCHEDULES {
        assert!(sum.garbage > 0, "{sum:?}");
    }
}
