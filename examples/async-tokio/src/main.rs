//! Monolite under tokio: a hundred tasks count page views, and each awaits its own transaction.
//!
//! `cargo run --package async-tokio [FILE]`
//!
//! The engine has its own threads and needs no runtime: `Database::write` returns an ordinary
//! future. `examples/async-smol` is the same program under another runtime, and
//! `crates/monolite/examples/sync.rs` without one.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use monolite::{Database, Error};
use tokio::task::JoinSet;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS page (
        path  TEXT    NOT NULL PRIMARY KEY,
        views INTEGER NOT NULL CHECK (views > 0)
    ) STRICT, WITHOUT ROWID;
";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| ":memory:".into());
    let db = Database::open(path)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).await?;

    let mut tasks = JoinSet::new();
    for visitor in 0..100 {
        let db = db.clone();
        tasks.spawn(async move {
            let page = if visitor % 3 == 0 { "/about" } else { "/" };
            count_view(&db, page).await
        });
    }
    for counted in tasks.join_all().await {
        counted?;
    }

    for (path, views) in db.read(all_pages).await? {
        println!("{views:>6} {path}");
    }
    // Waits for the disk, which a task of the runtime should not do.
    tokio::task::spawn_blocking(move || db.close()).await.expect("closing does not panic")
}

/// Counts one view and returns the new number. When this returns, the number is on disk.
async fn count_view(db: &Database, path: &'static str) -> Result<i64, Error> {
    db.write(move |tx| {
        tx.query_row(
            "INSERT INTO page (path, views) VALUES (?1, 1)
             ON CONFLICT (path) DO UPDATE SET views = views + 1 RETURNING views",
            [path],
            |row| row.get(0),
        )
    })
    .await
}

fn all_pages(tx: &monolite::ReadTx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let mut query = tx.prepare_cached("SELECT path, views FROM page ORDER BY path")?;
    let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
