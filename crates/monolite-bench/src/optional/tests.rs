//! What drivers answer, and what is done where there are none. Nothing is fetched here.

use super::*;
use crate::progress::Interrupted;

#[test]
fn names_are_those_that_the_command_takes() {
    for driver in Optional::ALL {
        assert_eq!(Optional::named(driver.name()), Some(driver));
    }
    assert_eq!(Optional::named("oracle"), None);
}

#[test]
fn an_answer_becomes_a_round() {
    let text = br#"{"operations":3,"retries":1,"seconds":0.5,"wal_bytes_max":9,
        "latencies":[[1000,2],[2000,1]]}"#;
    let round = parse(text).unwrap();
    assert_eq!((round.operations, round.retries, round.wal_bytes_max), (3, 1, 9));
    assert_eq!(round.latencies.percentiles().samples, 3);
    assert_eq!(round.elapsed, Duration::from_millis(500));
    let nothing = br#"{"operations":0,"retries":1,"seconds":1,"wal_bytes_max":0,"latencies":[]}"#;
    assert!(parse(nothing).is_err() && parse(b"sorry").is_err());
}

#[test]
fn what_was_not_built_is_a_gap_and_names_no_directory() {
    let with = With::new(vec![Optional::Redb]);
    assert!(with.wants(Optional::Redb) && !with.wants(Optional::Lmdb));
    let error = with.round(Optional::Redb, &[], &Interrupt::default()).unwrap_err();
    assert!(error.is::<Absent>(), "{error:#}");
    let mut command = Command::new("sh");
    command.args(["-c", "echo no room on /a/secret/place now >&2; exit 3"]);
    let output = run(&mut command, &Interrupt::default()).unwrap();
    assert_eq!(complaint("sh", &output), "no room on now");
    let mut nothing = Command::new("/no/such/program");
    let error = run(&mut nothing, &Interrupt::default()).unwrap_err();
    assert_eq!(error.downcast::<Absent>().unwrap().0, "program is not there");
}

#[test]
fn a_program_is_stopped_when_the_user_interrupts() {
    let interrupt = Interrupt::default();
    interrupt.request();
    let error = run(Command::new("sleep").arg("1000"), &interrupt).unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
}

#[test]
fn lists_of_packages_become_lists_of_sources() {
    let texts = [
        "deb [a=b] http://x/debian stable main\n# deb no\n".to_owned(),
        "# c\nTypes: deb\nURIs: http://x/debian\n\nTypes: deb\nSuites: y\n".to_owned(),
    ];
    let (lines, stanzas) = build::sources(&texts);
    assert_eq!(lines, "deb-src [a=b] http://x/debian stable main\n");
    assert_eq!(stanzas, "Types: deb-src\nURIs: http://x/debian\n\nTypes: deb-src\nSuites: y\n\n");
}
