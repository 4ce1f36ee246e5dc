//! The tables of a report, computed from the record alone.

mod interactive;

use super::matrix;
use super::names::{APPENDS, BACKUPS, BURST_ALONE, PROFILE};
use super::record::{Cell, CellOutcome, Data, Record};
use super::render::{self, Table, bytes, count, nanoseconds, ratio, spread};
use crate::published;
use crate::raw_connection::Durability;

/// Returns all tables in the order they are read.
pub fn all(record: &Record) -> Vec<Table> {
    if record.suite != "tps" {
        return matrix::tables(record);
    }
    let mut tables = vec![headlines(record)];
    tables.extend(Durability::ALL.map(|durability| burst(record, durability)));
    tables.extend(Durability::ALL.map(|durability| closed_loop(record, durability)));
    tables.extend([uniform(record), traffic(record), reads(record)]);
    tables.extend(interactive::all(record));
    tables.extend([sustained(record), backups(record), profile(record), published_figures()]);
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// A figure that the project promises, as a ratio within the run.
struct Headline {
    name: &'static str,
    over: &'static str,
    value: Option<f64>,
}

/// The waiting clients whose limit is a ratio that matters.
const WAITING: &str = "closed/durable/monolite-128";

/// Returns the ratios that matter.
pub fn headlines(record: &Record) -> Table {
    let rate = |id: &str| record.rate(id);
    let ours = rate("burst/durable/monolite");
    let raw = rate("burst/durable/raw-batch");
    let latency = |id: &str| Some(record.cell(id)?.measurement()?.latency.p50_ns as f64);
    let slowest = |id: &str| Some(record.cell(id)?.measurement()?.latency.p99_9_ns as f64);
    let limit = |id: &str| Some(record.limits.iter().find(|limit| limit.cell == id)?.reached);
    let lines = [
        Headline {
            name: "monolite, burst, durable",
            over: "raw SQLite, batches of 10,000, no isolation",
            value: share(ours, raw),
        },
        Headline {
            name: "monolite, burst, durable",
            over: "raw SQLite, batches of 10,000, a savepoint each",
            value: share(ours, rate("burst/durable/raw-batch-savepoints")),
        },
        Headline {
            name: "monolite, 1 in 100 failing, durable",
            over: "monolite without failures",
            value: share(rate("burst/durable/monolite-failing"), ours),
        },
        Headline {
            name: "monolite, 3 awaited reads per write, writes/s",
            over: "raw SQLite, batches of 10,000, no isolation",
            value: share(rate("burst/durable/monolite-reads"), raw),
        },
        Headline {
            name: "monolite, burst, durable",
            over: "PostgreSQL, the better pool, read committed, no delay",
            value: share(ours, best_postgres(record)),
        },
        Headline {
            name: "monolite, 1 waiting client, durable: p50",
            over: "the device's append + fdatasync, p50",
            value: share(latency("closed/durable/monolite-1"), latency(APPENDS)),
        },
        Headline {
            name: "monolite, 128 waiting clients, durable",
            over: "the limit of clients that wait for one sync after the other",
            value: limit(WAITING),
        },
        Headline {
            name: "monolite, sustained burst beside a reader: p99.9",
            over: "a burst without checkpoints, p99.9",
            value: share(slowest("sustained/durable/held"), slowest("sustained/durable/short")),
        },
        Headline {
            name: "monolite, autocommit point reads",
            over: "raw SQLite, prepared statement",
            value: share(rate("reads/durable/monolite"), rate("reads/durable/raw")),
        },
    ];
    let mut table = Table::new("Ratios within this run", &["this", "over this", "ratio"]);
    table.rows = lines
        .iter()
        .filter_map(|line| Some(vec![line.name.into(), line.over.into(), ratio(line.value?)]))
        .collect();
    table.rows.extend(interactive::headlines(record));
    let method = record.limits.iter().find(|limit| limit.cell == WAITING);
    table.notes.extend(method.map(|limit| {
        format!("the limit of clients that wait for one sync after the other: {}", limit.method)
    }));
    table
}

fn share(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// Returns the best rate of PostgreSQL with the same durable setting, read committed, no delay.
fn best_postgres(record: &Record) -> Option<f64> {
    let rates = ["burst/durable/postgres-8", "burst/durable/postgres-64"].map(|id| record.rate(id));
    rates.into_iter().flatten().reduce(f64::max)
}

fn burst(record: &Record, durability: Durability) -> Table {
    let group = format!("burst/{durability}/");
    let header = [
        "",
        "tx/s (min–max)",
        "÷ raw batch",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "WAL (checkpoints)",
    ];
    let title =
        format!("Burst, {durability}: an acknowledged transaction is {}", durability.meaning());
    let mut table = Table::new(title, &header);
    let ceiling = record.rate(&format!("{group}raw-batch"));
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(&group)) {
        let Some(measurement) = cell.measurement() else {
            table.rows.push(missing_row(cell, header.len()));
            continue;
        };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        row.push(ceiling.map_or("".into(), |c| ratio(measurement.per_second.median / c)));
        row.extend(percentiles(cell));
        row.push(match measurement.wal_bytes_max {
            0 => "".into(),
            size => format!("{} ({})", bytes(size), measurement.checkpoints),
        });
        table.rows.push(row);
        if measurement.reads_per_second.median > 0.0 {
            table.notes.push(format!(
                "{}: also {} awaited reads/s",
                cell.name,
                count(measurement.reads_per_second.median)
            ));
        }
        if measurement.failed > 0 {
            table.notes.push(format!(
                "{}: exactly the {} transactions that had to fail did",
                cell.name,
                count(measurement.failed as f64)
            ));
        }
    }
    add_reason(record, &mut table);
    table
}

fn uniform(record: &Record) -> Table {
    let title = "Burst, durable, every account equally likely: data larger than the cache";
    let header = ["", "tx/s (min–max)", "÷ raw batch", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new(title, &header);
    let ceiling = record.rate("uniform/durable/raw-batch");
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with("uniform/")) {
        let Some(measurement) = cell.measurement() else {
            table.rows.push(missing_row(cell, header.len()));
            continue;
        };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        row.push(ceiling.map_or("".into(), |c| ratio(measurement.per_second.median / c)));
        row.extend(percentiles(cell));
        table.rows.push(row);
    }
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
    let header = ["", "tx/s (min–max)", "limit", "÷ limit", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new(title, &header);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(&group)) {
        let Some(measurement) = cell.measurement() else {
            table.rows.push(missing_row(cell, header.len()));
            continue;
        };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        let limit = record.limits.iter().find(|limit| limit.cell == cell.id);
        row.push(limit.map_or("".into(), |limit| count(limit.per_second)));
        row.push(limit.map_or("".into(), |limit| ratio(limit.reached)));
        row.extend(percentiles(cell));
        table.rows.push(row);
    }
    let method = record.limits.iter().find(|limit| limit.cell.starts_with(&group));
    table.notes.extend(method.map(|limit| format!("limit: {}", limit.method)));
    table
}

fn reads(record: &Record) -> Table {
    let header = ["", "reads/s (min–max)", "÷ raw", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new("Autocommit point reads, one thread, each awaited", &header);
    let raw = record.rate("reads/durable/raw");
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with("reads/")) {
        let Some(measurement) = cell.measurement() else {
            table.rows.push(missing_row(cell, header.len()));
            continue;
        };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        row.push(raw.map_or("".into(), |raw| ratio(measurement.per_second.median / raw)));
        row.extend(percentiles(cell));
        table.rows.push(row);
    }
    table
}

fn sustained(record: &Record) -> Table {
    let header = ["", "tx/s", "p50", "p90", "p99", "p99.9", "max", "WAL (checkpoints)"];
    let title = "Sustained burst, durable, beside a reader that holds a snapshot for 10 s";
    let mut table = Table::new(title, &header);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with("sustained/")) {
        let Some(measurement) = cell.measurement() else { continue };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        row.extend(percentiles(cell));
        row.push(format!("{} ({})", bytes(measurement.wal_bytes_max), measurement.checkpoints));
        table.rows.push(row);
        table.notes.extend(measurement.notes().map(|note| format!("{}, {note}", cell.name)));
    }
    table
}

