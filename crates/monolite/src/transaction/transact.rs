//! Owns the retries of an interactive transaction, and their handle: until it commits, or fails for
//! a reason of its own.
//!
//! # Algorithm
//! 1. Run the closure on a new transaction, and commit it.
//! 2. After a conflict, do it again: when it is the transaction's turn among those with which it
//!    collides ([`super::contention`]), or, where none are known, after a random rest.
//! 3. The latest third of as many attempts as the options allow goes before all others, and is
//!    alone in its family: only writes of other kinds can still be in its way.
//! 4. If they were, all the same, it ends with the conflict. It never holds the writer.
//!
//! The rest is "full jitter" (Brooker, Exponential Backoff And Jitter, 2015): evenly distributed
//! between nothing and a bound that doubles each time, so that transactions which met once do not
//! meet again.

use std::any::type_name;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_timer::Delay;

use super::Transaction;
use super::contention::schedule::Manner;
use super::contention::{InClosure, Visit};
use super::keys::{Committed, Key};
use super::open::{OpenTransaction, Transactions};
use super::steps::fingerprint;
use crate::activity::Caller;
use crate::call::blocked::block_on_here;
use crate::error::{Error, ErrorKind, Result};
use crate::stats::names;

/// Bound of the first rest: a few times what a commit takes.
const FIRST_REST: Duration = Duration::from_micros(500);

/// Bound of the longest rest: longer waits delay the transaction more than another conflict would.
const MAX_REST: Duration = Duration::from_millis(20);

/// The last attempts are this part of all.
const LAST_PART: u32 = 3;

/// The attempts of one transaction.
pub(crate) struct Attempts<'e> {
    engine: &'e Arc<Transactions>,
    caller: Caller,
    number: u32,
    /// The latest one, among those with which the transaction collides.
    visit: Arc<Visit>,
}

/// What follows an attempt.
enum Next<T, E> {
    Finished(Result<T, E>),
    Again,
}

/// An attempt that is over when this is dropped, even if its transaction lives on elsewhere.
struct Ended(Arc<OpenTransaction>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.roll_back();
    }
}

impl<'e> Attempts<'e> {
    /// `F` is the application's closure, and stands for all transactions that do the same.
    pub(crate) fn of<F>(engine: &'e Arc<Transactions>, caller: Caller) -> Attempts<'e> {
        let family = fingerprint(type_name::<F>());
        let visit = Visit::new(&engine.contention, Some(family));
        Attempts { engine, caller, number: 0, visit }
    }

    fn manner(&self) -> Manner {
        let most = self.engine.limits.attempts;
        if self.number > most - most / LAST_PART { Manner::Alone } else { Manner::Beside }
    }

    /// Begins the next attempt, when it is its turn among those with which it collides.
    async fn begin(&mut self) -> Result<Arc<OpenTransaction>> {
        self.engine.database.check_process()?;
        self.number += 1;
        if self.number > 1 {
            self.visit = self.visit.again(self.manner());
        }
        self.wait().await;
        OpenTransaction::begin_as(self.engine, self.caller, Arc::clone(&self.visit))
    }

    async fn wait(&self) {
        if self.engine.database.has_writer() {
            return;
        }
        let spots = self.visit.spots_before();
        if self.number > 1 && spots.is_empty() {
            Delay::new(rest(self.number - 1)).await;
        }
        Arc::clone(&self.visit).pass(spots).await;
    }

    /// Says, while what this returns is there, that this thread is in the closure of a transaction.
    fn enter(&self) -> InClosure {
        InClosure::enter(self.engine.writes.database())
    }

    /// Decides after `result` of the closure, or of the commit that followed it.
    fn judge<T, E>(&self, open: &OpenTransaction, result: Result<T, E>) -> Next<T, E> {
        let conflicted = open.over() == Some(ErrorKind::Conflict);
        let may_follow = self.number < self.engine.limits.attempts;
        if result.is_err() && conflicted && may_follow {
            self.engine.recorder.transaction_retries.add(1);
            names::of(self.caller).into_iter().for_each(|named| named.retries.add(1));
            return Next::Again;
        }
        Next::Finished(result)
    }
}

/// An interactive transaction that has not begun yet, from
/// [`Database::transact`](crate::Database::transact) or
/// [`Database::transact_once`](crate::Database::transact_once): a [`Future`] of its result, which
/// can also be waited for. It does nothing until then.
///
/// # Cancellation
/// Dropping it rolls the transaction back, unless the commit has been handed to the writer.
///
/// ```
/// # fn main() -> monolite::Result<()> {
/// # let db = monolite::Database::open(":memory:")?;
/// # db.write(|tx| tx.execute("CREATE TABLE t(x)", ())).wait()?;
/// // On this thread.
/// db.transact(async |tx| tx.execute("INSERT INTO t VALUES (1)", ()).await).wait()?;
/// // Or awaited.
/// let add = db.transact(async |tx| tx.execute("INSERT INTO t VALUES (2)", ()).await);
/// smol::block_on(add)?;
/// # db.close()
/// # }
/// ```
#[must_use = "a transaction does nothing until it is waited for or awaited"]
pub struct Transact<Fut> {
    running: Pin<Box<Fut>>,
}

impl<Fut: Future> Transact<Fut> {
    pub(crate) fn new(running: Fut) -> Transact<Fut> {
        Transact { running: Box::pin(running) }
    }

