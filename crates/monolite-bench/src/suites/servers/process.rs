//! The processes beside this one: `monolite serve`, PostgreSQL, and clients in other languages.
//!
//! Each has a process group of its own, so that Ctrl-C reaches this process alone, which then ends
//! them. Servers listen on loopback only.

use super::job::{Job, Kind, POSTGRES, SQLITE};
use crate::drivers::postgres::server::{Reach, Server};
use crate::drivers::{Absent, Round};
use crate::machine::Processes;
use crate::suites::Turn;
use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Config, NoTls};

/// Disk that PostgreSQL needs, and memory that its buffers are a quarter of.
const POSTGRES_BYTES: u64 = 1 << 30;

/// Time between two looks at a client's process.
const LOOK: Duration = Duration::from_millis(10);

/// How long a client's process may take for what is not its round.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `monolite serve`, with its databases.
pub(super) struct Serving {
    child: Child,
    pub(super) url: String,
    // Removed when the process has ended.
    _data: TempDir,
}

impl Serving {
    /// Starts one with `databases` databases; with one, it is served as a file.
    pub(super) fn start(
        program: &Path,
        dir: &Path,
        databases: usize,
        accounts: i64,
    ) -> Result<Serving> {
        let data = tempfile::Builder::new().prefix("monolite-serve-").tempdir_in(dir)?;
        let first = data.path().join(file(0));
        let connection = Connection::open(&first)?;
        connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
        connection.execute_batch(&SQLITE.replace("$accounts", &accounts.to_string()))?;
        drop(connection);
        for number in 1..databases {
            std::fs::copy(&first, data.path().join(file(number)))?;
        }
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        match databases {
            1 => command.arg(&first),
            _ => command.arg("--dir").arg(data.path()),
        };
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start monolite serve")?;
        let out = child.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        let url = line.trim().strip_prefix("serving ").unwrap_or_default().to_owned();
        let serving = Serving { child, url, _data: data };
        read?;
        ensure!(!serving.url.is_empty(), "monolite serve did not start; it said {line:?}");
        Ok(serving)
    }

    /// The URL of database `number` of several.
    pub(super) fn database(&self, number: usize) -> String {
        format!("{}/db/{}/", self.url, file(number).trim_end_matches(".db"))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

fn file(number: usize) -> String {
    format!("bench-{number}.db")
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Nothing of its data is kept.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A PostgreSQL with the same tables, over loopback.
pub(super) fn postgres(dir: &Path, accounts: i64) -> Result<Server> {
    let server = Server::start(dir, POSTGRES_BYTES, POSTGRES_BYTES, Reach::Loopback)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (config, script): (Config, _) = (
        crate::drivers::postgres::config(&server),
        POSTGRES.replace("$accounts", &accounts.to_string()),
    );
    runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&script).await?;
        client.batch_execute("VACUUM (ANALYZE)").await
    })?;
    Ok(server)
}

/// A client in another language: a process of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Foreign {
    /// Its line.
    pub(super) line: &'static str,
    pub(super) name: &'static str,
    /// Its directory below the clients', where its packages are installed.
    dir: &'static str,
    /// What begins its URL.
    scheme: &'static str,
    /// The program and its first words; `{dir}` is its directory.
    command: &'static [&'static str],
    /// Ends without an error if the packages are there.
    check: &'static [&'static str],
    /// What installs them.
    install: &'static str,
}

const NODE: Foreign = Foreign {
    line: "js-http",
    name: "@libsql/client, http",
    dir: "javascript",
    scheme: "http",
    command: &["node", "bench.js"],
    check: &["node", "--input-type=module", "--eval", "import '@libsql/client'"],
    install: "npm install",
};

/// All of them.
pub(super) const FOREIGN: [Foreign; 4] = [
    NODE,
    Foreign { line: "js-ws", name: "@libsql/client, ws", scheme: "ws", ..NODE },
    Foreign {
        line: "go",
        name: "libsql-client-go, http",
        dir: "go",
        scheme: "http",
        command: &["./bench/bench"],
        check: &["go", "build", "-o", "bench/bench", "./bench"],
        install: "go mod download",
    },
    Foreign {
        line: "python",
        name: "libsql-client of Python, ws",
        dir: "python",
        scheme: "ws",
        command: &["python3", "bench.py"],
        check: &["python3", "-c", "import libsql_client"],
        install: "pip install -r requirements.txt",
    },
];

/// What a client's process prints at its end.
#[derive(Deserialize)]
struct Report {
    latencies_us: Vec<u64>,
    retries: u64,
    seconds: f64,
    cpu_seconds: f64,
}

impl Foreign {
    /// Why it cannot take part.
    pub(super) fn missing(&self, clients: &Path) -> Option<String> {
        let dir = clients.join(self.dir);
        let checked = command(self.check, &dir).stderr(Stdio::null()).status();
        let is_there = checked.is_ok_and(|status| status.success());
        let Foreign { install, dir, .. } = self;
        (!is_there).then(|| format!("not installed: {install} in examples/clients/{dir}"))
    }

    /// Has a process of it work through a round with `clients` clients at `url`.
    pub(super) fn run(
        &self,
        home: &Path,
        url: &str,
        (job, clients): (Job, usize),
        turn: &Turn<'_>,
    ) -> Result<Round> {
        let work = match job.kind {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Decide => "interactive",
            other => return Err(Absent(format!("does not do {other:?}")).into()),
        };
        let mut process = command(self.command, &home.join(self.dir));
        process.arg(url.replacen("http", self.scheme, 1)).arg(work);
        let (think, length) = (job.think.as_millis(), turn.length.as_secs_f64());
        process.args([clients.to_string(), length.to_string(), think.to_string()]);
        process.arg(job.accounts.to_string());
        let output = tempfile::NamedTempFile::new()?;
        process.stdout(output.reopen()?);
        let mut child = process.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let end = Instant::now() + turn.length + PATIENCE;
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None if turn.interrupt.requested() || Instant::now() > end => {
                    let _ = child.kill();
                    break child.wait()?;
                }
                None => std::thread::sleep(LOOK),
            }
        };
        turn.interrupt.check()?;
        ensure!(status.success(), "{} failed: {status}", self.name);
        let report: Report = serde_json::from_reader(BufReader::new(output.reopen()?))?;
        let mut round = Round {
            operations: report.latencies_us.len() as u64,
            retries: report.retries,
            elapsed: Duration::from_secs_f64(report.seconds),
            ..Round::default()
        };
        report
            .latencies_us
            .iter()
            .for_each(|it| round.latencies.record(Duration::from_micros(*it)));
        let clients_ns = (report.cpu_seconds * 1e9) as u64;
        round.processes = Some(Processes { clients_ns, ..Processes::default() });
        Ok(round)
    }
}

fn command(words: &[&str], dir: &Path) -> Command {
    let program: PathBuf = words[0].into();
    let mut command = Command::new(program);
    command.args(&words[1..]).current_dir(dir).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}
