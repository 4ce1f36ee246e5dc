//! The engine itself, used as an application would use it.
//!
//! A burst is offered by one thread that keeps the queue full.
//! A closed loop is a thread (one client) or a number of logical clients, each a future that awaits
//! its acknowledgement before its next transaction, on executor threads of `futures`. Transfers are
//! drawn beforehand; the closures hold what they need and draw nothing.

use super::traffic::{self, Io};
use super::{Driver, Goal, Outcome, Profile, Round, Work};
use crate::raw_connection::{Durability, READER_CACHE_BYTES, WRITER_CACHE_BYTES};
use crate::statistics::{BURST_SAMPLE, Latencies};
use crate::workload::{BALANCE_SQL, DEPOSIT_SQL, Transfer, WITHDRAW_SQL};
use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use monolite::{Database, ErrorKind, Options, Tx, Write};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Capacity of the engine's queue, its default. A burst keeps it full.
pub const QUEUE_CAPACITY: usize = 16_384;

/// Submissions between two looks at what has been acknowledged, in a burst. An acknowledgement is
/// seen at most this many submissions late, about 0.2 ms.
const LOOK_EVERY: usize = 64;

/// How the engine is opened: its defaults, but for what raw connections must have equal.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What an acknowledgement means.
    pub durability: Durability,
    /// Limit of the WAL.
    pub wal_limit_bytes: u64,
}

impl Settings {
    /// Returns the settings as a report says them.
    pub fn describe(self) -> Vec<String> {
        vec![
            format!("durability = {}", self.durability),
            format!("wal_limit_bytes = {}", self.wal_limit_bytes),
            format!("writer_cache_bytes = {WRITER_CACHE_BYTES}"),
            format!("reader_cache_bytes = {READER_CACHE_BYTES}"),
            format!("queue_capacity = {QUEUE_CAPACITY}"),
            "everything else: the defaults".into(),
        ]
    }

    pub(super) fn open(self, database: &Path) -> Result<Database> {
        Options::new()
            .durability(self.durability.of_engine())
            .wal_limit_bytes(self.wal_limit_bytes)
            .writer_cache_bytes(WRITER_CACHE_BYTES)
            .reader_cache_bytes(READER_CACHE_BYTES)
            .queue_capacity(QUEUE_CAPACITY)
            .open(database)
            .context("cannot open the engine")
    }
}

/// Has the engine initialise SQLite for this process, as it does in a program that opens its first
/// database with it. Where a raw connection is first, the engine cannot see which pages a
/// transaction reads, and its writer replays the reads of every commit.
pub fn initialize_sqlite() -> Result<()> {
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let db = Database::open(dir.path().join("first.db")).context("cannot open the engine")?;
    db.close().context("cannot close the engine")
}

/// Why a transfer was not done.
#[derive(Debug)]
pub(super) enum TransferError {
    /// It was to fail.
    OnPurpose,
    /// An account does not exist.
    NoAccount,
    /// The engine failed.
    Engine(monolite::Error),
}

impl From<monolite::Error> for TransferError {
    fn from(error: monolite::Error) -> TransferError {
        TransferError::Engine(error)
    }
}

/// Whether a transfer goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Succeeds,
    /// The application gives up after the first update.
    Fails,
}

pub(super) type TransferHandle = Write<(), TransferError>;

fn perform(tx: &Tx<'_>, transfer: Transfer, fate: Fate) -> Result<(), TransferError> {
    let withdrawn = tx.execute(WITHDRAW_SQL, (transfer.amount, transfer.from))?;
    if fate == Fate::Fails {
        return Err(TransferError::OnPurpose);
    }
    let deposited = tx.execute(DEPOSIT_SQL, (transfer.amount, transfer.to))?;
    if withdrawn + deposited == 2 { Ok(()) } else { Err(TransferError::NoAccount) }
}

pub(super) fn submit(
    db: &Database<TransferError>,
    transfer: Transfer,
    fate: Fate,
) -> TransferHandle {
    db.write(move |tx| perform(tx, transfer, fate))
}

/// Counts an answer, which must be the one that was due.
fn count(round: &mut Round, fate: Fate, answer: Result<(), TransferError>) -> Result<()> {
    match (fate, answer) {
        (Fate::Succeeds, Ok(())) => round.operations += 1,
        (Fate::Fails, Err(TransferError::OnPurpose)) => round.failed += 1,
        (_, Err(TransferError::Engine(error))) => return Err(error).context("a transfer failed"),
        (fate, answer) => bail!("a transfer that {fate:?} was answered {answer:?}"),
    }
    Ok(())
}

