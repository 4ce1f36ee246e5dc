//! What a run of `bench tps` will measure, and how long it will take, before anything is loaded.

use super::TpsOptions;
use super::groups::{self, Groups};
use crate::dataset::Dataset;
use crate::drivers::postgres::{Postgres, Source, server};
use crate::harness::{Bench, Purpose};
use crate::ledger::Ledger;
use crate::plan::{self, Planned};
use crate::progress::{Interrupt, Silent};
use crate::workload::Draw;
use anyhow::Result;
use std::time::Duration;

/// Rows that SQLite loads in a second, about.
const SQLITE_ROWS_PER_SECOND: f64 = 500_000.0;

/// Rows that PostgreSQL loads in a second, about, its primary key and its vacuum included.
const POSTGRES_ROWS_PER_SECOND: f64 = 300_000.0;

/// Beside the loads: the device is measured, files are read, PostgreSQL starts, balances summed.
const AROUND: Duration = Duration::from_secs(6);

/// Looks at what is loaded already and at what is asked for, and returns how long it takes, about,
/// with an announcement.
pub(super) fn forecast(options: &TpsOptions) -> Result<(Duration, String)> {
    let expects_postgres = match options.postgres {
        Source::None => false,
        Source::Url(_) => true,
        Source::Private => server::find_binaries().is_ok(),
    };
    let planned = cells(options, None, expects_postgres)?;
    let rows = options.rows as f64;
    let mut loading = AROUND;
    if !Dataset::path(&options.data, options.schema, options.rows).exists() {
        loading += Duration::from_secs_f64(rows / SQLITE_ROWS_PER_SECOND);
    }
    if planned.iter().any(needs_accounts_in_postgres) {
        loading += Duration::from_secs_f64(rows / POSTGRES_ROWS_PER_SECOND);
    }
    let measuring = plan::total(&planned, options.rounds);
    let [all, load, measure] = [loading + measuring, loading, measuring].map(plan::duration);
    let cells = planned.len();
    let mut text = format!("{cells} cells in about {all}: {load} to load, {measure} to measure");
    if let Some(budget) = options.budget {
        let budget = plan::duration(budget);
        text.push_str(&format!("; fewer rounds where it would take more than {budget}"));
    }
    Ok((loading + measuring, text))
}

/// Whether a cell is a transfer between accounts of PostgreSQL.
pub(super) fn needs_accounts_in_postgres(cell: &Planned) -> bool {
    cell.id.contains("/postgres") && !groups::needs_no_accounts(&cell.id)
}

/// Plans what these options ask for; with PostgreSQL, if it is there or expected.
pub(super) fn cells(
    options: &TpsOptions,
    postgres: Option<&Postgres>,
    expects_postgres: bool,
) -> Result<Vec<Planned>> {
    let dataset = Dataset::planned(&options.data, options.schema, options.rows);
    let groups = Groups { options, database: &dataset.path, postgres, expects_postgres };
    let mut bench = Bench {
        dataset: &dataset,
        draw: Draw::new(options.skew, options.rows),
        rounds: options.rounds,
        warm_up_transfers: options.warm_up_transfers,
        progress: &Silent,
        interrupt: &Interrupt::default(),
        ledger: Ledger::default(),
        verifications: Vec::new(),
        purpose: Purpose::Plan(Vec::new()),
    };
    groups.run(&mut bench)?;
    let Purpose::Plan(planned) = bench.purpose else { unreachable!("a plan stays one") };
    Ok(planned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Depth;

    #[test]
    fn the_standard_run_fits_into_its_budget_with_all_its_rounds() {
        let dir = tempfile::tempdir().unwrap();
        for depth in [Depth::Standard, Depth::Quick] {
            let options = TpsOptions::new(dir.path().into(), depth);
            let (total, _) = forecast(&options).unwrap();
            assert!(total <= options.budget.unwrap(), "{total:?}");
        }
    }
}
