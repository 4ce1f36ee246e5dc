//! Owns the handle of a database on PostgreSQL, and the loop that runs a closure until it commits.
//!
//! # Algorithm
//! 1. With a key: if it is known, its outcome is the answer.
//! 2. The closure runs in a transaction of its own. Its error ends the loop, unless the transaction
//!    was lost by then (a conflict, a dead connection): those are run again, after a random rest.
//! 3. COMMIT, with the key inserted before it.
//! 4. If the answer to COMMIT is lost, a transaction without a key ends with `CommitUnknown`. With
//!    a key the loop goes on: the key is found, or the same is tried again. The insertion waits for
//!    a COMMIT that is still under way, so only one of both commits.
//! 5. From then on an error of the closure is not believed at once: it may have seen the changes of
//!    the COMMIT with the lost answer. The key is inserted, and rolled back, to see which it is.
//!
//! The rest is "full jitter" (Brooker, Exponential Backoff And Jitter, 2015).

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Client, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts};
use monolite::{Committed, Error, ErrorKind, Result};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::Engine;
use crate::error::Failure;
use crate::keys;
use crate::transaction::{Shared, Transaction};

/// Bound of the first rest: a few times what a statement takes.
const FIRST_REST: Duration = Duration::from_millis(2);

/// Bound of the longest rest: half of it is less than a user notices.
const MAX_REST: Duration = Duration::from_millis(500);

/// For a connection, a new one or one of the pool. A host that is down answers nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    connections: usize,
    attempts: u32,
    idempotency_lifetime: Duration,
    isolation: &'static str,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connections: 16,
            attempts: 20,
            idempotency_lifetime: Duration::from_secs(24 * 3_600),
            isolation: "SERIALIZABLE",
        }
    }
}

impl Options {
    /// Those of [`Database::connect`].
    pub fn new() -> Options {
        Options::default()
    }

    /// Connections of the pool, one for each open transaction; 16. More than the server has cores
    /// for make conflicts likelier.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Options {
        self.connections = connections;
        self
    }

    /// How often a closure is run at most; 20, which takes some three seconds of rests.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Options {
        self.attempts = attempts;
        self
    }

    /// How long a key is remembered at least, by the server's clock; 24 hours.
    #[must_use]
    pub fn idempotency_lifetime(mut self, time: Duration) -> Options {
        self.idempotency_lifetime = time;
        self
    }

    /// Runs transactions under REPEATABLE READ, for Aurora DSQL, which has nothing else. **Write
    /// skew passes there**: two transactions that each read what the other writes both commit. Make
    /// them write a row in common.
    #[must_use]
    pub fn snapshot_isolation(mut self) -> Options {
        self.isolation = "REPEATABLE READ";
        self
    }

    /// Connects to the server at `url`: `postgres://user:password@host:port/database`, with the
    /// parameters of `tokio_postgres::Config`. With `sslmode=require` the connection has TLS by the
    /// system's certificates; without it there is none. For a pair with failover name both hosts,
    /// and `target_session_attrs=read-write`; `tcp_user_timeout=10` notices a host that is gone.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be read; `Overloaded` when the server cannot be reached;
    /// those of making the table of keys.
    pub async fn open(self, url: &str) -> Result<Database> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            Error::new(ErrorKind::Invalid, format!("the address of the database: {error}"))
        })?;
        let pooled = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match config.get_ssl_mode() {
            SslMode::Require => Manager::from_config(config, tls()?, pooled),
            _ => Manager::from_config(config, NoTls, pooled),
        };
        let (wait, create) = (Some(PATIENCE), Some(PATIENCE));
        let pool = Pool::builder(manager)
            .max_size(self.connections)
            .timeouts(Timeouts { wait, create, recycle: None })
            .runtime(Runtime::Tokio1)
            .build()
            .expect("it has a runtime for its timeouts");
        let inner = Inner { pool, options: self, keyed: AtomicU64::new(0) };
        let database = Database { inner: Arc::new(inner), error: PhantomData };
        let prepared = async { keys::prepare(&database.inner.client().await?).await };
        prepared.await.map_err(|failure| failure.error())?;
        Ok(database)
    }
}

