//! `bench micro`: how fast SQLite is at the smallest operations, raw and through the engine.
//!
//! Twelve scenarios of a table of metrics: five ways to set SQLite, each read and written, and two
//! mixes; then reads by many threads. The raw connection is one, as published; the engine is asked
//! by one client, and by many that wait.

use super::shift::Crew;
use super::{Bundle, Entry, Ground, Suite, Turn, cores, on_engine, threads};
use crate::drivers::Round;
use crate::raw_connection::{Durability, open_bare, remove};
use crate::report::record::Section;
use anyhow::{Result, ensure};
use monolite::{Database, Options};
use rusqlite::{Connection, Statement};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub const SUITE: Suite = Suite { name: "micro", prepare, sections };

const TABLE: &str =
    "CREATE TABLE metrics(bucket TEXT NOT NULL, date TEXT NOT NULL, data TEXT NOT NULL)";
const INDEXES: &str = "CREATE INDEX metrics_bucket ON metrics(bucket); \
                       CREATE INDEX metrics_date ON metrics(date)";
const READ: &str = "SELECT * FROM metrics WHERE bucket = ?1 AND rowid = ?2";
const COUNT: &str = "SELECT count(*) FROM metrics";
const WRITE: &str = "INSERT INTO metrics (bucket, date, data) VALUES (?1, ?2, ?3)";

/// Operations per recorded latency of reads, which take about a microsecond.
const READ_SAMPLE: u64 = 16;

/// Clients of the engine that wait at the same time.
const CLIENTS: usize = 16;

/// How SQLite is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    key: &'static str,
    name: &'static str,
    journal: &'static str,
    synchronous: &'static str,
    /// With the two indexes.
    indexed: bool,
    /// `:memory:`.
    memory: bool,
}

const WAYS: [Way; 5] = [
    Way::on_disk("vanilla", "vanilla (DELETE, FULL)", "DELETE", "FULL"),
    Way::on_disk("wal", "WAL, FULL", "WAL", "FULL"),
    Way::on_disk("normal", "WAL, NORMAL", "WAL", "NORMAL"),
    Way { memory: true, ..Way::on_disk("memory", "in memory", "WAL", "FULL") },
    Way { indexed: true, ..Way::on_disk("index", "WAL, FULL, two indexes", "WAL", "FULL") },
];

impl Way {
    const fn on_disk(
        key: &'static str,
        name: &'static str,
        journal: &'static str,
        synchronous: &'static str,
    ) -> Way {
        Way { key, name, journal, synchronous, indexed: false, memory: false }
    }

    /// What an acknowledgement means.
    fn durability(self) -> Durability {
        if self.synchronous == "FULL" && !self.memory {
            Durability::Durable
        } else {
            Durability::Buffered
        }
    }

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(format!("micro-{}.db", self.key))
    }

    fn connect(self, path: &Path) -> Result<Connection> {
        let connection = if self.memory { Connection::open_in_memory()? } else { open_bare(path)? };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = {}; PRAGMA synchronous = {}",
            self.journal, self.synchronous
        ))?;
        Ok(connection)
    }

    /// Makes the table with this many rows.
    fn load(self, connection: &mut Connection, rows: u64) -> Result<()> {
        connection.execute_batch(TABLE)?;
        if self.indexed {
            connection.execute_batch(INDEXES)?;
        }
        let batch = connection.transaction()?;
        let mut insert = batch.prepare(WRITE)?;
        for _ in 0..rows {
            insert.execute(("test", now(), "data"))?;
        }
        drop(insert);
        Ok(batch.commit()?)
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn rows(ground: &Ground<'_>) -> u64 {
    ground.options.rows.unwrap_or(ground.options.depth.pick(10_000, 100_000, 1_000_000))
}

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    for way in WAYS.into_iter().filter(|way| !way.memory) {
        let path = way.file(ground.dir);
        way.load(&mut way.connect(&path)?, rows(ground))?;
        ground.interrupt.check()?;
    }
    Ok(vec![format!("{} rows of metrics; writes begin with an empty table", rows(ground))])
}

/// What a trial does.
#[derive(Clone, Copy, Debug)]
struct Mix {
    key: &'static str,
    title: &'static str,
    /// Of ten operations.
    reads: u64,
}

