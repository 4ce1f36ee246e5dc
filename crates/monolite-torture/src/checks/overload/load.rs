//! The child of the overload check: an engine with every bound set, and more load than it can take.
//!
//! # Algorithm
//! 1. Two generators tick every millisecond. While the rate is 0 they offer until the queue
//!    refuses, which keeps it full: goodput is then the most that the engine sustains. Otherwise
//!    they offer as many transactions as the rate asks for, whatever the answers.
//! 2. Rounds of both kinds alternate, so that a machine that gets slower or faster meanwhile does
//!    so for both; the rate is ten times what the last saturated round reached.
//! 3. Each transaction of a generator continues a chain: it fails unless the one before it is in
//!    the database. So the end of the chain vouches for all of it, and nothing has to be
//!    remembered of hours of load but one number. The last ones lie in a ring of slots and are
//!    looked at in full.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use monolite::{Database, Error, ErrorKind, Options, Write};
use monolite_testkit::child::{say, variable};
use serde::{Deserialize, Serialize};

use super::{
    CAPACITY, LEAST_OFFERED, MAX_BATCH, NOT_OFFERED, PAYLOAD, READER_CACHE, WAL_LIMIT, WRITER_CACHE,
};
use crate::checks::cgroup::{self, Cgroup};
use crate::checks::lanes::status;

/// How many times the sustained rate is offered.
pub(super) const TIMES: u64 = 10;

const GENERATORS: usize = 2;

/// How often a generator offers.
const TICK: Duration = Duration::from_millis(1);

/// Transactions of each generator that are looked at in full afterwards.
const RING: u64 = 4_096;

/// One of so many offers is timed.
const TIMED: u64 = 64;

/// How often memory is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// A flood that has not broken the limit by then is taken to be within it.
const FLOOD: Duration = Duration::from_secs(10);

/// What the child measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Acknowledged transactions a second while the queue was kept full.
    pub(super) peak: f64,
    /// The same while `offered` were offered.
    pub(super) goodput: f64,
    /// Goodput as a share of the peak: of an overloaded round, beside the saturated ones before
    /// and behind it, the median of all.
    pub(super) share: f64,
    /// The slowest round of those.
    pub(super) slowest: f64,
    /// Transactions offered a second under overload.
    pub(super) offered: f64,
    /// How many times the peak before it was offered in the round in which that was least.
    pub(super) least_times: f64,
    /// Offers refused with `Overloaded`.
    pub(super) refused: u64,
    /// Offers refused with anything else, and admitted transactions that failed.
    pub(super) wrong: u64,
    /// The first of those.
    pub(super) first_wrong: Option<String>,
    /// Transactions acknowledged in all.
    pub(super) acknowledged: u64,
    /// Of those, how many were gone after the database was opened again.
    pub(super) lost: u64,
    /// Transactions found in part.
    pub(super) partial: u64,
    /// Latency of transactions admitted under overload, in nanoseconds.
    pub(super) p50_ns: u64,
    /// The same.
    pub(super) p99_ns: u64,
    /// Longest batch, sync and pause of the writer together, in nanoseconds.
    pub(super) longest_ns: u64,
    /// What the engine spends on a refusal, in nanoseconds.
    pub(super) refusal_ns: u64,
    /// What half of the offers under overload took at most, whatever the answer, in nanoseconds.
    pub(super) offer_ns: u64,
    /// `VmHWM` of the child: most memory it held, its program's pages included.
    pub(super) high_water_bytes: u64,
    /// Most memory of its cgroup that was no page cache; 0 without one.
    pub(super) anonymous_bytes: u64,
}

/// The options whose sum the limit is; `capacity` is what the control takes away.
pub(super) fn options(capacity: usize) -> Options {
    Options::new()
        .readers(1)
        .reader_cache_bytes(READER_CACHE)
        .writer_cache_bytes(WRITER_CACHE)
        .max_batch(MAX_BATCH)
        .queue_capacity(capacity)
        .wal_limit_bytes(WAL_LIMIT)
}

/// What generators and the one who measures share.
#[derive(Default)]
struct Shared {
    /// Offers a second of each generator; 0 keeps the queue full.
    rate: AtomicU64,
    stop: AtomicBool,
    offered: AtomicU64,
    refused: AtomicU64,
    acknowledged: AtomicU64,
}

