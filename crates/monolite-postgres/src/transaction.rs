//! Owns a transaction: the connection that it holds from its first statement on, and how it ends.
//!
//! # Invariants
//! - A connection returns to the pool only when its transaction is known to be over: COMMIT or
//!   ROLLBACK was answered. Otherwise it is closed, and the server rolls back ([`Held`]).
//! - BEGIN is answered before the first statement is sent, which would otherwise commit by itself
//!   if BEGIN were refused.
//! - After a failed statement nothing more is sent but ROLLBACK: COMMIT would be answered with
//!   success, and roll back.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Client, Pool};
use monolite::{Committed, Error, ErrorKind, IntoParameters, Parameters, Result, Value};
use tokio::sync::Mutex;
use tokio_postgres::types::ToSql;

use crate::engine::EngineTransaction;
use crate::error::Failure;
use crate::keys;
use crate::row::Row;
use crate::sql::{self, Statement};
use crate::values::{self, Read, Sent};

/// A transaction on PostgreSQL, with the methods of [`EngineTransaction`] and savepoints.
///
/// It holds a connection of the pool from its first statement to its end, and PostgreSQL's locks on
/// the rows that it changed: keep waits for others out of it.
pub struct Transaction {
    shared: Arc<Shared>,
    is_managed: bool,
    attempt: u32,
}

/// A connection that is closed when dropped, unless it is given back to its pool.
struct Held(Option<Client>);

impl Held {
    fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Deref for Held {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.0.as_ref().expect("it is there until it is given back")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Client::take(client));
        }
    }
}

/// A transaction, for its handle and for the loop that commits it.
pub(crate) struct Shared {
    pool: Pool,
    begin: String,
    lifetime: Duration,
    state: Mutex<State>,
    /// Whether a closure has called `rollback`.
    is_given_up: AtomicBool,
}

struct State {
    client: Option<Held>,
    phase: Phase,
}

enum Phase {
    Open,
    /// A statement was sent, and has the connection. If another one finds this, that one was
    /// dropped.
    Running,
    Failed(Failure),
    Over,
}

impl Shared {
    pub(crate) fn new(pool: &Pool, begin: String, lifetime: Duration) -> Arc<Shared> {
        let state = Mutex::new(State { client: None, phase: Phase::Open });
        let (pool, is_given_up) = (pool.clone(), AtomicBool::new(false));
        Arc::new(Shared { pool, begin, lifetime, state, is_given_up })
    }

    pub(crate) fn managed(self: &Arc<Shared>, attempt: u32) -> Transaction {
        Transaction { shared: Arc::clone(self), is_managed: true, attempt }
    }

