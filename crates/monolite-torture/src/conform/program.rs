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
    let mut seen = Vec::new();
    let first = db.transaction()?;
    first.execute("INSERT INTO t SELECT 'first'", ()).wait()?;
    db.write(|tx| tx.execute("INSERT INTO t VALUES ('second')", ())).wait()?;
    first.commit().wait()?;
    if rowid(&db, "first")? == 2 {
        seen.push(Observation::RowidsInOrderOfCommits);
    }
    let undone = db.transaction()?;
    undone.execute("INSERT INTO t VALUES ('undone')", ()).wait()?;
    undone.rollback();
    let third = db.transaction()?;
    third.execute("INSERT INTO t VALUES ('third')", ()).wait()?;
    third.commit().wait()?;
    if rowid(&db, "third")? == 4 {
        seen.push(Observation::IdsWithGaps);
    }
    db.close()?;
    Ok(seen)
}

fn rowid(db: &Database, name: &'static str) -> Result<i64> {
    let sql = "SELECT rowid FROM t WHERE a = ?1";
    Ok(db.read(move |tx| tx.query_row(sql, [name], |row| row.get(0))).wait()?)
}
