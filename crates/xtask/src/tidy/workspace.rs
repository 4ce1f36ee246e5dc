//! What `cargo metadata` says about our crates and everything below them, cut down to what the
//! checks ask.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId, TargetKind};

use crate::command::cargo_path;

/// A package of the resolved graph.
#[derive(Debug, Default, Clone)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) license: Option<String>,
    /// The path of the manifest below the root; `None` for a package that is not ours.
    pub(super) manifest: Option<String>,
    /// Names of everything it asks for directly, of every kind.
    pub(super) direct: Vec<String>,
    /// Those of `direct` that only its tests, examples and benchmarks ask for.
    pub(super) tests_only: Vec<String>,
    /// Names of everything built into it, without what only its tests need.
    pub(super) shipped: HashSet<String>,
    /// Source files of its libraries, programs and examples, below the root; empty if not ours.
    pub(super) roots: Vec<String>,
}

/// All packages of the lock file.
pub(super) struct Workspace {
    pub(super) packages: Vec<Package>,
    /// What `cargo tree` says that the engine is built of without its features, a line a crate.
    pub(super) engine: String,
}

impl Workspace {
    /// Asks cargo.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let manifest = root.join("Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(&manifest)
            .exec()
            .context("cargo metadata failed")?;
        let graph = shipped_edges(&metadata)?;
        let packages =
            metadata.packages.iter().map(|package| outline(&metadata, &graph, package)).collect();
        Ok(Workspace { packages, engine: engine_tree(&manifest)? })
    }

    /// The crates of this repository.
    pub(super) fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.manifest.is_some())
    }
}

fn engine_tree(manifest: &Path) -> anyhow::Result<String> {
    let mut cargo = Command::new(cargo_path());
    cargo.args(["tree", "--package", "monolite", "--edges", "normal,build"]);
    cargo.args(["--no-default-features", "--prefix", "none", "--manifest-path"]).arg(manifest);
    let output = cargo.stdin(Stdio::null()).output().context("cannot start cargo tree")?;
    anyhow::ensure!(output.status.success(), "cargo tree ended with {}", output.status);
    String::from_utf8(output.stdout).context("cargo tree")
}

type Graph<'a> = HashMap<&'a PackageId, Vec<&'a PackageId>>;

/// Who needs whom to be built, leaving out what only tests need.
fn shipped_edges(metadata: &Metadata) -> anyhow::Result<Graph<'_>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let mut graph = Graph::new();
    for node in &resolve.nodes {
        let shipped = node.deps.iter().filter(|dep| {
            dep.dep_kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        });
        graph.insert(&node.id, shipped.map(|dep| &dep.pkg).collect());
    }
    Ok(graph)
}

fn outline(metadata: &Metadata, graph: &Graph<'_>, package: &cargo_metadata::Package) -> Package {
    let ours = metadata.workspace_members.contains(&package.id);
    let below = |path: &cargo_metadata::camino::Utf8Path| {
        path.strip_prefix(&metadata.workspace_root).unwrap_or(path).to_string()
    };
    let crate_root = |kinds: &[TargetKind]| {
        kinds
            .iter()
            .any(|kind| matches!(kind, TargetKind::Lib | TargetKind::Bin | TargetKind::Example))
    };
    let targets = package.targets.iter().filter(|target| ours && crate_root(&target.kind));
    Package {
        name: package.name.to_string(),
        version: package.version.to_string(),
        license: package.license.clone(),
        manifest: ours.then(|| below(&package.manifest_path)),
        direct: package.dependencies.iter().map(|dep| dep.name.clone()).collect(),
        tests_only: tests_only(package),
        shipped: reach(metadata, graph, &package.id),
        roots: targets.map(|target| below(&target.src_path)).collect(),
    }
}

fn tests_only(package: &cargo_metadata::Package) -> Vec<String> {
    let is_for_tests = |dep: &&cargo_metadata::Dependency| dep.kind == DependencyKind::Development;
    package.dependencies.iter().filter(is_for_tests).map(|dep| dep.name.clone()).collect()
}

/// Names of all packages that can be reached from `start`, itself left out.
fn reach(metadata: &Metadata, graph: &Graph<'_>, start: &PackageId) -> HashSet<String> {
    if !metadata.workspace_members.contains(start) {
        return HashSet::new();
    }
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        for next in graph.get(id).into_iter().flatten() {
            if seen.insert(*next) {
                open.push(next);
            }
        }
    }
    let known = metadata.packages.iter().filter(|package| seen.contains(&package.id));
    known.map(|package| package.name.to_string()).collect()
}
