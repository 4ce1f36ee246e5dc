//! The end of a run on a terminal: what came of it, in at most [`LINES`] lines of [`COLUMNS`].

use super::matrix;
use super::record::{Cell, Data, Record};
use super::render::{Table, bytes, count, line, nanoseconds};

/// Lines of a summary at most: it stays on the smallest terminal.
pub const LINES: usize = 25;

/// Columns of a summary at most.
pub const COLUMNS: usize = 100;

/// A line: what it shows, and how the cells are named among which the best one of ours, of raw
/// SQLite, and of PostgreSQL is. A name with a `*` stands for all cells that begin and end so.
type Line = (&'static str, [&'static [&'static str]; 3]);

/// Raw batches without isolation: what SQLite can do at most, and no program could use.
const CEILING: &[&str] = &["burst/durable/raw-batch"];

const PATIENT_POSTGRES: &[&str] =
    &["burst/durable/postgres-8", "burst/durable/postgres-64", "burst/durable/postgres-256"];

const ASKED: &[&str] =
    &["parent-child/durable/postgres-asked-*", "parent-child/durable/postgres-ser-asked-*"];

const LINES_OF_TPS: [Line; 10] = [
    ("writes in a burst", [&["burst/durable/monolite"], CEILING, PATIENT_POSTGRES]),
    ("the same, 1 in 100 fails", [&["burst/durable/monolite-failing"], &[], &[]]),
    (
        "burst, data larger than the cache",
        [
            &["uniform/durable/monolite"],
            &["uniform/durable/raw-batch"],
            &["uniform/durable/postgres-64"],
        ],
    ),
    (
        "writes, 128 clients that wait",
        [&["closed/durable/monolite-128"], &["closed/durable/raw-batch-128"], PATIENT_POSTGRES],
    ),
    (
        "writes, 1 client that waits",
        [&["closed/durable/monolite-1"], &["closed/durable/raw-batch-1"], &[]],
    ),
    ("writes, each after 3 reads", [&["burst/durable/monolite-reads"], &[], &[]]),
    (
        "reads of one row, 1 thread",
        [&["reads/durable/monolite"], &["reads/durable/raw"], &["reads/durable/postgres"]],
    ),
    (
        "2 updates, 10 ms between them",
        [
            &["delay/durable/interactive-*/10ms"],
            &["delay/durable/held-*/10ms"],
            &["delay/durable/postgres-*/10ms"],
        ],
    ),
    (
        "read a row, 10 ms, write that row",
        [
            &["decide/durable/interactive-*/10ms"],
            &["decide/durable/held-*/10ms"],
            &["decide/durable/postgres-*/10ms"],
        ],
    ),
    ("insert a parent, 5 ms, 3 children", [&["parent-child/durable/monolite-asked-*"], &[], ASKED]),
];

/// Returns the summary as a table.
pub fn of(record: &Record) -> Table {
    if record.suite != "tps" {
        return matrix::summary(record);
    }
    let header = ["per second", "monolite", "raw limit", "÷ raw", "PostgreSQL", "÷ PostgreSQL"];
    let mut table = Table::new("Summary: durable, an answer comes after the sync", &header);
    for (name, sides) in &LINES_OF_TPS {
        let [ours, raw, postgres] = sides.map(|names| best(record, names));
        table.rows.extend(ours.map(|ours| line(name, ours, [raw, postgres])));
    }
    table.notes.push(
        "raw limit: one thread runs SQLite in a loop; in bursts 10,000 to a commit, not isolated"
            .into(),
    );
    table.notes.push(
        "each column is that system's best configuration in this run; – = no equivalent".into(),
    );
    if let Some(reason) = &record.setup.postgres_missing {
        table.notes.push(format!("no PostgreSQL: {reason}"));
    }
    table
}

/// Returns the best rate among the cells that a line names.
fn best(record: &Record, names: &[&str]) -> Option<f64> {
    let named = |cell: &&Cell| names.iter().any(|name| stands_for(name, &cell.id));
    let rates = record.cells.iter().filter(named).filter_map(|cell| cell.measurement());
    rates.map(|cell| cell.per_second.median).reduce(f64::max)
}

fn stands_for(name: &str, id: &str) -> bool {
    match name.split_once('*') {
        Some((begin, end)) => id.starts_with(begin) && id.ends_with(end),
        None => name == id,
    }
}

/// Returns the lines of the summary, none longer than [`COLUMNS`].
pub fn lines(record: &Record) -> Vec<String> {
    let machine = &record.machine;
    let mut lines = vec![
        format!("bench {} on {}, {} cores", record.suite, machine.cpu, machine.cores),
        format!(
            "{} ({}), append + fdatasync {}{}",
            machine.disk.device,
            machine.disk.file_system,
            nanoseconds(record.device.append_sync.p50_ns),
            record.data.as_ref().map(data).unwrap_or_default(),
        ),
        format!(
            "monolite {}, SQLite {}, PostgreSQL {}",
            record.setup.monolite,
            record.setup.sqlite,
            record.setup.postgres.as_deref().unwrap_or("none")
        ),
        String::new(),
    ];
    let table = of(record);
    lines.push(columns(&table.header));
    lines.extend(table.rows.iter().map(|row| columns(row)));
    lines.push(String::new());
    lines.extend(table.notes);
    lines.extend(record.work.iter().filter(|line| line.contains("PostgreSQL")).cloned());
    lines.push(format!(
        "{} checks of the {} passed; {:.0} s in all",
        record.verifications.len(),
        record.checked(),
        record.seconds
    ));
    lines.iter().flat_map(|line| fold(line)).take(LINES).collect()
}

fn data(data: &Data) -> String {
    let rows = count(data.identity.rows as f64);
    format!("; {rows} rows, {} file, {} draw", bytes(data.file_bytes), data.skew)
}

fn columns(cells: &[String]) -> String {
    const WIDTHS: [usize; 5] = [11, 11, 7, 11, 13];
    let name: String = cells[0].chars().take(35).collect();
    let mut line = format!("{name:<35}");
    for (cell, width) in cells[1..].iter().zip(WIDTHS) {
        line.push_str(&format!(" {cell:>width$}"));
    }
    line
}

/// Folds a line at spaces.
fn fold(line: &str) -> Vec<String> {
    if line.chars().count() <= COLUMNS {
        return vec![line.to_owned()];
    }
    let mut folded = vec![String::new()];
    for word in line.split(' ') {
        let last = folded.last_mut().expect("there is one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + word.chars().count() < COLUMNS {
            last.push(' ');
            last.push_str(word);
        } else {
            folded.push(format!("  {word}"));
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;

    #[test]
    fn summary_fits_a_small_terminal() {
        let mut record = golden_record();
        record.setup.postgres_missing = Some("a reason of many words, ".repeat(8));
        let lines = lines(&record);
        assert!(lines.len() <= LINES, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("writes in a burst")), "{lines:#?}");
    }

    #[test]
    fn a_star_stands_for_what_is_between() {
        assert!(stands_for("delay/durable/held-*/10ms", "delay/durable/held-16/10ms"));
        assert!(!stands_for("delay/durable/held-*/10ms", "delay/durable/held-16/1ms"));
        assert!(!stands_for("burst/durable/monolite", "burst/durable/monolite-failing"));
    }
}
