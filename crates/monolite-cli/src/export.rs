//! `monolite export postgres`: a database's schema and rows, on one snapshot, into a PostgreSQL or
//! into files for `psql`, with a report of all that is not the same there.

pub(crate) mod clauses;
mod files;
mod follow;
mod kind;
mod map;
mod postgres;
mod report;
mod rows;
mod schema;
mod target;
mod translate;
pub(crate) mod value;
mod views;

use crate::arguments;
use crate::backup;
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use crate::{json, words};
use anyhow::{Context as _, Result, bail, ensure};
use files::Files;
use map::Plan;
use monolite::{Database, Options, ReadTx};
use postgres::{Postgres, none_refused};
use report::{Item, Verdict};
use rows::{MOST_REFUSED, Refused, Sum};
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use target::Target;
use translate::quoted;

/// The engine's longest for a read: here no other call waits for it.
const READ_TIME: Duration = Duration::from_secs(86_400);

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(200);

/// Something of the schema is not there.
#[derive(Debug)]
pub(crate) struct Losses {
    count: u64,
    has_virtual: bool,
}

impl std::fmt::Display for Losses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = match self.has_virtual {
            true => "all rows of tables are there, those of virtual tables are not",
            false => "all rows are there",
        };
        write!(f, "{rows}; {} not carried, see the report", self.count)
    }
}

impl std::error::Error for Losses {}

/// What `--json` prints.
#[derive(Serialize)]
struct Record<'r> {
    tables: Vec<Counted<'r>>,
    items: &'r [Item],
    seconds: Seconds,
}

#[derive(Serialize)]
struct Counted<'r> {
    table: &'r str,
    rows: u64,
    /// Of this side; the other's is equal, where there is one.
    checksum: String,
}

/// What the parts took.
#[derive(Clone, Copy, Default, Serialize)]
struct Seconds {
    looking: f64,
    copying: f64,
    constraints: f64,
    verifying: f64,
    /// From the last write of the source to the moment when PostgreSQL has all (`--follow`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<f64>,
}

/// Where rows come from: all of a table, or what is to be behind FROM.
#[derive(Clone, Copy)]
struct Source<'t, 'c>(&'t ReadTx<'c>, Option<&'t str>);

impl Source<'_, '_> {
    /// Gives each row to `take`, as a tuple; those that cannot be one are noted in `refused`.
    fn each(
        self,
        target: &Target,
        refused: &mut Vec<Refused>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let whole = quoted(&target.name);
        let from = self.1.unwrap_or(&whole);
        let mut statement = self.0.prepare(&format!("SELECT {} FROM {from}", target.list))?;
        let mut rows = statement.query(())?;
        let mut tuple = Vec::new();
        while let Some(row) = rows.next()? {
            tuple.clear();
            match rows::tuple(row, target, &mut tuple)? {
                Ok(()) => take(&tuple)?,
                Err((column, why)) if refused.len() < MOST_REFUSED => refused.push(Refused {
                    table: target.name.clone(),
                    row: rows::key(row, target),
                    column: target.columns[column].name.clone(),
                    why,
                }),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Shows how far the export is, and ends it when the user asks.
struct Progress<'b> {
    bar: &'b Bar,
    stop: &'b AtomicBool,
    doing: &'static str,
    shown: Instant,
}

impl Progress<'_> {
    /// Looks now and then alone: it is called for each row.
    fn sometimes(&mut self, table: &str, rows: u64) -> Result<()> {
        if rows.is_multiple_of(4_096) { self.at(table, rows) } else { Ok(()) }
    }

    fn at(&mut self, table: &str, rows: u64) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped("an export leaves nothing behind").into());
        }
        if self.shown.elapsed() >= TICK {
            self.shown = Instant::now();
            self.bar.begin(&format!("{} {table}: {}", self.doing, words::count(rows, "row")), None);
        }
        Ok(())
    }
}

