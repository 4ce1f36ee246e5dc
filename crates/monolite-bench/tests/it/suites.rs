//! Every suite on tiny data: every driver works, and finds its work as it must be.
//!
//! Figures of such a run mean nothing; that each trial verifies itself does.

use monolite_bench::drivers::postgres::{Source, server};
use monolite_bench::progress::{Interrupt, Silent};
use monolite_bench::report::record::{CellOutcome, Record};
use monolite_bench::report::tables;
use monolite_bench::suites::begin::Begins;
use monolite_bench::suites::yours::{Yours, YoursOptions};
use monolite_bench::suites::{Depth, SuiteOptions, stage};
use std::path::Path;
use std::time::Duration;

fn tiny(data: &Path) -> SuiteOptions {
    SuiteOptions {
        rounds: 1,
        round: Duration::from_millis(10),
        rows: Some(2_000),
        postgres: Source::None,
        ..SuiteOptions::new(data.to_owned(), Depth::Quick)
    }
}

fn run(change: impl FnOnce(&mut SuiteOptions)) -> Record {
    let dir = tempfile::tempdir().expect("a directory for the data");
    let mut options = tiny(dir.path());
    change(&mut options);
    let record = stage::run(&Begins, &options, &Silent, &Interrupt::default());
    let record = record.expect("the suite runs");
    assert!(dir.path().read_dir().expect("it is there").next().is_none(), "something was left");
    record
}

/// Every cell has figures, and the report has a table for every section.
fn assert_whole(record: &Record) {
    for cell in &record.cells {
        let CellOutcome::Measured(figures) = &cell.outcome else { panic!("{}", cell.id) };
        assert!(figures.per_second.median > 0.0, "{}: {figures:?}", cell.id);
        assert!(figures.latency.p50_ns > 0, "{}", cell.id);
    }
    let titles: Vec<String> = tables::all(record).into_iter().map(|table| table.title).collect();
    for section in &record.sections {
        assert!(titles.contains(&section.title), "{} is not among {titles:?}", section.title);
    }
}

#[test]
fn begin_measures_every_way_and_finds_every_update() {
    let record = run(|_| ());
    assert_whole(&record);
    for line in ["raw-deferred", "raw-immediate", "monolite-write", "monolite-interactive"] {
        assert!(record.cell(&format!("begin/disk-1-0/{line}/4")).is_some(), "{line}");
    }
}

#[test]
fn begin_watches_the_wal_of_a_round() {
    let cell = "begin/disk-1-0/raw-immediate/1";
    let record = run(|options| {
        options.only = Some(cell.into());
        // Long enough for a look at it on a busy machine.
        options.round = Duration::from_millis(300);
    });
    let watched = record.cell(cell).unwrap().measurement().unwrap();
    assert!(watched.wal_bytes_max > 0 && !watched.wal.is_empty());
}

#[test]
fn all_mixes_of_begin_are_measured_in_the_full_run() {
    let record = run(|options| {
        options.depth = Depth::Full;
        // IMMEDIATE and `write`, by 1 and by 16 threads.
        options.only = Some("te/1".into());
        options.round = Duration::from_millis(3);
    });
    let keys: Vec<&str> = record.sections.iter().map(|section| section.key.as_str()).collect();
    for mix in ["1-0", "10-0", "1-10", "10-10", "0-10", "collisions", "appends"] {
        assert!(keys.contains(&format!("begin/disk-{mix}").as_str()), "{mix}: {keys:?}");
    }
    assert_whole(&record);
}

fn yours(change: impl FnOnce(&mut YoursOptions)) -> YoursOptions {
    let mut options = YoursOptions {
        schema: "CREATE TABLE post(id INTEGER PRIMARY KEY, title TEXT NOT NULL, \
                 likes INTEGER NOT NULL DEFAULT 0)"
            .into(),
        writes: vec![
            "UPDATE post SET likes = likes + 1 WHERE id = :id".into(),
            "INSERT INTO post(id, title) VALUES (:n, :title)".into(),
        ],
        reads: vec!["SELECT title FROM post WHERE id = :id; SELECT 1".into()],
        loads: vec!["500 INSERT INTO post(id, title) VALUES (:n, :title)".into()],
        parameters: [":n serial", ":title text(20)", ":id zipf(500)"].map(String::from).to_vec(),
        mix: Some("50/50".into()),
        clients: 4,
    };
    change(&mut options);
    options
}

