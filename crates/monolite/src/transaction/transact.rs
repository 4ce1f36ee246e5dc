//! Owns the retries of an interactive transaction: until it commits, or fails for a reason of its
//! own.
//!
//! # Algorithm
//! 1. Run the closure on a new transaction, and commit it.
//! 2. After a conflict, do it again: when it is the transaction's turn among those with which it
//!    collides ([`super::contention`]), or, where none are known, after a random rest.
//! 3. The latest third of as many attempts as the options allow goes before all others, and is
//!    alone in its family: only writes of other kinds can still be in its way.
//! 4. If they were, all the same, and the closure has been quick enough, take an exclusive turn in
//!    the writer: the closure runs alone, so nothing can conflict with it. Otherwise it ends with
//!    the conflict: the writer is not held for somebody who would be out of time there.
//!
//! The rest is "full jitter" (Brooker, Exponential Backoff And Jitter, 2015): evenly distributed
//! between nothing and a bound that doubles each time, so that transactions which met once do not
//! meet again.

use std::any::type_name;
use std::cmp::Ordering;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_timer::Delay;

use super::Transaction;
use super::contention::schedule::Manner;
use super::contention::{InClosure, Visit};
use super::keys::{Committed, Key};
use super::open::{Open, Transactions};
use super::steps::fingerprint;
use super::turn::ExclusiveTurn;
use crate::call::blocked::block_on;
use crate::call::inside::{Inside, Place};
use crate::error::{Error, ErrorKind, Result};

/// Bound of the first rest: a few times what a commit takes.
const FIRST_REST: Duration = Duration::from_micros(500);

/// Bound of the longest rest: longer waits delay the transaction more than another conflict would.
const MAX_REST: Duration = Duration::from_millis(20);

/// The last attempts are this part of all.
const LAST_PART: u32 = 3;

/// The attempts of one transaction.
pub(crate) struct Attempts<'e> {
    engine: &'e Arc<Transactions>,
    number: u32,
    /// The latest one, among those with which the transaction collides.
    visit: Arc<Visit>,
    /// How long its closure took.
    took: Duration,
}

/// What follows an attempt.
enum Next<T, E> {
    Finished(Result<T, E>),
    Again,
}

/// An attempt that is over when this is dropped, whoever still has its transaction.
struct Ended(Arc<Open>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.roll_back();
    }
}

