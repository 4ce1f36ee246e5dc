//! The tables of interactive transactions.

use super::{add_reason, missing_row, share};
use crate::drivers::script::Workload;
use crate::report::names::{CONTESTS, DELAYS};
use crate::report::record::{Cell, CellOutcome, Measurement, Record};
use crate::report::render::{Table, bytes, count, nanoseconds, percent, ratio, spread};

/// Returns the tables in the order they are read.
pub(super) fn all(record: &Record) -> Vec<Table> {
    let mut tables: Vec<Table> =
        Workload::ALL.into_iter().flat_map(|workload| delays(record, workload)).collect();
    tables.extend(CONTESTS.map(|(group, title)| contended(record, title, group)));
    tables.extend([sleepers(record), costs(record)]);
    tables
}

/// Returns the ratios that matter, as lines of their table.
pub(super) fn headlines(record: &Record) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    let mut line = |this: String, over: String, value: Option<f64>| {
        lines.extend(value.map(|value| vec![this, over, ratio(value)]));
    };
    for (workload, name) in [(Workload::Blind, "blind"), (Workload::Decide, "decide")] {
        let best =
            |line: &str, end: &str, column: &str| best(record, workload, [line, end, column]);
        let ours = best("interactive-", "", "10ms");
        let this = |rate: Option<Best>| {
            let clients = rate.map_or("", |(_, line)| line.trim_start_matches("interactive-"));
            format!("monolite, interactive, {name}, 10 ms, {clients} clients")
        };
        let rate = |best: Option<Best>| best.map(|(rate, _)| rate);
        for (end, level) in [("-ser", "serializable"), ("-locking", "FOR UPDATE"), ("-rc", "RC")] {
            let theirs = best("postgres-", end, "10ms");
            let pool = theirs.map_or("", |(_, line)| line.trim_matches(|c: char| !c.is_numeric()));
            let over = format!("PostgreSQL, {level}, 10 ms, its best pool ({pool})");
            line(this(ours), over, share(rate(ours), rate(theirs)));
        }
        let published = best("postgres-8-", "ser", "10ms");
        let over = "PostgreSQL, serializable, 10 ms, pool 8".to_owned();
        line(this(ours), over, share(rate(ours), rate(published)));
        let patient = best("interactive-", "", "0ms");
        let over = "monolite, the same without delay, its best clients".to_owned();
        line(this(ours), over, share(rate(ours), rate(patient)));
    }
    lines.extend(small_headlines(record));
    lines
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

fn small_headlines(record: &Record) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for (cell, figures) in measured(record, "mixed/") {
        let this = format!("{}, mixed: attempts in conflict", cell.name);
        lines.push(vec![this, "all attempts".into(), ratio(figures.repeated())]);
    }
    lines.extend(contest_headlines(record));
    for (cell, figures) in measured(record, "sleepers/") {
        let Some(without) = without_sleepers(record, cell).filter(|it| *it != figures) else {
            continue;
        };
        let (rate, p99) = beside_sleepers(figures, without);
        lines.push(vec![cell.name.clone(), "without sleepers".into(), ratio(rate)]);
        lines.push(vec![format!("{}: p99", cell.name), "without sleepers".into(), ratio(p99)]);
    }
    for (cell, _) in measured(record, "cost/durable/transact-") {
        let Some((over, share)) = cost(record, cell) else { continue };
        lines.push(vec![format!("{}: CPU", cell.name), "write: CPU".into(), ratio(over)]);
        lines.push(vec![format!("{}: CPU of the writer", cell.name), "all".into(), ratio(share)]);
    }
    lines
}

/// What a cell of a matrix shows.
type Show = fn(&Measurement) -> String;