fn tls() -> Result<MakeRustlsConnect> {
    // It may have been installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = MakeRustlsConnect::with_native_certs().map(|(tls, _)| tls);
    made.map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("the system's certificates: {error:?}"))
    })
}

/// A database on PostgreSQL, with the methods of [`Engine`]. It needs a `tokio` runtime.
///
/// `E` is the type of the errors that closures return, see [`Database::with_error`].
pub struct Database<E = Error> {
    inner: Arc<Inner>,
    error: PhantomData<fn() -> E>,
}

struct Inner {
    pool: Pool,
    options: Options,
    /// Commits with a key.
    keyed: AtomicU64,
}

impl<E> Clone for Database<E> {
    fn clone(&self) -> Database<E> {
        Database { inner: Arc::clone(&self.inner), error: PhantomData }
    }
}

impl Database {
    /// Connects with the default [`Options`].
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub async fn connect(url: &str) -> Result<Database> {
        Options::new().open(url).await
    }
}

impl<E> Database<E> {
    /// The same handle for closures that return errors of type `F`.
    #[must_use]
    pub fn with_error<F: From<Error>>(&self) -> Database<F> {
        Database { inner: Arc::clone(&self.inner), error: PhantomData }
    }

    /// The outcome that was stored with `key`, if there is one.
    ///
    /// # Errors
    /// `Overloaded` when the server cannot be reached.
    pub async fn outcome_of(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.inner.outcome_of(key).await.map_err(|failure| failure.error())
    }

    /// Closes the connections that are free, and each other one when its transaction is over. New
    /// transactions fail with `Closed`.
    pub fn close(&self) {
        self.inner.pool.close();
    }
}

impl Inner {
    async fn client(&self) -> Result<Client, Failure> {
        self.pool.get().await.map_err(|error| Failure::of_pool(&error))
    }

    async fn outcome_of(&self, key: &str) -> Result<Option<Vec<u8>>, Failure> {
        keys::find(&self.client().await?, key).await
    }

    fn begin(&self, access: &str) -> Arc<Shared> {
        let Options { isolation, idempotency_lifetime, .. } = self.options;
        let begin = format!("BEGIN ISOLATION LEVEL {isolation}, {access}");
        Shared::new(&self.pool, begin, idempotency_lifetime)
    }

    /// One attempt. An error comes with what failed in the database, if anything did.
    async fn attempt<T, E, F, Fut>(
        &self,
        number: u32,
        access: &str,
        key: Option<&str>,
        body: &mut F,
    ) -> Result<Committed<T>, (E, Option<Failure>)>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<(T, Vec<u8>), E>>,
        E: From<Error>,
    {
        let shared = self.begin(access);
        let done = match body(shared.managed(number)).await {
            Ok((value, outcome)) => match shared.commit(key.map(|key| (key, &*outcome))).await {
                Ok(()) => return Ok(Committed::Now { value, outcome }),
                Err(failure) => (failure.error().into(), Some(failure)),
            },
            Err(error) => (error, shared.failure().await),
        };
        shared.roll_back().await;
        Err(done)
    }

    /// Runs `body` until it commits, see the module.
    async fn run<T, E, F, Fut>(
        &self,
        access: &str,
        key: Option<&str>,
        mut body: F,
    ) -> Result<Committed<T>, E>
    where
        F: FnMut(Transaction) -> Fut,
        Fut: Future<Output = Result<(T, Vec<u8>), E>>,
        E: From<Error>,
    {
        let mut unknown: Option<Failure> = None;
        for number in 1..=self.options.attempts.max(1) {
            if number > 1 {
                tokio::time::sleep(rest(number - 1)).await;
            }
            if let Some(key) = key {
                match self.outcome_of(key).await {
                    Ok(Some(outcome)) => return Ok(Committed::Before { outcome }),
                    Ok(None) => {}
                    Err(failure) if failure.may_repeat && number < self.options.attempts => {
                        continue;
                    }
                    Err(failure) => return Err(unknown.unwrap_or(failure).error().into()),
                }
            }
            let (error, failure) = match self.attempt(number, access, key, &mut body).await {
                Ok(committed) => return Ok(committed),
                Err(failed) => failed,
            };
            let is_last = number >= self.options.attempts;
            match failure {
                Some(failure) if failure.kind() == ErrorKind::CommitUnknown => {
                    // A transaction that only read has nothing that could be known or not.
                    let may_go_on = key.is_some() || access == READ;
                    if !may_go_on || is_last {
                        return Err(error);
                    }
                    unknown = key.map(|_| failure);
                }
                // A write in a read is the program's mistake.
                Some(failure) if access == READ && failure.kind() == ErrorKind::Invalid => {
                    return Err(error);
                }
                Some(failure) if failure.may_repeat && !is_last => {}
                _ => return self.settle(key, unknown, error).await,
            }
        }
        unreachable!("the last attempt returns")
    }

