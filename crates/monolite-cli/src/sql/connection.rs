//! Owns the way to the database: its server by the network, or the engine in this process, which
//! answers the same client.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use monolite::{Database, ErrorKind, InteractiveOptions, Options, Value};
use monolite_client::{Answer, Client, Error, Stream};
use monolite_server::{Local, Right};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::show::printable;
use crate::arguments;
use crate::backup::holder;
use crate::interrupt::Stopped;

/// The engine's longest for a write: here no other call waits for it.
const STATEMENT_TIME: Duration = Duration::from_secs(3_600);

/// The same for a transaction, whose user may be away for a while.
const TRANSACTION_TIME: Duration = Duration::from_secs(86_400);

/// The engine's most, for the dump of a database is one transaction.
const TRANSACTION_STATEMENTS: usize = 1_000_000;

/// How long a user who asks for a completion waits.
const COMPLETION_TIME: Duration = Duration::from_secs(1);

const NAMES: &str = "SELECT name FROM sqlite_schema UNION SELECT columns.name \
                     FROM sqlite_schema, pragma_table_info(sqlite_schema.name) AS columns";

/// Gives the names of tables and columns, as they are now.
pub(crate) type Names = Box<dyn Fn() -> Vec<String>>;

/// A stream of a database.
pub(crate) struct Connection {
    runtime: Runtime,
    client: Client,
    stream: Stream,
    place: Place,
    /// What a prompt calls it.
    pub(crate) name: String,
    /// Whether Ctrl-C ends what runs, and not the process.
    pub(crate) is_interactive: bool,
}

enum Place {
    /// A server, with its address for operators and the name that it has for the database.
    Server {
        admin: Option<String>,
        database: String,
    },
    File(Database),
}

impl Connection {
    /// Opens what the arguments name. A server is reached at the first statement.
    pub(crate) fn open(arguments: &arguments::Sql) -> Result<Connection> {
        let arguments::Sql { target, token, admin, read_only, .. } = arguments;
        let runtime = Runtime::new().context("the threads of the client do not start")?;
        let url = target.to_str().filter(|target| target.contains("://"));
        let (client, place, name) = match url {
            Some(_) if *read_only => {
                let why = "--read-only is for a file; a server's token can be read-only";
                return Err(Error::Unusable(why.into()).into());
            }
            Some(url) => {
                let token = token.clone().or_else(|| std::env::var("MONOLITE_TOKEN").ok());
                let client = Client::new(url, token.as_deref())?;
                let path = url.trim_end_matches('/');
                let database = path.split_once("/db/").map_or("default", |(_, name)| name);
                let name = path.rsplit('/').next().unwrap_or(path).to_owned();
                let (admin, database) = (admin.clone(), database.to_owned());
                (client, Place::Server { admin, database }, name)
            }
            None => {
                let db = open_file(target, *read_only)?;
                let right = if *read_only { Right::ReadOnly } else { Right::ReadWrite };
                let local = Arc::new(Local::new(db.named("monolite sql"), right));
                let client = Client::in_process(move |body| {
                    let local = Arc::clone(&local);
                    Box::pin(async move { local.pipeline(&body).await })
                });
                let name = Path::new(target).file_stem().unwrap_or(target).to_string_lossy();
                (client, Place::File(db), name.into_owned())
            }
        };
        let (stream, name) = (client.stream(), printable(&name));
        Ok(Connection { runtime, client, stream, place, name, is_interactive: false })
    }

    /// From now on Ctrl-C ends what runs, and not the process.
    pub(crate) fn begin_interactive(&mut self) -> Result<()> {
        let _runtime = self.runtime.enter();
        // The handler stays when this is dropped.
        drop(signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?);
        self.is_interactive = true;
        Ok(())
    }

    /// Runs one statement.
    pub(crate) fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<Answer> {
        let ran = self.stream.execute(sql, parameters);
        told(unless_interrupted(&self.runtime, self.is_interactive, ran))
    }

    /// Begins anew if the stream is lost, and its transaction with it.
    pub(crate) fn renew(&mut self) {
        if self.stream.is_lost() {
            self.stream = self.client.stream();
        }
    }

    /// Whether a transaction is open.
    pub(crate) fn has_transaction(&mut self) -> Result<bool> {
        let asked = self.stream.is_autocommit();
        told(unless_interrupted(&self.runtime, self.is_interactive, asked)).map(|it| !it)
    }

