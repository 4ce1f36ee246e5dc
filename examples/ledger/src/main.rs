//! The program: arguments, hand-over from the process before, and shutdown.
//!
//! # Hand-over
//! Start the new version while the old one runs: it waits for the database. On SIGTERM the old one
//! answers its open requests, closes the database and exits. Then the new one opens the file and
//! listens. Clients see refused connections for that moment, and lose no request. With
//! `--socket-on-stdin` the service manager holds the socket: connections wait, and none is refused.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use monolite::{Database, Durability, Options};
use monolite_archive::Archive;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

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
    let mut stop = Box::pin(stop_signal()?);
    if let Some(url) = &arguments.postgres {
        let db = monolite_postgres::Database::connect(url).await?;
        ledger::create_schema(&db, ledger::SCHEMA_ON_POSTGRESQL).await?;
        return serve(&arguments, ledger::router(db.with_error()), stop).await;
    }
    let db = tokio::select! {
        db = open(&arguments) => db?,
        () = &mut stop => {
            // Nothing is open yet; the thread that waits for the file cannot be stopped.
            println!("stopped before {} was open", arguments.database.display());
            std::process::exit(0);
        }
    };
    let service = ledger::router(db.with_error()).merge(ledger::figures(db.with_error()));
    let served = serve(&arguments, service, stop).await;
    tokio::task::spawn_blocking(move || db.close()).await?.context("cannot close the database")?;
    println!("closed {}", arguments.database.display());
    served
}

/// Opens the database on a thread that may block, since another process may hold it for a while.
async fn open(arguments: &Arguments) -> anyhow::Result<Database> {
    let path = arguments.database.clone();
    let patience = Duration::from_secs(arguments.wait);
    println!("opening {}", path.display());
    let context = format!("cannot open {}", path.display());
    let options = options(arguments)?;
    let opened = tokio::task::spawn_blocking(move || options.open_wait(path, patience));
    let db = opened.await?.context(context)?;
    ledger::create_schema(&db, ledger::SCHEMA).await.context("cannot create the schema")?;
    Ok(db)
}

/// With an archive an answer means that the transaction is there.
fn options(arguments: &Arguments) -> anyhow::Result<Options> {
    let Some(url) = &arguments.archive else { return Ok(Options::new()) };
    let archive = Archive::at(url)?.take_over(arguments.take_over);
    Ok(Options::new().archive(archive).durability(Durability::Archived))
}

/// Serves until a stop signal, then finishes open requests within the grace period.
async fn serve(
    arguments: &Arguments,
    service: axum::Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let listener = match arguments.socket_on_stdin {
        true => inherited().context("the standard input is no socket to listen on")?,
        false => TcpListener::bind(arguments.listen)
            .await
            .with_context(|| format!("cannot listen on {}", arguments.listen))?,
    };
    println!("listening on http://{}", listener.local_addr()?);
    let (told, stopping) = oneshot::channel();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        stop.await;
        // The receiver is gone if the server has failed on its own.
        let _ = told.send(());
    });
    let grace = Duration::from_secs(arguments.grace);
    tokio::select! {
        served = server.into_future() => served.context("the server failed"),
        () = after(stopping, grace) => {
            eprintln!("ledger: requests still open after {grace:?} were dropped");
            Ok(())
        }
    }
}

/// The socket that the service manager holds. It outlives this process, with its waiting clients.
fn inherited() -> std::io::Result<TcpListener> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let listener = std::net::TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Ends some time after the program was told to stop.
async fn after(stopping: oneshot::Receiver<()>, grace: Duration) {
    match stopping.await {
        Ok(()) => tokio::time::sleep(grace).await,
        Err(_) => std::future::pending().await,
    }
}

/// Ends at Ctrl-C or `SIGTERM`, also if that came before this call.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
