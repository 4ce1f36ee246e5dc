//! `monolite check`: opens the database, shows progress, prints what is damaged.

use crate::arguments;
use crate::backup::{open, watched};
use crate::interrupt;
use anyhow::{Result, bail};
use monolite::ErrorKind;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

/// The user stopped the check.
#[derive(Debug)]
pub(crate) struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped; not all was checked")
    }
}

impl std::error::Error for Stopped {}

/// What `--json` prints.
#[derive(Serialize)]
struct Record<'a> {
    file: &'a Path,
    tables: u64,
    problems: &'a [String],
    seconds: f64,
}

/// Checks the database.
pub(crate) fn run(arguments: &arguments::Check) -> Result<()> {
    let start = Instant::now();
    let file = arguments.file.as_path();
    let db = open(file, "is this the right path?")?;
    let check = db.check();
    let monitor = check.monitor();
    interrupt::on_signal(move || monitor.cancel())?;
    let checked = watched("checking tables", &check.monitor(), || check.wait());
    let closed = db.close();
    let checked = match checked {
        Err(error) if error.kind() == ErrorKind::Aborted => return Err(Stopped.into()),
        checked => checked?,
    };
    closed?;
    let (tables, problems) = (checked.tables, &checked.problems[..]);
    let mut out = io::stdout().lock();
    let seconds = start.elapsed().as_secs_f64();
    if arguments.json {
        let record = Record { file, tables, problems, seconds };
        serde_json::to_writer_pretty(&mut out, &record)?;
        writeln!(out)?;
    } else {
        for problem in problems {
            writeln!(out, "problem  {problem}")?;
        }
        let (file, found) = (file.display(), problems.len());
        writeln!(out, "{file}: {tables} tables, {found} problems, {seconds:.1} s")?;
    }
    if !problems.is_empty() {
        bail!("{} is damaged: keep it, and restore a backup", file.display());
    }
    Ok(())
}
