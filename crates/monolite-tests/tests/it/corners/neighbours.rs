//! What a neighbour has left in the memory of a connection: virtual tables hold back what they
//! write and keep their settings there, and SQLite its figures.

use monolite::{
    Database, Error, ErrorKind, InteractiveOptions, Options, Row, Sharing, Tx, Write, rusqlite,
};

use super::{ask, database, number, write};
use crate::patience::{as_one_batch, one};

const BEST: &str = "SELECT rowid FROM ft WHERE ft MATCH 'one' ORDER BY rank LIMIT 1";
const SET_RANK: &str = "INSERT INTO ft(ft, rank) VALUES ('rank', 'bm25(0.0, 100.0)')";

/// Runs two writes in one batch.
fn both<A: Send + 'static, B: Send + 'static>(
    db: &Database,
    one: impl FnOnce() -> Write<A>,
    other: impl FnOnce() -> Write<B>,
) -> (Result<A, Error>, Result<B, Error>) {
    let (one, other) = as_one_batch(db, || (one(), other()));
    (one.wait(), other.wait())
}

fn each_sharing(test: impl Fn(&Database)) {
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        let options = Options::new()
            .sharing(sharing)
            .interactive(InteractiveOptions::default().connections(1));
        let (_directory, _, db) = database(options);
        test(&db);
    }
}

#[test]
fn what_a_virtual_table_holds_back_is_written_by_its_own_transaction() {
    for module in ["fts4", "fts5"] {
        each_sharing(|db| {
            db.write(move |tx| {
                tx.execute_batch(&format!(
                    "CREATE VIRTUAL TABLE doc USING {module}(text);
                     CREATE TABLE item(id INTEGER PRIMARY KEY, of);
                     CREATE TABLE stock(n CHECK (n >= 0)); INSERT INTO stock VALUES (9), (9)"
                ))
            })
            .wait()
            .unwrap();
            let (_, told) = both(
                db,
                || db.write(|tx| tx.execute("INSERT INTO doc VALUES ('some text')", ())),
                || {
                    db.write(|tx| {
                        let before: (i64, i64) =
                            tx.query_row("SELECT changes(), total_changes()", (), |row| {
                                Ok((row.get(0)?, row.get(1)?))
                            })?;
                        tx.execute("INSERT INTO item(of) VALUES (NULL)", ())?;
                        tx.execute("UPDATE stock SET n = n - 1", ())?;
                        let figures = (tx.last_insert_rowid(), tx.total_changes());
                        Ok::<_, Error>((before, figures))
                    })
                },
            );
            assert_eq!(told.unwrap(), ((0, 0), (1, 3)), "{module}");
            let (_, told) = both(
                db,
                || db.write(|tx| tx.execute("INSERT INTO doc VALUES ('some text')", ())),
                || {
                    db.write(|tx| {
                        tx.execute_batch("CREATE VIEW of_item AS SELECT of FROM item")?;
                        let figures = "SELECT changes() + total_changes()";
                        let figures = tx.query_row(figures, (), number)?;
                        tx.execute_batch("DROP VIEW of_item")?;
                        Ok::<_, Error>(figures)
                    })
                },
            );
            assert_eq!(told.unwrap(), 0, "{module}");
        });
    }
}

#[test]
fn settings_of_full_text_search_that_were_rolled_back_hold_for_nobody() {
    each_sharing(|db| {
        // Every connection has seen the schema without a virtual table.
        let tx = db.transaction().unwrap();
        tx.execute("UPDATE a SET v = v + 1", ()).wait().unwrap();
        tx.commit().wait().unwrap();
        write(
            db,
            "CREATE VIRTUAL TABLE ft USING fts5(a, b);
             INSERT INTO ft VALUES ('one', 'two'), ('two', 'one'), ('one one two', 'three'),
                                   ('x', 'one')",
        );
        let best = one(db, BEST);
        let agree = |when: &str| {
            assert_eq!(one(db, BEST), best, "{when}");
            assert_eq!(super::ask_writer(db, BEST), best, "{when}");
            for _ in 0..2 {
                let tx = db.transaction().unwrap();
                assert_eq!(ask(&tx, BEST), best, "{when}");
                tx.execute("UPDATE a SET v = v + 1", ()).wait().unwrap();
                tx.commit().wait().unwrap();
            }
        };
        agree("before");
        let fails = |tx: &Tx<'_>| {
            tx.execute(SET_RANK, ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        };
        assert_eq!(db.write(fails).wait().unwrap_err().kind(), ErrorKind::Aborted);
        agree("behind a write that failed");
        let add = |tx: &Tx<'_>| tx.execute("UPDATE b SET v = v + 1", ());
        let (added, failed) = both(db, || db.write(add), || db.write(fails));
        assert!(added.is_ok() && failed.is_err());
        agree("behind a neighbour that failed");
        assert!(db.write_once(fails).wait().is_err());
        agree("behind a write that runs once and failed");
        let tx = db.transaction().unwrap();
        tx.execute(SET_RANK, ()).wait().unwrap();
        drop(tx);
        agree("behind a transaction that was dropped");
        let tx = db.transaction().unwrap();
        tx.savepoint("s").wait().unwrap();
        tx.execute(SET_RANK, ()).wait().unwrap();
        tx.rollback_to("s").wait().unwrap();
        assert_eq!(ask(&tx, BEST), best);
        tx.commit().wait().unwrap();
        agree("behind a savepoint that was undone");
        let lost = db.write(|tx| {
            tx.execute(SET_RANK, ())?;
            tx.execute("INSERT OR ROLLBACK INTO a VALUES (1, 1)", ())
        });
        assert_eq!(lost.wait().unwrap_err().kind(), ErrorKind::Constraint);
        agree("behind a statement that rolled all back");
    });
}