    /// Why the transaction has failed, if it has.
    pub(crate) async fn failure(&self) -> Option<Failure> {
        match &self.state.lock().await.phase {
            Phase::Failed(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    /// Takes the connection for a statement: begins, if this is the first one. If the statement is
    /// dropped, so is the connection.
    async fn enter(&self, state: &mut State) -> Result<Held, Failure> {
        let known = match std::mem::replace(&mut state.phase, Phase::Running) {
            Phase::Open => match state.client.take() {
                Some(client) => Ok(client),
                None => self.begin().await,
            },
            Phase::Failed(failure) => Err(failure),
            Phase::Running => {
                let message = "a statement of the transaction was dropped before it ended";
                Err(Failure::new(ErrorKind::Aborted, message))
            }
            Phase::Over => Err(Failure::new(ErrorKind::Aborted, "the transaction is over")),
        };
        known.inspect_err(|failure| state.phase = Phase::Failed(failure.clone()))
    }

    async fn begin(&self) -> Result<Held, Failure> {
        let client = self.pool.get().await.map_err(|error| Failure::of_pool(&error))?;
        let client = Held(Some(client));
        let begun = client.batch_execute(&self.begin).await;
        begun.map_err(|error| Failure::of_statement(&error))?;
        Ok(client)
    }

    async fn run(&self, text: &str, parameters: Result<Parameters>, wanted: Wanted) -> Result<Ran> {
        let statement = sql::rewrite(text, &parameters?).map_err(|it| it.in_statement(text))?;
        let ran = self.run_rewritten(statement, wanted).await;
        ran.map_err(|failure| failure.in_statement(text).error())
    }

    async fn run_rewritten(&self, statement: Statement, wanted: Wanted) -> Result<Ran, Failure> {
        let values: Vec<Sent> = statement.values.into_iter().map(Sent).collect();
        let mut state = self.state.lock().await;
        let client = self.enter(&mut state).await?;
        let done = run(&client, &statement.text, &values, wanted).await;
        state.leave(client, done)
    }

    async fn batch(&self, text: &str) -> Result<()> {
        let run = async {
            let mut state = self.state.lock().await;
            let client = self.enter(&mut state).await?;
            let done = client.batch_execute(text).await;
            state.leave(client, done.map_err(|error| Failure::of_statement(&error)))
        };
        run.await.map_err(|failure: Failure| failure.in_statement(text).error())
    }

    /// Commits, with a key and its outcome if there is one. The failure of a key that is there
    /// already is a unique violation.
    pub(crate) async fn commit(&self, key: Option<(&str, &[u8])>) -> Result<(), Failure> {
        if self.is_given_up.load(Ordering::Relaxed) {
            let message = "the closure rolled the transaction back; return an error instead";
            return Err(Failure::new(ErrorKind::Invalid, message));
        }
        if let Some((key, outcome)) = key {
            self.insert(key, outcome).await?;
        }
        let mut state = self.state.lock().await;
        if state.client.is_none() && matches!(state.phase, Phase::Open) {
            state.phase = Phase::Over;
            return Ok(());
        }
        let client = self.enter(&mut state).await?;
        match client.batch_execute("COMMIT").await {
            Ok(()) => {
                state.phase = Phase::Over;
                client.give_back();
                Ok(())
            }
            Err(error) => {
                let failure = Failure::of_commit(&error);
                // A ROLLBACK follows, which does nothing if the server has undone it.
                state.client = (failure.kind() != ErrorKind::CommitUnknown).then_some(client);
                state.phase = Phase::Failed(failure.clone());
                Err(failure)
            }
        }
    }

    /// Inserts a key. It waits for another transaction that has inserted the same one.
    pub(crate) async fn insert(&self, key: &str, outcome: &[u8]) -> Result<(), Failure> {
        let seconds = self.lifetime.as_secs_f64();
        let values =
            vec![Value::Text(key.to_owned()), Value::Blob(outcome.to_vec()), Value::Real(seconds)];
        let statement = sql::rewrite(keys::INSERT, &Parameters::Positional(values));
        let statement = statement.expect("the statement has three parameters");
        self.run_rewritten(statement, Wanted::Changes).await.map(|_| ())
    }

    /// Ends it, unless it was committed.
    pub(crate) async fn roll_back(&self) {
        let mut state = self.state.lock().await;
        state.phase = Phase::Over;
        if let Some(client) = state.client.take() {
            roll_back(client).await;
        }
    }
}

impl State {
    /// Keeps the connection behind a statement, unless it is of no more use.
    fn leave<T>(&mut self, client: Held, done: Result<T, Failure>) -> Result<T, Failure> {
        self.phase = match &done {
            Err(failure) if failure.was_sent => Phase::Failed(failure.clone()),
            _ => Phase::Open,
        };
        if !done.as_ref().is_err_and(|failure| failure.ends_connection) {
            self.client = Some(client);
        }
        done
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Without a runtime the connection is closed.
        if let Some(client) = self.state.get_mut().client.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(roll_back(client));
        }
    }
}

async fn roll_back(client: Held) {
    if client.batch_execute("ROLLBACK").await.is_ok() {
        client.give_back();
    }
}

/// What is wanted of a statement.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Changes,
    Rows,
}

/// What a statement gave.
struct Ran {
    changes: usize,
    rows: Vec<Row>,
}

/// Prepared statements of a connection; a program that composes its SQL has no end of them.
const MAX_PREPARED: usize = 256;

async fn run(client: &Client, text: &str, values: &[Sent], wanted: Wanted) -> Result<Ran, Failure> {
    if client.statement_cache.size() >= MAX_PREPARED {
        client.statement_cache.clear();
    }
    let failed = |error| Failure::of_statement(&error);
    let statement = client.prepare_cached(text).await.map_err(failed)?;
    values::check(&statement, values)?;
    let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(|it| it as _).collect();
    if wanted == Wanted::Changes {
        if !statement.columns().is_empty() {
            let message = "the statement returns rows; use query, query_row or query_map";
            return Err(Failure::not_sent(message));
        }
        let changes = client.execute(&statement, &parameters).await.map_err(failed)?;
        let changes = usize::try_from(changes).unwrap_or(usize::MAX);
        return Ok(Ran { changes, rows: Vec::new() });
    }
    let names: Arc<[String]> =
        statement.columns().iter().map(|column| column.name().to_owned()).collect();
    let rows = client.query(&statement, &parameters).await.map_err(failed)?;
    let row = |row: &tokio_postgres::Row| {
        let values = (0..names.len()).map(|at| row.try_get::<_, Read>(at).map(|read| read.0));
        values.collect::<Result<_, _>>().map(|values| Row::new(&names, values))
    };
    let rows = rows.iter().map(row).collect::<Result<_, _>>().map_err(failed)?;
    Ok(Ran { changes: 0, rows })
}

impl Transaction {
    pub(crate) fn new(shared: Arc<Shared>) -> Transaction {
        Transaction { shared, is_managed: false, attempt: 1 }
    }

