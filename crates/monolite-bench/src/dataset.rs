//! The loaded SQLite data set: made once, recognised, and used again.
//!
//! # Format
//! `DIR/tps-<schema>-<rows>.db`, a stock SQLite file whose `user_version` is [`FORMAT_VERSION`].
//! That is written last, so a file without one is the rest of an interrupted load and is loaded
//! anew. A database that is not the one asked for is refused, never overwritten.
//!
//! # Invariants
//! A database that is offered for reuse holds `rows` accounts with the ids `0..rows`, and
//! `rows * INITIAL_BALANCE` in all: the money is checked by every run that used it.

use crate::progress::{Interrupt, Progress};
use crate::raw_connection::{self, remove};
use crate::workload::{INITIAL_BALANCE, Schema, TOTAL_SQL};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Version of the data set's layout; another one is not reused.
pub const FORMAT_VERSION: u32 = 2;

/// Rows per transaction of the load.
const LOAD_BATCH_ROWS: u64 = 100_000;

/// Leaves looked at for the rows per page: enough for a stable mean, few enough for a file of
/// 31 GB. They are the first ones of each B-tree, where the hot accounts are.
const SAMPLED_LEAVES: u32 = 1_000;

/// Space left free on the disk beside the data set, for the WAL and other programs.
const SPARE_BYTES: u64 = 1 << 30;

/// What a data set is; two that are equal are interchangeable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// [`FORMAT_VERSION`] of the program that loaded it.
    pub format_version: u32,
    /// The suite it belongs to.
    pub suite: String,
    /// How the table is declared.
    pub schema: Schema,
    pub rows: u64,
    /// Balance of each account at the load.
    pub initial_balance: i64,
    /// The SQLite that wrote it.
    pub sqlite_version: String,
    /// Rows per leaf page, an entry per B-tree.
    pub rows_per_leaf: Vec<f64>,
}

/// A loaded data set.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The database file.
    pub path: PathBuf,
    pub identity: Identity,
    /// Whether this run loaded it, or an earlier one.
    pub origin: Origin,
}

/// Where a data set came from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Loaded by this run.
    Loaded {
        /// Time that the load took.
        seconds: f64,
    },
    /// Left by an earlier run.
    Reused,
}

impl Identity {
    fn new(schema: Schema, rows: u64, rows_per_leaf: Vec<f64>) -> Identity {
        Identity {
            format_version: FORMAT_VERSION,
            suite: "tps".into(),
            schema,
            rows,
            initial_balance: INITIAL_BALANCE,
            sqlite_version: rusqlite::version().into(),
            rows_per_leaf,
        }
    }
}

impl Dataset {
    /// Returns where the data set is, or would be.
    pub fn path(dir: &Path, schema: Schema, rows: u64) -> PathBuf {
        dir.join(format!("tps-{schema}-{rows}.db"))
    }

    /// Returns the data set as it would be, without looking for it: to plan a run.
    pub fn planned(dir: &Path, schema: Schema, rows: u64) -> Dataset {
        let identity = Identity::new(schema, rows, Vec::new());
        Dataset { path: Dataset::path(dir, schema, rows), identity, origin: Origin::Reused }
    }

    /// Finds the data set in `dir`, or loads it.
    pub fn prepare(
        dir: &Path,
        schema: Schema,
        rows: u64,
        progress: &dyn Progress,
        interrupt: &Interrupt,
    ) -> Result<Dataset> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = Dataset::path(dir, schema, rows);
        if let Some(identity) = find(&path, schema, rows)? {
            return Ok(Dataset { path, identity, origin: Origin::Reused });
        }
        remove(&path)?;
        ensure_room(dir, rows * schema.bytes_per_row())?;
        let started = std::time::Instant::now();
        let loaded = load(&path, schema, rows, progress, interrupt);
        progress.finish();
        if loaded.is_err() {
            remove(&path)?;
        }
        let (identity, seconds) = (loaded?, started.elapsed().as_secs_f64());
        Ok(Dataset { path, identity, origin: Origin::Loaded { seconds } })
    }

    /// Returns the size of the database file.
    pub fn file_bytes(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Returns the money that all accounts must hold together.
    pub fn expected_total(&self) -> i64 {
        self.identity.rows as i64 * self.identity.initial_balance
    }

    /// Reads the file once, so that the first candidate does not pay for the disk; at most
    /// `most_bytes` from its start, where the hot accounts are.
    pub fn warm(&self, most_bytes: u64) -> Result<()> {
        let start = fs::File::open(&self.path)?.take(most_bytes);
        io::copy(&mut io::BufReader::with_capacity(1 << 20, start), &mut io::sink())?;
        Ok(())
    }

    /// Returns the money on all accounts, by a full scan.
    pub fn total(&self) -> Result<i64> {
        let connection = raw_connection::open_bare(&self.path)?;
        Ok(connection.query_row(TOTAL_SQL, [], |row| row.get(0))?)
    }
}

