//! Each rule about crates, in a small made-up workspace that breaks it.

use super::super::tree::Tree;
use super::super::workspace::{Package, Workspace};
use super::{check, engine as engine_crates};

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
    let workspace = Workspace { packages: packages.to_vec(), engine: ENGINE.into() };
    let found = check(&Tree::of(&files), &workspace).unwrap();
    found.iter().map(ToString::to_string).collect()
}

const ENGINE: &str = "monolite v0.1.0 (/m)\nserde v1.0.0\nserde v1.0.0 (*)\n";

const REASON: (&str, &str) = ("docs/decisions/dependencies.md", "`serde`");

const PICTURE: (&str, &str) = (
    "ARCHITECTURE.md",
    "monolite-cli     ─► monolite-bench, monolite-torture, monolite-server, monolite-client, \
     monolite, monolite-archive, monolite-ltx, monolite-sqlite, (monolite-testkit)\n\
     monolite-server  ─► monolite, monolite-archive, monolite-sqlite, (monolite-client)\n\
     monolite-client  ─► monolite\n\
     monolite-postgres ─► monolite, (monolite-testkit)\n\
     monolite-bench   ─► monolite-testkit, monolite, monolite-archive, monolite-client, \
     monolite-ltx\n\
     monolite-torture ─► monolite-testkit, monolite-server, monolite-client, monolite, \
     monolite-archive, monolite-sqlite\n\
     monolite-tests   ─► (monolite-testkit), (monolite)\n\
     monolite-testkit ─► monolite, monolite-sqlite\n\
     monolite         ─► monolite-sqlite\n\
     monolite-archive ─► monolite, monolite-ltx\n\
     monolite-ltx     ─► -\n\
     monolite-sqlite  ─► -\n\
     xtask            ─► -\n",
);

/// Findings in a tree that explains all its dependencies and draws its crates.
fn findings(packages: &[Package]) -> Vec<String> {
    findings_in(&[REASON, PICTURE], packages)
}

fn drawn() -> Vec<Package> {
    let mut engine = engine();
    engine.direct.push("serde".into());
    vec![
        command(),
        server(),
        of_crates("monolite-client", &["monolite"]),
        of_crates(
            "monolite-bench",
            &[
                "monolite-testkit",
                "monolite",
                "monolite-archive",
                "monolite-client",
                "monolite-ltx",
            ],
        ),
        on_postgres(),
        of_crates(
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
        tests_of_the_engine(),
        of_crates("monolite-testkit", &["monolite", "monolite-sqlite"]),
        engine,
        of_crates("monolite-archive", &["monolite", "monolite-ltx"]),
        of_crates("monolite-ltx", &[]),
        of_crates("monolite-sqlite", &[]),
        of_crates("xtask", &[]),
        ours("ledger", "examples/ledger/Cargo.toml", &["monolite"]),
    ]
}

/// One of the crates below `crates`, which uses these.
fn of_crates(name: &str, uses: &[&str]) -> Package {
    ours(name, &format!("crates/{name}/Cargo.toml"), uses)
}

fn engine() -> Package {
    of_crates("monolite", &["monolite-sqlite"])
}

/// The command, whose tests use a proxy.
fn command() -> Package {
    let mut command = of_crates(
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
            "monolite-testkit",
        ],
    );
    command.tests_only.push("monolite-testkit".into());
    command
}

/// The server, whose tests use the client.
fn server() -> Package {
    let uses = ["monolite", "monolite-archive", "monolite-sqlite", "monolite-client"];
    let mut server = of_crates("monolite-server", &uses);
    server.tests_only.push("monolite-client".into());
    server
}

/// The engine's tests, which are nothing else and so use all for tests alone.
fn tests_of_the_engine() -> Package {
    let mut tests = of_crates("monolite-tests", &["monolite-testkit", "monolite"]);
    tests.tests_only.clone_from(&tests.direct);
    tests
}

fn on_postgres() -> Package {
    let mut package = of_crates("monolite-postgres", &["monolite", "monolite-testkit"]);
    package.tests_only.push("monolite-testkit".into());
    package
}

