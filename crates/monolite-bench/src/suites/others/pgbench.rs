//! pgbench's script on PostgreSQL: by pgbench itself, and by our driver.

use super::tpcb::{ACCOUNT, BALANCE, BRANCH, Drawn, HISTORY, SUMS, TELLER, check, check_rows};
use crate::drivers::postgres::server::{self, Reach, Server};
use crate::drivers::{Absent, Part, Round};
use crate::optional::{complaint, run};
use crate::progress::Interrupt;
use crate::statistics::Latencies;
use crate::suites::Turn;
use anyhow::{Context, Result, ensure};
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, Config, NoTls, Statement};

/// What the server may need of the disk.
const BYTES: u64 = 2 << 30;

/// pgbench takes whole seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// A private server that begins with the first trial that needs it.
pub(super) struct Postgres {
    data: PathBuf,
    /// For pgbench's logs.
    dir: PathBuf,
    scale: u64,
    started: OnceCell<Started>,
}

struct Started {
    runtime: Runtime,
    config: Config,
    // Stopped last.
    server: Server,
}

impl Postgres {
    pub(super) fn later(data: PathBuf, dir: PathBuf, scale: u64) -> Postgres {
        Postgres { data, dir, scale, started: OnceCell::new() }
    }

    fn started(&self, interrupt: &Interrupt) -> Result<&Started> {
        if self.started.get().is_none() {
            let server = Server::start(&self.data, BYTES, BYTES, Reach::Socket)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let started = Started { runtime, config: server.config(), server };
            let mut fill = program(&started.server)?;
            fill.args(["-i", "-q", "-s", &self.scale.to_string(), "postgres"]);
            let output = run(&mut fill, interrupt)?;
            ensure!(output.status.success(), "pgbench -i: {}", complaint("pgbench", &output));
            // Nobody else has set it: trials run one after another.
            let _ = self.started.set(started);
        }
        Ok(self.started.get().expect("it was set"))
    }

    /// Has pgbench work through a round.
    pub(super) fn pgbench(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let started = self.started(turn.interrupt)?;
        let before = started.history()?;
        let prefix = self.dir.join(format!("pgbench-{clients}"));
        let mut bench = program(&started.server)?;
        let seconds = turn.length.max(SHORTEST).as_secs_f64().ceil() as u64;
        let threads = clients.min(std::thread::available_parallelism().map_or(1, usize::from));
        bench
            .args(["-n", "-M", "prepared", "-l"])
            .args(["-c", &clients.to_string(), "-j", &threads.to_string()])
            .args(["-T", &seconds.to_string(), "--random-seed", &turn.seed.to_string()])
            .arg(format!("--log-prefix={}", prefix.display()))
            .arg("postgres");
        let output = run(&mut bench, turn.interrupt)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = rate(&text).filter(|_| output.status.success());
        let per_second = per_second.ok_or_else(|| Absent(complaint("pgbench", &output)))?;
        let latencies = self.take_logs(&prefix)?;
        let operations = started.history()? - before;
        ensure!(operations > 0, "pgbench did nothing");
        let elapsed = Duration::from_secs_f64(operations as f64 / per_second);
        Ok(Round { operations, taken: operations, elapsed, latencies, ..Round::default() })
    }

    /// Reads the latencies that pgbench has logged, and removes its logs.
    fn take_logs(&self, prefix: &Path) -> Result<Latencies> {
        let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut latencies = Latencies::default();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let is_log = path
                .file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}.")));
            if is_log {
                let text = std::fs::read_to_string(&path)?;
                text.lines().filter_map(latency).for_each(|time| latencies.record(time));
                std::fs::remove_file(&path)?;
            }
        }
        Ok(latencies)
    }

    /// Runs the same script, a connection for each client.
    pub(super) fn by_our_driver(&self, clients: usize, turn: &Turn<'_>) -> Result<Round> {
        let started = self.started(turn.interrupt)?;
        let before = started.history()?;
        let round = started.runtime.block_on(async {
            let mut sessions = Vec::new();
            for _ in 0..clients {
                sessions.push(Session::open(&started.config).await?);
            }
            let begin = Instant::now();
            let end = begin + turn.length;
            let tasks: Vec<_> = sessions
                .into_iter()
                .enumerate()
                .map(|(number, mut session)| {
                    let mut random = fastrand::Rng::with_seed(turn.seed << 32 | number as u64);
                    let (scale, interrupt) = (self.scale, turn.interrupt.clone());
                    tokio::spawn(async move {
                        let mut part = Part::default();
                        while Instant::now() < end || part.latencies.is_empty() {
                            interrupt.check()?;
                            let drawn = Drawn::next(&mut random, scale);
                            let start = Instant::now();
                            session.transaction(drawn).await?;
                            part.acknowledged(start);
                        }
                        Ok::<_, anyhow::Error>(part)
                    })
                })
                .collect();
            let mut parts = Vec::new();
            for task in tasks {
                parts.push(task.await??);
            }
            Ok::<_, anyhow::Error>(Round::of(&parts, begin.elapsed()))
        })?;
        check_rows(before, started.history()?, round.operations)?;
        Ok(round)
    }
}

