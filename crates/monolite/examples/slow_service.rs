//! A transaction that asks a slow service in the middle, from many threads at once: only the caller
//! waits for the service, and every decision is made on prices that still hold.
//!
//! Run it with `cargo run --release -p monolite --example slow_service`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Error};

const BUYERS: i64 = 50;

/// Takes its time, as services do.
fn exchange_rate() -> i64 {
    thread::sleep(Duration::from_millis(10));
    2
}

fn buy(db: &Database, item: i64) -> Result<i64, Error> {
    db.transact(async |tx| {
        let price: i64 = tx
            .query_row("SELECT price FROM item WHERE id = ?1", [item], |row| row.get(0))
            .wait()?;
        let paid = price * exchange_rate();
        tx.execute("UPDATE item SET stock = stock - 1 WHERE id = ?1", [item]).wait()?;
        tx.execute("INSERT INTO sale(item, paid) VALUES (?1, ?2)", (item, paid)).wait()?;
        Ok(paid)
    })
    .wait()
}

fn main() -> Result<(), Error> {
    let directory = tempfile::tempdir().expect("a directory for the example");
    let db = Database::open(directory.path().join("shop.db"))?;
    db.write(|tx| {
        tx.execute_batch(
            "CREATE TABLE item(
                 id INTEGER PRIMARY KEY, price INTEGER NOT NULL, stock INTEGER NOT NULL
             ) STRICT;
             CREATE TABLE sale(
                 id INTEGER PRIMARY KEY, item INTEGER NOT NULL, paid INTEGER NOT NULL
             ) STRICT;
             INSERT INTO item VALUES (1, 10, 1000), (2, 20, 1000);",
        )
    })
    .wait()?;

    let start = Instant::now();
    thread::scope(|scope| {
        let buyers: Vec<_> = (0..BUYERS)
            .map(|i| {
                let db = &db;
                scope.spawn(move || buy(db, i % 2 + 1))
            })
            .collect();
        // A price changes meanwhile: buyers that have read the old one decide again.
        db.write(|tx| tx.execute("UPDATE item SET price = 30 WHERE id = 1", ())).wait()?;
        for buyer in buyers {
            buyer.join().expect("a buyer does not panic")?;
        }
        Ok::<_, Error>(())
    })?;

    let (sales, takings): (i64, i64) = db
        .read(|tx| {
            let sql = "SELECT count(*), sum(paid) FROM sale";
            tx.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .wait()?;
    let conflicts = db.stats().transaction_conflicts;
    println!("{sales} sales for {takings} in {:.0?}, {conflicts} conflicts", start.elapsed());
    assert_eq!(sales, BUYERS);
    db.close()
}
