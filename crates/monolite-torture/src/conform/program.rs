//! Owns what no single statement shows: what becomes of two transactions that meet.

use anyhow::Result;
use monolite::Database;

use super::differences::Observation;

/// Shows the differences that take two transactions.
///
/// # Errors
/// Those of the engine.
pub(crate) fn observe() -> Result<Vec<Observation>> {
    let db = Database::open(":memory:")?;
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a)")).wait()?;
    let first = db.transaction()?;
    first.execute("INSERT INTO t VALUES ('first')", ()).wait()?;
    db.write(|tx| tx.execute("INSERT INTO t VALUES ('second')", ())).wait()?;
    first.commit().wait()?;
    let rowid = "SELECT rowid FROM t WHERE a = 'first'";
    let rowid: i64 = db.read(|tx| tx.query_one(rowid, (), |row| row.get(0))).wait()?;
    db.close()?;
    Ok(if rowid == 2 { vec![Observation::RowidsInOrderOfCommits] } else { vec![] })
}
