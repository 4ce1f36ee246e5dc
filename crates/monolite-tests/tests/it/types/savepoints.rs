//! Savepoints in a closure: what is undone, and what is not.

use std::panic::{AssertUnwindSafe, catch_unwind};

use monolite::{Database, Error, ErrorKind, Result, Tx};

use super::{Poor, database};

fn ids(db: &Database) -> Vec<i64> {
    let sql = "SELECT id FROM t ORDER BY id";
    db.read(|tx| tx.query_map(sql, (), |row| row.get(0))).wait().unwrap()
}

fn insert(tx: &Tx<'_>, id: i64) -> Result<usize> {
    tx.execute("INSERT INTO t(id) VALUES (?1)", [id])
}

#[test]
fn what_a_failed_savepoint_did_is_undone_alone() {
    let db = database();
    db.write(|tx| {
        insert(tx, 1)?;
        let failed = tx.savepoint(|tx| {
            insert(tx, 2)?;
            tx.savepoint(|tx| insert(tx, 3))?;
            insert(tx, 1)
        });
        assert!(failed.unwrap_err().is_unique_violation());
        tx.savepoint(|tx| {
            insert(tx, 4)?;
            let inner = tx.savepoint(|tx| {
                insert(tx, 5)?;
                Err::<(), _>(Error::aborted("not this one"))
            });
            assert_eq!(inner.unwrap_err().kind(), ErrorKind::Aborted);
            insert(tx, 6)
        })?;
        insert(tx, 7)?;
        Ok(())
    })
    .wait()
    .unwrap();
    assert_eq!(ids(&db), [1, 4, 6, 7]);
}

#[test]
fn a_savepoint_whose_panic_is_caught_is_undone() {
    let db = database();
    db.write(|tx| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            tx.savepoint(|tx| -> Result<()> {
                insert(tx, 1)?;
                std::panic::panic_any("on purpose")
            })
        }));
        assert!(panicked.is_err());
        insert(tx, 2)?;
        Ok(())
    })
    .wait()
    .unwrap();
    assert_eq!(ids(&db), [2]);
}

#[test]
fn schema_and_full_text_search_are_undone_with_a_savepoint() {
    let db = database();
    db.write(|tx| tx.execute_batch("CREATE VIRTUAL TABLE f USING fts5(text)")).wait().unwrap();
    db.write(|tx| {
        let undone = tx.savepoint(|tx| {
            tx.execute_batch("CREATE TABLE u(a); ALTER TABLE t ADD COLUMN y")?;
            tx.execute("INSERT INTO f VALUES ('lost words')", ())?;
            tx.execute("INSERT INTO u VALUES (1)", ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        assert!(undone.is_err());
        assert!(tx.execute("INSERT INTO u VALUES (1)", ()).is_err());
        assert!(tx.execute("UPDATE t SET y = 1", ()).is_err());
        tx.execute("INSERT INTO f VALUES ('kept words')", ())?;
        Ok(())
    })
    .wait()
    .unwrap();
    let sql = "SELECT text FROM f WHERE f MATCH 'words'";
    let found: Vec<String> = db.read(|tx| tx.query_map(sql, (), |row| row.get(0))).wait().unwrap();
    assert_eq!(found, ["kept words"]);
    db.write(|tx| tx.execute("INSERT INTO f(f) VALUES ('integrity-check')", ())).wait().unwrap();
}

#[test]
fn a_statement_that_rolls_the_transaction_back_takes_the_savepoint_with_it() {
    let db = database();
    let lost = db.write(|tx| {
        insert(tx, 1)?;
        let lost = tx.savepoint(|tx| tx.execute("INSERT OR ROLLBACK INTO t(id) VALUES (1)", ()));
        assert!(lost.unwrap_err().is_unique_violation());
        let after = tx.savepoint(|tx| insert(tx, 2));
        assert_eq!(after.unwrap_err().kind(), ErrorKind::Aborted);
        Ok(())
    });
    assert_eq!(lost.wait().unwrap_err().kind(), ErrorKind::Aborted);
    assert!(ids(&db).is_empty());
}

#[test]
fn a_statement_half_way_keeps_a_savepoint_from_opening_and_is_ended_by_one_that_is_undone() {
    let db = database();
    db.write(|tx| {
        let mut half_way = tx.prepare("INSERT INTO t(id) VALUES (1), (2) RETURNING id")?;
        let mut rows = half_way.query([])?;
        rows.next()?;
        let refused = tx.savepoint(|tx| insert(tx, 3));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
        drop(rows);
        tx.savepoint(|tx| insert(tx, 3))?;
        Ok(())
    })
    .wait()
    .unwrap();
    assert_eq!(ids(&db), [1, 2, 3]);
}

#[test]
fn a_savepoint_has_errors_of_its_own() {
    let db = database().with_error::<Poor>();
    db.write(|tx| {
        let poor = tx.savepoint_and_then(|tx| {
            insert(tx, 1)?;
            Err::<(), _>(Poor)
        });
        assert!(matches!(poor, Err(Poor)));
        Ok(())
    })
    .wait()
    .unwrap();
    let sql = "SELECT count(*) FROM t";
    let count = db.read(|tx| Ok(tx.query_row(sql, (), |row| row.get::<_, i64>(0))?));
    assert_eq!(count.wait().unwrap(), 0);
}
