//! `bench server` from end to end, in rounds too short to measure anything.

use monolite_bench::drivers::postgres::Source;
use monolite_bench::progress::{Interrupt, Silent};
use monolite_bench::report::record::{Cell, CellOutcome};
use monolite_bench::suites::servers::Servers;
use monolite_bench::suites::{Depth, SuiteOptions, stage};
use std::time::Duration;

#[test]
fn every_cell_of_the_server_is_measured_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let suite = Servers::new(env!("CARGO_BIN_EXE_monolite").into(), dir.path().join("none"));
    let options = SuiteOptions {
        round: Duration::from_millis(20),
        rows: Some(1_000),
        postgres: Source::None,
        ..SuiteOptions::new(dir.path().into(), Depth::Quick)
    };
    let record = stage::run(&suite, &options, &Silent, &Interrupt::default()).unwrap();
    let (ours, others): (Vec<&Cell>, Vec<&Cell>) =
        record.cells.iter().partition(|cell| cell.name == "monolite");
    assert_eq!(ours.len(), 15);
    for cell in ours {
        let figures = cell.measurement().unwrap_or_else(|| panic!("{cell:?}"));
        let used = figures.processes.unwrap();
        assert!(figures.operations() > 0 && used.server_bytes > 1 << 20, "{cell:?}");
    }
    for cell in others {
        let CellOutcome::Missing(reason) = &cell.outcome else { panic!("{cell:?}") };
        let expected = if cell.name == "PostgreSQL" { "--no-postgres" } else { "not installed" };
        assert!(reason.contains(expected), "{reason}");
    }
}
