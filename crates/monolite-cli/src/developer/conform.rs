//! `monolite conform`: hands the arguments over, shows progress, prints the table and differences.

use super::arguments::Conform;
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::out::stdout;
use crate::{json, words};
use anyhow::{Result, bail};
use monolite_bench::report::render::{Table, count};
use monolite_torture::conform::{self, Event, Plan, Report, Watch};
use serde::Serialize;
use std::io::{self, Write};
use std::time::Instant;

/// Most scripts that run at once unless the user says more.
const MAX_THREADS: usize = 8;

/// Longest statement that is shown, in characters.
const SHOWN: usize = 300;

/// What `--json` prints.
#[derive(Serialize)]
struct Record<'a> {
    version: &'static str,
    sqlite: &'static str,
    seconds: f64,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the scripts.
pub(crate) fn run(arguments: &Conform) -> Result<()> {
    let mut out = stdout();
    let stop = interrupt::flag()?;
    let bar = Bar::new();
    let tell = |event: Event<'_>| match event {
        Event::Begins(jobs) => bar.begin("scripts × paths", Some(jobs as u64)),
        Event::Done(jobs) => bar.advance_to(jobs as u64),
        Event::Note(text) => bar.note(text),
    };
    let start = Instant::now();
    let report = conform::run(&plan(arguments), &Watch { tell: &tell, stop });
    bar.finish();
    let report = report?;
    let seconds = start.elapsed().as_secs_f64();
    let sqlite = monolite_torture::sqlite_version();
    if arguments.json {
        let record =
            Record { version: env!("CARGO_PKG_VERSION"), sqlite, seconds, report: &report };
        json::print(&mut out, &record)?;
    } else {
        write_text(&report, &mut out)?;
        writeln!(out, "\nSQLite {sqlite}, {}", words::seconds(seconds))?;
    }
    match report.differences.len() {
        0 if report.is_stopped => Err(Stopped("what was run until then is in the table").into()),
        0 => Ok(()),
        count => bail!("{count} differences to plain SQLite that are not by design"),
    }
}

fn plan(arguments: &Conform) -> Plan {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let asked = arguments.threads.and_then(|threads| usize::try_from(threads).ok());
    let paths = match arguments.paths.as_slice() {
        [] => conform::PATHS.iter().collect(),
        named => named.to_vec(),
    };
    Plan {
        scripts: arguments.scripts.clone(),
        paths,
        scratch: arguments.scratch.clone().unwrap_or_else(std::env::temp_dir),
        threads: asked.unwrap_or(cores.min(MAX_THREADS)),
    }
}

fn write_text(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    const HEADER: [&str; 6] = ["path", "run", "skipped", "differing", "excused", "what it is"];
    for difference in &report.differences {
        let statement: String = difference.statement.chars().take(SHOWN).collect();
        writeln!(out, "{}:{}: {}", difference.file, difference.line, statement)?;
        writeln!(out, "  SQLite:   {}", difference.sqlite)?;
        writeln!(out, "  Monolite: {}", difference.monolite)?;
        writeln!(out, "  on:       {}\n", difference.paths.join(", "))?;
    }
    let mut table = Table::new(String::new(), &HEADER);
    for path in &report.paths {
        let figures = [path.run, path.skipped, path.differing, path.excused];
        let mut row = vec![path.path.to_owned()];
        row.extend(figures.map(|figure| count(figure as f64)));
        row.push(path.about.to_owned());
        table.rows.push(row);
    }
    write!(out, "{}", table.to_text())?;
    let Report { files, statements, .. } = report;
    let plural = if *files == 1 { "" } else { "s" };
    writeln!(out, "\n{files} file{plural}, {statements} statements")?;
    let listed: Vec<_> = report
        .listed
        .iter()
        .filter(|used| used.times > 0)
        .map(|used| format!("{} ({})", used.id, used.times))
        .collect();
    writeln!(out, "by design (docs/differences.md): {}", listed.join(", "))?;
    for left in &report.left {
        let (file, line, path) = (&left.file, left.line, left.path);
        writeln!(out, "{file}: left after line {line} on {path}, because too much differed")?;
    }
    Ok(())
}
