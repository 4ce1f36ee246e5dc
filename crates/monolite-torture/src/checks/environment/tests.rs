//! A case that finds something says so.

use monolite_testkit::child::Program;
use monolite_testkit::markers;

use super::*;

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    crate::play_role();
}

pub(super) fn with_setting<R>(work: impl FnOnce(&Setting<'_>) -> R) -> R {
    let name = "checks::environment::tests::plays_the_role_it_was_started_for";
    Setting::with(&CHECK, 1, &Program::this_test(name).unwrap(), work)
}

#[test]
fn a_case_that_loses_something_is_a_finding_with_evidence() {
    with_setting(|setting| {
        let mut outcome = CHECK.outcome();
        let lossy: Run = |case| {
            let path = case.directory().join("db");
            let db = monolite::Database::open(&path)?;
            markers::create(&db)?;
            db.write(|tx| markers::put(tx, 1)).wait()?;
            db.close()?;
            case.verify(&path, &BTreeSet::from([1, 2]));
            Ok(())
        };
        run_one(setting, "lossy", &lossy, &mut outcome).unwrap();
        let erring: Run = |_| anyhow::bail!("no such thing");
        run_one(setting, "erring", &erring, &mut outcome).unwrap();
        assert_eq!((outcome.lost, outcome.anomalies, outcome.findings.len()), (1, 1, 2));
        assert!(outcome.findings[0].evidence.as_ref().unwrap().join("db").exists());
        assert!(!outcome.is_kept());
    });
}