/// Returns the identity of a data set that is there and whole.
fn find(path: &Path, schema: Schema, rows: u64) -> Result<Option<Identity>> {
    if !path.exists() {
        return Ok(None);
    }
    let connection = raw_connection::open_bare(path)?;
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    let version: u32 = match version {
        Err(_) | Ok(0) => return Ok(None),
        Ok(version) => version,
    };
    let look = "SELECT sql, (SELECT max(id) FROM account) FROM sqlite_schema \
                WHERE name = 'account'";
    let (sql, last): (String, Option<i64>) = connection
        .query_row(look, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .with_context(|| format!("{} has no readable table; {REMEDY}", path.display()))?;
    ensure!(
        version == FORMAT_VERSION && sql == schema.create_sql() && last == Some(rows as i64 - 1),
        "{} is another data set (format {version}, {sql}, last id {last:?}); {REMEDY}",
        path.display(),
    );
    Ok(Some(Identity::new(schema, rows, rows_per_leaf(&connection, schema)?)))
}

const REMEDY: &str = "delete it, or name another directory with --data";

fn ensure_room(dir: &Path, database_bytes: u64) -> Result<()> {
    let needed = database_bytes + SPARE_BYTES;
    let free = crate::machine::free_bytes(dir)?;
    if free < needed {
        bail!(
            "{} has {:.1} GB free and the data set needs {:.1} GB; free some space, name another \
             directory with --data, or load fewer rows with --rows",
            dir.display(),
            free as f64 / 1e9,
            needed as f64 / 1e9
        );
    }
    Ok(())
}

fn load(
    path: &Path,
    schema: Schema,
    rows: u64,
    progress: &dyn Progress,
    interrupt: &Interrupt,
) -> Result<Identity> {
    progress.begin("loading SQLite rows", Some(rows));
    let mut connection = raw_connection::open_bare(path)?;
    // Nothing of a half-loaded file is kept, so it needs no journal; it is synced at the end.
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144",
    )?;
    connection.execute_batch(schema.create_sql())?;
    for first in (0..rows).step_by(LOAD_BATCH_ROWS as usize) {
        interrupt.check()?;
        let end = rows.min(first + LOAD_BATCH_ROWS);
        load_batch(&mut connection, first..end)?;
        progress.advance_to(end);
    }
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA user_version = {FORMAT_VERSION}; \
         PRAGMA wal_checkpoint(TRUNCATE)"
    ))?;
    let rows_per_leaf = rows_per_leaf(&connection, schema)?;
    connection.close().map_err(|(_, error)| error)?;
    fs::File::open(path)?.sync_all().context("cannot sync the data set")?;
    Ok(Identity::new(schema, rows, rows_per_leaf))
}

fn load_batch(connection: &mut Connection, ids: std::ops::Range<u64>) -> Result<()> {
    let batch = connection.transaction()?;
    let mut insert = batch.prepare_cached("INSERT INTO account(id, balance) VALUES (?1, ?2)")?;
    for id in ids {
        insert.execute((id as i64, INITIAL_BALANCE))?;
    }
    drop(insert);
    Ok(batch.commit()?)
}

/// Rows per leaf of the first leaves of each B-tree; from the file's size without dbstat.
fn rows_per_leaf(connection: &Connection, schema: Schema) -> Result<Vec<f64>> {
    let trees: &[&str] = match schema {
        Schema::Published => &["account", "sqlite_autoindex_account_1"],
        Schema::Tuned => &["account"],
    };
    // Without an ORDER BY, dbstat walks the tree from its left edge and stops at the limit.
    let sample = "SELECT avg(ncell) FROM (SELECT ncell FROM dbstat WHERE name = ?1 AND \
                  pagetype = 'leaf' LIMIT ?2)";
    let sampled: rusqlite::Result<Vec<f64>> = trees
        .iter()
        .map(|tree| connection.query_row(sample, (tree, SAMPLED_LEAVES), |row| row.get(0)))
        .collect();
    sampled.or_else(|_| {
        let rows: f64 =
            connection.query_row("SELECT max(id) + 1 FROM account", [], |r| r.get(0))?;
        let pages: f64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
        Ok(trees.iter().map(|_| rows * trees.len() as f64 / pages).collect())
    })
}

#[cfg(test)]
mod tests;