#[test]
fn a_virtual_table_whose_end_was_undone_is_there_again() {
    each_sharing(|db| {
        write(
            db,
            "CREATE VIRTUAL TABLE doc USING fts4(text);
             CREATE TABLE item(id INTEGER PRIMARY KEY, of); CREATE TABLE stock(n CHECK (n >= 0));
             INSERT INTO stock VALUES (99), (99)",
        );
        let undone: [Insert; 3] = [
            |tx| {
                tx.execute_batch("DROP TABLE doc")?;
                Err(Error::aborted("on purpose"))
            },
            |tx| {
                tx.execute("DROP TABLE doc", ())?;
                tx.execute("INSERT INTO item VALUES (NULL, 1)", ())?;
                tx.execute("INSERT OR ROLLBACK INTO a VALUES (1, 1)", ()).map(drop)
            },
            |tx| {
                tx.prepare("DROP TABLE doc")?.execute(())?;
                Err(Error::aborted("on purpose"))
            },
        ];
        for undo in undone {
            db.write(undo).wait().unwrap_err();
            db.write_once(undo).wait().unwrap_err();
            let (one, told) = both(
                db,
                || db.write(|tx| tx.execute("INSERT INTO doc VALUES ('some text')", ())),
                || {
                    db.write(|tx| {
                        tx.execute("INSERT INTO item(of) VALUES (NULL)", ())?;
                        tx.execute("UPDATE stock SET n = n - 1", ())?;
                        Ok::<_, Error>((tx.last_insert_rowid() > 0, tx.total_changes()))
                    })
                },
            );
            assert_eq!((one.unwrap(), told.unwrap()), (1, (true, 3)));
        }
    });
}

#[test]
fn what_the_engine_has_a_virtual_table_write_is_told_to_nobody() {
    const FIGURES: &str = "SELECT last_insert_rowid() || ' ' || changes()";
    const FAILS: &str = "CREATE UNIQUE INDEX one ON two(x)";
    let text = |row: &Row<'_>| row.get::<_, String>(0);
    for (module, insert) in [
        ("fts4", "INSERT INTO doc VALUES ('a')"),
        ("fts5", "INSERT INTO doc VALUES ('a')"),
        ("fts5", "INSERT INTO doc VALUES ('a'), ('b'), ('c')"),
    ] {
        let schema = format!(
            "CREATE VIRTUAL TABLE doc USING {module}(text);
             CREATE TABLE two(x); INSERT INTO two VALUES (1), (1)"
        );
        let plain = rusqlite::Connection::open_in_memory().unwrap();
        plain.execute_batch(&schema).unwrap();
        plain.execute_batch("BEGIN").unwrap();
        plain.execute(insert, ()).unwrap();
        plain.execute(FAILS, ()).unwrap_err();
        let expected = plain.query_row(FIGURES, (), text).unwrap();
        let (_directory, _, db) = database(Options::new());
        db.write(move |tx| tx.execute_batch(&schema)).wait().unwrap();
        let told = db.write(move |tx| {
            tx.execute(insert, ())?;
            // Behind this the engine has virtual tables write what they hold back.
            tx.execute(FAILS, ()).unwrap_err();
            tx.query_row(FIGURES, (), text)
        });
        assert_eq!(told.wait().unwrap(), expected, "{module}");
    }
}

/// A way to insert rows.
type Insert = fn(&Tx<'_>) -> Result<(), Error>;
