//! `monolite migrate`: hands the arguments over, to a file or to the server that has it, and prints
//! what was applied, what is pending, and how far an online rebuild is.

use crate::arguments::{Migrate, Migrated, Up};
use crate::backup::open;
use crate::bar::Bar;
use crate::out::stdout;
use crate::{interrupt, json, words};
use anyhow::{Context as _, Result, bail};
use monolite::{Database, MigrationStatus, Migrations, OnlineRebuild, Planned, RebuildPhase};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// What to do where there is no database.
const REMEDY: &str = "`monolite migrate up` creates it";

const UNMENDED: &str = "nothing is migrated before that is mended";

/// What is said at Ctrl-C while a server migrates.
const LEFT: &str = "stopped: the server ends the migration that it has begun, or pauses it if it \
                    is an online rebuild, and applies no other one; `migrate up` goes on";

/// How often it is looked how far an online rebuild is.
const LOOK: Duration = Duration::from_secs(1);

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
    rebuilding: Option<OnlineRebuild>,
    /// How fast that copies, if two looks have found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_per_second: Option<f64>,
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

/// Where the database is.
enum Place {
    File(Database),
    /// The address for operators of a server, and the name that it has for the database.
    Server {
        runtime: Runtime,
        admin: String,
        database: String,
    },
}

impl Place {
    /// That of the arguments. Where no file is there, it is the new one `created`.
    fn of(of: &Migrated, created: Option<&Path>) -> Result<Place> {
        let Some(url) = of.place.to_str().filter(|it| it.contains("://")) else {
            return Ok(Place::File(match created.filter(|_| !of.place.exists()) {
                Some(created) => Database::open(created)?,
                None => open(&of.place, REMEDY)?,
            }));
        };
        let url = url.trim_end_matches('/');
        let (admin, database) = url.split_once("/db/").unwrap_or((url, "default"));
        let runtime = Runtime::new().context("the threads of the client do not start")?;
        Ok(Place::Server { runtime, admin: admin.into(), database: database.into() })
    }

    /// What the server answers to `verb`, or what `local` gives.
    fn ask<T: DeserializeOwned>(
        &self,
        verb: &str,
        all: &Migrations,
        local: impl FnOnce(&Database) -> monolite::Result<T>,
    ) -> Result<T> {
        match self {
            Place::File(db) => Ok(local(db)?),
            Place::Server { runtime, admin, database } => {
                let texts = serde_json::to_vec(&all.texts().collect::<BTreeMap<_, _>>())?;
                let path = format!("v1/namespaces/{database}/migrations/{verb}");
                let asked = monolite_client::operate(admin, &path, Some(texts));
                Ok(serde_json::from_value(runtime.block_on(asked)?)?)
            }
        }
    }

    fn status(&self, all: &Migrations) -> Result<MigrationStatus> {
        self.ask("status", all, |db| all.status(db))
    }

    fn close(self) -> Result<()> {
        match self {
            Place::File(db) => Ok(db.close()?),
            Place::Server { .. } => Ok(()),
        }
    }
}

fn status(of: &Migrated) -> Result<()> {
    let (place, all) = (Place::of(of, None)?, Migrations::from_directory(&of.dir)?);
    let (mut status, mut rows_per_second) = (place.status(&all)?, None);
    // Twice: one that was paused just now had still copied rows behind the first look.
    for _ in 0..2 {
        let (Place::Server { .. }, Some(before)) = (&place, &status.rebuilding) else { break };
        let (before, start) = (before.clone(), Instant::now());
        thread::sleep(LOOK / 2);
        status = place.status(&all)?;
        let now = status.rebuilding.as_ref();
        rows_per_second = now.and_then(|now| pace(&before, now, start.elapsed()));
    }
    place.close()?;
    let is_wrong = !status.problems.is_empty();
    show(of, Record { rows_per_second, ..record(status) })?;
    if is_wrong { bail!(UNMENDED) } else { Ok(()) }
}

fn plan(of: &Migrated) -> Result<()> {
    let (place, all) = (Place::of(of, None)?, Migrations::from_directory(&of.dir)?);
    let planned: Vec<Planned> = place.ask("plan", &all, |db| all.plan(db))?;
    place.close()?;
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
    let all = Migrations::from_directory(&of.dir)?;
    let place = Place::of(of, Some(Path::new(":memory:")))?;
    let ran = place.ask("dry-run", &all, |db| all.dry_run(db).wait());
    place.close()?;
    let pending = ran?;
    if of.json || pending.is_empty() {
        return show(of, Record { pending, ..Record::default() });
    }
    let mut out = stdout();
    for name in &pending {
        writeln!(out, "tried    {name}: it would be applied; all is undone")?;
    }
    Ok(out.flush()?)
}

