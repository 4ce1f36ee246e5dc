//! Tables and charts of suites whose cells stand in [`Section`]s: a line for each candidate, a
//! column for each number of threads, or whatever differs.

use super::chart::{Chart, Form, Line, Mark, Point, Unit};
use super::record::{Cell, CellOutcome, Measurement, Record, Section};
use super::render::{Table, count, nanoseconds, ratio, spread};
use crate::published::SUITES;
use crate::raw_connection::Durability;

/// Returns all tables in the order they are read.
pub fn tables(record: &Record) -> Vec<Table> {
    let mut tables: Vec<Table> = vec![summary(record)];
    for section in &record.sections {
        let places = Places::of(record, section);
        let unit = format!("{}/s (min–max)", section.unit);
        let mut rates = places.table(&section.title, &unit, |cell| spread(cell.per_second));
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
        if places.any(|cell| cell.retries > 0) {
            tables.push(places.table(&title("attempts repeated"), "a second", |cell| {
                count(cell.retries_per_second())
            }));
        }
    }
    tables.extend(published(&record.suite));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn published(suite: &str) -> impl Iterator<Item = Table> {
    SUITES.iter().filter(move |table| table.suite == suite).map(|published| {
        let what = published.what;
        let title = format!("Published on other hardware, not to be compared: {what}");
        let mut table = Table::new(title, published.header);
        let words = |row: &&[&str]| row.iter().map(ToString::to_string).collect();
        table.rows = published.rows.iter().map(words).collect();
        table.notes.push(published.note.into());
        table
    })
}

/// Returns the charts in the order they are read.
pub fn charts(record: &Record) -> Vec<Chart> {
    let mut charts = Vec::new();
    for section in &record.sections {
        let places = Places::of(record, section);
        if places.has_gaps() {
            charts.push(places.bars());
            continue;
        }
        let rate = |cell: &Measurement| Some(cell.per_second);
        charts.push(places.chart("", &format!("{}/s", section.unit), &section.meaning, rate));
        if section.x == "threads" {
            charts.push(places.per_thread());
        }
        if places.any(|cell| cell.retries > 0) {
            charts.push(places.retries());
        }
        charts.extend(places.wal());
    }
    charts.retain(|chart| !chart.is_empty());
    charts
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
        let mut row = vec![section.title.clone(), count(ours)];
        for other in [best("raw"), best("postgres")] {
            row.push(other.map_or("–".into(), count));
            row.push(other.map_or("–".into(), |other| ratio(ours / other)));
        }
        table.rows.push(row);
    }
    if table.rows.iter().flatten().any(|figure| figure == "–") {
        table.notes.push("–: nothing there does it".into());
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

    /// Whether most lines would be points: bars show those better.
    fn has_gaps(&self) -> bool {
        let measured = |cell: &&Cell| cell.measurement().is_some();
        let points = |line: &str| {
            let of = |column: &&str| self.cell(line, column).filter(measured).is_some();
            self.columns.iter().copied().filter(of).count()
        };
        let single = self.lines.iter().filter(|(line, _)| points(line) == 1).count();
        single * 2 > self.lines.len()
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

    fn table(&self, title: &str, unit: &str, show: impl Fn(&Measurement) -> String) -> Table {
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

    fn id(&self, detail: &str) -> String {
        let letters = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("{}{detail}", self.section.key).chars().map(letters).collect()
    }

    fn chart(
        &self,
        detail: &str,
        y_title: &str,
        meaning: &str,
        figure: impl Fn(&Measurement) -> Option<crate::statistics::Spread>,
    ) -> Chart {
        let lines = self.lines.iter().map(|(line, name)| {
            let point = |(x, column): (usize, &&str)| {
                let figures = self.cell(line, column)?.measurement()?;
                Some(Point::over_rounds(x as f64, figure(figures)?))
            };
            let points = self.columns.iter().enumerate().filter_map(point).collect();
            Line { name: (*name).to_owned(), points }
        });
        Chart {
            id: self.id(detail),
            title: format!("{}{}", self.section.title, detail),
            meaning: meaning.into(),
            x_title: self.section.x.clone(),
            x_marks: Chart::marks(&self.columns),
            y_title: y_title.into(),
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
            ..Chart::default()
        }
    }

    fn per_thread(&self) -> Chart {
        let meaning = "A level line scales: another thread does as much as the first";
        let y_title = format!("{}/s for each thread", self.section.unit);
        let rate = |cell: &Measurement| Some(cell.per_second);
        let mut chart = self.chart(", per thread", &y_title, meaning, rate);
        for point in chart.lines.iter_mut().flat_map(|line| &mut line.points) {
            let threads: f64 = self.columns[point.x as usize].parse().unwrap_or(1.0);
            point.y /= threads;
            point.low /= threads;
            point.high /= threads;
        }
        chart
    }

    fn retries(&self) -> Chart {
        let meaning = "Each is work that was done for nothing and done again; zero is best";
        let retries = |cell: &Measurement| {
            let rate = cell.retries_per_second();
            Some(crate::statistics::Spread { median: rate, min: rate, max: rate })
        };
        self.chart(", attempts repeated", "repeated a second", meaning, retries)
    }

    /// The WAL over time, where it was looked at: of the last column, where there is most to do.
    fn wal(&self) -> Option<Chart> {
        let column = self.columns.last()?;
        let lines = self.lines.iter().filter_map(|(line, name)| {
            let samples = &self.cell(line, column)?.measurement()?.wal;
            let points = samples.iter().map(|at| Point::exact(at.seconds, at.bytes as f64));
            Some(Line { name: (*name).to_owned(), points: points.collect() })
        });
        let lines: Vec<Line> = lines.filter(|line| !line.points.is_empty()).collect();
        let points = lines.iter().flat_map(|line| &line.points);
        let end = points.map(|point| point.x).fold(0.0, f64::max);
        let quarter = |number: u32| {
            let at = end * f64::from(number) / 4.0;
            Mark { at, text: nanoseconds((at * 1e9) as u64) }
        };
        (end > 0.0).then(|| Chart {
            id: self.id("-wal"),
            title: format!("{}: the WAL over time", self.section.title),
            meaning: format!(
                "With {}; a line that stays level is a WAL that restarts in time, one that rises \
                 on is not copied fast enough",
                self.place(column)
            ),
            x_title: "since the round began".into(),
            x_marks: (0..=4).map(quarter).collect(),
            y_title: "size of the file".into(),
            unit: Unit::Bytes,
            lines,
            ..Chart::default()
        })
    }

    fn bars(&self) -> Chart {
        let rate = |cell: &Measurement| Some(cell.per_second);
        let y_title = format!("{}/s", self.section.unit);
        let chart = self.chart("", &y_title, &self.section.meaning, rate);
        // A bar for each point, which says where it is unless there is one place alone.
        let lines = chart.lines.iter().flat_map(|line| {
            line.points.iter().map(|point| {
                let column = self.columns[point.x as usize];
                let name = match self.columns.len() {
                    1 => line.name.clone(),
                    _ => format!("{}, {}", line.name, self.place(column)),
                };
                Line { name, points: vec![*point] }
            })
        });
        let lines = lines.collect();
        Chart { form: Form::Bars, lines, ..chart }
    }
}

#[cfg(test)]
mod tests;
