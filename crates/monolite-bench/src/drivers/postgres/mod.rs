//! PostgreSQL: the database server that one would use otherwise.
//!
//! Either a private server ([`server`]) that lives as long as the run, or one that the user names.
//! The same rows are loaded by `COPY` into a table made in the same transaction, the primary key is
//! built afterwards, then the table is vacuumed and the server checkpoints: nothing of the load is
//! left to do when the clock starts.
//!
//! On a named server everything is in the schema `monolite_bench`, which is dropped at the end.

pub mod contest;
pub mod reads;
pub mod transfers;

use crate::progress::{Interrupt, Progress};
use crate::raw_connection::Durability;
use crate::workload::{INITIAL_BALANCE, TOTAL_SQL};
use anyhow::{Context, Result, bail, ensure};
use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod};
pub use monolite_testkit::postgres as server;
use server::Server;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Mutex;
use tokio::runtime::Runtime;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls};

/// Disk that a row takes while it is loaded: heap 36 bytes, index 22, and the index's WAL.
pub const BYTES_PER_ROW: u64 = 70;

/// Rows between two looks at the interrupt and the progress bar.
const LOAD_STEP_ROWS: i32 = 50_000;

/// Where PostgreSQL is to come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Start a private server from installed binaries.
    Private,
    /// Use this one.
    Url(String),
    /// Do without.
    None,
}

/// A loaded PostgreSQL.
pub struct Postgres {
    runtime: Runtime,
    config: Config,
    pools: Mutex<HashMap<(usize, Durability), Pool>>,
    cleanup: Option<&'static str>,
    server: Option<Server>,
    /// Version as the server says it.
    pub version: String,
    /// Settings that matter, as the server reports them.
    pub settings: Vec<String>,
    rows: u64,
}

impl Postgres {
    /// Wraps a running private server.
    pub fn load_private(
        server: Server,
        rows: u64,
        progress: &dyn Progress,
        interrupt: &Interrupt,
    ) -> Result<Postgres> {
        let config = config(&server);
        let mut postgres = Postgres::connect(config, Some(server))?;
        postgres.load(rows, progress, interrupt)?;
        Ok(postgres)
    }

    /// Uses the server at `url`.
    pub fn load_url(
        url: &str,
        rows: u64,
        progress: &dyn Progress,
        interrupt: &Interrupt,
    ) -> Result<Postgres> {
        let mut config: Config = url.parse().context("--postgres is not a connection URL")?;
        config.options("-c search_path=monolite_bench");
        let mut postgres = Postgres::connect(config, None)?;
        postgres.runtime.block_on(async {
            let client = connect(&postgres.config).await?;
            client.batch_execute("CREATE SCHEMA monolite_bench").await.context(
                "cannot create the schema monolite_bench; drop it if an earlier run left it",
            )
        })?;
        postgres.cleanup = Some("DROP SCHEMA monolite_bench CASCADE");
        postgres.load(rows, progress, interrupt)?;
        Ok(postgres)
    }