const READS: Mix = Mix { key: "reads", title: "Reads of a row by rowid", reads: 10 };
const WRITES: Mix = Mix { key: "writes", title: "Inserts, a commit each", reads: 0 };
const MIXED: [Mix; 2] = [
    Mix { key: "mixed-80-reads", title: "Mixed, 80 % reads, two indexes", reads: 8 },
    Mix { key: "mixed-80-writes", title: "Mixed, 80 % writes, two indexes", reads: 2 },
];

fn sections(ground: &Ground<'_>) -> Vec<Bundle> {
    let mut bundles =
        vec![bundle(ground, READS, &WAYS), bundle(ground, WRITES, &WAYS), scaling(ground)];
    bundles.extend(MIXED.map(|mix| bundle(ground, mix, &WAYS[4..])));
    bundles
}

const CHECK: &str =
    "every row that was read is there, and as many rows are new as were acknowledged";

fn section(mix: Mix, x: &str, meaning: &str) -> Section {
    Section::new(format!("micro/{}", mix.key), mix.title, meaning, [x, "operations"])
}

fn bundle(ground: &Ground<'_>, mix: Mix, ways: &[Way]) -> Bundle {
    let mut entries = Vec::new();
    for &way in ways {
        let case = Case { way, mix, rows: rows(ground), dir: ground.dir.to_owned(), clients: 1 };
        let durability = way.durability();
        let (line, name) = (format!("raw-{}", way.key), format!("raw, {}", way.name));
        let trial = case.clone();
        let entry = Entry::new(line, name, 1, move |turn| trial.raw(turn));
        entries.push(Entry { durability, ..entry });
        // The engine has no rollback journal.
        if way.journal == "DELETE" {
            continue;
        }
        for clients in [1, CLIENTS] {
            let trial = Case { clients, ..case.clone() };
            let line = format!("monolite-{}", way.key);
            let name = format!("monolite, {}", way.name.replace("WAL, ", ""));
            let entry = Entry::new(line, name, clients, move |turn| trial.ours(turn));
            entries.push(Entry { durability, ..entry });
        }
    }
    let meaning = "Raw SQLite has one connection; the engine's clients share commits, so many of \
                   them write more than one";
    Bundle { section: section(mix, "clients", meaning), check: CHECK, entries }
}

/// Reads by many threads: through one connection and its mutex as published, by a connection each,
/// and by the engine's readers.
fn scaling(ground: &Ground<'_>) -> Bundle {
    let most = ground.options.depth.pick(cores(), cores() * 2, cores() * 8);
    let mut entries = Vec::new();
    for threads in threads(most) {
        let (dir, mix, way) = (ground.dir.to_owned(), READS, WAYS[1]);
        let case = Case { way, mix, rows: rows(ground), dir, clients: threads };
        let lines: [(&str, &str, Run); 3] = [
            ("raw-mutex", "raw, one connection in a mutex", Case::raw_mutex),
            ("raw", "raw, a connection each", Case::raw),
            ("monolite", "monolite", Case::ours),
        ];
        for (line, name, run) in lines {
            let case = case.clone();
            entries.push(Entry::new(line, name, threads, move |turn| run(&case, turn)));
        }
    }
    let mix = Mix { key: "scaling", title: "Reads of a row by many threads", reads: 10 };
    let meaning = "Reads need no turn-taking: twice the threads, up to the cores, should be \
                   twice the reads";
    Bundle { section: section(mix, "threads", meaning), check: CHECK, entries }
}

