//! The charts of a record.

use super::chart::{Chart, Form, Line, Mark, Point, Scale, Unit};
use super::matrix;
use super::names::{CONTESTS, DELAYS};
use super::record::{Cell, Measurement, Record};
use crate::raw_connection::Durability;
use crate::statistics::Spread;

/// Returns the charts in the order they are read.
pub fn all(record: &Record) -> Vec<Chart> {
    if record.suite != "tps" {
        return matrix::charts(record);
    }
    let mut charts: Vec<Chart> = Vec::new();
    for durability in Durability::ALL {
        charts.extend([bursts(record, durability), clients(record, durability)]);
        charts.push(latencies(record, durability));
    }
    charts.extend([uniform(record), reads(record)]);
    for (key, title) in [
        ("delay", "Two updates, and the application's time between them"),
        ("decide", "The application reads, takes its time, and writes"),
    ] {
        charts.extend([delays(record, key, title), repeated(record, key, title)]);
    }
    charts.extend(CONTESTS.map(|(group, title)| contest(record, group, title)));
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// Cells whose name begins like this, with their figures.
fn measured<'r>(record: &'r Record, begin: &str) -> Vec<(&'r Cell, &'r Measurement)> {
    let cells = record.cells.iter().filter(|cell| cell.id.starts_with(begin));
    cells.filter_map(|cell| Some((cell, cell.measurement()?))).collect()
}

fn bar((cell, figures): &(&Cell, &Measurement)) -> Line {
    let points = vec![Point::over_rounds(0.0, figures.per_second)];
    Line { name: cell.name.clone(), points }
}

fn bursts(record: &Record, durability: Durability) -> Chart {
    Chart {
        id: format!("burst-{durability}"),
        title: format!("Transactions a second in a burst, {durability}"),
        meaning: format!(
            "A longer bar is faster; every transaction counts when it is {}",
            durability.meaning()
        ),
        y_title: "transactions/s".into(),
        lines: measured(record, &format!("burst/{durability}/")).iter().map(bar).collect(),
        form: Form::Bars,
        ..Chart::default()
    }
}

fn uniform(record: &Record) -> Chart {
    Chart {
        id: "uniform".into(),
        title: "Transactions a second in a burst, every account equally likely".into(),
        meaning: "A longer bar is faster; the data is larger than the cache, so that most \
                  transactions read and write pages of their own"
            .into(),
        y_title: "transactions/s".into(),
        lines: measured(record, "uniform/").iter().map(bar).collect(),
        form: Form::Bars,
        ..Chart::default()
    }
}