fn delays(record: &Record, workload: Workload) -> Vec<Table> {
    let what = match workload {
        Workload::Blind => "The application takes its time between the two updates, durable",
        Workload::Decide => "The application reads, decides, and writes balances, durable",
    };
    let mut lines = lines(record, workload);
    let rate: Show = |cell| count(cell.per_second.median);
    let mut rates = matrix(record, workload, &lines, &[what, "tx/s"], rate);
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
    let latency: Show =
        |cell| [cell.latency.p50_ns, cell.latency.p99_ns].map(nanoseconds).join(" / ");
    let repeated: Show = |cell| percent(cell.repeated());
    let title = |detail: &str| format!("{what}: {detail}");
    lines.retain(|(line, _)| {
        let is_measured = |cell: &Cell| {
            cell.measurement().is_some() && place(cell, workload).is_some_and(|it| it.0 == *line)
        };
        record.cells.iter().any(is_measured)
    });
    let detail = |of, figure, show| matrix(record, workload, &lines, &[&title(of), figure], show);
    vec![
        rates,
        detail("latency", "p50 / p99", latency),
        detail("attempts that were repeated", "share", repeated),
        contention(record, workload, &title("what else was counted")),
    ]
}

/// Lines of a workload's tables: the middle of their cells' names, and what to call them.
fn lines(record: &Record, workload: Workload) -> Vec<(&str, &str)> {
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for cell in &record.cells {
        if let Some((line, _)) = place(cell, workload)
            && !lines.iter().any(|(known, _)| *known == line)
        {
            lines.push((line, &cell.name));
        }
    }
    lines
}

/// Line and column of a cell.
fn place(cell: &Cell, workload: Workload) -> Option<(&str, &str)> {
    cell.id.strip_prefix(workload.key())?.strip_prefix("/durable/")?.split_once('/')
}

fn matrix(
    record: &Record,
    workload: Workload,
    lines: &[(&str, &str)],
    [title, figure]: &[&str; 2],
    show: Show,
) -> Table {
    let mut header = vec![*figure];
    header.extend(DELAYS.iter().map(|(_, title)| *title));
    let mut table = Table::new(*title, &header);
    for (line, name) in lines {
        let mut row = vec![(*name).to_owned()];
        for (column, _) in DELAYS {
            let cell = record.cell(&format!("{}/durable/{line}/{column}", workload.key()));
            row.push(match cell.map(|cell| &cell.outcome) {
                Some(CellOutcome::Measured(cell)) => show(cell),
                Some(CellOutcome::Missing(reason)) => reason.clone(),
                None => "".into(),
            });
        }
        table.rows.push(row);
    }
    table
}

/// What the engine and raw SQLite count beside their transactions.
fn contention(record: &Record, workload: Workload, title: &str) -> Table {
    let header = [
        "",
        "transactions",
        "repeated",
        "resumed",
        "replayed",
        "unchanged",
        "read only",
        "exclusive",
        "unchanged of these",
        "busy waits",
    ];
    let mut table = Table::new(title, &header);
    for cell in &record.cells {
        let Some((line, column)) = place(cell, workload) else { continue };
        let Some(figures) = cell.measurement() else { continue };
        if line.starts_with("postgres") {
            continue;
        }
        let delay = DELAYS.iter().find(|(key, _)| *key == column).map_or(column, |(_, name)| name);
        table.rows.push(contention_row(&format!("{}, {delay}", cell.name), figures));
    }
    table.notes.push(
        "resumed: statements before which a transaction moved to a newer snapshot; replayed: \
         commits of which the writer replayed and compared everything; unchanged: those of which \
         it replayed the writes alone, because the page check found what they had read unchanged; \
         read only: those that changed nothing; exclusive: transactions that had the writer to \
         themselves; busy waits: rests of raw SQLite's busy handler"
            .into(),
    );
    table
}

fn contention_row(name: &str, figures: &Measurement) -> Vec<String> {
    let found = figures.contention;
    let numbers = [
        figures.operations(),
        figures.retries,
        found.resumed,
        found.replayed,
        found.unchanged,
        found.read_only,
        found.exclusive,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| count(number as f64)));
    row.extend([unchanged(figures), count(found.busy_waits as f64)]);
    row
}