/// A round.
type Run = fn(&Case, &Turn<'_>) -> Result<Round>;

/// A scenario.
#[derive(Clone, Debug)]
struct Case {
    way: Way,
    mix: Mix,
    rows: u64,
    dir: PathBuf,
    clients: usize,
}

impl Case {
    fn crew<'t>(&self, turn: &'t Turn<'t>) -> Crew<'t> {
        let sample = if self.mix.reads == 10 { READ_SAMPLE } else { 1 };
        Crew { threads: self.clients, sample, turn }
    }

    /// The rows that there are to read, and the file: a new one where the trial writes.
    fn place(&self) -> Result<(u64, PathBuf)> {
        if self.mix.reads == 10 && !self.way.memory {
            return Ok((self.rows, self.way.file(&self.dir)));
        }
        let path = self.dir.join("micro-written.db");
        remove(&path)?;
        // Where there are reads among writes, there is something to read.
        let rows = if self.mix.reads == 0 { 0 } else { self.rows.min(10_000) };
        if !self.way.memory {
            self.way.load(&mut self.way.connect(&path)?, rows)?;
        }
        Ok((rows, path))
    }

    fn raw(&self, turn: &Turn<'_>) -> Result<Round> {
        let (rows, path) = self.place()?;
        self.crew(turn).work(|number, shift| {
            let mut connection = self.way.connect(&path)?;
            if self.way.memory {
                self.way.load(&mut connection, rows)?;
            }
            let (mut read, mut write) = (connection.prepare(READ)?, connection.prepare(WRITE)?);
            let mut client = Client::new(turn, number, rows, self.mix);
            shift.repeat(|| match client.next() {
                Some(rowid) => check(&read_raw(&mut read, rowid)?),
                None => {
                    write.execute(("test", now(), "data"))?;
                    Ok(())
                }
            })?;
            due(connection.query_row(COUNT, [], |row| row.get(0))?, rows + client.writes)
        })
    }

    fn raw_mutex(&self, turn: &Turn<'_>) -> Result<Round> {
        let (rows, path) = self.place()?;
        let connection = Mutex::new(self.way.connect(&path)?);
        self.crew(turn).work(|number, shift| {
            let mut client = Client::new(turn, number, rows, self.mix);
            shift.repeat(|| {
                let rowid = client.next().unwrap_or(1);
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let data = read_raw(&mut *connection.prepare_cached(READ)?, rowid)?;
                drop(connection);
                check(&data)
            })
        })
    }

    fn ours(&self, turn: &Turn<'_>) -> Result<Round> {
        let (rows, path) = self.place()?;
        let options = Options::new().durability(self.way.durability().of_engine());
        let path = if self.way.memory { Path::new(":memory:") } else { &path };
        on_engine(options, path, |db| {
            if self.way.memory {
                db.write(|tx| tx.execute_batch(TABLE)).wait()?;
                db.write(move |tx| {
                    (0..rows).try_for_each(|_| tx.execute(WRITE, ("test", now(), "data")).map(drop))
                })
                .wait()?;
            }
            let writes = Mutex::new(rows);
            let round = self.crew(turn).work(|number, shift| {
                let mut client = Client::new(turn, number, rows, self.mix);
                shift.repeat(|| operate(db, client.next()))?;
                *writes.lock().unwrap_or_else(PoisonError::into_inner) += client.writes;
                Ok(())
            })?;
            let found = db.read(move |tx| tx.query_row(COUNT, (), |row| row.get(0))).wait();
            let found: monolite::Result<i64> = found;
            due(found?, writes.into_inner().unwrap_or_else(PoisonError::into_inner))?;
            Ok(round)
        })
    }
}

/// Reads a row, or writes one.
fn operate(db: &Database, row: Option<i64>) -> Result<()> {
    let Some(rowid) = row else {
        db.write(|tx| tx.execute(WRITE, ("test", now(), "data"))).wait()?;
        return Ok(());
    };
    let data: monolite::Result<String> =
        db.read(move |tx| tx.query_row(READ, ("test", rowid), |row| row.get(2))).wait();
    check(&data?)
}

fn due(found: i64, due: u64) -> Result<()> {
    ensure!(found == due as i64, "{found} rows where there must be {due}");
    Ok(())
}

fn read_raw(read: &mut Statement<'_>, rowid: i64) -> Result<String> {
    Ok(read.query_row(("test", rowid), |row| row.get(2))?)
}

fn check(data: &str) -> Result<()> {
    ensure!(data == "data", "a row holds {data:?}");
    Ok(())
}

/// Draws operations.
struct Client {
    random: fastrand::Rng,
    rows: u64,
    reads: u64,
    writes: u64,
}

impl Client {
    fn new(turn: &Turn<'_>, number: usize, rows: u64, mix: Mix) -> Client {
        Client { random: turn.random(number), rows, reads: mix.reads, writes: 0 }
    }

    /// Returns the row to read, or none for a write.
    fn next(&mut self) -> Option<i64> {
        if self.reads == 10 || (self.reads > 0 && self.random.u64(0..10) < self.reads) {
            return Some(self.random.u64(1..=self.rows) as i64);
        }
        self.writes += 1;
        None
    }
}
