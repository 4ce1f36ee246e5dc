//! `bench archive`: what an archive costs those who write, and how long they wait for it.
//!
//! The store is a directory on the same disk, so its writes take the disk's time from the others;
//! a bucket takes the network's. One that is to answer after some milliseconds is the same, and
//! rests for what is left of them when its work is done.

use super::shift::Crew;
use super::{Bundle, Entry, Ground, Suite, Trial, Turn};
use crate::drivers::Round;
use crate::raw_connection::Durability as Asked;
use crate::report::record::Section;
use anyhow::{Context, Result, ensure};
use monolite::{Database, Durability, Options};
use monolite_archive::{
    Archive, DirectoryStore, Fetched, Layout, Listing, Part, Reading, Store, Tag, Target, restore,
};
use monolite_ltx::Timestamp;
use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The suite. It is no part of `bench all`.
pub const SUITE: Suite = Suite { name: "archive", prepare, sections };

const TABLE: &str = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)";
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                    INSERT INTO account SELECT i, 1000 FROM n";
const MOVE: &str = "UPDATE account SET balance = balance + ?2 WHERE id = ?1";
const SUM: &str = "SELECT count(*), total(balance), total(abs(balance - 1000)) FROM account";

/// Threads that write in bursts, and how many of each one's writes are under way.
const BURST: (usize, usize) = (4, 2_000);

/// Clients that wait for each of their writes.
const CLIENTS: usize = 128;

/// How long the first copy may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// After how many milliseconds a store answers each request.
const ANSWERS: [u64; 4] = [0, 1, 10, 50];

/// A store that answers later.
struct Slow {
    inner: DirectoryStore,
    rest: Duration,
}

impl Slow {
    fn answer<T>(&self, ask: impl FnOnce(&DirectoryStore) -> T) -> T {
        let start = Instant::now();
        let answer = ask(&self.inner);
        sleep(self.rest.saturating_sub(start.elapsed()));
        answer
    }
}

impl Store for Slow {
    fn create(
        &self,
        key: &str,
        body: &[u8],
        time: Option<Timestamp>,
    ) -> monolite_archive::Result<Tag> {
        self.answer(|store| store.create(key, body, time))
    }

    fn create_from(
        &self,
        key: &str,
        about: u64,
        time: Option<Timestamp>,
        write: &mut dyn FnMut(&mut dyn Write) -> monolite_archive::Result<()>,
    ) -> monolite_archive::Result<Tag> {
        self.answer(|store| store.create_from(key, about, time, write))
    }

    fn swap(&self, key: &str, body: &[u8], expected: &Tag) -> monolite_archive::Result<Tag> {
        self.answer(|store| store.swap(key, body, expected))
    }

    fn get(&self, key: &str, part: Part) -> monolite_archive::Result<Option<Fetched>> {
        self.answer(|store| store.get(key, part))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> monolite_archive::Result<Listing> {
        self.answer(|store| store.list(prefix, after))
    }

    fn delete(&self, key: &str) -> monolite_archive::Result<()> {
        self.answer(|store| store.delete(key))
    }
}

fn rows(ground: &Ground<'_>) -> u64 {
    ground.options.rows.unwrap_or(ground.options.depth.pick(50_000, 500_000, 10_000_000))
}

/// What a candidate has: a database of its own, and an archive of that if it is to have one.
#[derive(Clone)]
struct Place {
    database: PathBuf,
    archive: PathBuf,
    rows: u64,
    /// After how long its store answers; `None` for a database without an archive.
    rest: Option<Duration>,
    durability: Durability,
}

impl Place {
    fn store(&self) -> DirectoryStore {
        DirectoryStore::new(&self.archive)
    }

    /// Opens it, made if it is not there, with all of it in the archive.
    fn open(&self) -> Result<Database> {
        let is_new = !self.database.exists();
        let mut options = Options::new().durability(self.durability);
        if let Some(rest) = self.rest {
            let store = Slow { inner: self.store(), rest };
            options = options.archive(Archive::of(Arc::new(store), Layout::directory()));
        }
        let db = options.open(&self.database).context("cannot open the engine")?;
        if is_new {
            let rows = self.rows as i64;
            let fill = move |tx: &monolite::Tx<'_>| {
                tx.execute_batch(TABLE)?;
                tx.execute(FILL, [rows]).map(drop)
            };
            db.within(PATIENCE).write(fill).wait()?;
        }
        let start = Instant::now();
        while db.stats().archive.is_some_and(|it| !it.is_restorable || it.lag_ms > 0) {
            ensure!(start.elapsed() < PATIENCE, "the archive does not get the database");
            sleep(Duration::from_millis(5));
        }
        Ok(db)
    }