/// The role `overload`.
pub(super) fn measure() -> Result<()> {
    say("");
    let (file, seconds): (PathBuf, u64) = (variable("FILE")?, variable("SECONDS")?);
    let cgroup = cgroup::enter()?;
    let db = options(CAPACITY).open(&file)?;
    create(&db)?;
    let shared = Shared::default();
    let (mut figures, tallies) = thread::scope(|scope| {
        let generators: Vec<_> = (0..GENERATORS)
            .map(|number| {
                let mut generator = Generator::new(number, &db, &shared);
                scope.spawn(move || {
                    generator.run();
                    generator.tally
                })
            })
            .collect();
        let figures = rounds(&shared, seconds, cgroup.as_ref());
        shared.stop.store(true, Ordering::Relaxed);
        let tallies: Vec<Tally> = generators.into_iter().filter_map(|it| it.join().ok()).collect();
        (figures, tallies)
    });
    figures.refused = shared.refused.load(Ordering::Relaxed);
    figures.high_water_bytes = status(std::process::id(), "VmHWM");
    let stats = db.stats();
    let longest = [stats.batch_seconds, stats.sync_seconds, stats.writer_pause_seconds];
    let longest: f64 = longest.iter().map(|it| it.quantile(1.0)).sum();
    figures.longest_ns = (longest * 1e9) as u64;
    add(&mut figures, &tallies)?;
    afterwards(&db, &mut figures);
    db.close()?;
    verify(&file, &tallies, &mut figures)?;
    say(&format!("figures {}", serde_json::to_string(&figures)?));
    Ok(())
}

/// The role `overload without a bound`: offers at `RATE` until the limit is broken.
pub(super) fn flood() -> Result<()> {
    say("");
    let (file, rate): (PathBuf, u64) = (variable("FILE")?, variable("RATE")?);
    let limit: u64 = variable("LIMIT")?;
    cgroup::enter()?;
    let db = options(10_000_000).open(&file)?;
    create(&db)?;
    let shared = Shared::default();
    shared.rate.store((rate / GENERATORS as u64).max(1), Ordering::Relaxed);
    thread::scope(|scope| {
        for number in 0..GENERATORS {
            let mut generator = Generator::new(number, &db, &shared);
            scope.spawn(move || generator.run());
        }
        let start = Instant::now();
        while start.elapsed() < FLOOD && status(std::process::id(), "VmRSS") <= limit {
            thread::sleep(GLANCE);
        }
        let (held, offered) =
            (status(std::process::id(), "VmRSS"), shared.offered.load(Ordering::Relaxed));
        let wanted = rate as f64 * start.elapsed().as_secs_f64() * LEAST_OFFERED;
        let word = match held > limit {
            true => "exceeded ",
            false if (offered as f64) < wanted => NOT_OFFERED,
            false => "within ",
        };
        say(&format!("{word}{held}"));
        // There is nothing to tidy up, and what waits would take long to be done.
        std::process::exit(0)
    })
}

fn create(db: &Database) -> Result<()> {
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE chain(generator INTEGER PRIMARY KEY, last INTEGER NOT NULL) STRICT;
             CREATE TABLE slot(
                 generator INTEGER, place INTEGER, number INTEGER NOT NULL, payload BLOB NOT NULL,
                 PRIMARY KEY (generator, place)
             ) STRICT;
             INSERT INTO chain VALUES (0, 0), (1, 0);",
        )
    })
    .wait()?;
    Ok(())
}

/// Alternates saturated and overloaded rounds.
fn rounds(shared: &Shared, seconds: u64, cgroup: Option<&Cgroup>) -> Figures {
    let count = (seconds / 2).clamp(1, 15);
    let saturated = Duration::from_secs_f64(seconds as f64 / count as f64 / 4.0);
    let most = f64::MAX;
    let mut figures = Figures { slowest: most, least_times: most, ..Figures::default() };
    let (mut peaks, mut goods, mut offers) = (Vec::new(), Vec::new(), Vec::new());
    let mut shares = Histogram::<u64>::new(3).expect("three digits are allowed");
    // The first transactions find cold caches and an empty WAL.
    round(shared, 0, saturated.min(Duration::from_secs(1)), cgroup, &mut figures);
    let (mut peak, _) = round(shared, 0, saturated, cgroup, &mut figures);
    for _ in 0..count {
        let rate = (peak * TIMES as f64 / GENERATORS as f64) as u64;
        let (goodput, offered) = round(shared, rate.max(1), saturated * 3, cgroup, &mut figures);
        peaks.push(peak);
        goods.push(goodput);
        offers.push(offered);
        figures.slowest = figures.slowest.min(goodput);
        figures.least_times = figures.least_times.min(offered / peak.max(1.0));
        let before = peak;
        (peak, _) = round(shared, 0, saturated, cgroup, &mut figures);
        let share = goodput / mean(&[before, peak]).max(1.0);
        shares.saturating_record((share * 1_000.0) as u64);
    }
    figures.share = shares.value_at_quantile(0.5) as f64 / 1_000.0;
    figures.peak = mean(&peaks);
    figures.goodput = mean(&goods);
    figures.offered = mean(&offers);
    figures
}

