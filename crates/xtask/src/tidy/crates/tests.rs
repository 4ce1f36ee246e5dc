//! Each rule about crates, in a small made-up workspace that breaks it.

use super::super::tree::Tree;
use super::super::workspace::{Package, Workspace};
use super::check;

const ROOT: &str = "[workspace.dependencies]\nmonolite = { path = \"x\" }\nserde = \"1\"\n";
const FORBID: &str = "//! Owns.\n#![forbid(unsafe_code)]\n";

fn ours(name: &str, manifest: &str, direct: &[&str]) -> Package {
    Package {
        name: name.into(),
        version: "0.1.0".into(),
        license: Some("MIT OR Apache-2.0".into()),
        manifest: Some(manifest.into()),
        direct: direct.iter().map(|name| (*name).into()).collect(),
        ..Package::default()
    }
}

fn theirs(name: &str, license: Option<&str>) -> Package {
    Package { name: name.into(), license: license.map(Into::into), ..Package::default() }
}

fn findings_in(files: &[(&str, &str)], packages: &[Package]) -> Vec<String> {
    let mut files = files.to_vec();
    files.push(("Cargo.toml", ROOT));
    let workspace = Workspace { packages: packages.to_vec() };
    let found = check(&Tree::of(&files), &workspace).unwrap();
    found.iter().map(ToString::to_string).collect()
}

/// Findings in a tree that explains all its dependencies.
fn findings(packages: &[Package]) -> Vec<String> {
    findings_in(&[("docs/decisions/dependencies.md", "`serde`")], packages)
}

fn line() -> Vec<Package> {
    vec![
        ours("monolite-cli", "crates/monolite-cli/Cargo.toml", &["monolite-bench"]),
        ours("monolite-bench", "crates/monolite-bench/Cargo.toml", &["monolite"]),
        ours("monolite-sim", "crates/monolite-sim/Cargo.toml", &["monolite", "monolite-sqlite"]),
        ours("monolite", "crates/monolite/Cargo.toml", &["monolite-sqlite", "serde"]),
        ours("monolite-sqlite", "crates/monolite-sqlite/Cargo.toml", &[]),
        ours("xtask", "crates/xtask/Cargo.toml", &[]),
        ours("ledger", "examples/ledger/Cargo.toml", &["monolite"]),
    ]
}

/// Findings after one crate of the line was made to use another.
fn with_arrow(from: &str, to: &str) -> Vec<String> {
    let mut packages = line();
    let package = packages.iter_mut().find(|package| package.name == from).unwrap();
    package.direct.push(to.into());
    findings(&packages)
}

#[test]
fn the_line_as_drawn_is_fine() {
    assert_eq!(findings(&line()), Vec::<String>::new());
}

#[test]
fn the_engines_tests_may_use_the_simulator() {
    let mut packages = line();
    let engine = packages.iter_mut().find(|package| package.name == "monolite").unwrap();
    engine.direct.push("monolite-sim".into());
    engine.tests_only.push("monolite-sim".into());
    assert_eq!(findings(&packages), Vec::<String>::new());
}

#[test]
fn an_arrow_that_turns_round_is_found() {
    for (from, to) in [
        ("monolite-sqlite", "monolite"),
        ("monolite", "monolite-bench"),
        ("monolite", "monolite-sim"),
        ("monolite-bench", "monolite-sim"),
        ("monolite-bench", "monolite-cli"),
        ("monolite", "xtask"),
        ("monolite-bench", "ledger"),
        ("xtask", "monolite"),
        ("ledger", "monolite-sqlite"),
        ("ledger", "monolite-bench"),
    ] {
        let found = with_arrow(from, to);
        assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
        assert!(found[0].contains(&format!("`{from}` must not use `{to}`")), "{found:?}");
    }
}

#[test]
fn a_crate_without_a_place_is_found() {
    let found = findings(&[ours("monolite-new", "crates/monolite-new/Cargo.toml", &[])]);
    assert!(found[0].contains("has no place in the line"), "{found:?}");
}

#[test]
fn a_runtime_in_the_engine_is_found_however_deep() {
    let mut engine = ours("monolite", "crates/monolite/Cargo.toml", &[]);
    engine.shipped.insert("tokio".into());
    assert!(findings(&[engine])[0].contains("must not be built with `tokio`"));
    let mut example = ours("ledger", "examples/ledger/Cargo.toml", &[]);
    example.shipped.insert("tokio".into());
    assert_eq!(findings(&[example]), Vec::<String>::new());
}

#[test]
fn a_crate_that_does_not_forbid_unsafe_is_found() {
    let root = "crates/monolite/src/lib.rs";
    let page = ("docs/decisions/dependencies.md", "`serde`");
    let mut engine = ours("monolite", "crates/monolite/Cargo.toml", &[]);
    engine.roots.push(root.into());
    let found = findings_in(&[page, (root, "//! Owns.\n")], &[engine.clone()]);
    assert!(found[0].contains("say `#![forbid(unsafe_code)]`"), "{found:?}");
    let in_words = "//! Owns.\n// #![forbid(unsafe_code)]\n";
    assert_eq!(findings_in(&[page, (root, in_words)], &[engine.clone()]).len(), 1);
    assert_eq!(findings_in(&[page, (root, FORBID)], &[engine]), Vec::<String>::new());
}

#[test]
fn licences_outside_the_list_are_found() {
    for bad in ["GPL-3.0-only", "MIT AND GPL-2.0-only", "MPL-2.0", "AGPL-3.0-only", "no idea"] {
        let found = findings(&[theirs("x", Some(bad))]);
        assert_eq!(found.len(), 1, "{bad}");
    }
    assert!(findings(&[theirs("x", None)])[0].contains("names no licence"));
}

#[test]
fn permissive_licences_are_fine() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-2.0-only OR MIT",
        "Apache-2.0 WITH LLVM-exception OR MIT",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Unlicense OR MIT",
        "Zlib",
    ] {
        assert_eq!(findings(&[theirs("x", Some(good))]), Vec::<String>::new(), "{good}");
    }
}

#[test]
fn a_dependency_without_a_reason_or_declared_elsewhere_is_found() {
    let found = findings_in(&[], &[]);
    assert!(found.iter().any(|it| it.contains("say why `serde`")), "{found:?}");
    let found = findings(&[ours("monolite", "crates/monolite/Cargo.toml", &["rand"])]);
    assert!(found[0].contains("declare `rand` in the root's"), "{found:?}");
}
