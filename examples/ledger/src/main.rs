//! The program: arguments, hand-over from the process before, and shutdown.
//!
//! # Hand-over
//! Start the new version while the old one runs: it waits for the database. On SIGTERM the old one
//! answers its open requests, closes the database and exits. Then the new one opens the file and
//! listens. Clients see refused connections for that moment, and lose no request. With
//! `--socket-on-stdin` the service manager holds the socket: connections wait, and none is refused.
//!
//! With `--lease` the ledgers of several machines take turns (`turns.rs`). One that was replaced
//! exits with a failure; the service manager starts it again, and it follows.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod turns;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use monolite::{Database, Durability, Options};
use monolite_archive::Archive;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

/// Accounts, transfers and statements over HTTP.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The database file; created where there is none.
    #[arg(long, default_value = "ledger.db")]
    database: PathBuf,

    /// A directory, or the URL of one or of a bucket: each transaction is archived there before it
    /// is answered, so that nothing is lost with this machine.
    #[arg(long, value_name = "URL")]
    archive: Option<String>,

    /// With --archive: archive this file from now on, in place of the one before, as after a
    /// restore.
    #[arg(long, requires = "archive")]
    take_over: bool,

    /// With --archive: take turns with the ledgers on other machines. Follow the archive while
    /// another one is the primary, and take over when that is stopped, or silent for so long.
    #[arg(long, value_name = "SECONDS", requires = "archive", conflicts_with = "take_over",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    lease: Option<u64>,

    /// With --lease: where clients find this ledger. Default: where it listens.
    #[arg(long, value_name = "TEXT", requires = "lease")]
    address: Option<String>,

    /// Keep the accounts in this PostgreSQL instead: `postgres://user:password@host/database`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["database", "archive"])]
    postgres: Option<String>,

    /// Where to listen. Port 0 takes any that is free.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,

    /// Listen on the socket that is the standard input, as systemd has it with
    /// `StandardInput=socket`: connections wait there while no process takes them.
    #[arg(long, conflicts_with = "listen")]
    socket_on_stdin: bool,

    /// Seconds to wait for another process to let go of the database.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,

    /// Seconds that requests may take to finish after the program was told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Catch signals before anything is open: a stop always closes the database.
    let stop = stop_signal()?;
    let grace = Duration::from_secs(arguments.grace);
    if let Some(url) = &arguments.postgres {
        let db = monolite_postgres::Database::connect(url).await?;
        ledger::create_schema(&db, ledger::SCHEMA_ON_POSTGRESQL).await?;
        let service = ledger::router(db.with_error());
        return serve(&listen(&arguments)?, service, stopped(stop), grace).await;
    }
    println!("opening {}", arguments.database.display());
    let (mut options, mut listener) = (Options::new(), None);
    if let Some(url) = &arguments.archive {
        let mut archive = Archive::at(url)?.take_over(arguments.take_over);
        if let Some(lease) = arguments.lease {
            let listener = listener.insert(listen(&arguments)?);
            let here = || Ok(format!("http://{}", listener.local_addr()?));
            let address = arguments.address.clone().map_or_else(here, anyhow::Ok)?;
            let lease = Duration::from_secs(lease);
            // A follower that knows of something which it lacks waits for its next look.
            archive = archive.lease(Some(lease)).interval(lease / 10).address(&address);
            let path = arguments.database.clone();
            turns::stand_by(archive.clone(), path, listener, stop.clone()).await?;
        }
        // An answer means that the transaction is in the archive.
        options = options.archive(archive).durability(Durability::Archived);
    }
    let db = tokio::select! {
        biased;
        () = stopped(stop.clone()) => {
            // Nothing is open yet; the thread that waits for the file cannot be stopped.
            println!("stopped before {} was open", arguments.database.display());
            std::process::exit(0);
        }
        db = open(&arguments, options) => db?,
    };
    let listener = listener.map_or_else(|| listen(&arguments), Ok)?;
    let service = ledger::router(db.with_error()).merge(ledger::figures(db.with_error()));
    let (replaced, has_turns) = (turns::is_replaced(db.clone()), arguments.lease.is_some());
    let over = async move {
        tokio::select! {
            () = stopped(stop) => {}
            () = replaced, if has_turns => {}
        }
    };
    let served = serve(&listener, service, over, grace).await;
    let successor = turns::successor(&db).filter(|_| has_turns);
    let closed = tokio::task::spawn_blocking(move || db.close()).await?;
    if let Some(address) = successor {
        anyhow::bail!("replaced by the primary at {address:?}: start it again, and it follows");
    }
    closed.context("cannot close the database")?;
    println!("closed {}", arguments.database.display());
    served
}

/// Opens the database on a thread that may block, since another process may hold it for a while.
async fn open(arguments: &Arguments, options: Options) -> anyhow::Result<Database> {
    let path = arguments.database.clone();
    let patience = Duration::from_secs(arguments.wait);
    let context = format!("cannot open {}", path.display());
    let opened = tokio::task::spawn_blocking(move || options.open_wait(path, patience));
    let db = opened.await?.context(context)?;
    ledger::create_schema(&db, ledger::SCHEMA).await.context("cannot create the schema")?;
    Ok(db)
}

/// Serves until `over` ends, then finishes open requests within the grace period. Connections that
/// come later wait at the socket.
async fn serve(
    listener: &TcpListener,
    service: axum::Router,
    over: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> anyhow::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
    let (told, stopping) = oneshot::channel();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        over.await;
        // The receiver is gone if the server has failed on its own.
        let _ = told.send(());
    });
    tokio::select! {
        served = server.into_future() => served.context("the server failed"),
        () = after(stopping, grace) => {
            eprintln!("ledger: requests still open after {grace:?} were dropped");
            Ok(())
        }
    }
}

/// The socket to serve on: a new one, or that of the service manager, which outlives this process
/// with its waiting clients.
fn listen(arguments: &Arguments) -> anyhow::Result<TcpListener> {
    let listener = match arguments.socket_on_stdin {
        true => {
            let socket = TcpListener::from(std::io::stdin().as_fd().try_clone_to_owned()?);
            socket.local_addr().context("the standard input is no socket to listen on")?;
            socket
        }
        false => TcpListener::bind(arguments.listen)
            .with_context(|| format!("cannot listen on {}", arguments.listen))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Ends some time after the program was told to stop.
async fn after(stopping: oneshot::Receiver<()>, grace: Duration) {
    match stopping.await {
        Ok(()) => tokio::time::sleep(grace).await,
        Err(_) => std::future::pending().await,
    }
}

/// Turns true at Ctrl-C or `SIGTERM`.
fn stop_signal() -> anyhow::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let (tell, stop) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tell.send_replace(true);
    });
    Ok(stop)
}

/// Ends once the program is to stop.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // The sender lives until it has told.
    let _ = stop.wait_for(|stops| *stops).await;
}
