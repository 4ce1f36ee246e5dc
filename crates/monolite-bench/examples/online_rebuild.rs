//! An online rebuild beside an application that writes and reads all over the table: how long
//! writes wait, how fast rows are copied, and whether the new table is what it should be.
//!
//! ```sh
//! cargo run --release -p monolite-bench --example online_rebuild -- DIRECTORY [ROWS [SHARE]]
//! ```
//!
//! ROWS is 10,000,000 unless given, and SHARE of the peak is the load: 0.5, or 0 for none.
//!
//! # Algorithm
//! 1. A table with three indexes, foreign keys in both directions and a trigger is filled.
//! 2. 128 clients write and read in turns as fast as they can: the peak.
//! 3. They go on at a share of it; their calls come at random times. First without the rebuild.
//! 4. Then `up` adds a `NOT NULL` column, a `CHECK` and an index. While it deletes the old rows,
//!    the clients go on for [`REMOVING`], and end.
//! 5. The history is filled into another file, and rebuilt there in one transaction. Both tables
//!    must have the same rows and texts.
//!
//! A latency runs from the call to its answer. A client that is late calls at once, so that of a
//! write is given from its time, too. The pause of the exchange is the longest time without an
//! acknowledged write around it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use monolite::{Database, Migrations, Options, RebuildPhase};
use monolite_bench::statistics::Latencies;
use rusqlite::{Connection, types::Value};

const CLIENTS: usize = 128;

/// How long each phase without a rebuild is measured.
const PHASE: Duration = Duration::from_secs(60);

/// How long the application goes on while old rows are deleted.
const REMOVING: Duration = Duration::from_secs(120);

/// How often latencies are printed.
const REPORT: Duration = Duration::from_secs(60);

/// How exactly the moment of the exchange is known.
const LOOK: Duration = Duration::from_millis(20);

/// So many looks before and behind it are around the exchange.
const AROUND: usize = 3;

/// The most that the rebuild in one transaction may write: the table with its indexes, and more.
const WAL_LIMIT: u64 = 1 << 36;

/// Rows of a write that fills the table.
const FILLED: i64 = 20_000;

const OWNERS: i64 = 100_000;
const REGIONS: i64 = 100;

