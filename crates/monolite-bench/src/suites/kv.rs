//! `bench kv`: blobs by key, as SQLite's own `kvtest` has them, and a page of many small queries.
//!
//! Values are replaced under random keys, a transaction each, and read under random keys. Every
//! value begins with a number of its write, so that the last one of each key can be looked for.
//! redb, LMDB and `kvtest` itself are optional drivers ([`crate::optional`]).

mod kvtest;

use super::shift::Crew;
use super::{Bundle, Entry, Ground, Suite, Trial, Turn, page};
use crate::drivers::Round;
use crate::optional::{Optional, With};
use crate::raw_connection::{Durability, open_bare};
use crate::report::record::Section;
use anyhow::{Context, Result, ensure};
use monolite::{Database, Options};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The suite.
pub const SUITE: Suite = Suite { name: "kv", prepare, sections };

const READ: &str = "SELECT v FROM kv WHERE k = ?1";
const WRITE: &str = "UPDATE kv SET v = ?2 WHERE k = ?1";

/// Clients of the engine that wait at the same time.
const CLIENTS: usize = 16;

/// A size of values.
#[derive(Clone, Copy, Debug)]
struct Size {
    key: &'static str,
    title: &'static str,
    bytes: usize,
    /// Operations per recorded latency of reads.
    sample: u64,
}

const SIZES: [Size; 2] = [
    Size { key: "512", title: "512 B", bytes: 512, sample: 16 },
    Size { key: "32k", title: "32 KiB", bytes: 32 << 10, sample: 4 },
];

impl Size {
    fn rows(self, ground: &Ground<'_>) -> u64 {
        let (small, large) =
            ground.options.depth.pick((10_000, 500), (100_000, 5_000), (100_000, 5_000));
        if self.bytes == 512 { small } else { large }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("kv-{}.db", self.key))
    }
}

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    let mut work = Vec::new();
    for size in SIZES {
        let connection = open_bare(&size.file(ground.dir))?;
        connection.execute_batch("PRAGMA synchronous = OFF")?;
        connection.execute_batch("CREATE TABLE kv(k INTEGER PRIMARY KEY, v BLOB)")?;
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO kv SELECT i, randomblob(?2) FROM n",
            (size.rows(ground) as i64, size.bytes as i64),
        )?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")?;
        work.push(format!("{} values of {}", size.rows(ground), size.title));
        ground.interrupt.check()?;
    }
    work.extend(page::prepare(ground)?);
    Ok(work)
}

fn sections(ground: &Ground<'_>) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    for size in SIZES {
        bundles.extend([writes(ground, size), reads(ground, size)]);
    }
    bundles.push(page::bundle(ground));
    bundles
}

fn section(size: Size, what: &str, title: &str, meaning: &str) -> Section {
    Section {
        key: format!("kv/{}-{what}", size.key),
        title: format!("{title}, {}", size.title),
        meaning: meaning.into(),
        x: "clients".into(),
        unit: what.into(),
    }
}

const DURABILITIES: [(Durability, &str, &str, &str); 2] = [
    (Durability::Durable, "durable", "WAL, FULL", "durable"),
    (Durability::Buffered, "buffered", "WAL, NORMAL", "buffered"),
];

