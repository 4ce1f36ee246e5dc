//! The record of several suites: one file, kept after each of them.
//!
//! # Format
//! `DIR/unfinished-all.json` while there are suites ahead, `DIR/latest-all.json` afterwards; each
//! is written beside its place and renamed, so that a run that is killed leaves the one before.

use super::record::Record;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Version of the layout.
pub const VERSION: u32 = 1;

/// Name of the record while there are suites ahead.
const UNFINISHED: &str = "unfinished-all.json";

/// Name of the finished one.
const FINISHED: &str = "latest-all.json";

/// Records of several suites, measured by one command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// [`VERSION`] of the program that wrote it.
    pub collection_version: u32,
    /// Day on which it was begun, UTC.
    pub date: String,
    /// The command that repeats the run.
    pub command: String,
    /// What must be the same for a run to be gone on with.
    pub settings: Settings,
    /// Time that the suites took.
    pub seconds: f64,
    /// Times that it was gone on with.
    pub interruptions: u32,
    /// Suites that are to be run yet.
    pub ahead: Vec<String>,
    /// What there is.
    pub records: Vec<Record>,
}

/// What must be the same for a run to be gone on with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of this program.
    pub monolite: String,
    /// Version of the bundled SQLite.
    pub sqlite: String,
    /// How much of each suite is run at most.
    pub depth: String,
    /// Time for all of them.
    pub budget_seconds: u64,
    /// Whether PostgreSQL takes part.
    pub postgres: bool,
    /// Optional drivers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
}

impl Settings {
    /// Says what differs first, if anything does.
    pub fn difference(&self, other: &Settings) -> Option<String> {
        let pairs = [
            ("version", self.monolite.clone(), other.monolite.clone()),
            ("SQLite", self.sqlite.clone(), other.sqlite.clone()),
            ("depth", self.depth.clone(), other.depth.clone()),
            ("budget in s", self.budget_seconds.to_string(), other.budget_seconds.to_string()),
            ("PostgreSQL", self.postgres.to_string(), other.postgres.to_string()),
            ("--with", self.drivers.join(","), other.drivers.join(",")),
        ];
        let differing = pairs.into_iter().find(|(_, one, other)| one != other);
        differing.map(|(what, one, other)| format!("{what} {one}, not {other}"))
    }
}

impl Collection {
    /// Whether a suite is in it.
    pub fn has(&self, suite: &str) -> bool {
        self.records.iter().any(|record| record.suite == suite)
    }

    /// Returns the record in `dir` that has suites ahead, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or another version of this program wrote it.
    pub fn unfinished(dir: &Path) -> Result<Option<Collection>> {
        let path = dir.join(UNFINISHED);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let found = Collection::parse(&text).with_context(|| {
            format!("{} cannot be gone on with; begin anew with --fresh", path.display())
        })?;
        Ok(Some(found))
    }

    /// Reads a collection.
    ///
    /// # Errors
    /// When the text is not one of this version.
    pub fn parse(text: &str) -> Result<Collection> {
        let found: Collection = serde_json::from_str(text)?;
        ensure!(
            found.collection_version == VERSION,
            "it is of version {}, not {VERSION}",
            found.collection_version
        );
        Ok(found)
    }

    /// Writes it into `dir`, and returns the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, dir: &Path) -> Result<PathBuf> {
        let unfinished = dir.join(UNFINISHED);
        let target = if self.ahead.is_empty() { dir.join(FINISHED) } else { unfinished.clone() };
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let beside = target.with_extension("json.new");
        fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
        fs::rename(&beside, &target)
            .with_context(|| format!("cannot write {}", target.display()))?;
        if self.ahead.is_empty() && unfinished.exists() {
            fs::remove_file(&unfinished).context("cannot remove the unfinished record")?;
        }
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;

    #[test]
    fn a_record_is_unfinished_until_no_suite_is_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = Collection {
            collection_version: VERSION,
            date: "2026-11-24".into(),
            command: "monolite bench all".into(),
            settings: Settings::default(),
            seconds: 1.5,
            interruptions: 0,
            ahead: vec!["kv".into()],
            records: vec![golden_record()],
        };
        assert!(Collection::unfinished(dir.path()).unwrap().is_none());
        collection.keep(dir.path()).unwrap();
        assert_eq!(Collection::unfinished(dir.path()).unwrap().as_ref(), Some(&collection));
        assert!(collection.has("tps") && !collection.has("kv"));
        collection.ahead.clear();
        let kept = collection.keep(dir.path()).unwrap();
        assert!(kept.ends_with(FINISHED) && kept.exists());
        assert!(Collection::unfinished(dir.path()).unwrap().is_none());
        let text = fs::read_to_string(kept).unwrap();
        assert_eq!(Collection::parse(&text).unwrap(), collection);
        let newer = text.replace("\"collection_version\": 1", "\"collection_version\": 9");
        assert!(Collection::parse(&newer).unwrap_err().to_string().contains("version 9"));
    }

    #[test]
    fn what_differs_is_named() {
        let one = Settings { depth: "full".into(), ..Settings::default() };
        let other = Settings { depth: "standard".into(), ..Settings::default() };
        assert_eq!(one.difference(&one), None);
        assert_eq!(one.difference(&other).as_deref(), Some("depth full, not standard"));
    }
}