impl Started {
    /// Returns the rows of the history, when everything adds up.
    fn history(&self) -> Result<u64> {
        self.runtime.block_on(async {
            let client = connect(&self.config).await?;
            let row = client.query_one(SUMS, &[]).await?;
            check([0, 1, 2, 3, 4].map(|column| row.get(column)))
        })
    }
}

/// Returns pgbench as it is called for this server.
fn program(server: &Server) -> Result<Command> {
    let path = server::find_binaries()?.join("pgbench");
    if !path.exists() {
        let hint = "pgbench is not installed (Debian: apt install postgresql-contrib)";
        return Err(Absent(hint.into()).into());
    }
    let mut command = Command::new(path);
    command.arg("-h").arg(server.socket()).args(["-p", "5432", "-U", "monolite"]);
    Ok(command)
}

/// Returns the rate that pgbench says, the time of connecting left out.
fn rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("tps = "))?;
    line.split(' ').nth(2)?.parse().ok().filter(|rate: &f64| *rate > 0.0)
}

/// Returns the latency of a line of pgbench's log: the third number, in microseconds.
fn latency(line: &str) -> Option<Duration> {
    Some(Duration::from_micros(line.split(' ').nth(2)?.parse().ok()?))
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await.context("cannot connect")?;
    tokio::spawn(connection);
    Ok(client)
}

/// A connection with the script's statements.
struct Session {
    client: Client,
    account: Statement,
    balance: Statement,
    teller: Statement,
    branch: Statement,
    history: Statement,
}

impl Session {
    async fn open(config: &Config) -> Result<Session> {
        let client = connect(config).await?;
        let prepare = |sql: &str| {
            let sql = sql.replace('?', "$");
            let client = &client;
            async move { client.prepare(&sql).await }
        };
        Ok(Session {
            account: prepare(ACCOUNT).await?,
            balance: prepare(BALANCE).await?,
            teller: prepare(TELLER).await?,
            branch: prepare(BRANCH).await?,
            history: prepare(HISTORY).await?,
            client,
        })
    }

    async fn transaction(&mut self, drawn: Drawn) -> Result<()> {
        let small = |number: i64| i32::try_from(number);
        let (aid, bid, tid) = (small(drawn.aid)?, small(drawn.bid)?, small(drawn.tid)?);
        let delta = small(drawn.delta)?;
        let transaction = self.client.transaction().await?;
        transaction.execute(&self.account, &[&delta, &aid]).await?;
        let _: i32 = transaction.query_one(&self.balance, &[&aid]).await?.get(0);
        transaction.execute(&self.teller, &[&delta, &tid]).await?;
        transaction.execute(&self.branch, &[&delta, &bid]).await?;
        transaction.execute(&self.history, &[&tid, &bid, &aid, &delta]).await?;
        transaction.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let text = "number of transactions actually processed: 812\nlatency average = 1.2 ms\n\
                    tps = 811.250000 (without initial connection time)\n";
        assert_eq!(rate(text), Some(811.25));
        assert_eq!(rate("tps = 0.0 (without"), None);
        assert_eq!(latency("0 199 2241 0 1175850568 995598"), Some(Duration::from_micros(2_241)));
        assert_eq!(latency("0 199 skipped 0"), None);
    }
}
