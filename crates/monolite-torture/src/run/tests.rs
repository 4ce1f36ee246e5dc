//! How a run is told to stop, and where it may not run. What it finds is for `monolite torture`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    play_role();
}

fn plan(dir: &Path, name: &str, amount: u64) -> Plan {
    let check = CHECKS.iter().find(|check| check.name == name).unwrap();
    Plan {
        dir: dir.to_owned(),
        evidence: dir.join("evidence"),
        seed: fastrand::u64(..),
        checks: vec![(check, amount)],
        program: Program::this_test("run::tests::plays_the_role_it_was_started_for").unwrap(),
    }
}

#[test]
fn a_directory_that_is_not_there_is_refused_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let stop = AtomicBool::new(false);
    let plan = plan(&missing, "kills", 1);
    let told = run(&plan, Watch { tell: &|_| {}, stop: &stop }).unwrap_err().to_string();
    assert!(told.contains("missing is no directory"), "{told}");
    assert!(!missing.exists());
}

fn outcome_of(check: &str, amount: u64, stop: &AtomicBool) -> Outcome {
    let directory = tempfile::tempdir().unwrap();
    let plan = plan(directory.path(), check, amount);
    let outcome = run(&plan, Watch { tell: &|_| {}, stop }).unwrap().remove(0);
    assert!(outcome.is_kept(), "seed {}: {outcome:#?}", plan.seed);
    outcome
}

#[test]
fn a_soak_that_is_told_to_stop_stops() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let soak = scope.spawn(|| outcome_of("soak", 100_000, &stop));
        std::thread::sleep(Duration::from_secs(3));
        stop.store(true, Ordering::Relaxed);
        let told = Instant::now();
        let outcome = soak.join().unwrap();
        assert!(told.elapsed() < Duration::from_secs(10), "{outcome:#?}");
    });
}
