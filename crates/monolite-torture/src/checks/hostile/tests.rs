//! A sample of the cases is refused. That every control is noticed, each run of the check shows.

use monolite_testkit::child;

use super::*;

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    child::play(CHECK.roles);
}

fn program() -> Program {
    Program::this_test("checks::hostile::tests::plays_the_role_it_was_started_for").unwrap()
}

#[test]
fn there_are_enough_cases_and_each_has_a_name() {
    let cases = cases::all();
    let names: BTreeSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 300, "{}", cases.len());
}

#[test]
fn a_sample_of_the_cases_does_not_escape() {
    let count = cases::all().len();
    for (offset, (_, way)) in Way::ALL.into_iter().enumerate() {
        let numbers: Vec<_> = (offset..count).step_by(37).map(|it| it as u64).collect();
        let mut tried = 0;
        let mut done = |count| {
            tried += count;
            false
        };
        let escapes =
            attempt(&program(), &Part::told(Guard::Profile, way), &numbers, &mut done).unwrap();
        let told: Vec<_> = escapes.iter().map(|it| (it.case, &it.what)).collect();
        assert!(told.is_empty(), "{way:?}: {told:?}");
        assert_eq!(tried, numbers.len() as u64);
    }
}

#[test]
fn what_is_drawn_does_not_escape() {
    let seeds: Vec<u64> = (1..=12).collect();
    // Whoever waits for a busy machine waits longer.
    let escapes = attempt(&program(), &Part::drawn(20_000), &seeds, &mut |_| false).unwrap();
    let told: Vec<_> = escapes.iter().map(|it| (it.case, &it.what)).collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn the_grammar_writes_what_sqlite_accepts_and_what_is_large() {
    let mut rng = fastrand::Rng::with_seed(5);
    let drawn: Vec<_> = (0..400).map(|_| grammar::statement(&mut rng)).collect();
    assert!(drawn.iter().any(|sql| sql.len() > 10_000));
    let plain = monolite::rusqlite::Connection::open_in_memory().unwrap();
    let columns: Vec<_> = (0..grammar::WIDE).map(|column| format!("c{column}")).collect();
    plain.execute_batch(&grammar::TABLES.replace("WIDE", &columns.join(","))).unwrap();
    let accepted = drawn.iter().filter(|sql| plain.prepare(sql).is_ok()).count();
    assert!(accepted >= 60, "{accepted} of {}", drawn.len());
}
