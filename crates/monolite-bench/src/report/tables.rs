//! The tables of a report, computed from the record alone: a list of columns for each.

mod headlines;

use super::matrix;
use super::names::{BACKUPS, BURST_ALONE, CONTESTS, DELAYS};
use super::record::{Cell, CellOutcome, Data, Measurement, Record, Verification};
use super::render::{Table, bytes, count, nanoseconds, percent, ratio, spread};
use crate::drivers::script::Workload;
use crate::raw_connection::Durability;
use crate::statistics::{BURST_SAMPLE, Percentiles};
pub use headlines::headlines;

/// Returns all tables in the order they are read.
pub fn all(record: &Record) -> Vec<Table> {
    if record.suite != "tps" {
        return matrix::tables(record);
    }
    let mut tables = vec![headlines(record)];
    tables.extend(Durability::ALL.map(|durability| burst(record, durability)));
    tables.extend(Durability::ALL.map(|durability| closed_loop(record, durability)));
    tables.extend([uniform(record), traffic(record), reads(record)]);
    tables.extend(Workload::ALL.into_iter().flat_map(|workload| delays(record, workload)));
    tables.extend(CONTESTS.map(|(group, title)| contended(record, title, group)));
    tables.extend([sleepers(record), costs(record), backups(record)]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// A cell with figures, and the cell that it is compared with.
struct Row<'r> {
    record: &'r Record,
    cell: &'r Cell,
    figures: &'r Measurement,
    base: Option<&'r Measurement>,
}

impl Row<'_> {
    /// A ratio to the cell that it is compared with; empty where there is none.
    fn over(&self, figure: fn(&Measurement) -> f64) -> String {
        self.base.map_or("".into(), |base| ratio(figure(self.figures) / figure(base)))
    }
}

fn rate(cell: &Measurement) -> f64 {
    cell.per_second.median
}

fn p99(cell: &Measurement) -> f64 {
    cell.latency.p99_ns as f64
}

/// A column: what heads it, and what it says of a cell.
type Column = (&'static str, fn(&Row<'_>) -> String);

const RATE: Column = ("tx/s (min–max)", |row| spread(row.figures.per_second));
const OVER_BATCH: Column = ("÷ raw batch", |row| row.over(rate));
const OVER_NONE: Column = ("÷ without", |row| row.over(rate));
const P50: Column = ("p50", |row| nanoseconds(row.figures.latency.p50_ns));
const P90: Column = ("p90", |row| nanoseconds(row.figures.latency.p90_ns));
const P99: Column = ("p99", |row| nanoseconds(row.figures.latency.p99_ns));
const P99_9: Column = ("p99.9", |row| nanoseconds(row.figures.latency.p99_9_ns));
const MAX: Column = ("max", |row| nanoseconds(row.figures.latency.max_ns));
const WAL: Column = ("WAL", |row| bytes(row.figures.wal_bytes_max));
const RESUMED: Column = ("resumed", |row| count(row.figures.contention.resumed as f64));

/// Share of commits whose reads the page check found valid; empty where nothing was checked.
fn unchanged(row: &Row<'_>) -> String {
    row.figures.unchanged_share.map(percent).unwrap_or_default()
}

/// A table of the cells whose names begin so, each compared with the one that `base` names. Those
/// without figures have their reason.
fn table(
    record: &Record,
    title: impl Into<String>,
    group: &str,
    base: impl Fn(&Cell) -> String,
    columns: &[Column],
) -> Table {
    let header: Vec<&str> = std::iter::once("").chain(columns.iter().map(|it| it.0)).collect();
    let mut table = Table::new(title, &header);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(group)) {
        let mut line = vec![cell.name.clone()];
        match &cell.outcome {
            CellOutcome::Measured(figures) => {
                let base = record.cell(&base(cell)).and_then(Cell::measurement);
                let row = Row { record, cell, figures, base };
                line.extend(columns.iter().map(|(_, show)| show(&row)));
                let notes = figures.notes().map(|note| format!("{}, {note}", cell.name));
                table.notes.extend(notes);
            }
            CellOutcome::Missing(reason) => {
                line.push(reason.clone());
                line.resize(header.len(), String::new());
            }
        }
        table.rows.push(line);
    }
    table
}

