//! Raw SQLite in a tight loop: the limit that everything else is compared with.
//!
//! One thread, one connection, statements prepared once, transfers drawn beforehand; nothing is
//! handed over between threads, and none waits for an answer. With [`Isolation::None`] a failing
//! transaction could not be undone alone: that is a ceiling, not something one could use.

use super::script::{SET_SQL, Script, Workload, changes, decide};
use super::traffic::{Io, Traffic, WalMeter};
use super::{Driver, Goal, Outcome, Profile, Round, Work};
use crate::raw_connection;
use crate::statistics::{BURST_SAMPLE, Latencies};
use crate::workload::{BALANCE_SQL, DEPOSIT_SQL, Transfer, WITHDRAW_SQL};
use anyhow::{Result, ensure};
use rusqlite::{Connection, Statement};
use std::path::PathBuf;
use std::time::Instant;

/// Transactions in a batch from which on the WAL is looked at after each.
const METERED_BATCH: u64 = 1_000;

/// A page and the header of its frame.
const FRAME_BYTES: u64 = 4096 + 24;

/// What separates the transactions of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Nothing: they fail together.
    None,
    /// A savepoint each.
    Savepoint,
}

/// Transfers, `batch` of them in one `BEGIN IMMEDIATE` … `COMMIT`.
#[derive(Debug)]
pub struct RawTransfers {
    pub database: PathBuf,
    pub settings: raw_connection::Settings,
    pub batch: u64,
    pub isolation: Isolation,
}

impl Driver for RawTransfers {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let connection = raw_connection::open(&self.database, self.settings)?;
        let mut statements = Statements::prepare(&connection)?;
        let warm_up = work.warm_up();
        statements.batch(warm_up, Isolation::None, |_| ())?;
        let goal = work.goal(profile.extent);
        let frames = || wal_frames(&connection);
        let (mut round, traffic) = self.work_through(&mut statements, work, goal, frames)?;
        round.traffic = traffic;
        round.wal_bytes_max = raw_connection::wal_bytes(&self.database);
        round.checkpoints = raw_connection::wal_restarts(&self.database);
        Ok(Outcome { round, warmed: warm_up.len() as u64 })
    }
}

impl RawTransfers {
    fn work_through(
        &self,
        statements: &mut Statements<'_>,
        work: &Work<'_>,
        goal: Goal,
        frames: impl Fn() -> Result<u64>,
    ) -> Result<(Round, Option<Traffic>)> {
        let (mut done, mut latencies) = (0, Latencies::default());
        let sample = if self.batch == 1 { 1 } else { BURST_SAMPLE };
        let mut batch = Vec::with_capacity(self.batch as usize);
        let mut starts = Vec::with_capacity(self.batch as usize);
        // A look at the WAL costs more than a small batch.
        let restarts = || raw_connection::wal_restarts(&self.database);
        let mut meter = match self.batch >= METERED_BATCH {
            true => Some(WalMeter::new(frames()?, restarts())),
            false => None,
        };
        let (io, begin) = (Io::look(), Instant::now());
        while !goal.reached(done) {
            work.interrupt.check()?;
            batch.clear();
            let end = goal.count.min(done.saturating_add(self.batch));
            batch.extend((done..end).map(|index| work.transfer(index)));
            starts.clear();
            statements.batch(&batch, self.isolation, |position| {
                if position % sample == 0 {
                    starts.push(Instant::now());
                }
            })?;
            let committed = Instant::now();
            starts.iter().for_each(|&start| latencies.record(committed - start));
            done = end;
            if let Some(meter) = &mut meter {
                meter.look(frames()?, restarts());
            }
        }
        let elapsed = begin.elapsed();
        let wal_bytes = meter.map(|meter| meter.total() * FRAME_BYTES);
        let traffic = wal_bytes.zip(io).and_then(|(bytes, io)| io.since(done, bytes));
        let round = Round { operations: done, taken: done, elapsed, latencies, ..Round::default() };
        Ok((round, traffic))
    }
}

/// Returns how many frames of the WAL are in use.
fn wal_frames(connection: &Connection) -> Result<u64> {
    let mut look = connection.prepare_cached("PRAGMA wal_checkpoint(NOOP)")?;
    let frames: i64 = look.query_row([], |row| row.get(1))?;
    Ok(frames.max(0).cast_unsigned())
}

