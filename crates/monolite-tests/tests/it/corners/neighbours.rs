//! What a neighbour has left in the memory of a connection: virtual tables hold back what they
//! write and keep their settings there, and SQLite its figures.

use monolite::{
    Database, Error, ErrorKind, InteractiveOptions, Options, Row, Sharing, Tx, Write, rusqlite,
};

use super::{ask, database, number, read, write};
use crate::patience::as_one_batch;

/// A way to insert rows.
type Insert = fn(&Tx<'_>) -> Result<(), Error>;

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
        let best = read(db, BEST);
        let agree = |when: &str| {
            assert_eq!(read(db, BEST), best, "{when}");
            assert_eq!(super::ask_writer(db, BEST), best, "{when}");
            for _ in 0..2 {
                let tx = db.transaction().unwrap();
                assert_eq!(ask(&tx, BEST), best, "{when}");
                tx.execute("UPDATE a SET v = v + 1", ()).wait().unwrap();
                tx.commit().wait().unwrap();
            }
        };
        agree("before");
        let failed = db.write(|tx| {
            tx.execute(SET_RANK, ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        assert_eq!(failed.wait().unwrap_err().kind(), ErrorKind::Aborted);
        agree("behind a write that failed");
        let neighbours = both(
            db,
            || db.write(|tx| tx.execute("UPDATE b SET v = v + 1", ())),
            || {
                db.write(|tx| {
                    tx.execute(SET_RANK, ())?;
                    Err::<(), _>(Error::aborted("on purpose"))
                })
            },
        );
        neighbours.0.unwrap();
        agree("behind a neighbour that failed");
        let once = db.write_once(|tx| {
            tx.execute(SET_RANK, ())?;
            Err::<(), _>(Error::aborted("on purpose"))
        });
        assert!(once.wait().is_err());
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
fn a_trigger_is_told_nothing_of_the_changes_of_others() {
    each_sharing(|db| {
        write(
            db,
            "CREATE TABLE nr(v); CREATE TABLE told(n); CREATE TABLE many(v);
             CREATE TRIGGER t AFTER INSERT ON nr BEGIN INSERT INTO told VALUES (changes()); END",
        );
        let others = || {
            write(db, "INSERT INTO many VALUES (1), (2), (3), (4), (5)");
            ask(
                &db.transaction().unwrap(),
                "UPDATE many SET v = 0 RETURNING (SELECT count(*) FROM many)",
            );
        };
        const INSERT: &str = "INSERT INTO nr VALUES (1), (2)";
        const TOLD: &str = "SELECT sum(n) FROM told";
        let in_writes: [Insert; 4] = [
            |tx| tx.execute(INSERT, ()).map(drop),
            |tx| tx.execute_batch(INSERT),
            |tx| Ok(tx.prepare(INSERT)?.execute(()).map(drop)?),
            |tx| Ok(tx.prepare_cached(INSERT)?.execute(()).map(drop)?),
        ];
        for insert in in_writes {
            others();
            let told = db.write(move |tx| {
                insert(tx)?;
                let told = tx.query_row(TOLD, (), number)?;
                tx.execute("DELETE FROM told", ())?;
                Ok::<_, Error>(told)
            });
            assert_eq!(told.wait().unwrap(), 0);
        }
        for is_batch in [false, true] {
            others();
            let tx = db.transaction().unwrap();
            if is_batch {
                tx.execute_batch(INSERT).wait().unwrap();
            } else {
                tx.execute(INSERT, ()).wait().unwrap();
            }
            assert_eq!(ask(&tx, TOLD), 0);
            others();
            tx.execute("DELETE FROM told", ()).wait().unwrap();
            tx.commit().wait().unwrap();
        }
    });
}

#[test]
fn a_trigger_that_came_behind_a_statement_is_told_nothing_of_the_changes_of_others() {
    const DELETE: &str = "DELETE FROM nr";
    const TRIGGERS: [&str; 3] = [
        "CREATE TRIGGER t BEFORE DELETE ON nr BEGIN INSERT INTO told VALUES (changes()); END",
        "CREATE VIEW figure AS SELECT changes() AS n;
         CREATE TRIGGER t BEFORE DELETE ON nr BEGIN INSERT INTO told SELECT n FROM figure; END",
        "DROP TABLE told; CREATE TABLE told(n DEFAULT (changes()), x);
         CREATE TRIGGER t BEFORE DELETE ON nr BEGIN INSERT INTO told(x) VALUES (1); END",
    ];
    const TOLD: &str = "SELECT count(*) * 100 + sum(n) FROM told";
    for trigger in TRIGGERS {
        each_sharing(|db| {
            write(db, "CREATE TABLE nr(v); CREATE TABLE told(n); CREATE TABLE many(v)");
            db.write(|tx| tx.execute(DELETE, ())).wait().unwrap();
            let tx = db.transaction().unwrap();
            tx.execute(DELETE, ()).wait().unwrap();
            tx.commit().wait().unwrap();
            write(db, trigger);
            let others = || {
                write(db, "INSERT INTO nr VALUES (1), (2), (3)");
                write(db, "INSERT INTO many VALUES (1), (2), (3), (4), (5)");
                let tx = db.transaction().unwrap();
                tx.execute("UPDATE many SET v = 0", ()).wait().unwrap();
            };
            others();
            db.write(|tx| tx.execute(DELETE, ())).wait().unwrap();
            assert_eq!(db.read(|tx| tx.query_row(TOLD, (), number)).wait().unwrap(), 300);
            others();
            let tx = db.transaction().unwrap();
            tx.execute(DELETE, ()).wait().unwrap();
            assert_eq!(ask(&tx, TOLD), 600);
            tx.commit().wait().unwrap();
            // One that was handed out before the trigger came.
            write(db, "DROP TRIGGER t");
            others();
            let told = db.write(move |tx| {
                let mut delete = tx.prepare(DELETE)?;
                let last = trigger.rfind("CREATE").unwrap();
                tx.execute(&trigger[last..], ())?;
                delete.execute(())?;
                tx.query_row(TOLD, (), number)
            });
            assert_eq!(told.wait().unwrap(), 900);
        });
    }
}

#[test]
fn making_changes_tell_nothing_of_others_notes_no_rowid() {
    each_sharing(|db| {
        write(
            db,
            "CREATE TABLE numbered(id INTEGER PRIMARY KEY AUTOINCREMENT, n);
             CREATE TRIGGER t BEFORE DELETE ON a BEGIN
                 INSERT INTO numbered(n) VALUES (changes());
             END",
        );
        write(db, "UPDATE b SET v = 21");
        db.write(|tx| tx.execute("UPDATE b SET v = 22", ())).wait().unwrap();
        let noted = db.read(|tx| tx.query_row("SELECT count(*) FROM sqlite_sequence", (), number));
        assert_eq!(noted.wait().unwrap(), 0);
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