fn nothing(_: &Cell) -> String {
    String::new()
}

fn measured<'r>(
    record: &'r Record,
    prefix: &'r str,
) -> impl Iterator<Item = (&'r Cell, &'r Measurement)> {
    let cells = record.cells.iter().filter(move |cell| cell.id.starts_with(prefix));
    cells.filter_map(|cell| Some((cell, cell.measurement()?)))
}

fn add_reason(record: &Record, table: &mut Table) {
    if let Some(reason) = &record.setup.postgres_missing
        && !table.rows.is_empty()
    {
        table.notes.push(format!("no PostgreSQL: {reason}"));
    }
}

fn burst(record: &Record, durability: Durability) -> Table {
    let group = format!("burst/{durability}/");
    let title =
        format!("Burst, {durability}: an acknowledged transaction is {}", durability.meaning());
    let wal: Column = ("WAL (checkpoints)", |row| match row.figures.wal_bytes_max {
        0 => "".into(),
        size => format!("{} ({})", bytes(size), row.figures.checkpoints),
    });
    let columns = [RATE, OVER_BATCH, P50, P90, P99, P99_9, MAX, wal];
    let mut table = table(record, title, &group, |_| format!("{group}raw-batch"), &columns);
    for (cell, figures) in measured(record, &group) {
        if figures.reads_per_second.median > 0.0 {
            let reads = count(figures.reads_per_second.median);
            table.notes.push(format!("{}: also {reads} awaited reads/s", cell.name));
        }
        if figures.failed > 0 {
            let failed = count(figures.failed as f64);
            let note = format!("exactly the {failed} transactions that had to fail did");
            table.notes.push(format!("{}: {note}", cell.name));
        }
    }
    add_reason(record, &mut table);
    table
}

fn uniform(record: &Record) -> Table {
    let title = "Burst, durable, every account equally likely: data larger than the cache";
    let columns = [RATE, OVER_BATCH, P50, P90, P99, P99_9, MAX];
    let base = |_: &Cell| "uniform/durable/raw-batch".to_owned();
    let mut table = table(record, title, "uniform/", base, &columns);
    add_reason(record, &mut table);
    table
}

/// What a transaction of a burst reads and writes.
fn traffic(record: &Record) -> Table {
    let header = ["", "pages read", "WAL", "written by checkpoints"];
    let mut table = Table::new("What a transaction of a burst reads and writes", &header);
    for cell in &record.cells {
        let Some(found) = cell.measurement().and_then(|figures| figures.traffic) else { continue };
        let group = cell.id.rsplit_once('/').map_or("", |(group, _)| group);
        let each = |figure: Option<u64>, show: fn(f64) -> String| {
            figure.map_or("".into(), |figure| show(found.each(figure)))
        };
        table.rows.push(vec![
            format!("{group}: {}", cell.name),
            each(found.pages_read, ratio),
            each(Some(found.wal_bytes), |bytes| format!("{} B", count(bytes))),
            each(found.checkpoint_bytes, |bytes| format!("{} B", count(bytes))),
        ]);
    }
    table.notes.push(
        "pages read: those that were not in the cache of SQLite, mostly from the kernel's; \
         PostgreSQL: its WAL alone is counted"
            .into(),
    );
    table
}

fn closed_loop(record: &Record, durability: Durability) -> Table {
    let group = format!("closed/{durability}/");
    let title = format!("Closed loop, {durability}: each client waits before its next transaction");
    let limit: Column = ("limit", |row| {
        let limit = row.record.limits.iter().find(|limit| limit.cell == row.cell.id);
        limit.map_or("".into(), |limit| count(limit.per_second))
    });
    let over: Column = ("÷ limit", |row| {
        let limit = row.record.limits.iter().find(|limit| limit.cell == row.cell.id);
        limit.map_or("".into(), |limit| ratio(limit.reached))
    });
    let columns = [RATE, limit, over, P50, P90, P99, P99_9, MAX];
    let mut table = table(record, title, &group, nothing, &columns);
    let method = record.limits.iter().find(|limit| limit.cell.starts_with(&group));
    table.notes.extend(method.map(|limit| format!("limit: {}", limit.method)));
    table
}

