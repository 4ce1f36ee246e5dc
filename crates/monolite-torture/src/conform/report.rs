//! Owns what is told of a run: figures for each path, and what differed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::differences::{self, LIST, Observation};
use super::lockstep::Outcome;
use super::path::Path;
use super::script::Script;

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Scripts that were read.
    pub files: usize,
    /// Statements in them.
    pub statements: usize,
    /// A line for each path.
    pub paths: Vec<PathReport>,
    /// What differed and is not on the list.
    pub differences: Vec<Difference>,
    /// Scripts that were left before their end, because too much differed.
    pub left: Vec<Left>,
    /// The list of differences by design, and how often each was met.
    pub listed: Vec<Used>,
    /// Whether the user ended it early.
    pub is_stopped: bool,
}

/// The figures of a path.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Its name.
    pub path: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Statements that were run and compared.
    pub run: u64,
    /// Statements for which it has no counterpart.
    pub skipped: u64,
    /// Answers that differed and are not on the list.
    pub differing: u64,
    /// Answers that differed by design.
    pub excused: u64,
}

/// A statement to which Monolite says something else than plain SQLite.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// The script.
    pub file: String,
    /// The line of the statement.
    pub line: usize,
    /// The statement.
    pub statement: String,
    /// What plain SQLite said.
    pub sqlite: String,
    /// What Monolite said.
    pub monolite: String,
    /// The paths on which it said so.
    pub paths: Vec<&'static str>,
}

/// A script that was left before its end.
#[derive(Clone, Debug, Serialize)]
pub struct Left {
    /// The script.
    pub file: String,
    /// The line of the last transaction that was compared.
    pub line: usize,
    /// The path.
    pub path: &'static str,
}

/// A difference by design, and how often it was met.
#[derive(Clone, Debug, Serialize)]
pub struct Used {
    /// Its name.
    pub id: &'static str,
    /// Statements on all paths.
    pub times: u64,
}

impl Report {
    pub(crate) fn new(scripts: &[Arc<Script>], paths: &[&'static Path]) -> Report {
        let figures = |path: &&'static Path| PathReport {
            path: path.name,
            about: path.about,
            run: 0,
            skipped: 0,
            differing: 0,
            excused: 0,
        };
        Report {
            files: scripts.len(),
            statements: scripts.iter().map(|script| script.statements.len()).sum(),
            paths: paths.iter().map(figures).collect(),
            differences: Vec::new(),
            left: Vec::new(),
            listed: LIST.iter().map(|entry| Used { id: entry.id, times: 0 }).collect(),
            is_stopped: false,
        }
    }

    /// Whether nothing differed beyond the list.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty()
    }

    pub(crate) fn add(&mut self, script: &Script, path: &'static Path, outcome: Outcome) {
        if let Some(line) = outcome.left_at {
            self.left.push(Left { file: script.name.clone(), line, path: path.name });
        }
        if let Some(figures) = self.paths.iter_mut().find(|figures| figures.path == path.name) {
            figures.run += outcome.run;
            figures.skipped += outcome.skipped;
            figures.excused += outcome.excused;
            figures.differing += outcome.found.len() as u64;
        }
        for (id, times) in &outcome.used {
            self.count(id, *times);
        }
        for found in outcome.found {
            self.differences.push(Difference {
                file: script.name.clone(),
                line: found.line,
                statement: found.sql,
                sqlite: found.plain,
                monolite: found.ours,
                paths: vec![path.name],
            });
        }
    }

    fn count(&mut self, id: &str, times: u64) {
        if let Some(used) = self.listed.iter_mut().find(|used| used.id == id) {
            used.times += times;
        }
    }

    pub(crate) fn saw(&mut self, observations: &[Observation]) {
        for entry in observations.iter().filter_map(|it| differences::observed(*it)) {
            self.count(entry.id, 1);
        }
    }

    /// Puts what is the same on several paths together, in the order of the files.
    pub(crate) fn finish(&mut self) {
        let mut merged: BTreeMap<_, Difference> = BTreeMap::new();
        for one in std::mem::take(&mut self.differences) {
            let key = (one.file.clone(), one.line, one.statement.clone(), one.monolite.clone());
            let paths = one.paths.clone();
            match merged.entry(key) {
                std::collections::btree_map::Entry::Vacant(empty) => {
                    empty.insert(one);
                }
                std::collections::btree_map::Entry::Occupied(mut known) => {
                    known.get_mut().paths.extend(paths);
                }
            }
        }
        self.differences = merged.into_values().collect();
    }
}
