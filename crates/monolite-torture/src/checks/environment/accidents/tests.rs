//! Every row is what it says, and a row that says something else is noticed.

use std::fs;
use std::path::Path;

use super::super::tests::with_setting;
use super::*;

#[test]
fn the_page_is_what_the_rows_make() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/accidents.md");
    assert!(
        accidents_page() == fs::read_to_string(page).unwrap(),
        "run: cargo run -p monolite-cli --features developer -- torture --list-accidents > \
         docs/accidents.md"
    );
}

#[test]
fn every_row_says_what_is_to_be_done_and_names_a_case_that_there_is() {
    assert!(rows().count() >= 60);
    for row in rows() {
        let text = format!("{}{}{}", row.accident, row.what, row.instead);
        assert!(!row.what.is_empty() && !row.instead.is_empty() && !text.contains('|'), "{text}");
        assert!(!row.when.is_empty(), "{text}");
        if let Trial::Case(name) = row.trial {
            assert!(super::super::CASES.iter().any(|(case, _)| *case == name), "{name}");
        }
    }
}

#[test]
fn a_row_that_says_another_fate_or_another_word_is_noticed() {
    with_setting(|setting| {
        let rows = [
            Row { fate: Fate::Survived, ..copy_of(&database::ROWS[0]) },
            Row { fate: Fate::Unseen, ..copy_of(&database::ROWS[0]) },
            Row { says: "something else", ..copy_of(&database::ROWS[0]) },
        ];
        for row in rows {
            let mut outcome = crate::checks::environment::CHECK.outcome();
            run_one(setting, "wrong", &|case| attempt(&row, When::Open, case), &mut outcome)
                .unwrap();
            assert_eq!((outcome.anomalies, outcome.findings.len()), (1, 1), "{outcome:#?}");
        }
    });
}

fn copy_of(row: &Row) -> Row {
    let Trial::File(trial) = row.trial else { panic!("it is about a file") };
    Row { trial: Trial::File(trial), ..*row }
}