    /// Runs the closure on the calling thread until its transaction is committed, and returns the
    /// result. Its statements run on this thread, too, whether they are waited for or awaited.
    ///
    /// # Errors
    /// Those of [`Database::transact`](crate::Database::transact) or
    /// [`Database::transact_once`](crate::Database::transact_once); `Invalid` inside of a write
    /// closure of the same database.
    ///
    /// # Panics
    /// With the closure's panic.
    pub fn wait(self) -> Fut::Output {
        block_on_here(self.running)
    }
}

impl<Fut: Future> Future for Transact<Fut> {
    type Output = Fut::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fut::Output> {
        self.running.as_mut().poll(context)
    }
}

impl<Fut> fmt::Debug for Transact<Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transact").finish_non_exhaustive()
    }
}

/// Runs `body` until it commits, see [`Database::transact`](crate::Database::transact). With a
/// `key`, what `body` gives beside its value is stored as the outcome.
pub(crate) async fn transact<T, E, F, Fut>(
    mut attempts: Attempts<'_>,
    mut body: F,
    key: Option<Key>,
) -> Result<Committed<T>, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<(T, Vec<u8>), E>>,
    E: From<Error>,
{
    loop {
        let attempt = Ended(attempts.begin().await?);
        let open = &attempt.0;
        let transaction = Transaction::managed(Arc::clone(open), attempts.number);
        let result = {
            let mut running = pin!({
                let _inside = attempts.enter();
                body(transaction)
            });
            let poll = poll_fn(|context| {
                let _inside = attempts.enter();
                running.as_mut().poll(context)
            });
            poll.await
        };
        let result = match result {
            Ok((value, outcome)) => {
                let key = key.as_ref().map(|key| Key { outcome, ..key.clone() });
                let committed = open.commit(key).await;
                committed.map(|it| it.with(value)).map_err(|error| not_committed(open, error))
            }
            Err(error) => Err(error),
        };
        if let Next::Finished(result) = attempts.judge(open, result) {
            return result;
        }
    }
}

fn not_committed<E: From<Error>>(open: &OpenTransaction, error: Error) -> E {
    open.note_end(&error);
    E::from(error)
}

fn rest(attempt: u32) -> Duration {
    let bound = FIRST_REST.saturating_mul(1 << attempt.min(16)).min(MAX_REST);
    bound.mul_f64(random_part())
}

/// A number from 0 to 1.
fn random_part() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}
