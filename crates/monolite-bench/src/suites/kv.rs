//! `bench kv`: blobs by key, as SQLite's own `kvtest` has them, and a page of many small queries.
//!
//! Values are replaced under random keys, a transaction each, and read under random keys. Every
//! value begins with a number of its write, so that the last one of each key can be looked for.

use super::shift::{Crew, Shift};
use super::{Bundle, Entry, Ground, Suite, Turn, cores, on_engine, page};
use crate::drivers::Round;
use crate::raw_connection::{Durability, open_bare};
use crate::report::record::Section;
use anyhow::{Result, ensure};
use monolite::Options;
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::PathBuf;
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
    /// Keys of a quick run, and of the others.
    rows: [u64; 2],
}

const SIZES: [Size; 2] = [
    Size { key: "512", title: "512 B", bytes: 512, sample: 16, rows: [10_000, 100_000] },
    Size { key: "32k", title: "32 KiB", bytes: 32 << 10, sample: 4, rows: [500, 5_000] },
];

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    let mut work = Vec::new();
    for size in SIZES {
        let case = Case::new(ground, size, Durability::Durable);
        let connection = open_bare(&case.path)?;
        connection.execute_batch("PRAGMA synchronous = OFF")?;
        connection.execute_batch("CREATE TABLE kv(k INTEGER PRIMARY KEY, v BLOB)")?;
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO kv SELECT i, randomblob(?2) FROM n",
            (case.rows as i64, size.bytes as i64),
        )?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")?;
        work.push(format!("{} values of {}", case.rows, size.title));
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
    let key = format!("kv/{}-{what}", size.key);
    Section::new(key, format!("{title}, {}", size.title), meaning, ["clients", what])
}

fn writes(ground: &Ground<'_>, size: Size) -> Bundle {
    let mut entries = Vec::new();
    for (durability, raw) in
        [(Durability::Durable, "WAL, FULL"), (Durability::Buffered, "WAL, NORMAL")]
    {
        let case = Case::new(ground, size, durability);
        let (line, name) = (format!("raw-{durability}"), format!("raw, {raw}"));
        let trial = case.clone();
        let entry = Entry::new(line, name, 1, move |turn| trial.raw_writes(turn));
        entries.push(Entry { durability, ..entry });
        for clients in [1, CLIENTS] {
            let (line, name) =
                (format!("monolite-{durability}"), format!("monolite, {durability}"));
            let trial = case.clone();
            let entry = Entry::new(line, name, clients, move |turn| trial.writes(clients, turn));
            entries.push(Entry { durability, ..entry });
        }
    }
    let meaning = "A write is a transaction; those of many clients share commits, raw ones do not";
    let section = section(size, "writes", "Values replaced", meaning);
    Bundle { section, check: "the last acknowledged value of every key is there", entries }
}

fn reads(ground: &Ground<'_>, size: Size) -> Bundle {
    let mut entries = Vec::new();
    let case = Case::new(ground, size, Durability::Durable);
    let mut counts = vec![1, cores()];
    counts.dedup();
    for clients in counts {
        let (raw, ours) = (case.clone(), case.clone());
        let raw = move |turn: &Turn<'_>| raw.raw_reads(clients, turn);
        entries.push(Entry::new("raw", "raw, prepared once", clients, raw));
        entries.push(Entry::new("monolite", "monolite", clients, move |turn| {
            ours.reads(clients, turn)
        }));
    }
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

/// The last value of each key, by its number.
type Last = Mutex<HashMap<i64, u64>>;

impl Case {
    fn new(ground: &Ground<'_>, size: Size, durability: Durability) -> Case {
        let [quick, whole] = size.rows;
        let rows = ground.options.depth.pick(quick, whole, whole);
        Case { size, rows, path: ground.dir.join(format!("kv-{}.db", size.key)), durability }
    }

    fn connect(&self) -> Result<Connection> {
        let connection = open_bare(&self.path)?;
        let synchronous = self.durability.synchronous();
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}"
        ))?;
        Ok(connection)
    }

    fn options(&self) -> Options {
        Options::new().durability(self.durability.of_engine())
    }

    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = vec![0x5a; self.size.bytes];
        value[..8].copy_from_slice(&number.to_be_bytes());
        value
    }

    fn raw_writes(&self, turn: &Turn<'_>) -> Result<Round> {
        let last = Last::default();
        let round = Crew { threads: 1, sample: 1, turn }.work(|number, shift| {
            let connection = self.connect()?;
            let mut write = connection.prepare(WRITE)?;
            let random = turn.random(number);
            self.client(random, [number, 1], &last, shift, |key, value| {
                Ok(write.execute((key, value))?)
            })
        })?;
        self.verify(last)?;
        Ok(round)
    }

    fn writes(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let last = Last::default();
        let round = on_engine(self.options(), &self.path, |db| {
            Crew { threads: clients, sample: 1, turn }.work(|number, shift| {
                let random = turn.random(number);
                self.client(random, [number, clients], &last, shift, |key, value| {
                    Ok(db.write(move |tx| tx.execute(WRITE, (key, &value))).wait()?)
                })
            })
        })?;
        self.verify(last)?;
        Ok(round)
    }

    /// Writes keys that are a client's own modulo the clients.
    fn client(
        &self,
        mut random: fastrand::Rng,
        [number, clients]: [usize; 2],
        last: &Last,
        shift: &mut Shift<'_>,
        mut write: impl FnMut(i64, Vec<u8>) -> Result<usize>,
    ) -> Result<()> {
        let (slots, mut mine) = (self.rows / clients as u64, HashMap::new());
        shift.repeat(|| {
            let key = (1 + number as u64 + random.u64(0..slots) * clients as u64) as i64;
            let id = random.u64(..);
            ensure!(write(key, self.value(id))? == 1, "there is no key {key}");
            mine.insert(key, id);
            Ok(())
        })?;
        last.lock().expect("nobody panics while holding it").extend(mine);
        Ok(())
    }

    fn verify(&self, last: Last) -> Result<()> {
        let connection = self.connect()?;
        let mut read = connection.prepare(READ)?;
        for (key, id) in last.into_inner().expect("nobody panicked") {
            let value: Vec<u8> = read.query_row([key], |row| row.get(0))?;
            ensure!(value == self.value(id), "key {key} does not hold its last value");
        }
        Ok(())
    }

    fn check(&self, value: &[u8]) -> Result<()> {
        ensure!(value.len() == self.size.bytes, "a value of {} bytes was read", value.len());
        Ok(())
    }

    fn raw_reads(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        Crew { threads: clients, sample: self.size.sample, turn }.work(|number, shift| {
            let connection = self.connect()?;
            let mut read = connection.prepare(READ)?;
            let mut random = turn.random(number);
            shift.repeat(|| {
                let key = random.u64(1..=self.rows) as i64;
                let value: Vec<u8> = read.query_row([key], |row| row.get(0))?;
                self.check(&value)
            })
        })
    }

    fn reads(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        on_engine(self.options(), &self.path, |db| {
            Crew { threads: clients, sample: self.size.sample, turn }.work(|number, shift| {
                let mut random = turn.random(number);
                shift.repeat(|| {
                    let key = random.u64(1..=self.rows) as i64;
                    let value: monolite::Result<Vec<u8>> =
                        db.read(move |tx| tx.query_row(READ, [key], |row| row.get(0))).wait();
                    self.check(&value?)
                })
            })
        })
    }
}
