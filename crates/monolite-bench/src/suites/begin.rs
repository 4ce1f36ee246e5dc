//! `bench begin`: what the ways to begin a transaction do when many threads write.
//!
//! # Algorithm
//! A transaction scans a random place of an index some times, then updates some random rows; its
//! parameters are drawn before its first attempt. Raw connections say `BEGIN` or `BEGIN IMMEDIATE`,
//! and on busy roll back and try again at once. The engine's `write` runs the same statements in a
//! closure, its interactive transactions run them one by one. A thread's rows are those whose
//! number is its own modulo the threads, so that its last update of each can be looked for at the
//! end, while all threads share every page.
//!
//! # Not here
//! `BEGIN CONCURRENT`: it is in a branch of SQLite, and in Turso; `docs/results/2026-11-25-all` has
//! them beside these.

use super::shift::{Crew, Shift};
use super::stage::Play;
use super::{Bundle, Depth, Entry, Ground, Turn, on_engine};
use crate::drivers::Round;
use crate::raw_connection::Durability;
use crate::report::record::Section;
use anyhow::{Result, ensure};
use monolite::{Database, Options};
use rusqlite::{Connection, ErrorCode};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The suite.
#[derive(Clone, Copy, Debug)]
pub struct Begins;

const SCAN: &str =
    "SELECT * FROM tbl WHERE substr(c, 1, 16) >= ?1 ORDER BY substr(c, 1, 16) LIMIT 10";
const UPDATE: &str = "UPDATE tbl SET b = ?1, c = ?2 WHERE a = ?3";
const APPEND: &str = "INSERT INTO tbl(b, c) VALUES (?1, ?2)";
const LOAD: &str = "
    CREATE TABLE tbl(a INTEGER PRIMARY KEY, b BLOB(200), c CHAR(64));
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $rows)
    INSERT INTO tbl SELECT i, randomblob(200), hex(randomblob(32)) FROM n;
    CREATE INDEX tbl_1 ON tbl(substr(c, 1, 16));
    CREATE INDEX tbl_2 ON tbl(substr(c, 2, 16));
    PRAGMA journal_mode = WAL;
    PRAGMA wal_checkpoint(TRUNCATE);";

/// Rows of the table on which updates collide.
const SMALL: u64 = 10_000;

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
struct Mix {
    updates: usize,
    scans: usize,
    appends: usize,
    small: bool,
}

const fn mix(updates: usize, scans: usize) -> Mix {
    Mix { updates, scans, appends: 0, small: false }
}

/// The five published ones, then collisions and appends.
const MIXES: [Mix; 7] = [
    mix(1, 0),
    mix(10, 10),
    mix(1, 10),
    mix(10, 0),
    mix(0, 10),
    Mix { small: true, ..mix(10, 0) },
    Mix { appends: 10, ..mix(0, 0) },
];

impl Mix {
    fn key(self) -> String {
        match self {
            Mix { small: true, .. } => "collisions".into(),
            Mix { appends: 1.., .. } => "appends".into(),
            Mix { updates, scans, .. } => format!("{updates}-{scans}"),
        }
    }

    fn title(self) -> String {
        match self {
            Mix { small: true, updates, .. } => format!("{updates} updates of {SMALL} rows"),
            Mix { appends: appends @ 1.., .. } => format!("{appends} appends"),
            Mix { updates: 1, scans, .. } => format!("1 update, {scans} scans"),
            Mix { updates, scans, .. } => format!("{updates} updates, {scans} scans"),
        }
    }
}

/// Where the database is, and what a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Disk,
    Memory,
}

