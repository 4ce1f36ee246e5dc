//! Owns how a step is asked of each kind of connection: a closure's, an interactive transaction and
//! plain SQLite. All three must give the same text.

use std::sync::{Arc, Mutex};

use monolite::rusqlite::fallible_iterator::FallibleIterator as _;
use monolite::rusqlite::types::Value;
use monolite::rusqlite::{self, Batch, Connection, Statement, params_from_iter};
use monolite::{Error, ReadTx, ToSql, Transaction, Tx};
use monolite_testkit::blocking::locked;

use super::answer::Rows;
use super::record::{How, Parameters, Step};

/// What is said of the row behind the last one that was wanted.
const MORE: &str = " and more";

/// Runs `$run` with `$bound` as what `rusqlite` takes for parameters.
macro_rules! bound {
    ($parameters:expr, $bound:ident => $run:expr) => {
        match $parameters {
            Parameters::Positional(values) => {
                let $bound = params_from_iter(values);
                $run
            }
            Parameters::Named(values) => {
                let named = named(values);
                let $bound = named.as_slice();
                $run
            }
        }
    };
}

fn named(values: &[(String, Value)]) -> Vec<(&str, &dyn ToSql)> {
    values.iter().map(|(name, value)| (name.as_str(), value as &dyn ToSql)).collect()
}

/// Asks the transaction of a closure.
pub(super) fn ask_closure(tx: &Tx<'_>, step: &Step) -> Result<String, Error> {
    let sql = step.sql.as_str();
    match step.how {
        How::Execute => {
            bound!(&step.parameters, bound => tx.execute(sql, bound)).map(|it| changed(sql, it))
        }
        How::Batch => tx.execute_batch(sql).map(|()| "done".into()),
        How::LastInsertRowid => Ok(rowid(tx.last_insert_rowid())),
        // No closure has savepoints of its own.
        How::Savepoint | How::RollbackTo | How::Release => Ok("done".into()),
        How::Row | How::Cached | How::All | How::Part(_) => ask_read(tx, step),
    }
}

/// Asks the transaction of a read, which has a part of the methods.
pub(super) fn ask_read(tx: &ReadTx<'_>, step: &Step) -> Result<String, Error> {
    let sql = step.sql.as_str();
    let mut rows = Rows::default();
    match step.how {
        How::Row => {
            bound!(&step.parameters, bound => tx.query_row(sql, bound, |row| rows.add(row)))?;
            Ok(rows.said())
        }
        How::Cached => Ok(all(&mut *tx.prepare_cached(sql)?, step)?),
        How::All | How::Part(_) => Ok(all(&mut tx.prepare(sql)?, step)?),
        How::Execute => {
            let mut statement = tx.prepare(sql)?;
            let ran = bound!(&step.parameters, bound => statement.execute(bound));
            Ok(changed(sql, ran?))
        }
        How::Batch | How::LastInsertRowid => panic!("no read has {:?}", step.how),
        How::Savepoint | How::RollbackTo | How::Release => Ok("done".into()),
    }
}

/// Asks an interactive transaction.
pub(super) fn ask_interactive(tx: &Transaction, step: &Step) -> Result<String, Error> {
    match &step.parameters {
        Parameters::Positional(values) => ask_bound(tx, step, || values.clone()),
        Parameters::Named(values) => {
            let named = named(values);
            ask_bound(tx, step, || named.as_slice())
        }
    }
}

fn ask_bound<P: monolite::IntoParameters>(
    tx: &Transaction,
    step: &Step,
    bound: impl Fn() -> P,
) -> Result<String, Error> {
    let sql = step.sql.as_str();
    let first = |row: &rusqlite::Row<'_>| {
        let mut rows = Rows::default();
        rows.add(row).map(|()| rows.said())
    };
    match step.how {
        How::Execute => tx.execute(sql, bound()).wait().map(|it| changed(sql, it)),
        How::Batch => tx.execute_batch(sql).wait().map(|()| "done".into()),
        How::Row => tx.query_row(sql, bound(), first).wait(),
        How::All | How::Cached => several(tx, sql, bound(), usize::MAX),
        How::Part(most) => several(tx, sql, bound(), most),
        How::LastInsertRowid => tx.last_insert_rowid().wait().map(rowid),
        How::Savepoint => tx.savepoint(sql).wait().map(|()| "done".into()),
        How::RollbackTo => tx.rollback_to(sql).wait().map(|()| "done".into()),
        How::Release => tx.release(sql).wait().map(|()| "done".into()),
    }
}

/// Reads rows until there are `most`; the mapping fails at the one behind them, as an application's
/// may.
fn several<P: monolite::IntoParameters>(
    tx: &Transaction,
    sql: &str,
    bound: P,
    most: usize,
) -> Result<String, Error> {
    let rows = Arc::new(Mutex::new(Rows::default()));
    let seen = Arc::clone(&rows);
    let map = move |row: &rusqlite::Row<'_>| {
        let mut seen = locked(&seen);
        if seen.count == most {
            seen.text.push_str(MORE);
            return Err(rusqlite::Error::InvalidQuery);
        }
        seen.add(row)
    };
    let result = tx.query_map(sql, bound, map).wait();
    let rows = std::mem::take(&mut *locked(&rows));
    match result {
        Err(error) if !matches!(error.sqlite(), Some(rusqlite::Error::InvalidQuery)) => Err(error),
        _ => Ok(rows.said()),
    }
}

