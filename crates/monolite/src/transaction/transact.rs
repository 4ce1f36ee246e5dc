//! Owns the retries of an interactive transaction: until it commits, or fails for a reason of its
//! own.
//!
//! # Algorithm
//! 1. Run the closure on a new transaction, and commit it.
//! 2. After a conflict, rest for a random time that grows with the attempts, and do it again.
//! 3. After as many attempts as the options allow, take an exclusive turn in the writer: the
//!    closure runs alone, so nothing can conflict with it.
//!
//! The rest is "full jitter" (Brooker, Exponential Backoff And Jitter, 2015): evenly distributed
//! between nothing and a bound that doubles each time, so that transactions which met once do not
//! meet again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_timer::Delay;

use super::Transaction;
use super::open::{Open, Transactions};
use super::turn::ExclusiveTurn;
use crate::call::completion::with_thread_waker;
use crate::call::inside::{Inside, Place};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};

/// Bound of the first rest: a few times what a commit takes.
const FIRST_REST: Duration = Duration::from_micros(500);

/// Bound of the longest rest: longer waits delay the transaction more than another conflict would.
const MAX_REST: Duration = Duration::from_millis(20);

/// The attempts of one transaction.
struct Attempts<'e> {
    engine: &'e Arc<Transactions>,
    number: u32,
}

/// What follows an attempt.
enum Next<T, E> {
    Finished(Result<T, E>),
    AfterRest(Duration),
}

/// An attempt that is over when this is dropped, whoever still has its transaction.
struct Ended(Arc<Open>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.roll_back();
    }
}

impl Attempts<'_> {
    fn is_last(&self) -> bool {
        self.number > self.engine.limits.transaction_attempts
    }

    /// Begins the next attempt.
    async fn begin(&mut self) -> Result<Arc<Open>> {
        self.number += 1;
        let turn = if self.is_last() {
            let limit = self.engine.limits.exclusive_time_limit;
            Some(ExclusiveTurn::take(&self.engine.writes, limit).await?)
        } else {
            None
        };
        Open::begin_managed(self.engine, turn)
    }

    /// Says, while what this returns is there, that this thread is in the closure of a transaction
    /// which has the writer to itself, if it has.
    fn enter(&self) -> Option<Inside> {
        self.is_last().then(|| Inside::enter(self.engine.writes.database(), Place::Exclusive))
    }

    /// Decides after `result` of the closure, or of the commit that followed it.
    fn judge<T, E: From<Error>>(&self, open: &Open, result: Result<T, E>) -> Next<T, E> {
        let conflicted = open.over() == Some(ErrorKind::Conflict);
        if result.is_err() && conflicted && !self.is_last() {
            return Next::AfterRest(rest(self.number));
        }
        Next::Finished(result)
    }
}

/// Runs `body` until it commits, see [`Database::transact`](crate::Database::transact).
pub(crate) async fn transact<T, E, F, Fut>(engine: &Arc<Transactions>, mut body: F) -> Result<T, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    let mut attempts = Attempts { engine, number: 0 };
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
            Ok(value) => open.commit(None).await.map(|_| value).map_err(|error| {
                open.note_end(&error);
                E::from(error)
            }),
            failed => failed,
        };
        match attempts.judge(open, result) {
            Next::Finished(result) => return result,
            Next::AfterRest(time) => {
                engine.recorder.transaction_retries.add(1);
                drop(attempt);
                Delay::new(time).await;
            }
        }
    }
}

/// As [`transact`], on this thread.
pub(crate) fn transact_blocking<T, E, F>(engine: &Arc<Transactions>, mut body: F) -> Result<T, E>
where
    F: FnMut(&Transaction) -> Result<T, E>,
    E: From<Error>,
{
    let mut attempts = Attempts { engine, number: 0 };
    loop {
        let attempt = Ended(block_on(attempts.begin())?);
        let open = &attempt.0;
        let transaction = Transaction::managed(Arc::clone(open), attempts.number);
        let result = {
            let _inside = attempts.enter();
            body(&transaction)
        };
        let result = match result {
            Ok(value) => open.commit(None).wait().map(|_| value).map_err(|error| {
                open.note_end(&error);
                E::from(error)
            }),
            failed => failed,
        };
        match attempts.judge(open, result) {
            Next::Finished(result) => return result,
            Next::AfterRest(time) => {
                engine.recorder.transaction_retries.add(1);
                drop(attempt);
                clock::rest(time);
            }
        }
    }
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

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    with_thread_waker(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    })
}
