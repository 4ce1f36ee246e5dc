//! Every row of the page has what it takes, and a row that says something else is noticed.

use super::super::tests::with_setting;
use super::*;

#[test]
fn every_row_is_tried_or_names_what_tries_it() {
    let rows = rows().unwrap();
    assert!(rows.len() >= 140 && ROWS.len() >= 110);
    for named in PAGE.split("(tried as “").skip(1) {
        let name = named.split('”').next().unwrap();
        assert!(super::super::CASES.iter().any(|(case, _)| *case == name), "{name}");
    }
    for named in PAGE.split("(tried by `--").skip(1) {
        let name = named.split('`').next().unwrap();
        assert!(crate::CHECKS.iter().any(|check| check.name == name), "{name}");
    }
}

#[test]
fn a_row_that_says_another_fate_or_another_word_is_noticed() {
    with_setting(|setting| {
        let first = || rows().unwrap().remove(0);
        for row in [
            Row { fate: Fate::Survived, ..first() },
            Row { fate: Fate::Unseen, ..first() },
            Row { says: "something else", ..first() },
        ] {
            let mut outcome = crate::checks::environment::CHECK.outcome();
            run_one(setting, "wrong", &|case| attempt(&row, When::Open, case), &mut outcome)
                .unwrap();
            assert_eq!((outcome.anomalies, outcome.findings.len()), (1, 1), "{outcome:#?}");
        }
    });
}
