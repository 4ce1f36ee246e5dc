//! The end of a child is judged by whether it was told to end.

use monolite_testkit::child::Program;

use super::*;

/// What a lane of its own finds wrong and counts, when `act` uses it.
fn on_a_lane(
    program: &Program,
    act: impl FnOnce(&mut Lane<'_>) -> Result<()>,
) -> (Vec<Wrong>, Counts) {
    Setting::with(&CHECK, 1, program, |setting| {
        let mut lane = Lane::new(setting, "tested", 0).unwrap();
        act(&mut lane).unwrap();
        (lane.wrong.into_iter().map(|(wrong, _)| wrong).collect(), lane.counts)
    })
}

#[test]
fn a_child_that_closes_when_told_is_right() {
    let name = "run::tests::plays_the_role_it_was_started_for";
    let (wrong, counts) = on_a_lane(&Program::this_test(name).unwrap(), |lane| {
        let child = lane.spawn("one")?;
        lane.close(child)
    });
    assert_eq!(wrong, []);
    assert_eq!((counts.closed, counts.kills), (1, 0), "{counts:?}");
}

#[test]
fn a_child_that_ends_by_itself_is_wrong_and_its_reason_is_kept() {
    let program = Program::this().unwrap().under(&["sh", "-c", "echo the reason >&2; exit 7"]);
    let reason = "exit status: 7: the reason";
    let (wrong, _) = on_a_lane(&program, |lane| {
        let mut child = lane.spawn("one")?;
        lane.work(&mut child, Instant::now() + PATIENCE)
    });
    assert_eq!(wrong, [Wrong::Other(format!("a child ended by itself: {reason}"))]);
    let (wrong, counts) = on_a_lane(&program, |lane| {
        let child = lane.spawn("one")?;
        lane.close(child)
    });
    assert_eq!(wrong, [Wrong::Other(format!("closing: the child ended with {reason}"))]);
    assert_eq!(counts.kills, 0);
}
