//! `bench tps`: transfers between many accounts, on raw SQLite, on the engine and on PostgreSQL.
//!
//! # Algorithm
//! 1. Say how long it will take (`forecast`). Have the engine initialise SQLite, before there is
//!    a raw connection. Load the data set or recognise it, measure the device, bring the file into
//!    the page cache.
//! 2. Start and load PostgreSQL, unless there is none or nothing of it was asked for.
//! 3. Run the groups of [`groups`], each interleaved by [`crate::harness`], which verifies the
//!    money.
//! 4. Compute the physical limits and return the record.
//!
//! # Not here
//! What the figures are compared with on paper: [`crate::report::tables`].

mod forecast;
pub mod groups;
mod limits;

use crate::dataset::Dataset;
use crate::device;
use crate::drivers::engine;
use crate::drivers::postgres::{BYTES_PER_ROW, Postgres, Source, server};
use crate::harness::{Bench, Purpose};
use crate::ledger::Ledger;
use crate::machine::{self, Machine};
use crate::plan::Pace;
use crate::progress::{Interrupt, Interrupted, Progress};
use crate::raw_connection::{Durability, WRITER_CACHE_BYTES};
use crate::report::names::DELAYS;
use crate::report::record::{Data, RECORD_VERSION, Record, Setup, Verification, today};
use crate::suites::Depth;
use crate::workload::{Draw, Schema, Skew, draw_transfers, hot_set};
use anyhow::{Result, ensure};
use groups::Groups;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Limit of the engine's WAL, a quarter of its default: checkpoints begin at 64 MiB, for raw
/// connections too, so that they fall into the timed window of a burst of 300,000 transactions. Raw
/// batches write about 85 MiB in it; at the default's 256 MiB there would be no checkpoint at all.
pub const WAL_LIMIT_BYTES: u64 = 256 << 20;

/// Accounts that PostgreSQL gets when no cell of it uses any.
const FEW_ACCOUNTS: u64 = 2;

/// Interactive transactions that the engine lets be open, by default.
const MAX_CLIENTS: u64 = 10_000;

/// Who takes part in workloads whose transactions want the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rivals {
    /// A few lines of ours.
    Few,
    /// All of ours, and PostgreSQL's.
    All,
}

/// How much of the interactive groups to run.
#[derive(Clone, Debug)]
pub struct InteractiveOptions {
    /// Clients of the engine, a line of the tables for each number.
    pub clients: Vec<u64>,
    /// Connections of PostgreSQL's pools.
    pub pools: Vec<usize>,
    /// Clients of raw SQLite, a thread each. One shows all the throughput there is; more show what
    /// waiting for each other costs.
    pub holders: Vec<u64>,
    /// Clients of the workloads whose transactions want the same rows.
    pub mixed: Vec<u64>,
    /// Clients that insert parents and children.
    pub families: Vec<u64>,
    /// Who takes part in these.
    pub rivals: Rivals,
    /// Clients that write beside sleepers.
    pub writers: Vec<u64>,
    /// Clients of the transactions whose CPU time is measured.
    pub costs: Vec<u64>,
    /// Keys of [`DELAYS`].
    pub columns: Vec<&'static str>,
}

