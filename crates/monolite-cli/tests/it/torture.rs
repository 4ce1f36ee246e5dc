//! `monolite torture`, short: each seed is fixed, so that what is found is the change's.

use serde_json::Value;

use crate::{complaint, monolite};

/// Enough of each check that takes seconds for its controls to be noticed.
const SHORT: [&str; 8] = ["--kills", "5", "--images", "200", "--history", "6000", "--flips", "20"];

#[test]
fn a_short_torture_keeps_every_promise_and_notices_every_control() {
    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path().to_str().expect("its path is text");
    let words = [&["torture", "--json", "--seed", "20261124", "--dir", dir], &SHORT[..]].concat();
    let output = monolite(&words);
    assert!(output.status.success(), "{}", complaint(&output));
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    assert_eq!(record["verdict"], "kept", "{record:#}");
    let outcomes = record["outcomes"].as_array().expect("outcomes");
    assert_eq!(outcomes.len(), SHORT.len() / 2, "{record:#}");
    for outcome in outcomes {
        let check = &outcome["check"];
        assert!(outcome["attempted"].as_u64() > Some(0), "{check} has tried nothing");
        for control in outcome["controls"].as_array().expect("controls") {
            assert_eq!(control["detected"], true, "{check}: {control:#}");
        }
    }
    let left = std::fs::read_dir(scratch.path()).expect("the directory").count();
    assert_eq!(left, 0, "scratch files are removed");
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let output = monolite(&["torture", "--kills", "1", "--dir", "no-such-directory"]);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("no-such-directory"), "{}", complaint(&output));
}
