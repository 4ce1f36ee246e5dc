//! The torture that every change, and every release, must survive: `monolite torture` with the
//! amounts of the gate or of a release, on the disk under `target`.
//!
//! For the gate the program is built as the tests are: its debug assertions are on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::command::cargo_path;

/// How much of each check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amounts {
    Gate,
    Release,
}

/// What the gate asks for.
const GATE: [&str; 30] = [
    "--rebuilds",
    "15",
    "--kills",
    "60",
    "--tenants",
    "15",
    "--server",
    "10",
    "--clients",
    "10s",
    "--cuts",
    "15",
    "--images",
    "2000",
    "--sweeps",
    "3",
    "--archive",
    "10",
    "--history",
    "60000",
    "--flips",
    "60",
    "--hostile",
    "--closures",
    "12",
    "--environment",
    "--overload",
    "10s",
    "--soak",
    "20s",
];

/// Statements of every form, always the same, so that what is found is the change's.
const STATEMENTS: [&str; 4] = ["--differential", "40000", "--seed", "20261122"];

/// What a release asks for: some hours.
const RELEASE: [&str; 33] = [
    "--rebuilds",
    "300",
    "--kills",
    "5000",
    "--tenants",
    "500",
    "--server",
    "1000",
    "--clients",
    "10m",
    "--cuts",
    "200",
    "--images",
    "50000",
    "--sweeps",
    "30",
    "--archive",
    "1000",
    "--history",
    "5000000",
    "--flips",
    "20000",
    "--hostile",
    "100000",
    "--closures",
    "1000",
    "--environment",
    "--overload",
    "60s",
    "--soak",
    "2h",
    "--differential",
    "20000000",
];

/// Runs it, prints a line for each check, and returns how much was skipped.
pub(crate) fn run(root: &Path, amounts: Amounts) -> anyhow::Result<u64> {
    match amounts {
        Amounts::Gate => Ok(torture(root, &[], &GATE)? + torture(root, &[], &STATEMENTS)?),
        Amounts::Release => torture(root, &["--release"], &RELEASE),
    }
}

fn torture(root: &Path, build: &[&str], amounts: &[&str]) -> anyhow::Result<u64> {
    let dir = root.join("target/torture");
    fs::create_dir_all(&dir)?;
    let output = Command::new(cargo_path())
        .current_dir(root)
        .args(["run", "--locked", "--quiet", "--package", "monolite-cli"])
        .args(["--features", "developer"])
        .args(build)
        .args(["--", "torture"])
        .args(amounts)
        .args(["--json", "--dir"])
        .arg(&dir)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo run")?;
    let record: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("monolite torture ended with {}", output.status))?;
    let (lines, skipped) = told(&record);
    lines.iter().for_each(|line| println!("{line}"));
    if !output.status.success() {
        bail!("monolite torture ended with {}, seed {}", output.status, record["seed"]);
    }
    Ok(skipped)
}

/// What a record says, line by line, and how much was skipped.
fn told(record: &Value) -> (Vec<String>, u64) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (mut lines, mut skipped) = (Vec::new(), 0);
    for outcome in list(&record["outcomes"]) {
        let check = text(&outcome["check"]);
        let controls = list(&outcome["controls"]);
        let detected = controls.iter().filter(|control| control["detected"] == true).count();
        lines.push(format!(
            "{check}: {} {}, {} acknowledged, {} lost, {} partial, {} anomalies, \
             {detected} of {} controls detected, {:.1} s",
            outcome["attempted"],
            text(&outcome["unit"]),
            outcome["acknowledged"],
            outcome["lost"],
            outcome["partial"],
            outcome["anomalies"],
            controls.len(),
            outcome["seconds"].as_f64().unwrap_or_default(),
        ));
        for control in controls.iter().filter(|control| control["detected"] != true) {
            lines.push(format!("  not detected: {}", text(&control["name"])));
        }
        for finding in list(&outcome["findings"]) {
            let (what, again) = (text(&finding["what"]), text(&finding["reproduce"]));
            lines.push(format!("  failed: {what}\n  repeat: {again}"));
        }
        for reason in list(&outcome["skipped"]) {
            lines.push(format!("skipped: {check}: {}", text(&reason)));
            skipped += 1;
        }
    }
    (lines, skipped)
}

#[test]
fn what_was_skipped_is_counted_and_what_failed_is_told() {
    let record = serde_json::json!({ "outcomes": [{
        "check": "cuts", "unit": "power cuts", "attempted": 0, "acknowledged": 0, "lost": 1,
        "partial": 0, "anomalies": 0, "seconds": 1.0, "notes": [],
        "controls": [{ "name": "buffered", "detected": false, "how": "" }],
        "findings": [{ "what": "gone", "evidence": null, "reproduce": "again" }],
        "skipped": ["xfs: no mkfs.xfs"],
    }]});
    let (lines, skipped) = told(&record);
    assert_eq!(skipped, 1);
    let said = lines.join("\n");
    for part in ["1 lost", "0 of 1 controls", "not detected: buffered", "gone", "no mkfs.xfs"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}