fn reads(record: &Record) -> Table {
    let title = "Autocommit point reads, one thread, each awaited";
    let reads: Column = ("reads/s (min–max)", RATE.1);
    let columns = [reads, ("÷ raw", OVER_BATCH.1), P50, P90, P99, P99_9, MAX];
    table(record, title, "reads/", |_| "reads/durable/raw".into(), &columns)
}

/// What a backup takes from writes.
fn backups(record: &Record) -> Table {
    let columns = [RATE, OVER_NONE, P50, P90, P99, P99_9, MAX, WAL];
    let title = "A burst beside backups, durable";
    table(record, title, BACKUPS, |_| BURST_ALONE.into(), &columns)
}

/// How often transactions got in each other's way, and what came of it.
fn contended(record: &Record, title: &str, group: &str) -> Table {
    let columns = [
        RATE,
        ("attempts in conflict", |row| percent(row.figures.repeated())),
        ("conflicts/s", |row| count(row.figures.retries_per_second())),
        RESUMED,
        ("unchanged", unchanged),
        P50,
        P99,
        MAX,
    ];
    let mut table = table(record, title, group, nothing, &columns);
    table.notes.extend(match group {
        "mixed/" => Some(
            "ids returned: appends with RETURNING ask for the new id; nothing returned: they have \
             no RETURNING; the others ask for columns that they gave"
                .to_owned(),
        ),
        "hot-rows/" => {
            Some("rows in order: those with a smaller id first, against deadlocks".to_owned())
        }
        _ => None,
    });
    table.notes.push(
        "resumed: statements that ran on a newer snapshot; unchanged: share of the commits whose \
         reads were skipped; the engine alone counts these"
            .into(),
    );
    add_reason(record, &mut table);
    table
}

/// The name of the same clients without sleepers.
fn without_sleepers(cell: &Cell) -> String {
    cell.id.rsplit_once('-').map_or(String::new(), |(clients, _)| format!("{clients}-0"))
}

fn sleepers(record: &Record) -> Table {
    let title = "Plain writes beside interactive transactions that are open and wake every second, \
                 durable";
    let over: Column = ("p99 ÷ without", |row| row.over(p99));
    let columns = [RATE, OVER_NONE, P50, P99, over, WAL, RESUMED];
    let mut table = table(record, title, "sleepers/", without_sleepers, &columns);
    let limit = record.setup.engine.iter().find(|line| line.starts_with("wal_limit_bytes"));
    table.notes.extend(limit.map(|limit| format!("the WAL's limit: {limit}")));
    table
}

/// CPU of a transaction, in nanoseconds, of the process; and of the writer.
fn cpu(figures: &Measurement) -> f64 {
    let used = figures.cpu.map_or(0, |cpu| cpu.process_ns);
    used as f64 / figures.operations().max(1) as f64
}

fn writer_cpu(figures: &Measurement) -> f64 {
    let used = figures.cpu.map_or(0, |cpu| cpu.writer_ns);
    used as f64 / figures.operations().max(1) as f64
}

/// The name of the cell of `write` for one of `transact`.
fn by_write(cell: &Cell) -> String {
    cell.id.replace("transact", "write")
}

fn costs(record: &Record) -> Table {
    let title = "CPU of two updates without delay, durable: by write, and by transact";
    let columns = [
        RATE,
        ("CPU of a tx", |row| nanoseconds(cpu(row.figures) as u64)),
        ("÷ write", |row| row.over(cpu)),
        ("on the writer", |row| nanoseconds(writer_cpu(row.figures) as u64)),
        ("share of it", |row| percent(writer_cpu(row.figures) / cpu(row.figures))),
    ];
    let mut table = table(record, title, "cost/", by_write, &columns);
    table.notes.push("CPU of the process, the waiting clients among it, in user and system".into());
    table
}

