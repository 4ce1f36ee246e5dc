//! The roles that this test binary plays as a child of its tests.

use monolite_testkit::child::{Child, Program, play};

use crate::{backup, caches, migrations, sharing};

/// Starts this binary in `role`, with further variables in its environment.
pub(crate) fn spawn(role: &str, variables: &[(&str, &str)]) -> Child {
    let program = Program::this_test("child::plays_the_role_it_was_started_for").unwrap();
    program.spawn(role, variables).unwrap()
}

/// Does nothing in an ordinary test run.
#[test]
fn plays_the_role_it_was_started_for() {
    play(&[
        ("uses plain SQLite", sharing::use_plain_sqlite),
        ("reads for long", sharing::read_for_long),
        ("opens it alone", sharing::open_alone),
        ("backs up until killed", backup::endings::back_up_until_killed),
        ("transfers beside", backup::shared::transfer_beside),
        ("migrates beside", migrations::migrate_beside),
        ("uses many databases", caches::use_many),
        ("plays without caches", caches::play_without_caches),
    ]);
}