/// The prepared statements of a raw connection.
pub(super) struct Statements<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    savepoint: Statement<'c>,
    release: Statement<'c>,
    withdraw: Statement<'c>,
    deposit: Statement<'c>,
    balance: Statement<'c>,
    set: Statement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> Result<Statements<'c>> {
        Ok(Statements {
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            savepoint: connection.prepare("SAVEPOINT member")?,
            release: connection.prepare("RELEASE member")?,
            withdraw: connection.prepare(WITHDRAW_SQL)?,
            deposit: connection.prepare(DEPOSIT_SQL)?,
            balance: connection.prepare(BALANCE_SQL)?,
            set: connection.prepare(SET_SQL)?,
        })
    }

    /// Commits `transfers` together; `starting` is told the position of each before it begins.
    pub(super) fn batch(
        &mut self,
        transfers: &[Transfer],
        isolation: Isolation,
        mut starting: impl FnMut(usize),
    ) -> Result<()> {
        self.begin.execute([])?;
        for (position, transfer) in transfers.iter().enumerate() {
            starting(position);
            if isolation == Isolation::Savepoint {
                self.savepoint.execute([])?;
            }
            self.transfer(transfer)?;
            if isolation == Isolation::Savepoint {
                self.release.execute([])?;
            }
        }
        self.commit.execute([])?;
        Ok(())
    }

    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        self.withdraw(*transfer)?;
        self.deposit(*transfer)
    }

    fn withdraw(&mut self, Transfer { from, amount, .. }: Transfer) -> Result<()> {
        ensure!(self.withdraw.execute((amount, from))? == 1, "there is no account {from}");
        Ok(())
    }

    fn deposit(&mut self, Transfer { to, amount, .. }: Transfer) -> Result<()> {
        ensure!(self.deposit.execute((amount, to))? == 1, "there is no account {to}");
        Ok(())
    }

    fn balance(&mut self, id: i64) -> Result<i64> {
        Ok(self.balance.query_row([id], |row| row.get(0))?)
    }

    /// Runs one transfer in a transaction of its own, which is held while the application takes its
    /// time in `pause`.
    pub(super) fn held(
        &mut self,
        transfer: Transfer,
        script: &Script,
        pause: impl Fn(),
    ) -> Result<()> {
        self.begin.execute([])?;
        match script.workload {
            Workload::Blind => {
                self.withdraw(transfer)?;
                pause();
                if script.third_statement {
                    self.balance(transfer.to)?;
                    pause();
                }
                self.deposit(transfer)?;
            }
            Workload::Decide => {
                let sides = changes(transfer);
                let first = self.balance(sides[0].id)?;
                if script.third_statement {
                    pause();
                }
                let balances = [first, self.balance(sides[1].id)?];
                pause();
                for (side, balance) in sides.iter().zip(decide(sides, balances)) {
                    let changed = self.set.execute((balance, side.id))?;
                    ensure!(changed == 1, "there is no account {}", side.id);
                }
            }
        }
        self.commit.execute([])?;
        Ok(())
    }
}

/// Autocommit point reads with one prepared statement.
#[derive(Debug)]
pub struct RawReads {
    pub database: PathBuf,
    pub settings: raw_connection::Settings,
}

impl Driver for RawReads {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let connection = raw_connection::open(&self.database, self.settings)?;
        let mut balance = connection.prepare(BALANCE_SQL)?;
        for transfer in work.warm_up() {
            let _: i64 = balance.query_row([transfer.from], |row| row.get(0))?;
        }
        let goal = work.goal(profile.extent);
        let (mut done, mut latencies, begin) = (0, Latencies::default(), Instant::now());
        while !goal.reached(done) {
            let start = (done as usize).is_multiple_of(BURST_SAMPLE).then(Instant::now);
            let _: i64 = balance.query_row([work.transfer(done).from], |row| row.get(0))?;
            start.into_iter().for_each(|start| latencies.record(start.elapsed()));
            done += 1;
        }
        let elapsed = begin.elapsed();
        let round = Round { operations: done, elapsed, latencies, ..Round::default() };
        Ok(Outcome { round, warmed: 0 })
    }
}
