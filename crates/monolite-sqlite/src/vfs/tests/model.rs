//! Random transactions over two connections, compared with a map in memory.
//!
//! # Algorithm
//! 1. The seed chooses the lower VFS, sync and locking mode, sector padding, whether the WAL is
//!    made longer ahead of its commits and whether writes fail.
//! 2. Each transaction upserts and deletes rows with a cache so small that most pages are spilled,
//!    rolls back savepoints, and commits or rolls back. The same is done to a copy of the map.
//! 3. After each one, what both connections see and what SQLite recovers from a copy of the files
//!    must be the map. A failing write writes half, so it never completes a commit frame, and a
//!    failed commit is absent.

use std::collections::BTreeMap;

use super::*;
use crate::testing::Random;

type Rows = BTreeMap<i64, (i64, u8)>;
type Outcome<T = ()> = std::result::Result<T, String>;

pub(super) fn run(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let lower = if random.below(2) == 0 { Lower::Unix } else { Lower::UnixExcl };
    let control = WalControl::keeping_frames(u64::MAX);
    let writes_ahead = random.below(2) == 0;
    let rig = Rig::with(
        lower,
        if writes_ahead { control.writing_ahead(&std::env::temp_dir()) } else { control },
    );
    let alone = random.below(4) == 0;
    let query = ["", "?psow=0"][random.below(2) as usize];
    let synchronous = ["OFF", "NORMAL", "FULL"][random.below(3) as usize];
    let connections = open(&rig, query, synchronous, alone)?;
    // SQLite pads a commit with frames after the commit frame then, so one that fails may be there.
    let pads = !query.is_empty() && synchronous == "FULL";
    let fails = random.below(2) == 0 && !pads;
    let mut rows = Rows::new();
    for _ in 0..40 {
        let connection = &connections[random.below(connections.len() as u64) as usize];
        if fails && random.below(3) == 0 {
            let error = if random.below(2) == 0 { IoError::FULL } else { IoError::WRITE };
            rig.probe.fail_wal_write(random.below(6) as i64, error);
        }
        rows = transaction(connection, rows, &mut random)?;
        rig.probe.fail_wal_write_in.store(0, SeqCst);
        if random.below(8) == 0 {
            let sql = ["PASSIVE", "RESTART", "TRUNCATE"][random.below(3) as usize];
            let sql = format!("PRAGMA wal_checkpoint({sql})");
            connection.execute_batch(&sql).map_err(|error| error.to_string())?;
        }
        for connection in &connections {
            compare(connection, &rows)?;
        }
        let (copy, _directory) = after_crash(&rig.path());
        compare(&copy, &rows).map_err(|difference| format!("after a crash: {difference}"))?;
    }
    Ok(())
}

fn open(rig: &Rig, query: &str, synchronous: &str, alone: bool) -> Outcome<Vec<Connection>> {
    drop(rig.open_with_table());
    let open = || -> rusqlite::Result<Connection> {
        let connection = rig.open_with(query);
        let locking = if alone { "EXCLUSIVE" } else { "NORMAL" };
        let pragmas = format!(
            "PRAGMA locking_mode={locking}; PRAGMA journal_mode=WAL; \
             PRAGMA wal_autocheckpoint=0; PRAGMA synchronous={synchronous}; \
             PRAGMA cache_size=8; PRAGMA temp_store=MEMORY"
        );
        connection.execute_batch(&pragmas)?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS u(x)")?;
        Ok(connection)
    };
    (0..if alone { 1 } else { 2 }).map(|_| open().map_err(|error| error.to_string())).collect()
}

/// Runs one transaction and returns the rows that there must be after it.
fn transaction(connection: &Connection, before: Rows, random: &mut Random) -> Outcome<Rows> {
    let mut rows = before.clone();
    let mut savepoint: Option<Rows> = None;
    let steps = 1 + random.below(40);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| error.to_string())?;
    for _ in 0..steps {
        let mut next = rows.clone();
        let done = match random.below(12) {
            0 if savepoint.is_none() => {
                savepoint = Some(rows.clone());
                connection.execute_batch("SAVEPOINT s")
            }
            1 => match savepoint.take() {
                Some(saved) => {
                    next = saved;
                    connection.execute_batch("ROLLBACK TO s; RELEASE s")
                }
                None => Ok(()),
            },
            2 => delete(connection, &mut next, random),
            3 => update_many(connection, &mut next, random),
            _ => upsert(connection, &mut next, random),
        };
        match done {
            Ok(()) => rows = next,
            Err(error) => failed(&error)?,
        }
        if connection.is_autocommit() {
            return Ok(before);
        }
    }
    if random.below(4) == 0 {
        connection.execute_batch("ROLLBACK").map_err(|error| error.to_string())?;
        return Ok(before);
    }
    match connection.execute_batch("COMMIT") {
        Ok(()) => Ok(rows),
        Err(error) => {
            failed(&error)?;
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").map_err(|error| error.to_string())?;
            }
            Ok(before)
        }
    }
}

/// A failure must be one that was injected, never corruption.
fn failed(error: &rusqlite::Error) -> Outcome {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull | rusqlite::ErrorCode::SystemIoFailure) => Ok(()),
        _ => Err(error.to_string()),
    }
}

fn upsert(connection: &Connection, rows: &mut Rows, random: &mut Random) -> rusqlite::Result<()> {
    let (id, len) = (random.below(60) as i64, 1 + random.below(7000) as i64);
    let byte = random.below(256) as u8;
    rows.insert(id, (len, byte));
    let sql = "INSERT OR REPLACE INTO t(id, v) VALUES (?1, ?2)";
    connection.execute(sql, (id, vec![byte; len as usize])).map(drop)
}

fn delete(connection: &Connection, rows: &mut Rows, random: &mut Random) -> rusqlite::Result<()> {
    let id = random.below(60) as i64;
    rows.remove(&id);
    connection.execute("DELETE FROM t WHERE id = ?1", [id]).map(drop)
}

/// One statement with a statement journal that changes many pages and reads them again.
fn update_many(
    connection: &Connection,
    rows: &mut Rows,
    random: &mut Random,
) -> rusqlite::Result<()> {
    let (from, byte, len) =
        (random.below(60) as i64, random.below(256) as u8, 1 + random.below(3000) as i64);
    for (_, row) in rows.range_mut(from..) {
        *row = (len, byte);
    }
    let sql = "INSERT OR REPLACE INTO t(id, v) SELECT id, ?2 FROM t WHERE id >= ?1";
    connection.execute(sql, (from, vec![byte; len as usize])).map(drop)
}

fn compare(connection: &Connection, rows: &Rows) -> Outcome {
    let found = contents(connection).map_err(|error| error.to_string())?;
    let found = found.ok_or("a value holds bytes of another")?;
    if found != *rows {
        return Err(format!("found {found:?} instead of {rows:?}"));
    }
    match integrity(connection).map_err(|error| error.to_string())?.as_str() {
        "ok" => Ok(()),
        problem => Err(problem.to_owned()),
    }
}

/// The rows; `None` if the bytes of a value are not all the same.
fn contents(connection: &Connection) -> rusqlite::Result<Option<Rows>> {
    let mut statement = connection.prepare("SELECT id, v FROM t")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let mut found = Some(Rows::new());
    for row in rows {
        let (id, value) = row?;
        let whole = value.iter().all(|byte| *byte == value[0]);
        found = found.filter(|_| whole);
        if let Some(found) = &mut found {
            found.insert(id, (value.len() as i64, value[0]));
        }
    }
    Ok(found)
}
