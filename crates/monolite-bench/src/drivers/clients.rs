//! Many clients, each a task that begins its next transaction when the one before is acknowledged.

use super::{Goal, Part};
use crate::progress::Interrupt;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// What transactions have changed, as the application knows it, and as the database shows it.
pub type Sums = [i64; 4];

/// Adds what another transaction has changed.
pub fn add(sums: &mut Sums, other: Sums) {
    sums.iter_mut().zip(other).for_each(|(sum, change)| *sum += change);
}

/// Which transaction it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ticket {
    /// Its number in the round, the warm-up included.
    pub index: u64,
    /// The round's.
    pub seed: u64,
}

impl Ticket {
    /// Random numbers that are this transaction's own.
    pub fn random(self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed)
    }
}

/// How a client's transaction ended.
#[derive(Debug)]
pub struct Ended {
    /// What it changed; none of one that was given up when the round was over.
    pub sums: Option<Sums>,
    /// Attempts that were repeated.
    pub repeated: u64,
}

impl Ended {
    /// It was acknowledged, after so many attempts that were repeated.
    pub fn acknowledged(repeated: u64) -> Ended {
        Ended { sums: Some(Sums::default()), repeated }
    }
}

/// One of many clients.
pub trait Client: Send + 'static {
    /// Runs a transaction until it is acknowledged.
    fn transact(
        &mut self,
        ticket: Ticket,
        goal: &Goal,
    ) -> impl Future<Output = Result<Ended>> + Send;
}

/// What clients have done together.
#[derive(Debug, Default)]
pub struct Done {
    pub sums: Sums,
    pub parts: Vec<Part>,
    /// Transactions that were given up when the round was over.
    pub given_up: u64,
}

/// Has the clients work until the round is over; their transactions are numbered from `first`.
pub async fn drive<C: Client>(
    clients: Vec<C>,
    goal: Goal,
    first: Ticket,
    interrupt: &Interrupt,
) -> Result<Done> {
    let next = Arc::new(AtomicU64::new(0));
    let work = |mut client: C| {
        let (next, interrupt) = (Arc::clone(&next), interrupt.clone());
        tokio::spawn(async move {
            let (mut sums, mut part, mut given_up) = (Sums::default(), Part::default(), 0);
            while let Some(index) = goal.take(&next) {
                interrupt.check()?;
                let start = Instant::now();
                let ticket = Ticket { index: first.index + index, seed: first.seed };
                let ended = client.transact(ticket, &goal).await?;
                part.retries += ended.repeated;
                match ended.sums {
                    Some(changed) => {
                        part.acknowledged(start);
                        add(&mut sums, changed);
                    }
                    None => given_up += 1,
                }
            }
            Ok::<_, anyhow::Error>((sums, part, given_up))
        })
    };
    let tasks: Vec<_> = clients.into_iter().map(work).collect();
    let mut done = Done::default();
    for task in tasks {
        let (sums, part, given_up) = task.await??;
        add(&mut done.sums, sums);
        done.parts.push(part);
        done.given_up += given_up;
    }
    Ok(done)
}
