//! Monolite under smol: a hundred tasks count page views, and each awaits its own transaction.
//!
//! `cargo run --package async-smol [FILE]`
//!
//! The engine has its own threads and needs no runtime: `Database::write` returns an ordinary
//! future. `examples/async-tokio` is the same program under another runtime, and
//! `crates/monolite/examples/sync.rs` without one.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use monolite::{Database, Error};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS page (
        path  TEXT    NOT NULL PRIMARY KEY,
        views INTEGER NOT NULL CHECK (views > 0)
    ) STRICT, WITHOUT ROWID;
";

fn main() -> Result<(), Error> {
    smol::block_on(run())
}

async fn run() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| ":memory:".into());
    let db = Database::open(path)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).await?;

    let mut tasks = Vec::new();
    for visitor in 0..100 {
        let db = db.clone();
        tasks.push(smol::spawn(async move {
            let page = if visitor % 3 == 0 { "/about" } else { "/" };
            count_view(&db, page).await
        }));
    }
    for task in tasks {
        task.await?;
    }

    for (path, views) in db.read(all_pages).await? {
        println!("{views:>6} {path}");
    }
    // Waits for the disk, which a task of the executor should not do.
    smol::unblock(move || db.close()).await
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
