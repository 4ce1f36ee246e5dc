//! Owns the shop's start and end: `cargo run --package shop [FILE] [ADDRESS]`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command prints")]

mod checkout;
mod http;
mod outbox;

use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?; // Ctrl-C
    let mut terminate = signal(SignalKind::terminate())?; // systemd, docker stop
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let path = std::env::args().nth(1).unwrap_or_else(|| "shop.db".into());
    let address = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:8080".into());

    let db = monolite::Database::open(path)?;
    let migrations = monolite::migrations![
        "../migrations/0001_shop.sql",
        "../migrations/0002_search.sql",
        "../migrations/0003_purchases_have_states.sql",
    ]?;
    migrations.up(&db).await?;
    let sql = "SELECT key FROM purchase WHERE state = 'reserved'";
    let unsettled: Vec<String> = db.read(|tx| tx.query_map(sql, (), |row| row.get(0))).await?;
    println!("{} orders to ask the payment service about: {unsettled:?}", unsettled.len());
    tokio::spawn(outbox::deliver(db.clone()));

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, http::router(db.clone())).with_graceful_shutdown(stop).await?;
    Ok(tokio::task::spawn_blocking(move || db.close()).await??) // waits for the disk
}
