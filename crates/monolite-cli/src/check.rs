//! `monolite check`: has the file checked, shows progress, prints what was found.

use crate::arguments;
use crate::backup::{held, watched};
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use crate::{json, words};
use anyhow::{Context as _, Result, anyhow, bail};
use monolite::{Checked, Database, ErrorKind};
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Whether the database is sound is not known, or could not be told.
#[derive(Debug)]
pub(crate) struct NotChecked;

impl std::fmt::Display for NotChecked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not checked")
    }
}

/// What `--json` prints.
#[derive(Default, Serialize)]
struct Record<'a> {
    file: Cow<'a, str>,
    tables: u64,
    problems: &'a [String],
    violations: &'a [String],
    unchecked: &'a [String],
    /// Why it could not be checked.
    error: Option<String>,
    seconds: f64,
}

/// Checks the database.
pub(crate) fn run(arguments: &arguments::Check) -> Result<()> {
    let start = Instant::now();
    let file = arguments.file.as_path();
    let checked = look(file);
    if checked.as_ref().is_err_and(|error| error.is::<Stopped>()) {
        return checked.map(drop);
    }
    let none = Checked::default();
    let found = checked.as_ref().unwrap_or(&none);
    let record = Record {
        file: json::name(file),
        tables: found.tables,
        problems: &found.problems,
        violations: &found.violations,
        unchecked: &found.unchecked,
        error: checked.as_ref().err().map(|error| format!("{error:#}")),
        seconds: start.elapsed().as_secs_f64(),
    };
    show(&record, arguments.json).context("the result cannot be printed").context(NotChecked)?;
    verdict(&json::name(file), &checked.context(NotChecked)?)
}

fn look(file: &Path) -> Result<Checked> {
    let check = Database::check_file(file);
    let stop = interrupt::flag()?;
    let checked = watched("checking tables", &check.monitor(), &stop, || check.wait());
    checked.map_err(|error| match error.kind() {
        ErrorKind::Aborted => Stopped("not all was checked").into(),
        ErrorKind::Overloaded => held(&error),
        _ => error.into(),
    })
}

fn show(record: &Record<'_>, as_json: bool) -> Result<()> {
    let mut out = stdout();
    if as_json {
        return json::print(&mut out, record);
    }
    if record.error.is_some() {
        return Ok(());
    }
    for problem in record.problems {
        writeln!(out, "problem  {problem}")?;
    }
    for violation in record.violations {
        writeln!(out, "violated foreign key  {violation}")?;
    }
    for unchecked in record.unchecked {
        writeln!(out, "not checked  {unchecked}")?;
    }
    let tables = words::count(record.tables, "table");
    let problems = words::count(record.problems.len() as u64, "problem");
    let violations = words::count(record.violations.len() as u64, "violated foreign key");
    let seconds = words::seconds(record.seconds);
    writeln!(out, "{}: {tables}, {problems}, {violations}, {seconds}", record.file)?;
    Ok(out.flush()?)
}

fn verdict(file: &str, found: &Checked) -> Result<()> {
    if found.is_sound() {
        return Ok(());
    }
    if found.problems.iter().any(|problem| !problem.ends_with(REBUILD)) {
        bail!("{file} is damaged: keep it, and restore a backup");
    }
    if !found.problems.is_empty() {
        bail!(
            "{file}: an index of full-text search does not fit its table, and no other damage was \
             found: rebuild the index (the code 267 in docs/guides/errors.md)"
        );
    }
    if !found.violations.is_empty() {
        bail!(
            "{file} is not damaged, but foreign keys of its rows are violated: correct those rows \
             (docs/guides/files.md tells how)"
        );
    }
    let error = anyhow!(
        "not all of {file} could be checked: its tables need what a program adds; check it in that \
         program, with Options::check_file and its connection_setup"
    );
    Err(error.context(NotChecked))
}

/// How a problem ends that is one of an index of full-text search, and of nothing else.
const REBUILD: &str = " VALUES ('rebuild')";
