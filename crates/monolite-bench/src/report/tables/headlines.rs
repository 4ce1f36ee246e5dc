//! The ratios that matter, each within its run.

use super::writer_cpu;
use super::{
    Cell, Measurement, Record, by_write, cpu, measured, p99, place, rate, without_sleepers,
};
use crate::drivers::script::Workload;
use crate::report::names::APPENDS;
use crate::report::render::{Table, ratio};

/// The waiting clients whose limit is a ratio that matters.
const WAITING: &str = "closed/durable/monolite-128";

const RAW_BATCH: &str = "burst/durable/raw-batch";
const POOLS: [&str; 2] = ["burst/durable/postgres-8", "burst/durable/postgres-64"];

/// Rates of `bench tps`: what, over what, their cells.
const RATES: [([&str; 2], &str, &[&str]); 6] = [
    (
        ["monolite, burst, durable", "raw SQLite, batches of 10,000, no isolation"],
        "burst/durable/monolite",
        &[RAW_BATCH],
    ),
    (
        ["monolite, burst, durable", "raw SQLite, batches of 10,000, a savepoint each"],
        "burst/durable/monolite",
        &["burst/durable/raw-batch-savepoints"],
    ),
    (
        ["monolite, 1 in 100 failing, durable", "monolite without failures"],
        "burst/durable/monolite-failing",
        &["burst/durable/monolite"],
    ),
    (
        [
            "monolite, 3 awaited reads per write, writes/s",
            "raw SQLite, batches of 10,000, no isolation",
        ],
        "burst/durable/monolite-reads",
        &[RAW_BATCH],
    ),
    (
        ["monolite, burst, durable", "PostgreSQL, the better pool, read committed, no delay"],
        "burst/durable/monolite",
        &POOLS,
    ),
    (
        ["monolite, autocommit point reads", "raw SQLite, prepared statement"],
        "reads/durable/monolite",
        &["reads/durable/raw"],
    ),
];

/// Ours over what it is compared with, at each number of clients.
const CONTESTS: [(&str, &str, &str); 9] = [
    ("parent-child/", "monolite-asked", "monolite-given"),
    ("parent-child/", "monolite-asked", "postgres-asked"),
    ("mixed/", "monolite-rowids", "monolite-silent"),
    ("mixed/", "monolite-rowids", "postgres-ser"),
    ("mixed/", "monolite-rowids", "postgres-locking"),
    ("hot-rows/", "monolite", "postgres-ser"),
    ("hot-rows/", "monolite", "postgres-locking"),
    ("hot-row/", "monolite", "postgres-ser"),
    ("hot-row/", "monolite", "postgres-locking"),
];

/// Returns the ratios that matter.
pub fn headlines(record: &Record) -> Table {
    let mut table = Table::new("Ratios within this run", &["this", "over this", "ratio"]);
    let mut line = |this: &str, over: &str, value: Option<f64>| {
        table.rows.extend(value.map(|value| vec![this.to_owned(), over.to_owned(), ratio(value)]));
    };
    let share = |ours: &str, theirs: &[&str]| {
        let theirs = theirs.iter().filter_map(|id| record.rate(id)).reduce(f64::max);
        Some(record.rate(ours)? / theirs?)
    };
    for (number, ([this, over], ours, theirs)) in RATES.iter().enumerate() {
        if number == RATES.len() - 1 {
            waiting(record, &mut line);
        }
        line(this, over, share(ours, theirs));
    }
    interactive(record, &mut line);
    for (cell, figures) in measured(record, "mixed/") {
        let this = format!("{}, mixed: attempts in conflict", cell.name);
        line(&this, "all attempts", Some(figures.repeated()));
    }
    for (group, ours, theirs) in CONTESTS {
        let begin = format!("{group}durable/{ours}-");
        for (cell, _) in measured(record, &begin) {
            let clients = &cell.id[begin.len()..];
            let Some(other) = record.cell(&format!("{group}durable/{theirs}-{clients}")) else {
                continue;
            };
            let this = format!("{}{}", group.replace('/', ": "), cell.name);
            line(&this, &other.name, share(&cell.id, &[&other.id]));
        }
    }
    let base = |name: String| record.cell(&name).and_then(Cell::measurement);
    for (cell, figures) in measured(record, "sleepers/") {
        let Some(without) = base(without_sleepers(cell)).filter(|it| *it != figures) else {
            continue;
        };
        let over = |figure: fn(&Measurement) -> f64| Some(figure(figures) / figure(without));
        line(&cell.name, "without sleepers", over(rate));
        line(&format!("{}: p99", cell.name), "without sleepers", over(p99));
    }
    for (cell, figures) in measured(record, "cost/durable/transact-") {
        let Some(write) = base(by_write(cell)) else { continue };
        line(&format!("{}: CPU", cell.name), "write: CPU", Some(cpu(figures) / cpu(write)));
        let share = writer_cpu(figures) / cpu(figures);
        line(&format!("{}: CPU of the writer", cell.name), "all", Some(share));
    }
    let method = record.limits.iter().find(|limit| limit.cell == WAITING);
    table.notes.extend(method.map(|limit| {
        format!("the limit of clients that wait for one sync after the other: {}", limit.method)
    }));
    table
}

