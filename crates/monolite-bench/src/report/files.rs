//! A record as files: `raw.json`, the tables in `summary.md`, and a `README.md` that says what it
//! is.

use super::record::Record;
use super::{summary, tables};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The records of several suites in one file, as `bench all` leaves it.
#[derive(Serialize, Deserialize)]
struct Several<'r> {
    records: std::borrow::Cow<'r, [Record]>,
}

/// Writes the report for a terminal.
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
pub fn write_summary(record: &Record, out: &mut dyn Write) -> std::io::Result<()> {
    summary::lines(record).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Returns the text of `raw.json`: a record, or several.
pub fn json(records: &[Record]) -> Result<Vec<u8>> {
    let mut text = match records {
        [record] => serde_json::to_vec_pretty(record)?,
        records => serde_json::to_vec_pretty(&Several { records: records.into() })?,
    };
    text.push(b'\n');
    Ok(text)
}

/// Reads the records of a file: a `raw.json`, or that of `bench all`, which has several.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    if let Ok(Several { records }) = serde_json::from_str(&text) {
        return Ok(records.into_owned());
    }
    let record = serde_json::from_str(&text);
    Ok(vec![record.with_context(|| format!("{} is not a record", path.display()))?])
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
    text.push_str(&tables::settings(record));
    text
}

/// Writes the records into `DIR/latest-<suite>.json`, over those of the run before, with the report
/// beside it, and returns both files; `all` stands for several suites.
pub fn write_latest(records: &[Record], dir: &Path) -> Result<[PathBuf; 2]> {
    let raw = dir.join(format!("latest-{}.json", name(records)));
    let page = raw.with_extension("md");
    write(&raw, &json(records)?)?;
    write(&page, &pages(records, tables_page))?;
    Ok([raw, page])
}

fn name(records: &[Record]) -> &str {
    if let [record] = records { &record.suite } else { "all" }
}

fn write(target: &Path, text: &[u8]) -> Result<()> {
    fs::write(target, text).with_context(|| format!("cannot write {}", target.display()))
}

fn pages(records: &[Record], page: fn(&Record) -> String) -> Vec<u8> {
    records.iter().map(page).collect::<Vec<_>>().join("\n").into_bytes()
}

/// Writes the records into a new directory `DIR/<date>-<suite>`, with a number behind it where
/// there is one, and returns it.
pub fn write_record(records: &[Record], dir: &Path) -> Result<PathBuf> {
    let date = records.first().map_or("none", |record| &record.date);
    let name = format!("{date}-{}", name(records));
    let names = std::iter::once(name.clone()).chain((2..).map(|n| format!("{name}-{n}")));
    let target = names
        .map(|name| dir.join(name))
        .find(|target| !target.exists())
        .expect("some number is free");
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    write(&target.join("raw.json"), &json(records)?)?;
    write(&target.join("summary.md"), &pages(records, tables_page))?;
    write(&target.join("README.md"), &pages(records, readme))?;
    Ok(target)
}

#[cfg(test)]
pub(crate) mod tests;
