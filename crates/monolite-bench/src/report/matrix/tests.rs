//! Sections of made-up cells.
use super::*;
use crate::raw_connection::Durability;
use crate::report::chart;
use crate::report::files::tests::golden_record;
use crate::report::record::{RoundFigures, WalSample};
use crate::statistics::Spread;

fn cell(id: &str, name: &str, rate: f64, retries: u64) -> Cell {
    let per_second = Spread { median: rate, min: rate, max: rate };
    let rounds = vec![RoundFigures { seconds: 2.0, ..RoundFigures::default() }];
    let figures = Measurement { per_second, retries, rounds, ..Measurement::default() };
    Cell {
        id: id.into(),
        name: name.into(),
        durability: Durability::Durable,
        outcome: CellOutcome::Measured(Box::new(figures)),
    }
}

fn record() -> Record {
    let mut record = golden_record();
    record.suite = "begin".into();
    record.sections = vec![Section {
        key: "begin/disk".into(),
        title: "One update".into(),
        meaning: "More is better".into(),
        x: "threads".into(),
        unit: "commits".into(),
    }];
    record.cells = vec![
        cell("begin/disk/monolite/16", "monolite, write", 900.0, 0),
        cell("begin/disk/monolite/2", "monolite, write", 200.0, 0),
        cell("begin/disk/raw/2", "raw, IMMEDIATE", 100.0, 30),
        Cell {
            outcome: CellOutcome::Missing("missing".into()),
            ..cell("begin/disk/postgres/2", "PostgreSQL", 0.0, 0)
        },
    ];
    record
}

#[test]
fn a_section_is_a_table_of_lines_and_columns() {
    let record = record();
    let rates = &tables(&record)[1];
    assert_eq!(rates.header[1..], ["2 threads", "16 threads"]);
    assert_eq!(rates.rows[0][0], "monolite, write");
    assert_eq!(rates.rows[1][2], "");
    assert_eq!(rates.rows[2][1], "missing");
    let summary = summary(&record);
    assert_eq!(summary.rows[0], ["One update", "900", "100", "9.00", "–", "–"]);
}

#[test]
fn threads_get_a_chart_each_and_retries_and_the_wal_one_of_their_own() {
    let mut record = record();
    if let CellOutcome::Measured(figures) = &mut record.cells[0].outcome {
        figures.wal =
            vec![WalSample { seconds: 0.0, bytes: 0 }, WalSample { seconds: 4.0, bytes: 4096 }];
    }
    let charts = chart::all(&record);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "One update: commits/s",
            "One update: commits/s for each thread",
            "One update: attempts repeated a second",
            "One update: the WAL over time, 16 threads"
        ]
    );
    for chart in &charts {
        let drawn = chart::svg(chart);
        assert!(drawn.starts_with("<svg") && drawn.contains("<polyline"), "{drawn}");
    }
    record.cells.retain(|cell| cell.id.ends_with("/2"));
    assert!(chart::all(&record).is_empty(), "one column is no chart");
}
