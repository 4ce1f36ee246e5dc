//! SQLite's own `kvtest`, as the raw ceiling: a database of its own, written and read as it does.
//!
//! It is told a number of operations and says their mean time alone, so that every latency of its
//! cells is that mean. Its writes are durable: `synchronous` is as SQLite has it, FULL.

use super::{Case, Durability, Entry, Trial, Turn};
use crate::drivers::{Absent, Round};
use crate::optional::{Optional, With, complaint, run as run_program};
use crate::statistics::Latencies;
use anyhow::Result;
use std::process::{Command, Output};
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Writes,
    Reads,
}

impl What {
    /// Operations a second with which a round is planned.
    fn assumed(self) -> f64 {
        match self {
            What::Writes => 2_000.0,
            What::Reads => 100_000.0,
        }
    }

    fn said(self) -> &'static str {
        match self {
            What::Writes => "Microseconds per BLOB write:",
            What::Reads => "Microseconds per BLOB read:",
        }
    }
}

pub(super) fn entry(trial: Trial) -> Entry {
    Entry {
        line: "raw-kvtest".into(),
        name: "raw, by kvtest itself, WAL, FULL".into(),
        x: "1".into(),
        durability: Durability::Durable,
        trial,
    }
}

pub(super) fn run(with: &With, case: &Case, what: What, turn: &Turn<'_>) -> Result<Round> {
    let program = with.programs(Optional::SqliteTools)?.join("kvtest");
    let database = case.path.with_extension("kvtest.db");
    let rows = case.rows.to_string();
    let call = |command: &mut Command| -> Result<Output> {
        let output = run_program(command, turn.interrupt)?;
        match output.status.success() {
            true => Ok(output),
            false => Err(Absent(complaint("kvtest", &output)).into()),
        }
    };
    if !database.exists() {
        let bytes = case.size.bytes.to_string();
        let mut init = Command::new(&program);
        call(init.arg("init").arg(&database).args(["--count", &rows, "--size", &bytes]))?;
    }
    let count = ((turn.length.as_secs_f64() * what.assumed()) as u64).max(10);
    let mut command = Command::new(&program);
    command.arg("run").arg(&database).args(["--count", &count.to_string(), "--max-id", &rows]);
    command.args(["--random", "--multitrans", "--jmode", "wal"]);
    if what == What::Writes {
        command.arg("--update");
    }
    let output = call(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let each = each(&text, what).ok_or_else(|| Absent("kvtest said no time".into()))?;
    let mut latencies = Latencies::default();
    latencies.record_many(each.as_nanos() as u64, count);
    let elapsed = each.mul_f64(count as f64);
    Ok(Round { operations: count, taken: count, elapsed, latencies, ..Round::default() })
}

/// Returns the time of an operation that kvtest says.
fn each(text: &str, what: What) -> Option<Duration> {
    let said = text.lines().find_map(|line| line.strip_prefix(what.said()))?;
    let micros: f64 = said.trim().parse().ok()?;
    (micros > 0.0).then(|| Duration::from_secs_f64(micros / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_time_of_kvtest_is_read() {
        let text = "Total elapsed time: 0.666\nMicroseconds per BLOB write: 1332.000\n";
        assert_eq!(each(text, What::Writes), Some(Duration::from_micros(1_332)));
        assert_eq!(each(text, What::Reads), None);
        assert_eq!(each("Microseconds per BLOB read: 0.000\n", What::Reads), None);
    }
}
