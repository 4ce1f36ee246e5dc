//! The time by which keys expire, apart from the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::testing::Random;

/// Milliseconds that have passed for everybody.
#[derive(Clone, Default)]
struct World(Arc<AtomicU64>);

impl World {
    fn pass(&self, seconds: u64) {
        self.pass_ms(seconds * 1_000);
    }

    fn pass_ms(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A process that is started now, by a clock of its own.
    fn process(&self, make: fn(World) -> Arc<KeyTime>) -> Arc<KeyTime> {
        make(self.clone())
    }

    fn clock(self) -> impl Fn() -> Duration + Send + Sync + 'static {
        move || Duration::from_millis(self.millis())
    }
}

/// What the file says, and what is written into it.
#[derive(Default)]
struct File {
    time: Duration,
    rows: u32,
}

impl File {
    /// Stores a key; when it ends.
    fn store(&mut self, process: &KeyTime, lifetime: u64) -> i64 {
        let (now, is_late) = process.advance(self.time);
        if is_late {
            self.time = now;
            self.rows += 1;
        }
        process.end(now, Duration::from_secs(lifetime))
    }
}

fn is_live(end: i64, process: &KeyTime, file: &File) -> bool {
    end > seconds(process.now(file.time))
}

#[test]
fn a_process_that_was_idle_takes_no_time_from_a_key_of_another() {
    let (world, mut file) = (World::default(), File::default());
    let shared = |world: World| KeyTime::shared(world.clock());
    let (idle, busy) = (world.process(shared), world.process(shared));
    file.store(&idle, 100);
    world.pass(36_000);
    let key = file.store(&busy, 100);
    for second in 0..100 {
        // Now it uses keys, too, and both count on.
        file.store(&idle, 100);
        for process in [&idle, &busy] {
            assert!(is_live(key, process, &file), "after {second} s of 100");
        }
        world.pass(1);
        file.store(&busy, 100);
    }
    world.pass(APART.as_secs() + 2);
    file.store(&idle, 100);
    assert!(!is_live(key, &idle, &file) && !is_live(key, &busy, &file));
}

#[test]
fn no_order_of_processes_makes_a_shared_key_live_shorter_or_for_ever() {
    let mut random = Random::new(17);
    for round in 0..300 {
        let (world, mut file) = (World::default(), File::default());
        let shared = |world: World| KeyTime::shared(world.clock());
        let mut processes: Vec<_> = (0..3).map(|_| world.process(shared)).collect();
        let mut keys = Vec::new();
        for _ in 0..200 {
            world.pass_ms([0, 300, 1_000, 20_000, 3_000_000][random.below(5) as usize]);
            let chosen = random.below(3) as usize;
            if random.below(20) == 0 {
                processes[chosen] = world.process(shared);
            }
            let process = &processes[chosen];
            keys.retain(|&(stored, end)| {
                let live = is_live(end, process, &file);
                assert!(live || world.millis() - stored >= 1_000_000, "round {round}");
                live
            });
            let before = file.time;
            let end = file.store(process, 1_000);
            if random.below(5) == 0 {
                // It is rolled back.
                file.time = before;
            } else {
                keys.push((world.millis(), end));
            }
        }
        // Whatever was before, a process that goes on has all of them end.
        for _ in 0..1_100 {
            world.pass(1);
            file.store(&processes[0], 1_000);
        }
        assert!(keys.iter().all(|key| !is_live(key.1, &processes[0], &file)), "round {round}");
    }
}

#[test]
fn counted_time_is_written_once_a_second_and_loses_nothing_by_a_rollback() {
    let (world, mut file) = (World::default(), File::default());
    let process = world.process(|world| KeyTime::alone(world.clock()));
    for _ in 0..10_000 {
        file.store(&process, 1);
        world.pass_ms(1);
    }
    assert_eq!((file.rows, file.time), (9, Duration::from_secs(9)));
    // Each row is rolled back for a while.
    for _ in 0..10_000 {
        let before = file.time;
        file.store(&process, 1);
        file.time = before;
        world.pass_ms(1);
    }
    file.store(&process, 1);
    assert_eq!(file.time, Duration::from_secs(20));
}

#[test]
fn no_time_counts_while_no_process_runs() {
    let (world, mut file) = (World::default(), File::default());
    let alone = |world: World| KeyTime::alone(world.clock());
    let first = world.process(alone);
    let key = file.store(&first, 100);
    world.pass(60);
    file.store(&first, 100);
    world.pass(86_400);
    let second = world.process(alone);
    assert!(is_live(key, &second, &file));
    world.pass(40);
    assert!(is_live(key, &second, &file));
    world.pass(1);
    assert!(!is_live(key, &second, &file));
}
