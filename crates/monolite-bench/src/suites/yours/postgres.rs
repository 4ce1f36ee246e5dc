//! The user's statements on PostgreSQL, where it accepts them.

use super::{Drawn, Kind, Shared, sql};
use crate::drivers::postgres::server::{Reach, Server};
use crate::drivers::postgres::transfers::is_retryable;
use crate::drivers::{Part, Round};
use crate::progress::Interrupt;
use crate::suites::{Ground, Turn, no_postgres};
use anyhow::{Context, Result, anyhow, bail};
use rusqlite::types::Value;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};

/// What the server may need of the disk, beside the user's rows.
const BYTES: u64 = 1 << 30;

/// The loaded database, and its copy for a trial.
const BASE: &str = "base";
const TRIAL: &str = "trial";

/// A private server with the user's schema and rows.
pub(super) struct Postgres {
    runtime: Runtime,
    config: Config,
    // Stopped last.
    _server: Server,
}

/// Starts and loads a server, and says what came of it.
pub(super) fn start(
    cell: &OnceCell<Result<Postgres, String>>,
    shared: &Shared,
    ground: &Ground<'_>,
) -> String {
    if let Some(reason) = no_postgres(ground) {
        return format!("PostgreSQL: {reason}");
    }
    let started =
        cell.get_or_init(|| Postgres::start(shared, ground).map_err(|error| format!("{error:#}")));
    match started {
        Ok(_) => "PostgreSQL: a private server, over a Unix socket, the same rows and texts".into(),
        Err(reason) => format!("PostgreSQL: {reason}"),
    }
}