/// One round at one rate: acknowledged and offered transactions a second.
fn round(
    shared: &Shared,
    rate: u64,
    length: Duration,
    cgroup: Option<&Cgroup>,
    figures: &mut Figures,
) -> (f64, f64) {
    let count = || {
        let figure = |it: &AtomicU64| it.load(Ordering::Relaxed);
        (figure(&shared.acknowledged), figure(&shared.offered))
    };
    shared.rate.store(rate, Ordering::Relaxed);
    let (start, before) = (Instant::now(), count());
    while start.elapsed() < length {
        thread::sleep(GLANCE);
        let held = cgroup.map_or(0, Cgroup::anonymous_bytes);
        figures.anonymous_bytes = figures.anonymous_bytes.max(held);
    }
    let (after, took) = (count(), start.elapsed().as_secs_f64());
    say(&format!("round {}", length.as_secs_f64()));
    ((after.0 - before.0) as f64 / took, (after.1 - before.1) as f64 / took)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// What one generator saw.
struct Tally {
    admitted: u64,
    acknowledged: u64,
    wrong: u64,
    first_wrong: Option<String>,
    latency: Histogram<u64>,
    timed: u64,
    time: Duration,
    /// What `try_write` took, of one offer in [`TIMED`].
    offers: Histogram<u64>,
}

struct Generator<'a> {
    number: usize,
    db: &'a Database,
    shared: &'a Shared,
    in_flight: VecDeque<(Instant, bool, Write<()>)>,
    tally: Tally,
}

