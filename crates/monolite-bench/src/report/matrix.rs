//! Tables of suites whose cells stand in [`Section`]s: a line for each candidate, a
//! column for each number of threads, or whatever differs.

use super::record::{Cell, CellOutcome, Measurement, Record, Section};
use super::render::{Table, bytes, count, line, nanoseconds, ratio, spread};
use crate::raw_connection::Durability;

/// Looks at the WAL of a round that are shown.
const LOOKS: usize = 5;

/// Returns all tables in the order they are read.
pub fn tables(record: &Record) -> Vec<Table> {
    let mut tables: Vec<Table> = vec![summary(record)];
    for section in &record.sections {
        let places = Places::of(record, section);
        let unit = format!("{}/s (min–max)", section.unit);
        let mut rates = places.table(&section.title, &unit, |cell| spread(cell.per_second));
        if places.any(|cell| cell.processes.is_some()) {
            rates.rows.extend(places.over_postgres());
        }
        rates.notes.push(section.meaning.clone());
        tables.push(rates);
        let title = |what: &str| format!("{}: {what}", section.title);
        if places.any(|cell| cell.latency.max_ns > 0) {
            tables.push(places.table(&title("latency"), "p50 / p90 / p99 / max", |cell| {
                let latency = &cell.latency;
                let figures = [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.max_ns];
                figures.map(nanoseconds).join(" / ")
            }));
        }
        if places.any(|cell| cell.processes.is_some()) {
            let unit = "CPUs used by the server, by the clients; memory of the server";
            tables.push(places.table(&title("processes"), unit, |cell| {
                let used = cell.processes.unwrap_or_default();
                let cpus = |ns: u64| format!("{:.2}", ns as f64 / 1e9 / cell.seconds());
                let memory = bytes(used.server_bytes);
                format!("{}, {}; {memory}", cpus(used.server_ns), cpus(used.clients_ns))
            }));
        }
        if places.any(|cell| cell.retries > 0) {
            tables.push(places.table(&title("attempts repeated"), "a second", |cell| {
                count(cell.retries_per_second())
            }));
        }
        if places.any(|cell| !cell.wal.is_empty()) {
            let unit = "MiB over time, from the beginning of a round to its end";
            tables.push(places.table(&title("the WAL"), unit, |cell| {
                let step = cell.wal.len().div_ceil(LOOKS).max(1);
                let looks = cell.wal.iter().step_by(step).map(|at| (at.bytes >> 20).to_string());
                looks.collect::<Vec<_>>().join(" / ")
            }));
        }
    }
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Returns a line for each section: the best of ours, of raw SQLite and of PostgreSQL.
pub fn summary(record: &Record) -> Table {
    let header = ["per second", "monolite", "raw", "÷ raw", "PostgreSQL", "÷ PostgreSQL"];
    let mut table =
        Table::new("Summary: each side by its best candidate of the same durability", &header);
    for section in &record.sections {
        let here: Vec<&Cell> =
            record.cells.iter().filter(|cell| section.place(cell).is_some()).collect();
        // What is not durable is not compared with what is.
        let durable = here.iter().any(|cell| cell.durability == Durability::Durable);
        let best = |begin: &str| {
            let cells = here.iter().filter(|cell| {
                let comparable = !durable || cell.durability == Durability::Durable;
                comparable && section.place(cell).is_some_and(|(line, _)| line.starts_with(begin))
            });
            let rates = cells.filter_map(|cell| Some(cell.measurement()?.per_second.median));
            rates.reduce(f64::max)
        };
        let Some(ours) = best("monolite") else { continue };
        table.rows.push(line(&section.title, ours, [best("raw"), best("postgres")]));
    }
    if table.rows.iter().flatten().any(|figure| figure == "–") {
        table.notes.push("– = no equivalent".into());
    }
    table
}

/// Where the cells of a section stand.
struct Places<'r> {
    section: &'r Section,
    /// Middle of their names, and what to call them.
    lines: Vec<(&'r str, &'r str)>,
    columns: Vec<&'r str>,
    cells: Vec<(&'r str, &'r str, &'r Cell)>,
}

impl<'r> Places<'r> {
    fn of(record: &'r Record, section: &'r Section) -> Places<'r> {
        let (mut lines, mut columns, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for cell in &record.cells {
            let Some((line, column)) = section.place(cell) else { continue };
            if !lines.iter().any(|(known, _)| *known == line) {
                lines.push((line, cell.name.as_str()));
            }
            if !columns.contains(&column) {
                columns.push(column);
            }
            cells.push((line, column, cell));
        }
        // Numbers in their order; what is not a number stays as it came.
        columns.sort_by_key(|column| column.parse::<u64>().unwrap_or(u64::MAX));
        Places { section, lines, columns, cells }
    }

    fn any(&self, is: impl Fn(&Measurement) -> bool) -> bool {
        self.cells.iter().filter_map(|(.., cell)| cell.measurement()).any(is)
    }

    fn cell(&self, line: &str, column: &str) -> Option<&'r Cell> {
        let found = self.cells.iter().find(|(l, c, _)| *l == line && *c == column);
        found.map(|(.., cell)| *cell)
    }

    /// A column in words, as `16 threads`.
    fn place(&self, column: &str) -> String {
        match column.parse::<u64>() {
            Ok(1) => format!("1 {}", self.section.x.trim_end_matches('s')),
            Ok(_) => format!("{column} {}", self.section.x),
            Err(_) => column.to_owned(),
        }
    }

    /// A row of how many times as fast our own client is as PostgreSQL's, by column.
    fn over_postgres(&self) -> Option<Vec<String>> {
        let rate = |line: &str, column: &str| {
            let cell = self.cell(line, column)?.measurement()?;
            Some(cell.per_second.median)
        };
        let mut row = vec!["monolite ÷ PostgreSQL".to_owned()];
        row.extend(self.columns.iter().map(|column| {
            let both = rate("monolite", column).zip(rate("postgres", column));
            both.map_or("–".into(), |(ours, theirs)| ratio(ours / theirs))
        }));
        row.iter().any(|text| text.starts_with(|c: char| c.is_ascii_digit())).then_some(row)
    }

    pub(super) fn table(
        &self,
        title: &str,
        unit: &str,
        show: impl Fn(&Measurement) -> String,
    ) -> Table {
        let mut header = vec![unit.to_owned()];
        header.extend(self.columns.iter().map(|column| self.place(column)));
        let mut table = Table { title: title.into(), header, ..Table::default() };
        for (line, name) in &self.lines {
            let mut row = vec![(*name).to_owned()];
            for column in &self.columns {
                row.push(match self.cell(line, column).map(|cell| &cell.outcome) {
                    Some(CellOutcome::Measured(figures)) => show(figures),
                    Some(CellOutcome::Missing(reason)) => reason.clone(),
                    None => String::new(),
                });
            }
            table.rows.push(row);
        }
        table
    }
}

#[cfg(test)]
mod tests;