    /// Closes it, and sees that it has what was acknowledged, and the archive has what it has.
    fn close(&self, db: Database, before: State, moved: u64) -> Result<()> {
        let now = state(&db)?;
        db.close()?;
        let expected = before.balances + moved as f64;
        ensure!(now.rows == self.rows, "{} of {} rows are there", now.rows, self.rows);
        ensure!(
            (now.balances - expected).abs() < 0.5,
            "the balances are {} and not {expected}",
            now.balances
        );
        if self.rest.is_none() {
            return Ok(());
        }
        let copy = self.archive.with_extension("restored");
        let layout = Layout::directory();
        restore(&self.store(), &layout, Target::Latest, &copy, Reading::Whole)?;
        let restored = Options::new().readers(1).open(&copy)?;
        let there = state(&restored)?;
        restored.close()?;
        std::fs::remove_file(&copy)?;
        ensure!(there == now, "the archive has {there:?} and the database {now:?}");
        Ok(())
    }
}

/// What tells one content from another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    rows: u64,
    balances: f64,
    moves: f64,
}

fn state(db: &Database) -> Result<State> {
    let row = |row: &rusqlite::Row<'_>| {
        Ok(State {
            rows: row.get::<_, i64>(0)?.unsigned_abs(),
            balances: row.get(1)?,
            moves: row.get(2)?,
        })
    };
    Ok(db.read(move |tx| tx.query_one(SUM, (), row)).wait()?)
}

fn prepare(ground: &Ground<'_>) -> Result<Vec<String>> {
    Ok(vec![
        format!("{} accounts; a transaction adds to one and to another", rows(ground)),
        "archives are directories on the disk that is measured".into(),
    ])
}

fn sections(ground: &Ground<'_>) -> Vec<Bundle> {
    let place = |name: &str, rest: Option<u64>, durability| Place {
        database: ground.dir.join(format!("{name}.db")),
        archive: ground.dir.join(format!("{name}.archive")),
        rows: rows(ground),
        rest: rest.map(Duration::from_millis),
        durability,
    };
    let entry = |line: &str, name: String, x: String, trial: Trial| Entry {
        line: line.into(),
        name,
        x,
        durability: Asked::Durable,
        trial,
    };
    let mut bursts = Vec::new();
    let mut closed = Vec::new();
    for (line, name, rest) in [
        ("without", "monolite, no archive", None),
        ("directory", "monolite, an archive in a directory", Some(0)),
    ] {
        let place = place(&format!("burst-{line}"), rest, Durability::Synced);
        let trial: Trial = Box::new(move |turn| burst(&place, turn));
        bursts.push(entry(line, name.into(), BURST.0.to_string(), trial));
    }
    for rest in ANSWERS {
        for (line, durability) in
            [("synced", Durability::Synced), ("archived", Durability::Archived)]
        {
            let place = place(&format!("closed-{line}-{rest}"), Some(rest), durability);
            let trial: Trial = Box::new(move |turn| wait_each(&place, turn));
            closed.push(entry(line, format!("monolite, {durability:?}"), rest.to_string(), trial));
        }
    }
    let section = |key: &str, title: &str, meaning: &str, x: &str| Section {
        key: format!("archive/{key}"),
        title: title.into(),
        meaning: meaning.into(),
        x: x.into(),
        unit: "transactions".into(),
    };
    let check = "each acknowledged transaction is in the database once, and what is restored of \
                 the archive is what the database has";
    vec![
        Bundle {
            section: section(
                "burst",
                "Bursts, with and without an archive",
                "What an archive takes of the processor and the disk from those who do not wait \
                 for it",
                "threads",
            ),
            check,
            entries: bursts,
        },
        Bundle {
            section: section(
                "closed",
                "128 clients that wait for each answer, by the time that the store takes",
                "An answer of `Archived` waits for one request of the store, which all share that \
                 wait meanwhile",
                "ms a request",
            ),
            check,
            entries: closed,
        },
    ]
}

