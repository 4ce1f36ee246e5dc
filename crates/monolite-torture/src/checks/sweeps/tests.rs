//! The good engine passes a sweep, and one that ignores failed syncs does not.

use super::*;

fn swept(name: &str, first: Fault) -> Swept {
    let directory = tempfile::tempdir().unwrap();
    let scenario = ALL.iter().find(|scenario| scenario.name == name).unwrap();
    sweep_with(scenario, 1, directory.path(), first, |_| &[], &|| false).unwrap()
}

#[test]
fn a_good_engine_survives_an_error_at_every_call() {
    for name in ["single writes", "a new file"] {
        let swept = swept(name, Fault::Error);
        let wrong: Vec<_> =
            swept.wrong.iter().map(|seen| format!("{}: {}", told(seen.plan), seen.wrong)).collect();
        assert_eq!(wrong, [""; 0], "{name}");
        assert!(swept.calls > 20 && swept.acknowledged > 0, "{name}");
    }
}

#[test]
fn an_engine_that_ignores_failed_syncs_is_seen_to_lose() {
    let swept = swept("single writes", Fault::Unreported);
    assert!(swept.wrong.iter().any(|seen| matches!(seen.wrong, Wrong::Lost(..))));
}

#[test]
fn there_are_enough_scenarios_and_each_has_its_own_name() {
    let names: std::collections::BTreeSet<_> = ALL.iter().map(|scenario| scenario.name).collect();
    assert!(names.len() == ALL.len() && ALL.len() >= 24, "{}", ALL.len());
    for (place, scenario) in ALL.iter().enumerate() {
        assert_eq!(choose(1, 0, seed_of(scenario)).name, ALL[place].name);
    }
}

#[test]
fn an_engine_that_fails_without_a_fault_is_a_finding() {
    let error = anyhow::Error::new(monolite::Error::aborted("for no reason")).context("preparing");
    let swept = with_engine_errors(Err(error)).unwrap();
    let [seen] = &swept.wrong[..] else { panic!("{} findings", swept.wrong.len()) };
    assert_eq!(told(seen.plan), "without a fault");
    assert!(seen.wrong.to_string().contains("for no reason"), "{}", seen.wrong);
    assert!(with_engine_errors(Err(anyhow::anyhow!("no scratch directory"))).is_err());
}
