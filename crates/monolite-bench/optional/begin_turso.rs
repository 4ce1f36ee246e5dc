//! An optional driver of `bench begin`: Turso, a rewrite of SQLite, with its `BEGIN CONCURRENT`.
//!
//! It fills a database of its own: it cannot do this on one that SQLite has made. Its table has the
//! same rows and, where Turso accepts them, the same indexes.

mod begin_drawn;
mod protocol;

use begin_drawn::{Changes, Draw, Drawn};
use protocol::{Arguments, Result, Shift, answer, crew};
use tokio::runtime::{Builder, Runtime};
use turso::{Connection, Database};

fn main() -> Result<()> {
    let arguments = Arguments::new();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let is_new = !std::path::Path::new(arguments.text("path")).exists();
    let database = runtime.block_on(turso::Builder::new_local(arguments.text("path")).build())?;
    let before = runtime.block_on(async {
        let connection = connect(&database, &arguments).await?;
        if is_new {
            fill(&connection, &arguments).await?;
        }
        count(&connection).await
    })?;
    let (done, changes) = crew(&arguments, |number, shift| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut draw = Draw::new(number, &arguments);
        work(&runtime, &database, &arguments, &mut draw, shift)?;
        Ok(draw.changes)
    })?;
    runtime.block_on(async {
        let connection = connect(&database, &arguments).await?;
        let rows = before + done.operations * arguments.number::<u64>("appends");
        verify(&connection, changes, rows).await
    })?;
    answer(&done, 0);
    Ok(())
}

async fn connect(database: &Database, arguments: &Arguments) -> Result<Connection> {
    let connection = database.connect()?;
    connection.pragma_update("journal_mode", "'mvcc'").await?;
    connection.pragma_update("synchronous", arguments.text("synchronous")).await?;
    Ok(connection)
}

async fn count(connection: &Connection) -> Result<u64> {
    let mut rows = connection.query("SELECT count(*) FROM tbl", ()).await?;
    let row = rows.next().await?.ok_or("there is no count")?;
    Ok(row.get::<i64>(0)? as u64)
}

async fn fill(connection: &Connection, arguments: &Arguments) -> Result<()> {
    connection.execute("CREATE TABLE tbl(a INTEGER PRIMARY KEY, b BLOB, c TEXT)", ()).await?;
    connection.execute("CREATE INDEX tbl_1 ON tbl(substr(c, 1, 16))", ()).await?;
    connection.execute("CREATE INDEX tbl_2 ON tbl(substr(c, 2, 16))", ()).await?;
    let rows: i64 = arguments.number("rows");
    let mut random = fastrand::Rng::with_seed(1);
    connection.execute("BEGIN", ()).await?;
    let mut insert = connection.prepare("INSERT INTO tbl VALUES (?1, ?2, ?3)").await?;
    for row in 1..=rows {
        let mut blob = vec![0; 200];
        random.fill(&mut blob);
        let text: String = (0..64).map(|_| random.digit(16).to_ascii_uppercase()).collect();
        insert.execute((row, blob, text)).await?;
    }
    connection.execute("COMMIT", ()).await?;
    Ok(())
}

fn work(
    runtime: &Runtime,
    database: &Database,
    arguments: &Arguments,
    draw: &mut Draw<'_>,
    shift: &mut Shift<'_>,
) -> Result<()> {
    let connection = runtime.block_on(connect(database, arguments))?;
    shift.begin();
    while shift.goes_on() {
        let drawn = draw.next();
        loop {
            match runtime.block_on(attempt(&connection, arguments, &drawn)) {
                Ok(()) => break,
                Err(error) if is_retryable(&error) => {
                    shift.repeated();
                    // It may have been rolled back already.
                    let _ = runtime.block_on(connection.execute("ROLLBACK", ()));
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

fn is_retryable(error: &turso::Error) -> bool {
    match error {
        turso::Error::Busy(_) | turso::Error::BusySnapshot(_) => true,
        turso::Error::Error(text) => text.contains("conflict"),
        _ => false,
    }
}

async fn attempt(
    connection: &Connection,
    arguments: &Arguments,
    drawn: &Drawn,
) -> std::result::Result<(), turso::Error> {
    connection.execute("BEGIN CONCURRENT", ()).await?;
    for from in &drawn.scans {
        let mut scan = connection.prepare_cached(arguments.text("scan")).await?;
        let mut rows = scan.query((from.clone(),)).await?;
        while rows.next().await?.is_some() {}
    }
    for (row, blob, text) in &drawn.updates {
        let mut update = connection.prepare_cached(arguments.text("update")).await?;
        update.execute((blob.clone(), text.clone(), *row)).await?;
    }
    for (blob, text) in &drawn.appends {
        let mut append = connection.prepare_cached(arguments.text("append")).await?;
        append.execute((blob.clone(), text.clone())).await?;
    }
    connection.execute("COMMIT", ()).await?;
    Ok(())
}

async fn verify(connection: &Connection, changes: Vec<Changes>, rows: u64) -> Result<()> {
    let found = count(connection).await?;
    if found != rows {
        return Err(format!("{found} rows where there must be {rows}").into());
    }
    for (row, last) in changes.into_iter().flatten() {
        let mut rows = connection.query("SELECT c FROM tbl WHERE a = ?1", (row,)).await?;
        let found = rows.next().await?.ok_or("a row is missing")?.get::<String>(0)?;
        if found != last {
            return Err(format!("row {row} does not hold its last update").into());
        }
    }
    Ok(())
}