/// Share of commits whose reads the page check found valid; empty where nothing was checked.
fn unchanged(figures: &Measurement) -> String {
    figures.unchanged_share.map(percent).unwrap_or_default()
}

fn measured<'r>(
    record: &'r Record,
    prefix: &'r str,
) -> impl Iterator<Item = (&'r Cell, &'r Measurement)> {
    let cells = record.cells.iter().filter(move |cell| cell.id.starts_with(prefix));
    cells.filter_map(|cell| Some((cell, cell.measurement()?)))
}

/// The columns that only the engine counts.
const COLUMNS: &str = "\
    resumed: statements before which a transaction moved to a newer snapshot; unchanged: share of \
    the commits of which the writer replayed the writes alone, because the page check found what \
    they had read unchanged; exclusive: transactions that had the writer to themselves; the engine \
    alone counts these";

/// How often transactions got in each other's way, and what came of it.
fn contended(record: &Record, title: &str, group: &str) -> Table {
    let header = [
        "",
        "tx/s (min–max)",
        "attempts in conflict",
        "conflicts/s",
        "resumed",
        "unchanged",
        "exclusive",
        "p50",
        "p99",
        "max",
    ];
    let mut table = Table::new(title, &header);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(group)) {
        let Some(figures) = cell.measurement() else {
            table.rows.push(missing_row(cell, header.len()));
            continue;
        };
        let mut row = vec![cell.name.clone(), spread(figures.per_second)];
        row.push(percent(figures.repeated()));
        row.push(count(figures.retries_per_second()));
        row.push(count(figures.contention.resumed as f64));
        row.push(unchanged(figures));
        row.push(count(figures.contention.exclusive as f64));
        let latency = &figures.latency;
        row.extend([latency.p50_ns, latency.p99_ns, latency.max_ns].map(nanoseconds));
        table.rows.push(row);
        table.notes.extend(figures.notes().map(|note| format!("{}, {note}", cell.name)));
    }
    let lines = match group {
        "mixed/" => {
            "ids returned: appends with RETURNING ask for the new id; nothing returned: they have \
             no RETURNING; the others ask for columns that they gave"
        }
        "bystanders/" => {
            "figures are those of the plain writes; decided: 64 clients read the row, decide for 5 \
             ms, and write it; service: 8 take 1.5 s, and a plain write changes the row every 50 \
             ms, so that all their attempts conflict"
        }
        "hot-rows/" => "rows in order: those with a smaller id first, against deadlocks",
        _ => "",
    };
    let lines = Some(lines).filter(|lines| !lines.is_empty());
    table.notes.extend([lines, Some(COLUMNS)].into_iter().flatten().map(str::to_owned));
    add_reason(record, &mut table);
    table
}

/// Ours over what it is compared with, at each number of clients.
fn contest_headlines(record: &Record) -> Vec<Vec<String>> {
    const PAIRS: [(&str, &str, &str); 11] = [
        ("parent-child/", "monolite-asked", "monolite-given"),
        ("parent-child/", "monolite-asked", "postgres-asked"),
        ("mixed/", "monolite-rowids", "monolite-silent"),
        ("mixed/", "monolite-rowids", "postgres-ser"),
        ("mixed/", "monolite-rowids", "postgres-locking"),
        ("hot-rows/", "monolite", "postgres-ser"),
        ("hot-rows/", "monolite", "postgres-locking"),
        ("hot-row/", "monolite", "postgres-ser"),
        ("hot-row/", "monolite", "postgres-locking"),
        ("bystanders/", "decided", "alone"),
        ("bystanders/", "service", "alone"),
    ];
    let mut lines = Vec::new();
    for (group, ours, theirs) in PAIRS {
        let begin = format!("{group}durable/{ours}-");
        for (cell, figures) in measured(record, &begin) {
            let clients = &cell.id[begin.len()..];
            let Some(other) = record.cell(&format!("{group}durable/{theirs}-{clients}")) else {
                continue;
            };
            let rate = other.measurement().map(|other| other.per_second.median);
            let Some(value) = share(Some(figures.per_second.median), rate) else { continue };
            let this = format!("{}{}", group.replace('/', ": "), cell.name);
            lines.push(vec![this, other.name.clone(), ratio(value)]);
        }
    }
    lines
}

