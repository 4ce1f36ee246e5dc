//! What a crate may use, be licensed under and leave unsaid.
//!
//! # Invariants
//! A crate uses only crates to its right:
//! `monolite-cli ─► monolite-bench, monolite-sim ─► monolite ─► monolite-sqlite`. The tests of
//! `monolite` also use `monolite-sim`, which exists for tests. The examples use
//! `monolite` alone, as a stranger's program would; `fuzz` may use all; nothing of ours is used by
//! `xtask`; and nobody uses `xtask`, `fuzz` or an example.

use anyhow::Context as _;

use super::Finding;
use super::tree::Tree;
use super::workspace::{Package, Workspace};

/// The crates that form the line, from left to right; those with one number stand side by side.
const LINE: [(&str, u8); 5] = [
    ("monolite-cli", 0),
    ("monolite-bench", 1),
    ("monolite-sim", 1),
    ("monolite", 2),
    ("monolite-sqlite", 3),
];

/// What must never be built into the engine, which runs under any runtime and opens no socket.
const RUNTIMES: [&str; 7] =
    ["async-io", "async-std", "futures-executor", "mio", "smol", "socket2", "tokio"];

/// Licences under which a dependency may be shipped in a closed program with an attribution.
const LICENSES: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// The page that gives the reason for every dependency.
const REASONS: &str = "docs/decisions/dependencies.md";

/// Checks arrows, runtimes, `unsafe`, licences and the reasons for dependencies.
pub(super) fn check(tree: &Tree, workspace: &Workspace) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in workspace.ours() {
        arrows(workspace, package, &mut findings);
        runtimes(package, &mut findings);
        unsafe_forbidden(tree, package, &mut findings);
    }
    for package in &workspace.packages {
        license(package, &mut findings);
    }
    reasons(tree, workspace, &mut findings)?;
    Ok(findings)
}

/// Where a crate stands; decides what it may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Line(u8),
    Example,
    Fuzz,
    Chore,
    Unknown,
}

fn place(package: &Package) -> Place {
    let manifest = package.manifest.as_deref().unwrap_or_default();
    if let Some((_, rank)) = LINE.iter().find(|(name, _)| *name == package.name) {
        return Place::Line(*rank);
    }
    match manifest.split('/').next() {
        Some("examples") => Place::Example,
        Some("fuzz") => Place::Fuzz,
        _ if package.name == "xtask" => Place::Chore,
        _ => Place::Unknown,
    }
}

fn allowed(from: Place, to: &Package) -> bool {
    match (from, place(to)) {
        (Place::Line(from), Place::Line(to)) => from < to,
        (Place::Example, Place::Line(_)) => to.name == "monolite",
        (Place::Fuzz, Place::Line(_)) => true,
        _ => false,
    }
}

fn arrows(workspace: &Workspace, package: &Package, findings: &mut Vec<Finding>) {
    let manifest = package.manifest.as_deref().unwrap_or_default();
    let from = place(package);
    if from == Place::Unknown {
        let message = format!("`{}` has no place in the line of crates; give it one", package.name);
        findings.push(Finding::new(manifest, 1, message));
    }
    let used = workspace.ours().filter(|other| package.direct.contains(&other.name));
    let is_for_tests = |other: &Package| {
        package.name == "monolite"
            && other.name == "monolite-sim"
            && package.tests_only.contains(&other.name)
    };
    for other in used.filter(|other| !allowed(from, other) && !is_for_tests(other)) {
        let message = format!("`{}` must not use `{}`", package.name, other.name);
        findings.push(Finding::new(manifest, 1, message));
    }
}

fn runtimes(package: &Package, findings: &mut Vec<Finding>) {
    if !["monolite", "monolite-sqlite"].contains(&package.name.as_str()) {
        return;
    }
    let manifest = package.manifest.as_deref().unwrap_or_default();
    for runtime in RUNTIMES.iter().filter(|name| package.shipped.contains(**name)) {
        let message = format!("`{}` must not be built with `{runtime}`", package.name);
        findings.push(Finding::new(manifest, 1, message));
    }
}

fn unsafe_forbidden(tree: &Tree, package: &Package, findings: &mut Vec<Finding>) {
    if package.name == "monolite-sqlite" {
        return;
    }
    for root in &package.roots {
        let forbids = |text: &str| text.lines().any(|line| line == "#![forbid(unsafe_code)]");
        if !tree.get(root).is_some_and(|file| forbids(&file.text)) {
            findings.push(Finding::new(root, 1, "say `#![forbid(unsafe_code)]`"));
        }
    }
}

fn license(package: &Package, findings: &mut Vec<Finding>) {
    let where_to = package.manifest.as_deref().unwrap_or("Cargo.lock");
    let who = format!("`{} {}`", package.name, package.version);
    match package.license.as_deref().map(is_allowed) {
        Some(Ok(true)) => {}
        Some(Ok(false)) => {
            let license = package.license.as_deref().unwrap_or_default();
            let message = format!("{who} is under `{license}`, which is not allowed here");
            findings.push(Finding::new(where_to, 1, message));
        }
        Some(Err(error)) => {
            let message = format!("{who} has a licence nobody can read: {error}");
            findings.push(Finding::new(where_to, 1, message));
        }
        None => findings.push(Finding::new(where_to, 1, format!("{who} names no licence"))),
    }
}

/// Whether an SPDX expression, also in the old form `MIT/Apache-2.0`, can be met.
fn is_allowed(expression: &str) -> Result<bool, spdx::error::ParseError> {
    let parsed = spdx::Expression::parse_mode(expression, spdx::ParseMode::LAX)?;
    Ok(parsed.evaluate(|wanted| wanted.license.id().is_some_and(|id| LICENSES.contains(&id.name))))
}

/// Every third-party dependency is declared once, in the root manifest, and has its reason.
fn reasons(tree: &Tree, workspace: &Workspace, out: &mut Vec<Finding>) -> anyhow::Result<()> {
    let root = tree.get("Cargo.toml").context("the root has a Cargo.toml")?;
    let manifest: toml::Table = root.text.parse().context("Cargo.toml")?;
    let declared = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(toml::Value::as_table)
        .context("Cargo.toml has no [workspace.dependencies]")?;
    let page = tree.get(REASONS).map_or("", |file| &file.text);
    let is_ours = |name: &str| workspace.ours().any(|package| package.name == name);
    let bought = declared.iter().filter(|(_, value)| value.get("path").is_none());
    for name in bought.map(|(name, _)| name) {
        if !page.contains(&format!("`{name}`")) {
            let message = format!("say why `{name}` is a dependency");
            out.push(Finding::new(REASONS, 1, message));
        }
    }
    for package in workspace.ours() {
        let elsewhere = |name: &&String| !declared.contains_key(*name) && !is_ours(name);
        for name in package.direct.iter().filter(elsewhere) {
            let path = package.manifest.as_deref().unwrap_or_default();
            let message = format!("declare `{name}` in the root's [workspace.dependencies]");
            out.push(Finding::new(path, 1, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