/// Exports the database.
pub(crate) fn run(command: &arguments::Export) -> Result<()> {
    let arguments::Export::Postgres(arguments) = command;
    if arguments.abort {
        return follow::abort(&arguments.source);
    }
    let to = arguments.to.as_deref().expect("the parser asks for it");
    let stop = match arguments.follow {
        true => interrupt::flag_saying(follow::STOPPING)?,
        false => interrupt::flag()?,
    };
    let options = Options::new().read_time_limit(READ_TIME);
    let db = match arguments.follow {
        true => follow::open(options, &arguments.source, &stop)?,
        false => backup::open_with(options, &arguments.source, "is this the right path?")?,
    };
    let bar = Bar::patient();
    let mut progress = Progress { bar: &bar, stop: &stop, doing: "reading", shown: Instant::now() };
    let made = target(to, arguments).and_then(|target| match target {
        Ok(postgres) if arguments.follow => follow::run(&db, arguments, postgres, &mut progress),
        target => {
            let export = |tx: &ReadTx<'_>| export(&db, tx, arguments, target, &mut progress);
            Ok(db.with_error::<anyhow::Error>().read(export).wait()?.0)
        }
    });
    bar.finish();
    let closed = db.close();
    let Exported { plan, sums, seconds } = made?;
    closed?;
    let tables = plan.targets.iter().zip(&sums).map(|(target, sum)| Counted {
        table: &target.name,
        rows: sum.rows,
        checksum: format!("{:032x}", sum.hashes),
    });
    let record = Record { tables: tables.collect(), items: &plan.report.0, seconds };
    show(&record, to, arguments.json).context("it was made, and telling so failed")?;
    match plan.report.count(Verdict::Lost) {
        0 => Ok(()),
        count => {
            let mut items = plan.report.0.iter();
            let has_virtual = items.any(|item| item.kind == "virtual table");
            Err(Losses { count, has_virtual }.into())
        }
    }
}

/// Whether the target is a connection, and no directory. What may have a password is never taken
/// for the name of a directory: that is shown.
fn is_connection(to: &str) -> bool {
    let has_password = to.split_once('@').is_some_and(|(user, _)| user.contains(':'));
    has_password || to.contains("://") || to.contains('=')
}

/// What was made.
struct Exported {
    plan: Plan,
    sums: Vec<Sum>,
    seconds: Seconds,
}

/// Opens the target: before anything long, so that a wrong address is told at once.
fn target(to: &str, arguments: &arguments::ExportPostgres) -> Result<Result<Postgres, Files>> {
    match (is_connection(to), arguments.verify || arguments.follow) {
        (true, _) => Ok(Ok(Postgres::open(to, !arguments.verify)?)),
        (false, false) => Ok(Err(Files::begin(Path::new(to))?)),
        (false, true) => bail!("--verify and --follow need a running PostgreSQL; name its URL"),
    }
}