/// The same clients with nobody asleep.
fn without_sleepers<'r>(record: &'r Record, cell: &Cell) -> Option<&'r Measurement> {
    let (clients, _) = cell.id.rsplit_once('-')?;
    record.cell(&format!("{clients}-0"))?.measurement()
}

/// Ratios of throughput and of p99.
fn beside_sleepers(with: &Measurement, without: &Measurement) -> (f64, f64) {
    (
        with.per_second.median / without.per_second.median,
        with.latency.p99_ns as f64 / without.latency.p99_ns as f64,
    )
}

fn sleepers(record: &Record) -> Table {
    let title = "Plain writes beside interactive transactions that are open and wake every second, \
                 durable";
    let header =
        ["", "tx/s (min–max)", "÷ without", "p50", "p99", "p99 ÷ without", "WAL", "resumed"];
    let mut table = Table::new(title, &header);
    for (cell, figures) in measured(record, "sleepers/") {
        let ratios =
            without_sleepers(record, cell).map(|without| beside_sleepers(figures, without));
        table.rows.push(vec![
            cell.name.clone(),
            spread(figures.per_second),
            ratios.map_or("".into(), |(rate, _)| ratio(rate)),
            nanoseconds(figures.latency.p50_ns),
            nanoseconds(figures.latency.p99_ns),
            ratios.map_or("".into(), |(_, p99)| ratio(p99)),
            bytes(figures.wal_bytes_max),
            count(figures.contention.resumed as f64),
        ]);
        table.notes.extend(figures.notes().map(|note| format!("{}, {note}", cell.name)));
    }
    let limit = record.setup.engine.iter().find(|line| line.starts_with("wal_limit_bytes"));
    table.notes.extend(limit.map(|limit| format!("the WAL's limit: {limit}")));
    table
}

/// CPU of a transaction, in nanoseconds: of the process, and of the writer.
fn cpu_per_transaction(figures: &Measurement) -> Option<[f64; 2]> {
    let (cpu, operations) = (figures.cpu?, figures.operations().max(1) as f64);
    Some([cpu.process_ns, cpu.writer_ns].map(|ns| ns as f64 / operations))
}

/// Returns what a cell of `transact` costs in CPU over `write` with as many clients, and the share
/// of it that is the writer's.
fn cost(record: &Record, transact: &Cell) -> Option<(f64, f64)> {
    let write = record.cell(&transact.id.replace("transact", "write"))?;
    let [write, _] = cpu_per_transaction(write.measurement()?)?;
    let [process, writer] = cpu_per_transaction(transact.measurement()?)?;
    Some((process / write, writer / process))
}

fn costs(record: &Record) -> Table {
    let title = "CPU of two updates without delay, durable: by write, and by transact";
    let header = ["", "tx/s (min–max)", "CPU of a tx", "÷ write", "on the writer", "share of it"];
    let mut table = Table::new(title, &header);
    for (cell, figures) in measured(record, "cost/") {
        let Some([process, writer]) = cpu_per_transaction(figures) else { continue };
        let over = cost(record, cell);
        table.rows.push(vec![
            cell.name.clone(),
            spread(figures.per_second),
            nanoseconds(process as u64),
            over.map_or("".into(), |(over, _)| ratio(over)),
            nanoseconds(writer as u64),
            percent(writer / process),
        ]);
    }
    table.notes.push("CPU of the process, the waiting clients among it, in user and system".into());
    table
}
