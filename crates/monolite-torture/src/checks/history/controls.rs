//! Known-bad arrangements that the history check must notice, each time it runs.

use anyhow::Result;
use fastrand::Rng;
use monolite::Durability;
use monolite_testkit::functions::Promise;
use monolite_testkit::load::{Load, play};
use monolite_testkit::schedule::{
    Blindness, Ending, Engine, Mix, Naive, Ran, Schedule, Validation, execute,
};
use monolite_testkit::storage::remove;

use super::{Shape, judge_load, random_load};
use crate::{Outcome, Setting};

/// Transactions of a control with free-running clients.
const UNVALIDATED: u64 = 2_000;

/// Schedules or loads that a control may need until its flaw shows.
const TRIES: u64 = 20;

pub(super) fn run(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    naive_savepoints(setting, outcome)?;
    lost_acknowledgements(setting, outcome)?;
    no_validation(setting, outcome)?;
    broken_promise(setting, outcome)?;
    Ok(())
}

/// Runs schedules until one goes wrong.
fn until_noticed(
    setting: &Setting<'_>,
    mix: &Mix<'_>,
    mut run: impl FnMut(&Schedule) -> Result<Ran>,
) -> Result<(bool, String)> {
    for number in 1..=TRIES {
        let ran = run(&Schedule::random(setting.case_seed(number), mix))?;
        if let Some(wrong) = ran.wrong {
            return Ok((true, format!("schedule {number}: {}", brief(&wrong))));
        }
    }
    Ok((false, format!("{TRIES} schedules")))
}

/// Enough of it to see what kind it is of.
fn brief(wrong: &str) -> String {
    wrong.chars().take(100).collect()
}

fn naive_savepoints(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let mix = Mix {
        length: 150,
        failing: 5,
        endings: &[Ending::OrRollback, Ending::RaiseRollback],
        is_stormy: false,
        interactive: 0,
    };
    for (name, blindness) in [
        ("batching with naive savepoints, under OR ROLLBACK", Blindness::LostTransactions),
        ("a failed transaction is not undone", Blindness::Failures),
        ("one acknowledged transaction in ten is missing from the file", Blindness::Commits(10)),
    ] {
        let endings = &[Ending::OwnError, Ending::Constraint];
        let mix = if blindness == Blindness::Failures { Mix { endings, ..mix } } else { mix };
        let (noticed, how) = until_noticed(setting, &mix, |schedule| {
            let directory = tempfile::tempdir_in(setting.scratch())?;
            let mut naive = Naive::new(&directory.path().join("naive.db"), blindness)?;
            Ok(execute(schedule, &mut naive))
        })?;
        outcome.control(name, noticed, how);
    }
    Ok(())
}

/// The engine itself, told to acknowledge before the sync.
fn lost_acknowledgements(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let mix = Mix {
        length: 200,
        failing: 20,
        endings: &[Ending::OwnError],
        is_stormy: true,
        interactive: 0,
    };
    let (noticed, how) = until_noticed(setting, &mix, |schedule| {
        let engine =
            Engine::with(setting.scratch(), schedule, Durability::Buffered, Validation::On);
        Ok(execute(schedule, &mut engine?))
    })?;
    outcome.control("acknowledged before the sync, then the power is cut", noticed, how);
    Ok(())
}

/// The engine itself, told to commit interactive transactions whatever they saw.
fn no_validation(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let endings = &[Ending::OwnError];
    let mix = Mix { length: 200, failing: 20, endings, is_stormy: false, interactive: 2 };
    let (noticed, how) = until_noticed(setting, &mix, |schedule| {
        let synced = Durability::Synced;
        let engine = Engine::with(setting.scratch(), schedule, synced, Validation::Off);
        Ok(execute(schedule, &mut engine?))
    })?;
    outcome.control("validation switched off, in schedules", noticed, how);

    let name = "validation switched off, under load";
    under_load(setting, outcome, name, |load| {
        load.options = load.options.clone().without_validation();
    })
}

/// Loads of which one must go wrong once they are changed so: whether a client meets the flaw is a
/// matter of its timing.
fn under_load(
    setting: &Setting<'_>,
    outcome: &mut Outcome,
    name: &'static str,
    change: impl Fn(&mut Load),
) -> Result<()> {
    let path = setting.scratch().join("control.db");
    for number in 0..TRIES {
        let mut rng = Rng::with_seed(setting.case_seed(number));
        let mut load = random_load(Shape::Interactive, UNVALIDATED, &mut rng);
        change(&mut load);
        let case = judge_load(&play(&load, &path)?);
        remove(&path)?;
        if let Some(wrong) = &case.wrong {
            outcome.control(name, true, brief(wrong));
            return Ok(());
        }
    }
    outcome.control(name, false, format!("{TRIES} loads"));
    Ok(())
}

/// A function of the application that says that it is deterministic, and is not.
fn broken_promise(setting: &Setting<'_>, outcome: &mut Outcome) -> Result<()> {
    let name = "a function of the application that breaks its promise to be deterministic";
    under_load(setting, outcome, name, |load| load.promise = Promise::Broken(10))
}
