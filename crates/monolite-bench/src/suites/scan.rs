//! `bench scan`: how short range scans scale with threads, and what each tweak does alone.
//!
//! Every change that the article made is a line of its own: nothing but that differs from the line
//! before all tweaks. Memory statistics are set when SQLite is built or started and not for a
//! connection, so that line cannot be measured here, and the report says how this build has them;
//! pinning to NUMA nodes needs more than one.

use super::shift::Crew;
use super::{Bundle, Entry, Ground, Suite, Turn, cores, on_engine, threads};
use crate::drivers::Round;
use crate::raw_connection::open_bare;
use crate::report::record::Section;
use anyhow::{Result, ensure};
use monolite::Options;
use rusqlite::{Connection, Statement};
use std::path::Path;

pub const SUITE: Suite = Suite { name: "scan", prepare, sections };

const TABLE: &str = "CREATE TABLE perfTest(indexedColumn, nonIndexedColumn)";
const INDEX: &str = "CREATE INDEX perfTestIndex ON perfTest(indexedColumn)";
const SCAN: &str = "SELECT COUNT(*), AVG(nonIndexedColumn) FROM (SELECT nonIndexedColumn FROM \
                    perfTest WHERE indexedColumn > ?1 LIMIT 10)";
const ONE: &str = "SELECT 1 WHERE ?1 IS NOT NULL";

/// Rows that are loaded in one transaction.
const LOAD_BATCH: u64 = 100_000;

/// Operations per recorded latency.
const SAMPLE: u64 = 16;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Query {
    key: &'static str,
    title: &'static str,
    sql: &'static str,
    file: &'static str,
}

const QUERIES: [Query; 3] = [
    Query { key: "range", title: "Ten rows of an index", sql: SCAN, file: "scan.db" },
    Query { key: "one-row", title: "The same on a table of one row", sql: SCAN, file: "one.db" },
    Query { key: "select-1", title: "SELECT 1", sql: ONE, file: "one.db" },
];

/// How a raw connection is set.
#[derive(Clone, Copy, Debug, Default)]
struct Tweaks {
    private_locks: bool,
    mmap: bool,
    cache: bool,
    unprepared: bool,
}

/// Lines of raw SQLite: each tweak alone, and all that help together.
const RAW: [(&str, &str, Tweaks); 6] = [
    ("raw", "raw, as it comes, prepared once", NONE),
    ("raw-locks", "raw, private locks", Tweaks { private_locks: true, ..NONE }),
    ("raw-mmap", "raw, mmap", Tweaks { mmap: true, ..NONE }),
    ("raw-cache", "raw, page cache of 64 MiB", Tweaks { cache: true, ..NONE }),
    ("raw-unprepared", "raw, prepared every time", Tweaks { unprepared: true, ..NONE }),
    ("raw-all", "raw, private locks, mmap, cache", ALL),
];

const NONE: Tweaks = Tweaks { private_locks: false, mmap: false, cache: false, unprepared: false };
const ALL: Tweaks = Tweaks { private_locks: true, mmap: true, cache: true, unprepared: false };

impl Tweaks {
    fn connect(self, path: &Path) -> Result<Connection> {
        let connection =
            if self.private_locks { open_bare(path)? } else { Connection::open(path)? };
        if self.mmap {
            connection.execute_batch("PRAGMA mmap_size = 2147418112")?;
        }
        if self.cache {
            connection.execute_batch("PRAGMA cache_size = -65536")?;
        }
        Ok(connection)
    }
}

