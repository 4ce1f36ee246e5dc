//! Our own scripts on plain SQLite and on all paths of Monolite: `monolite conform conform`, which
//! every change must survive.
//!
//! Beside a difference that is not by design, an entry of the list of differences that no script
//! meets fails the step: either it is gone, or no script shows it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::command::cargo_path;

/// Runs it, and prints a line for each path and each difference.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let scratch = root.join("target/conform");
    fs::create_dir_all(&scratch)?;
    let output = Command::new(cargo_path())
        .current_dir(root)
        .args(["run", "--locked", "--quiet", "--package", "monolite-cli"])
        .args(["--features", "developer", "--"])
        .args(["conform", "conform", "--json", "--scratch"])
        .arg(&scratch)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo run")?;
    let record: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("monolite conform ended with {}", output.status))?;
    let (lines, unmet) = told(&record);
    lines.iter().for_each(|line| println!("{line}"));
    if !output.status.success() {
        bail!("monolite conform ended with {}", output.status);
    }
    if !unmet.is_empty() {
        bail!("no script meets these differences of the list: {}", unmet.join(", "));
    }
    Ok(())
}

/// What a record says, line by line, and the entries of the list that were not met.
fn told(record: &Value) -> (Vec<String>, Vec<String>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!("{} files, {} statements", record["files"], record["statements"])];
    for path in list(&record["paths"]) {
        lines.push(format!(
            "{}: {} run, {} skipped, {} differing, {} by design",
            text(&path["path"]),
            path["run"],
            path["skipped"],
            path["differing"],
            path["excused"],
        ));
    }
    for difference in list(&record["differences"]) {
        let paths: Vec<String> = list(&difference["paths"]).iter().map(text).collect();
        lines.push(format!(
            "{}:{}: {}\n  SQLite:   {}\n  Monolite: {}\n  on:       {}",
            text(&difference["file"]),
            difference["line"],
            text(&difference["statement"]),
            text(&difference["sqlite"]),
            text(&difference["monolite"]),
            paths.join(", "),
        ));
    }
    let listed = list(&record["listed"]);
    let unmet = listed.iter().filter(|entry| entry["times"] == 0);
    (lines, unmet.map(|entry| text(&entry["id"])).collect())
}

#[test]
fn what_differs_is_told_and_what_was_not_met_is_named() {
    let record = serde_json::json!({
        "files": 1, "statements": 2,
        "paths": [{ "path": "write", "run": 2, "skipped": 0, "differing": 1, "excused": 0 }],
        "differences": [{ "file": "a.sql", "line": 3, "statement": "SELECT 1", "sqlite": "1",
            "monolite": "2", "paths": ["write", "read"] }],
        "listed": [{ "id": "attach", "times": 4 }, { "id": "vacuum", "times": 0 }],
    });
    let (lines, unmet) = told(&record);
    let said = lines.join("\n");
    for part in ["write: 2 run", "a.sql:3: SELECT 1", "SQLite:   1", "write, read"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert_eq!(unmet, ["vacuum"]);
}