    /// Waits; `None` if the user ended it.
    pub(crate) fn wait(&self, time: Duration) -> Option<()> {
        // The timer is made inside: it looks for the runtime of its thread.
        let wait = async { tokio::time::sleep(time).await };
        unless_interrupted(&self.runtime, self.is_interactive, wait)
    }

    /// What is under way in the database, as `now` of a server says it.
    pub(crate) fn now(&self) -> Result<Json> {
        let (admin, database) = match &self.place {
            Place::Server { admin: Some(admin), database } => (admin, database),
            Place::Server { admin: None, .. } => bail!(
                "the address of the dashboard is not known; start the shell with \
                 --admin http://127.0.0.1:8081"
            ),
            Place::File(db) => {
                let (running, open_transactions) = (db.running(), db.open_transactions());
                return Ok(json!({ "running": running, "open_transactions": open_transactions }));
            }
        };
        let path = format!("now?of={database}");
        let now = monolite_client::operate(admin, &path, None);
        let now = told(unless_interrupted(&self.runtime, self.is_interactive, now))?;
        let all = now["databases"].as_array().into_iter().flatten();
        let found = all.into_iter().find(|it| it["database"] == **database).cloned();
        found.with_context(|| format!("the database {database} is not open at {admin}"))
    }

    /// What gives the names of tables and columns, on a stream of its own.
    pub(crate) fn completion(&self) -> Names {
        let (client, runtime) = (self.client.clone(), self.runtime.handle().clone());
        Box::new(move || {
            // The timer is made inside: it looks for the runtime of its thread.
            let names =
                async { tokio::time::timeout(COMPLETION_TIME, client.execute(NAMES, &[])).await };
            let rows = runtime.block_on(names).ok().and_then(Result::ok);
            let rows = rows.map(|answer| answer.rows).unwrap_or_default();
            rows.into_iter()
                .flatten()
                .filter_map(|name| match name {
                    Value::Text(name) => Some(printable(&name)),
                    _ => None,
                })
                .collect()
        })
    }

    /// Ends the stream, and with it an open transaction; closes a file.
    pub(crate) fn close(self) -> Result<()> {
        let Connection { runtime, stream, place, is_interactive, .. } = self;
        // A stream that is gone is ended by the server, too.
        let _ = unless_interrupted(&runtime, is_interactive, stream.close());
        let Place::File(db) = place else { return Ok(()) };
        let (close, closed) = tokio::sync::oneshot::channel();
        // On a thread that the process does not wait for: an interrupted write may run for long.
        std::thread::spawn(move || close.send(db.close()));
        match unless_interrupted(&runtime, is_interactive, closed) {
            Some(closed) => Ok(closed.context("the closing has panicked")??),
            None => Err(Stopped("a write that still ran is undone").into()),
        }
    }
}

/// What a server has answered, for the user's terminal.
fn told<T>(answer: Option<Result<T, Error>>) -> Result<T> {
    let answer = answer.context("interrupted; it is not known whether a write took effect")?;
    answer.map_err(|error| anyhow!(printable(&error.to_string())))
}

/// What `future` gives; `None` if Ctrl-C ends it, where that is not left to the system.
fn unless_interrupted<T>(
    runtime: &Runtime,
    is_interactive: bool,
    future: impl Future<Output = T>,
) -> Option<T> {
    runtime.block_on(async {
        tokio::select! {
            it = future => Some(it),
            _ = tokio::signal::ctrl_c(), if is_interactive => None,
        }
    })
}

fn open_file(file: &OsStr, is_read_only: bool) -> Result<Database> {
    let interactive = InteractiveOptions::default();
    let interactive =
        interactive.time_limit(TRANSACTION_TIME).max_statements(TRANSACTION_STATEMENTS);
    let options = Options::new().write_time_limit(STATEMENT_TIME).read_time_limit(STATEMENT_TIME);
    let options = options.interactive(interactive);
    if is_read_only && !Path::new(file).exists() {
        bail!("{} does not exist; is this the right path?", Path::new(file).display());
    }
    options.open(file).map_err(|error| match error.kind() {
        ErrorKind::Overloaded => anyhow!(
            "{}; if that is a server, use its URL: monolite sql http://127.0.0.1:8080",
            holder(&error)
        ),
        _ => error.into(),
    })
}