impl<'e> Attempts<'e> {
    /// `F` is the application's closure, and stands for all transactions that do the same.
    pub(crate) fn of<F>(engine: &'e Arc<Transactions>) -> Attempts<'e> {
        let family = fingerprint(type_name::<F>());
        let visit = Visit::new(&engine.contention, Some(family));
        Attempts { engine, number: 0, visit, took: Duration::ZERO }
    }

    /// Whether this attempt has the writer to itself.
    fn is_exclusive(&self) -> bool {
        self.number > self.engine.limits.transaction_attempts
    }

    fn manner(&self) -> Manner {
        let most = self.engine.limits.transaction_attempts;
        if self.number > most - most / LAST_PART { Manner::Alone } else { Manner::Beside }
    }

    /// Whether another attempt may follow this one.
    fn may_follow(&self) -> bool {
        let limits = &self.engine.limits;
        match self.number.cmp(&limits.transaction_attempts) {
            Ordering::Less => true,
            Ordering::Equal => self.took < limits.exclusive_time_limit,
            Ordering::Greater => false,
        }
    }

    /// Begins the next attempt, when it is its turn among those with which it collides.
    async fn begin(&mut self) -> Result<Arc<Open>> {
        self.engine.database.check_process()?;
        self.number += 1;
        if self.number > 1 {
            self.visit = self.visit.again(self.manner());
        }
        let turn = if self.is_exclusive() {
            let limit = self.engine.limits.exclusive_time_limit;
            Some(ExclusiveTurn::take(&self.engine.writes, limit).await?)
        } else {
            self.wait().await;
            None
        };
        Open::begin_managed(self.engine, Arc::clone(&self.visit), turn)
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

    /// Says, while what this returns is there, that this thread is in the closure of a transaction,
    /// and of one which has the writer to itself, if it has.
    fn enter(&self) -> (InClosure, Option<Inside>) {
        let database = self.engine.writes.database();
        let inside = self.is_exclusive().then(|| Inside::enter(database, Place::Exclusive));
        (InClosure::enter(database), inside)
    }

    /// Decides after `result` of the closure, or of the commit that followed it.
    fn judge<T, E>(&self, open: &Open, result: Result<T, E>) -> Next<T, E> {
        let conflicted = open.over() == Some(ErrorKind::Conflict);
        if result.is_err() && conflicted && self.may_follow() {
            self.engine.recorder.transaction_retries.add(1);
            return Next::Again;
        }
        Next::Finished(result)
    }
}

/// What the transaction is committed with.
pub(crate) trait Commits<T> {
    /// The key that it must not have been committed with before.
    fn key(&self) -> Option<&str>;
    /// What is committed with the value of the closure.
    fn key_with(&self, value: &T) -> Option<Key>;
}

/// No key.
struct Plain;

impl<T> Commits<T> for Plain {
    fn key(&self) -> Option<&str> {
        None
    }

    fn key_with(&self, _: &T) -> Option<Key> {
        None
    }
}

/// A key, with the outcome that the closure gives beside its value.
pub(crate) struct Once(pub(crate) Key);

impl<T> Commits<(T, Vec<u8>)> for Once {
    fn key(&self) -> Option<&str> {
        Some(&self.0.text)
    }

    fn key_with(&self, (_, outcome): &(T, Vec<u8>)) -> Option<Key> {
        Some(Key { outcome: outcome.clone(), ..self.0.clone() })
    }
}

/// What came of it all.
pub(crate) enum Transacted<T> {
    Now(T),
    /// A transaction with the key had this outcome before.
    Before(Vec<u8>),
}

impl<T> Transacted<T> {
    fn of(committed: Committed, value: T) -> Transacted<T> {
        match committed.is_repeated {
            true => Transacted::Before(committed.outcome),
            false => Transacted::Now(value),
        }
    }

    fn expect_now(self) -> T {
        match self {
            Transacted::Now(value) => value,
            Transacted::Before(_) => unreachable!("a commit without a key is not repeated"),
        }
    }
}

/// Runs `body` until it commits, see [`Database::transact`](crate::Database::transact).
pub(crate) async fn transact<T, E, F, Fut>(engine: &Arc<Transactions>, body: F) -> Result<T, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    transact_with(Attempts::of::<F>(engine), body, Plain).await.map(Transacted::expect_now)
}

/// As [`transact`], and commits with what `commits` says.
pub(crate) async fn transact_with<T, E, F, Fut>(
    mut attempts: Attempts<'_>,
    mut body: F,
    commits: impl Commits<T>,
) -> Result<Transacted<T>, E>
where
    F: FnMut(Transaction) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    loop {
        let attempt = Ended(attempts.begin().await?);
        let open = &attempt.0;
        if let Some(outcome) = commits.key().map_or(Ok(None), |key| open.outcome_in_turn(key))? {
            return Ok(Transacted::Before(outcome));
        }
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
        attempts.took = attempts.visit.took();
        let result = match result {
            Ok(value) => match open.commit(commits.key_with(&value)).await {
                Ok(committed) => Ok(Transacted::of(committed, value)),
                Err(error) => Err(not_committed(open, error)),
            },
            Err(error) => Err(error),
        };
        if let Next::Finished(result) = attempts.judge(open, result) {
            return result;
        }
    }
}

/// As [`transact`], on this thread.
pub(crate) fn transact_blocking<T, E, F>(engine: &Arc<Transactions>, body: F) -> Result<T, E>
where
    F: FnMut(&Transaction) -> Result<T, E>,
    E: From<Error>,
{
    transact_blocking_with(Attempts::of::<F>(engine), body, Plain).map(Transacted::expect_now)
}

/// As [`transact_with`], on this thread.
pub(crate) fn transact_blocking_with<T, E, F>(
    mut attempts: Attempts<'_>,
    mut body: F,
    commits: impl Commits<T>,
) -> Result<Transacted<T>, E>
where
    F: FnMut(&Transaction) -> Result<T, E>,
    E: From<Error>,
{
    loop {
        let attempt = Ended(block_on(attempts.begin())?);
        let open = &attempt.0;
        if let Some(outcome) = commits.key().map_or(Ok(None), |key| open.outcome_in_turn(key))? {
            return Ok(Transacted::Before(outcome));
        }
        let transaction = Transaction::managed(Arc::clone(open), attempts.number);
        let result = {
            let _inside = attempts.enter();
            body(&transaction)
        };
        attempts.took = attempts.visit.took();
        let result = match result {
            Ok(value) => match open.commit(commits.key_with(&value)).wait() {
                Ok(committed) => Ok(Transacted::of(committed, value)),
                Err(error) => Err(not_committed(open, error)),
            },
            Err(error) => Err(error),
        };
        if let Next::Finished(result) = attempts.judge(open, result) {
            return result;
        }
    }
}

fn not_committed<E: From<Error>>(open: &Open, error: Error) -> E {
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