/// All crates, with this engine in place of theirs.
fn with_engine(engine: &Package) -> Vec<Package> {
    let replaced =
        |package: Package| if package.name == engine.name { engine.clone() } else { package };
    drawn().into_iter().map(replaced).collect()
}

/// Findings after one crate was made to use another.
fn with_arrow(from: &str, to: &str) -> Vec<String> {
    let mut packages = drawn();
    let package = packages.iter_mut().find(|package| package.name == from).unwrap();
    package.direct.push(to.into());
    findings(&packages)
}

#[test]
fn the_arrows_as_drawn_are_fine() {
    assert_eq!(findings(&drawn()), Vec::<String>::new());
}

#[test]
fn what_only_the_tests_may_use_is_found_in_the_program() {
    let mut packages = drawn();
    let tests = packages.iter_mut().find(|package| package.name == "monolite-tests").unwrap();
    tests.tests_only.retain(|name| name == "monolite");
    let found = findings(&packages);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`monolite-tests` must not use `monolite-testkit`"), "{found:?}");
}

#[test]
fn an_arrow_that_nobody_uses_or_draws_is_found() {
    let mut packages = drawn();
    let bench = packages.iter_mut().find(|package| package.name == "monolite-bench").unwrap();
    bench.direct.retain(|used| used != "monolite");
    let found = findings(&packages);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`monolite-bench` does not use `monolite`"), "{found:?}");
    let picture = PICTURE.1.replace("testkit ─► monolite, monolite-sqlite", "testkit ─► monolite");
    let found = findings_in(&[REASON, (PICTURE.0, &picture)], &drawn());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("draw `monolite-testkit ─► monolite, monolite-sqlite`"), "{found:?}");
}

#[test]
fn an_arrow_that_turns_round_is_found() {
    for (from, to) in [
        ("monolite-sqlite", "monolite"),
        ("monolite", "monolite-bench"),
        ("monolite-bench", "monolite-torture"),
        ("monolite-testkit", "monolite-torture"),
        ("monolite", "monolite-torture"),
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
    assert!(found[0].contains("has no arrows"), "{found:?}");
}

#[test]
fn a_runtime_in_the_engine_is_found_however_deep() {
    let mut engine = engine();
    engine.shipped.insert("tokio".into());
    assert!(findings(&with_engine(&engine))[0].contains("must not be built with `tokio`"));
    let mut example = ours("ledger", "examples/ledger/Cargo.toml", &["monolite"]);
    example.shipped.insert("tokio".into());
    assert_eq!(findings(&[example]), Vec::<String>::new());
}

#[test]
fn a_crate_that_does_not_forbid_unsafe_is_found() {
    let root = "crates/monolite/src/lib.rs";
    let mut engine = engine();
    engine.roots.push(root.into());
    let found = findings_in(&[REASON, PICTURE, (root, "//! Owns.\n")], &with_engine(&engine));
    assert!(found[0].contains("say `#![forbid(unsafe_code)]`"), "{found:?}");
    let in_words = "//! Owns.\n// #![forbid(unsafe_code)]\n";
    assert_eq!(findings_in(&[REASON, PICTURE, (root, in_words)], &with_engine(&engine)).len(), 1);
    assert_eq!(
        findings_in(&[REASON, PICTURE, (root, FORBID)], &with_engine(&engine)),
        Vec::<String>::new()
    );
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
    let mut engine = engine();
    engine.direct.push("rand".into());
    let found = findings(&with_engine(&engine));
    assert!(found[0].contains("declare `rand` in the root's"), "{found:?}");
}

#[test]
fn the_engine_is_built_of_a_bounded_number_of_crates() {
    let found = |tree: &str| {
        let mut findings = Vec::new();
        engine_crates(tree, &mut findings);
        findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let others = |count: usize| (0..count).map(|it| format!("c{it} v1.0.0\n")).collect::<String>();
    assert_eq!(found(ENGINE), [""; 0]);
    assert_eq!(found(&format!("{ENGINE}{}", others(38))), [""; 0]);
    let many = found(&format!("{ENGINE}{}", others(39)));
    assert!(many[0].contains("is built of 41 crates"), "{many:?}");
    assert_eq!(found("").len(), 1, "nothing is known of it");
}
