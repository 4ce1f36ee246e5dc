//! `monolite migrate`: hands the arguments over, prints what was made and what was not.

use crate::arguments::{Migrate, Migrated};
use crate::backup::open;
use anyhow::{Result, bail};
use monolite::{Database, MigrationStatus, Migrations};
use serde::Serialize;
use std::io::{self, Write};

/// What `--json` prints.
#[derive(Default, Serialize)]
struct Record {
    made: Vec<Made>,
    pending: Vec<String>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Made {
    name: String,
    checksum: String,
    at: String,
}

/// Does what was asked.
pub(crate) fn run(command: &Migrate) -> Result<()> {
    match command {
        Migrate::Status(of) => status(of),
        Migrate::Plan(of) => plan(of),
        Migrate::Up(of) => up(of),
        Migrate::Verify(of) => verify(of),
    }
}

fn status(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file)?, Migrations::from_directory(&of.dir)?);
    let status = migrations.status(&db)?;
    db.close()?;
    let is_wrong = !status.problems.is_empty();
    show(of, record(status))?;
    if is_wrong { bail!("nothing is migrated before that is mended") } else { Ok(()) }
}

fn plan(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file)?, Migrations::from_directory(&of.dir)?);
    let pending = migrations.plan(&db)?;
    db.close()?;
    show(of, Record { pending, ..Record::default() })
}

fn up(of: &Migrated) -> Result<()> {
    let migrations = Migrations::from_directory(&of.dir)?;
    let db = if of.file.exists() { open(&of.file)? } else { Database::open(&of.file)? };
    let before = migrations.status(&db)?.applied.len();
    let made = migrations.up(&db).wait();
    let status = migrations.status(&db)?;
    db.close()?;
    let mut record = record(status);
    record.made.drain(..before.min(record.made.len()));
    show(of, record)?;
    made?;
    Ok(())
}

fn verify(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file)?, Migrations::from_directory(&of.dir)?);
    let verified = migrations.verify(&db);
    db.close()?;
    verified?;
    show(of, Record::default())
}

fn record(status: MigrationStatus) -> Record {
    let made = status.applied.into_iter().map(|it| Made {
        at: jiff::Timestamp::from_second(it.applied)
            .map_or_else(|_| "?".into(), |at| at.to_string()),
        name: it.name,
        checksum: it.checksum,
    });
    Record { made: made.collect(), pending: status.pending, problems: status.problems }
}

fn show(of: &Migrated, record: Record) -> Result<()> {
    let mut out = io::stdout().lock();
    if of.json {
        serde_json::to_writer_pretty(&mut out, &record)?;
        writeln!(out)?;
        return Ok(());
    }
    for it in &record.made {
        writeln!(out, "made     {}  {}", it.at, it.name)?;
    }
    for name in &record.pending {
        writeln!(out, "pending  {name}")?;
    }
    for problem in &record.problems {
        writeln!(out, "problem  {problem}")?;
    }
    if record.made.is_empty() && record.pending.is_empty() && record.problems.is_empty() {
        writeln!(out, "nothing to do: all migrations in {} were made", of.dir.display())?;
    }
    Ok(())
}
