//! What the VFS seam costs: the same work on SQLite's own `unix-excl`, on the seam with a storage
//! that only passes on, and on the seam as production uses it.
//!
//! `cargo run --release --package monolite-sqlite --example vfs_cost [DIRECTORY [ROUNDS]]`; the
//! figures are medians of interleaved rounds. `docs/decisions/vfs-seam.md` counts instructions
//! instead, which do not depend on other work on the machine.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use monolite_sqlite::vfs::{
    Direct, File, FileKind, Forward, Lower, LowerFile, Result as IoResult, Storage, Vfs, WalControl,
};
use rusqlite::{Connection, OpenFlags, Result};

/// Unless the command line says otherwise.
const ROUNDS: usize = 9;
const ROWS: i64 = 200_000;

/// Passes every call on and gathers nothing: the seam alone.
struct PassOn;

impl Storage for PassOn {
    fn open(&self, _: FileKind, _: Option<&Path>, _: &mut LowerFile) -> IoResult<Box<dyn File>> {
        Ok(Box::new(Forward))
    }
}

/// A piece of work that is repeated so many times.
struct Work {
    name: &'static str,
    times: i64,
    /// Page cache in KiB.
    cache: i64,
    run: fn(&Connection, i64) -> Result<()>,
}

const WORKS: [Work; 3] = [
    Work { name: "point read, cached", times: 100_000, cache: 64 << 10, run: read_points },
    Work { name: "point read, page from the file", times: 50_000, cache: 40, run: read_points },
    Work { name: "commit of one row, no sync", times: 20_000, cache: 64 << 10, run: commit_rows },
];

fn read_points(connection: &Connection, times: i64) -> Result<()> {
    let mut query = connection.prepare("SELECT balance FROM account WHERE id = ?1")?;
    for number in 0..times {
        let id = number * 7_919 % ROWS;
        query.query_row([id], |row| row.get::<_, i64>(0))?;
    }
    Ok(())
}

fn commit_rows(connection: &Connection, times: i64) -> Result<()> {
    let mut update =
        connection.prepare("UPDATE account SET balance = balance + 1 WHERE id = ?1")?;
    for number in 0..times {
        update.execute([number * 7_919 % ROWS])?;
    }
    Ok(())
}

/// Nanoseconds for each of the repetitions of `work` on a fresh connection. Not inlined, so that a
/// profiler can tell one call from the next.
#[inline(never)]
fn measure(path: &Path, vfs: &str, work: &Work) -> Result<f64> {
    let connection = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
    connection.pragma_update(None, "cache_size", -work.cache)?;
    (work.run)(&connection, work.times / 10)?;
    let start = Instant::now();
    (work.run)(&connection, work.times)?;
    Ok(start.elapsed().as_nanos() as f64 / work.times as f64)
}

fn main() -> Result<()> {
    monolite_sqlite::initialize().map_err(rusqlite::Error::InvalidParameterName)?;
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let rounds = std::env::args().nth(2).and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let path = Path::new(&directory).join("vfs-cost.db");
    let clear = || {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    };
    clear();
    let connection = Connection::open(&path)?;
    connection.execute_batch(&format!(
        "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, note TEXT) STRICT;
         WITH RECURSIVE number(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM number
                                          WHERE value < {ROWS} - 1)
         INSERT INTO account SELECT value, 0, hex(zeroblob(40)) FROM number"
    ))?;
    connection.close().map_err(|(_, error)| error)?;
    let seam = Vfs::register(Lower::UnixExcl, Arc::new(PassOn))?;
    let wal = Arc::new(WalControl::keeping_frames(1 << 30));
    let production = Vfs::register(Lower::UnixExcl, Arc::new(Direct::new(wal)))?;
    let names = ["unix-excl", seam.name(), production.name()];
    println!("{:<32} {:>10} {:>10} {:>10}", "ns each", "stock", "seam", "production");
    for work in &WORKS {
        let mut found = [const { Vec::new() }; 3];
        for round in 0..rounds {
            for turn in 0..names.len() {
                let which = (round + turn) % names.len();
                found[which].push(measure(&path, names[which], work)?);
            }
        }
        let medians = found.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[rounds / 2]
        });
        let [stock, seam, production] = medians;
        println!("{:<32} {stock:>10.0} {seam:>10.0} {production:>10.0}", work.name);
    }
    clear();
    Ok(())
}
