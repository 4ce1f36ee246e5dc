//! How a run is planned, begun and gone on with.

use super::*;
use crate::progress::Silent;
use crate::report::files::tests::golden_record;

fn options(data: &std::path::Path) -> AllOptions {
    AllOptions {
        data: data.into(),
        budget: Duration::from_secs(600),
        depth: Depth::Standard,
        postgres: Source::None,
        with: With::default(),
        fresh: false,
        command: "monolite bench all --quick".into(),
    }
}

fn begun(options: &AllOptions) -> Collection {
    let mut collection = begin_or_resume(options, &Silent).unwrap();
    let machine = Machine::look(&options.data);
    collection.records.push(Record { machine, ..golden_record() });
    collection.ahead.retain(|suite| suite != "tps");
    collection
}

#[test]
fn an_hour_and_ten_minutes_are_enough_for_every_suite() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [(Depth::Full, 3_600), (Depth::Standard, 600)];
    for (depth, seconds) in cases {
        let budget = Duration::from_secs(seconds);
        let options =
            AllOptions { depth, budget, postgres: Source::Private, ..options(dir.path()) };
        let needs: Result<Vec<Needs>> =
            Part::all().iter().map(|part| part.needs(&options)).collect();
        let needs = needs.unwrap();
        assert!(plan::least(&needs) < budget / 2);
        let shares = plan::divide(&needs, budget);
        let total: Duration = shares.iter().map(|share| share.expected).sum();
        assert!(total <= budget, "{shares:?}");
        // Nothing of the shorter run is as rough as that of a minute.
        assert!(shares.iter().all(|share| share.depth > Depth::Quick), "{shares:?}");
        assert!(announcement(&shares, budget).starts_with(&format!("{} suites", shares.len())));
    }
}

#[test]
fn an_unfinished_run_is_gone_on_with_by_the_same_command() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    begun(&options).keep(dir.path()).unwrap();
    let resumed = begin_or_resume(&options, &Silent).unwrap();
    assert!(resumed.has("tps") && resumed.interruptions == 1);
    let fresh = AllOptions { fresh: true, ..options.clone() };
    assert!(begin_or_resume(&fresh, &Silent).unwrap().records.is_empty());
}

#[test]
fn an_unfinished_run_with_other_settings_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    begun(&options).keep(dir.path()).unwrap();
    let other = AllOptions { depth: Depth::Full, ..options.clone() };
    let error = begin_or_resume(&other, &Silent).unwrap_err().to_string();
    assert!(error.contains("depth standard, not full") && error.contains("--fresh"), "{error}");
    let mut elsewhere = begun(&options);
    elsewhere.records[0].machine.cores += 1;
    elsewhere.keep(dir.path()).unwrap();
    let error = begin_or_resume(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("another machine"), "{error}");
}

#[test]
fn an_interrupted_suite_leaves_those_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path());
    begun(&options).keep(dir.path()).unwrap();
    let interrupt = Interrupt::default();
    interrupt.request();
    let error = run(&options, &Silent, &interrupt).unwrap_err();
    assert!(error.to_string().contains("the same command goes on"), "{error:#}");
    assert!(error.chain().any(|cause| cause.is::<crate::progress::Interrupted>()), "{error:#}");
    assert!(Collection::unfinished(dir.path()).unwrap().unwrap().has("tps"));
}

#[test]
fn a_budget_that_is_too_short_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = AllOptions { budget: Duration::from_secs(9), ..options(dir.path()) };
    let error = run(&options, &Silent, &Interrupt::default()).unwrap_err().to_string();
    assert!(error.contains("--budget"), "{error}");
}