    /// Opens a savepoint, to which [`Transaction::rollback_to`] can return. Aurora DSQL has none.
    ///
    /// # Errors
    /// As [`EngineTransaction::execute`].
    pub async fn savepoint(&self, name: &str) -> Result<()> {
        let sql = format!("SAVEPOINT {}", quoted(name));
        self.shared.batch(&sql).await
    }

    /// Undoes everything since the savepoint was opened, and keeps it open. A transaction that
    /// failed with `Constraint` or `Invalid` can go on then.
    ///
    /// # Errors
    /// As [`Transaction::savepoint`]; the error that ended the transaction, if it was another one.
    pub async fn rollback_to(&self, name: &str) -> Result<()> {
        {
            let mut state = self.shared.state.lock().await;
            if let Phase::Failed(failure) = &state.phase
                && state.client.is_some()
                && matches!(failure.kind(), ErrorKind::Constraint | ErrorKind::Invalid)
            {
                state.phase = Phase::Open;
            }
        }
        let sql = format!("ROLLBACK TO SAVEPOINT {}", quoted(name));
        self.shared.batch(&sql).await
    }

    /// Closes the savepoint, and keeps what was done.
    ///
    /// # Errors
    /// As [`Transaction::savepoint`].
    pub async fn release(&self, name: &str) -> Result<()> {
        let sql = format!("RELEASE SAVEPOINT {}", quoted(name));
        self.shared.batch(&sql).await
    }

    async fn end(self, key: Option<(String, Vec<u8>)>) -> Result<Committed> {
        if self.is_managed {
            let message = "transact commits the transaction itself; return Ok from the closure";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let Some((key, outcome)) = key else {
            self.shared.commit(None).await.map_err(|failure| failure.error())?;
            return Ok(Committed::Now { value: (), outcome: Vec::new() });
        };
        keys::check(&key)?;
        let failure = match self.shared.commit(Some((&key, &outcome))).await {
            Ok(()) => return Ok(Committed::Now { value: (), outcome }),
            Err(failure) => failure,
        };
        self.shared.roll_back().await;
        let known = async {
            let client = self.shared.pool.get().await.map_err(|it| Failure::of_pool(&it))?;
            keys::find(&client, &key).await
        };
        match known.await {
            Ok(Some(outcome)) => Ok(Committed::Before { outcome }),
            _ => Err(failure.error()),
        }
    }
}

impl EngineTransaction for Transaction {
    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn execute(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<usize>> + Send {
        let parameters = parameters.into_parameters();
        async move { Ok(self.shared.run(sql, parameters, Wanted::Changes).await?.changes) }
    }

    async fn execute_batch(&self, sql: &str) -> Result<()> {
        sql::check_batch(sql)?;
        self.shared.batch(sql).await
    }

    fn query(
        &self,
        sql: &str,
        parameters: impl IntoParameters,
    ) -> impl Future<Output = Result<Vec<Row>>> + Send {
        let parameters = parameters.into_parameters();
        async move { Ok(self.shared.run(sql, parameters, Wanted::Rows).await?.rows) }
    }

    async fn commit(self) -> Result<Committed> {
        self.end(None).await
    }

    fn commit_once(
        self,
        key: impl Into<String>,
        outcome: impl Into<Vec<u8>>,
    ) -> impl Future<Output = Result<Committed>> + Send {
        self.end(Some((key.into(), outcome.into())))
    }

    fn rollback(self) {
        self.shared.is_given_up.store(true, Ordering::Relaxed);
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
