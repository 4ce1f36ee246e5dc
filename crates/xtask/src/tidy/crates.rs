//! What a crate may use, be licensed under and leave unsaid.
//!
//! # Invariants
//! A crate of `crates` uses those of ours that [`ARROWS`] gives it, and no others. The examples use
//! [`EXAMPLES`] alone, as a stranger's program would; nothing of ours is used by `xtask`; and no
//! crate uses `xtask` or an example. The page [`PICTURE`] draws the same arrows.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::Finding;
use super::tree::Tree;
use super::workspace::{Package, Workspace};

/// What each crate of ours uses of ours. A new crate gets a line.
const ARROWS: [(&str, &[&str]); 13] = [
    (
        "monolite-cli",
        &[
            "monolite-bench",
            "monolite-torture",
            "monolite-server",
            "monolite-client",
            "monolite",
            "monolite-archive",
            "monolite-ltx",
            "monolite-sqlite",
        ],
    ),
    ("monolite-server", &["monolite", "monolite-archive", "monolite-sqlite"]),
    ("monolite-client", &["monolite"]),
    ("monolite-postgres", &["monolite"]),
    (
        "monolite-bench",
        &["monolite-testkit", "monolite", "monolite-archive", "monolite-client", "monolite-ltx"],
    ),
    (
        "monolite-torture",
        &[
            "monolite-testkit",
            "monolite-server",
            "monolite-client",
            "monolite",
            "monolite-archive",
            "monolite-sqlite",
        ],
    ),
    ("monolite-testkit", &["monolite", "monolite-sqlite"]),
    ("monolite-tests", &[]),
    ("monolite", &["monolite-sqlite"]),
    ("monolite-sqlite", &[]),
    ("monolite-archive", &["monolite", "monolite-ltx"]),
    ("monolite-ltx", &[]),
    ("xtask", &[]),
];

/// What the examples may use.
const EXAMPLES: [&str; 3] = ["monolite", "monolite-archive", "monolite-postgres"];

/// What the tests of a crate use besides.
const TEST_ARROWS: [(&str, &[&str]); 5] = [
    ("monolite-cli", &["monolite-testkit"]),
    ("ledger", &["monolite-testkit"]),
    ("monolite-postgres", &["monolite-testkit"]),
    ("monolite-tests", &["monolite-testkit", "monolite"]),
    ("monolite-server", &["monolite-client"]),
];

/// The page that draws the arrows, a line for each crate.
const PICTURE: &str = "ARCHITECTURE.md";

/// What must never be built into the engine, which runs under any runtime and opens no socket.
const RUNTIMES: [&str; 7] =
    ["async-io", "async-std", "futures-executor", "mio", "smol", "socket2", "tokio"];

/// The crate that applications embed, and how many crates it may be built of without its features,
/// those that only build something included: what each of its users waits for and has to trust.
const ENGINE: (&str, usize) = ("monolite", 40);

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

/// Checks arrows, runtimes, `unsafe`, licences, and the dependencies: their reasons and number.
pub(super) fn check(tree: &Tree, workspace: &Workspace) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in workspace.ours() {
        arrows(tree, workspace, package, &mut findings);
        runtimes(package, &mut findings);
        unsafe_forbidden(tree, package, &mut findings);
    }
    for package in &workspace.packages {
        license(package, &mut findings);
    }
    reasons(tree, workspace, &mut findings)?;
    engine(&workspace.engine, &mut findings);
    Ok(findings)
}

/// What `package` may use of ours; `None` when [`ARROWS`] has no entry.
fn allowed(package: &Package) -> Option<&'static [&'static str]> {
    let manifest = package.manifest.as_deref().unwrap_or_default();
    if manifest.starts_with("examples/") {
        return Some(&EXAMPLES);
    }
    of_crate(&ARROWS, &package.name)
}

fn of_crate(
    arrows: &[(&str, &'static [&'static str])],
    name: &str,
) -> Option<&'static [&'static str]> {
    arrows.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

fn arrows(tree: &Tree, workspace: &Workspace, package: &Package, findings: &mut Vec<Finding>) {
    let manifest = package.manifest.as_deref().unwrap_or_default();
    let name = &package.name;
    let Some(allowed) = allowed(package) else {
        let message = format!("`{name}` has no arrows; give it a line in the list of them");
        return findings.push(Finding::new(manifest, 1, message));
    };
    let in_tests = of_crate(&TEST_ARROWS, name).unwrap_or_default();
    for other in workspace.ours().filter(|other| package.direct.contains(&other.name)) {
        let is_for_tests = package.tests_only.contains(&other.name);
        let is_drawn = |arrows: &[&str]| arrows.contains(&other.name.as_str());
        if !(is_drawn(allowed) || is_for_tests && is_drawn(in_tests)) {
            let message = format!("`{name}` must not use `{}`", other.name);
            findings.push(Finding::new(manifest, 1, message));
        }
    }
    // Each example uses of theirs what it shows.
    let is_used = |to: &&&str| {
        manifest.starts_with("examples/") || package.direct.iter().any(|used| used == **to)
    };
    for to in allowed.iter().chain(in_tests).filter(|to| !is_used(to)) {
        let message = format!("`{name}` does not use `{to}`; take the arrow out of the list");
        findings.push(Finding::new(manifest, 1, message));
    }
    picture(tree, name, findings);
}

/// Checks that the page draws what the list says of a crate.
fn picture(tree: &Tree, name: &str, findings: &mut Vec<Finding>) {
    let Some(to) = of_crate(&ARROWS, name) else { return };
    let in_tests = of_crate(&TEST_ARROWS, name).unwrap_or_default();
    let mut drawn: Vec<String> = to.iter().map(ToString::to_string).collect();
    drawn.extend(in_tests.iter().map(|to| format!("({to})")));
    let line =
        format!("{name} ─► {}", if drawn.is_empty() { "-".into() } else { drawn.join(", ") });
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = tree.get(PICTURE).map_or("", |file| &file.text);
    if !page.lines().any(|of_page| words(of_page) == line) {
        findings.push(Finding::new(PICTURE, 1, format!("draw `{line}`")));
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

/// Checks how many crates the engine is built of, given what `cargo tree` says.
fn engine(tree: &str, findings: &mut Vec<Finding>) {
    let (name, most) = ENGINE;
    let crates: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|it| !it.is_empty())
        .collect();
    if !crates.iter().any(|line| line.starts_with(&format!("{name} v"))) || crates.len() > most {
        let message = format!(
            "`{name}` is built of {} crates without its features, and may be of {most}",
            crates.len()
        );
        findings.push(Finding::new("crates/monolite/Cargo.toml", 1, message));
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
            let message = format!("{who} has a licence expression that cannot be parsed: {error}");
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
