//! Which modules of a crate use which, that no two use each other, directly or in a circle, and
//! that no file is left out of its crate.
//!
//! # Algorithm
//! A file is a module, and its path in the crate is its name. A path in its code that begins with
//! `crate` or `super` names another one; where the two paths part, the one sibling uses the other.
//! The siblings of each module form a graph of their own, so a circle within a room is told from
//! one between rooms. What a parent and its children have of each other does not count, nor what
//! tests use.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;

/// Names of modules from the crate's root down.
type Path = Vec<String>;

/// Who uses whom, among the modules of one parent, and where that is said.
type Graph<'t> = BTreeMap<&'t str, BTreeMap<&'t str, (&'t str, usize)>>;

/// Finds files that no module names, so that they are not compiled.
pub(super) fn unnamed(tree: &Tree) -> Vec<Finding> {
    let is_module = |path: &str| {
        let inside = path.strip_prefix("crates/").and_then(|path| path.split_once('/'));
        inside.is_some_and(|(_, path)| path.starts_with("src/") || path.starts_with("tests/it/"))
    };
    let files = tree.rust().filter(|file| is_module(&file.path));
    let finding = |path: &str| {
        let (folder, file) = path.rsplit_once('/')?;
        let (folder, name) = match file.strip_suffix(".rs")? {
            "lib" | "main" => return None,
            "mod" => folder.rsplit_once('/')?,
            name => (folder, name),
        };
        let parents = ["lib.rs", "main.rs", "mod.rs"].map(|file| format!("{folder}/{file}"));
        let line = format!("mod {name};");
        let names = |parent: &str| {
            let parent = tree.get(parent);
            parent.is_some_and(|file| file.text.lines().any(|it| it.trim().ends_with(&line)))
        };
        let is_named = parents.iter().any(|parent| names(parent)) || names(&format!("{folder}.rs"));
        let message = format!("no module names this file; add `{line}` above it, or delete it");
        (!is_named).then(|| Finding::new(path, 1, message))
    };
    files.filter_map(|file| finding(&file.path)).collect()
}

/// Finds circles of modules in each crate below `crates`.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(Path, &str, &str)>> = BTreeMap::new();
    for file in tree.files().iter().filter(|file| file.is_rust() && !file.is_test()) {
        let Some((name, inside)) = place(&file.path) else { continue };
        crates.entry(name).or_default().push((module(inside), &file.path, &file.text));
    }
    crates.values().flat_map(|files| circles(files)).collect()
}

/// The crate of a source file, and its path in the crate.
fn place(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once("/src/")
}

fn module(inside: &str) -> Path {
    let mut path: Path = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

fn circles(files: &[(Path, &str, &str)]) -> Vec<Finding> {
    let modules: BTreeSet<&[String]> = files.iter().map(|(path, ..)| path.as_slice()).collect();
    let uses: Vec<(&Path, Path, &str, usize)> = files
        .iter()
        .flat_map(|(from, file, text)| {
            let named = named(text).into_iter();
            named.filter_map(move |(line, path)| Some((from, resolve(from, &path)?, *file, line)))
        })
        .collect();
    let mut graphs: BTreeMap<&[String], Graph<'_>> = BTreeMap::new();
    for (from, to, file, line) in &uses {
        let parted = from.iter().zip(to).take_while(|(one, other)| one == other).count();
        let is_module = |path: &[String]| modules.iter().any(|known| known.starts_with(path));
        if parted < from.len() && parted < to.len() && is_module(&to[..=parted]) {
            let graph = graphs.entry(&from[..parted]).or_default();
            let of = graph.entry(&from[parted]).or_default();
            of.entry(&to[parted]).or_insert((file, *line));
        }
    }
    graphs.values().filter_map(circle).collect()
}

/// The paths that the code of a file names, with their lines.
fn named(text: &str) -> Vec<(usize, Path)> {
    let mut found = Vec::new();
    // Whether a group of imports is open, and what stands before it.
    let mut group: Option<Path> = None;
    for (number, line) in code(text) {
        let words = |text: &str| -> Path {
            let path = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next();
            let parts = path.unwrap_or_default().split("::");
            parts.take_while(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        if let Some(before) = &group {
            for item in line.split(['{', '}', ',']).map(str::trim).filter(|item| !item.is_empty()) {
                found.push((number, [before.clone(), words(item)].concat()));
            }
            if line.contains("};") {
                group = None;
            }
            continue;
        }
        for root in ["crate::", "super::"] {
            for (at, _) in line.match_indices(root) {
                let rest = &line[at..];
                if line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let path = words(rest);
                let end = rest.find('{').filter(|_| line.trim_start().contains("use "));
                match end {
                    None => found.push((number, path)),
                    Some(open) => {
                        for item in rest[open..].split(['{', '}', ',', ';']).map(str::trim) {
                            found.push((number, [path.clone(), words(item)].concat()));
                        }
                        group = (!rest.contains('}')).then_some(path);
                    }
                }
            }
        }
    }
    found
}

/// Lines with code that is no test's, as `rustfmt` writes it.
fn code(text: &str) -> Vec<(usize, &str)> {
    let mut lines = text.lines().zip(1..).map(|(line, number)| (number, line));
    let mut found = Vec::new();
    while let Some((number, line)) = lines.next() {
        if line.trim_start().starts_with("//") {
            continue;
        }
        if line.trim() != "#[cfg(test)]" {
            found.push((number, line));
            continue;
        }
        // The item, up to its end at the same indentation.
        let indent = line.len() - line.trim_start().len();
        for (_, item) in lines.by_ref() {
            let is_at_level = item.len() - item.trim_start().len() == indent;
            if is_at_level && (item.ends_with(';') || item.trim_start().starts_with('}')) {
                break;
            }
        }
    }
    found
}

/// What `path`, as the module `from` says it, names from the crate's root on.
fn resolve(from: &[String], path: &[String]) -> Option<Path> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path.first().map(String::as_str) {
        Some("crate") => Some(path[1..].to_vec()),
        Some("super") => {
            let base = from.get(..from.len().checked_sub(ups)?)?;
            Some([base, &path[ups..]].concat())
        }
        _ => None,
    }
}

/// The shortest circle of a graph, named where its first arrow is.
fn circle(graph: &Graph<'_>) -> Option<Finding> {
    let shortest = graph.keys().filter_map(|start| around(graph, start));
    let circle = shortest.min_by_key(Vec::len)?;
    let (path, line) = graph[circle[0]][circle[1]];
    let message = format!("modules use each other in a circle: {}", circle.join(" ─► "));
    Some(Finding::new(path, line, message))
}

/// The shortest way from `start` back to it.
fn around<'t>(graph: &Graph<'t>, start: &'t str) -> Option<Vec<&'t str>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut next = Vec::new();
        for way in ways {
            let Some(used) = way.last().and_then(|last| graph.get(last)) else { continue };
            for &to in used.keys() {
                let longer: Vec<_> = way.iter().copied().chain([to]).collect();
                if to == start {
                    return Some(longer);
                }
                if seen.insert(to) {
                    next.push(longer);
                }
            }
        }
        ways = next;
    }
    None
}

#[cfg(test)]
mod tests;
