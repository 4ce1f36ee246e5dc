//! `monolite torture`: hands the arguments over, shows progress, prints the table and the verdict.

use super::arguments::Torture;
use crate::bar::Bar;
use crate::interrupt::{self, Stopped};
use crate::json;
use crate::out::stdout;
use anyhow::{Context, Result, bail};
use monolite_bench::machine::Machine;
use monolite_bench::report::render::{Table, count};
use monolite_torture::{self as torture, CHECKS, Event, Outcome, Plan, Program, Verdict, Watch};
use serde::Serialize;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Where evidence of failures goes, below the directory under test.
const EVIDENCE: &str = "torture-evidence";

/// What `--json` prints.
#[derive(Serialize)]
struct Record<'a> {
    version: &'static str,
    sqlite: &'static str,
    seed: u64,
    seconds: f64,
    verdict: &'static str,
    machine: Machine,
    outcomes: &'a [Outcome],
}

/// Runs the checks that `arguments` name.
pub(crate) fn run(arguments: &Torture) -> Result<()> {
    let stop = interrupt::flag()?;
    let (bar, done) = (Bar::new(), AtomicU64::new(0));
    let tell = |event: Event<'_>| match event {
        Event::Begins { check, total } => {
            done.store(0, Ordering::Relaxed);
            bar.begin(&format!("{} ({})", check.name, check.unit), Some(total));
        }
        Event::Done(units) => {
            bar.advance_to(done.fetch_add(units, Ordering::Relaxed) + units);
        }
        Event::Note(text) => bar.note(text),
    };
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    let start = Instant::now();
    let outcomes = match &arguments.replay {
        Some(recorded) => vec![torture::replay(recorded)?],
        None => torture::run(&plan(arguments, seed)?, Watch { tell: &tell, stop: &stop })?,
    };
    bar.finish();
    let verdict = Verdict::over(&outcomes);
    let record = Record {
        version: env!("CARGO_PKG_VERSION"),
        sqlite: torture::sqlite_version(),
        seed,
        seconds: start.elapsed().as_secs_f64(),
        verdict: word(verdict),
        machine: Machine::look(&arguments.dir),
        outcomes: &outcomes,
    };
    let mut out = stdout();
    if arguments.json {
        json::print(&mut out, &record)?;
    } else {
        write_text(&record, &mut out)?;
    }
    match verdict {
        Verdict::Broken => bail!("a promise was broken or a control went unnoticed"),
        _ if stop.load(Ordering::Relaxed) => {
            Err(Stopped("what was done until then is in the table").into())
        }
        Verdict::Kept | Verdict::Nothing => Ok(()),
    }
}

/// The named checks, or all of them with modest amounts.
fn plan(arguments: &Torture, seed: u64) -> Result<Plan> {
    let dir = std::path::absolute(&arguments.dir).context("cannot find the directory to test")?;
    let checks = match arguments.checks.named.as_slice() {
        [] => CHECKS.iter().map(|check| (*check, check.modest)).collect(),
        named => named.to_vec(),
    };
    let evidence = dir.join(EVIDENCE);
    Ok(Plan { dir, evidence, seed, checks, program: Program::this()? })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::Broken => "broken",
        Verdict::Nothing => "nothing tried",
    }
}

fn write_text(record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
    const HEADER: [&str; 9] = [
        "check",
        "unit",
        "attempted",
        "acknowledged",
        "lost",
        "partial",
        "anomalies",
        "controls detected",
        "seconds",
    ];
    let mut table = Table::new(String::new(), &HEADER);
    for outcome in record.outcomes {
        let figures = [outcome.attempted, outcome.acknowledged, outcome.lost, outcome.partial];
        let mut row = vec![outcome.check.clone(), outcome.unit.clone()];
        row.extend(figures.map(|figure| count(figure as f64)));
        row.push(count(outcome.anomalies as f64));
        let detected = outcome.controls.iter().filter(|control| control.detected).count();
        row.push(format!("{detected} of {}", outcome.controls.len()));
        row.push(format!("{:.1}", outcome.seconds));
        table.rows.push(row);
    }
    write!(out, "{}", table.to_text())?;
    record.outcomes.iter().try_for_each(|outcome| write_details(outcome, out))?;
    writeln!(out, "\nseed {}, SQLite {}, {:.0} s", record.seed, record.sqlite, record.seconds)?;
    writeln!(out, "verdict: {}", record.verdict)
}

/// What the table has no room for.
fn write_details(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", outcome.check)?;
    for note in &outcome.notes {
        writeln!(out, "  {note}")?;
    }
    for control in &outcome.controls {
        let word = if control.detected { "detected" } else { "NOT DETECTED" };
        writeln!(out, "  control: {}: {word} ({})", control.name, control.how)?;
    }
    for reason in &outcome.skipped {
        writeln!(out, "  SKIPPED: {reason}")?;
    }
    for finding in &outcome.findings {
        writeln!(out, "  FAILED: {}", finding.what)?;
        if let Some(evidence) = &finding.evidence {
            writeln!(out, "    evidence: {}", evidence.display())?;
        }
        writeln!(out, "    repeat:   {}", finding.reproduce)?;
    }
    Ok(())
}
