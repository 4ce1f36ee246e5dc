//! What a full-text table in the schema costs interactive transactions that do not use it, and what
//! a statement costs whose text is new.
//!
//! `cargo run --release --package monolite --example transaction_cost [DIRECTORY]` prints processor
//! time in µs, of interleaved rounds.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use monolite::{Database, Error, Result, rusqlite};

const ROUNDS: usize = 7;
const ROWS: i64 = 100_000;
const THREADS: i64 = 8;
const TRANSACTIONS: i64 = 1_000;
const STATEMENTS: i64 = 4_000;

/// Statements of one interactive transaction.
const TOGETHER: i64 = 50;

const SCHEMA: &str = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO account SELECT i, 100 FROM n;";
const WORDS: &str = "CREATE VIRTUAL TABLE words USING fts5(text);
    INSERT INTO words VALUES ('green tea')";

const READ: &str = "SELECT balance FROM account WHERE id = ?1";
const UPDATE: &str = "UPDATE account SET balance = balance + 1 WHERE id = ?1";

static NEXT: AtomicI64 = AtomicI64::new(0);

/// A number that no one had before.
fn next() -> i64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn spread(number: i64) -> i64 {
    number * 7_919 % ROWS
}

/// Milliseconds of processor time that all threads of the process have had, in steps of ten.
fn process_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or("");
    let fields: Vec<f64> = behind_name.split(' ').map(|it| it.parse().unwrap_or(0.0)).collect();
    fields.get(12..14).map_or(f64::NAN, |times| times.iter().sum::<f64>() * 10.0)
}

/// Nanoseconds that this thread has had of a processor.
fn thread_time() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// µs of all threads for each interactive transaction of a read and an update.
fn transactions(db: &Database) -> Result<f64> {
    let start = process_time();
    std::thread::scope(|scope| -> Result<()> {
        let run = || -> Result<()> {
            for _ in 0..TRANSACTIONS {
                let id = spread(next());
                db.transact(async |tx| {
                    tx.query_row(READ, [id], |row| row.get::<_, i64>(0)).wait()?;
                    tx.execute(UPDATE, [id]).wait()?;
                    Ok::<_, Error>(())
                })
                .wait()?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok((process_time() - start) * 1_000.0 / (THREADS * TRANSACTIONS) as f64)
}

/// µs of this thread for each of the statements that `run` runs, `together` of them in each call.
fn statements(together: i64, run: impl Fn(&[String]) -> Result<()>, is_new: bool) -> Result<f64> {
    let text = |number| format!("SELECT balance, {number} FROM account WHERE id = 77");
    let mut time = 0.0;
    for _ in 0..STATEMENTS / together {
        let number = || if is_new { next() } else { -1 };
        let texts: Vec<String> = (0..together).map(|_| text(number())).collect();
        let start = thread_time();
        run(&texts)?;
        time += thread_time() - start;
    }
    Ok(time / 1_000.0 / STATEMENTS as f64)
}

fn read(db: &Database, texts: &[String]) -> Result<()> {
    let first = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    db.read(|tx| texts.iter().try_for_each(|sql| tx.query_row(sql, (), first).map(drop))).wait()
}

fn transaction(db: &Database, texts: &[String]) -> Result<()> {
    let first = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
    let tx = db.transaction()?;
    for sql in texts {
        tx.query_row(sql, (), first).wait()?;
    }
    tx.commit().wait().map(drop)
}

fn plain(connection: &rusqlite::Connection, texts: &[String]) -> Result<()> {
    for sql in texts {
        let mut statement = connection.prepare_cached(sql)?;
        statement.query_row((), |row| row.get::<_, i64>(0))?;
    }
    Ok(())
}

/// A measured column: its name, and one round of it.
type Column<'c> = (&'static str, Box<dyn Fn() -> Result<f64> + 'c>);

fn main() -> Result<()> {
    let directory = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = |name: &str| directory.join(format!("transaction_cost_{name}.db"));
    for file in ["without", "with"].iter().flat_map(|it| ["", "-wal"].map(|end| (it, end))) {
        let _ = std::fs::remove_file(format!("{}{}", path(file.0).display(), file.1));
    }
    let open = |file: &Path, more: &'static str| -> Result<Database> {
        let db = Database::open(file)?;
        db.write(move |tx| tx.execute_batch(&format!("{SCHEMA} {more}"))).wait()?;
        Ok(db)
    };
    let (without, with) = (open(&path("without"), "")?, open(&path("with"), WORDS)?);
    let sqlite = rusqlite::Connection::open_in_memory()?;
    sqlite.execute_batch(SCHEMA)?;
    let columns: [Column<'_>; 9] = [
        ("transaction, no full-text table", Box::new(|| transactions(&without))),
        ("transaction beside a full-text table", Box::new(|| transactions(&with))),
        ("plain SQLite, new text", Box::new(|| statements(1, |it| plain(&sqlite, it), true))),
        ("plain SQLite, same text", Box::new(|| statements(1, |it| plain(&sqlite, it), false))),
        ("read, new text", Box::new(|| statements(1, |it| read(&without, it), true))),
        ("read, same text", Box::new(|| statements(1, |it| read(&without, it), false))),
        (
            "statement of a transaction, new text",
            Box::new(|| statements(TOGETHER, |it| transaction(&without, it), true)),
        ),
        (
            "the same, beside a full-text table",
            Box::new(|| statements(TOGETHER, |it| transaction(&with, it), true)),
        ),
        (
            "statement of a transaction, same text",
            Box::new(|| statements(TOGETHER, |it| transaction(&without, it), false)),
        ),
    ];
    let mut times = vec![Vec::new(); columns.len()];
    for _ in 0..ROUNDS {
        for ((_, round), times) in columns.iter().zip(&mut times) {
            times.push(round()?);
        }
    }
    for ((name, _), mut times) in columns.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        println!("{name:40} least {:8.2}  median {:8.2}", times[0], times[ROUNDS / 2]);
    }
    for db in [&without, &with] {
        let stats = db.stats();
        let (unchanged, replayed) = (stats.transactions_unchanged, stats.transactions_replayed);
        println!("reads left out at commit: {unchanged}, done again: {replayed}");
    }
    drop(columns);
    without.close()?;
    with.close()
}
