//! What handles have for interactive transactions and idempotency keys.

use std::future::Future;
use std::time::Duration;

use super::{Database, Handle, NO_WAIT};
use crate::activity::{CallKind, Caller};
use crate::call::write::Write;
use crate::error::{Error, Result};
use crate::read::handle::{Answer, Read};
use crate::transaction::{
    Attempts, Committed, Key, OpenTransaction, Transact, Transaction, transact,
};
use crate::tx::{ReadTx, Tx};

impl<E> Database<E> {
    /// Begins an interactive transaction: it may live across awaits and threads, and holds no lock.
    /// Nothing happens before its first statement.
    ///
    /// A commit may fail with `Conflict`; [`Database::transact`] runs the transaction again then.
    /// One that you run again yourself takes its turn among those with which it collides, too: its
    /// statements may wait for theirs.
    ///
    /// # Errors
    /// `Overloaded` when as many are open as `InteractiveOptions::max_open` allows.
    #[track_caller]
    pub fn transaction(&self) -> Result<Transaction> {
        let caller = self.caller(CallKind::Statement);
        Ok(Transaction::new(OpenTransaction::begin(&self.handle.transactions, caller)?))
    }

    /// Runs `body` as an interactive transaction and commits it: the closure may await anything, a
    /// slow service included, and no other call waits for it. Nothing happens before the handle is
    /// awaited or waited for ([`Transact::wait`]).
    ///
    /// When its transaction conflicts with another one, `body` is run again, as soon as it is its
    /// turn among those that collide (`docs/guides/interactive-transactions.md`). It ends with
    /// `Conflict` when plain writes have changed what it reads in as many attempts as
    /// `InteractiveOptions::attempts` allows. It never holds the writer. It should change nothing
    /// but the database. The transaction is rolled back when `body` returns an error.
    ///
    /// # Cancellation
    /// Dropping the handle rolls the transaction back, unless the commit has been handed to the
    /// writer.
    ///
    /// # Durability
    /// As that of [`Database::write`].
    ///
    /// # Errors
    /// The closure's own; or, converted from [`Error`], those of
    /// [`Transaction::commit`](crate::Transaction::commit); `Conflict` only after all attempts.
    #[track_caller]
    pub fn transact<T, F, Fut>(&self, mut body: F) -> Transact<impl Future<Output = Result<T, E>>>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<T, E>>, // errors of your own: `with_error`
        E: From<Error>,
    {
        let body = move |tx| {
            let running = body(tx);
            async move { running.await.map(|value| (value, Vec::new())) }
        };
        let attempts =
            Attempts::of::<F>(&self.handle.transactions, self.caller(CallKind::Statement));
        Transact::new(async move {
            match transact(attempts, body, None).await? {
                Committed::Now { value, .. } => Ok(value),
                Committed::Before { .. } => unreachable!("a commit without a key is not repeated"),
            }
        })
    }

    /// As [`Database::transact`], at most once for a key: retries, and repeats the answer for a
    /// caller that lost the first one.
    ///
    /// When a transaction with `key` was committed before, `body` is not run, nothing is changed,
    /// and the outcome is given that the first one stored. Otherwise `body` gives, beside its
    /// value, the outcome to store: bytes, a text, or any value by `to_outcome` (feature `serde`);
    /// both are committed together. So it can be called again after
    /// [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown), or by a client that has lost
    /// its connection. The key is that of [`Transaction::commit_once`].
    ///
    /// What `body` does outside of the database happens as often as `body` runs: in
    /// `docs/guides/requests-sent-twice.md` there is a pattern that calls a service once.
    ///
    /// # Cancellation
    /// As that of [`Database::transact`]. Call it again with the same key to learn what came of it.
    ///
    /// # Durability
    /// As that of [`Database::write`], also of an outcome that was stored before.
    ///
    /// # Errors
    /// As [`Database::transact`]; `Invalid` for a key that is empty or too long.
    #[track_caller]
    pub fn transact_once<T, O, F, Fut>(
        &self,
        key: impl Into<String>,
        mut body: F,
    ) -> Transact<impl Future<Output = Result<Committed<T>, E>>>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<(T, O), E>>, // errors of your own: `with_error`
        O: Into<Vec<u8>>,
        E: From<Error>,
    {
        let key = self.key(key.into());
        let body = move |tx| {
            let running = body(tx);
            async move { running.await.map(|(value, outcome)| (value, outcome.into())) }
        };
        let caller = self.caller(CallKind::Statement);
        let attempts = Attempts::of::<F>(&self.handle.transactions, caller);
        let plain = self.with_error::<Error>();
        Transact::new(async move {
            key.check()?;
            let known = |wait| {
                let text = key.text.clone();
                plain.read_kept(caller.of(CallKind::Read), wait, move |tx| tx.outcome_of(&text))
            };
            if let Some(outcome) = known(plain.handle.time_limit).await? {
                return Ok(Committed::Before { outcome });
            }
            match transact(attempts, body, Some(key.clone())).await {
                Ok(committed) => Ok(committed),
                // The first one may have been on its way.
                Err(error) => match known(NO_WAIT).await {
                    Ok(Some(outcome)) => Ok(Committed::Before { outcome }),
                    Ok(None) | Err(_) => Err(error),
                },
            }
        })
    }