impl<'a> Generator<'a> {
    fn new(number: usize, db: &'a Database, shared: &'a Shared) -> Generator<'a> {
        let histogram = || Histogram::new(3).expect("three significant digits are valid");
        let tally = Tally {
            admitted: 0,
            acknowledged: 0,
            wrong: 0,
            first_wrong: None,
            latency: histogram(),
            timed: 0,
            time: Duration::ZERO,
            offers: histogram(),
        };
        Generator { number, db, shared, in_flight: VecDeque::new(), tally }
    }

    fn run(&mut self) {
        let mut last = Instant::now();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let rate = self.shared.rate.load(Ordering::Relaxed);
            let now = Instant::now();
            // What a stalled generator could not offer is not made up for by one large burst.
            let elapsed = (now - last).min(TICK * 20);
            last = now;
            let offers = (rate as f64 * elapsed.as_secs_f64()) as u64;
            let mut offered = 0;
            while if rate == 0 { self.offer(offered, false) } else { offered < offers } {
                if rate > 0 {
                    self.offer(offered, true);
                }
                offered += 1;
            }
            self.shared.offered.fetch_add(offered, Ordering::Relaxed);
            self.collect();
            thread::sleep(TICK);
        }
        while !self.in_flight.is_empty() {
            self.collect();
            thread::sleep(TICK);
        }
    }

    /// Offers the next transaction of the chain; whether it was admitted.
    fn offer(&mut self, number: u64, is_overload: bool) -> bool {
        let (generator, next) = (self.number, self.tally.admitted + 1);
        let payload = vec![next as u8; PAYLOAD];
        let body = move |tx: &monolite::Tx<'_>| put(tx, generator, next, &payload);
        let start = Instant::now();
        let offered = self.db.try_write(body);
        let is_timed = is_overload && number.is_multiple_of(TIMED);
        if is_timed {
            let _ = self.tally.offers.record(nanoseconds(start.elapsed()));
        }
        match offered {
            Ok(write) => {
                self.tally.admitted = next;
                self.in_flight.push_back((start, is_overload, write));
                return true;
            }
            Err(error) if error.kind() == ErrorKind::Overloaded => {
                self.shared.refused.fetch_add(u64::from(is_overload), Ordering::Relaxed);
                if is_timed {
                    self.tally.timed += 1;
                    self.tally.time += start.elapsed();
                }
            }
            Err(error) => self.note_wrong(&error),
        }
        false
    }

    /// Takes the answers that are there; they come in order.
    fn collect(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Some((start, is_overload, write)) = self.in_flight.front_mut() {
            let Poll::Ready(result) = Pin::new(write).poll(&mut context) else { break };
            if *is_overload {
                // It grows as it must; an hour's latency would be some kilobytes.
                let _ = self.tally.latency.record(nanoseconds(start.elapsed()));
            }
            self.in_flight.pop_front();
            match result {
                Ok(()) => {
                    self.tally.acknowledged += 1;
                    self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => self.note_wrong(&error),
            }
        }
    }

    fn note_wrong(&mut self, error: &Error) {
        self.tally.wrong += 1;
        self.tally.first_wrong.get_or_insert_with(|| format!("{:?}: {error}", error.kind()));
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn put(tx: &monolite::Tx<'_>, generator: usize, number: u64, payload: &[u8]) -> Result<(), Error> {
    let (generator, number) = (generator as i64, number as i64);
    let step = "UPDATE chain SET last = ?2 WHERE generator = ?1 AND last = ?2 - 1";
    if tx.execute(step, (generator, number))? != 1 {
        return Err(Error::aborted("the transaction before this one is missing"));
    }
    let place = number % RING as i64;
    tx.execute("REPLACE INTO slot VALUES (?1, ?2, ?3, ?4)", (generator, place, number, payload))?;
    Ok(())
}

fn add(figures: &mut Figures, tallies: &[Tally]) -> Result<()> {
    let histogram = || Histogram::<u64>::new(3).context("three digits are valid");
    let (mut latency, mut offers) = (histogram()?, histogram()?);
    let (mut timed, mut time, mut admitted) = (0, Duration::ZERO, 0);
    for tally in tallies {
        latency.add(&tally.latency).context("the histograms are of one shape")?;
        offers.add(&tally.offers).context("the histograms are of one shape")?;
        figures.acknowledged += tally.acknowledged;
        figures.wrong += tally.wrong;
        figures.first_wrong = figures.first_wrong.take().or(tally.first_wrong.clone());
        timed += tally.timed;
        time += tally.time;
        admitted += tally.admitted;
    }
    let unanswered = admitted - figures.acknowledged - figures.wrong.min(admitted);
    figures.wrong += unanswered;
    figures.p50_ns = latency.value_at_quantile(0.5);
    figures.p99_ns = latency.value_at_quantile(0.99);
    figures.offer_ns = offers.value_at_quantile(0.5);
    figures.refusal_ns =
        u64::try_from(time.as_nanos() / u128::from(timed.max(1))).unwrap_or(u64::MAX);
    Ok(())
}

/// The engine is as usable as before.
fn afterwards(db: &Database, figures: &mut Figures) {
    let written = db.write(|tx| tx.execute("CREATE TABLE afterwards(x)", ())).wait();
    let read = db.read(|tx| tx.query_row("SELECT count(*) FROM afterwards", (), |_| Ok(()))).wait();
    if let Err(error) = written.map(|_| ()).and(read) {
        figures.wrong += 1;
        figures.first_wrong.get_or_insert(format!("afterwards: {error}"));
    }
}

/// Looks for everything acknowledged in the file, opened again.
fn verify(file: &Path, tallies: &[Tally], figures: &mut Figures) -> Result<()> {
    let connection = monolite::rusqlite::Connection::open(file)?;
    let integrity: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if integrity != "ok" {
        figures.wrong += 1;
        figures.first_wrong.get_or_insert(format!("integrity_check: {integrity}"));
    }
    for (generator, tally) in tallies.iter().enumerate() {
        let last: i64 = connection.query_row(
            "SELECT last FROM chain WHERE generator = ?1",
            [generator as i64],
            |row| row.get(0),
        )?;
        let last = u64::try_from(last).unwrap_or(0);
        figures.lost += tally.acknowledged.saturating_sub(last);
        let whole: i64 = connection.query_row(
            "SELECT count(*) FROM slot WHERE generator = ?1 AND place = number % ?2
             AND number > ?3 - ?2 AND number <= ?3 AND length(payload) = ?4",
            (generator as i64, RING as i64, last as i64, PAYLOAD as i64),
            |row| row.get(0),
        )?;
        figures.partial += last.min(RING).abs_diff(u64::try_from(whole).unwrap_or(0));
    }
    Ok(())
}