async fn connect(config: &Config, database: &str) -> Result<Client> {
    let mut config = config.clone();
    config.dbname(database);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Postgres {
    fn start(shared: &Shared, ground: &Ground<'_>) -> Result<Postgres> {
        let server = Server::start(&ground.options.data, BYTES, BYTES, Reach::Socket)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let config = crate::drivers::postgres::config(&server);
        runtime.block_on(async {
            let admin = connect(&config, "postgres").await?;
            admin.batch_execute(&format!("CREATE DATABASE {BASE}")).await?;
            let client = connect(&config, BASE).await?;
            let schema = client.batch_execute(&shared.schema).await;
            schema.map_err(|error| refused("the schema", &error))?;
            let mut random = fastrand::Rng::with_seed(1);
            for (count, load) in &shared.loads {
                let serial = AtomicI64::new(1);
                let mut session = Session::new(&client);
                client.batch_execute("BEGIN").await?;
                for _ in 0..*count {
                    ground.interrupt.check()?;
                    let drawn = load.draw(&mut random, &serial);
                    session.run(&drawn).await.with_context(|| load.text.clone())?;
                }
                client.batch_execute("COMMIT").await?;
            }
            let (serial, mut session) =
                (AtomicI64::new(i64::from(u32::MAX) / 4), Session::new(&client));
            for transaction in shared.reads.iter().chain(&shared.writes) {
                client.batch_execute("BEGIN").await?;
                let tried = session.run(&transaction.draw(&mut random, &serial)).await;
                client.batch_execute("ROLLBACK").await?;
                match tried {
                    Err(error) if !is_constraint(&error) => {
                        return Err(error.context(format!("{:?}", transaction.text)));
                    }
                    _ => {}
                }
            }
            client.batch_execute("VACUUM (ANALYZE)").await?;
            Ok::<_, anyhow::Error>(())
        })?;
        Ok(Postgres { runtime, config, _server: server })
    }

    /// Works through a round with a connection for each client.
    pub(super) fn run(
        &self,
        shared: &Arc<Shared>,
        kind: Kind,
        clients: usize,
        turn: &Turn<'_>,
    ) -> Result<Round> {
        self.runtime.block_on(async {
            self.copy().await?;
            let serial = Arc::new(AtomicI64::new(shared.next.load(Ordering::Relaxed)));
            let connections = (0..clients).map(|_| connect(&self.config, TRIAL));
            let connections = futures::future::try_join_all(connections).await?;
            let begin = Instant::now();
            let tasks: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(number, connection)| {
                    let random = turn.random(number);
                    let (shared, serial) = (Arc::clone(shared), Arc::clone(&serial));
                    let interrupt = turn.interrupt.clone();
                    let end = begin + turn.length;
                    let client = Job { shared, kind, serial, random, interrupt, end };
                    tokio::spawn(client.work(connection))
                })
                .collect();
            let (mut parts, mut refused) = (Vec::new(), 0);
            for task in tasks {
                let (part, its) = task.await??;
                parts.push(part);
                refused += its;
            }
            Ok(Round { failed: refused, ..Round::of(&parts, begin.elapsed()) })
        })
    }

    /// Makes the trial's database anew.
    async fn copy(&self) -> Result<()> {
        let admin = connect(&self.config, "postgres").await?;
        let drop = format!("DROP DATABASE IF EXISTS {TRIAL} WITH (FORCE)");
        admin.batch_execute(&drop).await?;
        // The connection that loaded the base may still be on its way out.
        let make = format!("CREATE DATABASE {TRIAL} TEMPLATE {BASE}");
        let mut tries = 0;
        while let Err(error) = admin.batch_execute(&make).await {
            tries += 1;
            if tries > 50 {
                return Err(error).context("cannot copy PostgreSQL's database");
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// What a client has to do.
struct Job {
    shared: Arc<Shared>,
    kind: Kind,
    serial: Arc<AtomicI64>,
    random: fastrand::Rng,
    interrupt: Interrupt,
    end: Instant,
}

impl Job {
    /// Returns what the client did, and how many of its transactions a constraint refused.
    async fn work(mut self, client: Client) -> Result<(Part, u64)> {
        let mut session = Session::new(&client);
        let (mut part, mut refused) = (Part::default(), 0);
        while Instant::now() < self.end || (part.latencies.is_empty() && refused == 0) {
            self.interrupt.check()?;
            let start = Instant::now();
            let (_, drawn) = self.shared.draw(self.kind, &mut self.random, &self.serial);
            loop {
                match session.transaction(&drawn).await {
                    Ok(()) => part.acknowledged(start),
                    Err(error) if is_retryable(&error) => {
                        part.retries += 1;
                        continue;
                    }
                    Err(error) if is_constraint(&error) => refused += 1,
                    Err(error) => return Err(error),
                }
                break;
            }
        }
        Ok((part, refused))
    }
}

/// A connection and its prepared statements.
struct Session<'c> {
    client: &'c Client,
    prepared: HashMap<String, tokio_postgres::Statement>,
}

impl<'c> Session<'c> {
    fn new(client: &'c Client) -> Session<'c> {
        Session { client, prepared: HashMap::new() }
    }

    async fn transaction(&mut self, drawn: &Drawn<'_>) -> Result<()> {
        self.client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE").await?;
        let done = self.run(drawn).await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        self.client.batch_execute(end).await?;
        done
    }

    async fn run(&mut self, drawn: &Drawn<'_>) -> Result<()> {
        for (statement, values) in drawn {
            let prepared = self.prepare(statement).await?;
            let types = prepared.params();
            let values: Result<Vec<Box<dyn ToSql + Sync + Send>>> =
                values.iter().zip(types).map(|(value, kind)| parameter(value, kind)).collect();
            let values = values.with_context(|| format!("{:?}", statement.postgres))?;
            let values: Vec<&(dyn ToSql + Sync)> =
                values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect();
            self.client.query(&prepared, &values).await?;
        }
        Ok(())
    }

    async fn prepare(&mut self, statement: &sql::Statement) -> Result<tokio_postgres::Statement> {
        if let Some(prepared) = self.prepared.get(&statement.postgres) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(&statement.postgres).await;
        let prepared =
            prepared.map_err(|error| refused(&format!("{:?}", statement.postgres), &error))?;
        self.prepared.insert(statement.postgres.clone(), prepared.clone());
        Ok(prepared)
    }
}

/// Says in PostgreSQL's words that it does not accept something.
fn refused(what: &str, error: &tokio_postgres::Error) -> anyhow::Error {
    let words = error.as_db_error().map_or_else(|| error.to_string(), |e| e.message().to_owned());
    anyhow!("does not accept {what}: {words}")
}

/// Turns a value into what PostgreSQL wants for a parameter.
fn parameter(value: &Value, kind: &Type) -> Result<Box<dyn ToSql + Sync + Send>> {
    Ok(match value {
        Value::Integer(number) => match *kind {
            Type::INT2 => Box::new(i16::try_from(*number)?),
            Type::INT4 => Box::new(i32::try_from(*number)?),
            Type::INT8 => Box::new(*number),
            Type::FLOAT8 => Box::new(*number as f64),
            Type::TEXT | Type::VARCHAR => Box::new(number.to_string()),
            _ => bail!("takes no whole number where it wants {kind}"),
        },
        Value::Text(text) if matches!(*kind, Type::TEXT | Type::VARCHAR | Type::BPCHAR) => {
            Box::new(text.clone())
        }
        Value::Blob(bytes) if *kind == Type::BYTEA => Box::new(bytes.clone()),
        other => bail!("takes no {} where it wants {kind}", other.data_type()),
    })
}

fn state(error: &anyhow::Error) -> Option<&SqlState> {
    error.downcast_ref::<tokio_postgres::Error>().and_then(|error| error.code())
}

/// Class 23: a constraint refused it.
fn is_constraint(error: &anyhow::Error) -> bool {
    state(error).is_some_and(|state| state.code().starts_with("23"))
}