    /// As [`Database::write`], at most once for a key, which is that of
    /// [`Transaction::commit_once`]: when a transaction with `key` was committed before, `body` is
    /// not run, nothing is changed, and the outcome is given that the first one stored. Otherwise
    /// `body` gives, beside its value, the outcome to store, as in [`Database::transact_once`].
    ///
    /// ```
    /// # fn main() -> monolite::Result<()> {
    /// # let db = monolite::Database::open(":memory:")?;
    /// # db.write(|tx| tx.execute("CREATE TABLE payment(id INTEGER PRIMARY KEY)", ())).wait()?;
    /// let pay = || {
    ///     db.write_keyed("request-4711", |tx| {
    ///         tx.execute("INSERT INTO payment DEFAULT VALUES", ())?;
    ///         Ok(((), format!("payment {}", tx.last_insert_rowid())))
    ///     })
    ///     .wait()
    /// };
    /// assert!(!pay()?.is_repeated());
    /// assert_eq!(pay()?.outcome(), b"payment 1");
    /// # db.close()
    /// # }
    /// ```
    ///
    /// # Durability
    /// As that of [`Database::write`], also of an outcome that was stored before.
    ///
    /// # Errors
    /// See [`Write::wait`]; `Invalid` for a key that is empty or too long.
    #[track_caller]
    pub fn write_keyed<T, O, F>(
        &self,
        key: impl Into<String>,
        mut body: F,
    ) -> Write<Committed<T>, E>
    where
        F: FnMut(&Tx<'_>) -> Result<(T, O), E> + Send + 'static, // errors of your own: `with_error`
        O: Into<Vec<u8>>,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let key = self.key(key.into());
        self.write(move |tx| {
            key.check()?;
            if let Some(outcome) = tx.outcome_of(&key.text)? {
                return Ok(Committed::Before { outcome });
            }
            let (value, outcome) = body(tx)?;
            let key = Key { outcome: outcome.into(), ..key.clone() };
            Ok(Key::commit(Some(&key), tx)?.with(value))
        })
    }

    /// As [`Database::read_durable`] or [`Database::read_archived`]: returns only when all that it
    /// may have seen is as durable as the writes of this handle are when they are acknowledged.
    ///
    /// # Errors
    /// See [`Read::wait`].
    #[track_caller]
    pub fn read_as_written<T, F>(&self, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>, // errors of your own: `with_error`
        E: From<Error>,
    {
        self.read_kept(self.caller(CallKind::Read), self.handle.time_limit, body)
    }

    /// A read that returns only when everything it may have seen is as durable as this handle's
    /// writes; it waits up to `wait` for the archive.
    fn read_kept<T, F>(&self, caller: Caller, wait: Option<Duration>, body: F) -> Read<'_, F, T, E>
    where
        F: FnOnce(&ReadTx<'_>) -> Result<T, E>,
        E: From<Error>,
    {
        let Handle { engine, writes, time_limit, .. } = &*self.handle;
        let answer = match writes.terms().archive_wait {
            Some(waits) => Answer::OnceArchived { replicas: waits.replicas, limit: wait },
            None => Answer::OnceDurable,
        };
        Read::new(engine.reads(), caller, *time_limit, answer, body)
    }

    /// Not checked yet.
    fn key(&self, text: String) -> Key {
        let lifetime = self.handle.transactions.limits.idempotency_lifetime;
        Key { text, outcome: Vec::new(), lifetime }
    }
}
