//! A small amount of each kind of case passes, and what is kept can be replayed.

use fastrand::Rng;
use monolite_testkit::child::Program;
use monolite_testkit::random::SeededRng;
use monolite_testkit::schedule::{Ending, Mix, Schedule};

use super::{CHECK, Setting, Shape, replay};

fn with_setting(claim: impl FnOnce(&Setting<'_>)) {
    let rng = SeededRng::new();
    Setting::with(&CHECK, rng.seed(), &Program::this().unwrap(), claim);
}

#[test]
fn each_kind_of_case_passes() {
    with_setting(|setting| {
        for shape in Shape::ALL {
            let mut rng = Rng::with_seed(setting.seed);
            let case = shape.run(setting, 1_000, setting.seed, 0, &mut rng).unwrap();
            assert!(case.wrong.is_none(), "{shape:?}: {case:?}");
            assert!(case.checked >= 500 && case.acknowledged > 200, "{shape:?}: {case:?}");
        }
    });
}

/// These once ended with a WAL whose header the simulated disk had erased: a sync of the WAL's cut
/// failed, and the disk did the cut again over the header that was written and synced after it.
#[test]
fn schedules_with_a_failed_sync_after_the_wal_was_cut_pass() {
    for seed in [4948923416886147055, 8963433677815130180, 3718113888223506095] {
        with_setting(|setting| {
            let case = super::run_schedule(setting, super::SCHEDULE_LENGTH, seed, 0, 0).unwrap();
            assert!(case.wrong.is_none(), "{seed}: {case:?}");
        });
    }
}

#[test]
fn a_kept_schedule_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let mix =
        Mix { length: 100, failing: 5, endings: &Ending::FAILING, is_stormy: true, interactive: 4 };
    let path = directory.path().join("schedule.jsonl");
    Schedule::random(3, &mix).save(&path).unwrap();
    let outcome = replay(&path).unwrap();
    assert!(outcome.is_kept() && outcome.attempted >= 100, "{outcome:#?}");
}