/// Asks plain SQLite. A change of the schema that fails is undone to the last byte, in memory too:
/// within a transaction SQLite itself goes on with the schema as it was half-way.
pub(super) fn ask_plain(plain: &Connection, step: &Step) -> Result<String, Error> {
    let sql = step.sql.as_str();
    let mut rows = Rows::default();
    match step.how {
        How::Batch => {
            batch(plain, sql)?;
            Ok("done".into())
        }
        How::LastInsertRowid => Ok(rowid(plain.last_insert_rowid())),
        How::Savepoint => savepoint(plain, "SAVEPOINT", sql),
        How::RollbackTo => savepoint(plain, "ROLLBACK TO", sql),
        How::Release => savepoint(plain, "RELEASE", sql),
        How::Execute => guarded(plain, sql, || {
            prepared(plain, sql, |statement| {
                bound!(&step.parameters, bound => statement.execute(bound))
                    .map(|it| changed(sql, it))
            })
        }),
        How::Row => guarded(plain, sql, || {
            prepared(plain, sql, |statement| {
                bound!(&step.parameters, bound => {
                    statement.query_row(bound, |row| rows.add(row))
                })
            })?;
            Ok(std::mem::take(&mut rows).said())
        }),
        How::All | How::Cached | How::Part(_) => {
            guarded(plain, sql, || prepared(plain, sql, |statement| all(statement, step)))
        }
    }
}

/// Runs `use_it` with the statement: a kept one, if it is one that SQLite prepares again when the
/// schema has changed.
fn prepared<T>(
    plain: &Connection,
    sql: &str,
    use_it: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    if sql.starts_with("EXPLAIN") || sql.starts_with("PRAGMA") {
        use_it(&mut plain.prepare(sql)?)
    } else {
        use_it(&mut *plain.prepare_cached(sql)?)
    }
}

fn batch(plain: &Connection, sql: &str) -> Result<(), Error> {
    let mut statements = Batch::new(plain, sql);
    while let Some(mut statement) = statements.next()? {
        let text = statement.expanded_sql().unwrap_or_default();
        guarded(plain, text.trim_start(), || {
            // As far as `execute_batch` goes with a statement that returns rows.
            statement.query([])?.next()?;
            Ok(String::new())
        })?;
    }
    Ok(())
}

/// Runs a statement, in a savepoint of its own if it may change the schema.
fn guarded(
    plain: &Connection,
    sql: &str,
    run: impl FnOnce() -> rusqlite::Result<String>,
) -> Result<String, Error> {
    if plain.is_autocommit() || !changes_schema(sql) {
        return Ok(run()?);
    }
    plain.execute_batch("SAVEPOINT \"a change of the schema\"")?;
    let result = run();
    if plain.is_autocommit() {
        return Ok(result?);
    }
    if result.as_ref().is_err_and(|error| error.sqlite_error().is_some() || is_wrong_sql(error)) {
        plain.execute_batch("ROLLBACK TO \"a change of the schema\"")?;
    }
    plain.execute_batch("RELEASE \"a change of the schema\"")?;
    Ok(result?)
}

fn is_wrong_sql(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqlInputError { .. })
}

/// Whether a statement may change the schema, or what is known of it.
pub(super) fn changes_schema(sql: &str) -> bool {
    let word = sql.split_ascii_whitespace().next().unwrap_or_default();
    ["CREATE", "ALTER", "DROP", "ANALYZE", "REINDEX"]
        .iter()
        .any(|verb| word.eq_ignore_ascii_case(verb))
}

fn savepoint(plain: &Connection, verb: &str, name: &str) -> Result<String, Error> {
    plain.execute_batch(&format!("{verb} \"{}\"", name.replace('"', "\"\"")))?;
    Ok("done".into())
}

fn all(statement: &mut Statement<'_>, step: &Step) -> rusqlite::Result<String> {
    let most = if let How::Part(most) = step.how { most } else { usize::MAX };
    let mut seen = Rows::default();
    let mut rows = bound!(&step.parameters, bound => statement.query(bound))?;
    while let Some(row) = rows.next()? {
        if seen.count == most {
            seen.text.push_str(MORE);
            break;
        }
        seen.add(row)?;
    }
    Ok(seen.said())
}

/// A number of changes, of a statement that has one: behind another one it is that of the
/// connection's last.
fn changed(sql: &str, count: usize) -> String {
    if changes_rows(sql) || sql.starts_with("WITH") {
        format!("{count} changed")
    } else {
        "done".into()
    }
}

/// Whether a statement is an `INSERT`, `UPDATE` or `DELETE`.
pub(super) fn changes_rows(sql: &str) -> bool {
    ["INSERT", "REPLACE", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb))
}

fn rowid(rowid: i64) -> String {
    format!("rowid {rowid}")
}