fn rows(ground: &Ground<'_>) -> u64 {
    ground.options.rows.unwrap_or(ground.options.depth.pick(50_000, 1_000_000, 10_000_000))
}

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    load(&ground.dir.join("scan.db"), rows(ground), ground)?;
    load(&ground.dir.join("one.db"), 1, ground)?;
    let connection = Connection::open_in_memory()?;
    let mut options = connection.prepare("PRAGMA compile_options")?;
    let options: Vec<String> =
        options.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let statistics = if options.iter().any(|option| option == "DEFAULT_MEMSTATUS=0") {
        "memory statistics: off in this build of SQLite, for all lines"
    } else {
        "memory statistics: on in this build of SQLite, for all lines"
    };
    let nodes = std::fs::read_dir("/sys/devices/system/node").map_or(1, |entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .filter(|name| name.to_string_lossy().trim_start_matches("node").parse::<u32>().is_ok())
            .count()
    });
    Ok(vec![
        format!("perfTest with {} rows, its index built after the load", rows(ground)),
        statistics.into(),
        format!("NUMA nodes: {}; nothing is pinned", nodes.max(1)),
    ])
}

fn load(path: &Path, rows: u64, ground: &Ground<'_>) -> Result<()> {
    let connection = open_bare(path)?;
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
    connection.execute_batch(TABLE)?;
    for first in (0..rows).step_by(LOAD_BATCH as usize) {
        ground.interrupt.check()?;
        let count = LOAD_BATCH.min(rows - first);
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO perfTest SELECT random(), random() FROM n",
            [count as i64],
        )?;
    }
    connection.execute_batch(INDEX)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn sections(ground: &Ground<'_>) -> Vec<Bundle> {
    let most = ground.options.depth.pick(cores(), cores() * 2, cores() * 8);
    QUERIES.iter().map(|query| bundle(ground, *query, &threads(most))).collect()
}

fn bundle(ground: &Ground<'_>, query: Query, threads: &[usize]) -> Bundle {
    let path = ground.dir.join(query.file);
    let mut entries = Vec::new();
    for &threads in threads {
        for (line, name, tweaks) in RAW {
            let path = path.clone();
            let trial = move |turn: &Turn<'_>| raw(&path, query, tweaks, threads, turn);
            entries.push(Entry::new(line, name, threads, trial));
        }
        let path = path.clone();
        let trial = move |turn: &Turn<'_>| ours(&path, query, threads, turn);
        entries.push(Entry::new("monolite", "monolite", threads, trial));
    }
    let meaning = "Every line but one differs from the first in one setting; a line that rises \
                   with the threads up to the cores scales";
    let key = format!("scan/{}", query.key);
    let section = Section::new(key, query.title, meaning, ["threads", "queries"]);
    let check = "every query answered with the rows that it must find";
    Bundle { section, check, entries }
}

/// Rows that an answer may count: fewer than ten at the upper end of the range alone.
fn check(query: Query, found: i64) -> Result<()> {
    let most = if query.sql == SCAN { 10 } else { 1 };
    ensure!((0..=most).contains(&found), "a query counted {found} rows");
    Ok(())
}

fn raw(
    path: &Path,
    query: Query,
    tweaks: Tweaks,
    threads: usize,
    turn: &Turn<'_>,
) -> Result<Round> {
    Crew { threads, sample: SAMPLE, turn }.work(|number, shift| {
        let connection = tweaks.connect(path)?;
        let mut random = turn.random(number);
        let ask = |statement: &mut Statement<'_>, above: i64| -> Result<i64> {
            Ok(statement.query_row([above], |row| row.get(0))?)
        };
        let mut statement = connection.prepare(query.sql)?;
        shift.repeat(|| {
            let above = random.i64(..);
            let found = if tweaks.unprepared {
                ask(&mut connection.prepare(query.sql)?, above)?
            } else {
                ask(&mut statement, above)?
            };
            check(query, found)
        })
    })
}

fn ours(path: &Path, query: Query, threads: usize, turn: &Turn<'_>) -> Result<Round> {
    on_engine(Options::new().readers(threads.max(2)), path, |db| {
        Crew { threads, sample: SAMPLE, turn }.work(|number, shift| {
            let mut random = turn.random(number);
            shift.repeat(|| {
                let above = random.i64(..);
                let found: monolite::Result<i64> =
                    db.read(move |tx| tx.query_row(query.sql, [above], |row| row.get(0))).wait();
                check(query, found?)
            })
        })
    })
}