pub(super) fn warm_up(db: &Database, work: &Work<'_>) -> Result<u64> {
    let (db, transfers) = (db.with_error(), work.warm_up());
    for chunk in transfers.chunks(QUEUE_CAPACITY / 2) {
        let handles: Vec<_> = chunk.iter().map(|t| submit(&db, *t, Fate::Succeeds)).collect();
        for handle in handles {
            count(&mut Round::default(), Fate::Succeeds, handle.wait())?;
        }
    }
    Ok(transfers.len() as u64)
}

pub(super) fn close(db: &Database, round: &mut Round) -> Result<()> {
    let stats = db.stats();
    round.wal_bytes_max = stats.wal_bytes_max;
    round.checkpoints = stats.checkpoints_completed;
    db.close().context("cannot close the engine")
}

/// Transfers offered as fast as the queue takes them.
#[derive(Debug)]
pub struct EngineBurst {
    pub database: PathBuf,
    pub settings: Settings,
}

impl Driver for EngineBurst {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let db = self.open()?;
        let mut outcome = self.run_on_open(&db, profile, work)?;
        close(&db, &mut outcome.round)?;
        Ok(outcome)
    }
}

impl EngineBurst {
    /// Opens the engine on the data set.
    pub(super) fn open(&self) -> Result<Database> {
        self.settings.open(&self.database)
    }

    /// Warms `db` up, and works through the round.
    pub(super) fn run_on_open(
        &self,
        db: &Database,
        profile: &Profile,
        work: &Work<'_>,
    ) -> Result<Outcome> {
        let warmed = warm_up(db, work)?;
        let io = Io::look();
        let (round, wal_bytes) = traffic::watching(db, || self.submit_all(db, profile, work));
        let mut round = round?;
        round.traffic = io.and_then(|io| io.since(round.taken, wal_bytes));
        Ok(Outcome { round, warmed })
    }

    fn submit_all(&self, db: &Database, profile: &Profile, work: &Work<'_>) -> Result<Round> {
        let sender = db.with_error();
        let goal = work.goal(profile.extent);
        let mut under_way = UnderWay::default();
        let begin = Instant::now();
        let mut next = 0;
        while !goal.reached(next) {
            if next.is_multiple_of(LOOK_EVERY as u64) {
                work.interrupt.check()?;
                under_way.take_answers()?;
            }
            let fate = if profile.fails(next) { Fate::Fails } else { Fate::Succeeds };
            let start = next.is_multiple_of(BURST_SAMPLE as u64).then(Instant::now);
            let handle = under_way.submit(&sender, work.transfer(next), fate)?;
            under_way.pending.push_back(Pending { handle, fate, start });
            next += 1;
        }
        while !under_way.pending.is_empty() {
            under_way.wait_for_oldest()?;
        }
        Ok(Round { elapsed: begin.elapsed(), taken: next, ..under_way.round })
    }
}

struct Pending {
    handle: TransferHandle,
    fate: Fate,
    start: Option<Instant>,
}

/// Transactions submitted and not yet acknowledged, oldest first.
#[derive(Default)]
struct UnderWay {
    pending: VecDeque<Pending>,
    round: Round,
}

impl UnderWay {
    /// Takes the answers that are there, without waiting.
    fn take_answers(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut context = Context::from_waker(Waker::noop());
        while let Some(oldest) = self.pending.front_mut() {
            let Poll::Ready(answer) = Pin::new(&mut oldest.handle).poll(&mut context) else {
                break;
            };
            let Pending { fate, start, .. } = self.pending.pop_front().expect("it was there");
            self.answered(fate, start, now, answer)?;
        }
        Ok(())
    }

    /// Submits a transfer; while the queue is full, waits for the oldest one under way.
    fn submit(
        &mut self,
        db: &Database<TransferError>,
        transfer: Transfer,
        fate: Fate,
    ) -> Result<TransferHandle> {
        loop {
            match db.try_write(move |tx| perform(tx, transfer, fate)) {
                Ok(handle) => return Ok(handle),
                Err(error) if error.kind() == ErrorKind::Overloaded => self.wait_for_oldest()?,
                Err(error) => return Err(error).context("a transfer was not accepted"),
            }
        }
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        let Some(Pending { handle, fate, start }) = self.pending.pop_front() else { return Ok(()) };
        let answer = handle.wait();
        self.answered(fate, start, Instant::now(), answer)?;
        self.take_answers()
    }

    fn answered(
        &mut self,
        fate: Fate,
        start: Option<Instant>,
        now: Instant,
        answer: Result<(), TransferError>,
    ) -> Result<()> {
        start.into_iter().for_each(|start| self.round.latencies.record(now - start));
        count(&mut self.round, fate, answer)
    }
}