/// Line and column of a cell.
fn place(cell: &Cell, workload: Workload) -> Option<(&str, &str)> {
    cell.id.strip_prefix(workload.key())?.strip_prefix("/durable/")?.split_once('/')
}

fn delays(record: &Record, workload: Workload) -> Vec<Table> {
    let what = match workload {
        Workload::Blind => "The application takes its time between the two updates, durable",
        Workload::Decide => "The application reads, decides, and writes balances, durable",
    };
    // The middle of their cells' names, what to call them, and whether there is a figure.
    let mut lines: Vec<(&str, &str, bool)> = Vec::new();
    for cell in &record.cells {
        let Some((line, _)) = place(cell, workload) else { continue };
        let is_measured = cell.measurement().is_some();
        match lines.iter_mut().find(|(known, ..)| *known == line) {
            Some((.., any)) => *any |= is_measured,
            None => lines.push((line, &cell.name, is_measured)),
        }
    }
    let matrix = |title: String, figure, show: fn(&Measurement) -> String, is_whole: bool| {
        let header: Vec<&str> =
            std::iter::once(figure).chain(DELAYS.iter().map(|(_, title)| *title)).collect();
        let mut table = Table::new(title, &header);
        for (line, name, _) in lines.iter().filter(|(.., any)| *any || is_whole) {
            let mut row = vec![(*name).to_owned()];
            row.extend(DELAYS.map(|(column, _)| {
                let cell = record.cell(&format!("{}/durable/{line}/{column}", workload.key()));
                match cell.map(|cell| &cell.outcome) {
                    Some(CellOutcome::Measured(cell)) => show(cell),
                    Some(CellOutcome::Missing(reason)) => reason.clone(),
                    None => "".into(),
                }
            }));
            table.rows.push(row);
        }
        table
    };
    let mut rates = matrix(what.into(), "tx/s", |cell| count(rate(cell)), true);
    match workload {
        Workload::Blind => rates.notes.push(
            "third: the second account's balance is read between the updates, with the delay \
             before and after it"
                .into(),
        ),
        Workload::Decide => rates.notes.extend([
            "both balances are read, then comes the delay, then both are written; third: the \
             delay also comes between the two reads"
                .to_owned(),
            "PostgreSQL with READ COMMITTED and no FOR UPDATE would lose money here".to_owned(),
        ]),
    }
    add_reason(record, &mut rates);
    let title = |detail: &str| format!("{what}: {detail}");
    let latency = |cell: &Measurement| {
        [cell.latency.p50_ns, cell.latency.p99_ns].map(nanoseconds).join(" / ")
    };
    let repeated = |cell: &Measurement| percent(cell.repeated());
    vec![
        rates,
        matrix(title("latency"), "p50 / p99", latency, false),
        matrix(title("attempts that were repeated"), "share", repeated, false),
        contention(record, workload, title("what else was counted")),
    ]
}

/// What the engine and raw SQLite count beside their transactions.
fn contention(record: &Record, workload: Workload, title: String) -> Table {
    let columns: [Column; 8] = [
        ("transactions", |row| count(row.figures.operations() as f64)),
        ("repeated", |row| count(row.figures.retries as f64)),
        RESUMED,
        ("replayed", |row| count(row.figures.contention.replayed as f64)),
        ("unchanged", |row| count(row.figures.contention.unchanged as f64)),
        ("read only", |row| count(row.figures.contention.read_only as f64)),
        ("unchanged of these", unchanged),
        ("busy waits", |row| count(row.figures.contention.busy_waits as f64)),
    ];
    let mut table = table(record, title, "none of all", nothing, &columns);
    for cell in &record.cells {
        let Some((line, column)) = place(cell, workload) else { continue };
        let Some(figures) = cell.measurement().filter(|_| !line.starts_with("postgres")) else {
            continue;
        };
        let delay = DELAYS.iter().find(|(key, _)| *key == column).map_or(column, |(_, name)| name);
        let row = Row { record, cell, figures, base: None };
        let mut line = vec![format!("{}, {delay}", cell.name)];
        line.extend(columns.iter().map(|(_, show)| show(&row)));
        table.rows.push(line);
    }
    table.notes.push(
        "resumed: statements that ran on a newer snapshot; replayed: commits compared whole; \
         unchanged: commits whose reads were skipped; read only: commits without a change; busy \
         waits: rests of raw SQLite's busy handler"
            .into(),
    );
    table
}

