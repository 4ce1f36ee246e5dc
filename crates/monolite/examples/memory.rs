//! What a sort and an index build take: memory beyond the page cache, and time beside plain SQLite.
//!
//! `cargo run --release -p monolite --example memory -- 2048 [directory]` does both over so many
//! MiB, each in a process of its own. Needs four times as much space.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use monolite::Options;
use monolite::rusqlite::{self, Connection};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const SORT: &str = "SELECT count(*) FROM (SELECT v FROM t ORDER BY v LIMIT -1 OFFSET 1)";
const INDEX: &str = "CREATE INDEX t_v ON t(v)";
const HOUR: Duration = Duration::from_secs(3_600);

fn main() -> Result {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [role, path] if role.contains('-') => play(role, Path::new(path)),
        [mib] => compare(mib.parse()?, Path::new("target/memory")),
        [mib, directory] => compare(mib.parse()?, Path::new(directory)),
        _ => Err("usage: memory MIB [DIRECTORY]".into()),
    }
}

fn compare(mib: u64, directory: &Path) -> Result {
    fs::create_dir_all(directory)?;
    let (made, used) = (directory.join("made.db"), directory.join("used.db"));
    make(&made, mib)?;
    for role in ["plain-sort", "ours-sort", "plain-index", "ours-index", "ours-small"] {
        remove(&used);
        fs::copy(&made, &used)?;
        let out = Command::new(env::current_exe()?)
            .args([role.as_ref(), used.as_os_str()])
            // Where plain SQLite has its temporary files.
            .env("SQLITE_TMPDIR", directory)
            .status()?;
        assert!(out.success(), "{role} failed");
    }
    remove(&used);
    remove(&made);
    Ok(())
}

fn remove(path: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(PathBuf::from(format!("{}{ending}", path.display())));
    }
}

fn make(path: &Path, mib: u64) -> Result {
    remove(path);
    let connection = Connection::open(path)?;
    connection
        .execute_batch("PRAGMA synchronous = OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, v)")?;
    let rows = i64::try_from(mib * (1 << 20) / 820)?;
    let sql = "INSERT INTO t(v) WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               SELECT hex(randomblob(400)) FROM n";
    connection.execute(sql, [rows])?;
    Ok(())
}

fn play(role: &str, path: &Path) -> Result {
    let (caches, took) = match role {
        "plain-sort" => (2, plain(path, |connection| connection.query_row(SORT, [], |_| Ok(())))?),
        "plain-index" => (2, plain(path, |connection| connection.execute_batch(INDEX))?),
        "ours-sort" => ours(path, 16 << 20, "sort")?,
        "ours-index" => ours(path, 256 << 20, "index")?,
        "ours-small" => ours(path, 4 << 20, "index")?,
        _ => return Err("no such role".into()),
    };
    let beyond = peak_mib()?.saturating_sub(caches);
    let (user, system) = cpu_seconds()?;
    println!(
        "{role:12} {took:8.1?} (processor {user:.1} s + {system:.1} s), {beyond} MiB of memory \
         beyond {caches} MiB of page cache"
    );
    Ok(())
}

fn plain(path: &Path, run: impl Fn(&Connection) -> rusqlite::Result<()>) -> Result<Duration> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0",
    )?;
    let start = Instant::now();
    run(&connection)?;
    Ok(start.elapsed())
}

fn ours(path: &Path, cache: u64, what: &str) -> Result<(u64, Duration)> {
    let db = Options::new()
        .readers(1)
        .reader_cache_bytes(16 << 20)
        .writer_cache_bytes(cache)
        .wal_limit_bytes(64 << 30)
        .write_time_limit(HOUR)
        .read_time_limit(HOUR)
        .open(path)?;
    let start = Instant::now();
    match what {
        "sort" => db.read(|tx| tx.query_row(SORT, (), |_| Ok(()))).wait()?,
        _ => db.write(|tx| tx.execute_batch(INDEX)).wait()?,
    }
    let took = start.elapsed();
    println!("{what:12} temporary files had {} MiB", db.stats().temp_bytes_max >> 20);
    // Dropped without a last checkpoint, which is no part of either.
    std::mem::forget(db);
    Ok((cache >> 20, took))
}

fn peak_mib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM")).ok_or("no peak")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no peak")?.parse()?;
    Ok(kib >> 10)
}

/// Of this process: beside other work they tell more than the time.
fn cpu_seconds() -> Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|it| it.parse::<f64>().ok());
    let (user, system) = (ticks(13).ok_or("no times")?, ticks(14).ok_or("no times")?);
    Ok((user / 100.0, system / 100.0))
}