    fn connect(config: Config, server: Option<Server>) -> Result<Postgres> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (version, settings) = runtime.block_on(async {
            let client = connect(&config).await?;
            describe(&client).await
        })?;
        let pools = Mutex::default();
        Ok(Postgres { runtime, config, pools, cleanup: None, server, version, settings, rows: 0 })
    }

    fn load(&mut self, rows: u64, progress: &dyn Progress, interrupt: &Interrupt) -> Result<()> {
        let count = i32::try_from(rows).context("PostgreSQL's INT holds 2,147,483,647 accounts")?;
        progress.begin("loading PostgreSQL rows", Some(rows));
        let loaded = self.runtime.block_on(async {
            let mut client = connect(&self.config).await?;
            copy(&mut client, count, progress, interrupt).await?;
            interrupt.check()?;
            progress.begin("PostgreSQL: primary key, vacuum, checkpoint", None);
            client
                .batch_execute(
                    "SET maintenance_work_mem = '512MB'; ALTER TABLE account ADD PRIMARY KEY (id)",
                )
                .await?;
            client.batch_execute("VACUUM (FREEZE, ANALYZE) account").await?;
            // Reading everything once fills what cache there is. Not every user may checkpoint.
            client.batch_execute("SELECT SUM(balance) FROM account").await?;
            let _ = client.batch_execute("CHECKPOINT").await;
            Ok(())
        });
        progress.finish();
        self.rows = rows;
        loaded
    }

    /// Returns the money on all accounts together, and what it must be.
    pub fn total(&self) -> Result<(i64, i64)> {
        let found: i64 = self.runtime.block_on(async {
            let client = connect(&self.config).await?;
            Ok::<_, anyhow::Error>(client.query_one(TOTAL_SQL, &[]).await?.get(0))
        })?;
        Ok((found, self.rows as i64 * INITIAL_BALANCE))
    }

    /// Returns how many bytes the WAL has ever had.
    async fn wal_position(&self) -> Result<u64> {
        let client = connect(&self.config).await?;
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        let position: i64 = client.query_one(sql, &[]).await?.get(0);
        Ok(position.cast_unsigned())
    }

    /// Returns a pool of this size. Pools are kept, with their connections and prepared statements.
    fn pool(&self, size: usize, durability: Durability) -> Result<Pool> {
        let mut pools = self.pools.lock().expect("no thread panics while holding it");
        if let Some(pool) = pools.get(&(size, durability)) {
            return Ok(pool.clone());
        }
        let mut config = self.config.clone();
        let commit = match durability {
            Durability::Durable => "on",
            Durability::Buffered => "off",
        };
        let options = self.config.get_options().unwrap_or_default();
        config.options(format!("{options} -c synchronous_commit={commit}"));
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, NoTls, recycling);
        let pool = Pool::builder(manager).max_size(size).build()?;
        pools.insert((size, durability), pool.clone());
        Ok(pool)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(cleanup) = self.cleanup {
            // The run is over; what cannot be dropped now is named by the next run's error.
            let _ = self.runtime.block_on(async {
                connect(&self.config).await?.batch_execute(cleanup).await.map_err(Into::into)
                    as Result<()>
            });
        }
        drop(self.server.take());
    }
}

/// The server of a candidate that needs one.
fn there(postgres: Option<&Postgres>) -> &Postgres {
    postgres.expect("a candidate that needs PostgreSQL is run where there is one")
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) =
        config.connect(NoTls).await.context("cannot connect to PostgreSQL")?;
    tokio::spawn(connection);
    Ok(client)
}

/// Waits until the server takes connections.
/// How to connect to a private server.
pub(crate) fn config(server: &Server) -> Config {
    server.address("postgres").parse().expect("it is an address")
}

async fn describe(client: &Client) -> Result<(String, Vec<String>)> {
    let version: String = client.query_one("SHOW server_version", &[]).await?.get(0);
    let mut settings = Vec::new();
    for name in [
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "wal_sync_method",
        "shared_buffers",
        "max_connections",
        "max_wal_size",
        "checkpoint_timeout",
        "autovacuum",
    ] {
        let value: String = client.query_one(&format!("SHOW {name}"), &[]).await?.get(0);
        settings.push(format!("{name} = {value}"));
    }
    ensure!(settings[0] == "fsync = on", "this PostgreSQL runs without fsync; set fsync = on");
    Ok((version, settings))
}

async fn copy(
    client: &mut Client,
    rows: i32,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<()> {
    let load = client.transaction().await?;
    load.batch_execute("CREATE TABLE account(id INT, balance INT)").await?;
    let sink = load.copy_in("COPY account FROM STDIN (FORMAT binary, FREEZE)").await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &[Type::INT4, Type::INT4]));
    let balance = i32::try_from(INITIAL_BALANCE).context("the balance is an INT")?;
    for id in 0..rows {
        if id % LOAD_STEP_ROWS == 0 {
            interrupt.check()?;
            progress.advance_to(id as u64);
        }
        writer.as_mut().write(&[&id, &balance]).await?;
    }
    let copied = writer.finish().await?;
    if copied != rows as u64 {
        bail!("PostgreSQL took {copied} rows of {rows}");
    }
    load.commit().await.context("cannot commit the load")
}