/// Returns the lines that say what was measured, and on what.
pub fn preamble(record: &Record) -> Vec<String> {
    let (machine, setup) = (&record.machine, &record.setup);
    let probe =
        |p: &Percentiles| format!("p50 {}, p99 {}", nanoseconds(p.p50_ns), nanoseconds(p.p99_ns));
    let mut lines = vec![
        format!(
            "machine: {}, {} cores, {} memory, {}, {}",
            machine.cpu,
            machine.cores,
            bytes(machine.memory_bytes),
            machine.kernel,
            machine.system
        ),
        format!(
            "disk: {} ({}, cache {}); append 4 KiB + fdatasync {}; overwrite + fdatasync {}",
            machine.disk.device,
            machine.disk.file_system,
            machine.disk.write_cache,
            probe(&record.device.append_sync),
            probe(&record.device.overwrite_sync)
        ),
        format!(
            "software: monolite {}, SQLite {}, PostgreSQL {}",
            setup.monolite,
            setup.sqlite,
            setup.postgres.as_deref().unwrap_or("none")
        ),
    ];
    lines.extend(record.data.as_ref().map(describe).into_iter().flatten());
    lines.extend(record.work.iter().cloned());
    lines.extend([
        format!(
            "rounds: {} counted, the first dropped; figures are medians (min–max); latencies run \
             from submission to acknowledgement; bursts record one transaction in {}",
            setup.rounds, BURST_SAMPLE
        ),
        format!(
            "{}: {} checks, all passed; memory at most {} (work drawn beforehand included); \
             {:.0} s in all",
            record.checked(),
            count(record.verifications.len() as f64),
            bytes(record.peak_memory_bytes),
            record.seconds
        ),
    ]);
    lines
}

fn describe(data: &Data) -> [String; 2] {
    let hot = &data.hot_set;
    [
        format!(
            "data: {} rows, schema {}, {} file, {} writer cache",
            count(data.identity.rows as f64),
            data.identity.schema,
            bytes(data.file_bytes),
            bytes(data.writer_cache_bytes)
        ),
        format!(
            "hot set ({} draw): a burst of {} transactions touches {} accounts on {} leaf pages",
            data.skew,
            count(hot.transfers as f64),
            count(hot.distinct_ids as f64),
            count(hot.distinct_leaf_pages as f64)
        ),
    ]
}

/// Returns what was set, and what was checked.
pub fn settings(record: &Record) -> String {
    let mut text = String::new();
    section(&mut text, "Settings of the engine", &record.setup.engine);
    section(&mut text, "Pragmas of raw SQLite", &record.setup.raw_pragmas);
    section(&mut text, "Settings of PostgreSQL", &record.setup.postgres_settings);
    let checks: Vec<String> = record.verifications.iter().map(checked).collect();
    section(&mut text, &format!("Checks of the {}, all passed", record.checked()), &checks);
    if let Some(data) = &record.data {
        text.push_str(&format!("\nHot pages: {}.\n", data.hot_set.method));
    }
    text
}

/// A check, and how much was looked at.
fn checked(check: &Verification) -> String {
    let Verification { after, check, accounts } = check;
    let is_of_accounts = ["account ", "balances "].iter().any(|word| check.contains(word));
    let what = if is_of_accounts { "accounts" } else { "looked at" };
    format!("{after}: {check} ({accounts} {what})")
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if !lines.is_empty() {
        text.push_str(&format!("\n## {title}\n\n"));
        lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    }
}
