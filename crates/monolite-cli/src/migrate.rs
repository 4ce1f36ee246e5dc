//! `monolite migrate`: hands the arguments over, prints what was applied and what is pending.

use crate::arguments::{Migrate, Migrated, Up};
use crate::backup::{open, watched};
use crate::json;
use crate::out::stdout;
use anyhow::{Context as _, Result, bail};
use monolite::{Database, MigrationStatus, Migrations, Planned, RebuildPhase};
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::AtomicBool;

/// What to do where there is no database.
const REMEDY: &str = "`monolite migrate up` creates it";

const UNMENDED: &str = "nothing is migrated before that is mended";

/// What `--json` prints.
#[derive(Default, Serialize)]
struct Record {
    applied: Vec<Applied>,
    pending: Vec<String>,
    problems: Vec<String>,
    /// What `plan` knows of those that are pending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rebuilds: Vec<Rebuild>,
    /// An online rebuild that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilding: Option<Rebuilding>,
}

#[derive(Serialize)]
struct Rebuilding {
    migration: String,
    table: String,
    phase: &'static str,
    rows: u64,
    total: u64,
}

#[derive(Serialize)]
struct Rebuild {
    migration: String,
    table: String,
    rows: Option<u64>,
    indexes: u64,
    seconds: f64,
    online: bool,
}

#[derive(Serialize)]
struct Applied {
    name: String,
    checksum: String,
    at: String,
}

/// Does what was asked.
pub(crate) fn run(command: &Migrate) -> Result<()> {
    match command {
        Migrate::Status(of) => status(of),
        Migrate::Plan(of) => plan(of),
        Migrate::Up(Up { of, dry_run: false }) => up(of),
        Migrate::Up(Up { of, dry_run: true }) => dry_run(of),
        Migrate::Abort(of) => abort(of),
        Migrate::Verify(of) => verify(of),
    }
}

fn status(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file, REMEDY)?, Migrations::from_directory(&of.dir)?);
    let status = migrations.status(&db)?;
    db.close()?;
    let is_wrong = !status.problems.is_empty();
    show(of, record(status))?;
    if is_wrong { bail!(UNMENDED) } else { Ok(()) }
}

fn plan(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file, REMEDY)?, Migrations::from_directory(&of.dir)?);
    let planned = migrations.plan(&db)?;
    db.close()?;
    let rebuilds = planned.iter().flat_map(rebuilds).collect();
    let pending = planned.into_iter().map(|it| it.name).collect();
    show(of, Record { pending, rebuilds, ..Record::default() })
}

fn rebuilds(planned: &Planned) -> impl Iterator<Item = Rebuild> {
    planned.rebuilds.iter().map(|it| Rebuild {
        migration: planned.name.clone(),
        table: it.table.clone(),
        rows: it.rows,
        indexes: it.indexes,
        seconds: it.time.as_secs_f64(),
        online: it.is_online,
    })
}

fn dry_run(of: &Migrated) -> Result<()> {
    let migrations = Migrations::from_directory(&of.dir)?;
    let db = if of.file.exists() { open(&of.file, REMEDY)? } else { Database::open(":memory:")? };
    let ran = migrations.dry_run(&db).wait();
    db.close()?;
    show(of, Record { pending: ran?, ..Record::default() })
}

fn up(of: &Migrated) -> Result<()> {
    let migrations = Migrations::from_directory(&of.dir)?;
    let db = if of.file.exists() { open(&of.file, REMEDY)? } else { Database::open(&of.file)? };
    let before = migrations.status(&db)?.applied.len();
    let up = migrations.up(&db);
    // A signal ends the process: a migration is undone then, or goes on with the next `up`.
    let never = AtomicBool::new(false);
    let up = watched("migrating", &up.monitor(), &never, || up.wait());
    let status = match migrations.status(&db) {
        Ok(status) => status,
        // Why it failed goes before.
        Err(error) => return Err(up.err().unwrap_or(error).into()),
    };
    db.close()?;
    let is_wrong = !status.problems.is_empty();
    let mut record = record(status);
    record.applied.drain(..before.min(record.applied.len()));
    let names: Vec<&str> = record.applied.iter().map(|it| it.name.as_str()).collect();
    let names = if names.is_empty() { "nothing".into() } else { names.join(", ") };
    let untold = format!("applied now: {names}, and telling so failed");
    show(of, record).context(untold)?;
    if is_wrong {
        // They are shown.
        bail!(UNMENDED);
    }
    up?;
    Ok(())
}

fn abort(of: &Migrated) -> Result<()> {
    let db = open(&of.file, REMEDY)?;
    let aborted = Migrations::abort(&db).wait();
    db.close()?;
    show(of, Record { pending: aborted?.into_iter().collect(), ..Record::default() })
}

fn verify(of: &Migrated) -> Result<()> {
    let (db, migrations) = (open(&of.file, REMEDY)?, Migrations::from_directory(&of.dir)?);
    let verified = migrations.verify(&db);
    db.close()?;
    verified?;
    show(of, Record::default())
}

fn record(status: MigrationStatus) -> Record {
    let applied = status.applied.into_iter().map(|it| Applied {
        at: jiff::Timestamp::from_second(it.applied)
            .map_or_else(|_| "?".into(), |at| at.to_string()),
        name: it.name,
        checksum: it.checksum,
    });
    let (applied, pending, problems) = (applied.collect(), status.pending, status.problems);
    let rebuilding = status.rebuilding.map(|it| Rebuilding {
        migration: it.migration,
        table: it.table,
        phase: match it.phase {
            RebuildPhase::Copying => "copying",
            RebuildPhase::Following => "following",
            RebuildPhase::Removing => "removing",
        },
        rows: it.rows,
        total: it.total,
    });
    Record { applied, pending, problems, rebuilding, ..Record::default() }
}

fn show(of: &Migrated, record: Record) -> Result<()> {
    let mut out = stdout();
    if of.json {
        return json::print(&mut out, &record);
    }
    for it in &record.applied {
        writeln!(out, "applied  {}  {}", it.at, it.name)?;
    }
    for name in &record.pending {
        writeln!(out, "pending  {name}")?;
        for it in record.rebuilds.iter().filter(|it| it.migration == *name) {
            let rows = it.rows.map_or_else(|| "?".into(), |rows| rows.to_string());
            writeln!(
                out,
                "         rebuilds {}: {rows} rows, {} indexes; {} about {:.1} s",
                it.table,
                it.indexes,
                if it.online { "online, for" } else { "writes wait for" },
                it.seconds
            )?;
        }
    }
    if let Some(Rebuilding { migration, table, phase, rows, total }) = &record.rebuilding {
        let how = "`migrate up` goes on, `migrate abort` ends it";
        writeln!(out, "online   {migration}: {phase} {table}, {rows} of {total} rows; {how}")?;
    }
    for problem in &record.problems {
        writeln!(out, "problem  {problem}")?;
    }
    if record.applied.is_empty() && record.pending.is_empty() && record.problems.is_empty() {
        writeln!(out, "nothing to do: all migrations in {} are applied", of.dir.display())?;
    }
    Ok(out.flush()?)
}