    async fn known(&self, key: Option<&str>) -> Option<Vec<u8>> {
        self.outcome_of(key?).await.ok().flatten()
    }

    /// What an error means that would be the answer, if an earlier COMMIT may have succeeded.
    async fn settle<T, E: From<Error>>(
        &self,
        key: Option<&str>,
        unknown: Option<Failure>,
        error: E,
    ) -> Result<Committed<T>, E> {
        if let (Some(key), Some(unknown)) = (key, &unknown) {
            let probe = self.begin(WRITE);
            let inserted = probe.insert(key, &[]).await;
            probe.roll_back().await;
            match inserted {
                Ok(()) => return Err(error),
                Err(failure) if failure.is_unique_violation => {}
                Err(_) => return Err(unknown.error().into()),
            }
        }
        match (self.known(key).await, unknown) {
            (Some(outcome), _) => Ok(Committed::Before { outcome }),
            (None, Some(unknown)) => Err(unknown.error().into()),
            (None, None) => Err(error),
        }
    }
}

/// What a transaction may do.
const WRITE: &str = "READ WRITE";
const READ: &str = "READ ONLY";

fn rest(attempt: u32) -> Duration {
    let bound = FIRST_REST.saturating_mul(1 << attempt.min(16)).min(MAX_REST);
    bound.mul_f64(fastrand::f64())
}

fn value<T>(committed: Committed<T>) -> T {
    match committed {
        Committed::Now { value, .. } => value,
        Committed::Before { .. } => unreachable!("a commit without a key is not repeated"),
    }
}

impl<E: From<Error> + Send + 'static> Engine for Database<E> {
    type Error = E;
    type Transaction = Transaction;

    fn transaction(&self) -> Result<Transaction> {
        Ok(Transaction::new(self.inner.begin(WRITE)))
    }

    async fn transact<T, F, Fut>(&self, mut body: F) -> Result<T, E>
    where
        F: FnMut(Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
    {
        let body = |tx| {
            let running = body(tx);
            async move { running.await.map(|value| (value, Vec::new())) }
        };
        self.inner.run(WRITE, None, body).await.map(value)
    }

    fn transact_once<T, O, F, Fut>(
        &self,
        key: impl Into<String>,
        mut body: F,
    ) -> impl Future<Output = Result<Committed<T>, E>> + Send
    where
        F: FnMut(Transaction) -> Fut + Send,
        Fut: Future<Output = Result<(T, O), E>> + Send,
        O: Into<Vec<u8>> + Send,
        T: Send,
    {
        let key = key.into();
        async move {
            keys::check(&key)?;
            let body = |tx| {
                let running = body(tx);
                async move { running.await.map(|(value, outcome)| (value, outcome.into())) }
            };
            let done = self.inner.run(WRITE, Some(&key), body).await?;
            if self.inner.keyed.fetch_add(1, Ordering::Relaxed).is_multiple_of(keys::SWEEP_EACH)
                && let Ok(client) = self.inner.client().await
            {
                keys::sweep(&client).await;
            }
            Ok(done)
        }
    }

    async fn read<T, F, Fut>(&self, mut body: F) -> Result<T, E>
    where
        F: FnMut(Transaction) -> Fut + Send,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
    {
        let body = |tx| {
            let running = body(tx);
            async move { running.await.map(|value| (value, Vec::new())) }
        };
        self.inner.run(READ, None, body).await.map(value)
    }
}