fn writes(ground: &Ground<'_>, size: Size) -> Bundle {
    let mut entries = Vec::new();
    for (durability, key, raw_name, name) in DURABILITIES {
        let case = Case { size, rows: size.rows(ground), path: size.file(ground.dir), durability };
        let mut add = |line: String, name: String, x: usize, trial: Trial| {
            entries.push(Entry { line, name, x: x.to_string(), durability, trial });
        };
        let raw = case.clone();
        let trial = Box::new(move |turn: &Turn<'_>| raw.raw_writes(turn));
        add(format!("raw-{key}"), format!("raw, {raw_name}"), 1, trial);
        for clients in [1, CLIENTS] {
            let case = case.clone();
            let trial = Box::new(move |turn: &Turn<'_>| case.writes(clients, turn));
            add(format!("monolite-{key}"), format!("monolite, {name}"), clients, trial);
        }
    }
    if ground.options.with.wants(Optional::SqliteTools) {
        let (durability, with) = (Durability::Durable, ground.options.with.clone());
        let case = Case { size, rows: size.rows(ground), path: size.file(ground.dir), durability };
        let trial = move |turn: &Turn<'_>| kvtest::run(&with, &case, kvtest::What::Writes, turn);
        entries.push(kvtest::entry(Box::new(trial)));
    }
    for (driver, line, name) in OPTIONAL {
        if !ground.options.with.wants(driver) {
            continue;
        }
        for (durability, key, _, how) in DURABILITIES {
            let case =
                Case { size, rows: size.rows(ground), path: size.file(ground.dir), durability };
            for clients in [1, CLIENTS] {
                let (case, with) = (case.clone(), ground.options.with.clone());
                let trial = move |turn: &Turn<'_>| {
                    case.optional(&with, driver, ["writes", key], clients, turn)
                };
                entries.push(Entry {
                    line: format!("{line}-{key}"),
                    name: format!("{name}, {how}"),
                    x: clients.to_string(),
                    durability,
                    trial: Box::new(trial),
                });
            }
        }
    }
    let meaning = "A write is a transaction; those of many clients share commits, raw ones do not";
    let section = section(size, "writes", "Values replaced", meaning);
    Bundle { section, check: "the last acknowledged value of every key is there", entries }
}

fn reads(ground: &Ground<'_>, size: Size) -> Bundle {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut entries, durability) = (Vec::new(), Durability::Durable);
    let case = Case { size, rows: size.rows(ground), path: size.file(ground.dir), durability };
    for clients in [1, cores] {
        let lines: [(&str, &str, Run); 2] =
            [("raw", "raw, prepared once", Case::raw_reads), ("monolite", "monolite", Case::reads)];
        for (line, name, run) in lines {
            let case = case.clone();
            let trial: Trial = Box::new(move |turn| run(&case, clients, turn));
            let (line, name, x) = (line.into(), name.into(), clients.to_string());
            entries.push(Entry { line, name, x, durability, trial });
        }
    }
    if ground.options.with.wants(Optional::SqliteTools) {
        let (case, with) = (case.clone(), ground.options.with.clone());
        let trial = move |turn: &Turn<'_>| kvtest::run(&with, &case, kvtest::What::Reads, turn);
        entries.push(kvtest::entry(Box::new(trial)));
    }
    for (driver, line, name) in OPTIONAL {
        if !ground.options.with.wants(driver) {
            continue;
        }
        for clients in [1, cores] {
            let (case, with) = (case.clone(), ground.options.with.clone());
            let trial = move |turn: &Turn<'_>| {
                case.optional(&with, driver, ["reads", "durable"], clients, turn)
            };
            let (line, name, x) = (line.into(), name.into(), clients.to_string());
            entries.push(Entry { line, name, x, durability, trial: Box::new(trial) });
        }
    }
    entries.dedup_by(|a, b| a.line == b.line && a.x == b.x);
    let section = section(size, "reads", "Values read", "A client is a thread; more is better");
    Bundle { section, check: "every value that was read has its length", entries }
}

#[derive(Clone, Debug)]
struct Case {
    size: Size,
    rows: u64,
    path: PathBuf,
    durability: Durability,
}

/// Drivers that are built at run time.
const OPTIONAL: [(Optional, &str, &str); 2] =
    [(Optional::Redb, "redb", "redb"), (Optional::Lmdb, "lmdb", "LMDB")];

