//! One customer floods the writer with the longest transactions that the limits allow; another one
//! sends a short one now and then. How long does that one wait?
//!
//! ```sh
//! cargo run --release -p monolite --example principals
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use monolite::{Database, Options, Result};

/// How long a transaction may take.
const LIMIT: Duration = Duration::from_millis(200);

/// How many transactions the first customer has waiting at any time.
const FLOOD: usize = 8;

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT max(i) FROM n";

fn main() -> Result<()> {
    let db = Options::new().write_time_limit(LIMIT).open(":memory:")?;
    db.write(|tx| tx.execute_batch("CREATE TABLE orders(customer, text)")).wait()?;
    println!("a short write beside {FLOOD} that take {LIMIT:?} each, again and again:");
    let one = waits(&db, &db)?;
    println!("  without principals     median {:.0?}, longest {:.0?}", one[10], one[20]);
    let two = waits(&db.with_principal(1), &db.with_principal(2))?;
    println!("  with with_principal()   median {:.0?}, longest {:.0?}", two[10], two[20]);
    db.close()
}

/// How long 21 short writes of `other` took beside the flood of `greedy`, in order of length.
fn waits(greedy: &Database, other: &Database) -> Result<Vec<Duration>> {
    let is_over = AtomicBool::new(false);
    let mut waits = thread::scope(|scope| {
        for _ in 0..FLOOD {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // Each ends with `Timeout`.
                    let flood = greedy.write(|tx| tx.query_row(ENDLESS, (), |_| Ok(())));
                    let _ = flood.wait();
                }
            });
        }
        thread::sleep(LIMIT);
        let write = |number: i64| {
            let started = Instant::now();
            let insert = "INSERT INTO orders VALUES (2, ?)";
            other.write(move |tx| tx.execute(insert, [number])).wait()?;
            Ok(started.elapsed())
        };
        let waits: Result<Vec<Duration>> = (0..21).map(write).collect();
        is_over.store(true, Ordering::Relaxed);
        waits
    })?;
    waits.sort_unstable();
    Ok(waits)
}