impl InteractiveOptions {
    /// The standard run has what the summary needs: 10 ms between the statements, with more clients
    /// than the engine can serve and with fewer, and the two pools of PostgreSQL that are best at
    /// it. On two cores 64 clients are fewer than the engine can serve, 512 about as many, and
    /// 2,000 more. The quick run has both pools: which is better depends on the isolation.
    fn new(depth: Depth) -> InteractiveOptions {
        let pick = |quick: &[u64], standard: &[u64], full: &[u64]| {
            depth.pick(quick, standard, full).to_vec()
        };
        InteractiveOptions {
            clients: pick(&[512], &[64, 512, 2_000], &[64, 512, 2_000]),
            pools: depth.pick(vec![8, 64], vec![64, 256], vec![8, 64, 256]),
            holders: pick(&[1], &[1], &[1, 16]),
            mixed: pick(&[12], &[12], &[12, 64, 256, 1_024]),
            families: pick(&[64], &[64], &[8, 64, 256]),
            rivals: depth.pick(Rivals::Few, Rivals::Few, Rivals::All),
            writers: pick(&[], &[], &[128, 1_024]),
            costs: pick(&[], &[], &[16, 128]),
            columns: match depth {
                Depth::Full => DELAYS.map(|(column, _)| column).to_vec(),
                _ => vec!["10ms"],
            },
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct TpsOptions {
    pub rows: u64,
    /// How the SQLite table is declared.
    pub schema: Schema,
    pub skew: Skew,
    /// Where the data set is, or goes.
    pub data: PathBuf,
    pub rounds: usize,
    /// Transactions per burst round.
    pub transactions: u64,
    /// Length of a round that is measured by time.
    pub timed_round: Duration,
    /// Transfers at most that warm a candidate's caches before each of its rounds.
    pub warm_up_transfers: usize,
    /// Clients of the closed loop.
    pub waiting_clients: Vec<u64>,
    /// What acknowledgements mean, in bursts and closed loops.
    pub durabilities: Vec<Durability>,
    /// Time that the run is to take, after which rounds are left out; none for as long as it takes.
    pub budget: Option<Duration>,
    /// Where PostgreSQL comes from.
    pub postgres: Source,
    /// How much of the interactive groups to run.
    pub interactive: InteractiveOptions,
    /// Only cells whose name contains this.
    pub only: Option<String>,
    /// Limit of the engine's WAL; raw connections checkpoint at the same size as the engine.
    pub wal_limit_bytes: u64,
    /// The command that repeats the run, without names of directories.
    pub command: String,
}

impl TpsOptions {
    /// The run of this depth: under a minute with a cell or two of each kind, five minutes with
    /// what the summary shows, or every cell.
    pub fn new(data: PathBuf, depth: Depth) -> TpsOptions {
        let seconds = depth.pick(Some(55), Some(285), None);
        TpsOptions {
            rows: depth.pick(1_000_000, 10_000_000, 10_000_000),
            schema: Schema::Published,
            skew: Skew::Pareto,
            data,
            rounds: depth.pick(1, 3, 3),
            transactions: depth.pick(60_000, 200_000, 300_000),
            timed_round: Duration::from_millis(depth.pick(200, 800, 1_200)),
            warm_up_transfers: depth.pick(5_000, 20_000, 20_000),
            waiting_clients: match depth {
                Depth::Full => vec![1, 16, 128, 1024],
                _ => vec![1, 128],
            },
            durabilities: match depth {
                Depth::Full => Durability::ALL.to_vec(),
                _ => vec![Durability::Durable],
            },
            budget: seconds.map(Duration::from_secs),
            postgres: Source::Private,
            interactive: InteractiveOptions::new(depth),
            only: None,
            wal_limit_bytes: WAL_LIMIT_BYTES,
            command: String::new(),
        }
    }

    fn check(&self) -> Result<()> {
        ensure!(self.rows >= 2, "--rows must be at least 2");
        ensure!(self.rows <= 2_000_000_000, "--rows must be at most 2,000,000,000");
        ensure!(self.rounds >= 1, "--rounds must be at least 1");
        ensure!(self.transactions >= 100, "--transactions must be at least 100");
        ensure!(
            self.interactive.clients.iter().all(|clients| (1..=MAX_CLIENTS).contains(clients)),
            "--clients must be from 1 to {MAX_CLIENTS}"
        );
        ensure!(self.wal_limit_bytes >= 8 << 20, "--wal-limit-mib must be at least 8");
        Ok(())
    }
}

/// Runs everything and returns the record.
pub fn run(options: &TpsOptions, progress: &dyn Progress, interrupt: &Interrupt) -> Result<Record> {
    options.check()?;
    machine::allow_open_files();
    let begin = Instant::now();
    let (total, announcement) = forecast::forecast(options)?;
    progress.note(&announcement);
    progress.time_left(total);
    engine::initialize_sqlite()?;
    let dataset =
        Dataset::prepare(&options.data, options.schema, options.rows, progress, interrupt)?;
    progress.begin("measuring the device", None);
    let probe = device::probe(&options.data, options.timed_round, interrupt)?;
    progress.begin("warming the page cache", None);
    let machine = Machine::look(&options.data);
    dataset.warm(machine.memory_bytes / 2)?;
    progress.finish();
    let mut setup = setup(options);
    let postgres = postgres(options, &machine, &mut setup, progress, interrupt)?;
    let planned = forecast::cells(options, postgres.as_ref(), false)?;
    let deadline = options.budget.map(|budget| begin + budget);
    let mut bench = Bench {
        dataset: &dataset,
        draw: Draw::new(options.skew, options.rows),
        rounds: options.rounds,
        warm_up_transfers: options.warm_up_transfers,
        progress,
        interrupt,
        ledger: Ledger::default(),
        verifications: Vec::new(),
        purpose: Purpose::Measure(Pace::new(&planned, deadline)),
    };
    let groups = Groups {
        options,
        database: &dataset.path,
        postgres: postgres.as_ref(),
        expects_postgres: false,
    };
    let cells = groups.run(&mut bench)?;
    let only = options.only.as_deref().unwrap_or_default();
    ensure!(
        !cells.is_empty(),
        "no scenario's name contains {only:?}; monolite bench tps --help tells of some"
    );
    bench.finish()?;
    let mut verifications = bench.verifications;
    verifications.extend(postgres.as_ref().map(verify_postgres).transpose()?);
    drop(postgres);
    Ok(Record {
        record_version: RECORD_VERSION,
        suite: "tps".into(),
        date: today(),
        command: options.command.clone(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_memory_bytes: machine::peak_memory_bytes(),
        machine,
        setup,
        data: Some(describe_data(options, &dataset)),
        work: Vec::new(),
        sections: Vec::new(),
        limits: limits::physical_limits(&cells, &probe, &options.waiting_clients),
        device: probe,
        cells,
        verifications,
    })
}

fn setup(options: &TpsOptions) -> Setup {
    let raw = |durability| groups::raw_settings(options, durability).pragmas();
    let ours = engine::Settings {
        durability: Durability::Durable,
        wal_limit_bytes: options.wal_limit_bytes,
    };
    Setup {
        monolite: env!("CARGO_PKG_VERSION").into(),
        sqlite: rusqlite::version().into(),
        engine: ours.describe(),
        raw_pragmas: Durability::ALL.map(raw).to_vec(),
        rounds: options.rounds,
        transactions: options.transactions,
        ..Setup::default()
    }
}

fn describe_data(options: &TpsOptions, dataset: &Dataset) -> Data {
    let draw = Draw::new(options.skew, options.rows);
    let burst = draw_transfers(&draw, 1, options.transactions as usize);
    Data {
        identity: dataset.identity.clone(),
        origin: dataset.origin,
        file_bytes: dataset.file_bytes(),
        writer_cache_bytes: WRITER_CACHE_BYTES,
        skew: options.skew,
        hot_set: hot_set(&burst, &dataset.identity.rows_per_leaf),
    }
}

/// Starts and loads PostgreSQL. That there is none is no error, but is said in `setup`.
fn postgres(
    options: &TpsOptions,
    machine: &Machine,
    setup: &mut Setup,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<Option<Postgres>> {
    let wanted = forecast::cells(options, None, true)?;
    if !wanted.iter().any(|cell| cell.id.contains("/postgres")) {
        setup.postgres_missing = Some("not asked for".into());
        return Ok(None);
    }
    let rows = match wanted.iter().any(forecast::needs_accounts_in_postgres) {
        true => options.rows,
        false => FEW_ACCOUNTS,
    };
    let loaded = match &options.postgres {
        Source::None => Err(anyhow::anyhow!("left out by --no-postgres")),
        Source::Url(url) => Postgres::load_url(url, rows, progress, interrupt),
        Source::Private => {
            progress.begin("starting a private PostgreSQL", None);
            let needed = rows * BYTES_PER_ROW + (2 << 30);
            server::Server::start(
                &options.data,
                needed,
                machine.memory_bytes,
                server::Reach::Socket,
            )
            .and_then(|server| {
                if !server.same_device {
                    setup.postgres_settings.push(
                        "data on another device than SQLite's, which its user cannot reach".into(),
                    );
                }
                Postgres::load_private(server, rows, progress, interrupt)
            })
        }
    };
    progress.finish();
    match loaded {
        Ok(postgres) => {
            setup.postgres = Some(postgres.version.clone());
            setup.postgres_settings.extend(postgres.settings.iter().cloned());
            Ok(Some(postgres))
        }
        Err(error) if error.is::<Interrupted>() => Err(error),
        Err(error) => {
            let reason = format!("{error:#}");
            if options.postgres != Source::None {
                progress.note(&format!("going on without PostgreSQL: {reason}"));
            }
            setup.postgres_missing = Some(reason);
            Ok(None)
        }
    }
}

fn verify_postgres(postgres: &Postgres) -> Result<Verification> {
    let (found, expected) = postgres.total()?;
    ensure!(found == expected, "PostgreSQL: money was lost or invented: {found} != {expected}");
    Ok(Verification {
        after: "all of PostgreSQL".into(),
        check: format!("sum of all balances is {expected}, as loaded"),
        accounts: (expected / crate::workload::INITIAL_BALANCE) as u64,
    })
}