/// Exports what `tx` sees of `db`. To follow, it is neither compared nor committed, and the
/// connection is given back.
fn export(
    db: &Database,
    tx: &ReadTx<'_>,
    arguments: &arguments::ExportPostgres,
    mut target: Result<Postgres, Files>,
    progress: &mut Progress<'_>,
) -> Result<(Exported, Option<Postgres>)> {
    let (start, mut seconds) = (Instant::now(), Seconds::default());
    let schema = schema::read(tx)?;
    let mut holdings = map::Holdings::new();
    for (at, table) in schema.tables.iter().enumerate().filter(|(_, it)| map::is_asked(it)) {
        progress.at(&table.name, 0)?;
        holdings.insert(at, rows::look(tx, table)?);
    }
    let mut plan = map::plan(tx, &schema, &holdings, arguments.mixed.is_some())?;
    seconds.looking = start.elapsed().as_secs_f64();
    let (start, mut sums, mut refused) = (Instant::now(), Vec::new(), Vec::new());
    let (Plan { targets, report, .. }, source) = (&mut plan, Source(tx, None));
    progress.doing = "copying";
    for to in targets.iter_mut() {
        let sum = match &mut target {
            Ok(_) if arguments.verify => read(source, to, &mut refused, progress)?,
            Ok(postgres) => postgres.carry(source, to, report, &mut refused, progress)?,
            Err(files) => files.table(source, to, &mut refused, progress)?,
        };
        sums.push(sum);
        for column in &to.columns {
            report.noted("column", &format!("{}.{}", to.name, column.name), &column.note);
        }
    }
    none_refused(&refused)?;
    seconds.copying = start.elapsed().as_secs_f64();
    let start = Instant::now();
    match target {
        Ok(postgres) if arguments.follow => {
            let late = plan.hold_back();
            postgres.finish(&mut plan)?;
            plan.steps = late;
            seconds.constraints = start.elapsed().as_secs_f64();
            return Ok((Exported { plan, sums, seconds }, Some(postgres)));
        }
        Ok(postgres) => {
            if arguments.verify {
                plan.report.0.clear();
                for step in plan.steps.iter().filter(|step| step.kind == "view") {
                    plan.report.noted(step.kind, &step.name, "");
                }
            } else {
                postgres.finish(&mut plan)?;
            }
            seconds.constraints = start.elapsed().as_secs_f64();
            progress.doing = "verifying";
            verify(&postgres, &plan.targets, &sums, progress)?;
            views::compare(db, &postgres, &mut plan.report, progress)?;
            seconds.verifying = start.elapsed().as_secs_f64() - seconds.constraints;
            progress.at("all", 0)?;
            postgres.commit()?;
        }
        Err(files) => {
            files.finish(&mut plan)?;
            seconds.constraints = start.elapsed().as_secs_f64();
        }
    }
    Ok((Exported { plan, sums, seconds }, None))
}

/// Reads a table for its checksum alone.
fn read(
    source: Source<'_, '_>,
    target: &Target,
    refused: &mut Vec<Refused>,
    progress: &mut Progress<'_>,
) -> Result<Sum> {
    let mut sum = Sum::default();
    source.each(target, refused, |tuple| {
        sum.add(tuple);
        progress.sometimes(&target.name, sum.rows)
    })?;
    Ok(sum)
}

/// Fails unless PostgreSQL has the same rows.
fn verify(
    postgres: &Postgres,
    targets: &[Target],
    sums: &[Sum],
    progress: &mut Progress<'_>,
) -> Result<()> {
    for (target, here) in targets.iter().zip(sums) {
        let there = postgres.sum(target, progress)?;
        let (here_rows, there_rows) = (here.rows, there.rows);
        ensure!(
            here_rows == there_rows,
            "{} has {here_rows} rows here and {there_rows} in PostgreSQL",
            target.name
        );
        let name = &target.name;
        ensure!(*here == there, "{name}: its rows here and in PostgreSQL have other checksums");
    }
    Ok(())
}

fn show(record: &Record<'_>, to: &str, as_json: bool) -> Result<()> {
    let mut out = stdout();
    if as_json {
        return json::print(&mut out, record);
    }
    for (verdict, title) in [(Verdict::Changed, "changed"), (Verdict::Lost, "not carried")] {
        for Item { kind, name, note, .. } in record.items.iter().filter(|it| it.verdict == verdict)
        {
            writeln!(out, "{title}  {kind} {name}: {note}")?;
        }
    }
    let count = |verdict| record.items.iter().filter(|it| it.verdict == verdict).count();
    let rows: u64 = record.tables.iter().map(|table| table.rows).sum();
    let Seconds { looking, copying, constraints, verifying, .. } = record.seconds;
    writeln!(
        out,
        "{}: {}, {}; {} carried, {} changed, {} not; looked {}, copied {}, finished {}, \
         verified {}",
        // A connection may have a password.
        if is_connection(to) { "PostgreSQL" } else { to },
        words::count(record.tables.len() as u64, "table"),
        words::count(rows, "row"),
        count(Verdict::Carried),
        count(Verdict::Changed),
        count(Verdict::Lost),
        words::seconds(looking),
        words::seconds(copying),
        words::seconds(constraints),
        words::seconds(verifying),
    )?;
    Ok(out.flush()?)
}