/// Adds to two accounts; the sum of all grows by 1.
fn transfer(db: &Database, from: i64, to: i64) -> monolite::Write<(), monolite::Error> {
    db.write(move |tx| {
        tx.execute(MOVE, [from, -10])?;
        tx.execute(MOVE, [to, 11])?;
        Ok(())
    })
}

fn accounts(random: &mut fastrand::Rng, rows: u64) -> (i64, i64) {
    // Some are wanted more often than others.
    let hot = random.f64().powi(3);
    let one = (hot * rows as f64) as i64 + 1;
    (one.min(rows as i64), random.i64(1..=rows as i64))
}

fn burst(place: &Place, turn: &Turn<'_>) -> Result<Round> {
    let db = place.open()?;
    let before = state(&db)?;
    let crew = Crew { threads: BURST.0, sample: 1, turn };
    let round = crew.work(|number, shift| {
        let mut random = fastrand::Rng::with_seed(turn.seed << 32 | number as u64);
        let mut under_way = VecDeque::new();
        shift.begin();
        while shift.goes_on() {
            while under_way.len() < BURST.1 {
                let (from, to) = accounts(&mut random, place.rows);
                under_way.push_back(transfer(&db, from, to));
            }
            if let Some(oldest) = under_way.pop_front() {
                oldest.wait()?;
                shift.acknowledged();
            }
        }
        for rest in under_way {
            rest.wait()?;
            shift.repeated();
        }
        Ok(())
    })?;
    // Those that were waited for after the time count for the balances alone.
    place.close(db, before, round.operations + round.retries)?;
    Ok(Round { retries: 0, ..round })
}

fn wait_each(place: &Place, turn: &Turn<'_>) -> Result<Round> {
    let db = place.open()?;
    let before = state(&db)?;
    let round = Crew { threads: CLIENTS, sample: 1, turn }.work(|number, shift| {
        let mut random = fastrand::Rng::with_seed(turn.seed << 32 | number as u64);
        shift.begin();
        while shift.goes_on() {
            let (from, to) = accounts(&mut random, place.rows);
            transfer(&db, from, to).wait()?;
            shift.acknowledged();
        }
        Ok(())
    })?;
    place.close(db, before, round.operations)?;
    Ok(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_archive_lacks_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place {
            database: directory.path().join("db"),
            archive: directory.path().join("archive"),
            rows: 10,
            rest: Some(Duration::ZERO),
            durability: Durability::Archived,
        };
        let db = place.open().unwrap();
        let before = state(&db).unwrap();
        transfer(&db, 1, 2).wait().unwrap();
        place.close(db, before, 1).unwrap();
        let db = place.open().unwrap();
        let before = state(&db).unwrap();
        transfer(&db, 1, 2).wait().unwrap();
        assert!(place.close(db, before, 2).is_err(), "one more than there was");
        let db = place.open().unwrap();
        let before = state(&db).unwrap();
        transfer(&db, 1, 2).wait().unwrap();
        let slots = place.archive.join("ltx/0");
        let newest = std::fs::read_dir(&slots).unwrap().map(|it| it.unwrap().path()).max().unwrap();
        std::fs::remove_file(newest).unwrap();
        assert!(place.close(db, before, 1).is_err(), "the archive lacks one");
    }

    #[test]
    fn every_candidate_works_a_round() {
        let directory = tempfile::tempdir().unwrap();
        let interrupt = crate::progress::Interrupt::default();
        let turn = Turn { length: Duration::from_millis(20), seed: 1, interrupt: &interrupt };
        let place = |rest, durability| Place {
            database: directory.path().join(format!("{rest:?}.db")),
            archive: directory.path().join(format!("{rest:?}.archive")),
            rows: 100,
            rest,
            durability,
        };
        let without = place(None, Durability::Synced);
        assert!(burst(&without, &turn).unwrap().operations > 0);
        let with = place(Some(Duration::from_millis(1)), Durability::Archived);
        assert!(wait_each(&with, &turn).unwrap().operations > 0);
        assert!(with.archive.is_dir());
    }
}
