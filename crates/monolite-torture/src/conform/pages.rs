//! Owns the pages that are made rather than written: `docs/differences.md` from the list of
//! differences, and `docs/sqlite-features.md` from the scripts. A test compares both.

mod chapters;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};

use super::differences::{Difference, LIST, Topic};
use super::script::Script;
use chapters::{ABSENT, CHAPTERS};

const DIFFERENCES: &str = "\
# Differences to SQLite

Monolite runs stock SQLite, and SQL means what it means there: `monolite conform` runs scripts
([which features of SQLite they exercise](sqlite-features.md)) on plain SQLite and on all of
Monolite's paths and compares every answer. What differs on purpose is on this page, and nothing
else: a difference that is not here fails the gate, and so does an entry here that no script
meets.

`all` paths are closures of `write`, `write_once` and `read`, and interactive transactions. Where
this page says that a statement is refused, the transaction can go on without it.

Plain SQLite means here the one that `rusqlite` builds. If yours is another, two things
differ. **Foreign keys are always enforced** (elsewhere SQLite's default is not to), and so
`ON DELETE CASCADE` deletes; before you open an existing file, `PRAGMA foreign_key_check` tells
which rows violate theirs. And `LIKE`, `DQS` and other options of the build may be set otherwise
(`PRAGMA compile_options`).

This page is made from the list in `crates/monolite-torture/src/conform/differences/list.rs`, by
`monolite conform --list-differences > docs/differences.md`.
";

const FEATURES: &str = "\
# Which features of SQLite are exercised

Each line of [`conform`](../conform) that says `feature` is counted here, with the statements that
follow it. `monolite conform conform` runs all of them on plain SQLite and on each of Monolite's
paths, and compares. Nothing is claimed that no script runs: a feature without statements, and a
chapter that SQLite's documentation does not have, fail a test.

A chapter is a page of <https://sqlite.org/docs.html>. Features are ordinary use, edge cases and
statements that fail; where Monolite differs on purpose, [it is told](differences.md).

This page is made from the scripts, by
`monolite conform conform --list-features > docs/sqlite-features.md`.
";

/// The page of what differs from plain SQLite on purpose.
pub fn differences_page() -> String {
    let mut page = DIFFERENCES.to_owned();
    for topic in Topic::ALL {
        let _ = writeln!(page, "\n## {}", topic.title());
        for entry in LIST.iter().filter(|entry| entry.topic == topic) {
            write_difference(&mut page, entry);
        }
    }
    page
}

fn write_difference(page: &mut String, entry: &Difference) {
    let Difference { id, what, sqlite, monolite, why, instead, .. } = entry;
    let mut chars = what.chars();
    let title: String =
        chars.next().map(|first| first.to_uppercase().to_string()).into_iter().collect();
    let _ = writeln!(page, "\n### {title}{}\n", chars.as_str());
    let _ = writeln!(page, "| `{id}` | |\n|---|---|");
    let rows = [("SQLite", sqlite), ("Monolite", monolite), ("why", why), ("instead", instead)];
    for (name, text) in rows {
        let _ = writeln!(page, "| {name} | {text} |");
    }
    let _ = writeln!(page, "| paths | {} |", entry.paths.name());
}

/// What the scripts say of a chapter.
#[derive(Default)]
struct Chapter {
    /// Features, with the script, its line and the number of statements.
    features: Vec<(String, String, usize)>,
    scripts: Vec<String>,
    statements: usize,
}

/// The page of which features of SQLite the scripts below `places` exercise.
///
/// # Errors
/// When a script cannot be read, names a chapter that is none, or a feature without statements.
pub fn features_page(places: &[PathBuf]) -> Result<String> {
    let scripts = super::read(places)?;
    let chapters = gather(&scripts)?;
    let features: usize = chapters.values().map(|chapter| chapter.features.len()).sum();
    let statements: usize = scripts.iter().map(|script| script.statements.len()).sum();
    let mut page = FEATURES.to_owned();
    let _ = writeln!(
        page,
        "\n{} chapters, {features} features, {} scripts, {statements} statements.\n",
        chapters.len(),
        scripts.len()
    );
    let _ = writeln!(page, "| chapter | features | statements | scripts |\n|---|---:|---:|---|");
    for (name, title) in CHAPTERS {
        let Some(chapter) = chapters.get(name) else { continue };
        let link = |script: &String| format!("[`{script}`](../conform/{script})");
        let links: Vec<String> = chapter.scripts.iter().map(link).collect();
        let _ = writeln!(
            page,
            "| [{title}](https://sqlite.org/{name}.html) | {} | {} | {} |",
            chapter.features.len(),
            chapter.statements,
            links.join(", ")
        );
    }
    for (name, title) in CHAPTERS {
        let Some(chapter) = chapters.get(name) else { continue };
        let _ = writeln!(page, "\n## {title}\n");
        for (feature, script, statements) in &chapter.features {
            let _ = writeln!(page, "- {feature} (`{script}`, {statements} statements)");
        }
    }
    let _ = writeln!(page, "\n## Not exercised\n");
    for (name, why) in ABSENT {
        let _ = writeln!(page, "- [{name}](https://sqlite.org/{name}.html): {why}");
    }
    Ok(page)
}

/// Sorts the features into their chapters.
fn gather(scripts: &[Arc<Script>]) -> Result<BTreeMap<&'static str, Chapter>> {
    let mut chapters: BTreeMap<&'static str, Chapter> = BTreeMap::new();
    let mut scripts: Vec<_> = scripts.iter().collect();
    scripts.sort_by_key(|script| &script.name);
    for script in scripts {
        let file = script.name.rsplit('/').next().unwrap_or_default().to_owned();
        for feature in &script.features {
            let known = CHAPTERS.iter().find(|(name, _)| *name == feature.chapter);
            let Some((name, _)) = known else {
                bail!("{file}:{}: `{}` is no chapter", feature.line, feature.chapter);
            };
            if feature.statements == 0 {
                bail!("{file}:{}: no statement follows the feature", feature.line);
            }
            let chapter = chapters.entry(name).or_default();
            chapter.statements += feature.statements;
            chapter.features.push((feature.name.clone(), file.clone(), feature.statements));
            if !chapter.scripts.contains(&file) {
                chapter.scripts.push(file.clone());
            }
        }
    }
    Ok(chapters)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn written(page: &str) -> String {
        fs::read_to_string(root().join("docs").join(page)).unwrap()
    }

    #[test]
    fn the_page_of_differences_is_what_the_list_makes() {
        let made = differences_page();
        assert!(
            made == written("differences.md"),
            "run: cargo run -p monolite-cli --features developer -- conform --list-differences > \
             docs/differences.md"
        );
    }

    #[test]
    fn the_page_of_features_is_what_the_scripts_make() {
        let made = features_page(&[root().join("conform")]).unwrap();
        assert!(
            made == written("sqlite-features.md"),
            "run: cargo run -p monolite-cli --features developer -- conform conform \
             --list-features > docs/sqlite-features.md"
        );
    }

    #[test]
    fn every_chapter_is_exercised_or_said_not_to_be() {
        let scripts = crate::conform::read(&[root().join("conform")]).unwrap();
        let chapters = gather(&scripts).unwrap();
        for (name, _) in CHAPTERS {
            let is_absent = ABSENT.iter().any(|(absent, _)| absent == name);
            assert_eq!(chapters.contains_key(name), !is_absent, "{name}");
        }
        let statements: usize = scripts.iter().map(|script| script.statements.len()).sum();
        assert!(statements >= 3_000, "{statements}");
    }

    #[test]
    fn a_feature_without_statements_is_refused() {
        let script = |text: &str| vec![Arc::new(Script::parse(text).unwrap())];
        let good = "-- chapter: lang_select\n-- feature: x\nSELECT 1;";
        assert_eq!(gather(&script(good)).unwrap()["lang_select"].statements, 1);
        assert!(gather(&script("-- chapter: lang_select\n-- feature: x\n")).is_err());
        assert!(gather(&script("-- chapter: nothing\n-- feature: x\nSELECT 1;")).is_err());
    }
}