fn run_yours(options: &YoursOptions, source: Source) -> anyhow::Result<Record> {
    let dir = tempfile::tempdir().expect("a directory for the data");
    let suite_options = SuiteOptions { postgres: source, ..tiny(dir.path()) };
    let yours = Yours::new(options)?;
    stage::run(&yours, &suite_options, &Silent, &Interrupt::default())
}

#[test]
fn own_statements_run_raw_and_through_the_engine() {
    let record = run_yours(&yours(|_| ()), Source::None).unwrap();
    assert_eq!(record.sections.len(), 3);
    for line in ["raw", "monolite", "monolite-interactive"] {
        let cell = record.cell(&format!("yours/mix/{line}/4")).unwrap().measurement().unwrap();
        assert!(cell.per_second.median > 0.0 && cell.failed == 0, "{line}: {cell:?}");
    }
}

#[test]
fn own_statements_run_on_postgres_where_it_accepts_them() {
    if server::find_binaries().is_err() {
        crate::skip("own_statements_run_on_postgres_where_it_accepts_them", "none here");
        return;
    }
    let rate = |record: &Record| {
        record.cell("yours/mix/postgres/4").and_then(|cell| Some(cell.measurement()?.operations()))
    };
    let record = run_yours(&yours(|_| ()), Source::Private).unwrap();
    assert!(rate(&record).is_some_and(|operations| operations > 0), "{:?}", record.work);
    let foreign = yours(|options| options.reads = vec!["SELECT ifnull(title, 1) FROM post".into()]);
    let record = run_yours(&foreign, Source::Private).unwrap();
    assert_eq!(rate(&record), None);
    let cell = record.cell("yours/mix/postgres/4").unwrap();
    let CellOutcome::Missing(reason) = &cell.outcome else { panic!("{cell:?}") };
    assert!(reason.contains("ifnull"), "{reason}");
}

#[test]
fn a_statement_that_is_refused_or_meets_no_row_is_named_before_anything_is_measured() {
    let error = |change: fn(&mut YoursOptions)| {
        format!("{:#}", run_yours(&yours(change), Source::None).unwrap_err())
    };
    let wrong = error(|options| options.reads = vec!["SELECT tite FROM post".into()]);
    assert!(wrong.contains("\"SELECT tite FROM post\"") && wrong.contains("no such column"));
    let empty = error(|options| options.loads.clear());
    assert!(empty.contains("found and changed no row") || empty.contains("--load"), "{empty}");
    let schema = error(|options| options.schema = "CREATE TABEL x".into());
    assert!(schema.contains("the schema is not accepted"), "{schema}");
}

#[test]
fn what_a_constraint_refuses_is_counted_and_not_done() {
    let clashing = yours(|options| {
        options.reads.clear();
        options.mix = None;
        options.writes = vec!["INSERT INTO post(id, title) VALUES (:id, :title)".into()];
        options.loads = vec!["400 INSERT INTO post(id, title) VALUES (:n, :title)".into()];
    });
    let record = run_yours(&clashing, Source::None).unwrap();
    let cell = record.cell("yours/writes/monolite/4").unwrap().measurement().unwrap();
    assert!(cell.failed > 0, "{cell:?}");
}

#[test]
fn a_filter_that_fits_nothing_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let options = SuiteOptions { only: Some("no-such".into()), ..tiny(dir.path()) };
    let error = stage::run(&Begins, &options, &Silent, &Interrupt::default()).unwrap_err();
    assert!(error.to_string().contains("no-such"), "{error}");
}
