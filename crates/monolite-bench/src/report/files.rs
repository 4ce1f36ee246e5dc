//! A record as files: `raw.json`, the tables in `summary.md`, and a `README.md` that says what it
//! is.

use super::chart::draw;
use super::collection::Collection;
use super::record::{Record, Verification};
use super::{html, pictures, summary, tables};
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes the report for a terminal.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_text(record: &Record, out: &mut dyn Write) -> std::io::Result<()> {
    for line in tables::preamble(record) {
        writeln!(out, "{line}")?;
    }
    for table in tables::all(record) {
        write!(out, "\n{}", table.to_text())?;
    }
    Ok(())
}

/// Writes the end of a run for a terminal.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_summary(record: &Record, out: &mut dyn Write) -> std::io::Result<()> {
    summary::lines(record).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Writes `raw.json`.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_json(record: &Record, out: &mut dyn Write) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    Ok(out.write_all(&text)?)
}

/// Reads a `raw.json`.
///
/// # Errors
/// When the file is not a record of this version.
pub fn read_json(path: &Path) -> Result<Record> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a record", path.display()))
}

/// Reads the records of a file: a `raw.json`, or that of `bench all`, which has several.
///
/// # Errors
/// When the file is neither.
pub fn read_records(path: &Path) -> Result<Vec<Record>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if let Ok(collection) = Collection::parse(&text) {
        return Ok(collection.records);
    }
    let record = serde_json::from_str(&text);
    Ok(vec![record.with_context(|| format!("{} is not a record", path.display()))?])
}

/// Writes the end of a run of several suites for a terminal.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write_summaries(collection: &Collection, out: &mut dyn Write) -> std::io::Result<()> {
    summary::of_all(collection).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Writes what several suites have measured into a new directory `DIR/<date>-all`, with its report,
/// and returns it.
///
/// # Errors
/// When it cannot be written.
pub fn write_collection(collection: &Collection, dir: &Path) -> Result<PathBuf> {
    let mut raw = serde_json::to_vec_pretty(collection)?;
    raw.push(b'\n');
    let pages: Vec<String> = collection.records.iter().map(tables_page).collect();
    let readmes: Vec<String> = collection.records.iter().map(readme).collect();
    let files = [
        ("raw.json", raw),
        ("summary.md", pages.join("\n").into_bytes()),
        ("README.md", readmes.join("\n").into_bytes()),
        ("report.html", html::page(&collection.records).into_bytes()),
    ];
    write_directory(dir, &format!("{}-all", collection.date), files)
}

/// Returns `summary.md`.
pub fn tables_page(record: &Record) -> String {
    let mut text = format!("# bench {}, {}: tables\n\n", record.suite, record.date);
    text.push_str("Generated from `raw.json` by `monolite bench report raw.json`.\n\n");
    tables::preamble(record).iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    for table in tables::all(record) {
        text.push_str(&format!("\n{}", table.to_markdown()));
    }
    text
}

/// Returns the record's `README.md`.
pub fn readme(record: &Record) -> String {
    let mut text = format!("# bench {}, {}\n\n", record.suite, record.date);
    text.push_str("One run of\n\n```\n");
    text.push_str(&record.command);
    text.push_str(
        "\n```\n\nAll figures: [summary.md](summary.md), generated from [raw.json](raw.json).",
    );
    text.push_str("\n\n");
    tables::preamble(record).iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    if record.suite == "tps" {
        text.push_str(&format!("\n{}", tables::headlines(record).to_markdown()));
    }
    section(&mut text, "Settings of the engine", &record.setup.engine);
    section(&mut text, "Pragmas of raw SQLite", &record.setup.raw_pragmas);
    section(&mut text, "Settings of PostgreSQL", &record.setup.postgres_settings);
    let checks: Vec<String> = record.verifications.iter().map(checked).collect();
    section(&mut text, &format!("Checks of the {}, all passed", record.checked()), &checks);
    if let Some(data) = &record.data {
        text.push_str(&format!("\nHot pages: {}.\n", data.hot_set.method));
    }
    text
}

/// A check, and how much was looked at.
fn checked(check: &Verification) -> String {
    let Verification { after, check, accounts } = check;
    let is_of_accounts = ["account ", "balances "].iter().any(|word| check.contains(word));
    let what = if is_of_accounts { "accounts" } else { "looked at" };
    format!("{after}: {check} ({accounts} {what})")
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        text.push_str(&format!("\n## {title}\n\n"));
        lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    }
}

/// Writes the record into `DIR/latest-<suite>.json`, over that of the run before, and returns the
/// file: what `bench report` and `bench compare` take.
///
/// # Errors
/// When it cannot be written.
pub fn write_latest(record: &Record, dir: &Path) -> Result<PathBuf> {
    let target = dir.join(format!("latest-{}.json", record.suite));
    let mut raw = Vec::new();
    write_json(record, &mut raw)?;
    fs::write(&target, raw).with_context(|| format!("cannot write {}", target.display()))?;
    Ok(target)
}

/// Writes the report of these records as one HTML file.
///
/// # Errors
/// When it cannot be written.
pub fn write_html(records: &[Record], target: &Path) -> Result<()> {
    fs::write(target, html::page(records))
        .with_context(|| format!("cannot write {}", target.display()))
}

/// Writes each chart of these records as an SVG file into `dir`, and returns how many there are.
///
/// # Errors
/// When one cannot be written.
pub fn write_charts(records: &[Record], dir: &Path) -> Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut written = 0;
    for record in records {
        for chart in pictures::all(record) {
            let target = match chart.id.starts_with(&record.suite) {
                true => dir.join(format!("{}.svg", chart.id)),
                false => dir.join(format!("{}-{}.svg", record.suite, chart.id)),
            };
            fs::write(&target, draw::file(&chart))
                .with_context(|| format!("cannot write {}", target.display()))?;
            written += 1;
        }
    }
    Ok(written)
}

/// Writes the three files into a new directory `DIR/<date>-<suite>`, and returns it.
///
/// # Errors
/// When it cannot be written.
pub fn write_record(record: &Record, dir: &Path) -> Result<PathBuf> {
    let mut raw = Vec::new();
    write_json(record, &mut raw)?;
    let files = [
        ("raw.json", raw),
        ("summary.md", tables_page(record).into_bytes()),
        ("README.md", readme(record).into_bytes()),
    ];
    write_directory(dir, &format!("{}-{}", record.date, record.suite), files)
}

/// Writes files into a new directory of this name, with a number behind it where there is one.
fn write_directory<const N: usize>(
    dir: &Path,
    name: &str,
    files: [(&str, Vec<u8>); N],
) -> Result<PathBuf> {
    let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
    let target = names
        .map(|name| dir.join(name))
        .find(|target| !target.exists())
        .expect("some number is free");
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    for (name, contents) in files {
        fs::write(target.join(name), contents).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(target)
}

#[cfg(test)]
pub(crate) mod tests;
