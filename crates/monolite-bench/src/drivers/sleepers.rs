//! Plain writes beside interactive transactions that are open and mostly asleep.
//!
//! # Algorithm
//! 1. Every sleeper begins a transaction, reads the balance of an account of its own and changes
//!    it, and goes to sleep; the clock starts when all have.
//! 2. Every second it wakes, evenly spread over the sleepers, and reads once more. When the engine
//!    ends its transaction for a conflict or for its time limit, it begins another; both are
//!    counted.
//! 3. Beside them waiting clients run transfers in `Database::write`.
//! 4. The sleepers' transactions are dropped, so that nothing of theirs is ever kept.

use super::interactive::{InteractiveTransfers, contention, runtime};
use super::{Driver, Outcome, Profile, Work};
use crate::workload::{BALANCE_SQL, WITHDRAW_SQL};
use anyhow::{Context as _, Result, ensure};
use monolite::{Database, ErrorKind, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Between two statements of a sleeper.
pub const SLEEP: Duration = Duration::from_secs(1);

/// How often the driver looks whether all sleepers have begun.
const LOOK: Duration = Duration::from_millis(5);

/// Writes beside open transactions.
#[derive(Debug)]
pub struct WritesBesideSleepers {
    pub writes: InteractiveTransfers,
    pub sleepers: u64,
    /// All accounts. Those of the sleepers are in the middle, with hardly any other writes.
    pub accounts: u64,
}

impl Driver for WritesBesideSleepers {
    fn run(&self, profile: &Profile, work: &Work<'_>) -> Result<Outcome> {
        let db = self.writes.open()?;
        let runtime = runtime()?;
        let warmed = self.writes.warm_up(&db, &runtime, work)?;
        let beds = Arc::new(Beds::default());
        let mut asleep = self.put_to_sleep(&db, &runtime, &beds)?;
        let before = db.stats();
        let mut round = self.writes.measure(&db, &runtime, profile, work)?;
        let after = db.stats();
        round.contention = contention(&before, &after);
        ensure!(
            after.open_transactions + beds.renewals() >= self.sleepers,
            "only {} of {} transactions are still open",
            after.open_transactions,
            self.sleepers
        );
        while let Some(ended) = asleep.try_join_next() {
            ended??;
        }
        runtime.block_on(asleep.shutdown());
        super::engine::close(&db, &mut round)?;
        let limit = self.writes.settings.wal_limit_bytes;
        ensure!(round.wal_bytes_max <= limit, "the WAL grew beyond its limit");
        round.note = (self.sleepers > 0).then(|| beds.note());
        Ok(Outcome { round, warmed })
    }
}

impl WritesBesideSleepers {
    fn put_to_sleep(
        &self,
        db: &Database,
        runtime: &Runtime,
        beds: &Arc<Beds>,
    ) -> Result<JoinSet<Result<()>>> {
        let mut asleep = JoinSet::new();
        for number in 0..self.sleepers {
            let id = ((self.accounts / 2 + number) % self.accounts) as i64;
            let sleeper = Sleeper { db: db.clone(), beds: Arc::clone(beds), id };
            let offset = SLEEP.mul_f64(number as f64 / self.sleepers as f64);
            asleep.spawn_on(sleeper.sleep(offset), runtime.handle());
        }
        while beds.begun.load(Ordering::Relaxed) < self.sleepers {
            if let Some(ended) = asleep.try_join_next() {
                ended??;
            }
            thread::sleep(LOOK);
        }
        Ok(asleep)
    }
}

/// What the sleepers went through.
#[derive(Debug, Default)]
struct Beds {
    begun: AtomicU64,
    woken: AtomicU64,
    conflicts: AtomicU64,
    timeouts: AtomicU64,
}

impl Beds {
    fn renewals(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed) + self.timeouts.load(Ordering::Relaxed)
    }

    fn note(&self) -> String {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        format!(
            "{} statements of sleepers; {} of their transactions ended in a conflict, {} by their \
             time limit",
            count(&self.woken),
            count(&self.conflicts),
            count(&self.timeouts)
        )
    }
}

struct Sleeper {
    db: Database,
    beds: Arc<Beds>,
    id: i64,
}

impl Sleeper {
    /// Sleeps and wakes for ever.
    async fn sleep(self, offset: Duration) -> Result<()> {
        let mut tx = self.begin().await?;
        self.beds.begun.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(offset).await;
        loop {
            match balance(&tx, self.id).await {
                Ok(_) => drop(self.beds.woken.fetch_add(1, Ordering::Relaxed)),
                Err(error) => {
                    let counter = match error.kind() {
                        ErrorKind::Conflict => &self.beds.conflicts,
                        ErrorKind::Timeout => &self.beds.timeouts,
                        _ => return Err(error).context("a sleeper's statement failed"),
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    tx = self.begin().await?;
                }
            }
            tokio::time::sleep(SLEEP).await;
        }
    }

    /// Begins again after a conflict, as on a machine that is busy with other work.
    async fn begin(&self) -> Result<Transaction> {
        loop {
            let tx = self.db.transaction()?;
            match withdraw(&tx, self.id).await {
                Ok(changed) => {
                    ensure!(changed == 1, "there is no account {}", self.id);
                    return Ok(tx);
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.beds.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn withdraw(tx: &Transaction, id: i64) -> Result<usize, monolite::Error> {
    balance(tx, id).await?;
    tx.execute(WITHDRAW_SQL, (1_i64, id)).await
}

async fn balance(tx: &Transaction, id: i64) -> Result<i64, monolite::Error> {
    tx.query_row(BALANCE_SQL, [id], |row| row.get(0)).await
}