const SCHEMA: &str = "
    CREATE TABLE owner(id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    CREATE TABLE region(id INTEGER PRIMARY KEY, updates INTEGER NOT NULL);
    CREATE TABLE account(
        id INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES owner(id),
        region INTEGER NOT NULL, number TEXT NOT NULL, balance INTEGER NOT NULL,
        version INTEGER NOT NULL, note TEXT);
    CREATE TABLE entry(
        id INTEGER PRIMARY KEY, account INTEGER NOT NULL REFERENCES account(id));
    CREATE INDEX entry_account ON entry(account);
    CREATE TRIGGER counted AFTER UPDATE OF balance ON account BEGIN
        UPDATE region SET updates = updates + 1 WHERE id = new.region;
    END;";

/// They are made when the rows are there: SQLite sorts then.
const INDEXES: &str = "
    CREATE UNIQUE INDEX by_number ON account(number);
    CREATE INDEX by_owner ON account(owner);
    CREATE INDEX by_balance ON account(region, balance);";

const REBUILD: &str = "
    CREATE TABLE account(
        id INTEGER PRIMARY KEY, owner INTEGER NOT NULL REFERENCES owner(id),
        region INTEGER NOT NULL, number TEXT NOT NULL, balance INTEGER NOT NULL,
        version INTEGER NOT NULL CHECK (version >= 0), note TEXT,
        currency TEXT NOT NULL DEFAULT 'EUR');
    SELECT id, owner, region, number, balance, version, trim(note) AS note FROM account;
    CREATE INDEX by_currency ON account(currency, number);";

const INSERT: &str = "INSERT INTO account(id, owner, region, number, balance, version, note)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
const UPDATE: &str =
    "UPDATE account SET balance = balance + ?2, version = version + 1 WHERE id = ?1";
const DELETE: &str = "DELETE FROM account WHERE id = ?1";
const READ: &str = "SELECT owner, number, balance FROM account WHERE id = ?1";

/// A row as it is inserted.
fn row(id: i64) -> (i64, i64, i64, String, i64, &'static str) {
    let mut random = Rng::with_seed(id.cast_unsigned());
    let (owner, region) = (random.i64(1..=OWNERS), random.i64(1..=REGIONS));
    // All numbers differ: the last digits are those of the key.
    let number = format!("{:04}-{id:010}", random.u32(0..10_000));
    (id, owner, region, number, random.i64(0..1_000_000), "opened at the branch, by hand")
}

fn seconds(of: Duration) -> f64 {
    of.as_secs_f64()
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// What the application has done: its updates commute.
struct History {
    /// By key, of the rows that were filled in: what was added to the balance, and how often.
    added: Vec<(AtomicI64, AtomicU64)>,
    /// The keys of rows that were inserted since and are there.
    inserted: Mutex<Vec<i64>>,
    next: AtomicI64,
}

/// What clients have measured since it was taken last.
#[derive(Default)]
struct Measured {
    writes: Latencies,
    /// From the time that the write had.
    due: Latencies,
    reads: Latencies,
    since: Option<Instant>,
}

struct Load {
    db: Database,
    history: History,
    measured: Mutex<Measured>,
    /// All of it, until it is cleared.
    whole: Mutex<[Latencies; 2]>,
    started: Instant,
    /// Nanoseconds since the start: when the last write was acknowledged.
    acknowledged: AtomicU64,
    /// Nanoseconds: the longest time without one since it was taken last.
    pause: AtomicU64,
    is_over: AtomicBool,
}

impl Load {
    fn new(db: Database, rows: i64) -> Load {
        let added = (0..=rows).map(|_| Default::default()).collect();
        let (inserted, next) = (Mutex::default(), AtomicI64::new(rows + 1));
        Load {
            db,
            history: History { added, inserted, next },
            measured: Mutex::default(),
            whole: Mutex::default(),
            started: Instant::now(),
            acknowledged: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Prints what was measured since the last time, as `what`, and gives the operations a second.
    fn report(&self, what: &str) -> f64 {
        let now = Measured { since: Some(Instant::now()), ..Measured::default() };
        let it = std::mem::replace(&mut *self.measured.lock().expect("no client panics"), now);
        let took = it.since.map_or(0.0, |since| seconds(since.elapsed()));
        let (writes, reads) = (it.writes.percentiles(), it.reads.percentiles());
        let rate = |samples: u64| samples as f64 / took;
        if writes.samples == 0 {
            println!("{what}");
            return 0.0;
        }
        let mut whole = self.whole.lock().expect("no client panics");
        whole[0].merge(&it.writes);
        whole[1].merge(&it.due);
        println!(
            "{what}: {:.0} writes/s, {:.0} reads/s over {took:.0} s; ms of a write: p50 {:.1}, \
             p99 {:.1}, max {:.0}, p99 from its time {:.1}; of a read: p99 {:.1}",
            rate(writes.samples),
            rate(reads.samples),
            ms(writes.p50_ns),
            ms(writes.p99_ns),
            ms(writes.max_ns),
            ms(it.due.percentiles().p99_ns),
            ms(reads.p99_ns)
        );
        rate(writes.samples + reads.samples)
    }

    async fn write(&self, random: &mut Rng, mine: &mut Vec<i64>) -> Result<()> {
        let kind = random.u8(0..10);
        if kind == 0 {
            let id = self.history.next.fetch_add(1, Ordering::Relaxed);
            self.db.write(move |tx| insert(tx, row(id), (0, 0))).await?;
            mine.push(id);
        } else if kind == 1 && !mine.is_empty() {
            let id = mine.swap_remove(random.usize(..mine.len()));
            let deleted = self.db.write(move |tx| tx.execute(DELETE, [id])).await?;
            ensure!(deleted == 1, "{id} was acknowledged, and is not there");
        } else {
            let at = random.usize(1..self.history.added.len());
            let (id, by) = (i64::try_from(at)?, random.i64(1..10));
            let updated = self.db.write(move |tx| tx.execute(UPDATE, (id, by))).await?;
            ensure!(updated == 1, "{id} is not there");
            self.history.added[at].0.fetch_add(by, Ordering::Relaxed);
            self.history.added[at].1.fetch_add(1, Ordering::Relaxed);
        }
        let now = u64::try_from(self.started.elapsed().as_nanos())?;
        let before = self.acknowledged.fetch_max(now, Ordering::Relaxed);
        self.pause.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
        Ok(())
    }

    async fn read(&self, random: &mut Rng) -> Result<()> {
        let id = i64::try_from(random.usize(1..self.history.added.len()))?;
        let read = self.db.read(move |tx| {
            tx.query_row(READ, [id], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))
            })
        });
        let (owner, number, _) = read.await?;
        let (_, is, _, has, ..) = row(id);
        ensure!((owner, &number) == (is, &has), "{id} was read as another row");
        Ok(())
    }

    /// Works until it is over, in turns a write and a read, whose times come `rate` times a second
    /// at random; as fast as it can without a rate.
    async fn client(self: Arc<Load>, number: usize, rate: Option<f64>) -> Result<()> {
        let mut random = Rng::new();
        let (mut mine, mut next) = (Vec::new(), Instant::now());
        let mut is_write = number.is_multiple_of(2);
        while !self.is_over.load(Ordering::Relaxed) {
            if let Some(rate) = rate {
                next += Duration::from_secs_f64(-(1.0 - random.f64()).ln() / rate);
                tokio::time::sleep_until(next.into()).await;
            }
            let called = Instant::now();
            match is_write {
                true => self.write(&mut random, &mut mine).await?,
                false => self.read(&mut random).await?,
            }
            let (took, since) = (called.elapsed(), next.elapsed());
            let mut measured = self.measured.lock().expect("no client panics");
            match is_write {
                true => {
                    measured.writes.record(took);
                    measured.due.record(if rate.is_some() { since } else { took });
                }
                false => measured.reads.record(took),
            }
            is_write = !is_write;
        }
        self.history.inserted.lock().expect("no client panics").extend(mine);
        Ok(())
    }

    /// Has the clients work while `body` does; `rate` is of all of them.
    fn during<T>(
        self: &Arc<Load>,
        rate: Option<f64>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
        self.is_over.store(false, Ordering::Relaxed);
        let each = rate.map(|rate| rate / CLIENTS as f64);
        let start = |number| runtime.spawn(Arc::clone(self).client(number, each));
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        *self.measured.lock().expect("no client panics") =
            Measured { since: Some(Instant::now()), ..Measured::default() };
        let done = body();
        self.is_over.store(true, Ordering::Relaxed);
        clients.into_iter().try_for_each(|client| runtime.block_on(client)?)?;
        done
    }
}

fn insert(
    tx: &monolite::Tx<'_>,
    (id, owner, region, number, balance, note): (i64, i64, i64, String, i64, &str),
    (added, times): (i64, u64),
) -> monolite::Result<()> {
    let times = times.cast_signed();
    tx.execute(INSERT, (id, owner, region, number, balance + added, times, note))?;
    Ok(())
}

/// Fills a database with the rows `1..=rows` and what was done to them since.
fn fill(db: &Database, rows: i64, history: Option<&Load>) -> Result<()> {
    db.write(move |tx| {
        tx.execute_batch(SCHEMA)?;
        for id in 1..=OWNERS {
            tx.execute("INSERT INTO owner VALUES (?1, 'name ' || ?1)", [id])?;
        }
        for id in 1..=REGIONS {
            tx.execute("INSERT INTO region VALUES (?1, 0)", [id])?;
        }
        Ok::<_, monolite::Error>(())
    })
    .wait()?;
    for first in (1..=rows).step_by(FILLED as usize) {
        let of = |id: i64| -> (i64, u64) {
            let at = history.and_then(|it| it.history.added.get(usize::try_from(id).ok()?));
            at.map_or((0, 0), |(added, times)| {
                (added.load(Ordering::Relaxed), times.load(Ordering::Relaxed))
            })
        };
        let some: Vec<_> = (first..=rows.min(first + FILLED - 1)).map(|id| (id, of(id))).collect();
        db.write(move |tx| some.iter().try_for_each(|&(id, has)| insert(tx, row(id), has)))
            .wait()?;
    }
    let since = history.map(|it| it.history.inserted.lock().expect("no client panics").clone());
    db.write(move |tx| {
        since.iter().flatten().try_for_each(|&id| insert(tx, row(id), (0, 0)))?;
        tx.execute_batch("INSERT INTO entry(account) SELECT id FROM account LIMIT 100000")
    })
    .wait()?;
    indexed()?.up(db).wait()?;
    Ok(())
}

fn indexed() -> Result<Migrations> {
    Ok(Migrations::new().with("0001_indexes.sql", INDEXES)?)
}

fn rebuilt(words: &str) -> Result<Migrations> {
    let text = format!("-- monolite: rebuild=account {words}\n{REBUILD}");
    Ok(indexed()?.with("0002_currency.sql", &text)?)
}

/// What `up` has come to.
struct Seen {
    copied: Option<Duration>,
    exchanged: Option<Duration>,
    /// The longest pauses within [`LOOK`] since the last report.
    pauses: Vec<u64>,
}

/// Rebuilds the table, and reports until the old rows are gone or have been deleted for
/// [`REMOVING`].
fn rebuild(load: &Load, all: &Migrations, rows: i64) -> Result<()> {
    let (started, job) = (Instant::now(), all.up(&load.db));
    let monitor = job.monitor();
    let finished = std::thread::spawn(move || job.wait());
    let mut seen = Seen { copied: None, exchanged: None, pauses: Vec::new() };
    *load.whole.lock().expect("no client panics") = Default::default();
    let (mut reported, mut from) = (Instant::now(), 0);
    while !finished.is_finished()
        && seen.exchanged.is_none_or(|at| started.elapsed() < at + REMOVING)
    {
        std::thread::sleep(LOOK);
        seen.pauses.push(load.pause.swap(0, Ordering::Relaxed));
        let state = all.status(&load.db)?.rebuilding;
        let took = started.elapsed();
        match state.as_ref().map(|it| it.phase) {
            Some(RebuildPhase::Following) if seen.copied.is_none() => {
                seen.copied = Some(took);
                println!(
                    "copied after {:.0} s: {:.0} rows/s",
                    seconds(took),
                    rows as f64 / seconds(took)
                );
            }
            Some(RebuildPhase::Removing) if seen.exchanged.is_none() => {
                seen.exchanged = Some(took);
                // The first write behind it may just be on its way.
                for _ in 0..AROUND {
                    std::thread::sleep(LOOK);
                    seen.pauses.push(load.pause.swap(0, Ordering::Relaxed));
                }
                exchanged(load, &mut seen, took);
                reported = Instant::now();
            }
            _ => {}
        }
        if reported.elapsed() >= REPORT {
            let done = monitor.progress().done;
            let rate = done.saturating_sub(from) as f64 / seconds(reported.elapsed());
            let phase = state.map(|it| format!("{:?}", it.phase)).unwrap_or_default();
            load.report(&format!("{:.0} s, {phase}, {done} rows ({rate:.0}/s)", seconds(took)));
            (reported, from) = (Instant::now(), done);
            seen.pauses.clear();
        }
    }
    if seen.exchanged.is_some() {
        load.report("deleting old rows");
    }
    load.is_over.store(true, Ordering::Relaxed);
    let applied = finished.join().expect("it does not panic")?;
    ensure!(applied.len() == 1, "it was not applied");
    println!("all is deleted after {:.0} s", seconds(started.elapsed()));
    Ok(())
}

/// Tells of the exchange, which was within the last [`LOOK`].
fn exchanged(load: &Load, seen: &mut Seen, took: Duration) {
    load.report("until the exchange");
    println!("exchanged after {:.0} s", seconds(took));
    let around = seen.pauses.iter().rev().take(2 * AROUND).copied().max().unwrap_or(0);
    seen.pauses.sort_unstable();
    let usual = seen.pauses.get(seen.pauses.len() / 2).copied().unwrap_or(0);
    if around > 0 {
        println!(
            "ms without an acknowledged write: {:.1} around it, {:.1} in the median of {} ms",
            ms(around),
            ms(usual),
            LOOK.as_millis()
        );
        let [called, due] = &*load.whole.lock().expect("no client panics");
        println!(
            "all writes beside it, ms: p99 {:.1}, p99 from its time {:.1}",
            ms(called.percentiles().p99_ns),
            ms(due.percentiles().p99_ns)
        );
    }
}

/// Compares the tables and their texts, and has SQLite check the first file.
fn compare(online: &Path, offline: &Path) -> Result<u64> {
    let [online, offline] = [Connection::open(online)?, Connection::open(offline)?];
    for check in ["PRAGMA integrity_check", "PRAGMA foreign_key_check"] {
        let mut statement = online.prepare(check)?;
        let found: Vec<String> =
            statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        ensure!(found.iter().all(|it| it == "ok"), "{check}: {found:?}");
    }
    let mut rows = 0;
    for select in [
        "SELECT * FROM account ORDER BY id",
        "SELECT * FROM entry ORDER BY id",
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'monolite%' \
         ORDER BY name",
        "SELECT sum(updates) FROM region",
    ] {
        let (mut one, mut other) = (online.prepare(select)?, offline.prepare(select)?);
        let columns = one.column_count();
        let (mut one, mut other) = (one.query([])?, other.query([])?);
        loop {
            let all = |row: &rusqlite::Row<'_>| -> Result<Vec<Value>, _> {
                (0..columns).map(|at| row.get(at)).collect()
            };
            let pair = (one.next()?.map(all).transpose()?, other.next()?.map(all).transpose()?);
            ensure!(pair.0 == pair.1, "{select}: {pair:?}");
            if pair.0.is_none() {
                break;
            }
            rows += 1;
        }
    }
    Ok(rows)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().context("usage: online_rebuild DIRECTORY [ROWS [SHARE]]")?;
    let rows: i64 = arguments.next().map_or(Ok(10_000_000), |it| it.parse()).context("ROWS")?;
    let share: f64 = arguments.next().map_or(Ok(0.5), |it| it.parse()).context("SHARE")?;
    ensure!(rows > 0 && (0.0..=1.0).contains(&share), "ROWS is above 0, and SHARE from 0 to 1");
    let directory = tempfile::tempdir_in(directory)?;
    let [online, offline] = ["online.db", "offline.db"].map(|it| directory.path().join(it));

    let db = Database::open(&online)?;
    let begun = Instant::now();
    fill(&db, rows, None)?;
    println!("{rows} rows filled in {:.0} s", seconds(begun.elapsed()));
    let load = Arc::new(Load::new(db, rows));
    if share > 0.0 {
        let wait = |what: &str| {
            std::thread::sleep(PHASE);
            Ok(load.report(what))
        };
        let peak = load.during(None, || wait("peak"))?;
        let rate = peak * share;
        println!("load: {rate:.0} operations/s, {CLIENTS} clients");
        load.during(Some(rate), || {
            wait("without the rebuild")?;
            rebuild(&load, &rebuilt("online")?, rows)
        })?;
    } else {
        rebuild(&load, &rebuilt("online")?, rows)?;
    }

    // One transaction has all of it.
    let other = Options::new().wal_limit_bytes(WAL_LIMIT).open(&offline)?;
    fill(&other, rows, Some(&load))?;
    let begun = Instant::now();
    rebuilt("")?.up(&other).wait()?;
    println!("rebuilt in one transaction, without a load: {:.0} s", seconds(begun.elapsed()));
    let updates: u64 =
        load.history.added.iter().map(|(_, times)| times.load(Ordering::Relaxed)).sum();
    let noted = format!("UPDATE region SET updates = {updates} WHERE id = 1");
    other.write(move |tx| tx.execute_batch(&noted)).wait()?;
    other.close()?;
    let load = Arc::into_inner(load).context("the clients have ended")?;
    load.db.close()?;
    let compared = compare(&online, &offline)?;
    println!("equal to it: {compared} rows; {updates} updates; SQLite's checks find nothing");
    Ok(())
}