impl Place {
    fn key(self) -> &'static str {
        match self {
            Place::Disk => "disk",
            Place::Memory => "memory",
        }
    }

    fn durability(self) -> Durability {
        match self {
            Place::Disk => Durability::Durable,
            Place::Memory => Durability::Buffered,
        }
    }

    /// Opens a raw connection; every one is set.
    fn connect(self, path: &Path) -> Result<Connection> {
        let connection = Connection::open(path)?;
        let synchronous = match self {
            Place::Disk => "FULL",
            Place::Memory => "OFF",
        };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; \
             PRAGMA cache_size = -65536"
        ))?;
        Ok(connection)
    }

    fn options(self) -> Options {
        Options::new().durability(self.durability().of_engine())
    }
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    Deferred,
    Immediate,
    Write,
    Interactive,
}

const BEGINS: [(Begin, &str, &str); 4] = [
    (Begin::Deferred, "raw-deferred", "raw, DEFERRED"),
    (Begin::Immediate, "raw-immediate", "raw, IMMEDIATE"),
    (Begin::Write, "monolite-write", "monolite, write"),
    (Begin::Interactive, "monolite-interactive", "monolite, interactive"),
];

fn rows(ground: &Ground<'_>) -> u64 {
    ground.options.rows.unwrap_or(ground.options.depth.pick(10_000, 100_000, 1_000_000))
}

fn places<'g>(ground: &Ground<'g>) -> Vec<(Place, &'g Path)> {
    let memory = ground.memory.map(|dir| (Place::Memory, dir));
    std::iter::once((Place::Disk, ground.dir)).chain(memory).collect()
}

fn file(dir: &Path, mix: Mix) -> PathBuf {
    dir.join(if mix.small { "begin-small.db" } else { "begin.db" })
}

impl Play for Begins {
    fn name(&self) -> &'static str {
        "begin"
    }

    fn prepare(&self, ground: &Ground<'_>) -> Result<Vec<String>> {
        for (_, dir) in places(ground) {
            for (mix, rows) in [(MIXES[0], rows(ground)), (MIXES[5], SMALL.min(rows(ground)))] {
                let connection = Connection::open(file(dir, mix))?;
                connection.execute_batch("PRAGMA synchronous = OFF")?;
                connection.execute_batch(&LOAD.replace("$rows", &rows.to_string()))?;
                ground.interrupt.check()?;
            }
        }
        let memory = match ground.memory {
            Some(_) => "raw with synchronous = OFF, the engine with Durability::Buffered",
            None => "left out, there is no file system in memory here",
        };
        let work = format!("tbl with {} rows and two indexes", rows(ground));
        Ok(vec![work, format!("memory: {memory}")])
    }

    fn sections(&self, ground: &Ground<'_>) -> Vec<Bundle> {
        let mixes = ground.options.depth.pick(1, 3, MIXES.len());
        let counts: &[usize] = match ground.options.depth {
            Depth::Quick => &[1, 4],
            Depth::Standard => &[1, 4, 16],
            Depth::Full => &[1, 2, 4, 8, 16],
        };
        let mut bundles = Vec::new();
        for (place, dir) in places(ground) {
            for mix in &MIXES[..mixes] {
                let rows = if mix.small { SMALL.min(rows(ground)) } else { rows(ground) };
                let case = Case { place, mix: *mix, rows, path: file(dir, *mix) };
                bundles.push(bundle(&case, counts));
            }
        }
        bundles
    }
}

fn bundle(case: &Case, counts: &[usize]) -> Bundle {
    let (mut entries, durability) = (Vec::new(), case.place.durability());
    for &threads in counts {
        for (begin, line, name) in BEGINS {
            let case = case.clone();
            let entry = Entry::new(line, name, threads, move |turn| case.run(begin, threads, turn));
            entries.push(Entry { durability, ..entry });
        }
    }
    let place = match case.place {
        Place::Disk => "on disk, durable",
        Place::Memory => "in memory, no sync",
    };
    let meaning = "A commit counts once, however often its transaction was tried; raw writers \
                   exclude each other, the engine's share a commit";
    let key = format!("begin/{}-{}", case.place.key(), case.mix.key());
    let title = format!("{}, {place}", case.mix.title());
    let section = Section::new(key, title, meaning, ["threads", "commits"]);
    let check = "each thread's last update of each of its rows is there, and as many rows as \
                 there must be";
    Bundle { section, check, entries }
}