/// Transactions that want the same rows, against the number of clients.
fn contest(record: &Record, group: &str, title: &str) -> Chart {
    let cells = measured(record, group);
    let clients = |cell: &Cell| cell.id.rsplit('-').next()?.parse::<u64>().ok();
    let mut columns: Vec<u64> = cells.iter().filter_map(|(cell, _)| clients(cell)).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut lines: Vec<Line> = Vec::new();
    for (cell, figures) in &cells {
        let Some(number) = clients(cell) else { continue };
        let name = cell.name.replace(&format!(", {number} clients"), "");
        let x = columns.iter().position(|column| *column == number).unwrap_or_default();
        let point = Point::over_rounds(x as f64, figures.per_second);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    let form = if columns.len() < 2 { Form::Bars } else { Form::Lines };
    Chart {
        id: group.trim_end_matches('/').into(),
        title: format!("{title}: throughput"),
        meaning: "A line that falls on the right is a database that gets slower when clients come"
            .into(),
        x_title: "clients".into(),
        x_marks: Chart::marks(&columns),
        y_title: "transactions/s".into(),
        scale: Scale::Logarithmic,
        lines,
        form,
        ..Chart::default()
    }
}

fn reads(record: &Record) -> Chart {
    Chart {
        id: "reads".into(),
        title: "Point reads a second, one thread".into(),
        meaning: "A longer bar is faster; each read is awaited before the next".into(),
        y_title: "reads/s".into(),
        lines: measured(record, "reads/").iter().map(bar).collect(),
        form: Form::Bars,
        ..Chart::default()
    }
}

fn clients(record: &Record, durability: Durability) -> Chart {
    let cells = measured(record, &format!("closed/{durability}/"));
    let place = |id: &str, key: &str| {
        let (begin, clients) = id.rsplit_once('-')?;
        begin.ends_with(key).then(|| clients.parse::<u64>().ok())?
    };
    let keys = [("monolite", "monolite, each waits"), ("raw-batch", "raw, batches of as many")];
    let mut columns: Vec<u64> =
        cells.iter().filter_map(|(cell, _)| place(&cell.id, "monolite")).collect();
    columns.sort_unstable();
    let line = |(key, name): (&str, &str)| {
        let points = cells.iter().filter_map(|(cell, figures)| {
            let clients = place(&cell.id, key)?;
            let x = columns.iter().position(|column| *column == clients)?;
            Some(Point::over_rounds(x as f64, figures.per_second))
        });
        Line { name: name.into(), points: points.collect() }
    };
    Chart {
        id: format!("clients-{durability}"),
        title: format!("Transactions a second against waiting clients, {durability}"),
        meaning: "Clients that wait share a commit, so more of them do more".into(),
        x_title: "clients".into(),
        x_marks: Chart::marks(&columns),
        y_title: "transactions/s".into(),
        scale: Scale::Logarithmic,
        lines: keys.into_iter().map(line).filter(|line| !line.points.is_empty()).collect(),
        ..Chart::default()
    }
}

/// Percentiles of those one would wait for: clients, and PostgreSQL's.
fn latencies(record: &Record, durability: Durability) -> Chart {
    let mut cells = measured(record, &format!("closed/{durability}/monolite"));
    cells.extend(measured(record, &format!("burst/{durability}/one-per-commit")));
    cells.extend(measured(record, &format!("burst/{durability}/postgres")));
    let line = |(cell, figures): &(&Cell, &Measurement)| {
        let l = &figures.latency;
        let figures = [l.p50_ns, l.p90_ns, l.p99_ns, l.p99_9_ns, l.max_ns];
        let point = |(x, ns): (usize, u64)| Point::exact(x as f64, ns as f64);
        Line {
            name: cell.name.clone(),
            points: figures.into_iter().enumerate().map(point).collect(),
        }
    };
    Chart {
        id: format!("latency-{durability}"),
        title: format!("How long a client waits, {durability}"),
        meaning: "Lower is faster; on the right is what the unlucky ones wait".into(),
        x_title: "share of the transactions".into(),
        x_marks: Chart::marks(["50 %", "90 %", "99 %", "99.9 %", "all"]),
        y_title: "from submission to answer".into(),
        unit: Unit::Nanoseconds,
        scale: Scale::Logarithmic,
        lines: cells.iter().map(line).collect(),
        ..Chart::default()
    }
}

fn delays(record: &Record, key: &str, title: &str) -> Chart {
    let (x_marks, lines) = against_delay(record, key, |cell| Some(cell.per_second));
    // Bars, where there is one delay alone.
    let form = if x_marks.len() < 2 { Form::Bars } else { Form::Lines };
    Chart {
        id: key.into(),
        title: format!("{title}: throughput"),
        meaning: "Who holds locks meanwhile falls with the delay; who holds none needs more \
                  clients, and no less throughput"
            .into(),
        x_title: "delay".into(),
        x_marks,
        y_title: "transactions/s".into(),
        scale: Scale::Logarithmic,
        lines,
        form,
        ..Chart::default()
    }
}

fn repeated(record: &Record, key: &str, title: &str) -> Chart {
    let share = |cell: &Measurement| {
        let share = cell.repeated();
        Some(Spread { median: share, min: share, max: share })
    };
    let (x_marks, mut lines) = against_delay(record, key, share);
    lines.retain(|line| line.points.iter().any(|point| point.y > 0.0));
    let form = if x_marks.len() < 2 { Form::Bars } else { Form::Lines };
    Chart {
        id: format!("{key}-repeated"),
        title: format!("{title}: attempts repeated"),
        meaning: "An attempt that conflicts is done again; those who wait for locks instead do \
                  not repeat, and are slow above"
            .into(),
        x_title: "delay".into(),
        x_marks,
        y_title: "share of the attempts".into(),
        unit: Unit::Share,
        lines,
        form,
        ..Chart::default()
    }
}

/// Lines over the delays that were measured; those with a third statement stay in the tables.
fn against_delay(
    record: &Record,
    key: &str,
    figure: impl Fn(&Measurement) -> Option<Spread>,
) -> (Vec<Mark>, Vec<Line>) {
    let prefix = format!("{key}/durable/");
    let cells = measured(record, &prefix);
    let column = |cell: &Cell| cell.id.rsplit_once('/').map(|(_, column)| column.to_owned());
    let plain = DELAYS.iter().filter(|(column, _)| !column.ends_with("third"));
    let columns: Vec<_> = plain
        .filter(|(key, _)| cells.iter().any(|(cell, _)| column(cell).as_deref() == Some(key)))
        .collect();
    let mut lines: Vec<Line> = Vec::new();
    for (cell, figures) in &cells {
        let its = column(cell);
        let Some(x) = columns.iter().position(|(key, _)| its.as_deref() == Some(key)) else {
            continue;
        };
        let Some(spread) = figure(figures) else { continue };
        let point = Point::over_rounds(x as f64, spread);
        match lines.iter_mut().find(|line| line.name == cell.name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: cell.name.clone(), points: vec![point] }),
        }
    }
    (Chart::marks(columns.iter().map(|(_, title)| title)), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::files::tests::golden_record;

    #[test]
    fn a_record_has_a_chart_for_each_of_its_tables() {
        let charts = all(&golden_record());
        let ids: Vec<&str> = charts.iter().map(|chart| chart.id.as_str()).collect();
        for id in ["burst-durable", "clients-durable", "latency-durable", "reads", "delay"] {
            assert!(ids.contains(&id), "{id} is not among {ids:?}");
        }
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
    }

    #[test]
    fn a_line_of_contending_clients_is_one_candidate() {
        let mut record = golden_record();
        let cell = record.cell("burst/durable/monolite").unwrap().clone();
        record.cells.extend([64, 12].map(|clients| Cell {
            id: format!("mixed/durable/monolite-rowids-{clients}"),
            name: format!("monolite, {clients} clients, ids returned"),
            ..cell.clone()
        }));
        let chart = contest(&record, "mixed/", "Mixed");
        let line = chart.lines.iter().find(|line| line.name == "monolite, ids returned").unwrap();
        let places: Vec<f64> = line.points.iter().map(|point| point.x).collect();
        assert!(places.len() == 2 && places[0] > places[1], "{places:?}");
    }
}