/// What a backup takes from writes.
fn backups(record: &Record) -> Table {
    let header = ["", "tx/s (min–max)", "÷ without", "p50", "p90", "p99", "p99.9", "max", "WAL"];
    let mut table = Table::new("A burst beside backups, durable", &header);
    let alone = record.rate(BURST_ALONE);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(BACKUPS)) {
        let Some(measurement) = cell.measurement() else { continue };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        row.push(alone.map_or("".into(), |rate| ratio(measurement.per_second.median / rate)));
        row.extend(percentiles(cell));
        row.push(bytes(measurement.wal_bytes_max));
        table.rows.push(row);
        table.notes.extend(measurement.notes().map(|note| format!("{}, {note}", cell.name)));
    }
    table
}

/// What the profile for untrusted SQL costs: each cell over that of its kind without it.
fn profile(record: &Record) -> Table {
    let header =
        ["", "per second (min–max)", "time ÷ trusted", "p50", "p90", "p99", "p99.9", "max"];
    let mut table = Table::new("The profile for untrusted SQL", &header);
    for cell in record.cells.iter().filter(|cell| cell.id.starts_with(PROFILE)) {
        let Some(measurement) = cell.measurement() else { continue };
        let mut row = vec![cell.name.clone(), spread(measurement.per_second)];
        let trusted = record.rate(&cell.id.replace("-untrusted", "-trusted"));
        row.push(trusted.map_or("".into(), |rate| ratio(rate / measurement.per_second.median)));
        row.extend(percentiles(cell));
        table.rows.push(row);
    }
    table
}

