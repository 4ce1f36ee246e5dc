//! The interactive transactions of the handle.

use std::future::Future;

use super::{Database, NO_WAIT};
use crate::error::{Error, Result};
use crate::transaction::{
    Attempts, Key, Once as CommittedOnce, Open, Transacted, TransactedOnce, Transaction, transact,
    transact_blocking, transact_blocking_with, transact_with,
};

impl<E> Database<E> {
    /// Begins an interactive transaction: it may live across awaits and threads, and holds no lock.
    /// Nothing happens before its first statement.
    ///
    /// A commit may fail with `Conflict`; [`Database::transact`] runs the transaction again then.
    /// One that you run again yourself takes its turn among those with which it collides, too: its
    /// statements may wait for theirs.
    ///
    /// # Errors
    /// `Overloaded` when as many are open as the option `max_transactions` allows.
    pub fn transaction(&self) -> Result<Transaction> {
        Ok(Transaction::new(Open::begin(&self.handle.transactions)?))
    }

    /// Runs `body` as an interactive transaction and commits it: the closure may await anything, a
    /// slow service included, and no other call waits for it.
    ///
    /// When its transaction conflicts with another one, `body` is run again, as soon as it is its
    /// turn among those that collide (`docs/guides/interactive-transactions.md`). It ends with
    /// `Conflict` when plain writes have changed what it reads in as many attempts as the option
    /// `transaction_attempts` allows. It never holds the writer. It should change nothing but the
    /// database. The transaction is rolled back when `body` returns an error.
    ///
    /// # Cancellation
    /// Dropping the future rolls the transaction back, unless the commit has been handed to the
    /// writer.
    ///
    /// # Durability
    /// As that of [`Database::write`].
    ///
    /// # Errors
    /// The closure's own; or, converted from [`Error`], those of
    /// [`Transaction::commit`](crate::Transaction::commit); `Conflict` only after all attempts.
    pub async fn transact<T, F, Fut>(&self, body: F) -> Result<T, E>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>, // errors of your own: `with_error`
        E: From<Error>,
    {
        transact(&self.handle.transactions, body).await
    }

    /// As [`Database::transact`], on the calling thread.
    ///
    /// # Errors
    /// As [`Database::transact`]; `Invalid` when called from inside of a write closure.
    pub fn transact_blocking<T, F>(&self, body: F) -> Result<T, E>
    where
        F: FnMut(&Transaction) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        transact_blocking(&self.handle.transactions, body)
    }

    /// As [`Database::transact`], at most once for a key: retries, and an answer to whoever asks
    /// again because the first answer was lost.
    ///
    /// When a transaction with `key` was committed before, `body` is not run, nothing is changed,
    /// and the outcome is given that the first one stored. Otherwise `body` gives, beside its
    /// value, the outcome to store: bytes, a text, or any value by `to_outcome` (feature `serde`);
    /// both are committed together. So it can be called again after
    /// [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown), or by a client that has lost
    /// its connection. The key is that of [`Transaction::commit_once`].
    ///
    /// What `body` does outside of the database happens as often as `body` runs: in
    /// `docs/guides/interactive-transactions.md` there is a pattern that calls a service once.
    ///
    /// # Cancellation
    /// As that of [`Database::transact`]. Call it again with the same key to learn what came of it.
    ///
    /// # Durability
    /// As that of [`Database::write`], also of an outcome that was stored before.
    ///
    /// # Errors
    /// As [`Database::transact`]; `Invalid` for a key that is empty or too long.
    pub async fn transact_once<T, O, F, Fut>(
        &self,
        key: impl Into<String>,
        mut body: F,
    ) -> Result<TransactedOnce<T>, E>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<(T, O), E>>, // errors of your own: `with_error`
        O: Into<Vec<u8>>,
        E: From<Error>,
    {
        let key = self.key(key.into())?;
        let plain = self.with_error::<Error>();
        let known = |wait| {
            let text = key.text.clone();
            plain.read_as_written(wait, move |tx| tx.outcome_of(&text))
        };
        if let Some(outcome) = known(self.handle.time_limit).await? {
            return Ok(TransactedOnce::Before { outcome });
        }
        let body = move |tx| {
            let running = body(tx);
            async move {
                let (value, outcome) = running.await?;
                Ok((value, outcome.into()))
            }
        };
        let attempts = Attempts::of::<F>(&self.handle.transactions);
        match transact_with(attempts, body, CommittedOnce(key.clone())).await {
            Ok(transacted) => Ok(once_done(transacted)),
            // The first one may have been on its way.
            Err(error) => match known(NO_WAIT).await {
                Ok(Some(outcome)) => Ok(TransactedOnce::Before { outcome }),
                Ok(None) | Err(_) => Err(error),
            },
        }
    }

    /// As [`Database::transact_once`], on the calling thread.
    ///
    /// # Errors
    /// As [`Database::transact_once`]; `Invalid` when called from inside of a write closure.
    pub fn transact_once_blocking<T, O, F>(
        &self,
        key: impl Into<String>,
        mut body: F,
    ) -> Result<TransactedOnce<T>, E>
    where
        F: FnMut(&Transaction) -> Result<(T, O), E>, // errors of your own: `with_error`
        O: Into<Vec<u8>>,
        E: From<Error>,
    {
        let key = self.key(key.into())?;
        let plain = self.with_error::<Error>();
        let known = |wait| plain.read_as_written(wait, |tx| tx.outcome_of(&key.text)).wait();
        if let Some(outcome) = known(self.handle.time_limit)? {
            return Ok(TransactedOnce::Before { outcome });
        }
        let body = move |tx: &Transaction| body(tx).map(|(value, outcome)| (value, outcome.into()));
        let attempts = Attempts::of::<F>(&self.handle.transactions);
        match transact_blocking_with(attempts, body, CommittedOnce(key.clone())) {
            Ok(transacted) => Ok(once_done(transacted)),
            Err(error) => match known(NO_WAIT) {
                Ok(Some(outcome)) => Ok(TransactedOnce::Before { outcome }),
                Ok(None) | Err(_) => Err(error),
            },
        }
    }

    fn key(&self, text: String) -> Result<Key> {
        let lifetime = self.handle.transactions.limits.idempotency_lifetime;
        let key = Key { text, outcome: Vec::new(), lifetime };
        key.check().map(|()| key)
    }
}

fn once_done<T>(transacted: Transacted<(T, Vec<u8>)>) -> TransactedOnce<T> {
    match transacted {
        Transacted::Now((value, outcome)) => TransactedOnce::Now { value, outcome },
        Transacted::Before(outcome) => TransactedOnce::Before { outcome },
    }
}
