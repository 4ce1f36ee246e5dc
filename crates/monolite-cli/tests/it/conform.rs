//! `monolite conform` on a script of its own.

use std::fs;

use serde_json::Value;

use crate::{complaint, monolite};

#[test]
fn a_script_runs_on_plain_sqlite_and_on_every_path() {
    let scripts = tempfile::tempdir().expect("a directory");
    let script = "CREATE TABLE t(a); INSERT INTO t VALUES(1); SELECT a FROM t;";
    fs::write(scripts.path().join("own.sql"), script).expect("the script is written");
    let dir = scripts.path().to_str().expect("its path is text");
    let output = monolite(&["conform", dir, "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    assert_eq!((&record["files"], &record["statements"]), (&1.into(), &3.into()), "{record:#}");
    for path in record["paths"].as_array().expect("paths") {
        assert!(path["run"].as_u64() > Some(0), "{path:#}");
        assert_eq!(path["differing"], 0, "{path:#}");
    }
}

#[test]
fn a_folder_without_scripts_is_an_error() {
    let empty = tempfile::tempdir().expect("a directory");
    let output = monolite(&["conform", empty.path().to_str().expect("its path is text")]);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
}