fn published_figures() -> Table {
    let mut table = Table::new(
        format!("Published on other hardware ({}), not to be compared", published::HARDWARE),
        &["tx/s", "no delay", "1 ms", "5 ms", "10 ms", "10 ms, third statement"],
    );
    for line in published::POSTGRES {
        let mut row = vec![line.name.to_owned()];
        row.extend(line.per_second.iter().map(|&rate| count(f64::from(rate))));
        row.push(line.third_statement.map_or("".into(), |rate| count(f64::from(rate))));
        table.rows.push(row);
    }
    for (name, normal, full) in published::SQLITE {
        table.notes.push(format!(
            "SQLite, {name}: {} (NORMAL), {} (FULL)",
            count(f64::from(normal)),
            count(f64::from(full))
        ));
    }
    table.notes.push(
        "The published batcher acknowledged before COMMIT, never checkpointed, did not await its \
         reads, and its rollback was a syntax error"
            .into(),
    );
    table
}

fn percentiles(cell: &Cell) -> Vec<String> {
    let Some(cell) = cell.measurement() else { return Vec::new() };
    let l = &cell.latency;
    [l.p50_ns, l.p90_ns, l.p99_ns, l.p99_9_ns, l.max_ns].map(nanoseconds).to_vec()
}

fn missing_row(cell: &Cell, columns: usize) -> Vec<String> {
    let mut row = vec![cell.name.clone()];
    if let CellOutcome::Missing(reason) = &cell.outcome {
        row.push(reason.clone());
    }
    row.resize(columns, String::new());
    row
}

fn add_reason(record: &Record, table: &mut Table) {
    if let Some(reason) = &record.setup.postgres_missing
        && !table.rows.is_empty()
    {
        table.notes.push(format!("no PostgreSQL: {reason}"));
    }
}

/// Returns the lines that say what was measured, and on what.
pub fn preamble(record: &Record) -> Vec<String> {
    let (machine, setup) = (&record.machine, &record.setup);
    let probe = |p: &crate::statistics::Percentiles| {
        format!("p50 {}, p99 {}", nanoseconds(p.p50_ns), nanoseconds(p.p99_ns))
    };
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
            setup.rounds,
            crate::statistics::BURST_SAMPLE
        ),
        format!(
            "{}: {} checks, all passed; memory at most {} (work drawn beforehand included); \
             {:.0} s in all",
            record.checked(),
            render::count(record.verifications.len() as f64),
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