fn waiting(record: &Record, line: &mut impl FnMut(&str, &str, Option<f64>)) {
    let latency = |id: &str| Some(record.cell(id)?.measurement()?.latency.p50_ns as f64);
    let one = latency("closed/durable/monolite-1");
    let over = one.zip(latency(APPENDS)).map(|(ours, device)| ours / device);
    line("monolite, 1 waiting client, durable: p50", "the device's append + fdatasync, p50", over);
    let limit = record.limits.iter().find(|limit| limit.cell == WAITING);
    line(
        "monolite, 128 waiting clients, durable",
        "the limit of clients that wait for one sync after the other",
        limit.map(|limit| limit.reached),
    );
}

fn interactive(record: &Record, line: &mut impl FnMut(&str, &str, Option<f64>)) {
    for (workload, name) in [(Workload::Blind, "blind"), (Workload::Decide, "decide")] {
        let best =
            |line: &str, end: &str, column: &str| best(record, workload, [line, end, column]);
        let ours = best("interactive-", "", "10ms");
        let clients = ours.map_or("", |(_, line)| line.trim_start_matches("interactive-"));
        let this = format!("monolite, interactive, {name}, 10 ms, {clients} clients");
        let mut over = |over: &str, theirs: Option<Best<'_>>| {
            line(&this, over, ours.zip(theirs).map(|(ours, theirs)| ours.0 / theirs.0));
        };
        for (end, level) in [("-ser", "serializable"), ("-locking", "FOR UPDATE"), ("-rc", "RC")] {
            let theirs = best("postgres-", end, "10ms");
            let pool = theirs.map_or("", |(_, line)| line.trim_matches(|c: char| !c.is_numeric()));
            over(&format!("PostgreSQL, {level}, 10 ms, its best pool ({pool})"), theirs);
        }
        over("PostgreSQL, serializable, 10 ms, pool 8", best("postgres-8-", "ser", "10ms"));
        let patient = best("interactive-", "", "0ms");
        over("monolite, the same without delay, its best clients", patient);
    }
}

/// A rate, and the line of the table that has it.
type Best<'r> = (f64, &'r str);

/// Returns the best rate of the lines that begin and end like this, in a column.
fn best<'r>(
    record: &'r Record,
    workload: Workload,
    [start, end, column]: [&str; 3],
) -> Option<Best<'r>> {
    let rates = record.cells.iter().filter_map(|cell| {
        let (line, its_column) = place(cell, workload)?;
        let matches = line.starts_with(start) && line.ends_with(end) && its_column == column;
        matches.then_some(())?;
        Some((cell.measurement()?.per_second.median, line))
    });
    rates.reduce(|best, next| if next.0 > best.0 { next } else { best })
}
