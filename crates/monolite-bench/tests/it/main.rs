//! The whole suite on a tiny data set: every driver works, and the money adds up.
//!
//! Figures of such a run mean nothing; that the work is verified does.

mod suites;

use monolite_bench::drivers::postgres::{Source, server};
use monolite_bench::progress::{Interrupt, Interrupted, Silent};
use monolite_bench::raw_connection::Durability;
use monolite_bench::report::record::{CellOutcome, Verification};
use monolite_bench::suites::Depth;
use monolite_bench::tps::{InteractiveOptions, Rivals, TpsOptions, run};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Says in the list of the gate that a test could not run here.
fn skip(test: &str, reason: &str) {
    let Some(list) = std::env::var_os("MONOLITE_SKIPS") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
    writeln!(file.expect("the list can be written"), "{test}: {reason}")
        .expect("the list can be written");
}

fn tiny(data: &Path) -> TpsOptions {
    TpsOptions {
        rows: 5_000,
        transactions: 2_000,
        timed_round: Duration::from_millis(30),
        durabilities: Durability::ALL.to_vec(),
        budget: None,
        postgres: Source::None,
        interactive: InteractiveOptions {
            clients: vec![1, 8],
            pools: vec![8],
            columns: vec!["0ms", "10ms", "10ms-third"],
            writers: vec![128],
            costs: vec![128],
            ..TpsOptions::new(data.to_owned(), Depth::Quick).interactive
        },
        ..TpsOptions::new(data.to_owned(), Depth::Quick)
    }
}

#[test]
fn tiny_run_measures_every_cell_and_verifies_the_money() {
    let dir = tempfile::tempdir().unwrap();
    let record = run(&tiny(dir.path()), &Silent, &Interrupt::default()).unwrap();
    for cell in &record.cells {
        match &cell.outcome {
            CellOutcome::Measured(cell) => assert!(cell.per_second.median > 0.0, "{cell:?}"),
            CellOutcome::Missing(reason) => {
                assert!(cell.id.contains("postgres") && reason == "missing", "{}", cell.id);
            }
        }
    }
    let failing = record.cell("burst/durable/monolite-failing").unwrap().measurement().unwrap();
    assert_eq!((failing.rounds[0].operations, failing.failed), (1_980, 20));
    let reading = record.cell("burst/durable/monolite-reads").unwrap().measurement().unwrap();
    assert!(reading.reads_per_second.median > 2.9 * reading.per_second.median);
    let engine = record.cell("delay/durable/interactive-8/10ms").unwrap().measurement().unwrap();
    assert_eq!(engine.contention.replayed, engine.operations() + engine.retries);
    assert_eq!(engine.unchanged_share, Some(0.0));
    let decided = record.cell("decide/durable/interactive-8/10ms").unwrap().measurement().unwrap();
    let found = decided.contention;
    assert!(found.replayed + found.unchanged >= decided.operations(), "{found:?}");
    assert_eq!(decided.unchanged_share, found.unchanged_share());
    // Nobody changes what a client alone has read.
    let alone = record.cell("decide/durable/interactive-1/10ms").unwrap().measurement().unwrap();
    assert_eq!(alone.contention.unchanged, alone.operations());
    let asleep = record.cell("sleepers/durable/128-2000").unwrap().measurement().unwrap();
    assert!(asleep.notes[0].contains("statements of sleepers"), "{:?}", asleep.notes);
    let cost = record.cell("cost/durable/transact-128").unwrap().measurement().unwrap();
    assert!(cost.cpu.unwrap().process_ns > 0);
    let uniform = record.cell("uniform/durable/monolite").unwrap().measurement().unwrap();
    let traffic = uniform.traffic.unwrap();
    // Two updates of a page each at least, and nothing is written twice as often as that.
    assert!(traffic.each(traffic.wal_bytes) > 0.0 && traffic.operations == uniform.operations());
    let raw = record.cell("uniform/durable/raw-batch").unwrap().measurement().unwrap();
    assert!(raw.traffic.unwrap().wal_bytes > 4096, "{raw:?}");
    for ids in ["asked", "given"] {
        let id = format!("parent-child/durable/monolite-{ids}-64");
        assert!(record.cell(&id).unwrap().measurement().is_some(), "{id}");
    }
    assert_eq!(record.limits.len(), 4);
    assert!(record.verifications.iter().any(|check| check.check.starts_with("sum of all")));
    assert_eq!(record.setup.postgres_missing.as_deref(), Some("left out by --no-postgres"));
    // The data set is left in order, so that the next run can use it.
    run(
        &TpsOptions { only: Some("reads".into()), ..tiny(dir.path()) },
        &Silent,
        &Interrupt::default(),
    )
    .unwrap();
}

#[test]
fn contended_rows_are_right_in_both_databases() {
    if server::find_binaries().is_err() {
        skip("contended_rows_are_right_in_both_databases", "no PostgreSQL");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let few = tiny(dir.path());
    let interactive = InteractiveOptions {
        mixed: vec![3],
        families: vec![3],
        rivals: Rivals::All,
        ..few.interactive
    };
    let only = Some("-3".into());
    let options = TpsOptions { postgres: Source::Private, interactive, only, ..few };
    let record = run(&options, &Silent, &Interrupt::default()).unwrap();
    assert_eq!(record.setup.postgres_missing, None);
    for group in ["mixed", "hot-rows", "hot-row", "parent-child"] {
        let cells = record.cells.iter().filter(|cell| cell.id.starts_with(&format!("{group}/")));
        let of: Vec<bool> = cells
            .map(|cell| {
                assert!(cell.measurement().is_some_and(|it| it.operations() > 0), "{cell:?}");
                cell.id.contains("postgres")
            })
            .collect();
        assert!(of.contains(&true) && of.contains(&false), "{group}");
        let checked = |check: &Verification| check.after.ends_with(group);
        assert!(record.verifications.iter().any(checked), "{group}");
    }
}

#[test]
fn filter_selects_cells_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let options = TpsOptions { only: Some("durable/raw-batch".into()), ..tiny(dir.path()) };
    let record = run(&options, &Silent, &Interrupt::default()).unwrap();
    assert!(!record.cells.is_empty());
    assert!(record.cells.iter().all(|cell| cell.id.contains("durable/raw-batch")));
}

#[test]
fn interrupted_run_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let interrupt = Interrupt::default();
    interrupt.request();
    let error = run(&tiny(dir.path()), &Silent, &interrupt).unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
}

#[test]
fn options_out_of_range_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = TpsOptions { rounds: 0, ..tiny(dir.path()) };
    let error = run(&options, &Silent, &Interrupt::default()).unwrap_err();
    assert!(error.to_string().contains("--rounds"), "{error}");
}
