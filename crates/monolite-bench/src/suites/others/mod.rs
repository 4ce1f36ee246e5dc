//! `bench others`: benchmarks that nobody here wrote.
//!
//! - The TPC-B-like script of PostgreSQL's `pgbench`: PostgreSQL driven by pgbench itself, and the
//!   same script on PostgreSQL, raw SQLite and the engine by our drivers, each statement awaited.
//! - SQLite's own `speedtest1`, built of Debian's source package when `--with sqlite-tools` asks
//!   for it: how fast SQLite is here, whoever asks. (`kvtest` of the same package is in `kv`.)
//!
//! Where the branches are few, and the script updates one of them each time, transactions collide
//! in every database; `pgbench` says so, too.

mod pgbench;
mod tpcb;

use super::{Bundle, Entry, Ground, Suite, Trial, Turn};
use crate::drivers::postgres::{Source, server};
use crate::drivers::{Absent, Round};
use crate::optional::{self, Optional, With};
use crate::raw_connection::{Durability, open_bare};
use crate::report::record::Section;
use crate::statistics::Latencies;
use anyhow::Result;
use pgbench::Postgres;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;
use tpcb::{Case, Way};

/// The suite.
pub const SUITE: Suite = Suite { name: "others", prepare, sections };

/// Branches: pgbench's scale.
fn scale(ground: &Ground<'_>) -> u64 {
    ground.options.depth.pick(1, 10, 10)
}

fn file(dir: &Path) -> PathBuf {
    dir.join("tpcb.db")
}

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    tpcb::load(&mut open_bare(&file(ground.dir))?, scale(ground), ground.interrupt)?;
    let postgres = match absence(ground) {
        None => "PostgreSQL: a private server, over a Unix socket, loaded by pgbench -i".into(),
        Some(reason) => format!("PostgreSQL: {reason}"),
    };
    Ok(vec![format!("the tables of pgbench, scale {}", scale(ground)), postgres])
}

/// Why there is no PostgreSQL.
fn absence(ground: &Ground<'_>) -> Option<String> {
    match ground.options.postgres {
        Source::None => Some("left out by --no-postgres".into()),
        _ => server::find_binaries().err().map(|error| format!("{error:#}")),
    }
}

fn sections(ground: &Ground<'_>) -> Vec<Bundle> {
    let mut bundles = vec![tpcb(ground)];
    if ground.options.with.wants(Optional::SqliteTools) {
        bundles.push(speedtest(ground));
    }
    bundles
}

fn tpcb(ground: &Ground<'_>) -> Bundle {
    let clients: &[usize] = ground.options.depth.pick(&[1, 16], &[1, 16, 64], &[1, 16, 64]);
    let case = Case { path: file(ground.dir), scale: scale(ground) };
    let mut entries = Vec::new();
    let postgres = absence(ground).is_none().then(|| {
        Rc::new(Postgres::later(ground.options.data.clone(), ground.dir.into(), case.scale))
    });
    for &clients in clients {
        let mut add = |line: &str, name: &str, trial: Trial| {
            let (line, name, x) = (line.into(), name.into(), clients.to_string());
            entries.push(Entry { line, name, x, durability: Durability::Durable, trial });
        };
        for (way, line, name) in [
            (Way::Raw, "raw", "raw, BEGIN IMMEDIATE"),
            (Way::Write, "monolite-write", "monolite, write"),
            (Way::Interactive, "monolite-interactive", "monolite, interactive"),
        ] {
            let case = case.clone();
            add(line, name, Box::new(move |turn| case.run(way, clients, turn)));
        }
        if let Some(postgres) = &postgres {
            let (itself, ours) = (Rc::clone(postgres), Rc::clone(postgres));
            let trial = move |turn: &Turn<'_>| itself.pgbench(clients, turn);
            add("postgres-pgbench", "PostgreSQL, by pgbench itself", Box::new(trial));
            let trial = move |turn: &Turn<'_>| ours.by_our_driver(clients, turn);
            add("postgres", "PostgreSQL, by our driver", Box::new(trial));
        }
    }
    let section = Section {
        key: "others/tpcb".into(),
        title: format!("pgbench's TPC-B-like script, scale {}", case.scale),
        meaning: "Three updates, a query and an insert, each awaited, then COMMIT; raw writers \
                  exclude each other, PostgreSQL's and the engine's share commits"
            .into(),
        x: "clients".into(),
        unit: "transactions".into(),
    };
    let check = "accounts, tellers, branches and history add up to the same, and the history has \
                 as many rows as were acknowledged";
    Bundle { section, check, entries }
}

fn speedtest(ground: &Ground<'_>) -> Bundle {
    let size = ground.options.depth.pick(5_u32, 25, 100);
    let (with, dir) = (ground.options.with.clone(), ground.dir.to_owned());
    let trial = move |turn: &Turn<'_>| speedtest1(&with, &dir, size, turn);
    let section = Section {
        key: "others/speedtest1".into(),
        title: format!("SQLite's speedtest1, size {size}"),
        meaning: "How often the whole of it could be run in a second; its latency is the time of \
                  one run. It is SQLite alone, of Debian's version"
            .into(),
        x: "runs at once".into(),
        unit: "runs".into(),
    };
    let entry = Entry {
        line: "raw-speedtest1".into(),
        name: "raw, by speedtest1 itself".into(),
        x: "1".into(),
        durability: Durability::Durable,
        trial: Box::new(trial),
    };
    Bundle { section, check: "it ended without an error", entries: vec![entry] }
}

fn speedtest1(with: &With, dir: &Path, size: u32, turn: &Turn<'_>) -> Result<Round> {
    let program = with.programs(Optional::SqliteTools)?.join("speedtest1");
    let database = dir.join("speedtest1.db");
    super::stage::remove(&database)?;
    let mut command = Command::new(program);
    command.args(["--size", &size.to_string()]).arg(&database);
    let output = optional::run(&mut command, turn.interrupt)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let total = total(&text).filter(|_| output.status.success());
    let total = total.ok_or_else(|| Absent(optional::complaint("speedtest1", &output)))?;
    let mut latencies = Latencies::default();
    latencies.record(total);
    Ok(Round { operations: 1, taken: 1, elapsed: total, latencies, ..Round::default() })
}

/// Returns the time that speedtest1 says it took.
fn total(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.trim_start().starts_with("TOTAL"))?;
    let seconds = line.trim_end().trim_end_matches('s').rsplit(['.', ' ']).nth(1);
    // What stands before the point follows the dots that lead to it.
    let whole = seconds?.trim_start_matches('.');
    let fraction = line.trim_end().trim_end_matches('s').rsplit('.').next()?;
    format!("{whole}.{fraction}").parse().ok().map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_speedtest1_is_read() {
        let text =
            " 990 - ANALYZE......................    0.013s\n       TOTAL.........    0.290s\n";
        assert_eq!(total(text), Some(Duration::from_millis(290)));
        assert_eq!(total("       TOTAL.....   12.034s\n"), Some(Duration::from_millis(12_034)));
        assert_eq!(total("nothing"), None);
    }
}
