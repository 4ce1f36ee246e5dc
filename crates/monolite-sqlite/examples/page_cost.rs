//! What the page check costs: reads and small write transactions on a connection whose page cache
//! is wrapped or not, that tracks or does not; and what it costs to ask.
//!
//! `cargo run --release --package monolite-sqlite --example page_cost [DIRECTORY]` prints times of
//! interleaved rounds. SQLite can be configured once in a process, so the program starts itself
//! again, with `plain`, for the figures without a wrapper. `docs/decisions/page-check.md` sums
//! up a recorded run.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use monolite_sqlite::vfs::{
    Direct, File, FileKind, Forward, Lower, LowerFile, Result as IoResult, Storage, Vfs, WalControl,
};
use monolite_sqlite::{CheckpointMode, Connection, PageSet, Role, Savepoint, Settings};
use rusqlite::Result;

const ROUNDS: usize = 9;
const ROWS: i64 = 200_000;
const READ: &str = "SELECT balance FROM account WHERE id = ?1";
const READ_LONG: &str = "SELECT note FROM long WHERE id = ?1";
const UPDATE: &str = "UPDATE account SET balance = balance + 1 WHERE id = ?1";

/// More pages than any of these transactions reads.
const LIMIT: usize = 10_000;

fn spread(number: i64) -> i64 {
    number * 7_919 % ROWS
}

fn read(connection: &Connection, sql: &str, id: i64) -> Result<()> {
    connection.with_statement(sql, |it| it.query_row([id], |row| row.get_ref(0).map(drop)))?
}

fn update(connection: &Connection, id: i64) -> Result<()> {
    connection.with_statement(UPDATE, |it| it.execute([id]).map(drop))?
}

/// Nanoseconds that this thread has had of a processor.
fn cpu_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// Nanoseconds of processor time for each of the repetitions of `work`.
fn time(times: i64, mut work: impl FnMut(i64) -> Result<()>) -> Result<f64> {
    (0..times / 10).try_for_each(&mut work)?;
    let start = cpu_time();
    (0..times).try_for_each(&mut work)?;
    Ok((cpu_time() - start) / times as f64)
}

struct Rig {
    writer: Connection,
    reader: Connection,
    control: Arc<WalControl>,
    _vfs: Vfs,
}

impl Rig {
    fn open(path: &Path) -> Result<Rig> {
        let control = Arc::new(WalControl::keeping_frames(u64::MAX));
        let direct = Direct::new(Arc::clone(&control));
        Rig::over(path, Arc::new(direct), control)
    }

    fn over(path: &Path, storage: Arc<dyn Storage>, control: Arc<WalControl>) -> Result<Rig> {
        let vfs = Vfs::register(Lower::UnixExcl, storage)?;
        let settings = Settings { cache_kib: 64 << 10, sync: false, ..Settings::new(vfs.name()) };
        let writer = Connection::open(path, Role::Writer, &settings)?;
        let reader = Connection::open(path, Role::Reader, &settings)?;
        Ok(Rig { writer, reader, control, _vfs: vfs })
    }

    /// Reads in an open transaction, which are tracked in groups of ten, or not.
    fn reads(&self, sql: &str, rows: i64, tracks: bool) -> Result<f64> {
        self.reader.begin_read()?;
        let figure = time(if rows == ROWS { 100_000 } else { 10_000 }, |number| {
            if tracks && number % 10 == 0 {
                self.reader.take_pages();
                self.reader.track_pages(LIMIT);
            }
            read(&self.reader, sql, spread(number) % rows)
        });
        self.reader.rollback()?;
        figure
    }

    /// Batches of 100 members with two updates by key each.
    fn batches(&self, savepoint: bool) -> Result<f64> {
        self.writer.checkpoint(CheckpointMode::Truncate)?;
        time(100, |number| {
            self.writer.begin_immediate()?;
            if savepoint {
                self.writer.savepoint(Savepoint::Group)?;
            }
            for member in 0..100 {
                update(&self.writer, spread(number * 200 + member * 2))?;
                update(&self.writer, spread(number * 200 + member * 2 + 1))?;
            }
            if savepoint {
                self.writer.release(Savepoint::Group)?;
            }
            self.writer.commit()
        })
        .map(|batch| batch / 100.0)
    }