/// Clients that wait for each acknowledgement.
#[derive(Debug)]
pub struct EngineClients {
    pub database: PathBuf,
    pub settings: Settings,
    /// Logical clients; a single one is a blocking thread.
    pub clients: u64,
    pub executors: u64,
    /// Point reads awaited by a client before each of its transfers.
    pub reads_per_write: u64,
}

impl Driver for EngineClients {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let db = self.settings.open(&self.database)?;
        let warmed = warm_up(&db, work)?;
        let goal = work.goal(profile.extent);
        let session = Session {
            db: &db,
            sender: db.with_error(),
            work,
            goal,
            next: AtomicU64::new(0),
            reads_per_write: self.reads_per_write,
        };
        let begin = Instant::now();
        let parts = if self.clients == 1 {
            vec![session.blocking_client()?]
        } else {
            session.executors(self.clients, self.executors)?
        };
        let mut round = Round { elapsed: begin.elapsed(), ..Round::default() };
        for part in parts {
            round.operations += part.operations;
            round.reads += part.reads;
            round.latencies.merge(&part.latencies);
        }
        round.taken = round.operations;
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed })
    }
}

struct Session<'s> {
    db: &'s Database,
    sender: Database<TransferError>,
    work: &'s Work<'s>,
    goal: Goal,
    next: AtomicU64,
    reads_per_write: u64,
}

impl Session<'_> {
    /// Takes the next transfer, until the round is over.
    fn take(&self) -> Option<u64> {
        if self.work.interrupt.requested() {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (!self.goal.reached(index)).then_some(index)
    }

    fn blocking_client(&self) -> Result<Round> {
        let mut round = Round::default();
        while let Some(index) = self.take() {
            self.read_first(index, &mut round)?;
            let start = Instant::now();
            let answer = submit(&self.sender, self.work.transfer(index), Fate::Succeeds).wait();
            round.latencies.record(start.elapsed());
            count(&mut round, Fate::Succeeds, answer)?;
        }
        Ok(round)
    }

    fn executors(&self, clients: u64, executors: u64) -> Result<Vec<Round>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..executors)
                .map(|_| scope.spawn(move || self.executor(clients.div_ceil(executors))))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("clients do not panic")).collect()
        })
    }

    /// Drives logical clients on the calling thread until the round is over.
    fn executor(&self, clients: u64) -> Result<Round> {
        let round = RefCell::new(Round::default());
        futures::executor::block_on(async {
            let mut running: FuturesUnordered<_> =
                (0..clients).map(|_| self.client(&round)).collect();
            while let Some(ended) = running.next().await {
                ended?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        Ok(round.into_inner())
    }

    async fn client(&self, round: &RefCell<Round>) -> Result<()> {
        while let Some(index) = self.take() {
            self.read_first(index, &mut round.borrow_mut())?;
            let start = Instant::now();
            let answer = submit(&self.sender, self.work.transfer(index), Fate::Succeeds).await;
            let mut round = round.borrow_mut();
            round.latencies.record(start.elapsed());
            count(&mut round, Fate::Succeeds, answer)?;
        }
        Ok(())
    }

    /// Awaits point reads of accounts that other transfers of the round touch.
    fn read_first(&self, index: u64, round: &mut Round) -> Result<()> {
        for number in 1..=self.reads_per_write {
            read_balance(self.db, self.work.transfer(index * self.reads_per_write + number).from)?;
            round.reads += 1;
        }
        Ok(())
    }
}

fn read_balance(db: &Database, id: i64) -> Result<i64> {
    let balance: Result<i64, monolite::Error> =
        db.read(move |tx| tx.query_row(BALANCE_SQL, [id], |row| row.get(0))).wait();
    balance.context("a read failed")
}

/// Autocommit point reads by one thread.
#[derive(Debug)]
pub struct EngineReads {
    pub database: PathBuf,
    pub settings: Settings,
}

impl Driver for EngineReads {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let db = self.settings.open(&self.database)?;
        for transfer in work.warm_up() {
            read_balance(&db, transfer.from)?;
        }
        let goal = work.goal(profile.extent);
        let (mut done, mut latencies, begin) = (0, Latencies::default(), Instant::now());
        while !goal.reached(done) {
            let start = done.is_multiple_of(BURST_SAMPLE as u64).then(Instant::now);
            let balance = read_balance(&db, work.transfer(done).from)?;
            start.into_iter().for_each(|start| latencies.record(start.elapsed()));
            ensure!(balance != 0, "an account is empty");
            done += 1;
        }
        let elapsed = begin.elapsed();
        let mut round = Round { operations: done, elapsed, latencies, ..Round::default() };
        close(&db, &mut round)?;
        Ok(Outcome { round, warmed: 0 })
    }
}