/// A mix in a place.
#[derive(Clone, Debug)]
struct Case {
    place: Place,
    mix: Mix,
    rows: u64,
    path: PathBuf,
}

/// The parameters of a transaction.
#[derive(Clone, Debug, Default)]
struct Drawn {
    scans: Vec<String>,
    /// Row, blob, text.
    updates: Vec<(i64, Vec<u8>, String)>,
    appends: Vec<(Vec<u8>, String)>,
}

/// What a thread has changed.
type Changes = HashMap<i64, String>;

impl Case {
    fn run(&self, begin: Begin, threads: usize, turn: &Turn<'_>) -> Result<Round> {
        let before = self.count()?;
        let crew = Crew { threads, sample: 1, turn };
        let changed = Mutex::new(Changes::new());
        let client = |number: usize, work: &mut dyn FnMut(&mut Draw<'_>) -> Result<()>| {
            let (random, changes) = (turn.random(number), Changes::new());
            let (number, threads) = (number as u64, threads as u64);
            let mut draw = Draw { random, number, threads, case: self, changes };
            work(&mut draw)?;
            changed.lock().expect("no thread panics while holding it").extend(draw.changes);
            Ok(())
        };
        let raw = |sql: &'static str| {
            crew.work_watching(&self.path, |number, shift| {
                client(number, &mut |draw| self.raw(sql, draw, shift))
            })
        };
        let ours = |run: fn(&Database, &mut Draw<'_>, &mut Shift<'_>) -> Result<()>| {
            on_engine(self.place.options(), &self.path, |db| {
                crew.work_watching(&self.path, |number, shift| {
                    client(number, &mut |draw| run(db, draw, shift))
                })
            })
        };
        let round = match begin {
            Begin::Deferred => raw("BEGIN"),
            Begin::Immediate => raw("BEGIN IMMEDIATE"),
            Begin::Write => ours(write),
            Begin::Interactive => ours(interactive),
        }?;
        let changes = changed.into_inner().expect("no thread panicked");
        self.verify(&changes, before + round.operations * self.mix.appends as u64)?;
        Ok(round)
    }

    fn count(&self) -> Result<u64> {
        let connection = self.place.connect(&self.path)?;
        let count = "SELECT count(*) FROM tbl";
        let rows: i64 = connection.query_row(count, [], |row| row.get(0))?;
        Ok(rows.cast_unsigned())
    }

    fn verify(&self, changes: &Changes, rows: u64) -> Result<()> {
        let found = self.count()?;
        ensure!(found == rows, "{found} rows where there must be {rows}");
        let connection = self.place.connect(&self.path)?;
        let mut text = connection.prepare("SELECT c FROM tbl WHERE a = ?1")?;
        for (row, last) in changes {
            let found: String = text.query_row([row], |row| row.get(0))?;
            ensure!(found == *last, "row {row} holds {found} and not its last update {last}");
        }
        Ok(())
    }

    fn raw(&self, begin: &str, draw: &mut Draw<'_>, shift: &mut Shift<'_>) -> Result<()> {
        let connection = self.place.connect(&self.path)?;
        // It tries again by itself, and counts how often.
        connection.busy_timeout(Duration::ZERO)?;
        shift.begin();
        while shift.goes_on() {
            let drawn = draw.next();
            loop {
                match attempt(&connection, begin, &drawn) {
                    Ok(()) => break,
                    Err(error) if is_busy(&error) => {
                        shift.repeated();
                        if !connection.is_autocommit() {
                            connection.execute_batch("ROLLBACK")?;
                        }
                        // An unlucky thread must not go on when the round is over.
                        if shift.is_over() {
                            shift.give_up();
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            draw.keep(drawn);
            shift.acknowledged();
        }
        Ok(())
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn attempt(connection: &Connection, begin: &str, drawn: &Drawn) -> rusqlite::Result<()> {
    connection.prepare_cached(begin)?.execute([])?;
    for from in &drawn.scans {
        let mut scan = connection.prepare_cached(SCAN)?;
        let mut rows = scan.query([from])?;
        while rows.next()?.is_some() {}
    }
    for (row, blob, text) in &drawn.updates {
        connection.prepare_cached(UPDATE)?.execute((blob, text, row))?;
    }
    for (blob, text) in &drawn.appends {
        connection.prepare_cached(APPEND)?.execute((blob, text))?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

fn write(db: &Database, draw: &mut Draw<'_>, shift: &mut Shift<'_>) -> Result<()> {
    shift.repeat(|| {
        let drawn = Arc::new(draw.next());
        let work = Arc::clone(&drawn);
        db.write(move |tx| {
            for from in &work.scans {
                let mut scan = tx.prepare_cached(SCAN)?;
                let mut rows = scan.query([from])?;
                while rows.next()?.is_some() {}
            }
            for (row, blob, text) in &work.updates {
                tx.execute(UPDATE, (blob, text, row))?;
            }
            for (blob, text) in &work.appends {
                tx.execute(APPEND, (blob, text))?;
            }
            Ok::<_, monolite::Error>(())
        })
        .wait()?;
        draw.keep(Arc::unwrap_or_clone(drawn));
        Ok(())
    })
}

fn interactive(db: &Database, draw: &mut Draw<'_>, shift: &mut Shift<'_>) -> Result<()> {
    shift.begin();
    while shift.goes_on() {
        let drawn = draw.next();
        let attempts = db
            .transact(async |tx| {
                for from in &drawn.scans {
                    tx.query_map(SCAN, [from.clone()], |row| row.get::<_, i64>(0)).wait()?;
                }
                for (row, blob, text) in &drawn.updates {
                    tx.execute(UPDATE, (blob.clone(), text.clone(), *row)).wait()?;
                }
                for (blob, text) in &drawn.appends {
                    tx.execute(APPEND, (blob.clone(), text.clone())).wait()?;
                }
                Ok::<_, monolite::Error>(tx.attempt())
            })
            .wait()?;
        (1..attempts).for_each(|_| shift.repeated());
        draw.keep(drawn);
        shift.acknowledged();
    }
    Ok(())
}

/// Draws the transactions of a thread.
struct Draw<'c> {
    random: fastrand::Rng,
    number: u64,
    threads: u64,
    case: &'c Case,
    changes: Changes,
}

impl Draw<'_> {
    fn next(&mut self) -> Drawn {
        let Mix { updates, scans, appends, .. } = self.case.mix;
        let mut drawn = Drawn::default();
        drawn.scans.extend((0..scans).map(|_| self.text(16)));
        for _ in 0..updates {
            // Rows begin with 1; those of this thread are its own modulo the threads.
            let slots = (self.case.rows - self.number).div_ceil(self.threads).max(1);
            let row = 1 + self.number + self.random.u64(0..slots) * self.threads;
            drawn.updates.push((row as i64, self.blob(), self.text(64)));
        }
        drawn.appends.extend((0..appends).map(|_| (self.blob(), self.text(64))));
        drawn
    }

    fn blob(&mut self) -> Vec<u8> {
        let mut blob = vec![0; 200];
        self.random.fill(&mut blob);
        blob
    }

    fn text(&mut self, length: usize) -> String {
        (0..length).map(|_| self.random.digit(16).to_ascii_uppercase()).collect()
    }

    /// Remembers what was acknowledged.
    fn keep(&mut self, drawn: Drawn) {
        self.changes.extend(drawn.updates.into_iter().map(|(row, _, text)| (row, text)));
    }
}
