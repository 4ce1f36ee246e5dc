//! Monolite without a runtime: threads count page views, and each waits for its own transaction.
//!
//! `cargo run --package monolite --example sync [FILE]`
//!
//! Every handle that can be awaited also has `wait()`. Waiting threads are what makes batches: the
//! more of them there are, the more transactions share one sync of the disk. The same program with
//! `.await` is in `examples/async-tokio` and `examples/async-smol`.

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
    let path = std::env::args().nth(1).unwrap_or_else(|| ":memory:".into());
    let db = Database::open(path)?;
    db.write(|tx| tx.execute_batch(SCHEMA)).wait()?;

    std::thread::scope(|scope| {
        let db = &db;
        let visitors: Vec<_> =
            (0..16).map(|visitor| scope.spawn(move || visit(db, visitor))).collect();
        visitors.into_iter().try_for_each(|it| it.join().expect("a visitor does not panic"))
    })?;

    for (path, views) in db.read(all_pages).wait()? {
        println!("{views:>6} {path}");
    }
    db.close()
}

/// What one thread does: it looks at ten pages.
fn visit(db: &Database, visitor: usize) -> Result<(), Error> {
    let page = if visitor.is_multiple_of(3) { "/about" } else { "/" };
    for _ in 0..10 {
        count_view(db, page)?;
    }
    Ok(())
}

/// Counts one view and returns the new number. When this returns, the number is on disk.
fn count_view(db: &Database, path: &'static str) -> Result<i64, Error> {
    db.write(move |tx| {
        tx.query_row(
            "INSERT INTO page (path, views) VALUES (?1, 1)
             ON CONFLICT (path) DO UPDATE SET views = views + 1 RETURNING views",
            [path],
            |row| row.get(0),
        )
    })
    .wait()
}

fn all_pages(tx: &monolite::ReadTx<'_>) -> Result<Vec<(String, i64)>, Error> {
    let mut query = tx.prepare_cached("SELECT path, views FROM page ORDER BY path")?;
    let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
