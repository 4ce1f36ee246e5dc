//! Sections of made-up cells.
use super::*;
use crate::raw_connection::Durability;
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
fn the_wal_over_time_has_a_table() {
    let mut record = record();
    if let CellOutcome::Measured(figures) = &mut record.cells[0].outcome {
        let at = |seconds, mib: u64| WalSample { seconds, bytes: mib << 20 };
        figures.wal = vec![at(0.0, 0), at(1.0, 2), at(4.0, 4)];
    }
    let tables = tables(&record);
    let wal = tables.iter().find(|table| table.title == "One update: the WAL").unwrap();
    assert!(wal.rows.iter().flatten().any(|figure| figure == "0 / 2 / 4"), "{:?}", wal.rows);
}