fn up(of: &Migrated) -> Result<()> {
    let all = Migrations::from_directory(&of.dir)?;
    let place = Place::of(of, Some(&of.place))?;
    let before = place.status(&all)?.applied.len();
    // A signal ends the process: a migration is undone then, or goes on with the next `up`.
    if let Place::Server { .. } = place {
        interrupt::on_signal(LEFT, || std::process::exit(130))?;
    }
    let up = || place.ask::<Vec<String>>("up", &all, |db| all.up(db).wait());
    let up = watched(|| place.status(&all).ok()?.rebuilding, up);
    let status = match place.status(&all) {
        Ok(status) => status,
        // Why it failed goes before.
        Err(error) => return Err(up.err().unwrap_or(error)),
    };
    place.close()?;
    let is_wrong = !status.problems.is_empty();
    let mut record = record(status);
    record.applied.drain(..before.min(record.applied.len()));
    if let Some(it) = &mut record.rebuilding {
        // The error says it.
        it.refused = None;
    }
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

/// Runs `up` while a line tells how far the online rebuild is that `look` finds.
fn watched<T>(look: impl Fn() -> Option<OnlineRebuild> + Sync, up: impl FnOnce() -> T) -> T {
    let bar = Bar::patient();
    bar.begin("migrating", None);
    let (over, is_over) = mpsc::channel::<()>();
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            let (is_over, mut first) = (is_over, None);
            while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Some(now) = look() else { continue };
                let is_new = |(_, it): &(Instant, OnlineRebuild)| it.migration != now.migration;
                if first.as_ref().is_none_or(is_new) {
                    first = Some((Instant::now(), now.clone()));
                }
                let (start, before) = first.as_ref().expect("it is set");
                let how = progress(&now, pace(before, &now, start.elapsed()));
                bar.begin(&format!("migrating {how}"), None);
            }
        });
        let result = up();
        drop(over);
        result
    });
    bar.finish();
    result
}

/// How many rows were copied in a second between two looks.
fn pace(before: &OnlineRebuild, now: &OnlineRebuild, time: Duration) -> Option<f64> {
    let rows = now.rows.saturating_sub(before.rows) as f64;
    (now.phase == RebuildPhase::Copying && rows > 0.0).then(|| rows / time.as_secs_f64())
}

/// How far an online rebuild is, in words.
fn progress(now: &OnlineRebuild, pace: Option<f64>) -> String {
    let OnlineRebuild { migration, table, rows, total, .. } = now;
    let does = match now.phase {
        RebuildPhase::Copying => format!("copying {table}, {rows} of {total} rows"),
        RebuildPhase::Following => format!(
            "{table} is copied, {rows} rows; changed and refused ones are copied again, then both \
             are compared"
        ),
        RebuildPhase::Removing => format!("deleting what is left over of {table}"),
    };
    let pace = pace.map(|pace| {
        let left = words::seconds(total.saturating_sub(*rows) as f64 / pace);
        format!(", {pace:.0} rows/s, {left} left to copy")
    });
    format!("{migration}: {does}{}", pace.unwrap_or_default())
}

fn abort(of: &Migrated) -> Result<()> {
    let place = Place::of(of, None)?;
    let aborted = place.ask("abort", &Migrations::new(), |db| Migrations::abort(db).wait());
    place.close()?;
    let pending: Vec<String> = aborted?.into_iter().collect();
    if pending.is_empty() && !of.json {
        return Ok(writeln!(stdout(), "nothing to abort: no online rebuild is under way")?);
    }
    show(of, Record { pending, ..Record::default() })
}

fn verify(of: &Migrated) -> Result<()> {
    let (place, all) = (Place::of(of, None)?, Migrations::from_directory(&of.dir)?);
    let verified: Result<()> = place.ask("verify", &all, |db| all.verify(db));
    place.close()?;
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
    Record { applied, pending, problems, rebuilding: status.rebuilding, ..Record::default() }
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
    if let Some(it) = &record.rebuilding {
        let how = "`migrate up` goes on, `migrate abort` ends it";
        let how = it.obstacle.as_deref().unwrap_or(how);
        writeln!(out, "online   {}; {how}", progress(it, record.rows_per_second))?;
        if let Some(rows) = &it.refused {
            writeln!(out, "refused  by the last `migrate up`: {rows}")?;
        }
    }
    for problem in &record.problems {
        writeln!(out, "problem  {problem}")?;
    }
    let has_none = record.applied.is_empty() && record.pending.is_empty();
    if has_none && record.problems.is_empty() && record.rebuilding.is_none() {
        writeln!(out, "nothing to do: all migrations in {} are applied", of.dir.display())?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_tell_the_pace_and_the_time_left() {
        let at = |rows: u64, phase: &str| {
            serde_json::from_value::<OnlineRebuild>(serde_json::json!({
                "migration": "0002_n.sql", "table": "t", "phase": phase, "rows": rows,
                "total": 1000, "refused": null, "obstacle": null
            }))
            .unwrap()
        };
        let since = |rows, phase| {
            let (before, now) = (at(200, "copying"), at(rows, phase));
            progress(&now, pace(&before, &now, Duration::from_secs(2)))
        };
        let copying = "0002_n.sql: copying t, 400 of 1000 rows, 100 rows/s, 6.0 s left to copy";
        assert_eq!(since(400, "copying"), copying);
        assert_eq!(since(200, "copying"), "0002_n.sql: copying t, 200 of 1000 rows");
        let copied = "0002_n.sql: t is copied, 1000 rows; changed and refused ones are";
        assert!(since(1000, "following").starts_with(copied));
    }
}
