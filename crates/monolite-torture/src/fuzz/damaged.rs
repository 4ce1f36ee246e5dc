//! Damaged files at open: whatever is in the database and its WAL, the engine answers.
//!
//! # Format
//! The first two bytes are the length of the database in units of 64 bytes, big-endian; the rest
//! after it is the WAL.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use monolite::{Database, Error, ErrorKind, Options, Sharing};

/// The unit of the database's length.
const UNIT: usize = 64;

/// Longest time of a read or a write; a damaged B-tree can be a circle.
const LIMIT: Duration = Duration::from_millis(200);

/// Opens the files that `data` stands for, reads everything there is, and writes.
///
/// # Errors
/// When the engine reports a defect of its own.
pub fn damaged(data: &[u8]) -> Result<()> {
    let Some((length, files)) = data.split_first_chunk::<2>() else { return Ok(()) };
    let length = usize::from(u16::from_be_bytes(*length)).saturating_mul(UNIT);
    let (database, wal) = files.split_at(length.min(files.len()));
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("db");
        fs::write(&path, database)?;
        fs::write(directory.path().join("db-wal"), wal)?;
        let options = Options::new().readers(1).sharing(sharing);
        let options = options.write_time_limit(LIMIT).read_time_limit(LIMIT);
        match options.open(&path) {
            Ok(db) => use_it(&db)?,
            Err(error) => no_defect(&error)?,
        }
    }
    Ok(())
}

fn use_it(db: &Database) -> Result<()> {
    let ask = |sql: String| {
        let read = db.read(move |tx| {
            let mut statement = tx.prepare(&sql)?;
            let mut rows = statement.query(())?;
            let mut first = None;
            while let Some(row) = rows.next()? {
                first = first.or(row.get::<_, String>(0).ok());
            }
            Ok::<_, Error>(first)
        });
        read.wait()
    };
    for sql in [
        "PRAGMA quick_check",
        "SELECT name FROM sqlite_schema",
        "SELECT * FROM t",
        "SELECT * FROM t ORDER BY y DESC",
    ] {
        if let Err(error) = ask(sql.into()) {
            no_defect(&error)?;
        }
    }
    let write = db.write(|tx| {
        tx.execute("INSERT INTO t(x, y) VALUES (100, 'more')", ())?;
        tx.execute("DELETE FROM t WHERE x < 5", ())?;
        tx.execute_batch("CREATE TABLE u(x)")
    });
    if let Err(error) = write.wait() {
        no_defect(&error)?;
    }
    db.close().or_else(|error| no_defect(&error))
}

fn no_defect(error: &Error) -> Result<()> {
    ensure!(error.kind() != ErrorKind::Internal && !error.to_string().is_empty(), "{error:?}");
    Ok(())
}