/// A round of so many clients.
type Run = fn(&Case, usize, &Turn<'_>) -> Result<Round>;

/// The last value of each key, by its number.
type Last = HashMap<i64, u64>;

impl Case {
    fn connect(&self) -> Result<Connection> {
        let connection = open_bare(&self.path)?;
        let synchronous = match self.durability {
            Durability::Durable => "FULL",
            Durability::Buffered => "NORMAL",
        };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}"
        ))?;
        Ok(connection)
    }

    fn open(&self) -> Result<Database> {
        let durability = match self.durability {
            Durability::Durable => monolite::Durability::Synced,
            Durability::Buffered => monolite::Durability::Buffered,
        };
        Options::new().durability(durability).open(&self.path).context("cannot open the engine")
    }

    /// Has a driver that was built at run time write or read values in a file of its own.
    fn optional(
        &self,
        with: &With,
        driver: Optional,
        [what, durability]: [&str; 2],
        clients: usize,
        turn: &Turn<'_>,
    ) -> Result<Round> {
        let sample = if what == "writes" { 1 } else { self.size.sample };
        let arguments = [
            ("path", self.path.with_extension(driver.name()).display().to_string()),
            ("what", what.to_owned()),
            ("durability", durability.to_owned()),
            ("threads", clients.to_string()),
            ("nanoseconds", turn.length.as_nanos().to_string()),
            ("sample", sample.to_string()),
            ("seed", turn.seed.to_string()),
            ("rows", self.rows.to_string()),
            ("bytes", self.size.bytes.to_string()),
        ];
        with.round(driver, &arguments, turn.interrupt)
    }

    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = vec![0x5a; self.size.bytes];
        value[..8].copy_from_slice(&number.to_be_bytes());
        value
    }

    fn random(turn: &Turn<'_>, number: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(turn.seed << 32 | number as u64)
    }

    fn raw_writes(&self, turn: &Turn<'_>) -> Result<Round> {
        let last = Mutex::new(Last::new());
        let round = Crew { threads: 1, sample: 1, turn }.work(|number, shift| {
            let connection = self.connect()?;
            let mut write = connection.prepare(WRITE)?;
            let (mut random, mut mine) = (Case::random(turn, number), Last::new());
            shift.begin();
            while shift.goes_on() {
                let key = random.u64(1..=self.rows) as i64;
                let id = random.u64(..);
                ensure!(write.execute((key, self.value(id)))? == 1, "there is no key {key}");
                mine.insert(key, id);
                shift.acknowledged();
            }
            last.lock().expect("nobody panics while holding it").extend(mine);
            Ok(())
        })?;
        self.verify(&last.into_inner().expect("nobody panicked"))?;
        Ok(round)
    }

    /// Writes by many clients, each of keys that are its own modulo the clients.
    fn writes(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let (db, last) = (self.open()?, Mutex::new(Last::new()));
        let round = Crew { threads: clients, sample: 1, turn }.work(|number, shift| {
            let (mut random, mut mine) = (Case::random(turn, number), Last::new());
            let slots = self.rows / clients as u64;
            shift.begin();
            while shift.goes_on() {
                let key = (1 + number as u64 + random.u64(0..slots) * clients as u64) as i64;
                let id = random.u64(..);
                let value = self.value(id);
                let changed = db.write(move |tx| tx.execute(WRITE, (key, &value))).wait()?;
                ensure!(changed == 1, "there is no key {key}");
                mine.insert(key, id);
                shift.acknowledged();
            }
            last.lock().expect("nobody panics while holding it").extend(mine);
            Ok(())
        })?;
        db.close()?;
        self.verify(&last.into_inner().expect("nobody panicked"))?;
        Ok(round)
    }

    fn verify(&self, last: &Last) -> Result<()> {
        let connection = self.connect()?;
        let mut read = connection.prepare(READ)?;
        for (key, id) in last {
            let value: Vec<u8> = read.query_row([key], |row| row.get(0))?;
            ensure!(value == self.value(*id), "key {key} does not hold its last value");
        }
        Ok(())
    }

    fn check(&self, length: usize) -> Result<()> {
        ensure!(length == self.size.bytes, "a value of {length} bytes was read");
        Ok(())
    }

    fn raw_reads(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        Crew { threads: clients, sample: self.size.sample, turn }.work(|number, shift| {
            let connection = self.connect()?;
            let mut read = connection.prepare(READ)?;
            let mut random = Case::random(turn, number);
            shift.begin();
            while shift.goes_on() {
                let key = random.u64(1..=self.rows) as i64;
                let value: Vec<u8> = read.query_row([key], |row| row.get(0))?;
                self.check(value.len())?;
                shift.acknowledged();
            }
            Ok(())
        })
    }

    fn reads(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let db = self.open()?;
        let round =
            Crew { threads: clients, sample: self.size.sample, turn }.work(|number, shift| {
                let mut random = Case::random(turn, number);
                shift.begin();
                while shift.goes_on() {
                    let key = random.u64(1..=self.rows) as i64;
                    let value: monolite::Result<Vec<u8>> =
                        db.read(move |tx| tx.query_row(READ, [key], |row| row.get(0))).wait();
                    self.check(value?.len())?;
                    shift.acknowledged();
                }
                Ok(())
            })?;
        db.close()?;
        Ok(round)
    }
}
