//! Owns what no single statement shows: what becomes of two transactions that meet.

use anyhow::Result;
use monolite::{Database, Error, ErrorKind, InteractiveOptions, Options};

use super::differences::Observation;
use crate::checks::lanes::as_one_batch;

/// Shows the differences that take two transactions.
///
/// # Errors
/// Those of the engine.
pub(crate) fn observe() -> Result<Vec<Observation>> {
    let interactive = InteractiveOptions::default().connections(1);
    let db = Options::new().interactive(interactive).open(":memory:")?;
    db.write(|tx| tx.execute_batch("CREATE TABLE t(a)")).wait()?;
    let mut seen = Vec::new();
    let first = db.transaction()?;
    first.execute("INSERT INTO t SELECT 'first'", ()).wait()?;
    db.write(|tx| tx.execute("INSERT INTO t VALUES ('second')", ())).wait()?;
    first.commit().wait()?;
    if rowid(&db, "first")? == 2 {
        seen.push(Observation::RowidsInOrderOfCommits);
    }
    // The one that is undone takes the only connection of the third.
    let third = db.transaction()?;
    third.query_row("SELECT 1", (), |_| Ok(())).wait()?;
    let undone = db.transaction()?;
    undone.execute("INSERT INTO t VALUES ('undone')", ()).wait()?;
    undone.rollback();
    db.write(|tx| tx.execute("PRAGMA user_version = 7", ())).wait()?;
    third.execute("INSERT INTO t VALUES ('third')", ()).wait()?;
    third.commit().wait()?;
    if rowid(&db, "third")? == 4 {
        seen.push(Observation::IdsWithGaps);
    }
    if db.stats().transactions_resumed > 0 {
        seen.push(Observation::Moved);
    }
    let loser = db.transaction()?;
    loser.execute("UPDATE t SET a = a || (SELECT count(*) FROM t)", ()).wait()?;
    db.write(|tx| tx.execute("INSERT INTO t VALUES ('before it')", ())).wait()?;
    if loser.commit().wait().is_err_and(|error| error.kind() == ErrorKind::Conflict) {
        seen.push(Observation::Conflicted);
    }
    if runs_again(&db)? {
        seen.push(Observation::RanAgain);
    }
    db.close()?;
    Ok(seen)
}

/// Whether a write runs again whose neighbour in the batch fails behind it.
fn runs_again(db: &Database) -> Result<bool> {
    let (write, failing) = as_one_batch(db, || {
        let write = db.write(|tx| {
            tx.execute("INSERT INTO t VALUES ('again')", ())?;
            Ok::<_, Error>(tx.attempt())
        });
        let failing = db.write(|tx| {
            tx.execute("INSERT INTO t VALUES ('failing')", ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        (write, failing)
    })?;
    let attempts = write.wait()?;
    Ok(failing.wait().is_err() && attempts > 1)
}

fn rowid(db: &Database, name: &'static str) -> Result<i64> {
    let sql = "SELECT rowid FROM t WHERE a = ?1";
    Ok(db.read(move |tx| tx.query_row(sql, [name], |row| row.get(0))).wait()?)
}
