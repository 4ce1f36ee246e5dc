//! What a transaction in an overlay costs: guard and overlay begin, one row is changed by its key,
//! both roll back.
//!
//! `cargo run --release --package monolite-sqlite --example overlay_cost [DIRECTORY]`; each figure
//! is the median of its step in microseconds. Nothing in a step waits for anybody, and a step that
//! lost the core is no median. "warm" is without a commit by others between two transactions,
//! "after a commit" with one before each; "kept" is on connections that keep the pages which no
//! commit has changed, as the engine's do. A snapshot that is more than 256 frames younger than the
//! overlay's last one has the whole hash table copied. `docs/decisions/overlays.md` sums up a
//! recorded run.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use monolite_sqlite::vfs::{
    ChecksumUse, Checksummed, Direct, Lower, PageChecksums, RESERVED_BYTES, Vfs, WalControl,
};
use monolite_sqlite::{CheckpointMode, Connection, Role, Settings, test_overlay};
use rusqlite::Result;

const ROWS: i64 = 100_000;
const TIMES: i64 = 10_000;
const STEPS: [&str; 6] = ["guard", "snapshot", "begin_on", "UPDATE", "rollback", "guard ends"];

fn settings(vfs: &Vfs, cache_kib: u64, control: Option<Arc<WalControl>>) -> Settings {
    let reserved_bytes = RESERVED_BYTES;
    Settings { cache_kib, sync: false, reserved_bytes, control, ..Settings::new(vfs.name()) }
}

fn add(connection: &Connection, id: i64) -> Result<usize> {
    let sql = "UPDATE account SET balance = balance + 1 WHERE id = ?1";
    connection.with_statement(sql, |statement| statement.execute([id]))?
}

fn read(connection: &Connection, id: i64) -> Result<i64> {
    let sql = "SELECT balance FROM account WHERE id = ?1";
    connection.with_statement(sql, |statement| statement.query_row([id], |row| row.get(0)))?
}

/// One transaction; notes when each step was done.
fn transact(guard: &Connection, overlay: &Connection, id: i64) -> Result<[Instant; 7]> {
    let start = Instant::now();
    guard.begin_read()?;
    read(guard, id)?;
    let began = Instant::now();
    let snapshot = guard.snapshot().expect("the guard has read");
    let taken = Instant::now();
    overlay.begin_on(&snapshot)?;
    let shown = Instant::now();
    add(overlay, id)?;
    let changed = Instant::now();
    overlay.rollback()?;
    let undone = Instant::now();
    guard.rollback()?;
    Ok([start, began, taken, shown, changed, undone, Instant::now()])
}

/// A guard and its overlay.
struct Pair {
    guard: Connection,
    overlay: Connection,
}

struct Bench {
    writer: Connection,
    emptied: Pair,
    kept: Pair,
}

impl Bench {
    fn commit(&self, id: i64) -> Result<()> {
        self.writer.begin_immediate()?;
        add(&self.writer, id)?;
        self.writer.commit()
    }

    /// Prints the steps of a transaction, with `commits` by the writer before each, and the WAL
    /// between `frames` and twice as long.
    fn measure(&self, name: &str, pair: &Pair, commits: i64, frames: i64) -> Result<()> {
        let mut steps = [const { Vec::new() }; STEPS.len()];
        self.fill_wal(frames)?;
        let times = if commits > 1 { TIMES / 50 } else { TIMES };
        for number in 0..times {
            if commits * number % frames > frames - 1 - commits {
                self.fill_wal(frames)?;
                transact(&pair.guard, &pair.overlay, number)?;
            }
            for commit in 0..commits {
                self.commit((number + commit) * 7_919 % ROWS)?;
            }
            let done_at = transact(&pair.guard, &pair.overlay, number * 104_729 % ROWS)?;
            for (step, pair) in steps.iter_mut().zip(done_at.windows(2)) {
                step.push((pair[1] - pair[0]).as_nanos() as u64);
            }
        }
        print!("{name:<40}");
        let mut total = 0.0;
        for step in &mut steps {
            step.sort_unstable();
            let median = step[step.len() / 2] as f64 / 1_000.0;
            total += median;
            print!(" {median:>10.2}");
        }
        println!(" {total:>10.2}");
        Ok(())
    }

    /// Restarts the WAL and commits until it has `frames`.
    fn fill_wal(&self, frames: i64) -> Result<()> {
        self.writer.checkpoint(CheckpointMode::Truncate)?;
        (0..frames).try_for_each(|number| self.commit(number * 7_919 % ROWS))
    }
}

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let path = Path::new(&directory).canonicalize().expect("a directory").join("overlay-cost.db");
    let clear = || {
        for end in ["", "-wal"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    };
    clear();
    let control = Arc::new(WalControl::keeping_frames(u64::MAX));
    let direct = Direct::new(Arc::clone(&control));
    let checksums = Arc::new(PageChecksums::new(ChecksumUse::Verify));
    let storage = Arc::new(Checksummed::new(Arc::new(direct), checksums));
    let vfs = Vfs::register(Lower::UnixExcl, storage.clone())?;
    let overlay_vfs = vfs.register_overlays(storage)?;
    let writer = Connection::open(&path, Role::Writer, &settings(&vfs, 64 << 10, None))?;
    writer.begin_immediate()?;
    writer.raw().execute_batch(&format!(
        "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, note TEXT) STRICT;
         WITH RECURSIVE number(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM number
                                          WHERE value < {ROWS} - 1)
         INSERT INTO account SELECT value, 0, hex(zeroblob(40)) FROM number"
    ))?;
    writer.commit()?;
    let pair = |control: Option<Arc<WalControl>>| -> Result<Pair> {
        let readers = settings(&vfs, 4 << 10, control.clone());
        let guard = Connection::open(&path, Role::Reader, &readers)?;
        let overlays = settings(&overlay_vfs, 4 << 10, control);
        let overlay = Connection::open(&path, Role::Overlay, &overlays)?;
        test_overlay(&guard, &overlay).expect("overlays are available");
        Ok(Pair { guard, overlay })
    };
    let bench = Bench { writer, emptied: pair(None)?, kept: pair(Some(control))? };
    print!("{:<40}", "µs each");
    STEPS.iter().for_each(|step| print!(" {step:>10}"));
    println!(" {:>10}", "sum");
    for frames in [10, 3_000, 10_000] {
        for (pair, kept) in [(&bench.emptied, ""), (&bench.kept, ", kept")] {
            bench.measure(&format!("warm, {frames} frames{kept}"), pair, 0, frames)?;
            bench.measure(&format!("after a commit, {frames} frames{kept}"), pair, 1, frames)?;
        }
    }
    for (pair, kept) in [(&bench.emptied, ""), (&bench.kept, ", kept")] {
        bench.measure(&format!("after 300 commits, 3000 frames{kept}"), pair, 300, 3_000)?;
    }
    drop(bench);
    clear();
    Ok(())
}
