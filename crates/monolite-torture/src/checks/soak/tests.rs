//! The end of a child is judged by whether it was told to end.

use monolite_testkit::child::Program;

use super::*;

/// What is found wrong when `act` uses a lane of its own, and how many files were closed.
fn on_a_lane(
    program: &Program,
    act: impl FnOnce(&mut Steady<'_>) -> Result<()>,
) -> (Option<String>, i64) {
    monolite_sqlite::initialize().unwrap();
    Setting::with(&CHECK, 1, program, |setting| {
        let mut lane = Steady::new(setting).unwrap();
        let verdict = verdict(act(&mut lane)).unwrap();
        (verdict.err().map(|wrong| wrong.to_string()), lane.lives)
    })
}

#[test]
fn a_child_that_closes_when_told_is_right() {
    let name = "run::tests::plays_the_role_it_was_started_for";
    let program = Program::this_test(name).unwrap();
    let ended = on_a_lane(&program, |lane| lane.live(Instant::now() + GLANCE));
    assert_eq!(ended, (None, 1));
}

#[test]
fn a_child_that_ends_by_itself_is_wrong_and_its_reason_is_kept() {
    let program = Program::this().unwrap().under(&["sh", "-c", "echo the reason >&2; exit 7"]);
    let reason = "exit status: 7: the reason";
    let ended = on_a_lane(&program, |lane| lane.live(Instant::now() + PATIENCE));
    assert_eq!(ended, (Some(format!("a child ended by itself: {reason}")), 0));
    let ended = on_a_lane(&program, |lane| lane.close(program.spawn("none", &[])?));
    assert_eq!(ended, (Some(format!("closing: the child ended with {reason}")), 0));
}
