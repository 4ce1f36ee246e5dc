//! An optional driver of `bench begin`: SQLite's branch with `BEGIN CONCURRENT`, and WAL2.
//!
//! It works on a copy of its own of the suite's database: WAL2 changes the file's format.

mod begin_drawn;
mod protocol;

use begin_drawn::{Changes, Draw, Drawn};
use protocol::{Arguments, Result, Shift, answer, crew};
use rusqlite::{Connection, ErrorCode};
use std::time::Duration;

fn connect(arguments: &Arguments) -> rusqlite::Result<Connection> {
    let connection = Connection::open(arguments.text("path"))?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch(&format!(
        "PRAGMA synchronous = {}; PRAGMA cache_size = -65536",
        arguments.text("synchronous")
    ))?;
    Ok(connection)
}

fn main() -> Result<()> {
    let arguments = Arguments::new();
    let connection = connect(&arguments)?;
    let journal = arguments.text("journal");
    let mode = |pragma: String| -> rusqlite::Result<String> {
        connection.query_row(&pragma, [], |row| row.get(0))
    };
    if mode("PRAGMA journal_mode".into())? != journal {
        // From one kind of WAL to the other there is no way but this.
        mode("PRAGMA journal_mode = delete".into())?;
        let found = mode(format!("PRAGMA journal_mode = {journal}"))?;
        if found != journal {
            return Err(format!("the journal mode is {found} and not {journal}").into());
        }
    }
    let count = "SELECT count(*) FROM tbl";
    let before: i64 = connection.query_row(count, [], |row| row.get(0))?;
    let (done, changes) = crew(&arguments, |number, shift| {
        let mut draw = Draw::new(number, &arguments);
        work(&arguments, &mut draw, shift)?;
        Ok(draw.changes)
    })?;
    let wal: u64 = ["-wal", "-wal2"]
        .iter()
        .filter_map(|suffix| std::fs::metadata(format!("{}{suffix}", arguments.text("path"))).ok())
        .map(|file| file.len())
        .sum();
    let appended = done.operations as i64 * arguments.number::<i64>("appends");
    verify(&connection, changes, before + appended)?;
    answer(&done, wal);
    Ok(())
}

fn work(arguments: &Arguments, draw: &mut Draw<'_>, shift: &mut Shift<'_>) -> Result<()> {
    let connection = connect(arguments)?;
    shift.begin();
    while shift.goes_on() {
        let drawn = draw.next();
        loop {
            match attempt(&connection, arguments, &drawn) {
                Ok(()) => break,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                    shift.repeated();
                    if !connection.is_autocommit() {
                        connection.execute_batch("ROLLBACK")?;
                    }
                    if shift.is_over() {
                        shift.give_up();
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        draw.keep(drawn);
        shift.acknowledged();
    }
    Ok(())
}

fn attempt(connection: &Connection, arguments: &Arguments, drawn: &Drawn) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN CONCURRENT")?.execute([])?;
    for from in &drawn.scans {
        let mut scan = connection.prepare_cached(arguments.text("scan"))?;
        let mut rows = scan.query([from])?;
        while rows.next()?.is_some() {}
    }
    for (row, blob, text) in &drawn.updates {
        connection.prepare_cached(arguments.text("update"))?.execute((blob, text, row))?;
    }
    for (blob, text) in &drawn.appends {
        connection.prepare_cached(arguments.text("append"))?.execute((blob, text))?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

fn verify(connection: &Connection, changes: Vec<Changes>, rows: i64) -> Result<()> {
    let found: i64 = connection.query_row("SELECT count(*) FROM tbl", [], |row| row.get(0))?;
    if found != rows {
        return Err(format!("{found} rows where there must be {rows}").into());
    }
    let mut text = connection.prepare("SELECT c FROM tbl WHERE a = ?1")?;
    for (row, last) in changes.into_iter().flatten() {
        let found: String = text.query_row([row], |row| row.get(0))?;
        if found != last {
            return Err(format!("row {row} does not hold its last update").into());
        }
    }
    Ok(())
}