    fn pages(&self, first: i64, count: i64) -> Result<PageSet> {
        self.reader.begin_read()?;
        self.reader.track_pages(LIMIT);
        (first..first + count).try_for_each(|id| read(&self.reader, READ, spread(id)))?;
        let pages = self.reader.take_pages();
        self.reader.rollback()?;
        pages.ok_or(rusqlite::Error::InvalidQuery)
    }

    /// Whether a set of pages has changed, asked of both records, in a batch with 200 updates.
    fn checks(&self, count: i64) -> Result<f64> {
        let sequence = self.control.changes().sequence();
        let pages = self.pages(1_000, count)?;
        self.writer.begin_immediate()?;
        (0..200).try_for_each(|number| update(&self.writer, spread(50_000 + number)))?;
        let figure = time(200_000, |_| {
            std::hint::black_box(self.control.changes().any_changed_since(&pages, sequence));
            std::hint::black_box(self.writer.batch_changed(&pages));
            Ok(())
        });
        self.writer.rollback()?;
        figure
    }
}

/// Lets SQLite read long values past its page cache.
struct PastTheCache;

impl Storage for PastTheCache {
    fn open(&self, _: FileKind, _: Option<&Path>, _: &mut LowerFile) -> IoResult<Box<dyn File>> {
        Ok(Box::new(Forward))
    }
}

fn measure(directory: &Path) -> Result<Vec<(&'static str, f64)>> {
    let path = directory.join("page-cost.db");
    let past = Rig::over(&path, Arc::new(PastTheCache), Arc::default())?;
    let past = past.reads(READ_LONG, 200, false)?;
    let rig = Rig::open(&path)?;
    let can_track = rig.reader.track_pages(LIMIT);
    rig.reader.take_pages();
    let mut figures = vec![
        ("point read", rig.reads(READ, ROWS, false)?),
        ("value of 40 KB, past the cache", past),
        ("value of 40 KB", rig.reads(READ_LONG, 200, false)?),
        ("two updates in a batch", rig.batches(false)?),
        ("  with a savepoint", rig.batches(true)?),
    ];
    if can_track {
        figures.push(("point read, tracked", rig.reads(READ, ROWS, true)?));
        figures.push(("value of 40 KB, tracked", rig.reads(READ_LONG, 200, true)?));
        figures.push(("check of 2 reads", rig.checks(2)?));
        figures.push(("check of 20 reads", rig.checks(20)?));
    }
    Ok(figures)
}

fn fill(directory: &Path) -> Result<()> {
    let path = directory.join("page-cost.db");
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    rusqlite::Connection::open(&path)?.execute_batch(&format!(
        "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler TEXT);
         CREATE TABLE long(id INTEGER PRIMARY KEY, note BLOB);
         WITH RECURSIVE number(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM number
                                          WHERE value < {ROWS} - 1)
         INSERT INTO account SELECT value, 0, hex(zeroblob(40)) FROM number;
         INSERT INTO long SELECT id, randomblob(40000) FROM account WHERE id < 200"
    ))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let directory = arguments.first().map_or(".", String::as_str);
    if let Some(kind) = arguments.get(1) {
        if kind == "plain" {
            // SQLite is initialised before the wrapper can be installed.
            rusqlite::Connection::open_in_memory()?;
        }
        for (name, figure) in measure(Path::new(directory))? {
            println!("{name}\t{figure}");
        }
        return Ok(());
    }
    fill(Path::new(directory))?;
    let mut found: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..ROUNDS {
        for kind in ["plain", "wrapped"] {
            let child = Command::new(std::env::current_exe()?).args([directory, kind]).output()?;
            for line in String::from_utf8(child.stdout)?.lines() {
                let (name, figure) = line.split_once('\t').ok_or("two columns")?;
                let name = format!("{kind}: {name}");
                let figure = figure.parse()?;
                match found.iter_mut().find(|(of, _)| *of == name) {
                    Some((_, figures)) => figures.push(figure),
                    None => found.push((name, vec![figure])),
                }
            }
        }
    }
    println!("{:<36} {:>9} {:>9}", "ns of CPU each", "least", "median");
    for (name, mut figures) in found {
        figures.sort_by(f64::total_cmp);
        println!("{name:<36} {:>9.0} {:>9.0}", figures[0], figures[figures.len() / 2]);
    }
    Ok(())
}
